"""A copy of the live cluster on which changes are made, and decided about by a kernel of its own.

Owns what is copied, and what happens at once on the copy: bindings, evictions, drains. What is
decided is the kernel's, the same as of the running scheduler; the time is the copy's own.

    the copy comes to rest --changes--> it comes to rest again

What starts before the changes would start without them.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from engine.core.caching.attachments import CSI_NODES
from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.kernel.at_once import AtOnce
from engine.core.kernel.claims_at_once import ClaimsAtOnce
from engine.core.kernel.events import (
    NODES,
    PODS,
    Bound,
    LeadershipAcquired,
    ObjectChanged,
    PodGroupsServed,
    PreemptionEnd,
    QueueAdjusted,
    QueueObjectChanged,
    RevisionSwitched,
    TimePassed,
    WaitingPodPreempted,
)
from engine.core.kernel.instructions import Evict, Instruction, ReportDecision
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.turn_queue import HELD
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import Taint
from engine.core.model.pod import Pod
from engine.core.model.quantity import amount_text
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.plugins.volume_binding import VolumeBinding
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import VirtualClock
from engine.surfaces.live.what_if.answers import Origin
from engine.surfaces.live.what_if.changes import (
    AddNodes,
    Change,
    Drain,
    RaiseQuota,
    RemoveTaint,
    WrongQuestion,
)
from engine.surfaces.live.what_if.shapes import (
    DAEMON_SET,
    STATIC,
    Shape,
    cordoned,
    new_nodes,
    shape_of,
    without_taint,
)
from engine.telemetry.metrics import Metrics

#: Pods that wait of which so many are considered, those that go first in the queue.
MOST_PODS: Final = 5_000

# As long as the longest backoff, so that pods that were rejected are ready when something changes.
_REST_SECONDS: Final = 11.0
# For so long after a change, in the time of the copy, pods are tried again.
_FOLLOW_SECONDS: Final = 60.0
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Material:
    """What is copied besides the nodes: taken in the loop of the decisions, at the cost of a list.

    Attributes:
        waiting: Pods that wait, in the order of the queue; at most `MOST_PODS`.
        left_out: How many others wait.
        in_permit: The uids of those that have a node and wait in permit: they lose it.
        objects: Those that queues are made of.
        are_groups_served: The API server has PodGroups.
    """

    waiting: tuple[Pod, ...]
    left_out: int
    in_permit: frozenset[str]
    objects: tuple[QueueObjectChanged, ...]
    are_groups_served: bool

    @classmethod
    def of(cls, kernel: Kernel) -> "Material":
        """What *kernel* has."""
        in_permit = [queued for queued, _ in kernel.permits.waiting()]
        all_waiting = [*in_permit, *kernel.queue.waiting_pods()]
        first = heapq.nsmallest(MOST_PODS, all_waiting, key=lambda queued: queued.order)
        considered = {queued.uid for queued in first}
        return cls(
            waiting=tuple(queued.pod for queued in first if not queued.pod.is_terminating),
            left_out=len(all_waiting) - len(first),
            in_permit=frozenset(one.uid for one in in_permit if one.uid in considered),
            objects=tuple(kernel.shares.objects()),
            are_groups_served=kernel.groups.are_served,
        )


@dataclass(slots=True)
class Tracked:
    """A pod whose fate is asked about.

    Attributes:
        pod: As it is now; after it lost its node, as its controller makes it again.
        origin, was_on: Where it comes from.
        node: Where it is; "" if it has no node.
        anyway: It got its node before anything was changed.
    """

    pod: Pod
    origin: Origin = "waiting"
    was_on: str = ""
    node: str = ""
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A pod that lost its node: for the pod *by*, or by a drain."""

    pod: Pod
    by: str
    comes_back: bool


@dataclass(slots=True)
class Found:
    """What has become of the pods.

    Attributes:
        tracked: By uid, the first of which was is kept for a pod that lost its node.
        ended: In their order.
        added: Names of the new nodes.
        changes: In words, with what was before.
    """

    tracked: dict[str, Tracked] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


