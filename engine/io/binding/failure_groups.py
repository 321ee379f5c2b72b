"""Failed attempts that are one line of the log: equal pods, rejected for the same reason.

Owns what is news, which attempts go together, and for how long. Pure: time is passed in.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from engine.core.framework.reasons import Reason
from engine.core.kernel.instructions import ReportFailure
from engine.policy.pod_class import class_of

INTERVAL_SECONDS: Final = 10.0
#: Groups of equal pods in an interval; the pods of others go together by their reason.
MOST_CLASSES: Final = 20
#: All groups in an interval but for those of `_OTHERS`.
_MOST_GROUPS: Final = 40
_OTHERS: Final = Reason("Others")

_Key: TypeAlias = tuple[bool, Reason, bytes]
"""Whether it is an error, the reason, and the class of the pods; empty: any."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed attempts of pods that are logged together, the first as the example."""

    example: ReportFailure
    uids: set[str] = field(default_factory=set)


class FailureGroups:
    """Failed attempts that a person may act on and that are not logged yet.

    It holds what happened within an interval, in at most `_MOST_GROUPS` groups and two for others.
    """

    def __init__(self) -> None:
        self._groups: dict[_Key, FailureGroup] = {}
        self._since = 0.0

    def add(self, failure: ReportFailure, now: float) -> None:
        """Count *failure*, unless it is of a pod that is gone or failed so before."""
        if failure.is_repeat or not (failure.is_queued and failure.rejection.is_reported):
            return
        if not self._groups:
            self._since = now
        key = self._key_of(failure)
        self._groups.setdefault(key, FailureGroup(failure)).uids.add(failure.pod.uid)

    def take_due(self, now: float) -> Collection[FailureGroup]:
        """What is to be logged now: everything once the interval is over."""
        return self.take() if now - self._since >= INTERVAL_SECONDS else ()

    def take(self) -> Collection[FailureGroup]:
        """All that is not logged yet."""
        groups, self._groups = self._groups, {}
        return groups.values()

    def _key_of(self, failure: ReportFailure) -> _Key:
        is_error, reason = failure.rejection.is_error, failure.rejection.reason
        key = is_error, reason, class_of(failure.pod)
        if key in self._groups or len(self._groups) < MOST_CLASSES:
            return key
        key = is_error, reason, b""
        if key in self._groups or len(self._groups) < _MOST_GROUPS:
            return key
        return is_error, _OTHERS, b""
