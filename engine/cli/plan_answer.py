"""The answer of `starsched plan`: its JSON, and what is printed of it.

Owns the record and its text. What it says is `plan_command`'s.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from engine.cli import terminal
from engine.cli.terminal import escape, escape_lines
from engine.offline.new_pods import NewPod
from engine.offline.what_if import Outcome
from engine.rollout.plan import OTHER_ORDER, Difference, PlanMeasures

# Tables that go into a file or a pipe are not cut to the width of a terminal.
_PIPE_WIDTH: Final = 200
_SHOWN: Final = 20
_WORDS: Final = {
    "failed": ("red", "a policy fails"),
    "newly_pending": ("red", "now pending"),
    "newly_gated": ("red", "now gated"),
    "other_victims": ("yellow", "other victims"),
    "moved": ("yellow", "moved"),
    "newly_placed": ("green", "now placed"),
    "newly_ungated": ("green", "no longer gated"),
    "other_order": ("cyan", "other order"),
}


class TestCounts(msgspec.Struct, frozen=True):
    """How the tests of the candidate ended."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan found.

    Attributes:
        index: For `starsched apply`; empty without a candidate, or if there are problems.
        in_force: The revision of the policies in force.
        candidate: That of the candidate; empty without one.
        changed: The files that differ, tests included.
        problems: As `starsched check` reports them; failed tests, too.
        measures: How many pods were compared and differ; null if none were.
        differences: Every one.
        new_pods: Of `-f`, in the order in which they are decided.
        notes: What was left out of account.
    """

    index: str = ""
    in_force: str = ""
    candidate: str = ""
    changed: tuple[str, ...] = ()
    problems: tuple[Mapping[str, Any], ...] = ()
    tests: TestCounts | None = None
    measures: PlanMeasures | None = None
    differences: tuple[Difference, ...] = ()
    new_pods: tuple[NewPod, ...] = ()
    notes: tuple[str, ...] = ()


def print_plan(answer: PlanAnswer, problems: Iterable[str], next_command: str) -> None:
    """Print *answer*, with its *problems* as lines; in colors on a terminal only."""
    console = terminal.console(_PIPE_WIDTH)
    _say(console, f"in force   {answer.in_force}")
    if answer.candidate:
        changed = ", ".join(answer.changed) or "the same texts"
        _say(console, f"candidate  {answer.candidate}: {escape(changed)}")
        for problem in problems:
            click.echo(f"  {problem}")
        _tests(console, answer)
    for note in answer.notes:
        _say(console, f"[dim]note: {escape_lines(note)}[/dim]")
    if answer.measures is not None:
        _measures(console, answer.measures)
        _differences(console, answer.differences)
    if answer.new_pods:
        _new_pods(console, answer.new_pods)
    if answer.index:
        _say(console, f"index      {answer.index}")
        _say(console, f"next       {escape(next_command)}")


def _say(console: Console, text: str) -> None:
    """Print a line without wrapping it, so that the output can be searched."""
    console.print(text, soft_wrap=True)


def _tests(console: Console, answer: PlanAnswer) -> None:
    tests = answer.tests
    if tests is None:
        return
    said = [f"{tests.passed} passed"]
    said += [f"[red]{tests.failed} failed[/red]"] if tests.failed else []
    said += [f"{tests.skipped} skipped"] if tests.skipped else []
    has_none = not (tests.passed or tests.failed or tests.skipped)
    _say(console, f"tests      {'none' if has_none else ', '.join(said)}")


def _measures(console: Console, measures: PlanMeasures) -> None:
    """Denominators first."""
    compared = measures.compared_waiting + measures.compared_running
    _say(
        console,
        f"compared   {measures.compared_waiting:,} of {measures.waiting:,} waiting pods, "
        f"{measures.compared_running:,} of {measures.running:,} running ones as if they waited",
    )
    for why, count in measures.skipped.items():
        _say(console, f"skipped    {count:,} {why}")
    if not measures.counts:
        _say(console, "[green]no difference[/green]")
        return
    table = Table("difference", box=None)
    table.add_column("pods", justify="right")
    table.add_column("of compared", justify="right")
    for kind, count in measures.counts.items():
        color, words = _WORDS[kind]
        of = measures.compared_waiting if kind == OTHER_ORDER else compared
        share = f"{100 * count / of:.1f}%" if of else "-"
        table.add_row(f"[{color}]{words}[/{color}]", f"{count:,}", share)
    console.print(table)
    if measures.victims:
        _say(console, f"victims    {measures.victims:+d} pods evicted")
    if len(measures.by_cause) > 1:
        said = ", ".join(f"{cause} {count:,}" for cause, count in measures.by_cause.items())
        _say(console, f"causes     {escape(said)}")


def _differences(console: Console, differences: tuple[Difference, ...]) -> None:
    if not differences:
        return
    table = Table("pod", "difference", "in force", "candidate", "caused by", "why")
    for one in _telling(differences):
        color, words = _WORDS[one.kind]
        if one.kind == OTHER_ORDER:
            fates = f"position {one.position_before}", f"position {one.position_after}"
        else:
            fates = _fate(one.before), _fate(one.after)
        runs = f" (runs on {one.runs_on})" if one.is_running else ""
        table.add_row(
            escape(one.pod + runs),
            f"[{color}]{words}[/{color}]",
            *map(escape, fates),
            escape(one.place or ", ".join(one.causes)),
            escape(one.why.partition("\n")[0]),
        )
    console.print(table)
    if len(differences) > _SHOWN:
        _say(console, f"and {len(differences) - _SHOWN:,} more: --output json has all")


def _telling(differences: tuple[Difference, ...]) -> list[Difference]:
    """The first of *differences*: one of each kind and place before a second one of any."""
    seen: Counter[tuple[str, str]] = Counter()
    turns = []
    for at, one in enumerate(differences):
        turns.append((seen[one.kind, one.place], at))
        seen[one.kind, one.place] += 1
    return [differences[at] for at in sorted(at for _, at in sorted(turns)[:_SHOWN])]


def _fate(outcome: Outcome) -> str:
    if outcome.victims:
        return f"evicts {', '.join(outcome.victims)} on {outcome.victims_on}"
    return outcome.fate


def _new_pods(console: Console, pods: tuple[NewPod, ...]) -> None:
    queue = f"queue ({pods[0].waiting:,} wait)"
    table = Table("pod", "goes to", queue, "earliest start", "if", "next step")
    for one in pods[:_SHOWN]:
        where = f"[green]{escape(one.outcome.node)}[/green]"
        if not one.outcome.node:
            reason = one.outcome.reason or "nowhere"
            where = f"[red]{escape(reason)}[/red]: {escape(_fate(one.outcome))}"
        position = "gated" if one.position is None else f"{one.position:,}"
        by = f", by {one.by}" if one.by else ""
        table.add_row(
            escape(one.pod),
            where,
            position,
            one.start.replace("_", " ") + by,
            escape(one.assumption),
            escape(one.next_step),
        )
    console.print(table)
    placed = sum(bool(one.outcome.node) for one in pods)
    if len(pods) > _SHOWN:
        _say(console, f"and {len(pods) - _SHOWN:,} more: --output json has all")
    _say(console, f"{placed:,} of {len(pods):,} new pods get a node now")
