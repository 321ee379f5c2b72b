"""Single faults of a calm cluster, one after the other, and what is right some seconds after each.

Owns the script, of which each world has a part. Among many faults one hides what another does;
here nothing else helps, and nothing else can be the cause.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from devkit.cluster.faults import Fault, Faults
from devkit.faults.names import LEASE
from devkit.faults.network import Weather
from devkit.faults.world import World
from engine.core.manifests.errors import expired, internal_error

#: Longer than a request waits for its answer.
_DONE_SECONDS: Final = 60.0
#: For which a watch says nothing of what happens.
_SILENT_SECONDS: Final = 3.0
_TIMES: Final = 2
#: So many happen in a world: all of them would take longer than the rest of it.
OF_A_WORLD: Final = 12
_PIECES: Final = 100

_PODS: Final = 4
#: Of requests, as many as there may be.
_MANY: Final = 100
#: For which a request waits before it takes effect; one about a lease waits no longer than 1 s.
_LATE_SECONDS: Final = 5.0
_NEWS_SECONDS: Final = 0.9
#: Long enough for several looks at what is held; pods evict others in vain meanwhile.
_REFUSED_SECONDS: Final = 10.0

_BINDING: Final[dict[str, Any]] = {"verb": "create", "resource": "pods/binding"}
_STATUS: Final[dict[str, Any]] = {"verb": "patch", "resource": "pods/status"}
_LEASE: Final[dict[str, Any]] = {"verb": "update", "resource": "leases*"}
_REQUESTS: Final = (_BINDING, _STATUS)
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
        is_calm: Nothing may even fail of it.
    """

    name: str
    begin: Callable[[World], Any]
    end: Callable[[World], Any]
    is_calm: bool = False


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
    found += [
        Disturbance("answers come in small pieces", _cut_small, _end_pieces, is_calm=True),
        Disturbance("conditions are written late, and a node comes", _node_comes, _end_faults),
        Disturbance("claims cannot be written", _refuse_claims, _end_faults),
        Disturbance("bindings are late, and another program binds", _others_bind, _end_faults),
        Disturbance("the leader is paused beyond its lease", _pause, _have_leader),
        Disturbance(
            "the leader is paused within its last renewal", _pause_in_renewal, _have_leader
        ),
        Disturbance("renewals of the lease are late", _renew_late, _end_faults),
        Disturbance("replicas begin at the same time", _begin_together, _have_leader),
        Disturbance("leaders end while victims go", _end_amid_evictions, _let_go),
    ]
    return found


def of_world(seed: int) -> list[Disturbance]:
    """Those of the world of *seed*: the next seed goes on where this one stops."""
    found = disturbances()
    first = seed * OF_A_WORLD % len(found)
    return [*found[first:], *found[:first]][:OF_A_WORLD]


def disturb(world: World, check: Callable[[str], None]) -> None:
    """Let some happen while pods come that fit and others that do not; *check* after each."""
    world.server.call(world.life.add_large_node)
    for one in of_world(world.plan.seed):
        world.is_calm = one.is_calm
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


def _disturb_requests(world: World, arrange: Callable[..., Fault], request: dict[str, Any]) -> None:
    arrange(world.cluster.faults, times=_TIMES, **request)


def _end_faults(world: World) -> None:
    world.cluster.faults.clear()


def _nothing(_: World) -> None:
    pass


def _close(world: World, resource: str) -> None:
    world.cluster.close_watches(resource)


def _abort(world: World, resource: str) -> None:
    world.cluster.close_watches(resource, abort=True)


def _fail(world: World, resource: str) -> None:
    for watch in world.cluster.watches(resource):
        watch.fail(internal_error("etcd has no leader"))


def _miss_deletions(world: World, resource: str) -> None:
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


def _node_comes(world: World) -> None:
    """Have pods bound, by the node that they wait for, while their conditions are under way."""
    node = world.life.next_node()
    world.cluster.faults.delay(_LATE_SECONDS, **_STATUS, times=_MANY)
    world.server.call(partial(world.life.add_pods_for, node, _PODS, "100m"))
    world.go_on(_SILENT_SECONDS / 2)
    world.server.call(partial(world.life.add_node_named, node))
    world.go_on(_LATE_SECONDS)


