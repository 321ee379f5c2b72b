"""The answer of `starsched plan`: its JSON, and what is printed of it.

Owns the record and its text. What it says is `plan_command`'s.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING, NEWLY_PLACED, OTHER_VICTIMS
from engine.surfaces.cli.console import escape, escape_lines, make_console, say
from engine.surfaces.cli.terminal import is_wide
from workbench.cli.queue_plan_text import print_queue_changes
from workbench.cli.table import grouped, numbers, pods_text, print_table, several, stem_of
from workbench.comparing.kinds import NEWLY_GATED, NEWLY_UNGATED, OF_OUTCOMES, OTHER_ORDER
from workbench.plan.new_pods import NewPod
from workbench.plan.plan import PlanDifference, PlanMeasures
from workbench.plan.queue_plan import QueueComparison
from workbench.plan.what_if import Outcome

_SHOWN: Final = 20
_COLOURS: Final = {
    FAILED: "red",
    NEWLY_PENDING: "red",
    NEWLY_GATED: "red",
    OTHER_VICTIMS: "yellow",
    MOVED: "yellow",
    NEWLY_PLACED: "green",
    NEWLY_UNGATED: "green",
    OTHER_ORDER: "cyan",
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
        objects: Of `--objects`, those that the tree of queues reads as they are given.
        problems: As `starsched check` reports them; failed tests, too.
        measures: How many pods were compared and differ; null if none were.
        differences: Every one.
        queues: How the queues of the tree differ; null if there is no tree.
        new_pods: Of `-f`, in the order in which they are decided.
        notes: What was left out of account.
        not_applied: The admission plugins that the pods of `-f` did not pass.
    """

    index: str = ""
    in_force: str = ""
    candidate: str = ""
    changed: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    problems: tuple[Mapping[str, Any], ...] = ()
    tests: TestCounts | None = None
    measures: PlanMeasures | None = None
    differences: tuple[PlanDifference, ...] = ()
    queues: QueueComparison | None = None
    new_pods: tuple[NewPod, ...] = ()
    notes: tuple[str, ...] = ()
    not_applied: tuple[str, ...] = ()


def print_plan(answer: PlanAnswer, problems: Iterable[str], next_command: str) -> None:
    """Print *answer*, with its *problems* as lines; in colors on a terminal only."""
    console = make_console()
    say(console, f"in force   {answer.in_force}")
    if answer.candidate:
        changed = ", ".join(answer.changed) or "the same texts"
        say(console, f"candidate  {answer.candidate}: {escape(changed)}")
        for problem in problems:
            say(console, f"  {escape_lines(problem)}")
        _tests(console, answer)
    if answer.objects:
        say(console, f"objects    {escape(', '.join(answer.objects))}")
    for note in answer.notes:
        say(console, f"[dim]note: {escape_lines(note)}[/dim]")
    if answer.measures is not None:
        print_measures(console, answer.measures)
        print_differences(console, answer.differences, ("in force", "candidate"))
    if answer.queues is not None:
        print_queue_changes(console, answer.queues, ("in force", "candidate"))
        if answer.queues.vanished and answer.index:
            say(console, "[dim]note: `starsched apply` wants --force for queues that vanish[/dim]")
    if answer.new_pods:
        _new_pods(console, answer.new_pods)
    if answer.index:
        say(console, f"index      {answer.index}")
        # In one line, to be copied.
        console.print(f"next       {escape(next_command)}", soft_wrap=True)


def _tests(console: Console, answer: PlanAnswer) -> None:
    tests = answer.tests
    if tests is None:
        return
    said = [f"{tests.passed} passed"]
    said += [f"[red]{tests.failed} failed[/red]"] if tests.failed else []
    said += [f"{tests.skipped} skipped"] if tests.skipped else []
    has_none = not (tests.passed or tests.failed or tests.skipped)
    say(console, f"tests      {'none' if has_none else ', '.join(said)}")


def print_measures(console: Console, measures: PlanMeasures) -> None:
    """Print how many pods were compared, and how many differ; denominators first."""
    compared = measures.compared_waiting + measures.compared_running
    counts = [f"{measures.compared_running:,} of {measures.running:,} running as if they waited"]
    if measures.waiting:
        counts.insert(0, f"{measures.compared_waiting:,} of {measures.waiting:,} waiting")
    say(console, f"compared   {', '.join(counts)}")
    for why, count in measures.skipped.items():
        say(console, f"skipped    {count:,} {why}")
    if not measures.counts:
        say(console, "[green]no difference[/green]")
        return
    rows = []
    for kind, count in measures.counts.items():
        color, words = _COLOURS[kind], OF_OUTCOMES[kind]
        of = measures.compared_waiting if kind == OTHER_ORDER else compared
        share = f"{100 * count / of:.1f}%" if of else "-"
        rows.append((f"[{color}]{words}[/{color}]", f"{count:,}", share))
    print_table(console, ["difference", *numbers("pods", "of compared")], rows)
    if measures.victims:
        say(console, f"victims    {measures.victims:+d} pods evicted")
    if len(measures.by_cause) > 1:
        said = ", ".join(f"{cause} {count:,}" for cause, count in measures.by_cause.items())
        say(console, f"causes     {escape(said)}")


