"""The way to the scheduler that leads, and requests on it with the credentials of the caller.

Owns which ways there are, and their order: an address that is given; else the pod that the Lease
names, through the API server as `kubectl port-forward` goes, first to its local port, then to its
secure one; else the address that the Lease names. On the secure port the caller proves who it is,
by what the kubeconfig has or by a token of a ServiceAccount, once the port has proved that it is
the scheduler's.
"""

import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import aiohttp
import msgspec
from aiohttp import hdrs
from yarl import URL

from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint, TlsContext
from engine.io.kube.errors import ApiError, Forbidden, KubeConfigError, NotFound
from engine.io.kube.resources import CONFIG_MAPS
from engine.lib.deep_json import UNREADABLE
from engine.surfaces.cli.cluster_option import connect
from workbench.leader_lease import LeaderLease, NoLeader, read_lease
from workbench.port_forward import PodConnector
from workbench.service_account_token import ServiceAccountToken

#: What the manifests of `deploy/` set.
LOCAL_PORT: Final = 10260
#: kube-scheduler's.
_SECURE_PORT: Final = 10259
_DEFAULT_KEY: Final = "ca.crt"
_CONNECT_SECONDS: Final = 10.0
#: Streams are never silent for longer.
_SILENT_SECONDS: Final = 60.0
_UNAUTHORIZED: Final = 401

_CHOICES: Final = (
    "name its authority with --certificate-authority FILE or --ca-configmap NAMESPACE/NAME, or "
    "skip the check with --insecure-skip-tls-verify"
)
_TO_SAY: Final = (
    "--server https://HOST:10259 names a secure port that can be reached from here; "
    "--lease, --leader-namespace and --leader-port say where the pod is"
)


class CannotAsk(Exception):
    """The leader could not be asked; the text says why, and *hint* what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class LeaderAt:
    """Which leader is asked, and how it is known and asked, as the options say.

    Attributes:
        kubeconfig, context: The cluster.
        server: URL of its endpoints; "" to find it by its Lease.
        lease: `namespace/name`; "" for where it usually is.
        namespace: Of its pod; "" for that of the manifests.
        port: The local port of its pod.
        service_account: `namespace/name` of the one whose token is sent to the secure port; "" for
            the credentials of the kubeconfig.
        authority: PEM file of the authorities of the secure port's certificate.
        authority_map: `namespace/name/key` of a ConfigMap that has them.
        insecure: Take any certificate.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    server: str = ""
    lease: str = ""
    namespace: str = ""
    port: int = LOCAL_PORT
    service_account: str = ""
    authority: Path | None = None
    authority_map: str = ""
    insecure: bool = False


class Authorization(Protocol):
    """Gives the `Authorization` header of requests."""

    async def authorization(self, *, rejected: str | None = None) -> str | None:
        """Its value, or None for none; *rejected* was answered with 401."""
        ...


class Way:
    """A way to a scheduler.

    Attributes:
        base: URL of its endpoints, without a path.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base: str,
        authorization: Authorization | None,
        *,
        is_current: Callable[[], Awaitable[bool]] | None = None,
        connector: PodConnector | None = None,
    ) -> None:
        self._session = session
        self.base = base
        self._authorization = authorization
        self._is_current = is_current
        self._connector = connector

    async def is_current(self) -> bool:
        """False if a Lease led here, and names another leader by now."""
        return self._is_current is None or await self._is_current()

    @property
    def is_direct(self) -> bool:
        """False through the API server."""
        return self._connector is None

    @contextlib.asynccontextmanager
    async def get(
        self, target: str, headers: Mapping[str, str], *, method: str = hdrs.METH_GET
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer at *target* (path and query); the body is as it was sent.

        Raises `CannotAsk`, or `ApiError` where it is the API server that refuses.
        """
        value = await self._authorization.authorization() if self._authorization else None
        for is_last in (False, True):
            try:
                response = await self._request(method, target, headers, value)
            except ApiError:
                raise
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._failed(error) from error
            async with response:
                if response.status == _UNAUTHORIZED and self._authorization and not is_last:
                    fresh = await self._authorization.authorization(rejected=value or "")
                    if fresh != value:
                        value = fresh
                        continue
                yield response
                return

    async def check(self) -> None:
        """Return if something answers, and proves who it is; nothing secret is sent.

        Raises `CannotAsk` and `ApiError`.
        """
        try:
            async with await self._request(hdrs.METH_GET, "/livez", {}, None):
                return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._failed(error) from error

    async def _request(
        self, method: str, target: str, headers: Mapping[str, str], authorization: str | None
    ) -> aiohttp.ClientResponse:
        sent = dict(headers)
        if authorization is not None:
            sent[hdrs.AUTHORIZATION] = authorization
        url = URL(self.base + target, encoded=True)
        return await self._session.request(method, url, headers=sent, allow_redirects=False)

    def _failed(self, error: Exception) -> CannotAsk:
        cause: BaseException | None = error
        while cause is not None:
            # aiohttp's own error is one of those too, without what OpenSSL says.
            if isinstance(cause, ssl.SSLCertVerificationError) and not isinstance(
                cause, aiohttp.ClientError
            ):
                what = cause.verify_message
                return CannotAsk(f"the certificate of {self.base} is not trusted: {what}", _CHOICES)
            cause = cause.__cause__ or cause.__context__
        said = self._connector.failure if self._connector is not None else ""
        return CannotAsk(said or str(error) or type(error).__name__)


