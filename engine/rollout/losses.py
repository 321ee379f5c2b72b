"""What an edit would take away: pods without a profile, or without a node, and nodes without pods.

Owns the questions and their answers, for two sets of policies on one snapshot. A pod is asked about
as by `check --never-rejects-everything`: no node accepts it, be it empty or as it is. Only what
policies that were changed reject is held against the policies before, so that an edit that takes
nothing away costs one look at each class of pods. What follows from it is `judge`'s.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from engine.comparing.population import AlikePods, PolicySet, classes_of
from engine.comparing.rejectors import accepts, rejectors
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import SortKey
from engine.core.scheduling.scheduling_cycle import NO_NOMINATIONS
from engine.explaining.verdict_table import VerdictTable, ask_each, filter_names
from engine.lib.printable import counted
from engine.lib.stopping import never
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.policy.memo_reuse import unchanged_instances
from engine.rollout.lazy_sandbox import LazySandbox
from engine.rollout.measures import (
    FIT_NOWHERE,
    LOSS_KINDS,
    NODES,
    ORDER,
    WITHOUT_PROFILE,
    Loss,
    Losses,
)
from engine.rollout.shadow.tally import class_of
from engine.rollout.trial import CandidateStages, LoadedRevision, Revision, World, frozen_copy

_T = TypeVar("_T")
log = structlog.get_logger(component="trial")

#: Pods that are looked at, the first of each owner before others; and classes of them, likewise.
MOST_PODS: Final = 5_000
MOST_CLASSES: Final = 200
#: Pods whose order is compared.
MOST_ORDERED: Final = 200
#: Pods that wait, and that the policies before a revision on probation are asked about.
MOST_PENDING: Final = 20
#: Seconds after which no further class is asked about.
LOSS_SECONDS: Final = 10.0

_REJECTING: Final = ("pre_filter", "filter", "counters")


@dataclass(frozen=True, slots=True)
class NewlyPending:
    """Pods that a revision on probation keeps waiting.

    Attributes:
        pods: Those that the revision before would place.
        asked: Of so many that wait.
        alone: Their namespace, if it is one and does not have at least half of the pods that have
            a node: a user who may create pods in it can have made them wait. Else "".
    """

    pods: Sequence[Pod] = ()
    asked: int = 0
    alone: str = ""


NO_PENDING: Final = NewlyPending()


async def count_losses(
    stages: CandidateStages, candidate: LoadedRevision, before: Revision, world: World
) -> Losses:
    """What *candidate* would take away from the cluster; an answer also if that is not known."""
    snapshot, waiting = frozen_copy(world.snapshot()), world.waiting_pods()
    given_up = threading.Event()

    def count() -> Losses:
        placed = (pod for info in snapshot.infos if info for pod in info.pods.values())
        return losses_of(
            candidate.bundle,
            candidate.evaluator,
            before.bundle,
            lambda: stages.make_evaluator(before.bundle),
            [*waiting, *(pod.unplaced() for pod in placed)],
            snapshot,
            given_up.is_set,
        )

    try:
        return await asyncio.to_thread(count)
    except Exception as error:
        # Not a reason to refuse an edit, and none to keep silent.
        log.exception("What an edit takes away is not known")
        return Losses(failed=f"{type(error).__name__}: {error}")
    finally:
        given_up.set()


def losses_of(
    candidate: Bundle,
    evaluator: Evaluator,
    before: Bundle,
    start: Callable[[], Evaluator],
    pods: Sequence[Pod],
    snapshot: Snapshot,
    is_stopped: Callable[[], bool] = never,
) -> Losses:
    """What *candidate* would take away from *pods* and from the nodes of *snapshot*.

    Args:
        candidate: The edit; *evaluator* runs it, and stays open.
        evaluator: See above.
        before: The policies in force; *start* starts a sandbox with them, if it is needed.
        start: See above.
        pods: All pods, as if none of them had a node.
        snapshot: A copy that nothing changes. It has the pods that are placed.
        is_stopped: True once the answer is not wanted any more.
    """
    sandbox = LazySandbox(start)
    try:
        return _Losses(
            PolicySet(candidate, evaluator), PolicySet(before, sandbox), snapshot, is_stopped
        ).of(pods)
    finally:
        sandbox.close()


async def newly_pending(
    active: LoadedRevision, previous: LoadedRevision, world: World
) -> NewlyPending:
    """Pods that wait, that *previous* would place and *active* would not, on one snapshot.

    Of the first of each namespace, and of each owner, before others, some. Neither may be closed
    meanwhile.
    """
    by_owner = first_of_each(world.rejected_pods(), class_of)
    pods = first_of_each(by_owner, lambda pod: pod.namespace)[:MOST_PENDING]
    if not pods:
        return NO_PENDING
    snapshot = frozen_copy(world.snapshot())
    before = PolicySet(previous.bundle, previous.evaluator)

    def placed_before() -> list[Pod]:
        return [pod for pod in pods if _places(before, pod, snapshot)]

    # What decides now is asked where it decides, and only about what it is suspected of.
    suspects = await asyncio.to_thread(placed_before)
    if not suspects:
        return NO_PENDING
    await world.until_decided()
    now = PolicySet(active.bundle, active.evaluator)
    lost = [pod for pod in suspects if not _places(now, pod, snapshot)]
    return NewlyPending(lost, len(pods), await asyncio.to_thread(_alone, lost, before, snapshot))


def _alone(lost: Sequence[Pod], before: PolicySet, snapshot: Snapshot) -> str:
    """See `NewlyPending.alone`. Pods with a node that *before* has no profile for do not count."""
    namespaces = {pod.namespace for pod in lost}
    if len(namespaces) != 1:
        return ""
    placed = Counter(
        pod.namespace
        for info in snapshot.infos
        if info is not None
        for pod in info.pods.values()
        if before.scheduler.profile_of(pod) is not None
    )
    (namespace,) = namespaces
    return namespace if 2 * placed[namespace] < placed.total() else ""


def _places(side: PolicySet, pod: Pod, snapshot: Snapshot) -> bool:
    """True if *side* tries *pod*, and has a node for it."""
    if side.scheduler.profile_of(pod) is None:
        return False
    return side.scheduler.hooks.pre_enqueue(pod, snapshot) is None and accepts(side, pod, snapshot)


class _Losses:
    """The questions about one edit.

    Args:
        now, before: The edit and the policies in force.
        snapshot: The cluster as it is.
        is_stopped: See `losses_of`.
    """

    def __init__(
        self,
        now: PolicySet,
        before: PolicySet,
        snapshot: Snapshot,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._now, self._before = now, before
        self._as_it_is, self._empty = snapshot, _emptied(snapshot)
        self._ends_at = time.monotonic() + LOSS_SECONDS
        self._is_stopped = is_stopped
        self._unchanged = unchanged_instances(before.bundle.program, now.bundle.program)
        self._profiles = {one.scheduler_name: one for one in before.bundle.profiles}
        self._changed: dict[str, frozenset[str]] = {}
        self._found: list[Loss] = []

    def of(self, pods: Sequence[Pod]) -> Losses:
        """See `losses_of`."""
        ours = [pod for pod in pods if pod.scheduler_name in self._profiles]
        self._without_profile(ours)
        theirs = [pod for pod in ours if self._now.scheduler.profile_of(pod) is not None]
        looked_at = first_of_each(theirs, class_of)[:MOST_PODS]
        for side in (self._now, self._before):
            side.use_groups(looked_at, self._empty)
        sets, empty = [self._now, self._before], [self._empty, self._empty]
        classes = sorted(classes_of(looked_at, sets, empty), key=lambda one: -one.count)
        classes = first_of_each(classes, lambda one: class_of(one.example))
        asked = self._rejections(classes[:MOST_CLASSES], len(looked_at))
        self._order(looked_at[:MOST_ORDERED])
        found = sorted(self._found, key=lambda one: (LOSS_KINDS.index(one.kind), -one.count))
        return Losses(
            tuple(found), len(looked_at), len(ours), self._empty.node_count, asked, len(classes)
        )

    def _is_over(self) -> bool:
        return self._is_stopped() or time.monotonic() > self._ends_at

    # --- profiles ----------------------------------------------------------------------------

    def _without_profile(self, pods: Sequence[Pod]) -> None:
        """Pods that had a profile and would have none: nothing would decide them."""
        names = {profile.scheduler_name for profile in self._now.bundle.profiles}
        for name in self._profiles.keys() - names:
            lost = [pod for pod in pods if pod.scheduler_name == name]
            if lost:
                which = f"{counted(len(lost), 'pod')} name{'s' if len(lost) == 1 else ''}"
                text = (
                    f"no profile has the schedulerName `{name}` any more, which {which}, such as "
                    f"`{lost[0].key}`: nothing would decide them"
                )
                self._found.append(Loss(WITHOUT_PROFILE, len(lost), len(pods), text, name))

    # --- filters and gates -------------------------------------------------------------------

    def _rejections(self, classes: Sequence[AlikePods], pods: int) -> int:
        """Look for pods that would fit nowhere, and for nodes that would take none of them.

        Gives how many of *classes* were asked about.
        """
        size, asked = len(self._empty.infos), 0
        taken, suspect = np.zeros(size, bool), np.zeros(size, bool)
        suspects: list[tuple[Pod, VerdictTable, NDArray[np.bool_]]] = []
        lost: dict[tuple[str, str], list[AlikePods]] = {}
        for alike in classes:
            if self._is_over():
                break
            asked += 1
            pod = alike.example
            profile = self._now.scheduler.profile_of(pod)
            assert profile is not None
            # 1. Gates, and filters on nodes without pods.
            gate = ""
            if self._changed_at(profile, "pre_enqueue"):
                gate = self._gate_of(self._now, pod)
            changed = self._changed_filters(profile)
            if not gate and not changed:
                taken[:] = True  # what rejects it now did so before
                continue
            table = ask_each(self._now.scheduler, pod, self._empty, NO_NOMINATIONS)
            if table.failures:
                continue  # the trial says so
            accepted, by_changed = _verdicts(table, changed)
            if by_changed.any():
                suspect |= by_changed
                suspects.append((pod, table, by_changed))
            if not gate:
                taken |= accepted
            # 2. If it would fit nowhere, whether it did before.
            is_lost = bool(gate)
            if not is_lost and not accepted.any() and by_changed.any():
                is_lost = not accepts(self._now, pod, self._as_it_is)
            if is_lost and self._fitted(pod):
                lost.setdefault((profile.scheduler_name, gate), []).append(alike)
        for (name, gate), them in lost.items():
            self._note_pods(name, gate, them, pods)
        self._nodes(suspect & ~taken, suspects)
        return asked

    def _fitted(self, pod: Pod) -> bool:
        """True if the policies before try *pod*, and have a node for it."""
        if self._gate_of(self._before, pod):
            return False
        return any(accepts(self._before, pod, one) for one in (self._empty, self._as_it_is))

    def _gate_of(self, side: PolicySet, pod: Pod) -> str:
        """The policy that keeps *pod* from being tried; "" if none does."""
        gate = side.scheduler.hooks.pre_enqueue(pod, self._as_it_is)
        return "" if gate is None else gate.plugin

    def _note_pods(self, profile: str, gate: str, classes: Sequence[AlikePods], pods: int) -> None:
        """Note the pods of *classes*, by the policies that reject them."""
        found: dict[tuple[str, str], list[tuple[AlikePods, str]]] = {}
        for alike in classes:
            policy, source, why = gate, "", "keeps it at a gate"
            if not gate:
                by = rejectors(self._now, alike.example, self._empty)[0]
                policy = ", ".join(one.policy for one in by)
                source, why = (by[0].source, by[0].reason) if by else ("", "")
            found.setdefault((policy, source), []).append((alike, why))
        for (policy, source), them in found.items():
            count = sum(alike.count for alike, _ in them)
            alike, why = them[0]
            text = (
                f"`{policy}` accepts 0 of {counted(count, 'pod')} that fitted before, such as "
                f"`{alike.example.key}` ({why}), of {pods} in all"
            )
            file, _, line = source.partition(":")
            lost = Loss(FIT_NOWHERE, count, pods, text, profile, policy, file, int(line or 0))
            self._found.append(lost)

    def _nodes(
        self,
        suspect: NDArray[np.bool_],
        asked: Sequence[tuple[Pod, VerdictTable, NDArray[np.bool_]]],
    ) -> None:
        """Note which of the nodes that take no pod would take one but for the edit."""
        lost: dict[tuple[str, str], list[str]] = {}
        for pod, table, by_changed in asked:
            open_still = suspect & by_changed
            if not open_still.any():
                continue
            if self._is_over():
                break
            before = ask_each(self._before.scheduler, pod, self._empty, NO_NOMINATIONS)
            if before.failures or self._gate_of(self._before, pod):
                continue
            took = _verdicts(before, frozenset())[0] & open_still
            suspect = suspect & ~took
            for slot in np.flatnonzero(took).tolist():
                info = self._empty.infos[slot]
                if info is not None:
                    policy = ", ".join(table.rejectors_of(info.name))
                    lost.setdefault((pod.scheduler_name, policy), []).append(info.name)
        total = self._empty.node_count
        for (profile, policy), names in lost.items():
            text = (
                f"`{policy}` lets none of the pods onto {len(names)} of {total} nodes, such as "
                f"`{min(names)}`; before, each took some"
            )
            self._found.append(Loss(NODES, len(names), total, text, profile, policy))

    # --- order -------------------------------------------------------------------------------

    def _order(self, pods: Sequence[Pod]) -> None:
        """Note how many pairs of *pods* would be tried the other way round."""
        profiles = self._now.bundle.profiles
        if not any(self._changed_at(profile, "queue_key") for profile in profiles):
            return
        sides = self._now, self._before
        keys: list[tuple[SortKey, SortKey]] = []
        for pod in pods:
            now, before = (side.scheduler.hooks.queue_key(pod, self._as_it_is) for side in sides)
            if not isinstance(now, PolicyFailure) and not isinstance(before, PolicyFailure):
                keys.append((now, before))
        pairs = reversed_pairs = 0
        for at, (now, before) in enumerate(keys):
            for other_now, other_before in keys[:at]:
                if before == other_before:
                    continue
                pairs += 1
                is_first, was_first = now < other_now, before < other_before
                reversed_pairs += now != other_now and is_first != was_first
        if reversed_pairs:
            text = (
                f"of {pairs} pairs of pods that have an order, {reversed_pairs} "
                f"({reversed_pairs / pairs:.0%}) would be tried the other way round"
            )
            self._found.append(Loss(ORDER, reversed_pairs, pairs, text))

    # --- what has changed --------------------------------------------------------------------

    def _changed_at(self, profile: Profile, *hooks: str, policy: str = "") -> bool:
        """True if what *profile* has at *hooks* differs from what it had; of one policy, or all."""
        before = self._profiles.get(profile.scheduler_name)
        if before is None:
            return True

        def has(one: Profile, known: Mapping[int, int] | None) -> list[tuple[str, int | None]]:
            return [
                (hook, enabled.instance if known is None else known.get(enabled.instance))
                for hook in hooks
                for enabled in one.at(hook)
                if policy in ("", enabled.policy)
            ]

        return has(before, self._unchanged) != has(profile, None)

    def _changed_filters(self, profile: Profile) -> frozenset[str]:
        """The policies of *profile* that may reject other nodes than before."""
        name = profile.scheduler_name
        if name not in self._changed:
            before = self._profiles.get(name)
            known = () if before is None else filter_names(before)
            self._changed[name] = frozenset(
                one
                for one in filter_names(profile)
                if one not in known
                or self._changed_at(profile, *_REJECTING, policy=one)
                or (before is not None and before.arguments.get(one) != profile.arguments.get(one))
            )
        return self._changed[name]


def _verdicts(
    table: VerdictTable, changed: frozenset[str]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """By slot: whether every policy accepts the node; and whether *changed* ones alone do not."""
    size = len(table.snapshot.infos)
    exists = np.zeros(size, bool)
    exists[table.slots] = True
    by_others, by_changed = np.zeros(size, bool), np.zeros(size, bool)
    for policy, column in table.columns.items():
        if policy in changed:
            by_changed |= column.codes != 0
        else:
            by_others |= column.codes != 0
    return exists & ~by_others & ~by_changed, exists & by_changed & ~by_others


def first_of_each(found: Iterable[_T], name_of: Callable[[_T], str]) -> list[_T]:
    """*found* with the first of each name before all others."""
    first: dict[str, _T] = {}
    rest = [one for one in found if first.setdefault(name_of(one), one) is not one]
    return [*first.values(), *rest]


def _emptied(snapshot: Snapshot) -> Snapshot:
    """A copy without pods."""
    empty = frozen_copy(snapshot)
    for info in snapshot.infos:
        if info is not None and info.pods:
            empty.put(info.name, NodeInfo(info.name, info.node).with_facts(info.facts))
    return empty
