"""The scheduling cycle: one pod, one snapshot, one decision. Pure: no clock, no I/O, no chance.

Owns the order of the steps and what happens when a policy fails. What fits and what is best is the
policies'; how their answers are reused is `policy.verdicts`, `pod_class` and `counted`; what the
hooks are given for a pod is put together by `pod_classifier`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.caching.snapshot import Snapshot
from engine.framework.profile import EnabledPolicy, Profile
from engine.framework.status import Code, Status
from engine.model.pod import Pod
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call, Evaluator, PolicyFailure
from engine.policy.verdicts import FAILED, FITS, SCORE_FAILED, SCORE_NONE, VerdictMemo
from engine.scheduling.counted import CountedHook, CountedHooks
from engine.scheduling.diagnosis import Diagnosis
from engine.scheduling.node_columns import NodeColumns
from engine.scheduling.pod_class import INFEASIBLE, HookUse, PodClass, PodClasses
from engine.scheduling.pod_classifier import PodClassifier
from engine.scheduling.scoring import Normalizer
from engine.scheduling.select_host import tie_order

SortKey = tuple[tuple[int, int | str], ...]

# Decisions between two looks at what memory can be given back.
_HOUSEKEEPING_EVERY: Final = 256

# The plugin name of rejections that no policy made: a pod whose own fields make no sense.
POD_SPEC = "PodSpec"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the cycle decided for one pod.

    Exactly one of these holds: `node` is set (placed); `failures` is not empty (a policy failed
    and the pod's attempt is lost); else the pod is unschedulable for the reasons in `diagnosis`.
    `ignored` are failures of score policies that the profile chose to live with.
    """

    node: str | None
    diagnosis: Diagnosis
    revision: str
    feasible_count: int = 0
    failures: tuple[PolicyFailure, ...] = ()
    ignored: tuple[PolicyFailure, ...] = ()

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


