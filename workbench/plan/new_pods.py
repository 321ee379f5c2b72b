"""Where pods that do not exist yet would go, and when at the earliest.

Owns the order in which they are decided, each seeing those before it placed, and the assumptions
under which a pod that fits nowhere now could start.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from engine.core.framework import reasons
from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds
from workbench.plan.what_if import Decider, Outcome, arrival, untracked

Start: TypeAlias = Literal["now", "after_eviction", "when_pods_end", "unknown"]

#: Of pods that say nothing else.
GRACE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Ending:
    """A placed pod that ends by itself: it is being deleted, or it is no service.

    Attributes:
        pod: The pod.
        is_leaving: It is being deleted.
        by: When it has ended at the latest, in RFC 3339; "" if that is not known.
    """

    pod: Pod
    is_leaving: bool
    by: str = ""


class NewPod(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a pod that does not exist yet.

    Attributes:
        pod: `namespace/name`.
        outcome: Its node, victims, or why it has none.
        next_step: What to do about it, in one sentence; empty if there is nothing to do.
        position: In the queue among the pods that wait, 1 is first; null if it is gated.
        waiting: How many pods wait, without those of the file.
        start: When it can start at the earliest; see `Start`.
        assumption: On what that rests, in one sentence.
        after: The pods that have to end or be evicted first.
        by: When they have at the latest, in RFC 3339; empty if that is not known.
    """

    pod: str
    outcome: Outcome
    next_step: str = ""
    position: int | None = None
    waiting: int = 0
    start: Start
    assumption: str
    after: tuple[str, ...] = ()
    by: str = ""


def new_pods(
    decider: Decider,
    pods: Sequence[Pod],
    endings: Sequence[Ending] = (),
    track: Callable[[Sequence[Pod], str], Iterable[Pod]] = untracked,
) -> Iterator[NewPod]:
    """What becomes of *pods*, in the order in which the queue would take them.

    One that is placed counts on its node for the next ones, and so does one for which others would
    be evicted. *track* is passed them, with what is done, and shows the progress. Raises `KeyError`
    if no profile has the `schedulerName` of one.
    """
    scene = decider.scene
    waiting = decider.queue(scene.pending)
    keys = [decider.sort_key(pod) for pod in waiting]
    ordered = sorted(pods, key=decider.sort_key)  # stable: equal ones as they are given
    before = 0
    for pod in ordered:
        decider.groups.put(pod)
    for pod in track(ordered, "deciding"):
        key = decider.sort_key(pod)
        decider.arrive(pod)
        outcome = decider.outcome(pod, scene.snapshot)
        # Pods that wait already are before it if their keys are equal: they came first.
        ahead = sum(one <= key for one in keys)
        position = None if outcome.gate else ahead + before + 1
        before += not outcome.gate
        start, assumption, after, by = _start(decider, pod, outcome, endings, ahead)
        token = "" if outcome.node else outcome.reason
        yield NewPod(
            pod=pod.key,
            outcome=outcome,
            next_step=reasons.kind_of(token).next_step if token else "",
            position=position,
            waiting=len(waiting),
            start=start,
            assumption=assumption,
            after=after,
            by=by,
        )
        if outcome.node:
            decider.place(pod, outcome.node)
        elif outcome.victims_on:
            scene.nominator.nominate(pod, outcome.victims_on)


def _start(
    decider: Decider, pod: Pod, outcome: Outcome, endings: Sequence[Ending], ahead: int
) -> tuple[Start, str, tuple[str, ...], str]:
    """When *pod* can start at the earliest, on what assumption, after which pods, and by when."""
    if outcome.has_failed:
        return "unknown", "a policy fails for it", (), ""
    if outcome.gate:
        return "unknown", f"when policy `{outcome.gate}` no longer gates it", (), ""
    if outcome.node:
        said = "nothing waits before it"
        if ahead:
            said = f"the {ahead} pod(s) that wait before it do not take its place"
        return "now", said, (), ""
    if outcome.victims:
        seconds = _grace(decider, outcome)
        said = f"{len(outcome.victims)} pod(s) are evicted, which may take {seconds} s"
        return "after_eviction", said, outcome.victims, ""
    # Those that are being deleted end for certain, so they are looked at first.
    leaving = [one for one in endings if one.is_leaving]
    for candidates in (leaving, endings) if len(leaving) < len(endings) else (leaving,):
        needed = _needed(decider, pod, candidates) if candidates else []
        if needed:
            names = tuple(sorted(one.pod.key for one in needed))
            by = max(one.by for one in needed) if all(one.by for one in needed) else ""
            how = "gone" if all(one.is_leaving for one in needed) else "ended"
            how = f"{'has' if len(names) == 1 else 'have'} {how}"
            said = f"when {_listed(names)} on {needed[0].pod.node_name} {how}"
            return "when_pods_end", said, names, by
    return "unknown", "nothing that is known to end would let it run", (), ""


def _needed(decider: Decider, pod: Pod, endings: Sequence[Ending]) -> list[Ending]:
    """The fewest of *endings* on one node, found by sparing them, that would let *pod* run."""
    scene = decider.scene
    with scene.without(one.pod for one in endings) as snapshot:
        outcome = decider.outcome(pod, snapshot)
    if not outcome.node:
        return []
    needed = [one for one in endings if one.pod.node_name == outcome.node]
    # The ones that end last are spared first.
    for one in sorted(needed, key=lambda one: (one.by or "~", one.pod.key), reverse=True):
        fewer = [other for other in needed if other is not one]
        with scene.without(other.pod for other in fewer) as snapshot:
            if decider.scheduler.fits(pod, outcome.node, snapshot, scene.nominator):
                needed = fewer
    return needed


def _grace(decider: Decider, outcome: Outcome) -> int:
    """The longest time that a victim may take to end, in seconds."""
    victims = set(outcome.victims)
    info = decider.scene.snapshot.info(outcome.victims_on)
    specs = (one.manifest.spec for one in info.pods.values() if one.key in victims) if info else ()
    given = [spec.termination_grace_period_seconds for spec in specs]
    return max((GRACE_SECONDS if one is None else one for one in given), default=GRACE_SECONDS)


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def endings_of(pods: Iterable[tuple[Pod, Mapping[str, Any]]]) -> list[Ending]:
    """Those of the placed *pods*, each with its manifest, that end by themselves."""
    found = []
    for pod, manifest in pods:
        metadata, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
        deleted = str(metadata.get("deletionTimestamp") or "")
        if deleted:
            found.append(Ending(pod, True, deleted))
        elif spec.get("restartPolicy", "Always") != "Always":
            found.append(Ending(pod, False, _deadline(manifest)))
    return sorted(found, key=lambda one: arrival(one.pod))


def _deadline(manifest: Mapping[str, Any]) -> str:
    """When the pod's `activeDeadlineSeconds` are over; "" if it has none, or has not begun."""
    seconds = (manifest.get("spec") or {}).get("activeDeadlineSeconds")
    began = epoch_seconds((manifest.get("status") or {}).get("startTime"))
    if not isinstance(seconds, int) or began is None:
        return ""
    moment = datetime.datetime.fromtimestamp(began + seconds, datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
