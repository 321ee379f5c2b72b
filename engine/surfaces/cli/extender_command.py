"""`starsched extender`: the policies behind a stock kube-scheduler.

Owns the flags and the choice of parts. Connecting them is `engine.surfaces.extender_server`'s.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import structlog

from engine.io.endpoints.caller_trust import CannotAuthenticate
from engine.io.endpoints.server import ReviewClients
from engine.io.endpoints.serving_tls import CannotServeTls
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import KubeConfigError
from engine.lib import event_loop
from engine.lib.listening import CannotListen
from engine.policy.config import decode_configuration
from engine.policy.errors import PolicyErrors
from engine.policy.start_check import UnusableConfiguration
from engine.rollout.last_good import Store
from engine.rollout.sources import PolicySource
from engine.rollout.trial import CandidateStages
from engine.surfaces.cli.cluster_option import cluster_options, connect
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.endpoint_options import chosen_reviewers, chosen_secure, endpoint_options
from engine.surfaces.cli.go_flags import GoFlagsCommand, log_unused, unused_flags
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX, config_option, read_config
from engine.surfaces.cli.serving import (
    choose_source,
    handle_signals,
    listen_address,
    log_start,
    logging_options,
    require_usable_at_start,
    state_dir_option,
    watch_age_option,
    when_unsure_options,
)
from engine.surfaces.extender_server.app import ExtenderApp, ExtenderSettings
from engine.surfaces.extender_server.assembly import make_extender_stages
from engine.surfaces.extender_server.server import MIB, MOST_BODY_BYTES, ServerTls
from engine.telemetry.logs import configure_logging

log = structlog.get_logger(component="extender")


@click.command(
    "extender",
    cls=GoFlagsCommand,
    short_help="Answer a stock kube-scheduler with the same policies.",
)
@click.option(
    "--policies",
    required=True,
    metavar="SOURCE",
    help="Where policies come from: a directory (watched), `configmap:NAMESPACE/NAME` (watched "
    "through the API server), or `builtin` for the built-in ones alone.",
)
@config_option(
    "A KubeSchedulerConfiguration whose profiles say which policies run, used instead of one among "
    "the policies. Read once."
)
@click.option(
    "--builtin/--no-builtin",
    default=False,
    show_default=True,
    help="Run the built-in policies too, if no configuration says what runs. kube-scheduler "
    "has its own plugins for that.",
)
@click.option(
    "--watch/--no-watch",
    default=True,
    show_default=True,
    help="Know nodes, the pods on them and other objects by watching the API server. Without, the "
    "policies see the nodes of the request and nothing else.",
)
@emulated_version_option("that of the API server; without --watch the newest that is out")
@cluster_options
@watch_age_option
@state_dir_option
@when_unsure_options
@click.option(
    "--address",
    default="127.0.0.1:8888",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to serve kube-scheduler on; port 0 picks a free one.",
)
@click.option(
    "--tls-cert-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file with the server certificate and its chain. Default: plain HTTP.",
)
@click.option(
    "--tls-private-key-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file with the certificate's key.",
)
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file with certificate authorities; clients need a certificate of one of them.",
)
@click.option(
    "--max-body-mib",
    type=click.IntRange(min=1),
    default=MOST_BODY_BYTES // MIB,
    show_default=True,
    help="Largest request body that is accepted, in MiB.",
)
@endpoint_options(with_tls_files=False)
@logging_options("-1 only warnings, 0 what changes, 4 every request")
@click.pass_context
def extender_command(ctx: click.Context, /, **options: Any) -> None:
    """Answer a stock kube-scheduler as its extender, with the policies of a directory or ConfigMap.

    Serves the verbs `filter`, `prioritize`, `preempt` and `bind`. Policies are reloaded as in
    `starsched run`: checked, tested, tried, and rolled back if they fail. Runs until SIGTERM or
    SIGINT.

    Exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage, or a configuration that cannot
    work.

    \b
    Examples:
      starsched extender --policies ./policies --no-watch
      starsched extender --policies configmap:kube-system/policies --address 0.0.0.0:8888
      starsched extender --policies . --tls-cert-file tls.crt --tls-private-key-file tls.key

    \b
    kube-scheduler's side of the first example:
      extenders:
      - urlPrefix: http://127.0.0.1:8888
        filterVerb: filter
        prioritizeVerb: prioritize
        weight: 1
    """
    configure_logging(verbosity=options["verbosity"], log_format=options["logging_format"])
    log_start(log, ctx)
    log_unused(unused_flags(ctx))
    config: Path | None = options["config"]
    config_text = read_config(config) if config is not None else None
    raise SystemExit(event_loop.run(_serve(options, config_text)))


async def _serve(options: dict[str, Any], config_text: str | None) -> int:
    try:
        parts = await _choose_parts(options, config_text)
    except (KubeConfigError, PolicyErrors) as error:
        raise click.UsageError(str(error)) from error
    app = ExtenderApp(
        parts.client,
        source=parts.source,
        stages=parts.stages,
        store=parts.store,
        settings=parts.settings,
        review_clients=parts.review_clients,
    )
    handle_signals(app.request_stop)
    try:
        await app.run()
    except (CannotListen, CannotServeTls, CannotAuthenticate, UnusableConfiguration) as error:
        raise click.UsageError(str(error)) from error
    except Exception:
        log.exception("Extender failed")
        return 1
    finally:
        await parts.review_clients.close()
        if parts.client is not None:
            await parts.client.close()
    log.info("Requested to terminate, exiting")
    return 0


@dataclass(frozen=True)
class _Parts:
    """What the flags chose."""

    client: ApiClient | None
    review_clients: ReviewClients
    source: PolicySource
    stages: CandidateStages
    store: Store
    settings: ExtenderSettings


async def _choose_parts(options: dict[str, Any], config_text: str | None) -> _Parts:
    """The parts that the flags configure. Raises for wrong flags."""
    file = str(options["config"])
    if config_text is not None:
        require_usable_at_start(decode_configuration(config_text, file), options["policies"])
    address = listen_address(options["address"], "--address")
    secure = chosen_secure(options, client_ca=False)
    settings = ExtenderSettings(
        address=address,
        secure=secure,
        local_port=options["local_port"],
        tls=_tls(options),
        watches=options["watch"],
        most_watch_age=options["max_watch_age"],
        most_body_bytes=options["max_body_mib"] * MIB,
        when_no_policies=options["when_no_policies"],
        when_unread=options["when_unread"],
        emulated_minor=options["emulated_version"],
    )
    stages = make_extender_stages(
        config_text, file, with_builtins=options["builtin"], watches=options["watch"]
    )
    # The client is created last: it holds connections, which an error would have to close.
    client: ApiClient | None = None
    names_cluster = options["kubeconfig"] is not None or options["context"] is not None
    if options["watch"] or names_cluster or options["policies"].startswith(CONFIGMAP_PREFIX):
        client = await connect(options["kubeconfig"], options["context"])
    source, store = choose_source(options["policies"], client, options["state_dir"])
    return _Parts(client, await chosen_reviewers(options, client), source, stages, store, settings)


def _tls(options: dict[str, Any]) -> ServerTls | None:
    cert, key = options["tls_cert_file"], options["tls_private_key_file"]
    if (cert is None) != (key is None):
        raise click.UsageError("want both --tls-cert-file and --tls-private-key-file, or neither")
    if cert is None:
        if options["client_ca_file"] is not None:
            raise click.UsageError("--client-ca-file needs --tls-cert-file")
        return None
    tls = ServerTls(cert, key, options["client_ca_file"])
    try:
        tls.context()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot use the certificate: {error}") from error
    return tls
