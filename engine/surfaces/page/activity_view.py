"""What the screen of the activity shows: series for the charts, and the same as a table.

Owns the choice of the series, and the steps of the table that is read without JavaScript.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.surfaces.live.activity import ActivityMark, ActivityPage, ActivitySample
from engine.surfaces.page.words import parsed

_MOST_REASONS: Final = 6
#: Seconds in a row of the table.
_IN_A_ROW: Final = 300.0


@dataclass(frozen=True)
class Chart:
    """A chart: what it shows, and its data for uPlot as JSON."""

    key: str
    title: str
    unit: str
    data: str


@dataclass(frozen=True)
class TableRow:
    """Some minutes in a row of the table."""

    since: str
    until: str
    decisions_per_second: float
    bound_per_second: float
    p50_seconds: float | None
    p99_seconds: float | None
    rejections: tuple[tuple[str, int], ...]
    waiting: int


@dataclass(frozen=True)
class ActivityView:
    """The whole screen."""

    charts: tuple[Chart, ...]
    rows: tuple[TableRow, ...]
    decisions: int
    bound: int
    rejections: tuple[tuple[str, int], ...]
    latest: ActivitySample | None
    marks: tuple[ActivityMark, ...]


def activity_view(page: ActivityPage) -> ActivityView:
    """What the template shows for *page*."""
    samples = page.samples
    reasons = _sum_of(samples).most_common(_MOST_REASONS)
    times = [round(parsed(sample.at).timestamp(), 1) for sample in samples]
    rates = {
        "decisions": [_rate(s.decisions, s) for s in samples],
        "bindings": [_rate(s.bound, s) for s in samples],
    }
    latency = {
        "median": [_milliseconds(s.p50_seconds) for s in samples],
        "99th percentile": [_milliseconds(s.p99_seconds) for s in samples],
    }
    rejected = {
        name: [60 * _rate(s.rejections.get(name, 0), s) for s in samples] for name, _ in reasons
    }
    places = dict.fromkeys(place for sample in samples for place in sample.waiting)
    waiting = {place: [s.waiting.get(place, 0) for s in samples] for place in places}
    marks = [(round(parsed(one.at).timestamp(), 1), one.kind) for one in page.marks]
    return ActivityView(
        (
            _chart("waiting", "Pods that wait", "by place", times, waiting, marks),
            _chart("rates", "Decisions and bindings", "a second", times, rates, marks),
            _chart("latency", "Time of a decision", "ms", times, latency, marks),
            _chart("rejections", "Rejections by reason", "a minute", times, rejected, marks),
        ),
        tuple(map(_row, _in_rows(samples)))[::-1],
        sum(sample.decisions for sample in samples),
        sum(sample.bound for sample in samples),
        tuple(_sum_of(samples).most_common()),
        samples[-1] if samples else None,
        page.marks[::-1],
    )


def _chart(
    key: str,
    title: str,
    unit: str,
    times: list[float],
    series: Mapping[str, Sequence[float | None]],
    marks: Sequence[tuple[float, str]],
) -> Chart:
    data = {"names": list(series), "values": [times, *series.values()], "unit": unit}
    data["marks"] = list(marks)
    return Chart(key, title, unit, msgspec.json.encode(data).decode())


def _in_rows(samples: Iterable[ActivitySample]) -> Iterator[list[ActivitySample]]:
    """*samples* by rows; those of a leader before are longer than others."""
    row: list[ActivitySample] = []
    for sample in samples:
        row.append(sample)
        if sum(one.seconds for one in row) >= _IN_A_ROW - 1:
            yield row
            row = []
    if row:
        yield row


def _row(samples: Sequence[ActivitySample]) -> TableRow:
    seconds = sum(sample.seconds for sample in samples) or 1.0
    return TableRow(
        samples[0].at,
        samples[-1].at,
        sum(sample.decisions for sample in samples) / seconds,
        sum(sample.bound for sample in samples) / seconds,
        _most(sample.p50_seconds for sample in samples),
        _most(sample.p99_seconds for sample in samples),
        tuple(_sum_of(samples).most_common(3)),
        sum(samples[-1].waiting.values()),
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _sum_of(samples: Iterable[ActivitySample]) -> Counter[str]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update(sample.rejections)
    return total


def _rate(count: int, sample: ActivitySample) -> float:
    return round(count / sample.seconds, 2) if sample.seconds else 0.0


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
