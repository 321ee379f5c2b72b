"""Simulating a workload under two sets of policies, and printing how they compare.

Owns the progress bar and the tables. Comparing is `recording.comparison`'s.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from rich.table import Table

from engine.cli import terminal
from engine.cli.file_notes import report_replaced
from engine.cli.progress_bar import progress_bar
from engine.cli.terminal import escape
from engine.offline.event_words import in_words
from engine.offline.workload import Workload
from engine.policy.bundle import Bundle
from engine.recording.comparison import Comparison, compare_runs, summed_up

Command = TypeVar("Command", bound=Callable[..., Any])

_SHOWN: Final = 20


def seeds_option(function: Command) -> Command:
    """Add `--seeds` to a command."""
    return click.option(
        "--seeds",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Runs, each with another order of pods and of tie-breaking; 1: as written.",
    )(function)


def simulated(before: Bundle, after: Bundle, workload: Workload, count: int) -> Comparison:
    """The comparison of *count* runs of *workload* under each set."""
    seeds: list[int | None] = [None] if count == 1 else list(range(1, count + 1))
    progress = progress_bar()
    runs = []
    with progress:
        bar = progress.add_task("simulating", total=count)
        for one in compare_runs(before, after, workload, seeds):
            runs.append(one)
            progress.advance(bar)
    report_replaced(runs[0][1].replaced)
    return summed_up(runs)


def print_comparison(found: Comparison, counted: str, names: tuple[str, str]) -> None:
    """Print *found*, whose pods are *counted*; *names* are the columns of both sets."""
    counts = Counter(change.kind for change in found.changes)
    said = ", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "no change"
    click.echo(f"{found.pods} {counted}: {said}")
    for change in found.changes[:_SHOWN]:
        # A failure may have a second line, its hint; the JSON has all of it.
        was, now = (text.partition("\n")[0] for text in (change.before, change.after))
        click.echo(f"  {change.pod}: {change.kind}: {was} -> {now}")
    if len(found.changes) > _SHOWN:
        click.echo(f"  and {len(found.changes) - _SHOWN} more: --output json has all")
    console = terminal.console(120)
    shown = found.changes[:_SHOWN]
    for line in in_words(*(said for one in shown for said in (one.before, one.after) if said)):
        console.print(f"  [dim]{escape(line)}[/dim]", soft_wrap=True)
    table = Table("measure")
    for column in (*names, "difference", "± (95 %)"):
        table.add_column(column, justify="right")
    for name, one in found.metrics.items():
        margin = "-" if one.margin is None else f"{one.margin:.4g}"
        table.add_row(
            escape(name), f"{one.before:.4g}", f"{one.after:.4g}", f"{one.difference:+.4g}", margin
        )
    console.print(table)
