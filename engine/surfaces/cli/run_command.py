"""`starsched run`: schedule the pods of a cluster.

Owns the flags, which are kube-scheduler's where the meaning is the same, the process (signals,
event loop, exit code) and the choice of parts. Connecting them is `engine.app`'s.
"""

import asyncio
import contextlib
import gc
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import structlog

from engine.app import App, PolicyParts, Settings
from engine.core.framework.behaviors import GATES, behaviors_of
from engine.io.binding.binding_cycle import MOST_IN_FLIGHT
from engine.io.endpoints.caller_trust import CannotAuthenticate
from engine.io.endpoints.listeners import MOST_OPEN
from engine.io.endpoints.server import ReviewClients, SecureSettings
from engine.io.endpoints.serving_tls import CannotServeTls
from engine.io.facts.learned import LearnedStore
from engine.io.informers import OTHER_OBJECTS
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import KubeConfigError
from engine.io.leader_election import LeadershipLost, LeaseSettings
from engine.io.tracing.configuration import TracingConfiguration, decode_tracing_configuration
from engine.io.tracing.pod_traces import Tracing
from engine.io.tracing.sampling import Sampler
from engine.lib import event_loop, garbage
from engine.lib.clock import SystemClock
from engine.lib.durations import go_duration
from engine.lib.listening import CannotListen
from engine.lib.open_files import allow_open_files
from engine.lib.printable import counted
from engine.policy.config import (
    DEFAULT_SCHEDULER_NAME,
    KIND,
    KubeSchedulerConfiguration,
    decode_configuration,
)
from engine.policy.documents import read_documents, write_documents
from engine.policy.errors import PolicyErrors
from engine.policy.start_check import UnusableConfiguration
from engine.policy.written import (
    has_secrets,
    runtime_document,
    with_decisions,
    written_configuration,
)
from engine.recording.log_writer import LogSettings, LogWriter
from engine.recording.recorder import Recorder
from engine.rollout.assembly import make_stages
from engine.rollout.control import RolloutControl
from engine.rollout.last_good import Store
from engine.rollout.sources import PolicySource
from engine.rollout.trial import CandidateStages, Rejected
from engine.surfaces.cli.cluster_option import cluster_options, connect
from engine.surfaces.cli.durations import DURATION
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.endpoint_options import chosen_reviewers, chosen_secure, endpoint_options
from engine.surfaces.cli.go_flags import (
    POP_EARLY,
    FeatureGates,
    GoFlagsCommand,
    chosen_gates,
    log_gates,
    log_unused,
    shown_flags,
    unused_flags,
)
from engine.surfaces.cli.lease_options import chosen_lease, lease_options
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX, config_option, read_config
from engine.surfaces.cli.program import KUBE_SCHEDULER, version, version_option
from engine.surfaces.cli.serving import (
    choose_control,
    choose_learned_store,
    choose_source,
    handle_signals,
    log_start,
    logging_options,
    read_source,
    require_usable_at_start,
    state_dir_option,
    watch_age_option,
    when_unsure_options,
)
from engine.surfaces.live.what_if.shapes import Shape, WrongTypes, machine_types
from engine.surfaces.preflight.findings import State, exit_code
from engine.telemetry.logs import configure_logging, logs_attempts

log = structlog.get_logger(component="run")

#: Open files without those of bindings: one for each watch, some for each sandbox.
_LEAST_OPEN_FILES: Final = 64

#: How long a thread that tries policies may keep the loop waiting; Python's own 5 ms add up.
_SWITCH_SECONDS: Final = 0.0005
#: A part of a path that the API server takes for one in the address of a webhook.
_ADMISSION_KEY: Final = re.compile(r"[a-z0-9]{16,63}")
#: Seconds for which garbage collection is off during the first lists.
_GC_PATIENCE: Final = 120.0


