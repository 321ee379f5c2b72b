"""The groups of pods that are only asked about: before any of them has a node, and at permit.

Owns how large such groups are; the groups of pods that are really scheduled are `pod_groups`' of
the kernel.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, GroupTerms, PodGroupState, group_state
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.evaluator import PolicyFailure


class TrialGroups:
    """The groups of some pods, before and after they have nodes.

    Only *pods* are counted: other members are not known. Pods without a profile are in no group.
    """

    def __init__(self, scheduler: Scheduler, pods: Iterable[Pod], snapshot: Snapshot) -> None:
        self._scheduler = scheduler
        self._snapshot = snapshot
        self._grouping = scheduler.hooks.grouping()
        self._sizes: Counter[tuple[int, str, str, str]] = Counter()
        for pod in pods:
            for enabled in self._grouping.get(pod.scheduler_name, ()):
                verdict = scheduler.hooks.group_of(enabled, pod, snapshot)
                if isinstance(verdict, list):
                    self._sizes[_key(enabled, pod, verdict[0])] += 1
        self._waiting = 0

    def at_permit(self, pod: Pod) -> Iterator[None]:
        """Once with *pod* as the first of its group at permit, and then as the last.

        What `state_of` says is of that moment.
        """
        try:
            for waiting in self._moments(pod):
                self._waiting = waiting
                yield
        finally:
            self._waiting = 0

    def _moments(self, pod: Pod) -> Iterator[int]:
        """How many pods wait when *pod* is at permit: only itself, and then the whole group."""
        yield 1
        whole = 1
        for state in self.states_of(pod):
            if isinstance(state, PodGroupState):
                whole = max(whole, state.min_count, state.pod_count)
        if whole > 1:
            yield whole

    def states_of(self, pod: Pod) -> tuple[PodGroupState | PolicyFailure | None, ...]:
        """The state of the group of *pod*, by each policy that looks at groups."""
        asked = self._grouping.get(pod.scheduler_name, ())
        return tuple(self.state_of(enabled, pod) for enabled in asked)

    def state_of(self, enabled: EnabledPolicy, pod: Pod) -> PodGroupState | PolicyFailure | None:
        """The state of the group of *pod*; None if it is in none."""
        verdict = self._scheduler.hooks.group_of(enabled, pod, self._snapshot)
        if not isinstance(verdict, list):
            failure: PolicyFailure | None = verdict
            return failure
        name, *terms = verdict
        found = self._snapshot.objects.get(POD_GROUPS, f"{pod.namespace}/{name}")
        size = max(self._sizes[_key(enabled, pod, name)], self._waiting, 1)
        behaves = self._snapshot.objects.behaves
        state = group_state(pod.namespace, name, [GroupTerms(*terms)], [pod], found, behaves)
        return replace(state, pending=size - self._waiting, waiting=self._waiting)


def _key(enabled: EnabledPolicy, pod: Pod, name: str) -> tuple[int, str, str, str]:
    return enabled.instance, pod.scheduler_name, pod.namespace, name
