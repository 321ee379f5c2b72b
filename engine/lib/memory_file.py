"""A file that is in no directory, so that none has to be writable."""

import os
import tempfile
from typing import IO


def memory_file(name: str) -> IO[bytes]:
    """A file that only this process has and those that it gives it to; *name* is for the eye.

    Closed, it is gone. Platforms without such files take a temporary one.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(name), "w+b")
    return tempfile.TemporaryFile()
