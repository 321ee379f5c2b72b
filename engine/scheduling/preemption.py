"""Preemption: which pods would have to go, and where, so that a pod fits.

Owns kube-scheduler's DefaultPreemption as a dry run: victims of each node that could help, the
order in which pods are spared, disruption budgets, the choice among nodes. Filters are asked as
for any decision, about nodes as they would be (`feasibility`). Evicting is `binding.preemptor`'s.
Which pods matter more and which node is the best are hooks: `victim_key`, `candidate_key`.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.caching.counters import PodChanges
from engine.caching.snapshot import Snapshot
from engine.framework.profile import EnabledPolicy, Profile
from engine.framework.status import Code, Status
from engine.model.node_info import NodeInfo
from engine.model.objects import PodDisruptionBudget
from engine.model.pod import Pod
from engine.model.selectors import SelectorError, matches_label_selector
from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.verdicts import FITS, VerdictMemo
from engine.scheduling.diagnosis import Diagnosis
from engine.scheduling.extenders import NodeVictims
from engine.scheduling.feasibility import Feasibility, Filters
from engine.scheduling.pod_class import PodClass
from engine.scheduling.pod_classifier import PodClassifier
from engine.scheduling.select_host import SortKey, name_hash, sort_key

#: The plugin's name, in the configuration and in statuses.
PLUGIN: Final = "DefaultPreemption"
#: Written before everything that the plugin says.
PREFIX: Final = "preemption: "
DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTED: Final = "PreemptionByScheduler"

NEVER: Final = "not eligible due to preemptionPolicy=Never."
STILL_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NO_CANDIDATE: Final = "no candidate node for preemption"

_NOT_HELPFUL: Final = Status(
    Code.UNRESOLVABLE, ("Preemption is not helpful for scheduling",), PLUGIN
)
_NO_VICTIMS: Final = Status(
    Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",), PLUGIN
)
# Pods whose importance is remembered; more than a cluster holds on a few thousand nodes.
_MOST_KEYS: Final = 200_000
# Pod classes whose dry runs are remembered.
_MOST_CLASSES: Final = 16

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the dry run found: nodes with their victims, or why there are none.

    `refusal` says, as kube-scheduler does, that preemption cannot help. `keeps_nomination`: what
    the pod was promised before still holds.
    """

    victims: Mapping[str, NodeVictims]
    refusal: str = ""
    keeps_nomination: bool = False
    failure: PolicyFailure | None = None


@dataclass(slots=True)
class _Trial:
    """The victims of one node for the pods of a class, and what the answer depends on."""

    info: NodeInfo
    budgets: int
    answer: NodeVictims | Status


class _Trials:
    """The known answers for one pod class and priority, by slot."""

    def __init__(self, pod_class: PodClass) -> None:
        self.pod_class = pod_class  # kept, so that its identity is nobody else's
        self.by_slot: dict[int, _Trial] = {}


