"""The victims of a node: the fewest and least important pods to evict so that another one fits.

Owns kube-scheduler's SelectVictimsOnNode: take every less important pod away, then reprieve one
after the other while the pod still fits. Which pods matter more is the hook `victim_key`; those of
which it says None stay where they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.caching.counters import PodChanges
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.framework.status import Code, Status
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.extenders import NodeVictims
from engine.core.scheduling.feasibility import Feasibility, Filters
from engine.core.scheduling.placed_pods import ProjectionCache, ResourceUse, is_about_pod_alone
from engine.core.scheduling.pod_classifier import PodClassifier
from engine.core.scheduling.pod_fields import MOST_ANSWERS
from engine.core.scheduling.select_host import SortKey, sort_key
from engine.core.scheduling.trial_patterns import Shape, TrialPatterns
from engine.core.scheduling.unread_objects import Protection
from engine.policy.evaluator import PolicyFailure, first_reported
from engine.policy.projections import Projector
from engine.policy.verdicts import FITS, VerdictMemo

#: The plugin's name, in the configuration and in statuses.
PLUGIN: Final = "DefaultPreemption"
NO_VICTIMS: Final = Status(
    Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",), PLUGIN
)

#: Said of a node where the pod would fit if pods went that `victim_key` keeps; the plugin of the
#: status is its policy.
ONLY_KEPT: Final = "node(s) would fit only without pods that are never evicted"


@dataclass(slots=True)
class _Node:
    """A node and its possible victims: of lower priority, *removed*, without those *kept*.

    `protected` are pods that a budget may cover which cannot be read.

    `orders`, one for each that is removed, are None until asked for. `shape` and `holds`,
    one for each as well, are what the node's pattern goes by; None if it has none.
    """

    slot: int
    info: NodeInfo
    removed: list[Pod]
    kept: Sequence[Pod] = ()
    protected: Sequence[Pod] = ()
    orders: Sequence[SortKey] | None = None
    shape: Shape | None = None
    holds: list[int] | None = None

    def protect(self, protection: Protection, units: Mapping[str, DisruptionUnit]) -> None:
        """Keep the pods that *protection* covers, each with all of its unit."""
        unit_of = {pod.uid: units[pod.uid].pods for pod in self.removed if pod.uid in units}
        self.protected = [
            pod
            for pod in self.removed
            if any(protection.covers(one) for one in unit_of.get(pod.uid, (pod,)))
        ]
        if self.protected:
            uids = {pod.uid for pod in self.protected}
            self.removed = [pod for pod in self.removed if pod.uid not in uids]

    def keep(self, orders: Sequence[SortKey | None]) -> None:
        """Keep the pods whose order is None."""
        self.orders = [order for order in orders if order is not None]
        if len(self.orders) < len(orders):
            pairs = list(zip(self.removed, orders, strict=True))
            self.kept = [pod for pod, order in pairs if order is None]
            self.removed = [pod for pod, order in pairs if order is not None]


@dataclass(slots=True)
class _Bundle:
    """Pods that go or stay together: those *here*, on the node, and all of them."""

    order: tuple[Any, ...]
    here: list[Pod]
    pods: tuple[Pod, ...]


class VictimSelector:
    """Finds the victims of nodes; one object serves all decisions of a bundle."""

    def __init__(
        self, memo: VerdictMemo, feasibility: Feasibility, classifier: PodClassifier
    ) -> None:
        self._memo = memo
        self._feasibility = feasibility
        self._classifier = classifier
        self._resource_use = ResourceUse()
        self._texts: dict[frozenset[str], ProjectionCache] = {}
        self._keys: dict[tuple[int, bytes], SortKey | None] = {}

    def holds_on(self, profile: Profile) -> bool:
        """True if the order of victims stays the same as long as the pods do."""
        enabled = last_enabled(profile, "victim_key")
        if enabled is None:
            return True
        return is_about_pod_alone(self._classifier.projector(enabled, "victim_key", "pod").paths)

    def failures(
        self, profile: Profile, pods: Iterable[Pod], facts: Snapshot
    ) -> list[PolicyFailure]:
        """What fails of `victim_key` about *pods*; for trials."""
        enabled = last_enabled(profile, "victim_key")
        if enabled is None:
            return []
        texts = self.texts(self._classifier.projector(enabled, "victim_key", "pod"))
        distinct = dict.fromkeys(texts.of(pod, facts) for pod in pods)
        questions = [(enabled.instance, "victim_key", text, b"{}") for text in distinct]
        return [one for one in self._memo.singles(questions) if isinstance(one, PolicyFailure)]

    def kept(
        self, profile: Profile, pods: Sequence[Pod], facts: Snapshot
    ) -> list[Pod] | PolicyFailure:
        """Those of *pods* that are never evicted, or not now."""
        protection = Protection.of(facts.objects)
        enabled = last_enabled(profile, "victim_key")
        if enabled is None or not self._classifier.keeps_pods(enabled):
            return [pod for pod in pods if protection.covers(pod)]
        (orders,) = self._orders(enabled, facts, [pods])
        if isinstance(orders, PolicyFailure):
            return orders
        return [
            pod
            for pod, order in zip(pods, orders, strict=True)
            if order is None or protection.covers(pod)
        ]

    def texts(self, projector: Projector) -> ProjectionCache:
        """What hooks with the reads of *projector* are shown of placed pods."""
        known = self._texts.get(projector.paths)
        if known is None:
            known = self._texts[projector.paths] = ProjectionCache(projector)
        return known

    def select(
        self,
        filters: Filters,
        slots: Sequence[int],
        budgets: Budgets,
        patterns: TrialPatterns | None,
        units: Mapping[str, DisruptionUnit],
    ) -> list[NodeVictims | Status | PolicyFailure]:
        """For each of *slots*, the pods to evict, most important first; or why not.

        No pods, where an extender rejected a node on which the filters accept the pod. The first
        failure is the last answer. *patterns* are those of the pod's class and priority.
        """
        enabled = last_enabled(filters.profile, "victim_key")
        nodes = [_node(filters, slot, units) for slot in slots]
        failed: dict[int, PolicyFailure] = {}
        # 1. Pods that are never evicted stay where they are in all that follows.
        protection = Protection.of(filters.snapshot.objects)
        if protection:
            for node in nodes:
                node.protect(protection, units)
        if enabled is not None and self._classifier.keeps_pods(enabled):
            failed = self._ask(enabled, filters, nodes)
        # 2. Does the pod fit at all once every other less important pod is gone?
        answers: list[NodeVictims | Status | PolicyFailure] = []
        hopeful: dict[int, _Node] = {}
        for place, node in enumerate(nodes):
            found = failed.get(place) or self._without_all(filters, node, patterns, protection)
            if found is None:
                hopeful[place] = node
                found = NO_VICTIMS  # for now
            answers.append(found)
            if isinstance(found, PolicyFailure):
                break
        # 3. Reprieve as many as possible, the most important ones first.
        if enabled is not None and hopeful and not self._classifier.keeps_pods(enabled):
            failed = self._ask(enabled, filters, list(hopeful.values()))
        for k, (place, node) in enumerate(hopeful.items()):
            answer: NodeVictims | Status | PolicyFailure
            if k in failed:
                answer = failed[k]
            elif units and any(pod.uid in units for pod in node.removed):
                answer = self._victims_in_units(filters, node, budgets, units)
            else:
                answer = self._victims_of(filters, node, budgets, patterns)
            answers[place] = answer
            if isinstance(answer, PolicyFailure):
                return answers[: place + 1]
        return answers

    def _ask(
        self, enabled: EnabledPolicy, filters: Filters, nodes: Sequence[_Node]
    ) -> dict[int, PolicyFailure]:
        """Have the pods of *nodes* ordered, and kept; what fails, by place."""
        failed: dict[int, PolicyFailure] = {}
        asked = self._orders(enabled, filters.snapshot, [node.removed for node in nodes])
        for place, (node, orders) in enumerate(zip(nodes, asked, strict=True)):
            if isinstance(orders, PolicyFailure):
                failed[place] = _about(orders, node.info)
            else:
                node.keep(orders)
        return failed

    # --- without all possible victims -------------------------------------------------------

    def _without_all(
        self,
        filters: Filters,
        node: _Node,
        patterns: TrialPatterns | None,
        protection: Protection,
    ) -> Status | PolicyFailure | None:
        """None if the pod fits once all possible victims are gone, else why not."""
        verdict: int | PolicyFailure | None = None
        if node.removed:
            verdict = self._verdict_without_all(filters, node, patterns)
        if isinstance(verdict, PolicyFailure):
            return _about(verdict, node.info)
        if verdict == FITS:
            return None
        if node.kept or node.protected:
            # Is it the kept pods that stand in the way?
            lower = [*node.removed, *node.kept, *node.protected]
            bare = self._fits(filters, node.slot, _without(node.info, lower), lower)
            if bare == FITS and node.protected:
                return protection.status
            if bare == FITS:
                enabled = last_enabled(filters.profile, "victim_key")
                assert enabled is not None
                return Status(Code.UNRESOLVABLE, (ONLY_KEPT,), enabled.policy)
            if verdict is None and not isinstance(bare, PolicyFailure):
                verdict = bare
        return NO_VICTIMS if verdict is None else self._memo.reasons.status(verdict)

    def _verdict_without_all(
        self, filters: Filters, node: _Node, patterns: TrialPatterns | None
    ) -> int | PolicyFailure:
        removed = node.removed
        key = None
        if patterns is not None and self._has_pattern(filters, node.slot, removed):
            node.holds = self._resource_use.of(removed)
            if node.holds is not None:
                node.shape = patterns.shape(node.slot)
                key = node.shape, tuple(sorted(node.holds))
                known = patterns.without.get(key)
                if known is not None:
                    return known
        verdict = self._fits(filters, node.slot, _without(node.info, removed), removed)
        if patterns is not None and key is not None and not isinstance(verdict, PolicyFailure):
            patterns.without[key] = verdict
        return verdict

    def _has_pattern(self, filters: Filters, slot: int, removed: Sequence[Pod]) -> bool:
        """True if nothing about the node depends on which ones its pods are."""
        if slot in filters.nominations:
            return False
        return not (
            filters.per_pod_filters and self._feasibility.is_counted(filters, slot, removed)
        )

    def _fits(
        self, filters: Filters, slot: int, info: NodeInfo, removed: Sequence[Pod]
    ) -> int | PolicyFailure:
        changes = PodChanges(slot, removed=tuple(removed))
        return self._feasibility.at(filters, info, changes)

    # --- reprieve ----------------------------------------------------------------------------

    def _victims_of(
        self,
        filters: Filters,
        node: _Node,
        budgets: Budgets,
        patterns: TrialPatterns | None,
    ) -> NodeVictims | Status | PolicyFailure:
        """The victims on *node* once all pods are reprieved that can be, smallest orders first.

        Of equally important pods those that came to the node first are reprieved, or those with the
        smaller uids.
        """
        removed, holds, orders = node.removed, node.holds, node.orders
        is_by_uid = filters.snapshot.objects.behaves.victims_by_uid
        sequence = list(range(len(removed)))
        if is_by_uid:
            sequence.sort(key=lambda place: removed[place].uid)
        if orders is not None:
            sequence.sort(key=orders.__getitem__)
        # First those whose budget would be violated, then the others.
        violating: Sequence[int] = ()
        if not budgets.is_empty:
            violating, others = budgets.split(removed, sequence)
            sequence = [*violating, *others]
        places: Sequence[int] | PolicyFailure | None = None
        if patterns is not None and node.shape is not None and holds is not None:
            key = node.shape, tuple([holds[k] for k in sequence])
            places = patterns.victims.get(key)
            if places is None:
                places = self._reprieve(filters, node, [removed[k] for k in sequence])
                if not isinstance(places, PolicyFailure):
                    patterns.victims[key] = places
        if places is None:
            places = self._reprieve(filters, node, [removed[k] for k in sequence])
        if isinstance(places, PolicyFailure):
            return _about(places, node.info)
        victims = [sequence[place] for place in places]
        if violating:
            victims.sort(key=(lambda place: removed[place].uid) if is_by_uid else None)
            if orders is not None:
                victims.sort(key=orders.__getitem__)
        violations = sum(place < len(violating) for place in places) if violating else 0
        return NodeVictims(tuple([removed[k] for k in victims]), violations)

    def _victims_in_units(
        self,
        filters: Filters,
        node: _Node,
        budgets: Budgets,
        units: Mapping[str, DisruptionUnit],
    ) -> NodeVictims | Status | PolicyFailure:
        """The same where pods go or stay with the others of their group, on all nodes.

        The priority decides, then groups are reprieved before single pods, large ones before small.
        """
        is_by_uid = filters.snapshot.objects.behaves.victims_by_uid
        bundles: dict[str, _Bundle] = {}
        for place, pod in enumerate(node.removed):
            unit = units.get(pod.uid)
            first = pod if unit is None else unit.pods[0]
            bundle = bundles.get(first.uid)
            if bundle is None:
                pods = (pod,) if unit is None else unit.pods
                priority = pod.priority if unit is None else unit.priority
                own = () if node.orders is None else node.orders[place]
                tie = first.uid if is_by_uid else place
                order = (-priority, unit is None, -len(pods), own, tie)
                bundle = bundles[first.uid] = _Bundle(order, [], pods)
            bundle.here.append(pod)
        sequence = sorted(bundles.values(), key=lambda bundle: bundle.order)
        everything = [pod for bundle in sequence for pod in bundle.pods]
        violating = {
            everything[k].uid for k in budgets.split(everything, range(len(everything)))[0]
        }
        sequence.sort(key=lambda bundle: not any(pod.uid in violating for pod in bundle.pods))
        info = _without(node.info, node.removed)
        gone = {pod.uid: pod for pod in node.removed}
        victims: list[_Bundle] = []
        for bundle in sequence:
            with_them = info
            for pod in bundle.here:
                with_them = with_them.with_pod(pod)
            uids = {pod.uid for pod in bundle.here}
            rest = [pod for uid, pod in gone.items() if uid not in uids]
            verdict = self._fits(filters, node.slot, with_them, rest)
            if isinstance(verdict, PolicyFailure):
                return _about(verdict, node.info)
            if verdict == FITS:
                info = with_them
                gone = {pod.uid: pod for pod in rest}
            else:
                victims.append(bundle)
        victims.sort(key=lambda bundle: bundle.order)
        pods = tuple(pod for bundle in victims for pod in bundle.pods)
        return NodeVictims(pods, sum(pod.uid in violating for pod in pods))

    def _reprieve(
        self, filters: Filters, node: _Node, sequence: Sequence[Pod]
    ) -> tuple[int, ...] | PolicyFailure:
        """The places in *sequence* of the pods that cannot stay, tried one after the other."""
        info = _without(node.info, sequence)
        removed = {pod.uid: pod for pod in sequence}
        places = []
        for place, pod in enumerate(sequence):
            with_pod = info.with_pod(pod)
            rest = [gone for uid, gone in removed.items() if uid != pod.uid]
            verdict = self._fits(filters, node.slot, with_pod, rest)
            if isinstance(verdict, PolicyFailure):
                return verdict
            if verdict == FITS:
                info = with_pod
                del removed[pod.uid]
            else:
                places.append(place)
        return tuple(places)

    def _orders(
        self, enabled: EnabledPolicy, facts: Snapshot, groups: Sequence[Sequence[Pod]]
    ) -> list[list[SortKey | None] | PolicyFailure]:
        """For each of *groups*, the `victim_key` of its pods; those not known in one round trip.

        None is that of a pod which is never evicted.
        """
        texts = self.texts(self._classifier.projector(enabled, "victim_key", "pod"))
        instance = enabled.instance
        shown = [[texts.of(pod, facts) for pod in pods] for pods in groups]
        if len(self._keys) > MOST_ANSWERS:
            self._keys.clear()
        known = self._keys
        failed: dict[bytes, PolicyFailure] = {}
        distinct = dict.fromkeys(text for each in shown for text in each)
        missing = [text for text in distinct if (instance, text) not in known]
        if missing:
            questions = [(instance, "victim_key", text, b"{}") for text in missing]
            for text, answer in zip(missing, self._memo.singles(questions), strict=True):
                if isinstance(answer, PolicyFailure):
                    failed[text] = answer
                else:
                    known[instance, text] = None if answer is None else sort_key(answer)
        orders: list[list[SortKey | None] | PolicyFailure] = []
        for each in shown:
            here = [failed[text] for text in each if text in failed] if failed else []
            if here:
                orders.append(first_reported(here))
                continue
            orders.append([known[instance, text] for text in each])
        return orders


def _node(filters: Filters, slot: int, units: Mapping[str, DisruptionUnit]) -> _Node:
    info = filters.snapshot.infos[slot]
    assert info is not None
    priority = filters.pod.priority
    if units:
        # A group goes if it is less important, whatever its pods say of themselves.
        priorities = {uid: units[uid].priority for uid in info.pods if uid in units}
        pods = info.pods.items()
        removed = [pod for uid, pod in pods if priorities.get(uid, pod.priority) < priority]
        return _Node(slot, info, removed)
    if info.lowest_priority >= priority:
        return _Node(slot, info, [])
    return _Node(slot, info, [pod for pod in info.pods.values() if pod.priority < priority])


def _without(info: NodeInfo, pods: Sequence[Pod]) -> NodeInfo:
    for pod in pods:
        info = info.without_pod(pod.uid)
    return info


def _about(failure: PolicyFailure, info: NodeInfo) -> PolicyFailure:
    return failure.about(f"node `{info.name}`")


def last_enabled(profile: Profile, hook: str) -> EnabledPolicy | None:
    """The policy whose *hook* counts: the last one enabled, so that a user's beats the default."""
    enabled = profile.at(hook)
    return enabled[-1] if enabled else None
