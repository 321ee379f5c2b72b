"""The page of a running scheduler, in a real browser."""

import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from engine.io.leader_election import LeaseSettings
from engine.surfaces.live.answers import NodeAnswer, PodAnswer
from tests.browser import visiting
from tests.engine.app.harness import config_map, edit, namespace, node_of, scheduler
from tests.engine.core.kernel.queue_world import tree_files
from tests.waiting import eventually

#: The loop that the browser runs in.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("no_sandboxes")]

EVIL: Final = "<img src=x onerror=alert(1)>{{7*7}}"
POLICY: Final = '''\
"""Keeps pods off nodes without a label. %s

Hooks: filter. Reads: node.labels["disk"].
"""

def filter(pod, node):
    return None if node.labels.get("disk") == "ssd" else "no %s"
'''
STAGES: Final = """\
apiVersion: starsched.dev/v1
kind: PolicyRuntime
rollout:
  shadow: {duration: 1s, compared: 5, cores: 0.5}
  canary:
    steps:
    - {share: 50%, duration: 1s, decisions: 5}
  gates: {latency: 1000, timeToBind: 1000}
"""
PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      filter:
        enabled:
          - name: need_disk
"""


def _files(text: str) -> dict[str, str]:
    return {"need_disk.star": text, "profile.yaml": PROFILE}


@pytest_asyncio.fixture(loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def _page_of(cluster: DevCluster, files: dict[str, str]) -> AsyncIterator[tuple[App, str]]:
    """A scheduler with these policies, and the address of its page."""
    cluster.create(namespace(), config_map(files))
    async with scheduler(cluster, from_config_map=True, local_port=0) as app:
        yield app, f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"


async def test_a_pod_is_unblocked_while_one_looks(browser: Browser, cluster: DevCluster) -> None:
    cluster.create(make_node("small", cpu="1"))
    async with (
        scheduler(cluster, local_port=0) as app,
        visiting(browser) as queue,
        visiting(browser) as why,
    ):
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"
        cluster.create(make_pod("big", cpu="4"))
        await queue.page.goto(url)
        row = queue.page.locator("tbody tr", has_text="big")
        await expect(row).to_contain_text("InsufficientResources")
        await row.get_by_role("link").click()
        await expect(queue.page.locator(".verdict")).to_contain_text("unschedulable")
        await expect(queue.page.locator("#policies")).to_contain_text("node_resources_fit.star:")
        await why.page.goto(url + "/nodes/small")
        await expect(why.page.locator("#classes")).to_contain_text("Insufficient cpu")
        cluster.create(make_node("large", cpu="8"))
        await eventually(lambda: node_of(cluster, "big") == "large")
        await expect(queue.page.locator(".verdict")).to_contain_text("bound")
        await why.page.goto(url + "/queue")
        await expect(why.page.locator("main")).to_contain_text("No pod waits.")
        assert queue.complaints == why.complaints == []


async def test_the_page_shows_the_answer_that_programs_get(
    browser: Browser, cluster: DevCluster
) -> None:
    cluster.create(make_node("small", cpu="1"), make_node("large", cpu="8"))
    cluster.create(make_pod("big", cpu="4", nodeSelector={"disk": "tape"}), make_pod("web"))
    async with scheduler(cluster, local_port=0) as app, visiting(browser) as visit:
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 1)
        await eventually(lambda: node_of(cluster, "web"))
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"
        for name in ("big", "web"):
            path = f"/explain/default/{name}"
            async with aiohttp.ClientSession(url) as session, session.get(path) as response:
                answer = msgspec.json.decode(await response.read(), type=PodAnswer)
            await visit.page.goto(url + path)
            main = visit.page.locator("main")
            groups = [
                group for policy in answer.policies if policy.rejects for group in policy.groups
            ]
            texts = [answer.headline, answer.next_step, answer.reason, answer.message]
            texts += [text for one in groups for text in (one.reason, one.source, one.token)]
            texts += [remedy.text for remedy in answer.remedies]
            texts += [one.node for one in answer.ranking]
            assert len([*filter(None, texts)]) > 2
            for text in filter(None, texts):
                await expect(main).to_contain_text(text.replace("`", ""))


async def test_an_edit_is_followed_to_its_end(browser: Browser, cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"))
    good = POLICY % ("Kept simple.", "disk")
    async with (
        _page_of(cluster, _files(good)) as (app, url),
        visiting(browser) as visit,
    ):
        page, first = visit.page, app.policies.rollout.active.bundle.revision
        await page.goto(url + "/policies")
        latest = page.locator(".revision").first
        await expect(latest).to_contain_text(first)
        # 1. A good one.
        edit(cluster, _files(good.replace("ssd", "tape")))
        await eventually(lambda: app.policies.rollout.active.bundle.revision != first)
        await expect(latest).to_contain_text(app.policies.rollout.active.bundle.revision)
        await expect(latest.locator(".steps")).to_contain_text("tried")
        # 2. A bad one, with its problem at its line.
        edit(cluster, _files(good.replace("node.labels.get", "node.lables.get")))
        await expect(latest.locator(".line")).to_contain_text("rejected")
        await expect(latest.locator("tr.bad + tr.problem")).to_contain_text(
            "need_disk.star:7:25 `node` has no field `lables`"
        )
        await expect(page.locator(".revision").nth(1).locator(".line")).not_to_contain_text(
            "rejected"
        )
        assert visit.complaints == []


async def test_roll_outs_are_paused_while_one_looks(browser: Browser, cluster: DevCluster) -> None:
    async with _page_of(cluster, {}) as (app, url), visiting(browser) as visit:
        main = visit.page.locator("main")
        await visit.page.goto(url + "/rollout")
        revision = app.policies.rollout.active.bundle.revision
        await expect(main).to_contain_text(f"Nothing is being rolled out; {revision} is in force.")
        mode = config_map({"mode": "paused", "promote": "<b>now</b>"})
        mode["metadata"]["name"] += "-rollout"
        cluster.create(mode)
        await expect(main).to_contain_text("Roll-outs are paused")
        await expect(main.locator(".problem")).to_contain_text("got <b>now</b>")
        await expect(main.locator("#commands")).to_contain_text("starsched rollout resume")
        assert visit.complaints == []


async def test_an_edit_goes_through_its_stages_while_one_looks(
    browser: Browser, cluster: DevCluster
) -> None:
    """Each stage goes on when pods have come, so it is there for as long as one looks."""
    cluster.create(make_node("node-1", cpu="1000", pods=1000))
    before, after = (
        {"mine.star": f'"""Version {number}."""\n', "runtime.yaml": STAGES} for number in (1, 2)
    )
    numbers = itertools.count()

    async def pods_until(condition: Callable[[], bool]) -> None:
        def more() -> bool:
            cluster.create(make_pod(f"web-{next(numbers)}"))
            return condition()

        await eventually(more, seconds=60)

    async with (
        _page_of(cluster, before) as (app, url),
        visiting(browser) as rollout,
        visiting(browser) as policies,
    ):
        first = app.policies.rollout.active.bundle.revision
        await rollout.page.goto(url + "/rollout")
        await policies.page.goto(url + "/policies")
        edit(cluster, after)
        stages, latest = rollout.page.locator(".steps li"), policies.page.locator(".revision").first
        now = rollout.page.locator(".steps li.now")
        await expect(stages).to_have_text([re.compile(one) for one in ("shadow", "canary", "in f")])
        await expect(now).to_contain_text("shadow")
        await expect(latest.locator(".steps li.now")).to_contain_text("shadow")
        gates = rollout.page.locator("#gates")
        await expect(gates).to_contain_text("compared: 0 of 5")
        await pods_until(lambda: app.policies.rollout.status.stage == 1)
        await expect(now).to_contain_text("canary 50%")
        await expect(latest.locator(".steps li.now")).to_contain_text("canary")
        await expect(rollout.page.locator("main")).to_contain_text("decides about 50% of the pods")
        await pods_until(lambda: app.policies.rollout.active.bundle.revision != first)
        await expect(rollout.page.locator(".headline")).to_contain_text("has passed its stages")
        await expect(latest.locator(".steps li.done")).to_contain_text(["offered", "shadow"])
        await expect(latest.locator(".steps")).to_contain_text("probation")
        assert rollout.complaints == policies.complaints == []


async def test_a_queue_gets_its_share_while_one_looks(
    browser: Browser, cluster: DevCluster
) -> None:
    cluster.create(make_node("n", cpu="4"))
    async with (
        _page_of(cluster, tree_files(queues={"research": {"weight": 3}, "web": {}})) as (_, url),
        visiting(browser) as visit,
    ):
        main = visit.page.locator("main")
        for number in range(4):
            cluster.create(make_pod(f"w{number}", cpu="1", labels={"queue": "web"}))
        await eventually(lambda: node_of(cluster, "w3"))
        await visit.page.goto(url + "/queues")
        await expect(main.locator("#pairs")).to_have_count(0)
        cluster.create(make_pod("r", cpu="2", labels={"queue": "research"}))
        await expect(main.locator("#pairs tbody")).to_contain_text("researchwebcpu2")
        await expect(main.locator(".headline")).to_have_text(
            "Of 2 queues, 1 starves and 1 borrows."
        )
        cluster.delete("pods", "w0", grace=0)
        cluster.delete("pods", "w1", grace=0)
        await expect(main.locator(".headline")).to_have_text("No queue starves; 0 borrow.")
        await visit.page.get_by_role("link", name="research").click()
        await expect(main.locator("#pods")).to_contain_text("default/r")
        await expect(main.locator("#pods")).to_contain_text("allocated")
        assert visit.complaints == []


async def test_text_of_a_policy_stays_text(browser: Browser, cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"))
    async with (
        _page_of(cluster, _files(POLICY % (EVIL, EVIL))) as (_app, url),
        visiting(browser) as visit,
    ):
        cluster.create(make_pod("web"))
        main = visit.page.locator("main")
        await visit.page.goto(url + "/queue")
        await expect(main).to_contain_text(f"no {EVIL}")
        await visit.page.get_by_role("link", name="default/web").click()
        await expect(main.locator("#policies")).to_contain_text(f"no {EVIL}")
        # The rule leads to its line, which opens.
        await main.get_by_role("link", name="need_disk.star:").click()
        await expect(main.get_by_text(f'else "no {EVIL}"')).to_be_visible()
        assert await main.locator("img").count() == 0
        assert visit.complaints == []


async def test_the_page_of_a_standby_leads_to_the_leader(
    browser: Browser, cluster: DevCluster
) -> None:
    lease = LeaseSettings(name="starsched", namespace="kube-system")
    cluster.create(make_node("node-1", cpu="1"), make_pod("big", cpu="4"))
    async with (
        scheduler(cluster, lease=lease, local_port=0) as leader,
        scheduler(cluster, lease=lease, local_port=0, wait=False) as standby,
        visiting(browser) as visit,
    ):
        assert leader.leadership.elector is not None
        assert standby.leadership.elector is not None
        elector = standby.leadership.elector
        await eventually(lambda: elector.holder_page)
        await visit.page.goto(f"http://127.0.0.1:{standby.surfaces.endpoints.local_port}/queue")
        await expect(visit.page.locator("main")).to_contain_text(leader.leadership.elector.identity)
        await visit.page.locator("main").get_by_role("link").first.click()
        assert visit.page.url == f"http://127.0.0.1:{leader.surfaces.endpoints.local_port}/queue"
        await expect(visit.page.locator("tbody")).to_contain_text("big")
        await expect(visit.page.locator(".moment")).to_contain_text("this process leads")


async def test_a_node_says_which_pods_it_could_take(cluster: DevCluster) -> None:
    cluster.create(make_node("small", cpu="1"), make_node("other", cpu="1"))
    cluster.create(make_pod("fits", cpu="100m", schedulingGates=[{"name": "example.com/wait"}]))
    cluster.create(*(make_pod(f"big-{i}", cpu="4") for i in range(3)))
    async with scheduler(cluster, local_port=0) as app:
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 3)
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"
        async with aiohttp.ClientSession(url) as session:
            async with session.get("/nodes/small") as response:
                answer = msgspec.json.decode(await response.read(), type=NodeAnswer)
            async with session.get("/nodes/unknown") as response:
                assert response.status == 404
    assert answer.node.name == "small"
    found = {one.row.example.partition("/")[2]: one for one in answer.classes}
    assert found["fits"].verdict == "fits"
    (big,) = [one for name, one in found.items() if name.startswith("big")]
    assert (big.row.pods, big.verdict) == (3, "rejects")
    assert big.rejections == {"NodeResourcesFit": ("Insufficient cpu",)}
