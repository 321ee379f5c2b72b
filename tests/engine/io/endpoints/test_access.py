"""Who gets what from the secure port, and what the local one shows to whom."""

import asyncio
import json

import aiohttp
import pytest

from devkit.cluster import DevCluster
from engine.io.endpoints.server import SecureSettings
from engine.io.kube.resources import PODS
from engine.lib.clock import VirtualClock
from tests.engine.io.endpoints.harness import NAMESPACES, ROUTES, SECRET, endpoints, unverified
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

OPEN = {"/healthz", "/livez", "/readyz"}
GUARDED = sorted(
    {route.path.format(namespace="red") for route in ROUTES} - OPEN | {"/", "/no/such/path"}
)


def reviews(cluster: DevCluster) -> int:
    """How often the API server was asked about callers."""
    asked = cluster.requests
    return asked["create", "tokenreviews"] + asked["create", "subjectaccessreviews"]


@pytest.mark.parametrize("path", sorted(OPEN))
async def test_probes_need_no_credentials(cluster: DevCluster, path: str) -> None:
    async with endpoints(cluster) as running:
        assert await running.get(path) == (200, "ok")
        assert not reviews(cluster)


@pytest.mark.parametrize(
    ("token", "headers", "status", "reason"),
    [
        pytest.param(None, {}, 403, "Forbidden", id="none"),
        pytest.param("stolen", {}, 401, "Unauthorized", id="unknown token"),
        pytest.param("", {}, 403, "Forbidden", id="empty token"),
        pytest.param("t\u00f6ken", {}, 401, "Unauthorized", id="token that is no text"),
        pytest.param("of-bob", {}, 403, "Forbidden", id="no rights"),
        pytest.param(None, {"Authorization": "Basic cm9vdDpyb290"}, 403, "Forbidden", id="basic"),
        pytest.param(
            None,
            {"X-Remote-User": "root", "X-Remote-Group": "system:masters"},
            403,
            "Forbidden",
            id="headers of a proxy that shows no certificate",
        ),
    ],
)
async def test_wrong_credentials_get_nothing_on_any_path(
    cluster: DevCluster, token: str | None, headers: dict[str, str], status: int, reason: str
) -> None:
    async with endpoints(cluster) as running:
        for path in GUARDED:
            for method in ("GET", "HEAD", "POST", "DELETE"):
                got, text = await running.get(path, token, method=method, headers=headers)
                assert got == status, (method, path)
                assert SECRET not in text
                if method == "GET":
                    body = json.loads(text)
                    assert (body["kind"], body["reason"], body["code"]) == (
                        "Status",
                        reason,
                        status,
                    )
                    assert not any(name in body.get("details", {}) for name in NAMESPACES)


async def test_a_refusal_is_in_the_words_of_a_kube_component(cluster: DevCluster) -> None:
    async with endpoints(cluster) as running:
        _, text = await running.get("/policies")
    assert json.loads(text) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'forbidden: User "system:anonymous" cannot get path "/policies"',
        "reason": "Forbidden",
        "code": 403,
    }


@pytest.mark.parametrize(
    "path",
    ["/healthz/../policies", "/healthz%2f..%2fpolicies", "//policies", "/healthz/ping", "/Healthz"],
)
async def test_no_spelling_of_a_path_opens_another(cluster: DevCluster, path: str) -> None:
    async with endpoints(cluster) as running:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", running.server.secure_port, ssl=unverified()
        )
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 403")


async def test_a_path_can_be_opened_and_closed(cluster: DevCluster) -> None:
    settings = SecureSettings("127.0.0.1", open_paths=("policies", "/rows*"))
    async with endpoints(cluster, settings) as running:
        assert (await running.get("/policies"))[0] == 200
        assert (await running.get("/rows/red"))[0] == 404  # open, and no namespace of anonymous
        assert (await running.get("/healthz"))[0] == 403


async def test_rows_of_namespaces_that_a_caller_may_not_read_are_left_out(
    cluster: DevCluster,
) -> None:
    async with endpoints(cluster) as running:
        assert json.loads((await running.get("/rows", "of-alice"))[1]) == {"rows": ["red"]}
        assert (await running.get("/rows/red", "of-alice"))[0] == 200
        assert (await running.get("/rows/green", "of-alice"))[0] == 404
        assert json.loads((await running.get("/rows", "of-root"))[1]) == {"rows": [*NAMESPACES]}
        cluster.access.allow_path("bob", "/rows")
        assert json.loads((await running.get("/rows", "of-bob"))[1]) == {"rows": []}


