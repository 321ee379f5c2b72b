"""The disk of a replica: small files that outlive its processes, and what may happen to them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal

State = Literal["works", "full", "broken"]

_MOST_PAST = 20


class Disk:
    """The state directory of a replica.

    Args:
        on_fault: Called with the kind of a fault that has happened.

    Attributes:
        state: A full one takes nothing more; a broken one gives nothing, either.
    """

    def __init__(self, on_fault: Callable[[str], None]) -> None:
        self.state: State = "works"
        self._on_fault = on_fault
        self._files: dict[Path, bytes] = {}
        self._past: list[dict[Path, bytes]] = [{}]

    def read(self, path: Path) -> bytes:
        """As of `lib.files.Files`."""
        if self.state == "broken":
            raise self._error(errno.EIO, path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._files[path]

    def replace(self, path: Path, data: bytes) -> None:
        """As of `lib.files.Files`."""
        if self.state != "works":
            raise self._error(errno.ENOSPC if self.state == "full" else errno.EIO, path)
        self._files[path] = data
        self._past = [*self._past, dict(self._files)][-_MOST_PAST:]

    def go_back(self, rng: Random) -> None:
        """Have what was there earlier, as after the loss of a machine."""
        self._files = dict(rng.choice(self._past))

    def spoil(self, rng: Random) -> bool:
        """Damage a file; False if there is none."""
        if not self._files:
            return False
        path = rng.choice(sorted(self._files))
        data = self._files[path]
        at = rng.randrange(len(data))
        self._files[path] = data[:at] + rng.choice([b"", b"\0" * 50, rng.randbytes(9)])
        return True

    def _error(self, number: int, path: Path) -> OSError:
        self._on_fault(f"disk {self.state}")
        return OSError(number, os.strerror(number), str(path))
