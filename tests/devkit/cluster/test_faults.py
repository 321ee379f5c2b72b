"""Fault injection: which request is hit, what its client sees, what has happened to the objects."""

import asyncio
from typing import Any

import aiohttp
import pytest

from devkit.cluster import DevCluster
from devkit.cluster.faults import Call, Faults
from tests.contract.harness import Api, names, seen
from tests.waiting import eventually

Json = dict[str, Any]


async def test_a_failed_request_changes_nothing(cluster: DevCluster, api: Api) -> None:
    await api.make_pod("a")
    fault = cluster.faults.fail(500, verb="create", resource="pods/binding")
    answer = await api.bind("a", "node-1")
    assert (answer.status, answer.reason) == (500, "InternalError")
    assert fault.hits == 1
    assert "nodeName" not in (await api.get(api.pods("a"))).body["spec"]
    assert (await api.bind("a", "node-1")).status == 201


async def test_a_failure_after_the_fact_has_changed_everything(
    cluster: DevCluster, api: Api
) -> None:
    await api.make_pod("a")
    cluster.faults.fail(504, applied=True, verb="create", resource="pods/binding")
    assert (await api.bind("a", "node-1")).status == 504
    assert (await api.get(api.pods("a"))).body["spec"]["nodeName"] == "node-1"


async def test_retry_after_stands_in_header_and_body(cluster: DevCluster, api: Api) -> None:
    cluster.faults.fail(429, retry_after=7, resource="pods")
    answer = await api.get(api.pods())
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.headers["Retry-After"] == "7"
    assert answer.body["details"]["retryAfterSeconds"] == 7


async def test_an_odd_retry_after_stands_in_the_header_alone(cluster: DevCluster, api: Api) -> None:
    cluster.faults.fail(429, retry_after="soon", resource="pods")
    answer = await api.get(api.pods())
    assert answer.headers["Retry-After"] == "soon"
    assert "details" not in answer.body


async def test_a_repeated_request_is_answered_for_the_second_time(
    cluster: DevCluster, api: Api
) -> None:
    await api.make_pod("a")
    cluster.faults.repeat(verb="create", resource="pods/binding")
    assert (await api.bind("a", "node-1")).status == 409
    assert (await api.get(api.pods("a"))).body["spec"]["nodeName"] == "node-1"


async def test_a_late_request_is_carried_out_though_its_sender_has_gone(
    cluster: DevCluster, api: Api
) -> None:
    await api.make_pod("a")
    fault = cluster.faults.delay(0.2, persists=True, verb="create", resource="pods/binding")
    asking = asyncio.ensure_future(api.bind("a", "node-1"))
    await fault.wait_hit()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert "nodeName" not in (await api.get(api.pods("a"))).body["spec"]

    def is_bound() -> bool:
        found = cluster.get("pods", "a")
        return found is not None and found["spec"].get("nodeName") == "node-1"

    await eventually(is_bound)


