"""An explanation for people: sentences first, then tables."""

import textwrap
from collections.abc import Iterable

import msgspec
from rich.console import Console

from engine.surfaces.cli.console import escape, escape_lines, make_console, say
from engine.surfaces.live.answers import NodeGroup, NodeVerdicts, PodAnswer, PreemptionAnswer
from workbench.cli.table import Column, numbers, print_table
from workbench.cli.turn_text import print_turn

_EXAMPLES = 3


def print_answer(result: PodAnswer, top: int) -> None:
    """Print *result* with at most *top* feasible nodes; in colors on a terminal only."""
    console = make_console()
    say(console, _headline(result))
    _reason(console, result)
    for line in dict.fromkeys((*result.why, *result.failures, result.message)):
        if line:
            say(console, textwrap.indent(escape_lines(line), "  "))
    for line in result.words:
        say(console, f"    [dim]{escape(line)}[/dim]")
    if result.turn is not None:
        print_turn(console, result.turn)
    _verdicts(console, result)
    if result.ranking:
        _ranking(console, result, top)
    for asked in result.asked:
        _node(console, asked)
    _help(console, result)
    for note in result.notes:
        say(console, f"[dim]note: {escape_lines(note)}[/dim]")


def _headline(result: PodAnswer) -> str:
    node = escape(result.node)
    said = {
        "placed": f"[bold green]fits[/bold green], goes to [bold]{node}[/bold]",
        "bound": f"[bold green]is on[/bold green] [bold]{node}[/bold]",
        "unschedulable": "[bold red]fits nowhere[/bold red]",
        "gated": "[bold yellow]is gated[/bold yellow]",
        "held": "[bold yellow]is held by its queue[/bold yellow]",
        "waiting": "[bold yellow]waits[/bold yellow]",
        "failed": "[bold red]cannot be decided: a policy failed[/bold red]",
    }[result.outcome]
    is_moving = result.placed_on and result.outcome != "bound"
    # The scheduler itself explains by what is in force.
    source = f" ({result.policies_from})" if result.policies_from else ""
    now = f" (it is on {escape(result.placed_on)})" if is_moving else ""
    return (
        f"[bold]{escape(result.pod)}[/bold] {said}{now}; "
        f"{result.feasible} of {result.nodes} nodes are feasible, "
        f"profile {escape(result.profile)}, policies {result.revision}{escape(source)}"
    )


def _reason(console: Console, result: PodAnswer) -> None:
    """The token, what it means for this pod, and the next step."""
    if not result.reason:
        return
    helps = "" if result.node_helps else " (no further node would help)"
    say(console, f"  [bold]{escape(result.reason)}[/bold]{helps}")
    if result.node_helps and result.node_shape:
        say(console, f"  a node helps that offers {escape(result.node_shape)}")
    if result.next_step:
        say(console, f"  next: {escape(result.next_step)}")
    row = result.queue
    if row is not None:
        position = "" if row.position is None else f", position {row.position}"
        due = "" if row.next_try_at is None else f", tried again at {row.next_try_at} at the latest"
        say(console, f"  waits in: {row.place}{position}, {row.attempts} attempts{due}")


def _verdicts(console: Console, result: PodAnswer) -> None:
    """Which policies reject which nodes; those that reject none share one line."""
    rows = []
    for policy in result.policies:
        if not policy.rejects:
            continue
        name = policy.policy
        for group in _by_reason(policy.groups):
            more = ", ..." if group.count > len(group.examples) else ""
            rows.append(
                (
                    escape(name),
                    escape(group.reason),
                    str(group.count),
                    escape(", ".join(group.examples)) + more,
                    escape(group.source or "the runtime"),
                )
            )
            name = ""
    columns: list[str | Column] = ["policy", "reason", *numbers("nodes"), "such as", "source"]
    print_table(console, columns, rows, title="What rejects nodes")
    silent = [one.policy for one in result.policies if not one.rejects and not one.failed]
    if silent:
        say(console, f"No objection on any node: {', '.join(silent)}")


def _by_reason(groups: Iterable[NodeGroup]) -> Iterable[NodeGroup]:
    """The groups that are rejected, those with one reason as one."""
    by_reason: dict[str, NodeGroup] = {}
    for group in groups:
        known = by_reason.get(group.reason)
        if group.verdict == "rejects":
            by_reason[group.reason] = group if known is None else _joined(known, group)
    return sorted(by_reason.values(), key=lambda group: (-group.count, group.reason))


