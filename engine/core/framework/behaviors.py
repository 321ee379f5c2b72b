"""What kube-scheduler answers otherwise from one minor version on or with a feature gate on.

Owns the table, `Behaviors`: a field for each difference, with the first minor version that has it,
and one for each gate that is off by default. Nothing else compares minor versions. What is decided
by a difference asks for its field:
`objects.behaves.budgets_cover_pods_without_labels`, where `objects` is the store of the cluster
(`caching.objects`), which follows the minor of its API server; a policy asks
`cluster.behaves["budgets_cover_pods_without_labels"]`.
"""

import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final, NamedTuple

#: The minor versions of Kubernetes 1 whose scheduler is known; others answer as the nearest does.
OLDEST: Final = 35
NEWEST: Final = 38
#: What is answered like where no API server says what it is: the newest that is released.
RELEASED: Final = 37

#: What `behaviors_of` takes where no gate is on.
NO_GATES: Final[frozenset[str]] = frozenset()

_VERSION: Final = re.compile(r"v?1\.(\d{1,4})(?:[.+-].*)?", re.DOTALL)


class Change(NamedTuple):
    """A difference between minor versions; the texts are Markdown."""

    #: The first minor version that has it.
    since: int
    what: str
    before: str
    then: str


def _since(minor: int, what: str, before: str, then: str) -> Any:
    return field(metadata={"change": Change(minor, what, before, then)})


class Gate(NamedTuple):
    """A feature gate of kube-scheduler that is off by default; the texts are Markdown."""

    name: str
    #: The first minor version that has it.
    since: int
    what: str


def _gated(name: str, since: int, what: str) -> Any:
    return field(default=False, metadata={"gate": Gate(name, since, what)})


@dataclass(frozen=True, slots=True, eq=False)
class Behaviors:
    """What is answered as kube-scheduler 1.`minor` does it; `behaviors_of` makes it.

    `gates` are the names of the feature gates that are on, of those of `GATES`.
    """

    minor: int
    gates: frozenset[str]
    empty_selectors_spread: bool = _since(
        38,
        "a spread constraint with `labelSelector: {}`",
        "counts no pod",
        "counts every pod of the namespace",
    )
    budgets_of_everything: bool = _since(
        38,
        "a disruption budget with `selector: {}`",
        "covers no pod",
        "covers every pod of its namespace",
    )
    budgets_cover_pods_without_labels: bool = _since(
        38, "a pod without labels, for disruption budgets", "is never covered", "is like others"
    )
    victims_by_uid: bool = _since(
        38,
        "of equally important pods of a node, if one has to go",
        "the one that came last goes",
        "the one with the largest uid goes",
    )
    fit_scores_pod_level_requests: bool = _since(
        38,
        "the score of NodeResourcesFit for a pod with requests of its own (`spec.resources`)",
        "goes by those of its containers",
        "goes by the pod's",
    )
    fractional_capacity_ranges: bool = _since(
        38,
        "a device's capacity that may be requested in steps of a `validRange`",
        "is counted in whole numbers",
        "is counted in thousandths, if the range can be",
    )
    unusable_pools_reject_nodes: bool = _since(
        38,
        "`allocationMode: All`, where a pool is being updated or invalid",
        "fails the attempt (here, it rejects the nodes that reach the pool)",
        "rejects the nodes that reach the pool, and names it",
    )
    names_in_full: bool = _since(
        38,
        "a device's capacity or attribute with the domain of its driver, and one without a domain",
        "are two",
        "are one; the one with the domain counts where a slice has both",
    )
    semantic_versions: bool = _since(
        38,
        "versions under `matchAttribute` and `distinctAttribute`",
        "are compared as texts",
        "are compared as semantic versions, whose build metadata does not count",
    )
    incomparable_attributes_fail: bool = _since(
        38,
        "`matchAttribute` and `distinctAttribute` on a list, or on a value of an unknown type",
        "pass the device over where it is not the only one",
        "fail the attempt",
    )
    negative_amounts_fail: bool = _since(
        38,
        "a negative amount of a device's capacity, requested or in a claim's `consumedCapacity`",
        "counts, unless a request is rounded up",
        "fails the attempt; what a claim consumes, those of all pods that need devices",
    )
    attributes_fail_when_read: bool = _since(
        38,
        "a device's attribute of an unknown type",
        "fails all selectors on the device",
        "fails those that read it",
    )
    newer_expressions: bool = _since(
        38,
        "device selectors at the edges: NaN in a comparison; quantities at the ends of int64; "
        "a key of another type in a map of a device",
        "fails; are no integers, or wrap; fails",
        "is False; are exact; counts as its text",
    )
    shares_keep_devices: bool = _since(
        38,
        "a device that is shared, but does not allow so any more",
        "may be given out as a whole",
        "may not",
    )
    nodes_without_victims: bool = _since(
        38,
        "preemption, on a node that an extender rejected and the plugins accept",
        "fails, if no other node helps: `expected at least one victim pod on node`",
        "goes on with other nodes; an extender with `preemptVerb` may name victims there",
    )
    shrunk_nominated_nodes_retry: bool = _since(
        38,
        "a pod without a group, whose nominated node shrinks below what it requests",
        "waits until its victims are gone",
        "is tried again at once, so that it can preempt elsewhere",
    )
    unknown_namespaces_retry: bool = _since(
        38,
        "a pod that comes, changes or goes, in a namespace that is not known, "
        "where affinity goes by labels of namespaces",
        "counts as in one without labels",
        "has waiting pods tried again",
    )
    growth_in_fractions: bool = _since(
        38,
        "a CSIStorageCapacity that grows by less than a byte, or beyond int64",
        "is no news to pods that wait for storage",
        "has them tried again",
    )
    groups_need_no_permit: bool = _since(
        38,
        "a pod of a group (gate `GenericWorkload`) that got its node together with the others",
        "is approved by GangScheduling's permit, or waits there for the others",
        "is bound, whatever happens to the others",
    )
    groups_are_named: bool = _since(
        38,
        "what conditions and events say of groups; the reason, if its pods differ in scheduler, "
        "priority or preemption policy",
        "`minCount (3) cannot be satisfied`, `pod group is unschedulable`; `SchedulerError`",
        '`minimum threshold (3) cannot be satisfied`, `parent pod group "g" is unschedulable`; '
        "`PodGroupError`",
    )
    groups_ask_on: bool = _since(
        38,
        "a group that fits nowhere, and for which no less important pod could go",
        "asks no plugin after DefaultPreemption",
        "asks those after it too",
    )
    only_gangs_go_as_one: bool = _since(
        38,
        "a new PodGroup, or a new Workload with a template of one, with "
        "`disruptionMode: {all: {}}` and a policy other than `gang`",
        "is taken by the API server",
        "is refused",
    )
    entity_label: bool = _since(
        38,
        "what is tried as one, in the metrics `scheduler_queued_entities` and "
        "`scheduler_queue_incoming_entities_total`",
        "is said by the label `type`",
        "is said by `entity` (here, by both)",
    )
    removed_gates_refused: bool = _since(
        38,
        "a start with a feature gate that is gone, such as `DynamicResourceAllocation`",
        "is one like others",
        "fails (here, if `--emulated-version` says 1.38; else a warning says so)",
    )
    compares_lists: bool = _gated(
        "DRAListTypeAttributes",
        36,
        "`matchAttribute` and `distinctAttribute` compare attributes that are lists: all devices "
        "must have an element in common, or no two of them; a single value is a list of one",
    )
    compares_groups: bool = _gated(
        "DRADeviceCompatibilityGroups",
        37,
        "devices that draw on the same counter set must have one of their `compatibilityGroups` in "
        "common; else a pool with such devices counts as incomplete",
    )
    shares_claims_of_groups: bool = _gated(
        "DRAWorkloadResourceClaims",
        36,
        "a claim that a pod and its PodGroup both name is used by the group as one, however many "
        "pods it has, and may be made from a template of the group's",
    )


