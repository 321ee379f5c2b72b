"""The links of the queue's screen: each leads to the pods that it counts."""

import aiohttp
import msgspec
import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.surfaces.live.answers import PlaceCounts, QueuePage
from engine.surfaces.page.queue_view import queue_view
from engine.surfaces.page.rendering import render_content
from engine.surfaces.page.screens import PODS, QUEUE
from tests.engine.app.harness import scheduler
from tests.engine.surfaces.page import answers
from tests.waiting import eventually


@pytest.mark.asyncio
@pytest.mark.usefixtures("no_sandboxes")
async def test_links_lead_to_the_pods_that_they_count() -> None:
    """Pods without an owner, too, beside those of owners in the same namespace."""
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "u", "controller": True}
    async with DevCluster() as cluster, scheduler(cluster, local_port=0) as app:
        cluster.create(make_node("small", cpu="1"))
        for number in range(6):
            pod = make_pod(f"big-{number}", cpu="4")
            if number % 3:
                pod["metadata"]["ownerReferences"] = [{**controller, "name": f"rs-{number % 3}"}]
            cluster.create(pod)
        cluster.create(make_pod("gated", schedulingGates=[{"name": "later"}]))
        counts = app.kernel.queue.counts
        await eventually(lambda: (counts()["unschedulable"], counts()["gated"]) == (6, 1))
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"
        async with aiohttp.ClientSession(url) as session:

            async def asked(address: str) -> QueuePage:
                async with session.get("/queue" + address) as response:
                    assert response.status == 200, (address, await response.text())
                    return msgspec.json.decode(await response.read(), type=QueuePage)

            for by in ("workload", "owner", "namespace", "reason"):
                view = queue_view(await asked(f"?by={by}"), {"by": by})
                assert view.rows
                for one in view.rows:
                    assert (await asked(one.address)).total_pods == one.row.pods
                for tab in view.tabs:
                    if tab.address:
                        assert (await asked(tab.address)).total_pods == tab.count


def test_pods_that_are_being_tried_are_counted_without_a_link() -> None:
    page = answers.queue(answers.row(), counts=PlaceCounts(unschedulable=1, in_flight=3))
    addresses = {tab.place: tab.address for tab in queue_view(page, {}).tabs}
    assert [place for place, address in addresses.items() if not address] == ["in_flight"]
    content = render_content(QUEUE, page, {})
    assert "in flight <b>3</b>" in content
    assert "in_flight" not in content


def test_a_row_without_a_reason_is_named_so_and_asked_for_by_it() -> None:
    page = answers.queue(answers.row(reason="", place="active", message=""))
    (row,) = queue_view(page, {"by": "reason"}).rows
    assert (row.name, row.address) == ("(no reason)", "?reason=none&place=active")


def test_a_page_whose_rows_have_gone_leads_to_the_first() -> None:
    """Pods that wait are still there, and may be listed: no other reason is named."""
    asked = {"sort": "pods", "continue": "100"}
    page = answers.queue(counts=PlaceCounts(unschedulable=9), total_pods=9, total_rows=2)
    content = render_content(QUEUE, page, asked)
    assert 'No rows are left here: <a href="?sort=pods">first rows</a>.' in content
    assert "may not list" not in content


def test_pods_that_were_found_but_are_on_an_earlier_page_lead_there() -> None:
    page = msgspec.structs.replace(answers.pods(), rows=(), total=9)
    content = render_content(PODS, page, {"text": "web", "continue": "100"})
    assert 'No rows are left here: <a href="?text=web">first rows</a>.' in content
    assert "like that" not in content
