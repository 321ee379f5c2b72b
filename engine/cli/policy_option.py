"""The options `--policies` and `--config` of commands that decide without a cluster."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from engine.cli.input_error import InputError
from engine.cli.policy_paths import build, load_problems, read_config
from engine.offline.policy_files import PolicyFiles, PolicyFilesError, read_bundle_files
from engine.policy.bundle import Bundle

Command = TypeVar("Command", bound=Callable[..., Any])

BUILTIN = "builtin"


def policy_options(function: Command) -> Command:
    """Add `--policies` and `--config` to a command."""
    function = click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="A KubeSchedulerConfiguration, for policies that hold none.",
    )(function)
    return click.option(
        "--policies",
        default=BUILTIN,
        show_default=True,
        metavar="DIR",
        help="The directory of the policies that decide, or `builtin` for the built-in ones alone.",
    )(function)


def read_bundle(policies: str, config: Path | None) -> tuple[Bundle, PolicyFiles]:
    """The bundle that the options name, with the files that it is of.

    Raises `InputError` for what cannot be read, and with every problem of policies that cannot
    decide.
    """
    files = PolicyFiles(Path(), {}, frozenset())
    if policies != BUILTIN:
        try:
            files = read_bundle_files(Path(policies))
        except PolicyFilesError as error:
            raise InputError(str(error)) from error
    elif config is not None and config.suffix in (".yaml", ".yml"):
        # As if it were beside the built-in policies: a PolicyRuntime in it counts too.
        text = read_config(config)
        files, config = PolicyFiles(config.parent, {config.name: text}, frozenset()), None
    return decidable(files, config), files


def decidable(files: PolicyFiles, config: Path | None) -> Bundle:
    """The bundle of *files*; its warnings are told on standard error.

    Raises `InputError` with every problem of policies that cannot decide.
    """
    bundle, problems = build(files, config)
    errors = [problem for problem in problems if problem.severity == "error"]
    if bundle is not None:
        errors += load_problems(bundle, files)
    if bundle is None or errors:
        raise InputError("\n".join(str(problem) for problem in errors))
    for warning in problems:
        click.echo(str(replace(warning, message=f"warning: {warning.message}")), err=True)
    return bundle


def known_profile(bundle: Bundle, name: str | None) -> None:
    """Raise `click.BadParameter` if *name* is said and no profile of *bundle* has it."""
    profiles = [profile.scheduler_name for profile in bundle.profiles]
    if name and name not in profiles:
        known = ", ".join(f"`{one}`" for one in profiles)
        raise click.BadParameter(f"want one of {known}, got `{name}`", param_hint="--profile")
