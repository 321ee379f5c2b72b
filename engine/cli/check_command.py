"""`starsched check`: everything that is wrong with policies and their configuration, at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.cli.policy_paths import build, command_paths, load_problems, read_paths
from engine.offline.policy_files import PolicyFiles
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.reuse import HookReuse, hook_reuse, reuse_problems


@click.command("check", short_help="Find everything that is wrong with policy files.")
@command_paths
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print the problems.",
)
@click.option(
    "--reads",
    is_flag=True,
    help="Print what each hook reads and what that makes reusable; warn of what defeats reuse.",
)
def check_command(paths: tuple[Path, ...], config: Path | None, output: str, reads: bool) -> None:
    """Check policy files and their configuration; no hook is run.

    PATHS are policy files or directories; a directory is one set of files, like one ConfigMap,
    and so is each directory inside it. Looks at syntax, hooks and their parameters, field names,
    argument types, what is loaded, and the profiles. All problems are printed, one a line, as
    `file:line:column: message`; warnings are no errors.

    \b
    Exit codes: 0 nothing is wrong, 1 there are problems, 2 the command cannot run.

    \b
    Examples:
      starsched check policies/
      starsched check my_policy.star --config profile.yaml
      starsched check policies/ --output json
      starsched check my_policy.star --reads
    """
    problems: list[Problem] = []
    hooks: list[HookReuse] = []
    policies = 0
    for files in read_paths(paths):
        bundle, found = build(files, config)
        if bundle is not None:
            found += load_problems(bundle, files)
            if reads:
                read = _reads(bundle, files)
                hooks += read
                modules = {name: policy.module for name, policy in bundle.policies.items()}
                for warning in reuse_problems(read, modules, bundle.files):
                    found.append(replace(warning, file=files.shown(warning.file)))
        # Files beside the ones asked about are there to be loaded; they are not what is checked.
        beside = {files.shown(name) for name in files.texts if name not in files.selected}
        problems += [problem for problem in found if problem.file not in beside]
        policies += sum(name.endswith(".star") for name in files.selected)
    errors = sum(problem.severity == "error" for problem in problems)
    if output == "json":
        answer: dict[str, Any] = {
            "problems": [_plain(problem) for problem in problems],
            "files": policies,
        }
        if reads:
            answer["hooks"] = [msgspec.to_builtins(hook) for hook in hooks]
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        if reads:
            _print_reads(hooks)
        for problem in problems:
            click.echo(_line(problem))
        what = f"{errors} problem(s)" if errors else "no problems"
        if count := len(problems) - errors:
            what += f", {count} warning(s)"
        click.echo(f"{policies} policy file(s) checked: {what}")
    raise SystemExit(1 if errors else 0)


def _reads(bundle: Bundle, files: PolicyFiles) -> list[HookReuse]:
    """What the hooks of the files asked about read, in the order of their policies."""
    return [
        hook_reuse(policy.name, hook, policy.hooks[hook])
        for policy in bundle.policies.values()
        if policy.module in files.selected
        for hook in policy.hooks
    ]


def _print_reads(hooks: list[HookReuse]) -> None:
    table = Table("policy", "hook", "reads of the pod", "of the node", "answers are reused")
    before = ""
    for hook in hooks:
        if hook.policy != before and before:
            table.add_section()
        policy, before = ("" if hook.policy == before else hook.policy), hook.policy
        node = [*hook.node, *(["counts"] if hook.counts else []), *hook.cluster]
        cells = policy, hook.hook, ", ".join(hook.pod) or "-", ", ".join(node) or "-", hook.reuse
        table.add_row(*map(escape, cells))
    Console().print(table)


def _line(problem: Problem) -> str:
    if problem.severity == "error":
        return str(problem)
    return str(replace(problem, message=f"{problem.severity}: {problem.message}"))


def _plain(problem: Problem) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(problem)
    return plain
