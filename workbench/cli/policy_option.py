"""The options `--policies` and `--config` of commands that decide without a cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from engine.files.cluster_file import ClusterFileError, read_documents
from engine.files.policy_files import PolicyFiles, PolicyFilesError, read_bundle_files
from engine.policy.bundle import Bundle
from engine.policy.file_names import STARLARK_SUFFIX, SUFFIXES
from engine.policy.source import no_text
from engine.surfaces.cli import terminal
from engine.surfaces.cli.input_error import InputError
from engine.surfaces.cli.policy_paths import (
    CONFIGMAP_PREFIX,
    Command,
    build,
    config_option,
    load_problems,
    read_config,
)
from workbench.cli.input_path import standard_input

BUILTIN = "builtin"
_LIVE = "\nhint: what `kubectl get configmap NAME -o yaml` prints will do, as a file"


def policy_options(function: Command) -> Command:
    """Add `--policies` and `--config` to a command."""
    function = config_option()(function)
    return click.option(
        "--policies",
        default=BUILTIN,
        show_default=True,
        metavar="DIR|FILE",
        help="The policies that decide: a directory, a file with a ConfigMap, or `builtin` for the "
        "built-in ones alone.",
    )(function)


def read_bundle(policies: str, config: Path | None) -> tuple[Bundle, PolicyFiles]:
    """The policies of a directory, of a file with a ConfigMap, or `builtin`, with their files.

    Raises `InputError` for what cannot be read, and with every problem of policies that cannot
    decide.
    """
    if policies == BUILTIN and config is not None and config.suffix in (".yaml", ".yml"):
        # As if it were in the directory of the built-in policies: its PolicyRuntime counts too.
        text = read_config(config)
        files, config = PolicyFiles(config.parent, {config.name: text}, frozenset()), None
    else:
        files = read_texts(policies)
    return decidable(files, config), files


def read_texts(policies: str) -> PolicyFiles:
    """The files of a directory, of a file with a ConfigMap, or none for `builtin`.

    Raises `InputError` for what cannot be read.
    """
    if policies == BUILTIN:
        return PolicyFiles(Path(), {}, frozenset())
    path = standard_input() if policies == "-" else Path(policies)
    if path.exists() and not path.is_dir():
        return _of_config_map(path)
    try:
        return read_bundle_files(path)
    except PolicyFilesError as error:
        is_live = policies.startswith(CONFIGMAP_PREFIX)
        raise InputError(f"{error}{_LIVE if is_live else ''}") from error


def _of_config_map(path: Path) -> PolicyFiles:
    """The files that are the keys of the ConfigMap in the file *path*. Raises `InputError`."""
    if path.suffix == STARLARK_SUFFIX:
        wanted = f"want a directory, a file with a ConfigMap, or `{BUILTIN}`"
        hint = f"`{path.parent}` is its directory"
        raise InputError(f"{path}: {wanted}, got one policy\nhint: {hint}")
    try:
        maps = [one for one in read_documents(path) if one.get("kind") == "ConfigMap"]
    except ClusterFileError as error:
        raise InputError(str(error)) from error
    if len(maps) != 1:
        raise InputError(f"{path}: want one ConfigMap, found {len(maps)}")
    texts = _texts(path, maps[0])
    return PolicyFiles(path, texts, frozenset(texts))


def _texts(path: Path, config_map: dict[str, Any]) -> dict[str, str]:
    """The data of a ConfigMap: texts by key. Rejects what a scheduler rejects."""
    parts = {part: config_map.get(part) or {} for part in ("data", "binaryData")}
    for part, values in parts.items():
        if not isinstance(values, dict):
            raise InputError(f"{path}: {part}: want texts by key, got {type(values).__name__}")
    for key, text in parts["data"].items():
        if not isinstance(text, str):
            raise InputError(f"{path}: data: `{key}`: want a text, got {text!r}")
    for key, raw in parts["binaryData"].items():
        if str(key).endswith(SUFFIXES):
            raise InputError(f"{path}: `{key}`: {no_text(str(raw))}")
    return {str(key): text for key, text in parts["data"].items()}


def decidable(files: PolicyFiles, config: Path | None) -> Bundle:
    """The bundle of *files*; its warnings are printed on standard error.

    Raises `InputError` with every problem of policies that cannot decide.
    """
    bundle, problems = build(files, config)
    errors = [problem for problem in problems if problem.severity == "error"]
    if bundle is not None:
        errors += load_problems(bundle, files)
    if bundle is None or errors:
        raise InputError("\n".join(str(problem) for problem in errors))
    for warning in problems:
        terminal.echo(str(replace(warning, message=f"warning: {warning.message}")), err=True)
    return bundle


def known_profile(bundle: Bundle, name: str | None) -> None:
    """Raise `click.BadParameter` if *name* is given and no profile of *bundle* has it."""
    profiles = [profile.scheduler_name for profile in bundle.profiles]
    if name and name not in profiles:
        known = ", ".join(f"`{one}`" for one in profiles)
        raise click.BadParameter(f"want one of {known}, got `{name}`", param_hint="--profile")
