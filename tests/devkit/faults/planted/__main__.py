"""Plants faults into the scheduler one at a time, and shows which of them simulated worlds find.

Each fault is a small mistake in one module: a dropped condition, a forgotten undo, an answer that
is misread. A process imports the module with the mistake and simulates worlds, seed after seed,
until something is violated. The program without a mistake has to pass the worlds that found one.
The exit code is 1 if fewer than 95 of 100 are found, or if the program without a mistake fails.

\b
Examples:
  python -m tests.devkit.faults.planted --list
  python -m tests.devkit.faults.planted --only "conflict counts as bound"
  python -m tests.devkit.faults.planted --part queue --budget 600
  python -m tests.devkit.faults.planted --jobs 2 --output json planted.json
"""

import json
import sys
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.devkit.faults.planted.runner import Report, Result, begun, run
from tests.devkit.faults.planted.table import ALL, PARTS

_OUT: Final = Console()
_ERR: Final = Console(stderr=True)
_WANTED_SHARE: Final = 0.95


@click.command(help=__doc__)
@click.option("--only", multiple=True, type=click.Choice(list(ALL)), metavar="NAME")
@click.option("--part", multiple=True, type=click.Choice(list(PARTS)), help="Those of one part.")
@click.option("--list", "is_list", is_flag=True, help="Show the faults and what each does.")
@click.option("--budget", default=3600.0, show_default=True, help="Seconds of CPU in all.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="At a time.")
@click.option("--from-seed", "first", default=1, show_default=True, help="The first world's.")
@click.option(
    "--output",
    type=(click.Choice(["json"]), click.Path(dir_okay=False, path_type=Path)),
    help="Write the results there, too.",
)
def main(
    only: tuple[str, ...],
    part: tuple[str, ...],
    is_list: bool,
    budget: float,
    jobs: int,
    first: int,
    output: tuple[str, Path] | None,
) -> None:
    """Look for faults, show what was found, and exit."""
    names = [*only, *(fault.name for one in part for fault in PARTS[one])] or list(ALL)
    faults = [ALL[name] for name in dict.fromkeys(names)]
    if is_list:
        for fault in faults:
            click.echo(f"{fault.name} ({fault.path}): {fault.harm}")
        return

    def write(report: Report) -> None:
        if output is not None:
            output[1].write_text(json.dumps(report.plain(), indent=2) + "\n")

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=_ERR, transient=True) as progress:
        task = progress.add_task("planted faults", total=len(faults))

        def note(result: Result) -> None:
            if result.is_found:
                progress.advance(task)
            progress.update(task, description=result.fault.name[:40])
            write(report)

        report = begun(faults, first)
        run(report, budget=budget, jobs=jobs, on_result=note)
    write(report)
    _show(report)
    is_enough = report.found >= _WANTED_SHARE * len(report.results)
    sys.exit(0 if is_enough and not report.control else 1)


def _show(report: Report) -> None:
    plain = report.plain()
    table = Table(box=None)
    for name in ("fault", "found by", "about"):
        table.add_column(name)
    table.add_column("seed", justify="right")
    table.add_column("CPU s", justify="right")
    for one in report.results:
        rule = one.rule or "[red]not found[/red]"
        seed = str(one.seed) if one.is_found else f"up to {one.seed - 1}"
        table.add_row(one.fault.name, rule, one.about[:40], seed, f"{one.cpu_seconds:.1f}")
    _OUT.print(table)
    for part, sums in plain["by_part"].items():
        if sums["of"]:
            line = f"{part}: {sums['found']} of {sums['of']}, {sums['cpu_seconds']} s of CPU"
            _OUT.print(line, highlight=False)
    for rule, count in plain["by_rule"].items():
        _OUT.print(f"{count} by `{rule}`", highlight=False, markup=False)
    for one in report.results:
        if not one.is_found:
            why = one.fault.why_missed or one.fault.harm
            _OUT.print(f"not found: {one.fault.name}: {why}", highlight=False)
    for control in plain["control"]:
        _OUT.print(f"[red]fails without a fault[/red]: {control}", highlight=False)
    _OUT.print(
        f"{report.found} of {len(report.results)} found with {report.cpu_seconds:.0f} s of CPU, "
        f"and {report.control_cpu_seconds:.0f} s for the program without a fault",
        highlight=False,
    )


if __name__ == "__main__":
    main()
