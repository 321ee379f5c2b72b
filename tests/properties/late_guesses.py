"""An evaluator whose guesses are answered at once, sooner or later, or never, as chance has it."""

import random
from collections.abc import Sequence

from engine.policy.evaluator import Call, Evaluator, PolicyFailure, Take, Verdict

_MOST = 4


class LateGuesses:
    """Passes on what is asked; *chance* says what becomes of a guess."""

    def __init__(self, evaluator: Evaluator, chance: random.Random, *, is_near: bool) -> None:
        self.is_near = is_near
        self._evaluator = evaluator
        self._chance = chance
        self._under_way: list[tuple[Sequence[Call], Take]] = []

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        """As the evaluator behind it."""
        self.settle()
        return self._evaluator.evaluate(calls)

    def guess(self, calls: Sequence[Call], take: Take) -> bool:
        """Refused at times; else answered at some time."""
        self.settle()
        if len(self._under_way) >= _MOST or self._chance.random() < 0.1:
            return False
        self._under_way.append((calls, take))
        if self._chance.random() < 0.5:
            self.settle(1.0)
        return True

    def settle(self, patience: float = 0.0) -> None:
        """Answer those whose time has come, in their order; now and then one is lost."""
        while self._under_way and self._chance.random() < 0.2 + patience:
            calls, take = self._under_way.pop(0)
            take(None if self._chance.random() < 0.1 else self._evaluator.evaluate(calls))

    def close(self) -> None:
        """The evaluator is closed by whoever opened it."""
