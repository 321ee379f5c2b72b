"""Small files that are read and replaced as a whole.

Owns that a file is the old or the new one after a crash at any moment. What stands in them is their
owners' business.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol


class Files(Protocol):
    """Where small files are kept. Both raise `OSError`."""

    def read(self, path: Path) -> bytes:
        """What the file holds. Raises `FileNotFoundError` if there is none."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Have the file hold *data*, or what it held before if that fails."""
        ...


class RealFiles:
    """Those of this machine."""

    def read(self, path: Path) -> bytes:
        """What the file holds. Raises `FileNotFoundError` if there is none."""
        return path.read_bytes()

    def replace(self, path: Path, data: bytes) -> None:
        """Write a file next to it, and rename that; creates the folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise


FILES: Final = RealFiles()

#: Files and when each was written, in nanoseconds; None for one that is not there.
Stamp = tuple[tuple[str, int | None], ...]


def stamp_of(files: Iterable[str | Path | None]) -> Stamp:
    """Changes when one of *files* is written again; those that are not named count for nothing."""
    return tuple((str(file), _written_at(file)) for file in files if file)


def _written_at(file: str | Path) -> int | None:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None