@click.command("run", cls=GoFlagsCommand, short_help="Schedule the pods of a cluster.")
@cluster_options
@click.option(
    "--policies",
    default="builtin",
    show_default=True,
    metavar="SOURCE",
    help="Where policies come from: a directory (watched), `configmap:NAMESPACE/NAME` (watched "
    "through the API server), or `builtin` for the built-in ones alone.",
)
@config_option("A KubeSchedulerConfiguration, used instead of one among the policies. Read once.")
@click.option(
    "--master",
    metavar="URL",
    help="Address of the API server, used instead of the kubeconfig's; without one, the only thing "
    "that is known of the server.",
)
@click.option(
    "--write-config-to",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Check the configuration, write all of it that is in use to this file, and exit.",
)
@click.option(
    "--preflight",
    is_flag=True,
    help="First check what `starsched preflight` checks, and exit with its exit code unless all "
    "of it is there.",
)
@state_dir_option
@when_unsure_options
@lease_options
@endpoint_options()
@click.option(
    "--admission-key-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Serve an admission webhook for edits of the policies' ConfigMap at /admission/KEY of the "
    "endpoints. KEY is what this file has: a secret of 16 to 63 lower-case letters and digits, "
    "which the API server is given with the address. Read once.",
)
@click.option(
    "--admission-webhook",
    metavar="NAME",
    help="Serve that webhook, and register this process in the ValidatingWebhookConfiguration of "
    "this name: its certificate, and a key, which the object keeps for all replicas, unless "
    "--admission-key-file gives one. A certificate that is made at the start is then also for the "
    "Services of the policies' namespace.",
)
@click.option(
    "--machine-types",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Machine types that `starsched whatif` can add nodes of: YAML documents, each a Node "
    "with the name of the type, its labels and taints, and status.allocatable. Read once.",
)
@click.option(
    "--pod-max-in-unschedulable-pods-duration",
    type=DURATION,
    default="5m",
    show_default=True,
    help="Time after which a rejected pod is tried again in any case.",
)
@watch_age_option
@click.option(
    "--feature-gates",
    type=FeatureGates(),
    multiple=True,
    metavar="NAME=BOOL,...",
    help="kube-scheduler's feature gates. SchedulerPopFromBackoffQ=false: a rejected pod waits for "
    "the end of its backoff also while no other pod is to be tried. "
    f"{', '.join(GATES)}: as there. Others change nothing.",
)
@emulated_version_option("that of the API server")
@click.option(
    "--max-bindings-in-flight",
    type=click.IntRange(min=1),
    default=MOST_IN_FLIGHT,
    show_default=True,
    help="Most bindings in flight to the API server.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Record every decision and its inputs in this directory, for `starsched replay`.",
)
@click.option(
    "--record-file-size",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="MIB",
    help="Size at which a new file of the decision log is begun.",
)
@click.option(
    "--record-files",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Files of the decision log to keep; the oldest are deleted.",
)
@click.option(
    "--record-compress/--no-record-compress",
    default=True,
    show_default=True,
    help="Compress the decision log.",
)
@click.option(
    "--tracing-config-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="A TracingConfiguration (apiserver.config.k8s.io/v1): trace pods by it. Read once.",
)
@logging_options("-1 only warnings, 0 what changes, 2 every attempt, 4 every step")
@version_option
@click.pass_context
def run_command(ctx: click.Context, /, **options: Any) -> None:
    """Schedule the pods of a cluster with the policies of a directory or a ConfigMap.

    Runs until SIGTERM or SIGINT: then bindings under way are finished, the lease is given back and
    events are written. A second signal ends the process at once. SIGUSR2 writes what is in the
    cache and in the queue to the log.

    Exit codes: 0 stopped by a signal, 1 failed, or lost the lease, 2 wrong usage, or a
    configuration that cannot work.

    \b
    Examples:
      starsched run --policies configmap:starsched/starsched-policies
      starsched run --kubeconfig ~/.kube/config --policies ./policies --no-leader-elect
      starsched run --policies ./policies --record /var/log/starsched --record-files 16
    """
    configure_logging(verbosity=options["verbosity"], log_format=options["logging_format"])
    log_start(log, ctx)
    log_unused(unused_flags(ctx))
    minor: int | None = options["emulated_version"]
    emulated = None if minor is None else behaviors_of(minor)
    log_gates(chosen_gates(options["feature_gates"]), emulated)
    secure = chosen_secure(options)
    if options["admission_webhook"]:
        secure = served_to_api_server(secure, options["policies"])
    config: Path | None = options["config"]
    config_text = read_config(config) if config is not None else None
    tracing = read_tracing_configuration(options["tracing_config_file"])
    _allow_open_files(options["max_bindings_in_flight"])
    gc.set_threshold(*garbage.WHILE_DECIDING)
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.disable()  # until the first lists are in: they make no garbage, and looking for it costs
    serving = _serve(options, config_text, secure, tracing, shown_flags(ctx))
    raise SystemExit(event_loop.run(serving))


