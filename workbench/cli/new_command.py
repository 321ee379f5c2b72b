"""`starsched new`: a policy to start from, with its test."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from engine.policy.documents import did_you_mean
from engine.policy.profiles import RUNTIME_PLUGINS
from engine.policy.shipped import KUBERNETES, recipes, shipped_files, snake_case
from engine.surfaces.cli.console import make_console
from engine.surfaces.cli.input_error import input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import write_file
from workbench.cli.table import print_table
from workbench.scaffold import EITHER, HOOKS, new_policy

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LONGEST = 63
_DEFAULT_HOOKS = "filter,score"


@click.command("new", short_help="Write a new policy and its test.")
@click.argument("name", required=False, default="")
@click.option(
    "--hooks",
    default="",
    show_default=_DEFAULT_HOOKS,
    metavar="HOOK,...",
    help=f"Hooks to start with: some of {', '.join(HOOKS)}.",
)
@click.option(
    "--from",
    "recipe",
    default="",
    metavar="RECIPE",
    help="Start from this policy of the cookbook; NAME is its name unless given.",
)
@click.option("--list", "is_list", is_flag=True, help="List the policies of the cookbook.")
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Write the files there instead of here.",
)
@output_option("How to print what was written, or the list.")
def new_command(
    name: str, hooks: str, recipe: str, is_list: bool, directory: Path, output: str
) -> None:
    """Write the policy NAME.star and its test NAME_test.star, which pass check and test.

    NAME is in snake_case; it is what a profile calls the policy. Existing files are left alone.
    The cookbook has policies that many ask for, with their tests: `--list` lists them, `--from`
    writes one.

    Exit codes: 0 written or listed, 2 wrong usage, or a file exists.

    \b
    Examples:
      starsched new avoid_old_kernels
      starsched new cheaper_first --hooks score,normalize --to policies/
      starsched new --list
      starsched new --from team_quota --to policies/
      starsched new keep_apart --output json | jq -r '.written[]'
    """
    if is_list:
        if name or hooks or recipe:
            raise click.UsageError("--list: want nothing else, it writes no policy")
        _list_recipes(output)
        return
    if recipe and hooks:
        raise click.UsageError("--from: want no --hooks, a recipe has its own")
    if not name and not recipe:
        raise click.UsageError("want a NAME, or --from with a policy of the cookbook")
    found = _recipe(recipe) if recipe else ""
    stem = _checked_name(name or found)
    texts = _texts_from(found, stem) if found else new_policy(stem, _wanted_hooks(hooks))
    _write(dict(zip((f"{stem}.star", f"{stem}_test.star"), texts, strict=True)), directory, output)


def _list_recipes(output: str) -> None:
    rows = {name: recipe.does for name, recipe in recipes().items()}
    if output == "json":
        print_json({"recipes": [{"name": name, "does": does} for name, does in rows.items()]})
        return
    print_table(make_console(), ["recipe", "what it does"], rows.items())


def _recipe(given: str) -> str:
    """The name of the recipe *given*, which may be written with hyphens."""
    name = given.removesuffix(".star").replace("-", "_")
    if name not in recipes():
        hint = did_you_mean(name, recipes()) or f"want one of {', '.join(recipes())}"
        raise click.UsageError(f"--from: the cookbook has no `{given}`\nhint: {hint}")
    return name


def _texts_from(recipe: str, stem: str) -> tuple[str, str]:
    """Policy and test of *recipe*, by the name *stem*."""
    found = recipes()[recipe]
    text, test = (
        text.replace(f"{recipe}.star", f"{stem}.star") for text in (found.text, found.test)
    )
    return text, test


def _checked_name(name: str) -> str:
    """*name* without its suffix; one that no policy can have is a wrong usage."""
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
    return stem


def _wanted_hooks(hooks: str) -> list[str]:
    wanted = [hook.strip() for hook in (hooks or _DEFAULT_HOOKS).split(",") if hook.strip()]
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
    return wanted


def _write(texts: Mapping[str, str], directory: Path, output: str) -> None:
    """Write the policy and its test, the first and the second of *texts*, and say so."""
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
    path = shlex.quote(written[0])
    click.echo(
        f"next:  starsched check {path}    # what is wrong\n"
        f"       starsched test {path}     # its tests\n"
        "then put both files into the ConfigMap or directory that the scheduler reads"
    )
