"""Whose certificates prove who a caller is: files, or what the API server publishes for this.

Owns reading both again: authorities are renewed while processes run.
"""

import json
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from engine.core.model.objects import ConfigMap, decode
from engine.io.endpoints.authentication import ProxyHeaders, Trust
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError
from engine.io.kube.resources import CONFIG_MAPS
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE

log = structlog.get_logger(component="endpoints")

#: The ConfigMap in which the API server publishes its authorities.
LOOKUP_NAMESPACE: Final = "kube-system"
LOOKUP_NAME: Final = "extension-apiserver-authentication"
LOOKUP_SECONDS: Final = 60.0
_LOOKUP_TIMEOUT: Final = 10.0
_CANNOT_LOOK_UP: Final = "Could not look up the authorities of callers"
_CANNOT_RELOAD: Final = "Could not reload the authorities of callers"
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", re.DOTALL)


class CannotAuthenticate(Exception):
    """The authorities of callers cannot be read, and the settings say that they must be."""


@dataclass(frozen=True, slots=True)
class TrustSettings:
    """Where the authorities of callers come from.

    Attributes:
        client_ca_file: Of client certificates; None: looked up in the cluster.
        proxy_ca_file: Of front proxies; None: looked up, with the names of headers.
        headers: The headers of front proxies, with *proxy_ca_file*.
        skips_lookup: Look nothing up.
        tolerates_failure: Start without what could not be looked up, and try again.
    """

    client_ca_file: Path | None = None
    proxy_ca_file: Path | None = None
    headers: ProxyHeaders = field(default_factory=ProxyHeaders)
    skips_lookup: bool = False
    tolerates_failure: bool = True

    @property
    def looks_up(self) -> bool:
        """True if something has to be looked up in the cluster."""
        return not self.skips_lookup and None in (self.client_ca_file, self.proxy_ca_file)


class CallerTrust:
    """The authorities of callers as they are now. Raises `CannotAuthenticate` for a bad file."""

    def __init__(self, settings: TrustSettings, client: ApiClient | None, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._looked_up: dict[str, str] = {}
        self._looked_up_at: float | None = None
        self._complaints: dict[str, str] = {}
        self.current = self._read()

    async def refresh(self, *, must_find: bool = False) -> Trust:
        """Read files and, now and then, the cluster again; what cannot be read stays as it was.

        Raises `CannotAuthenticate` if *must_find* and the cluster does not say.
        """
        now = self._clock.monotonic()
        last = self._looked_up_at
        is_due = last is None or now - last >= LOOKUP_SECONDS
        if self._settings.looks_up and self._client is not None and is_due:
            self._looked_up_at = now
            await self._look_up(self._client, must_find=must_find)
        try:
            self.current = self._read()
            self._complain(_CANNOT_RELOAD, "")
        except CannotAuthenticate as error:
            self._complain(_CANNOT_RELOAD, str(error))
        return self.current

    async def _look_up(self, client: ApiClient, *, must_find: bool) -> None:
        where = f"ConfigMap {LOOKUP_NAMESPACE}/{LOOKUP_NAME}"
        try:
            body = await client.get(
                CONFIG_MAPS, LOOKUP_NAME, LOOKUP_NAMESPACE, timeout=_LOOKUP_TIMEOUT
            )
            found = decode(ConfigMap, body).data
        except (ApiError, *UNREADABLE) as error:
            if must_find:
                raise CannotAuthenticate(f"{where}: {error}") from error
            self._complain(_CANNOT_LOOK_UP, str(error))
            return
        self._complain(_CANNOT_LOOK_UP, "")
        self._looked_up = dict(found)

    def _read(self) -> Trust:
        settings, found = self._settings, self._looked_up
        if settings.client_ca_file is not None:
            clients = _certificates_of(settings.client_ca_file)
        else:
            clients = _certificates("client-ca-file", found.get("client-ca-file", ""))
        if settings.proxy_ca_file is not None:
            return Trust(clients, _certificates_of(settings.proxy_ca_file), settings.headers)
        key = "requestheader-client-ca-file"
        return Trust(clients, _certificates(key, found.get(key, "")), _published_headers(found))

    def _complain(self, message: str, reason: str) -> None:
        """Log the warning *message*, once as long as *reason* is the same; none if it is empty."""
        if reason and reason != self._complaints.get(message):
            log.warning(message, reason=reason)
        self._complaints[message] = reason


def _certificates_of(file: Path) -> frozenset[bytes]:
    try:
        text = file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise CannotAuthenticate(f"{file}: {error.strerror}") from error
    found = _certificates(str(file), text)
    if not found:
        raise CannotAuthenticate(f"{file}: want PEM certificates, got none")
    return found


def _certificates(where: str, text: str) -> frozenset[bytes]:
    """The certificates in PEM *text*, as DER."""
    try:
        found = frozenset(ssl.PEM_cert_to_DER_cert(pem) for pem in _PEM.findall(text))
        if found:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=b"".join(found))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CannotAuthenticate(f"{where}: want PEM certificates: {error}") from error
    return found


def _published_headers(data: dict[str, str]) -> ProxyHeaders:
    """The headers of front proxies as the API server publishes them: lists in JSON."""

    def names(key: str) -> tuple[str, ...]:
        try:
            read: Any = json.loads(data.get(key) or "[]")
        except ValueError:
            return ()
        return tuple(map(str, read)) if isinstance(read, list) else ()

    return ProxyHeaders(
        username=names("requestheader-username-headers"),
        uid=names("requestheader-uid-headers"),
        group=names("requestheader-group-headers"),
        extra_prefixes=names("requestheader-extra-headers-prefix"),
        allowed_names=names("requestheader-allowed-names"),
    )
