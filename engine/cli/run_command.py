"""`starsched run`: schedule the pods of a cluster.

Owns the flags, which are kube-scheduler's where the meaning is the same, the process (signals,
event loop, exit code) and the choice of parts. Connecting them is `engine.app`'s.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import structlog
import uvloop
import yaml

from engine.app import App, Settings
from engine.binding.binding_cycle import MOST_IN_FLIGHT
from engine.cli.durations import DURATION, duration_text
from engine.cli.main import version
from engine.cli.policy_paths import read_config
from engine.facts.learned import SUFFIX as FACTS_SUFFIX
from engine.facts.learned import Keeper, KeepsConfigMap, KeepsFiles, KeepsNothing
from engine.informers import OTHER_OBJECTS
from engine.kube.client import ApiClient
from engine.kube.errors import KubeConfigError, NoKubeConfig
from engine.leader_election import LeadershipLost, LeaseSettings
from engine.lib import garbage
from engine.lib.clock import SystemClock
from engine.lib.open_files import allow_open_files
from engine.policy.config import (
    API_VERSION,
    KIND,
    KubeSchedulerConfiguration,
    decode_configuration,
)
from engine.policy.errors import PolicyErrors
from engine.recording.log_writer import LogSettings, LogWriter
from engine.recording.recorder import Recorder
from engine.rollout.assembly import make_examiner
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
from engine.rollout.trial import Examiner
from engine.telemetry.logs import configure_logging

log = structlog.get_logger(component="run")

CONFIGMAP_PREFIX: Final = "configmap:"
_SECOND_SIGNAL_EXIT: Final = 1
#: Open files without those of bindings: a watch of each resource takes one, each sandbox some.
_LEAST_OPEN_FILES: Final = 64
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

#: How long a thread that tries policies may keep the loop waiting; Python's own 5 ms add up.
_SWITCH_SECONDS: Final = 0.0005
#: Seconds that the first lists may take without a look for garbage.
_GC_PATIENCE: Final = 120.0


@click.command("run", short_help="Schedule the pods of a cluster.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Kubeconfig of the cluster. Default: the pod's own cluster, else $KUBECONFIG or "
    "~/.kube/config.",
)
@click.option("--context", help="Context of the kubeconfig. Default: its current one.")
@click.option(
    "--policies",
    default="builtin",
    show_default=True,
    metavar="SOURCE",
    help="Where policies come from: a directory (watched), `configmap:NAMESPACE/NAME` (watched "
    "through the API server), or `builtin` for the built-in ones alone.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A KubeSchedulerConfiguration, used instead of one among the policies. Read once.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory that keeps the last good policies over restarts. With a ConfigMap as source "
    "they are also kept in the ConfigMap NAME-last-good beside it.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help="Schedule only while holding a lease, so that several replicas can run. Default: yes.",
)
@click.option(
    "--leader-elect-lease-duration",
    type=DURATION,
    help="How long a standby waits after the last renewal before it takes over. Default: 15s.",
)
@click.option(
    "--leader-elect-renew-deadline",
    type=DURATION,
    help="How long the leader tries to renew before it gives up. Default: 10s.",
)
@click.option(
    "--leader-elect-retry-period",
    type=DURATION,
    help="How long to wait between tries. Default: 2s.",
)
@click.option("--leader-elect-resource-name", help="Name of the lease. Default: starsched.")
@click.option(
    "--leader-elect-resource-namespace",
    help="Namespace of the lease. Default: the pod's own, else kube-system.",
)
@click.option(
    "--metrics-address",
    default="127.0.0.1:10259",
    show_default=True,
    metavar="HOST:PORT",
    help="Where /healthz, /livez, /readyz, /metrics, /policies, /facts and /configz are served; "
    "port 0 takes a free one, `none` serves nothing.",
)
@click.option(
    "--pod-max-in-unschedulable-pods-duration",
    type=DURATION,
    default="5m",
    show_default=True,
    help="After this time a rejected pod is tried again, whatever happened.",
)
@click.option(
    "--max-bindings-in-flight",
    type=click.IntRange(min=1),
    default=None,
    help="How many bindings may wait for the API server at once. Default: 96.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep a log of every decision and of what it was decided on in this directory, for "
    "`starsched replay`.",
)
@click.option(
    "--record-file-size",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="MIB",
    help="Begin a new file of the decision log after so many MiB.",
)
@click.option(
    "--record-files",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="How many files of the decision log to keep; the oldest are deleted.",
)
@click.option(
    "--record-compress/--no-record-compress",
    default=True,
    show_default=True,
    help="Compress the decision log.",
)
@click.option(
    "--logging-format",
    "--log-format",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="Form of the log on standard error.",
)
@click.option(
    "-v",
    "--v",
    "verbosity",
    type=int,
    default=0,
    show_default=True,
    help="Log verbosity: -1 only warnings, 0 one line per outcome, 4 every step.",
)
def run_command(**options: Any) -> None:
    """Schedule the pods of a cluster with the policies of a directory or a ConfigMap.

    Runs until SIGTERM or SIGINT: then bindings under way are finished, the lease is given back and
    events are written. A second signal ends the process at once. SIGUSR2 writes what is in the
    cache and in the queue to the log.

    \b
    Exit codes: 0 stopped by a signal, 1 failed or lost the lease, 2 wrong usage.

    \b
    Examples:
      starsched run --policies configmap:starsched/starsched-policies
      starsched run --kubeconfig ~/.kube/config --policies ./policies --no-leader-elect
      starsched run --policies ./policies --record /var/log/starsched --record-files 16
    """
    configure_logging(verbosity=options["verbosity"], log_format=options["logging_format"])
    address = listen_address(options["metrics_address"])
    config: Path | None = options["config"]
    config_text = read_config(config) if config is not None else None
    _allow_open_files(options["max_bindings_in_flight"] or MOST_IN_FLIGHT)
    gc.set_threshold(*garbage.WHILE_DECIDING)
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.disable()  # until the first lists are in: they make no garbage, and looking for it costs
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        raise SystemExit(runner.run(_serve(options, config_text, address)))


def _allow_open_files(bindings: int) -> None:
    """Have room for so many *bindings*. Raises `UsageError` if there is none even without them."""
    wanted = _LEAST_OPEN_FILES + bindings
    allowed = allow_open_files(wanted)
    if allowed < _LEAST_OPEN_FILES:
        raise click.UsageError(
            f"open files: want a limit of at least {_LEAST_OPEN_FILES}, better {wanted}, "
            f"got {allowed}\nhint: `ulimit -n {wanted}`, or LimitNOFILE= of a systemd unit"
        )
    if allowed < wanted:
        log.warning("Few files may be open; bindings may fail", limit=allowed, wanted=wanted)


async def _serve(
    options: dict[str, Any], config_text: str | None, address: tuple[str, int] | None
) -> int:
    try:
        parts = await _choose_parts(options, config_text, address)
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error
    except PolicyErrors as errors:
        raise click.UsageError(str(errors)) from errors
    try:
        recorder = make_recorder(options, config_text)
    except OSError as error:
        await parts.client.close()
        raise click.UsageError(f"--record {options['record']}: {error.strerror}") from error
    app = App(
        parts.client,
        source=parts.source,
        examiner=parts.examiner,
        store=parts.store,
        keeper=parts.keeper,
        settings=parts.settings,
        recorder=recorder,
    )
    handle_signals(app.request_stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, app.request_dump)
    freezing = asyncio.ensure_future(_freeze_when_synced(app.synced))
    try:
        await app.run()
    except LeadershipLost as lost:
        log.error("Leaderelection lost", reason=str(lost))
        return 1
    except Exception:
        log.exception("Scheduler failed")
        return 1
    finally:
        freezing.cancel()
        await parts.client.close()
        if recorder is not None:
            recorder.close()
    log.info("Requested to terminate, exiting")
    return 0


@dataclass(frozen=True)
class _Parts:
    """What the flags chose."""

    client: ApiClient
    source: PolicySource
    examiner: Examiner
    store: Store
    keeper: Keeper
    settings: Settings


async def _choose_parts(
    options: dict[str, Any], config_text: str | None, address: tuple[str, int] | None
) -> _Parts:
    """Everything that the flags and the configuration file decide. Raises what is wrong there."""
    config = (
        decode_configuration(config_text, str(options["config"]))
        if config_text is not None
        else KubeSchedulerConfiguration()
    )
    said = yaml.safe_load(config_text) if config_text is not None else {}
    lease = _lease(options, config, said.get("leaderElection") or {})
    # The client comes last among the things that can be wrong: it holds connections.
    kubeconfig = options["kubeconfig"] or config.client_connection.kubeconfig or None
    client = await connect(kubeconfig, options["context"])
    source, store = choose_source(options["policies"], client, options["state_dir"])
    settings = Settings(
        lease=lease,
        metrics_address=address,
        initial_backoff=config.pod_initial_backoff_seconds,
        max_backoff=config.pod_max_backoff_seconds,
        max_unschedulable=options["pod_max_in_unschedulable_pods_duration"],
        bindings=options["max_bindings_in_flight"] or MOST_IN_FLIGHT,
        configuration=shown_configuration(config, lease),
    )
    keeper = choose_keeper(options["policies"], client, options["state_dir"])
    return _Parts(client, source, make_examiner(config_text), store, keeper, settings)


def make_recorder(options: dict[str, Any], config_text: str | None) -> Recorder | None:
    """The started recorder that the flags ask for. Raises `OSError` for a bad directory."""
    if options["record"] is None:
        return None
    settings = LogSettings(
        directory=options["record"],
        file_bytes=options["record_file_size"] << 20,
        files=options["record_files"],
        compress=options["record_compress"],
    )
    kinds = [resource.plural for resource, _ in OTHER_OBJECTS]
    recorder = Recorder(LogWriter(settings, version()), SystemClock(), kinds, config_text)
    recorder.start()
    return recorder


async def connect(kubeconfig: Path | str | None, context: str | None) -> ApiClient:
    """A client of the cluster that the flags name. Raises `KubeConfigError`."""
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return await ApiClient.from_cluster()
    try:
        return await ApiClient.from_kubeconfig(kubeconfig, context)
    except NoKubeConfig as error:
        hint = "name a cluster with --kubeconfig FILE or $KUBECONFIG"
        raise NoKubeConfig(f"{error}\nhint: {hint}") from error


def choose_keeper(policies: str, client: ApiClient, state_dir: Path | None) -> Keeper:
    """Where learned facts are kept, for a `--policies` value that `choose_source` has checked."""
    if policies.startswith(CONFIGMAP_PREFIX):
        # First, because it outlives this pod and its node.
        namespace, _, name = policies.removeprefix(CONFIGMAP_PREFIX).partition("/")
        return KeepsConfigMap(client, namespace, name + FACTS_SUFFIX)
    return KeepsFiles(state_dir) if state_dir is not None else KeepsNothing()


def choose_source(
    policies: str, client: ApiClient | None, state_dir: Path | None
) -> tuple[PolicySource, Store]:
    """Where policies come from and where the last good ones are kept, for a `--policies` value."""
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


def _lease(
    options: dict[str, Any], config: KubeSchedulerConfiguration, said: dict[str, Any]
) -> LeaseSettings | None:
    """The lease: flags first, then what the configuration file says, then our defaults."""
    elect = options["leader_elect"]
    if elect is None:
        elect = config.leader_election.leader_elect
    if not elect:
        return None
    given = {
        "name": options["leader_elect_resource_name"],
        "namespace": options["leader_elect_resource_namespace"],
        "lease_duration": options["leader_elect_lease_duration"],
        "renew_deadline": options["leader_elect_renew_deadline"],
        "retry_period": options["leader_elect_retry_period"],
    }
    theirs = config.leader_election
    # Only what the file really says: kube-scheduler's default name would make a scheduler that
    # runs beside kube-scheduler wait for its lease for ever.
    written = {
        "resourceName": ("name", theirs.resource_name),
        "resourceNamespace": ("namespace", theirs.resource_namespace),
        "leaseDuration": ("lease_duration", theirs.lease_duration.total_seconds()),
        "renewDeadline": ("renew_deadline", theirs.renew_deadline.total_seconds()),
        "retryPeriod": ("retry_period", theirs.retry_period.total_seconds()),
    }
    values: dict[str, Any] = {"namespace": _own_namespace()}
    values |= {key: value for word, (key, value) in written.items() if word in said}
    values |= {key: value for key, value in given.items() if value is not None}
    try:
        return LeaseSettings(**values)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _own_namespace() -> str:
    """The namespace of the pod we run in, or `kube-system` outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip() or "kube-system"
    except OSError:
        return "kube-system"


