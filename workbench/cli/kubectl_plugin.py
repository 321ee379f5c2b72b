"""`kubectl starsched`: why pods wait, asked of the scheduler that leads; and `starsched plan`.

Owns the commands and how their answers are printed; kubectl finds it by its name on the path. The
flags are kubectl's.
"""

import copy
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
import yaml

from engine.lib.printable import printable, printable_lines
from engine.surfaces.live.answers import PodAnswer, PoliciesPage, QueuePage
from workbench.cli.context_namespace import context_namespace
from workbench.cli.explain_exit import exit_code
from workbench.cli.explain_text import print_answer
from workbench.cli.leader_access import answer_of, leader_options
from workbench.cli.rollout_command import rollout_command
from workbench.cli.shares_command import shares_command
from workbench.cli.standard_output import GuardedGroup
from workbench.cli.ui_command import ui_command
from workbench.cli.what_if_command import what_if_command

Command = TypeVar("Command", bound=Callable[..., Any])

_FAILED: Final = 1
_TOP: Final = 10
_LONGEST: Final = 100


def _common(function: Command) -> Command:
    """Add what every command takes."""
    function = leader_options(function)
    function = click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json", "yaml"]),
        default="text",
        show_default=True,
        help="How to print it.",
    )(function)
    function = click.option("--context", help="Context of the kubeconfig.")(function)
    return click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Default: $KUBECONFIG or ~/.kube/config.",
    )(function)


def _namespaced(function: Command) -> Command:
    return click.option("-n", "--namespace", help="Default: that of the context, else `default`.")(
        function
    )


@click.group(
    name="kubectl-starsched",
    cls=GuardedGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def main() -> None:
    """Say why pods wait, as the scheduler knows it.

    \b
    Examples:
      kubectl starsched ui                             the page, in a browser
      kubectl starsched explain web-7d9c -n shop
      kubectl starsched queue -A --service-account starsched/page
      kubectl starsched queue -A --server https://10.0.0.5:10259 --certificate-authority ca.crt
    """


@main.command()
@click.argument("pod")
@_namespaced
@_common
def explain(pod: str, namespace: str | None, **options: Any) -> None:
    """Say why POD (`NAME`, `pod/NAME` or `NAMESPACE/NAME`) is where it is, or nowhere.

    Exit codes are those of `starsched explain`: 0 placed, 3 unschedulable, 1 a failure.
    """
    said, slash, name = pod.rpartition("/")
    if slash and said not in ("pod", "pods", "po"):
        namespace = said
    where = namespace or context_namespace(options["kubeconfig"], options["context"])
    answer = answer_of(options, f"/explain/{where}/{name}", {}, PodAnswer)
    _print(options, answer, lambda: print_answer(answer, _TOP))
    raise SystemExit(exit_code(answer))


@main.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@click.option("--reason", default="", help="Those with this reason token.")
@click.option("--policy", default="", help="Those that this policy rejects or gates.")
@click.option("--place", default="", help="Those in this place, such as `unschedulable`.")
@click.option("--limit", default=100, show_default=True, help="Rows of equal pods.")
@_namespaced
@_common
def queue(
    all_namespaces: bool,
    reason: str,
    policy: str,
    place: str,
    limit: int,
    namespace: str | None,
    **options: Any,
) -> None:
    """List the pods that wait; equal pods are one row."""
    if all_namespaces:
        namespace = ""
    elif namespace is None:
        namespace = context_namespace(options["kubeconfig"], options["context"])
    asked = {
        "namespace": namespace,
        "reason": reason,
        "policy": policy,
        "place": place,
        "limit": str(limit),
    }
    query = {name: value for name, value in asked.items() if value}
    page = answer_of(options, "/queue", query, QueuePage)
    _print(options, page, lambda: _print_queue(page))


@main.command()
@_common
def policies(**options: Any) -> None:
    """List what became of the latest revisions of the policies."""
    page = answer_of(options, "/policies", {}, PoliciesPage)
    _print(options, page, lambda: _print_policies(page))


@main.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def plan(arguments: tuple[str, ...]) -> None:
    """Show what an edit of the policies would change: `starsched plan`."""
    _become("plan", arguments)


@main.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def apply(arguments: tuple[str, ...]) -> None:
    """Apply planned policies, unless something has moved: `starsched apply`."""
    _become("apply", arguments)


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def report(arguments: tuple[str, ...]) -> None:
    """Report on an edit, with a simulation: `starsched rollout report`."""
    _become("rollout", ("report", *arguments))


_rollout = copy.copy(rollout_command)
_rollout.commands = {**rollout_command.commands, "report": report}
main.add_command(_rollout)
main.add_command(shares_command)
main.add_command(what_if_command)
main.add_command(ui_command)


def _become(command: str, arguments: Sequence[str]) -> None:
    """Replace this process by another command of ours, which may fork before it has threads."""
    sys.stdout.flush()
    # -P: a folder `engine` where the user happens to be is not ours.
    module = ["-P", "-m", "workbench.cli.main"]
    os.execv(sys.executable, [sys.executable, *module, command, *arguments])


def _print(options: dict[str, Any], answer: msgspec.Struct, as_text: Callable[[], None]) -> None:
    match options["output"]:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
        case "yaml":
            plain = msgspec.to_builtins(answer)
            yaml.dump(plain, sys.stdout, _Dumper, sort_keys=False, allow_unicode=True)
        case _:
            as_text()


def _print_queue(page: QueuePage) -> None:
    rows = [
        (
            row.namespace,
            row.example.partition("/")[2],
            str(row.pods),
            row.place if row.position is None else f"{row.place} {row.position}",
            _duration(row.waited_seconds),
            str(row.attempts),
            row.reason,
            _cut(row.message),
        )
        for row in page.rows
    ]
    names = ("NAMESPACE", "POD", "PODS", "PLACE", "WAITED", "ATTEMPTS", "REASON", "MESSAGE")
    _table(names, rows)
    if page.next is not None:
        click.echo(f"{len(page.rows)} of {page.total_rows} rows", err=True)


def _print_policies(page: PoliciesPage) -> None:
    rows = [
        (
            one.revision or "-",
            one.result,
            one.at,
            one.written_by or "-",
            ", ".join(stage.stage for stage in one.stages),
            _cut(one.note),
        )
        for one in page.revisions
    ]
    _table(("REVISION", "RESULT", "AT", "WRITTEN BY", "STAGES", "NOTE"), rows)


class _Dumper(yaml.SafeDumper):
    """Quotes what has control characters, so that they can be written out."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if printable_lines(text) == text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _quoted)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as kubectl prints them."""
    if not rows:
        click.echo("No resources found", err=True)
        return
    widths = [max(len(row[at]) for row in (names, *rows)) for at in range(len(names))]
    for row in (names, *rows):
        line = "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def _cut(text: str) -> str:
    """One line of *text*."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _duration(seconds: float) -> str:
    """`45s`, `3m20s`, `5h7m`, `12d`."""
    whole = int(seconds)
    for size, unit, smaller, name in ((3600, "h", 60, "m"), (60, "m", 1, "s")):
        if size <= whole < 86_400:
            return f"{whole // size}{unit}{whole % size // smaller}{name}"
    return f"{whole // 86_400}d" if whole >= 86_400 else f"{whole}s"
