"""How far an edit has come, for people: sentences first, then bars and tables."""

from collections.abc import Iterable, Sequence

from rich.console import Console

from engine.surfaces.cli.console import escape, escape_lines, make_console, say
from engine.surfaces.cli.terminal import is_wide
from engine.surfaces.live.answers import RolloutPage
from engine.surfaces.live.rollout_page import stage_text
from engine.surfaces.page.rollout_view import ExampleView, RolloutView, Row, rollout_view
from engine.surfaces.page.words import percent, took, word
from workbench.cli.table import Column, numbers, print_table

_BAR = 16
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
    console = make_console()
    view = rollout_view(page)
    say(console, f"[bold]{escape(page.headline)}[/bold]")
    if page.stages:
        line = "  ".join(f"{_SIGNS[one.state]} {escape(stage_text(one))}" for one in page.stages)
        say(console, f"  {line}")
    if page.since is not None:
        say(console, f"  in its stage since {page.since}; {took(page.elapsed)} count")
    if page.next_step:
        say(console, f"  next: {escape(page.next_step)}")
    for problem in page.problems:
        say(console, f"  [red]problem:[/red] {escape_lines(problem)}")
    _gates(console, page, view)
    _numbers(console, "Decisions", view.compared)
    kinds = view.kinds if is_wide() else [row for row in view.kinds if row.number]
    _numbers(console, "Differences", kinds)
    if view.kinds and not kinds:
        say(console, "\n[bold]Differences[/bold] none")
    for table in view.tables:
        _numbers(console, f"By {table.title.lower()}", table.rows)
        if table.not_listed:
            say(console, f"  {table.not_listed} more")
    if page.left_out:
        say(console, f"  {page.left_out} namespaces are left out: their pods are not yours to see")
    for example in view.examples:
        _example(console, example)
    if view.arms:
        rows = [(row.name, row.canary, row.control) for row in view.arms]
        _table(console, ("Canary", "candidate", "in force"), rows)
    if page.commands:
        say(console, "\n[bold]What can be done[/bold]")
        commands = [(f"  {escape(one.command)}", f"# {escape(one.means)}") for one in page.commands]
        print_table(console, ("", ""), commands)


def _gates(console: Console, page: RolloutPage, view: RolloutView) -> None:
    if page.verdict is None:
        return
    colour = _COLOURS[page.verdict.outcome]
    why = f": {escape(page.verdict.why)}" if page.verdict.why else ""
    say(console, f"\n[bold]Gates[/bold] [{colour}]{page.verdict.outcome}[/{colour}]{why}")
    rows = []
    for one in view.gates:
        gate, colour = one.gate, _COLOURS[one.gate.verdict]
        verdict = f"[{colour}]{gate.verdict}[/{colour}]"
        rows.append((f"  {escape(gate.name)}", _bar(one.share), verdict, escape(one.text)))
    print_table(console, ("", "", "", ""), rows)


def _bar(share: float) -> str:
    full = round(share * _BAR)
    return "█" * full + "░" * (_BAR - full)


def _numbers(console: Console, name: str, rows: Iterable[Row]) -> None:
    shown = [(row.name, f"{row.number:,}", percent(row.share)) for row in rows]
    if shown:
        _table(console, (name, *numbers("", "")), shown)


def _example(console: Console, view: ExampleView) -> None:
    example = view.example
    policy = f" by {example.policy}" if example.policy else ""
    place = f" ({example.place})" if example.place else ""
    title = f"{example.pod} {word(example.kind)}{policy}{place}"
    say(console, f"\n[bold]{escape(title)}[/bold]")
    rows = [("decides", example.before, example.after)]
    _table(console, ("", "in force", "candidate"), rows, gap=False)
    if view.scores:
        # Both nodes under both texts, as far as they are known.
        texts = ["in force"] * view.each + ["candidate"] * view.each
        titles = (
            f"{one.node}, {text}" if view.each > 1 else text
            for one, text in zip(view.columns, texts, strict=True)
        )
        scores = [(row.policy, *map(_score, row.scores)) for row in view.scores]
        scores.append(("total", *(_score(one.total) for one in view.columns)))
        _table(console, ("scores", *numbers(*titles)), scores)


def _score(score: int | None) -> str:
    return "-" if score is None else str(score)


def _table(
    console: Console,
    names: Sequence[str | Column],
    rows: Iterable[tuple[str, ...]],
    *,
    gap: bool = True,
) -> None:
    if gap:
        console.print()
    indented = ((f"  {escape(name)}", *map(escape, cells)) for name, *cells in rows)
    print_table(console, names, indented)
