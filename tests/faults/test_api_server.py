"""Whatever the API server answers, or does not: every pod is bound once, none is forgotten."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from devkit.cluster.faults import Match
from engine.app import App
from engine.policy.sandbox.process import SandboxEvaluator
from engine.rollout.assembly import make_stages
from tests.engine.app.harness import condition, events, metric, node_of, placements, scheduler
from tests.waiting import eventually, idle

pytestmark = [
    pytest.mark.slow("breaks whole schedulers"),
    pytest.mark.usefixtures("no_sandboxes"),
]

NODES, PODS, ROOM = 8, 80, 12


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(*(make_node(f"node-{i}", cpu="64", pods=ROOM) for i in range(NODES)))
        yield cluster


def pods(count: int = PODS, prefix: str = "web") -> list[dict[str, object]]:
    return [make_pod(f"{prefix}-{i}", cpu="10m") for i in range(count)]


async def all_placed(cluster: DevCluster, app: App, count: int = PODS) -> None:
    """Every pod has a node, no node has too many, and the scheduler knows just that."""
    await eventually(
        lambda: len(placements(cluster)) == count, seconds=60, what=f"{count} pods to be placed"
    )
    per_node = Counter(placements(cluster).values())
    assert max(per_node.values()) <= ROOM
    await eventually(lambda: app.cache.assumed_count == 0 and app.cache.pod_count == count)
    for pod in cluster.list("pods"):
        known = app.cache.get_pod(pod["metadata"]["uid"])
        assert known is not None
        assert known.node_name == pod["spec"]["nodeName"]
    assert len(app.kernel.queue) == 0


def bindings(*, times: int | None = 1, every: int = 1) -> Match:
    """Binding requests: each *every*-th, *times* of them."""
    return {"verb": "create", "resource": "pods/binding", "times": times, "every": every}


TROUBLES: dict[str, Callable[[DevCluster], object]] = {
    "500 before it took effect": lambda c: c.faults.fail(500, **bindings(times=20, every=3)),
    "500 after it took effect": lambda c: c.faults.fail(
        500, applied=True, **bindings(times=20, every=3)
    ),
    "503": lambda c: c.faults.fail(503, **bindings(times=20, every=3)),
    "504 after it took effect": lambda c: c.faults.fail(
        504, applied=True, **bindings(times=10, every=5)
    ),
    "429 with Retry-After": lambda c: c.faults.fail(
        429, retry_after=1, **bindings(times=10, every=5)
    ),
    "409 of a race": lambda c: c.faults.fail(409, **bindings(times=20, every=3)),
    "409 for good": lambda c: c.faults.fail(409, **bindings(times=6)),
    "404 for a moment": lambda c: c.faults.fail(404, **bindings(times=5, every=7)),
    "403 for a moment": lambda c: c.faults.fail(403, **bindings(times=5, every=7)),
    "answer lost before it took effect": lambda c: c.faults.drop(**bindings(times=20, every=3)),
    "answer lost after it took effect": lambda c: c.faults.drop(
        applied=True, **bindings(times=20, every=3)
    ),
    "lost, and unreadable for a while": lambda c: (
        c.faults.drop(applied=True, **bindings(times=10, every=5)),
        c.faults.fail(503, verb="get", resource="pods", times=20),
    ),
    "slow": lambda c: c.faults.delay(0.3, **bindings(times=40, every=2)),
    "watches break": lambda c: asyncio.get_running_loop().call_later(
        0.05, lambda: c.close_watches(abort=True)
    ),
    "watches expire": lambda c: asyncio.get_running_loop().call_later(
        0.05, lambda: (c.compact(), c.expire_watches())
    ),
    "events and conditions fail": lambda c: (
        c.faults.fail(500, resource="events*", times=40),
        c.faults.fail(500, resource="pods/status", times=40),
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
async def test_trouble_under_load_loses_no_pod(cluster: DevCluster, name: str) -> None:
    async with scheduler(cluster, initial_backoff=0.2, max_backoff=1.0) as app:
        TROUBLES[name](cluster)
        for i, pod in enumerate(pods()):
            cluster.create(pod)
            if i % 10 == 0:
                await idle(10)
        await all_placed(cluster, app)


async def test_a_crash_of_the_server_under_load_loses_no_pod(cluster: DevCluster) -> None:
    async with scheduler(cluster, initial_backoff=0.2, max_backoff=1.0) as app:
        cluster.create(*pods(30))
        await eventually(lambda: len(placements(cluster)) > 3)
        await cluster.crash()
        cluster.create(*pods(50, "late"))
        await idle(500)
        await cluster.recover()
        await all_placed(cluster, app)


async def test_a_pod_deleted_while_its_binding_is_under_way_leaves_no_trace(
    cluster: DevCluster,
) -> None:
    async with scheduler(cluster) as app:
        hold = cluster.faults.hang(**bindings(times=1))
        cluster.create(make_pod("web"))
        await hold.wait_hit()
        cluster.delete("pods", "web", grace=0)
        await eventually(lambda: app.cache.pod_count == 0)
        hold.release()
        await eventually(lambda: app.carrying.bindings.in_flight == 0)
        await idle()
        assert len(app.kernel.queue) == 0
        assert events(cluster, "FailedScheduling") == []


async def test_a_pod_that_comes_again_under_its_name_is_another_pod(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        hold = cluster.faults.hang(**bindings(times=1))
        first = cluster.create(make_pod("web"))[0]
        await hold.wait_hit()
        cluster.delete("pods", "web", grace=0)
        second = cluster.create(make_pod("web"))[0]
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        hold.release()
        await all_placed(cluster, app, 1)


async def test_a_pod_bound_by_another_client_meanwhile_is_theirs(cluster: DevCluster) -> None:
    async with scheduler(cluster) as app:
        hold = cluster.faults.hang(**bindings(times=1))
        cluster.create(make_pod("web"))
        await hold.wait_hit()
        chosen = next(i.name for i in app.cache.snapshot().infos if i and i.pods)
        other = "node-1" if chosen == "node-0" else "node-0"
        cluster.bind("web", other)
        hold.release()
        await all_placed(cluster, app, 1)
        assert node_of(cluster, "web") == other


async def test_two_that_bind_a_pod_to_the_same_node_report_it_once(cluster: DevCluster) -> None:
    """As when a lease is taken from a leader whose binding is on its way: both told of it."""
    async with scheduler(cluster) as one, scheduler(cluster) as other:
        hold = cluster.faults.hang(**bindings(times=1))
        cluster.create(make_pod("web"))
        await hold.wait_hit()
        await eventually(lambda: node_of(cluster, "web"))
        hold.release()
        await eventually(
            lambda: one.carrying.bindings.in_flight + other.carrying.bindings.in_flight == 0
        )
        await asyncio.gather(one.reporting.writer.flush(5), other.reporting.writer.flush(5))
        assert len(events(cluster, "Scheduled")) == 1
        assert events(cluster, "FailedScheduling") == []


async def test_a_node_that_goes_while_pods_are_bound_to_it(cluster: DevCluster) -> None:
    """As with kube-scheduler, the pod is bound all the same: its node is gone, not its binding."""
    async with scheduler(cluster) as app:
        hold = cluster.faults.hang(**bindings(times=1))
        cluster.create(make_pod("web"))
        await hold.wait_hit()
        chosen = next(i.name for i in app.cache.snapshot().infos if i and i.pods)
        cluster.delete("nodes", chosen)
        await eventually(lambda: app.cache.node_count == NODES - 1)
        hold.release()
        await eventually(lambda: node_of(cluster, "web") == chosen)
        cluster.create(*pods(10))
        await eventually(lambda: len(placements(cluster)) == 11)
        assert chosen not in [n for p, n in placements(cluster).items() if p != "web"]


async def test_hanging_watches_are_given_up_and_opened_again(cluster: DevCluster) -> None:
    """The scheduler's own time-out is minutes; what counts is that nothing is lost meanwhile."""
    async with scheduler(cluster) as app:
        cluster.stall_watches("pods")
        cluster.create(*pods(20))
        await idle(500)
        assert placements(cluster) == {}
        cluster.resume_watches()
        await all_placed(cluster, app, 20)


