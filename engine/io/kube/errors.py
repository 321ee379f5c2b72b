"""The errors of requests to the API server, as one tree.

    ApiError                 the server refused, or could not be reached
    ├── Unauthorized         401  who are you?
    ├── Forbidden            403  denied by RBAC or admission
    ├── NotFound             404  no such object, or no such API
    ├── AlreadyExists        409  create of a name that is taken
    ├── Conflict             409  changed meanwhile, uid precondition failed, pod already bound
    ├── Gone                 410  resourceVersion or continue token too old: list again
    ├── Invalid              4xx  the request itself is wrong: do not send it again
    ├── TooManyRequests      429  slow down; *retry_after* says for how long
    ├── ServerError          5xx  the server failed; also 503 with *retry_after*
    ├── TimedOut             504, or no answer within the request's time-out
    └── ConnectionLost       the connection failed before a whole answer arrived
    KubeConfigError          no usable configuration or credentials (no ApiError: do not retry)
    └── NoKubeConfig         there is no such file

Owns the mapping from a `Status` answer to an exception. No exception of an HTTP library leaves
`kube`: callers catch these. Each error says in *may_have_taken_effect* whether a write could have
been carried out although no success was reported; only reading the object shows that.
"""

import email.utils
import time
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from engine.lib import printable
from engine.lib.deep_json import UNREADABLE


class KubeConfigError(Exception):
    """The kubeconfig, the in-cluster files or their credentials cannot be used."""


class NoKubeConfig(KubeConfigError):
    """No kubeconfig exists at the path or in the environment."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached.

    Attributes:
        status: HTTP status; 0 when no answer arrived.
        reason: The machine-readable reason of the API (`NotFound`, `Expired`, ...), or "".
        message: The message of the server or the connection, for people.
        retry_after: Seconds the server asks to wait before the next try, or None.
        request: Method and path, for messages; "" when unknown.
        causes: The `details.causes` reasons of the answer.
    """

    #: What is known of a write that ended in this error, unless an instance knows better.
    takes_effect: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        request: str = "",
        causes: tuple[str, ...] = (),
    ) -> None:
        message = printable.message(message)  # of a server, or of something in between
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.request = request
        self.causes = causes

    @property
    def may_have_taken_effect(self) -> bool:
        """True if a write may have been carried out although it was not confirmed."""
        return self.takes_effect

    @property
    def may_pass(self) -> bool:
        """True if the same request may succeed a little later: the server cannot, or is away."""
        return self.status in (0, 429) or self.status >= 500

    def __str__(self) -> str:
        """`POST /api/v1/...: 409 Conflict: pod is already assigned`."""
        label = f"{self.status} {self.reason}".strip() if self.status else type(self).__name__
        return ": ".join(part for part in (self.request, label, self.message) if part)


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: RBAC or an admission plugin refuses."""


class NotFound(ApiError):
    """404: no such object, or the server does not serve this API.

    Attributes:
        what: What is not there, as the server names it: the resource (`configmaps`) and the name.
            Empty texts if it says neither, as for a path that is not served.
    """

    what: tuple[str, str] = ("", "")


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of that name is there."""


class Conflict(ApiError):
    """409: the object changed meanwhile, has another uid, or the pod is already bound."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is too old; list again.

    Attributes:
        continue_token: A token the server offers to go on with, or "". What it lists is not
            consistent with the pages before, so only callers that do not mind should use it.
    """

    continue_token: str = ""


class Invalid(ApiError):
    """400, 413, 415, 422: the request itself is wrong; sending it again cannot help."""


class TooManyRequests(ApiError):
    """429: the server sheds load; nothing was done. *retry_after* is its wish."""


class ServerError(ApiError):
    """5xx: the server failed, possibly after it wrote (etcd may answer late)."""

    takes_effect = True


class TimedOut(ApiError):
    """504, or no whole answer in time.

    Attributes:
        sent: False if the request surely never left us; True if it may have been received.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        request: str = "",
        causes: tuple[str, ...] = (),
        sent: bool = True,
    ) -> None:
        super().__init__(
            message,
            status=status,
            reason=reason,
            retry_after=retry_after,
            request=request,
            causes=causes,
        )
        self.sent = sent

    @property
    def may_have_taken_effect(self) -> bool:
        """True unless the request surely never left us."""
        return self.sent


class ConnectionLost(ApiError):
    """The connection could not be made, or broke before the whole answer arrived.

    Attributes:
        sent: False if the request surely never left us (refused, unknown host, TLS failure);
            True if it may have been received and carried out.
    """

    def __init__(self, message: str, *, sent: bool, request: str = "") -> None:
        super().__init__(message, request=request)
        self.sent = sent

    @property
    def may_have_taken_effect(self) -> bool:
        """True unless the request surely never left us."""
        return self.sent


class _Cause(msgspec.Struct, frozen=True, gc=False):
    reason: str | None = None


class _Details(msgspec.Struct, frozen=True, rename="camel", gc=False):
    kind: str | None = None
    name: str | None = None
    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = None


class _ListMeta(msgspec.Struct, frozen=True, gc=False):
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _Status(msgspec.Struct, frozen=True, gc=False):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None
    metadata: _ListMeta | None = None


_decode_status = msgspec.json.Decoder(_Status).decode

#: As much of an answer that is no `Status` as goes into a message.
_EXCERPT = 300
#: API servers ask for seconds. A proxy's page about its maintenance may ask for hours, and a client
#: that obeyed would miss news, or hold up a binding, long after the server is back.
LONGEST_RETRY_AFTER: Final = 30.0

_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
    504: TimedOut,
}


def error_from_answer(
    status: int,
    body: bytes,
    *,
    headers: Mapping[str, str] | None = None,
    request: str = "",
) -> ApiError:
    """The error that an answer stands for.

    Args:
        status: HTTP status; 0 to take the code from the body (a watch's ERROR event).
        body: The answer's body: a `Status` object, or whatever a proxy in between wrote.
        headers: The answer's headers; `Retry-After` is read from them.
        request: Method and path, for the message.
    """
    try:
        answer = _decode_status(body)
    except UNREADABLE:
        excerpt = body[:_EXCERPT].decode("utf-8", "replace").strip()
        answer = _Status(message=excerpt)
    status = status or answer.code or 500
    reason = answer.reason or ""
    details = answer.details or _Details()
    retry_after = retry_after_seconds((headers or {}).get("Retry-After"))
    if retry_after is None:
        # The API sends 0 for "not set".
        retry_after = details.retry_after_seconds or None
    if retry_after is not None:
        retry_after = min(max(retry_after, 0.0), LONGEST_RETRY_AFTER)

    kind = _BY_STATUS.get(status)
    if kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    if kind is None:
        kind = ServerError if status >= 500 else ApiError
    error = kind(
        answer.message or f"HTTP {status} without a message",
        status=status,
        reason=reason,
        retry_after=retry_after,
        request=request,
        causes=tuple(cause.reason for cause in details.causes or () if cause.reason),
    )
    if isinstance(error, Gone) and answer.metadata is not None:
        error.continue_token = answer.metadata.continue_token or ""
    if isinstance(error, NotFound):
        error.what = details.kind or "", details.name or ""
    return error


def retry_after_seconds(value: str | None, now: float | None = None) -> float | None:
    """Seconds that a `Retry-After` header asks for: a number, or an HTTP date.

    Returns None for an absent or malformed value; never less than 0.
    """
    if value is None:
        return None
    text = value.strip()
    # "nan" and "inf" are floats to Python but not to HTTP, hence digits only.
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment.timestamp() - (time.time() if now is None else now))
