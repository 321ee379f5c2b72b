"""What the queues of a tree have, for people: pairs, what is held, who took, lines of resources."""

from collections.abc import Iterable, Iterator

from rich.console import Console

from engine.core.sharing.usage import THOUSANDTHS
from engine.lib.printable import counted
from engine.surfaces.cli.console import escape, escape_lines, make_console, say
from engine.surfaces.live.share_answers import (
    HeldRow,
    NextRequest,
    PodInQueue,
    ReclaimRow,
    ResourceStanding,
    ShareAnswer,
    SharePair,
    SharesPage,
)
from engine.surfaces.page.shares_view import QueueView, share_view, shares_view
from engine.surfaces.page.words import age, amount, percent, seconds_between, value
from workbench.cli.table import Column, numbers, print_table

_INDENT = "  "
_NO_SHARE = "-"
_NOT_YOURS = "(not yours to see)"


def print_shares(page: SharesPage, resource: str = "") -> None:
    """Print *page*, which is of *resource* alone if one is named; in colours on a terminal only."""
    console = make_console()
    view = shares_view(page, {"resource": resource})
    say(console, f"[bold]{escape(page.headline)}[/bold]")
    if page.next_step:
        say(console, f"  next: {escape(page.next_step)}")
    for problem in page.problems:
        say(console, f"  [red]problem:[/red] {escape_lines(problem)}")
    if page.problems_left_out:
        say(console, f"  {page.problems_left_out:,} more problems")
    _pairs(console, page.pairs, page.pairs_left_out)
    _held(console, page.held, page.held_left_out)
    _reclaims(console, page.reclaims, page.at)
    # Of a part of the tree, whole paths.
    is_tree = len(page.rows) == page.queues + 1
    _queues(console, view.rows, is_tree=is_tree)
    if len(page.rows) < page.total:
        say(console, f"  {len(page.rows):,} of {page.total:,} queues; --limit prints more")
    if view.not_shown:
        names = ", ".join(map(escape, view.not_shown))
        say(console, f"  without a line: {names}; --resource shows one")
    if page.outside:
        say(console, f"  in no queue: {counted(page.outside, 'pod')}")


def print_share(answer: ShareAnswer) -> None:
    """Print one queue with its pods."""
    console = make_console()
    queue, view = answer.queue, share_view(answer)
    say(console, f"[bold]{escape(queue.path or 'root')}[/bold]")
    for text, seconds in (("starved", queue.starved_seconds), ("borrowed", queue.borrowed_seconds)):
        if seconds:
            say(console, f"  {text} for {age(seconds)} in all")
    if answer.next_request is not None:
        say(console, f"  next: {_next(answer.next_request, queue.path)}")
    attributes = ", ".join(f"{name}={value(of)}" for name, of in queue.attributes.items())
    source = f" ({queue.source})" if queue.source else ""
    if attributes or source:
        say(console, f"  {escape(attributes + source)}")
    console.print()
    keeps = view.keeps_usage
    rows = [
        (f"{_INDENT}{escape(one.resource)}", *_cells(one.resource, one.standing, keeps=keeps))
        for one in view.cells
    ]
    print_table(console, ("Resource", *_numbers(keeps=keeps), ""), rows)
    _pairs(console, answer.pairs, answer.pairs_left_out)
    _held(console, answer.held, answer.held_left_out)
    _reclaims(console, answer.reclaims, answer.at)
    _queues(console, view.children, is_tree=False)
    if answer.children_left_out:
        say(console, f"  {answer.children_left_out:,} more queues")
    _pods(console, answer.pods, view.requested)
    if len(answer.pods) < answer.total_pods:
        say(console, f"  {len(answer.pods):,} of {counted(answer.total_pods, 'pod')}")
    if answer.hidden_pods:
        text = counted(answer.hidden_pods, "pod")
        say(console, f"  {text} left out: of namespaces whose pods are not yours to see")


def _numbers(*, keeps: bool) -> list[Column]:
    """The columns of numbers; *keeps*: with what was used in the past."""
    return numbers("Used", "Share", "Waiting", *(["Past"] if keeps else []))


