"""One child process of the sandbox: its program, the channel to it, and why it exited.

Starting the process is `warm_pool`'s. Which child is asked what is `process`'s.
"""

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

import msgspec

from engine.lib.address_space import allowed_address_space
from engine.lib.confinement import Confinement
from engine.policy.errors import PolicyErrors, Problem, SandboxDied
from engine.policy.evaluator import Call
from engine.policy.sandbox.projected import Outbox, Request, plain
from engine.policy.sandbox.protocol import (
    MIB,
    Answers,
    Channel,
    ChannelClosedError,
    Greeting,
    InstanceImage,
    ProgramImage,
    RawAnswer,
)
from engine.policy.sandbox.warm_pool import Pool

# For the interpreter to start and import; a busy machine takes long.
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 1.0
# Decoded, a frame takes many times its size, in the memory of the scheduler.
_MOST_ANSWER_BYTES: Final = 16 * MIB
# The part of its address space that a child may use to keep nodes.
_OF_ADDRESS_SPACE: Final = 16
_STDERR_BYTES: Final = 1 << 16


class ChildExited(Exception):
    """The child exited, or was killed, without an answer.

    Attributes:
        kind: deadline, memory or killed.
        how: What happened, to follow "filter() ".
        position: The call of the request that the child was busy with.
    """

    def __init__(self, kind: str, how: str, position: int = 0) -> None:
        super().__init__(how)
        self.kind = kind
        self.how = how
        self.position = position


