"""The interface of a source of facts, and how it reports what is wrong with it.

Owns no source: those are in `sources`, `prometheus` and `learned`. Code that only keeps what
sources report, or asks them once, needs no more than this, and no network library.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from engine.io.facts.readings import Readings, Subject

log = structlog.get_logger(component="facts")

#: Takes everything that a source now reports.
Report = Callable[[Mapping[Subject, Readings]], None]


class Source(Protocol):
    """A source of facts."""

    @property
    def name(self) -> str:
        """How logs and metrics call it."""
        ...

    @property
    def failures(self) -> int:
        """How often it could not be queried or read."""
        ...

    @property
    def is_reading(self) -> bool:
        """True while something new is being read and not reported yet."""
        ...

    async def run(self, report: Report) -> None:
        """Call *report* with all readings, now and after each change, until cancelled."""
        ...


class ProblemLog:
    """Counts the problems of a source, or of a *part* of it, and logs each once until it changes.

    *part* are further keys of the log lines.
    """

    def __init__(self, source: str, **part: str) -> None:
        self._part = {"source": source, **part}
        self._reason = ""
        self.count = 0

    def clear(self) -> None:
        """Note that the source works again."""
        if self._reason:
            self._reason = ""
            log.info("Source of facts has recovered", **self._part)

    def report(self, message: str, reason: str) -> None:
        """Count a problem, and log it if it is a new one."""
        self.count += 1
        if reason != self._reason:
            self._reason = reason
            log.warning(message, **self._part, reason=reason)
