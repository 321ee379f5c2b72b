"""The objects of a file that people write or keep: each with its place, for messages about it.

Owns what a message says of an object and its place. Reading files is the caller's.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.core.manifests.field_errors import Steps, written
from engine.core.manifests.schema import Problem, type_problems
from engine.files.admission import Refused, is_of_cluster, kind_of, kind_problem
from engine.files.text_places import FileError
from engine.files.world import ManifestError
from engine.lib.printable import printable

LineOf = Callable[[Steps], int]


class GivenError(ManifestError, FileError):
    """What is wrong with objects of files: a line for each problem, which begins with its place."""


@dataclass(frozen=True, slots=True)
class GivenObject:
    """One object of a file, and where it is."""

    file: str
    document: int
    path: Steps
    manifest: dict[str, Any]
    line_of: LineOf

    def problem(self, message: str, at: Steps = ()) -> str:
        """*message* about the field *at* of the object, with its place."""
        line = self.line_of((*self.path, *at))
        place = f"{self.file}:{line}" if line else self.file
        item = written(self.path)
        where = f"document {self.document}" + (f", {item}" if item else "")
        kind, name = self.manifest.get("kind"), name_of(self.manifest)
        what = f", {kind} `{name}`" if kind and name else f", {kind}" if kind else ""
        at_text = f"{written(at)}: " if at else ""
        return printable(f"{place}: {where}{what}: {at_text}{message}")


def name_of(manifest: Any) -> str:
    """`namespace/name`, or the name of what is in no namespace."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name") or ""
    return f"{namespace}/{name}" if namespace else str(name)


def given_problems(manifest: dict[str, Any]) -> list[Problem]:
    """What is wrong with the kind of *manifest*, or else with the types of its fields."""
    kind = kind_of(manifest)
    if kind is not None:
        return type_problems(kind, manifest)
    problem = kind_problem(manifest)
    return [] if problem is None else [problem]


def require_types(given: Iterable[GivenObject]) -> None:
    """Raise `GivenError` for all fields that the API has not, or not with such a value.

    What a cluster has stored may be of a newer version, and is not looked at.
    """
    found = []
    for one in given:
        if not is_of_cluster(one.manifest):
            wrong = given_problems(one.manifest)
            found += [one.problem(problem.text, problem.path) for problem in wrong]
    if found:
        raise GivenError("\n".join(found))


@contextlib.contextmanager
def located(given: GivenObject, within: Steps = ()) -> Iterator[None]:
    """Add the place of *given* to refusals of it, or of what is *within* it."""
    try:
        yield
    except Refused as error:
        at = ((one.text, (*within, *one.path)) for one in error.problems)
        raise GivenError("\n".join(given.problem(text, path) for text, path in at)) from error
