"""The thread of a shadow: one job after the other, with a rest after each.

Owns the thread, what is handed to it, its share of a core, and when it may have that: while no pod
waits to be decided, as the thread that decides would have to take turns with it. Nothing waits for
it: what it has no room for is left out.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from engine.core.kernel.instructions import ReportDecision
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit, PodGroupState
from engine.lib.clock import Clock, SystemClock
from engine.rollout.mirror import Changes, Mirror


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt at a group ended.

    Attributes:
        needed: So many of the pods that were decided had to get a node.
        is_whole: They did.
    """

    needed: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Job:
    """Decisions that are made again.

    Attributes:
        mirror: Shows the snapshot that they were made on, once `changes` are applied.
        changes: In order.
        made: The decisions; several are of one group, each made after the pod before was placed.
            Without any, only the changes are applied.
        attempt: Of the group; None: it is one pod alone.
        units: Groups that are evicted as a whole, if the decision looked for victims.
        groups: By the pod's uid, where its groups stood, by their name.
        pending: All pods without a node, if the candidate may group pods in another way.
    """

    mirror: Mirror
    changes: tuple[Changes, ...]
    made: tuple[ReportDecision, ...]
    attempt: Attempt | None
    units: tuple[DisruptionUnit, ...]
    groups: Mapping[str, Mapping[str, PodGroupState]]
    pending: Sequence[Pod] = ()


#: Jobs that are under way or wait for their turn.
MOST_JOBS: Final = 64

#: While pods wait to be decided, a job stands still for so many seconds, in all.
PATIENCE_SECONDS: Final = 0.5
#: Seconds of work that may be done without a rest.
SAVED_SECONDS: Final = 0.25

Yield = Callable[[], None]
"""Called where a job can stand still: returns when no pod is decided, or after some time."""
Work = Callable[[Job, Yield], float]
"""Does a job; the seconds that it took."""


class Worker(Protocol):
    """Does jobs in their order."""

    @property
    def backlog(self) -> int:
        """How many jobs are not done yet."""
        ...

    def put(self, job: Job) -> None:
        """Do *job* when its turn comes."""
        ...

    def pause(self) -> None:
        """Pods are being decided."""
        ...

    def resume(self) -> None:
        """No pod waits to be decided."""
        ...

    def close(self) -> None:
        """Begin no other job. What the worker was made with is closed in the end, in its thread."""
        ...

    def join(self, seconds: float) -> None:
        """Return when it has ended, or after so many *seconds*."""
        ...


MakeWorker = Callable[[Work, Callable[[], None], float], Worker]
"""(work, at_end, cores): a worker that takes so many cores' time at most."""


class CpuBudget:
    """Says how long to rest, so that no more than *cores* of a core are taken from *now* on.

    Time in which there was nothing to do is saved up, for `SAVED_SECONDS` of work at most: the
    first decisions of all, and those after a pause, need not wait for each other.
    """

    def __init__(self, cores: float, now: float) -> None:
        self._cores = cores
        self._paid_until = now - SAVED_SECONDS / cores

    def rest_after(self, worked: float, now: float) -> float:
        """Seconds to rest after so many seconds of work that have ended *now*."""
        begun = max(self._paid_until, now - worked - SAVED_SECONDS / self._cores)
        self._paid_until = begun + worked / self._cores
        return max(0.0, self._paid_until - now)


class ThreadWorker:
    """Does jobs in a thread of its own.

    Args:
        work: Does one; must not raise.
        at_end: Called in the thread at its end.
        cores: The share of a core that it takes.
        patience: See `PATIENCE_SECONDS`.
        clock: Time; the thread waits in that of the system.
    """

    def __init__(
        self,
        work: Work,
        at_end: Callable[[], None],
        cores: float,
        patience: float = PATIENCE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._patience = patience
        self._work = work
        self._at_end = at_end
        self._share = CpuBudget(cores, self._clock.monotonic())
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._is_busy = False
        self._is_paused = False
        self._patient_until = 0.0
        self._waits = False  # for the end of the pause
        # Ends that wait. No event or condition: who decides must not wait for a lock of theirs.
        self._resumed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended = threading.Event()
        # A policy that takes long must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """How many jobs are not done yet, or just done with a rest to come."""
        return self._jobs.qsize() + self._is_busy

    def put(self, job: Job) -> None:
        """Do *job* when its turn comes."""
        self._jobs.put(job)

    def pause(self) -> None:
        """Begin no job for a while."""
        self._is_paused = True

    def resume(self) -> None:
        """Begin the next job once it is time for it."""
        self._is_paused = False
        if self._waits:
            self._resumed.put(None)

    def close(self) -> None:
        """End after the job that is under way."""
        self._ended.set()
        self.resume()
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        """Return when the thread has ended, or after so many *seconds*."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None and not self._ended.is_set():
                self._is_busy = True
                self._patient_until = self._clock.monotonic() + self._patience
                self._stand_still()
                if self._ended.is_set():
                    break
                worked = self._work(job, self._stand_still)
                self._ended.wait(self._share.rest_after(worked, self._clock.monotonic()))
                self._is_busy = False
        finally:
            self._at_end()
            # What is worked for refers to `_stand_still`: a cycle around two schedulers, where full
            # collections are rare. Jobs that are left refer to a cluster.
            del self._work, self._at_end
            self._jobs = queue.SimpleQueue()

    def _stand_still(self) -> None:
        """Return when the pause has ended, or when this job has waited long enough."""
        if not self._is_paused:
            return
        self._waits = True
        with contextlib.suppress(queue.Empty):
            while self._is_paused:
                self._resumed.get(timeout=max(0.0, self._patient_until - self._clock.monotonic()))
        self._waits = False
