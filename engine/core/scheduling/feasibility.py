"""Which nodes a pod fits: every filter of a profile, over all nodes or over one as it might be.

Owns the order of the filters: a node stops at the first that rejects it. There are three kinds:

- filters of policies that see the pod and the node alone: the class vectors of `pod_class`;
- filters over counters (`counted`): their inputs change everywhere when a pod is placed;
- plugins of the runtime (volumes, devices), for pods that they have something to say about.

The same filters answer for a node that has other pods than it really has: that is how nominated
pods are respected and how preemption is tried out.
"""

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.counter_answers import CounterColumn
from engine.core.caching.counters import PodChanges
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.framework.status import Code, Status
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.scheduling.counted import CountedHook, CountedHooks, CounterUse, given_to_group
from engine.core.scheduling.cross_node import OF_DOMAIN, CrossNodeDependencies, WatchedCounter
from engine.core.scheduling.filter_verdicts import HookInputs
from engine.core.scheduling.hook_use import reads_other_nodes
from engine.core.scheduling.node_columns import NodeColumns
from engine.core.scheduling.nominations import NominatedPods
from engine.core.scheduling.pod_class import ABSENT, PodClass
from engine.core.scheduling.pod_classifier import PodClassifier
from engine.core.scheduling.rejections import node_name
from engine.core.scheduling.runtime_plugin import RuntimePlugin, filter_failure
from engine.core.scheduling.runtime_verdicts import RuntimeMemo
from engine.policy.evaluator import PolicyFailure
from engine.policy.verdicts import FAILED, FITS, UNKNOWN, VerdictMemo

OFF: Final = -1


@dataclass(frozen=True, slots=True)
class RuntimeUse:
    """A plugin of the runtime with what its pre-filter made of the pod.

    `position` is its place among the filters, OFF if the profile has it off there.
    """

    plugin: RuntimePlugin
    state: Any
    position: int


@dataclass(slots=True)
class Filters:
    """All filters of one pod in one cycle.

    `per_pod_filters` are those that the class vectors do not hold, by their place in the order:
    what they say may differ between pods of a class, or changes with each placement. `columns`
    keeps the counters of each, once they were needed, `counted` which kinds of pods they count.
    `nominations` are other pods by slot, `nominated_node` is the pod's own ("" for none). `closed`
    are the slots of nodes that no filter is asked about, with the codes of their rejections.
    """

    pod: Pod
    profile: Profile
    pod_class: PodClass
    snapshot: Snapshot
    per_pod_filters: tuple[CountedHook | RuntimeUse, ...] = ()
    nominations: NominatedPods = field(default_factory=NominatedPods)
    nominated_node: str = ""
    closed: Mapping[int, int] = field(default_factory=dict)
    columns: dict[int, list[CounterColumn]] = field(default_factory=dict)
    counted: dict[int, bool] = field(default_factory=dict)


