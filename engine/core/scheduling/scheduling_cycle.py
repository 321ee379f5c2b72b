"""The scheduling cycle: one pod, one snapshot, one decision. Pure: no clock, no I/O, no randomness.

Owns the order of the steps and what happens when a policy fails. What fits and what is best is the
policies'; how their answers are reused is `policy.verdicts`, `pod_class` and `counted`; what the
hooks are given for a pod is put together by `pod_classifier`.

    class -> pre-filter -> filter -> choose: totals -> highest -> tie
                 \\            \\-> post-filter, if no node is feasible
                  \\-> post-filter
"""

import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.behaviors import Behaviors
from engine.core.framework.profile import Profile
from engine.core.framework.reasons import CLUSTER_READS
from engine.core.framework.status import Code, Status
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.places import Gate
from engine.core.scheduling.choice import Choice, UncachedScores, choice_of
from engine.core.scheduling.counted import CountedHook, CountedHooks
from engine.core.scheduling.cross_node import CrossNodeDependencies
from engine.core.scheduling.decision import Decision, Explanation, NodeCodes, PolicyScores, Steps
from engine.core.scheduling.dependencies import Dependencies
from engine.core.scheduling.diagnosis import Diagnosis
from engine.core.scheduling.extender_merging import is_interested
from engine.core.scheduling.extenders import (
    DROPPED,
    Answer,
    ExtenderFilter,
    ExtenderPrioritize,
    FilterAnswer,
    NodeVictims,
    PrioritizeAnswer,
    Question,
    unopposed,
)
from engine.core.scheduling.feasibility import OFF, Feasibility, Filters, RuntimeUse
from engine.core.scheduling.filter_verdicts import FilterVerdicts
from engine.core.scheduling.hook_use import reads_other_nodes
from engine.core.scheduling.node_columns import NodeColumns
from engine.core.scheduling.nominations import Nominations
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.pod_class import ABSENT, INFEASIBLE, PodClass
from engine.core.scheduling.pod_classes import PodClasses, read_bytes
from engine.core.scheduling.pod_classifier import PodClassifier
from engine.core.scheduling.pod_fields import MOST_ANSWERS, MOST_BYTES
from engine.core.scheduling.pod_hooks import PodHooks
from engine.core.scheduling.post_filter import PostFilters
from engine.core.scheduling.preemption import Candidates, Preemption
from engine.core.scheduling.rejections import diagnose, filter_failures, node_name
from engine.core.scheduling.runtime_plugin import RuntimePlugin, plugins_at, pre_filter_failure
from engine.core.scheduling.scoring import Normalizer
from engine.core.scheduling.select_host import highest, tie_order
from engine.core.scheduling.tie_keys import TieKeys
from engine.core.scheduling.totals import Totals
from engine.core.scheduling.tree_hooks import TreeHooks
from engine.core.scheduling.unread_objects import closed_nodes, held_by
from engine.core.scheduling.victims import PLUGIN
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.policy.projections import NodeColumn
from engine.policy.verdicts import FITS, VerdictMemo

#: No pod is nominated to a node.
NO_NOMINATIONS: Final = Nominator()

# Decisions between two looks at what memory can be given back.
_HOUSEKEEPING_EVERY: Final = 256
# Bytes of a pod that is not kept as the example of its class: its memory is the cluster's, and goes
# with it.
_LARGE_EXAMPLE: Final = 32 << 10

# The plugin name of rejections that no policy made: a pod whose own fields make no sense.
POD_SPEC = "PodSpec"

_PreFilter: TypeAlias = tuple[RuntimePlugin, Mapping[str, Any], int]
"""A plugin of the runtime with its arguments, and its place in the order of the filters."""


@dataclass(frozen=True, slots=True)
class _Filtered:
    """What the filters of one cycle said.

    Attributes:
        codes: By slot, FITS or the code of the rejection.
        failures: What fails the attempt; the rest does not count then.
        is_narrowed: The class alone would find more nodes feasible.
        nominated_slot: The slot of the node that the pod is nominated to, if that is feasible.
    """

    codes: NDArray[np.int32]
    failures: tuple[PolicyFailure, ...] = ()
    is_narrowed: bool = False
    nominated_slot: int | None = None


