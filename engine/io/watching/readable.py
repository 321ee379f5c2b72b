"""Which of the resources that are watched can be read, and how old what is known of the others is.

Owns the bound: what is known of a resource that cannot be read any more stays in use for so long.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from engine.io.watching.informer import Informer
from engine.lib.clock import Clock

log = structlog.get_logger(__name__)

#: How long what is known of a resource that cannot be read stays in use, if nothing else is said.
MOST_AGE_SECONDS: Final = 300.0
NEVER: Final = math.inf


class Readability:
    """What cannot be read at the moment.

    Args:
        informers: Of all that decisions read.
        clock: Time.
        most_age: Seconds that what is known of a resource stays in use once it cannot be read: 0
            not at all, `NEVER` for ever.
    """

    def __init__(
        self, informers: Sequence[Informer[Any]], clock: Clock, most_age: float = MOST_AGE_SECONDS
    ) -> None:
        self._informers = informers
        self._clock = clock
        self._most_age = most_age

    def unknown(self) -> Mapping[str, str]:
        """Why the resources are unknown that could not be read for too long, by plural name.

        So are those that have not been listed yet.
        """
        return {
            one.resource.plural: why_unread(one)
            for one in self._informers
            if not one.has_synced or self._is_unknown(one)
        }

    def change(self, before: Mapping[str, str]) -> Mapping[str, str] | None:
        """What is `unknown` now, if that are others than *before*; they are logged."""
        unknown = self.unknown()
        if unknown == before:
            return None
        for one in self._informers:
            plural, name = one.resource.plural, str(one.resource)
            if plural in before and plural not in unknown:
                log.info("Can be read; pods that depend on it are tried", resource=name)
            elif plural in before or plural not in unknown:
                continue
            elif one.has_synced:
                held = "Too old to decide by; pods that depend on it are held"
                log.error(held, resource=name, reason=unknown[plural])
            else:
                log.info("Not listed yet; pods that depend on it are held", resource=name)
        return unknown

    def problem(self) -> str | None:
        """What readiness has to say: what is refused, unknown, or not listed yet; None: nothing."""
        now = self._clock.monotonic()
        found = [
            f"{why_unread(one)} ({_use(one, now, self._is_unknown(one))})"
            for one in self._informers
            if one.currency.is_forbidden or self._is_unknown(one)
        ]
        return "; ".join(found) or None

    def not_synced(self) -> str:
        """The resources whose first list has not succeeded, and why."""
        waited = [one for one in self._informers if not one.has_synced]
        return "; ".join(
            why_unread(one) if one.currency.failure else str(one.resource) for one in waited
        )

    def _is_unknown(self, one: Informer[Any]) -> bool:
        return one.currency.is_older(self._most_age, self._clock.monotonic())


def why_unread(one: Informer[Any]) -> str:
    """`pods cannot be read: add to the ClusterRole: - {apiGroups: ...}`."""
    currency = one.currency
    why = currency.remedy or currency.failure or "not listed yet"
    return f"{one.resource} cannot be read: {why}"


def _use(one: Informer[Any], now: float, is_unknown: bool) -> str:
    if not one.has_synced:
        return "never listed"
    age = round(now - one.currency.known_at)
    return f"{age} s old, not in use" if is_unknown else f"{age} s old, still in use"