def _allow_open_files(bindings: int) -> None:
    """Raise the limit of open files for *bindings*. Raises `UsageError` if it is too low."""
    wanted = _LEAST_OPEN_FILES + bindings
    # Strangers at the endpoints must not take those that bindings need.
    allowed = allow_open_files(wanted + 2 * MOST_OPEN)
    if allowed < _LEAST_OPEN_FILES:
        raise click.UsageError(
            f"open files: want a limit of at least {_LEAST_OPEN_FILES}, better {wanted}, "
            f"got {allowed}\nhint: `ulimit -n {wanted}`, or LimitNOFILE= of a systemd unit"
        )
    if allowed < wanted:
        log.warning("Few files may be open; bindings may fail", limit=allowed, wanted=wanted)


async def _serve(
    options: dict[str, Any],
    config_text: str | None,
    secure: SecureSettings | None,
    tracing: TracingConfiguration | None,
    flags: dict[str, str],
) -> int:
    try:
        parts = await choose_parts(options, config_text, secure, flags)
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error
    except PolicyErrors as errors:
        raise click.UsageError(str(errors)) from errors
    if options["write_config_to"] is not None:
        try:
            return await _write_configuration(options, config_text, parts)
        except (OSError, PolicyErrors) as error:
            log.error("Policies cannot be read", source=options["policies"], reason=str(error))
            return 1
        finally:
            await parts.close()
    if options["preflight"] and (code := await _preflight(parts, options, secure)):
        await parts.close()
        return code
    try:
        recorder = make_recorder(options, config_text)
    except OSError as error:
        await parts.close()
        raise click.UsageError(f"--record {options['record']}: {error.strerror}") from error
    try:
        traces = None if tracing is None else make_tracing(tracing, parts)
    except Exception as error:  # of the library, about its part of the environment
        await parts.close()
        if recorder is not None:
            recorder.close()
        text = f"{type(error).__name__}: {error}"
        raise click.UsageError(f"cannot trace: {text}\nhint: look at OTEL_... variables") from error
    app = App(
        parts.client,
        policies=PolicyParts(
            source=parts.source,
            stages=parts.stages,
            store=parts.store,
            control=parts.control,
        ),
        learned_store=parts.learned_store,
        settings=parts.settings,
        decision_log=recorder,
        review_clients=parts.review_clients,
        tracing=traces,
    )
    handle_signals(app.request_stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, app.request_dump)
    freezing = asyncio.ensure_future(_freeze_when_synced(app.watching.synced))
    try:
        await app.run()
    except LeadershipLost as lost:
        log.error("Leaderelection lost", reason=str(lost))
        return 1
    except (CannotListen, CannotServeTls, CannotAuthenticate, UnusableConfiguration) as error:
        raise click.UsageError(str(error)) from error
    except Exception:
        log.exception("Scheduler failed")
        return 1
    finally:
        freezing.cancel()
        await parts.close()
        if recorder is not None:
            recorder.close()
    log.info("Requested to terminate, exiting")
    return 0


def _write(path: Path, text: str, *, mode: int) -> None:
    """Write *text*; a file that is made has *mode*."""
    with open(path, "w", encoding="utf-8", opener=partial(os.open, mode=mode)) as file:
        file.write(text)


@dataclass(frozen=True)
class Parts:
    """What the flags chose."""

    client: ApiClient
    review_clients: ReviewClients
    source: PolicySource
    stages: CandidateStages
    store: Store
    learned_store: LearnedStore
    control: RolloutControl
    settings: Settings

    async def close(self) -> None:
        """Close the clients."""
        await self.review_clients.close()
        await self.client.close()


async def _preflight(parts: Parts, options: dict[str, Any], secure: SecureSettings | None) -> int:
    """Log what is missing, or could not be checked; the exit code, 0 if there is nothing."""
    # Imported late: it takes its flags from this command.
    from engine.surfaces.cli.preflight_command import check_parts

    findings, _ = await check_parts(parts, options["policies"], secure)
    for one in findings:
        if one.state in (State.MISSING, State.UNKNOWN):
            said = {"detail": one.detail, "remedy": one.remedy}
            log.error(
                "Preflight",
                check=one.check,
                subject=one.subject,
                state=str(one.state),
                **{word: text for word, text in said.items() if text},
            )
    code = exit_code(findings)
    say = log.error if code else log.info
    say("Preflight ended", checks=len(findings), exit_code=code)
    return code


