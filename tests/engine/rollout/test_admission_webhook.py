"""The protocol of the admission webhook: what is taken, what is refused, and what is answered."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from devkit.cluster import DevCluster
from engine.io.endpoints.routes import json_route
from engine.policy.errors import Problem
from engine.rollout.admission import NOTHING, Change, Opinion
from engine.rollout.admission_webhook import MOST_BYTES, MOST_OPEN, admission_route
from tests.engine.io.endpoints.harness import Running, endpoints
from tests.waiting import eventually

KEY: Final = "0123456789abcdefghij"
PATH: Final = f"/admission/{KEY}"
JSON: Final = {"Content-Type": "application/json"}


class Judge:
    """Says what it is given to say, once it may."""

    def __init__(self) -> None:
        self.asked: list[tuple[Change, float]] = []
        self.says = NOTHING
        self.may = asyncio.Event()
        self.may.set()
        self.is_ready = True

    async def judge(self, change: Change, seconds: float) -> Opinion:
        self.asked.append((change, seconds))
        await self.may.wait()
        return self.says


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
async def running(judge: Judge) -> AsyncIterator[Running]:
    routes = [
        admission_route(lambda: KEY, judge.judge, lambda: judge.is_ready),
        json_route("/secret", dict),
    ]
    async with DevCluster() as cluster, endpoints(cluster, routes=routes) as running:
        yield running


def a_review(**changes: Any) -> dict[str, Any]:
    """The review of an edit of the ConfigMap `a/b`."""
    held = {"metadata": {"name": "b"}, "data": {"x.star": "old"}}
    request = {
        "uid": "1",
        "operation": "UPDATE",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "a",
        "name": "b",
        "oldObject": held,
        "object": held | {"data": {"x.star": "new"}},
        "dryRun": True,
    }
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return kind | {"request": request | changes}


async def ask(
    running: Running, body: Any, path: str = PATH, *, method: str = "POST", **headers: str
) -> tuple[int, str]:
    """Status and text."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with running.session.request(
        method, running.secure + path, data=io.BytesIO(text), headers=headers or JSON
    ) as answer:
        return answer.status, await answer.text()


async def answered(running: Running, body: Any, path: str = PATH) -> dict[str, Any]:
    status, text = await ask(running, body, path)
    assert status == 200, text
    response: dict[str, Any] = json.loads(text)["response"]
    return response


async def test_a_caller_without_credentials_is_answered_by_the_key(
    running: Running, judge: Judge
) -> None:
    assert await answered(running, a_review()) == {"uid": "1", "allowed": True}
    ((change, _),) = judge.asked
    assert (change.namespace, change.name) == ("a", "b")
    assert change.before is not None
    assert change.after is not None
    assert (change.before.data, change.after.data) == ({"x.star": "old"}, {"x.star": "new"})


async def test_nothing_is_answered_without_the_key(running: Running, judge: Judge) -> None:
    for path in ("/admission/another0123456789", "/admission/", f"{PATH}/more", f"{PATH[:-1]}"):
        status, _ = await ask(running, a_review(), path)
        assert status in (403, 404), path
    for path in ("/admission/../secret", "/admission/%2e%2e/secret", "/secret"):
        status, _ = await running.get(path)
        assert status in (403, 404, 405), path
    assert judge.asked == []


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(b"{", "truncated", id="no JSON"),
        pytest.param({}, "apiVersion ``", id="nothing"),
        pytest.param(a_review() | {"apiVersion": "admission.k8s.io/v1beta1"}, "v1beta1", id="old"),
        pytest.param(a_review() | {"kind": "Pod"}, "`Pod`", id="another kind"),
        pytest.param(a_review() | {"request": None}, "without a request", id="no request"),
        pytest.param(a_review(object={"data": {"x": 1}}), "ConfigMap", id="no ConfigMap"),
        pytest.param(b'{"request": ' + b"[" * 50_000, "AdmissionReview", id="nested"),
    ],
)
async def test_what_is_no_review_is_refused(
    running: Running, judge: Judge, body: Any, want: str
) -> None:
    status, text = await ask(running, body)
    assert (status, want in text) == (400, True), text
    assert judge.asked == []


