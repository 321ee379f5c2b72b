"""Pods that run for a time once they are bound, and end as under a kubelet.

Owns when each was bound, ended or evicted. A pod that is evicted is made again at once, under
another name, as a controller does.
"""

import asyncio
import copy
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

from devkit.benchmarks.load import collection_path, key_of
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.upstream.pods import BoundPods, Labels
from devkit.benchmarks.wire import Wire, WireError

_SUCCEEDED: Final = {"status": {"phase": "Succeeded"}}
_POLL_SECONDS: Final = 0.05


@dataclass(slots=True)
class Job:
    """A pod to run, with those that take its place. Times are `time.monotonic()`.

    Attributes:
        pod: As it was created first.
        runs: Seconds from its binding to its end; None: it stays.
        created_at: When it was created first; 0: it was not yet.
        bound_at: When it was last seen bound; 0: it was not yet.
        ended_at: When the API server had taken its end; 0: it had not.
        evictions: How often it was evicted.
    """

    pod: Manifest
    runs: float | None
    created_at: float = 0.0
    bound_at: float = 0.0
    ended_at: float = 0.0
    evictions: int = 0


class RunningPods:
    """Follows *jobs*. Use as an async context manager, inside those of *wire* and *bound*.

    Args:
        wire: Nothing else but *bound* uses it.
        bound: The watch.
        jobs: All that will be created.
    """

    def __init__(self, wire: Wire, bound: BoundPods, jobs: Iterable[Job]) -> None:
        self.jobs: Final = {key_of(job.pod): job for job in jobs}
        self._total = len(self.jobs)
        self._ending = sum(job.runs is not None for job in self.jobs.values())
        self.bound = 0  # jobs that were seen bound
        self.ended = 0
        self.changed_at = time.monotonic()
        self._wire = wire
        self._bound = bound
        self._running: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def __aenter__(self) -> "RunningPods":
        self._bound.on_bound.append(self._on_bound)
        self._bound.on_gone.append(self._on_gone)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._bound.on_bound.remove(self._on_bound)
        self._bound.on_gone.remove(self._on_gone)
        for timer in self._running.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_over(self) -> bool:
        """True if all were bound, and those have ended that do not stay."""
        return self.bound == self._total and self.ended == self._ending

    def check(self) -> None:
        """Raise what has ended the watch, or `WireError` for a request that was refused."""
        self._bound.check()
        if self._failure is not None:
            raise self._failure

    async def wait(self, patience: float, tick: Callable[[], None]) -> None:
        """Return when it is over, or when nothing happened for *patience* seconds.

        *tick* is called from time to time; what it raises ends the wait.
        """
        self.changed_at = time.monotonic()
        while not self.is_over and time.monotonic() - self.changed_at < patience:
            self.check()
            tick()
            await asyncio.sleep(_POLL_SECONDS)

    def _on_bound(self, namespace: str, name: str, labels: Labels) -> None:
        key = f"{namespace}/{name}"
        job = self.jobs.get(key)
        if job is None:
            return
        self.changed_at = time.monotonic()
        self.bound += not job.bound_at
        job.bound_at = self.changed_at
        if job.runs is not None:
            loop = asyncio.get_running_loop()
            self._running[key] = loop.call_later(job.runs, self._on_time, key)

    def _on_time(self, key: str) -> None:
        del self._running[key]
        self._begin(self._end(key, self.jobs[key]))

    def _on_gone(self, namespace: str, name: str) -> None:
        key = f"{namespace}/{name}"
        job = self.jobs.pop(key, None)
        if job is None or job.ended_at:
            return
        if (timer := self._running.pop(key, None)) is not None:
            timer.cancel()
        job.evictions += 1
        pod = copy.deepcopy(job.pod)
        pod["metadata"]["name"] += f"-again-{job.evictions}"
        self.jobs[key_of(pod)] = job
        self._begin(self._request("POST", collection_path(pod), pod))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure

    async def _end(self, key: str, job: Job) -> None:
        namespace, _, name = key.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        try:
            await self._request("PATCH", path, _SUCCEEDED, "application/merge-patch+json")
        except _GoneError:
            return  # evicted meanwhile, which the watch shows
        if self.jobs.get(key) is job:
            job.ended_at = self.changed_at = time.monotonic()
            self.ended += 1

    async def _request(
        self, method: str, path: str, body: Manifest, content_type: str = "application/json"
    ) -> None:
        request = self._wire.encode(method, path, body, content_type=content_type)
        answer = await self._wire.send(request)
        if answer.status == 404:
            raise _GoneError(path)
        if answer.status >= 300:
            raise WireError(f"{method} {path}: {answer.status} {answer.body.decode()}")


class _GoneError(Exception):
    pass