async def test_an_answer_that_is_sent_twice_is_two_answers(cluster: DevCluster) -> None:
    cluster.faults.answer_twice(resource="nodes")
    port = int(cluster.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(2):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert b"NodeList" in await reader.readexactly(size)
    writer.close()


async def test_a_list_can_be_cut_into_pages_that_are_smaller_than_asked_for(
    cluster: DevCluster, api: Api
) -> None:
    for name in "abc":
        await api.make_pod(name)
    cluster.faults.page(2, verb="list")
    first = await api.get(api.pods(), limit=500)
    assert names(first) == ["a", "b"]
    token = first.body["metadata"]["continue"]
    assert names(await api.get(api.pods(), limit=500, **{"continue": token})) == ["c"]


async def test_a_reason_and_message_can_be_chosen(cluster: DevCluster, api: Api) -> None:
    cluster.faults.fail(500, reason="Odd", message="something odd", resource="pods")
    answer = await api.get(api.pods())
    assert (answer.reason, answer.message) == ("Odd", "something odd")


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
async def test_a_dropped_connection_tells_nothing(
    cluster: DevCluster, api: Api, applied: bool
) -> None:
    await api.make_pod("a")
    cluster.faults.drop(applied=applied, verb="create", resource="pods/binding")
    with pytest.raises(aiohttp.ClientError):
        await api.bind("a", "node-1")
    bound = "nodeName" in (await api.get(api.pods("a"))).body["spec"]
    assert bound is applied


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
async def test_a_hanging_request_goes_on_when_released(
    cluster: DevCluster, api: Api, applied: bool
) -> None:
    await api.make_pod("a")
    fault = cluster.faults.hang(applied=applied, verb="create", resource="pods/binding")
    task = asyncio.create_task(api.bind("a", "node-1"))
    await fault.wait_hit()
    await asyncio.sleep(0)
    pod = cluster.get("pods", "a")
    assert pod is not None
    assert ("nodeName" in pod["spec"]) is applied
    assert not task.done()
    fault.release()
    assert (await task).status == 201


async def test_a_hanging_request_can_be_lost_in_the_end(cluster: DevCluster, api: Api) -> None:
    await api.make_pod("a")
    fault = cluster.faults.hang(dropped=True, verb="create", resource="pods/binding")
    task = asyncio.create_task(api.bind("a", "node-1"))
    await fault.wait_hit()
    fault.release()
    with pytest.raises(aiohttp.ClientError):
        await task
    assert "nodeName" not in (await api.get(api.pods("a"))).body["spec"]


async def test_a_client_that_gives_up_leaves_nothing_behind(cluster: DevCluster, api: Api) -> None:
    await api.make_pod("a")
    fault = cluster.faults.hang(verb="create", resource="pods/binding")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(api.bind("a", "node-1"), 0.05)
    await api.get(api.pods("a"))  # by now the server has seen the client go
    fault.release()
    await api.get(api.pods("a"))
    pod = cluster.get("pods", "a")
    assert pod is not None
    assert "nodeName" not in pod["spec"]


async def test_a_delayed_request_is_answered_late(cluster: DevCluster, api: Api) -> None:
    loop = asyncio.get_running_loop()
    cluster.faults.delay(0.05, verb="list", resource="nodes")
    began = loop.time()
    assert (await api.get(api.nodes())).status == 200
    assert loop.time() - began >= 0.05


async def test_a_delay_and_a_failure_add_up(cluster: DevCluster, api: Api) -> None:
    late = cluster.faults.delay(0.01, resource="pods")
    bad = cluster.faults.fail(503, resource="pods")
    assert (await api.get(api.pods())).status == 503
    assert (late.hits, bad.hits) == (1, 1)


async def test_a_watch_can_be_refused(cluster: DevCluster, api: Api) -> None:
    cluster.faults.fail(500, verb="watch", resource="pods")
    assert (await api.get(api.pods(), watch=1)).status == 500


async def test_discovery_and_health_meet_no_faults(cluster: DevCluster, api: Api) -> None:
    cluster.faults.fail(500, times=None)
    assert (await api.get("/readyz")).status == 200
    assert (await api.get("/api/v1")).status == 200
    assert (await api.get(api.pods())).status == 500


async def test_stopping_lets_go_of_what_hangs(api: Api, cluster: DevCluster) -> None:
    fault = cluster.faults.hang(verb="list", resource="pods")
    task = asyncio.create_task(api.get(api.pods()))
    await fault.wait_hit()
    await cluster.stop()
    results = await asyncio.gather(task, return_exceptions=True)
    assert not isinstance(results[0], asyncio.CancelledError)


def call(**fields: str) -> Call:
    plain = {"verb": "create", "resource": "pods", "namespace": "default", "name": "", "path": "/"}
    return Call(**{**plain, **fields})


@pytest.mark.parametrize(
    ("match", "want"),
    [
        pytest.param({}, True, id="everything"),
        pytest.param({"verb": "create"}, True, id="verb"),
        pytest.param({"verb": "delete"}, False, id="another verb"),
        pytest.param({"resource": "pods/binding"}, False, id="another resource"),
        pytest.param({"resource": "pods*"}, True, id="a pattern of resources"),
        pytest.param({"namespace": "kube-*"}, False, id="another namespace"),
        pytest.param({"where": lambda call: call.name == ""}, True, id="a condition"),
        pytest.param({"where": lambda call: call.name == "a"}, False, id="an unmet condition"),
    ],
)
def test_a_fault_is_about_the_requests_that_match(match: Json, want: bool) -> None:
    fault = Faults().fail(500, **match)
    assert fault.matches(call()) is want


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        pytest.param({}, [1, 0, 0, 0, 0, 0], id="once"),
        pytest.param({"times": 2}, [1, 1, 0, 0, 0, 0], id="twice"),
        pytest.param({"times": None}, [1, 1, 1, 1, 1, 1], id="always"),
        pytest.param({"skip": 2}, [0, 0, 1, 0, 0, 0], id="after two"),
        pytest.param({"times": None, "every": 3}, [0, 0, 1, 0, 0, 1], id="every third"),
        pytest.param({"times": 1, "skip": 1, "every": 2}, [0, 0, 1, 0, 0, 0], id="all of it"),
    ],
)
def test_a_fault_hits_by_count(counts: Json, want: list[int]) -> None:
    faults = Faults()
    faults.fail(500, **counts)
    assert [len(faults.striking(call())) for _ in range(6)] == want


