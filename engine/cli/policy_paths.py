"""What the commands about policy files share: their arguments, and building a bundle from paths."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from engine.offline.policy_files import PolicyFiles, PolicyFilesError, read_policy_files
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.errors import PolicyErrors, Problem

Command = TypeVar("Command", bound=Callable[..., Any])

# The name under which `--config` stands among the files of a bundle.
_CONFIG = "--config"


def command_paths(function: Command) -> Command:
    """Add the PATHS argument and the `--config` option to a command."""
    function = click.argument(
        "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATHS..."
    )(function)
    return click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="A KubeSchedulerConfiguration to use instead of the one among the files.",
    )(function)


def read_paths(paths: tuple[Path, ...]) -> list[PolicyFiles]:
    """The sets of files of *paths*. A path that cannot be read ends the command with code 2."""
    try:
        return read_policy_files(paths)
    except PolicyFilesError as error:
        raise click.UsageError(str(error)) from error


def build(files: PolicyFiles, config: Path | None) -> tuple[Bundle | None, list[Problem]]:
    """The bundle of *files*, or the problems that there is none; paths as the caller wrote them."""
    texts = dict(files.texts)
    if config is not None:
        texts = {name: text for name, text in texts.items() if name.endswith(".star")}
        texts["config.yaml"] = config.read_text(encoding="utf-8")
    try:
        return build_bundle(texts, None), []
    except PolicyErrors as error:
        return None, [
            replace(
                problem,
                file=str(config)
                if config is not None and problem.file == "config.yaml"
                else files.shown(problem.file),
            )
            for problem in error.problems
        ]
