"""How far an edit has come, for people: sentences first, then bars and tables."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from engine.cli import terminal
from engine.cli.terminal import escape, escape_lines
from engine.live.answers import RolloutPage
from engine.live.rollout_page import stage_text
from engine.page.rollout_view import ExampleView, RolloutView, Row, rollout_view
from engine.page.words import percent, took, word

_BAR = 20
_COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
_SIGNS = {
    "done": "[green]✓[/green]",
    "now": "[yellow]●[/yellow]",
    "paused": "[yellow]‖[/yellow]",
    "failed": "[red]✗[/red]",
    "ahead": "○",
    "skipped": "–",
}


def print_rollout(page: RolloutPage) -> None:
    """Print *page*; in colours on a terminal only."""
    console = terminal.console()
    view = rollout_view(page)
    _say(console, f"[bold]{escape(page.headline)}[/bold]")
    if page.shadowed:
        _say(console, f"Counted and not obeyed: {escape(', '.join(page.shadowed))}")
    if page.stages:
        line = "  ".join(f"{_SIGNS[one.state]} {escape(stage_text(one))}" for one in page.stages)
        _say(console, f"  {line}")
    if page.since is not None:
        _say(console, f"  in its stage since {page.since}; {took(page.elapsed)} count")
    if page.next_step:
        _say(console, f"  next: {escape(page.next_step)}")
    for problem in page.problems:
        _say(console, f"  [red]problem:[/red] {escape_lines(problem)}")
    _gates(console, page, view)
    _numbers(console, "Decisions", view.compared)
    _numbers(console, "Differences", view.kinds)
    for table in view.tables:
        _numbers(console, f"By {table.title.lower()}", table.rows)
        if table.not_listed:
            _say(console, f"  {table.not_listed} more")
    if page.left_out:
        _say(console, f"  {page.left_out} namespaces are left out: their pods are not yours to see")
    for example in view.examples:
        _example(console, example)
    if view.arms:
        rows = [(row.name, row.canary, row.control) for row in view.arms]
        _table(console, ("Canary", "candidate", "in force"), rows)
    if page.commands:
        _say(console, "\n[bold]What can be done[/bold]")
        width = max(len(one.command) for one in page.commands)
        for one in page.commands:
            _say(console, f"  {escape(one.command.ljust(width))}  # {escape(one.means)}")


def _say(console: Console, text: str) -> None:
    """Print a sentence without wrapping it, so that the output can be searched."""
    console.print(text, soft_wrap=True)


def _gates(console: Console, page: RolloutPage, view: RolloutView) -> None:
    if page.verdict is None:
        return
    colour = _COLOURS[page.verdict.outcome]
    why = f": {escape(page.verdict.why)}" if page.verdict.why else ""
    _say(console, f"\n[bold]Gates[/bold] [{colour}]{page.verdict.outcome}[/{colour}]{why}")
    table = _columns()
    for one in view.gates:
        gate, colour = one.gate, _COLOURS[one.gate.verdict]
        verdict = f"[{colour}]{gate.verdict}[/{colour}]"
        table.add_row(f"  {escape(gate.name)}", _bar(one.share), escape(one.text), verdict)
    console.print(table)


def _bar(share: float) -> str:
    full = round(share * _BAR)
    return "█" * full + "░" * (_BAR - full)


def _numbers(console: Console, name: str, rows: Iterable[Row]) -> None:
    shown = [(row.name, f"{row.number:,}", percent(row.share)) for row in rows]
    if shown:
        _table(console, (name, "", ""), shown)


def _example(console: Console, view: ExampleView) -> None:
    example = view.example
    cause = f" by {example.cause}" if example.cause else ""
    place = f" ({example.place})" if example.place else ""
    rows = [("decides", example.before, example.after)]
    rows += [(row.policy, _score(row.before), _score(row.after)) for row in view.scores]
    if view.scores:
        rows.append(("total", _score(view.total_before), _score(view.total_after)))
    title = f"{example.pod} {word(example.kind)}{cause}{place}"
    _say(console, f"\n[bold]{escape(title)}[/bold]")
    _table(console, ("", "in force", "candidate"), rows, gap=False)


def _score(score: int | None) -> str:
    return "-" if score is None else str(score)


def _table(
    console: Console, names: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, gap: bool = True
) -> None:
    table = _columns()
    first, *others = names
    if first or any(others):
        table.add_row(f"[bold]{escape(first)}[/bold]", *(f"[dim]{one}[/dim]" for one in others))
    for name, *cells in rows:
        table.add_row(f"  {escape(name)}", *(escape(cell) for cell in cells))
    if gap:
        console.print()
    console.print(table)


def _columns() -> Table:
    return Table.grid(padding=(0, 3, 0, 0))
