"""Policies that read workloads, on an embedded API server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from tests.engine.app.harness import condition, edit, namespace, node_of, placements, scheduler
from tests.engine.app.test_recording import make_recorder, outcomes
from tests.waiting import eventually
from tests.workloads import SPOT_SHARE, owned_by, replica_set, workload

pytestmark = [pytest.mark.slow("runs whole schedulers"), pytest.mark.usefixtures("no_sandboxes")]

_RESOURCES: Final = ("deployments", "jobs")
_REASON: Final = "too many replicas on spot nodes"


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("spot", labels={"capacity": "spot"}, cpu="64"))
        yield cluster


def pod_of(set_name: str, number: int) -> dict[str, Any]:
    pod = make_pod(f"{set_name}-{number}", cpu="10m", labels={"app": "web"})
    pod["metadata"]["ownerReferences"] = [owned_by("ReplicaSet", set_name)]
    return pod


def deploy(cluster: DevCluster, *, replicas: int) -> None:
    """A Deployment with its ReplicaSet, and a pod for each replica."""
    owner = owned_by("Deployment", "web")
    cluster.create(
        workload("Deployment", replicas=replicas),
        replica_set("web-1", owner=owner, replicas=replicas),
        *(pod_of("web-1", number) for number in range(replicas)),
    )


def scale(cluster: DevCluster, replicas: int) -> None:
    found = cluster.get("deployments", "web")
    assert found is not None
    cluster.update("deployments", {**found, "spec": {**found["spec"], "replicas": replicas}})


def watched(app: App) -> set[str]:
    return {one.resource.plural for one in app.watching.informers} & set(_RESOURCES)


async def test_at_most_30_percent_of_a_deployment_are_on_spot_nodes(cluster: DevCluster) -> None:
    edit(cluster, {"share.star": SPOT_SHARE})
    deploy(cluster, replicas=10)
    async with scheduler(cluster, from_config_map=True):

        def waiting() -> list[int]:
            said = {number: condition(cluster, f"web-1-{number}") for number in range(10)}
            return [number for number, found in said.items() if found.get("status") == "False"]

        await eventually(lambda: len(waiting()) == 7)
        assert len(placements(cluster)) == 3
        assert _REASON in condition(cluster, f"web-1-{waiting()[0]}")["message"]
        # Scaled: six of twenty may be there now.
        scale(cluster, 20)
        await eventually(lambda: len(placements(cluster)) == 6)
        cluster.create(make_node("on-demand", cpu="64"))
        await eventually(lambda: len(placements(cluster)) == 10)
        assert list(placements(cluster).values()).count("spot") == 6


async def test_a_recorded_decision_is_made_again_with_the_replicas_that_it_saw(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Before and after the Deployment was scaled, and when the policies come to read it."""
    edit(cluster, {})
    recorder = make_recorder(tmp_path)
    async with scheduler(cluster, from_config_map=True, decision_log=recorder) as app:
        cluster.create(make_pod("plain"))
        await eventually(lambda: node_of(cluster, "plain") == "spot")
        edit(cluster, {"share.star": SPOT_SHARE})
        await eventually(lambda: "share" in app.policies.rollout.active.bundle.policies)
        deploy(cluster, replicas=4)
        await eventually(lambda: len(placements(cluster)) == 2)
        scale(cluster, 20)
        await eventually(lambda: len(placements(cluster)) == 5)
    recorder.close()
    made = outcomes(tmp_path)
    assert len(made) >= 5
    assert [one for one in made if not one.is_same or one.notes] == []


async def test_workloads_are_watched_only_while_policies_read_them(cluster: DevCluster) -> None:
    edit(cluster, {})
    cluster.create(workload("Deployment"))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(make_pod("plain"))
        await eventually(lambda: node_of(cluster, "plain") == "spot")
        assert watched(app) == set()
        edit(cluster, {"share.star": SPOT_SHARE})
        await eventually(lambda: "share" in app.policies.rollout.active.bundle.policies)
        assert watched(app) == set(_RESOURCES)
        assert [one.metadata.name for one in app.cache.objects.list("deployments")] == ["web"]
        # A roll-back would need them as long as the new policies are on probation.
        edit(cluster, {"runtime.yaml": _SHORT})
        await eventually(lambda: "share" not in app.policies.rollout.active.bundle.policies)
        await eventually(lambda: not watched(app))
        assert not app.cache.objects.list("deployments")
        assert not app.cache.objects.unknown


_SHORT: Final = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nfallback: {window: 100ms}\n"


async def test_an_edit_that_reads_workloads_without_the_right_is_rejected_until_there_is_one(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.rollout.rollout._OFFER_AGAIN_SECONDS", 0.5)
    edit(cluster, {})
    faults = [cluster.faults.fail(403, resource="deployments*", times=None)]
    async with scheduler(cluster, from_config_map=True, local_port=0) as app:
        before = app.policies.rollout.active.bundle.revision
        edit(cluster, {"share.star": SPOT_SHARE})
        await eventually(lambda: app.policies.rollout.describe()["last_rejected"] is not None)
        rejected = app.policies.rollout.describe()["last_rejected"]
        assert "deployments.apps cannot be read: add to the ClusterRole" in str(rejected)
        assert app.policies.rollout.active.bundle.revision == before
        # What is in force reads none, so this replica is as good as before.
        await eventually(lambda: not watched(app))
        assert app.watching.readability.problem() is None
        for fault in faults:
            cluster.faults.remove(fault)
        await eventually(lambda: "share" in app.policies.rollout.active.bundle.policies, seconds=30)


async def test_pods_wait_that_depend_on_workloads_that_cannot_be_listed(
    cluster: DevCluster,
) -> None:
    """A refused list of Deployments is not an owner without replicas."""
    edit(cluster, {"share.star": SPOT_SHARE})
    faults = [cluster.faults.fail(403, resource="deployments*", times=None)]
    deploy(cluster, replicas=4)
    cluster.create(make_pod("plain"))
    async with scheduler(cluster, from_config_map=True) as app:
        await eventually(lambda: node_of(cluster, "plain") == "spot")
        await eventually(
            lambda: condition(cluster, "web-1-0").get("reason") == "ClusterNotReadable"
        )
        assert "add to the ClusterRole" in condition(cluster, "web-1-0")["message"]
        assert "deployments" in (app.watching.readability.problem() or "")
        for fault in faults:
            cluster.faults.remove(fault)
        await eventually(lambda: len(placements(cluster)) == 2, seconds=30)
        await eventually(lambda: app.watching.readability.problem() is None)
        assert not app.cache.objects.unknown
