"""Sandbox processes that are none: the worker in this process, behind a socket that may break.

Owns what a sandbox process does with its messages, and how it fails: it dies at any byte, hangs,
answers late, runs out of memory, or sends garbage. The evaluator that asks it is the real one.
"""

import functools
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from devkit.faults.hosts import HostClock
from engine.lib.confinement import Confinement
from engine.policy.errors import PolicyErrors
from engine.policy.sandbox.projected import Inbox, Request
from engine.policy.sandbox.protocol import Greeting, ProgramImage
from engine.policy.sandbox.worker import PolicyWorker

_HEADER: Final = 4
_MICROS: Final = 1_000_000
_CONFINEMENT: Final = Confinement(system_calls=True, landlock=1)
#: What may happen to a message of a sandbox process.
FAULTS: Final = (
    "dies",
    "dies within an answer",
    "hangs",
    "is late",
    "runs out of memory",
    "sends garbage",
    "sends less",
)
#: How Rust ends, by SIGABRT, and Python; and what they write before.
_OUT_OF_MEMORY: Final = (
    (-6, b"memory allocation of 67108864 bytes failed\n"),
    (1, b"MemoryError\n"),
)


class Trouble:
    """Which faults the next messages of a host's sandbox processes meet.

    Attributes:
        due: Names of `FAULTS`, each for one message.
        on_fault: Called with the name of one that has happened.
    """

    def __init__(self, rng: random.Random, on_fault: Callable[[str], None]) -> None:
        self.rng = rng
        self.due: list[str] = []
        self.on_fault = on_fault

    def next(self) -> str:
        """What happens to this message; "" for nothing."""
        if not self.due:
            return ""
        fault = self.due.pop(0)
        self.on_fault(f"sandbox {fault}")
        return fault


class SimulatedPool:
    """Makes simulated processes, and what runs aside at once.

    Args:
        clock: Of the host.
        trouble: What happens to messages.
    """

    def __init__(self, clock: HostClock, trouble: Trouble) -> None:
        self._clock = clock
        self._trouble = trouble
        self._next_pid = 100
        self._taken: list[SimulatedProcess] = []

    @property
    def alive(self) -> int:
        """How many of its processes have not ended."""
        return sum(process.returncode is None for process in self._taken)

    def take(self) -> "SimulatedProcess":
        """A process without a program."""
        self._next_pid += 1
        taken = SimulatedProcess(self._next_pid, self._clock, self._trouble)
        self._taken = [one for one in self._taken if one.returncode is None] + [taken]
        return taken

    def aside(self, run: Callable[[], None]) -> "_Done":
        """As if *run* had been called in a thread, and had ended."""
        run()
        return _Done()

    def monotonic(self) -> float:
        """The host's clock."""
        return self._clock.monotonic()


class _Done:
    def is_alive(self) -> bool:
        return False

    def join(self) -> None:
        pass


class _Stderr:
    closed = False
    text = b""

    def __enter__(self) -> "_Stderr":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def read(self, _: int = -1) -> bytes:
        text, self.text = self.text, b""
        return text

    def close(self) -> None:
        self.closed = True


