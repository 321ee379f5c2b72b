"""A file in memory, for entry points that read files."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def _folder() -> Path:
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="fuzzing-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def file_of(data: bytes, name: str) -> Path:
    """A file *name* that holds *data*; the next one of that name takes its place."""
    path = _folder() / name
    path.write_bytes(data)
    return path
