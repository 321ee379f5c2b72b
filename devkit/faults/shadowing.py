"""A shadow without a thread: it works in turns of its host's event loop.

Owns when the jobs of a shadow are done. They take no time of the host: a thread would have a core
of its own.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from devkit.faults.hosts import Host
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.shadow.side import Clocks
from engine.rollout.shadow.worker import Job, Work
from engine.rollout.trial import MakeEvaluator


def make_shadow(host: Host, make_evaluator: MakeEvaluator) -> Shadow:
    """The shadow of a scheduler on *host*."""
    clocks = Clocks(worked=host.clock.monotonic, passed=host.clock.monotonic)
    worker = partial(HostWorker, host)
    return Shadow(make_evaluator, make_worker=worker, clocks=clocks)


class HostWorker:
    """Does one job a turn, while no pod waits to be decided."""

    def __init__(self, host: Host, work: Work, at_end: Callable[[], None], cores: float) -> None:
        self._host = host
        self._work = work
        self._at_end = at_end
        self._jobs: deque[Job] = deque()
        self._is_paused = False
        self._is_closed = False
        self._is_called = False

    @property
    def backlog(self) -> int:
        """How many jobs are not done yet."""
        return len(self._jobs)

    def put(self, job: Job) -> None:
        """Do *job* when its turn comes."""
        self._jobs.append(job)
        self._call()

    def pause(self) -> None:
        """Pods are being decided."""
        self._is_paused = True

    def resume(self) -> None:
        """No pod waits to be decided."""
        self._is_paused = False
        self._call()

    def close(self) -> None:
        """Begin no other job."""
        if not self._is_closed:
            self._is_closed = True
            self._jobs.clear()
            self._at_end()

    def join(self, seconds: float) -> None:
        """It has ended."""

    def _call(self) -> None:
        if not self._is_called and self._jobs and not self._is_paused:
            self._is_called = True
            self._host.call(self._turn)

    def _turn(self) -> None:
        self._is_called = False
        if self._jobs and not self._is_paused and not self._is_closed:
            self._work(self._jobs.popleft(), _go_on)
        self._call()


def _go_on() -> None:
    """It need not give way: it takes no time."""
