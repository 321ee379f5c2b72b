"""Questions asked ahead of need: those under way with one child, and their answers.

Owns how many there may be, and that nobody waits for them longer than he wants to. Which child is
asked, and what becomes of one that fails, is `process`'s.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from engine.policy.evaluator import Call, Take
from engine.policy.sandbox.children import Child
from engine.policy.sandbox.parts import entry_count
from engine.policy.sandbox.protocol import (
    ChannelClosedError,
    ProgramImage,
    RawAnswer,
    check_answer,
    decode_answer,
)

# Guesses under way, and bytes of their calls: far less than a socket holds, so that sending never
# waits for a child that does not read.
_MOST: Final = 4
_MOST_BYTES: Final = 1 << 16


class GuessError(Exception):
    """The child failed: it is gone, took too long, or its answers are none."""


class _Guess(NamedTuple):
    calls: Sequence[Call]
    take: Take
    size: int


class Guesses:
    """What is under way.

    Attributes:
        child: Who works on it; None if nothing is under way.
    """

    def __init__(self) -> None:
        self.child: Child | None = None
        self._waiting: deque[_Guess] = deque()
        self._answers: list[RawAnswer] = []  # those that came and are not taken
        self._bytes = 0
        self._heard_at = 0.0

    @property
    def are_under_way(self) -> bool:
        """True if something is asked and not answered."""
        return self.child is not None

    def ask(self, child: Child, calls: Sequence[Call], take: Take) -> bool:
        """Ask *child*, who is the one that has the others; False if that would be too much.

        Raises `GuessError` if it cannot be asked.
        """
        size = sum(map(_size_of, calls))
        if not calls or len(self._waiting) >= _MOST or self._bytes + size > _MOST_BYTES:
            return False
        try:
            child.send_guess(calls)
        except (TimeoutError, ChannelClosedError) as error:
            raise GuessError(str(error)) from error
        if self.child is None:
            self.child, self._heard_at = child, time.monotonic()
        self._waiting.append(_Guess(calls, take, size))
        self._bytes += size
        return True

    def take_in(self, patience: float) -> None:
        """Have those taken that are answered within *patience* seconds. Raises `GuessError`."""
        until = time.monotonic() + patience
        while (child := self.child) is not None:
            now = time.monotonic()
            if not child.has_answer(max(0.0, until - now)):
                if time.monotonic() - self._heard_at >= child.deadline:
                    raise GuessError("no answer")
                return
            self._heard_at = now
            try:
                self._answers += child.receive()
                while self._waiting and len(self._answers) >= len(self._waiting[0].calls):
                    self._take_first(child.image)
            # Also what comes of verdicts that are none; the child is not to be trusted.
            except (
                TimeoutError,
                ChannelClosedError,
                msgspec.DecodeError,
                LookupError,
                TypeError,
                ValueError,
            ) as error:
                raise GuessError(str(error)) from error

    def lose(self) -> None:
        """Give up what is under way."""
        lost, self._waiting = self._waiting, deque()
        self._rest()
        for guess in lost:
            guess.take(None)

    def _take_first(self, image: ProgramImage) -> None:
        guess = self._waiting[0]
        count = len(guess.calls)
        answers, rest = self._answers[:count], self._answers[count:]
        if rest and len(self._waiting) == 1:
            raise ValueError("more answers than calls")
        for call, answer in zip(guess.calls, answers, strict=True):
            check_answer(answer, call, entry_count(call), image)
        verdicts = [decode_answer(answer) for answer in answers]
        self._waiting.popleft()
        self._answers = rest
        self._bytes -= guess.size
        if not self._waiting:
            self._rest()
        guess.take(verdicts)

    def _rest(self) -> None:
        """Nothing is under way any more."""
        self.child = None
        self._answers = []
        self._bytes = 0


def _size_of(call: Call) -> int:
    return len(call.pod) + len(call.extra) + sum(map(len, call.nodes or ()))