def _cells(resource: str, one: ResourceStanding, *, keeps: bool) -> tuple[str, ...]:
    """What is used, the share, what waits, what was used, and what is to be said of it."""
    said = ""
    if one.lacks:
        said = f"[red]lacks {amount(one.lacks, resource)}[/red]"
    elif one.borrowed:
        said = f"[yellow]borrows {amount(one.borrowed, resource)}[/yellow]"
    share = _NO_SHARE if one.share is None else amount(one.share, resource)
    waiting = amount(one.waiting, resource) if one.waiting else ""
    past = "" if one.usage is None else percent(one.usage / THOUSANDTHS)
    return amount(one.allocated, resource), share, waiting, *([past] if keeps else []), said


def _queues(console: Console, views: Iterable[QueueView], *, is_tree: bool) -> None:
    views = list(views)
    keeps = any(c.standing.usage is not None for view in views for c in filter(None, view.cells))
    rows = [row for view in views for row in _rows(view, is_tree=is_tree, keeps=keeps)]
    if rows:
        console.print()
        print_table(console, ("Queue", "Resource", *_numbers(keeps=keeps), ""), rows)


def _rows(view: QueueView, *, is_tree: bool, keeps: bool) -> Iterator[tuple[str, ...]]:
    """The lines of a queue: one for each resource, its name on the first."""
    row = view.row
    indent = _INDENT * (row.level + 1 if is_tree else 1)
    name = indent + escape((view.name if is_tree else row.path) or "root")
    for cell in filter(None, view.cells):
        yield name, escape(cell.resource), *_cells(cell.resource, cell.standing, keeps=keeps)
        name = ""
    if name:
        yield name, *[""] * (6 if keeps else 5)


def _pairs(console: Console, pairs: Iterable[SharePair], left_out: int) -> None:
    rows = [
        (
            f"{_INDENT}{escape(one.starved)}",
            escape(one.borrowing),
            escape(one.resource),
            amount(one.amount, one.resource),
        )
        for one in pairs
    ]
    if rows:
        console.print()
        print_table(console, ("Lacks", "what borrows", "of", *numbers("Amount")), rows)
    if left_out:
        say(console, f"  {left_out:,} smaller pairs")


def _next(one: NextRequest, path: str) -> str:
    text = escape(one.pod) or _NOT_YOURS
    if one.group:
        text += f" of group {escape(one.group)}"
    if one.queue != path:
        text += f" in {escape(one.queue)}"
    return f"{text} [yellow](held)[/yellow]" if one.is_held else text


def _held(console: Console, held: Iterable[HeldRow], left_out: int) -> None:
    rows = [
        (
            f"{_INDENT}{escape(one.queue)}",
            f"{one.pods:,}",
            escape(one.token),
            _short(one),
            escape(one.reason),
        )
        for one in held
    ]
    if rows:
        console.print()
        print_table(console, ("Held in", *numbers("Pods"), "Why", "Short of", ""), rows)
    if left_out:
        say(console, f"  {left_out:,} more that are held")


def _short(one: HeldRow) -> str:
    if not one.resource:
        return ""
    where = escape(one.at or "root")
    return f"{amount(one.short, one.resource)} {escape(one.resource)} at {where}"


def _reclaims(console: Console, reclaims: Iterable[ReclaimRow], now: str) -> None:
    """A line for each queue that gave back, with who took on the first."""
    rows = []
    for one in reclaims:
        took = f"{_INDENT}{escape(one.queue)}{' [red]took back[/red]' if one.is_reversal else ''}"
        ago, taker = age(seconds_between(one.at, now)), escape(one.taker) or _NOT_YOURS
        for gave in one.victims:
            stage = str(gave.stage) if gave.stage else ""
            rows.append((took, escape(gave.queue), f"{gave.count:,}", stage, ago, taker))
            took, ago, taker = _INDENT, "", ""
    if rows:
        console.print()
        print_table(console, ("Took", "from", *numbers("Pods", "Stage", "Ago"), "For"), rows)


def _pods(console: Console, pods: Iterable[PodInQueue], resources: Iterable[str]) -> None:
    resources = tuple(resources)
    rows = [
        (
            f"{_INDENT}{escape(pod.pod)}",
            pod.phase,
            escape(pod.node),
            *(amount(pod.requests[one], one) if one in pod.requests else "" for one in resources),
        )
        for pod in pods
    ]
    if rows:
        console.print()
        print_table(console, ("Pod", "Phase", "Node", *numbers(*map(escape, resources))), rows)
