"""What can be done for a group that fits nowhere: devices given up, other pods evicted.

Owns kube-scheduler's workload-aware preemption as a trial on the cache, which is as before in the
end: every less important pod is taken away, one run of the group chooses the nodes, and then pods
are reprieved, the most important first, as long as the members still pass the filters where they
are. A group that is disrupted as a whole goes or stays as one. Owns also the order in which the
plugins of the profile's `podGroupPostFilter` are asked, and what their answers add up to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from engine.core.framework.status import Status
from engine.core.kernel.group_reprieve import Reprieve, Unit
from engine.core.kernel.instructions import Evict, RunAction
from engine.core.kernel.pod_groups import GroupKey, PodGroups
from engine.core.kernel.preemptions import Preemptions
from engine.core.kernel.shared import Shared
from engine.core.model.pod import Pod
from engine.core.model.pod_group import NEVER, PREEMPT_LOWER_PRIORITY
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.placement import Placement, Preemption
from engine.core.scheduling.preemption import NEVER as IS_NEVER
from engine.core.scheduling.preemption import is_preempted
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.victims import PLUGIN
from engine.policy.evaluator import PolicyFailure

# The texts are kube-scheduler's.
PREFIX: Final = "pod group preemption: "
_ONGOING: Final = "ongoing preemption on nominated nodes"
_NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
_FOUND: Final = "found a placement for podgroup, preempting {} victims"
_RECLAIMED: Final = "other queues give back what they have beyond their own"
_RELEASED: Final = "deallocation and deletion of ResourceClaims completed"
#: A status of kube-scheduler, in metrics.
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
#: What stands for the node in a preemption that is about all of them.
CLUSTER: Final = "cluster"

Trial = Callable[[], tuple[list[Placement], str]]
"""Places the group on the cache as it is, and releases it again: the placements, or why not."""

States = Mapping[str, Sequence[tuple[RuntimePlugin, Any]]]
"""By uid of a pod, the plugins that had something to say about it, with their states."""


@dataclass(slots=True)
class Outcome:
    """What preemption can do for a group.

    `nodes` are those to nominate its pods for, by uid; None: it cannot help. `is_final`: nothing
    else need be said. `held`: why no pods are evicted, although that would help.
    """

    message: str
    nodes: dict[str, str] | None = None
    is_final: bool = False
    held: Status | None = None


class GroupPreemption:
    """Finds victims for groups, and has them evicted.

    Args:
        groups: Knows them.
        nominator: Knows where pods are nominated.
        preemptions: Keeps the group's pods from being tried while victims are evicted.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        groups: PodGroups,
        nominator: Nominator,
        preemptions: Preemptions,
    ) -> None:
        self._cache, self._metrics = shared.cache, shared.metrics
        self._time, self._out = shared.time, shared.out
        self._groups = groups
        self._nominator = nominator
        self._preemptions = preemptions

    def run(
        self, key: GroupKey, members: Sequence[QueuedPod], scheduler: Scheduler, trial: Trial
    ) -> Outcome:
        """Find out what eviction can do for the group, and start it."""
        outcome = self._run(key, members, scheduler, trial)
        result = "Success"
        if outcome.nodes is not None:
            outcome.is_final = True
        else:
            result = UNRESOLVABLE if outcome.is_final else "Unschedulable"
        self._metrics.workload_preemption_attempts.labels(result).inc()
        outcome.message = PREFIX + outcome.message
        return outcome

    def _run(
        self, key: GroupKey, members: Sequence[QueuedPod], scheduler: Scheduler, trial: Trial
    ) -> Outcome:
        state = self._groups.state(key)
        pods = [queued.pod for queued in members]
        policy = state.preemption_policy or pods[0].manifest.spec.preemption_policy
        if (policy or PREEMPT_LOWER_PRIORITY) == NEVER:
            return Outcome(IS_NEVER)
        nominated = {
            pod.uid: node
            for pod in pods
            if (node := self._nominator.node_of(pod.uid) or pod.nominated_node_name)
        }
        if self._is_ongoing(set(nominated.values()), state.priority):
            return Outcome(_ONGOING, nominated)
        started_at = self._time.monotonic()
        units = self._units(key, pods[0], state.priority, scheduler)
        if not units:
            is_final = not self._cache.objects.behaves.groups_ask_on
            if is_final:
                self._observe(UNRESOLVABLE, started_at)
            return Outcome(_NO_VICTIMS, is_final=is_final)
        budgets = Budgets(self._cache.snapshot())
        length = len(self._out)
        with self._cache.trial():
            for unit in units:
                for pod in unit.pods:
                    self._cache.remove_pod(pod)
            placements, why_not = trial()
            victims = []
            if not why_not:
                reprieve = Reprieve(
                    placements,
                    cache=self._cache,
                    nominator=self._nominator,
                    scheduler=scheduler,
                )
                victims = reprieve.victims(units, budgets)
        del self._out[length:]  # nothing of it has happened
        self._observe("Unschedulable" if why_not else "Success", started_at)
        if why_not:
            return Outcome(why_not)
        held = scheduler.missing_for_preemption(pods[0], self._cache.snapshot())
        if held is not None:
            return Outcome(held.message, is_final=True, held=held)
        self.evict(key, pods, victims, scheduler)
        nodes = {placement.pod.uid: placement.node for placement in placements}
        return Outcome(_FOUND.format(sum(len(unit.pods) for unit in victims)), nodes)

    def _observe(self, result: str, started_at: float) -> None:
        seconds = self._time.monotonic() - started_at
        self._metrics.preemption_evaluation_seconds.labels("podgroup", result).observe(seconds)

    def _is_ongoing(self, nodes: set[str], priority: int) -> bool:
        """True if a victim is on its way out where a member is nominated to."""
        return any(
            pod.priority < priority and is_preempted(pod)
            for node in nodes
            if (info := self._cache.node_info(node)) is not None
            for pod in info.pods.values()
        )

    def _units(
        self, key: GroupKey, preemptor: Pod, priority: int, scheduler: Scheduler
    ) -> list[Unit]:
        """Everything that is less important than *priority*, the most important first."""
        profile = scheduler.profile_of(preemptor)
        assert profile is not None, "a pod is tried without a profile"
        units: list[Unit] = []
        # A group that has the priority of its most important pod would replace its other pods with
        # each other for ever.
        grouped = {pod.uid for pod in self._groups.members_of(key)}
        for one in self._groups.disrupted_as_one():
            grouped.update(pod.uid for pod in one.pods)
            units.append(Unit(one.pods, one.priority, is_group=True))
        for info in self._cache.infos():
            units += [
                Unit((pod,), pod.priority)
                for uid, pod in info.pods.items()
                if pod.priority < priority and uid not in grouped
            ]
        units = [unit for unit in units if unit.priority < priority]
        if self._cache.objects.behaves.victims_by_uid:
            for unit in units:
                unit.tie = unit.pods[0].uid
        pods = [pod for unit in units for pod in unit.pods]
        kept = scheduler.kept(profile, pods, self._cache.snapshot()) if pods else []
        if isinstance(kept, PolicyFailure):
            return []
        never = {pod.uid for pod in kept}
        units = [unit for unit in units if not any(pod.uid in never for pod in unit.pods)]
        return sorted(units, key=lambda unit: unit.order)

    def evict(
        self, key: GroupKey, pods: Sequence[Pod], victims: Sequence[Unit], scheduler: Scheduler
    ) -> None:
        """Have *victims* evicted for the group, whose pods that wait are *pods*."""
        all_victims = tuple(pod for unit in victims for pod in unit.pods)
        going = tuple(pod for pod in all_victims if not pod.is_terminating)
        self._metrics.workload_preemption_victims.observe(len(all_victims))
        disruptions = sum(unit.is_group for unit in victims)
        if disruptions:
            self._metrics.preemption_workload_disruptions.labels("podgroup").observe(disruptions)
        violations = sum(unit.violations for unit in victims)
        self._metrics.preemption_violations.labels("podgroup").inc(violations)
        if not going or pods[0].uid in self._preemptions:
            return
        self._preemptions.begin(
            pods[0].uid, CLUSTER, [pod.uid for pod in going], [pod.uid for pod in pods]
        )
        found = self._groups.object_of(key)
        name = found.metadata.uid if found is not None else f"{key.namespace}/{key.name}"
        preemption = Preemption(CLUSTER, all_victims, violations)
        revision = scheduler.bundle.revision
        self._out.append(
            Evict(pods[0], preemption, going, key.scheduler_name, revision, group=name)
        )


