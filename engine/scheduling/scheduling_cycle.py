"""The scheduling cycle: one pod, one snapshot, one decision. Pure: no clock, no I/O, no chance.

Owns the order of the steps and what happens when a policy fails. What fits and what is best is the
policies'; how their answers are reused is `policy.verdicts`, `pod_class` and `counted`; what the
hooks are given for a pod is put together by `pod_classifier`.
"""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.binding.placement import Preemption as Eviction
from engine.caching.snapshot import Snapshot
from engine.framework.profile import EnabledPolicy, Profile
from engine.framework.status import Code, Status
from engine.model.node_info import NodeInfo
from engine.model.pod import Pod
from engine.model.pod_group import PodGroupState
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call, Evaluator, PolicyFailure
from engine.policy.verdicts import FAILED, FITS, SCORE_FAILED, SCORE_NONE, VerdictMemo
from engine.queueing.nominator import Nominator
from engine.scheduling.counted import CountedHook, CountedHooks
from engine.scheduling.diagnosis import Diagnosis
from engine.scheduling.extenders import (
    DROPPED,
    Answer,
    ExtenderFilter,
    ExtenderPreempt,
    ExtenderPrioritize,
    FilterAnswer,
    PreemptAnswer,
    PrioritizeAnswer,
    Question,
    unopposed,
)
from engine.scheduling.feasibility import Feasibility, Filters, RuntimeUse
from engine.scheduling.node_columns import NodeColumns
from engine.scheduling.pod_class import ABSENT, INFEASIBLE, HookUse, PodClass, PodClasses
from engine.scheduling.pod_classifier import PodClassifier
from engine.scheduling.preemption import NO_CANDIDATE, PLUGIN, PREFIX, Preemption
from engine.scheduling.runtime_plugin import RuntimePlugin, pre_filter_failure
from engine.scheduling.scoring import Normalizer
from engine.scheduling.select_host import SortKey, sort_key, tie_order

#: Nothing is promised to anybody.
NOBODY: Final = Nominator()

# Decisions between two looks at what memory can be given back.
_HOUSEKEEPING_EVERY: Final = 256

