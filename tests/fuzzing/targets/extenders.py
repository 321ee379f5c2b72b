"""Answers of extenders: to every verb as a body, and as HTTP if an input begins like that."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from engine.core.framework.extender import Extender, ExtenderError
from engine.core.scheduling.extenders import (
    ExtenderFilter,
    ExtenderPreempt,
    ExtenderPrioritize,
    NodeVictims,
)
from engine.files.world import World
from engine.io.extender_calls import ExtenderCalls
from engine.io.kube.extender_client import ExtenderClient
from engine.lib.clock import VirtualClock
from tests.builders import make_pod, node_manifest, pod_manifest
from tests.fuzzing.targets.http import loop
from tests.fuzzing.targets.policies import metrics

T = TypeVar("T")


def run(data: bytes) -> None:
    """Give *data* as the answer to each question."""
    if data.startswith(b"HTTP/"):
        loop().run_until_complete(_over_http(data))
    else:
        loop().run_until_complete(_as_body(data))


class _Client:
    """Answers with the same body always."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def send(self, _verb: str, _body: bytes, read: Callable[[bytes], T], **_: Any) -> T:
        return read(self._body)

    def retire(self) -> None: ...

    async def close(self) -> None: ...


@functools.cache
def _world() -> World:
    nodes = [node_manifest(name) for name in ("a", "b", "c")]
    placed = [pod_manifest(f"on-{name}", node=name, uid=f"uid-{name}") for name in ("a", "b")]
    return World.from_manifests(nodes, placed)


@functools.cache
def _pod() -> Any:
    return make_pod("waiting", cpu="500m", uid="uid-waiting")


async def _as_body(data: bytes) -> None:
    world, pod = _world(), _pod()
    infos = [info for info in world.snapshot.infos if info is not None]
    victims = {i.name: NodeVictims(tuple(i.pods.values())) for i in infos if i.pods}
    for is_capable, is_ignorable in ((False, False), (True, True)):
        extender = Extender(
            "http://127.0.0.1:1",
            filter_verb="filter",
            prioritize_verb="prioritize",
            preempt_verb="preempt",
            bind_verb="bind",
            weight=5,
            node_cache_capable=is_capable,
            ignorable=is_ignorable,
        )
        calls = ExtenderCalls(metrics=metrics(), clock=VirtualClock())
        calls._extenders = (extender,)
        calls._clients[extender] = _Client(data)  # type: ignore[assignment]  # has its methods
        names = {info.name for info in infos}
        found = await calls.filter(ExtenderFilter(pod, infos))
        assert set(found.feasible) <= names
        if found.failure is None:
            assert names <= {*found.feasible, *found.rejected}
        scores = await calls.prioritize(ExtenderPrioritize(pod, infos))
        assert len(scores.totals) == len(infos)
        assert all(abs(total) < 1 << 62 for total in scores.totals)
        left = await calls.preempt(ExtenderPreempt(pod, victims, world.snapshot))
        assert left.victims.keys() <= names
        try:
            await calls.bind(pod, "a")
        except ExtenderError as error:
            str(error)


async def _over_http(data: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = ExtenderClient(Extender(f"http://127.0.0.1:{port}"))
        try:
            body = await client.send("filter", b"{}", bytes)
            assert len(body) <= 1 << 20
        except ExtenderError as error:
            str(error)
        finally:
            await client.close()
