"""The console that commands lay tables and colours out on, and how wide its lines are.

Owns the markup of the commands: names and messages are written by others, so whatever is put into
markup is escaped, and control characters are written out. Plain text needs no console: see
`terminal`.
"""

import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from rich import markup
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from engine.lib.printable import printable, printable_lines
from engine.surfaces.cli.terminal import COLUMNS, is_wide, raw

PIPE_WIDTH: Final = 160
_HANGING: Final = "  "


def escape(text: str) -> str:
    """*text* of others as a part of one line of rich's markup: no markup, no control characters."""
    return markup.escape(printable(text))


def escape_lines(text: str) -> str:
    """The same of a message that may have several lines."""
    return markup.escape(printable_lines(text))


def make_console(
    width: int | None = PIPE_WIDTH, *, file: Any = None, is_error: bool = False
) -> Console:
    """A console on standard output, or error; *width* is for what is no terminal."""
    stream = file or (sys.stderr if is_error else sys.stdout)
    width = None if stream.isatty() or COLUMNS in os.environ else width
    return _Console(file=raw(stream), width=width, highlight=False, emoji=False)


def table_width(console: Console) -> int:
    """The columns that a table has: all that there can be with `--wide`."""
    return sys.maxsize if is_wide() else console.width


def say(console: Console, styled: str) -> None:
    """Print markup: wrapped at words on a terminal, whole in a pipe, so that it can be searched."""
    is_limited = console.is_terminal or COLUMNS in os.environ
    width = table_width(console) if is_limited else sys.maxsize
    for line in console.render_str(styled).split("\n", allow_blank=True):
        for part in wrapped(line, width):
            console.print(part, soft_wrap=True)


def wrapped(line: Text, width: int) -> list[Text]:
    """*line* in parts of at most *width* columns, each of whole words, however long one is.

    The parts after the first are indented a little more than it.
    """
    indent = re.match(r"\s*", line.plain)[0] + _HANGING  # type: ignore[index]  # it always matches
    places, used = [0], 0
    for word in re.finditer(r"\s*\S+", line.plain):
        needed = cell_len(word[0])
        if used and used + needed > width:
            text = word[0].lstrip()
            places += [word.start(), word.end() - len(text)]
            used, needed = len(indent), cell_len(text)
        used += needed
    pieces = line.divide(places[1:])
    return [pieces[0], *(Text(indent) + one for one in pieces[2::2])]


class _Console(Console):
    """Writes out the control characters of all that it is given; those that are left are its own.

    In texts before they are laid out, as what is written out is wider, and in whatever comes of
    other renderables.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable_lines(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)
