"""The total score of every feasible node: normalised, weighted and summed.

Owns the sum over the four kinds of scores: of policies that see the pod and the node alone (kept in
the class), over counters, over all nodes at once, and of plugins of the runtime.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.model.node_info import NodeInfo
from engine.core.scheduling.choice import UncachedScores
from engine.core.scheduling.counted import CountedHook, CountedHooks
from engine.core.scheduling.decision import PolicyScores
from engine.core.scheduling.feasibility import RuntimeUse
from engine.core.scheduling.hook_use import HookUse
from engine.core.scheduling.node_columns import NodeColumns
from engine.core.scheduling.node_groups import Groups
from engine.core.scheduling.pod_class import INFEASIBLE, PodClass
from engine.core.scheduling.rejections import report
from engine.core.scheduling.scoring import Normalizer
from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.verdicts import SCORE_NONE, VerdictMemo


@dataclass(frozen=True, slots=True)
class Sums:
    """Weighted sums of scores.

    Attributes:
        totals: By feasible node, or by slot.
        rows: The scores behind them by policy, if they are by feasible node.
        uncached: Those that are not the class's own, if the sums are by slot.
        failures: What fails the attempt: the totals are not to be used.
        ignored: Failures that count as no opinion.
    """

    totals: NDArray[np.int64]
    rows: tuple[PolicyScores, ...] = ()
    failures: tuple[PolicyFailure, ...] = ()
    ignored: tuple[PolicyFailure, ...] = ()
    uncached: Sequence[UncachedScores] = ()


class Totals:
    """Sums scores up; one object serves all decisions of a bundle.

    Args:
        score_order: The place of each policy among the scores, for what is shown.
        ignores_failures: A score that fails counts as no opinion instead of failing the attempt.
    """

    def __init__(
        self,
        memo: VerdictMemo,
        columns: NodeColumns,
        counted: CountedHooks,
        normalizer: Normalizer,
        *,
        score_order: Mapping[str, int],
        ignores_failures: bool,
    ) -> None:
        self._memo = memo
        self._columns = columns
        self._counted = counted
        self._normalizer = normalizer
        self._score_order = score_order
        self._ignores_failures = ignores_failures

    def of(
        self,
        pod_class: PodClass,
        feasible: NDArray[np.int64],
        snapshot: Snapshot,
        *,
        can_reuse: bool,
    ) -> Sums:
        """The sums over *feasible*, in that order, with their rows.

        *can_reuse*: the class's totals hold for *feasible*; its own scores make no rows.
        """
        failures: list[PolicyFailure] = list(pod_class.pre_score_failures)
        raws: list[tuple[HookUse | CountedHook, NDArray[np.int64]]] = []
        totals = pod_class.totals[feasible] if can_reuse else np.zeros(len(feasible), np.int64)
        for vector in () if can_reuse else pod_class.vectors:
            if vector.failures:
                fitting = set(feasible.tolist())
                here = {s: f for s, f in vector.failures.items() if s in fitting}
                if here:
                    failures += report(pod_class, here, snapshot)
                    continue
            use = vector.use
            raws.append((use, vector.raw[feasible]))
        is_feasible = np.zeros(len(pod_class.codes), np.bool_)
        is_feasible[feasible] = True
        for counted in pod_class.counted_scores:
            groups = self._score_counted(pod_class, counted, is_feasible, snapshot)
            if isinstance(groups, PolicyFailure):
                failures.append(groups)
            else:
                raws.append((counted, groups.codes[groups.of_slot[feasible]]))
        for whole in pod_class.whole_scores:
            answer = self._score_all(whole, feasible)
            if isinstance(answer, PolicyFailure):
                failures.append(answer)
            else:
                raws.append((whole, answer))
        rows: list[PolicyScores] = []
        for scored, raw in raws:
            enabled = scored.enabled
            normal = self._normal(scored, raw)
            if isinstance(normal, PolicyFailure):
                failures.append(normal)
                pod_class.forget()
                continue
            weighted = normal * enabled.weight
            totals = totals + weighted
            rows.append(PolicyScores(enabled.policy, enabled.weight, raw, normal, weighted))
        order = self._score_order
        rows.sort(key=lambda row: order[row.policy])
        return self._sums(totals, failures, rows, ())

    def by_slot(
        self, pod_class: PodClass, is_feasible: NDArray[np.bool_], snapshot: Snapshot
    ) -> Sums:
        """The sums for every slot, INFEASIBLE where it is; only for a class whose totals hold.

        Scores over counters are normalised and weighted by group, which are far fewer than nodes.
        """
        failures: list[PolicyFailure] = list(pod_class.pre_score_failures)
        uncached: list[UncachedScores] = []
        totals = pod_class.totals
        for counted in pod_class.counted_scores:
            groups = self._score_counted(pod_class, counted, is_feasible, snapshot)
            if isinstance(groups, PolicyFailure):
                failures.append(groups)
                continue
            weighted = self._weighted_by_group(counted, groups, groups.nodes_in(is_feasible))
            if isinstance(weighted, PolicyFailure):
                failures.append(weighted)
                pod_class.forget()
            else:
                totals = totals + weighted.take(groups.of_slot)
                by = counted.enabled
                uncached.append(
                    UncachedScores(by.policy, by.weight, groups.codes, weighted, groups.of_slot)
                )
        if not is_feasible.all():
            totals = np.where(is_feasible, totals, INFEASIBLE)
        return self._sums(totals, failures, [], uncached)

    def _sums(
        self,
        totals: NDArray[np.int64],
        failures: Sequence[PolicyFailure],
        rows: Sequence[PolicyScores],
        uncached: Sequence[UncachedScores],
    ) -> Sums:
        if self._ignores_failures:
            return Sums(totals, tuple(rows), ignored=tuple(failures), uncached=uncached)
        return Sums(totals, tuple(rows), failures=tuple(failures), uncached=uncached)

    def _score_counted(
        self,
        pod_class: PodClass,
        use: CountedHook,
        is_feasible: NDArray[np.bool_],
        snapshot: Snapshot,
    ) -> Groups | PolicyFailure:
        """The groups of nodes with their raw scores over counters."""
        columns = self._counted.columns(use, self._columns.present[: len(pod_class.codes)])
        if isinstance(columns, PolicyFailure):
            return columns
        groups, failed = self._counted.raw_scores(use, columns, is_feasible)
        if failed:
            return report(pod_class, failed, snapshot)[0]
        return groups

    def _weighted_by_group(
        self, use: CountedHook, groups: Groups, nodes_of: NDArray[np.int64]
    ) -> NDArray[np.int64] | PolicyFailure:
        """The weighted score of each group; *nodes_of* are its feasible nodes.

        Groups without any are not in the range.
        """
        there = nodes_of.nonzero()[0]
        scores = groups.codes[there]
        count = int(nodes_of[there][scores != SCORE_NONE].sum()) if use.reads_count else 0
        normal = self._normal(use, scores, count)
        if isinstance(normal, PolicyFailure):
            return normal
        weighted = np.zeros(groups.count, np.int64)
        weighted[there] = normal * use.enabled.weight
        return weighted

    def _normal(
        self, use: HookUse | CountedHook, raw: NDArray[np.int64], count: int | None = None
    ) -> NDArray[np.int64] | PolicyFailure:
        """Raw scores as they count; *count* is how many nodes have one, if not one each."""
        if not use.normalizes:
            return np.where(raw == SCORE_NONE, 0, raw)
        return self._normalizer.normalize(
            use.enabled.instance, raw, reads_count=use.reads_count, count=count
        )

    def of_plugin(
        self, use: RuntimeUse, profile: Profile, infos: Sequence[NodeInfo]
    ) -> PolicyScores | None:
        """The scores of a plugin of the runtime; None if it has no opinion on the pod."""
        name = use.plugin.name
        if name not in profile.order.get("score", ()):
            return None
        raw = use.plugin.score(use.state, infos)
        if raw is None:
            return None
        normal = use.plugin.normalize(raw)
        weight = profile.weights.get(name, 1)
        normals = np.array(normal, np.int64)
        return PolicyScores(name, weight, np.array(raw, np.int64), normals, normals * weight)

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
