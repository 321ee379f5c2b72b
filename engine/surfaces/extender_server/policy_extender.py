"""The verbs of an extender, answered with the policies.

Owns the translation: rejections into failed and unresolvable nodes, totals into 0..10, victims into
the question whether the pod would then fit. The policies are evaluated by the same `Scheduler` that
places pods, stopped at its question to extenders: what it would send them is the answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.framework.status import Code, Status
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision, Explanation
from engine.core.scheduling.diagnosis import Diagnosis
from engine.core.scheduling.extender_messages import MetaVictims
from engine.core.scheduling.extenders import ExtenderFilter, FilterAnswer, unopposed
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.evaluator import PolicyFailure
from engine.surfaces.extender_server.requests import Verdicts

#: The best score of an extender's node.
BEST_SCORE: Final = 10
_BEST_NORMALIZED: Final = 100

UNKNOWN_NODE: Final = "node(s) not known to the extender yet"
_OUTSIDE: Final = "node(s) not among those that a pre-filter left"


class PoliciesFailed(Exception):
    """A policy failed, so there is no verdict; the text says which and where."""

    def __init__(self, decision: Decision) -> None:
        self.failures = decision.failures
        super().__init__(decision.message())


class PolicyExtender:
    """An extender with the policies of one loaded revision.

    A pod whose `schedulerName` no profile has gets the first profile: the extender's profiles need
    not repeat the names of kube-scheduler's.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        scheduler.has_extenders = True
        self._scheduler = scheduler
        self._profiles = {p.scheduler_name: p for p in scheduler.bundle.profiles}
        self._first = scheduler.bundle.profiles[0]

    # --- filter -----------------------------------------------------------------------------

    def filter(self, pod: Pod, snapshot: Snapshot, names: Iterable[str]) -> Verdicts:
        """The feasible ones of the nodes *names*, with reasons for the others.

        Raises `PoliciesFailed`.
        """
        pod, _ = self._under_a_profile(pod)
        fitting, explanation = self._ask(pod, snapshot, ())
        status_of = explanation.rejected
        everywhere = explanation.decision.diagnosis.pre_filter
        feasible: list[str] = []
        reasons: dict[Code, dict[str, str]] = {Code.UNSCHEDULABLE: {}, Code.UNRESOLVABLE: {}}
        for name in names:
            if name in fitting:
                feasible.append(name)
            elif name not in snapshot.slot_of:
                reasons[Code.UNSCHEDULABLE][name] = UNKNOWN_NODE
            else:
                status = everywhere or status_of.get(name) or _outside(explanation)
                reasons[status.code][name] = status.message
        return Verdicts(
            tuple(dict.fromkeys(feasible)), reasons[Code.UNSCHEDULABLE], reasons[Code.UNRESOLVABLE]
        )

    # --- prioritize -------------------------------------------------------------------------

    def priorities(
        self, pod: Pod, snapshot: Snapshot, names: Sequence[str]
    ) -> list[tuple[str, int]]:
        """A score in 0..10 for each of the nodes *names*. Raises `PoliciesFailed`.

        It is the weighted sum of the policies' scores as a share of the highest possible one. A
        node that the policies reject, or that is not known, gets 0.
        """
        pod, profile = self._under_a_profile(pod)
        _, explanation = self._ask(pod, snapshot, names)
        highest = _BEST_NORMALIZED * _weights(profile)
        totals = dict(zip(explanation.feasible, explanation.totals.tolist(), strict=True))
        return [(name, _as_share(totals.get(name, 0), highest)) for name in dict.fromkeys(names)]

    # --- preempt ----------------------------------------------------------------------------

    def process_preemption(
        self, pod: Pod, snapshot: Snapshot, victims: Mapping[str, MetaVictims]
    ) -> list[str]:
        """The candidates on which the pod would fit once the victims are gone.

        A candidate with a victim that the policies never evict is left out. Nodes are tried one by
        one: *snapshot* is changed for each and restored. An unknown node stays a candidate. There
        are none while what choosing victims depends on cannot be read. Raises `PoliciesFailed`.
        """
        pod, profile = self._under_a_profile(pod)
        if self._scheduler.missing_for_preemption(pod, snapshot) is not None:
            return []
        return [
            name
            for name, going in victims.items()
            if name not in snapshot.slot_of
            or self._fits_without(pod, profile, snapshot, name, going)
        ]

    def _fits_without(
        self, pod: Pod, profile: Profile, snapshot: Snapshot, name: str, going: MetaVictims
    ) -> bool:
        info = snapshot.info(name)
        assert info is not None, f"`{name}` has a slot and no node"
        leaving = [info.pods[uid] for uid in going.uids if uid in info.pods]
        kept = self._scheduler.kept(profile, leaving, snapshot)
        if isinstance(kept, PolicyFailure):
            raise PoliciesFailed(Decision(None, Diagnosis(1), "", failures=(kept,)))
        if kept:
            return False
        without = info
        for uid in going.uids:
            if uid in without.pods:
                without = without.without_pod(uid)
        snapshot.put(name, without)
        try:
            return self._fits(pod, snapshot, name)
        finally:
            snapshot.put(name, info)

    def _fits(self, pod: Pod, snapshot: Snapshot, name: str) -> bool:
        """True if the filters accept the node *name*.

        Other nodes are not explained: kube-scheduler sends up to a tenth of all nodes, and
        explaining for each of them why every other node was excluded exceeded its timeout.
        """
        steps = self._scheduler.steps(pod, snapshot)
        try:
            question = next(steps)
            while not isinstance(question, ExtenderFilter):
                question = steps.send(unopposed(question))
        except StopIteration as end:
            if end.value.decision.is_error:
                raise PoliciesFailed(end.value.decision) from None
            return False
        steps.close()
        return any(info.name == name for info in question.infos)

    # --- evaluating -------------------------------------------------------------------------

    def _under_a_profile(self, pod: Pod) -> tuple[Pod, Profile]:
        profile = self._profiles.get(pod.scheduler_name)
        if profile is not None:
            return pod, profile
        name = self._first.scheduler_name
        spec = msgspec.structs.replace(pod.manifest.spec, scheduler_name=name)
        return Pod.from_manifest(msgspec.structs.replace(pod.manifest, spec=spec)), self._first

    def _ask(
        self, pod: Pod, snapshot: Snapshot, wanted: Iterable[str]
    ) -> tuple[set[str], Explanation]:
        """The feasible nodes, and the decision as if only the *wanted* ones were feasible."""
        fitting: set[str] = set()
        steps = self._scheduler.steps(pod, snapshot, detailed=True)
        try:
            question = next(steps)
            while True:
                if isinstance(question, ExtenderFilter):
                    fitting = {info.name for info in question.infos}
                    kept = tuple(name for name in dict.fromkeys(wanted) if name in fitting)
                    question = steps.send(FilterAnswer(kept))
                else:
                    question = steps.send(unopposed(question))
        except StopIteration as end:
            explanation: Explanation = end.value
        if explanation.decision.is_error:
            raise PoliciesFailed(explanation.decision)
        return fitting, explanation


def _outside(explanation: Explanation) -> Status:
    """The status of nodes that a pre-filter excluded by naming others."""
    for status in explanation.decision.diagnosis.rejections:
        if any(reason.startswith("node(s) didn't satisfy plugin(s)") for reason in status.reasons):
            return status
    return Status(Code.UNRESOLVABLE, (_OUTSIDE,))


def _weights(profile: Profile) -> int:
    """The sum of the weights of all plugins that score in *profile*."""
    scoring = {e.policy: e.weight for hook in ("score", "score_all") for e in profile.at(hook)}
    return sum(scoring.values())


def _as_share(total: int, highest: int) -> int:
    """*total* as a share of *highest*, in 0..10, rounded; 0 if no plugin scores."""
    if highest <= 0:
        return 0
    return max(0, min(BEST_SCORE, (2 * BEST_SCORE * total + highest) // (2 * highest)))
