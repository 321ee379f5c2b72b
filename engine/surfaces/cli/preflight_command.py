"""`starsched preflight`: what a scheduler needs of its cluster and its files, before it runs.

Owns the flags, which are those of `run`, and the checks of files: configuration, policies,
certificates. Those of the cluster are `engine.surfaces.preflight`'s.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from engine.core.framework.extender import Extender
from engine.io.endpoints.caller_trust import LOOKUP_NAME, LOOKUP_NAMESPACE
from engine.io.endpoints.server import SecureSettings
from engine.io.kube.errors import KubeConfigError
from engine.io.kube.resources import CONFIG_MAPS
from engine.policy.bundle import Bundle
from engine.policy.errors import PolicyErrors, Problem
from engine.rollout.last_resort import BUILTIN
from engine.rollout.sources import NO_FILES
from engine.rollout.trial import CandidateStages, Rejected
from engine.surfaces.cli.endpoint_options import chosen_secure
from engine.surfaces.cli.go_flags import GoFlagsCommand
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX, read_config
from engine.surfaces.cli.run_command import Parts, choose_parts, run_command
from engine.surfaces.cli.serving import read_source
from engine.surfaces.cli.working import working
from engine.surfaces.preflight.certificates import certificate, trusted
from engine.surfaces.preflight.checks import ClusterChecks
from engine.surfaces.preflight.findings import (
    FINE,
    UNCHECKED,
    Finding,
    State,
    as_json,
    as_text,
    exit_code,
    for_a_start,
)
from engine.surfaces.preflight.rights import Objects, granting, rights_of_policies
from engine.telemetry.logs import configure_logging

#: What the printed roles and bindings are called.
RULES_NAME: Final = "starsched-preflight"

#: Flags of `run` that say what is checked; the others are taken, and have no part in it.
_SHOWN: Final = frozenset(
    {
        "kubeconfig",
        "context",
        "master",
        "policies",
        "config",
        "state_dir",
        "leader_elect",
        "leader_elect_resource_name",
        "leader_elect_resource_namespace",
        "secure_port",
        "tls_cert_file",
        "tls_private_key_file",
        "tls_sni_cert_key",
        "client_ca_file",
        "requestheader_client_ca_file",
        "authentication_skip_lookup",
    }
)
_LEFT_OUT: Final = frozenset({"version", "write_config_to"})


def _flags_of_run() -> Iterator[click.Parameter]:
    for option in run_command.params:
        if option.name in _LEFT_OUT:
            continue
        if isinstance(option, click.Option) and option.name not in _SHOWN:
            option = copy.copy(option)
            option.hidden = True
        yield option


@click.command(
    "preflight",
    cls=GoFlagsCommand,
    short_help="Check what a scheduler needs, before it runs.",
    params=list(_flags_of_run()),
)
@click.option(
    "--at-start",
    is_flag=True,
    help="Fail for nothing but what a scheduler that is about to start would lack: policies are "
    "not tested, and what could not be checked passes, since a scheduler waits for it.",
)
@output_option("Format of the findings.")
def preflight_command(output: str, at_start: bool, **options: Any) -> None:
    """Check rights, API versions, lease, configuration, policies, certificates and clocks.

    Takes the flags of `starsched run`, and checks what a scheduler with them would need, as the
    account that it would have: run it with the same kubeconfig, or in a pod of the same
    ServiceAccount. It only reads. What is missing is printed with what mends it, for rights as
    YAML to apply. What could not be checked is listed as `unknown`, and is never fine.

    Exit codes: 0 nothing is missing, 1 something is missing, 2 wrong usage, 3 nothing is known to
    be missing, but something could not be checked: the API server was not reached, say. With
    `--at-start` there is no 3.

    \b
    Examples:
      starsched preflight --policies configmap:starsched/starsched-policies
      starsched preflight --kubeconfig scheduler.conf --config config.yaml --output json
      kubectl -n starsched exec deployment/starsched -- starsched preflight \\
        --policies=configmap:starsched/starsched-policies
    """
    configure_logging(verbosity=min(options["verbosity"], -1), log_format="text")
    secure = chosen_secure(options)
    with working("checking"):
        findings, user = asyncio.run(_check(options, secure, tests=not at_start))
    if at_start:
        findings = for_a_start(findings)
    code = exit_code(findings)
    if at_start and code == UNCHECKED:
        code = FINE
    missing = [one.right for one in findings if one.state is State.MISSING and one.right]
    rules = granting(missing, user or "NAME-OF-THE-ACCOUNT", RULES_NAME)
    if output == "json":
        print_json(as_json(findings, rules, code))
    else:
        click.echo(as_text(findings, rules), nl=False)
    raise SystemExit(code)


async def _check(
    options: dict[str, Any], secure: SecureSettings | None, *, tests: bool
) -> tuple[list[Finding], str]:
    """All findings, and who the API server says that this is."""
    config: Path | None = options["config"]
    config_text = None if config is None else read_config(config)
    findings: list[Finding] = []
    parts = None
    try:
        try:
            parts = await choose_parts(options, config_text, secure, {})
        except PolicyErrors as errors:
            findings += _problems("configuration", errors.problems)
            parts = await choose_parts({**options, "config": None}, None, secure, {})
        else:
            if config is not None:
                findings.append(Finding("configuration", str(config), State.OK))
    except KubeConfigError as error:
        findings.append(Finding("API server", "credentials", State.MISSING, str(error)))
        return findings, ""
    try:
        checked, user = await check_parts(parts, options["policies"], secure, tests=tests)
        return [*findings, *checked], user
    finally:
        await parts.close()
        parts.stages.close()


async def check_parts(
    parts: Parts, policies: str, secure: SecureSettings | None, *, tests: bool = True
) -> tuple[list[Finding], str]:
    """What is found of a scheduler made of *parts*, and who the API server says that this is.

    Without *tests*, policies are read and checked alone.
    """
    now = parts.client.clock.now()
    checks = ClusterChecks(parts.client, _objects(parts, policies, secure))
    findings = await checks.run()
    accept = _accepted if tests else CandidateStages.build
    bundle, found = await _policies(parts, policies, findings, accept)
    findings += found
    endpoint = parts.client.credentials.endpoint
    if endpoint.ca_file:
        findings.append(trusted(Path(endpoint.ca_file), now))
    if endpoint.cert_file:
        key = None if endpoint.key_file is None else Path(endpoint.key_file)
        findings.append(certificate(Path(endpoint.cert_file), key, now))
    if secure is not None:
        findings += _served_certificates(secure, now)
    if bundle is not None:
        findings += await checks.reviewed(rights_of_policies(bundle))
        findings += _certificates_of(bundle.extenders, now)
    return findings, checks.user


def _objects(parts: Parts, policies: str, secure: SecureSettings | None) -> Objects:
    lease = parts.settings.lease
    of_map: tuple[str, str] | None = None
    if policies.startswith(CONFIGMAP_PREFIX):
        namespace, _, name = policies.removeprefix(CONFIGMAP_PREFIX).partition("/")
        of_map = namespace, name
    looks_up = secure is not None and secure.trust.looks_up
    return Objects(
        lease=None if lease is None else (lease.namespace, lease.name),
        policies=of_map,
        reviews_callers=secure is not None,
        authorities=(LOOKUP_NAMESPACE, LOOKUP_NAME) if looks_up else None,
        webhook=parts.settings.admission_webhook,
    )


# --- files ---------------------------------------------------------------------------------------


def _problems(check: str, problems: Iterable[Problem]) -> Iterator[Finding]:
    for problem in problems:
        state = State.MISSING if problem.severity == "error" else State.NOTE
        yield Finding(check, str(problem), state)


async def _policies(
    parts: Parts,
    policies: str,
    so_far: Iterable[Finding],
    accept: Callable[[CandidateStages, Any], Awaitable[Bundle]],
) -> tuple[Bundle | None, list[Finding]]:
    """The policies that are offered, if *accept* takes them, and what is found of them."""
    if policies.startswith(CONFIGMAP_PREFIX) and (why := _why_not_read(so_far)):
        return None, [Finding("policies", policies, State.UNKNOWN, why)]
    try:
        files = await read_source(parts.source)
    except PolicyErrors as errors:
        return None, list(_problems("policies", errors.problems))
    try:
        bundle = await accept(parts.stages, files)
    except Rejected as rejection:
        return None, list(_problems("policies", rejection.problems))
    detail = f"revision {bundle.revision}, {len(files)} files"
    state = State.OK
    if not files and policies != BUILTIN:
        state, detail = State.NOTE, f"{detail}: {NO_FILES}"
    found = [Finding("policies", policies, state, detail)]
    return bundle, [*found, *_problems("policies", bundle.warnings)]


def _why_not_read(findings: Iterable[Finding]) -> str:
    """Why the ConfigMap of the policies cannot be read, by what was found before; "" if it can."""
    for one in findings:
        if one.check == "API server" and one.state is not State.OK:
            return "the API server was not reached"
        is_about = one.right is not None and one.right.resource == CONFIG_MAPS
        if is_about and one.state is not State.OK and "policies" in one.detail:
            return f"no right to {one.subject}"
    return ""


async def _accepted(stages: CandidateStages, files: Any) -> Bundle:
    """The bundle of *files*, once it is checked, tested and loaded. Raises `Rejected`."""
    bundle = await stages.build(files)
    await stages.test(bundle, files)
    loaded = await stages.load(bundle, files)
    await asyncio.to_thread(loaded.close)
    return bundle


def _served_certificates(secure: SecureSettings, now: float) -> Iterator[Finding]:
    tls, trust = secure.tls, secure.trust
    if tls.cert_file is not None and tls.key_file is not None:
        yield certificate(tls.cert_file, tls.key_file, now)
    for named in tls.named:
        yield certificate(named.cert_file, named.key_file, now)
    for file in (trust.client_ca_file, trust.proxy_ca_file):
        if file is not None:
            yield trusted(file, now)


def _certificates_of(extenders: Iterable[Extender], now: float) -> Iterator[Finding]:
    """Files only: data was checked with the configuration."""
    for extender in extenders:
        tls = extender.tls
        if tls.cert_file and tls.key_file:
            yield certificate(Path(tls.cert_file), Path(tls.key_file), now)
        if tls.ca_file:
            yield trusted(Path(tls.ca_file), now)
