"""A process of the sandbox that has no program yet, and one that is kept ready for the next.

Owns starting the process and its descriptors. An interpreter takes a third of a second to start
and import what policies are run with; none of that depends on the policies.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

from engine.lib.memory_file import memory_file
from engine.policy.sandbox.protocol import Progress

_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; from engine.policy.sandbox.child import main; main()"
)
# Whoever has taken a process is about to work: the next one starts after that.
_RESTOCK_SECONDS: Final = 3.0


class Blank:
    """A process that waits for its program, with the socket and the memory to talk to it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo, theirs, _shared_memory() as memory:
            undo.callback(self.socket.close)
            self.progress = Progress(memory.fileno())
            undo.callback(self.progress.close)
            self.process = _start(theirs, memory)
            undo.pop_all()

    @property
    def is_alive(self) -> bool:
        """False once it has ended."""
        return self.process.poll() is None

    def end(self) -> None:
        """End it, unused."""
        self.process.kill()
        self.process.wait()
        self.socket.close()
        self.progress.close()
        if self.process.stderr is not None:
            self.process.stderr.close()


class Nursery:
    """Keeps one `Blank` ready. May be used from any thread; close it at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blank: Blank | None = None
        self._timer: threading.Timer | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the one that is ready; None if none is."""
        blank = self._blank
        return None if blank is None else blank.process.pid

    def take(self) -> Blank:
        """A process without a program: the one that is ready, or a new one."""
        with self._lock:
            blank, self._blank = self._blank, None
            if self._timer is not None:
                self._timer.cancel()
            if not self._is_closed:
                self._timer = threading.Timer(_RESTOCK_SECONDS, self.restock)
                self._timer.daemon = True
                with contextlib.suppress(RuntimeError):  # no thread: then none is kept ready
                    self._timer.start()
        if blank is not None and blank.is_alive:
            return blank
        if blank is not None:
            blank.end()
        return Blank()

    def restock(self) -> None:
        """Have one ready, now, if the machine lets one start; whoever needs one is told."""
        with self._lock, contextlib.suppress(OSError):
            if self._blank is None and not self._is_closed:
                self._blank = Blank()

    def close(self) -> None:
        """End the one that is ready; no other is made ready."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
            if self._blank is not None:
                self._blank.end()
                self._blank = None


def _shared_memory() -> IO[bytes]:
    """A file that is only memory, of the size of `Progress`."""
    memory = memory_file("progress")
    memory.truncate(Progress.SIZE)
    return memory


def _start(theirs: socket.socket, memory: IO[bytes]) -> "subprocess.Popen[bytes]":
    root = str(Path(__file__).parents[3])
    path = [
        root,
        *[entry for entry in sys.path if entry and entry != root and Path(entry).exists()],
    ]
    # Its death follows that of the *thread* that started it, so only the main thread may ask.
    follows = threading.current_thread() is threading.main_thread()
    reading, writing = os.pipe()
    try:
        # Words that nobody reads must not block it; it may well lose some.
        os.set_blocking(writing, False)
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _PROGRAM.format(path=path),
                str(theirs.fileno()),
                str(memory.fileno()),
                str(os.getpid() if follows else 0),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writing,
            pass_fds=(theirs.fileno(), memory.fileno()),
            cwd="/",
            env={},
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    process.stderr = os.fdopen(reading, "rb", buffering=0)
    return process