# The plugin name of rejections that no policy made: a pod whose own fields make no sense.
POD_SPEC = "PodSpec"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the cycle decided for one pod.

    Exactly one of these holds: `node` is set (placed); `failures` is not empty (a policy failed
    and the pod's attempt is lost); else the pod is unschedulable for the reasons in `diagnosis`.
    `ignored` are failures that cost the pod nothing more: of score policies that the profile chose
    to live with, and of preemption.

    Placed: `reserves` are the plugins of the runtime that have to promise something to the pod,
    with their states. Not placed: `eviction` says whom to evict where, so that the pod fits later;
    `actions` are what other plugins do about it; `nominated_node` is what to promise to the pod
    ("" takes a promise back, None leaves it).
    """

    node: str | None
    diagnosis: Diagnosis
    revision: str
    feasible_count: int = 0
    failures: tuple[PolicyFailure, ...] = ()
    ignored: tuple[PolicyFailure, ...] = ()
    reserves: tuple[tuple[RuntimePlugin, Any], ...] = ()
    eviction: Eviction | None = None
    actions: tuple[Callable[[], Awaitable[None]], ...] = ()
    nominated_node: str | None = None

    @property
    def is_error(self) -> bool:
        """True if a policy failed, so that nothing could be decided."""
        return bool(self.failures)

    def message(self) -> str:
        """The text for the event and the condition of a pod that was not placed."""
        if self.failures:
            return "; ".join(str(failure) for failure in self.failures)
        return self.diagnosis.message()


@dataclass(frozen=True, slots=True)
class PolicyScores:
    """One policy's scores over the feasible nodes, in the order of `Explanation.feasible`.

    `raw` is what the hook answered (None: no opinion on that node), `normalized` is in 0..100,
    `weighted` is normalized times the weight.
    """

    policy: str
    weight: int
    raw: tuple[int | None, ...]
    normalized: tuple[int, ...]
    weighted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with everything that led to it, node by node."""

    decision: Decision
    pre_filter_nodes: tuple[str, ...] | None = None
    rejected: Mapping[str, Status] = field(default_factory=dict)
    feasible: tuple[str, ...] = ()
    scores: tuple[PolicyScores, ...] = ()
    totals: tuple[int, ...] = ()


GroupSource: TypeAlias = Callable[[EnabledPolicy, Pod], PodGroupState | PolicyFailure | None]
"""The group of a pod as a policy sees it."""

Steps: TypeAlias = Generator[Question, Answer, "Explanation"]
"""A decision that may have to ask extenders: what it yields somebody answers."""


class Scheduler:
    """Decides pods under one bundle revision.

    Holds nothing but the memo: a new `Scheduler` over the same evaluator gives the same decisions.
    The snapshot may be another object each time; passing the same one, updated in place, is what
    makes a decision cost only what changed.

    Args:
        bundle: The policies and profiles.
        evaluator: Answers what the memo does not know.
        plugins: The plugins of the runtime by name; those that a profile does not enable are not
            asked.
        has_extenders: `steps` asks extenders; None: if the bundle's configuration has some.
    """

    def __init__(
        self,
        bundle: Bundle,
        evaluator: Evaluator,
        *,
        plugins: Mapping[str, RuntimePlugin] | None = None,
        has_extenders: bool | None = None,
    ) -> None:
        self.bundle = bundle
        # Where a pod's group stands; set by whoever counts them.
        self.groups: GroupSource | None = None
        self.has_extenders = bool(bundle.extenders) if has_extenders is None else has_extenders
        self._profiles = {p.scheduler_name: p for p in bundle.profiles}
        self._plugins = dict(plugins or {})
        self._memo = VerdictMemo(evaluator, [i.policy for i in bundle.program.instances])
        self._normalizer = Normalizer(self._memo)
        self._columns = NodeColumns()
        self._counted = CountedHooks(self._memo)
        self._classes = PodClasses()
        self._classifier = PodClassifier(bundle, self._memo, self._columns)
        self._feasibility = Feasibility(self._memo, self._columns, self._counted, self._classifier)
        self._preemption = Preemption(self._memo, self._feasibility, self._classifier)
        self._decisions = 0

    @property
    def memo(self) -> VerdictMemo:
        """The verdict tables, for metrics."""
        return self._memo

    def profile_of(self, pod: Pod) -> Profile | None:
        """The profile that the pod names, or None: it is not ours."""
        return self._profiles.get(pod.scheduler_name)

    # --- the queue's questions --------------------------------------------------------------

    def queue_key(self, pod: Pod, facts: Snapshot) -> SortKey | PolicyFailure:
        """Where the pod stands in the queue: smaller goes first; equal keys go by arrival.

        Ints sort before strings at the same place, so that any two keys have an order.
        """
        profile = self._profiles.get(pod.scheduler_name)
        enabled = profile.at("queue_key") if profile is not None else ()
        if not enabled:
            return ()
        verdict = self._ask(enabled[0], "queue_key", pod, facts)
        if isinstance(verdict, PolicyFailure):
            return verdict
        return sort_key(verdict)

    def pre_enqueue(self, pod: Pod, facts: Snapshot) -> tuple[str, str] | None:
        """None if the pod may be tried, else the policy that gates it and the reason.

        A policy that fails here gates the pod: what cannot be judged is not let through.
        """
        profile = self._profiles.get(pod.scheduler_name)
        for enabled in profile.at("pre_enqueue") if profile is not None else ():
            verdict = self._ask(enabled, "pre_enqueue", pod, facts)
            if verdict is not None:
                return enabled.policy, str(verdict)
        for plugin in self._plugins_at(profile, "preEnqueue"):
            reason = plugin.pre_enqueue(pod, facts)
            if reason is not None:
                return plugin.name, reason
        return None

    def permit(self, pod: Pod, facts: Snapshot) -> list[tuple[str, Any]]:
        """What each policy that gives leave says of a pod that has a node: (policy, verdict)."""
        profile = self._profiles.get(pod.scheduler_name)
        return [
            (enabled.policy, self._ask(enabled, "permit", pod, facts))
            for enabled in (profile.at("permit") if profile is not None else ())
        ]

    def group_of(self, enabled: EnabledPolicy, pod: Pod, facts: Snapshot) -> Any:
        """The group that the pod is in for this policy: None, `[name, min_count or None]`.

        A `PolicyFailure` if the policy does not know.
        """
        if "group_of" in self.bundle.policies[enabled.policy].hooks:
            return self._classifier.ask(enabled, "group_of", pod, facts)
        group = pod.manifest.spec.scheduling_group
        return None if group is None or not group.pod_group_name else [group.pod_group_name, None]

    def grouping(self) -> dict[str, tuple[EnabledPolicy, ...]]:
        """The policies that look at groups, by the profile's scheduler name."""
        return {
            name: tuple(
                dict.fromkeys(
                    EnabledPolicy(enabled.policy, enabled.instance)
                    for hook in ("queue_key", "pre_enqueue", "permit")
                    for enabled in profile.at(hook)
                    if "group" in self.bundle.policies[enabled.policy].hooks[hook].params
                )
            )
            for name, profile in self._profiles.items()
        }

    def _ask(self, enabled: EnabledPolicy, hook: str, pod: Pod, facts: Snapshot) -> Any:
        """The verdict of a per-pod hook that may want to see the pod's group."""
        group: PodGroupState | None = None
        params = self.bundle.policies[enabled.policy].hooks[hook].params
        if self.groups is not None and "group" in params:
            found = self.groups(enabled, pod)
            if isinstance(found, PolicyFailure):
                return found
            group = found
        return self._classifier.ask(enabled, hook, pod, facts, group)

    def _plugins_at(self, profile: Profile | None, point: str) -> Iterator[RuntimePlugin]:
        """The plugins of the runtime that are enabled at *point*, in order."""
        if profile is not None and self._plugins:
            for name in profile.order.get(point, ()):
                plugin = self._plugins.get(name)
                if plugin is not None:
                    yield plugin

    # --- the cycle --------------------------------------------------------------------------

    def schedule(self, pod: Pod, snapshot: Snapshot, nominator: Nominator = NOBODY) -> Decision:
        """Choose a node for *pod*; *nominator* knows the nodes that are promised to pods.

        Same pod, same snapshot, same bundle: same decision, whatever was decided before. No
        extender is asked: `steps` is for that. Raises `KeyError` if no profile has the pod's
        `schedulerName`.
        """
        return _without_extenders(self.steps(pod, snapshot, nominator)).decision

    def explain(self, pod: Pod, snapshot: Snapshot, nominator: Nominator = NOBODY) -> Explanation:
        """As `schedule`, with the verdict of every node and the scores of every policy."""
        return _without_extenders(self.steps(pod, snapshot, nominator, detailed=True))

    def steps(
        self,
        pod: Pod,
        snapshot: Snapshot,
        nominator: Nominator = NOBODY,
        *,
        detailed: bool = False,
    ) -> Steps:
        """The decision as a generator: yields questions to extenders, returns the explanation."""
        profile = self._profiles[pod.scheduler_name]
        # 1. What no policy can judge: no nodes, or a pod whose amounts cannot be read.
        if snapshot.node_count == 0:
            return self._unschedulable(Diagnosis(0))
        if pod.problems:
            status = Status(Code.UNRESOLVABLE, tuple(pod.problems), POD_SPEC)
            return self._unschedulable(Diagnosis(snapshot.node_count, pre_filter=status))
        # 2. The pod's class, with what its pre-filters said: reject, narrow the nodes, hand on.
        self._housekeep()
        key = self._classifier.key(profile, pod, snapshot)
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classifier.classify(profile, pod, snapshot)
            if pod_class.pre.failure is not None:
                return self._failed(snapshot, (pod_class.pre.failure,))
            if not pod_class.pre_score_failures:  # a failure is asked again by the next pod
                self._classes.put(key, pod_class)
        pre = pod_class.pre
        uses, rejection = self._pre_filter_plugins(profile, pod, snapshot, pre.rejection)
        self._columns.refresh(snapshot)
        if rejection is not None:
            if rejection.code is Code.ERROR:
                return self._failed(snapshot, (pre_filter_failure(rejection),))
            diagnosis = Diagnosis(snapshot.node_count, pre_filter=rejection)
            filters = Filters(pod, profile, pod_class, snapshot)
            codes = np.full(len(snapshot.infos), ABSENT, np.int32)
            present = self._columns.present[: len(codes)]
            codes[present] = self._memo.reasons.intern(rejection)
            return (yield from self._post_filter(filters, codes, uses, diagnosis, None, {}))
        # 3. Filters and scores of what is not counted: bring the class up to the snapshot.
        pod_class.update(snapshot, self._columns.present, self._memo, self._normalizer)
        # 4. The other filters: over counters, of the runtime, with nominated pods, extenders.
        counted_filters, counted_scores, failed_gates = self._counted_hooks(pod_class, snapshot)
        if failed_gates:
            return self._failed(snapshot, failed_gates)
        late: list[CountedHook | RuntimeUse] = [*counted_filters, *uses]
        if uses:
            late.sort(key=lambda use: use.position)
        filters = Filters(
            pod,
            profile,
            pod_class,
            snapshot,
            tuple(late),
            _promised(pod, snapshot, nominator) if len(nominator) else {},
        )
        codes, late_failures = self._feasibility.codes(filters)
        failures = self._filter_failures(pod_class, codes, late_failures, snapshot)
        if failures:
            return self._failed(snapshot, failures)
        is_narrowed = bool(late or filters.nominations)
        promised_slot = self._promised_slot(pod, snapshot, nominator, codes)
        if self.has_extenders:
            answer = yield from self._ask_extenders(pod, codes, snapshot, promised_slot)
            if answer is not None:
                if answer.failure is not None:
                    return self._failed(snapshot, (answer.failure,))
                codes, is_narrowed = self._narrowed(codes, answer, snapshot), True
                if promised_slot is not None and codes[promised_slot] != FITS:
                    promised_slot = None
        rejected = self._rejected_by_name(codes, snapshot) if detailed else {}
        reserves = tuple((use.plugin, use.state) for use in uses)
        if promised_slot is not None and not detailed:
            return Explanation(self._placed(promised_slot, 1, snapshot, reserves=reserves))
        # 5. Totals: normalised, weighed and summed scores of the feasible nodes.
        is_plain = not (
            detailed
            or is_narrowed
            or counted_scores
            or self.has_extenders
            or pod_class.whole_scores
            or pod_class.pre_score_failures
            or pod_class.has_score_failures
        )
        if is_plain:
            highest = int(pod_class.totals.max())
            if highest == INFEASIBLE:
                diagnosis = self._diagnose(codes, snapshot, pod_class)
                return (
                    yield from self._post_filter(filters, codes, uses, diagnosis, None, rejected)
                )
            best = np.flatnonzero(pod_class.totals == highest)
            chosen = self._break_tie(profile, pod, best, snapshot)
            if isinstance(chosen, PolicyFailure):
                return self._failed(snapshot, (chosen,))
            count = int(np.count_nonzero(pod_class.totals != INFEASIBLE))
            return Explanation(self._placed(chosen, count, snapshot))
        feasible = np.flatnonzero(codes == FITS)
        if not len(feasible):
            diagnosis = self._diagnose(codes, snapshot, pod_class)
            return (
                yield from self._post_filter(filters, codes, uses, diagnosis, pre.subset, rejected)
            )
        totals, rows, failed, ignored = self._totals(
            pod_class,
            counted_scores,
            feasible,
            snapshot,
            detailed=detailed,
            can_reuse=not (
                detailed
                or pod_class.has_score_failures
                or (is_narrowed and not pod_class.totals_hold_for_subsets)
            ),
        )
        if failed:
            return self._failed(snapshot, failed)
        for use in uses:
            more = self._score_plugin(use, profile, feasible, snapshot)
            if more is not None:
                totals = totals + np.array(more.weighted, np.int64)
                rows.append(more)
        if self.has_extenders and len(feasible) > 1:
            infos = self._infos(feasible, snapshot)
            extended = yield ExtenderPrioritize(pod, infos)
            assert isinstance(extended, PrioritizeAnswer)
            totals = totals + np.array(extended.totals, np.int64)
            for name, scores in extended.by_extender.items():
                rows.append(PolicyScores(name, 1, scores, scores, scores))
        # 6. The highest total wins; ties go by the pod's uid and the node's name.
        best = feasible[totals == totals.max()]
        chosen = self._break_tie(profile, pod, best, snapshot)
        if isinstance(chosen, PolicyFailure):
            return self._failed(snapshot, (chosen,))
        if promised_slot is not None:
            chosen = promised_slot
        decision = self._placed(chosen, len(feasible), snapshot, ignored, reserves)
        if not detailed:
            return Explanation(decision)
        names = tuple(self._name(slot, snapshot) for slot in feasible.tolist())
        return Explanation(
            decision, pre.subset, rejected, names, tuple(rows), tuple(totals.tolist())
        )

    # --- step 2 -----------------------------------------------------------------------------

    def _pre_filter_plugins(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, rejection: Status | None
    ) -> tuple[list[RuntimeUse], Status | None]:
        """The plugins of the runtime that have something to say, and the pod's rejection.

        *rejection* is that of the policies. The first one in the order that nothing can help with
        ends the questions.
        """
        uses: list[RuntimeUse] = []
        if not self._plugins:
            return uses, rejection
        positions = self._classifier.positions(profile)
        is_final = rejection is not None and rejection.code is Code.UNRESOLVABLE
        for name in profile.order.get("preFilter", ()):
            if is_final and rejection is not None and rejection.plugin == name:
                break
            plugin = self._plugins.get(name)
            if plugin is None:
                continue
            state = plugin.pre_filter(pod, snapshot, profile.arguments.get(name, {}))
            if isinstance(state, Status):
                status = replace(state, plugin=name)
                if status.code in (Code.UNRESOLVABLE, Code.ERROR):
                    return uses, status
                rejection = rejection or status
            elif state is not None:
                uses.append(RuntimeUse(plugin, state, positions.get(name, len(positions))))
        return uses, rejection

    # --- extenders and promises -------------------------------------------------------------

    @staticmethod
    def _promised_slot(
        pod: Pod, snapshot: Snapshot, nominator: Nominator, codes: NDArray[np.int32]
    ) -> int | None:
        """The feasible node that the pod itself was promised: it goes there, without scoring."""
        name = nominator.node_of(pod.uid) or pod.nominated_node_name
        slot = snapshot.slot_of.get(name) if name else None
        return slot if slot is not None and codes[slot] == FITS else None

    def _ask_extenders(
        self,
        pod: Pod,
        codes: NDArray[np.int32],
        snapshot: Snapshot,
        promised_slot: int | None,
    ) -> Generator[Question, Answer, FilterAnswer | None]:
        """What extenders say of the feasible nodes; of the promised one alone, if it passes."""
        if promised_slot is not None:
            infos = self._infos(np.array([promised_slot]), snapshot)
            answer = yield ExtenderFilter(pod, infos)
            assert isinstance(answer, FilterAnswer)
            if answer.failure is None and answer.feasible:
                return answer
        feasible = np.flatnonzero(codes == FITS)
        if not len(feasible):
            return None
        answer = yield ExtenderFilter(pod, self._infos(feasible, snapshot))
        assert isinstance(answer, FilterAnswer)
        return answer

    def _narrowed(
        self, codes: NDArray[np.int32], answer: FilterAnswer, snapshot: Snapshot
    ) -> NDArray[np.int32]:
        """*codes* with what extenders rejected."""
        reasons = self._memo.reasons
        narrowed = codes.copy()
        narrowed[codes == FITS] = reasons.intern(DROPPED)
        for name in answer.feasible:
            narrowed[snapshot.slot_of[name]] = FITS
        for name, status in answer.rejected.items():
            slot = snapshot.slot_of.get(name)
            if slot is not None:
                narrowed[slot] = reasons.intern(status)
        return narrowed

    @staticmethod
    def _infos(slots: NDArray[np.int64], snapshot: Snapshot) -> list[NodeInfo]:
        return [info for slot in slots.tolist() if (info := snapshot.infos[slot]) is not None]

    # --- nowhere to go ----------------------------------------------------------------------

    def _post_filter(
        self,
        filters: Filters,
        codes: NDArray[np.int32],
        uses: Sequence[RuntimeUse],
        diagnosis: Diagnosis,
        subset: tuple[str, ...] | None,
        rejected: Mapping[str, Status],
    ) -> Steps:
        """The outcome of a pod that fits nowhere, with what the post-filters do about it."""
        messages: list[str] = []
        actions: list[Callable[[], Awaitable[None]]] = []
        ignored: tuple[PolicyFailure, ...] = ()
        eviction: Eviction | None = None
        nominated: str | None = None
        states = {use.plugin.name: use.state for use in uses}
        for name in filters.profile.order.get("postFilter", ()):
            if name == PLUGIN:
                eviction, nominated, text, ignored = yield from self._preempt(filters, codes)
                if eviction is not None:
                    messages.clear()
                    break
                messages.append(PREFIX + text)
                continue
            plugin = self._plugins.get(name)
            if plugin is None:
                continue
            state = states.get(name)
            by_name = {} if state is None else self._rejected_by_name(codes, filters.snapshot)
            result = plugin.post_filter(state, filters.pod, by_name, filters.snapshot)
            if result is None:
                continue
            messages.append(result.message)
            if result.action is not None:
                actions.append(result.action)
            if result.is_final:
                break
        diagnosis = replace(diagnosis, post_filter=", ".join(messages))
        decision = Decision(
            None,
            diagnosis,
            self.bundle.revision,
            ignored=ignored,
            eviction=eviction,
            actions=tuple(actions),
            nominated_node=nominated,
        )
        return Explanation(decision, subset, rejected)

    def _preempt(
        self, filters: Filters, codes: NDArray[np.int32]
    ) -> Generator[
        Question,
        Answer,
        tuple[Eviction | None, str | None, str, tuple[PolicyFailure, ...]],
    ]:
        """Whom to evict where, the new promise, or the text that says why it cannot help."""
        found = self._preemption.candidates(filters, codes)
        if found.failure is not None:
            return None, None, str(found.failure), (found.failure,)
        if not found.victims:
            return None, None if found.keeps_nomination else "", found.refusal, ()
        victims = found.victims
        if self.has_extenders:
            answer = yield ExtenderPreempt(filters.pod, victims, filters.snapshot)
            assert isinstance(answer, PreemptAnswer)
            if answer.failure is not None:
                return None, None, str(answer.failure), (answer.failure,)
            victims = answer.victims
            if not victims:
                return None, None, NO_CANDIDATE, ()
        chosen = self._preemption.choose(filters, victims)
        if isinstance(chosen, PolicyFailure):
            return None, None, str(chosen), (chosen,)
        return Eviction(chosen, victims[chosen].pods), chosen, "", ()

    # --- step 4 -----------------------------------------------------------------------------

    def _counted_hooks(
        self, pod_class: PodClass, snapshot: Snapshot
    ) -> tuple[list[CountedHook], list[CountedHook], tuple[PolicyFailure, ...]]:
        """The class's filters and scores over counters that have something to say now."""
        if not (pod_class.counted_filters or pod_class.counted_scores):
            return [], [], ()
        self._counted.counters.refresh(snapshot)
        failures: list[PolicyFailure] = []
        speaking: tuple[list[CountedHook], list[CountedHook]] = ([], [])
        for uses, kept in zip(
            (pod_class.counted_filters, pod_class.counted_scores), speaking, strict=True
        ):
            for use in uses:
                skipped = self._counted.is_skipped(use)
                if isinstance(skipped, PolicyFailure):
                    failures.append(skipped)
                elif not skipped:
                    kept.append(use)
        return *speaking, tuple(failures)

    def _filter_failures(
        self,
        pod_class: PodClass,
        codes: NDArray[np.int32],
        counted: Mapping[int, PolicyFailure],
        snapshot: Snapshot,
    ) -> tuple[PolicyFailure, ...]:
        """The failures that count: of nodes that no earlier filter rejected."""
        if not pod_class.filter_failures and not counted:
            return ()
        found = {
            slot: counted.get(slot) or pod_class.filter_failures[slot]
            for slot in np.flatnonzero(codes == FAILED).tolist()
        }
        return self._report(pod_class, found, snapshot) if found else ()

    def _report(
        self, pod_class: PodClass, failures: Mapping[int, PolicyFailure], snapshot: Snapshot
    ) -> tuple[PolicyFailure, ...]:
        """One failure per (policy, hook), that of the first node by name, so that runs repeat."""
        pod_class.forget()
        chosen: dict[tuple[str, str], PolicyFailure] = {}
        for slot in sorted(failures, key=lambda slot: self._name(slot, snapshot)):
            failure = failures[slot]
            about = failure.about(f"node `{self._name(slot, snapshot)}`")
            chosen.setdefault((failure.policy, failure.hook), about)
        return tuple(chosen.values())

    def _diagnose(
        self, codes: NDArray[np.int32], snapshot: Snapshot, pod_class: PodClass
    ) -> Diagnosis:
        counted = np.bincount(codes[codes > 0], minlength=1)
        reasons = self._memo.reasons
        rejections = {
            reasons.status(code): int(counted[code]) for code in np.flatnonzero(counted).tolist()
        }
        outside = snapshot.node_count - int(counted.sum())
        if pod_class.pre.subset is not None and outside:
            names = pod_class.pre.narrowed_by
            text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(names))}]"
            rejections[Status(Code.UNRESOLVABLE, (text,), names[0])] = outside
        return Diagnosis(snapshot.node_count, rejections=rejections)

    def _rejected_by_name(self, codes: NDArray[np.int32], snapshot: Snapshot) -> dict[str, Status]:
        return {
            self._name(slot, snapshot): self._memo.reasons.status(int(codes[slot]))
            for slot in np.flatnonzero(codes > 0).tolist()
        }

    # --- step 5 -----------------------------------------------------------------------------

    def _totals(
        self,
        pod_class: PodClass,
        counted_scores: Sequence[CountedHook],
        feasible: NDArray[np.int64],
        snapshot: Snapshot,
        *,
        detailed: bool,
        can_reuse: bool,
    ) -> tuple[
        NDArray[np.int64],
        list[PolicyScores],
        tuple[PolicyFailure, ...],
        tuple[PolicyFailure, ...],
    ]:
        """Weighted sums over *feasible*, the rows behind them, and what failed or was ignored.

        The rows are made only if *detailed*. *can_reuse*: the class's totals hold for *feasible*.
        """
        failures: list[PolicyFailure] = list(pod_class.pre_score_failures)
        raws: list[tuple[HookUse | CountedHook, NDArray[np.int64]]] = []
        for vector in () if can_reuse else pod_class.vectors:
            if vector.failures:
                fitting = set(feasible.tolist())
                here = {s: f for s, f in vector.failures.items() if s in fitting}
                if here:
                    failures += self._report(pod_class, here, snapshot)
                    continue
            use = vector.use
            raws.append((use, vector.raw[feasible]))
        for counted in counted_scores:
            answer = self._score_counted(pod_class, counted, feasible, snapshot)
            if isinstance(answer, PolicyFailure):
                failures.append(answer)
            else:
                raws.append((counted, answer))
        for whole in pod_class.whole_scores:
            answer = self._score_all(whole, feasible)
            if isinstance(answer, PolicyFailure):
                failures.append(answer)
            else:
                raws.append((whole, answer))
        totals = pod_class.totals[feasible] if can_reuse else np.zeros(len(feasible), np.int64)
        rows: list[PolicyScores] = []
        for scored, raw in raws:
            enabled = scored.enabled
            normal: NDArray[np.int64] | PolicyFailure
            if scored.normalizes:
                normal = self._normalizer.normalize(
                    enabled.instance, raw, reads_count=scored.reads_count
                )
            else:
                normal = np.where(raw == SCORE_NONE, 0, raw)
            if isinstance(normal, PolicyFailure):
                failures.append(normal)
                pod_class.forget()
                continue
            weighted = normal * enabled.weight
            totals = totals + weighted
            if detailed:
                rows.append(_row(enabled, raw, normal, weighted))
        if failures and self.bundle.runtime.score_failure_policy != "Ignore":
            return totals, rows, tuple(failures), ()
        if detailed:
            order = self._classifier.score_order
            rows.sort(key=lambda row: order[row.policy])
        return totals, rows, (), tuple(failures)

    def _score_counted(
        self,
        pod_class: PodClass,
        use: CountedHook,
        feasible: NDArray[np.int64],
        snapshot: Snapshot,
    ) -> NDArray[np.int64] | PolicyFailure:
        """Raw scores over counters."""
        columns = self._counted.columns(use, self._columns.present[: len(pod_class.codes)])
        if isinstance(columns, PolicyFailure):
            return columns
        raw, failed = self._counted.verdicts(use, columns, feasible)
        if failed:
            return self._report(pod_class, failed, snapshot)[0]
        return raw

    def _score_plugin(
        self, use: RuntimeUse, profile: Profile, feasible: NDArray[np.int64], snapshot: Snapshot
    ) -> PolicyScores | None:
        """The scores of a plugin of the runtime; None if it has no opinion on the pod."""
        name = use.plugin.name
        if name not in profile.order.get("score", ()):
            return None
        raw = use.plugin.score(use.state, self._infos(feasible, snapshot))
        if raw is None:
            return None
        normal = use.plugin.normalize(raw)
        weight = profile.weights.get(name, 1)
        return PolicyScores(
            name, weight, tuple(raw), tuple(normal), tuple(score * weight for score in normal)
        )

    def _score_all(
        self, use: HookUse, feasible: NDArray[np.int64]
    ) -> NDArray[np.int64] | PolicyFailure:
        """One score per feasible node from a hook that sees them all; never reused."""
        nodes = [use.column.values[i] for i in use.column.ids[feasible].tolist()]
        call = Call(use.enabled.instance, use.hook, use.pod, nodes, use.extra)
        verdict = self._memo.evaluate([call])[0][0]
        if isinstance(verdict, PolicyFailure):
            return verdict
        return np.array(verdict, np.int64)

    # --- step 6 -----------------------------------------------------------------------------

    def _break_tie(
        self, profile: Profile, pod: Pod, best: NDArray[np.int64], snapshot: Snapshot
    ) -> int | PolicyFailure:
        """One of the *best* slots: by the profile's `tie_key`, then by hash, then by name."""
        for enabled in profile.at("tie_key"):
            if len(best) == 1:
                break
            use = self._classifier.use(enabled, "tie_key", pod, snapshot, None)
            use.column.refresh(snapshot)
            nodes = [use.column.values[i] for i in use.column.ids[best].tolist()]
            call = Call(enabled.instance, "tie_key", use.pod, nodes, use.extra)
            keys = []
            for verdict in self._memo.evaluate([call])[0]:
                if isinstance(verdict, PolicyFailure):
                    return verdict
                keys.append(sort_key(verdict))
            smallest = min(keys)
            best = best[[key == smallest for key in keys]]
        if len(best) == 1:
            return int(best[0])
        ranks = tie_order(pod.uid, self._columns.name_hashes[best])
        first = best[ranks == ranks.min()].tolist()
        return int(min(first, key=lambda slot: self._name(slot, snapshot)))

    # --- outcomes ---------------------------------------------------------------------------

    def _placed(
        self,
        slot: int,
        feasible_count: int,
        snapshot: Snapshot,
        ignored: tuple[PolicyFailure, ...] = (),
        reserves: tuple[tuple[RuntimePlugin, Any], ...] = (),
    ) -> Decision:
        return Decision(
            self._name(slot, snapshot),
            Diagnosis(snapshot.node_count),
            self.bundle.revision,
            feasible_count,
            ignored=ignored,
            reserves=reserves,
        )

    def _unschedulable(self, diagnosis: Diagnosis) -> Explanation:
        return Explanation(Decision(None, diagnosis, self.bundle.revision))

    def _failed(self, snapshot: Snapshot, failures: tuple[PolicyFailure, ...]) -> Explanation:
        diagnosis = Diagnosis(snapshot.node_count)
        return Explanation(Decision(None, diagnosis, self.bundle.revision, failures=failures))

    @staticmethod
    def _name(slot: int, snapshot: Snapshot) -> str:
        info = snapshot.infos[slot]
        assert info is not None, f"slot {slot} was feasible and holds no node"
        return info.name

    def _housekeep(self) -> None:
        """Keep memory bounded; done between decisions, rarely."""
        self._decisions += 1
        if self._decisions % _HOUSEKEEPING_EVERY:
            return
        for column in self._columns.all():
            self._memo.compact(column)
        self._classes.trim()


def _row(
    enabled: EnabledPolicy,
    raw: NDArray[np.int64],
    normal: NDArray[np.int64],
    weighted: NDArray[np.int64],
) -> PolicyScores:
    return PolicyScores(
        enabled.policy,
        enabled.weight,
        tuple(None if v in (SCORE_NONE, SCORE_FAILED) else v for v in raw.tolist()),
        tuple(normal.tolist()),
        tuple(weighted.tolist()),
    )


def _without_extenders(steps: Steps) -> Explanation:
    """The end of *steps* if no extender has anything to say."""
    try:
        question = next(steps)
        while True:
            question = steps.send(unopposed(question))
    except StopIteration as end:
        explanation: Explanation = end.value
        return explanation


def _promised(pod: Pod, snapshot: Snapshot, nominator: Nominator) -> dict[int, tuple[Pod, ...]]:
    """By slot, the pods that must find room beside *pod*: promised, and no less important."""
    found: dict[int, tuple[Pod, ...]] = {}
    for name in nominator.nodes():
        slot = snapshot.slot_of.get(name)
        pods = nominator.pods_on(name)
        kept = tuple(p for p in pods if p.priority >= pod.priority and p.uid != pod.uid)
        if kept and slot is not None:
            found[slot] = kept
    return found
