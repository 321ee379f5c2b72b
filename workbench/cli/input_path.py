"""Files that a command reads, as arguments and options name them.

Owns `-` for the standard input, as in kubectl, at most once in a command, and copies of what can be
read only once. Parsing the files is the commands'.
"""

from pathlib import Path
from typing import Any, Final

import click

from engine.surfaces.cli.output_file import write_file

_STDIN: Final = Path("/dev/stdin")
_TAKEN: Final = "workbench.cli.input_path.stdin"


class InputPath(click.Path):
    """A path that exists, or `-`."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(exists=True, dir_okay=dir_okay, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of *value*. Fails as `click.Path` does if there is none."""
        found = super().convert(value, param, ctx)
        return standard_input() if found == Path("-") else found


#: Adds WORKLOAD to a command: paths of which a workload is made.
workload_argument = click.argument(
    "workload", nargs=-1, required=True, type=InputPath(), metavar="WORKLOAD..."
)


def standard_input() -> Path:
    """The path of the standard input, for what was given as `-`.

    Raises `click.UsageError` if the command uses it already: it can be read only once.
    """
    context = click.get_current_context(silent=True)
    if context is not None:
        if context.meta.get(_TAKEN):
            raise click.UsageError("want `-` once, the standard input, got it twice")
        context.meta[_TAKEN] = True
    return _STDIN


def kept_copy(path: Path, copy: Path) -> Path:
    """*path* if any process can read it again; else a copy of its content, the file *copy*.

    Pipes and descriptors of this process are copied. Raises `OSError`.
    """
    is_own = path.absolute().is_relative_to("/dev") or path.absolute().is_relative_to("/proc")
    if not is_own and (path.is_file() or path.is_dir()):
        return path
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_file(copy, path.read_bytes())
    return copy
