"""Preemption: on which node evicting pods helps most.

Owns kube-scheduler's DefaultPreemption as a dry run over nodes: which pods may preempt, which nodes
are tried, the choice among those where it helps. The victims of one node are `victims`'; evicting
is `binding.preemptor`'s. Which node is the best is the hook `candidate_key`.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.behaviors import Behaviors
from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.framework.status import Code, Status
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit
from engine.core.scheduling.diagnosis import Diagnosis
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.extenders import NodeVictims
from engine.core.scheduling.feasibility import Feasibility, Filters
from engine.core.scheduling.hook_use import reads_other_nodes
from engine.core.scheduling.node_columns import NodeColumns
from engine.core.scheduling.placed_pods import is_about_pod_alone
from engine.core.scheduling.pod_classifier import PodClassifier
from engine.core.scheduling.pod_fields import MOST_ANSWERS
from engine.core.scheduling.preemption_trials import CLEAN, NO_HELP, UNKNOWN, VIOLATES, Trials
from engine.core.scheduling.rejections import node_name
from engine.core.scheduling.select_host import SortKey, name_hash, sort_key, tie_order
from engine.core.scheduling.trial_patterns import TrialPatterns
from engine.core.scheduling.victims import (
    NO_VICTIMS,
    ONLY_KEPT,
    PLUGIN,
    VictimSelector,
    last_enabled,
)
from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.verdicts import VerdictMemo

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
# Pod classes whose dry runs are remembered.
_MOST_CLASSES: Final = 16
# Nodes that are looked at together, at least.
_CHUNK: Final = 64
_Key = tuple[int, int, tuple[Hashable, ...], bool]
"""The identity of a class, the priority, what plugins know of the pods, if an extender preempts."""


@dataclass(slots=True)
class Candidates:
    """What the dry run found: nodes where evicting pods helps, or why there are none.

    `slots` are the nodes. `refusal` says, as kube-scheduler does, that preemption cannot help;
    `kept_by`, by policy, on how many nodes that is because of pods that it keeps; `refused_by` are
    those that reject the pod even with all possible victims gone. `refusals`: why, by the number of
    nodes. `keeps_nomination`: what the pod was nominated to before still holds.
    """

    trials: Trials | None = None
    slots: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    refusal: str = ""
    kept_by: Mapping[str, int] = field(default_factory=dict)
    refused_by: frozenset[str] = frozenset()
    refusals: Mapping[Status, int] = field(default_factory=dict)
    keeps_nomination: bool = False
    failure: PolicyFailure | None = None

    def victims(self, snapshot: Snapshot) -> dict[str, NodeVictims]:
        """The victims by node name."""
        return {node_name(slot, snapshot): self.victims_on(slot) for slot in self.slots.tolist()}

    def victims_on(self, slot: int) -> NodeVictims:
        """The victims on a candidate."""
        assert self.trials is not None
        return self.trials.victims_on(slot)


class Preemption:
    """Finds candidates and chooses among them; one object serves all decisions of a bundle.

    *units* gives the groups that are preempted as a whole; with some of them, nothing is kept.

    What was found for a node is kept for the next pod of the same class and priority while the
    node and the disruption budgets are the same, unless a filter looks beyond the node.
    """

    def __init__(
        self,
        memo: VerdictMemo,
        columns: NodeColumns,
        feasibility: Feasibility,
        classifier: PodClassifier,
        units: Callable[[], Sequence[DisruptionUnit]] = list,
    ) -> None:
        self.units = units
        self._units: Mapping[str, DisruptionUnit] = {}  # by the uid of each of their pods
        self._memo = memo
        self._columns = columns
        self._classifier = classifier
        self._feasibility = feasibility
        self._victims = VictimSelector(memo, feasibility, classifier)
        self._takes_empty = False  # of the decision that is under way
        self._trials: OrderedDict[_Key, Trials] = OrderedDict()
        self._keys: dict[tuple[int, bytes], SortKey] = {}

    # --- candidates -------------------------------------------------------------------------

    def candidates(
        self, filters: Filters, codes: NDArray[np.int32], *, is_extended: bool = False
    ) -> Candidates:
        """The nodes where evicting pods would help.

        Args:
            filters: What is asked of nodes, and for which pod.
            codes: By slot, why each node was not feasible.
            is_extended: An extender has a say in preemption for the pod. From 1.38 on it is shown
                nodes without victims, too, where it may name some.
        """
        self._takes_empty = is_extended and self._behaves(filters).nodes_without_victims
        pod, snapshot = filters.pod, filters.snapshot
        reason = self._ineligible(filters, codes)
        if reason:
            return Candidates(refusal=reason, keeps_nomination=True)
        # 1. The nodes to try, in the order of a hash of their names. kube-scheduler starts at a
        #    random node; here it is the pod's own, so that runs repeat.
        budgets = Budgets(snapshot)
        self._units = {pod.uid: unit for unit in self.units() for pod in unit.pods}
        trials = self._trials_of(filters, budgets)
        order = trials.potential(codes, self._columns.name_order, self._memo.reasons)
        size = len(order) // 2
        start = name_hash(pod.uid) % size if size else 0
        order = order[start : start + size]
        if filters.per_pod_filters:
            self._follow_per_pod(filters, trials, order)
        # 2. Try them until there are enough, one of them without a violated budget.
        wanted = self._most_candidates(filters.profile, size)
        found = self._search(filters, trials, order, wanted, budgets)
        if isinstance(found, PolicyFailure):
            return Candidates(failure=found)
        if len(found):
            return Candidates(trials, found)
        return self._refusal(trials, order, snapshot)

    def _search(
        self,
        filters: Filters,
        trials: Trials,
        order: NDArray[np.int64],
        wanted: int,
        budgets: Budgets,
    ) -> NDArray[np.int64] | PolicyFailure:
        """The first *wanted* nodes of *order* where evicting helps; and on, up to a clean one.

        No node behind the last of them is tried, so that what is known changes no outcome.
        """
        parts: list[NDArray[np.int64]] = []
        count, has_clean, at = 0, False, 0
        size = trials.reach + _CHUNK
        while at < len(order) and (count < wanted or not has_clean):
            needed = max(wanted - count, 1)
            slots = order[at : at + max(size, needed)]
            states = trials.states[slots]
            if int(states.min()) == UNKNOWN:
                # Those are needed up to where there are enough if all unknown ones help.
                possible = np.flatnonzero(states != NO_HELP)
                end = len(slots) if len(possible) <= needed else int(possible[needed - 1]) + 1
                failure = self._try(
                    filters, trials, slots[:end][states[:end] == UNKNOWN].tolist(), budgets
                )
                if failure is not None:
                    return failure
                states = trials.states[slots]
                if int(states.min()) == UNKNOWN:
                    end = int(states.argmin())  # the first that is still unknown
                    slots, states = slots[:end], states[:end]
            at += len(slots)
            parts.append(slots[states >= VIOLATES])
            count += len(parts[-1])
            has_clean = has_clean or int(states.max()) == CLEAN
            size = max(_CHUNK, at)  # where few help, more have to be looked at
        trials.reach = at
        if not parts:
            return order
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if has_clean:
            first_clean = int(np.argmax(trials.states[found] == CLEAN))
            found = found[: max(wanted, first_clean + 1)]
        return found

    def _try(
        self, filters: Filters, trials: Trials, slots: Sequence[int], budgets: Budgets
    ) -> PolicyFailure | None:
        """Try the nodes of *slots*; the failure that ends it, if there is one."""
        answers = self._victims.select(filters, slots, budgets, trials.patterns, self._units)
        for slot, answer in zip(slots, answers, strict=False):  # up to a failure
            if isinstance(answer, PolicyFailure):
                return answer
            if isinstance(answer, NodeVictims) and not (answer.pods or self._takes_empty):
                answer = self._without_victims(filters, slot)
            trials.put(slot, answer, self._memo.reasons)
        return None

    def _without_victims(self, filters: Filters, slot: int) -> Status:
        """Why a node is none to preempt on that an extender rejected, and the filters did not."""
        if self._behaves(filters).nodes_without_victims:
            return NO_VICTIMS
        name = node_name(slot, filters.snapshot)
        return Status(Code.ERROR, (f'expected at least one victim pod on node "{name}"',), PLUGIN)

    def _refusal(self, trials: Trials, order: NDArray[np.int64], snapshot: Snapshot) -> Candidates:
        counts = np.bincount(trials.refusals[order]).tolist() if len(order) else []
        reasons = self._memo.reasons
        statuses = {reasons.status(code): count for code, count in enumerate(counts) if count}
        unhelpful = snapshot.node_count - len(order)
        if unhelpful:
            statuses[_NOT_HELPFUL] = unhelpful
        text = Diagnosis(snapshot.node_count, rejections=statuses).message()
        errors = sorted(text for s in statuses if s.code is Code.ERROR for text in s.reasons)
        if errors:  # as kube-scheduler writes them
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            return Candidates(refusal=text, keeps_nomination=True)
        kept_by = {s.plugin: count for s, count in statuses.items() if s.reasons == (ONLY_KEPT,)}
        refused_by = frozenset(status.plugin for status in statuses) - {PLUGIN}
        return Candidates(refusal=text, kept_by=kept_by, refused_by=refused_by, refusals=statuses)

    def _ineligible(self, filters: Filters, codes: NDArray[np.int32]) -> str:
        """Why the pod may not preempt at all; empty if it may."""
        pod, snapshot = filters.pod, filters.snapshot
        if pod.manifest.spec.preemption_policy == "Never":
            return NEVER
        nominated = filters.nominated_node
        slot = snapshot.slot_of.get(nominated) if nominated else None
        if slot is None:
            return ""
        code = int(codes[slot])
        if code > 0 and self._memo.reasons.status(code).code is Code.UNRESOLVABLE:
            return ""
        info = snapshot.infos[slot]
        for other in info.pods.values() if info is not None else ():
            if other.priority < pod.priority and is_preempted(other):
                return STILL_TERMINATING
        return ""

    @staticmethod
    def _behaves(filters: Filters) -> Behaviors:
        return filters.snapshot.objects.behaves

    @staticmethod
    def _most_candidates(profile: Profile, potential: int) -> int:
        """How many candidates are enough, by the plugin's arguments."""
        arguments = profile.arguments.get(PLUGIN, {})
        percentage = int(arguments.get("min_candidate_nodes_percentage", 10))
        absolute = int(arguments.get("min_candidate_nodes_absolute", 100))
        return min(potential, max(potential * percentage // 100, absolute))

    def _trials_of(self, filters: Filters, budgets: Budgets) -> Trials:
        """What is known for pods like this one, with the nominations of now."""
        kinds = self._feasibility.per_pod_kinds(filters)
        trials: Trials | None = None
        if kinds is not None and not self._units:
            key = (id(filters.pod_class), filters.pod.priority, kinds, self._takes_empty)
            trials = self._trials.get(key)
            if trials is not None:
                self._trials.move_to_end(key)
            else:
                trials = self._new_trials(filters, key)
        if trials is None:
            trials = Trials(filters.pod_class)
        trials.refresh(filters.snapshot, budgets.generation)
        trials.nominate(filters.nominations)
        return trials

    def _new_trials(self, filters: Filters, key: _Key) -> Trials:
        """Trials of which nothing is known; they are kept if anything of them can hold on."""
        uses = filters.pod_class.filters
        if reads_other_nodes(uses) or not self._holds_on(filters.profile):
            return Trials(filters.pod_class)
        patterns = TrialPatterns(uses) if TrialPatterns.apply_to(uses) else None
        trials = self._trials[key] = Trials(filters.pod_class, patterns)
        if len(self._trials) > _MOST_CLASSES:
            self._trials.popitem(last=False)
        return trials

    def _follow_per_pod(self, filters: Filters, trials: Trials, order: NDArray[np.int64]) -> None:
        """Take in what the filters say of the nodes of *order* that the class does not know."""
        uses = filters.pod_class.filters
        has_patterns = TrialPatterns.apply_to(uses)
        codes: Sequence[NDArray[np.int32]] | None = None
        if len(order) and (has_patterns or self._feasibility.per_pod_kinds(filters) is not None):
            codes = self._feasibility.per_pod_codes(filters, order)
        trials.follow_per_pod(codes)
        trials.patterns = None
        if codes is not None and has_patterns:
            trials.patterns = TrialPatterns(uses, codes)

    def _holds_on(self, profile: Profile) -> bool:
        """True if what the hooks say of a node's pods stays the same as long as the pods do."""
        enabled = last_enabled(profile, "candidate_key")
        if enabled is not None:
            projector = self._classifier.projector(enabled, "candidate_key", "pod")
            if not is_about_pod_alone(projector.paths):
                return False
        return self._victims.holds_on(profile)

    # --- choosing ---------------------------------------------------------------------------

    def choose(
        self, filters: Filters, found: Candidates
    ) -> tuple[str, NodeVictims] | PolicyFailure:
        """The best candidate: the smallest `candidate_key`, equals by the pod's uid and name."""
        trials, snapshot = found.trials, filters.snapshot
        assert trials is not None
        slots = found.slots
        enabled = last_enabled(filters.profile, "candidate_key")
        if enabled is not None and len(slots) > 1:
            ranks = trials.ranks[slots]
            # What all nodes share (images) may change a key without a change of the node.
            is_shared = self._classifier.projector(enabled, "candidate_key", "node").is_shared
            if is_shared or int(ranks.min()) < 0:
                missing = (slots if is_shared else slots[ranks < 0]).tolist()
                victims = {node_name(slot, snapshot): found.victims_on(slot) for slot in missing}
                keys = self._keys_of(enabled, snapshot, victims)
                if isinstance(keys, PolicyFailure):
                    return keys
                trials.rank(dict(zip(missing, keys, strict=True)))
                ranks = trials.ranks[slots]
            slots = slots[ranks == ranks.min()]
        ties = tie_order(filters.pod.uid, self._columns.name_hashes[slots])
        chosen = int(slots[int(np.argmin(ties))])
        return node_name(chosen, snapshot), found.victims_on(chosen)

    def choose_among(
        self, filters: Filters, victims: Mapping[str, NodeVictims]
    ) -> tuple[str, NodeVictims] | PolicyFailure | None:
        """The same for candidates that extenders have left or changed.

        None: on each of them they named a pod that is never evicted.
        """
        names = []
        for name in sorted(victims):
            kept = self.kept(filters.profile, victims[name].pods, filters.snapshot)
            if isinstance(kept, PolicyFailure):
                return kept
            if not kept:
                names.append(name)
        if not names:
            return None
        enabled = last_enabled(filters.profile, "candidate_key")
        if enabled is None or len(names) == 1:
            return names[0], victims[names[0]]
        keys = self._keys_of(enabled, filters.snapshot, {name: victims[name] for name in names})
        if isinstance(keys, PolicyFailure):
            return keys
        _, best = min(zip(keys, names, strict=True))
        return best, victims[best]

    def kept(
        self, profile: Profile, pods: Sequence[Pod], snapshot: Snapshot
    ) -> list[Pod] | PolicyFailure:
        """Those of *pods* that are never evicted."""
        return self._victims.kept(profile, pods, snapshot)

    def failures(
        self, profile: Profile, victims: Mapping[str, NodeVictims], snapshot: Snapshot
    ) -> list[PolicyFailure]:
        """What fails of the hooks that choose, were these the *victims* by node; for trials."""
        pods = (pod for evicted in victims.values() for pod in evicted.pods)
        failures = self._victims.failures(profile, pods, snapshot)
        enabled = last_enabled(profile, "candidate_key")
        if enabled is not None:
            keys = self._keys_of(enabled, snapshot, victims)
            if isinstance(keys, PolicyFailure):
                failures.append(keys)
        return failures

    def _keys_of(
        self, enabled: EnabledPolicy, snapshot: Snapshot, victims: Mapping[str, NodeVictims]
    ) -> list[SortKey] | PolicyFailure:
        """The `candidate_key` of each node, those not known in one round trip."""
        column = self._columns.column(
            self._classifier.projector(enabled, "candidate_key", "node").paths
        )
        self._columns.refresh(snapshot)  # the column may be new
        projector = self._classifier.projector(enabled, "candidate_key", "pod")
        texts = self._victims.texts(projector)
        # 1. What the hook is given of each node.
        entries = []
        for name, evicted in victims.items():
            pods = b",".join([texts.of(pod, snapshot) for pod in evicted.pods])
            node = column.values[column.ids.item(snapshot.slot_of[name])]
            count = str(evicted.pdb_violations).encode()
            entries.append(b'{"node":%b,"victims":[%b],"violations":%b}' % (node, pods, count))
        # 2. Ask for what was never given before.
        if len(self._keys) > MOST_ANSWERS:
            self._keys.clear()
        instance = enabled.instance
        missing = [e for e in dict.fromkeys(entries) if (instance, e) not in self._keys]
        if missing:
            call = Call(instance, "candidate_key", b"{}", missing, b"{}")
            for entry, verdict in zip(missing, self._memo.evaluate([call])[0], strict=True):
                if isinstance(verdict, PolicyFailure):
                    return verdict
                self._keys[instance, entry] = sort_key(verdict)
        return [self._keys[instance, entry] for entry in entries]


def is_preempted(pod: Pod) -> bool:
    """True for a pod that is going because the scheduler evicted it."""
    if not pod.is_terminating:
        return False
    for condition in pod.manifest.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTED
    return False
