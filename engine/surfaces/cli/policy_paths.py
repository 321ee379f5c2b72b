"""What the commands about policy files share: their arguments, and building a bundle from paths."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from engine.files.policy_files import PolicyFiles, PolicyFilesError, read_policy_files
from engine.files.text_places import TextError, read_text
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.config import decode_configuration, decode_documents
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.evaluator import InProcessEvaluator, Limits
from engine.policy.file_names import STARLARK_SUFFIX, is_document
from engine.policy.sandbox.process import SandboxEvaluator
from engine.surfaces.cli.input_error import InputError

Command = TypeVar("Command", bound=Callable[..., Any])

#: What a name of policies begins with that live in a cluster's ConfigMap.
CONFIGMAP_PREFIX: Final = "configmap:"


def command_paths(function: Command) -> Command:
    """Add the PATHS argument and the `--config` option to a command."""
    function = click.argument(
        "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATHS..."
    )(function)
    return config_option("A KubeSchedulerConfiguration, for files without one.")(function)


def config_option(
    text: str = "A KubeSchedulerConfiguration, for policies without one.",
) -> Callable[[Command], Command]:
    """Add `--config`, a file, to a command; *text* is its help."""
    return click.option(
        "--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help=text
    )


def read_paths(paths: tuple[Path, ...]) -> list[PolicyFiles]:
    """The sets of files of *paths*. A path that cannot be read ends the command with code 2."""
    if Path("-") in paths and not Path("-").exists():
        # A text alone has no name, so neither tests nor a place in a profile.
        raise InputError(
            "-: want files, not standard input: a policy is identified by its file name"
        )
    try:
        return read_policy_files(paths)
    except PolicyFilesError as error:
        raise InputError(str(error)) from error


def build(files: PolicyFiles, config: Path | None) -> tuple[Bundle | None, list[Problem]]:
    """The bundle of *files* and its problems, with paths as the caller wrote them.

    If the bundle is None, at least one of the problems is an error; else they are warnings.
    """
    try:
        given = None
        if config is not None and not is_among(config, files):
            given = decode_configuration(read_config(config), str(config))
        bundle = build_bundle(files.texts, given)
    except PolicyErrors as error:
        return None, [_shown(problem, files) for problem in error.problems]
    return bundle, [_shown(problem, files) for problem in bundle.warnings]


def is_among(config: Path, files: PolicyFiles) -> bool:
    """True if the file of `--config` is one of *files*: then it is the one that counts anyway."""
    name, inside = config.name, files.directory / config.name
    if name not in files.texts or inside.resolve() != config.resolve():
        return False
    if not is_document(name):
        return False  # no profile is looked for in it
    found = decode_documents({name: files.texts[name]})
    return found.configuration is not None or bool(found.problems)


def read_config(config: Path) -> str:
    """The text of the file of `--config`. Raises `InputError`."""
    try:
        return read_text(config)
    except TextError as error:
        raise InputError(str(error)) from error


def load_problems(bundle: Bundle, files: PolicyFiles) -> list[Problem]:
    """The problems of running the top level of the policies with their arguments.

    All files but the shipped ones are loaded in a sandbox, which ends work that the interpreter
    does not count: the text of a list that doubles forty times takes hours and all memory.
    """
    program, policies = bundle.program, bundle.policies
    if program.limits == Limits():  # within these, what ships loads with its own arguments
        program = replace(
            program,
            instances=tuple(
                one for one in program.instances if one.args or not policies[one.policy].is_builtin
            ),
        )
    is_shipped = not any(name.endswith(STARLARK_SUFFIX) for name in files.texts)
    try:
        (InProcessEvaluator if is_shipped else SandboxEvaluator)(program).close()
    except PolicyErrors as error:
        return [_shown(problem, files) for problem in error.problems]
    return []


def _shown(problem: Problem, files: PolicyFiles) -> Problem:
    return replace(problem, file=files.shown(problem.file))
