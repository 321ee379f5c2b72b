"""The disk of a replica: what outlives its processes, and what may happen to it.

Owns small files in memory, and decision logs in a directory of this machine.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import IO, Any, Final, Literal, cast

import msgspec

from devkit.faults.hosts import Host
from engine.lib.deep_json import UNREADABLE
from engine.recording.log_writer import BATCH_SECONDS, LogSettings, LogWriter

State = Literal["works", "full", "broken"]

_MOST_PAST: Final = 20
_LOG_BYTES: Final = 200_000


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
        self._open: list[_File] = []

    def read(self, path: Path) -> bytes:
        """As of `lib.files.Files`."""
        if self.state == "broken":
            raise self._error(errno.EIO, path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._files[path]

    def replace(self, path: Path, data: bytes) -> None:
        """As of `lib.files.Files`."""
        self.check_writable(path)
        self._files[path] = data
        self._past = [*self._past, dict(self._files)][-_MOST_PAST:]

    def create(self, path: Path) -> IO[bytes]:
        """A new file at *path*, to be written from its beginning to its end. Raises `OSError`."""
        self.check_writable(path)
        self._open.append(_File(self, path))
        return cast(IO[bytes], self._open[-1])

    def close(self) -> None:
        """Close the files that processes have left open."""
        for file in self._open:
            file.close()

    def check_writable(self, path: Path) -> None:
        """Raises `OSError` if nothing can be written."""
        if self.state != "works":
            raise self._error(errno.ENOSPC if self.state == "full" else errno.EIO, path)

    def go_back(self, rng: Random) -> None:
        """Have what was there earlier, as after the loss of a machine."""
        self._files = dict(rng.choice(self._past))

    def spoil(self, rng: Random) -> bool:
        """Damage a file; False if there is none."""
        if not self._files:
            return False
        path = rng.choice(sorted(self._files))
        data = self._files[path]
        at = rng.randrange(len(data)) if data else 0
        self._files[path] = data[:at] + rng.choice([b"", b"\0" * 50, rng.randbytes(9)])
        return True

    def mend(self) -> None:
        """Have an operator delete what is damaged, as the log asks for."""
        for path, data in list(self._files.items()):
            try:
                msgspec.json.decode(data)
            except UNREADABLE:
                del self._files[path]

    def _error(self, number: int, path: Path) -> OSError:
        self._on_fault(f"disk {self.state}")
        return OSError(number, os.strerror(number), str(path))


class _File:
    """A file that a decision log is written to. What was written before a fault stays."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._file = path.open("xb")

    def write(self, data: bytes) -> int:
        """Write *data*, or half of it."""
        try:
            self._disk.check_writable(self._path)
        except OSError:
            self._file.write(data[: len(data) // 2])
            raise
        return self._file.write(data)

    def flush(self) -> None:
        """Hand over what was written."""
        self._file.flush()
        self._disk.check_writable(self._path)

    def tell(self) -> int:
        """How much was written."""
        return self._file.tell()

    def close(self) -> None:
        """End it."""
        self._file.close()


class HostLogWriter(LogWriter):
    """Writes a decision log without a thread: in turns of *host*'s event loop."""

    def __init__(self, host: Host, disk: Disk, directory: Path) -> None:
        settings = LogSettings(directory, file_bytes=_LOG_BYTES, files=3, compress=False)
        super().__init__(settings, "", monotonic=host.clock.monotonic, create=disk.create)
        self._host = host
        self._is_called = False

    def start(self) -> None:
        """Create the directory."""
        self.settings.directory.mkdir(parents=True, exist_ok=True)

    def put(self, at: float, kind: str, contents: Any) -> None:
        """Queue an entry, and write it soon."""
        super().put(at, kind, contents)
        if not self._is_called:
            self._is_called = True
            self._host.loop.call_later(BATCH_SECONDS, self._turn)

    def close(self, timeout: float = 0.0) -> None:
        """Write what is queued, and end."""
        self.write_waiting()
        self.end()

    def _turn(self) -> None:
        self._is_called = False
        self.write_waiting()
        self._guarded(self._sync)
