"""Asking the scheduler that leads: the options that say how, and what is said when it cannot be.

The way there is `workbench.leader_way`'s.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import click
import msgspec

from engine.io.kube.errors import ApiError, KubeConfigError, error_from_answer
from engine.lib import event_loop
from engine.lib.deep_json import UNREADABLE
from engine.surfaces.cli import terminal
from engine.surfaces.cli.cluster_option import connect
from engine.surfaces.live.answers import Refusal
from workbench.leader_lease import LEASE_NAMES, REPLACING
from workbench.leader_way import LOCAL_PORT, CannotAsk, LeaderAt, Way, leader_way

Command = TypeVar("Command", bound=Callable[..., Any])
Record = TypeVar("Record", bound=msgspec.Struct)

_SECONDS: Final = 30.0
_OK: Final = 200
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_DEFAULT: Final = "default"
_HEADERS: Final = {"Accept": "application/json"}
#: What is wrong with a refusal of the secure port, and what helps.
_HINTS: Final = {
    _UNAUTHORIZED: "its API server does not know these credentials, or they have run out; "
    "--service-account NAMESPACE/NAME has a token made",
    _FORBIDDEN: "the ClusterRole `starsched-viewer` has this right: bind the user, or the "
    "ServiceAccount of --service-account, to it",
}


class Refused(Exception):
    """The leader answered that there is no answer."""

    def __init__(self, status: int, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.status = status
        self.refusal = refusal


def _parts(least: int, most: int, want: str) -> Callable[..., str]:
    """Checks that a value has so many parts between slashes."""

    def check(_ctx: click.Context, _option: click.Parameter, text: str) -> str:
        parts = text.split("/")
        if text and not (least <= len(parts) <= most and all(parts)):
            raise click.BadParameter(f"want {want}, got `{text}`")
        return text

    return check


def _server(_ctx: click.Context, _option: click.Parameter, text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise click.BadParameter(f"want a URL such as `https://10.0.0.1:10259`, got `{text}`")
    return text.rstrip("/")


def leader_options(function: Command) -> Command:
    """Add the options that say which leader is asked, and how, to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS: Final = (
    click.option(
        "--server",
        default="",
        metavar="URL",
        envvar="STARSCHED_SERVER",
        show_envvar=True,
        callback=_server,
        help="The scheduler's endpoints: the secure port (`https:`), or one that is forwarded "
        "already (`http:`, without credentials). Default: the leader that the Lease names, "
        "through the API server to its pod, as `kubectl port-forward`, or else at its address.",
    ),
    click.option(
        "--service-account",
        default="",
        metavar="NAMESPACE/NAME",
        envvar="STARSCHED_SERVICE_ACCOUNT",
        show_envvar=True,
        callback=_parts(2, 2, "NAMESPACE/NAME"),
        help="Ask the secure port as this ServiceAccount, by a token of ten minutes that the API "
        "server makes. Default: with the kubeconfig's token or client certificate.",
    ),
    click.option(
        "--certificate-authority",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        envvar="STARSCHED_CERTIFICATE_AUTHORITY",
        show_envvar=True,
        help="PEM file of the authority that signed the secure port's certificate. Default: the "
        "certificate that the Lease names; for another address, the authorities of the cluster "
        "and of this host.",
    ),
    click.option(
        "--ca-configmap",
        default="",
        metavar="NAMESPACE/NAME[/KEY]",
        envvar="STARSCHED_CA_CONFIGMAP",
        show_envvar=True,
        callback=_parts(2, 3, "NAMESPACE/NAME or NAMESPACE/NAME/KEY"),
        help="The same, from a ConfigMap. KEY is `ca.crt` by default.",
    ),
    click.option(
        "--insecure-skip-tls-verify",
        is_flag=True,
        help="Take any certificate of the secure port: credentials may go to another server.",
    ),
    click.option(
        "--lease",
        default="",
        metavar="NAMESPACE/NAME",
        help="The scheduler's Lease, which names the leader's pod. Default: "
        f"the first there is of {', '.join(LEASE_NAMES)}.",
    ),
    click.option(
        "--leader-namespace",
        default="",
        metavar="NAMESPACE",
        help="The namespace of the leader's pod. Default: the Lease's; for kube-scheduler's, "
        f"{REPLACING}, then kube-system for a static pod.",
    ),
    click.option(
        "--leader-port",
        type=click.IntRange(1, 65535),
        default=LOCAL_PORT,
        show_default=True,
        help="The leader's --local-port. Without one, its secure port is asked.",
    ),
)


def leader_at(options: Mapping[str, Any]) -> LeaderAt:
    """The leader that a command's options name. Warns if it need not prove that it is."""
    given = ("certificate_authority", "ca_configmap", "insecure_skip_tls_verify")
    if sum(bool(options[name]) for name in given) > 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"want at most one of {names}")
    if options["insecure_skip_tls_verify"]:
        terminal.echo(
            "warning: the certificate of the scheduler is not verified "
            "(--insecure-skip-tls-verify): credentials may go to another server",
            err=True,
        )
    return LeaderAt(
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        server=options["server"],
        lease=options["lease"],
        namespace=options["leader_namespace"],
        port=options["leader_port"],
        service_account=options["service_account"],
        authority=options["certificate_authority"],
        authority_map=options["ca_configmap"],
        insecure=options["insecure_skip_tls_verify"],
    )