async def _write_configuration(
    options: dict[str, Any], config_text: str | None, parts: Parts
) -> int:
    """Write the configuration with the profiles that the policies of now make of it.

    Raises `PolicyErrors` and `OSError` for policies that cannot be read.
    """
    path: Path = options["write_config_to"]
    files = await read_source(parts.source)
    try:
        bundle = await parts.stages.build(files)
    except Rejected as rejection:
        try:
            parts.stages.require_usable(files)
        except UnusableConfiguration as error:
            raise click.UsageError(str(error)) from error
        raise PolicyErrors(rejection.problems) from rejection
    configuration = bundle.configuration
    extenders = () if configuration is None else configuration.extenders
    profiles = [profile.written for profile in bundle.profiles]
    written = with_decisions(parts.settings.configuration, profiles, extenders, with_secrets=True)
    runtime = runtime_document(config_text or "")
    text = write_documents([written] if runtime is None else [written, runtime])
    try:
        _write(path, text, mode=0o600 if has_secrets(extenders) else 0o666)
    except OSError as error:
        raise click.UsageError(f"--write-config-to {path}: {error.strerror}") from error
    log.info("Wrote the configuration", file=str(path))
    return 0


async def choose_parts(
    options: dict[str, Any],
    config_text: str | None,
    secure: SecureSettings | None,
    flags: dict[str, str],
) -> Parts:
    """The parts that the flags and the configuration file configure. Raises for wrong ones."""
    config = KubeSchedulerConfiguration()
    if config_text is not None:
        config = decode_configuration(config_text, str(options["config"]))
        require_usable_at_start(config, options["policies"])
    said = _said_of_the_lease(config_text or "")
    lease = chosen_lease(
        options,
        config,
        said,
        in_its_place=click.get_current_context().find_root().info_name == KUBE_SCHEDULER,
    )
    # The client is created last: it holds connections, which an error would have to close.
    kubeconfig = options["kubeconfig"] or config.client_connection.kubeconfig or None
    client = await connect(kubeconfig, options["context"], options["master"])
    try:
        review_clients = await chosen_reviewers(options, client)
    except BaseException:
        await client.close()
        raise
    source, store = choose_source(options["policies"], client, options["state_dir"])
    gates = chosen_gates(options["feature_gates"])
    settings = Settings(
        lease=lease,
        secure=secure,
        local_port=options["local_port"],
        admission_key=read_admission_key(options["admission_key_file"], options["policies"]),
        admission_webhook=options["admission_webhook"] or "",
        machine_types=read_machine_types(options["machine_types"]),
        initial_backoff=config.pod_initial_backoff_seconds,
        max_backoff=config.pod_max_backoff_seconds,
        pops_early=gates.get(POP_EARLY, True),
        max_unschedulable=options["pod_max_in_unschedulable_pods_duration"],
        emulated_minor=options["emulated_version"],
        gates=frozenset(name for name, is_on in gates.items() if is_on),
        most_watch_age=options["max_watch_age"],
        bindings=options["max_bindings_in_flight"],
        logs_attempts=logs_attempts(options["verbosity"]),
        last_resort=None if config_text is not None else last_resort_name(lease),
        profile_names=tuple(p.scheduler_name for p in config.profiles) or (DEFAULT_SCHEDULER_NAME,),
        when_no_policies=options["when_no_policies"],
        when_unread=options["when_unread"],
        configuration=written_configuration(
            config,
            _leader_election(lease, said),
            kubeconfig=str(options["kubeconfig"] or ""),
        ),
        flags=flags,
        version=version(),
    )
    learned_store = choose_learned_store(options["policies"], client, options["state_dir"])
    return Parts(
        client,
        review_clients,
        source,
        make_stages(config_text, str(options["config"])),
        store,
        learned_store,
        choose_control(options["policies"], client),
        settings,
    )


def _require_config_map(flag: str, policies: str) -> str:
    """The namespace of the ConfigMap *policies*. Raises `UsageError` for another source."""
    if not policies.startswith(CONFIGMAP_PREFIX):
        want = "want `--policies configmap:NAMESPACE/NAME`, whose edits the webhook judges"
        raise click.UsageError(f"{flag}: {want}, got `{policies}`")
    return policies.removeprefix(CONFIGMAP_PREFIX).partition("/")[0]


