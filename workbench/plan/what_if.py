"""Decides pods on a copy of a cluster, one by one, as if each were the only one that waits.

Owns the decider of one set of policies, and its outcomes as records. Comparing outcomes is
`plan`'s.
"""

import contextlib
import copy
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.core.caching.snapshot import Snapshot
from engine.core.framework import reasons
from engine.core.kernel.events import PODS, ObjectChanged
from engine.core.kernel.pod_groups import PodGroups
from engine.core.kernel.turn_queue import HELD
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.decision import Explanation
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.select_host import SortKey
from engine.explaining.reason_source import reason_source
from engine.files.cluster_file import Cluster
from engine.files.world import World
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.policy.memo_reuse import unchanged_instances
from workbench.queues.still_kernel import StillKernel


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a pod that waits.

    Attributes:
        node: Where it goes; "" if nowhere.
        reason: The token of the dominant reason for that; "" for a pod with a node.
        policy: The policy that the reason is of.
        message: The text of its event; of a gate, what the policy says.
        victims: Pods that would be evicted for it, `namespace/name`, and on which node.
        gate: The policy that keeps it from being tried; "" if none does.
        has_failed: A policy failed, so that nothing was decided.
        hook, place: Of the failure, and `file:line` of it.
    """

    node: str = ""
    reason: str = ""
    policy: str = ""
    message: str = ""
    victims: tuple[str, ...] = ()
    victims_on: str = ""
    gate: str = ""
    has_failed: bool = False
    hook: str = ""
    place: str = ""

    @property
    def evictions(self) -> tuple[str, tuple[str, ...]]:
        """The node on which pods would be evicted, and which."""
        return self.victims_on, self.victims

    @property
    def fate(self) -> str:
        """The node, or why there is none, in one line."""
        if self.node:
            return self.node
        if self.gate:
            return f"gated by `{self.gate}`: {self.message}"
        return self.message.partition("\n")[0]


@dataclass(slots=True)
class Scene:
    """A copy of a cluster on which pods are decided.

    Attributes:
        world: Nodes and the pods on them.
        pending: Pods that wait; those that are nominated count on their nodes.
        unknown_facts: Configured sources of facts that could not be read.
        clock_note: What time the clock shows that policies read; empty if they read none.
        objects: Manifests among which those are that a tree of queues reads.
    """

    world: World
    pending: Sequence[Pod] = ()
    unknown_facts: Sequence[str] = ()
    clock_note: str = ""
    objects: Sequence[Mapping[str, Any]] = ()
    nominator: Nominator = field(default_factory=Nominator)

    def __post_init__(self) -> None:
        for pod in self.pending:
            self.nominator.nominate(pod)

    @classmethod
    def of(cls, cluster: Cluster, bundle: Bundle, more: Iterable[Pod] = ()) -> "Scene":
        """*cluster* as the policies of *bundle* see it; *more* are pods whose facts count, too.

        Raises `ManifestError`.
        """
        pending = [cluster.pod_of(one, unplaced=False) for one in cluster.pending_pods()]
        world = cluster.world()
        config = bundle.runtime.facts
        world.cache.set_pod_type_labels(config.pod_type_labels)
        shown = cluster.show_facts(world.cache, config, [*pending, *more])
        world.snapshot = world.cache.snapshot()
        note = shown.clock_note(bundle)
        return cls(world, pending, shown.unknown, note, objects=tuple(cluster.others))

    def with_objects(self, objects: Sequence[Mapping[str, Any]]) -> "Scene":
        """The same cluster, of which a tree of queues reads other *objects*."""
        made = copy.copy(self)
        made.objects = objects
        return made

    @property
    def snapshot(self) -> Snapshot:
        """The nodes."""
        return self.world.snapshot

    def placed(self) -> Iterator[Pod]:
        """The pods that have a node."""
        for info in self.snapshot.infos:
            if info is not None:
                yield from info.pods.values()

    @contextlib.contextmanager
    def without(self, pods: Iterable[Pod]) -> Iterator[Snapshot]:
        """The nodes without placed *pods*; afterwards with them again."""
        snapshot = self.snapshot
        kept: dict[str, NodeInfo] = {}
        for pod in pods:
            info = snapshot.info(pod.node_name) if pod.node_name else None
            if info is not None and pod.uid in info.pods:
                kept.setdefault(pod.node_name, info)
                snapshot.put(pod.node_name, info.without_pod(pod.uid))
        try:
            yield snapshot
        finally:
            for name, info in kept.items():
                snapshot.put(name, info)


class Decider:
    """Decides under one set of policies, in *scene*.

    Args:
        bundle: The policies.
        evaluator: Of its program; closed by the caller.
        scene: The cluster.
        known: One that has decided in the same scene, whose answers are used again.
    """

    def __init__(
        self,
        bundle: Bundle,
        evaluator: Evaluator,
        scene: Scene,
        known: "Decider | None" = None,
    ) -> None:
        self.bundle = bundle
        self.scene = scene
        self.scheduler = Scheduler(bundle, evaluator, has_extenders=False)
        if known is not None and known.scene.world is scene.world:
            programs = known.bundle.program, bundle.program
            self.scheduler.reuse_from(known.scheduler, unchanged_instances(*programs))
        self.groups = PodGroups(scene.world.cache)
        self.groups.use(self.scheduler, lambda: (*scene.placed(), *scene.pending))
        self._evaluator = evaluator

    @functools.cached_property
    def queues(self) -> StillKernel | None:
        """The queues of the tree with all pods of the scene; None if the policies have no tree."""
        if self.bundle.queue_tree is None:
            return None
        scene = self.scene
        waiting = [pod for pod in scene.pending if not pod.node_name]
        pending = sorted(waiting, key=arrival)
        return StillKernel(self.bundle, self._evaluator, scene.world.cache, pending, scene.objects)

    def takes(self, pod: Pod) -> bool:
        """True if a profile has the pod's `schedulerName`."""
        return self.scheduler.profile_of(pod) is not None

    def decide(self, pod: Pod) -> Outcome:
        """What becomes of *pod*: of one with a node, as if it waited and the node were without it.

        Raises `KeyError` if no profile has its `schedulerName`.
        """
        with self.scene.without([pod]) as snapshot:
            return self.outcome(_waiting(pod), snapshot)

    def outcome(self, pod: Pod, snapshot: Snapshot) -> Outcome:
        """What becomes of *pod*, which waits, on the nodes of *snapshot*."""
        gate = self.scheduler.hooks.pre_enqueue(pod, snapshot)
        if gate is not None:
            token = reasons.gate(gate.plugin, gate.token).token
            return Outcome(reason=token, policy=gate.plugin, message=gate.reason, gate=gate.plugin)
        if (held := self._held(pod)) is not None:
            return held
        decision = self.scheduler.schedule(pod, snapshot, self.scene.nominator)
        if decision.failures:
            failure = decision.failures[0]
            return Outcome(
                reason=decision.reason.token,
                policy=failure.policy,
                message=decision.message(),
                has_failed=decision.is_policy_failure,
                hook=failure.hook,
                place=f"{failure.file}:{failure.line}" if failure.file else "",
            )
        if decision.node is not None:
            return Outcome(node=decision.node)
        eviction = decision.eviction
        why = decision.reason
        return Outcome(
            reason=why.token,
            policy=why.policy,
            message=decision.message(),
            victims=() if eviction is None else tuple(sorted(p.key for p in eviction.victims)),
            victims_on="" if eviction is None else eviction.node,
        )

    def arrive(self, pod: Pod) -> None:
        """Have a pod wait that was not there before."""
        self.groups.put(pod)
        self._tell(pod, None)

    def place(self, pod: Pod, node: str) -> None:
        """Have *pod*, which waits, be on *node* from now on."""
        placed = pod.with_node(node)
        if self.queues is None:
            self.scene.world.cache.add_pod(placed)
        self._tell(placed, pod)
        self.scene.world.snapshot = self.scene.world.cache.snapshot()
        self.groups.put(placed)

    def _tell(self, pod: Pod, before: Pod | None) -> None:
        """Have the queues know of *pod*, which was *before*; its node counts then, too."""
        if self.queues is not None:
            self.queues.tell(ObjectChanged(PODS, before, pod))

    def _held(self, pod: Pod) -> Outcome | None:
        """What becomes of a pod that its queue does not let start; None: it may.

        Of a pod that runs nothing is known: it is not in the order.
        """
        queues = self.queues
        if queues is None:
            return None
        policy = queues.kernel.shares.policy
        standing = queues.standing_of(pod.uid)
        if standing is None or standing.hold is None:
            return None
        hold = standing.hold
        if (taken := queues.taken_for(standing)) is not None:
            victims = tuple(sorted(victim.key for victim in taken.victims))
            self.scene.world.snapshot = self.scene.world.cache.snapshot()
            return Outcome(
                reason=hold.token or HELD,
                policy=policy,
                message=f"{standing.text}; {len(victims)} pod(s) of others are evicted for it",
                victims=victims,
                victims_on=taken.node,
            )
        return Outcome(
            reason=hold.token or HELD,
            policy=policy,
            message=standing.text,
            gate=policy,
            has_failed=standing.has_failed,
            hook="admit",
            place=reason_source(self.bundle, policy, hold.reason, ("admit",)),
        )

    def explain(self, pod: Pod) -> Explanation:
        """The decision about *pod* node by node, as `decide` makes it."""
        with self.scene.without([pod]) as snapshot:
            return self.scheduler.explain(_waiting(pod), snapshot, self.scene.nominator)

    def sort_key(self, pod: Pod) -> SortKey:
        """Where *pod* stands in the queue; by its priority if no policy can say."""
        key = self.scheduler.hooks.queue_key(pod, self.scene.snapshot)
        return ((0, -pod.priority),) if isinstance(key, PolicyFailure) else key

    def is_gated(self, pod: Pod) -> bool:
        """True if a policy keeps *pod* out of the queue."""
        return self.scheduler.hooks.pre_enqueue(pod, self.scene.snapshot) is not None

    def queue(self, pods: Iterable[Pod]) -> list[Pod]:
        """Those of *pods* that may be tried, the first to be tried first."""
        tried = [pod for pod in pods if self.takes(pod) and not self.is_gated(pod)]
        return sorted(tried, key=lambda pod: (self.sort_key(pod), *arrival(pod)))


def untracked(pods: Sequence[Pod], _: str) -> Iterable[Pod]:
    """*pods*, whose progress is not shown."""
    return pods


def arrival(pod: Pod) -> tuple[str, str]:
    """The order of pods that a queue has no other for: first come, first served."""
    return pod.manifest.metadata.creation_timestamp or "~", pod.key


def _waiting(pod: Pod) -> Pod:
    return pod.unplaced() if pod.node_name else pod


def controller_of(manifest: Mapping[str, Any]) -> str:
    """The uid of what manages the pod of *manifest*, or the pod's own key."""
    metadata = manifest.get("metadata") or {}
    for owner in metadata.get("ownerReferences") or ():
        if isinstance(owner, Mapping) and owner.get("controller"):
            return str(owner.get("uid") or owner.get("name"))
    return f"{metadata.get('namespace')}/{metadata.get('name')}"