def shown_configuration(
    config: KubeSchedulerConfiguration, lease: LeaseSettings | None
) -> dict[str, Any]:
    """The configuration in force as a KubeSchedulerConfiguration, for `/configz`."""
    leader: dict[str, Any] = {"leaderElect": lease is not None}
    if lease is not None:
        leader |= {
            "leaseDuration": duration_text(lease.lease_duration),
            "renewDeadline": duration_text(lease.renew_deadline),
            "retryPeriod": duration_text(lease.retry_period),
            "resourceLock": "leases",
            "resourceName": lease.name,
            "resourceNamespace": lease.namespace,
        }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": leader,
        "podInitialBackoffSeconds": config.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": config.pod_max_backoff_seconds,
        "percentageOfNodesToScore": config.percentage_of_nodes_to_score,
    }


async def _freeze_when_synced(synced: asyncio.Event) -> None:
    """Hide what the first lists brought from the garbage collector: it is here to stay."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GC_PATIENCE):  # an API server that is away must cost no memory
            await synced.wait()
    gc.freeze()
    gc.enable()


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


def listen_address(text: str, flag: str = "--metrics-address") -> tuple[str, int] | None:
    """Host and port of `HOST:PORT`, None for `none`; *flag* is where *text* was given."""
    if text == "none":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"want HOST:PORT or `none`, got `{text}`", param_hint=flag)
    return host.strip("[]") or "0.0.0.0", int(port)
