"""Results for people and programs: progress, tables, JSON, charts.

Owns how results look. Progress goes to the error output, results to the standard output, so that
`--output json` can be piped.
"""

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

OUT = Console()
ERR = Console(stderr=True)

#: Between two redraws: drawing shares the cores with what is measured.
_REDRAWS_PER_SECOND = 2


class Reporter:
    """Shows how far a run is: a bar on a terminal, otherwise a line per finished part."""

    def __init__(self) -> None:
        self._title = ""
        self._progress: Progress | None = None
        self._task: Any = None
        self._drawn_at = 0.0

    @contextlib.contextmanager
    def part(self, title: str) -> Iterator["Reporter"]:
        """One part of the run, such as one measurement."""
        started = time.monotonic()
        self._title = title
        if ERR.is_terminal:
            with Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=ERR,
                transient=True,
                auto_refresh=False,
            ) as self._progress:
                self._task = self._progress.add_task(title, total=None)
                try:
                    yield self
                finally:
                    self._progress = None
        else:
            yield self
        ERR.print(f"{title}: {time.monotonic() - started:.0f} s", highlight=False)

    def step(self, name: str, done: int, total: int) -> None:
        """Show the progress of a step; cheap enough to be called per pod."""
        now = time.monotonic()
        if self._progress is None or now - self._drawn_at < 1 / _REDRAWS_PER_SECOND:
            return
        self._drawn_at = now
        self._progress.update(
            self._task, description=f"{self._title}: {name}", completed=done, total=total
        )
        self._progress.refresh()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        ERR.print(text, highlight=False)


def median(values: Sequence[float]) -> float:
    """The median; 0 of nothing."""
    return statistics.median(values) if values else 0.0


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By figure, the median over *runs*, which all have the same figures."""
    return {name: median([run[name] for run in runs]) for name in (runs[0] if runs else ())}


def titled(title: str, number: int, repeat: int) -> str:
    """*title* with the number of its run, counted from 0, if there are several."""
    return f"{title}, run {number + 1}" if repeat > 1 else title


def print_facts(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Machine, versions and settings, one line each."""
    for title, values in facts.items():
        text = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())
        OUT.print(f"[bold]{title}[/bold]: {text}", highlight=False, soft_wrap=True)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1
) -> None:
    """A table: the first *texts* columns are text, the others figures."""
    table = Table()
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    if not OUT.is_terminal:
        OUT.width = 240
    OUT.print(f"\n[bold]{title}[/bold]", highlight=False, soft_wrap=True)
    OUT.print(table)


def write_json(document: Mapping[str, Any], path: str | None) -> None:
    """Write *document* to *path*, or to the standard output for None or `-`."""
    text = json.dumps(document, indent=2)
    if path is None or path == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text + "\n", encoding="utf-8")


def draw_bars(
    path: str, groups: Sequence[str], panels: Sequence[tuple[str, Mapping[str, Sequence[float]]]]
) -> None:
    """Grouped bars as PNG or SVG, by the name's ending.

    Args:
        path: Where to.
        groups: Labels of the groups, the workloads.
        panels: One panel under the other: its title and, by series, one value per group.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(panels), 1, figsize=(1.5 + 1.7 * len(groups), 3.2 * len(panels)), squeeze=False
    )
    for axis, (title, series) in zip(axes[:, 0], panels, strict=True):
        width = 0.8 / max(1, len(series))
        for place, (name, values) in enumerate(series.items()):
            at = [group - 0.4 + width * (place + 0.5) for group in range(len(groups))]
            bars = axis.bar(at, values, width, label=name)
            axis.bar_label(bars, fmt="%.3g", padding=2, fontsize=8)
        axis.set_xticks(range(len(groups)), groups, fontsize=8)
        axis.set_title(title, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.15)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_lines(
    path: str,
    panels: Sequence[tuple[str, str, str, Mapping[str, Sequence[tuple[float, float]]]]],
    *,
    logarithmic: bool = True,
) -> None:
    """Lines over logarithmic axes, or over plain ones that begin at zero, as PNG or SVG.

    Args:
        path: Where to.
        panels: Title, names of the axes, and by series the points.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(panels), 1, figsize=(8, 3.4 * len(panels)), squeeze=False)
    for axis, (title, x_name, y_name, series) in zip(axes[:, 0], panels, strict=True):
        for name, points in series.items():
            axis.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
        if logarithmic:
            axis.set_xscale("log")
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.set_xlabel(x_name)
        axis.set_ylabel(y_name)
        axis.set_title(title, fontsize=10, loc="left")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
