"""Where a pod stands in the tree of queues, for people."""

from rich.console import Console

from engine.core.model.quantity import amount_text
from engine.surfaces.cli.console import escape, say
from engine.surfaces.live.turn_answers import HoldAnswer, TurnAnswer
from workbench.cli.table import Column, numbers, print_table


def print_turn(console: Console, turn: TurnAnswer) -> None:
    """Print *turn*: its place in the queue, what holds it, and whose turn it is at each level."""
    queue = f"queue `{turn.queue}`"
    if turn.place is None:
        say(console, escape(f"  in {queue} of `{turn.policy}`"))
        return
    behind = f", held behind {turn.behind}" if turn.behind else ""
    text = f"  in {queue} of `{turn.policy}`: number {turn.place} of {turn.pods:,}{behind}"
    say(console, escape(text))
    if turn.hold is not None:
        _hold(console, turn.hold)
    rows = [
        (
            escape(one.queue),
            "-" if one.place is None else f"{one.place} of {one.rivals:,}",
            escape(one.key or "-"),
            escape(one.first or "-"),
            escape(one.first_key or "-"),
        )
        for one in reversed(turn.levels)
    ]
    columns: list[str | Column] = ["queue", *numbers("place"), "key", "goes first", "its key"]
    if rows:
        print_table(console, columns, rows, title="Whose turn it is")


def _hold(console: Console, hold: HoldAnswer) -> None:
    if hold.source:
        say(console, escape(f"  held by {hold.source}"))
    if not hold.resource:
        return
    where = f"queue `{hold.at}`" if hold.at else "the root"
    has = amount_text(hold.resource, hold.has)
    say(console, escape(f"  {where} has {has}, and is short of {_short(hold)}"))
    rows = [
        (
            escape(one.queue),
            amount_text(hold.resource, one.allocated),
            "-" if one.share is None else amount_text(hold.resource, one.share),
            amount_text(hold.resource, one.borrowed) if one.borrowed else "-",
        )
        for one in hold.holders
    ]
    if rows:
        title = f"Who has it below {where}"
        columns: list[str | Column] = ["queue", *numbers("has", "share", "borrows")]
        print_table(console, columns, rows, title=escape(title))
    if hold.holders_left_out:
        say(console, f"[dim]and {hold.holders_left_out:,} more queues[/dim]")


def _short(hold: HoldAnswer) -> str:
    return amount_text(hold.resource, hold.short)
