"""A sandbox that is started when it is asked something: not all who have one do that.

Owns the start.
"""

from collections.abc import Callable, Sequence

from engine.policy.evaluator import Call, Evaluator, PolicyFailure, Verdict


class LazySandbox:
    """The sandbox that *start* starts, or raises `PolicyErrors`, once it is asked something."""

    def __init__(self, start: Callable[[], Evaluator]) -> None:
        self._start = start
        self._started: Evaluator | None = None

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call. Raises `PolicyErrors` if the sandbox does not start."""
        return self.open().evaluate(calls)

    def open(self) -> Evaluator:
        """The sandbox, which was started by now. Raises `PolicyErrors`."""
        if self._started is None:
            self._started = self._start()
        return self._started

    def close(self) -> None:
        """End the sandbox, if it was started."""
        if self._started is not None:
            self._started.close()
