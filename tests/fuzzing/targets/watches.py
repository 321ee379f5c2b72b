"""Lists and watches: what an informer makes of any bytes, and the kernel of its objects.

An input has a section for each watch, with an empty line between them. The first kind of object in
a section says what is watched; a first line with `items` is the answer to the list before it.
"""

import asyncio
import contextlib
import functools
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

from engine.core.kernel.events import ObjectChanged, TurnBegan
from engine.core.kernel.kernel import decided
from engine.io.event_handlers import ObjectReporter
from engine.io.informers import OTHER_OBJECTS, decode_node, decoder_of, pod_decoder
from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.resources import Resource
from engine.io.kube.transport import Observer, Pieces, Request
from engine.io.watching.informer import Decoding, Handler, Informer
from engine.lib.clock import VirtualClock
from tests.fuzzing.targets.http import cut, loop
from tests.fuzzing.targets.policies import kernel_of, survived
from tests.profiles import default_bundle, default_evaluator

_BY_KIND: Final[dict[str, tuple[Resource, Callable[[bytes], Any]]]] = {
    "Pod": (resources.PODS, pod_decoder()),
    "Node": (resources.NODES, decode_node),
    **{one.kind: (one, decoder_of(record)) for one, record in OTHER_OBJECTS},
}
_EMPTY: Final = b'{"metadata":{"resourceVersion":"1"},"items":[]}'
_KIND: Final = re.compile(rb'"kind":"([A-Za-z]+?)(?:List)?"')
#: Decisions about what the watch brought.
_DECISIONS: Final = 3


class _Done(Exception):
    """The input is used up."""


class _Server:
    """A transport to a server that sends *listed* and *watched* once, and then ends it."""

    def __init__(self, listed: bytes, watched: Iterable[bytes]) -> None:
        self.observer: Observer | None = None
        self._lists = iter((listed,))
        self._watches = iter((watched,))

    async def send(self, request: Request) -> bytes:
        return next(self._lists, _EMPTY)

    def send_now(self, request: Request) -> "asyncio.Future[bytes] | None":
        return None

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Pieces]:
        watched = next(self._watches, None)
        if watched is None:
            raise _Done
        yield _pieces(watched)

    async def close(self) -> None: ...


async def _pieces(watched: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in watched:
        yield piece


class _Mirror:
    """A handler with its own copy: an effect that is lost or reported twice fails at once."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.added = self.deleted = 0

    def on_add(self, obj: Any) -> None:
        self.added += 1
        self.objects[id(obj)] = obj

    def on_update(self, old: Any, new: Any) -> None:
        self.on_delete(old)
        self.on_add(new)

    def on_delete(self, obj: Any) -> None:
        self.deleted += 1
        del self.objects[id(obj)]


async def _no_sleep(_seconds: float) -> None: ...


def run(data: bytes) -> None:
    """Watch *data*, whole and in pieces, and have the kernel decide on what it brought."""
    changes: list[ObjectChanged] = []
    for section in data.split(b"\n\n"):
        first, newline, rest = section.partition(b"\n")
        listed, watched = (first, rest) if b'"items"' in first and newline else (_EMPTY, section)
        resource, decode = _resource_of(section)
        reporter = ObjectReporter(resource.plural, changes.append)
        whole = _mirrored(resource, decode, listed, [watched], reporter)
        in_pieces = _mirrored(resource, decode, listed, cut(watched))
        assert in_pieces == whole, "the outcome depends on the pieces"
    if changes:
        _decide(changes)


def _decide(changes: Iterable[ObjectChanged]) -> None:
    """Have a kernel take *changes* and decide."""
    kernel = kernel_of(default_bundle(), default_evaluator())
    for change in changes:
        survived(kernel.handle(change, 0.0))
    kernel.check_invariants()
    survived(kernel.handle(TurnBegan(), 1.0))
    for _ in range(_DECISIONS):
        survived(decided(kernel.decide(1.0)))
    kernel.check_invariants()


def _resource_of(section: bytes) -> tuple[Resource, Callable[[bytes], Any]]:
    """The resource of the first kind that *section* names, and its decoder."""
    found = _KIND.search(section)
    return _BY_KIND.get(found[1].decode() if found else "", _BY_KIND["Pod"])


@functools.cache
def _client() -> ApiClient:
    return ApiClient(
        Endpoint(server="http://127.0.0.1:1"), clock=VirtualClock(), rng=random.Random(0)
    )


def _mirrored(
    resource: Resource,
    decode: Callable[[bytes], Any],
    listed: bytes,
    pieces: Iterable[bytes],
    *handlers: Handler[Any],
) -> object:
    """What an informer has counted and knows in the end."""
    client = _client()
    client._transport = _Server(listed, pieces)
    mirror = _Mirror()
    informer = Informer(
        client,
        resource,
        Decoding(decode),
        [mirror, *handlers],
        sleep=_no_sleep,
    )
    with contextlib.suppress(_Done):
        loop().run_until_complete(informer.run())
    assert {id(one) for one in informer.values()} == mirror.objects.keys()
    assert len(informer) == mirror.added - mirror.deleted
    assert informer.counts.handler_errors == 0
    return informer.counts, len(informer), informer.resource_version
