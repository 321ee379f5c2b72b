"""`starsched new`: a policy to start from, with its test."""

import re
import shlex
from pathlib import Path

import click

from engine.cli.input_error import input_errors
from engine.cli.json_output import output_option, print_json
from engine.cli.output_file import write_file
from engine.offline.scaffold import EITHER, HOOKS, new_policy
from engine.policy.documents import did_you_mean
from engine.policy.profiles import RUNTIME_PLUGINS
from engine.policy.shipped import KUBERNETES, shipped_files, snake_case

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LONGEST = 63


@click.command("new", short_help="Write a new policy and its test.")
@click.argument("name")
@click.option(
    "--hooks",
    default="filter,score",
    show_default=True,
    metavar="HOOK,...",
    help=f"Hooks to start with: some of {', '.join(HOOKS)}.",
)
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Write the files there instead of here.",
)
@output_option("How to print what was written.")
def new_command(name: str, hooks: str, directory: Path, output: str) -> None:
    """Write the policy NAME.star and its test NAME_test.star, which pass check and test.

    NAME is in snake_case; it is what a profile calls the policy. Existing files are left alone.

    \b
    Exit codes: 0 written, 2 wrong usage, or a file exists.

    \b
    Examples:
      starsched new avoid_old_kernels
      starsched new cheaper_first --hooks score,normalize --to policies/
      starsched new keep_apart --output json | jq -r '.written[]'
    """
    stem = name.removesuffix(".star")
    if not _NAME.fullmatch(stem) or len(stem) > _LONGEST:
        message = f"name `{name}`: want at most {_LONGEST} small letters, digits and `_` between"
        raise click.UsageError(f"{message}, a letter first, such as `avoid_old_kernels`")
    if stem.endswith("_test"):
        raise click.UsageError(f"name `{name}`: names that end in `_test` are reserved for tests")
    if f"{KUBERNETES}{stem}.star" in shipped_files():
        message = f"name `{name}`: a file of this name replaces the built-in policy"
        raise click.UsageError(f"{message}\nhint: start from it with `starsched eject {stem}`")
    parts = {snake_case(plugin): plugin for plugin in RUNTIME_PLUGINS}
    if stem in parts:
        message = f"name `{name}`: a file of this name goes by `{parts[stem]}` in profiles"
        raise click.UsageError(f"{message}, a part of the runtime\nhint: take another name")
    wanted = [hook.strip() for hook in hooks.split(",") if hook.strip()]
    for hook in wanted:
        if hook not in HOOKS:
            hint = did_you_mean(hook, HOOKS) or "docs/policies.md has all hooks"
            message = f"no text for a hook `{hook}`, want some of {', '.join(HOOKS)}"
            raise click.UsageError(f"{message}\nhint: {hint}")
    alone, others = EITHER
    if alone in wanted and (found := [hook for hook in wanted if hook in others]):
        said = ", ".join(f"`{hook}`" for hook in found)
        raise click.UsageError(f"--hooks: `{alone}` stands for {said}: want one or the other")
    if not wanted:
        raise click.UsageError("--hooks: want at least one hook")
    texts = dict(zip((f"{stem}.star", f"{stem}_test.star"), new_policy(stem, wanted), strict=True))
    for file in texts:
        if (directory / file).exists():
            raise click.UsageError(f"{directory / file}: already exists")
    with input_errors():
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            write_file(directory / file, text)
    written = [str(directory / file) for file in texts]
    if output == "json":
        print_json({"written": written})
        return
    for path in written:
        click.echo(f"wrote {path}")
    path = shlex.quote(f"{directory / stem}.star")
    click.echo(
        f"next:  starsched check {path}    # what is wrong\n"
        f"       starsched test {path}     # its tests\n"
        "then put both files into the ConfigMap or directory that the scheduler reads"
    )