class Preemption:
    """Finds candidates and chooses among them; one object serves all decisions of a bundle.

    What was found for a node is kept for the next pod of the same class and priority while the
    node, its promises and the disruption budgets are the same, unless a filter looks beyond the
    node.
    """

    def __init__(
        self, memo: VerdictMemo, feasibility: Feasibility, classifier: PodClassifier
    ) -> None:
        self._memo = memo
        self._feasibility = feasibility
        self._classifier = classifier
        self._victim_keys: dict[tuple[int, str], tuple[Pod, SortKey]] = {}
        self._candidate_keys: dict[tuple[int, int], tuple[NodeVictims, SortKey]] = {}
        self._trials: OrderedDict[tuple[int, int], _Trials] = OrderedDict()

    # --- candidates -------------------------------------------------------------------------

    def candidates(self, filters: Filters, codes: NDArray[np.int32]) -> Candidates:
        """The nodes where evicting pods would help, with the pods to evict.

        *codes* says by slot why each node was not feasible.
        """
        pod, snapshot = filters.pod, filters.snapshot
        reason = self._ineligible(pod, snapshot, codes)
        if reason:
            return Candidates({}, reason, keeps_nomination=True)
        potential = self._potential(codes)
        wanted = self._most_candidates(filters.profile, len(potential))
        # kube-scheduler starts at a random node. Here it is the pod's own, so that runs repeat.
        start = name_hash(pod.uid) % max(len(potential), 1)
        statuses: dict[Status, int] = {}
        found: dict[str, NodeVictims] = {}
        is_any_clean = False
        budgets = _Budgets(snapshot)
        trials = self._trials_of(filters)
        for slot in (*potential[start:], *potential[:start]):
            info = snapshot.infos[slot]
            assert info is not None
            answer = self._victims_on(filters, slot, info, budgets, trials)
            if isinstance(answer, PolicyFailure):
                return Candidates({}, failure=answer.about(f"node `{info.name}`"))
            if isinstance(answer, Status):
                statuses[answer] = statuses.get(answer, 0) + 1
                continue
            found[info.name] = answer
            is_any_clean = is_any_clean or answer.pdb_violations == 0
            if is_any_clean and len(found) >= wanted:
                break
        if found:
            return Candidates(found)
        unhelpful = snapshot.node_count - sum(statuses.values())
        if unhelpful:
            statuses[_NOT_HELPFUL] = statuses.get(_NOT_HELPFUL, 0) + unhelpful
        return Candidates({}, Diagnosis(snapshot.node_count, rejections=statuses).message())

    def _ineligible(self, pod: Pod, snapshot: Snapshot, codes: NDArray[np.int32]) -> str:
        """Why the pod may not preempt at all; empty if it may."""
        if pod.manifest.spec.preemption_policy == "Never":
            return NEVER
        nominated = pod.nominated_node_name
        slot = snapshot.slot_of.get(nominated) if nominated else None
        if slot is None:
            return ""
        code = int(codes[slot])
        if code > 0 and self._memo.reasons.status(code).code is Code.UNRESOLVABLE:
            return ""
        info = snapshot.infos[slot]
        for other in info.pods.values() if info is not None else ():
            if other.priority < pod.priority and _is_preempted(other):
                return STILL_TERMINATING
        return ""

    def _potential(self, codes: NDArray[np.int32]) -> list[int]:
        """The slots whose rejection evicting pods could lift."""
        reasons = self._memo.reasons
        helps = np.zeros(len(reasons), np.bool_)
        for code in np.unique(codes[codes > 0]).tolist():
            helps[code] = reasons.status(code).code is Code.UNSCHEDULABLE
        return np.flatnonzero((codes > 0) & helps[np.maximum(codes, 0)]).tolist()

    @staticmethod
    def _most_candidates(profile: Profile, potential: int) -> int:
        """How many candidates are enough, by the plugin's arguments."""
        arguments = profile.arguments.get(PLUGIN, {})
        percentage = int(arguments.get("min_candidate_nodes_percentage", 10))
        absolute = int(arguments.get("min_candidate_nodes_absolute", 100))
        return min(potential, max(potential * percentage // 100, absolute))

    def _trials_of(self, filters: Filters) -> dict[int, _Trial] | None:
        """The answers that are known for pods like this one; None if none can be kept."""
        if filters.late:
            return None
        key = (id(filters.pod_class), filters.pod.priority)
        trials = self._trials.get(key)
        if trials is None:
            trials = self._trials[key] = _Trials(filters.pod_class)
            if len(self._trials) > _MOST_CLASSES:
                self._trials.popitem(last=False)
        self._trials.move_to_end(key)
        return trials.by_slot

    # --- one node ---------------------------------------------------------------------------

    def _victims_on(
        self,
        filters: Filters,
        slot: int,
        info: NodeInfo,
        budgets: "_Budgets",
        trials: dict[int, _Trial] | None,
    ) -> NodeVictims | Status | PolicyFailure:
        """The fewest and least important pods to evict from a node; or why that does not help."""
        if trials is None or filters.nominations.get(slot):
            return self._select_victims(filters, slot, info, budgets)
        known = trials.get(slot)
        if known is not None and known.info is info and known.budgets == budgets.generation:
            return known.answer
        answer = self._select_victims(filters, slot, info, budgets)
        if not isinstance(answer, PolicyFailure):
            trials[slot] = _Trial(info, budgets.generation, answer)
        return answer

    def _select_victims(
        self, filters: Filters, slot: int, info: NodeInfo, budgets: "_Budgets"
    ) -> NodeVictims | Status | PolicyFailure:
        # 1. Does the pod fit at all once every less important pod is gone?
        removed = {
            uid: pod for uid, pod in info.pods.items() if pod.priority < filters.pod.priority
        }
        if not removed:
            return _NO_VICTIMS
        for uid in removed:
            info = info.without_pod(uid)
        verdict = self._fits(filters, slot, info, removed)
        if verdict != FITS:
            if isinstance(verdict, PolicyFailure):
                return verdict
            return self._memo.reasons.status(verdict)
        # 2. Spare who can be spared: first those whose budget would be violated, then the others,
        #    the most important ones first.
        ordered = self._by_importance(filters, list(removed.values()))
        if isinstance(ordered, PolicyFailure):
            return ordered
        violating, others = budgets.split(ordered)
        victims: list[Pod] = []
        violations = 0
        for group in (violating, others):
            for pod in group:
                with_pod = info.with_pod(pod)
                rest = {uid: gone for uid, gone in removed.items() if uid != pod.uid}
                verdict = self._fits(filters, slot, with_pod, rest)
                if isinstance(verdict, PolicyFailure):
                    return verdict
                if verdict == FITS:
                    info, removed = with_pod, rest
                else:
                    victims.append(pod)
                    violations += group is violating
        if not victims:
            # The filters contradict each other: what was rejected fits with everybody back.
            return Status(Code.ERROR, (f"expected at least one victim pod on node {info.name}",))
        place = {pod.uid: k for k, pod in enumerate(ordered)}
        if violating and others:
            victims.sort(key=lambda pod: place[pod.uid])
        return NodeVictims(tuple(victims), violations)

    def _fits(
        self, filters: Filters, slot: int, info: NodeInfo, removed: Mapping[str, Pod]
    ) -> int | PolicyFailure:
        changes = PodChanges(slot, removed=tuple(removed.values()))
        return self._feasibility.at(filters, info, changes)

    def _by_importance(self, filters: Filters, pods: list[Pod]) -> list[Pod] | PolicyFailure:
        """The pods by `victim_key`, smallest first, then by name: those are spared first."""
        enabled = _chosen(filters.profile, "victim_key")
        if enabled is None:
            return pods
        known = self._victim_keys
        if len(known) > _MOST_KEYS:
            known.clear()
        missing = []
        for pod in pods:
            kept = known.get((enabled.instance, pod.uid))
            if kept is None or kept[0] is not pod:
                missing.append(pod)
        if missing:
            verdicts = self._classifier.ask_all(enabled, "victim_key", missing, filters.snapshot)
            for pod, verdict in zip(missing, verdicts, strict=True):
                if isinstance(verdict, PolicyFailure):
                    return verdict
                known[enabled.instance, pod.uid] = pod, sort_key(verdict)
        return sorted(pods, key=lambda pod: (known[enabled.instance, pod.uid][1], pod.key))

    # --- choosing ---------------------------------------------------------------------------

    def choose(self, filters: Filters, victims: Mapping[str, NodeVictims]) -> str | PolicyFailure:
        """The name of the best candidate: the smallest `candidate_key`, then the first by name."""
        names = sorted(victims)
        enabled = _chosen(filters.profile, "candidate_key")
        if enabled is None or len(names) == 1:
            return names[0]
        known = self._candidate_keys
        if len(known) > _MOST_KEYS:
            known.clear()
        missing = []
        for name in names:
            kept = known.get((enabled.instance, id(victims[name])))
            if kept is None or kept[0] is not victims[name]:
                missing.append(name)
        verdicts = self._ask_about(enabled, filters, {name: victims[name] for name in missing})
        for name, verdict in zip(missing, verdicts, strict=True):
            if isinstance(verdict, PolicyFailure):
                return verdict
            known[enabled.instance, id(victims[name])] = victims[name], sort_key(verdict)
        return min(names, key=lambda name: (known[enabled.instance, id(victims[name])][1], name))

    def _ask_about(
        self, enabled: EnabledPolicy, filters: Filters, victims: Mapping[str, NodeVictims]
    ) -> Sequence[Any]:
        """The `candidate_key` of each node, all in one round trip."""
        if not victims:
            return ()
        snapshot = filters.snapshot
        use = self._classifier.use(enabled, "candidate_key", filters.pod, snapshot, None)
        project = self._classifier.projector(enabled, "candidate_key", "pod").project
        entries = []
        for name, evicted in victims.items():
            info = snapshot.info(name)
            assert info is not None, f"candidate `{name}` is no node"
            node = use.column.projector.project(info, snapshot)
            pods = b",".join(project(pod, snapshot) for pod in evicted.pods)
            count = _encode(evicted.pdb_violations)
            entries.append(
                b'{"node":' + node + b',"victims":[' + pods + b'],"violations":' + count + b"}"
            )
        call = Call(enabled.instance, "candidate_key", b"{}", entries, use.extra)
        answer: Sequence[Any] = self._memo.evaluate([call])[0]
        return answer


class _Budgets:
    """The disruption budgets of the cluster, as they are at the start of a dry run."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.generation = snapshot.objects.generation("poddisruptionbudgets")
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for budget in snapshot.objects.list("poddisruptionbudgets"):
            self._by_namespace.setdefault(budget.metadata.namespace, []).append(budget)

    def split(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
        """The pods whose eviction would violate a budget, and the others, in the given order.

        Each matching budget is used up by the pods in order, as if all of them were evicted.
        """
        violating: list[Pod] = []
        others: list[Pod] = []
        left: dict[int, int] = {}
        for pod in pods:
            is_violating = False
            for budget in self._by_namespace.get(pod.namespace, ()) if pod.labels else ():
                if pod.name in budget.status.disrupted_pods or not _covers(budget, pod):
                    continue
                allowed = left.get(id(budget), budget.status.disruptions_allowed) - 1
                left[id(budget)] = allowed
                if allowed < 0:
                    is_violating = True
                    break
            (violating if is_violating else others).append(pod)
        return violating, others


def _covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    try:
        return matches_label_selector(selector, pod.labels)
    except SelectorError:
        return False


def _is_preempted(pod: Pod) -> bool:
    """True for a pod that is going because the scheduler evicted it."""
    if not pod.is_terminating:
        return False
    for condition in pod.manifest.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTED
    return False


def _chosen(profile: Profile, hook: str) -> EnabledPolicy | None:
    """The policy whose *hook* counts: the last one enabled, so that a user's beats the default."""
    enabled = profile.at(hook)
    return enabled[-1] if enabled else None
