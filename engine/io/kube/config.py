"""The address of the API server and the credentials to use.

Owns the configuration and its refresh: kubeconfig files (tokens, token files, client certificates,
exec plugins, OIDC) and the in-cluster files, both read by the `kubernetes` package. Owns no
connection. Secrets stay out of every repr and message.
"""

import asyncio
import inspect
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import structlog
import yaml
from yarl import URL

from engine.io.kube.errors import KubeConfigError, NoKubeConfig
from engine.lib.certificates import show_certificate
from engine.lib.clock import Clock, SystemClock
from engine.lib.files import Stamp, stamp_of

log = structlog.get_logger(__name__)

#: How long a credential is used before its source is read again. Kubelets renew a mounted token
#: at 80 % of its life (an hour or more), so a minute late is early enough.
REFRESH_SECONDS = 60.0
#: The least time between two readings of a credential that the server rejects.
REJECTED_REFRESH_SECONDS = 1.0
#: How long a request waits for a refresh; the refresh goes on. Plugins may hang.
REFRESH_PATIENCE = 5.0

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Endpoint:
    """An API server and fixed credentials, for callers that know them.

    Attributes:
        server: URL, such as `https://127.0.0.1:6443`.
        token: Bearer token, or None.
        ca_file: PEM file of the authorities to trust; None for the system's.
        ca_data: The same as PEM text.
        cert_file: PEM file of the client certificate.
        key_file: PEM file of its key.
        tls_server_name: Name to expect in the server's certificate instead of the URL's host.
        insecure: Skip the verification of the server's certificate.
        proxy: URL of an HTTP proxy.
    """

    server: str
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    ca_data: str | None = field(default=None, repr=False)
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    proxy: str | None = field(default=None, repr=False)


class Credentials(Protocol):
    """The source of the `Authorization` header and of the client certificate."""

    @property
    def endpoint(self) -> Endpoint:
        """Where the server is. Its token may be outdated or absent: ask *authorization*."""
        ...

    @property
    def is_due(self) -> bool:
        """True if *authorization* would read its source again before it answers."""
        ...

    @property
    def header(self) -> str | None:
        """What *authorization* answers while it is not due."""
        ...

    async def authorization(self, *, rejected: str | None = None) -> str | None:
        """The header's value, as current as its source.

        Args:
            rejected: The value ("" for none) that the server just answered with 401, so that no
                expiry date is trusted. None when there was no such answer.
        """
        ...


class FixedCredentials:
    """Credentials that never change."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.is_due = False
        self.header = f"Bearer {endpoint.token}" if endpoint.token else None

    async def authorization(self, *, rejected: str | None = None) -> str | None:
        """The bearer token, if there is one."""
        return self.header


class Redirected:
    """The credentials of another source, for the server at *server*."""

    def __init__(self, credentials: Credentials, server: str) -> None:
        self._credentials = credentials
        self._server = server

    @property
    def endpoint(self) -> Endpoint:
        """The other source's, at the other address."""
        return replace(self._credentials.endpoint, server=self._server)

    @property
    def is_due(self) -> bool:
        """As the other source says."""
        return self._credentials.is_due

    @property
    def header(self) -> str | None:
        """As the other source says."""
        return self._credentials.header

    async def authorization(self, *, rejected: str | None = None) -> str | None:
        """As the other source says."""
        return await self._credentials.authorization(rejected=rejected)


