"""What happens to watches and lists when history is forgotten or the server goes away."""

import aiohttp
import pytest

from tests.contract.harness import Breakable, names, seen


async def test_a_watch_from_before_a_compaction_has_expired(breakable: Breakable) -> None:
    api = breakable.api
    version = (await api.make_pod("a"))["metadata"]["resourceVersion"]
    await api.make_pod("b")
    await breakable.compact()
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        event = await watch.next()
        assert await watch.rest() == []
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["kind"] == "Status"
    assert event["object"]["message"].startswith(f"too old resource version: {version} (")


async def test_a_watch_from_the_compaction_on_is_served(breakable: Breakable) -> None:
    api = breakable.api
    await api.make_pod("a")
    await breakable.compact()
    version = await api.revision()
    await api.make_pod("b")
    async with api.watch(api.pods(), resourceVersion=version) as watch:
        assert seen(await watch.next()) == ("ADDED", "b")


async def test_pages_from_before_a_compaction_have_expired(breakable: Breakable) -> None:
    api = breakable.api
    for name in ("a", "b", "c"):
        await api.make_pod(name)
    first = await api.get(api.pods(), limit=1)
    await api.make_pod("d")
    await breakable.compact()
    token = first.body["metadata"]["continue"]
    answer = await api.get(api.pods(), limit=5, **{"continue": token})
    assert (answer.status, answer.reason) == (410, "Expired")
    assert answer.message.startswith("The provided continue parameter is too old")
    # The rest is offered at the price of consistency.
    token = answer.body["metadata"]["continue"]
    answer = await api.get(api.pods(), limit=5, **{"continue": token})
    assert names(answer) == ["b", "c", "d"]


async def test_an_exact_version_from_before_a_compaction_has_expired(
    breakable: Breakable,
) -> None:
    api = breakable.api
    version = (await api.make_pod("a"))["metadata"]["resourceVersion"]
    await api.make_pod("b")
    await breakable.compact()
    answer = await api.get(api.pods(), resourceVersion=version, resourceVersionMatch="Exact")
    assert (answer.status, answer.reason) == (410, "Expired")


async def test_one_object_not_older_than_a_version_tells_if_the_server_knows_it(
    breakable: Breakable,
) -> None:
    """A server that was set back to a backup does not know the versions that came after it."""
    api = breakable.api
    version = (await api.make_pod("a"))["metadata"]["resourceVersion"]
    await api.make_pod("b")
    await breakable.compact()
    asked = {"limit": 1, "resourceVersionMatch": "NotOlderThan"}
    answer = await api.get(api.pods(), resourceVersion=version, **asked)
    assert (answer.status, names(answer)) == (200, ["a"])
    later = str(int(await api.revision()) + 10_000)
    answer = await api.get(api.pods(), resourceVersion=later, **asked)
    assert (answer.status, answer.reason) == (504, "Timeout")
    causes = answer.body["details"]["causes"]
    assert [cause["reason"] for cause in causes] == ["ResourceVersionTooLarge"]


async def test_a_restart_breaks_watches_and_keeps_objects(breakable: Breakable) -> None:
    api = breakable.api
    made = await api.make_pod("a")
    async with api.watch(api.pods(), resourceVersion=await api.revision()) as watch:
        await breakable.restart()
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await watch.next()
    assert (await api.get(api.pods("a"))).body == made
    later = await api.make_pod("b")
    got = int(later["metadata"]["resourceVersion"])
    assert got > int(made["metadata"]["resourceVersion"])
