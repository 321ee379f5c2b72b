"""The last decisions, as they were made.

Owns how many are kept, and what of them: a decision as it is shown, with the few scores of its
`choice`. What is to be done about it is left out: it holds what was found on every node.
"""

from typing import Final, NamedTuple

import msgspec

from engine.core.scheduling.decision import Decision

_MOST: Final = 4_096


class DecidedPod(NamedTuple):
    """A decision, and when it was made (monotonic seconds)."""

    decision: Decision
    at: float


class DecisionRecord:
    """The last decision about each of the pods that were decided last."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._decided: dict[str, DecidedPod] = {}

    def note(self, uid: str, decision: Decision, now: float) -> None:
        """Remember *decision* about the pod of *uid*."""
        decided = self._decided
        decided.pop(uid, None)  # it goes to the end
        if decision.reserves or decision.actions:
            decision = msgspec.structs.replace(decision, reserves=(), actions=())
        decided[uid] = DecidedPod(decision, now)
        if len(decided) > self._most:
            del decided[next(iter(decided))]

    def of(self, uid: str) -> DecidedPod | None:
        """The last decision about a pod; None if it is not known any more."""
        return self._decided.get(uid)
