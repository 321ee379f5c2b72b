"""What can be done for a group that fits nowhere: devices given up, other pods evicted.

Owns the order in which the plugins of the profile's `podGroupPostFilter` are asked, and what their
answers add up to. Evicting is `group_preemption`'s.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.core.caching.cache import Cache
from engine.core.kernel.group_preemption import UNRESOLVABLE, GroupPreemption, Outcome, Trial
from engine.core.kernel.instructions import Instruction, RunAction
from engine.core.kernel.pod_groups import GroupKey
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.victims import PLUGIN
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics

# The text is kube-scheduler's.
_RELEASED: Final = "deallocation and deletion of ResourceClaims completed"

States = Mapping[str, Sequence[tuple[RuntimePlugin, Any]]]
"""By uid of a pod, the plugins that had something to say about it, with their states."""


class GroupPostFilters:
    """Asks what can be done for groups.

    Args:
        cache: What plugins look at.
        preemption: Has other pods evicted.
        metrics, time: Measure.
        out: Receives what plugins want to be done.
    """

    def __init__(
        self,
        *,
        cache: Cache,
        preemption: GroupPreemption,
        metrics: Metrics,
        time: Clock,
        out: list[Instruction],
    ) -> None:
        self._cache = cache
        self._preemption = preemption
        self._metrics = metrics
        self._time = time
        self._out = out

    def run(
        self,
        key: GroupKey,
        members: Sequence[QueuedPod],
        states: States,
        scheduler: Scheduler,
        trial: Trial,
    ) -> Outcome:
        """What is done, in the words of the group's condition, and where its pods are nominated."""
        started_at = self._time.monotonic()
        outcome = self._ask(key, members, states, scheduler, trial)
        status = "Success" if outcome.nodes is not None else "Unschedulable"
        if outcome.nodes is None and outcome.is_final:
            status = UNRESOLVABLE
        self._metrics.extension_point("PodGroupPostFilter", status, key.scheduler_name).observe(
            self._time.monotonic() - started_at
        )
        return outcome

    def _ask(
        self,
        key: GroupKey,
        members: Sequence[QueuedPod],
        states: States,
        scheduler: Scheduler,
        trial: Trial,
    ) -> Outcome:
        profile = scheduler.profile_of(members[0].pod)
        messages: list[str] = []
        for name in () if profile is None else profile.order.get("podGroupPostFilter", ()):
            if name != PLUGIN:
                if self._release(name, members, states):
                    messages.append(_RELEASED)
                continue
            outcome = self._preemption.run(key, members, scheduler, trial)
            if outcome.is_final:
                # As in kube-scheduler: it drops what earlier ones said.
                return outcome
            messages.append(outcome.message)
        return Outcome(", ".join(messages))

    def _release(self, name: str, members: Sequence[QueuedPod], states: States) -> bool:
        """Have the plugin *name* do for each pod what it would do for it alone; True if it does."""
        found = False
        for queued in members:
            for plugin, state in states.get(queued.uid, ()):
                if plugin.name != name:
                    continue
                said = plugin.post_filter(state, queued.pod, {}, self._cache.snapshot())
                if said is not None and said.action is not None:
                    self._out.append(RunAction(said.action, queued.pod))
                found = found or said is not None
        return found