class SimulatedProcess:
    """A process, its socket, and the memory that it shares: what `SpareProcess` has of each."""

    def __init__(self, pid: int, clock: HostClock, trouble: Trouble) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stderr = _Stderr()
        self.position = 0
        self._clock = clock
        self._trouble = trouble
        self._timeout: float | None = None
        self._sent = bytearray()  # to it
        self._answers = bytearray()
        self._hangs = False
        self._worker: PolicyWorker | None = None
        self._inbox = Inbox()
        self._encode = msgspec.msgpack.Encoder().encode

    @property
    def socket(self) -> "SimulatedProcess":
        """The near end."""
        return self

    @property
    def progress(self) -> "SimulatedProcess":
        """What it is at."""
        return self

    @property
    def process(self) -> "SimulatedProcess":
        """The process."""
        return self

    # --- as a process -------------------------------------------------------------------------

    def kill(self) -> None:
        """End it."""
        if self.returncode is None:
            self.returncode = -9

    def wait(self, _: float | None = None) -> int:
        """It ends once it is killed, or has died."""
        self.kill()
        assert self.returncode is not None
        return self.returncode

    # --- as a socket --------------------------------------------------------------------------

    def settimeout(self, seconds: float | None) -> None:
        """Time-outs are set as options."""

    def setsockopt(self, _: int, __: int, value: bytes) -> None:
        """Give up after this long: a `timeval` of zero is never."""
        whole = int.from_bytes(value[:8], "little")
        seconds = whole + int.from_bytes(value[8:16], "little") / _MICROS
        self._timeout = seconds or None

    def fileno(self) -> int:
        """There is no descriptor: one child at a time works in a simulation."""
        return -1

    def close(self) -> None:
        """It ends when its parent has closed the socket."""
        if self.returncode is None:
            self.returncode = 0

    def sendall(self, data: bytes | bytearray) -> None:
        """Hand over *data*."""
        if self.returncode is not None:
            raise BrokenPipeError("the process has ended")
        self._sent += data
        while len(self._sent) >= _HEADER:
            size = int.from_bytes(self._sent[:_HEADER], "big")
            if len(self._sent) < _HEADER + size:
                return
            message = bytes(self._sent[_HEADER : _HEADER + size])
            del self._sent[: _HEADER + size]
            self._take(message)

    def recv_into(self, buffer: memoryview) -> int:
        """The next bytes of its answers."""
        if self._answers:
            count = min(len(buffer), len(self._answers))
            buffer[:count] = self._answers[:count]
            del self._answers[:count]
            return count
        if self.returncode is not None:
            return 0
        assert self._timeout is not None, "it would wait for ever"
        self._clock.spend(self._timeout)
        raise BlockingIOError("timed out")

    # --- what it does -------------------------------------------------------------------------

    def _take(self, message: bytes) -> None:
        if self._hangs or self.returncode is not None:
            return
        fault = self._trouble.next()
        rng = self._trouble.rng
        if fault == "dies":
            self.returncode = -11
            return
        if fault == "runs out of memory":
            self.returncode, self.stderr.text = rng.choice(_OUT_OF_MEMORY)
            return
        if fault == "hangs":
            self._hangs = True
            return
        if fault == "is late":
            self._clock.spend((self._timeout or 0.01) * rng.uniform(0.1, 0.9))
        answer = self._answer(message)
        if fault == "sends garbage":
            at = rng.randrange(len(answer))
            answer = answer[:at] + rng.randbytes(rng.randint(1, 40)) + answer[at:]
        elif fault in ("dies within an answer", "sends less"):
            answer = answer[: rng.randrange(len(answer))]
            if fault == "dies within an answer":
                self.returncode = -9
            else:
                self._hangs = True
        self._answers += answer

    def _answer(self, message: bytes) -> bytes:
        if self._worker is None:
            return self._load(message)
        request = msgspec.msgpack.decode(message, type=Request)
        calls = self._inbox.calls(request)
        found = b""
        for index, call in enumerate(calls):
            self.position = index
            if request.one_by_one:
                for answer in self._worker.evaluate_each(call):
                    found += self._framed([answer])
            else:
                found += self._framed([self._worker.evaluate(call)])
        return found

    def _load(self, message: bytes) -> bytes:
        self._worker, greetings = _loaded(message)
        return b"".join(self._framed(one) for one in greetings)

    def _framed(self, message: Any) -> bytes:
        body = self._encode(message)
        return len(body).to_bytes(_HEADER, "big") + body


@functools.lru_cache(maxsize=64)
def _loaded(message: bytes) -> tuple[PolicyWorker | None, list[Greeting]]:
    """The worker of a program, and what it says while it loads.

    Loading takes longer than all that a short simulation does with it, and a worker gives the same
    answers in each.
    """
    image = msgspec.msgpack.decode(message, type=ProgramImage)
    greetings = [Greeting(confinement=_CONFINEMENT)]
    try:
        worker = PolicyWorker(image, lambda n: greetings.append(Greeting(loading=n)))
    except PolicyErrors as errors:
        return None, [*greetings, Greeting(problems=errors.problems)]
    return worker, [*greetings, Greeting(ready=True)]
