"""Faults of single requests: lost, refused, late, or carried out and not answered."""

from random import Random
from typing import TYPE_CHECKING, Any, Final

from engine.fault_simulation.faults.kind import FaultKind

if TYPE_CHECKING:
    from engine.fault_simulation.world import World

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


def _target(rng: Random) -> dict[str, Any]:
    return {**rng.choice(_TARGETS), "times": rng.choice([1, 1, 1, 2, 5])}


def _refused(code: int) -> Any:
    def arrange(world: "World", rng: Random) -> None:
        after = rng.choice([None, 0, 1, 7, 120]) if code in (429, 503) else None
        world.add_fault(
            f"request refused: {code}",
            world.cluster.faults.fail(
                code, retry_after=after, applied=code >= 500 and rng.random() < 0.5, **_target(rng)
            ),
        )

    return arrange


def _lost(*, applied: bool) -> Any:
    def arrange(world: "World", rng: Random) -> None:
        fault = world.cluster.faults.drop(applied=applied, **_target(rng))
        world.add_fault("answer lost" if applied else "request lost", fault)

    return arrange


def _unanswered(*, applied: bool) -> Any:
    def arrange(world: "World", rng: Random) -> None:
        hold = world.cluster.faults.hang(applied=applied, **_target(rng))
        world.add_fault("answer held back" if applied else "request unanswered", hold)
        world.server.later(rng.expovariate(1 / 40.0), hold.release)

    return arrange


def _late(world: "World", rng: Random) -> None:
    world.add_fault(
        "request late", world.cluster.faults.delay(rng.expovariate(1 / 5.0), **_target(rng))
    )


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
)
