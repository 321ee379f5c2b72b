"""The facts of the cluster that every scheduler has: the hour and the date, where people work.

Owns which there are, what they hold at a moment, and when they change next. Pure: the moment and
the time zone are arguments. Following the time is the shells'.
"""

import datetime
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from engine.core.model.fact import Fact, Facts


@dataclass(frozen=True, slots=True)
class ClockFact:
    """A fact of the cluster that follows from the time.

    Attributes:
        value_doc, text_doc: What its value and its text are, for the documents.
        of: Both at a local time.
    """

    value_doc: str
    text_doc: str
    of: Callable[[datetime.datetime], tuple[int, str]]


_WEEKDAYS: Final = (
    *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)

# Time zones differ from UTC by whole minutes, and change so: no fact changes in between.
_GRID_SECONDS: Final = 60

#: Every such fact by its name; policies read them as `cluster.facts["hour"]`.
CLOCK_FACTS: Final[Mapping[str, ClockFact]] = {
    "hour": ClockFact("0..23", "the same", lambda at: (at.hour, str(at.hour))),
    "minute": ClockFact("0..59, of the hour", "the same", lambda at: (at.minute, str(at.minute))),
    "weekday": ClockFact(
        "1 (Monday) to 7 (Sunday)",
        '"Monday" to "Sunday"',
        lambda at: (at.isoweekday(), _WEEKDAYS[at.weekday()]),
    ),
    "date": ClockFact(
        "a number such as 20261231",
        'a text such as "2026-12-31"',
        lambda at: ((at.year * 100 + at.month) * 100 + at.day, at.date().isoformat()),
    ),
    "epoch_minute": ClockFact(
        "whole minutes since the epoch, in any time zone",
        "the same",
        lambda at: (_epoch_minute(at), str(_epoch_minute(at))),
    ),
}


def _epoch_minute(at: datetime.datetime) -> int:
    return math.floor(at.timestamp() / _GRID_SECONDS)


def clock_facts(
    now: float, zone: datetime.tzinfo, names: Collection[str] = CLOCK_FACTS.keys()
) -> Facts:
    """The facts *names* at *now* (seconds since the epoch) in *zone*; they have no age: 0."""
    at = datetime.datetime.fromtimestamp(now, zone)
    known = {name: CLOCK_FACTS[name].of(at) for name in CLOCK_FACTS if name in names}
    return {name: Fact(value, text, 0) for name, (value, text) in known.items()}


def beside_sources(given: Facts, clock: Facts) -> dict[str, Fact]:
    """The facts that sources have *given* of the cluster, and those of *clock* that they have not.

    A source goes before the clock if it gives a whole number: policies need not ask what it is.
    """
    own = {name for name in clock if name in given and isinstance(given[name].value, int)}
    return {**given, **{name: fact for name, fact in clock.items() if name not in own}}


def next_step(now: float, zone: datetime.tzinfo, names: Collection[str], *, until: float) -> float:
    """When one of the facts *names* has another value than at *now*; *until* if none has before.

    In seconds since the epoch. Where clocks are set forward or back, the hour 2 may be left out, or
    last twice as long. Costs a look at each minute: some microseconds each.
    """
    before = clock_facts(now, zone, names)
    moment = math.floor(now / _GRID_SECONDS + 1) * _GRID_SECONDS
    while moment < until and clock_facts(moment, zone, names) == before:
        moment += _GRID_SECONDS
    return min(float(moment), until)
