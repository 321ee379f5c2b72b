"""The records of a pod class: its hooks with what they are given, and what each returned.

Owns the records; `pod_classifier` makes them, `pod_class` keeps them up to date.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.framework.profile import EnabledPolicy
from engine.core.framework.status import Status
from engine.policy.evaluator import PolicyFailure
from engine.policy.projections import NodeColumn
from engine.policy.verdicts import Table, VerdictMemo


class HookUse(msgspec.Struct, frozen=True):
    """A per-node hook of an enabled policy as the cycle asks it for one pod class.

    `position` is the filter's place in the profile's order, over all filters. A score that
    `normalizes` depends on the range of all scores, and on their number if it `reads_count`.
    """

    enabled: EnabledPolicy
    hook: str
    column: NodeColumn
    pod: bytes
    extra: bytes
    position: int = 0
    normalizes: bool = False
    reads_count: bool = True

    def table(self, memo: VerdictMemo) -> Table:
        """The hook's verdicts for this pod projection."""
        return memo.table(self.column, self.enabled.instance, self.hook, self.pod, self.extra)


def reads_other_nodes(uses: Iterable[HookUse]) -> bool:
    """True if a change of one node can change what one of *uses* is given of another one."""
    return any(use.column.projector.is_shared for use in uses)


@dataclass(frozen=True, slots=True)
class PreFiltered:
    """What the pre-filters and pre-scores said about a pod class.

    `rejection` ends the attempt, and so does `failure`. `subset` limits the nodes (None: all), as
    the policies in `narrowed_by` asked.
    """

    rejection: Status | None = None
    failure: PolicyFailure | None = None
    subset: tuple[str, ...] | None = None
    narrowed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that the pre-filters and pre-scores of a pod class said, for what is counted now.

    `skipped` are policies whose filters do not run, `states` what pre-filters hand on,
    `pre_scored` the verdicts of the pre-scores, all by policy, and `skipped_scores` the policies
    whose scores do not run. `name` stands for all that was said in the key of the class; None:
    something failed, and may not fail again.
    """

    pre: PreFiltered
    skipped: frozenset[str]
    states: Mapping[str, bytes]
    pre_scored: Mapping[str, Any]
    skipped_scores: frozenset[str]
    name: bytes | None


class ScoreVector:
    """One policy's scores by slot: raw as answered, and as they count after normalisation.

    Scores without `normalize` count as they are. Those with it depend on the range of all raw
    scores, so a change of the range changes all. Often there is no range: `constant` is
    then the raw score of every feasible node, and what it counts.
    """

    __slots__ = ("constant", "failures", "normal", "raw", "use")

    def __init__(self, use: HookUse, raw: NDArray[np.int64], normal: NDArray[np.int64]) -> None:
        self.use = use
        self.raw = raw
        self.normal = normal
        self.failures: dict[int, PolicyFailure] = {}
        self.constant: tuple[int, int] | None = None
