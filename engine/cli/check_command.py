"""`starsched check`: everything that is wrong with policies and their configuration, at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.cli.policy_paths import build, command_paths, load_problems, read_paths
from engine.policy.errors import Problem


@click.command("check", short_help="Find everything that is wrong with policy files.")
@command_paths
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print the problems.",
)
def check_command(paths: tuple[Path, ...], config: Path | None, output: str) -> None:
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
    """
    problems: list[Problem] = []
    policies = 0
    for files in read_paths(paths):
        bundle, found = build(files, config)
        if bundle is not None:
            found += load_problems(bundle, files)
        # Files beside the ones asked about are there to be loaded; they are not what is checked.
        beside = {files.shown(name) for name in files.texts if name not in files.selected}
        problems += [problem for problem in found if problem.file not in beside]
        policies += sum(name.endswith(".star") for name in files.selected)
    errors = sum(problem.severity == "error" for problem in problems)
    if output == "json":
        answer = {"problems": [_plain(problem) for problem in problems], "files": policies}
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        for problem in problems:
            click.echo(_line(problem))
        what = f"{errors} problem(s)" if errors else "no problems"
        if warnings := len(problems) - errors:
            what += f", {warnings} warning(s)"
        click.echo(f"{policies} policy file(s) checked: {what}")
    raise SystemExit(1 if errors else 0)


def _line(problem: Problem) -> str:
    if problem.severity == "error":
        return str(problem)
    return str(replace(problem, message=f"{problem.severity}: {problem.message}"))


def _plain(problem: Problem) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(problem)
    return plain
