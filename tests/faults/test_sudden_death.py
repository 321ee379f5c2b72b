"""A scheduler, or its sandbox, that is killed at a bad moment. No pod is lost or bound twice."""

import asyncio
import contextlib
import functools
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from tests.engine.app.harness import (
    condition,
    edit,
    events,
    metric,
    namespace,
    node_of,
    placements,
    scheduler,
)
from tests.faults.processes import Replica, kill_all, sandboxes
from tests.waiting import eventually, idle

pytestmark = pytest.mark.slow("breaks whole schedulers")

PODS = 60
_LEASE = (
    "--leader-elect",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
)


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(*(make_node(f"node-{i}", cpu="8", memory="32Gi") for i in range(6)))
        yield cluster


def _write(cluster: DevCluster, folder: Path) -> Path:
    path = folder / "kubeconfig"
    cluster.write_kubeconfig(path)
    return path


def _fits(cluster: DevCluster, cpu_millis: int, each: int) -> bool:
    """True if no node holds more pods of *each* millicores than it has room for."""
    counts = Counter(placements(cluster).values())
    return all(count * each <= cpu_millis for count in counts.values())


def _more_than(cluster: DevCluster, count: int) -> bool:
    return len(placements(cluster)) > count


@pytest.mark.parametrize(
    "applied",
    [
        pytest.param(False, id="before the server has the binding"),
        pytest.param(True, id="when the server has it and the answer is on its way"),
    ],
)
async def test_killed_between_assume_and_bind(
    cluster: DevCluster, tmp_path: Path, applied: bool
) -> None:
    kubeconfig = _write(cluster, tmp_path)
    # One pod fills a node, so a pod that is counted wrongly shows.
    cluster.create(*(make_pod(f"p{i}", cpu="5", memory="1Gi") for i in range(6)))
    hung = cluster.faults.hang(verb="create", resource="pods/binding", applied=applied, times=None)
    with Replica(kubeconfig, tmp_path / "first.log") as first:
        await asyncio.wait_for(hung.wait_hit(), 30)
        first.kill()
    cluster.faults.clear()
    found = placements(cluster)
    assert bool(found) is applied
    with Replica(kubeconfig, tmp_path / "second.log") as second:
        await eventually(lambda: second.reported("In sync"), what="the second to know the cluster")
        await eventually(lambda: len(placements(cluster)) == 6, what="six pods to be placed")
        assert await asyncio.to_thread(second.terminate) == 0
    assert len(set(placements(cluster).values())) == 6, "two pods on one node"
    assert found.items() <= placements(cluster).items(), "a bound pod moved"