@contextlib.asynccontextmanager
async def leader_way(where: LeaderAt) -> AsyncIterator[Way]:
    """The way to the leader, open.

    Raises `CannotAsk`, `ApiError` where the API server refuses, `KubeConfigError`.
    """
    async with contextlib.AsyncExitStack() as stack:
        if where.server and not where.server.startswith("https:"):
            # A port that is forwarded already: it asks for no credentials, and gets none.
            yield Way(await _session(stack, aiohttp.TCPConnector()), where.server, None)
            return
        client = await stack.enter_async_context(await connect(where.kubeconfig, where.context))
        search = _Search(where, client, stack)
        yield await (search.to_server() if where.server else search.to_leader())


class _Search:
    """Tries the ways to a leader; what it opens, *stack* closes."""

    def __init__(
        self, where: LeaderAt, client: ApiClient, stack: contextlib.AsyncExitStack
    ) -> None:
        self._where = where
        self._client = client
        self._stack = stack
        self._authorization: Authorization = client.credentials
        if where.service_account:
            namespace, _, name = where.service_account.partition("/")
            self._authorization = ServiceAccountToken(client, namespace, name)

    async def to_server(self) -> Way:
        """The way to the address that is given."""
        where, lease = self._where, None
        with contextlib.suppress(ApiError, NoLeader):
            lease = await read_lease(self._client, where.lease, where.namespace)
        is_leaders = lease is not None and _same_place(lease.page.address, where.server)
        tls = await self._tls(lease if is_leaders else None)
        way = await self._direct(where.server, tls)
        await way.check()
        return way

    async def to_leader(self) -> Way:
        """The way to the pod, or else to the address, that the Lease names."""
        try:
            lease = await read_lease(self._client, self._where.lease, self._where.namespace)
        except NoLeader as error:
            raise CannotAsk(str(error), _WITHOUT_LEADER) from error
        failures: list[str] = []
        hint = ""
        missing: list[str] = []
        for namespace, pod in lease.pods:
            try:
                return await self._through_api_server(lease, namespace, pod, failures)
            except NotFound:
                missing.append(f"`{pod}` is no pod of namespace `{namespace}`")
            except Forbidden:
                failures.append(
                    "forwarding needs the right to get and create `pods/portforward` in namespace "
                    f"`{namespace}`"
                )
            except CannotAsk as error:
                failures.append(str(error))
                hint = hint or error.hint
        if len(missing) == len(lease.pods):
            failures.insert(
                0,
                f"the Lease names `{lease.pods[0][1]}`, and that is no pod of namespace "
                f"`{lease.pods[0][0]}`: another scheduler leads, or --leader-namespace is to be "
                "given",
            )
        if lease.page.address.startswith("https:") and not _is_loopback(lease.page.address):
            try:
                way = await self._direct(lease.page.address, await self._tls(lease), lease)
                await way.check()
                return way
            except CannotAsk as error:
                failures.append(f"{lease.page.address}: {error}")
                hint = hint or error.hint
        raise CannotAsk(
            "; ".join(dict.fromkeys(failures)) + f" (the Lease `{lease.name}` was last renewed at "
            f"{lease.renewed or 'an unknown time'})",
            hint or _TO_SAY,
        )

    async def _through_api_server(
        self, lease: LeaderLease, namespace: str, pod: str, failures: list[str]
    ) -> Way:
        """The way to the local port of a pod, or to its secure port if it has no local one."""
        connector = PodConnector(self._client, namespace, pod, self._where.port)
        session = await _session(self._stack, connector)
        leads = partial(self._leads, lease.holder)
        way = Way(session, "http://localhost", None, is_current=leads, connector=connector)
        try:
            await way.check()
            return way
        except CannotAsk as error:
            failures.append(f"pod `{namespace}/{pod}`, port {self._where.port}: {error}")
        page = URL(lease.page.address)
        port = page.port if page.scheme == "https" and page.port else _SECURE_PORT
        connector = PodConnector(
            self._client,
            namespace,
            pod,
            port,
            tls=await self._tls(lease),
            tls_name=page.host or "localhost",
        )
        session = await _session(self._stack, connector)
        way = Way(
            session,
            f"https://localhost:{port}",
            self._authorization,
            is_current=leads,
            connector=connector,
        )
        try:
            await way.check()
        except CannotAsk as error:
            raise CannotAsk(f"pod `{namespace}/{pod}`, port {port}: {error}", error.hint) from error
        return way

    async def _direct(
        self, server: str, tls: ssl.SSLContext, lease: LeaderLease | None = None
    ) -> Way:
        session = await _session(self._stack, aiohttp.TCPConnector(ssl=tls))
        is_current = None if lease is None else partial(self._leads, lease.holder)
        return Way(session, server.rstrip("/"), self._authorization, is_current=is_current)

    async def _leads(self, holder: str) -> bool:
        """False if the Lease names another holder; as far as it can be read."""
        with contextlib.suppress(ApiError, NoLeader):
            lease = await read_lease(self._client, self._where.lease, self._where.namespace)
            return lease.holder == holder
        return True

    async def _tls(self, lease: LeaderLease | None) -> ssl.SSLContext:
        """How the secure port is known: *lease* may name its certificate. Raises `CannotAsk`."""
        where, cluster = self._where, self._client.credentials.endpoint
        authority = None if where.authority is None else str(where.authority)
        text = await self._authority_text() if where.authority_map else None
        pinned = None
        if not (authority or text or where.insecure) and lease is not None:
            pinned = lease.page.certificate or None
        # A certificate of the kubeconfig's user would count for more than a token.
        is_user = not where.service_account
        try:
            context = TlsContext(
                Endpoint(
                    server="",
                    ca_file=authority,
                    ca_data=text or pinned,
                    cert_file=cluster.cert_file if is_user else None,
                    key_file=cluster.key_file if is_user else None,
                    insecure=where.insecure,
                )
            ).context
        except KubeConfigError as error:
            raise CannotAsk(str(error)) from error
        if pinned:
            # This certificate and no other is trusted, whatever names are in it.
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        elif not (authority or text) and cluster.ca_file:
            # The cluster's own authority may have signed it, as kubeadm's users let it.
            context.load_verify_locations(cluster.ca_file)
        return context

    async def _authority_text(self) -> str:
        where = self._where.authority_map
        namespace, name, *rest = where.split("/")
        key = rest[0] if rest else _DEFAULT_KEY
        found = await self._client.get(CONFIG_MAPS, name, namespace)
        try:
            data = msgspec.json.decode(found).get("data") or {}
        except UNREADABLE as error:
            raise CannotAsk(f"ConfigMap `{namespace}/{name}` could not be read") from error
        if key not in data:
            has = ", ".join(f"`{one}`" for one in sorted(data)) or "none"
            raise CannotAsk(f"ConfigMap `{namespace}/{name}`: want the key `{key}`, it has {has}")
        return str(data[key])


_WITHOUT_LEADER: Final = (
    "see `kubectl get leases -A` and the logs of the scheduler's pods; --lease names another Lease"
)


async def _session(
    stack: contextlib.AsyncExitStack, connector: aiohttp.BaseConnector
) -> aiohttp.ClientSession:
    if isinstance(connector, PodConnector):
        stack.push_async_callback(connector.stop)
    return await stack.enter_async_context(
        aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=(hdrs.ACCEPT_ENCODING,),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS
            ),
        )
    )


def _is_loopback(address: str) -> bool:
    host = URL(address).host or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _same_place(one: str, other: str) -> bool:
    """True if two addresses name the same host and port; all names of this host are one."""
    if not one or not other or URL(one).port != URL(other).port:
        return False
    return URL(one).host == URL(other).host or (_is_loopback(one) and _is_loopback(other))
