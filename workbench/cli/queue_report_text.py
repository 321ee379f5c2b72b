"""What the queues of a simulation had, for people."""

from rich.console import Console

from engine.core.model.quantity import amount_text
from engine.surfaces.cli.console import escape, say
from engine.surfaces.cli.terminal import is_wide
from workbench.cli.table import Column, numbers, print_table
from workbench.simulation.shares_over_time import QueueReport, QueueUse

_SHOWN = 20


def print_queues(console: Console, found: QueueReport) -> None:
    """Print the queues of *found*, those furthest from what they deserved first."""
    name = escape(found.resource or "nothing")
    title = f"What the queues of {escape(found.policy)} had of {name}, on average"
    ordered = sorted(found.queues, key=lambda one: (-one.error, one.queue))
    shown = ordered if is_wide() else ordered[:_SHOWN]
    columns: list[str | Column] = [
        "queue",
        *numbers("pods", "placed", "evicted", "had", "deserved", "share"),
        *numbers("error", "starved", "waited", "95 %"),
    ]
    print_table(console, columns, [_row(found.resource, one) for one in shown], title=title)
    more = len(ordered) - len(shown) + found.left_out
    if more:
        say(console, f"and {more:,} more queues")
    if found.reversals:
        say(console, f"[red]{found.reversals:,} times a queue took back what was taken[/red]")
    say(
        console,
        f"share error {100 * found.error:.1f} % of what there is; "
        "[dim]deserved: what there is, by weight among those that want some[/dim]",
    )


def _row(resource: str, one: QueueUse) -> tuple[str, ...]:
    def amount(value: float | None) -> str:
        if value is None:
            return "-"
        if resource == "cpu":
            return f"{value / 1000:.1f}"
        is_small = value < 10_000
        return f"{value:.1f}" if is_small else amount_text(resource, round(value)).split(" ")[0]

    return (
        escape(one.queue),
        f"{one.arrived:,}",
        f"{one.placed:,}",
        f"{one.evictions:,}",
        amount(one.mean),
        amount(one.deserved),
        amount(one.share),
        f"{100 * one.error:.1f} %",
        f"{one.starved_seconds:,.0f} s",
        f"{one.waits[0]:g} s",
        f"{one.waits[1]:g} s",
    )
