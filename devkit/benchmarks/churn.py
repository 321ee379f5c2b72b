"""Pods that come and go at a steady rate, so that a cluster is in balance, and what became of each.

Owns the pods and their ledger. They are of several classes; ReplicaSets and Jobs own most of them,
and the pods of a Job are a group that is placed as a whole. A pod is deleted some seconds after it
was seen bound: none that waits is.
"""

import asyncio
import contextlib
import itertools
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from devkit.benchmarks import objects
from devkit.benchmarks.bench_reload import Sightings
from devkit.benchmarks.edits import GROUP_LABEL, SHARDS, SIZE_LABEL
from devkit.benchmarks.load import collection_path, version_now
from devkit.benchmarks.objects import NAMESPACE, Manifest
from devkit.benchmarks.wire import Wire, WireError
from tests.controlplane import ControlPlane

#: Class -> how many of 100 owners are of it, the sizes of an owner, and what a pod requests.
_CLASSES: Final[Mapping[str, tuple[int, tuple[int, ...], dict[str, str]]]] = {
    "web": (40, (1, 2, 3, 5), {"cpu": "100m", "memory": "128Mi"}),
    "batch": (25, (1,), {"cpu": "200m", "memory": "256Mi"}),
    "cache": (12, (1, 3), {"cpu": "100m", "memory": "512Mi"}),
    "report": (13, (1, 2, 4), {"cpu": "150m", "memory": "128Mi"}),
    "train": (10, (3, 4), {"cpu": "300m", "memory": "256Mi"}),
}
_TICK: Final = 0.2
#: With so many times the pods that there should be at a time, each connection waits so long.
_MOST_TIMES: Final = 3
_SLOW_SECONDS: Final = 1.0
# No kubelet confirms a deletion.
_AT_ONCE: Final = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


def pods_of_owners(seed: int) -> Iterator[Manifest]:
    """Pods without end, those of one owner one after the other."""
    rng = random.Random(seed)
    kinds, weights = list(_CLASSES), [share for share, _, _ in _CLASSES.values()]
    number = owner = 0
    while True:
        (kind,) = rng.choices(kinds, weights)
        _, sizes, requests = _CLASSES[kind]
        size = rng.choice(sizes)
        owner += 1
        for _ in range(size):
            yield _pod(number, owner, kind, size, requests)
            number += 1


def _pod(number: int, owner: int, kind: str, size: int, requests: dict[str, str]) -> Manifest:
    labels = {"class": kind, "shard": str(number % SHARDS)}
    name = f"{kind}-{owner:06d}"
    if kind == "train":
        labels |= {GROUP_LABEL: name, SIZE_LABEL: str(size)}
    manifest = objects.pod(f"{name}-{number:07d}", labels=labels, requests=requests)
    if kind != "batch":  # pods of nobody's
        manifest["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "batch/v1" if kind == "train" else "apps/v1",
                "kind": "Job" if kind == "train" else "ReplicaSet",
                "name": name,
                "uid": f"00000000-0000-4000-8000-{owner:012d}",
                "controller": True,
            }
        ]
    return manifest


@dataclass(slots=True)
class Ledger:
    """What became of the pods: all that were created, deleted, and where each was seen."""

    created: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    sightings: Sightings = field(default_factory=Sightings)

    @property
    def is_all_bound(self) -> bool:
        """True if every pod was seen on a node."""
        return len(self.sightings.bound_at) >= len(self.created)

    def problems(self, listed: Mapping[str, str], answers: Mapping[str, int]) -> list[str]:
        """What is wrong once nothing moves any more.

        Args:
            listed: By pod name, its node at the end; empty if it has none.
            answers: The API server's count of binding requests by status code.
        """
        seen, created = self.sightings.nodes, set(self.created)
        found = [f"pod `{name}` was never bound" for name in sorted(created - seen.keys())]
        found += [
            f"pod `{name}` is gone" for name in sorted(created - self.deleted - listed.keys())
        ]
        found += [
            f"pod `{name}` was seen on {' and '.join(f'`{n}`' for n in sorted(nodes))}"
            for name, nodes in sorted(seen.items())
            if len(nodes | {listed.get(name) or min(nodes)}) > 1
        ]
        if (accepted := answers.get("201", 0)) != len(seen):
            found.append(
                f"the API server accepted {accepted} bindings, want {len(seen)}, one per pod"
            )
        if conflicts := answers.get("409", 0):
            found.append(f"{conflicts} bindings were for pods that were bound already")
        return found


