"""A second set of policies to compare with: a path, `builtin`, or a revision of git."""

import os
import subprocess
from pathlib import Path

from engine.files.policy_files import PolicyFiles
from engine.files.text_places import TextError, decoded
from engine.policy.bundle import Bundle
from engine.policy.file_names import SUFFIXES, TEST_SUFFIX
from engine.surfaces.cli.input_error import InputError
from workbench.cli.policy_option import BUILTIN, decidable, read_bundle

_GIT_SECONDS = 30.0


def read_other(name: str, policies: str, config: Path | None) -> tuple[Bundle, PolicyFiles]:
    """The policies that *name* denotes, to be compared with those of *policies*.

    A path or `builtin` means the same as for `read_bundle`. Anything else is a revision of the git
    repository that contains the directory *policies*, and denotes that directory at that revision.
    """
    if name == BUILTIN or Path(name).exists():
        return read_bundle(name, config)
    directory = Path(policies)
    if not directory.is_dir():
        raise InputError(f"no file or directory `{name}`, and no revision of `{policies}`")
    files = _files_at(directory, name)
    return decidable(files, config), files


def _files_at(directory: Path, revision: str) -> PolicyFiles:
    """The files of *directory* as they were at *revision*."""
    try:
        named = ("--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        at = _git(directory, "rev-parse", *named).decode().strip()
    except _GitError as error:
        why = f": {error}" if str(error) else ""
        raise InputError(
            f"`{revision}`: no such file or directory, and no git revision of `{directory}`{why}"
        ) from error
    texts = {}
    try:
        for name in _git(directory, "ls-tree", "-z", "--name-only", at, "./").split(b"\0"):
            file = os.fsdecode(name)
            if not file.endswith(SUFFIXES) or file.startswith("."):
                continue
            place = f"{revision}:{directory / file}"
            raw = _blob(directory, name, at, place)
            if raw is not None:
                texts[file] = decoded(place, raw)
    except (_GitError, TextError) as error:
        raise InputError(str(error)) from error
    if not any(n.endswith(".star") and not n.endswith(TEST_SUFFIX) for n in texts):
        raise InputError(f"`{directory}` had no `*.star` files at `{revision}`")
    return PolicyFiles(Path(f"{revision}:{directory}"), texts, frozenset(texts))


def _blob(directory: Path, name: bytes, at: str, place: str) -> bytes | None:
    """The content of the file *name* in the commit *at*, links followed; None for a directory.

    Raises `_GitError` with a message that begins with *place*.
    """
    try:
        asked = at.encode() + b":./" + name + b"\n"
        said = _git(directory, "cat-file", "--batch", "--follow-symlinks", given=asked)
    except _GitError as error:
        raise _GitError(f"{place}: {error}") from error
    head, _, content = said.partition(b"\n")
    match head.split():
        case [_, b"blob", size]:
            return content[: int(size)]
        case [_, b"tree", _]:
            return None
    raise _GitError(f"{place}: want a file, got a link to none in the repository")


class _GitError(Exception):
    """git failed; the message is its own."""


def _git(directory: Path, *arguments: str, given: bytes = b"") -> bytes:
    """The standard output of git. Raises `_GitError`."""
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            input=given,
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
        )
    except FileNotFoundError as error:
        raise InputError("`git` is needed for revisions, and was not found") from error
    except subprocess.TimeoutExpired as error:
        raise _GitError(f"git did not answer within {_GIT_SECONDS:g} s") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        fatal = next((line for line in said if line.startswith("fatal: ")), "".join(said[-1:]))
        raise _GitError(fatal.removeprefix("fatal: "))
    return done.stdout