async def test_only_json_by_post_is_taken(running: Running, judge: Judge) -> None:
    assert (await ask(running, a_review(), method="GET"))[0] == 405
    assert (await ask(running, a_review(), **{"Content-Type": "text/plain"}))[0] == 415
    assert judge.asked == []


async def test_a_body_beyond_the_bound_is_refused(running: Running, judge: Judge) -> None:
    status, text = await ask(running, b" " * (MOST_BYTES + 1))
    assert (status, "8 MiB" in text) == (413, True)
    large = a_review(object={"metadata": {"name": "b"}, "data": {"x": "y" * (MOST_BYTES // 2)}})
    assert (await answered(running, large))["allowed"]


async def test_reviews_beyond_the_most_are_refused(running: Running, judge: Judge) -> None:
    judge.may.clear()
    waiting = [asyncio.ensure_future(answered(running, a_review())) for _ in range(MOST_OPEN)]
    await eventually(lambda: len(judge.asked) == MOST_OPEN)
    assert (await ask(running, a_review()))[0] == 429
    judge.may.set()
    assert all([(await one)["allowed"] for one in waiting])
    assert (await answered(running, a_review()))["allowed"]


async def test_a_replica_that_starts_or_stops_judges_nothing(
    running: Running, judge: Judge
) -> None:
    judge.is_ready = False
    assert (await ask(running, a_review()))[0] == 503
    assert judge.asked == []


@pytest.mark.parametrize(
    ("said", "want"),
    [("10s", 8.0), ("30s", 8.0), ("5s", 4.0), ("1s", 0.8), ("soon", 8.0), ("", 8.0)],
)
async def test_the_time_is_less_than_the_api_server_gives(
    running: Running, judge: Judge, said: str, want: float
) -> None:
    await answered(running, a_review(), f"{PATH}?timeout={said}")
    assert judge.asked[0][1] == pytest.approx(want)


async def test_what_is_deleted_has_no_text_and_its_own_name(running: Running, judge: Judge) -> None:
    """Of a collection that is deleted, the request names no object."""
    await answered(running, a_review(operation="DELETE", object=None, name=""))
    ((change, _),) = judge.asked
    assert (change.name, change.after) == ("b", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": {"group": "", "resource": "pods"}},
        {"resource": {"group": "x", "resource": "configmaps"}},
        {"subResource": "status"},
        {"operation": "CONNECT"},
    ],
    ids=str,
)
async def test_what_is_no_write_of_a_config_map_is_allowed_unread(
    running: Running, judge: Judge, changes: dict[str, Any]
) -> None:
    assert (await answered(running, a_review(**changes)))["allowed"]
    assert judge.asked == []


async def test_a_denial_has_each_problem_with_its_hint_and_an_end(
    running: Running, judge: Judge
) -> None:
    problems = [Problem("a.star", n, 2, "wrong \x1b" + "x" * 5000, "do") for n in range(1, 31)]
    judge.says = Opinion(tuple(problems), stage="check")
    response = await answered(running, a_review())
    assert response["allowed"] is False
    message = response["status"]["message"]
    assert message.startswith("it would be rejected (check):\na.star:1:2: wrong \\x1bxxx")
    assert len(message) <= 16_384
    judge.says = Opinion((Problem("a.star", 1, 2, "wrong", "correct it"),) * 21, stage="check")
    message = (await answered(running, a_review()))["status"]["message"]
    assert message.count("a.star:1:2: wrong\nhint: correct it\n") == 20
    assert message.endswith("\nand 1 more")


async def test_warnings_are_of_one_line_each_and_of_a_length_that_is_passed_on(
    running: Running, judge: Judge
) -> None:
    """The API server cuts each to 256 characters once all of them have more than 4,096."""
    judge.says = Opinion(warnings=(Problem("a.star", 1, 2, "y" * 5000, "do", "warning"),) * 10)
    warnings = (await answered(running, a_review()))["warnings"]
    assert len(warnings) == 9
    assert warnings[-1].startswith("and 2 more")
    assert not [one for one in warnings if not one.isprintable()]
    assert sum(map(len, warnings)) < 4096
