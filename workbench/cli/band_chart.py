"""A chart of what is divided over time as SVG.

What each has is a band, what is due to it a line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workbench.cli.line_chart import Frame, colour, offset_of, picture, unit_of


@dataclass(frozen=True, slots=True)
class Bands:
    """A panel; all values are as long as *times*, and hold until the next.

    Attributes:
        title: What it shows.
        times: Seconds, ascending.
        used: What each has, by name; the bands are on each other in this order.
        due: What is due to each: up to where its band would go, were the others as is due, too.
        top: All there is, which is the top of the axis.
        ticks: Moments to mark above the bands, by colour, such as evictions.
    """

    title: str
    times: Sequence[float]
    used: Mapping[str, Sequence[float]]
    due: Mapping[str, Sequence[float]]
    top: float
    ticks: Mapping[str, Sequence[float]] = field(default_factory=dict)


def band_chart(panels: Sequence[Bands]) -> str:
    """The chart of *panels*, one below the other."""
    return picture([_panel(offset_of(number), panel) for number, panel in enumerate(panels)])


def _panel(offset: int, panel: Bands) -> list[str]:
    frame = Frame(panel.times, offset, panel.title, panel.top)
    nothing: Sequence[float] = [0.0] * len(panel.times)
    bands, lines, below, due = [], [], nothing, nothing
    for place, (name, used) in enumerate(panel.used.items()):
        above = [a + b for a, b in zip(below, used, strict=True)]
        edge = [*frame.steps(panel.times, above), *reversed(frame.steps(panel.times, below))]
        bands.append(
            f'<polygon fill="{colour(place)}" fill-opacity="0.45" points="{" ".join(edge)}"/>'
        )
        due = [a + b for a, b in zip(due, panel.due[name], strict=True)]
        lines.append(
            f'<polyline fill="none" stroke="{colour(place)}" stroke-width="1.5" '
            f'points="{" ".join(frame.steps(panel.times, due))}"/>'
        )
        lines.append(frame.label(place, name))
        below = above
    top = frame.y(panel.top)
    ticks = [
        f'<line x1="{frame.x(at):.1f}" x2="{frame.x(at):.1f}" y1="{top - 8:.1f}" y2="{top:.1f}" '
        f'stroke="{shade}"/>'
        for shade, moments in panel.ticks.items()
        for at in moments
    ]
    return [*bands, *frame.axes(*unit_of(panel.times)), *lines, *ticks]
