"""Single faults of a calm cluster, one after the other, and what is right some seconds after each.

Owns the script, of which each world has a part. Among many faults one hides what another does;
here nothing else helps, and nothing else can be the cause.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from engine.devcluster.errors import expired, internal_error
from engine.devcluster.faults import Fault, Faults
from engine.fault_simulation.network import Weather

if TYPE_CHECKING:
    from engine.fault_simulation.world import World

#: Longer than a request waits for its answer.
_DONE_SECONDS: Final = 60.0
#: For which a watch says nothing of what happens.
_SILENT_SECONDS: Final = 3.0
_TIMES: Final = 2
#: So many happen in a world: all of them would take longer than the rest of it.
OF_A_WORLD: Final = 8
_PIECES: Final = 100

_REQUESTS: Final[tuple[dict[str, Any], ...]] = (
    {"verb": "create", "resource": "pods/binding"},
    {"verb": "patch", "resource": "pods/status"},
)
_OUTCOMES: Final[dict[str, Callable[..., Fault]]] = {
    "refused with 409": partial(Faults.fail, code=409),
    "refused with 500": partial(Faults.fail, code=500),
    "refused with 429": partial(Faults.fail, code=429, retry_after=1),
    "carried out and refused with 500": partial(Faults.fail, code=500, applied=True),
    "lost": Faults.drop,
    "carried out, and the answer lost": partial(Faults.drop, applied=True),
    "unanswered": Faults.hang,
    "carried out and unanswered": partial(Faults.hang, applied=True),
}
_WATCHED: Final = ("pods", "nodes", "replicasets.apps")


class Disturbance(NamedTuple):
    """A fault.

    Attributes:
        name: What goes wrong.
        begin: Lets it.
        end: Undoes what would go on.
    """

    name: str
    begin: Callable[["World"], Any]
    end: Callable[["World"], Any]


def disturbances() -> list[Disturbance]:
    """All of them, in their order."""
    found = [
        Disturbance(f"{request['verb']} {request['resource']} is {outcome}", begin, _end_faults)
        for request in _REQUESTS
        for outcome, arrange in _OUTCOMES.items()
        for begin in [partial(_disturb_requests, arrange=arrange, request=request)]
    ]
    for resource in _WATCHED:
        found += [
            Disturbance(f"watch of {resource}: {name}", partial(act, resource=resource), _nothing)
            for name, act in (
                ("ended", _close),
                ("broken off", _abort),
                ("error 500", _fail),
                ("says 410, and objects went", _miss_deletions),
            )
        ]
    found.append(Disturbance("answers come in small pieces", _cut_small, _end_pieces))
    return found


def disturb(world: "World", check: Callable[[str], None]) -> None:
    """Let some happen while pods come that fit and others that do not; *check* after each."""
    world.server.call(world.life.add_large_node)
    for one in world.stream("disturbances").sample(disturbances(), OF_A_WORLD):
        one.begin(world)
        world.server.call(world.life.add_small_pods)
        world.server.call(world.life.add_large_pods)
        world.go_on(_DONE_SECONDS)
        one.end(world)
        check(one.name)
        world.server.call(world.life.remove_added)
        world.go_on(_SILENT_SECONDS)
        if world.outcome.violations:
            return


def _disturb_requests(
    world: "World", arrange: Callable[..., Fault], request: dict[str, Any]
) -> None:
    arrange(world.cluster.faults, times=_TIMES, **request)


def _end_faults(world: "World") -> None:
    world.cluster.faults.clear()


def _nothing(_: "World") -> None:
    pass


def _close(world: "World", resource: str) -> None:
    world.cluster.close_watches(resource)


def _abort(world: "World", resource: str) -> None:
    world.cluster.close_watches(resource, abort=True)


def _fail(world: "World", resource: str) -> None:
    for watch in world.cluster.watches(resource):
        watch.fail(internal_error("etcd has no leader"))


def _miss_deletions(world: "World", resource: str) -> None:
    """Let the next list be the first that shows that pods and a node are gone."""
    world.server.call(world.life.add_small_pods)
    world.go_on(_SILENT_SECONDS)
    world.cluster.stall_watches(resource)
    world.server.call(world.life.remove_added)
    world.server.call(world.life.remove_last_node)
    world.server.call(world.life.add_large_node)
    world.go_on(_SILENT_SECONDS)
    world.cluster.store.compact()
    for watch in world.cluster.watches(resource):
        watch.fail(expired("too old resource version"))
    world.cluster.resume_watches()


def _cut_small(world: "World") -> None:
    world.network.weather = Weather(pieces=_PIECES)


def _end_pieces(world: "World") -> None:
    world.network.weather = Weather(pieces=world.plan.pieces)
