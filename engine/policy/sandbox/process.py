"""The evaluator of production: policies run in a child process that may be killed at any time.

Owns the child's life and what its death means. A child that dies or does not answer in time costs
the entry that it was busy with its verdict, is started again at once, and is asked the rest.

    starting --program loaded--> ready --calls--> busy --answers--> ready
    busy --deadline, crash, kill--> (killed) --at once--> starting
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final

import msgspec

from engine.policy.errors import PolicyErrors, Problem
from engine.policy.evaluator import Call, PolicyFailure, Program, Verdict, program_image
from engine.policy.sandbox.protocol import (
    MIB,
    Channel,
    ChannelClosedError,
    Greeting,
    InstanceImage,
    ProgramImage,
    Progress,
    RawAnswer,
    Request,
    decode_answer,
)

# For the interpreter to start and import; a busy machine takes long.
_START_SECONDS: Final = 30.0
# Entries of one call that may kill a child before the rest of the call is given up.
_MAX_CULPRITS: Final = 3
# Children started in one `evaluate` before all the rest is given up.
_MAX_RESTARTS: Final = 16
_STOP_SECONDS: Final = 1.0
_STDERR_BYTES: Final = 1 << 16

_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; from engine.policy.sandbox.child import main; main()"
)


class _DiedError(Exception):
    """The child gave no answer. `kind` is deadline, memory or killed; the text says how."""

    def __init__(self, kind: str, how: str, position: int = 0) -> None:
        super().__init__(how)
        self.kind = kind
        self.how = how
        self.position = position  # the call of the request that it was at


class SandboxEvaluator:
    """Runs the program in a sandboxed child: same verdicts, and nothing that it does can harm.

    Raises `PolicyErrors` if a file does not load, within its limits too. Use it from one thread at
    a time; a lock keeps others waiting. Close it, or use it in a `with` statement.
    """

    def __init__(self, program: Program) -> None:
        self._image = program_image(program)
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._closed = False
        self.restarts = 0
        self._child = _Child(self._image)

    @property
    def pid(self) -> int | None:
        """The process id of the child; None if there is none now."""
        child = self._child
        return None if child is None else child.pid

    def evaluate(self, calls: Sequence[Call]) -> list[list[Verdict | PolicyFailure]]:
        """One list of verdicts per call, in the order of *calls*."""
        with self._lock:
            if self._closed:
                raise ValueError("the evaluator is closed")
            return _Session(self, calls).run()

    def close(self) -> None:
        """End the child. Closing twice does no harm."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.stop()
                self._child = None

    def __enter__(self) -> "SandboxEvaluator":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ready_child(self) -> "_Child":
        """The child; a new one if the last one died. Raises `_DiedError` if it does not start."""
        if self._child is None:
            self.restarts += 1
            try:
                self._child = _Child(self._image)
            except PolicyErrors as errors:
                # It did load once, so this is the machine's doing: too little memory, most often.
                raise _DiedError("killed", f"the sandbox does not start: {errors}") from errors
        return self._child

    def _bury(self, kind: str) -> _DiedError:
        """Take leave of the child after it failed to answer; says what it died of."""
        child, self._child = self._child, None
        assert child is not None
        return child.bury(kind)


class _Session:
    """The calls of one `evaluate`, with what is answered so far."""

    def __init__(self, owner: SandboxEvaluator, calls: Sequence[Call]) -> None:
        self._owner = owner
        self._calls = calls
        self._image = owner._image
        self._answers: dict[int, list[Verdict | PolicyFailure]] = {}
        self._restarts_before = owner.restarts

    def run(self) -> list[list[Verdict | PolicyFailure]]:
        """Answer all calls, whatever becomes of the children."""
        while len(self._answers) < len(self._calls):
            rest = [i for i in range(len(self._calls)) if i not in self._answers]
            try:
                self._ask_all(rest)
            except _DiedError as death:
                answered = sum(index in self._answers for index in rest)
                # What it says it was at, as far as that can be.
                culprit = rest[max(answered, min(death.position, len(rest) - 1))]
                call = self._calls[culprit]
                self._answers[culprit] = self._answer_culprit(call, death)
        return [self._answers[index] for index in range(len(self._calls))]

    def _ask_all(self, indices: Sequence[int]) -> None:
        child = self._child()
        try:
            child.send([self._calls[index] for index in indices], one_by_one=False)
            waiting = iter(indices)
            for _ in indices:
                for answer in child.receive():
                    self._answers[next(waiting)] = decode_answer(answer)
                if len(self._answers) == len(self._calls):
                    return
        except (TimeoutError, ChannelClosedError, msgspec.DecodeError) as error:
            raise self._death(error) from error

    def _answer_culprit(self, call: Call, death: _DiedError) -> list[Verdict | PolicyFailure]:
        """The answer to a call that a child died of, or during which somebody killed it."""
        if death.kind == "deadline":
            # Entry by entry it would take a deadline each.
            return [self._failure(call, death)] * _entry_count(call)
        entries: list[Verdict | PolicyFailure] = []
        culprits = 0
        while len(entries) < _entry_count(call):
            rest = call
            if call.nodes is not None and call.hook != "score_all":
                rest = call._replace(nodes=call.nodes[len(entries) :])
            if culprits >= _MAX_CULPRITS:
                failure = self._failure(call, death)
                return entries + [failure] * (_entry_count(call) - len(entries))
            try:
                child = self._child()
                child.send([rest], one_by_one=True)
                while len(entries) < _entry_count(call):
                    for answer in child.receive():
                        entries += decode_answer(answer)
            except (TimeoutError, ChannelClosedError, msgspec.DecodeError) as error:
                death = self._death(error)
            except _DiedError as error:
                death = error
            else:
                break
            # Alone with it this time, so this entry is to blame.
            entries.append(self._failure(call, death))
            culprits += 1
        return entries

    def _child(self) -> "_Child":
        if self._owner.restarts - self._restarts_before >= _MAX_RESTARTS:
            raise _DiedError("killed", "the sandbox was started too often")
        return self._owner._ready_child()

    def _death(self, error: Exception) -> _DiedError:
        return self._owner._bury("deadline" if isinstance(error, TimeoutError) else "")

    def _failure(self, call: Call, death: _DiedError) -> PolicyFailure:
        instance = self._image.instances[call.instance]
        signature = instance.hooks[call.hook]
        return PolicyFailure(
            instance.policy,
            call.hook,
            instance.module,
            signature.line,
            signature.column,
            f"{call.hook}() {death.how}",
            death.kind,
        )


