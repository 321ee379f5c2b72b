"""Sets of policies as an argument names them: a directory, a ConfigMap, a revision of git."""

import subprocess
from pathlib import Path
from typing import Any

from engine.cli.input_error import InputError
from engine.cli.policy_option import BUILTIN, decidable, read_bundle
from engine.offline.cluster_file import ClusterFileError, read_documents
from engine.offline.policy_files import PolicyFiles
from engine.offline.text_places import not_utf8
from engine.policy.builtin import TEST_SUFFIX
from engine.policy.bundle import Bundle
from engine.policy.check import STARLARK_SUFFIX

_SUFFIXES = (".star", ".yaml", ".yml", ".json")
_GIT_SECONDS = 30.0


def read_set(name: str, config: Path | None) -> tuple[Bundle, PolicyFiles]:
    """The policies of a directory, of a file with a ConfigMap, or `builtin`, with their files.

    Raises `InputError` for what cannot be read, and with every problem of policies that cannot
    decide.
    """
    path = Path(name)
    if name == BUILTIN or not path.is_file():
        return read_bundle(name, config)
    if path.suffix == STARLARK_SUFFIX:
        wanted = f"want a directory, a file with a ConfigMap, or `{BUILTIN}`"
        hint = f"`{path.parent}` is its directory"
        raise InputError(f"{path}: {wanted}, got one policy\nhint: {hint}")
    try:
        maps = [one for one in read_documents(path) if one.get("kind") == "ConfigMap"]
    except ClusterFileError as error:
        raise InputError(str(error)) from error
    if len(maps) != 1:
        raise InputError(f"{path}: want one ConfigMap, found {len(maps)}")
    texts = _texts(path, maps[0])
    files = PolicyFiles(path, texts, frozenset(texts))
    return decidable(files, config), files


def _texts(path: Path, config_map: dict[str, Any]) -> dict[str, str]:
    """The data of a ConfigMap, which are texts by key; a scheduler refuses what is refused here."""
    parts = {part: config_map.get(part) or {} for part in ("data", "binaryData")}
    for part, values in parts.items():
        if not isinstance(values, dict):
            raise InputError(f"{path}: {part}: want texts by key, got {type(values).__name__}")
    for key, text in parts["data"].items():
        if not isinstance(text, str):
            raise InputError(f"{path}: data: `{key}`: want a text, got {text!r}")
    for key in parts["binaryData"]:
        if str(key).endswith(_SUFFIXES):
            raise InputError(f"{path}: `{key}`: want UTF-8 text under `data`, got `binaryData`")
    return {str(key): text for key, text in parts["data"].items()}


def read_other(name: str, beside: str, config: Path | None) -> tuple[Bundle, PolicyFiles]:
    """What *name* means to whoever has the policies *beside*.

    A path or `builtin` is what it is for `read_set`; anything else is a revision of the git
    repository that the directory *beside* is in, and means that directory as it was then.
    """
    if name == BUILTIN or Path(name).exists():
        return read_set(name, config)
    directory = Path(beside)
    if not directory.is_dir():
        raise InputError(f"no file or directory `{name}`, and no revision of `{beside}`")
    files = _files_at(directory, name)
    return decidable(files, config), files


def _files_at(directory: Path, revision: str) -> PolicyFiles:
    """The files of *directory* as they were at *revision*."""
    commit = _git(
        directory, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    if commit is None:
        raise InputError(
            f"`{revision}`: no such file or directory, and no git revision of `{directory}`"
        )
    at = commit.decode().strip()
    listed = _git(directory, "ls-tree", "-z", at, "./") or b""
    texts = {}
    for entry in listed.split(b"\0"):
        facts, _, name = entry.decode(errors="surrogateescape").partition("\t")
        if " blob " not in facts or not name.endswith(_SUFFIXES) or name.startswith("."):
            continue
        raw = _git(directory, "cat-file", "blob", facts.split()[2])
        try:
            texts[name] = (raw or b"").decode()
        except UnicodeDecodeError as error:
            raise InputError(not_utf8(f"{revision}:{directory / name}", error)) from error
    if not any(n.endswith(".star") and not n.endswith(TEST_SUFFIX) for n in texts):
        raise InputError(f"`{directory}` had no `*.star` files at `{revision}`")
    return PolicyFiles(Path(f"{revision}:{directory}"), texts, frozenset(texts))


def _git(directory: Path, *arguments: str) -> bytes | None:
    """What git prints, or None if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
        )
    except FileNotFoundError as error:
        raise InputError("there is no `git` to ask for revisions") from error
    return done.stdout if done.returncode == 0 else None
