"""Shared by the commands that serve until they are stopped: options, sources, signals.

Owns reading the value of `--policies`; rolling the policies out is `engine.rollout`'s.
"""

import asyncio
import os
import platform
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import structlog

from engine.io.facts.learned import SUFFIX as FACTS_SUFFIX
from engine.io.facts.learned import LearnedConfigMap, LearnedFiles, LearnedStore, NoLearnedStore
from engine.io.kube.client import ApiClient
from engine.lib.background import cancelled
from engine.lib.saved_state import START, WAIT
from engine.policy.config import KubeSchedulerConfiguration
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.evaluator import Files
from engine.policy.start_check import require_usable
from engine.rollout import last_resort
from engine.rollout.control import SUFFIX as CONTROL_SUFFIX
from engine.rollout.control import ConfigMapControl, NoControl, RolloutControl
from engine.rollout.last_good import SUFFIX, ConfigMapStore, DirectoryStore, NoStore, Store, Stores
from engine.rollout.sources import (
    BuiltinSource,
    ConfigMapSource,
    DirectoryPolicies,
    Offer,
    PolicySource,
)
from engine.surfaces.cli.durations import LIMIT
from engine.surfaces.cli.go_flags import given_flags
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX
from engine.surfaces.cli.program import version

log = structlog.get_logger(component="serving")

Command = TypeVar("Command", bound=Callable[..., Any])

_SECOND_SIGNAL_EXIT: Final = 1
#: How long a command that ends by itself waits for the policies.
_READ_SECONDS: Final = 20.0


def state_dir_option(function: Command) -> Command:
    """Add `--state-dir` to a command."""
    return click.option(
        "--state-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Directory that keeps the last good policies over restarts. With a ConfigMap as "
        "source they are also kept in the ConfigMap NAME-last-good.",
    )(function)


def when_unsure_options(function: Command) -> Command:
    """Add `--when-no-policies` and `--when-unreadable` to a command."""
    function = click.option(
        "--when-unreadable",
        "when_unread",
        type=click.Choice([WAIT, START]),
        default=WAIT,
        show_default=True,
        help="What happens when something that was saved before cannot be read, such as the last "
        "good policies: `wait` for it, or `start` without it after 10 s. It is not overwritten "
        "before it was read.",
    )(function)
    return click.option(
        "--when-no-policies",
        type=click.Choice([last_resort.WAIT, last_resort.BUILTIN]),
        default=last_resort.WAIT,
        show_default=True,
        help="What happens at a start when neither the policies nor the last good ones can be "
        "used: every pod has to `wait`, or the `builtin` ones decide.",
    )(function)


def watch_age_option(function: Command) -> Command:
    """Add `--max-watch-age` to a command."""
    return click.option(
        "--max-watch-age",
        type=LIMIT,
        default="5m",
        show_default=True,
        metavar="DURATION|never",
        help="How long what is known of a resource stays in use once the API server refuses or "
        "fails to list and watch it. Then the decisions that depend on it are held. 0: at once.",
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


def log_start(logger: Any, ctx: click.Context) -> None:
    """Log what runs and how it was started: the flags that were given, without passwords."""
    logger.info(
        "Starting",
        version=version(),
        python=platform.python_version(),
        arguments=given_flags(ctx),
        config=str(ctx.params.get("config") or ""),
    )


def require_usable_at_start(config: KubeSchedulerConfiguration, policies: str) -> None:
    """Raise `UnusableConfiguration` for what is wrong with `--config` whatever `--policies` has.

    The rest is known when the policies were read: then `Rollout.start` raises it.
    """
    require_usable(config, {} if policies == BuiltinSource.name else None)


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


async def read_source(source: PolicySource) -> Files:
    """The policies that *source* has now. Raises `PolicyErrors` if it has none that can be read."""
    first: asyncio.Future[Offer] = asyncio.get_running_loop().create_future()

    def take(offer: Offer) -> None:
        if not first.done():
            first.set_result(offer)

    following = asyncio.ensure_future(source.run(take))
    try:
        both: set[asyncio.Future[Any]] = {first, following}
        async with asyncio.timeout(_READ_SECONDS):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            following.result()
        offer = first.result()
    except TimeoutError:
        problem = Problem(source.name, 0, 0, f"not read within {_READ_SECONDS:.0f} s")
        raise PolicyErrors([problem]) from None
    finally:
        await cancelled([following])
    if offer.problems:
        raise PolicyErrors(offer.problems)
    if offer.files is None:
        raise PolicyErrors([Problem(source.name, 0, 0, "it is not there")])
    return offer.files


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
