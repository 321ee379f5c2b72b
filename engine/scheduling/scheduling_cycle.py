"""The scheduling cycle: one pod, one snapshot, one decision. Pure: no clock, no I/O, no chance.

Owns the order of the steps and what happens when a policy fails. What fits and what is best is the
policies'; how their answers are reused is `policy.verdicts` and `pod_class`.
"""

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
from engine.policy.analysis import Reads
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call, Evaluator, PolicyFailure
from engine.policy.projections import Projector
from engine.policy.verdicts import FITS, SCORE_NONE, VerdictMemo
from engine.scheduling.diagnosis import Diagnosis
from engine.scheduling.node_columns import NodeColumns
from engine.scheduling.pod_class import HookUse, PodClass, PodClasses
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


@dataclass(frozen=True, slots=True)
class _PreFilter:
    """What the pre-filters said about a pod class.

    `rejection` ends the attempt. `subset` limits the nodes (None: all), as the policies in
    `narrowed_by` asked; the filters of `skipped` policies do not run; `states` holds what each
    policy hands to its other hooks, as JSON.
    """

    rejection: Status | None = None
    subset: tuple[str, ...] | None = None
    narrowed_by: tuple[str, ...] = ()
    skipped: frozenset[str] = frozenset()
    states: Mapping[str, bytes] = field(default_factory=dict)
    failure: PolicyFailure | None = None


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
        self._classes = PodClasses()
        self._projectors: dict[tuple[str, str, str], Projector] = {}
        self._class_projectors: dict[str, Projector] = {}
        self._cluster_readers: dict[str, bool] = {}
        self._decisions = 0
        for profile in bundle.profiles:
            for enabled in (*profile.at("filter"), *profile.at("score")):
                for hook in ("filter", "score"):
                    if hook in bundle.policies[enabled.policy].hooks:
                        self._columns.column(self._reads(enabled, hook).node)

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
        verdict = self._ask_pod(enabled[0], "queue_key", pod, facts)
        if isinstance(verdict, PolicyFailure):
            return verdict
        return sort_key(verdict)

    def pre_enqueue(self, pod: Pod, facts: Snapshot) -> tuple[str, str] | None:
        """None if the pod may be tried, else the policy that gates it and the reason.

        A policy that fails here gates the pod: what cannot be judged is not let through.
        """
        profile = self._profiles.get(pod.scheduler_name)
        for enabled in profile.at("pre_enqueue") if profile is not None else ():
            verdict = self._ask_pod(enabled, "pre_enqueue", pod, facts)
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
        # 2. Pre-filters: reject, narrow the nodes, hand state on.
        pre = self._pre_filter(profile, pod, snapshot)
        if pre.failure is not None:
            return self._failed(snapshot, (pre.failure,))
        if pre.rejection is not None:
            return self._unschedulable(
                Diagnosis(snapshot.node_count, pre_filter=pre.rejection), pre.subset
            )
        # 3. Filters and raw scores: bring the class's vectors up to the snapshot.
        self._housekeep()
        self._columns.refresh(snapshot)
        pod_class = self._pod_class(profile, pod, snapshot, pre)
        pod_class.update(snapshot, self._columns.present, self._memo)
        codes = pod_class.codes[: len(snapshot.infos)]
        if pod_class.filter_failures:
            failures = self._report(pod_class, pod_class.filter_failures, snapshot)
            return self._failed(snapshot, failures)
        feasible = np.flatnonzero(codes == FITS)
        rejected = self._rejected_by_name(codes, snapshot) if detailed else {}
        if not len(feasible):
            diagnosis = self._diagnose(codes, snapshot, pre)
            return self._unschedulable(diagnosis, pre.subset, rejected)
        # 4. Scores: normalise, weigh and sum; one feasible node needs none.
        if len(feasible) == 1 and not detailed:
            return Explanation(self._placed(int(feasible[0]), 1, snapshot))
        totals, rows, failed, ignored = self._totals(
            profile, pod, snapshot, pod_class, feasible, detailed=detailed
        )
        if failed:
            return self._failed(snapshot, failed)
        # 5. The highest total wins; ties go by the pod's uid and the node's name.
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

    # --- step 2 -----------------------------------------------------------------------------

    def _pre_filter(self, profile: Profile, pod: Pod, snapshot: Snapshot) -> _PreFilter:
        enabled = profile.at("pre_filter")
        if not enabled:
            return _PreFilter()
        verdicts = self._memo.singles(
            [self._question(e, "pre_filter", pod, snapshot) for e in enabled]
        )
        rejection: Status | None = None
        subset: set[str] | None = None
        narrowed: list[str] = []
        skipped: set[str] = set()
        states: dict[str, bytes] = {}
        for e, verdict in zip(enabled, verdicts, strict=True):
            if isinstance(verdict, PolicyFailure):
                return _PreFilter(failure=verdict)
            if verdict is None:
                continue
            kind, *rest = verdict
            if kind == "skip":
                skipped.add(e.policy)
            elif kind == "state":
                states[e.policy] = msgspec.json.encode(rest[0])
            elif kind == "only":
                narrowed.append(e.policy)
                names = set(rest[0])
                subset = names if subset is None else subset & names
                if len(rest) > 1 and rest[1] is not None:
                    states[e.policy] = msgspec.json.encode(rest[1])
            elif kind == "reject":
                code = Code.UNRESOLVABLE if rest[0] == "u" else Code.UNSCHEDULABLE
                status = Status(code, tuple(rest[1]), e.policy)
                if code is Code.UNRESOLVABLE:
                    return _PreFilter(status)
                # Later pre-filters still run: one of them may say that nothing can help.
                rejection = rejection or status
        if rejection is not None:
            return _PreFilter(rejection)
        if subset is not None and not subset:
            text = (
                f"node(s) didn't satisfy plugin {narrowed[0]}"
                if len(narrowed) == 1
                else f"node(s) didn't satisfy plugin(s) [{' '.join(narrowed)}] simultaneously"
            )
            return _PreFilter(Status(Code.UNRESOLVABLE, (text,), narrowed[0]))
        return _PreFilter(
            None,
            None if subset is None else tuple(sorted(subset)),
            tuple(narrowed),
            frozenset(skipped),
            states,
        )

    def _pre_score(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, pre: _PreFilter
    ) -> dict[str, Any]:
        """The verdict of each pre-score by policy; None where there is nothing to say.

        Asked before the nodes are looked at: a pre-score sees no nodes, so the answer is the same,
        and it decides what the score hooks are given.
        """
        enabled = profile.at("pre_score")
        verdicts = self._memo.singles(
            [
                self._question(e, "pre_score", pod, snapshot, pre.states.get(e.policy))
                for e in enabled
            ]
        )
        return {e.policy: verdict for e, verdict in zip(enabled, verdicts, strict=True)}

    # --- step 3 -----------------------------------------------------------------------------

    def _pod_class(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, pre: _PreFilter
    ) -> PodClass:
        """The class of *pod*: found by everything that its hooks are given, or made."""
        opinions = self._pre_score(profile, pod, snapshot, pre)
        key = (
            profile.scheduler_name,
            self._class_projector(profile).project(pod, snapshot),
            snapshot.node_count if self._reads_cluster(profile) else 0,
            pre.subset,
            tuple(sorted(pre.states.items())),
        )
        found = self._classes.get(key)
        if found is not None:
            return found
        states = dict(pre.states)
        silent: dict[str, PolicyFailure | None] = {}
        for policy, verdict in opinions.items():
            if isinstance(verdict, PolicyFailure):
                silent[policy] = verdict
            elif verdict is not None and verdict[0] == "skip":
                silent[policy] = None
            elif verdict is not None:
                states[policy] = msgspec.json.encode(verdict[1])
        made = PodClass(
            filters=[
                self._use(e, "filter", pod, snapshot, pre.states)
                for e in profile.at("filter")
                if e.policy not in pre.skipped
            ],
            scores=[
                self._use(e, "score", pod, snapshot, states)
                for e in profile.at("score")
                if e.policy not in silent
            ],
            whole_scores=[e for e in profile.at("score_all") if e.policy not in silent],
            states=states,
            subset=pre.subset,
            pre_score_failures=[f for f in silent.values() if f is not None],
        )
        if not made.pre_score_failures:  # a failure is asked again by the next pod
            self._classes.put(key, made)
        return made

    def _use(
        self,
        enabled: EnabledPolicy,
        hook: str,
        pod: Pod,
        snapshot: Snapshot,
        states: Mapping[str, bytes],
    ) -> HookUse:
        reads = self._reads(enabled, hook)
        return HookUse(
            enabled,
            hook,
            self._columns.column(reads.node),
            self._projector(enabled, hook, "pod").project(pod, snapshot),
            self._extra(enabled, hook, snapshot, states.get(enabled.policy)),
        )

    def _report(
        self, pod_class: PodClass, failures: Mapping[int, PolicyFailure], snapshot: Snapshot
    ) -> tuple[PolicyFailure, ...]:
        """One failure per (policy, hook), that of the first node by name, so that runs repeat."""
        pod_class.forget_failures()
        chosen: dict[tuple[str, str], PolicyFailure] = {}
        for slot in sorted(failures, key=lambda slot: self._name(slot, snapshot)):
            failure = failures[slot]
            chosen.setdefault((failure.policy, failure.hook), failure)
        return tuple(chosen.values())

    def _diagnose(self, codes: NDArray[np.int32], snapshot: Snapshot, pre: _PreFilter) -> Diagnosis:
        counted = np.bincount(codes[codes > 0], minlength=1)
        reasons = self._memo.reasons
        rejections = {
            reasons.status(code): int(counted[code]) for code in np.flatnonzero(counted).tolist()
        }
        if pre.subset is not None:
            outside = snapshot.node_count - int(counted.sum())
            if outside:
                rejections[self._outside(pre)] = outside
        return Diagnosis(snapshot.node_count, rejections=rejections)

    @staticmethod
    def _outside(pre: _PreFilter) -> Status:
        text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(pre.narrowed_by))}]"
        return Status(Code.UNRESOLVABLE, (text,), pre.narrowed_by[0])

    def _rejected_by_name(self, codes: NDArray[np.int32], snapshot: Snapshot) -> dict[str, Status]:
        return {
            self._name(slot, snapshot): self._memo.reasons.status(int(codes[slot]))
            for slot in np.flatnonzero(codes > 0).tolist()
        }

    # --- step 4 -----------------------------------------------------------------------------

    def _totals(
        self,
        profile: Profile,
        pod: Pod,
        snapshot: Snapshot,
        pod_class: PodClass,
        feasible: NDArray[np.int64],
        *,
        detailed: bool,
    ) -> tuple[
        NDArray[np.int64],
        list[PolicyScores],
        tuple[PolicyFailure, ...],
        tuple[PolicyFailure, ...],
    ]:
        """Weighted sums over *feasible*, the rows behind them, and what failed."""
        totals = np.zeros(len(feasible), np.int64)
        rows: list[PolicyScores] = []
        failures: list[PolicyFailure] = list(pod_class.pre_score_failures)
        raws: list[tuple[EnabledPolicy, NDArray[np.int64]]] = []
        for k, use in enumerate(pod_class.scores):
            failed = pod_class.score_failures[k]
            if failed:
                here = set(feasible.tolist()) & failed.keys()
                if here:
                    failures += self._report(
                        pod_class, {slot: failed[slot] for slot in here}, snapshot
                    )
                    continue
            raws.append((use.enabled, pod_class.raw[k][feasible]))
        for enabled in pod_class.whole_scores:
            answer = self._score_all(enabled, pod, snapshot, pod_class, feasible)
            if isinstance(answer, PolicyFailure):
                failures.append(answer)
            else:
                raws.append((enabled, answer))
        for enabled, raw in raws:
            normal: NDArray[np.int64] | PolicyFailure
            if "normalize" in self.bundle.policies[enabled.policy].hooks:
                normal = self._normalizer.normalize(enabled.instance, raw)
            else:
                normal = np.where(raw == SCORE_NONE, 0, raw)
            if isinstance(normal, PolicyFailure):
                failures.append(normal)
                continue
            weighted = normal * enabled.weight
            totals += weighted
            if detailed:
                rows.append(
                    PolicyScores(
                        enabled.policy,
                        enabled.weight,
                        tuple(None if v == SCORE_NONE else v for v in raw.tolist()),
                        tuple(normal.tolist()),
                        tuple(weighted.tolist()),
                    )
                )
        if failures and self.bundle.runtime.score_failure_policy != "Ignore":
            return totals, rows, tuple(failures), ()
        return totals, rows, (), tuple(failures)

    def _score_all(
        self,
        enabled: EnabledPolicy,
        pod: Pod,
        snapshot: Snapshot,
        pod_class: PodClass,
        feasible: NDArray[np.int64],
    ) -> NDArray[np.int64] | PolicyFailure:
        """One score per feasible node from a hook that sees them all; never reused."""
        column = self._columns.column(self._reads(enabled, "score_all").node)
        column.refresh(snapshot)
        call = Call(
            enabled.instance,
            "score_all",
            self._projector(enabled, "score_all", "pod").project(pod, snapshot),
            [column.values[i] for i in column.ids[feasible].tolist()],
            self._extra(enabled, "score_all", snapshot, pod_class.states.get(enabled.policy)),
        )
        verdicts = self._memo.evaluate([call])[0]
        for verdict in verdicts:
            if isinstance(verdict, PolicyFailure):
                return verdict
        return np.array(verdicts, np.int64)

    # --- step 5 -----------------------------------------------------------------------------

    def _break_tie(
        self, profile: Profile, pod: Pod, best: NDArray[np.int64], snapshot: Snapshot
    ) -> int | PolicyFailure:
        """One of the *best* slots: by the profile's `tie_key`, then by hash, then by name."""
        candidates: Sequence[int] = best.tolist()
        for enabled in profile.at("tie_key") if len(candidates) > 1 else ():
            column = self._columns.column(self._reads(enabled, "tie_key").node)
            column.refresh(snapshot)
            call = Call(
                enabled.instance,
                "tie_key",
                self._projector(enabled, "tie_key", "pod").project(pod, snapshot),
                [column.values[i] for i in column.ids[best].tolist()],
                b"{}",
            )
            keys = []
            for verdict in self._memo.evaluate([call])[0]:
                if isinstance(verdict, PolicyFailure):
                    return verdict
                keys.append(sort_key(verdict))
            smallest = min(keys)
            candidates = [c for c, key in zip(candidates, keys, strict=True) if key == smallest]
            best = np.array(candidates, np.int64)
        if len(candidates) == 1:
            return candidates[0]
        ranks = tie_order(pod.uid, self._columns.name_hashes[best])
        first = best[ranks == ranks.min()].tolist()
        return min(first, key=lambda slot: self._name(slot, snapshot))

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
        return Explanation(
            Decision(None, Diagnosis(snapshot.node_count), self.bundle.revision, failures=failures)
        )

    # --- what hooks are given ---------------------------------------------------------------

    def _reads(self, enabled: EnabledPolicy, hook: str) -> Reads:
        return self.bundle.policies[enabled.policy].hooks[hook]

    def _projector(self, enabled: EnabledPolicy, hook: str, view: str) -> Projector:
        key = (enabled.policy, hook, view)
        projector = self._projectors.get(key)
        if projector is None:
            paths = getattr(self._reads(enabled, hook), view)
            projector = self._projectors[key] = Projector(view, paths)
        return projector

    def _class_projector(self, profile: Profile) -> Projector:
        """Everything that any per-node hook of the profile reads of a pod."""
        projector = self._class_projectors.get(profile.scheduler_name)
        if projector is None:
            paths: set[str] = set()
            for hook in ("pre_score", "filter", "score", "score_all"):
                for enabled in profile.at(hook):
                    paths |= self._reads(enabled, hook).pod
            projector = self._class_projectors[profile.scheduler_name] = Projector("pod", paths)
        return projector

    def _reads_cluster(self, profile: Profile) -> bool:
        known = self._cluster_readers.get(profile.scheduler_name)
        if known is None:
            known = self._cluster_readers[profile.scheduler_name] = any(
                "cluster" in self._reads(enabled, hook).params
                for hook in ("pre_score", "filter", "score", "score_all")
                for enabled in profile.at(hook)
            )
        return known

    def _extra(
        self, enabled: EnabledPolicy, hook: str, facts: Snapshot, state: bytes | None
    ) -> bytes:
        """The JSON of the parameters beside pod and node that the hook names."""
        params = self._reads(enabled, hook).params
        parts = []
        if "state" in params:
            parts.append(b'"state":' + (state or b"null"))
        if "cluster" in params:
            cluster = self._projector(enabled, hook, "cluster").project(facts, facts)
            parts.append(b'"cluster":' + cluster)
        return b"{" + b",".join(parts) + b"}"

    def _question(
        self,
        enabled: EnabledPolicy,
        hook: str,
        pod: Pod,
        facts: Snapshot,
        state: bytes | None = None,
    ) -> tuple[int, str, bytes, bytes]:
        return (
            enabled.instance,
            hook,
            self._projector(enabled, hook, "pod").project(pod, facts),
            self._extra(enabled, hook, facts, state),
        )

    def _ask_pod(self, enabled: EnabledPolicy, hook: str, pod: Pod, facts: Snapshot) -> Any:
        return self._memo.single(*self._question(enabled, hook, pod, facts))

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


def sort_key(parts: Sequence[int | str]) -> SortKey:
    """A key of ints and strings in which any two have an order: ints before strings."""
    return tuple((1, part) if isinstance(part, str) else (0, part) for part in parts)
