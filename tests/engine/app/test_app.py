"""The main job, end to end in one process: pods come in and are placed, or are told why not."""

import asyncio
import threading
import urllib.request
from collections.abc import AsyncIterator, Generator, Mapping
from typing import Any

import aiohttp
import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app.app import LONG_SECONDS
from engine.core.kernel.events import NODES, PODS, ObjectChanged
from engine.io.leader_election import LeaseSettings
from engine.policy.bundle import Bundle, build_bundle
from engine.rollout.assembly import make_stages
from tests import builders
from tests.engine.app import harness
from tests.engine.app.gang_world import GANGS
from tests.engine.app.harness import condition, events, metric, node_of, placements, scheduler
from tests.waiting import block, eventually, idle

pytestmark = pytest.mark.usefixtures("no_sandboxes")


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        yield cluster


@pytest.mark.slow("runs a whole scheduler")
async def test_pods_that_were_there_before_the_scheduler_are_placed(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"), *(make_pod(f"web-{i}") for i in range(5)))
    async with scheduler(cluster) as app:
        await eventually(lambda: len(placements(cluster)) == 5)
        await eventually(lambda: app.cache.assumed_count == 0)
        assert metric(app, "scheduler_cache_size", type="pods") == 5


@pytest.mark.slow("runs a whole scheduler")
async def test_pods_seen_before_there_are_policies_are_placed_when_they_come(
    cluster: DevCluster,
) -> None:
    policies_may_come = threading.Event()

    def build(files: Mapping[str, str]) -> Bundle:
        assert policies_may_come.wait(20)
        return build_bundle(files)

    cluster.create(make_node("node-1"), make_pod("early"))
    stages = make_stages().building(build)
    async with scheduler(cluster, stages=stages, wait=False) as app:
        pending = app.kernel.cluster.pending_pods
        await eventually(lambda: [pod.name for pod in pending()] == ["early"])
        cluster.create(make_pod("later"), make_pod("other", scheduler_name="other"))
        await eventually(lambda: len([*pending()]) == 3)
        assert app.cache.node_count == 1
        assert not app.watching.synced.is_set()
        policies_may_come.set()
        await eventually(lambda: len(placements(cluster)) == 2)
        assert not node_of(cluster, "other")


async def test_a_pod_that_comes_is_placed_and_reported(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"))
    async with scheduler(cluster) as app:
        cluster.create(make_pod("web"))
        await eventually(lambda: events(cluster, "Scheduled"))
        (event,) = events(cluster, "Scheduled")
        assert event["note"] == "Successfully assigned default/web to node-1"
        assert event["type"] == "Normal"
        assert event["action"] == "Binding"
        assert event["reportingController"] == "default-scheduler"
        revision = app.policies.rollout.active.bundle.revision
        assert event["metadata"]["annotations"]["starsched.dev/policy-revision"] == revision
        labels = {"result": "scheduled", "profile": "default-scheduler"}
        assert metric(app, "scheduler_schedule_attempts_total", **labels) == 1
        # The API server writes the condition of a bound pod, not the scheduler.
        assert cluster.requests["patch", "pods/status"] == 0


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize(
    ("spec", "constraint"),
    [
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {}, id="node selector"),
        pytest.param({}, {"nodeTaintsPolicy": "Honor"}, id="taints"),
    ],
)
async def test_a_pod_that_spreads_over_some_nodes_is_placed(
    cluster: DevCluster, spec: dict[str, Any], constraint: dict[str, Any]
) -> None:
    """Asking which nodes count had no place in the metrics, and that cost every attempt."""
    labels = {"topology.kubernetes.io/zone": "a", "disk": "ssd"}
    cluster.create(make_node("node-1", labels=labels))
    pod = make_pod("web", labels={"app": "web"})
    pod["spec"] |= spec
    pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
            **constraint,
        }
    ]
    async with scheduler(cluster) as app:
        cluster.create(pod)
        await eventually(lambda: node_of(cluster, "web") == "node-1")
        labels = {"result": "error", "profile": "default-scheduler"}
        assert metric(app, "scheduler_schedule_attempts_total", **labels) == 0


