"""Waiting inside a binding cycle for somebody else's work.

Owns the word for it. Bindings in flight are limited so that the API server is not asked too much at
once; a cycle that waits for a controller, for minutes perhaps, asks nothing and keeps nobody else.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

from engine.caching.cache import Cache
from engine.model.pod import Pod

Mark = Callable[[bool], None]
"""Told True when a cycle begins to wait, and False when it goes on."""

_mark: Final[ContextVar[Mark | None]] = ContextVar("_mark", default=None)


def tell_of_waiting(mark: Mark) -> None:
    """From here on, tell *mark* of what this task, and the tasks it starts, wait for."""
    _mark.set(mark)


@contextlib.contextmanager
def waiting_for_others() -> Iterator[None]:
    """Inside, the API server is not asked: a controller, a driver or a user is waited for."""
    mark = _mark.get()
    if mark is None:
        yield
        return
    mark(True)
    try:
        yield
    finally:
        mark(False)


def why_in_vain(cache: Cache, pod: Pod) -> str | None:
    """Why nothing need be waited for on behalf of *pod*, which was assumed; None if it still need.

    It was deleted, or somebody else has bound it.
    """
    known = cache.get_pod(pod.uid)
    if known is None:
        return f'pod does not exist any more: pod "{pod.name}" not found'
    if not cache.is_assumed(pod.uid):
        return f'pod "{pod.name}" is on node "{known.node_name}" by another hand'
    return None
