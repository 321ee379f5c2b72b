"""The evaluator used in production: runs policies in child processes that can be killed any time.

Owns which child gets which request, and what the exit of one means. A child that exits or does not
answer in time costs one verdict: that of the entry that it was busy with. Another one, which was
started beforehand, is asked the rest, and the next one starts meanwhile.

    starting --program loaded--> ready --calls--> busy --answers--> ready
    busy --deadline, crash, kill--> (killed) --the next that is ready takes over

A request is one round trip to the first child, a blocking send and receive. Large ones were once
spread over several children; no figure showed that to bring anything, as most verdicts are known.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final

import msgspec

from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import (
    Call,
    PolicyFailure,
    Program,
    Timing,
    Verdict,
    program_image,
)
from engine.policy.sandbox.children import Child, ChildExited, StartingChild
from engine.policy.sandbox.parts import can_split, entry_count
from engine.policy.sandbox.protocol import (
    ChannelClosedError,
    ProgramImage,
    RawAnswer,
    check_answer,
    decode_answer,
    encode_answer,
)
from engine.policy.sandbox.warm_pool import OWN_PROCESSES, Pool

# Entries of one call that may kill a child before the rest of the call is given up.
_MAX_CULPRITS: Final = 3
# Children that may die in one `evaluate` before all the rest is given up.
_MAX_RESTARTS: Final = 16
# A child that only stands by is started when the evaluator is this old: before, at a start and
# while new policies are tried, there is more urgent work for the cores.
_SPARE_AFTER: Final = 2.0


class SandboxEvaluator:
    """Runs the program in sandboxed children: same verdicts, isolated from this process.

    Raises `PolicyErrors` if a file does not load, within its limits too. Use it from one thread at
    a time; a lock keeps others waiting. Close it, or use it in a `with` statement.

    Args:
        program: What to run.
        pool: Has a process ready, so that the first child starts sooner.
    """

    def __init__(self, program: Program, pool: Pool | None = None) -> None:
        self._image = program_image(program)
        self._pool = pool if pool is not None else OWN_PROCESSES
        self._lock = threading.Lock()
        self._closed = False
        self.restarts = 0
        #: Whether calls are timed; `timings` are those of the last ones.
        self.is_timed = False
        self.timings: Sequence[Timing] = ()
        self._spare_at = self._pool.monotonic() + _SPARE_AFTER
        # Here, so that a program which does not load is known before there is an evaluator.
        self._children = [Child.loaded(self._image, self._pool)]
        #: What the kernel holds each child to.
        self.confinement: Final = self._children[0].confinement
        self._starting: list[StartingChild] = []

    @property
    def _wanted(self) -> int:
        """How many children there should be: one at work, and soon another that stands by."""
        return 2 if self.restarts or self._pool.monotonic() >= self._spare_at else 1

    @property
    def pid(self) -> int | None:
        """The process id of the child that is asked; None if there is none now."""
        children = self._children
        return children[0].pid if children else None

    @property
    def pids(self) -> list[int]:
        """The process ids of all children that are ready."""
        return [child.pid for child in self._children]

    def evaluate(self, calls: Sequence[Call]) -> list[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call, in the order of *calls*."""
        # Answers come in the order of the questions: two threads on one channel would get each
        # other's.
        with self._lock:
            if self._closed:
                raise ValueError("the evaluator is closed")
            self._look_after()
            answers = _Session(self, calls).run()
            if self.is_timed:
                self.timings = [
                    Timing(answer.nanoseconds / 1e9, bool(answer.failures)) for answer in answers
                ]
            return [decode_answer(answer) for answer in answers]

    def close(self) -> None:
        """End the children. Closing twice does no harm."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.channel.close()  # all end at the same time
            for child in self._children:
                child.stop()
            for starting in self._starting:
                starting.cancel()
            self._children, self._starting = [], []

    def __enter__(self) -> "SandboxEvaluator":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def wait_until_ready(self) -> None:
        """Wait until as many children as are wanted are ready, or have failed to start."""
        with self._lock:
            self._spare_at = 0.0
            self._replenish()
            for starting in self._starting:
                starting.wait()
            self._replenish()

    def _look_after(self) -> None:
        if self._starting or len(self._children) < self._wanted:
            self._replenish()

    def _replenish(self) -> None:
        """Add the children that are ready, and start those that are missing."""
        for starting in [b for b in self._starting if b.is_done]:
            self._starting.remove(starting)
            with contextlib.suppress(Exception):  # tried again, and reported when needed
                self._children.append(starting.take())
        if not self._closed:
            with contextlib.suppress(RuntimeError):  # no thread: the same
                while len(self._children) + len(self._starting) < self._wanted:
                    self._starting.append(StartingChild(self._image, self._pool))

    def _ready_child(self) -> Child:
        """A running child. Raises `ChildExited` if there is none and none starts."""
        if not self._children:
            try:
                starting = self._starting.pop(0) if self._starting else None
                child = starting.take() if starting else Child.loaded(self._image, self._pool)
            except (PolicyErrors, OSError) as errors:
                # It did load once, so this is the machine's doing: too little memory, most often.
                raise ChildExited("killed", f"the sandbox does not start: {errors}") from errors
            self._children.append(child)
        return self._children[0]

    def _reap(self, child: Child, error: Exception) -> ChildExited:
        """Replace a child that failed to answer; returns why it exited."""
        # Before it is waited for: whatever happens there, it is asked nothing more.
        self._children.remove(child)
        self.restarts += 1
        exited = child.reap(error)
        self._replenish()
        return exited


class _Session:
    """The calls of one `evaluate`, with what is answered so far."""

    def __init__(self, owner: SandboxEvaluator, calls: Sequence[Call]) -> None:
        self._owner = owner
        self._calls = calls
        self._image: ProgramImage = owner._image
        self._answers: dict[int, RawAnswer] = {}
        self._restarts_before = owner.restarts

    def run(self) -> list[RawAnswer]:
        """Answer all calls, even if children die."""
        while len(self._answers) < len(self._calls):
            rest = [i for i in range(len(self._calls)) if i not in self._answers]
            try:
                self._ask_all(rest)
            except ChildExited as exited:
                answered = sum(index in self._answers for index in rest)
                # What it says it was at, as far as that can be.
                culprit = rest[max(answered, min(exited.position, len(rest) - 1))]
                call = self._calls[culprit]
                self._answers[culprit] = self._answer_culprit(call, exited)
        return [self._answers[index] for index in range(len(self._calls))]

    def _ask_all(self, indices: Sequence[int]) -> None:
        child = self._child()
        waiting = deque(indices)
        try:
            asked = [self._calls[index] for index in indices]
            child.send(asked, is_timed=self._owner.is_timed)
            while waiting:
                for answer in child.receive():
                    call = self._calls[waiting[0]]
                    check_answer(answer, call, entry_count(call), self._image)
                    self._answers[waiting.popleft()] = answer
        except (TimeoutError, ChannelClosedError, msgspec.DecodeError, IndexError) as error:
            exited = self._owner._reap(child, error)
            if waiting:  # it may have sent more than it was asked
                raise exited from error

    def _answer_culprit(self, call: Call, exited: ChildExited) -> RawAnswer:
        """The answer to a call during which a child exited or was killed."""
        count = entry_count(call)
        if exited.kind == "deadline":
            # Entry by entry it would take a deadline each.
            return encode_answer([self._failure(call, exited)] * count)
        entries: list[Verdict | PolicyFailure] = []
        culprits = 0
        while len(entries) < count:
            rest = call
            if call.nodes is not None and can_split(call):
                rest = call._replace(nodes=call.nodes[len(entries) :])
            # A policy that kills its process for every node would cost a start for each.
            if culprits >= _MAX_CULPRITS:
                entries += [self._failure(call, exited)] * (count - len(entries))
                break
            try:
                child = self._child()
                try:
                    # So that the answers before the culprit arrive: in one piece they would be lost
                    # with it.
                    child.send([rest], one_by_one=True)
                    while len(entries) < count:
                        for answer in child.receive():
                            check_answer(answer, call, 1, self._image)
                            entries += decode_answer(answer)
                except (TimeoutError, ChannelClosedError, msgspec.DecodeError) as error:
                    raise self._owner._reap(child, error) from error
            except ChildExited as error:
                exited = error
            else:
                break
            # Alone with it this time, so this entry is to blame.
            entries.append(self._failure(call, exited))
            culprits += 1
        return encode_answer(entries[:count])

    def _child(self) -> Child:
        if self._owner.restarts - self._restarts_before >= _MAX_RESTARTS:
            raise ChildExited("killed", "the sandbox was started too often")
        return self._owner._ready_child()

    def _failure(self, call: Call, exited: ChildExited) -> PolicyFailure:
        return self._image.failure(call, exited.kind, f"{call.hook}() {exited.how}")
