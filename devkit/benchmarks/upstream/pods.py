"""What the API server shows of the pods of a run: which are bound, and when each was.

Owns the watch. Of a pod it reads metadata only, in an encoding that no scheduler asks for, so that
none is helped by it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from devkit.benchmarks.load import follow, version_now
from devkit.benchmarks.wire import METADATA_ONLY, WatchedName, Wire

_BOUND: Final = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName!%3D&allowWatchBookmarks=true"

Labels = Mapping[str, str]

_decode = msgspec.json.Decoder(WatchedName).decode


@dataclass(slots=True)
class BoundPods:
    """Pods that are bound, as a watch shows them. Use as an async context manager.

    Attributes:
        now: Those that are there, by namespace and name, with their labels.
        on_bound: Called with namespace, name and labels of each, at once.
        on_gone: Called with namespace and name of each that is deleted.
    """

    wire: Wire
    now: dict[str, dict[str, Labels]] = field(default_factory=dict)
    on_bound: list[Callable[[str, str, Labels], None]] = field(default_factory=list)
    on_gone: list[Callable[[str, str], None]] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "BoundPods":
        self._task = asyncio.create_task(self._watch(await version_now(self.wire)))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def check(self) -> None:
        """Raise what has ended the watch."""
        if self._task is not None and self._task.done():
            self._task.result()

    def count(self, namespaces: Collection[str], labels: Labels | None = None) -> int:
        """How many are bound in *namespaces*, of those with *labels*."""
        wanted = (labels or {}).items()
        found = (self.now.get(namespace, {}) for namespace in namespaces)
        if not wanted:
            return sum(map(len, found))
        return sum(wanted <= own.items() for pods in found for own in pods.values())

    async def _watch(self, version: str) -> None:
        async for line in follow(self.wire, _BOUND, version, accept=METADATA_ONLY):
            event = _decode(line)
            about = event.object.metadata
            if event.type == "DELETED":
                self.now.get(about.namespace, {}).pop(about.name, None)
                for gone in self.on_gone:
                    gone(about.namespace, about.name)
            elif event.type == "ADDED":
                self.now.setdefault(about.namespace, {})[about.name] = about.labels
                for call in self.on_bound:
                    call(about.namespace, about.name, about.labels)