async def test_a_pod_that_fits_nowhere_says_why_once_and_goes_when_it_can(
    cluster: DevCluster,
) -> None:
    cluster.create(make_node("small", cpu="1"), make_node("tainted", taints=[_taint()]))
    async with scheduler(cluster) as app:
        cluster.create(make_pod("big", cpu="4"))
        want = (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). "
            "preemption: 0/2 nodes are available: "
            "2 Preemption is not helpful for scheduling."
        )
        await eventually(lambda: condition(cluster, "big").get("message") == want)
        assert condition(cluster, "big")["reason"] == "Unschedulable"
        assert condition(cluster, "big")["status"] == "False"
        await eventually(lambda: events(cluster, "FailedScheduling"))
        (event,) = events(cluster, "FailedScheduling")
        assert event["note"] == want
        assert event["type"] == "Warning"
        labels = {"queue": "unschedulable"}
        assert metric(app, "scheduler_pending_pods", **labels) == 1
        kind = {"type": "pod", "entity": ""}  # until 1.37 without the latter
        assert metric(app, "scheduler_queued_entities", **labels, **kind) == 1
        rejector = {"plugin": "NodeResourcesFit", "profile": "default-scheduler"}
        assert metric(app, "scheduler_unschedulable_pods", **rejector) == 1
        token = {"reason": "InsufficientResources"}
        assert metric(app, "starsched_rejections_total", **token) == 1
        asked = {"extension_point": "Filter", **rejector}
        assert metric(app, "scheduler_plugin_evaluation_total", **asked) >= 1
        patches = cluster.requests["patch", "pods/status"]
        cluster.create(make_node("big-enough", cpu="8"))
        await eventually(lambda: node_of(cluster, "big") == "big-enough")
        assert cluster.requests["patch", "pods/status"] == patches
        assert metric(app, "scheduler_unschedulable_pods", **rejector) == 0
        for queue, cause in (("active", "UnscheduledPodAdd"), ("backoff", "NodeAdd")):
            entered = {"queue": queue, "event": cause}
            assert metric(app, "scheduler_queue_incoming_pods_total", **entered) == 1
            entities = metric(app, "scheduler_queue_incoming_entities_total", **entered, **kind)
            assert entities == 1


def _taint() -> dict[str, str]:
    return {"key": "a", "value": "b", "effect": "NoSchedule"}


@pytest.mark.slow("runs a whole scheduler")
async def test_an_empty_cluster_is_reported_as_one(cluster: DevCluster) -> None:
    async with scheduler(cluster):
        cluster.create(make_pod("web"))
        want = "no nodes available to schedule pods"
        await eventually(lambda: condition(cluster, "web").get("message") == want)