async def test_answers_about_callers_are_kept_for_some_seconds(cluster: DevCluster) -> None:
    clock = VirtualClock()
    settings = SecureSettings("127.0.0.1", token_seconds=30, allowed_seconds=20, denied_seconds=10)
    async with endpoints(cluster, settings, clock=clock) as running:

        async def asked(path: str, token: str) -> tuple[int, int, int]:
            before = cluster.requests.copy()
            status, _ = await running.get(path, token)
            new = cluster.requests - before
            return (
                status,
                new["create", "tokenreviews"],
                new["create", "subjectaccessreviews"],
            )

        assert await asked("/policies", "of-alice") == (200, 1, 1)
        assert await asked("/policies", "of-alice") == (200, 0, 0)
        assert await asked("/policies", "of-bob") == (403, 1, 1)
        cluster.access.allow_path("bob", "/policies")
        assert await asked("/policies", "of-bob") == (403, 0, 0)
        clock.advance(11)
        assert await asked("/policies", "of-bob") == (200, 0, 1)
        assert await asked("/policies", "of-alice") == (200, 0, 0)
        clock.advance(10)
        assert await asked("/policies", "of-alice") == (200, 0, 1)
        del cluster.access.users["of-alice"]
        clock.advance(10)
        assert await asked("/policies", "of-alice") == (401, 1, 0)


async def test_equal_questions_at_once_are_asked_once(cluster: DevCluster) -> None:
    hold = cluster.faults.hang(verb="create", resource="tokenreviews")
    async with endpoints(cluster) as running:
        asking = [asyncio.ensure_future(running.get("/policies", "of-alice")) for _ in range(20)]
        await hold.wait_hit()
        asking[0].cancel()  # the one that asked goes away
        hold.release()
        answers = await asyncio.gather(*asking[1:])
    assert {status for status, _ in answers} == {200}
    assert cluster.requests["create", "tokenreviews"] == 1


async def test_a_review_that_hangs_is_given_up_and_probes_go_on(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.io.endpoints.reviews.REVIEW_SECONDS", 0.2)
    cluster.faults.hang(verb="create", resource="tokenreviews", times=None)
    rights = cluster.faults.hang(verb="create", resource="subjectaccessreviews", times=None)
    async with endpoints(cluster) as running:
        asking = [
            asyncio.ensure_future(running.get("/policies", f"token-{number}"))
            for number in range(30)
        ]
        assert await running.get("/livez") == (200, "ok")
        answers = await asyncio.gather(*asking)
        assert {status for status, _ in answers} == {401}
        assert (await running.get("/policies"))[0] == 500
        assert await running.get("/livez") == (200, "ok")
        # It is not kept against the caller.
        cluster.faults.clear()
        rights.release()
        assert (await running.get("/policies", "of-alice"))[0] == 200


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503])
async def test_a_review_that_is_refused_lets_nobody_in(cluster: DevCluster, code: int) -> None:
    cluster.faults.fail(code, verb="create", resource="subjectaccessreviews")
    async with endpoints(cluster) as running:
        assert (await running.get("/policies", "of-alice"))[0] == 500
        assert json.loads((await running.get("/rows", "of-root"))[1]) == {"rows": [*NAMESPACES]}
        cluster.faults.fail(code, verb="create", resource="tokenreviews")
        assert (await running.get("/policies", "of-bob"))[0] == 401
        assert await running.get("/healthz") == (200, "ok")


async def test_many_strangers_take_few_connections_to_the_api_server(cluster: DevCluster) -> None:
    """Each of them needs a review of its own; bindings share the connections."""
    hold = cluster.faults.hang(verb="create", resource="tokenreviews", times=None)
    async with endpoints(cluster) as running:
        asking = [
            asyncio.ensure_future(running.get("/policies", f"token-{number}"))
            for number in range(40)
        ]
        await hold.wait_hit()
        await eventually(lambda: cluster.requests["create", "tokenreviews"] == 8)
        client = running.server._clients.authentication
        assert client is not None
        assert await client.request("GET", PODS.path())
        assert cluster.requests["create", "tokenreviews"] == 8
        hold.release()
        cluster.faults.clear()
        assert {status for status, _ in await asyncio.gather(*asking)} == {401}


async def test_the_local_port_shows_everything_to_programs_of_the_host(cluster: DevCluster) -> None:
    async with endpoints(cluster) as running, aiohttp.ClientSession() as session:
        async with session.get(f"{running.local}/rows") as answer:
            assert await answer.json() == {"rows": [*NAMESPACES]}
        async with session.get(f"{running.local}/rows/blue") as answer:
            assert answer.status == 200
        async with session.get(f"{running.local}/no/such") as answer:
            assert answer.status == 404
    assert not reviews(cluster)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1:80"])
async def test_the_local_port_answers_no_page_of_the_web(cluster: DevCluster, host: str) -> None:
    """A page whose name was made to resolve to 127.0.0.1 could read what a browser is shown."""
    async with endpoints(cluster) as running, aiohttp.ClientSession() as session:
        async with session.get(f"{running.local}/policies", headers={"Host": host}) as answer:
            assert answer.status in (400, 421)
            assert SECRET not in await answer.text()
        for fine in ("localhost:1234", "127.0.0.1", "[::1]:9"):
            async with session.get(f"{running.local}/policies", headers={"Host": fine}) as answer:
                assert answer.status == 200
