"""The refusals of the API server: `Status` objects with the real reasons and texts.

Owns the one exception of the embedded server and the constructors of every refusal. Knows nothing
of HTTP beyond status codes, and nothing of storage.

    ApiStatus
      400 bad_request              403 forbidden          404 not_found, no_such_path
      405 method_not_allowed       409 conflict, already_exists
      410 expired                  413 too_large          415 unsupported_media_type
      422 invalid, unpatchable     429 too_many_requests  500 internal_error    504 timed_out
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.manifests.kinds import Kind

MODIFIED_SINCE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with one field."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ApiStatus(Exception):
    """A refusal, as the `Status` object that a client receives."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        retry_header: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = REASONS.get(code) if reason is None else reason
        self.details = details
        self.metadata = metadata or {}
        self._retry_header = retry_header

    @property
    def retry_after(self) -> str | None:
        """The `Retry-After` header, if the answer has one: seconds, unless a fault wrote it."""
        if self._retry_header is not None:
            return self._retry_header
        seconds = (self.details or {}).get("retryAfterSeconds")
        return None if seconds is None else str(seconds)

    def as_status(self) -> dict[str, Any]:
        """The `Status` object as plain data."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(kind: Kind, name: str, *, of_kind: bool = False) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.kind if of_kind else kind.plural
    return details


def bad_request(message: str) -> ApiStatus:
    """The request cannot be understood."""
    return ApiStatus(400, message)


class Undecodable(ApiStatus):
    """400: a body is no object of its kind."""


def undecodable(kind: Kind, why: str, *, sent: tuple[str, str] | None = None) -> Undecodable:
    """The body is not an object of *kind*; *sent* is the version and kind that it claims."""
    version, name = sent or (kind.version, kind.kind)
    text = f'{name} in version "{version}" cannot be handled as a {kind.kind}: {why}'
    return Undecodable(400, text)


def unpatchable(why: str) -> ApiStatus:
    """422: what a patch would make of an object is none."""
    cause = {"reason": "FieldValueInvalid", "message": f"Invalid value: {why}", "field": "patch"}
    message = f' "" is invalid: patch: {cause["message"]}'
    return ApiStatus(422, message, details={"causes": [cause]})


def unauthorized() -> ApiStatus:
    """No bearer token, or an unknown one."""
    return ApiStatus(401, "Unauthorized")


def forbidden(
    kind: Kind, name: str, why: str, *, causes: list[dict[str, str]] | None = None
) -> ApiStatus:
    """Admission refuses the request."""
    details = _details(kind, name)
    if causes:
        details["causes"] = causes
    return ApiStatus(403, f'{kind.resource} "{name}" is forbidden: {why}', details=details)


def not_found(kind: Kind, name: str) -> ApiStatus:
    """404: there is no object of that name."""
    return ApiStatus(404, f'{kind.resource} "{name}" not found', details=_details(kind, name))


def no_such_path() -> ApiStatus:
    """404: there is no such resource."""
    return ApiStatus(404, "the server could not find the requested resource", details={})


def method_not_allowed() -> ApiStatus:
    """The path exists, but not with this method."""
    return ApiStatus(
        405, "the server does not allow this method on the requested resource", details={}
    )


def already_exists(kind: Kind, name: str) -> ApiStatus:
    """Creation of a name that is taken."""
    return ApiStatus(
        409,
        f'{kind.resource} "{name}" already exists',
        reason="AlreadyExists",
        details=_details(kind, name),
    )


def conflict(kind: Kind, name: str, why: str = MODIFIED_SINCE, *, label: str = "") -> ApiStatus:
    """The object is not in the state that the request presumes.

    *label* replaces the resource in the text where the real server names another one
    (`pods/binding`, or the kind for deletion preconditions).
    """
    details = _details(kind, name)
    if label:
        details["kind"] = label
    text = f'Operation cannot be fulfilled on {label or kind.resource} "{name}": {why}'
    return ApiStatus(409, text, details=details)


def precondition_failed(
    kind: Kind, key: str, name: str, field: str, wanted: str, got: str
) -> ApiStatus:
    """A uid or resourceVersion in the request is not the stored object's."""
    group = f"{kind.group}/" if kind.group else ""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{group}{kind.plural}/{key}, "
        "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        f"{field} in precondition: {wanted}, {field} in object meta: {got}"
    )
    return conflict(kind, name, why)


def expired(message: str, *, metadata: dict[str, Any] | None = None) -> ApiStatus:
    """The resourceVersion asked for is older than the history kept."""
    return ApiStatus(410, message, metadata=metadata)


def unsupported_media_type(message: str = "415: Unsupported Media Type") -> ApiStatus:
    """The verb does not accept the Content-Type."""
    return ApiStatus(415, message, details={} if message.startswith("415") else None)


def too_large(limit: int) -> ApiStatus:
    """The body is larger than the server reads."""
    return ApiStatus(413, f"Request entity too large: limit is {limit}")


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiStatus:
    """The object is understood and wrong; *causes* lists every field at fault."""
    group = f".{kind.group}" if kind.group else ""
    details = _details(kind, name, of_kind=True)
    details["causes"] = [_as_json(cause) for cause in causes]
    return ApiStatus(
        422, f'{kind.kind}{group} "{name}" is invalid: {_listed(causes)}', details=details
    )


def _listed(causes: Sequence[Cause]) -> str:
    distinct = list(dict.fromkeys(str(cause) for cause in causes))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _as_json(cause: Cause) -> dict[str, str]:
    return {"reason": cause.reason, "message": cause.message, "field": cause.field}


def invalid_options(options: str, *causes: Cause) -> ApiStatus:
    """Query parameters that contradict each other; *options* is their kind (`ListOptions`)."""
    return ApiStatus(
        422,
        f'{options}.meta.k8s.io "" is invalid: {_listed(causes)}',
        details={
            "group": "meta.k8s.io",
            "kind": options,
            "causes": [_as_json(cause) for cause in causes],
        },
    )


def too_many_requests(message: str, retry_after: int, causes: list[dict[str, str]]) -> ApiStatus:
    """Try again after *retry_after* seconds."""
    return ApiStatus(429, message, details={"causes": causes, "retryAfterSeconds": retry_after})


def internal_error(message: str) -> ApiStatus:
    """Refusals that the real server reports as 500 with an empty reason."""
    return ApiStatus(500, message, reason="")


def version_too_large(asked: int, current: int) -> ApiStatus:
    """A list at a resourceVersion that has not happened yet."""
    return ApiStatus(
        504,
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {
                    "reason": "ResourceVersionTooLarge",
                    "message": "Too large resource version",
                }
            ],
            "retryAfterSeconds": 1,
        },
    )
