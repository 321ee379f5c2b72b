"""`starsched whatif`: what would become of pods if the cluster were another one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec

from engine.lib.printable import counted
from engine.surfaces.cli.cluster_option import cluster_options
from engine.surfaces.cli.console import escape, make_console, say
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.live.what_if.answers import WhatIfAnswer
from engine.surfaces.live.what_if.changes import MOST_NODES
from engine.telemetry.logs import configure_logging
from workbench.cli.leader_access import answer_of, leader_options
from workbench.cli.table import Column, print_table

Command = TypeVar("Command", bound=Callable[..., Any])

_NONE_HELPED: Final = 3
_MOST_ROWS: Final = 50


def _common(function: Command) -> Command:
    for option in (output_option("How to print it."), leader_options, cluster_options):
        function = option(function)
    return function


def _given(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """*value*, if none of it is empty, as of a shell variable that is not set."""
    words = value if isinstance(value, tuple) else (value,)
    if any(word is not None and not word.strip(" ,") for word in words):
        raise click.BadParameter("want a value, got an empty one.")
    return value


@click.group("whatif", short_help="Show what would start if the cluster were another one.")
def what_if_command() -> None:
    """Show what would become of pods if there were more nodes, or less in their way.

    The scheduler that leads makes the change on a copy of what it knows, and decides there by the
    policies in force until nothing changes any more: all the pods that wait, in the order of its
    queue, groups as a whole, with quotas, claims and evictions. Nothing is changed in the cluster.
    `kubectl starsched whatif` is the same.

    Exit codes: 0 a pod that waits would start, or each drained pod would have a node again, 3 none
    would, or not each of them, 1 the scheduler could not be asked, or knows no such node, taint or
    queue, 2 wrong usage.

    \b
    Examples:
      kubectl starsched whatif add-nodes 3 --like node-7
      kubectl starsched whatif drain node-7
      kubectl starsched whatif remove-taint dedicated=gpu:NoSchedule --node node-7
      kubectl starsched whatif raise-quota research/vision cpu=10
      kubectl starsched whatif add-nodes 2 --like m5.large --output json | jq '.start[].pod'
    """


@what_if_command.command("add-nodes")
@click.argument("count", type=click.IntRange(1, MOST_NODES))
@click.option(
    "--like", required=True, metavar="NAME", callback=_given, help="A node, or a machine type."
)
@_common
def add_nodes(count: int, like: str, **options: Any) -> None:
    """Add COUNT nodes like a node that is there, or of a machine type.

    Machine types are those of the scheduler's --machine-types.
    """
    _ask(options, {"add": str(count), "like": like})


@what_if_command.command("drain")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", callback=_given)
@_common
def drain(nodes: tuple[str, ...], **options: Any) -> None:
    """Drain nodes: which pods would go where, and which could not be placed again."""
    _ask(options, {"drain": ",".join(nodes)})


@what_if_command.command("remove-taint")
@click.argument("taint", metavar="KEY[=VALUE]:EFFECT", callback=_given)
@click.option(
    "--node", metavar="NAME", callback=_given, help="Of this node alone. Default: of all."
)
@_common
def remove_taint(taint: str, node: str | None, **options: Any) -> None:
    """Remove a taint from a node, or from all that have it."""
    _ask(options, {"taint": taint, "node": node or ""})


@what_if_command.command("raise-quota")
@click.argument("queue", callback=_given)
@click.argument("quota", metavar="[ATTRIBUTE:]RESOURCE=AMOUNT", callback=_given)
@_common
def raise_quota(queue: str, quota: str, **options: Any) -> None:
    """Raise an amount that a QUEUE of the QueueTree may have.

    ATTRIBUTE is one of those that the policy of the tree declares; it may be left out if only one
    of them has amounts.
    """
    _ask(options, {"queue": queue, "quota": quota})


def _ask(options: Mapping[str, Any], query: Mapping[str, str]) -> None:
    configure_logging(verbosity=-1, log_format="text")
    given = {name: value for name, value in query.items() if value}
    answer = answer_of(options, "/whatif", given, WhatIfAnswer)
    if options["output"] == "json":
        print_json(msgspec.to_builtins(answer))
    else:
        _print(answer)
    counts = answer.counts
    if counts.unplaced or (counts.lost if "drain" in given else not counts.start):
        raise SystemExit(_NONE_HELPED)


def _print(answer: WhatIfAnswer) -> None:
    console, counts = make_console(), answer.counts
    for change in answer.changes:
        say(console, f"[bold]{escape(change)}[/bold]")
    say(
        console,
        f"of the pods that wait, {counts.start:,} would start and {counts.wait:,} would still wait"
        + (f"; {counts.anyway:,} start anyway" if counts.anyway else ""),
    )
    if answer.end:
        say(
            console,
            f"of those that lose their nodes, {counts.moved:,} would start elsewhere, "
            f"{counts.unplaced:,} would not, {counts.lost:,} would be gone for good",
        )
    for note in answer.notes:
        say(console, f"  note: {escape(note)}")
    if answer.hidden_pods:
        say(console, f"  {counted(answer.hidden_pods, 'pod')} are not yours to see")
    started = [one for one in answer.start if not one.anyway]
    rows = [(one.pod, one.node, one.was_on) for one in started[:_MOST_ROWS]]
    _table(("WOULD START", "ON", "LOSES"), rows, len(started))
    waits = [(one.pod, one.token, one.message) for one in answer.wait[:_MOST_ROWS]]
    _table(("WOULD HAVE NO NODE", "REASON", "WHY"), waits, len(answer.wait))


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]], count: int) -> None:
    if not rows:
        return
    console = make_console()
    say(console, "")
    print_table(console, [Column(title) for title in titles], rows)
    if count > len(rows):
        say(console, f"  {count - len(rows):,} more: see --output json")
