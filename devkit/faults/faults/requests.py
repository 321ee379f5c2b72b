"""Faults of single requests: lost, refused, late, repeated, or carried out and not answered."""

from random import Random
from typing import Any, Final

from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World

#: What may be hit, by verb and resource; most often what a scheduler cannot do without.
_TARGETS: Final[tuple[dict[str, Any], ...]] = (
    {"verb": "create", "resource": "pods/binding"},
    {"verb": "create", "resource": "pods/binding"},
    {"verb": "patch", "resource": "pods/status"},
    {"verb": "delete", "resource": "pods"},
    {"resource": "leases*"},
    {"resource": "configmaps"},
    {"resource": "events*"},
    {"verb": "list"},
    {"verb": "watch"},
    {"resource": "persistentvolume*"},
    {"resource": "resourceclaims*"},
    {},
)
#: What outlasts its sender.
LATE: Final = "request carried out though its sender has gone"
#: Those that change something.
_WRITES: Final = tuple(one for one in _TARGETS if one.get("verb") in ("create", "patch", "delete"))
#: As an API server sends it, and as proxies and worse do.
_RETRY_AFTER: Final = (
    None, None, 0, 1, 7, 120,
    "", "soon", "-5", "1.5", "9" * 30,
    "Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 99 Oct 2015",
)  # fmt: skip


def _target(rng: Random) -> dict[str, Any]:
    return {**rng.choice(_TARGETS), "times": rng.choice([1, 1, 1, 2, 5])}


def _refused(code: int) -> Any:
    def arrange(world: World, rng: Random) -> None:
        after = rng.choice(_RETRY_AFTER) if code in (429, 503) else None
        world.add_fault(
            f"request refused: {code}",
            world.cluster.faults.fail(
                code, retry_after=after, applied=code >= 500 and rng.random() < 0.5, **_target(rng)
            ),
        )

    return arrange


def _lost(*, applied: bool) -> Any:
    def arrange(world: World, rng: Random) -> None:
        fault = world.cluster.faults.drop(applied=applied, **_target(rng))
        world.add_fault("answer lost" if applied else "request lost", fault)

    return arrange


def _unanswered(*, applied: bool) -> Any:
    def arrange(world: World, rng: Random) -> None:
        # What was not carried out before is lost: see `_most_late`.
        hold = world.cluster.faults.hang(applied=applied, dropped=not applied, **_target(rng))
        world.add_fault("answer held back" if applied else "request unanswered", hold)
        world.server.later(rng.expovariate(1 / 40.0), hold.release)

    return arrange


def _most_late(world: World) -> float:
    """Seconds: one that takes effect later than its sender's lease lasts is beyond any scheduler.

    The sender may be paused, or cut off so that the API server does not learn that it has gone.
    """
    duration, deadline, _ = world.plan.lease
    return 0.9 * (duration - deadline)


def _late(world: World, rng: Random) -> None:
    target, seconds = _target(rng), rng.expovariate(1 / 5.0)
    if target.get("verb") not in ("list", "watch"):
        seconds = min(seconds, _most_late(world))
    world.add_fault("request late", world.cluster.faults.delay(seconds, **target))


def _late_for_good(world: World, rng: Random) -> None:
    fault = world.cluster.faults.delay(
        rng.uniform(0.0, _most_late(world)),
        persists=True,
        **{**rng.choice(_WRITES), "times": rng.choice([1, 2])},
    )
    world.add_fault(LATE, fault)


def _twice(world: World, rng: Random) -> None:
    match = {**rng.choice(_WRITES), "times": rng.choice([1, 2])}
    world.add_fault("request carried out twice", world.cluster.faults.repeat(**match))


def _answered_twice(world: World, rng: Random) -> None:
    # In pieces, the second answer could be taken for that to the next request, as by any client.
    if not world.network.weather.pieces:
        match = {**rng.choice(_WRITES), "times": rng.choice([1, 2])}
        world.add_fault("answer sent twice", world.cluster.faults.answer_twice(**match))


def _paged(world: World, rng: Random) -> None:
    fault = world.cluster.faults.page(
        rng.choice([1, 2, 7]), verb="list", times=rng.choice([5, 50, 500])
    )
    world.add_fault("list in small pages", fault)


KINDS: Final = (
    FaultKind("request refused: 409", _refused(409)),
    FaultKind("request refused: 429", _refused(429)),
    FaultKind("request refused: 500", _refused(500)),
    FaultKind("request refused: 503", _refused(503)),
    FaultKind("request lost", _lost(applied=False)),
    FaultKind("answer lost", _lost(applied=True)),
    FaultKind("request unanswered", _unanswered(applied=False)),
    FaultKind("answer held back", _unanswered(applied=True)),
    FaultKind("request late", _late),
    FaultKind(LATE, _late_for_good, 0.5),
    FaultKind("request carried out twice", _twice, 0.5),
    FaultKind("answer sent twice", _answered_twice, 0.5),
    FaultKind("list in small pages", _paged, 0.5),
)
