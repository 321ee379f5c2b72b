"""Charts over time as SVG, without a plotting library, which is not installed.

Owns the frame of a panel and the chart of lines; bands are `band_chart`'s.
"""

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
    unit, divisor = unit_of(times)
    drawn = []
    for number, (title, top, series) in enumerate(panels):
        values = [value for line in series.values() for value in line]
        highest = top if top is not None else max(values, default=0.0)
        frame = Frame(times, offset_of(number), title, highest)
        parts = frame.axes(unit, divisor)
        for place, (name, line) in enumerate(series.items()):
            parts.append(
                f'<polyline fill="none" stroke="{colour(place)}" stroke-width="1.5" '
                f'points="{" ".join(frame.steps(times, line))}"/>'
            )
            parts.append(frame.label(place, name))
        drawn.append(parts)
    return picture(drawn)


class Frame:
    """A panel of a chart with its axes; what is drawn in it goes by `x` and `y`.

    Args:
        times: Of its axis, ascending, in seconds.
        offset: Where it begins, from the top of the picture.
        title: What it shows.
        highest: The top of its axis.
    """

    def __init__(self, times: Sequence[float], offset: int, title: str, highest: float) -> None:
        self._start = times[0] if times else 0.0
        self._span = (times[-1] - self._start if times else 0.0) or 1.0
        self._highest = highest or 1.0
        self._width, self._height = _WIDTH - _LEFT - _RIGHT, _PANEL - _TOP - _BOTTOM
        self._offset = offset
        self._title = title

    def x(self, time: float) -> float:
        """Where *time* is."""
        return _LEFT + self._width * (time - self._start) / self._span

    def y(self, value: float) -> float:
        """Where *value* is; what is beyond the axis is at its top."""
        base = self._offset + _TOP + self._height
        return base - self._height * min(value, self._highest) / self._highest

    def axes(self, unit: str, divisor: float) -> list[str]:
        """The title, the lines and the numbers; times in *unit*, of *divisor* seconds."""
        base, right = self._offset + _TOP + self._height, _LEFT + self._width
        title = _escape(self._title)
        parts = [f'<text x="{_LEFT}" y="{self._offset + 22}" font-size="14">{title}</text>']
        for step in range(5):
            value = self._highest * step / 4
            y = self.y(value)
            parts.append(
                f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
            )
            at = self._start + self._span * step / 4
            parts.append(
                f'<text x="{self.x(at):.1f}" y="{base + 18}" text-anchor="middle">'
                f"{at / divisor:.4g}</text>"
            )
        parts.append(
            f'<text x="{right}" y="{base + 34}" text-anchor="end" fill="#666666">{unit}</text>'
        )
        return parts

    def label(self, place: int, text: str) -> str:
        """The name of what has the colour *place*, beside the panel."""
        y = self._offset + _TOP + 14 + 16 * place
        x = _LEFT + self._width + 12
        return f'<text x="{x}" y="{y}" fill="{colour(place)}">{_escape(text)}</text>'

    def steps(self, times: Sequence[float], values: Sequence[float]) -> list[str]:
        """The corners of *values* over *times*: a value holds until the next."""
        stride = max(1, len(times) // _MOST_POINTS)
        picked = list(zip(times, values, strict=True))
        points: list[str] = []
        for at, value in [*picked[:-1:stride], *picked[-1:]]:
            if points:
                points.append(f"{self.x(at):.1f},{points[-1].rpartition(',')[2]}")
            points.append(f"{self.x(at):.1f},{self.y(value):.1f}")
        return points


def colour(place: int) -> str:
    """The colour of the *place*-th thing of a panel."""
    return _COLOURS[place % len(_COLOURS)]


def picture(panels: Sequence[Sequence[str]]) -> str:
    """The SVG of *panels*, one below the other."""
    height = _PANEL * len(panels)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    return "\n".join([*head, *(part for panel in panels for part in panel), "</svg>", ""])


def offset_of(number: int) -> int:
    """Where the panel of this *number* begins."""
    return _PANEL * number


def unit_of(times: Sequence[float]) -> tuple[str, float]:
    """What to show *times* in, and how many seconds that is."""
    seconds = times[-1] if times else 0.0
    for name, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 3 * size:
            return name, size
    return "seconds", 1.0


def _escape(text: str) -> str:
    return escape(printable(text))
