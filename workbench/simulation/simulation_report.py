"""The measures of a simulation: utilization of the cluster, and waiting times of pods.

Owns the measures and their definitions; `Recorder` samples them while the simulation runs.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from engine.core.kernel.turn_standing import hold_text
from engine.core.model.pod import Pod
from workbench.simulation.shares_over_time import (
    Curves,
    QueueLife,
    QueueRecorder,
    QueueReport,
    QueueStep,
    curves,
    level_of,
    most_wanted,
    queue_report,
    weights_of,
)
from workbench.simulation.simulation import Life, Simulation

# The share of all pods whose kinds, beginning with the most frequent, count as typical.
_TYPICAL: Final = 0.95
_MOST_REASONS: Final = 10


class Step(msgspec.Struct, frozen=True):
    """The cluster after the events of one time.

    `arrived`, `placed` and `pending` count arrived pods, as in `Report`. `requested` and
    `allocatable` are sums over all nodes by resource (millicores for cpu); `requested` includes
    the pods that were placed at the start. `queues` are those of the tree, if there is one.
    """

    at: float
    arrived: int
    placed: int
    pending: int
    evictions: int
    requested: Mapping[str, int]
    allocatable: Mapping[str, int]
    queues: Mapping[str, QueueStep] = {}

    def share(self, resource: str) -> float:
        """The requested share of what is allocatable of *resource*; 0 if nothing is.

        Placed pods may request a resource that no node offers any more.
        """
        allocatable = self.allocatable.get(resource, 0)
        return self.requested.get(resource, 0) / allocatable if allocatable > 0 else 0.0


def most_allocatable(steps: Iterable[Step]) -> dict[str, int]:
    """The maximum of what was allocatable, by resource; without those that were always 0."""
    found: dict[str, int] = {}
    for step in steps:
        for name, amount in step.allocatable.items():
            if amount > found.get(name, 0):
                found[name] = amount
    return dict(sorted(found.items()))


class ResourceUse(msgspec.Struct, frozen=True):
    """Utilization of one resource: amounts at the end, and shares of what is allocatable, 0..1.

    `mean` is over time. `fragmentation` is the share of the free amount on nodes where typical pods
    do not fit, weighted by the frequency of each kind of pod.
    """

    requested: int
    allocatable: int
    final: float
    mean: float
    peak: float
    fragmentation: float


class Pending(msgspec.Struct, frozen=True):
    """The pods that are still pending for one reason."""

    reason: str
    pods: int
    examples: tuple[str, ...]


class Placement(msgspec.Struct, frozen=True):
    """Where a pod went, and when; one record for each pod that arrived.

    Times are seconds of virtual time, null for what did not happen.

    Attributes:
        pod: `namespace/name`.
        node: The last node that it was on; "" if it got none.
        arrived_at: When it was created, the last time if it was evicted and created again.
        placed_at: When it got its node.
        gone_at: When it ended.
        reason: Why it has no node; "" if it has one.
    """

    pod: str
    node: str
    arrived_at: float
    placed_at: float | None
    gone_at: float | None
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a simulation.

    Attributes:
        seconds: Its length in virtual time.
        nodes, empty_nodes: The number of nodes at the end, and of those without pods.
        arrived: The number of pods that arrived.
        placed: Those that are on a node at the end.
        completed: Those that ended on a node.
        given_up: Those that ended without having had one.
        evicted: Those that were evicted and not recreated.
        pending: Those that are still waiting at the end.
        replaced: Pods that were deleted because another one of the same name arrived.
        evictions: The number of evictions.
        failed: Pods whose last attempt ended in an error of a policy.
        waits: Seconds from arrival, or eviction, to placement: the median, and the 99th
            percentile.
        resources: By name.
        fairness: Jain's index over the groups of pods (1: all get the same share of their
            requests; 1/n: one of n groups gets everything).
        groups: The share of its requests that each group got.
        reasons: Why pods are still pending, the most frequent reason first.
        queues: What the queues of the tree had; null without a tree.
    """

    seconds: float
    nodes: int
    empty_nodes: int
    arrived: int
    placed: int
    completed: int
    given_up: int
    evicted: int
    pending: int
    replaced: tuple[str, ...]
    evictions: int
    failed: int
    waits: tuple[float, float]
    resources: Mapping[str, ResourceUse]
    fairness: float
    groups: Mapping[str, float]
    reasons: tuple[Pending, ...]
    decisions: int
    queues: QueueReport | None = None

    def to_plain(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Recorder:
    """Takes a `Step` after each time of the agenda: `Simulation(..., on_moment=recorder)`.

    Sums are updated by the nodes that changed, so that a step costs no pass over the cluster.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._counted: dict[int, tuple[Mapping[str, int], Mapping[str, int]]] = {}
        self._requested: Counter[str] = Counter()
        self._allocatable: Counter[str] = Counter()
        self._generation = -1
        self._queues = QueueRecorder()

    def __call__(self, simulation: Simulation) -> None:
        """Take a step."""
        self._count(simulation)
        lives, placed = simulation.lives, simulation.placed_count
        step = Step(
            simulation.now,
            len(lives),
            placed,
            simulation.pending_count,
            simulation.evictions,
            dict(self._requested),
            dict(self._allocatable),
            self._queues.take(simulation.kernel),
        )
        if self.steps and self.steps[-1].at == step.at:
            self.steps[-1] = step
        else:
            self.steps.append(step)

    def _count(self, simulation: Simulation) -> None:
        snapshot = simulation.cache.snapshot()
        changed = snapshot.changed_since(self._generation) if self._generation >= 0 else None
        slots: Iterable[int] = range(len(snapshot.infos)) if changed is None else changed
        for slot in slots:
            info = snapshot.infos[slot]
            requested: Mapping[str, int] = {}
            allocatable: Mapping[str, int] = {}
            if info is not None and info.node is not None:
                requested = {**info.requested, "pods": len(info.pods)}
                allocatable = info.node.allocatable
            before = self._counted.get(slot, ({}, {}))
            _replace(self._requested, before[0], requested)
            if before[1] is not allocatable:
                _replace(self._allocatable, before[1], allocatable)
            self._counted[slot] = (requested, allocatable)
        self._generation = snapshot.generation


def _replace(sums: Counter[str], before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Subtract *before* from *sums* and add *now*."""
    for name, amount in before.items():
        sums[name] -= amount
    for name, amount in now.items():
        sums[name] += amount


def placements(simulation: Simulation) -> tuple[Placement, ...]:
    """Where the pods of a finished simulation went, in the order in which they arrived."""
    return tuple(
        Placement(
            life.wants.key,
            life.node,
            life.arrived_at,
            life.placed_at,
            life.gone_at,
            life.reason,
        )
        for life in sorted(simulation.lives.values(), key=lambda life: life.arrived_at)
    )


def report(
    simulation: Simulation,
    steps: list[Step],
    *,
    group_by: str = "",
    resource: str = "",
    level: int = 1,
    weights: Mapping[str, int] | None = None,
) -> Report:
    """The report of a finished simulation; *group_by* is a label key, or "" for the namespace.

    Of the queues it is about those of *level*, and *resource*, or else the one that most is in use
    of; *weights* are those that they deserve by, see `queue_curves`.
    """
    lives = list(simulation.lives.values())
    infos = [i for i in simulation.cache.snapshot().infos if i is not None and i.node is not None]
    groups = shares(lives, most_allocatable(steps), group_by)
    waits = sorted(one.waited for one in lives if one.waited is not None)
    pending = [one for one in lives if one.is_pending]
    _say_held(simulation, pending)
    return Report(
        seconds=simulation.now,
        nodes=len(infos),
        empty_nodes=sum(not info.pods for info in infos),
        arrived=len(lives),
        placed=sum(one.is_placed for one in lives),
        completed=sum(one.gone_at is not None and one.waited is not None for one in lives),
        given_up=sum(
            one.gone_at is not None and one.waited is None and not one.is_lost for one in lives
        ),
        evicted=sum(one.is_lost for one in lives),
        pending=len(pending),
        replaced=tuple(dict.fromkeys(simulation.replaced)),
        evictions=simulation.evictions,
        failed=sum(one.has_failed for one in pending),
        waits=(_percentile(waits, 0.5), _percentile(waits, 0.99)),
        resources=_resources(simulation, steps, lives),
        fairness=jain(groups.values()),
        groups=groups,
        reasons=_reasons(pending),
        decisions=simulation.decisions,
        queues=_queues(simulation, steps, resource, level, weights),
    )


def queue_curves(
    simulation: Simulation,
    steps: Sequence[Step],
    resource: str = "",
    level: int = 1,
    weights: Mapping[str, int] | None = None,
) -> tuple[str, Curves]:
    """What queues had and deserved over time, and of which resource; see `report`.

    *weights*, by path, are by default the attributes of that name.
    """
    moments = [step.queues for step in steps]
    resource = resource or most_wanted(moments)
    found = curves(
        [step.at for step in steps],
        moments,
        resource=resource,
        level=level,
        weights=weights_of(simulation.kernel) if weights is None else weights,
    )
    return resource, found


def _queues(
    simulation: Simulation,
    steps: list[Step],
    resource: str,
    level: int,
    weights: Mapping[str, int] | None,
) -> QueueReport | None:
    shares = simulation.kernel.shares
    if not shares.is_on:
        return None
    resource, found = queue_curves(simulation, steps, resource, level, weights)
    lives = [
        QueueLife(life.queue, life.waited, life.evictions)
        for life in simulation.lives.values()
        if life.queue
    ]
    of_level = sum(level_of(path) == level for path in shares.tree.queues)
    return queue_report(
        found,
        lives,
        policy=shares.policy,
        resource=resource,
        level=level,
        queues=of_level,
        reversals=simulation.kernel.reclaims.reversals,
    )


def _say_held(simulation: Simulation, pending: Iterable[Life]) -> None:
    """Say of pods behind one that is held what that one is held for."""
    for life in pending:
        hold = None if life.reason else simulation.kernel.turns.hold_of(life.wants.uid)
        if hold is not None:
            life.reason = hold_text(*hold)


def jain(values: Iterable[float]) -> float:
    """Jain's index of *values*: 1 if all are equal, 1/n if all but one are 0; 1 if empty."""
    known = list(values)
    squares = sum(value * value for value in known)
    return sum(known) ** 2 / (len(known) * squares) if squares else 1.0


def shares(
    lives: Iterable[Life], allocatable: Mapping[str, int], group_by: str
) -> dict[str, float]:
    """By group, the share of its requests that was placed, by the dominant resource of each pod."""
    wanted: dict[str, float] = defaultdict(float)
    got: dict[str, float] = defaultdict(float)
    for life in lives:
        pod = life.wants
        group = pod.labels.get(group_by, "") if group_by else pod.namespace
        weight = max(
            (amount / allocatable[name] for name, amount in pod.requests.items()
             if allocatable.get(name)),
            default=0.0,
        )  # fmt: skip
        wanted[group] += weight
        got[group] += weight * (life.waited is not None)
    return {group: got[group] / want for group, want in sorted(wanted.items()) if want}


def fragmentation(simulation: Simulation, lives: Iterable[Life]) -> dict[str, float]:
    """By resource, the free share that typical pods cannot use; 0 if nothing is free."""
    kinds = _typical([one.wants for one in lives])
    infos = [i for i in simulation.cache.snapshot().infos if i is not None and i.node is not None]
    names = sorted({name for i in infos if i.node is not None for name in i.node.allocatable})
    if not infos or not kinds:
        return {}
    free = np.array(
        [
            [max(0, i.node.allocatable.get(n, 0) - i.requested.get(n, 0)) if n != "pods"
             else i.node.allocatable.get(n, 0) - len(i.pods) for n in names]
            for i in infos if i.node is not None
        ],
        np.float64,
    )  # fmt: skip
    lost = np.zeros(len(names))
    for requests, share in kinds:
        wants = np.array([requests.get(name, 0) for name in names], np.float64)
        is_lost = (free < wants).any(axis=1)
        lost += share * free[is_lost].sum(axis=0)
    total = free.sum(axis=0)
    return {
        name: float(lost[i] / total[i]) if total[i] else 0.0
        for i, name in enumerate(names)
        if name != "pods"
    }


def _typical(pods: Iterable[Pod]) -> list[tuple[dict[str, int], float]]:
    """The most frequent kinds of requests, which cover nearly all pods, each with its share."""
    counts: Counter[tuple[tuple[str, int], ...]] = Counter(
        tuple(sorted({**pod.requests, "pods": 1}.items())) for pod in pods
    )
    enough, kinds, covered = _TYPICAL * counts.total(), [], 0
    for kind, number in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        if covered >= enough:
            break
        covered += number
        kinds.append((dict(kind), number))
    return [(kind, number / covered) for kind, number in kinds]


def _resources(
    simulation: Simulation, steps: list[Step], lives: list[Life]
) -> dict[str, ResourceUse]:
    if not steps:
        return {}
    lost = fragmentation(simulation, lives)
    last = steps[-1]
    found = {}
    for name in most_allocatable(steps):
        if name == "pods":
            continue
        used = [step.share(name) for step in steps]
        found[name] = ResourceUse(
            last.requested.get(name, 0),
            last.allocatable.get(name, 0),
            used[-1],
            _mean_over_time(steps, used),
            max(used),
            lost.get(name, 0.0),
        )
    return found


def _mean_over_time(steps: list[Step], values: list[float]) -> float:
    spans = [after.at - before.at for before, after in itertools.pairwise(steps)]
    total = sum(spans)
    if total <= 0:
        return values[-1]
    return sum(v * s for v, s in zip(values, spans, strict=False)) / total


def _reasons(pending: list[Life]) -> tuple[Pending, ...]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for life in pending:
        by_reason[life.reason or "not tried"].append(life.wants.key)
    ordered = sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return tuple(
        Pending(reason, len(keys), tuple(keys[:3])) for reason, keys in ordered[:_MOST_REASONS]
    )


def _percentile(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, math.ceil(part * len(values)) - 1)] if values else 0.0
