"""Files that a command reads, as arguments and options name them.

Owns that `-` is the standard input, as for kubectl, once in a command, and keeping what can be read
once only. What is in the files is for those who read them.
"""

from pathlib import Path
from typing import Any, Final

import click

from engine.cli.output_file import write_file

_STDIN: Final = Path("/dev/stdin")
_TAKEN: Final = "engine.cli.input_path.stdin"


class InputPath(click.Path):
    """A path that is there, or `-`."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(exists=True, dir_okay=dir_okay, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of *value*. Fails as `click.Path` does if there is none."""
        found = super().convert(value, param, ctx)
        return standard_input() if found == Path("-") else found


def standard_input() -> Path:
    """The path of the standard input, for what was given as `-`.

    Raises `click.UsageError` if the command took it already: it can be read once.
    """
    context = click.get_current_context(silent=True)
    if context is not None:
        if context.meta.get(_TAKEN):
            raise click.UsageError("want `-` once, the standard input, got it twice")
        context.meta[_TAKEN] = True
    return _STDIN


def kept_copy(path: Path, copy: Path) -> Path:
    """*path* if any process can read it again; else what is in it as the file *copy*.

    The latter are pipes, and descriptors of this process. Raises `OSError`.
    """
    is_own = path.absolute().is_relative_to("/dev") or path.absolute().is_relative_to("/proc")
    if not is_own and (path.is_file() or path.is_dir()):
        return path
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_file(copy, path.read_bytes())
    return copy
