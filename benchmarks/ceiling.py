"""The ceiling: binds pods round robin without looking at anything, as fast as it can.

The costs without any deciding: a watch of pending pods, a binding and an event per pod.
No scheduler can be faster on the same machine with the same API server, give or take how cheap its
client is. Runs as a process of its own: `python -m benchmarks.ceiling URL CA_FILE TOKEN`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
import uvloop

from benchmarks.load import follow, version_now
from benchmarks.objects import Manifest
from benchmarks.wire import METADATA_ONLY, WatchedName, Wire, WireError
from engine.kube.config import Endpoint

READY: Final = "ready"
_IN_FLIGHT: Final = 48
_PENDING: Final = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D&allowWatchBookmarks=true"

_decode_event = msgspec.json.Decoder(WatchedName).decode


class _Work(NamedTuple):
    """One thing to send; bindings (rank 0) go before events (rank 1)."""

    rank: int
    number: int
    namespace: str
    pod: str
    node: str


async def bind_everything(endpoint: Endpoint) -> None:
    """Bind every pod that comes, forever."""
    async with Wire(endpoint, in_flight=_IN_FLIGHT) as wire:
        nodes = [node["metadata"]["name"] for node in await wire.list_all("/api/v1/nodes")]
        version = await version_now(wire)
        print(READY, flush=True)
        work: asyncio.PriorityQueue[_Work] = asyncio.PriorityQueue()
        async with asyncio.TaskGroup() as group:
            for _ in range(_IN_FLIGHT):
                group.create_task(_send(wire, work))
            number = 0
            async for namespace, name in _pending(wire, version):
                work.put_nowait(_Work(0, number, namespace, name, nodes[number % len(nodes)]))
                number += 1


async def _pending(wire: Wire, version: str) -> AsyncIterator[tuple[str, str]]:
    async for line in follow(wire, _PENDING, version, accept=METADATA_ONLY):
        event = _decode_event(line)
        if event.type == "ADDED":
            yield event.object.metadata.namespace, event.object.metadata.name


async def _send(wire: Wire, work: "asyncio.PriorityQueue[_Work]") -> None:
    while True:
        item = await work.get()
        path, body = _binding(item) if item.rank == 0 else _event(item)
        answer = await wire.send(wire.encode("POST", path, body))
        if answer.status >= 300 and answer.status != 409:
            raise WireError(f"POST {path}: {answer.status}")
        if item.rank == 0:
            work.put_nowait(item._replace(rank=1))


def _binding(item: _Work) -> tuple[str, Manifest]:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": item.pod, "namespace": item.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": item.node},
    }
    return f"/api/v1/namespaces/{item.namespace}/pods/{item.pod}/binding", body


def _event(item: _Work) -> tuple[str, Manifest]:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    about = {"apiVersion": "v1", "kind": "Pod", "name": item.pod, "namespace": item.namespace}
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{item.pod}.ceiling", "namespace": item.namespace},
        "eventTime": now,
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": f"Successfully assigned {item.namespace}/{item.pod} to {item.node}",
        "regarding": about,
        "reportingController": "ceiling",
        "reportingInstance": "ceiling",
    }
    return f"/apis/events.k8s.io/v1/namespaces/{item.namespace}/events", body


if __name__ == "__main__":
    server, ca_file, token = sys.argv[1:]
    uvloop.run(bind_everything(Endpoint(server=server, ca_file=ca_file, token=token)))
