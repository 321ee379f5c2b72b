"""Who sends a request: client certificates, front proxies and bearer tokens.

Owns the order, which is kube-scheduler's: the headers of a front proxy that proves itself, then the
client certificate, then the token. A request without any of them is
anonymous; one whose token is no good is refused.
"""

import hashlib
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import structlog
from aiohttp import hdrs, web
from multidict import CIMultiDictProxy

from engine.io.endpoints.callers import ANONYMOUS, User
from engine.io.endpoints.reviews import ReviewFailed, Reviews
from engine.io.endpoints.routes import Refused
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ServerError
from engine.lib.certificates import verified_chain
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE

log = structlog.get_logger(component="endpoints")

_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
# The subject's attribute that holds the uid of a user.
_UID_ATTRIBUTE: Final = "1.3.6.1.4.1.57683.2"


@dataclass(frozen=True, slots=True)
class ProxyHeaders:
    """The headers in which a front proxy names the user, and the proxies that may.

    Attributes:
        username, uid, group: Names of headers.
        extra_prefixes: What the names of headers with extra fields begin with.
        allowed_names: Common names of proxies; none: every one with a certificate.
    """

    username: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)
    allowed_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trust:
    """The authorities of callers, as DER certificates.

    Attributes:
        clients: Of client certificates that name a user.
        proxies: Of front proxies.
        headers: What is believed of a front proxy.
    """

    clients: frozenset[bytes] = frozenset()
    proxies: frozenset[bytes] = frozenset()
    headers: ProxyHeaders = field(default_factory=ProxyHeaders)

    @property
    def authorities(self) -> frozenset[bytes]:
        """All that a certificate may come from."""
        return self.clients | self.proxies


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: dict[str, Any] | None = None
    error: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _Token:
    """A bearer token as a question; equal tokens are equal, and none is printed."""

    __slots__ = ("_digest", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self._digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Token) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


class Authenticator:
    """Finds the user that sent a request.

    Args:
        client: The API server, which knows tokens; None: no token is good.
        token_seconds: How long its answer about a token is good.
        clock: Time.
    """

    def __init__(self, client: ApiClient | None, *, token_seconds: float, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.trust = Trust()
        self._tokens: Reviews[_Token, User | None] = Reviews(
            self._review, lambda _: token_seconds, clock
        )

    async def user_of(self, request: web.Request) -> User:
        """The user that sent *request*. Raises `Refused` if its credentials are no good."""
        user = self._user_of_connection(request)
        if user is None:
            token = _bearer_token(request)
            if token is None:
                return ANONYMOUS
            user = await self._user_of_token(token)
        return user.authenticated()

    def _user_of_connection(self, request: web.Request) -> User | None:
        transport = request.transport
        connection: ssl.SSLObject | None = (
            transport.get_extra_info("ssl_object") if transport is not None else None
        )
        if connection is None:
            return None
        chain = verified_chain(connection)
        if not chain or self._has_expired(connection):
            return None
        subject = _subject(connection)
        names = subject.get("commonName", [])
        trust = self.trust
        # The trust may have changed since the handshake: an authority that is gone proves nothing.
        if chain[-1] in trust.proxies:
            allowed = trust.headers.allowed_names
            if not allowed or any(name in allowed for name in names):
                user = _user_of_headers(request.headers, trust.headers)
                if user is not None:
                    return user
        if chain[-1] in trust.clients and names:
            digest = hashlib.sha256(chain[0]).hexdigest()
            return User(
                names[0],
                uid=next(iter(subject.get(_UID_ATTRIBUTE, [])), ""),
                groups=tuple(subject.get("organizationName", [])),
                extra=((_CREDENTIAL_ID, (f"X509SHA256={digest}",)),),
            )
        return None

    def _has_expired(self, connection: ssl.SSLObject) -> bool:
        """True if the certificate has run out since the connection was made."""
        certificate: Any = connection.getpeercert() or {}
        ends: str | None = certificate.get("notAfter")
        return ends is None or ssl.cert_time_to_seconds(ends) < self._clock.now()

    async def _user_of_token(self, token: str) -> User:
        try:
            user = await self._tokens.answer(_Token(token)) if token.isascii() else None
        except ReviewFailed as error:
            log.warning("Could not authenticate a caller", reason=str(error))
            user = None
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return user

    async def _review(self, token: _Token) -> User | None:
        if self._client is None:
            return None
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token.value},
        }
        body = await self._client.request("POST", _TOKEN_REVIEWS, body=msgspec.json.encode(review))
        try:
            status = msgspec.json.decode(body, type=_TokenReview).status
        except UNREADABLE as error:
            raise ServerError(f"want a TokenReview: {error}", request=_TOKEN_REVIEWS) from error
        if not status.authenticated or status.error or not status.user:
            return None
        return _user_of_review(status.user)


def _bearer_token(request: web.Request) -> str | None:
    scheme, _, rest = request.headers.get(hdrs.AUTHORIZATION, "").strip().partition(" ")
    token = rest.partition(" ")[0]
    return token if scheme.lower() == "bearer" and token else None


def _user_of_review(user: Mapping[str, Any]) -> User:
    return User(
        str(user.get("username", "")),
        str(user.get("uid", "")),
        tuple(map(str, user.get("groups") or ())),
        _sorted_extra(user.get("extra") or {}),
    )


def _user_of_headers(headers: CIMultiDictProxy[str], which: ProxyHeaders) -> User | None:
    name = _first(headers, which.username)
    if not name:
        return None
    extra: dict[str, list[str]] = {}
    for prefix in which.extra_prefixes:
        for header, value in headers.items():
            if header.lower().startswith(prefix.lower()):
                extra.setdefault(unquote(header[len(prefix) :].lower()), []).append(value)
    groups = [v for header in which.group for v in headers.getall(header, []) if v]
    return User(name, _first(headers, which.uid), tuple(groups), _sorted_extra(extra))


def _first(headers: CIMultiDictProxy[str], names: Iterable[str]) -> str:
    return next((value for name in names if (value := headers.get(name, ""))), "")


def _sorted_extra(extra: Mapping[str, Iterable[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted((key, tuple(values)) for key, values in extra.items()))


def _subject(connection: ssl.SSLObject) -> dict[str, list[str]]:
    """The attributes of the subject of the certificate that the other side has shown."""
    found: dict[str, list[str]] = {}
    certificate: Any = connection.getpeercert() or {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            found.setdefault(name, []).append(value)
    return found
