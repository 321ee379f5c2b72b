"""Simulations in supervised processes, for the workers of a sweep.

Owns where a point is computed. A process of a pool forks a supervised worker. A worker of Dask has
threads and must not fork, so each of its threads starts a process that does.
"""

import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from workbench.cli.supervised_worker import PolicyEndedError, SupervisedWorker, serve
from workbench.simulation.sweep import Measured, Point, measure

_STARTED = (sys.executable, "-c", "from workbench.cli.sweep_workers import main; main()")
_mine = threading.local()


@functools.cache
def _worker() -> SupervisedWorker[Point, Measured]:
    return SupervisedWorker(measure)


def measure_supervised(point: Point) -> Measured:
    """Compute *point* in a worker of this process, which must have no threads."""
    return _worker().ask(point)


def measure_in_thread(point: Point) -> Measured:
    """Compute *point* in a process of this thread, by `measure_supervised`.

    Raises what that raises. The process is kept for the thread's next points, unless a policy ended
    its worker: the next sweep may bring a corrected policy.
    """
    pipe: Connection | None = getattr(_mine, "pipe", None)
    if pipe is None:
        pipe, theirs = Pipe()
        number = theirs.fileno()
        # It ends when the other end of its pipe is closed.
        _mine.process = subprocess.Popen([*_STARTED, str(number)], pass_fds=[number])
        theirs.close()
        _mine.pipe = pipe
    try:
        pipe.send(point)
        measured, error = pipe.recv()
    except (EOFError, OSError):
        error = PolicyEndedError("a process that simulated died")
    if isinstance(error, PolicyEndedError):
        pipe.close()
        _mine.process.wait()
        del _mine.pipe, _mine.process
    if error is not None:
        raise error
    result: Measured = measured
    return result


def measure_encoded(point: bytes) -> Measured:
    """`measure_in_thread` of a point in JSON."""
    return measure_in_thread(msgspec.json.decode(point, type=Point))


def portable_measure() -> Callable[[bytes], Measured]:
    """`measure_encoded` in a form that every worker of Dask, and its scheduler, can unpickle.

    A worker without starsched could not unpickle a function of a module of ours: it would lose its
    connection, and its points would move to the next worker. Dask pickles a nested function by its
    code, so the import in it fails as an error of the point.
    """

    def measured(point: bytes) -> Any:
        from workbench.cli import sweep_workers

        return sweep_workers.measure_encoded(point)

    return measured


def main() -> None:
    """The process of a thread: serves the pipe whose descriptor is the argument."""
    serve(measure_supervised, Connection(int(sys.argv[1])))
