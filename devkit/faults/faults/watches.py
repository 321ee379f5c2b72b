"""Faults of watches: they stall, end, say that their history is gone, or what makes no sense."""

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from devkit.cluster.watches import Watch
from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World
from engine.core.manifests.errors import expired, internal_error

#: What becomes of a line, by chance.
_GARBLED: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (
    lambda line, rng: rng.randbytes(rng.randint(1, 60)) + b"\n",
    lambda line, rng: b"<html>502 Bad Gateway</html>\n",
    lambda line, rng: line[: rng.randrange(1, len(line))],  # the next one follows at once
    lambda line, rng: line[: rng.randrange(1, len(line))] + b"\n",
    lambda line, rng: _with_object(line, lambda found: {**found, "kind": "Secret"}),
    lambda line, rng: _with_object(line, lambda found: {**found, "metadata": None}),
    lambda line, rng: _with_object(line, lambda found: {"kind": found["kind"]}),
    lambda line, rng: _with_object(line, lambda found: None),
    lambda line, rng: _with_object(line, lambda found: [found]),
    lambda line, rng: b'{"type":"SURPRISE",' + line[line.index(b'"object"') :],
    lambda line, rng: b'{"type":"ADDED"}\n',
    lambda line, rng: b"[]\n",
)
#: The objects of ERROR events that no API server sends, but what is in between may.
_ERRORS: Final = (
    b"null",
    b"{}",
    b"[]",
    b'"too many"',
    b'{"kind":"Status","code":0}',
    b'{"kind":"Status","code":200,"status":"Success"}',
    b'{"kind":"Status","code":"410","reason":"Expired"}',
    b'{"kind":"Status","code":410}',
    b'{"kind":"Status","code":429,"details":{"retryAfterSeconds":-3}}',
    b'{"kind":"Status","code":503,"details":{"retryAfterSeconds":1e300}}',
    b'{"kind":"Status","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}',
    b'{"kind":"Status","code":999,"reason":"NoSuchThing","message":null}',
    b'{"kind":"Status","code":403,"reason":"Forbidden"}',
)


def _with_object(line: bytes, change: Callable[[Any], Any]) -> bytes:
    event = json.loads(line)
    event["object"] = change(event["object"])
    return json.dumps(event).encode() + b"\n"


def _some(world: World, rng: Random) -> list[Watch]:
    watches = world.cluster.watches()
    if not watches:
        return []
    return [rng.choice(watches)] if rng.random() < 0.8 else watches


def _stall(world: World, rng: Random) -> None:
    for watch in _some(world, rng):
        watch.stalled = True
        world.server.later(rng.expovariate(1 / 15.0), watch.resume)
        world.count("watch stalled")


def _close(world: World, rng: Random) -> None:
    for watch in _some(world, rng):
        watch.close()
        world.count("watch ended")


def _abort(world: World, rng: Random) -> None:
    for watch in _some(world, rng):
        watch.abort()
        world.count("watch broken off")


def _gone(world: World, rng: Random) -> None:
    for watch in _some(world, rng):
        watch.fail(expired("too old resource version"))
        world.count("watch says 410")


def _error(world: World, rng: Random) -> None:
    for watch in _some(world, rng):
        watch.fail(internal_error("etcd has no leader"))
        world.count("watch says 500")


def _compact(world: World, _: Random) -> None:
    world.cluster.store.compact()
    world.count("history compacted")


def _garble(world: World, rng: Random) -> None:
    def garbled(line: bytes) -> bytes:
        world.count("watch line garbled")
        return rng.choice(_GARBLED)(line, rng)

    for watch in _some(world, rng):
        watch.alter = garbled


def _repeat(world: World, rng: Random) -> None:
    def repeated(line: bytes) -> bytes:
        world.count("watch event repeated")
        return line * rng.choice([2, 2, 5])

    for watch in _some(world, rng):
        watch.alter = repeated


def _odd_error(world: World, rng: Random) -> None:
    for watch in _some(world, rng):
        watch.send(b'{"type":"ERROR","object":%s}\n' % rng.choice(_ERRORS))
        if rng.random() < 0.5:
            watch.close()
        world.count("watch with an odd error")


def _skip_bookmarks(world: World, rng: Random) -> None:
    for watch in _some(world, rng):
        watch.skip_bookmark = partial(world.count, "bookmark skipped")


def _reorder(world: World, rng: Random) -> None:
    """Stall all watches of one resource, those of each replica: what depends on it comes first."""
    watches = world.cluster.watches()
    if watches:
        kind = rng.choice(watches).kind
        seconds = rng.expovariate(1 / 10.0)
        for watch in watches:
            if watch.kind is kind:
                watch.stalled = True
                world.server.later(seconds, watch.resume)
        world.count("resource behind others")


KINDS: Final = (
    FaultKind("watch stalled", _stall),
    FaultKind("watch ended", _close),
    FaultKind("watch broken off", _abort),
    FaultKind("watch says 410", _gone),
    FaultKind("watch says 500", _error),
    FaultKind("watch line garbled", _garble),
    FaultKind("watch event repeated", _repeat, 0.5),
    FaultKind("watch with an odd error", _odd_error),
    FaultKind("bookmark skipped", _skip_bookmarks, 0.5),
    FaultKind("resource behind others", _reorder, 0.5),
    FaultKind("history compacted", _compact, 0.5),
)