class _ConfiguredCredentials:
    """Credentials of a `kubernetes` Configuration, read again by its loader when old or rejected.

    One refresh at a time; requests go on with the old value while it runs, except the one that
    began it and those that the server rejected: they wait for at most *patience* seconds.
    """

    def __init__(self, configuration: Any, loader: Any, clock: Clock, patience: float) -> None:
        self._configuration = configuration
        self._loader = loader
        self._clock = clock
        self._patience = patience
        self._refreshing: asyncio.Task[None] | None = None
        self._header: str | None = None
        self._read_at = clock.monotonic()
        self._take()

    @property
    def endpoint(self) -> Endpoint:
        """Server and certificate files as last loaded."""
        return self._endpoint

    @property
    def is_due(self) -> bool:
        """True if the source is to be read again and no task does so yet."""
        return self._is_old and not self._is_refreshing

    @property
    def header(self) -> str | None:
        """The header's value as last read."""
        return self._header

    async def authorization(self, *, rejected: str | None = None) -> str | None:
        """The header's value; the source is read again when it is old or was rejected."""
        if rejected is None and not self.is_due:
            return self._header
        until = asyncio.get_running_loop().time() + self._patience
        await self._finish(until)
        # Many requests are rejected at once: the first one refreshes for all of them.
        is_stale = self._is_old if rejected is None else self._may_replace(rejected)
        if is_stale and not self._is_refreshing:
            self._read_at = self._clock.monotonic()
            self._refreshing = asyncio.ensure_future(
                self._refresh(was_rejected=rejected is not None)
            )
        await self._finish(until)
        return self._header

    async def _finish(self, until: float) -> None:
        """Wait for the refresh that is under way, if there is one; by the loop's time, *until*."""
        if self._refreshing is not None and self._is_refreshing:
            left = max(0.0, until - asyncio.get_running_loop().time())
            await asyncio.wait({self._refreshing}, timeout=left)

    @property
    def _is_refreshing(self) -> bool:
        return self._refreshing is not None and not self._refreshing.done()

    @property
    def _is_old(self) -> bool:
        return self._clock.monotonic() - self._read_at >= REFRESH_SECONDS

    def _may_replace(self, rejected: str) -> bool:
        """Whether a rejected credential may be fetched again; plugins may be slow programs."""
        since = self._clock.monotonic() - self._read_at
        return rejected == (self._header or "") and since >= REJECTED_REFRESH_SECONDS

    async def _refresh(self, *, was_rejected: bool) -> None:
        loader = self._loader
        if was_rejected:
            # An exec plugin's token counts as good until its expiry date unless we forget it.
            vars(loader).pop("exec_plugin_expiry", None)
        elif _runs_plugin_without_expiry(loader):
            return  # its answer is good until rejected, as in kubectl
        try:
            loading = loader.load_and_set(self._configuration)
            if inspect.isawaitable(loading):  # of a kubeconfig, not of the in-cluster files
                async with asyncio.timeout(REFRESH_SECONDS):
                    await loading
        except Exception as error:
            # Whatever a plugin or a half-written file raises: the old credential may still be
            # good, and if not, the server's 401 says so. The message could quote the source.
            log.warning("Could not refresh credentials", reason=type(error).__name__)
        self._take()

    def _take(self) -> None:
        c = self._configuration
        self._endpoint = Endpoint(
            server=c.host,
            ca_file=c.ssl_ca_cert or None,
            cert_file=c.cert_file or None,
            key_file=c.key_file or None,
            tls_server_name=c.tls_server_name or None,
            insecure=not c.verify_ssl,
            proxy=c.proxy or None,
        )
        scheme, _, secret = (c.api_key.get("BearerToken") or "").partition(" ")
        # Token files end in a newline, which no header may contain.
        header = f"{scheme.capitalize()} {secret.strip()}" if secret.strip() else None
        if self._header is not None and (header is None or not header.isprintable()):
            # A file that was damaged, or is being written. Without a credential the server treats
            # us as anonymous, and forbids rather than asks for another.
            why = "no token" if header is None else "control characters in the token"
            log.warning("Could not refresh credentials", reason=why)
            return
        self._header = header


def _has_plugin(loader: Any) -> bool:
    user = getattr(loader, "_user", None)
    return user is not None and "exec" in user


def _runs_plugin_without_expiry(loader: Any) -> bool:
    return _has_plugin(loader) and not hasattr(loader, "exec_plugin_expiry")


