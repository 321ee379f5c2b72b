"""Waiting inside a binding cycle for another program.

Owns how a cycle reports that it waits. Bindings in flight are limited so that the API server is not
overloaded; a cycle that waits for a controller, perhaps for minutes, sends nothing and does not
count.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Final

from engine.core.caching.cache import Cache
from engine.core.model.pod import Pod

Mark = Callable[[bool], None]
"""Called with True when a cycle begins to wait, and with False when it goes on."""

_marks: Final[ContextVar[Sequence[Mark]]] = ContextVar("_marks", default=())


@contextlib.contextmanager
def reporting_waits(mark: Mark) -> Iterator[None]:
    """Have *mark* called when this task, or one that it starts, waits for another program."""
    marks = [mark]
    _marks.set(marks)
    try:
        yield
    finally:
        # Tasks and connections hold the context in which they were made, some of them for hours.
        marks.clear()


@contextlib.contextmanager
def waiting_for_others() -> Iterator[None]:
    """Mark a wait for a controller, driver or user, during which nothing is requested."""
    marks = tuple(_marks.get())
    for mark in marks:
        mark(True)
    try:
        yield
    finally:
        for mark in marks:
            mark(False)


def why_in_vain(cache: Cache, pod: Pod) -> str | None:
    """Why it makes no sense any more to wait for the assumed *pod*; None if it still does.

    It was deleted, or another program has bound it.
    """
    known = cache.get_pod(pod.uid)
    if known is None:
        return f'pod does not exist any more: pod "{pod.name}" not found'
    if not cache.is_assumed(pod.uid):
        return f'pod "{pod.name}" is on node "{known.node_name}", bound by another component'
    return None
