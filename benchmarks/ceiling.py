"""The ceiling: binds pods round robin without looking at anything, as fast as it can.

What is left when deciding costs nothing: a watch of pending pods, a binding and an event per pod.
No scheduler can be faster on the same machine with the same API server, give or take how cheap its
client is. Runs as a process of its own: `python -m benchmarks.ceiling URL CA_FILE TOKEN`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import uvloop

from benchmarks.load import follow
from benchmarks.wire import METADATA_ONLY, WatchedName, Wire, WireError
from engine.kube.config import Endpoint

READY: Final = "ready"
_IN_FLIGHT: Final = 48
_PENDING: Final = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D&allowWatchBookmarks=true"

_decode_event = msgspec.json.Decoder(WatchedName).decode


async def bind_everything(endpoint: Endpoint) -> None:
    """Bind every pod that comes, for ever."""
    async with Wire(endpoint, in_flight=_IN_FLIGHT) as wire:
        names = [node["metadata"]["name"] for node in await wire.list_all("/api/v1/nodes")]
        page = msgspec.json.decode(await wire.get("/api/v1/pods?limit=1"))
        print(READY, flush=True)
        version = page["metadata"]["resourceVersion"]
        bindings: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        events: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(_take(_pending(wire, version), names, bindings))
            for _ in range(_IN_FLIGHT // 2):
                group.create_task(_bind(wire, bindings, events))
            group.create_task(_tell(wire, bindings, events))


async def _pending(wire: Wire, version: str) -> AsyncIterator[tuple[str, str]]:
    async for line in follow(wire, _PENDING, version, accept=METADATA_ONLY):
        event = _decode_event(line)
        if event.type == "ADDED":
            yield event.object.metadata.namespace, event.object.metadata.name


async def _take(
    pods: AsyncIterator[tuple[str, str]],
    nodes: list[str],
    bindings: "asyncio.Queue[tuple[str, str, str]]",
) -> None:
    number = 0
    async for namespace, name in pods:
        bindings.put_nowait((namespace, name, nodes[number % len(nodes)]))
        number += 1


async def _bind(
    wire: Wire,
    bindings: "asyncio.Queue[tuple[str, str, str]]",
    events: "asyncio.Queue[tuple[str, str, str]]",
) -> None:
    while True:
        namespace, name, node = await bindings.get()
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        answer = await wire.send(wire.encode("POST", path, body))
        if answer.status >= 300 and answer.status != 409:
            raise WireError(f"POST {path}: {answer.status}")
        events.put_nowait((namespace, name, node))


async def _tell(
    wire: Wire,
    bindings: "asyncio.Queue[tuple[str, str, str]]",
    events: "asyncio.Queue[tuple[str, str, str]]",
) -> None:
    """Write an event per pod; bindings go first."""
    while True:
        namespace, name, node = await events.get()
        while not bindings.empty():
            await asyncio.sleep(0.005)
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.ceiling", "namespace": namespace},
            "eventTime": now,
            "type": "Normal",
            "reason": "Scheduled",
            "action": "Binding",
            "note": f"Successfully assigned {namespace}/{name} to {node}",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace},
            "reportingController": "ceiling",
            "reportingInstance": "ceiling",
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        answer = await wire.send(wire.encode("POST", path, body))
        if answer.status >= 300:
            raise WireError(f"POST {path}: {answer.status}")


if __name__ == "__main__":
    server, ca_file, token = sys.argv[1:]
    uvloop.run(bind_everything(Endpoint(server=server, ca_file=ca_file, token=token)))
