"""How the queues of two texts differ, for people."""

from collections.abc import Mapping
from typing import Final

from rich.console import Console

from engine.core.model.quantity import amount_text
from engine.lib.printable import counted
from engine.surfaces.cli.console import escape, say
from engine.surfaces.cli.terminal import is_wide
from workbench.cli.table import Column, numbers, print_table
from workbench.plan.queue_plan import QueueChange, QueueComparison

_SHOWN: Final = 20


def print_queue_changes(console: Console, found: QueueComparison, names: tuple[str, str]) -> None:
    """Print the queues of *found* that differ; *names* are the columns of both texts."""
    if found.policy_before != found.policy_after:
        policies = (
            f"`{one}`" if one else "none" for one in (found.policy_before, found.policy_after)
        )
        say(console, escape(f"tree       governed by {' -> '.join(policies)}"))
    if found.vanished:
        verb = "vanishes" if found.vanished == 1 else "vanish"
        said = f"{counted(found.vanished, 'queue')} {verb}"
        say(console, f"queues     [red]{said}[/red]")
    if not found.changes:
        say(console, "queues     [green]the same shares and order[/green]")
        return
    shown = found.changes if is_wide() else found.changes[:_SHOWN]
    columns: list[str | Column] = [
        "queue",
        *numbers("pods"),
        "",
        *(f"share, {one}" for one in names),
        *numbers("place"),
    ]
    print_table(console, columns, map(_row, shown), title="Queues that differ")
    if more := len(found.changes) - len(shown) + found.left_out:
        say(console, f"and {more:,} more: --output json has them")
    if found.place or found.causes:
        where = found.place or ", ".join(found.causes)
        say(console, f"caused by  {escape(where)}")


def _row(one: QueueChange) -> tuple[str, ...]:
    what = "[red]vanishes[/red]" if one.is_gone else "[green]is new[/green]" if one.is_new else ""
    places = ["-" if at is None else str(at) for at in (one.place_before, one.place_after)]
    return (
        escape(one.queue),
        f"{one.pods:,}",
        what,
        escape(_share(one.share_before)),
        escape(_share(one.share_after)),
        places[0] if places[0] == places[1] else " -> ".join(places),
    )


def _share(share: Mapping[str, int] | None) -> str:
    if share is None:
        return "-"
    return ", ".join(amount_text(name, amount) for name, amount in share.items())