async def test_killed_again_and_again_under_load(cluster: DevCluster, tmp_path: Path) -> None:
    kubeconfig = _write(cluster, tmp_path)
    bound: list[str] = []
    for life in range(3):
        names = [f"p{life}-{i}" for i in range(PODS // 3)]
        cluster.create(*(make_pod(name, cpu="700m", memory="1Gi") for name in names))
        with Replica(kubeconfig, tmp_path / f"{life}.log") as replica:
            await eventually(functools.partial(_more_than, cluster, life * (PODS // 3)))
            replica.kill()
        bound.append(str(len(placements(cluster))))
    with Replica(kubeconfig, tmp_path / "last.log"):
        await eventually(lambda: len(placements(cluster)) == PODS, what=f"all pods after {bound}")
    assert _fits(cluster, 8000, 700)
    # One binding each: a second one would have been answered with a conflict.
    assert cluster.requests["create", "pods/binding"] >= PODS


async def test_the_sandbox_is_killed_while_it_decides(cluster: DevCluster) -> None:
    """Each death costs at most the attempt under way; the pod is tried again at once."""
    few = PODS // 3
    async with scheduler(cluster) as app:
        killed: set[int] = set()

        async def kill_sandboxes() -> None:
            while True:
                evaluator: Any = app.policies.rollout.active.evaluator
                killed.add(evaluator.pid)
                kill_all([evaluator.pid])
                placed = len(placements(cluster))
                await eventually(lambda: len(placements(cluster)) > placed)  # noqa: B023

        killing = asyncio.ensure_future(kill_sandboxes())
        try:
            for i in range(few):
                # Every pod is of a class of its own, so that the sandbox is asked about each.
                cluster.create(make_pod(f"p{i}", cpu=f"{100 + i}m", memory="64Mi"))
                await idle(20)
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        await eventually(lambda: len(placements(cluster)) == few, what="every pod to be placed")
        assert len(killed) > 5, "the sandbox was hardly killed"


@pytest.mark.usefixtures("gates_reported_soon")
async def test_a_gate_that_failed_is_asked_again(cluster: DevCluster) -> None:
    """Pods that came while no sandbox started waited five minutes whatever happened."""
    gate = 'def pre_enqueue(pod):\n    return None if pod.labels.get("n") else "no n"\n'
    cluster.create(namespace())
    edit(cluster, {"gate.star": gate})
    async with scheduler(cluster, from_config_map=True) as app:
        await eventually(
            lambda: app.policies.rollout.describe()["last_good"], what="the trial to end"
        )
        names: list[str] = []

        def is_one_gated() -> bool:
            # Its answer for one pod says nothing of the next.
            names.append(f"p{len(names)}")
            cluster.create(make_pod(names[-1], labels={"n": names[-1]}))
            reported = [condition(cluster, name).get("message", "") for name in names]
            return any("gated by policy" in text for text in reported)

        async with _without_sandboxes():
            await eventually(is_one_gated)
        await eventually(lambda: len(placements(cluster)) == len(names), what="all to be placed")


async def test_a_sort_key_that_failed_is_asked_for_again(
    cluster: DevCluster,
) -> None:
    """Pods that came while no sandbox started went by their priority until they were tried."""
    order = 'def queue_key(pod):\n    return -int(pod.labels.get("n", "0"))\n'
    cluster.create(namespace())
    edit(cluster, {"order.star": order})
    async with scheduler(cluster, from_config_map=True, bindings=1) as app:
        await eventually(
            lambda: app.policies.rollout.describe()["last_good"], what="the trial to end"
        )
        # While a binding hangs there is no room for another, so none is tried.
        hung = cluster.faults.hang(verb="create", resource="pods/binding")
        cluster.create(make_pod("first"))
        await asyncio.wait_for(hung.wait_hit(), 30)
        names: list[str] = []

        def has_one_failed() -> bool:
            names.append(f"p{len(names)}")
            cluster.create(make_pod(names[-1], labels={"n": str(len(names))}))
            count = functools.partial(metric, app, "starsched_policy_failures_total")
            return count(policy="order", hook="queue_key", kind="killed") > 0

        async with _without_sandboxes():
            await eventually(has_one_failed)
        want = {name: [-number] for number, name in enumerate(names, 1)}

        def sort_keys() -> dict[str, Any]:
            known = app.kernel.queue.describe
            return {name: known(f"default/{name}").get("sort_key") for name in names}

        await eventually(lambda: sort_keys() == want, what="every sort key to be evaluated again")
        hung.release()
        await eventually(lambda: len(events(cluster, "Scheduled")) == len(names) + 1)
        reported = sorted(events(cluster, "Scheduled"), key=lambda event: event["eventTime"])
        got = [event["regarding"]["name"] for event in reported]
        assert got == ["first", *reversed(names)]


@contextlib.asynccontextmanager
async def _without_sandboxes() -> AsyncIterator[None]:
    """Kill every sandbox that starts until the block ends."""
    over = threading.Event()

    def kill_sandboxes() -> None:  # beside the loop, which waits for their answers
        while not over.wait(0.005):
            kill_all(sandboxes())

    killing = asyncio.ensure_future(asyncio.to_thread(kill_sandboxes))
    try:
        yield
    finally:
        over.set()
        await killing


async def test_a_standby_takes_over_from_a_leader_that_dies(
    cluster: DevCluster, tmp_path: Path
) -> None:
    kubeconfig = _write(cluster, tmp_path)
    with (
        Replica(kubeconfig, tmp_path / "one.log", *_LEASE) as one,
        Replica(kubeconfig, tmp_path / "two.log", *_LEASE) as two,
    ):
        cluster.create(make_pod("first", cpu="1"))
        await eventually(lambda: node_of(cluster, "first"), what="the first pod")
        await eventually(lambda: one.reported("default/first") or two.reported("default/first"))
        leader, standby = (one, two) if one.reported("default/first") else (two, one)
        assert not standby.reported("default/first"), "both scheduled"
        leader.kill()
        cluster.create(make_pod("second", cpu="1"))
        await eventually(lambda: node_of(cluster, "second"), what="the standby to take over")
        await eventually(lambda: standby.reported("default/second"))
        # Asked to stop, it gives the lease back and ends well.
        assert await asyncio.to_thread(standby.terminate) == 0
        assert not cluster.list("leases")[0]["spec"].get("holderIdentity")


_STAGES = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
rollout:
  shadow: {duration: 1s, compared: 10, cores: 0.5}
  canary:
    steps:
    - {share: 50%, duration: 1s, decisions: 1000000}
  gates: {latency: 1000, timeToBind: 1000}
"""


async def test_killed_in_a_canary_that_another_leader_goes_on_with(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Neither is the shadow that has passed repeated, nor does anything come into force."""
    kubeconfig = _write(cluster, tmp_path)
    cluster.create(namespace())
    edit(cluster, {"mine.star": '"""Before."""\n', "runtime.yaml": _STAGES})
    arguments = ("--policies=configmap:starsched/policies", *_LEASE)
    numbers = itertools.count()

    async def pods_until(condition: Callable[[], Any], what: str) -> None:
        def more() -> Any:
            if len(placements(cluster)) + 20 > cluster_size():
                cluster.create(make_pod(f"p{next(numbers)}", cpu="1m", memory="1Mi"))
            return condition()

        await eventually(more, seconds=60, what=what)

    def cluster_size() -> int:
        return len(cluster.list("pods"))

    def begun(reason: str) -> int:
        return sum(int(event.get("count") or 1) for event in events(cluster, reason))

    with (
        Replica(kubeconfig, tmp_path / "one.log", *arguments) as one,
        Replica(kubeconfig, tmp_path / "two.log", *arguments) as two,
    ):
        both = (one, two)
        await eventually(lambda: all(r.reported("In sync") for r in both), what="both in sync")
        await eventually(lambda: events(cluster, "PolicyAccepted"), what="the first in force")
        edit(cluster, {"mine.star": '"""After."""\n', "runtime.yaml": _STAGES})
        await pods_until(lambda: begun("PolicyCanary") == 1, "the canary")
        leader, other = (one, two) if one.reported("PolicyCanary") else (two, one)
        leader.kill()
        await pods_until(lambda: other.reported("PolicyCanary"), "the canary of the next leader")
        await eventually(lambda: begun("PolicyCanary") == 2, what="its event")
        assert begun("PolicyShadow") == 1
        assert len(events(cluster, "PolicyAccepted")) == 1
        await eventually(lambda: len(placements(cluster)) == cluster_size(), what="every pod")
        assert await asyncio.to_thread(other.terminate) == 0