class Scheduler:
    """Decides pods under one bundle revision.

    Holds nothing but the memo: a new `Scheduler` over the same evaluator gives the same decisions.
    The snapshot may be another object each time; passing the same one, updated in place, is what
    makes a decision cost only what changed.

    Args:
        bundle: The policies and profiles.
        evaluator: Answers what the memo does not know.
        plugins: The plugins of the runtime by name; those that a profile does not enable are not
            asked. None: all of them, for decisions that are not carried out.
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
        #: Keep with a decision what it was made by; for those that are asked about it later.
        self.keeps_choices = False
        self.has_extenders = bool(bundle.extenders) if has_extenders is None else has_extenders
        self._profiles = {p.scheduler_name: p for p in bundle.profiles}
        self._node_blind = frozenset(
            policy.name for policy in bundle.policies.values() if policy.is_node_blind
        )
        self._plugins = make_plugins() if plugins is None else dict(plugins)
        # What `_plugins_before` says, by its arguments.
        self._pre_filters: dict[tuple[str, str | None], list[_PreFilter]] = {}
        self._evaluator = evaluator
        self._nominations = Nominations()
        self._decisions = 0
        self._read_bytes = 0
        self._behaves: Behaviors | None = None
        self._units: Callable[[], Sequence[DisruptionUnit]] = list
        self._begin()
        #: What is asked about a pod alone.
        self.hooks = PodHooks(bundle, self._classifier, self._plugins)
        #: What decisions depend on.
        self.dependencies = Dependencies(bundle, self.hooks)

    def _begin(self) -> None:
        """Start with nothing remembered."""
        bundle = self.bundle
        # Everything that is remembered hangs on these objects, and they refer to each other by
        # number and identity: they are forgotten together or not at all.
        self._memo = VerdictMemo(self._evaluator, [i.policy for i in bundle.program.instances])
        self._normalizer = Normalizer(self._memo)
        self._columns = NodeColumns()
        self._counted = CountedHooks(self._memo)
        self._classes = PodClasses()
        self._classifier = PodClassifier(bundle, self._memo, self._columns, self._counted.counters)
        self._feasibility = Feasibility(self._memo, self._columns, self._counted, self._classifier)
        self._preemption = Preemption(
            self._memo,
            self._columns,
            self._feasibility,
            self._classifier,
            self._units,
        )
        self._post_filters = PostFilters(self._memo, self._preemption)
        self._totals = Totals(
            self._memo,
            self._columns,
            self._counted,
            self._normalizer,
            score_order=self._classifier.score_order,
            ignores_failures=bundle.runtime.score_failure_policy == "Ignore",
        )
        self._tie_keys = TieKeys(self._memo)
        #: What is asked about queues; None if there are none.
        self.tree = self._tree_hooks(bundle)

    def _tree_hooks(self, bundle: Bundle) -> TreeHooks | None:
        tree = bundle.queue_tree
        if tree is None:
            return None
        queue_of = bundle.policies[tree.policy].hooks.get("queue_of")
        reads = () if queue_of is None else queue_of.pod
        return TreeHooks(tree, reads, self._memo, self._classifier)

    @property
    def memo(self) -> VerdictMemo:
        """The verdict tables, for metrics."""
        return self._memo

    def reuse_from(self, other: "Scheduler", unchanged: Mapping[int, int]) -> None:
        """Begin with what *other* knows: of nodes and pods, and what its policies said of them.

        Only policies that are new or changed are asked again; those with the same text and
        arguments would say the same. Only for a scheduler that has decided nothing; costs a few
        copies, where finding it out again takes a second for 5,000 nodes and 30,000 pods.

        Args:
            other: Goes on as it is.
            unchanged: What `memo_reuse.unchanged_instances` says of the two programs.
        """
        # The columns first: tables are found by the identity of a column, and their entries by its
        # ids. Classes are not taken over: they are made again from the tables, with few questions.
        columns = self._reuse_from(other._columns, other._counted)
        self._memo.reuse_from(other._memo, unchanged, columns)
        self._normalizer.reuse_from(other._normalizer, unchanged)
        self._counted.reuse_from(other._counted, unchanged)

    def _reuse_from(self, columns: NodeColumns, counted: CountedHooks) -> dict[int, NodeColumn]:
        read = {
            frozenset(reads.node)
            for policy in self.bundle.policies.values()
            for reads in policy.hooks.values()
        }
        self._counted.counters.reuse_from(counted.counters)
        return self._columns.reuse_from(columns, read)

    def recent_pods(self, most: int) -> list[Pod]:
        """A pod of each of the *most* pod classes that were decided last, the latest first."""
        return self._classes.examples(most)

    def use_plugins(self, plugins: Mapping[str, RuntimePlugin]) -> None:
        """Ask *plugins* from the next decision on: those that carry out what is decided."""
        self._plugins = self.hooks.plugins = dict(plugins)
        self._pre_filters.clear()

    def use_units(self, units: Callable[[], Sequence[DisruptionUnit]]) -> None:
        """Evict the groups that *units* gives as a whole or not at all."""
        self._units = self._preemption.units = units

    def profile_of(self, pod: Pod) -> Profile | None:
        """The profile that the pod names, or None: it is not ours."""
        return self._profiles.get(pod.scheduler_name)

    # --- what a trial asks ------------------------------------------------------------------

    def tie_failures(
        self, pod: Pod, names: Sequence[str], snapshot: Snapshot
    ) -> list[PolicyFailure]:
        """What fails if *pod* could go to any of the nodes *names*, which are equally good."""
        slots = np.array([snapshot.slot_of[name] for name in names], np.int64)
        failures = []
        for enabled in self._profiles[pod.scheduler_name].at("tie_key") if names else ():
            use = self._classifier.use(enabled, "tie_key", pod, snapshot, None)
            self._columns.refresh(snapshot)  # its column may be new
            answer = self._tie_keys.first(use, use.column.ids[slots])
            if isinstance(answer, PolicyFailure):
                failures.append(answer)
        return failures

    def first_of_equals(
        self, pod: Pod, names: Sequence[str], snapshot: Snapshot
    ) -> tuple[str, ...] | PolicyFailure:
        """Those of the nodes *names*, all equally good for *pod*, of which one is taken by hash."""
        slots = np.array([snapshot.slot_of[name] for name in names], np.int64)
        best = self._by_tie_keys(self._profiles[pod.scheduler_name], pod, slots, snapshot)
        if isinstance(best, PolicyFailure):
            return best
        return tuple(node_name(slot, snapshot) for slot in best.tolist())

    def preemption_failures(
        self, profile: Profile, victims: Mapping[str, NodeVictims], snapshot: Snapshot
    ) -> list[PolicyFailure]:
        """What fails if these were the *victims*, by node, among which a pod may choose."""
        return self._preemption.failures(profile, victims, snapshot)

    def kept(
        self, profile: Profile, pods: Sequence[Pod], snapshot: Snapshot
    ) -> list[Pod] | PolicyFailure:
        """Those of the placed *pods* that *profile* never evicts."""
        return self._preemption.kept(profile, pods, snapshot)

    # --- the cycle --------------------------------------------------------------------------

    def schedule(
        self,
        pod: Pod,
        snapshot: Snapshot,
        nominator: Nominator = NO_NOMINATIONS,
        *,
        has_post_filters: bool = True,
    ) -> Decision:
        """Choose a node for *pod*; *nominator* knows the nodes that pods are nominated to.

        Same pod, same snapshot, same bundle: same decision, whatever was decided before. No
        extender is asked: `steps` is for that. Raises `KeyError` if no profile has the pod's
        `schedulerName`.
        """
        steps = self.steps(pod, snapshot, nominator, has_post_filters=has_post_filters)
        return _without_extenders(steps).decision

    def fits(self, pod: Pod, name: str, snapshot: Snapshot, nominator: Nominator) -> bool:
        """True if *pod* passes every filter on the node *name*; no extender is asked."""
        # All nodes, though one is asked about: the class knows most of them already, and the next
        # question about a pod of it is answered from the same vectors.
        slot = snapshot.slot_of.get(name)
        filters = self._filters_of(pod, self._profiles[pod.scheduler_name], snapshot, nominator)
        if slot is None or not isinstance(filters, Filters):
            return False
        codes, failures = self._feasibility.codes(filters)
        return not filter_failures(filters.pod_class, codes, failures, snapshot) and bool(
            codes[slot] == FITS
        )

    def cross_node_dependencies(
        self, pods: Iterable[Pod], snapshot: Snapshot, nominator: Nominator
    ) -> CrossNodeDependencies | None:
        """What decides about *pods*, each on its node, besides these nodes; None: any pod may."""
        found = []
        for pod in pods:
            profile = self._profiles[pod.scheduler_name]
            filters = self._filters_of(pod, profile, snapshot, nominator)
            if not isinstance(filters, Filters) or reads_other_nodes(filters.pod_class.filters):
                return None
            found.append((filters, self._classifier.asked_before_nodes(profile, pod, snapshot)))
        return self._feasibility.cross_node_dependencies(found)

    def verdicts(
        self, pod: Pod, snapshot: Snapshot, nominator: Nominator, profile: Profile
    ) -> FilterVerdicts:
        """What the filters of *profile* say of every node; those of a part of the pod's profile.

        Verdicts are taken from the memo, so one policy after the other costs little. A profile that
        is a part of another one needs a `scheduler_name` of its own: classes go by it.
        """
        filters = self._filters_of(pod, profile, snapshot, nominator)
        if isinstance(filters, Status):
            return FilterVerdicts(pre_filter=filters)
        if isinstance(filters, PolicyFailure):
            return FilterVerdicts(failures=(filters,))
        codes, failed = self._feasibility.codes(filters)
        failures = filter_failures(filters.pod_class, codes, failed, snapshot)
        return FilterVerdicts(
            codes=codes,
            statuses=self._memo.reasons.status,
            narrowed_by=filters.pod_class.pre.narrowed_by,
            failures=failures,
            inputs=self._feasibility.inputs(filters),
        )

    def gate(self, pod: Pod, gate: Gate, snapshot: Snapshot) -> Gate:
        """*gate* of *pod*, with the reason that it depends on what cannot be read, if it does."""
        return self.dependencies.gate(self._profiles[pod.scheduler_name], pod, gate, snapshot)

    def missing_for_preemption(self, pod: Pod, snapshot: Snapshot) -> Status | None:
        """Why no pods can be evicted for *pod* while some kinds of objects are unknown."""
        profile = self._profiles[pod.scheduler_name]
        return self.dependencies.missing_for_preemption(profile, snapshot)

    def candidates(self, pod: Pod, snapshot: Snapshot, nominator: Nominator) -> Candidates | None:
        """Where evicting pods would help *pod*, or why nowhere; None if it is not preemption's."""
        profile = self._profiles[pod.scheduler_name]
        if PLUGIN not in profile.order.get("postFilter", ()):
            return None
        filters = self._filters_of(pod, profile, snapshot, nominator)
        if not isinstance(filters, Filters):
            return None
        codes, failures = self._feasibility.codes(filters)
        return None if failures else self._preemption.candidates(filters, codes)

    def _filters_of(
        self, pod: Pod, profile: Profile, snapshot: Snapshot, nominator: Nominator
    ) -> Filters | Status | PolicyFailure:
        """All filters of *pod*, up to date; or the rejection or failure of a pre-filter."""
        pod_class = self._class_of(profile, pod, snapshot, nominator)
        if pod_class.pre.failure is not None:
            return pod_class.pre.failure
        uses, rejection = self._pre_filter_plugins(profile, pod, snapshot, pod_class.pre.rejection)
        if rejection is not None:
            is_error = rejection.code is Code.ERROR
            return pre_filter_failure(rejection) if is_error else rejection
        self._columns.refresh(snapshot)
        pod_class.update(snapshot, self._columns, self._memo, self._normalizer)
        return self._filters(pod, profile, pod_class, snapshot, nominator, uses)

    def explain(
        self, pod: Pod, snapshot: Snapshot, nominator: Nominator = NO_NOMINATIONS
    ) -> Explanation:
        """As `schedule`, with the verdict of every node and the scores of every policy."""
        return _without_extenders(self.steps(pod, snapshot, nominator, detailed=True))

    def steps(
        self,
        pod: Pod,
        snapshot: Snapshot,
        nominator: Nominator = NO_NOMINATIONS,
        *,
        detailed: bool = False,
        has_post_filters: bool = True,
    ) -> Steps:
        """The decision as a generator: yields questions to extenders, returns the explanation.

        *has_post_filters* is False for a pod of a group: what can be done is asked for all of them,
        with the states of plugins in `reserves`.
        """
        explanation = yield from self._steps(
            pod, snapshot, nominator, detailed=detailed, has_post_filters=has_post_filters
        )
        return self._annotated(pod, snapshot, explanation)

    def _steps(
        self,
        pod: Pod,
        snapshot: Snapshot,
        nominator: Nominator,
        *,
        detailed: bool,
        has_post_filters: bool,
    ) -> Steps:
        profile = self._profiles[pod.scheduler_name]
        # 1. What no policy can judge: no nodes, or a pod whose amounts cannot be read.
        if snapshot.node_count == 0:
            # A nomination from before cannot be kept: the node is gone.
            decision = Decision(None, Diagnosis(0), self.bundle.revision, nominated_node="")
            return Explanation(decision)
        if pod.problems:
            status = Status(Code.UNRESOLVABLE, tuple(pod.problems), POD_SPEC)
            return self._unschedulable(Diagnosis(snapshot.node_count, pre_filter=status))
        # 2. The pod's class, with what its pre-filters said: reject, narrow the nodes, hand on.
        # Before the class is looked up, never later: housekeeping may forget classes and renumber
        # projections, which nothing within a decision could survive.
        self._housekeep(snapshot.objects.behaves)
        pod_class = self._class_of(profile, pod, snapshot, nominator)
        objects = snapshot.objects
        # Kinds that cannot be listed now, and objects that cannot be decoded. A policy that reads
        # them would take what is missing for what does not exist, and place a pod where it must not
        # be.
        if objects.unknown or objects.unread:
            held = self.dependencies.missing(profile, pod, pod_class, (), snapshot)
            if held is not None:
                return self._unschedulable(Diagnosis(snapshot.node_count, pre_filter=held))
        if pod_class.pre.failure is not None:
            return self._failed(snapshot, (pod_class.pre.failure,))
        uses, rejection = self._pre_filter_plugins(profile, pod, snapshot, pod_class.pre.rejection)
        if rejection is not None and rejection.plugin == CLUSTER_READS:
            return self._unschedulable(Diagnosis(snapshot.node_count, pre_filter=rejection))
        if objects.unknown:
            held = self._missing_for_plugins(profile, pod, pod_class, uses, rejection, snapshot)
            if held is not None:
                return self._unschedulable(Diagnosis(snapshot.node_count, pre_filter=held))
        # After the class was made, as that may have added columns.
        self._columns.refresh(snapshot)
        filters = self._filters(pod, profile, pod_class, snapshot, nominator, uses)
        if rejection is not None:
            if rejection.code is Code.ERROR:
                return self._failed(snapshot, (pre_filter_failure(rejection),))
            # A member of a group: preempting for it alone would evict pods for a group that may not
            # fit.
            if not has_post_filters:
                diagnosis = _rejected_by(rejection, pod_class, snapshot)
                return self._unschedulable(diagnosis, uses)
            return (yield from self._rejected(filters, uses, rejection))
        # 3. Filter: which nodes are feasible.
        filtered = yield from self._filter(filters)
        # One node that fails, fails the attempt, though others may be feasible: filters fail
        # closed, and a node that is left out because of a bug would look like one without room.
        if filtered.failures:
            return self._failed(snapshot, filtered.failures)
        # 4. Choose: the node that the pod is nominated to, else the one with the highest total.
        chosen = yield from self._choose(filters, filtered, uses, detailed=detailed)
        if chosen is not None:
            return chosen
        # 5. No node is feasible: say why, and let post-filters try to make one so.
        codes = filtered.codes
        diagnosis = diagnose(codes, snapshot, pod_class, self._memo)
        if not has_post_filters:
            return self._unschedulable(diagnosis, uses)
        decision = yield from self._nowhere(filters, codes, uses, diagnosis)
        return self._detailed(decision, filters, codes) if detailed else Explanation(decision)

    def _annotated(self, pod: Pod, snapshot: Snapshot, explanation: Explanation) -> Explanation:
        """*explanation* with the annotations that policies give to a pod that has a node.

        Where two give the same key, the earlier one in the profile's order wins.
        """
        decision = explanation.decision
        enabled = self._profiles[pod.scheduler_name].at("annotate")
        if decision.node is None or not enabled:
            return explanation
        # Asked about the chosen node alone, so by its entry and not through a table of all nodes.
        uses = [self._classifier.use(e, "annotate", pod, snapshot, None) for e in enabled]
        self._columns.refresh(snapshot)  # a column may be new
        slot = snapshot.slot_of[decision.node]
        verdicts = self._memo.node_singles(
            [
                (use.enabled.instance, "annotate", use.pod, use.extra, use.column.value_at(slot))
                for use in uses
            ]
        )
        added: dict[str, str] = {}
        for verdict in verdicts:
            if isinstance(verdict, PolicyFailure):
                return self._failed(snapshot, (verdict.about(f"node `{decision.node}`"),))
            for key, text in verdict or ():
                added.setdefault(key, text)
        annotated = msgspec.structs.replace(decision, annotations=added)
        return msgspec.structs.replace(explanation, decision=annotated)

    # --- step 2: class and pre-filters --------------------------------------------------------

    def _class_of(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, nominator: Nominator
    ) -> PodClass:
        """The class of pods that are alike for policies; one that failed is not kept."""
        if self._classifier.counts(profile):
            self._counted.counters.refresh(snapshot, nominator.term_keys)
        # See the head of `pod_classifier` for the way from the pod to its class.
        alike = self._classifier.key(profile, pod, snapshot)
        prepared, key = self._classifier.prepare(
            alike, profile, pod, snapshot, self._counted.are_empty
        )
        pod_class = self._classes.get(key)
        if pod_class is None:
            self._read_bytes += read_bytes(key)
            pod_class = self._classifier.classify(profile, pod, snapshot, prepared)
            # A failure that is remembered would outlive its cause: the next pod asks again.
            if pod_class.pre.failure is None and not pod_class.pre_score_failures:
                if len(pod.raw or b"") <= _LARGE_EXAMPLE:
                    pod_class.example = pod
                self._classes.put(key, pod_class)
        return pod_class

    def _pre_filter_plugins(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, rejection: Status | None
    ) -> tuple[list[RuntimeUse], Status | None]:
        """The plugins of the runtime that have something to say, and the pod's rejection.

        *rejection* is that of the policies. The first one in the order that nothing can help with
        ends the questions.
        """
        uses: list[RuntimeUse] = []
        is_final = rejection is not None and rejection.code is Code.UNRESOLVABLE
        key = profile.scheduler_name, rejection.plugin if rejection and is_final else None
        asked = self._pre_filters.get(key)
        if asked is None:
            asked = self._pre_filters[key] = self._plugins_before(profile, key[1])
        # Noting what is read costs a wrapper around every look-up: only where some object is
        # unread.
        for plugin, arguments, position in asked:
            if not snapshot.objects.unread:
                state = plugin.pre_filter(pod, snapshot, arguments)
            else:
                with snapshot.objects.noting() as unread:
                    state = plugin.pre_filter(pod, snapshot, arguments)
                if unread:
                    return uses, held_by(plugin.name, unread)
            if isinstance(state, Status):
                status = replace(state, plugin=plugin.name)
                if status.code in (Code.UNRESOLVABLE, Code.ERROR):
                    return uses, status
                # The first in the order counts, as the pod's message names one reason. Later ones
                # are asked all the same: one may say that no eviction can help, and that ends it.
                rejection = rejection or status
            elif state is not None and not (plugin.needs_filter and position == OFF):
                uses.append(RuntimeUse(plugin, state, position))
        return uses, rejection

    def _missing_for_plugins(
        self,
        profile: Profile,
        pod: Pod,
        pod_class: PodClass,
        uses: Sequence[RuntimeUse],
        rejection: Status | None,
        snapshot: Snapshot,
    ) -> Status | None:
        """Why the plugins of the runtime cannot judge *pod* while some kinds are unknown.

        A *rejection* of theirs may have come of what is not known any more, too.
        """
        said = list(uses)
        if rejection is not None and rejection.plugin in self._plugins:
            said.append(RuntimeUse(self._plugins[rejection.plugin], None, OFF))
        return self.dependencies.missing(profile, pod, pod_class, said, snapshot)

    def _plugins_before(self, profile: Profile, name: str | None) -> list[_PreFilter]:
        """The plugins of the runtime among the pre-filters, those before *name* if it is one."""
        positions = self._classifier.positions(profile)
        order = itertools.takewhile(lambda each: each != name, profile.order.get("preFilter", ()))
        return [
            (plugin, profile.arguments.get(each, {}), positions.get(each, OFF))
            for each in order
            if (plugin := self._plugins.get(each)) is not None
        ]

    def _rejected(self, filters: Filters, uses: Sequence[RuntimeUse], rejection: Status) -> Steps:
        """The outcome of a pod that a pre-filter rejected: no node was looked at."""
        snapshot = filters.snapshot
        codes = np.full(len(snapshot.infos), ABSENT, np.int32)
        present = self._columns.present[: len(codes)]
        codes[present] = self._memo.reasons.intern(rejection)
        diagnosis = _rejected_by(rejection, filters.pod_class, snapshot)
        return Explanation((yield from self._nowhere(filters, codes, uses, diagnosis)))

    def _uses_without_scores(
        self, profile: Profile, uses: Sequence[RuntimeUse]
    ) -> list[RuntimeUse]:
        """The plugins that score and have nothing to say about the pod: they show as zeros."""
        speaking = {use.plugin.name for use in uses}
        return [
            RuntimeUse(plugin, None, OFF)
            for plugin in plugins_at(self._plugins, profile, "score")
            if plugin.name not in speaking
        ]

    # --- step 3: filter -----------------------------------------------------------------------

    def _filters(
        self,
        pod: Pod,
        profile: Profile,
        pod_class: PodClass,
        snapshot: Snapshot,
        nominator: Nominator,
        uses: Sequence[RuntimeUse],
    ) -> Filters:
        """All filters of *pod*; those that the class does not keep in the profile's order."""
        per_pod: list[CountedHook | RuntimeUse] = [
            *pod_class.counted_filters,
            *(use for use in uses if use.position != OFF),
        ]
        if uses:
            per_pod.sort(key=lambda use: use.position)
        return Filters(
            pod,
            profile,
            pod_class,
            snapshot,
            tuple(per_pod),
            self._nominations.others(pod, snapshot, nominator),
            # The pod's status may not say yet what the nominator knows.
            nominator.node_of(pod.uid) or pod.nominated_node_name,
            closed=self._closed(pod, profile, pod_class, snapshot, uses),
        )

    def _closed(
        self,
        pod: Pod,
        profile: Profile,
        pod_class: PodClass,
        snapshot: Snapshot,
        uses: Sequence[RuntimeUse],
    ) -> dict[int, int]:
        """The slots of nodes that *pod* cannot go to as a part of what they are is unread."""
        if not snapshot.objects.unread:
            return {}
        kinds = functools.partial(self.dependencies.kinds, profile, pod, pod_class, uses, snapshot)
        return {
            snapshot.slot_of[name]: self._memo.reasons.intern(status)
            for name, status in closed_nodes(snapshot.objects, kinds).items()
            if name in snapshot.slot_of
        }

    def _filter(self, filters: Filters) -> Generator[Question, Answer, _Filtered]:
        """Ask every filter, in this order: of the class, those per pod, and extenders."""
        pod_class, snapshot = filters.pod_class, filters.snapshot
        pod_class.update(snapshot, self._columns, self._memo, self._normalizer)
        codes, failed = self._feasibility.codes(filters)
        failures = filter_failures(pod_class, codes, failed, snapshot)
        if failures:
            return _Filtered(codes, failures)
        is_narrowed = bool(filters.per_pod_filters or filters.nominations or filters.closed)
        nominated = self._nominated_slot(filters, codes)
        # Last, and about feasible nodes only: it is a request over the network with every node in
        # it.
        if self.has_extenders:
            answer = yield from self._ask_extenders(filters.pod, codes, snapshot, nominated)
            if answer is not None:
                if answer.failure is not None:
                    return _Filtered(codes, (answer.failure,))
                codes, is_narrowed = self._narrowed(codes, answer, snapshot), True
                if nominated is not None and codes[nominated] != FITS:
                    nominated = None
        return _Filtered(codes, is_narrowed=is_narrowed, nominated_slot=nominated)

    @staticmethod
    def _nominated_slot(filters: Filters, codes: NDArray[np.int32]) -> int | None:
        """The node that the pod itself is nominated to, if it is feasible."""
        name = filters.nominated_node
        slot = filters.snapshot.slot_of.get(name) if name else None
        return slot if slot is not None and codes[slot] == FITS else None

    def _ask_extenders(
        self,
        pod: Pod,
        codes: NDArray[np.int32],
        snapshot: Snapshot,
        nominated_slot: int | None,
    ) -> Generator[Question, Answer, FilterAnswer | None]:
        """What extenders say of the feasible nodes; of the nominated one alone, if it passes."""
        # As kube-scheduler: a pod that preempted is to get the node that was made free for it. All
        # nodes are asked about only if an extender refuses it.
        if nominated_slot is not None:
            infos = self._infos(np.array([nominated_slot]), snapshot)
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
        # What an extender leaves out without a word is rejected as well: kube-scheduler's contract.
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

    # --- step 4: choose -----------------------------------------------------------------------

    def _choose(
        self,
        filters: Filters,
        filtered: _Filtered,
        uses: Sequence[RuntimeUse],
        *,
        detailed: bool,
    ) -> Generator[Question, Answer, Explanation | None]:
        """The decision for a feasible node; None if there is none."""
        pod_class, snapshot = filters.pod_class, filters.snapshot
        nominated = filtered.nominated_slot
        if nominated is not None and not detailed:
            # As kube-scheduler does: scores of other nodes cannot change anything.
            return Explanation(self._placed(nominated, 1, snapshot, reserves=_reserves(uses)))
        # A range of raw scores is over the feasible nodes. If some of these were lost to filters
        # that the class does not hold, a normalized score may be another one, and so may be the
        # winner.
        class_totals_hold = not pod_class.has_score_failures and (
            pod_class.totals_hold_for_subsets or not filtered.is_narrowed
        )
        # The totals of the class are there; scoring takes a look at every feasible node. So it is
        # done only if something scores that the class does not know, or if every score is to be
        # shown.
        needs_full_scoring = (
            detailed
            or any(_scores(use, filters.profile) for use in uses)
            or self.has_extenders
            or bool(pod_class.whole_scores)
            or not class_totals_hold
        )
        if not needs_full_scoring:
            return self._choose_by_class(filters, filtered, uses)
        return (
            yield from self._choose_by_full_scoring(
                filters, filtered, uses, class_totals_hold=class_totals_hold, detailed=detailed
            )
        )

    def _choose_by_class(
        self, filters: Filters, filtered: _Filtered, uses: Sequence[RuntimeUse]
    ) -> Explanation | None:
        """The choice by the totals that the class keeps and scores over counters."""
        pod, pod_class, snapshot = filters.pod, filters.pod_class, filters.snapshot
        ignored: tuple[PolicyFailure, ...] = ()
        uncached: Sequence[UncachedScores] = ()
        if filtered.is_narrowed or pod_class.counted_scores or pod_class.pre_score_failures:
            is_feasible = filtered.codes == FITS
            count = int(np.count_nonzero(is_feasible))
            if not count:
                return None
            sums = self._totals.by_slot(pod_class, is_feasible, snapshot)
            if sums.failures:
                return self._failed(snapshot, sums.failures)
            totals, ignored, uncached = sums.totals, sums.ignored, sums.uncached
            best = highest(totals)
        else:
            totals = pod_class.totals  # INFEASIBLE says which nodes are not
            best = highest(totals)
            if totals.item(best[0]) == INFEASIBLE:
                return None
            count = int(np.count_nonzero(totals != INFEASIBLE))
        chosen = self._break_tie(filters.profile, pod, best, snapshot)
        if isinstance(chosen, PolicyFailure):
            return self._failed(snapshot, (chosen,))
        choice = None
        if self.keeps_choices:
            keys = filters.profile.at("tie_key")
            choice = choice_of(pod_class, snapshot, totals, best, chosen, uncached, keys)
        return Explanation(self._placed(chosen, count, snapshot, ignored, _reserves(uses), choice))

    def _choose_by_full_scoring(
        self,
        filters: Filters,
        filtered: _Filtered,
        uses: Sequence[RuntimeUse],
        *,
        class_totals_hold: bool,
        detailed: bool,
    ) -> Generator[Question, Answer, Explanation | None]:
        """The choice by the scores of each feasible node, of extenders and plugins too.

        A nominated node is taken whatever the scores say, which are then shown only.
        """
        pod, profile, codes = filters.pod, filters.profile, filtered.codes
        pod_class, snapshot = filters.pod_class, filters.snapshot
        feasible = np.flatnonzero(codes == FITS)
        if not len(feasible):
            return None
        sums = self._totals.of(
            pod_class,
            feasible,
            snapshot,
            can_reuse=class_totals_hold and not detailed,
        )
        # A nominated node is taken without its scores, so none of them can fail it.
        if sums.failures and filtered.nominated_slot is None:
            return self._failed(snapshot, sums.failures)
        ignored = (*sums.ignored, *sums.failures)
        totals, rows = sums.totals, list(sums.rows)
        if detailed:
            asked = [*uses, *self._uses_without_scores(profile, uses)]
        else:
            asked = [use for use in uses if _scores(use, profile)]
        infos = self._infos(feasible, snapshot) if asked or self.has_extenders else []
        for use in asked:
            more = self._totals.of_plugin(use, profile, infos)
            if more is not None:
                totals = totals + more.weighted
                rows.append(more)
        # With one node left there is nothing to rank, and a request is saved.
        if self.has_extenders and len(feasible) > 1:
            extended = yield ExtenderPrioritize(pod, infos)
            assert isinstance(extended, PrioritizeAnswer)
            totals = totals + np.array(extended.totals, np.int64)
            for name, answered in extended.by_extender.items():
                scores = np.array(answered, np.int64)
                rows.append(PolicyScores(name, 1, scores, scores, scores))
        chosen: int | PolicyFailure | None = filtered.nominated_slot
        best = highest(totals)
        if chosen is None:
            chosen = self._break_tie(profile, pod, feasible[best], snapshot)
        if isinstance(chosen, PolicyFailure):
            return self._failed(snapshot, (chosen,))
        choice = None
        if self.keeps_choices and not detailed:
            place = int(np.searchsorted(feasible, chosen))
            kept = pod_class if class_totals_hold else None
            keys = profile.at("tie_key")
            uncached = [
                UncachedScores(row.policy, row.weight, row.raw, row.weighted) for row in rows
            ]
            choice = choice_of(kept, snapshot, totals, best, place, uncached, keys, feasible)
        reserves = _reserves(uses)
        decision = self._placed(chosen, len(feasible), snapshot, ignored, reserves, choice)
        if not detailed:
            return Explanation(decision)
        return self._detailed(decision, filters, codes, rows, totals)

    def _break_tie(
        self, profile: Profile, pod: Pod, best: NDArray[np.int64], snapshot: Snapshot
    ) -> int | PolicyFailure:
        """One of the *best* slots: by the profile's `tie_key`, then by hash, then by name."""
        if profile.at("tie_key"):
            preferred = self._by_tie_keys(profile, pod, best, snapshot)
            if isinstance(preferred, PolicyFailure):
                return preferred
            best = preferred
        if len(best) == 1:
            return int(best[0])
        # Ties are common: empty nodes of one kind all have one total. A hash of pod and node
        # spreads pods over them, and is the same in every run and in every replica; chance would
        # not be.
        hashes = self._columns.name_hashes
        if len(best) != len(hashes):
            hashes = hashes[best]
        ranks = tie_order(pod.uid, hashes)
        first = int(ranks.argmin())
        # Then ranks differ too, and no second look is needed.
        if self._columns.hashes_differ:
            return int(best[first])
        same = best[ranks == ranks[first]]
        return int(min(same.tolist(), key=lambda slot: node_name(slot, snapshot)))

    def _by_tie_keys(
        self, profile: Profile, pod: Pod, best: NDArray[np.int64], snapshot: Snapshot
    ) -> NDArray[np.int64] | PolicyFailure:
        """Those of the *best* slots that the profile's `tie_key` puts first."""
        for enabled in profile.at("tie_key"):
            if len(best) == 1:
                break
            # About the best nodes only, one policy after the other: each may leave a single one.
            use = self._classifier.use(enabled, "tie_key", pod, snapshot, None)
            self._columns.refresh(snapshot)  # its column may be new
            is_first = self._tie_keys.first(use, use.column.ids[best])
            if isinstance(is_first, PolicyFailure):
                return is_first
            best = best[is_first]
        return best

    # --- step 5, and outcomes -----------------------------------------------------------------

    def _placed(
        self,
        slot: int,
        feasible_count: int,
        snapshot: Snapshot,
        ignored: tuple[PolicyFailure, ...] = (),
        reserves: tuple[tuple[RuntimePlugin, Any], ...] = (),
        choice: Choice | None = None,
    ) -> Decision:
        return Decision(
            node_name(slot, snapshot),
            Diagnosis(snapshot.node_count),
            self.bundle.revision,
            feasible_count,
            ignored=ignored,
            reserves=reserves,
            choice=choice,
        )

    def _nowhere(
        self,
        filters: Filters,
        codes: NDArray[np.int32],
        uses: Sequence[RuntimeUse],
        diagnosis: Diagnosis,
    ) -> Generator[Question, Answer, Decision]:
        """The outcome of a pod that fits nowhere, with what the post-filters do about it."""
        done = yield from self._post_filters.run(
            filters,
            codes,
            uses,
            self._plugins,
            has_extenders=self.has_extenders,
            is_extended=self.has_extenders
            and any(
                one.preempt_verb and is_interested(one, filters.pod)
                for one in self.bundle.extenders
            ),
        )
        if done.eviction is not None and filters.snapshot.objects.unknown:
            held = self.dependencies.missing_for_preemption(filters.profile, filters.snapshot)
            if held is not None:
                # Whom it would evict is not known, though it would help.
                return Decision(
                    None,
                    msgspec.structs.replace(diagnosis, held=held, node_blind=self._node_blind),
                    self.bundle.revision,
                    sought_victims=done.sought_victims,
                )
        return Decision(
            None,
            msgspec.structs.replace(
                diagnosis,
                post_filter=done.message,
                kept_by=done.kept_by,
                refused_by=done.refused_by,
                node_blind=self._node_blind,
            ),
            self.bundle.revision,
            ignored=done.failures,
            eviction=done.eviction,
            actions=done.actions,
            nominated_node=done.nominated_node,
            sought_victims=done.sought_victims,
        )

    def _detailed(
        self,
        decision: Decision,
        filters: Filters,
        codes: NDArray[np.int32],
        rows: Sequence[PolicyScores] = (),
        totals: NDArray[np.int64] | None = None,
    ) -> Explanation:
        """*decision* with what led to it."""
        nodes = NodeCodes(codes, filters.snapshot.infos, self._memo.reasons)
        totals = np.empty(0, np.int64) if totals is None else totals
        return Explanation(decision, filters.pod_class.pre.subset, nodes, tuple(rows), totals)

    def _unschedulable(self, diagnosis: Diagnosis, uses: Sequence[RuntimeUse] = ()) -> Explanation:
        diagnosis = msgspec.structs.replace(diagnosis, node_blind=self._node_blind)
        reserves = _reserves(uses)
        return Explanation(Decision(None, diagnosis, self.bundle.revision, reserves=reserves))

    def _failed(self, snapshot: Snapshot, failures: tuple[PolicyFailure, ...]) -> Explanation:
        diagnosis = Diagnosis(snapshot.node_count)
        return Explanation(Decision(None, diagnosis, self.bundle.revision, failures=failures))

    def _housekeep(self, behaves: Behaviors) -> None:
        """Keep memory bounded, and nothing that was decided for another minor of Kubernetes."""
        reasons = self._memo.reasons
        before, self._behaves = self._behaves, behaves
        # Reasons that contain numbers keep being new, and a policy may make them of any length.
        # What is kept of a class, in all memos, takes twenty times what policies read of its pods,
        # and the creator of a pod decides how much that is: counting classes bounds nothing.
        if (
            (before is not behaves and before is not None)
            or len(reasons) > MOST_ANSWERS
            or reasons.characters > MOST_BYTES
            or self._read_bytes > MOST_BYTES
        ):
            self._start_over()
        self._decisions += 1
        if self._decisions % _HOUSEKEEPING_EVERY:
            return
        for column in self._columns.all():
            self._memo.compact(column)
        self._classes.trim()

    def _start_over(self) -> None:
        """Forget all verdicts, and all that holds codes of rejections, which are numbered again."""
        memo, columns, counted = self._memo, self._columns, self._counted
        self._read_bytes = 0
        self._begin()
        self.hooks.classifier = self._classifier
        self._reuse_from(columns, counted)
        self._memo.continue_counts(memo)


def _rejected_by(rejection: Status, pod_class: PodClass, snapshot: Snapshot) -> Diagnosis:
    return Diagnosis(
        snapshot.node_count, pre_filter=rejection, narrowed_by=pod_class.pre.narrowed_by
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


def _scores(use: RuntimeUse, profile: Profile) -> bool:
    """True if a plugin may prefer some nodes for the pod."""
    is_enabled = use.plugin.name in profile.order.get("score", ())
    return is_enabled and use.plugin.has_scores(use.state)


def _reserves(uses: Sequence[RuntimeUse]) -> tuple[tuple[RuntimePlugin, Any], ...]:
    """The plugins that reserve something for a pod that is placed, with their states."""
    return tuple((use.plugin, use.state) for use in uses)