def served_to_api_server(secure: SecureSettings | None, policies: str) -> SecureSettings:
    """*secure* with a certificate for the Services by which the API server calls a webhook.

    Raises `UsageError` without what the webhook needs.
    """
    namespace = _require_config_map("--admission-webhook", policies)
    if secure is None:
        raise click.UsageError("--admission-webhook: want a --secure-port, which it is served on")
    hosts = (*secure.tls.hosts, f"*.{namespace}.svc")
    return replace(secure, tls=replace(secure.tls, hosts=hosts))


def read_machine_types(path: Path | None) -> dict[str, Shape]:
    """The machine types of the file of `--machine-types`, by name; none without one."""
    if path is None:
        return {}
    try:
        return machine_types(path)
    except (WrongTypes, OSError) as error:
        raise click.BadParameter(str(error), param_hint="--machine-types") from error


def read_admission_key(path: Path | None, policies: str) -> str:
    """The key in the file at *path*; "" without one. Raises `UsageError` for what is wrong."""
    if path is None:
        return ""
    flag = f"--admission-key-file {path}"
    _require_config_map(flag, policies)
    key = read_config(path).strip()
    if not _ADMISSION_KEY.fullmatch(key):
        want = "want 16 to 63 lower-case letters and digits"
        raise click.UsageError(f"{flag}: {want}, got {counted(len(key), 'character')}")
    return key


def _said_of_the_lease(config_text: str) -> dict[str, Any]:
    """The `leaderElection` of a configuration as it is written; a `PolicyRuntime` may be there."""
    for document in read_documents("", config_text)[0]:
        members = document.object()
        if members.text("kind") == KIND and (found := members.get("leaderElection")) is not None:
            said: dict[str, Any] = found.plain()
            return said
    return {}


def read_tracing_configuration(path: Path | None) -> TracingConfiguration | None:
    """What the file at *path* says; None: no file. Raises `UsageError` for what is wrong."""
    if path is None:
        return None
    try:
        return decode_tracing_configuration(read_config(path), str(path))
    except PolicyErrors as errors:
        raise click.UsageError(str(errors)) from errors


def make_tracing(configuration: TracingConfiguration, parts: Parts) -> Tracing:
    """What traces pods by *configuration*; `Tracing.close` ends it."""
    # OpenTelemetry and gRPC take 30 MB and half a second, which only those pay who trace.
    from engine.io.tracing.export import SpanSender

    settings, client = parts.settings, parts.client
    service = {"service.version": settings.version, "service.instance.id": settings.identity}
    return Tracing(
        Sampler(configuration.sampling_rate_per_million),
        SpanSender(configuration.endpoint, service),
        clock=client.clock,
        rng=client.rng,
    )


def last_resort_name(lease: LeaseSettings | None) -> str:
    """Whose pods the built-in policies may decide for where no policies say.

    Those of kube-scheduler only if no other process can lead at the same time: its own lease, or
    none. Next to it, a name that its pods do not give.
    """
    if lease is None or (lease.namespace, lease.name) == ("kube-system", KUBE_SCHEDULER):
        return DEFAULT_SCHEDULER_NAME
    return lease.name


def make_recorder(options: dict[str, Any], config_text: str | None) -> Recorder | None:
    """The recorder that the flags configure, started. Raises `OSError` for a bad directory."""
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


def _leader_election(lease: LeaseSettings | None, said: Mapping[str, Any]) -> dict[str, Any]:
    """The lease in use as the configuration writes it.

    Without one, what the file *said* and no defaults: with a flag that wants a lease after all,
    names that are written have another meaning than those that are not.
    """
    if lease is None:
        return {**said, "leaderElect": False}
    return {
        "leaderElect": True,
        "leaseDuration": go_duration(lease.lease_duration),
        "renewDeadline": go_duration(lease.renew_deadline),
        "retryPeriod": go_duration(lease.retry_period),
        "resourceLock": "leases",
        "resourceName": lease.name,
        "resourceNamespace": lease.namespace,
    }


async def _freeze_when_synced(synced: asyncio.Event) -> None:
    """Exclude the objects of the first lists from garbage collection: they are long-lived."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GC_PATIENCE):  # an API server that is away must cost no memory
            await synced.wait()
    gc.freeze()
    gc.enable()