def _joined(one: NodeGroup, other: NodeGroup) -> NodeGroup:
    examples = sorted((*one.examples, *other.examples))[:_EXAMPLES]
    return msgspec.structs.replace(
        one, count=one.count + other.count, examples=tuple(examples), is_same=False
    )


def _ranking(console: Console, result: PodAnswer, top: int) -> None:
    ranking = result.ranking
    title = f"How the {min(top, len(ranking))} best of {result.feasible} feasible nodes score"
    if result.decided_at:
        title = f"Scores as it was decided at {result.decided_at} by revision {result.decided_by}"
    policies = [policy for policy in ranking[0].scores if _says_something(policy, result)]
    titles = [f"{policy} x{ranking[0].scores[policy].weight}" for policy in policies]
    rows = []
    for row in ranking[:top]:
        cells = []
        for policy in policies:
            score = row.scores[policy]
            raw = "-" if score.raw is None else str(score.raw)
            of = "" if raw == str(score.normalized) else f" ({raw})"
            cells.append(f"{score.weighted} = {score.normalized}{of}")
        rows.append((str(row.place), escape(row.node), str(row.total), *cells))
    print_table(console, ["", "node", *numbers("total", *titles)], rows, title=title)
    same = [policy for policy in ranking[0].scores if policy not in policies]
    if policies:
        say(console, "[dim]weighted = normalised (raw, where it differs)[/dim]")
    if same:
        said = "No score" if result.decided_at else "The same for all feasible nodes"
        say(console, f"{said}: {', '.join(same)}")


def _says_something(policy: str, result: PodAnswer) -> bool:
    """True if the scores of *policy* are worth a column.

    Policies that score all nodes the same decide nothing; of a decision that was made not all nodes
    are known, so those that gave points are shown.
    """
    weighted = {row.scores[policy].weighted for row in result.ranking}
    return weighted != {0} if result.decided_at else len(weighted) > 1


def _node(console: Console, asked: NodeVerdicts) -> None:
    if asked.scores is not None:
        place = f"place {asked.scores.place} with {asked.scores.total}"
        say(console, f"[bold]{escape(asked.node)}[/bold] is feasible: {place}")
        for policy, score in asked.scores.scores.items():
            say(
                console,
                f"  {policy}: raw {score.raw}, normalised {score.normalized}, "
                f"times {score.weight} is {score.weighted}",
            )
        return
    say(console, f"[bold]{escape(asked.node)}[/bold] is not feasible:")
    for policy, reasons in asked.rejections.items():
        say(console, f"  {policy}: {escape(', '.join(reasons))}")


def _preemption(console: Console, preemption: PreemptionAnswer) -> None:
    """Whom it would evict; of queues that give back also why not, and the rule."""
    what, rule = "[bold]Preemption[/bold]", ""
    if preemption.rule:
        what, rule = "[bold]Reclaim[/bold]", f" ({escape(preemption.rule)})"
    if preemption.victims:
        victims = escape(
            ", ".join(
                f"{one.pod} of queue `{one.queue}`" if one.queue else one.pod
                for one in preemption.victims
            )
        )
        where = f" on {escape(preemption.node)}" if preemption.node else ""
        if preemption.pods > 1:
            where += f" for its group of {preemption.pods:,} pods"
        when = f", in {preemption.in_seconds:,} s," if preemption.in_seconds else ""
        say(console, f"{what} would{when} evict {victims}{where}{rule}")
    for one in preemption.why_not if preemption.rule else ():
        say(console, f"  {escape(one.reason)}{'' if preemption.victims else rule}")


def _help(console: Console, result: PodAnswer) -> None:
    if result.preemption is not None:
        _preemption(console, result.preemption)
    if result.outcome in ("placed", "bound"):
        return
    if result.remedies:
        say(console, "[bold]What would help[/bold]")
    for remedy in result.remedies:
        nodes = f"{remedy.nodes} node(s) would fit" if remedy.nodes else "not enough by itself"
        say(console, f"  {escape(remedy.policy)}: {escape(remedy.text)} ({nodes})")
    waiting = [policy for policy in result.policies if policy.waits_for]
    if waiting:
        say(console, "[bold]What the queue waits for[/bold]")
    for policy in waiting:
        say(console, f"  {policy.policy}: {', '.join(policy.waits_for)}")
