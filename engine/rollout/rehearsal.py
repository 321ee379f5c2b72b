"""Rehearses a candidate: calls every hook of its policies on the current cluster.

Owns the inputs: the objects of the cluster, or made-up ones of a kind of which it has none.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import structlog

from engine.caching.snapshot import Snapshot
from engine.framework.profile import EnabledPolicy, Profile
from engine.lib.stopping import never
from engine.model.pod import Pod
from engine.model.pod_group import POD_GROUPS, GroupTerms, PodGroupState, group_state
from engine.policy.evaluator import PolicyFailure
from engine.scheduling.decision import Decision
from engine.scheduling.extenders import NodeVictims
from engine.scheduling.scheduling_cycle import Scheduler

log = structlog.get_logger(component="trial")

#: Seconds that deciding pods may take; a candidate that needs longer would stall the queue.
TRIAL_SECONDS: Final = 30.0

# The most nodes with victims, and victims on each of them, for the hooks of preemption.
_MOST_NODES: Final = 16
_MOST_VICTIMS: Final = 8


def rehearse(
    scheduler: Scheduler,
    profiles: Iterable[Profile],
    pods: Sequence[Pod],
    snapshot: Snapshot,
    is_stopped: Callable[[], bool] = never,
) -> list[PolicyFailure]:
    """The first failure of each (policy, hook) for *pods*.

    Each pod is decided, with the hooks of the queue before and those of placed pods after that.
    Scores are evaluated only for pods that fit on several nodes. So each profile also explains one
    decision, which evaluates all scores: that of a pod that was placed, or else of a made-up pod
    that tolerates every taint and requests nothing. Hooks that are called only for equally good
    nodes, or when pods have to be evicted, are called as if that were the case. Returns early once
    *is_stopped* returns True.
    """
    found: dict[tuple[str, str], PolicyFailure] = {}
    placed: dict[str, Pod] = {}
    started = time.monotonic()

    def note(failures: Iterable[PolicyFailure]) -> None:
        for failure in failures:
            found.setdefault((failure.policy, failure.hook), failure)

    groups = _Groups(scheduler, pods, snapshot)
    scheduler.hooks.groups = groups.state_of
    try:
        for i, pod in enumerate(pods):
            if is_stopped():
                return []
            note(scheduler.hooks.group_failures(pod, snapshot))
            note(scheduler.hooks.pod_failures(pod, snapshot, ("queue_key", "pre_enqueue")))
            decision = scheduler.schedule(pod, snapshot)
            note(_failures_of(decision))
            if decision.node is not None:
                placed.setdefault(pod.scheduler_name, pod)
                note(groups.permit_failures(pod))
            if time.monotonic() - started > TRIAL_SECONDS:
                log.warning("Trial ended early", decided=i + 1, pods=len(pods))
                break
        for profile in profiles if not found else ():
            name = profile.scheduler_name
            pod = placed.get(name) or undemanding_pod(name)
            note(scheduler.hooks.group_failures(pod, snapshot))
            note(scheduler.hooks.pod_failures(pod, snapshot, ("queue_key", "pre_enqueue")))
            explanation = scheduler.explain(pod, snapshot)
            note(_failures_of(explanation.decision))
            note(scheduler.tie_failures(pod, explanation.feasible, snapshot))
            note(groups.permit_failures(pod))
            victims = _victims(snapshot, [*pods, pod])
            note(scheduler.preemption_failures(profile, victims, snapshot))
    finally:
        scheduler.hooks.groups = None
    return list(found.values())


def _failures_of(decision: Decision) -> tuple[PolicyFailure, ...]:
    return *decision.failures, *decision.ignored


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


class _Groups:
    """The groups of some pods, before and after they have nodes.

    Only *pods* are counted: the other members are not known in a trial.
    """

    def __init__(self, scheduler: Scheduler, pods: Iterable[Pod], snapshot: Snapshot) -> None:
        self._scheduler = scheduler
        self._snapshot = snapshot
        self._grouping = scheduler.hooks.grouping()
        self._sizes: Counter[tuple[int, str, str, str]] = Counter()
        for pod in pods:
            for enabled in self._grouping[pod.scheduler_name]:
                verdict = scheduler.hooks.group_of(enabled, pod, snapshot)
                if isinstance(verdict, list):
                    self._sizes[_key(enabled, pod, verdict[0])] += 1
        self._waiting = 0

    def permit_failures(self, pod: Pod) -> list[PolicyFailure]:
        """The failures of `permit` for *pod* as the first and as the last placed of its group."""
        failures: list[PolicyFailure] = []
        for waiting in self._moments(pod):
            self._waiting = waiting
            failures += self._scheduler.hooks.pod_failures(pod, self._snapshot, ("permit",))
        self._waiting = 0
        return failures

    def _moments(self, pod: Pod) -> Iterator[int]:
        """How many pods wait when *pod* is at permit: only itself, and then the whole group."""
        yield 1
        whole = 1
        for enabled in self._grouping[pod.scheduler_name]:
            state = self.state_of(enabled, pod)
            if isinstance(state, PodGroupState):
                whole = max(whole, state.min_count, state.pod_count)
        if whole > 1:
            yield whole

    def state_of(self, enabled: EnabledPolicy, pod: Pod) -> PodGroupState | PolicyFailure | None:
        """The state of the group of *pod*; None if it is in none."""
        verdict = self._scheduler.hooks.group_of(enabled, pod, self._snapshot)
        if not isinstance(verdict, list):
            failure: PolicyFailure | None = verdict
            return failure
        name, *terms = verdict
        found = self._snapshot.objects.get(POD_GROUPS, f"{pod.namespace}/{name}")
        size = max(self._sizes[_key(enabled, pod, name)], self._waiting, 1)
        state = group_state(name, [GroupTerms(*terms)], [pod], found)
        return replace(state, pending=size - self._waiting, waiting=self._waiting)


def _key(enabled: EnabledPolicy, pod: Pod, name: str) -> tuple[int, str, str, str]:
    return enabled.instance, pod.scheduler_name, pod.namespace, name