def print_differences(
    console: Console, differences: Sequence[PlanDifference], names: tuple[str, str]
) -> None:
    """Print *differences*, equal ones in one row; *names* are the columns of both texts."""
    groups = grouped(differences, _what_differs)
    columns = ("pods", "runs on", "difference", *names, "caused by", "why")
    shown = groups if is_wide() else _telling(groups)
    print_table(console, columns, map(_row, shown))
    _say_more(console, len(groups) - len(shown))


def _what_differs(one: PlanDifference) -> tuple[object, ...]:
    """What is the same for the pods of one row: not the nodes, of which each can have its own."""
    fates = (_fate(one.before, "a node"), _fate(one.after, "a node"))
    return stem_of(one.pod), one.kind, one.is_running, one.place, one.causes, one.policy, fates


def _row(group: Sequence[PlanDifference]) -> tuple[str, ...]:
    first = group[0]
    color, words = _COLOURS[first.kind], OF_OUTCOMES[first.kind]
    if first.kind == OTHER_ORDER:
        before = several(f"position {one.position_before}" for one in group)
        after = several(f"position {one.position_after}" for one in group)
    else:
        before = several(_fate(one.before) for one in group)
        after = several(_fate(one.after) for one in group)
    whys = dict.fromkeys(one.why.partition("\n")[0] for one in group)
    return (
        escape(pods_text([one.pod for one in group])),
        escape(several(one.runs_on for one in group)),
        f"[{color}]{words}[/{color}]",
        escape(before),
        escape(after),
        escape(first.place or ", ".join(first.causes)),
        escape(_first_of(whys)),
    )


def _first_of(sentences: Collection[str]) -> str:
    """The first of different *sentences*, and that there are others."""
    more = f"; and {len(sentences) - 1:,} alike" if len(sentences) > 1 else ""
    return next(iter(sentences), "") + more


def _telling(groups: Sequence[list[PlanDifference]]) -> list[list[PlanDifference]]:
    """The first of *groups*: one of each kind and place before a second one of any."""
    seen: Counter[tuple[str, str]] = Counter()
    turns = []
    for at, (one, *_) in enumerate(groups):
        turns.append((seen[one.kind, one.place], at))
        seen[one.kind, one.place] += 1
    return [groups[at] for at in sorted(at for _, at in sorted(turns)[:_SHOWN])]


def _say_more(console: Console, count: int) -> None:
    if count > 0:
        say(console, f"and {count:,} more: --wide and --output json have all")


def _fate(outcome: Outcome, node: str = "") -> str:
    """What becomes of a pod in one line; *node*, if given, is for any node of its own."""
    if outcome.victims:
        return f"evicts {', '.join(outcome.victims)} on {outcome.victims_on}"
    return node if node and outcome.node else outcome.fate


def _new_pods(console: Console, pods: tuple[NewPod, ...]) -> None:
    groups = grouped(pods, _what_becomes)
    shown = groups if is_wide() else groups[:_SHOWN]
    queue = f"queue ({pods[0].waiting:,} wait)"
    columns = ("pods", "goes to", queue, "earliest start", "if", "next step")
    print_table(console, columns, map(_new_row, shown))
    _say_more(console, len(groups) - len(shown))
    placed = sum(bool(one.outcome.node) for one in pods)
    say(console, f"{placed:,} of {len(pods):,} new pods get a node now")


def _what_becomes(one: NewPod) -> tuple[object, ...]:
    where = _fate(one.outcome, "a node")
    return stem_of(one.pod), one.outcome.reason, where, one.start, one.by, one.assumption


def _new_row(group: Sequence[NewPod]) -> tuple[str, ...]:
    first = group[0]
    nodes = Counter(one.outcome.node for one in group if one.outcome.node)
    where = several(node if count == 1 else f"{count:,} x {node}" for node, count in nodes.items())
    where = f"[green]{escape(where)}[/green]"
    if not nodes:
        reason = first.outcome.reason or "nowhere"
        where = f"[red]{escape(reason)}[/red]: {escape(_fate(first.outcome))}"
    places = [one.position for one in group if one.position is not None]
    position = _span(places) if places else "gated"
    by = f", by {first.by}" if first.by else ""
    return (
        escape(pods_text([one.pod for one in group])),
        where,
        position,
        first.start.replace("_", " ") + by,
        escape(first.assumption),
        escape(first.next_step),
    )


def _span(places: Sequence[int]) -> str:
    least, most = min(places), max(places)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
