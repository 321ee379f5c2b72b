"""Watches: what they replay, what a selector lets through, how they end."""

import asyncio

import pytest

from tests.contract.harness import MERGE, Api, names, seen


async def test_a_watch_from_a_list_shows_every_later_change_in_order(api: Api) -> None:
    await api.make_pod("before")
    version = await api.revision()
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        made = await api.make_pod("a")
        await api.bind("a", "node-1")
        await api.delete(api.pods("a"), gracePeriodSeconds=0)
        events = await watch.take(4)
    types = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert [seen(event) for event in events] == [(kind, "a") for kind in types]
    assert events[0]["object"] == made
    assert events[1]["object"]["spec"]["nodeName"] == "node-1"
    assert "deletionTimestamp" in events[2]["object"]["metadata"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)


async def test_a_watch_can_start_in_the_past(api: Api) -> None:
    version = (await api.make_pod("a"))["metadata"]["resourceVersion"]
    await api.make_pod("b")
    await api.delete(api.pods("b"))
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        events = await watch.take(3)
        assert await watch.is_quiet()
    want = [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert [seen(event) for event in events] == want


async def test_a_deleted_event_shows_the_last_state_at_the_deletions_version(api: Api) -> None:
    made = await api.make_pod("a", labels={"app": "web"})
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        await api.delete(api.pods("a"))
        events = await watch.take(2)
    last = events[1]["object"]
    assert last["metadata"]["labels"] == {"app": "web"}
    assert int(last["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_without_a_version_starts_with_what_is_there(api: Api, version: str) -> None:
    await api.make_pod("a")
    await api.make_pod("b")
    params = {"resourceVersion": version} if version else {}

    async def find() -> list[tuple[str, str]]:
        async with api.watch(api.pods(), **params) as watch:
            return [seen(event) for event in await watch.take(2)]

    assert await find() == [("ADDED", "a"), ("ADDED", "b")]


async def test_after_what_is_there_come_the_changes(api: Api) -> None:
    await api.make_pod("a")
    async with api.watch(api.pods()) as watch:
        assert seen(await watch.next()) == ("ADDED", "a")
        await api.make_pod("b")
        assert seen(await watch.next()) == ("ADDED", "b")


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    await api.make_pod("a")
    async with api.watch(
        api.pods(),
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as watch:
        assert seen(await watch.next()) == ("ADDED", "a")
        bookmark = await watch.next()
    assert bookmark["type"] == "BOOKMARK"
    want = {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["metadata"]["annotations"] == want
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) > 0


async def test_initial_events_need_a_version_match(api: Api) -> None:
    answer = await api.get(api.pods(), watch=1, sendInitialEvents="true", timeoutSeconds=1)
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_an_object_that_leaves_the_selector_is_deleted(api: Api) -> None:
    await api.make_pod("a", labels={"tier": "web"})
    version = await api.revision()
    async with api.watch(api.pods(), resourceVersion=version, labelSelector="tier=web") as watch:
        answer = await api.patch(api.pods("a"), {"metadata": {"labels": {"tier": "db"}}}, MERGE)
        event = await watch.next()
    assert seen(event) == ("DELETED", "a")
    # As it last matched, at the version of the change.
    assert event["object"]["metadata"]["labels"] == {"tier": "web"}
    want = answer.body["metadata"]["resourceVersion"]
    assert event["object"]["metadata"]["resourceVersion"] == want


async def test_an_object_that_enters_the_selector_is_added(api: Api) -> None:
    await api.make_pod("a", labels={"tier": "db"})
    version = await api.revision()
    async with api.watch(api.pods(), resourceVersion=version, labelSelector="tier=web") as watch:
        await api.patch(api.pods("a"), {"metadata": {"labels": {"tier": "web"}}}, MERGE)
        assert seen(await watch.next()) == ("ADDED", "a")
        await api.patch(api.pods("a"), {"metadata": {"labels": {"more": "x"}}}, MERGE)
        assert seen(await watch.next()) == ("MODIFIED", "a")
        await api.delete(api.pods("a"))
        assert seen(await watch.next()) == ("MODIFIED", "a")
        assert seen(await watch.next()) == ("DELETED", "a")


async def test_a_pod_leaves_the_unassigned_ones_when_bound(api: Api) -> None:
    await api.make_pod("a")
    version = await api.revision()
    async with (
        api.watch(api.pods(), resourceVersion=version, fieldSelector="spec.nodeName=") as waiting,
        api.watch(api.pods(), resourceVersion=version, fieldSelector="spec.nodeName!=") as placed,
    ):
        await api.bind("a", "node-1")
        gone, come = await waiting.next(), await placed.next()
    assert (seen(gone), seen(come)) == (("DELETED", "a"), ("ADDED", "a"))
    assert "nodeName" not in gone["object"]["spec"]
    assert come["object"]["spec"]["nodeName"] == "node-1"


async def test_a_finished_pod_leaves_those_that_can_still_run(api: Api) -> None:
    await api.make_pod("a", spec={"nodeName": "node-1"})
    version = await api.revision()
    running = "status.phase!=Succeeded,status.phase!=Failed"
    async with api.watch(
        "/api/v1/pods",
        resourceVersion=version,
        fieldSelector=f"{running},metadata.namespace={api.namespace}",
    ) as watch:
        await api.patch(api.pods("a", "status"), {"status": {"phase": "Failed"}}, MERGE)
        assert seen(await watch.next()) == ("DELETED", "a")


async def test_selectors_apply_to_the_past_as_well(api: Api) -> None:
    version = (await api.make_pod("a"))["metadata"]["resourceVersion"]
    await api.bind("a", "node-1")
    async with api.watch(
        api.pods(), resourceVersion=version, fieldSelector="spec.nodeName="
    ) as watch:
        assert seen(await watch.next()) == ("DELETED", "a")


async def test_a_watch_sees_one_namespace_only(api: Api) -> None:
    version = await api.revision()
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        await api.make(
            "/api/v1/namespaces/default/configmaps", {"metadata": {"name": api.unique("noise")}}
        )
        await api.make(
            "/api/v1/namespaces/default/pods",
            {
                "metadata": {"name": api.unique("noise")},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        )
        await api.make_pod("a")
        assert seen(await watch.next()) == ("ADDED", "a")


async def test_a_watch_of_one_name_sees_that_one(api: Api) -> None:
    path = api.path("configmaps")
    version = await api.revision(path)
    async with api.watch(
        path, resourceVersion=version, fieldSelector="metadata.name=policies"
    ) as watch:
        await api.make(path, {"metadata": {"name": "noise"}})
        await api.make(path, {"metadata": {"name": "policies"}})
        assert seen(await watch.next()) == ("ADDED", "policies")


async def test_a_change_of_nothing_is_no_event(api: Api) -> None:
    await api.make_pod("a", labels={"x": "y"})
    version = await api.revision()
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        await api.patch(api.pods("a"), {"metadata": {"labels": {"x": "y"}}}, MERGE)
        assert await watch.is_quiet()


async def test_a_watch_ends_after_its_time(api: Api) -> None:
    version = await api.revision()
    async with api.watch(api.pods(), resourceVersion=version, timeoutSeconds=1) as watch:
        assert await watch.rest() == []


async def test_a_bookmark_comes_before_the_end(api: Api) -> None:
    version = await api.revision()
    async with api.watch(
        api.pods(), resourceVersion=version, timeoutSeconds=3, allowWatchBookmarks="true"
    ) as watch:
        made = await api.make_pod("a")
        assert seen(await watch.next()) == ("ADDED", "a")
        events = await watch.rest()
    assert {event["type"] for event in events} == {"BOOKMARK"}
    bookmark = events[-1]["object"]
    assert (bookmark["kind"], bookmark["apiVersion"]) == ("Pod", "v1")
    got = int(bookmark["metadata"]["resourceVersion"])
    assert got >= int(made["metadata"]["resourceVersion"])


async def test_no_bookmark_comes_unasked(api: Api) -> None:
    version = await api.revision()
    async with api.watch(api.pods(), resourceVersion=version, timeoutSeconds=3) as watch:
        assert await watch.rest() == []


async def test_a_watch_from_a_version_of_the_future_is_quiet(api: Api) -> None:
    async with api.watch(api.pods(), resourceVersion=2**40, timeoutSeconds=1) as watch:
        await api.make_pod("a")
        assert await watch.rest() == []


async def test_malformed_selectors_end_the_watch_before_it_starts(api: Api) -> None:
    answer = await api.get(api.pods(), watch=1, labelSelector="n in")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.get(api.pods(), watch=1, fieldSelector="spec.color=red")
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_list_then_watch_misses_nothing_under_load(api: Api) -> None:
    async def make(index: int) -> None:
        await api.make_pod(f"p{index:02}")

    makers = [asyncio.create_task(make(index)) for index in range(40)]
    await makers[10]
    listed = await api.get(api.pods())
    known = set(names(listed))
    version = listed.body["metadata"]["resourceVersion"]
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        await asyncio.gather(*makers)
        while len(known) < 40:
            kind, name = seen(await watch.next())
            assert kind == "ADDED"
            assert name not in known, "an object came twice"
            known.add(name)


async def test_two_watches_see_the_same_events(api: Api) -> None:
    version = await api.revision()
    async with (
        api.watch(api.pods(), resourceVersion=version) as one,
        api.watch(api.pods(), resourceVersion=version) as two,
    ):
        for index in range(5):
            await api.make_pod(f"p{index}")
        assert await one.take(5) == await two.take(5)