@pytest.mark.slow("runs a whole scheduler")
async def test_a_pod_of_another_scheduler_is_left_alone(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"))
    async with scheduler(cluster) as app:
        cluster.create(make_pod("theirs", scheduler_name="other"), make_pod("ours"))
        await eventually(lambda: node_of(cluster, "ours"))
        assert node_of(cluster, "theirs") == ""
        assert condition(cluster, "theirs") == {}
        # Placed by its own scheduler, it counts.
        cluster.bind("theirs", "node-1")
        await eventually(lambda: app.cache.pod_count == 2)


@pytest.mark.slow("runs a whole scheduler")
async def test_a_gated_pod_waits_for_its_gates(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"))
    async with scheduler(cluster) as app:
        gated = make_pod("gated", schedulingGates=[{"name": "example.com/wait"}])
        cluster.create(gated)
        await eventually(lambda: metric(app, "scheduler_pending_pods", queue="gated") == 1)
        pod = cluster.get("pods", "gated")
        assert pod is not None
        spec = {k: v for k, v in pod["spec"].items() if k != "schedulingGates"}
        cluster.update("pods", {**pod, "spec": spec})
        await eventually(lambda: node_of(cluster, "gated"))


@pytest.mark.slow("runs a whole scheduler")
async def test_a_gated_pod_holds_its_nominated_node(cluster: DevCluster) -> None:
    """Its capacity was given away, to a pod that it could not preempt."""
    cluster.create(make_node("node-1", cpu="1"))
    gated = make_pod("gated", cpu="1", schedulingGates=[{"name": "example.com/wait"}])
    (made,) = cluster.create(gated)
    status = {**made["status"], "nominatedNodeName": "node-1"}
    cluster.update("pods", {**made, "status": status}, subresource="status")
    async with scheduler(cluster) as app:
        await eventually(lambda: metric(app, "scheduler_pending_pods", queue="gated") == 1)
        cluster.create(make_pod("other", cpu="1"))
        await eventually(lambda: condition(cluster, "other").get("reason") == "Unschedulable")
        assert node_of(cluster, "other") == ""
        pod = cluster.get("pods", "gated")
        assert pod is not None
        spec = {k: v for k, v in pod["spec"].items() if k != "schedulingGates"}
        cluster.update("pods", {**pod, "spec": spec})
        await eventually(lambda: node_of(cluster, "gated") == "node-1")


@pytest.mark.slow("runs a whole scheduler")
async def test_a_pod_that_leaves_frees_capacity_for_the_one_that_waits(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1", cpu="1"), make_pod("first", cpu="1"))
    async with scheduler(cluster):
        await eventually(lambda: node_of(cluster, "first"))
        cluster.create(make_pod("second", cpu="1"))
        await eventually(lambda: condition(cluster, "second").get("reason") == "Unschedulable")
        cluster.delete("pods", "first", grace=0)
        await eventually(lambda: node_of(cluster, "second"))


@pytest.mark.slow("runs a whole scheduler")
async def test_nothing_is_placed_beyond_a_nodes_capacity(cluster: DevCluster) -> None:
    """Decisions run ahead of the watch: what is assumed has to count."""
    cluster.create(*(make_node(f"node-{i}", cpu="4", pods=3) for i in range(10)))
    cluster.create(*(make_pod(f"web-{i}", cpu="1") for i in range(60)))
    async with scheduler(cluster) as app:
        await eventually(lambda: len(placements(cluster)) == 30)
        await eventually(lambda: app.kernel.queue.counts()["unschedulable"] == 30)
        nodes = list(placements(cluster).values())
        assert max(nodes.count(node) for node in nodes) == 3


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize(
    "amount",
    [
        pytest.param("abc", id="malformed"),
        pytest.param("", id="empty"),
        pytest.param("-1", id="negative"),
        pytest.param("1e300", id="huge"),
        pytest.param("99999999999999999999Ei", id="beyond int64"),
    ],
)
async def test_amounts_that_make_no_sense_cost_only_their_pod(
    cluster: DevCluster, amount: str
) -> None:
    """The API server refuses most of them; an old etcd or another server may hold them."""
    cluster.create(make_node("node-1"))
    async with scheduler(cluster) as app:
        for plural, odd in (
            (NODES, builders.make_node("odd", cpu=amount, memory=amount)),
            (PODS, builders.make_pod("bad", cpu=amount)),
            (PODS, builders.make_pod("worse", node="odd", cpu=amount, memory=amount)),
        ):
            app.report(ObjectChanged(plural, None, odd))
        cluster.create(make_pod("good"))
        await eventually(lambda: node_of(cluster, "good") == "node-1")


@pytest.mark.slow("runs a whole scheduler")
async def test_the_endpoints_show_what_is_going_on(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"), make_pod("web"))
    async with scheduler(cluster, local_port=0) as app, aiohttp.ClientSession() as http:
        await eventually(lambda: node_of(cluster, "web"))
        base = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}"
        for path, want in (
            ("/healthz", "ok"),
            ("/livez", "ok"),
            ("/readyz", "ok"),
            ("/metrics", "scheduler_pod_scheduling_sli_duration_seconds_count"),
            ("/policies", app.policies.rollout.active.bundle.revision),
            ("/configz", "componentconfig"),
        ):
            async with http.get(base + path) as answer:
                assert answer.status == 200, path
                assert want in await answer.text(), path


async def test_an_answer_waits_for_one_long_decision_and_not_for_several(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one turn of the event loop between two decisions, an answer of `/livez` took four.

    A policy that ran into its deadline for pod after pod kept a probe waiting for 8 seconds, and
    the renewal of the lease nearly as long.
    """
    decided = 0

    def decide(_: float) -> Generator[Any, Any, list[Any]]:
        nonlocal decided
        block(2 * LONG_SECONDS)
        decided += 1
        yield from ()
        return []

    async with scheduler(cluster, local_port=0) as app:
        monkeypatch.setattr(app.kernel, "decide", decide)
        cluster.create(make_pod("web"))
        await eventually(lambda: decided)
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/livez"
        before = decided
        with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
            assert answer.status == 200
        assert decided - before <= 2
        monkeypatch.undo()


@pytest.mark.slow("runs a whole scheduler")
async def test_readiness_comes_with_the_first_lists(cluster: DevCluster) -> None:
    hold = cluster.faults.hang(verb="list", resource="nodes")
    async with (
        scheduler(cluster, local_port=0, wait=False) as app,
        aiohttp.ClientSession() as http,
    ):
        await hold.wait_hit()
        url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/readyz"
        async with http.get(url) as answer:
            assert answer.status == 500
            assert "handlers are not fully synchronized" in await answer.text()
        async with http.get(
            f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/livez"
        ) as answer:
            assert answer.status == 200
        hold.release()
        await eventually(app.watching.synced.is_set)
        async with http.get(url) as answer:
            assert answer.status == 200


_LEADS = "leader_election_master_status"
_LEASE = {"name": "starsched"}


@pytest.mark.slow("runs a whole scheduler")
async def test_a_standby_is_warm_and_takes_over_when_the_leader_stops(
    cluster: DevCluster,
) -> None:
    cluster.create(make_node("node-1"))
    lease = LeaseSettings(lease_duration=30.0, renew_deadline=20.0, retry_period=0.1)
    async with (
        scheduler(cluster, lease=lease) as first,
        scheduler(cluster, lease=lease, wait=False) as second,
    ):
        await eventually(second.watching.synced.is_set)
        cluster.create(make_pod("one"))
        await eventually(lambda: node_of(cluster, "one"))
        await eventually(lambda: second.cache.pod_count == 1)
        assert not second.leadership.leading.is_set()
        # Without a series of its own, no alert could tell that there are but standbys.
        shown = [app.env.registry.get_sample_value(_LEADS, _LEASE) for app in (first, second)]
        assert shown == [1, 0]
        first.request_stop()
        await eventually(second.leadership.leading.is_set, seconds=lease.lease_duration / 2)
        cluster.create(make_pod("two"))
        await eventually(lambda: node_of(cluster, "two"))
    notes = [event["note"].split(" ", 1)[1] for event in events(cluster, "LeaderElection")]
    assert notes.count("became leader") == 2
    assert "stopped leading" in notes


@pytest.mark.slow("runs a whole scheduler")
async def test_a_standby_keeps_nothing_of_groups_that_are_gone(cluster: DevCluster) -> None:
    """It noted each change of a group until it led, be it for months."""
    cluster.create(harness.namespace())
    harness.edit(cluster, {"config.yaml": GANGS})
    lease = LeaseSettings()
    async with (
        scheduler(cluster, from_config_map=True, lease=lease),
        scheduler(cluster, from_config_map=True, lease=lease, wait=False) as standby,
    ):
        await eventually(standby.watching.synced.is_set)
        cluster.create(make_pod("one", labels={"example.com/group": "a", "example.com/min": "2"}))
        await eventually(lambda: len(standby.kernel.queue) == 1)
        cluster.delete("pods", "one", grace=0)
        await eventually(
            lambda: len(standby.kernel.queue) == 0 and not standby.kernel.groups.has_changes
        )
        assert not standby.leadership.leading.is_set()


async def test_stopping_finishes_the_bindings_under_way(cluster: DevCluster) -> None:
    cluster.create(make_node("node-1"))
    async with scheduler(cluster) as app:
        hold = cluster.faults.hang(verb="create", resource="pods/binding")
        cluster.create(make_pod("web"))
        await hold.wait_hit()
        app.request_stop()
        await idle()
        hold.release()
    assert node_of(cluster, "web") == "node-1"
    assert [event["note"] for event in events(cluster, "Scheduled")]


@pytest.mark.slow("runs a whole scheduler")
async def test_events_that_are_lost_with_the_lease_are_counted(cluster: DevCluster) -> None:
    """Those that were on their way were not: a pod had no event, and nothing said so."""
    lease = LeaseSettings(lease_duration=2.0, renew_deadline=1.0, retry_period=0.1)
    cluster.create(make_node("node-1"))
    hold = cluster.faults.hang(verb="create", resource="events*", times=None)
    async with scheduler(cluster, lease=lease) as app:
        cluster.create(*(make_pod(f"web-{i}") for i in range(3)))
        await eventually(lambda: len(placements(cluster)) == 3)
        await hold.wait_hit(3)
        (held,) = cluster.list("leases.coordination.k8s.io")
        taken = {**held, "spec": {**held["spec"], "holderIdentity": "somebody else"}}
        cluster.update("leases.coordination.k8s.io", taken)
        await eventually(
            lambda: app.leadership.elector is not None and not app.leadership.elector.is_leading
        )
    assert metric(app, "starsched_events_dropped_total", cause="shutdown") == hold.hits


@pytest.mark.slow("runs a whole scheduler")
async def test_no_process_leads_that_has_the_lease_and_decides_nothing_yet(
    cluster: DevCluster,
) -> None:
    """It had called itself a standby of itself."""
    async with scheduler(cluster, lease=LeaseSettings()) as app:
        assert app.leadership.leader().is_us
        app.leadership.leading.clear()
        assert app.leadership.elector is not None
        assert app.leadership.elector.leader == app.leadership.elector.identity
        leader = app.leadership.leader()
        assert (leader.identity, leader.is_us, leader.address) == ("", False, "")
