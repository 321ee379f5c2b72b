"""Rehearses a candidate: calls every hook of its policies on the current cluster.

Owns the inputs: the objects of the cluster, or made-up ones of a kind of which it has none.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.model.pod import Pod
from engine.core.scheduling.extenders import NodeVictims
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_trial import failures_in_tree
from engine.core.scheduling.trial_groups import TrialGroups
from engine.lib.stopping import never
from engine.policy.evaluator import PolicyFailure

log = structlog.get_logger(component="trial")

#: Seconds that deciding pods may take; a candidate that needs longer would stall the queue.
TRIAL_SECONDS: Final = 30.0

# The most nodes with victims, and victims on each of them, for the hooks of preemption.
_MOST_NODES: Final = 16
_MOST_VICTIMS: Final = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure that a rehearsal met with.

    `pod` is the uid of the pod of the cluster whose attempt it costs; "" if it was met with while a
    profile was explored, whatever the pod.
    """

    failure: PolicyFailure
    pod: str = ""


def rehearse(
    scheduler: Scheduler,
    profiles: Iterable[Profile],
    pods: Sequence[Pod],
    snapshot: Snapshot,
    is_stopped: Callable[[], bool] = never,
) -> list[Finding]:
    """The first failure of each policy and hook for each of *pods*, and for each profile.

    What is not the fault of a policy's text is none of them: it costs its pod an attempt with
    whatever policies. So does an exception of the scheduler's own, which is logged.

    Each pod is decided, with the hooks of the queue before and those of placed pods after that.
    Scores are evaluated only for pods that fit on several nodes. So each profile also explains one
    decision, which evaluates all scores: that of a pod that was placed, or else of a made-up pod
    that tolerates every taint and requests nothing. Hooks that are called only for equally good
    nodes, or when pods have to be evicted, are called as if that were the case. Returns early once
    *is_stopped* returns True.
    """
    found: dict[tuple[str, str, str], Finding] = {}
    placed: dict[str, Pod] = {}
    started = time.monotonic()

    def note(failures: Iterable[PolicyFailure], uid: str = "") -> None:
        for failure in failures:
            found.setdefault((uid, failure.policy, failure.hook), Finding(failure, uid))

    groups = TrialGroups(scheduler, pods, snapshot)
    scheduler.hooks.groups = groups.state_of

    def decide(pod: Pod) -> None:
        note(scheduler.hooks.group_failures(pod, snapshot), pod.uid)
        note(scheduler.hooks.pod_failures(pod, snapshot, ("queue_key", "pre_enqueue")), pod.uid)
        decision = scheduler.schedule(pod, snapshot)
        note(decision.policy_failures, pod.uid)
        if decision.node is not None:
            placed.setdefault(pod.scheduler_name, pod)
            note(_permit_failures(scheduler, groups, pod, snapshot), pod.uid)

    try:
        for i, pod in enumerate(pods):
            if is_stopped():
                return []
            try:
                decide(pod)
            except Exception:
                # As in the running scheduler, it costs this pod one attempt, and is a bug of ours.
                # The profiles below meet with one that any pod would.
                log.exception("Unexpected exception over a pod of a trial", pod=pod.key)
            if time.monotonic() - started > TRIAL_SECONDS:
                log.warning("Trial ended early", decided=i + 1, pods=len(pods))
                break
        for profile in profiles:
            name = profile.scheduler_name
            pod = placed.get(name) or undemanding_pod(name)
            note(scheduler.hooks.group_failures(pod, snapshot))
            note(scheduler.hooks.pod_failures(pod, snapshot, ("queue_key", "pre_enqueue")))
            explanation = scheduler.explain(pod, snapshot)
            note(explanation.decision.policy_failures)
            note(scheduler.tie_failures(pod, explanation.feasible, snapshot))
            note(_permit_failures(scheduler, groups, pod, snapshot))
            victims = _victims(snapshot, [*pods, pod])
            note(scheduler.preemption_failures(profile, victims, snapshot))
        if scheduler.tree is not None:
            some = pods or [undemanding_pod(profile.scheduler_name) for profile in profiles]
            note(failures_in_tree(scheduler.tree, some, snapshot))
    finally:
        scheduler.hooks.groups = None
    return list(found.values())


def worse(after: Sequence[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Those *after* an edit that the text *before* it does not fail in as well.

    A pod that both cost its attempt is no worse off, whichever hook it is. Of a profile it has to
    be the same hook: others may be what every pod meets with.
    """
    pods = {one.pod for one in before if one.pod}
    hooks = {(one.failure.policy, one.failure.hook) for one in before if not one.pod}
    return [
        one
        for one in after
        if not (one.pod in pods if one.pod else (one.failure.policy, one.failure.hook) in hooks)
    ]


def failures_of(findings: Iterable[Finding]) -> list[PolicyFailure]:
    """The first failure of each policy and hook among *findings*."""
    first: dict[tuple[str, str], PolicyFailure] = {}
    for one in findings:
        first.setdefault((one.failure.policy, one.failure.hook), one.failure)
    return list(first.values())


def _permit_failures(
    scheduler: Scheduler, groups: TrialGroups, pod: Pod, snapshot: Snapshot
) -> list[PolicyFailure]:
    """The failures of `permit` for *pod* as the first and as the last placed of its group."""
    failures: list[PolicyFailure] = []
    for _ in groups.at_permit(pod):
        failures += scheduler.hooks.pod_failures(pod, snapshot, ("permit",))
    return failures


def undemanding_pod(scheduler_name: str) -> Pod:
    """A made-up pod that can go nearly everywhere."""
    return Pod.from_plain(
        {
            "metadata": {"name": "trial", "namespace": "default", "uid": "trial"},
            "spec": {
                "schedulerName": scheduler_name,
                "containers": [{"name": "main", "image": "example.com/trial:1"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
    )


def _victims(snapshot: Snapshot, pods: Sequence[Pod]) -> dict[str, NodeVictims]:
    """Pods that could be evicted, by node: some that run, or else *pods*, as if they did."""
    infos = [info for info in snapshot.infos if info is not None and info.node is not None]
    busy = [info for info in infos if info.pods]
    if not busy:
        return {
            info.name: NodeVictims(tuple(pod.with_node(info.name) for pod in pods[-_MOST_VICTIMS:]))
            for info in infos[:1]
        }
    found: dict[str, NodeVictims] = {}
    for info in busy[:: max(1, len(busy) // _MOST_NODES)][:_MOST_NODES]:
        ranked = sorted(info.pods.values(), key=lambda pod: -pod.priority)
        # With and without a budget that is violated.
        found[info.name] = NodeVictims(tuple(ranked[-_MOST_VICTIMS:]), len(found) % 2)
    return found
