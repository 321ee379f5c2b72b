"""`make bench-queues`: a day of tenants by the rules of several packs, compared.

Prints how far each tenant was from what it deserved: four on a synthetic day, or with `--day openb`
six that share a busy part of the openb trace. With `--write` the table of the day in
`docs/queues.md` is made again, and the chart of the synthetic one; a test holds the figures there
against a run.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import report
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.openb_day import OPENB
from devkit.benchmarks.queues_day import PACKS, SEED, SYNTHETIC, Day, Tenants, run_day
from devkit.benchmarks.running import json_path, named, output_options
from workbench.cli.band_chart import Bands, band_chart

_ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = _ROOT / "docs" / "queues.md"
CHART: Final = _ROOT / "docs" / "assets" / "queues-day.svg"
#: The days; a table in the document has the name.
DAYS: Final[Mapping[str, Tenants]] = {"synthetic": SYNTHETIC, "openb": OPENB}
#: The packs that the tables have. Others ask so often who gives back that the trace takes long.
WRITTEN: Final = {"synthetic": tuple(PACKS), "openb": ("none", "proportion")}
_MARK: Final = r"(<!-- figures: queues_day {} -->\n).*?(<!-- end of figures -->)"
_EVICTED: Final = "#444444"
# The curves of the chart have a point every two minutes.
_POINT_SECONDS: Final = 120


@click.command(help=__doc__)
@click.option("--packs", default=",".join(PACKS), show_default=True, help="Which, by commas.")
@click.option("--day", type=click.Choice(list(DAYS)), default="synthetic", show_default=True)
@click.option("--seed", default=SEED, show_default=True, help="Of the jobs, or who has which.")
@click.option("--chart", type=click.Path(path_type=Path), help="Draw it; FILE ends in .svg.")
@click.option("--write", is_flag=True, help="Write the table, and the chart, of docs/queues.md.")
@output_options
def main(
    packs: str, day: str, seed: int, chart: Path | None, write: bool, output: str, file: str | None
) -> None:
    """Run the day."""
    tenants = DAYS[day]
    chosen = named(packs, PACKS)
    if write and (chosen != list(WRITTEN[day]) or seed != SEED):
        packs = ",".join(WRITTEN[day])
        raise click.UsageError(f"--write is for --packs {packs} and the seed by default")
    path = json_path(output, file)
    reporter, days = report.Reporter(), []
    for name in chosen:
        with reporter.part(name):
            days.append(run_day(name, seed, tenants))
    rows = [day.row() for day in days]
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision()},
        "settings": {"packs": chosen, "day": day, "seed": seed},
    }
    if path != "-":
        report.print_facts(facts)
        count = len(tenants.weights)
        title = f"{tenants.seconds / 3600:.3g} hours of {count} tenants on {tenants.gpus} GPUs"
        report.print_table(title, head_of(tenants), [cells_of(row) for row in rows])
    if path is not None:
        report.write_json({**facts, "results": rows}, path)
    if chart is not None:
        chart.write_text(drawn(days, tenants))
    if write:
        mark = re.compile(_MARK.format(day), re.DOTALL)
        made = table(rows, tenants)
        DOCUMENT.write_text(
            mark.sub(lambda found: f"{found[1]}\n{made}\n\n{found[2]}", DOCUMENT.read_text())
        )
        if tenants is SYNTHETIC:
            CHART.write_text(drawn(days, tenants))


def head_of(tenants: Tenants) -> tuple[str, ...]:
    """The heads of the columns."""
    names = ", ".join(tenants.weights)
    return ("rules", "share error", "evictions, reversals", f"mean GPUs of {names}",
            f"starved seconds of {names}")  # fmt: skip


def cells_of(row: dict[str, Any]) -> list[str]:
    """The cells of a row of the table."""
    return [
        str(row["pack"]),
        f"{row['error']:.1f} %",
        f"{row['evictions']:,} / {row['reversals']:,}",
        " / ".join(f"{row['gpus'][name]:.1f}" for name in row["gpus"]),
        " / ".join(f"{row['starved'][name]:,}" for name in row["starved"]),
    ]


def table(rows: Sequence[dict[str, Any]], tenants: Tenants) -> str:
    """The table as Markdown."""
    head = head_of(tenants)
    cells = [head, ["---"] * len(head), *map(cells_of, rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def drawn(days: Sequence[Day], tenants: Tenants = SYNTHETIC) -> str:
    """The chart: a panel for each of *days*."""
    return band_chart([_panel(day, tenants) for day in days])


def _panel(day: Day, tenants: Tenants) -> Bands:
    found = day.curves
    times = list(range(0, int(tenants.seconds) + 1, _POINT_SECONDS))
    at = [max(0, bisect_right(found.times, time) - 1) for time in times]
    names = {path.rpartition("/")[2]: path for path in found.used}
    used, due = (
        {name: [curve[path][place] / day.unit for place in at] for name, path in names.items()}
        for curve in (found.used, found.deserved)
    )
    error = day.row()["error"]
    title = f"{day.pack}: GPUs (bands), deserved (lines), share error {error:.1f} %"
    return Bands(title, times, used, due, found.capacity / day.unit, {_EVICTED: day.evicted_at})


if __name__ == "__main__":
    main()