class Feasibility:
    """Asks filters; see the module. One object serves all decisions of a bundle."""

    def __init__(
        self,
        memo: VerdictMemo,
        columns: NodeColumns,
        counted: CountedHooks,
        classifier: PodClassifier,
    ) -> None:
        self._memo = memo
        self._columns = columns
        self._counted = counted
        self._classifier = classifier
        self._later: dict[tuple[str, int], NDArray[np.bool_]] = {}
        self._runtime = RuntimeMemo()

    # --- all nodes --------------------------------------------------------------------------

    def codes(self, filters: Filters) -> tuple[NDArray[np.int32], dict[int, PolicyFailure]]:
        """By slot, FITS or the code of the rejection; with the failures where it is FAILED.

        A node stops at the first filter that rejects it, so a per-pod filter is asked about the
        nodes that nothing before it rejected. A node that other pods are nominated to must fit with
        them on it, too.
        """
        codes = filters.pod_class.codes
        if not (filters.per_pod_filters or filters.nominations or filters.closed):
            return codes, {}
        codes = codes.copy()
        for slot, code in filters.closed.items():
            if codes[slot] != ABSENT:
                codes[slot] = code
        failures: dict[int, PolicyFailure] = {}
        for use in filters.per_pod_filters:
            is_open = self._open_to(codes, use.position, filters, failures)
            if isinstance(use, RuntimeUse):
                slots = np.flatnonzero(is_open)
                failures.update(self._ask_runtime(use, slots, codes, filters.snapshot))
            else:
                failures.update(self._ask_counted(use, is_open, codes, filters))
        if filters.nominations:
            self._respect_nominations(filters, codes, failures)
        return codes, failures

    def _respect_nominations(
        self, filters: Filters, codes: NDArray[np.int32], failures: dict[int, PolicyFailure]
    ) -> None:
        """Reject the nodes that do not fit both this pod and those nominated to them.

        A verdict holds for the class as long as the node and its nominations are the same, unless
        a filter that was asked looks beyond the node, as all per-pod ones do.
        """
        known = filters.pod_class.nominated
        per_pod = tuple(use.position for use in filters.per_pod_filters)
        known.follow(None if reads_other_nodes(filters.pod_class.filters) else per_pod)
        is_narrowed = filters.pod_class.pre.subset is not None
        for slot in known.stale(filters.nominations, filters.snapshot):
            info, pods = filters.snapshot.infos[slot], filters.nominations.get(slot)
            verdict: int | PolicyFailure = FITS
            is_asked = slot not in filters.closed and not (is_narrowed and codes[slot] == ABSENT)
            if info is not None and pods and is_asked:
                verdict, is_late = self._with_pods(filters, info, PodChanges(slot), pods)
                if is_late:
                    known.ask_again(slot)
            if isinstance(verdict, PolicyFailure):
                codes[slot], failures[slot] = FAILED, verdict
                known.ask_again(slot)
                verdict = FITS
            known.codes[slot] = verdict
        rejects = known.codes != FITS
        codes[rejects] = known.codes[rejects]

    def _open_to(
        self,
        codes: NDArray[np.int32],
        position: int,
        filters: Filters,
        failures: Mapping[int, PolicyFailure],
    ) -> NDArray[np.bool_]:
        """By slot: no filter before *position* rejected it, or failed as *failures* say."""
        is_open: NDArray[np.bool_] = codes == FITS
        # Of what rejected so far, only the filters of the class are not taken in their order.
        if filters.pod_class.last_filter > position:
            later = self._is_later(position, filters.profile)
            is_open |= later[np.maximum(codes, 0)]
        if filters.pod_class.filter_failures:
            positions = self._classifier.positions(filters.profile)
            for slot, failure in filters.pod_class.filter_failures.items():
                if codes[slot] == FAILED and slot not in failures:
                    is_open[slot] = positions[failure.policy] > position
        return is_open

    def _is_later(self, position: int, profile: Profile) -> NDArray[np.bool_]:
        """By code: the filter that rejects with it comes after *position*."""
        reasons = self._memo.reasons
        key = (profile.scheduler_name, position)
        known = self._later.get(key)
        if known is None:
            known = np.zeros(1, np.bool_)  # 0 is FITS
        if len(known) < len(reasons):
            positions = self._classifier.positions(profile)
            more = [
                positions.get(reasons.status(code).plugin, -1) > position
                for code in range(len(known), len(reasons))
            ]
            known = self._later[key] = np.concatenate((known, np.array(more, np.bool_)))
        return known

    def _ask_counted(
        self,
        use: CountedHook,
        is_open: NDArray[np.bool_],
        codes: NDArray[np.int32],
        filters: Filters,
    ) -> dict[int, PolicyFailure]:
        columns = self._counter_columns(use, filters)
        if isinstance(columns, PolicyFailure):
            codes[is_open] = FAILED
            return dict.fromkeys(np.flatnonzero(is_open).tolist(), columns)
        return self._counted.reject(use, columns, codes, is_open)

    def _counter_columns(
        self, use: CountedHook, filters: Filters
    ) -> list[CounterColumn] | PolicyFailure:
        known = filters.columns.get(use.position)
        if known is not None:
            return known
        slots = len(filters.pod_class.codes)
        found = self._counted.columns(use, self._columns.present[:slots])
        if not isinstance(found, PolicyFailure):
            filters.columns[use.position] = found
        return found

    def _ask_runtime(
        self,
        use: RuntimeUse,
        slots: NDArray[np.int64],
        codes: NDArray[np.int32],
        snapshot: Snapshot,
    ) -> dict[int, PolicyFailure]:
        failures: dict[int, PolicyFailure] = {}
        only = use.plugin.only_nodes(use.state)
        if only is not None:
            names, said_of_others = only
            of_name = snapshot.slot_of
            is_named = np.isin(slots, [of_name[name] for name in names if name in of_name])
            others = slots[~is_named]
            codes[others] = self._memo.reasons.intern(said_of_others)
            use.plugin.leave_out(use.state, (node_name(s, snapshot) for s in others.tolist()))
            slots = slots[is_named]
        kept = self._runtime.of(use.plugin, use.state, snapshot)
        if kept is not None:
            before = kept.codes[slots]
            is_rejected = before > FITS
            codes[slots[is_rejected]] = before[is_rejected]
            slots = slots[before == UNKNOWN]
        known: dict[int, tuple[Status, int | PolicyFailure]] = {}  # by identity: no hashing
        ask, state = use.plugin.filter, use.state
        # By name, so that the node that fails is the same in every run.
        for slot in sorted(slots.tolist(), key=lambda slot: node_name(slot, snapshot)):
            info = snapshot.infos[slot]
            alike = (
                None if kept is None or info is None else use.plugin.equivalence_key(state, info)
            )
            if kept is not None and alike in kept.by_equivalence:
                kept.codes[slot] = codes[slot] = kept.by_equivalence[alike]
                continue
            status = None if info is None else ask(state, info)
            verdict: int | PolicyFailure = FITS
            if status is not None:
                found = known.get(id(status))
                if found is None:
                    found = known[id(status)] = status, self._verdict_of(use, status)
                verdict = found[1]
            if isinstance(verdict, PolicyFailure):
                codes[slot], failures[slot] = FAILED, verdict
                break  # the attempt, whatever it would say of the others
            if verdict != FITS:
                codes[slot] = verdict
            if kept is not None:
                kept.codes[slot] = verdict
                if alike is not None:
                    kept.by_equivalence[alike] = verdict
        return failures

    def _verdict(self, use: RuntimeUse, info: NodeInfo) -> int | PolicyFailure:
        status = use.plugin.filter(use.state, info)
        return FITS if status is None else self._verdict_of(use, status)

    def _verdict_of(self, use: RuntimeUse, status: Status) -> int | PolicyFailure:
        if status.plugin != use.plugin.name:
            status = replace(status, plugin=use.plugin.name)
        if status.code is Code.ERROR:
            return filter_failure(status)
        return self._memo.reasons.intern(status)

    def inputs(self, filters: Filters) -> HookInputs | None:
        """What the filter was given of each node by `codes`; None unless it is one of a policy."""
        uses = (*filters.pod_class.filters, *filters.per_pod_filters)
        if len(uses) != 1 or isinstance(uses[0], RuntimeUse):
            return None
        use = uses[0]
        if not isinstance(use, CountedHook):
            return HookInputs(use.column.ids, use.column.values.__getitem__)
        columns = self._counter_columns(use, filters)
        if isinstance(columns, PolicyFailure):
            return None
        return HookInputs(use.groups.of_slot, functools.partial(given_to_group, use, columns))

    # --- what pods mean to per-pod filters -----------------------------------------------------

    @staticmethod
    def per_pod_kinds(filters: Filters) -> tuple[Hashable, ...] | None:
        """What pods share for which the per-pod filters say the same of each node; None: nothing.

        `per_pod_codes` has what they say.
        """
        kinds: list[Hashable] = []
        for use in filters.per_pod_filters:
            kind = use.plugin.kind_of(use.state) if isinstance(use, RuntimeUse) else None
            if kind is None:
                return None
            kinds.append(kind)
        return tuple(kinds)

    def per_pod_codes(
        self, filters: Filters, slots: NDArray[np.int64]
    ) -> list[NDArray[np.int32]] | None:
        """By per-pod filter and slot, the verdict about the nodes of *slots* as they are.

        Pods that are not `counted` may come and go without another one, and all pods for what a
        plugin says of a kind. None where that is not so, or if one of the filters fails: each node
        has to be tried then.
        """
        is_open = np.zeros(len(filters.pod_class.codes), np.bool_)
        is_open[slots] = True
        found = []
        for use in filters.per_pod_filters:
            codes = np.full(len(is_open), FITS, np.int32)
            found.append(codes)
            if isinstance(use, RuntimeUse):
                has_kind = use.plugin.kind_of(use.state) is not None
                if not has_kind or self._ask_runtime(use, slots, codes, filters.snapshot):
                    return None
                continue
            if any(f.startswith("feasible") for f in use.fields):
                return None
            projector = use.column.projector
            if projector.is_placed or projector.is_shared:
                return None
            columns = self._counter_columns(use, filters)
            if isinstance(columns, PolicyFailure):
                return None
            if self._counted.reject(use, columns, codes, is_open):
                return None
        return found

    def is_counted(self, filters: Filters, slot: int, pods: Sequence[Pod]) -> bool:
        """True if a per-pod filter counts one of *pods* on the node of *slot*."""
        counters = self._counted.counters
        for pod in pods:
            kind = counters.kind(slot, pod)
            known = None if kind is None else filters.counted.get(kind)
            if known is None:
                known = any(
                    counters.topologies(counter.key, counter.parts, slot, pod)
                    for use in filters.per_pod_filters
                    if not isinstance(use, RuntimeUse)
                    for counter in use.counters
                )
                if kind is not None:
                    filters.counted[kind] = known
            if known:
                return True
        return False

    def cross_node_dependencies(
        self, pods: Iterable[tuple[Filters, Sequence[CounterUse]]]
    ) -> CrossNodeDependencies | None:
        """Those of pods whose pre-filters were given counters; None: any pod may matter."""
        classes: set[PodClass] = set()
        watched: dict[bytes, WatchedCounter] = {}
        for filters, asked in pods:
            classes.add(filters.pod_class)
            for use in asked:
                is_of_domain = not use.counts_nodes
                watched.setdefault(use.key, WatchedCounter(use, False, is_of_domain))
            for hook in filters.per_pod_filters:
                if isinstance(hook, RuntimeUse) or hook.column.projector.is_shared:
                    return None
                for one in hook.counters:
                    known = watched.get(one.key)
                    # A further pod may leave none of the nodes that are counted.
                    of_domain = OF_DOMAIN - {"is_empty"} if one.counts_nodes else OF_DOMAIN
                    is_of_domain = hook.fields <= of_domain and (
                        known is None or known.is_of_domain
                    )
                    watched[one.key] = WatchedCounter(one, True, is_of_domain)
        counters = self._counted.counters
        empty = frozenset(
            one.use.key for one in watched.values() if counters.is_empty(one.use.key, one.use.parts)
        )
        decided_by = (frozenset(classes), frozenset(watched), empty)
        return CrossNodeDependencies(decided_by, tuple(watched.values()), empty, counters)

    # --- one node, as it might be -----------------------------------------------------------

    def at(self, filters: Filters, info: NodeInfo, changes: PodChanges) -> int | PolicyFailure:
        """FITS or the code of the rejection, for the node of *info* after *changes* of its pods.

        *info* already shows the changes. The pod has to fit with the pods that are nominated to
        the node and without them.
        """
        if changes.slot in filters.closed:
            return filters.closed[changes.slot]
        nominated = filters.nominations.get(changes.slot)
        if nominated:
            verdict, _ = self._with_pods(filters, info, changes, nominated)
            if verdict != FITS:
                return verdict
        return self._at(filters, info, changes)[0]

    def _with_pods(
        self, filters: Filters, info: NodeInfo, changes: PodChanges, pods: Sequence[Pod]
    ) -> tuple[int | PolicyFailure, bool]:
        for pod in pods:
            info = info.with_pod(pod)
        more = PodChanges(changes.slot, (*changes.added, *pods), changes.removed)
        return self._at(filters, info, more)

    def _at(
        self, filters: Filters, info: NodeInfo, changes: PodChanges
    ) -> tuple[int | PolicyFailure, bool]:
        """The verdict, and if a per-pod filter was asked for it."""
        # 1. What the filters of the class say, those not known in one round trip.
        uses = filters.pod_class.filters
        tables = []
        wants = []
        for use in uses:
            projection = use.column.id_if(changes.slot, info, filters.snapshot)
            table = use.table(self._memo)
            tables.append((table, projection))
            if table.codes[projection] == UNKNOWN:
                wants.append((table, use.column, np.array([projection], np.intp)))
        if wants:
            self._memo.fill(wants)
        # 2. Everything in its order, up to the first that rejects.
        per_pod = list(filters.per_pod_filters)
        is_late = False
        verdict: int | PolicyFailure
        for use, (table, projection) in zip(uses, tables, strict=True):
            while per_pod and per_pod[0].position < use.position:
                verdict = self._per_pod_at(per_pod.pop(0), filters, info, changes)
                is_late = True
                if verdict != FITS:
                    return verdict, True
            code = int(table.codes[projection])
            if code == FAILED:
                failure = table.failures[projection]
                self._memo.forget_transient(table)
                return failure, is_late
            if code != FITS:
                return code, is_late
        for per_pod_use in per_pod:
            verdict = self._per_pod_at(per_pod_use, filters, info, changes)
            if verdict != FITS:
                return verdict, True
        return FITS, bool(filters.per_pod_filters)

    def _per_pod_at(
        self,
        use: CountedHook | RuntimeUse,
        filters: Filters,
        info: NodeInfo,
        changes: PodChanges,
    ) -> int | PolicyFailure:
        if isinstance(use, RuntimeUse):
            return self._verdict(use, info)
        columns = self._counter_columns(use, filters)
        if isinstance(columns, PolicyFailure):
            return columns
        projection = use.column.id_if(changes.slot, info, filters.snapshot)
        return self._counted.verdict_at(use, columns, changes, info, projection)
