"""Anonymous files in memory, which need no writable directory."""

import os
from typing import IO


def memory_file(name: str) -> IO[bytes]:
    """A file private to this process and those that inherit it; *name* is only for display.

    It is gone once closed. Platforms without such files use a temporary file.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(name), "w+b")
    import tempfile  # for these platforms alone

    return tempfile.TemporaryFile()
