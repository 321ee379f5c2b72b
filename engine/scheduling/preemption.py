"""Preemption: on which node evicting pods helps most.

Owns kube-scheduler's DefaultPreemption as a dry run over nodes: who may preempt, which nodes are
tried, the choice among those where it helps. The victims of one node are `victims`'; evicting is
`binding.preemptor`'s. Which node is the best is the hook `candidate_key`.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.caching.snapshot import Snapshot
from engine.framework.profile import EnabledPolicy, Profile
from engine.framework.status import Code, Status
from engine.model.pod import Pod
from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.verdicts import VerdictMemo
from engine.scheduling.diagnosis import Diagnosis
from engine.scheduling.disruption_budgets import Budgets
from engine.scheduling.extenders import NodeVictims
from engine.scheduling.feasibility import Feasibility, Filters
from engine.scheduling.node_columns import NodeColumns
from engine.scheduling.pod_class import PodClass
from engine.scheduling.pod_classifier import PodClassifier
from engine.scheduling.rejections import node_name
from engine.scheduling.select_host import SortKey, name_hash, sort_key, tie_order
from engine.scheduling.victims import PLUGIN, VictimSelector, last_enabled

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
# Nodes that are tried before it is looked at again how many are needed.
_CHUNK: Final = 64

_encode = msgspec.json.encode


class _Trials:
    """What is known of every node for the pods of one class and priority, by slot.

    Attributes:
        pod_class: Kept, so that its identity is nobody else's.
        is_known: The node was tried and is as it was.
        helps: Evicting pods helps.
        is_clean: ... and violates no budget.
        ranks: The place of the node's `candidate_key` among `keys`; -1: not asked for.
        answers: The victims, or why evicting does not help.
        keys: Every distinct key, sorted.
        promised: Nodes that were tried with pods that were promised them.
    """

    def __init__(self, pod_class: PodClass) -> None:
        self.pod_class = pod_class
        self.is_known: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.helps: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.is_clean: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.ranks: NDArray[np.int64] = np.empty(0, np.int64)
        self.answers: list[NodeVictims | Status | None] = []
        self.keys: list[SortKey] = []
        self.promised: frozenset[int] = frozenset()
        self._snapshot: Snapshot | None = None
        self._generation = -1
        self._budgets = -1

    def refresh(self, snapshot: Snapshot, budgets: int) -> None:
        """Forget what *snapshot* or another generation of the budgets may have changed."""
        size = len(snapshot.infos)
        changed: Sequence[int] | None = None
        if (
            snapshot is self._snapshot
            and budgets == self._budgets
            and size == len(self.is_known)
            and len(self.keys) <= size + _CHUNK
        ):
            changed = snapshot.changed_since(self._generation)
        if changed is None:
            self.is_known = np.zeros(size, np.bool_)
            self.helps = np.zeros(size, np.bool_)
            self.is_clean = np.zeros(size, np.bool_)
            self.ranks = np.full(size, -1, np.int64)
            self.answers = [None] * size
            self.keys = []
        else:
            self.forget(changed)
        self._snapshot, self._generation = snapshot, snapshot.generation
        self._budgets = budgets

    def forget(self, slots: Sequence[int]) -> None:
        """Try these nodes again."""
        for slot in slots:
            self.is_known[slot] = False

    def put(self, slot: int, answer: NodeVictims | Status) -> None:
        """Note the answer of a trial."""
        self.answers[slot] = answer
        helps = isinstance(answer, NodeVictims)
        self.is_known[slot] = True
        self.helps[slot] = helps
        self.is_clean[slot] = isinstance(answer, NodeVictims) and answer.pdb_violations == 0
        self.ranks[slot] = -1

    def rank(self, slot: int, key: SortKey) -> None:
        """Note the key of a candidate."""
        place = bisect_left(self.keys, key)
        if place == len(self.keys) or self.keys[place] != key:
            self.keys.insert(place, key)
            self.ranks[self.ranks >= place] += 1
        self.ranks[slot] = place


@dataclass(slots=True)
class Candidates:
    """What the dry run found: nodes where evicting pods helps, or why there are none.

    `slots` are the nodes. `refusal` says, as kube-scheduler does, that preemption cannot help.
    `keeps_nomination`: what the pod was promised before still holds.
    """

    trials: _Trials | None = None
    slots: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    refusal: str = ""
    keeps_nomination: bool = False
    failure: PolicyFailure | None = None

    def victims(self, snapshot: Snapshot) -> dict[str, NodeVictims]:
        """The victims by node name."""
        return {node_name(slot, snapshot): self.victims_on(slot) for slot in self.slots.tolist()}

    def victims_on(self, slot: int) -> NodeVictims:
        """The victims on a candidate."""
        assert self.trials is not None
        answer = self.trials.answers[slot]
        assert isinstance(answer, NodeVictims)
        return answer


class Preemption:
    """Finds candidates and chooses among them; one object serves all decisions of a bundle.

    What was found for a node is kept for the next pod of the same class and priority while the
    node and the disruption budgets are the same, unless a filter looks beyond the node.
    """

    def __init__(
        self,
        memo: VerdictMemo,
        columns: NodeColumns,
        feasibility: Feasibility,
        classifier: PodClassifier,
    ) -> None:
        self._memo = memo
        self._columns = columns
        self._classifier = classifier
        self._victims = VictimSelector(memo, feasibility, classifier)
        self._trials: OrderedDict[tuple[int, int], _Trials] = OrderedDict()

    # --- candidates -------------------------------------------------------------------------

    def candidates(self, filters: Filters, codes: NDArray[np.int32]) -> Candidates:
        """The nodes where evicting pods would help.

        *codes* says by slot why each node was not feasible.
        """
        pod, snapshot = filters.pod, filters.snapshot
        reason = self._ineligible(pod, snapshot, codes)
        if reason:
            return Candidates(refusal=reason, keeps_nomination=True)
        # 1. The nodes to try, in the order of a hash of their names. kube-scheduler starts at a
        #    random node; here it is the pod's own, so that runs repeat.
        is_potential = self._is_potential(codes)
        order = self._columns.name_order
        order = order[is_potential[order]]
        if len(order):
            order = np.roll(order, -(name_hash(pod.uid) % len(order)))
        wanted = self._most_candidates(filters.profile, len(order))
        # 2. Try them until there are enough, one of them without a violated budget.
        budgets = Budgets(snapshot)
        trials = self._trials_of(filters, budgets)
        tried = 0
        while True:
            tried = _enough(trials, order, wanted)
            missing = order[:tried][~trials.is_known[order[:tried]]]
            if not len(missing):
                break
            for slot in missing[:_CHUNK].tolist():
                info = snapshot.infos[slot]
                assert info is not None
                answer = self._victims.select(filters, slot, info, budgets)
                if isinstance(answer, PolicyFailure):
                    return Candidates(failure=answer.about(f"node `{info.name}`"))
                trials.put(slot, answer)
        found = order[:tried][trials.helps[order[:tried]]]
        if len(found):
            return Candidates(trials, found)
        return Candidates(refusal=self._refusal(trials, order, snapshot))

    @staticmethod
    def _refusal(trials: _Trials, order: NDArray[np.int64], snapshot: Snapshot) -> str:
        statuses: dict[Status, int] = {}
        for slot in order.tolist():
            status = trials.answers[slot]
            assert isinstance(status, Status)
            statuses[status] = statuses.get(status, 0) + 1
        unhelpful = snapshot.node_count - len(order)
        if unhelpful:
            statuses[_NOT_HELPFUL] = unhelpful
        return Diagnosis(snapshot.node_count, rejections=statuses).message()

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

    def _is_potential(self, codes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """By slot: evicting pods could lift the node's rejection."""
        reasons = self._memo.reasons
        helps = np.zeros(len(reasons), np.bool_)
        seen = np.zeros(len(reasons), np.bool_)
        seen[codes[codes > 0]] = True
        for code in np.flatnonzero(seen).tolist():
            helps[code] = reasons.status(code).code is Code.UNSCHEDULABLE
        return helps[np.maximum(codes, 0)]

    @staticmethod
    def _most_candidates(profile: Profile, potential: int) -> int:
        """How many candidates are enough, by the plugin's arguments."""
        arguments = profile.arguments.get(PLUGIN, {})
        percentage = int(arguments.get("min_candidate_nodes_percentage", 10))
        absolute = int(arguments.get("min_candidate_nodes_absolute", 100))
        return min(potential, max(potential * percentage // 100, absolute))

    def _trials_of(self, filters: Filters, budgets: Budgets) -> _Trials:
        """What is known for pods like this one; promised nodes are tried anew by each pod."""
        uses = filters.pod_class.filters
        if filters.late or any(use.column.projector.is_shared for use in uses):
            trials = _Trials(filters.pod_class)
        else:
            key = (id(filters.pod_class), filters.pod.priority)
            known = self._trials.get(key)
            if known is None:
                known = self._trials[key] = _Trials(filters.pod_class)
                if len(self._trials) > _MOST_CLASSES:
                    self._trials.popitem(last=False)
            self._trials.move_to_end(key)
            trials = known
        trials.refresh(filters.snapshot, budgets.generation)
        promised = {*filters.nominations, *trials.promised}
        trials.forget(sorted(slot for slot in promised if slot < len(trials.is_known)))
        trials.promised = frozenset(filters.nominations)
        return trials

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
            use = self._classifier.use(enabled, "candidate_key", filters.pod, snapshot, None)
            # What all nodes share (images) may change a key without a change of the node.
            is_missing = trials.ranks[slots] < 0
            if use.column.projector.is_shared:
                is_missing[:] = True
            missing = slots[is_missing].tolist()
            victims = {node_name(slot, snapshot): found.victims_on(slot) for slot in missing}
            verdicts = self._keys_of(enabled, filters, victims)
            for slot, verdict in zip(missing, verdicts, strict=True):
                if isinstance(verdict, PolicyFailure):
                    return verdict
                trials.rank(slot, sort_key(verdict))
            ranks = trials.ranks[slots]
            slots = slots[ranks == ranks.min()]
        ties = tie_order(filters.pod.uid, self._columns.name_hashes[slots])
        chosen = int(slots[int(np.argmin(ties))])
        return node_name(chosen, snapshot), found.victims_on(chosen)

    def choose_among(
        self, filters: Filters, victims: Mapping[str, NodeVictims]
    ) -> tuple[str, NodeVictims] | PolicyFailure:
        """The same for candidates that extenders have left or changed."""
        names = sorted(victims)
        enabled = last_enabled(filters.profile, "candidate_key")
        if enabled is None or len(names) == 1:
            return names[0], victims[names[0]]
        best: tuple[SortKey, str] | None = None
        verdicts = self._keys_of(enabled, filters, {name: victims[name] for name in names})
        for name, verdict in zip(names, verdicts, strict=True):
            if isinstance(verdict, PolicyFailure):
                return verdict
            key = (sort_key(verdict), name)
            if best is None or key < best:
                best = key
        assert best is not None
        return best[1], victims[best[1]]

    def _keys_of(
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


def _enough(trials: _Trials, order: NDArray[np.int64], wanted: int) -> int:
    """How many nodes of *order* have to be tried, as far as is known."""
    helps = trials.helps[order] & trials.is_known[order]
    if np.count_nonzero(helps) < wanted:
        return len(order)
    clean = np.flatnonzero(helps & trials.is_clean[order])
    if not len(clean) or wanted <= 0:
        return len(order) if not len(clean) else int(clean[0]) + 1
    last = int(np.flatnonzero(helps)[wanted - 1])
    return max(last, int(clean[0])) + 1


def _is_preempted(pod: Pod) -> bool:
    """True for a pod that is going because the scheduler evicted it."""
    if not pod.is_terminating:
        return False
    for condition in pod.manifest.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTED
    return False