MakeScheduler = Callable[[dict[str, RuntimePlugin]], Scheduler]


class ImaginedCluster(AtOnce):
    """A copy of *snapshot* with the pods of *material*.

    Args:
        snapshot: Only read.
        material: What it does not have.
        make_scheduler: Makes the scheduler, with plugins for the copy.
        types: Machine types, by name.
        check: Called with each decision; raises if it takes too long.

    Attributes:
        bundle: The policies in force.
        found: What has become of the pods.
        left_out: How many pods that wait are not considered.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        material: Material,
        make_scheduler: MakeScheduler,
        types: dict[str, Shape],
        check: Callable[[], None],
    ) -> None:
        super().__init__()
        self.clock: VirtualClock = VirtualClock()
        self.found = Found()
        self.left_out = material.left_out
        self._types = types
        self._check = check
        self._victims_of = ""
        self._reserves: dict[str, Placement] = {}
        # 1. The nodes, without the pods that wait in permit: those are decided again.
        self._cache = Cache.of(_without(snapshot, material.in_permit), snapshot.objects.frozen())
        self._cache.set_other_facts(
            cluster=snapshot.cluster_facts, types=snapshot.type_facts, pods=snapshot.pod_facts
        )
        self._cache.set_pod_type_labels(snapshot.pod_type_labels)
        # 2. A kernel that decides, as after a hand-over.
        plugins = make_plugins(
            self._cache.objects, clock=self.clock, claim_returns=ClaimsAtOnce(self._report)
        )
        self.kernel = Kernel(
            self._cache,
            plugins,
            metrics=Metrics(CollectorRegistry()),
            retries=RetryTimes(max_unschedulable=math.inf),
        )
        scheduler = make_scheduler(plugins)
        self.bundle = scheduler.bundle
        self._report(PodGroupsServed("v1beta1" if material.are_groups_served else ""))
        self._report(RevisionSwitched(scheduler))
        for event in material.objects:
            self._report(event)
        # 3. Pods have run for long enough to be given back.
        self._report(TimePassed())
        if (tree := scheduler.bundle.queue_tree) is not None:
            self.clock.advance(_MINUTE + tree.limits.min_runtime)
        self._report(LeadershipAcquired())
        for pod in material.waiting:
            self._check()
            self._want(Tracked(pod.unplaced() if pod.node_name else pod))
        # 4. What would happen anyway.
        self.come_to_rest()
        for one in self.found.tracked.values():
            one.anyway = bool(one.node)
        self._pass(_REST_SECONDS)

    @property
    def has_devices(self) -> bool:
        """Some nodes have devices of ResourceSlices."""
        return self._cache.objects.count("resourceslices") > 0

    # --- what is asked ------------------------------------------------------------------------

    def change(self, changes: Iterable[Change]) -> None:
        """Make *changes*, and come to rest. Raises `WrongQuestion`; some are made then."""
        for change in changes:
            match change:
                case AddNodes():
                    self.found.changes.append(str(change))
                    self.add_nodes(self.shape(change.like), change.count)
                case Drain():
                    self._drain(change)
                case RemoveTaint():
                    self._remove_taint(change)
                case RaiseQuota():
                    self._raise_quota(change)
        self.come_to_rest()

    def shape(self, name: str) -> Shape:
        """The shape of this machine type, or of the node of this name. Raises `WrongQuestion`."""
        if name in self._types:
            return self._types[name]
        info = self._cache.node_info(name)
        if info is None or info.node is None:
            known = ", ".join(f"`{one}`" for one in sorted(self._types)[:20])
            types = f"the machine types are {known}" if known else "there are no machine types"
            raise WrongQuestion(f"like: no node `{name[:80]}` is known here, and {types}")
        return shape_of(info)

    def add_nodes(self, shape: Shape, count: int) -> None:
        """Add *count* nodes of *shape*."""
        taken = {info.name for info in self._cache.infos()}
        nodes = new_nodes(shape, taken)
        for _ in range(count):
            node, daemons = next(nodes)
            like = self._cache.objects.get(CSI_NODES, shape.like) if shape.like else None
            if like is not None:
                meta = msgspec.structs.replace(
                    like.metadata, name=node.name, uid=f"new/{node.name}"
                )
                copy = msgspec.structs.replace(like, metadata=meta)
                self._report(ObjectChanged(CSI_NODES, None, copy))
            # The pods of DaemonSets first: they are there before others may start.
            for pod in daemons:
                self._report(ObjectChanged(PODS, None, pod))
            self._report(ObjectChanged(NODES, None, node))
            self.found.added.append(node.name)

    def come_to_rest(self) -> None:
        """Decide until nothing changes any more, or `_FOLLOW_SECONDS` have passed on the copy."""
        self._settle()
        self._pass(_FOLLOW_SECONDS)

    def reason_of(self, pod: Pod) -> tuple[str, str]:
        """Why *pod* has no node: a token, and for people."""
        uid, kernel = pod.uid, self.kernel
        wait = kernel.permits.wait_of(uid)
        if wait is not None:
            return "WaitingInPermit", wait.text
        standing = kernel.turns.standing_of(uid) if kernel.shares.is_on else None
        if standing is not None and standing.hold is not None:
            return standing.hold.token or HELD, standing.text
        queued = kernel.queue.get(uid)
        if queued is None:
            names = ", ".join(f"`{one.scheduler_name}`" for one in self.bundle.profiles)
            return "OtherScheduler", f"`{pod.scheduler_name}` decides for it, not {names}"
        return queued.reason.token, queued.reason_text

    # --- the changes --------------------------------------------------------------------------

    def _node(self, name: str, field_name: str) -> Node:
        info = self._cache.node_info(name)
        if info is None or info.node is None:
            raise WrongQuestion(f"{field_name}: no node `{name[:80]}` is known here")
        return info.node

    def _drain(self, change: Drain) -> None:
        node = self._node(change.node, "drain")
        self.found.changes.append(str(change))
        self._report(ObjectChanged(NODES, node, cordoned(node)))
        info = self._cache.node_info(node.name)
        assert info is not None, "it is there"
        for pod in list(info.pods.values()):
            kind = "" if pod.controller is None else pod.controller.kind
            if kind not in (DAEMON_SET, STATIC):
                self._evict(pod)

    def _remove_taint(self, change: RemoveTaint) -> None:
        if change.node:
            nodes = [self._node(change.node, "node")]
        else:
            nodes = [info.node for info in self._cache.infos() if info.node is not None]
        tainted = [node for node in nodes if change.taint in node.taints]
        if not tainted:
            raise WrongQuestion(f"taint: nothing to do: {_tainted(change, nodes)}")
        self.found.changes.append(f"{change} ({len(tainted)} of {len(nodes)})")
        for node in tainted:
            self._report(ObjectChanged(NODES, node, without_taint(node, change.taint)))

    def _raise_quota(self, change: RaiseQuota) -> None:
        shares = self.kernel.shares
        if not shares.is_on or shares.hooks is None:
            raise WrongQuestion("queue: the policies in force have no QueueTree")
        queue = shares.tree.find(change.queue)
        if queue is None:
            raise WrongQuestion(f"queue: no queue `{change.queue[:80]}` is known here")
        having = [
            name
            for name, default in shares.hooks.tree.attributes.items()
            if isinstance(default, dict) or isinstance(queue.attributes.get(name), dict)
        ]
        attribute = change.attribute
        if not attribute and len(having) == 1:
            (attribute,) = having
        if attribute not in having:
            known = ", ".join(f"`{name}`" for name in having) or "none"
            got = (
                f"got `{attribute[:40]}`" if attribute else "and none is named: ATTRIBUTE:RESOURCE"
            )
            raise WrongQuestion(f"quota: the attributes with amounts are {known}, {got}")
        amounts = dict(queue.attributes.get(attribute) or {})
        before = amounts.get(change.resource)
        if before is not None and change.amount <= before:
            has = amount_text(change.resource, before)
            raise WrongQuestion(
                f"quota: want more {change.resource} than `{attribute}` of queue `{queue.path}` "
                f"has, which is {has}, got {change.written}"
            )
        was = "without one" if before is None else f"from {amount_text(change.resource, before)}"
        self.found.changes.append(
            f"raise `{attribute}` of queue `{queue.path}` to {change.resource}={change.written} "
            f"({was})"
        )
        amounts[change.resource] = change.amount
        self._report(QueueAdjusted(queue.path, {attribute: amounts}))
        self._report(TimePassed())

    # --- what happens at once -----------------------------------------------------------------

    def _pass(self, seconds: float) -> None:
        """Let *seconds* pass on the copy: backoff ends, waits in permit expire."""
        until = self.clock.monotonic() + seconds
        while True:
            self._check()
            at = self.kernel.wakes_at()
            at = until if at is None else min(at, until)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            self._report(TimePassed())
            self._settle()
            if at >= until:
                return

    def _want(self, tracked: Tracked) -> None:
        self.found.tracked[tracked.pod.uid] = tracked
        self._report(ObjectChanged(PODS, None, tracked.pod))

    def _note(self, instruction: Instruction) -> None:
        if isinstance(instruction, ReportDecision):
            self._check()

    def _bind(self, placement: Placement) -> None:
        pod = placement.pod
        tracked = self.found.tracked.get(pod.uid)
        if tracked is None or self._cache.get_pod(pod.uid) is None:
            return
        tracked.node = placement.node
        self._reserves[pod.uid] = placement
        self._report(Bound(placement))
        self._report(ObjectChanged(PODS, tracked.pod, pod))

    def _carry_out_eviction(self, evict: Evict) -> None:
        self._victims_of = evict.preemptor.key
        try:
            super()._carry_out_eviction(evict)
        finally:
            self._victims_of = ""

    def _evict(self, pod: Pod) -> PreemptionEnd:
        if pod.uid in self.kernel.permits:
            self._report(WaitingPodPreempted(pod.uid))
            return PreemptionEnd.IN_MEMORY
        counted = self._cache.get_pod(pod.uid)
        if counted is None:
            return PreemptionEnd.DONE
        # 1. It goes, with what was reserved for it on the copy.
        if (placement := self._reserves.pop(pod.uid, None)) is not None:
            for plugin, state in reversed(placement.reserves):
                if isinstance(plugin, VolumeBinding):
                    plugin.outlive(state)
                else:
                    plugin.unreserve(state, counted, counted.node_name)
        self._report(ObjectChanged(PODS, counted, None))
        before = self.found.tracked.pop(pod.uid, None)
        kind = "" if counted.controller is None else counted.controller.kind
        comes_back = kind not in ("", STATIC, DAEMON_SET) and not counted.is_terminating
        if before is None or before.origin != "waiting" or not comes_back:
            self.found.ended.append(Ended(counted, self._victims_of, comes_back))
        # 2. What manages it makes another one.
        if comes_back:
            origin: Origin = "evicted" if self._victims_of else "drained"
            again = self._again(counted)
            lost = before or Tracked(again, origin, counted.node_name)
            lost.pod, lost.node = again, ""
            self._want(lost)
        return PreemptionEnd.DONE

    def _again(self, pod: Pod) -> Pod:
        info = self._cache.node_info(pod.node_name)
        labels = {} if info is None or info.node is None else info.node.labels
        return pod.without_labels_of(labels).unplaced().renamed(f"{pod.uid}+")


def _without(snapshot: Snapshot, uids: frozenset[str]) -> Iterator[NodeInfo]:
    for info in snapshot.infos:
        if info is None:
            continue
        for uid in uids & info.pods.keys() if uids else ():
            info = info.without_pod(uid)
        yield info


def _tainted(change: RemoveTaint, nodes: Sequence[Node]) -> str:
    found = dict.fromkeys(_text(taint) for node in nodes for taint in node.taints)
    some = ", ".join(f"`{one}`" for one in list(found)[:5])
    has = f"the taints {some}" if some else "no taints"
    where = f"node `{change.node}` has" if change.node else "nodes have"
    return f"{where} {has}, got `{_text(change.taint)}`"


def _text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
