"""Policy files on disk, read the way the ConfigMap's keys are.

Owns finding the files that a path means. A directory is one set of files, like one ConfigMap: its
own Starlark, YAML and JSON files, not those of the directories inside it, which are sets of their
own. Understanding the files is `policy.bundle`'s.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import engine
from engine.files.text_places import not_utf8
from engine.lib.directories import files_in, walk
from engine.policy.config import KINDS
from engine.policy.file_names import STARLARK_SUFFIX, SUFFIXES, TEST_DATA_SUFFIXES

_STD: Final = Path(engine.__file__).parents[1] / "policies" / "std"


class PolicyFilesError(ValueError):
    """A path that cannot be read as policy files; the message names it."""


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """The files of one directory.

    Attributes:
        directory: Where they are, as the caller wrote it.
        texts: File name to text: what a bundle is built from.
        selected: The names that the caller asked about; other files are only there to be loaded.
    """

    directory: Path
    texts: Mapping[str, str]
    selected: frozenset[str]

    def shown(self, module: str) -> str:
        """*module* as a path that can be opened from here; shipped modules stay as they are."""
        return str(self.directory / module) if module in self.texts else module


def read_policy_files(paths: Iterable[Path]) -> list[PolicyFiles]:
    """The sets of files that *paths* (files or directories) mean, in order, each directory once.

    Directories are searched to the bottom. Where YAML or JSON files are named, the others next to
    them are no part of the set. Raises `PolicyFilesError` for a path that does not
    exist, has another suffix, is not UTF-8 text, or a directory without policy files: neither it
    nor one inside it has `*.star` files, and it has no documents of policies itself.
    """
    wanted: dict[Path, set[str]] = {}
    for path in paths:
        if path.is_dir():
            # A profile or a tree of queues alone will do, for the policies that ship.
            found = list(_directories(path)) or [read_bundle_files(path).directory]
            for directory in found:
                wanted.setdefault(directory, set()).update(_names(directory))
        elif not path.exists():
            raise PolicyFilesError(f"{path}: no such file or directory")
        elif path.suffix not in SUFFIXES:
            raise PolicyFilesError(f"{path}: want a `.star`, `.yaml`, `.yml` or `.json` file")
        else:
            wanted.setdefault(path.parent, set()).add(path.name)
    in_sets = {one: _in_set(one, selected) for one, selected in wanted.items()}
    texts = _read_all(directory / name for directory, names in in_sets.items() for name in names)
    return [
        PolicyFiles(
            directory,
            {name: texts[directory / name] for name in in_sets[directory]},
            frozenset(selected),
        )
        for directory, selected in wanted.items()
    ]


def _in_set(directory: Path, selected: set[str]) -> list[str]:
    """The files of *directory* that make one set with those *selected*."""
    names = _names(directory)
    always = (STARLARK_SUFFIX, *TEST_DATA_SUFFIXES)
    if all(name.endswith(always) for name in selected):
        return names
    return [name for name in names if name in selected or name.endswith(always)]


def read_bundle_files(directory: Path) -> PolicyFiles:
    """The files of *directory* itself, as the keys of one ConfigMap.

    A profile alone will do, for the policies that ship. Raises `PolicyFilesError`.
    """
    if not directory.is_dir():
        wrong = "want a directory" if directory.exists() else "no such file or directory"
        raise PolicyFilesError(f"{directory}: {wrong}")
    read = _read_all(directory / name for name in _names(directory))
    texts = {path.name: text for path, text in read.items()}
    if not any(
        name.endswith(STARLARK_SUFFIX) or any(f"kind: {kind}" in text for kind in KINDS)
        for name, text in texts.items()
    ):
        raise PolicyFilesError(
            f"{directory}: want a directory with `*.star` files, or with a profile or a QueueTree"
        )
    return PolicyFiles(directory, texts, frozenset(texts))


def _directories(root: Path) -> Iterator[Path]:
    """Those with policies. The shared functions that ship are checked with those that load them."""
    for directory in walk(root):
        is_asked = directory is root or directory.resolve() != _STD
        if is_asked and any(name.endswith(STARLARK_SUFFIX) for name in _names(directory)):
            yield directory


def _names(directory: Path) -> list[str]:
    return [path.name for path in files_in(directory, SUFFIXES)]


def _read_all(paths: Iterable[Path]) -> dict[Path, str]:
    """The texts of *paths*. Raises `PolicyFilesError` with every one that cannot be read."""
    texts: dict[Path, str] = {}
    wrong: list[str] = []
    for path in paths:
        try:
            texts[path] = _read(path)
        except PolicyFilesError as error:
            wrong.append(str(error))
    if wrong:
        raise PolicyFilesError("\n".join(wrong))
    return texts


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise PolicyFilesError(not_utf8(str(path), error)) from error
    except OSError as error:
        raise PolicyFilesError(f"{path}: {error.strerror}") from error
