"""`starsched check`: everything that is wrong with policies and their configuration, at once."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.cli.input_error import input_errors
from engine.cli.json_output import print_json
from engine.cli.output_file import write_file
from engine.cli.policy_paths import build, command_paths, is_among, load_problems, read_paths
from engine.language.syntax import parse, with_loaded
from engine.offline.policy_files import PolicyFiles
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.lint.cost import HookCost, hook_cost
from engine.policy.lint.fixes import without_unused_loads
from engine.policy.lint.linter import lint_files
from engine.policy.reuse import HookReuse, hook_reuse, reuse_problems

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")


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
@click.option("--cost", is_flag=True, help="Print what each call of a hook loops over.")
@click.option("--strict", is_flag=True, help="Warnings are problems too: they give exit code 1.")
@click.option("--fix", is_flag=True, help="First take out loads that nothing uses.")
def check_command(
    paths: tuple[Path, ...],
    config: Path | None,
    output: str,
    reads: bool,
    cost: bool,
    strict: bool,
    fix: bool,
) -> None:
    """Check policy files and their configuration; no hook is run.

    PATHS are policy files or directories; a directory is one set of files, like one ConfigMap,
    and so is each directory inside it. Looks at syntax, hooks and their parameters, field names,
    argument types, what is loaded, and the profiles, then for what is probably a mistake. All
    problems are printed, one a line, as `file:line:column: message`; warnings are no errors. A
    comment `# lint: ignore=NAME` silences the lint NAME on its line.

    \b
    Exit codes: 0 nothing is wrong, 1 there are problems, 2 the command cannot run.

    \b
    Examples:
      starsched check policies/
      starsched check my_policy.star --config profile.yaml
      starsched check policies/ --output json
      starsched check my_policy.star --reads
      starsched check policies/ --strict --cost
    """
    problems: list[Problem] = []
    lints: dict[Problem, str] = {}
    costs: list[HookCost] = []
    hooks: list[HookReuse] = []
    policies = documents = 0
    for files in _fixed(read_paths(paths)) if fix else read_paths(paths):
        bundle, found = build(files, config)
        if bundle is not None:
            found += load_problems(bundle, files)
            if reads:
                read = _reads(bundle, files)
                hooks += read
                modules = {name: policy.module for name, policy in bundle.policies.items()}
                for warning in reuse_problems(read, modules, bundle.files):
                    found.append(replace(warning, file=files.shown(warning.file)))
            if cost:
                costs += _costs(bundle, files)
        broken = {problem.file for problem in found if problem.severity == "error"}
        for finding in lint_files(files.texts):
            problem = replace(finding.problem, file=files.shown(finding.problem.file))
            if problem.file not in broken:
                lints[problem] = finding.lint
                found.append(problem)
        found += _no_keys(files)
        # Files beside the ones asked about are there to be loaded; they are not what is checked.
        beside = {files.shown(name) for name in files.texts if name not in files.selected}
        if config is not None and is_among(config, files):
            beside.discard(files.shown(config.name))
        # A policy cannot run while a file that it loads is broken, so those errors are shown, too.
        loaded = set(map(files.shown, _loaded(files)))
        told = [
            problem
            for problem in found
            if problem.file not in beside
            or (problem.severity == "error" and problem.file in loaded)
        ]
        if bundle is None and not any(name.endswith(".star") for name in files.selected):
            told = found  # a profile of policies that cannot run is not sound either
        problems += told
        if bundle is None and (reads or cost) and not told:
            others = sorted({one.file for one in found})
            click.echo(f"what hooks read is not known: {', '.join(others)} cannot run", err=True)
        policies += sum(name.endswith(".star") for name in files.selected)
        documents += sum(not name.endswith(".star") for name in files.selected)
    problems = list(dict.fromkeys(problems))
    errors = sum(strict or problem.severity == "error" for problem in problems)
    if output == "json":
        answer: dict[str, Any] = {
            "problems": [_plain(problem, lints.get(problem)) for problem in problems],
            "files": policies,
        }
        if reads:
            answer["hooks"] = [msgspec.to_builtins(hook) for hook in hooks]
        if cost:
            answer["costs"] = [msgspec.to_builtins(hook) for hook in costs]
        print_json(answer)
    else:
        if reads:
            _print_reads(hooks)
        if cost:
            _print_costs(costs)
        for problem in problems:
            click.echo(_line(problem, lints.get(problem)))
        what = f"{errors} problem(s)" if errors else "no problems"
        if count := len(problems) - errors:
            what += f", {count} warning(s)"
        kind = "policy file(s)" if policies or not documents else "configuration file(s)"
        click.echo(f"{policies or documents} {kind} checked: {what}")
    raise SystemExit(1 if errors else 0)


def _loaded(files: PolicyFiles) -> list[str]:
    """The files that those asked about load, directly or not."""
    # A file that cannot be parsed might load any other; its own error is what there is to report.
    policies = [name for name in files.selected if name.endswith(".star")]
    parsed = [name for name in policies if parse(files.texts[name]) is not None]
    return with_loaded(files.texts, parsed)


def _no_keys(files: PolicyFiles) -> Iterator[Problem]:
    """The files that only a directory can hold, as a ConfigMap does not take their names."""
    for name in sorted(files.texts):
        if not _KEY.fullmatch(name):
            message = "no ConfigMap takes this name for a key"
            hint = "want at most 253 letters of a to z, digits, `-`, `_` and `.`"
            yield Problem(files.shown(name), 0, 0, message, hint, "warning")


def _reads(bundle: Bundle, files: PolicyFiles) -> list[HookReuse]:
    """What the hooks of the files asked about read, in the order of their policies."""
    return [
        hook_reuse(policy.name, hook, policy.hooks[hook])
        for policy in bundle.policies.values()
        if policy.module in files.selected
        for hook in policy.hooks
    ]


def _print_reads(hooks: list[HookReuse]) -> None:
    if not hooks:
        return
    table = Table("policy", "hook")
    for column in ("reads of the pod", "of the node, and beside it", "answers are reused"):
        table.add_column(column, overflow="fold")  # names of fields are what is asked for
    before = ""
    for hook in hooks:
        if hook.policy != before and before:
            table.add_section()
        policy, before = ("" if hook.policy == before else hook.policy), hook.policy
        others = [
            *hook.node,
            *(["counts"] if hook.counts else []),
            *(f"cluster.{path}" for path in hook.cluster),
            *(f"group.{path}" for path in hook.group),
        ]
        cells = policy, hook.hook, ", ".join(hook.pod) or "-", ", ".join(others) or "-", hook.reuse
        table.add_row(*map(escape, cells))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _print_costs(costs: list[HookCost]) -> None:
    for one in costs:
        click.echo(f"{one.policy}.{one.hook}, {one.called}: {one}")


def _costs(bundle: Bundle, files: PolicyFiles) -> list[HookCost]:
    """What the hooks of the files asked about loop over, in the order of their policies."""
    return [
        hook_cost(policy.name, bundle.files, policy.module, hook)
        for policy in bundle.policies.values()
        if policy.module in files.selected
        for hook in policy.hooks
    ]


def _fixed(sets: list[PolicyFiles]) -> list[PolicyFiles]:
    """The sets of files with safe corrections made, on disk too; only what was asked about."""
    corrected = []
    for files in sets:
        texts = dict(files.texts)
        for file in sorted(files.selected):
            found = [f for f in lint_files(files.texts) if f.problem.file == file]
            text = without_unused_loads(texts[file], found)
            if text != texts[file]:
                path = files.directory / file
                is_dos = b"\r\n" in path.read_bytes()
                with input_errors():
                    write_file(path, text.replace("\n", "\r\n") if is_dos else text)
                click.echo(f"corrected {path}", err=True)
                texts[file] = text
        corrected.append(replace(files, texts=texts))
    return corrected


def _line(problem: Problem, lint: str | None) -> str:
    kind = "" if problem.severity == "error" else f"{problem.severity}: "
    name = f" [{lint}]" if lint else ""
    return str(replace(problem, message=f"{kind}{problem.message}{name}"))


def _plain(problem: Problem, lint: str | None) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(problem)
    return plain | ({"lint": lint} if lint else {})