class StartingChild:
    """A child that starts and loads its program in a thread of its own, while others work."""

    def __init__(self, image: ProgramImage, pool: Pool) -> None:
        self._image = image
        self._pool = pool
        self._child: Child | None = None
        self._error: BaseException | None = None
        self._is_unwanted = False
        self._thread = pool.aside(self._run)

    @property
    def is_done(self) -> bool:
        """True if `take` does not wait."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Return when `is_done`."""
        self._thread.join()

    def take(self) -> "Child":
        """The child, once it is ready. Raises the error of starting or loading it."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._child is not None
        return self._child

    def cancel(self) -> None:
        """Give it up: kill the process, and wait for the thread."""
        self._is_unwanted = True
        if self._child is not None:
            self._child.end()
        self._thread.join()
        if self._error is None and self._child is not None:
            self._child.stop()

    def _run(self) -> None:
        try:
            child = Child(self._image, self._pool)
            self._child = child
            if self._is_unwanted:
                child.end()
            child.load()
        except BaseException as error:
            self._error = error


class Child:
    """One child process, taken from *pool*. `load` it before it is asked."""

    def __init__(self, image: ProgramImage, pool: Pool) -> None:
        self._image = image
        spare = pool.take()
        self._progress = spare.progress
        self._process = spare.process
        self._channel = Channel(spare.socket, _MOST_ANSWER_BYTES)
        self._outbox = Outbox(image.limits.address_space // _OF_ADDRESS_SPACE)
        self._receive = self._channel.receiver(Answers)
        self._confinement: Confinement | None = None

    @classmethod
    def loaded(cls, image: ProgramImage, pool: Pool) -> "Child":
        """A child that is ready. Raises `PolicyErrors` if the program does not load."""
        child = cls(image, pool)
        child.load()
        return child

    def load(self) -> None:
        """Have the program loaded. Raises `PolicyErrors` if it does not; then the process ends."""
        try:
            self._load()
        except BaseException:
            self._kill()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        pid: int = self._process.pid
        return pid

    @property
    def confinement(self) -> Confinement:
        """What the kernel holds it to, as it reported before it read any policy."""
        assert self._confinement is not None
        return self._confinement

    @property
    def deadline(self) -> float:
        """Seconds that a call may take."""
        return self._image.limits.deadline

    @property
    def image(self) -> ProgramImage:
        """What it was given to run."""
        return self._image

    @property
    def channel(self) -> Channel:
        """What it is talked to over, to wait for several."""
        return self._channel

    def send(
        self, calls: Sequence[Call], *, one_by_one: bool = False, is_timed: bool = False
    ) -> None:
        """Ask. Raises `ChannelClosedError` or `TimeoutError`."""
        self._progress.position = 0
        if one_by_one:
            self._channel.send(Request([plain(call) for call in calls], one_by_one=True))
        else:
            self._channel.send(self._outbox.request(calls, is_timed=is_timed))

    def receive(self) -> list[RawAnswer]:
        """The next answers, at least one.

        Raises `ChannelClosedError`, `TimeoutError`, or `msgspec.DecodeError` for a malformed
        answer.
        """
        answers: list[RawAnswer] = self._receive()
        if not answers:
            raise msgspec.DecodeError("a frame without answers")
        return answers

    def reap(self, error: Exception) -> ChildExited:
        """Make sure that the process is gone; the reason of its exit.

        *error* is what asking it raised; its exit status and stderr may say more.
        """
        self._position = self._progress.position
        stderr = self._wait() if isinstance(error, ChannelClosedError) else self._kill()
        cause = _cause(error, self._process.returncode, stderr, self._image)
        return ChildExited(*cause, self._position)

    def end(self) -> None:
        """Kill the process; loading or asking it then raises `ChannelClosedError`."""
        if self._process.returncode is None:
            self._process.kill()

    def stop(self) -> None:
        """Let the process end by itself, or kill it after a while."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._kill()

    def _load(self) -> None:
        self._channel.wait_at_most(_START_SECONDS)
        receive = self._channel.receiver(Greeting)
        loading: InstanceImage | None = None
        waiting = iter(enumerate(self._image.instances))
        is_sent = False
        while True:
            try:
                if not is_sent:
                    self._channel.send(self._image)
                    is_sent = True
                greeting: Greeting = receive()
                if self._confinement is None:
                    self._confinement = greeting.confinement
                    if self._confinement is None:
                        raise msgspec.DecodeError("no report of what it is confined by")
                    continue
                if greeting.problems:
                    raise PolicyErrors(greeting.problems)
                if not greeting.ready:
                    index, loading = next(waiting, (-1, loading))
                    if greeting.loading != index:
                        raise msgspec.DecodeError("instances in another order")
            except (TimeoutError, ChannelClosedError, msgspec.DecodeError) as error:
                exited = self.reap(error)
                file = "" if loading is None else loading.module
                kind = PolicyErrors if exited.kind == "memory" else SandboxDied
                raise kind([Problem(file, 0, 0, f"loading {exited.how}")]) from error
            if greeting.ready:
                self._channel.wait_at_most(self._image.limits.deadline)
                return
            self._channel.wait_at_most(max(self._image.limits.deadline, 1.0))

    def _wait(self) -> bytes:
        """The process has closed its side; give it a moment to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        return self._kill()

    def _kill(self) -> bytes:
        """Kill it if it runs, and close its descriptors; returns what it wrote to stderr."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        self._channel.close()
        self._progress.close()
        pipe = self._process.stderr
        if pipe is None or pipe.closed:
            return b""
        with pipe:
            return pipe.read(_STDERR_BYTES) or b""


def _cause(
    error: Exception, code: int | None, stderr: bytes, image: ProgramImage
) -> tuple[str, str]:
    """Why a child gave no answer: kind and text, as in `ChildExited`."""
    limits = image.limits
    if isinstance(error, TimeoutError):
        return "deadline", f"did not answer within {limits.deadline:g} s"
    if not isinstance(error, ChannelClosedError):
        return "killed", "was going on when the sandbox sent what is no answer, and was ended"
    if b"memory allocation of" in stderr or b"MemoryError" in stderr:
        most = allowed_address_space(limits.address_space)
        return "memory", f"took more than {most // MIB} MiB of memory"
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            if name == "SIGSEGV":
                return "killed", "crashed the sandbox, as values that nest too deep do"
            return "killed", f"was going on when the sandbox was ended by {name}"
    words = stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return "killed", f"was going on when the sandbox ended (exit code {code}): {words[:200]}"
