"""The stages that an edit goes through before it decides for all pods, and what each demands.

Owns their fields and defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class ShadowStage:
    """The candidate decides beside the policies in force, and nothing is carried out.

    Attributes:
        duration: At least so long.
        compared: At least so many compared decisions.
        cores: The share of a core that it may use.
    """

    duration: timedelta = timedelta(minutes=1)
    compared: int = 500
    cores: float = 0.05


@dataclass(frozen=True, slots=True)
class CanaryStep:
    """The candidate decides for a share of the pods.

    Attributes:
        share: Of the pods, above 0 and at most 0.5: as many are the control sample.
        duration: At least so long.
        decisions: At least so many decisions by the candidate.
    """

    share: float
    duration: timedelta = timedelta(minutes=2)
    decisions: int = 50


@dataclass(frozen=True, slots=True)
class CanaryStage:
    """The steps, and which pods may be chosen.

    Attributes:
        steps: With growing shares.
        namespace_labels: Only pods of namespaces with these labels; empty: all.
        profile: Only pods of this profile; "": all.
    """

    steps: tuple[CanaryStep, ...] = (CanaryStep(0.01), CanaryStep(0.05))
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Gates:
    """The bounds of what is measured.

    Attributes:
        max_moved: Share of compared decisions that choose another node.
        max_newly_pending: Decisions without a node, where there was one before.
        max_evictions: Additional pods evicted.
        error_rate: Share of decisions that fail, and did not before.
        latency: Mean time of a decision, as a multiple of what it is with the policies in force.
        time_to_bind: Mean time to a binding, as a multiple of the control sample's.
        fragmentation: How much larger the share of stranded capacity may be; None: not watched.
    """

    max_moved: float = 0.25
    max_newly_pending: int = 0
    max_evictions: int = 0
    error_rate: float = 0.0
    latency: float = 2.0
    time_to_bind: float = 2.0
    fragmentation: float | None = None


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The stages of an edit; without any it is in force as soon as its trial is over."""

    shadow: ShadowStage | None = None
    canary: CanaryStage | None = None
    gates: Gates = field(default_factory=Gates)