async def test_a_full_cluster_under_faults_is_never_overbooked(cluster: DevCluster) -> None:
    """Lost answers must not free room that is taken."""
    async with scheduler(cluster, initial_backoff=0.2, max_backoff=1.0) as app:
        cluster.faults.drop(applied=True, **bindings(times=None, every=2))
        cluster.faults.fail(500, **bindings(times=None, every=5))
        cluster.create(*pods(NODES * ROOM + 10))
        await eventually(lambda: len(placements(cluster)) == NODES * ROOM, seconds=60)
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 10)
        per_node = Counter(placements(cluster).values())
        assert set(per_node.values()) == {ROOM}


async def test_a_sandbox_killed_at_any_point_costs_attempts_and_no_pods(
    cluster: DevCluster,
) -> None:
    async with scheduler(
        cluster, stages=make_stages(), initial_backoff=0.1, max_backoff=0.5
    ) as app:
        evaluator = app.policies.rollout.active.evaluator
        assert isinstance(evaluator, SandboxEvaluator)
        for i, pod in enumerate(pods()):
            # Pods of many kinds, so that the sandbox is really asked.
            pod = make_pod(f"web-{i}", cpu=f"{10 + i}m", labels={"n": str(i)})
            cluster.create(pod)
            if i % 5 == 0 and evaluator.pid is not None:
                os.kill(evaluator.pid, signal.SIGKILL)
            await idle(10 * (i % 3))
        await all_placed(cluster, app)
        assert metric(app, "starsched_sandbox_restarts_total") > 0


async def test_an_error_is_reported_and_cleared(cluster: DevCluster) -> None:
    async with scheduler(cluster, initial_backoff=0.2, max_backoff=0.4):
        refusal = cluster.faults.fail(403, message="not now", **bindings(times=None))
        cluster.create(make_pod("web"))
        await eventually(lambda: condition(cluster, "web").get("reason") == "SchedulerError")
        assert "not now" in condition(cluster, "web")["message"]
        await eventually(lambda: events(cluster, "FailedScheduling"))  # goes out behind it
        assert "not now" in events(cluster, "FailedScheduling")[0]["note"]
        cluster.faults.remove(refusal)
        await eventually(lambda: node_of(cluster, "web"))
        assert condition(cluster, "web")["status"] == "True"
