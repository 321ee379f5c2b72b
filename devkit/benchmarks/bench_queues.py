"""`make bench-queues`: a synthetic day of four tenants by the rules of several packs, compared.

Prints how far each tenant was from what it deserved. With `--write` the table of `docs/queues.md`
and its chart are made again; a test holds the figures there against a run.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import report
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.queues_day import GPUS, NODES, PACKS, SECONDS, SEED, WEIGHTS, Day, run_day
from devkit.benchmarks.running import json_path, named, output_options
from workbench.cli.band_chart import Bands, band_chart

_ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = _ROOT / "docs" / "queues.md"
CHART: Final = _ROOT / "docs" / "assets" / "queues-day.svg"
#: Where the table is in the document.
_MARK: Final = re.compile(
    r"(<!-- figures: queues_day -->\n).*?(<!-- end of figures -->)", re.DOTALL
)
_EVICTED: Final = "#444444"
# The curves of the chart have a point every two minutes.
_POINT_SECONDS: Final = 120

_TENANTS: Final = ", ".join(WEIGHTS)
_HEAD: Final = ("rules", "share error", "evictions, reversals", f"mean GPUs of {_TENANTS}",
                f"starved seconds of {_TENANTS}")  # fmt: skip


@click.command(help=__doc__)
@click.option("--packs", default=",".join(PACKS), show_default=True, help="Which, by commas.")
@click.option("--seed", default=SEED, show_default=True, help="Of the jobs.")
@click.option("--chart", type=click.Path(path_type=Path), help="Draw it; FILE ends in .svg.")
@click.option("--write", is_flag=True, help="Write the table and the chart of docs/queues.md.")
@output_options
def main(
    packs: str, seed: int, chart: Path | None, write: bool, output: str, file: str | None
) -> None:
    """Run the day."""
    chosen = named(packs, PACKS)
    if write and (chosen != list(PACKS) or seed != SEED):
        raise click.UsageError("--write is for all packs and the seed by default")
    path = json_path(output, file)
    reporter, days = report.Reporter(), []
    for name in chosen:
        with reporter.part(name):
            days.append(run_day(name, seed))
    rows = [day.row() for day in days]
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision()},
        "settings": {"packs": chosen, "seed": seed},
    }
    if path != "-":
        report.print_facts(facts)
        title = f"{SECONDS / 3600:g} hours of four tenants on {NODES * GPUS} GPUs"
        report.print_table(title, _HEAD, [cells_of(row) for row in rows])
    if path is not None:
        report.write_json({**facts, "results": rows}, path)
    if chart is not None:
        chart.write_text(drawn(days))
    if write:
        text = DOCUMENT.read_text()
        DOCUMENT.write_text(
            _MARK.sub(lambda found: f"{found[1]}\n{table(rows)}\n\n{found[2]}", text)
        )
        CHART.write_text(drawn(days))


def cells_of(row: dict[str, Any]) -> list[str]:
    """The cells of a row of the table."""
    return [
        str(row["pack"]),
        f"{row['error']:.1f} %",
        f"{row['evictions']:,} / {row['reversals']:,}",
        " / ".join(f"{row['gpus'][name]:.1f}" for name in WEIGHTS),
        " / ".join(f"{row['starved'][name]:,}" for name in WEIGHTS),
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown."""
    cells = [list(_HEAD), ["---"] * len(_HEAD), *map(cells_of, rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def drawn(days: Sequence[Day]) -> str:
    """The chart: a panel for each of *days*."""
    return band_chart([_panel(day) for day in days])


def _panel(day: Day) -> Bands:
    found = day.curves
    times = list(range(0, int(SECONDS) + 1, _POINT_SECONDS))
    at = [max(0, bisect_right(found.times, time) - 1) for time in times]
    names = {path.rpartition("/")[2]: path for path in found.used}
    used, due = (
        {name: [curve[path][place] for place in at] for name, path in names.items()}
        for curve in (found.used, found.deserved)
    )
    error = day.row()["error"]
    title = f"{day.pack}: GPUs (bands), deserved (lines), share error {error:.1f} %"
    return Bands(title, times, used, due, found.capacity, {_EVICTED: day.evicted_at})


if __name__ == "__main__":
    main()