class Scheduler:
    """Decides pods under one bundle revision.

    Holds nothing but the memo: a new `Scheduler` over the same evaluator gives the same decisions.
    The snapshot may be another object each time; passing the same one, updated in place, is what
    makes a decision cost only what changed.
    """

    def __init__(self, bundle: Bundle, evaluator: Evaluator) -> None:
        self.bundle = bundle
        self._profiles = {p.scheduler_name: p for p in bundle.profiles}
        self._memo = VerdictMemo(evaluator, [i.policy for i in bundle.program.instances])
        self._normalizer = Normalizer(self._memo)
        self._columns = NodeColumns()
        self._counted = CountedHooks(self._memo)
        self._classes = PodClasses()
        self._classifier = PodClassifier(bundle, self._memo, self._columns)
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
        verdict = self._classifier.ask(enabled[0], "queue_key", pod, facts)
        if isinstance(verdict, PolicyFailure):
            return verdict
        return sort_key(verdict)

    def pre_enqueue(self, pod: Pod, facts: Snapshot) -> tuple[str, str] | None:
        """None if the pod may be tried, else the policy that gates it and the reason.

        A policy that fails here gates the pod: what cannot be judged is not let through.
        """
        profile = self._profiles.get(pod.scheduler_name)
        for enabled in profile.at("pre_enqueue") if profile is not None else ():
            verdict = self._classifier.ask(enabled, "pre_enqueue", pod, facts)
            if verdict is not None:
                return enabled.policy, str(verdict)
        return None

    # --- the cycle --------------------------------------------------------------------------

    def schedule(self, pod: Pod, snapshot: Snapshot) -> Decision:
        """Choose a node for *pod*.

        Same pod, same snapshot, same bundle: same decision, whatever was decided before. Raises
        `KeyError` if no profile has the pod's `schedulerName`.
        """
        return self._decide(pod, snapshot, detailed=False).decision

    def explain(self, pod: Pod, snapshot: Snapshot) -> Explanation:
        """As `schedule`, with the verdict of every node and the scores of every policy."""
        return self._decide(pod, snapshot, detailed=True)

    def _decide(self, pod: Pod, snapshot: Snapshot, *, detailed: bool) -> Explanation:
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
        if pre.rejection is not None:
            diagnosis = Diagnosis(snapshot.node_count, pre_filter=pre.rejection)
            return self._unschedulable(diagnosis)
        # 3. Filters and scores of what is not counted: bring the class up to the snapshot.
        self._columns.refresh(snapshot)
        pod_class.update(snapshot, self._columns.present, self._memo, self._normalizer)
        # 4. Filters over counters.
        codes = pod_class.codes
        counted_failures: dict[int, PolicyFailure] = {}
        filters, scores, failed_gates = self._counted_hooks(pod_class, snapshot)
        if failed_gates:
            return self._failed(snapshot, failed_gates)
        if filters:
            codes, counted_failures = self._filter_counted(pod_class, filters, profile)
        failures = self._filter_failures(pod_class, codes, counted_failures, snapshot)
        if failures:
            return self._failed(snapshot, failures)
        rejected = self._rejected_by_name(codes, snapshot) if detailed else {}
        # 5. Totals: normalised, weighed and summed scores of the feasible nodes.
        is_plain = not (
            detailed
            or filters
            or scores
            or pod_class.whole_scores
            or pod_class.pre_score_failures
            or pod_class.has_score_failures
        )
        if is_plain:
            highest = int(pod_class.totals.max())
            if highest == INFEASIBLE:
                return self._unschedulable(self._diagnose(codes, snapshot, pod_class))
            best = np.flatnonzero(pod_class.totals == highest)
            chosen = self._break_tie(profile, pod, best, snapshot)
            if isinstance(chosen, PolicyFailure):
                return self._failed(snapshot, (chosen,))
            count = int(np.count_nonzero(pod_class.totals != INFEASIBLE))
            return Explanation(self._placed(chosen, count, snapshot))
        feasible = np.flatnonzero(codes == FITS)
        if not len(feasible):
            diagnosis = self._diagnose(codes, snapshot, pod_class)
            return self._unschedulable(diagnosis, pre.subset, rejected)
        totals, rows, failed, ignored = self._totals(
            pod_class,
            scores,
            feasible,
            snapshot,
            detailed=detailed,
            can_reuse=not (
                detailed
                or pod_class.has_score_failures
                or (filters and not pod_class.totals_hold_for_subsets)
            ),
        )
        if failed:
            return self._failed(snapshot, failed)
        # 6. The highest total wins; ties go by the pod's uid and the node's name.
        best = feasible[totals == totals.max()]
        chosen = self._break_tie(profile, pod, best, snapshot)
        if isinstance(chosen, PolicyFailure):
            return self._failed(snapshot, (chosen,))
        decision = self._placed(chosen, len(feasible), snapshot, ignored)
        if not detailed:
            return Explanation(decision)
        names = tuple(self._name(slot, snapshot) for slot in feasible.tolist())
        return Explanation(
            decision, pre.subset, rejected, names, tuple(rows), tuple(totals.tolist())
        )

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

    def _filter_counted(
        self, pod_class: PodClass, filters: Sequence[CountedHook], profile: Profile
    ) -> tuple[NDArray[np.int32], dict[int, PolicyFailure]]:
        """The class's codes with the filters over counters added, each at its place in the order.

        A node stops at the first filter that rejects it, so a filter over counters is asked about
        the nodes that nothing before it rejected.
        """
        codes = pod_class.codes.copy()
        failures: dict[int, PolicyFailure] = {}
        for use in filters:
            open_to = codes == FITS
            later = self._rejected_later(codes, use.position, profile)
            if later is not None:
                open_to |= later
            for slot, failure in pod_class.filter_failures.items():
                if self._position(failure.policy, profile) > use.position:
                    open_to[slot] = True
            slots = np.flatnonzero(open_to)
            columns = self._counted.columns(use, self._columns.present[: len(codes)])
            if isinstance(columns, PolicyFailure):
                failures.update(dict.fromkeys(slots.tolist(), columns))
                codes[slots] = FAILED
                continue
            verdicts, failed = self._counted.verdicts(use, columns, slots)
            against = verdicts != FITS
            codes[slots[against]] = verdicts[against]
            failures.update(failed)
        return codes, failures

    def _position(self, policy: str, profile: Profile) -> int:
        return self._classifier.positions(profile)[policy]

    def _rejected_later(
        self, codes: NDArray[np.int32], position: int, profile: Profile
    ) -> NDArray[np.bool_] | None:
        """The nodes that a filter after *position* rejected; None if there is none."""
        positions = self._classifier.positions(profile)
        if all(place <= position for place in positions.values()):
            return None
        reasons = self._memo.reasons
        is_later = np.array(
            [
                code > 0 and positions.get(reasons.status(code).plugin, -1) > position
                for code in range(len(reasons))
            ]
        )
        later: NDArray[np.bool_] = (codes > 0) & is_later[np.maximum(codes, 0)]
        return later

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
    ) -> Decision:
        return Decision(
            self._name(slot, snapshot),
            Diagnosis(snapshot.node_count),
            self.bundle.revision,
            feasible_count,
            ignored=ignored,
        )

    def _unschedulable(
        self,
        diagnosis: Diagnosis,
        subset: tuple[str, ...] | None = None,
        rejected: Mapping[str, Status] | None = None,
    ) -> Explanation:
        decision = Decision(None, diagnosis, self.bundle.revision)
        return Explanation(decision, subset, rejected or {})

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


def sort_key(parts: Sequence[int | str]) -> SortKey:
    """A key of ints and strings in which any two have an order: ints before strings."""
    return tuple((1, part) if isinstance(part, str) else (0, part) for part in parts)
