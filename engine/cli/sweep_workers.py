"""Simulations in processes that are watched, for the workers of a sweep.

Owns where a point is computed: in a process of a pool, by its deputy; in a worker of Dask, whose
threads are not to be forked, by a deputy of a process that is started for the thread.
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

from engine.cli.deputy import Deputy, PolicyEndedError, serve
from engine.offline.sweep import Measured, Point, measure

_STARTED = (sys.executable, "-c", "from engine.cli.sweep_workers import main; main()")
_mine = threading.local()


@functools.cache
def _deputy() -> Deputy[Point, Measured]:
    return Deputy(measure)


def measure_watched(point: Point) -> Measured:
    """Compute *point* in a process that this one, which has no threads, watches."""
    return _deputy().ask(point)


def measure_apart(point: Point) -> Measured:
    """Compute *point* in a process of this thread's own, which `measure_watched` does there.

    Raises what that raises. The process is kept for the thread's next points; one in which a policy
    was ended is not, as the next sweep may have mended it.
    """
    pipe: Connection | None = getattr(_mine, "pipe", None)
    if pipe is None:
        pipe, theirs = Pipe()
        number = theirs.fileno()
        # It ends when nobody holds the other end of its pipe any more.
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
    """`measure_apart` of a point that came as JSON."""
    return measure_apart(msgspec.json.decode(point, type=Point))


def travelling() -> Callable[[bytes], Measured]:
    """`measure_encoded` as something that every worker of Dask, and its scheduler, can decode.

    A worker without starsched would lose its connection over a function of ours, and its points
    would go to the next one. Of a function in a function Dask sends the code: that it can run, and
    the import in it fails as an error of the point.
    """

    def measured(point: bytes) -> Any:
        from engine.cli import sweep_workers

        return sweep_workers.measure_encoded(point)

    return measured


def main() -> None:
    """The process of a thread: answer what comes from the pipe whose number is the argument."""
    serve(measure_watched, Connection(int(sys.argv[1])))
