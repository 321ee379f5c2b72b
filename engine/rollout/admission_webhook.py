"""The admission webhook of the policies: AdmissionReviews of the API server, and their answers.

Owns the protocol (`admission.k8s.io/v1`) and its bounds. What is said of an edit is
`rollout.admission`'s.
"""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from engine.core.model.objects import ConfigMap, decode
from engine.io.endpoints.routes import Refused, Request, Route, json_answer
from engine.lib.deep_json import UNREADABLE
from engine.lib.durations import seconds_of
from engine.lib.printable import LONGEST_TEXT, message, short
from engine.lib.short import shortened
from engine.policy.errors import Problem
from engine.rollout.admission import NOTHING, Change, Opinion

#: In seconds, for an answer that the API server waits for as long as it does by default.
MOST_SECONDS: Final = 8.0
#: Left of the time that the API server gives, for the way there and back.
_SHARE: Final = 0.8
#: Two objects of etcd's size, with what JSON writes out.
MOST_BYTES: Final = 8 << 20
#: Requests whose bodies are held.
MOST_OPEN: Final = 16
#: What a person reads; the API server passes on 4,096 characters of warnings.
_MOST_PROBLEMS: Final = 20
_MOST_WARNINGS: Final = 8
_MOST_WARNING: Final = 450
_VERSION, _KIND = "admission.k8s.io/v1", "AdmissionReview"
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE")
_INVALID: Final = 422

Judge = Callable[[Change, float], Awaitable[Opinion]]


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    resource: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    resource: _Resource = _Resource()
    sub_resource: str = ""
    namespace: str = ""
    name: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


_review = msgspec.json.Decoder(_Review).decode


def admission_route(key: Callable[[], str], judge: Judge, is_ready: Callable[[], bool]) -> Route:
    """`/admission/KEY`: what *judge* says of a change, within seconds.

    The API server has no credentials of its own for a webhook: it proves itself by *key*, a part
    of the address that it was given; "" as long as there is none. What is said of an edit shows
    pods of the cluster.
    """
    handler = _Handler(key, judge, is_ready)
    return Route("/admission/{key}", handler.handle, hdrs.METH_POST, is_listed=False, is_open=True)


class _Handler:
    """Answers reviews; see `admission_route`."""

    def __init__(self, key: Callable[[], str], judge: Judge, is_ready: Callable[[], bool]) -> None:
        self._key = key
        self._judge = judge
        self._is_ready = is_ready
        self._open = 0

    async def handle(self, request: Request) -> web.Response:
        """The AdmissionReview that answers the one of *request*. Raises `Refused`."""
        key = self._key()
        if not key or not hmac.compare_digest(request.part("key").encode(), key.encode()):
            raise Refused(403, "Forbidden", "forbidden: the path has another key")
        if not self._is_ready():
            raise Refused(503, "ServiceUnavailable", "this replica is starting or stopping")
        if self._open >= MOST_OPEN:
            raise Refused(429, "TooManyRequests", f"{MOST_OPEN} reviews are under way")
        self._open += 1
        try:
            review = _read(await _body(request.http))
            opinion = await self._opinion(review, _seconds(request.query.get("timeout", "")))
        finally:
            self._open -= 1
        return json_answer(_answer(review.uid, opinion))

    async def _opinion(self, review: _Request, seconds: float) -> Opinion:
        resource = review.resource.group, review.resource.resource, review.sub_resource
        if resource != ("", "configmaps", "") or review.operation not in _OPERATIONS:
            return NOTHING
        before = _config_map(review.old_object)
        after = None if review.operation == "DELETE" else _config_map(review.object)
        # Of a collection that is deleted, the objects alone have their names.
        held = after or before
        name = held.metadata.name if held is not None else review.name
        return await self._judge(Change(review.namespace, name, before, after), seconds)


async def _body(request: web.Request) -> bytes:
    """The body of *request*. Raises `Refused` for one that is no JSON of bounded length."""
    if request.content_type != "application/json":
        want = f"want Content-Type application/json, got {short(request.content_type)}"
        raise Refused(415, "UnsupportedMediaType", want)
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            text = f"want a body of at most {MOST_BYTES >> 20} MiB"
            raise Refused(413, "RequestEntityTooLarge", text)
    return bytes(body)


def _read(body: bytes) -> _Request:
    try:
        review = _review(body)
    except UNREADABLE as error:
        raise _bad_request(str(error)) from error
    if (review.api_version, review.kind) != (_VERSION, _KIND) or review.request is None:
        got = f"apiVersion `{short(review.api_version)}`, kind `{short(review.kind)}`"
        raise _bad_request(got if review.request is not None else f"{got} without a request")
    return review.request


def _config_map(raw: msgspec.Raw) -> ConfigMap | None:
    if bytes(raw) == b"null":
        return None
    try:
        return decode(ConfigMap, raw)
    except UNREADABLE as error:
        raise _bad_request(f"a ConfigMap that cannot be read: {error}") from error


def _bad_request(got: str) -> Refused:
    return Refused(400, "BadRequest", f"want an {_KIND} of {_VERSION}, got {short(got)}")


def _seconds(said: str) -> float:
    """The time for an answer, of a time-out that the API server *said*."""
    try:
        return min(MOST_SECONDS, _SHARE * seconds_of(said))
    except ValueError:
        return MOST_SECONDS


def _answer(uid: str, opinion: Opinion) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": not opinion.problems}
    if opinion.problems:
        response["status"] = {
            "code": _INVALID,
            "reason": "Invalid",
            "message": _denial(opinion),
        }
    if opinion.warnings:
        response["warnings"] = _listed(opinion.warnings)
    return {"apiVersion": _VERSION, "kind": _KIND, "response": response}


def _denial(opinion: Opinion) -> str:
    problems = opinion.problems
    lines = [shortened(str(one), LONGEST_TEXT) for one in problems[:_MOST_PROBLEMS]]
    if more := len(problems) - len(lines):
        lines.append(f"and {more:,} more")
    return message("\n".join([f"it would be rejected ({opinion.stage}):", *lines]))


def _listed(warnings: Sequence[Problem]) -> list[str]:
    """*warnings* as headers have them: on one line each."""
    shown = [str(one).replace("\n", "; ") for one in warnings]
    listed = [shortened(one, _MOST_WARNING) for one in shown[:_MOST_WARNINGS]]
    if more := len(warnings) - len(listed):
        listed.append(f"and {more:,} more: `starsched plan` has them all")
    return listed
