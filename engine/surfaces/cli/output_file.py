"""Files that commands write.

Guarantees that a full disk leaves the existing file as it was, and that errors name the file.
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
    """Make every `OSError` name a file: *path* if it names none, as when the disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def real_place(path: Path) -> Path:
    """*path* with links resolved. Raises `OSError` if they form a cycle."""
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return place


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file in the directory of *path*, which replaces it when the block succeeds.

    Until then *path* keeps its old content. Each process has a temporary file of its own. An
    `OSError` about it names *path*.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if str(error.filename) == str(temporary):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: Path, text: str | bytes) -> None:
    """Write *text* to *path* in place, so that links, owner and mode stay.

    Raises an `OSError` that names the file. If the disk is full, an existing file keeps its
    content, and a new one is removed.
    """
    # A file name in the text that is not UTF-8 is written as its original bytes.
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    is_new = not os.path.lexists(path)
    is_kept = path.is_file()
    with naming(path):
        try:
            with path.open("r+b" if is_kept else "wb", buffering=0) as file:
                if is_kept:
                    _reserve(file, len(data))
                _write(file, data)
                if is_kept:
                    file.truncate()
        except OSError:
            if is_new:
                path.unlink(missing_ok=True)
            raise


def _reserve(file: io.FileIO, size: int) -> None:
    """Extend *file* to at least *size* bytes, or leave it as it is."""
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