def _refuse_claims(world: World) -> None:
    """Have bindings given up after devices were held for them."""
    world.cluster.faults.fail(403, resource="resourceclaims*/status", times=None)
    world.server.call(world.life.add_claimers)
    world.go_on(_REFUSED_SECONDS)
    _end_faults(world)


def _others_bind(world: World) -> None:
    """Bind pods to other nodes while their bindings are under way."""
    world.cluster.faults.delay(_LATE_SECONDS, **_BINDING, times=_MANY)
    world.server.call(world.life.add_small_pods)
    world.go_on(_SILENT_SECONDS)
    world.server.call(world.life.bind_added)
    world.go_on(_LATE_SECONDS)


def _pause(world: World) -> None:
    """Let pods come just when a leader goes on whose lease has been over for long."""
    leader = world.leaders[0].host
    leader.pause()
    world.go_on(2.0 * world.plan.lease[0])
    world.cluster.faults.delay(_NEWS_SECONDS, **_LEASE, times=_MANY)
    leader.resume()


def _pause_in_renewal(world: World) -> None:
    """Let a leader learn late of the last renewal of its lease, and pods come until it is over."""
    duration, deadline, _ = world.plan.lease
    leader = world.leaders[0].host
    renewals = world.cluster.faults.hang(applied=True, **_LEASE)
    while not renewals.hits and not world.outcome.violations:
        world.go_on(0.1)
    leader.pause()
    renewals.release()
    world.go_on(duration - deadline + _SILENT_SECONDS)
    world.cluster.faults.fail(503, **_LEASE, times=None)
    leader.resume()
    world.go_on(deadline - _SILENT_SECONDS)
    for _ in range(_TIMES * int(_SILENT_SECONDS)):
        world.server.call(world.life.add_small_pods)
        world.go_on(1.0)
    _end_faults(world)


def _renew_late(world: World) -> None:
    """Delay renewals of the lease, but not beyond it: the leader must stay the same."""
    leader = world.leaders[0].host.name
    for _ in range(_TIMES):
        world.cluster.faults.hang(dropped=True, **_LEASE)
        world.go_on(1.5 * world.plan.lease[0])
    if [one.host.name for one in world.leaders] != [leader]:
        world.violate("one replica leads", LEASE, "another one leads, though renewals are in time")


def _begin_together(world: World) -> None:
    """Let all replicas find that there is no lease, and make one, at the same time."""
    for replica in world.replicas:
        replica.kill()
        world.restart_later(replica, 1.0)
    world.take_lease_away("")
    world.cluster.faults.delay(_NEWS_SECONDS, verb="create", resource="leases*", times=_MANY)


def _have_leader(world: World) -> None:
    """Let the next leader, which may have to wait until a lease is over, do what is left to do."""
    _end_faults(world)
    world.go_on(1.5 * world.plan.lease[0])


def _end_amid_evictions(world: World) -> None:
    """Kill the leader, and the next one, while pods go that were evicted for another one."""
    node = world.life.next_node()
    world.server.call(partial(world.life.add_node_named, node))
    world.server.call(partial(world.life.add_pods_for, node, _PODS, "900m"))
    world.go_on(_SILENT_SECONDS)
    world.server.call(world.life.hold_on)
    world.server.call(partial(world.life.add_pods_for, node, 1, "3500m", "high"))
    world.go_on(_SILENT_SECONDS)
    for _ in range(_TIMES):
        leader = world.leaders[0]
        leader.kill()
        world.restart_later(leader, 1.0)
        world.go_on(2.0 * world.plan.lease[0])


def _let_go(world: World) -> None:
    world.server.call(world.life.let_go)


def _cut_small(world: World) -> None:
    world.network.weather = Weather(pieces=_PIECES)


def _end_pieces(world: World) -> None:
    world.network.weather = Weather(pieces=world.plan.pieces)