def ask_leader(
    where: LeaderAt, path: str, query: Mapping[str, str], record: type[Record]
) -> Record:
    """What the leader answers at *path*.

    Raises `CannotAsk`, `Refused` for its own refusals, `KubeConfigError`.
    """
    target = path + (f"?{urlencode(query)}" if query else "")
    try:
        status, body = event_loop.run(_asked(where, target))
    except ApiError as error:
        raise CannotAsk(str(error)) from error
    try:
        if status == _OK:
            return msgspec.json.decode(body, type=record)
        refusal = msgspec.json.decode(body, type=Refusal)
    except UNREADABLE as error:
        if status in _HINTS:
            said = error_from_answer(status, body).message
            raise CannotAsk(f"the secure port answers {status}: {said}", _HINTS[status]) from error
        text = body[:200].decode(errors="replace").strip()
        raise CannotAsk(f"status {status}, and no answer of a scheduler: `{text}`") from error
    raise Refused(status, refusal)


def answer_of(
    options: Mapping[str, Any],
    path: str,
    query: Mapping[str, str],
    record: type[Record],
    *,
    hint: str = "",
) -> Record:
    """What the leader that *options* name answers; the command ends if it does not.

    *hint* says how to do without.
    """
    try:
        return ask_leader(leader_at(options), path, query, record)
    except Refused as refused:
        refusal = f"\nhint: {refused.refusal.hint}" if refused.refusal.hint else ""
        raise click.ClickException(f"{refused}{refusal}") from refused
    except CannotAsk as error:
        raise cannot_ask(error, hint) from error
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error


def cannot_ask(error: CannotAsk, hint: str = "") -> click.ClickException:
    """The error of a command whose leader could not be asked; *hint* says how to do without."""
    hints = "".join(f"\nhint: {one}" for one in (error.hint, hint) if one)
    return click.ClickException(f"the scheduler could not be asked: {error}{hints}")


def namespace_of(where: LeaderAt, pod: str) -> str:
    """The namespace of the only pod of that name; `default` if there is none, or several.

    Raises `CannotAsk`, `KubeConfigError`.
    """
    if where.server:
        return _DEFAULT
    try:
        return event_loop.run(_namespace_of(where, pod))
    except ApiError as error:
        raise CannotAsk(str(error)) from error


async def _namespace_of(where: LeaderAt, pod: str) -> str:
    params = {"fieldSelector": f"metadata.name={pod}", "limit": "2"}
    async with await connect(where.kubeconfig, where.context) as client:
        found = msgspec.json.decode(await client.request("GET", "/api/v1/pods", params=params))
    items = found.get("items") or []
    return str(items[0]["metadata"]["namespace"]) if len(items) == 1 else _DEFAULT


async def leader_asked(where: LeaderAt, target: str) -> LeaderAt:
    """*where*, or the leader that a standby there names. Raises as `leader_way`."""
    if not where.server:
        return where  # the Lease names the leader
    async with _in_time(), leader_way(where) as way:
        leader = _leader_elsewhere(way, *await _answer(way, target))
        return replace(where, server=leader) if leader else where


async def _asked(where: LeaderAt, target: str) -> tuple[int, bytes]:
    async with _in_time():
        async with leader_way(where) as way:
            status, body = await _answer(way, target)
        leader = _leader_elsewhere(way, status, body)
        if not leader:
            return status, body
        # A standby was asked, and says who leads: the same authority has to vouch for that one.
        async with leader_way(replace(where, server=leader)) as way:
            return await _answer(way, target)


@contextlib.asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_SECONDS):
            yield
    except TimeoutError as error:
        raise CannotAsk(f"no answer within {_SECONDS:.0f} s") from error


async def _answer(way: Way, target: str) -> tuple[int, bytes]:
    async with way.get(target, _HEADERS) as answer:
        return answer.status, await answer.read()


def _leader_elsewhere(way: Way, status: int, body: bytes) -> str:
    """The address of the leader, if a standby that was asked directly names one; else ""."""
    if status == _OK or not way.is_direct or not way.base.startswith("https:"):
        return ""
    try:
        leader = msgspec.json.decode(body, type=Refusal).leader
    except UNREADABLE:
        return ""
    address = leader.address.rstrip("/") if leader is not None and not leader.is_us else ""
    return address if address.startswith("https:") and address != way.base else ""


def say_why_a_copy(error: Exception) -> None:
    """Note on standard error that the leader did not answer."""
    terminal.echo(
        f"note: the scheduler could not be asked ({error}); explained on a copy of the cluster",
        err=True,
    )
