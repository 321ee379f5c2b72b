"""The scheduler goes by the newest version of PodGroup that the API server has at the moment."""

import dataclasses
from typing import Any

import aiohttp
import pytest

from devkit.cluster import DevCluster, discovery
from engine.core.manifests import kinds
from engine.io import informers
from tests.builders import node_manifest, pod_manifest
from tests.engine.app.harness import condition, events, metric, placements, scheduler
from tests.waiting import eventually

Json = dict[str, Any]

NOT_SERVED = "the API server does not serve PodGroups"


pytestmark = pytest.mark.usefixtures("no_sandboxes", "gates_reported_soon")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for versions that were missing every tenth of a second."""
    optional = dataclasses.replace(informers._OPTIONAL, absent_retry=0.1)
    monkeypatch.setattr(informers, "_OPTIONAL", optional)
    monkeypatch.setattr(discovery, "KINDS", kinds.KINDS)  # what `withdraw` changes is put back


def serves(*served: kinds.Kind) -> None:
    """Have discovery show these."""
    vars(discovery)["KINDS"] = served


def withdraw(cluster: DevCluster, *versions: str) -> None:
    """Serve PodGroup in these versions no longer."""
    for version in versions:
        path = f"/apis/scheduling.k8s.io/{version}/*"
        cluster.faults.fail(404, path=path, resource="podgroups*", times=None)
    serves(
        *(
            kind
            for kind in vars(discovery)["KINDS"]
            if kind.plural != "podgroups" or kind.version not in versions
        )
    )
    cluster.close_watches("podgroups.scheduling.k8s.io", abort=True)


def restore(cluster: DevCluster) -> None:
    """Serve PodGroup in every version, as after a restart of the API server."""
    cluster.faults.clear()
    serves(*kinds.KINDS)
    cluster.close_watches("podgroups.scheduling.k8s.io", abort=True)


def group(version: str, min_count: int = 1, **spec: Any) -> Json:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}, **spec},
    }


def pod(name: str, **spec: Any) -> Json:
    return pod_manifest(name, spec={"containers": [{"name": "app", "image": "app"}], **spec})


def member(name: str) -> Json:
    return pod(name, schedulingGroup={"podGroupName": "train"})


def watched(app: Any) -> dict[str, float]:
    return {
        version: metric(app, "starsched_pod_groups_served", version=version)
        for version in ("v1beta1", "v1alpha3", "v1alpha2")
    }


async def served(app: Any) -> Any:
    """What `/policies` says."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/policies") as answer,
    ):
        return (await answer.json())["pod_groups"]["served"]


async def test_the_newest_of_both_versions_is_watched() -> None:
    async with (
        DevCluster() as cluster,
        scheduler(cluster, local_port=0) as app,
    ):
        assert await served(app) == "scheduling.k8s.io/v1beta1"
        assert watched(app) == {"v1beta1": 1, "v1alpha3": 0, "v1alpha2": 0}


async def test_a_newer_version_is_taken_when_the_api_server_comes_back_with_it() -> None:
    """Groups that were seen in the older version are still known."""
    async with DevCluster() as cluster:
        cluster.create(node_manifest("n"), group("v1alpha3"))
        withdraw(cluster, "v1beta1")
        async with scheduler(cluster) as app:
            assert watched(app) == {"v1beta1": 0, "v1alpha3": 1, "v1alpha2": 0}
            restore(cluster)
            await eventually(lambda: watched(app)["v1beta1"] == 1)
            cluster.create(member("a"))
            await eventually(lambda: placements(cluster) == {"a": "n"})


async def test_a_pod_that_names_a_group_says_that_none_are_served() -> None:
    async with DevCluster() as cluster:
        cluster.create(node_manifest("n"), group("v1beta1"))
        withdraw(cluster, "v1beta1", "v1alpha3")
        async with scheduler(cluster, local_port=0) as app:
            cluster.create(member("a"), pod("plain"))
            await eventually(lambda: NOT_SERVED in condition(cluster, "a").get("message", ""))
            await eventually(lambda: placements(cluster) == {"plain": "n"})
            await eventually(
                lambda: [e for e in events(cluster, "FailedScheduling") if NOT_SERVED in e["note"]]
            )
            assert await served(app) is None
            restore(cluster)  # an upgrade brings them
            await eventually(lambda: placements(cluster) == {"a": "n", "plain": "n"})
            assert await served(app) == "scheduling.k8s.io/v1beta1"


async def test_groups_that_go_with_their_version_hold_their_pods() -> None:
    async with DevCluster() as cluster:
        cluster.create(node_manifest("n"), group("v1beta1"))
        async with scheduler(cluster) as app:
            withdraw(cluster, "v1beta1", "v1alpha3")
            await eventually(lambda: not any(watched(app).values()))
            cluster.create(member("a"))
            await eventually(lambda: NOT_SERVED in condition(cluster, "a").get("message", ""))