class GroupReclaims(Protocol):
    """Says which pods other queues have to give back for a group."""

    def for_group(
        self, key: GroupKey, members: Sequence[QueuedPod], scheduler: Scheduler, trial: Trial
    ) -> tuple[tuple[Pod, ...], dict[str, str]] | None:
        """The pods to evict, and by uid where the group's pods go then; None: none has to."""
        ...


class GroupPostFilters:
    """Asks what can be done for groups.

    Args:
        preemption: Has other pods evicted.
        reclaims: Says which pods other queues have to give back.
    """

    def __init__(
        self,
        shared: Shared,
        preemption: GroupPreemption,
        reclaims: Callable[[], GroupReclaims | None] = lambda: None,
    ) -> None:
        self._cache, self._metrics = shared.cache, shared.metrics
        self._time, self._out = shared.time, shared.out
        self._preemption = preemption
        self._reclaims = reclaims

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
                messages = [outcome.message]
                if outcome.nodes is not None:
                    return outcome
                break
            messages.append(outcome.message)
        else:
            outcome = Outcome("")
        nodes = self.reclaim(key, members, scheduler, trial)
        if nodes is not None:
            return Outcome(_RECLAIMED, nodes)
        return replace(outcome, message=", ".join(messages))

    def reclaim(
        self, key: GroupKey, members: Sequence[QueuedPod], scheduler: Scheduler, trial: Trial
    ) -> dict[str, str] | None:
        """Have pods of other queues evicted for the group; where its pods are nominated then."""
        reclaims = self._reclaims()
        found = reclaims and reclaims.for_group(key, members, scheduler, trial)
        if not found:
            return None
        victims, nodes = found
        units = [Unit((pod,), pod.priority) for pod in victims]
        self._preemption.evict(key, [queued.pod for queued in members], units, scheduler)
        return nodes

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
