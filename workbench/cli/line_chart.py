"""A line chart over time as SVG, without a plotting library, which is not installed."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from engine.lib.printable import printable

_WIDTH: Final = 900
_PANEL: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 40, 40
_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#7f7f7f")
# More points than pixels make a large file and no better picture.
_MOST_POINTS: Final = 1_000

Series = Mapping[str, Sequence[float]]


def line_chart(times: Sequence[float], panels: Sequence[tuple[str, float | None, Series]]) -> str:
    """A column of panels with the common axis *times* (seconds).

    Args:
        times: Ascending.
        panels: Title, the top of the axis (None: the largest value), and values by name, each as
            long as *times*. A value holds until the next.
    """
    unit, divisor = _unit(times[-1] if times else 0.0)
    height = _PANEL * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, (title, top, series) in enumerate(panels):
        parts += _panel(times, number * _PANEL, title, top, series, unit, divisor)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    times: Sequence[float],
    offset: int,
    title: str,
    top: float | None,
    series: Series,
    unit: str,
    divisor: float,
) -> list[str]:
    width, height = _WIDTH - _LEFT - _RIGHT, _PANEL - _TOP - _BOTTOM
    values = [value for line in series.values() for value in line]
    highest = top if top is not None else max(values, default=0.0)
    highest = highest or 1.0
    start = times[0] if times else 0.0
    span = (times[-1] - start if times else 0.0) or 1.0
    base = offset + _TOP + height

    def x(time: float) -> float:
        return _LEFT + width * (time - start) / span

    def y(value: float) -> float:
        return base - height * min(value, highest) / highest

    parts = [f'<text x="{_LEFT}" y="{offset + 22}" font-size="14">{_escape(title)}</text>']
    for step in range(5):
        value = highest * step / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            'stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        )
        at = start + span * step / 4
        parts.append(
            f'<text x="{x(at):.1f}" y="{base + 18}" text-anchor="middle">{at / divisor:.4g}</text>'
        )
    parts.append(
        f'<text x="{_LEFT + width}" y="{base + 34}" text-anchor="end" fill="#666666">{unit}</text>'
    )
    stride = max(1, len(times) // _MOST_POINTS)
    for place, (name, line) in enumerate(series.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        picked = list(zip(times, line, strict=True))
        picked = [*picked[:-1:stride], *picked[-1:]]
        points: list[str] = []
        for at, value in picked:  # a step, because a value holds until the next
            if points:
                points.append(f"{x(at):.1f},{points[-1].rpartition(',')[2]}")
            points.append(f"{x(at):.1f},{y(value):.1f}")
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" '
            f'points="{" ".join(points)}"/>'
        )
        label = offset + _TOP + 14 + 16 * place
        parts.append(
            f'<text x="{_LEFT + width + 12}" y="{label}" fill="{colour}">{_escape(name)}</text>'
        )
    return parts


def _unit(seconds: float) -> tuple[str, float]:
    """What to show times in."""
    for name, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 3 * size:
            return name, size
    return "seconds", 1.0


def _escape(text: str) -> str:
    return escape(printable(text))