def test_the_first_fault_that_ends_a_request_wins() -> None:
    faults = Faults()
    first, second = faults.fail(500), faults.fail(503)
    assert faults.striking(call()) == [first]
    assert faults.striking(call()) == [second]


def test_cleared_faults_hit_nobody() -> None:
    faults = Faults()
    faults.fail(500, times=None)
    faults.clear()
    assert faults.striking(call()) == []


def test_an_interval_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="every: want an int of at least 1, got `0`"):
        Faults().fail(500, every=0)


# --- watches, outages ----------------------------------------------------------------------


async def test_closed_watches_end_in_order(cluster: DevCluster, api: Api) -> None:
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        cluster.create(pod("a"))
        assert cluster.close_watches("pods") == 1
        events = await watch.rest()
    assert [seen(event) for event in events] == [("ADDED", "a")]


async def test_aborted_watches_break_the_connection(cluster: DevCluster, api: Api) -> None:
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        cluster.close_watches("pods", abort=True)
        with pytest.raises(aiohttp.ClientError):
            await watch.next()


async def test_nothing_follows_on_an_aborted_watch(cluster: DevCluster, api: Api) -> None:
    """A later line after dropped ones told clients that they had seen them: pods were lost."""
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        cluster.create(pod("dropped"))
        cluster.close_watches("pods", abort=True)
        cluster.create(pod("later"))
        cluster.send_bookmarks()
        with pytest.raises(aiohttp.ClientError):
            await watch.next()


async def test_expired_watches_end_with_410(cluster: DevCluster, api: Api) -> None:
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        cluster.expire_watches("pods")
        (event,) = await watch.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_stalled_watches_are_silent_until_resumed(cluster: DevCluster, api: Api) -> None:
    version = await api.revision()
    cluster.stall_watches("pods")
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        cluster.create(pod("a"))
        assert await watch.is_quiet()
        cluster.resume_watches()
        # The line that `is_quiet` waited for in vain is still to come.
        assert seen(await watch.next()) == ("ADDED", "a")


async def test_bookmarks_can_be_sent_at_will(cluster: DevCluster, api: Api) -> None:
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        cluster.create(pod("a"))
        cluster.send_bookmarks("pods")
        added, bookmark = await watch.take(2)
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    want = str(cluster.store.revision)
    assert bookmark["object"]["metadata"]["resourceVersion"] == want


async def test_bookmarks_come_at_their_interval() -> None:
    async with (
        aiohttp.ClientSession() as session,
        DevCluster(bookmark_interval=0.01) as cluster,
    ):
        api = Api(cluster.url, "default", True, session)
        version = await api.revision()
        async with api.watch(
            api.pods(), resourceVersion=version, allowWatchBookmarks="true"
        ) as watch:
            events = await watch.take(3)
    assert [event["type"] for event in events] == ["BOOKMARK"] * 3


async def test_a_client_that_goes_is_forgotten(cluster: DevCluster, api: Api) -> None:
    async with api.watch(api.pods(), resourceVersion=await api.revision()):
        assert len(cluster.watches("pods")) == 1
    await eventually(lambda: not cluster.watches("pods"))
    assert cluster.store.table("pods").subscribers == []


async def test_a_crash_refuses_connections_until_the_recovery(
    cluster: DevCluster, api: Api
) -> None:
    await api.make_pod("a")
    url = cluster.url
    await cluster.crash()
    with pytest.raises(aiohttp.ClientConnectionError):
        await api.get(api.pods())
    await cluster.recover()
    assert cluster.url == url
    assert names(await api.get(api.pods())) == ["a"]


async def test_a_crash_breaks_requests_that_hang(cluster: DevCluster, api: Api) -> None:
    fault = cluster.faults.hang(verb="list", resource="pods", times=None)
    task = asyncio.create_task(api.get(api.pods()))
    await fault.wait_hit()
    await cluster.crash()
    with pytest.raises(aiohttp.ClientError):
        await task


async def test_requests_are_counted_by_verb_and_resource(cluster: DevCluster, api: Api) -> None:
    await api.make_pod("a")
    await api.bind("a", "node-1")
    await api.bind("a", "node-1")
    await api.get(api.pods())
    assert cluster.requests["create", "pods/binding"] == 2
    assert cluster.requests["create", "pods"] == 1
    assert cluster.requests["list", "pods"] == 1


def pod(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }


async def test_a_client_that_does_not_read_is_cut_off(
    cluster: DevCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devkit.cluster.watches.MAX_BACKLOG", 10)
    version = await api.revision()
    cluster.stall_watches("pods")
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        cluster.create(*(pod(f"p{index}") for index in range(11)))
        with pytest.raises(aiohttp.ClientError):
            await watch.next()
