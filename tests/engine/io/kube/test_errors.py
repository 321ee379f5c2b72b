"""The mapping from answers to errors."""

import json

import pytest

from engine.io.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConnectionLost,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    error_from_answer,
    retry_after_seconds,
)


@pytest.mark.parametrize(
    ("status", "reason", "want"),
    [
        pytest.param(400, "BadRequest", Invalid, id="400"),
        pytest.param(401, "Unauthorized", Unauthorized, id="401"),
        pytest.param(403, "Forbidden", Forbidden, id="403"),
        pytest.param(404, "NotFound", NotFound, id="404"),
        pytest.param(405, "MethodNotAllowed", ApiError, id="any other 4xx"),
        pytest.param(409, "Conflict", Conflict, id="409 conflict"),
        pytest.param(409, "AlreadyExists", AlreadyExists, id="409 exists"),
        pytest.param(410, "Expired", Gone, id="410"),
        pytest.param(415, "UnsupportedMediaType", Invalid, id="415"),
        pytest.param(422, "Invalid", Invalid, id="422"),
        pytest.param(429, "TooManyRequests", TooManyRequests, id="429"),
        pytest.param(500, "InternalError", ServerError, id="500"),
        pytest.param(503, "ServiceUnavailable", ServerError, id="503"),
        pytest.param(504, "Timeout", TimedOut, id="504"),
    ],
)
def test_each_status_has_its_error(status: int, reason: str, want: type[ApiError]) -> None:
    body = json.dumps({"kind": "Status", "reason": reason, "message": "m"}).encode()
    got = error_from_answer(status, body, request="GET /x")
    assert type(got) is want
    assert (got.status, got.reason, got.message) == (status, reason, "m")
    assert str(got) == f"GET /x: {status} {reason}: m"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>Bad gateway</html>", id="a proxy's page"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\xfe", id="not text"),
        pytest.param(b'{"code": "many", "message": 7}', id="wrong types"),
        pytest.param(b"[1]", id="not an object"),
    ],
)
def test_an_answer_that_is_no_status_is_still_an_error(body: bytes) -> None:
    got = error_from_answer(502, body)
    assert isinstance(got, ServerError)
    assert got.status == 502


def test_a_long_page_is_shortened() -> None:
    assert len(error_from_answer(502, b"x" * 100_000).message) < 400


def test_an_error_event_takes_its_code_from_the_body() -> None:
    got = error_from_answer(0, b'{"kind":"Status","code":410,"reason":"Expired","message":"old"}')
    assert isinstance(got, Gone)


def test_causes_and_continue_token_are_kept() -> None:
    body = {
        "code": 410,
        "metadata": {"continue": "abc"},
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}, {}]},
    }
    got = error_from_answer(410, json.dumps(body).encode())
    assert isinstance(got, Gone)
    assert (got.causes, got.continue_token) == (("ResourceVersionTooLarge",), "abc")


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param(None, None, id="absent"),
        pytest.param("7", 7.0, id="seconds"),
        pytest.param(" 0 ", 0.0, id="zero"),
        pytest.param("-3", None, id="negative"),
        pytest.param("nan", None, id="not a number"),
        pytest.param("soon", None, id="words"),
        pytest.param("Thu, 01 Jan 1970 00:16:50 GMT", 10.0, id="date"),
        pytest.param("Thu, 01 Jan 1970 00:00:00 GMT", 0.0, id="date in the past"),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, want: float | None) -> None:
    assert retry_after_seconds(value, now=1000.0) == want


def test_retry_after_comes_from_header_or_details() -> None:
    body = b'{"code":429,"details":{"retryAfterSeconds":3}}'
    assert error_from_answer(429, body).retry_after == 3
    assert error_from_answer(429, body, headers={"Retry-After": "9"}).retry_after == 9
    assert error_from_answer(429, b"{}").retry_after is None


def test_nobody_waits_for_hours_because_a_proxy_asks_for_it() -> None:
    """Bindings kept their places, and watches were deaf, for as long as a page had said once."""
    assert error_from_answer(503, b"", headers={"Retry-After": "3600"}).retry_after == 30
    body = b'{"details": {"retryAfterSeconds": %d}}'
    assert error_from_answer(429, body % 10**9).retry_after == 30
    assert error_from_answer(429, body % -10).retry_after == 0


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(Conflict("c", status=409), False, id="refused"),
        pytest.param(TooManyRequests("c", status=429), False, id="shed"),
        pytest.param(ServerError("s", status=500), True, id="server failed"),
        pytest.param(TimedOut("t", sent=True), True, id="no answer"),
        pytest.param(TimedOut("t", sent=False), False, id="no connection in time"),
        pytest.param(ConnectionLost("l", sent=True), True, id="answer lost"),
        pytest.param(ConnectionLost("l", sent=False), False, id="refused connection"),
    ],
)
def test_an_error_shows_whether_a_write_may_have_happened(error: ApiError, want: bool) -> None:
    assert error.may_have_taken_effect is want
