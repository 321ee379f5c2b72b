"""Files that commands write.

Owns that a full disk costs nobody the file that was there, and that an error names the file.
"""

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have every `OSError` name a file: *path*, if it names none, as when a disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def real_place(path: Path) -> Path:
    """Where *path* leads if links are followed. Raises `OSError` if they lead in a circle."""
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return place


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside *path*, which takes its place once the block has written it whole.

    Whoever reads *path* meanwhile sees all of what was there. Each process has one of its own.
    An `OSError` about it names *path*.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(path)
    except OSError as error:
        if str(error.filename) == str(beside):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        beside.unlink(missing_ok=True)


def write_file(path: Path, text: str | bytes) -> None:
    """Write *text* to *path* in place, so that links, owner and mode stay.

    Raises an `OSError` that names it. Where it is room that is missing, the file is as it was then,
    or is none if it was none.
    """
    # A name of a file in it, which need not be UTF-8, is those bytes again.
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    is_new = not os.path.lexists(path)
    is_kept = path.is_file()
    with naming(path):
        try:
            with path.open("r+b" if is_kept else "wb", buffering=0) as file:
                if is_kept:
                    _make_room(file, len(data))
                _write(file, data)
                if is_kept:
                    file.truncate()
        except OSError:
            if is_new:
                path.unlink(missing_ok=True)
            raise


def _make_room(file: io.FileIO, size: int) -> None:
    """Let *file* have *size* bytes at least, or leave it as it is."""
    before = file.seek(0, os.SEEK_END)
    try:
        _write(file, b"\n" * (size - before))
    except OSError:
        file.truncate(before)
        raise
    file.seek(0)


def _write(file: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[cast("int", file.write(rest)) :]
