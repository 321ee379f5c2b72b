"""What is printed, where it cannot be printed: closed, a pipe that nobody reads, a full disk.

Owns how every command ends then. What files cannot hold is told where they are written.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Final

import click

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def lost_output_ends_it() -> Iterator[None]:
    """Exit with code 1 if what is printed is lost: in silence if nobody reads it, else told."""
    # What whoever started the command has closed. In this order each gets the descriptor that it
    # always has, which nothing else may be opened as: the event loop ends the process over it.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115  # to the end
            os.set_inheritable(nowhere.fileno(), True)  # as the usual ones are
            setattr(sys, name, nowhere)
    # A name of a file need not be UTF-8; in most locales what cannot be encoded is an error.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as the standard error
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # or the interpreter would, and tell of it as it likes
    except OSError as error:
        # Errors of files name them.
        if error.filename is not None or error.errno not in (errno.EPIPE, *_FULL):
            raise
        # Nothing is to be left that would be tried once more.
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            with contextlib.suppress(OSError):
                click.echo(f"Error: standard output: {os.strerror(error.errno).lower()}", err=True)
        raise SystemExit(1) from None
