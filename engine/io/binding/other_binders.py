"""Notices that another process binds pods that this one is to place.

Owns counting them, and the warning. Two schedulers with the same `schedulerName` and leases of
their own both lead; the API server lets the first binding of a pod win, and nothing else says so.
"""

from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import Counter

from engine.core.model.pod import Pod
from engine.lib.clock import Clock

log = structlog.get_logger(component="binder")

#: So many pods, and a warning: single ones are bound by hand, or by the leader before this one.
MANY: Final = 3
#: Seconds between two warnings.
PAUSE: Final = 300.0


class OtherBinders:
    """Compares bindings that are seen with those that this process decided.

    Args:
        is_to_place: True for a pending pod that this process is to place now.
        is_counted: True for the uid of a pod that counts on a node already, as one does that this
            process has decided.
        counter: Takes the number.
        clock: Time.
    """

    def __init__(
        self,
        *,
        is_to_place: Callable[[Pod], bool],
        is_counted: Callable[[str], bool],
        counter: Counter,
        clock: Clock,
    ) -> None:
        self._is_to_place = is_to_place
        self._is_counted = is_counted
        self._counter = counter
        self._clock = clock
        self._pods = 0
        self._warned_at: float | None = None

    def see(self, old: Pod, new: Pod) -> None:
        """Take a change of a pod, before it is counted."""
        if old.node_name or not new.node_name or old.uid != new.uid:
            return
        if self._is_counted(new.uid) or not self._is_to_place(old):
            return
        self._counter.inc()
        self._pods += 1
        now = self._clock.monotonic()
        is_paused = self._warned_at is not None and now - self._warned_at < PAUSE
        if self._pods < MANY or is_paused:
            return
        log.warning(
            "Another scheduler binds pods of our profiles; both may fill the same nodes",
            pods=self._pods,
            pod=new.key,
            node=new.node_name,
            scheduler_name=new.scheduler_name,
        )
        self._pods, self._warned_at = 0, now
