"""Standard output of every command: without control characters of others, and if it is lost.

Owns how a command exits if it cannot be written: closed, a pipe without a reader, a full disk.
Errors of other files are reported where those are written.
"""

import contextlib
import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any, Final

import click

from engine.surfaces.cli.terminal import EscapingStream

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def exit_if_output_is_lost() -> Iterator[None]:
    """Exit with code 1 if output is lost: silently without a reader, else with an error."""
    # Streams that the parent process has closed. Opened in this order, each gets its usual
    # descriptor. Otherwise another file would get it, and the event loop would abort the process.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115  # open until exit
            os.set_inheritable(nowhere.fileno(), True)  # like the usual ones
            setattr(sys, name, nowhere)
    # File names need not be UTF-8, and in most locales encoding such a name is an error.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as for standard error
    try:
        try:
            with _escaping():
                yield
        finally:
            sys.stdout.flush()  # otherwise the interpreter does, with a message of its own
    except OSError as error:
        # Errors of files name them.
        if error.filename is not None or error.errno not in (errno.EPIPE, *_FULL):
            raise
        # Discard what is still buffered, so that it is not written again at exit.
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            with contextlib.suppress(OSError):
                click.echo(f"Error: standard output: {os.strerror(error.errno).lower()}", err=True)
        raise SystemExit(1) from None


@contextlib.contextmanager
def _escaping() -> Iterator[None]:
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(EscapingStream, streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


#: The exit code after an exception that no command expects.
INTERNAL_ERROR: Final = 70


class GuardedGroup(click.Group):
    """A group of commands whose output is guarded like that."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program: a traceback quotes what others wrote, too."""
        try:
            return super().__call__(*args, **kwargs)
        except Exception:
            traceback.print_exc(file=EscapingStream(sys.stderr))
            click.echo("internal error: please report this, with what is above", err=True)
            raise SystemExit(self.fault_code()) from None

    def fault_code(self) -> int:
        """The exit code after an exception that no command expects.

        1 is a finding of most commands, and what reads it must not take a fault for one.
        """
        return INTERNAL_ERROR

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run with guarded output."""
        if os.environ.get("NO_COLOR"):
            kwargs.setdefault("color", False)  # rich reads it itself, click does not
        with exit_if_output_is_lost():
            return super().main(*args, **kwargs)