class Churn:
    """Creates pods at a rate and deletes each *lifetime* seconds after its binding.

    Args:
        plane: Where.
        rate: Pods created per second.
        lifetime: Seconds.
        seed: Of the pods.
    """

    def __init__(self, plane: ControlPlane, rate: float, lifetime: float, seed: int) -> None:
        self.ledger: Final = Ledger()
        self._plane = plane
        self._rate = rate
        self._lifetime = lifetime
        self._seed = seed
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Pods come and go until the end of the block, where all have come and none goes."""
        endpoint = self._plane.endpoint()
        async with (
            Wire(endpoint, in_flight=8) as creating,
            Wire(endpoint, in_flight=16) as deleting,
        ):
            watching = self.ledger.sightings.watch(creating, await version_now(creating))
            feeding, clearing = self._feed(creating), self._clear(deleting)
            self._tasks = [asyncio.create_task(one) for one in (watching, feeding, clearing)]
            try:
                yield
                self._stop.set()
                await asyncio.gather(*self._tasks[1:])
                await self._until_bound()
            finally:
                for task in self._tasks:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

    def check(self) -> None:
        """Raise what has ended one of the tasks."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def _feed(self, wire: Wire) -> None:
        started = time.monotonic()
        created = self.ledger.created

        def requests() -> Iterator[bytes]:
            for manifest in pods_of_owners(self._seed):
                # A group without its last pods would wait for ever.
                is_member = GROUP_LABEL in manifest["metadata"]["labels"]
                if self._stop.is_set() and not is_member:
                    return
                created.append(manifest["metadata"]["name"])
                yield wire.encode("POST", collection_path(manifest), manifest)

        def pause(place: int) -> float:
            # A machine that is too busy to delete them would fill the cluster.
            if len(created) - len(self.ledger.deleted) > _MOST_TIMES * self._rate * self._lifetime:
                return _SLOW_SECONDS
            return started + place / self._rate - time.monotonic()

        await wire.send_all(requests(), pause=pause)

    async def _clear(self, wire: Wire) -> None:
        bound_at, due = self.ledger.sightings.bound_at, deque[tuple[float, str]]()
        seen = 0
        while not self._stop.is_set():
            await asyncio.sleep(_TICK)
            if len(bound_at) > seen:
                fresh = itertools.islice(bound_at.items(), seen, None)
                due.extend((at + self._lifetime, name) for name, at in fresh)
                seen = len(bound_at)
            names = []
            while due and due[0][0] <= time.monotonic():
                names.append(due.popleft()[1])
            self.ledger.deleted.update(names)
            await asyncio.gather(*(self._delete(wire, name) for name in names))

    async def _delete(self, wire: Wire, name: str) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        answer = await wire.send(wire.encode("DELETE", path, _AT_ONCE))
        if answer.status not in (200, 202):
            raise WireError(f"DELETE {path}: {answer.status} {answer.body.decode()}")

    async def _until_bound(self, patience: float = 60.0) -> None:
        """Return when all are bound, or none was for so many seconds: the check names those."""
        moved_at, before = time.monotonic(), -1
        bound_at = self.ledger.sightings.bound_at
        while not self.ledger.is_all_bound and time.monotonic() - moved_at < patience:
            if len(bound_at) > before:
                before, moved_at = len(bound_at), time.monotonic()
            await asyncio.sleep(0.1)
