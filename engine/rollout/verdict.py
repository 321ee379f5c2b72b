"""What a stage of a roll-out comes to: gate by gate, and as a whole.

Owns the records. How they are arrived at is `judge`'s.
"""

from typing import Literal, TypeAlias

import msgspec

Outcome: TypeAlias = Literal["pass", "fail", "inconclusive"]


class GateResult(msgspec.Struct, frozen=True):
    """One gate.

    Attributes:
        name: As in the configuration (`maxMoved`), or `compared`, `decisions`, `duration`.
        value: What was measured; None if nothing was.
        bound: What is wanted.
        verdict: What follows from it alone.
        text: Measure, value and bound in words.
    """

    name: str
    value: float | None
    bound: float
    verdict: Outcome
    text: str


class Verdict(msgspec.Struct, frozen=True):
    """A stage: *why* names the gates that decide it."""

    outcome: Outcome
    why: str
    gates: tuple[GateResult, ...] = ()
