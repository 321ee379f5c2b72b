"""The verdicts of every policy on every node, instead of only the first rejection.

Owns asking every filter alone, with the engine's own cycle. A decision stops at the first
rejection of a node; to know what would help, all of them are needed.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.framework.status import Status
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.filter_verdicts import FilterVerdicts, HookInputs
from engine.core.scheduling.pod_class import ABSENT
from engine.core.scheduling.rejections import left_out_by, node_name
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.evaluator import PolicyFailure
from engine.policy.verdicts import FAILED, FITS

_POINTS = ("preFilter", "filter")
_HOOKS = ("pre_filter", "filter", "counters")
# The smallest code of all.
_LOWEST = min(ABSENT, FAILED)


@dataclass(frozen=True, slots=True)
class PolicyColumn:
    """What one policy says, by slot.

    Attributes:
        codes: 0 where it accepts the node, -1 where it failed; else what `statuses` is asked for.
        statuses: The rejections by code, from 1.
        inputs: What its filter was given; None if there was no one filter that was asked.
    """

    policy: str
    codes: NDArray[np.int32]
    statuses: tuple[Status, ...] = ()
    inputs: HookInputs | None = None

    def status(self, code: int) -> Status:
        """The rejection of a positive code."""
        return self.statuses[code - 1]


class VerdictTable:
    """Which policies reject which nodes.

    Args:
        snapshot: The nodes.
        columns: Of the policies that can reject, in the profile's order.
        failures: Failures of policies.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        columns: tuple[PolicyColumn, ...] = (),
        failures: tuple[PolicyFailure, ...] = (),
    ) -> None:
        self.snapshot = snapshot
        self.columns = {column.policy: column for column in columns}
        self.failures = failures

    @functools.cached_property
    def slots(self) -> NDArray[np.int64]:
        """The slots that hold a node."""
        slot_of = self.snapshot.slot_of
        return np.sort(np.fromiter(slot_of.values(), np.int64, len(slot_of)))

    @functools.cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes, sorted."""
        return tuple(sorted(self.snapshot.slot_of))

    @functools.cached_property
    def rejections(self) -> Mapping[str, Mapping[str, Status]]:
        """By policy, and by node in no particular order: the rejection.

        Policies that reject no node have an empty mapping.
        """
        return {policy: self._rejected(column) for policy, column in self.columns.items()}

    def _rejected(self, column: PolicyColumn) -> Mapping[str, Status]:
        slots = self.slots[column.codes[self.slots] > 0].tolist()
        return {
            node_name(slot, self.snapshot): column.statuses[code - 1]
            for slot, code in zip(slots, column.codes[slots].tolist(), strict=True)
        }

    @functools.cached_property
    def _times_rejected(self) -> NDArray[np.int64]:
        """By slot, how many policies reject the node."""
        total = np.zeros(len(self.snapshot.infos), np.int64)
        for column in self.columns.values():
            total += column.codes > 0
        return total

    def rejectors_of(self, node: str) -> tuple[str, ...]:
        """The policies that reject *node*, in order."""
        slot = self.snapshot.slot_of[node]
        return tuple(policy for policy, column in self.columns.items() if column.codes[slot] > 0)

    def slots_rejected_by(self, policy: str) -> NDArray[np.int64]:
        """The slots of the nodes that *policy* rejects."""
        slots = self.slots
        rejected: NDArray[np.int64] = slots[self.columns[policy].codes[slots] > 0]
        return rejected

    def slots_rejected_only_by(self, *policies: str) -> NDArray[np.int64]:
        """The slots of the nodes that all of *policies* reject, and no other one does."""
        slots = self.slots
        is_theirs = self._times_rejected[slots] == len(policies)
        for policy in policies:
            column = self.columns.get(policy)
            if column is None:
                return slots[:0]
            is_theirs &= column.codes[slots] > 0
        theirs: NDArray[np.int64] = slots[is_theirs]
        return theirs


def _never() -> None:
    """The default of `check`."""


def ask_each(
    scheduler: Scheduler,
    pod: Pod,
    snapshot: Snapshot,
    nominator: Nominator,
    check: Callable[[], None] = _never,
) -> VerdictTable:
    """Every filter of the pod's profile, asked alone; *check* is called after each.

    Raises `KeyError` if the pod has no profile, and what *check* raises.
    """
    profile = scheduler.profile_of(pod)
    if profile is None:
        raise KeyError(pod.scheduler_name)
    if pod.problems or not snapshot.node_count:
        return VerdictTable(snapshot)
    columns = []
    failures: list[PolicyFailure] = []
    for name in filter_names(profile):
        found = scheduler.verdicts(pod, snapshot, nominator, _only(profile, name))
        failures += found.failures
        columns.append(_column(name, found, snapshot))
        check()
    return VerdictTable(snapshot, tuple(columns), tuple(failures))


def _column(policy: str, found: FilterVerdicts, snapshot: Snapshot) -> PolicyColumn:
    size = len(snapshot.infos)
    if found.pre_filter is not None:
        return PolicyColumn(policy, np.ones(size, np.int32), (found.pre_filter,))
    if not len(found.codes):
        return PolicyColumn(policy, np.full(size, -1, np.int32))
    if not found.codes.any():
        return PolicyColumn(policy, np.zeros(size, np.int32), inputs=found.inputs)
    # Codes of the memo, renumbered; what is left out by a pre-filter is one rejection more.
    statuses: list[Status] = []
    places = found.codes - _LOWEST
    kinds = np.bincount(places)
    renumbered = np.zeros(len(kinds), np.int32)
    for place in np.flatnonzero(kinds).tolist():
        code = place + _LOWEST
        if code == FITS or (code == ABSENT and not found.narrowed_by):
            continue
        if code == FAILED:
            renumbered[place] = -1
            continue
        left_out = code == ABSENT
        statuses.append(left_out_by((policy,)) if left_out else found.statuses(code))
        renumbered[place] = len(statuses)
    return PolicyColumn(policy, renumbered[places], tuple(statuses), found.inputs)


def filter_names(profile: Profile) -> list[str]:
    """Policies and runtime plugins that can reject a node, in the profile's order."""

    def names() -> Iterator[str]:
        for point in ("filter", "preFilter"):
            yield from profile.order.get(point, ())
        for hook in ("filter", "pre_filter"):
            yield from (enabled.policy for enabled in profile.at(hook))

    return list(dict.fromkeys(names()))


def _only(profile: Profile, name: str) -> Profile:
    """The part of *profile* with the filter *name* alone."""
    points = {
        hook: tuple(enabled for enabled in profile.at(hook) if enabled.policy == name)
        for hook in _HOOKS
    }
    order = {
        point: tuple(one for one in profile.order.get(point, ()) if one == name)
        for point in _POINTS
    }
    return replace(
        profile,
        scheduler_name=f"{profile.scheduler_name}\0{name}",
        points={hook: enabled for hook, enabled in points.items() if enabled},
        order={point: names for point, names in order.items() if names},
    )
