"""What commands write to a terminal, a pipe or a file in place of one.

Names, reasons and messages are written by others, and a terminal obeys control characters. Owns the
streams that write them out, the console for tables and colours, how wide its lines are, and
`--wide`. No command writes past it.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO, TypeVar

import click
from rich import markup
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from engine.lib.printable import printable, printable_lines

Command = TypeVar("Command", bound=Callable[..., Any])

PIPE_WIDTH: Final = 160
_WIDE: Final = "engine.cli.wide"
_COLUMNS: Final = "COLUMNS"
_HANGING: Final = "  "


class EscapingStream:
    """A text stream whose control characters are written out; otherwise the one that it is over."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write *text*; only new lines and tabs are as they are."""
        return self.stream.write(printable_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of *lines*."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def escape(text: str) -> str:
    """*text* of others as a part of one line of rich's markup: no markup, no control characters."""
    return markup.escape(printable(text))


def escape_lines(text: str) -> str:
    """The same of a message that may have several lines."""
    return markup.escape(printable_lines(text))


def echo_styled(styled: str, rest: str = "", **style: Any) -> None:
    """Print *styled* in a style of click's, which a pipe does not get, then *rest*."""
    head = click.style(printable_lines(styled), **style)
    click.echo(f"{head}{printable_lines(rest)}", file=_raw(sys.stdout))


def write_data(data: bytes | str) -> None:
    """Write a file's content to standard output: as it is, unless that is a terminal."""
    raw = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    if sys.stdout.isatty():
        sys.stdout.write(printable_lines(raw.decode(errors="replace")))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()


def wide_option(function: Command) -> Command:
    """Add `--wide` to a command."""

    def keep(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[_WIDE] = value

    return click.option(
        "--wide",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Print a line for each row, however long, and every row.",
    )(function)


def is_wide() -> bool:
    """True if the command that runs has `--wide`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_WIDE))


def console(width: int | None = PIPE_WIDTH, *, file: Any = None, is_error: bool = False) -> Console:
    """A console on standard output, or error; *width* is for what is no terminal."""
    stream = file or (sys.stderr if is_error else sys.stdout)
    width = None if stream.isatty() or _COLUMNS in os.environ else width
    return _Console(file=_raw(stream), width=width, highlight=False, emoji=False)


def table_width(console: Console) -> int:
    """The columns that a table has: all that there can be with `--wide`."""
    return sys.maxsize if is_wide() else console.width


def say(console: Console, styled: str) -> None:
    """Print markup: wrapped at words on a terminal, whole in a pipe, so that it can be searched."""
    is_limited = console.is_terminal or _COLUMNS in os.environ
    width = table_width(console) if is_limited else sys.maxsize
    for line in console.render_str(styled).split("\n", allow_blank=True):
        for part in wrapped(line, width):
            console.print(part, soft_wrap=True)


def echo(text: str, *, err: bool = False) -> None:
    """Print plain text, wrapped alike, on standard output or error."""
    say(console(is_error=err), escape_lines(text))


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


def _raw(stream: Any) -> Any:
    """The stream below: the console itself writes out what is not its own."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


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
