"""Other policies than those at hand, as an argument names them: also as a revision of git."""

import subprocess
from pathlib import Path

from engine.cli.input_error import InputError
from engine.cli.policy_option import BUILTIN, decidable, read_bundle
from engine.offline.policy_files import PolicyFiles
from engine.offline.text_places import not_utf8
from engine.policy.builtin import TEST_SUFFIX
from engine.policy.bundle import Bundle
from engine.policy.source import SUFFIXES

_GIT_SECONDS = 30.0


def read_other(name: str, beside: str, config: Path | None) -> tuple[Bundle, PolicyFiles]:
    """What *name* means to whoever has the policies *beside*.

    A path or `builtin` is what it is for `read_bundle`; anything else is a revision of the git
    repository that the directory *beside* is in, and means that directory as it was then.
    """
    if name == BUILTIN or Path(name).exists():
        return read_bundle(name, config)
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
        if " blob " not in facts or not name.endswith(SUFFIXES) or name.startswith("."):
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
