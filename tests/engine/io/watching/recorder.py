"""A handler that remembers what it was told, and checks that it makes sense."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from engine.io.kube.client import ApiClient
from engine.io.kube.resources import PODS, Resource
from engine.io.watching.informer import Decoding, Informer
from engine.io.watching.reflector import WatchOptions

Plain = dict[str, Any]


def decode(raw: bytes) -> Plain:
    """The object as plain data; `malformed` in it stands for whatever a decoder may dislike."""
    obj: Plain = json.loads(raw)
    if obj.get("malformed"):
        raise ValueError("want a well-formed object")
    return obj


def name_of(obj: Plain) -> str:
    return str(obj["metadata"]["name"])


def version_of(obj: Plain) -> str:
    return str(obj["metadata"]["resourceVersion"])


class Recorder:
    """Keeps its own mirror, so an effect that is lost or told twice fails at once."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str, str]] = []  # what, name, resourceVersion
        self.mirror: dict[str, Plain] = {}  # by uid
        self._changed = asyncio.Event()

    def on_add(self, obj: Plain) -> None:
        uid = obj["metadata"]["uid"]
        assert uid not in self.mirror, f"added twice: {obj}"
        self.mirror[uid] = obj
        self._record("add", obj)

    def on_update(self, old: Plain, new: Plain) -> None:
        uid = new["metadata"]["uid"]
        assert self.mirror[uid] is old, f"updated from a version never told: {old}"
        assert version_of(old) != version_of(new), f"updated to the same: {new}"
        self.mirror[uid] = new
        self._record("update", new)

    def on_delete(self, obj: Plain) -> None:
        assert self.mirror.pop(obj["metadata"]["uid"]) is obj, f"deleted another version: {obj}"
        self._record("delete", obj)

    def _record(self, what: str, obj: Plain) -> None:
        self.reported.append((what, name_of(obj), version_of(obj)))
        self._changed.set()

    @property
    def words(self) -> list[str]:
        """`["add a", "delete a"]`."""
        return [f"{what} {name}" for what, name, _ in self.reported]

    async def until(self, is_true: Callable[[], bool], timeout: float = 30.0) -> None:  # noqa: ASYNC109
        """Return when a change made *is_true* hold."""
        async with asyncio.timeout(timeout):
            while not is_true():
                self._changed.clear()
                await self._changed.wait()

    async def until_reported(self, *words: str) -> None:
        """Return when exactly *words* were told."""
        await self.until(lambda: len(self.words) >= len(words))
        assert self.words == list(words)


class Sleeper:
    """Notes each wait and returns at once, or when the test opens the gate."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.asleep = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.asleep.set()
        await self.gate.wait()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(
    client: ApiClient,
    recorder: Recorder,
    resource: Resource = PODS,
    options: WatchOptions | None = None,
    *,
    handler_errors: int = 0,
    **more: Any,
) -> AsyncIterator[Informer[Plain]]:
    """An informer that runs until the block ends."""
    informer = Informer(
        client,
        resource,
        Decoding(more.pop("decode", decode)),
        more.pop("handlers", recorder),
        options=options,
        **more,
    )
    task = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        is_running = not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert is_running, f"the informer stopped by itself: {task}"
        assert informer.counts.handler_errors == handler_errors
