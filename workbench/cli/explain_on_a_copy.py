"""Explains a pod on a copy of a cluster, without the scheduler that decides there.

Owns what only a running scheduler would know otherwise: the nominations and groups of pending pods.
"""

from collections.abc import Sequence

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

    Raises `KeyError` if no profile has the pod's `schedulerName`.
    """
    nominator = Nominator()
    for other in pending:
        if other.uid != pod.uid:
            nominator.nominate(other)
    snapshot = world.snapshot
    scheduler = Scheduler(bundle, evaluator, has_extenders=False)
    placed = (one for info in snapshot.infos if info is not None for one in info.pods.values())
    others = (one for one in pending if one.uid != pod.uid)
    PodGroups(world.cache).use(scheduler, lambda: (*placed, *others, pod))
    subject = Subject(
        scheduler=scheduler,
        rules=Rules(bundle, Hints.of(bundle, world.cache)),
        pod=pod,
        snapshot=snapshot,
        nominator=nominator,
        gate=scheduler.hooks.pre_enqueue(pod, snapshot),
        placed_on=placed_on,
        asked=asked,
        unknown_facts=unknown_facts,
    )
    return explain(subject)
