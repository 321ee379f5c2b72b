"""Explains a pod on a copy of a cluster, without the scheduler that decides there.

Owns what only a running scheduler would know otherwise: the nominations and groups of pending pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine.core.kernel.pod_groups import PodGroups
from engine.core.model.pod import Pod
from engine.core.queueing.hints import Hints
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator
from engine.surfaces.live.answers import PodAnswer
from engine.surfaces.live.explanation import Subject, explain
from engine.surfaces.live.rules import Rules
from engine.surfaces.live.turn import Turn, with_holders
from workbench.queues.still_kernel import StillKernel


def explain_on_a_copy(
    bundle: Bundle,
    evaluator: Evaluator,
    world: World,
    pod: Pod,
    *,
    placed_on: str = "",
    asked: Sequence[str] = (),
    pending: Sequence[Pod] = (),
    unknown_facts: Sequence[str] = (),
    queue_objects: Sequence[Mapping[str, Any]] = (),
) -> PodAnswer:
    """Explain the decision about *pod* in *world*, which must not contain it.

    Args:
        bundle: The policies.
        evaluator: Of the bundle's program.
        world: The cluster.
        pod: The pod, without a node; its nomination counts.
        placed_on: Its current node, for the report.
        asked: Nodes to report on one by one.
        pending: Pending pods: they count in their groups, and nominated ones on their nodes.
        unknown_facts: Configured sources of facts that cannot be read here.
        queue_objects: Manifests among which those are that the tree of queues reads.

    Raises `KeyError` if no profile has the pod's `schedulerName`.
    """
    nominator = Nominator()
    for other in pending:
        if other.uid != pod.uid:
            nominator.nominate(other)
    snapshot = world.snapshot
    scheduler = Scheduler(bundle, evaluator, has_extenders=False)
    placed = (one for info in snapshot.infos if info is not None for one in info.pods.values())
    others = [one for one in pending if one.uid != pod.uid]
    PodGroups(world.cache).use(scheduler, lambda: (*placed, *others, pod))
    turn, case = None, None
    if scheduler.tree is not None:
        waiting = sorted((*(one for one in others if not one.node_name), pod), key=_arrival)
        still = StillKernel(bundle, evaluator, world.cache, waiting, queue_objects)
        standing = still.standing_of(pod.uid)
        if standing is not None:
            turn = with_holders(Turn(scheduler.tree.tree.policy, standing.queue, standing),
                                still.kernel.shares)  # fmt: skip
        case = still.kernel.reclaims.case_of(pod)
    subject = Subject(
        scheduler=scheduler,
        rules=Rules(bundle, Hints.of(bundle, world.cache)),
        pod=pod,
        snapshot=snapshot,
        nominator=nominator,
        gate=scheduler.hooks.pre_enqueue(pod, snapshot),
        turn=turn,
        placed_on=placed_on,
        asked=asked,
        unknown_facts=unknown_facts,
        reclaim=case,
    )
    answer = explain(subject)
    if answer.preemption is None or not answer.preemption.rule:
        return answer
    note = "when pods on nodes started is not known here: all count as older than `minRuntime`"
    return msgspec.structs.replace(answer, notes=(*answer.notes, note))


def _arrival(pod: Pod) -> str:
    """First come, first served; one that was never stored comes last."""
    return pod.manifest.metadata.creation_timestamp or "~"
