"""What commands write to a terminal, a pipe or a file in place of one.

Names, reasons and messages are written by others, and a terminal obeys control characters. Owns the
streams that write them out, and the console for tables and colours. No command writes past it.
"""

import sys
from collections.abc import Iterable
from typing import Any, Final, TextIO

import click
from rich import markup
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from engine.lib.printable import printable, printable_lines

PIPE_WIDTH: Final = 160


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


def console(width: int | None = PIPE_WIDTH, *, file: Any = None, is_error: bool = False) -> Console:
    """A console on standard output, or error; *width* is for what is no terminal."""
    stream = file or (sys.stderr if is_error else sys.stdout)
    width = None if stream.isatty() else width
    return _Console(file=_raw(stream), width=width, highlight=False, emoji=False)


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
