"""`starsched shares`: what the queues of the tree in force have, borrow and lack."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec

from engine.surfaces.cli.cluster_option import cluster_options
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.terminal import wide_option
from engine.surfaces.live.share_answers import ShareAnswer, SharesPage
from engine.surfaces.live.shares_page import MOST_ROWS, ROWS, STATES
from engine.telemetry.logs import configure_logging
from workbench.cli.leader_access import answer_of, leader_options
from workbench.cli.shares_text import print_share, print_shares

_NO_TREE: Final = 1


@click.command("shares", short_help="Show what queues have, borrow and lack of their shares.")
@click.argument("path", default="", metavar="[PATH]")
@click.option("--queue", default="", metavar="TEXT", help="Queues with this in their paths.")
@click.option("--resource", default="", metavar="NAME", help="This resource alone.")
@click.option("--state", type=click.Choice(STATES), help="Queues that are so.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_ROWS),
    default=ROWS,
    show_default=True,
    help="Print so many queues at most.",
)
@cluster_options
@leader_options
@wide_option
@output_option("How to print it.")
def shares_command(
    path: str, queue: str, resource: str, state: str | None, limit: int, **options: Any
) -> None:
    """Show what the queues of a QueueTree have, borrow and lack of their shares.

    With PATH, such as `research/vision`, of one queue, the queues right below it, and its pods.
    The scheduler that leads is asked, as by `starsched explain`; `kubectl starsched shares` is the
    same.

    *lacks* is how much of its share a queue does not have although its pods wait for it, *borrows*
    what it has beyond its share. What is held, for what reason, and the latest requests for which
    queues gave back are printed, too.

    Exit codes: 0 shown, 1 the policies in force have no QueueTree, or there is no such queue, or
    the scheduler could not be asked, 2 wrong usage.

    \b
    Examples:
      starsched shares
      starsched shares --state starved --resource nvidia.com/gpu
      starsched shares research/vision
      starsched shares --output json | jq '.pairs[] | {starved, borrowing, amount}'
    """
    configure_logging(verbosity=-1, log_format="text")
    filters = {"queue": queue, "resource": resource, "state": state or ""}
    if path:
        if given := next((name for name, value in filters.items() if value), ""):
            raise click.UsageError(f"--{given} is for the whole tree, without PATH")
        answer = answer_of(options, f"/queues/{quote(path)}", {}, ShareAnswer)
        _print(options, answer, lambda: print_share(answer))
        return
    query = {name: value for name, value in filters.items() if value} | {"limit": str(limit)}
    page = answer_of(options, "/queues", query, SharesPage)
    _print(options, page, lambda: print_shares(page, resource))
    if not page.policy:
        raise SystemExit(_NO_TREE)


def _print(options: dict[str, Any], answer: msgspec.Struct, as_text: Callable[[], None]) -> None:
    if options["output"] == "json":
        print_json(msgspec.to_builtins(answer))
    else:
        as_text()
