"""Shared by the commands that serve until they are stopped: options, sources, signals.

Owns reading the value of `--policies`; rolling the policies out is `engine.rollout`'s.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import structlog

from engine.cli.policy_paths import CONFIGMAP_PREFIX
from engine.facts.learned import SUFFIX as FACTS_SUFFIX
from engine.facts.learned import LearnedConfigMap, LearnedFiles, LearnedStore, NoLearnedStore
from engine.kube.client import ApiClient
from engine.rollout.control import SUFFIX as CONTROL_SUFFIX
from engine.rollout.control import ConfigMapControl, NoControl, RolloutControl
from engine.rollout.last_good import (
    SUFFIX,
    ConfigMapStore,
    DirectoryStore,
    NoStore,
    Store,
    Stores,
)
from engine.rollout.sources import (
    BuiltinSource,
    ConfigMapSource,
    DirectoryPolicies,
    PolicySource,
)

log = structlog.get_logger(component="serving")

Command = TypeVar("Command", bound=Callable[..., Any])

_SECOND_SIGNAL_EXIT: Final = 1


def state_dir_option(function: Command) -> Command:
    """Add `--state-dir` to a command."""
    return click.option(
        "--state-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Directory that keeps the last good policies over restarts. With a ConfigMap as "
        "source they are also kept in the ConfigMap NAME-last-good.",
    )(function)


def logging_options(verbosities: str) -> Callable[[Command], Command]:
    """Add `--logging-format` and `--v` to a command; *verbosities* describes the levels."""

    def add(function: Command) -> Command:
        function = click.option(
            "-v",
            "--v",
            "verbosity",
            type=int,
            default=0,
            show_default=True,
            help=f"Log verbosity: {verbosities}.",
        )(function)
        return click.option(
            "--logging-format",
            "--log-format",
            type=click.Choice(["json", "text"]),
            default="json",
            show_default=True,
            help="Format of the log on standard error.",
        )(function)

    return add


def choose_source(
    policies: str, client: ApiClient | None, state_dir: Path | None
) -> tuple[PolicySource, Store]:
    """The source of policies, and the store of the last good ones, for a `--policies` value."""
    stores: list[Store] = [DirectoryStore(state_dir)] if state_dir is not None else []
    source: PolicySource
    if policies == "builtin":
        source = BuiltinSource()
    elif policies.startswith(CONFIGMAP_PREFIX):
        namespace, slash, name = policies.removeprefix(CONFIGMAP_PREFIX).partition("/")
        if not slash or not namespace or not name or "/" in name:
            raise click.BadParameter(
                f"want `configmap:NAMESPACE/NAME`, got `{policies}`", param_hint="--policies"
            )
        if client is None:
            raise click.UsageError(f"`--policies {policies}` needs a cluster to read it from")
        source = ConfigMapSource(client, namespace, name)
        # First, because it outlives this pod and its node.
        stores.insert(0, ConfigMapStore(client, namespace, name + SUFFIX))
    else:
        source = DirectoryPolicies(Path(policies))
    return source, Stores(*stores) if stores else NoStore()


def choose_learned_store(policies: str, client: ApiClient, state_dir: Path | None) -> LearnedStore:
    """Where learned facts are kept, for a `--policies` value that `choose_source` has checked."""
    if policies.startswith(CONFIGMAP_PREFIX):
        # First, because it outlives this pod and its node.
        namespace, _, name = policies.removeprefix(CONFIGMAP_PREFIX).partition("/")
        return LearnedConfigMap(client, namespace, name + FACTS_SUFFIX)
    return LearnedFiles(state_dir) if state_dir is not None else NoLearnedStore()


def choose_control(policies: str, client: ApiClient) -> RolloutControl:
    """How edits are rolled out, for a `--policies` value that `choose_source` has checked."""
    if not policies.startswith(CONFIGMAP_PREFIX):
        return NoControl()
    namespace, _, name = policies.removeprefix(CONFIGMAP_PREFIX).partition("/")
    return ConfigMapControl(client, namespace, name + CONTROL_SUFFIX)


def handle_signals(stop: Any) -> None:
    """Call *stop* on SIGTERM or SIGINT, and end at once on a second one."""
    loop = asyncio.get_running_loop()
    seen = False

    def on_signal(name: str) -> None:
        nonlocal seen
        if seen:
            log.warning("Second signal, exiting at once", signal=name)
            sys.stderr.flush()
            os._exit(_SECOND_SIGNAL_EXIT)
        seen = True
        log.info("Stopping", signal=name)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)


def listen_address(text: str, flag: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; *flag* names the option, for errors."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"want HOST:PORT, got `{text}`", param_hint=flag)
    return host.strip("[]") or "0.0.0.0", int(port)
