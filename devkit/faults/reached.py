"""Which transitions of the scheduler's state machines a world has gone through.

Owns the list of those that there are, and watching a world for them. A transition that no world
reaches is one that no rule has ever judged, so that what comes next is chosen by what was seldom
reached (`steering`).
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, get_args

from engine.core.kernel.events import Event, PreemptionEnd, PreemptionEnded
from engine.core.kernel.instructions import Instruction
from engine.core.kernel.kernel import Kernel
from engine.core.queueing.places import PodStore
from engine.core.queueing.transitions import TRANSITIONS
from engine.io.binding import binder
from engine.io.binding.binder import Binder
from engine.io.leader_election import LeaderElector, LeadershipLost
from engine.rollout.timeline import Timeline

#: What follows what in a roll-out: the figure of `timeline`, in which "tests" may be left out.
_STAGES: Final = ("offered", "checked", "tested", "loaded", "tried", "shadow", "canary")
_BINDINGS: Final = ("bound", "PodIsGone", "BoundElsewhere", "BindingRefused")
_LEASES: Final = ("taken new", "taken after it was given back", "taken after it expired",
                  "given back", "lost: not renewed", "lost: taken by another")  # fmt: skip


def possible(faults: Iterable[str]) -> frozenset[str]:
    """All that could be reached with *faults*, names of kinds of them."""
    found = {
        _queue_move(came_from.label, trigger.name, place.label)
        for (came_from, trigger), places in TRANSITIONS.items()
        for place in places
    }
    found |= {f"event: {one.__name__}" for one in get_args(Event) if one is not PreemptionEnded}
    found |= {f"event: PreemptionEnded {end.value}" for end in PreemptionEnd}
    found |= {f"instruction: {one.__name__}" for one in get_args(Instruction)}
    found |= {f"binding: {one}" for one in _BINDINGS}
    found |= {f"lease: {one}" for one in _LEASES}
    for stage, following in pairwise(_STAGES):
        found |= {_stage(stage, following), _stage(stage, "rejected")}
    for stage in ("tried", "shadow", "canary"):
        found |= {_stage(stage, "probation"), _stage(stage, "superseded")}
    found |= {
        _stage("probation", "in_force"),
        _stage("probation", "rolled_back"),
        _stage("probation", "replaced"),
        _stage("in_force", "replaced"),
        _stage("offered", "in_force"),
    }
    # In force again: what a roll-back or a restart goes back to, or a leader takes over.
    ended = ("rejected", "replaced", "superseded", "rolled_back", "tried")
    found |= {_stage(stage, "in_force") for stage in ended}
    found |= {f"fault: {name}" for name in faults}
    return frozenset(found)


def _queue_move(came_from: str, trigger: str, place: str) -> str:
    return f"queue: {came_from} -> {place} by {trigger}"


def _stage(stage: str, following: str) -> str:
    return f"rollout: {stage} -> {following}"


@contextlib.contextmanager
def watching(reached: Counter[str]) -> Iterator[None]:
    """Count in *reached* what the schedulers of this process go through."""

    def move(places: PodStore, queued: Any, *rest: Any, **options: Any) -> Any:
        came_from = queued.place
        place = before[PodStore, "move"](places, queued, *rest, **options)
        trigger = rest[0]
        if place in TRANSITIONS[came_from, trigger]:
            reached[_queue_move(came_from.label, trigger.name, place.label)] += 1
        return place

    def handle(kernel: Kernel, event: Any, now: float) -> Any:
        end = f" {event.end.value}" if isinstance(event, PreemptionEnded) else ""
        reached[f"event: {type(event).__name__}{end}"] += 1
        return before[Kernel, "handle"](kernel, event, now)

    def take_instructions(kernel: Kernel) -> Any:
        instructions = before[Kernel, "take_instructions"](kernel)
        reached.update(f"instruction: {type(one).__name__}" for one in instructions)
        return instructions

    def stage(timeline: Timeline, record: Any, following: str, **options: Any) -> None:
        if record.stages:
            reached[_stage(record.stages[-1].stage, following)] += 1
        before[Timeline, "_stage"](timeline, record, following, **options)

    async def finish(one: Binder, *rest: Any) -> None:
        try:
            await before[Binder, "finish"](one, *rest)
        except binder.BindingError as error:
            reached[f"binding: {type(error).__name__}"] += 1
            raise
        reached["binding: bound"] += 1

    async def keep(elector: LeaderElector) -> None:
        try:
            await before[LeaderElector, "keep"](elector)
        except LeadershipLost as error:
            why = "taken by another" if "holds it" in str(error) else "not renewed"
            reached[f"lease: lost: {why}"] += 1
            raise

    replaced: dict[tuple[type[Any], str], Callable[..., Any]] = {
        (PodStore, "move"): move,
        (Kernel, "handle"): handle,
        (Kernel, "take_instructions"): take_instructions,
        (Timeline, "_stage"): stage,
        (Binder, "finish"): finish,
        (LeaderElector, "keep"): keep,
    }
    before = {(owner, name): getattr(owner, name) for owner, name in replaced}
    try:
        for (owner, name), by in replaced.items():
            setattr(owner, name, functools.wraps(before[owner, name])(by))
        yield
    finally:
        for (owner, name), was in before.items():
            setattr(owner, name, was)
