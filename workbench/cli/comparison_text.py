"""Simulating a workload under two sets of policies, and printing how they compare.

Owns the progress bar and the text. Comparing is `replay.comparison`'s.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from engine.comparing.difference import MOVED, NEWLY_PLACED
from engine.explaining.event_words import in_words
from engine.policy.bundle import Bundle
from engine.surfaces.cli.console import escape, make_console, say
from engine.surfaces.cli.progress_bar import progress_bar
from engine.surfaces.cli.terminal import is_wide
from workbench.cli.file_notes import report_replaced
from workbench.cli.table import grouped, numbers, pods_text, print_table, several, stem_of
from workbench.comparing.kinds import OF_OUTCOMES, OTHER_REASON
from workbench.replay.comparison import (
    Change,
    Comparison,
    compare_runs,
    summed_up,
)
from workbench.simulation.workload import Workload

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


def print_comparison(
    found: Comparison, counted: str, names: tuple[str, str], notes: Sequence[str] = ()
) -> None:
    """Print *found*, whose pods are *counted*; *names* are the columns of both sets.

    *notes* are sentences about pods that were not decided.
    """
    console = make_console()
    counts = Counter(OF_OUTCOMES[change.kind] for change in found.changes)
    said = ", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "no change"
    say(console, f"{found.pods} {counted}: {said}")
    for note in notes:
        say(console, note)
    groups = grouped(found.changes, _what_changes)
    shown = groups if is_wide() else groups[:_SHOWN]
    print_table(console, ("pods", "change", *names), map(_row, shown))
    if len(groups) > len(shown):
        say(console, f"and {len(groups) - len(shown):,} more: --wide and --output json have all")
    texts = (said for (one, *_) in shown for said in (one.before, one.after) if said)
    for line in in_words(*texts):
        say(console, f"  [dim]{escape(line)}[/dim]")
    rows = [
        (
            escape(name),
            _number(one.before),
            _number(one.after),
            _number(one.difference, "+"),
            "-" if one.margin is None else _number(one.margin),
        )
        for name, one in found.metrics.items()
        if is_wide() or one.difference or one.margin
    ]
    print_table(console, ["measure", *numbers(*names, "difference", "± (95 %)")], rows)
    if len(rows) < len(found.metrics):
        say(console, f"[dim]the same with both: {len(found.metrics) - len(rows)} measures[/dim]")


def _what_changes(change: Change) -> tuple[str, ...]:
    """What is the same for the pods of one row: not the nodes, of which each can have its own."""
    before = change.before if change.kind in (NEWLY_PLACED, OTHER_REASON) else ""
    after = change.after if change.kind not in (MOVED, NEWLY_PLACED) else ""
    return stem_of(change.pod), change.kind, before, after


def _row(group: Sequence[Change]) -> tuple[str, ...]:
    # A failure may have a second line, its hint; the JSON has all of it.
    before, after = (
        several(text.partition("\n")[0] for text in texts)
        for texts in ([one.before for one in group], [one.after for one in group])
    )
    pods = pods_text([one.pod for one in group])
    return escape(pods), OF_OUTCOMES[group[0].kind], escape(before), escape(after)


def _number(value: float, sign: str = "") -> str:
    """All digits of a whole number, four of another one."""
    return f"{value:{sign}.0f}" if value == int(value) else f"{value:{sign}.4g}"