#: The differences by name, in the order of the table.
CHANGES: Final[dict[str, Change]] = {
    each.name: each.metadata["change"] for each in fields(Behaviors) if "change" in each.metadata
}
_GATED: Final[dict[str, Gate]] = {
    each.name: each.metadata["gate"] for each in fields(Behaviors) if "gate" in each.metadata
}
#: The feature gates by name, in the order of the table.
GATES: Final[dict[str, Gate]] = {gate.name: gate for gate in _GATED.values()}


def behaviors_of(minor: int, gates: frozenset[str] = NO_GATES) -> Behaviors:
    """What is answered for an API server 1.*minor* with *gates* on; the same object each time.

    Older and newer ones than those that are known get what the nearest known one has. A gate that
    the version does not have, or that is not of `GATES`, changes nothing.
    """
    known = min(max(minor, OLDEST), NEWEST)
    meant = frozenset(name for name in gates & GATES.keys() if GATES[name].since <= known)
    return _made(known, meant)


@cache
def _made(minor: int, gates: frozenset[str]) -> Behaviors:
    changed = {name: change.since <= minor for name, change in CHANGES.items()}
    changed.update((name, gate.name in gates) for name, gate in _GATED.items())
    return Behaviors(minor, gates, **changed)


@cache
def by_name(behaves: Behaviors) -> dict[str, bool]:
    """The differences, with whether the version has them; the same object each time."""
    return {name: getattr(behaves, name) for name in CHANGES}


def minor_of(version: str) -> int | None:
    """The 38 of `1.38`, `v1.38.0-beta.0` or `1.38+`; None if it is no version of Kubernetes 1."""
    found = _VERSION.fullmatch(version)
    return None if found is None else int(found[1])