def _entry_count(call: Call) -> int:
    return 1 if call.nodes is None or call.hook == "score_all" else len(call.nodes)


class _Child:
    """One child process with its program loaded. Raises `PolicyErrors` if that fails."""

    def __init__(self, image: ProgramImage) -> None:
        self._image = image
        ours, theirs = socket.socketpair()
        with theirs, _shared_memory() as memory:
            self._progress = Progress(memory.fileno())
            self._process = _start(theirs, memory)
        self._channel = Channel(ours)
        self._receive = self._channel.receiver(list[RawAnswer])
        try:
            self._load()
        except BaseException:
            self._kill()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, calls: Sequence[Call], *, one_by_one: bool) -> None:
        """Ask. Raises `ChannelClosedError` or `TimeoutError`."""
        self._progress.position = 0
        self._channel.send(Request(list(calls), one_by_one))

    def receive(self) -> list[RawAnswer]:
        """The next answers. Raises `ChannelClosedError` or `TimeoutError`."""
        answers: list[RawAnswer] = self._receive()
        return answers

    def bury(self, kind: str) -> _DiedError:
        """Kill what is left of the process. What it died of: *kind*, or as its remains say."""
        self._position = self._progress.position
        stderr = self._kill() if kind else self._wait()
        cause = _cause(kind, self._process.returncode, stderr, self._image)
        return _DiedError(*cause, self._position)

    def stop(self) -> None:
        """Let the process end, or make it."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._kill()

    def _load(self) -> None:
        self._channel.wait_at_most(_START_SECONDS)
        receive = self._channel.receiver(Greeting)
        loading: InstanceImage | None = None
        is_sent = False
        while True:
            try:
                if not is_sent:
                    self._channel.send(self._image)
                    is_sent = True
                greeting: Greeting = receive()
            except (TimeoutError, ChannelClosedError, msgspec.DecodeError) as error:
                death = self.bury("deadline" if isinstance(error, TimeoutError) else "")
                file = "" if loading is None else loading.module
                raise PolicyErrors([Problem(file, 0, 0, f"loading {death.how}")]) from error
            if greeting.ready:
                self._channel.wait_at_most(self._image.limits.deadline)
                return
            if greeting.problems:
                raise PolicyErrors(Problem(**problem) for problem in greeting.problems)
            loading = self._image.instances[greeting.loading]
            self._channel.wait_at_most(max(self._image.limits.deadline, 1.0))

    def _wait(self) -> bytes:
        """The process has closed its side; give it a moment to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        return self._kill()

    def _kill(self) -> bytes:
        """Make sure that it is dead and its descriptors are closed; its last words."""
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


def _shared_memory() -> IO[bytes]:
    """A file that is only memory, of the size of `Progress`."""
    if hasattr(os, "memfd_create"):
        memory: IO[bytes] = os.fdopen(os.memfd_create("progress"), "w+b")
    else:
        memory = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
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
                "1" if follows else "0",
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


def _cause(kind: str, code: int | None, stderr: bytes, image: ProgramImage) -> tuple[str, str]:
    """The kind of a death, and its sentence."""
    limits = image.limits
    if kind == "deadline":
        return kind, f"did not answer within {limits.deadline:g} s"
    if b"memory allocation of" in stderr or b"MemoryError" in stderr:
        return "memory", f"took more than {limits.address_space // MIB} MiB of memory"
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            if name == "SIGSEGV":
                return "killed", "crashed the sandbox, as values that nest too deep do"
            return "killed", f"was going on when the sandbox was ended by {name}"
    words = stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return "killed", f"was going on when the sandbox ended (exit code {code}): {words[:200]}"
