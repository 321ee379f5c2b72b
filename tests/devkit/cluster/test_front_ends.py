"""Several API servers of one store: what one that is behind shows, and a restore from a backup."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from devkit.cluster.front_end import FrontEnd
from devkit.cluster.store import Store
from devkit.cluster.watch_cache import WatchCache
from devkit.cluster.watches import Watch
from engine.core.manifests.kinds import PODS
from tests.contract.harness import Api, names
from tests.waiting import eventually, idle

Json = dict[str, Any]


@pytest.fixture
async def other(cluster: DevCluster) -> AsyncIterator[FrontEnd]:
    found = cluster.add_front_end()
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def behind(other: FrontEnd) -> AsyncIterator[Api]:
    """The other one's API."""
    async with aiohttp.ClientSession() as session:
        yield Api(f"http://127.0.0.1:{other.port}", "default", True, session)


async def test_what_one_writes_the_other_has(
    cluster: DevCluster, api: Api, behind: Api, other: FrontEnd
) -> None:
    await api.make_pod("a")
    assert names(await behind.get(behind.pods())) == ["a"]
    other.cache.fall_behind()
    await api.make_pod("b")
    # The newest is the store's, whichever server is asked.
    assert names(await behind.get(behind.pods())) == ["a", "b"]
    assert (await behind.get(behind.pods("b"))).status == 200


async def test_a_list_that_may_be_old_is_as_old_as_the_server_that_answers(
    cluster: DevCluster, api: Api, behind: Api, other: FrontEnd
) -> None:
    await api.make_pod("a")
    other.cache.fall_behind()
    then = await api.revision()
    await api.make_pod("b")
    found = await behind.get(behind.pods(), resourceVersion="0")
    assert (names(found), found.body["metadata"]["resourceVersion"]) == (["a"], str(then))
    assert names(await api.get(api.pods(), resourceVersion="0")) == ["a", "b"]
    refused = await behind.get(
        behind.pods(),
        resourceVersion=str(await api.revision()),
        resourceVersionMatch="NotOlderThan",
    )
    causes = [cause["reason"] for cause in refused.body["details"]["causes"]]
    assert (refused.status, causes) == (504, ["ResourceVersionTooLarge"])
    other.cache.catch_up()
    assert names(await behind.get(behind.pods(), resourceVersion="0")) == ["a", "b"]


async def test_a_watch_of_one_that_is_behind_is_late_and_misses_nothing(
    cluster: DevCluster, api: Api, behind: Api, other: FrontEnd
) -> None:
    await api.make_pod("a")
    async with behind.watch(behind.pods(), resourceVersion=await api.revision()) as watch:
        other.cache.fall_behind(1)
        await api.make_pod("b")
        assert other.cache.late == 1
        await api.make_pod("c")
        assert (await watch.next())["object"]["metadata"]["name"] == "b"
        other.cache.catch_up()
        assert (await watch.next())["object"]["metadata"]["name"] == "c"


async def test_a_watch_from_a_version_that_it_has_not_seen_goes_on_after_that(
    cluster: DevCluster, api: Api, behind: Api, other: FrontEnd
) -> None:
    other.cache.fall_behind()
    await api.make_pod("a")
    async with behind.watch(behind.pods(), resourceVersion=await api.revision()) as watch:
        await api.make_pod("b")
        cluster.send_bookmarks()  # it would say that less has happened than is known
        other.cache.catch_up()
        assert (await watch.next())["object"]["metadata"]["name"] == "b"


def test_a_revision_is_seen_with_all_that_happened_before_it() -> None:
    """Whatever is written between, bookmarks never promise what is still held back."""
    store = Store()
    cache = WatchCache(store)
    watch = Watch(PODS, cache.table("pods"), "", None)
    watch.begin(0, current=0, initial=False, bookmark=False)
    cache.fall_behind(3)
    store.write("pods", "default/a", {"metadata": {"name": "a"}})
    for number in range(9):
        store.write("leases", "l", {"metadata": {"name": "l", "number": number}})
    assert cache.revision == 0
    store.write("pods", "default/b", {"metadata": {"name": "b"}})
    assert cache.revision == 8
    assert [json.loads(line)["object"]["metadata"]["name"] for line in watch._lines] == ["a"]


async def test_a_restore_forgets_what_came_after_the_backup(cluster: DevCluster, api: Api) -> None:
    cluster.create(make_node("node-1"), make_pod("a"), make_pod("b"))
    backup = cluster.store.backup()
    bound = cluster.bind("a", "node-1")
    cluster.delete("pods", "b")
    cluster.create(make_pod("c"))
    before = cluster.store.revision
    await cluster.crash()
    cluster.restore(backup)
    await cluster.recover()

    found = await api.get(api.pods())
    assert names(found) == ["a", "b"]
    assert all("nodeName" not in one["spec"] for one in found.body["items"])
    assert int(found.body["metadata"]["resourceVersion"]) > before
    cluster.store.check_invariants()
    # A client that knows what is forgotten is told to list again.
    version = bound["metadata"]["resourceVersion"]
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        event = await watch.next()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_kubelets_find_out_what_a_restore_forgot(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"), make_pod("a"))
    backup = cluster.store.backup()
    cluster.start_kubelets()
    cluster.bind("a", "node-1")
    cluster.restore(backup)  # before the kubelet has run the pod
    await idle()

    def phase() -> str:
        found = cluster.get("pods", "a")
        assert found is not None
        return str(found["status"]["phase"])

    assert phase() == "Pending"
    cluster.bind("a", "node-1")
    await eventually(lambda: phase() == "Running")
