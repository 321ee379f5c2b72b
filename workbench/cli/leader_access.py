"""Asking the scheduler that leads: found through its Lease, reached through the API server.

Owns the way there, and what is said when it does not lead anywhere. The leader's pod is named in
the Lease; its local port is reached as `kubectl port-forward` reaches it, so that the cluster's
RBAC decides who may ask. `--server` names an address instead.
"""

import http.client
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import aiohttp
import click
import msgspec

from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, KubeConfigError, NotFound
from engine.io.kube.resources import LEASES
from engine.lib import event_loop
from engine.lib.deep_json import UNREADABLE
from engine.surfaces.cli import terminal
from engine.surfaces.cli.cluster_option import connect
from engine.surfaces.live.answers import Refusal
from workbench.port_forward import exchange_with_pod

Command = TypeVar("Command", bound=Callable[..., Any])
Record = TypeVar("Record", bound=msgspec.Struct)

#: Where a Lease is looked for: where the manifests of `deploy/` put it, and where it is without
#: any options.
_LEASES: Final = ("starsched/starsched", "kube-system/starsched", "kube-system/kube-scheduler")
#: Where the pods are, by a Lease in another namespace: the manifests that replace kube-scheduler.
_POD_NAMESPACES: Final = {"kube-system/kube-scheduler": "starsched"}
#: What the manifests of `deploy/` set.
LOCAL_PORT: Final = 10260
_SECONDS: Final = 15.0
_OK: Final = 200
_DEFAULT: Final = "default"
# How an identity ends that `make_identity` makes: the pod's name comes before it.
_UUID: Final = re.compile(r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class CannotAsk(Exception):
    """The leader could not be asked; the text says why."""


class Refused(Exception):
    """The leader answered that there is no answer."""

    def __init__(self, status: int, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.status = status
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class LeaderAt:
    """Which leader is asked, as the options say.

    Attributes:
        kubeconfig, context: The cluster.
        server: URL of its endpoints; "" to go through the API server.
        lease: `namespace/name`; "" for where it usually is.
        namespace: Of its pod; "" for that of the manifests.
        port: The local port of its pod.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    server: str = ""
    lease: str = ""
    namespace: str = ""
    port: int = LOCAL_PORT


def leader_options(function: Command) -> Command:
    """Add `--server`, `--lease`, `--leader-namespace` and `--leader-port` to a command."""
    function = click.option(
        "--leader-port",
        type=click.IntRange(1, 65535),
        default=LOCAL_PORT,
        show_default=True,
        help="The leader's --local-port.",
    )(function)
    function = click.option(
        "--leader-namespace",
        default="",
        metavar="NAMESPACE",
        help="The namespace of the leader's pod. Default: the Lease's; for kube-scheduler's, "
        f"{_POD_NAMESPACES['kube-system/kube-scheduler']}.",
    )(function)
    function = click.option(
        "--lease",
        default="",
        metavar="NAMESPACE/NAME",
        help="The scheduler's Lease, which names the leader's pod. Default: "
        f"the first there is of {', '.join(_LEASES)}.",
    )(function)
    return click.option(
        "--server",
        default="",
        metavar="URL",
        help="The scheduler's endpoints, if a port is forwarded already. Default: through the API "
        "server to the leader's pod, as `kubectl port-forward`.",
    )(function)


def leader_at(options: Mapping[str, Any]) -> LeaderAt:
    """The leader that a command's options name."""
    return LeaderAt(
        options["kubeconfig"],
        options["context"],
        options["server"].rstrip("/"),
        options["lease"],
        options["leader_namespace"],
        options["leader_port"],
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
    except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
        raise CannotAsk(str(error) or type(error).__name__) from error
    try:
        if status != _OK:
            raise Refused(status, msgspec.json.decode(body, type=Refusal))
        return msgspec.json.decode(body, type=record)
    except UNREADABLE as error:
        text = body[:200].decode(errors="replace").strip()
        raise CannotAsk(f"status {status}, and no answer of a scheduler: `{text}`") from error


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
        without = f"\nhint: {hint}" if hint else ""
        raise click.ClickException(f"the scheduler could not be asked: {error}{without}") from error
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error


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


async def _asked(where: LeaderAt, target: str) -> tuple[int, bytes]:
    if where.server:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        headers = {"Accept": "application/json"}
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(where.server + target) as answer,
        ):
            return answer.status, await answer.read()
    async with await connect(where.kubeconfig, where.context) as client:
        namespace, pod = await _leader_pod(client, where)
        sent = (
            f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
            "Connection: close\r\n\r\n"
        )
        try:
            received = await exchange_with_pod(
                client, namespace, pod, where.port, sent.encode(), seconds=_SECONDS
            )
        except NotFound as error:
            raise CannotAsk(
                f"the Lease names `{pod}`, and that is no pod of namespace `{namespace}`: another "
                "scheduler leads, or --leader-namespace is to be given"
            ) from error
        return _parsed(received)


async def _leader_pod(client: ApiClient, where: LeaderAt) -> tuple[str, str]:
    """The namespace and name of the leader's pod. Raises `CannotAsk` if no Lease names one."""
    tried = (where.lease,) if where.lease else _LEASES
    for one in tried:
        namespace, _, name = one.rpartition("/")
        try:
            found = msgspec.json.decode(await client.get(LEASES, name, namespace or "kube-system"))
        except NotFound:
            continue
        holder = str((found.get("spec") or {}).get("holderIdentity") or "")
        pod = _UUID.sub("", holder)
        if not holder or pod == holder:
            raise CannotAsk(f"the Lease `{one}` names no pod: its holder is `{holder}`")
        named = f"{namespace or 'kube-system'}/{name}"
        return where.namespace or _POD_NAMESPACES.get(named, namespace or "kube-system"), pod
    raise CannotAsk(f"no Lease {' or '.join(f'`{one}`' for one in tried)}: no scheduler leads")


class _Bytes(io.BytesIO):
    """What `http.client` takes for a socket."""

    def makefile(self, *_: object) -> io.BytesIO:
        return self


def _parsed(received: bytes) -> tuple[int, bytes]:
    answer = http.client.HTTPResponse(_Bytes(received))  # type: ignore[arg-type]  # reads only
    try:
        answer.begin()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise CannotAsk(f"the pod's port does not speak HTTP: {type(error).__name__}") from error


def say_why_a_copy(error: Exception) -> None:
    """Note on standard error that the leader did not answer."""
    terminal.echo(
        f"note: the scheduler could not be asked ({error}); explained on a copy of the cluster",
        err=True,
    )
