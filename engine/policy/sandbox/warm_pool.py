"""Sandbox processes without a program yet, one of which is kept ready.

Owns starting a process and its descriptors. Starting an interpreter and importing what policies run
with takes a fifth of a second, and none of it depends on the policies.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final, Protocol

from engine.lib.memory_file import memory_file
from engine.policy.sandbox.protocol import Progress

_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; from engine.policy.sandbox.child import main; main()"
)
# The evaluator that took a process is about to work: the next one is started after that.
_RESTOCK_SECONDS: Final = 3.0


class Joinable(Protocol):
    """What runs aside: a thread."""

    def is_alive(self) -> bool:
        """True until it has ended."""
        ...

    def join(self) -> None:
        """Return when it has ended."""
        ...


class Spare(Protocol):
    """A process without a program, and what it is talked to over."""

    @property
    def socket(self) -> Any:
        """The near end."""
        ...

    @property
    def progress(self) -> Any:
        """See `Progress`."""
        ...

    @property
    def process(self) -> Any:
        """As `subprocess.Popen`."""
        ...


class Pool(Protocol):
    """Where children of a sandbox come from."""

    def take(self) -> Spare:
        """A process without a program."""
        ...

    def aside(self, run: Callable[[], None]) -> Joinable:
        """Have *run* called while others work; it starts a child."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class SpareProcess:
    """A started process that waits for its program, with the socket and memory to talk to it."""

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
        """Kill it, unused."""
        self.process.kill()
        self.process.wait()
        self.socket.close()
        self.progress.close()
        if self.process.stderr is not None:
            self.process.stderr.close()


class WarmPool:
    """Keeps one `SpareProcess` ready. May be used from any thread; close it at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: SpareProcess | None = None
        self._timer: threading.Timer | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the spare process; None if none is ready."""
        spare = self._spare
        return None if spare is None else spare.process.pid

    def take(self) -> SpareProcess:
        """A process without a program: the spare one, or a new one."""
        with self._lock:
            spare, self._spare = self._spare, None
            if self._timer is not None:
                self._timer.cancel()
            if not self._is_closed:
                self._timer = threading.Timer(_RESTOCK_SECONDS, self.restock)
                self._timer.daemon = True
                with contextlib.suppress(RuntimeError):  # no thread: then none is kept ready
                    self._timer.start()
        if spare is not None and spare.is_alive:
            return spare
        if spare is not None:
            spare.end()
        return SpareProcess()

    def aside(self, run: Callable[[], None]) -> Joinable:
        """A thread that *run* is called in."""
        thread = threading.Thread(target=run, name="sandbox-start", daemon=True)
        thread.start()
        return thread

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def restock(self) -> None:
        """Start a spare process now if there is none.

        A process that does not start is no error here: `take` reports it.
        """
        with self._lock, contextlib.suppress(OSError):
            if self._spare is None and not self._is_closed:
                self._spare = SpareProcess()

    def close(self) -> None:
        """Kill the spare process; no other is started."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
            if self._spare is not None:
                self._spare.end()
                self._spare = None


class _OwnProcesses(WarmPool):
    """A pool that keeps nothing ready."""

    def take(self) -> SpareProcess:
        """A new process."""
        return SpareProcess()


#: For evaluators that are given no pool.
OWN_PROCESSES: Final = _OwnProcesses()


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
    # The kernel would kill it when the *thread* that started it ends, so only the main thread asks.
    follows = threading.current_thread() is threading.main_thread()
    reading, writing = os.pipe()
    try:
        # Output that is not read must not block it; losing some is no harm.
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
