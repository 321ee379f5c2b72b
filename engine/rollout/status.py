"""How far a candidate has come, and what each stage comes to: gate by gate, and as a whole.

Owns the records, which `/rollout`, the page and `starsched rollout status` show. How they are
arrived at is `judge`'s.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from engine.rollout.measures import ArmMeasures, ShadowMeasures

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


SHADOW: Final = "shadow"
CANARY: Final = "canary"
#: The result of a candidate that is on its way.
RUNNING: Final = "running"


class StageStatus(msgspec.Struct, frozen=True):
    """A stage that a candidate goes through: `shadow`, or `canary` with its share of the pods."""

    name: str
    share: float = 0.0


class RolloutStatus(msgspec.Struct, frozen=True):
    """A candidate on its way, or the last one that was.

    Attributes:
        candidate: Its revision; "" if there is none.
        base: The revision in force, with which it is compared.
        stages: Those it goes through.
        stage: The index of the present one in `stages`; None if it is in none.
        since: When that began, in seconds since the epoch.
        elapsed: Seconds that count for it: not those for which it was paused.
        paused: Why it stands still; "" if it does not.
        result: `running`, `promoted`, `failed`, `aborted` or `superseded`; "" without candidate.
        verdict: Of the present stage, or of the last one.
        shadow, canary, control: What was measured.
    """

    candidate: str = ""
    base: str = ""
    stages: tuple[StageStatus, ...] = ()
    stage: int | None = None
    since: float = 0.0
    elapsed: float = 0.0
    paused: str = ""
    result: str = ""
    verdict: Verdict | None = None
    shadow: ShadowMeasures | None = None
    canary: ArmMeasures | None = None
    control: ArmMeasures | None = None