async def kubeconfig_credentials(
    path: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    clock: Clock | None = None,
    patience: float = REFRESH_PATIENCE,
) -> Credentials:
    """Credentials of a kubeconfig.

    Args:
        path: The file; None for `$KUBECONFIG` (several files may be joined with `:`) or
            `~/.kube/config`.
        context: The context to use; None for the file's current one.
        clock: Decides when the source is read again.
        patience: Seconds that a request waits for credentials that are being read.

    Raises `KubeConfigError` if there is no such file or context, or it cannot be used.
    """
    # Imported late: it takes most of a second of CPU, which what talks to no cluster is spared.
    _have_a_home()
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import kube_config

    where = _kubeconfig_path(path)
    configuration = Configuration()
    try:
        loader = await kube_config.load_kube_config(  # type: ignore[no-untyped-call]  # not annotated
            config_file=where,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
        await _prefer_token_file(loader, configuration)
    except Exception as error:
        # The package raises ConfigException for some mistakes in the file, and KeyError,
        # TypeError, YAMLError, OSError for others. Nothing of the file is quoted: keep its secrets
        # out of tracebacks too.
        raise KubeConfigError(f"kubeconfig {where}: {_reason(error)}") from None
    if _has_plugin(loader) and not configuration.api_key and not configuration.cert_file:
        # The package logs what went wrong and goes on without; every request would be refused.
        raise KubeConfigError(f"kubeconfig {where}: the exec plugin gave no credential")
    return _ConfiguredCredentials(configuration, loader, clock or SystemClock(), patience)


async def _prefer_token_file(loader: Any, configuration: Any) -> None:
    """For a user with a token and a token file, use the file, which is renewed.

    The package takes the token. As in client-go, it is good as long as there is no file.
    """
    user = getattr(loader, "_user", None)
    if user is None or "token" not in user or "tokenFile" not in user:
        return
    token = user.value.pop("token")
    try:
        await loader.load_and_set(configuration)
    except OSError:
        user.value["token"] = token


def _have_a_home() -> None:
    """Set the home directory that container engines use for a user id without an entry in passwd.

    The package fails to be imported without one, also where no file of it is wanted.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def _kubeconfig_path(path: str | os.PathLike[str] | None) -> str:
    where = os.fspath(path or os.environ.get("KUBECONFIG") or "~/.kube/config")
    parts = [Path(part).expanduser() for part in where.split(os.pathsep) if part]
    try:
        is_there = any(part.exists() for part in parts)
    except OSError as error:
        raise KubeConfigError(f"kubeconfig {where}: {error}") from error
    if not is_there:
        raise NoKubeConfig(f"kubeconfig: no such file: {where}")
    return os.pathsep.join(map(str, parts))


def cluster_credentials(
    directory: str | os.PathLike[str] = SERVICE_ACCOUNT_DIR,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Credentials:
    """Credentials of the ServiceAccount that this pod runs as; its token file is read again.

    Raises `KubeConfigError` outside of a cluster.
    """
    _have_a_home()
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import config_exception, incluster_config

    configuration = Configuration()
    folder = Path(directory)
    loader = incluster_config.InClusterConfigLoader(  # type: ignore[no-untyped-call]  # not annotated
        token_filename=str(folder / "token"),
        cert_filename=str(folder / "ca.crt"),
        try_refresh_token=False,  # we read it again ourselves, also after a 401
        environ=os.environ if environ is None else environ,
    )
    try:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]  # not annotated
    except (config_exception.ConfigException, OSError) as error:
        raise KubeConfigError(f"not in a cluster: {_first_line(error)}") from error
    return _ConfiguredCredentials(configuration, loader, clock or SystemClock(), REFRESH_PATIENCE)


def _reason(error: Exception) -> str:
    """What is wrong with a kubeconfig, without quoting from it."""
    if isinstance(error, FileNotFoundError) and not _has_temporary_directory():
        return (
            "no directory is writable for what it has of certificates and keys\n"
            "hint: mount a /tmp, or name a directory in $TMPDIR"
        )
    if isinstance(error, yaml.YAMLError):
        mark = getattr(error, "problem_mark", None)
        return f"not YAML, see line {mark.line + 1}" if mark else "not YAML"
    if isinstance(error, UnicodeDecodeError):
        return "want UTF-8 text, got other bytes"
    if isinstance(error, AttributeError | IndexError | KeyError | TypeError):
        return "want an object with lists of `clusters`, `users` and `contexts`, got another form"
    # The package says what is missing "in ..." and then quotes the whole entry: cut there.
    return _first_line(error).split(" in ", 1)[0]


def _has_temporary_directory() -> bool:
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return False
    return True


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


class _ResumingContext(ssl.SSLContext):
    """A context whose connections resume the last session, if the server remembers it.

    The event loops know no sessions, but they ask the context for each connection's TLS object.
    """

    last_session: ssl.SSLSession | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As the base class, with a session."""
        if session is None:
            session = self.last_session
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class TlsContext:
    """The TLS settings for one server; follows certificates that are renewed on disk.

    The client's own, and the authorities to trust: those of a cluster are replaced under processes
    that run for months. A context only ever adds to what it trusts, so each renewal makes another.

    Handshakes after the first are resumptions: without certificates and signatures they cost both
    sides a fraction. A session belongs to the client certificate that it began with.

    Raises `KubeConfigError` if a certificate or key cannot be read.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._loaded = self._told = _stamp(endpoint)
        self.context = _trusting(endpoint)
        _show_certificate(self.context, endpoint)

    def follow(self, endpoint: Endpoint) -> None:
        """Load what is new in the files; connections opened later use it."""
        stamp = _stamp(endpoint)
        if stamp == self._loaded:
            return
        # Half-written by a renewal: go on with the ones we have, try again next time.
        try:
            context = _trusting(endpoint)
        except KubeConfigError as error:
            self._complain("Could not reload the certificate authority", stamp, error)
            return
        try:
            _show_certificate(context, endpoint)
        except KubeConfigError as error:
            self._complain("Could not reload the client certificate", stamp, error)
            return
        self.context, self._loaded = context, stamp

    def _complain(self, message: str, stamp: Stamp, error: KubeConfigError) -> None:
        """Warn, once per state of the files: they are checked again and again."""
        if stamp != self._told:
            self._told = stamp
            log.warning(message, reason=str(error))

    def remember(self, connection: ssl.SSLObject | None) -> None:
        """Let later connections resume the session of *connection*, which has been read from.

        Before that the server's ticket may not have arrived.
        """
        session = connection.session if connection is not None else None
        if session is not None and session.has_ticket:
            self.context.last_session = session


def _stamp(endpoint: Endpoint) -> Stamp:
    return stamp_of((endpoint.ca_file, endpoint.cert_file, endpoint.key_file))


def _trusting(endpoint: Endpoint) -> _ResumingContext:
    """A context that trusts the authorities of *endpoint*."""
    context = _ResumingContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host
    try:
        if endpoint.ca_file or endpoint.ca_data:
            context.load_verify_locations(endpoint.ca_file, cadata=endpoint.ca_data)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise KubeConfigError(
            f"certificate authority {endpoint.ca_file or 'data'}: {_first_line(error)}"
        ) from error
    # Python 3.13 turns on checks that clusters' own authorities often fail (a missing key
    # identifier) and that no other Kubernetes client makes.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if endpoint.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _show_certificate(context: ssl.SSLContext, endpoint: Endpoint) -> None:
    """Make *context* show the client certificate of *endpoint*, if it has one."""
    if endpoint.cert_file is None:
        return
    try:
        show_certificate(context, endpoint.cert_file, endpoint.key_file)
    except OSError as error:  # ssl.SSLError is one
        raise KubeConfigError(
            f"client certificate {endpoint.cert_file}: {_first_line(error)}"
        ) from error


def server_url(endpoint: Endpoint) -> URL:
    """The server's URL without a trailing slash or user info.

    Raises `KubeConfigError` if it is not an http or https URL.
    """
    try:
        url = URL(endpoint.server.rstrip("/"))
    except ValueError as error:
        raise KubeConfigError(f"server: want a URL, got `{endpoint.server}`") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise KubeConfigError(
            f"server: want a URL such as https://host:6443, got `{endpoint.server}`"
        )
    return url.with_user(None)
