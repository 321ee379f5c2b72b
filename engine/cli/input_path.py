"""Files that a command reads, as arguments and options name them.

Owns that `-` is the standard input, as for kubectl. What is in the files is for those who read
them; such a file can be read once.
"""

from pathlib import Path
from typing import Any, Final

import click

_STDIN: Final = Path("/dev/stdin")


class InputPath(click.Path):
    """A path that is there, or `-`."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(exists=True, dir_okay=dir_okay, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of *value*. Fails as `click.Path` does if there is none."""
        found = super().convert(value, param, ctx)
        return _STDIN if found == Path("-") else found
