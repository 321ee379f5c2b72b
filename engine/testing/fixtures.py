"""Reads the files that tests use: manifests as `kubectl` writes them, and tables of cases.

Owns where a test may read (the directory of its file and what is below), the objects of a
file, checked one by one, and where a problem is. What is made of the objects is
`@std/testing.star`'s.
"""

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

import msgspec

from engine.core.manifests.field_errors import field_error, place_of, shown
from engine.core.model.node import Node
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.files.cluster_file import API_VERSION as SNAPSHOT_VERSION
from engine.files.cluster_file import KIND as SNAPSHOT
from engine.files.cluster_file import Cluster
from engine.files.given_objects import GivenError, GivenObject, located, require_types
from engine.files.text_places import TextError, decoded, line_at, parsed_json, parsed_yaml
from engine.files.world import OBJECT_KINDS

MOST_BYTES: Final = 64 << 20

_MANIFESTS: Final = (".json", ".yaml", ".yml", ".json.gz", ".yaml.gz", ".yml.gz")
_TABLES: Final = (".json", ".yaml", ".yml", ".csv")
_PARTED: Final = ("Node", "Pod", "PodGroup")
_CLUSTER_WIDE: Final = frozenset(
    {"Node", "Namespace", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver"}
    | {"VolumeAttachment", "ResourceSlice", "DeviceClass", "DeviceTaintRule", "PriorityClass"}
)
_READ_KINDS: Final = ("Node", "Pod", "PriorityClass", *OBJECT_KINDS)


class FixtureError(ValueError):
    """A file that a test cannot use; the message names it, the line and what is wrong."""


class NoFileHere(FixtureError):
    """The files of the test are not available, as in a ConfigMap with policies alone."""


class TestFiles(Protocol):
    """Where tests read files."""

    def names(self, path: str, suffixes: tuple[str, ...]) -> list[str]:
        """The files that *path* means: itself, or those of a directory. Raises `FixtureError`."""
        ...

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises `FixtureError`."""
        ...


@dataclass(slots=True)
class DirectoryFiles:
    """The files of *root* and of what is below it; nothing else can be reached.

    `used` has every path that was asked for, also of those that are not there.
    """

    root: Path
    used: set[Path] = field(default_factory=set)

    def names(self, path: str, suffixes: tuple[str, ...]) -> list[str]:
        """The files that *path* means. Raises `FixtureError`."""
        found = self._resolve(path)
        if not found.is_dir():
            return [path]
        names = [
            (PurePosixPath(path) / one.relative_to(found).as_posix()).as_posix()
            for one in sorted(found.rglob("*"))
            if one.is_file() and one.name.endswith(suffixes) and not one.name.startswith(".")
        ]
        if not names:
            want = ", ".join(f"`*{suffix}`" for suffix in suffixes)
            raise FixtureError(f"{path}: want a directory with {want}, found none")
        return names

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises `FixtureError`."""
        path = self._resolve(name)
        try:
            with path.open("rb") as stream:
                raw = stream.read(MOST_BYTES + 1)
        except OSError as error:
            raise FixtureError(f"{name}: {(error.strerror or str(error)).lower()}") from error
        if len(raw) > MOST_BYTES:
            raise FixtureError(f"{name}: want at most {MOST_BYTES:,} bytes, got more")
        return raw

    def _resolve(self, path: str) -> Path:
        root = self.root.resolve()
        given = root / path
        # Links are followed first: one that leads out of the tree is a way out of it too.
        real = Path(os.path.realpath(given))
        if not path or Path(path).is_absolute() or not real.is_relative_to(root):
            raise FixtureError(
                f"{path}: want a path in or below the directory of the test, got one outside"
            )
        self.used |= {given, real}
        return real


@dataclass(slots=True)
class GivenFiles:
    """Files given as texts; others are unavailable, which is no failure of a test."""

    texts: Mapping[str, str]

    def names(self, path: str, suffixes: tuple[str, ...]) -> list[str]:
        """*path* alone: there are no directories."""
        return [path]

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises `NoFileHere`."""
        text = self.texts.get(name)
        if text is None:
            raise NoFileHere(f"{name}: no such file among those of the policies")
        return text.encode()


# --- manifests -------------------------------------------------------------------------------


class _Found(GivenObject):
    """One object of a file; what is wrong with it is an error of the fixture."""

    def wrong(self, message: str, at: tuple[str | int, ...] = ()) -> FixtureError:
        """*message* about the field *at* of the object."""
        return FixtureError(self.problem(message, at))


def read_manifests(files: TestFiles, paths: Iterable[str]) -> dict[str, Any]:
    """The objects of *paths*, which are files or directories of them.

    Returns plain data, lists of manifests: `nodes`, `pods` (each with a namespace and the priority
    of its class), `objects` (the others that decisions read), and `others` by kind. Raises
    `FixtureError` for the first problem.
    """
    every: list[_Found] = []
    for path in paths:
        for name in files.names(path, _MANIFESTS):
            if not name.endswith(_MANIFESTS):
                want = ", ".join(f"`{suffix}`" for suffix in _MANIFESTS)
                raise FixtureError(f"{name}: want a file that ends in one of {want}")
            every += _objects(name, files.read(name))
    try:
        require_types(every)
    except GivenError as error:
        raise FixtureError(str(error)) from error
    cluster = Cluster()
    seen: dict[tuple[str, str], _Found] = {}
    others: dict[str, list[dict[str, Any]]] = {}
    for found in every:
        _check_head(found)
        manifest = found.manifest
        kind = str(manifest["kind"])
        metadata = manifest["metadata"]
        if kind not in _CLUSTER_WIDE and kind in _READ_KINDS:
            metadata["namespace"] = metadata.get("namespace") or "default"
        key = f"{metadata.get('namespace') or ''}/{metadata['name']}"
        first = seen.setdefault((kind, key), found)
        if first is not found:
            line = first.line_of(first.path)
            raise found.wrong(f"the second of this name; the first is {first.file}:{line}")
        _check_body(found, kind)
        cluster.known.add(manifest)
    try:
        for found in every:
            with located(found):
                manifest = cluster.admitted(found.manifest)
            cluster.add(manifest)
            if manifest["kind"] not in ("Node", "Pod"):
                others.setdefault(manifest["kind"], []).append(manifest)
    except GivenError as error:
        raise FixtureError(str(error)) from error
    read = cluster.objects
    return {"nodes": cluster.nodes, "pods": cluster.pods, "objects": read, "others": others}


def _objects(name: str, raw: bytes) -> Iterator[_Found]:
    documents, line_of = _parse(name, raw)
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _items(name, number, (), document, line_of(number))


def _items(
    name: str,
    number: int,
    path: tuple[str | int, ...],
    value: Any,
    line_of: Callable[[tuple[str | int, ...]], int],
) -> Iterator[_Found]:
    """*value* itself, or the objects of the list that it is."""
    if not isinstance(value, dict):
        found = _Found(name, number, path, {}, line_of)
        raise found.wrong(f"want an object, got {shown(value)}")
    kind = str(value.get("kind", ""))
    if kind != SNAPSHOT and not kind.endswith("List"):
        yield _Found(name, number, path, value, line_of)
        return
    version = value.get("apiVersion", SNAPSHOT_VERSION)
    if kind == SNAPSHOT and version != SNAPSHOT_VERSION:
        raise _Found(name, number, path, value, line_of).wrong(
            f"want `{SNAPSHOT_VERSION}`, got {shown(version)}", ("apiVersion",)
        )
    items = value.get("items")
    if not isinstance(items, list):
        raise _Found(name, number, path, value, line_of).wrong(
            f"want a list, got {shown(items)}", ("items",)
        )
    for index, item in enumerate(items):
        at = (*path, "items", index)
        if isinstance(item, dict) and kind not in (SNAPSHOT, "List"):
            item = {"kind": kind.removesuffix("List"), **item}  # the API leaves it out there
        yield from _items(name, number, at, item, line_of)


def _check_head(found: _Found) -> None:
    manifest = found.manifest
    kind = manifest.get("kind")
    if not isinstance(kind, str) or not kind:
        raise found.wrong(f"want the kind of the object, got {shown(kind)}", ("kind",))
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise found.wrong(f"want an object, got {shown(metadata)}", ("metadata",))
    for key in ("name", "namespace"):
        value = metadata.get(key)
        if (key == "name" and not value) or (value is not None and not isinstance(value, str)):
            raise found.wrong(f"want a text, got {shown(value)}", ("metadata", key))


def find_misshapen(name: str, raw: bytes) -> FixtureError | None:
    """The first object of the file *name* that has not the shape that the API gives its kind.

    Raises `FixtureError` for a file that holds no objects.
    """
    for found in _objects(name, raw):
        manifest = found.manifest
        try:
            for member in ("metadata", "spec", "status") if manifest.get("kind") in _PARTED else ():
                if not isinstance(value := manifest.get(member) or {}, dict):
                    raise found.wrong(f"want an object, got {shown(value)}", (member,))
            _shape_problems(found, str(manifest.get("kind") or ""))
        except FixtureError as error:
            return error
    return None


def _check_body(found: _Found, kind: str) -> None:
    """Raise if a field has a type that the API forbids, or a quantity is malformed."""
    if kind == "Pod" and not isinstance(spec := found.manifest.get("spec"), dict):
        raise found.wrong(f"want an object, got {shown(spec)}", ("spec",))
    for problem in _shape_problems(found, kind):
        path, _, message = problem.partition(": ")
        at = place_of(found.manifest, f".{path}", "")
        raise found.wrong(message, at)


def _shape_problems(found: _Found, kind: str) -> Iterable[str]:
    """What is wrong with the values of fields; raises `FixtureError` if it is their type."""
    manifest = found.manifest
    try:
        if kind == "Node":
            return Node.from_raw(msgspec.json.encode(manifest)).problems
        if kind == "Pod":
            return Pod.from_raw(msgspec.json.encode(manifest)).problems
        if kind == "PriorityClass":
            value = manifest.get("value", 0)
            if not isinstance(value, int) or isinstance(value, bool):
                raise found.wrong(f"want an int, got {shown(value)}", ("value",))
        elif kind in OBJECT_KINDS:
            from_plain(OBJECT_KINDS[kind][1], manifest)
    except msgspec.DecodeError as error:
        at, message = field_error(manifest, str(error))
        raise found.wrong(message, at) from error
    return ()


# --- tables ----------------------------------------------------------------------------------


def read_data(files: TestFiles, path: str) -> Any:
    """The plain data of a YAML, JSON or CSV file.

    A CSV file is a list of rows by the names of its first line; cells that are JSON numbers, true
    or false are those, empty ones are null, others are text. Raises `FixtureError`.
    """
    if not path.endswith(_TABLES):
        want = ", ".join(f"`{suffix}`" for suffix in _TABLES)
        raise FixtureError(f"{path}: want a file that ends in one of {want}")
    raw = files.read(path)
    if path.endswith(".csv"):
        return _rows(path, raw)
    documents, _ = _parse(path, raw)
    if len(documents) != 1:
        raise FixtureError(f"{path}: want one document, got {len(documents)}")
    try:
        # Also a check that YAML has nothing that JSON, and so Starlark, has not.
        return msgspec.json.decode(msgspec.json.encode(documents[0]))
    except (TypeError, ValueError) as error:
        raise FixtureError(f"{path}: want values that JSON can represent: {error}") from error


def _rows(path: str, raw: bytes) -> list[dict[str, Any]]:
    reader = csv.reader(io.StringIO(_decoded(path, raw), newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not names:
                names = [cell.strip() for cell in cells]
                if "" in names or len(set(names)) < len(names):
                    message = "want unique column names in the first line"
                    raise FixtureError(f"{path}:{reader.line_num}: {message}")
                continue
            if len(cells) != len(names):
                message = f"want {len(names)} cells, got {len(cells)}"
                raise FixtureError(f"{path}:{reader.line_num}: {message}")
            rows.append(dict(zip(names, map(_cell, cells), strict=True)))
    except csv.Error as error:
        raise FixtureError(f"{path}:{reader.line_num}: {error}") from error
    return rows


def _cell(text: str) -> Any:
    text = text.strip()
    if not text:
        return None
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text


# --- texts -----------------------------------------------------------------------------------


LineOf = Callable[[int], Callable[[tuple[str | int, ...]], int]]


def _decoded(name: str, raw: bytes) -> str:
    try:
        return decoded(name, raw)
    except TextError as error:
        raise FixtureError(str(error)) from error


def _parse(name: str, raw: bytes) -> tuple[list[Any], LineOf]:
    """The documents, and what gives the line of a path in the document of a number."""
    if raw.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(io.BytesIO(raw)) as stream:
                raw = stream.read(MOST_BYTES + 1)
        except (OSError, EOFError) as error:
            raise FixtureError(f"{name}: {error}") from error
        if len(raw) > MOST_BYTES:
            raise FixtureError(f"{name}: want at most {MOST_BYTES:,} bytes unpacked, got more")
    text = _decoded(name, raw)

    def line_of(number: int) -> Callable[[tuple[str | int, ...]], int]:
        return lambda path: line_at(text, number, path)

    try:
        if name.removesuffix(".gz").endswith(".json"):
            return [parsed_json(name, text.encode())], line_of
        return parsed_yaml(name, text), line_of
    except TextError as error:
        raise FixtureError(str(error)) from error


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name") or ""
    return f"{namespace}/{name}" if namespace else str(name)
