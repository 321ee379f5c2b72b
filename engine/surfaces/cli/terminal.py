"""What commands write to a terminal, a pipe or a file in place of one.

Names, reasons and messages are written by others, and a terminal obeys control characters. Owns the
streams that write them out, plain text, and `--wide`; tables and colours are `console`'s. No
command writes past the two.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO, TypeVar

import click

from engine.lib.printable import printable_lines

Command = TypeVar("Command", bound=Callable[..., Any])

_WIDE: Final = "workbench.cli.wide"
#: The variable that says how wide lines are where there is no terminal.
COLUMNS: Final = "COLUMNS"


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


def echo_styled(styled: str, rest: str = "", **style: Any) -> None:
    """Print *styled* in a style of click's, which a pipe does not get, then *rest*."""
    head = click.style(printable_lines(styled), **style)
    click.echo(f"{head}{printable_lines(rest)}", file=raw(sys.stdout))


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


def echo(text: str, *, err: bool = False) -> None:
    """Print plain text: wrapped at words on a terminal, whole in a pipe; on output or error."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty() and COLUMNS not in os.environ:
        click.echo(printable_lines(text), file=raw(stream))
        return
    # Imported where lines are laid out: a pipe, such as an editor's, needs none of it.
    from engine.surfaces.cli.console import escape_lines, make_console, say

    say(make_console(is_error=err), escape_lines(text))


def raw(stream: Any) -> Any:
    """The stream below, for what has its control characters written out already."""
    return stream.stream if isinstance(stream, EscapingStream) else stream
