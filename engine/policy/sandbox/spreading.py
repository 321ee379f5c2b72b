"""Spreads one large request over several children.

Owns the parts of a request and which child works on which. When a child exits, its parts are left
to the caller, which asks them again one by one. Which child answers a part, and when, changes
nothing: parts are cut by their entries alone, and joined in their order.
"""

import functools
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from engine.policy.sandbox.children import Child, ChildExited
from engine.policy.sandbox.parts import can_split, entry_count, join, split
from engine.policy.sandbox.protocol import (
    Call,
    ChannelClosedError,
    PolicyFailure,
    ProgramImage,
    RawAnswer,
    check_answer,
    most_reasons,
)

# A request with fewer entries is done by one child before another would have been woken.
_LARGE: Final = 1024
# Entries that a child is given at a time: few enough that all are busy to the end.
_PORTION: Final = 512


def is_large(calls: Sequence[Call]) -> bool:
    """True if *calls* are worth spreading."""
    return sum(len(call.nodes) for call in calls if call.nodes is not None) >= _LARGE


class Parts:
    """Calls cut into parts: `calls` has one for each, `of` the index of the call it is of."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._whole = calls
        self.calls: list[Call] = []
        self.of: list[int] = []
        for index, whole in enumerate(calls):
            if whole.nodes is None or not can_split(whole):
                self.calls.append(whole)
                self.of.append(index)
                continue
            for part in split(whole.nodes):
                self.calls.append(whole._replace(nodes=list(part)))
                self.of.append(index)

    def size(self, index: int) -> int:
        """How many entries a part has."""
        nodes = self.calls[index].nodes
        return 1 if nodes is None else max(1, len(nodes))

    def join(self, answers: Sequence[RawAnswer], image: ProgramImage) -> list[RawAnswer]:
        """The answers to the calls from those to all parts."""
        mine: list[list[int]] = [[] for _ in self._whole]
        for part, index in enumerate(self.of):
            mine[index].append(part)
        result = []
        for call, parts in zip(self._whole, mine, strict=True):
            if len(parts) == 1:
                result.append(answers[parts[0]])
                continue
            counts = [len(self.calls[part].nodes or ()) for part in parts]
            fail = functools.partial(_failure, image, call)
            whole = [answers[part] for part in parts]
            result.append(join(whole, counts, fail, most_reasons(call)))
        return result


def _failure(image: ProgramImage, call: Call, kind: str, message: str, hint: str) -> PolicyFailure:
    return image.failure(call, kind, message, hint)


class Spreading:
    """Has *children* work on *parts* until all that can be answered is.

    Args:
        parts: The request.
        children: Those that work; at least one.
        reap: Removes a child that failed with an error; returns why it exited.

    Attributes:
        late: Parts that took too long, or whose call did, with what happened.
    """

    def __init__(
        self,
        parts: Parts,
        children: Sequence[Child],
        reap: Callable[[Child, Exception], ChildExited],
    ) -> None:
        self._parts = parts
        self._reap = reap
        self._queue = deque(range(len(parts.calls)))
        self._answers: dict[int, RawAnswer] = {}
        self._busy: dict[Child, deque[int]] = {}
        self._given: dict[Child, int] = {}  # how many parts its request had
        self._asked_at: dict[Child, float] = {}
        self._begun_at: dict[int, float] = {}
        self._idle = list(children)
        self.late: dict[int, ChildExited] = {}

    def run(self) -> dict[int, RawAnswer]:
        """The answers by part, without those during which a child exited."""
        while self._busy or (self._queue and self._idle):
            for child in list(self._idle):
                self._give(child)
            self._listen()
        return self._answers

    def _give(self, child: Child) -> None:
        portion: list[int] = []
        size = 0
        now = time.monotonic()
        while self._queue and size < _PORTION:
            part = self._queue.popleft()
            if part in self.late:
                continue
            portion.append(part)
            size += self._parts.size(part)
            self._begun_at.setdefault(self._parts.of[part], now)
        if not portion:
            return
        try:
            child.send([self._parts.calls[part] for part in portion], one_by_one=False)
        except (TimeoutError, ChannelClosedError) as error:
            self._given[child] = len(portion)
            self._lose(child, deque(portion), error)
            return
        finally:
            self._idle.remove(child)
        self._busy[child] = deque(portion)
        self._given[child] = len(portion)
        self._asked_at[child] = now

    def _listen(self) -> None:
        """Receive the answers that have arrived; a child that took too long is given up."""
        if not self._busy:
            return
        poll = select.poll()
        by_descriptor = {child.channel.fileno(): child for child in self._busy}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        deadline = next(iter(self._busy)).deadline
        patience = min(self._asked_at.values()) + deadline - time.monotonic()
        ready = {by_descriptor[descriptor] for descriptor, _ in poll.poll(max(0, patience) * 1000)}
        for child in ready:
            self._take(child)
        now = time.monotonic()
        for child in [c for c in self._busy if now - self._asked_at[c] >= deadline]:
            self._lose(child, self._forget(child), TimeoutError("no answer"))

    def _take(self, child: Child) -> None:
        waiting = self._busy[child]
        try:
            while True:
                for answer in child.receive():
                    call = self._parts.calls[waiting[0]]
                    check_answer(answer, call, entry_count(call), child.image)
                    self._answers[waiting.popleft()] = answer
                if not waiting or not child.channel.has_more:
                    break
        except (TimeoutError, ChannelClosedError, msgspec.DecodeError, IndexError) as error:
            self._lose(child, self._forget(child), error)
            return
        now = self._asked_at[child] = time.monotonic()
        if not waiting:
            self._forget(child)
            self._idle.append(child)
        self._give_up_calls(now, child.deadline)

    def _forget(self, child: Child) -> deque[int]:
        del self._asked_at[child]
        return self._busy.pop(child)

    def _lose(self, child: Child, waiting: deque[int], error: Exception) -> None:
        """*child* gives no more answers; the caller asks for those that are missing."""
        exited = self._reap(child, error)
        if exited.kind == "deadline":
            answered = self._given[child] - len(waiting)
            # The part that it says it was busy with, within those that are missing.
            culprit = waiting[min(max(0, exited.position - answered), len(waiting) - 1)]
            self._give_up(self._parts.of[culprit], exited, waiting)

    def _give_up_calls(self, now: float, deadline: float) -> None:
        """A call has its deadline too, however many parts it is cut into."""
        for call, begun in list(self._begun_at.items()):
            if now - begun >= deadline:
                how = f"did not answer within {deadline:g} s"
                self._give_up(call, ChildExited("deadline", how))

    def _give_up(self, call: int, exited: ChildExited, lost: Iterable[int] = ()) -> None:
        for part in (*self._queue, *lost):
            if self._parts.of[part] == call:
                self.late[part] = exited
