"""An extender that watches the cluster: names are enough, and pods count where they are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.rollout.assembly import make_stages
from tests.engine.app.harness import edit, events, namespace, node_of, placements, scheduler
from tests.engine.surfaces.extender_server.harness import (
    Running,
    extender,
    with_names,
    with_nodes,
    write,
)
from tests.waiting import eventually
from tests.workloads import SPOT_SHARE, owned_by, replica_set, workload

pytestmark = pytest.mark.slow("runs a whole extender")

FEW = '''"""Wants at most two pods on a node, and as few as possible.

Hooks: filter, score.
"""

def filter(pod, node):
    if node.unschedulable:
        return unresolvable("closed")
    return "enough pods" if node.pod_count >= 2 else None

def score(pod, node):
    return 100 - 50 * node.pod_count
'''


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), *(make_node(name) for name in ("a", "b", "c")))
        yield cluster


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[ApiClient]:
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "policies", {"few.star": FEW})


def pods_on(running: Running, *nodes: str) -> tuple[int, ...]:
    """How many pods the extender counts on each of *nodes*."""
    assert running.app.watched is not None
    infos = [running.app.watched.cache.node_info(name) for name in nodes]
    return tuple(info.pod_count if info is not None else -1 for info in infos)


def asked_pod(cluster: DevCluster, name: str = "new", **words: Any) -> dict[str, Any]:
    cluster.create(make_pod(name, **words))
    pod = cluster.get("pods", name, "default")
    assert pod is not None
    return pod


async def test_names_are_enough_and_pods_count_where_they_are(
    cluster: DevCluster, client: ApiClient, folder: Path
) -> None:
    cluster.create(
        make_pod("a1", nodeName="a"), make_pod("a2", nodeName="a"), make_pod("b1", nodeName="b")
    )
    async with extender(folder, client=client, watches=True) as running:
        pod = asked_pod(cluster)
        _, answer = await running.post("filter", with_names(pod, ["c", "a", "b"]))
        assert answer == {
            "Nodes": None,
            "NodeNames": ["c", "b"],
            "FailedNodes": {"a": "enough pods"},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }
        _, answer = await running.post("prioritize", with_names(pod, ["a", "b", "c"]))
        assert [(item["Host"], item["Score"]) for item in answer] == [("a", 0), ("b", 5), ("c", 10)]
        # A pod that comes or goes is seen as soon as the watch tells.
        cluster.create(make_pod("b2", nodeName="b"))
        cluster.delete("pods", "a1", "default", grace=0)
        await eventually(lambda: pods_on(running, "a", "b") == (1, 2))
        _, answer = await running.post("filter", with_names(pod, ["a", "b", "c"]))
        assert answer["NodeNames"] == ["a", "c"]


async def test_of_whole_nodes_only_the_names_count_and_they_come_back_whole(
    cluster: DevCluster, client: ApiClient, folder: Path
) -> None:
    cluster.create(make_pod("a1", nodeName="a"), make_pod("a2", nodeName="a"))
    async with extender(folder, client=client, watches=True) as running:
        nodes = [cluster.get("nodes", name) or {} for name in ("a", "b")]
        _, answer = await running.post("filter", with_nodes(asked_pod(cluster), *nodes))
        assert answer["Nodes"]["items"] == [nodes[1]]
        assert answer["FailedNodes"] == {"a": "enough pods"}


async def test_a_node_that_was_not_seen_yet_is_worth_another_try(
    cluster: DevCluster, client: ApiClient, folder: Path
) -> None:
    async with extender(folder, client=client, watches=True) as running:
        pod = asked_pod(cluster)
        _, answer = await running.post("filter", with_names(pod, ["a", "new", "a"]))
        assert answer["NodeNames"] == ["a"]
        assert answer["FailedNodes"] == {"new": "node(s) not known to the extender yet"}
        _, answer = await running.post("prioritize", with_names(pod, ["new", "a"]))
        assert [(item["Host"], item["Score"]) for item in answer] == [("new", 0), ("a", 10)]


async def test_candidates_stay_only_where_the_victims_make_the_policies_agree(
    cluster: DevCluster, client: ApiClient, folder: Path
) -> None:
    for name in ("a", "b", "c"):
        cluster.create(make_pod(f"{name}1", nodeName=name), make_pod(f"{name}2", nodeName=name))
    closed = cluster.get("nodes", "c") or {}
    cluster.update("nodes", {**closed, "spec": {**closed["spec"], "unschedulable": True}})
    uid = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.list("pods")}
    async with extender(folder, client=client, watches=True) as running:
        pod = asked_pod(cluster)
        victims = {
            "a": {"Pods": [{"UID": uid["a1"]}], "NumPDBViolations": 1},
            "b": {"Pods": [], "NumPDBViolations": 0},
            "c": {"Pods": [{"UID": uid["c1"]}, {"UID": uid["c2"]}], "NumPDBViolations": 0},
            "elsewhere": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0},
        }
        asked = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        status, answer = await running.post("preempt", asked)
        assert status == 200
        want = {name: victims[name] for name in ("a", "elsewhere")}
        assert answer == {"NodeNameToMetaVictims": want}
        # It was only tried: nobody is gone.
        _, answer = await running.post("filter", with_names(pod, ["a", "b", "c"]))
        assert answer["NodeNames"] == []
        assert running.app.watched is not None
        running.app.watched.cache.check_invariants()


async def test_candidates_with_a_victim_that_is_never_evicted_are_left_out(
    cluster: DevCluster, client: ApiClient, folder: Path
) -> None:
    text = 'def victim_key(pod):\n    return None if pod.labels["keep"] == "yes" else 0\n'
    write(folder, {"few.star": FEW + text})
    for name, keep in (("a", "yes"), ("b", "no")):
        cluster.create(
            make_pod(f"{name}1", nodeName=name, labels={"keep": keep}),
            make_pod(f"{name}2", nodeName=name, labels={"keep": "no"}),
        )
    cluster.create(make_pod("c1", nodeName="c"))
    uid = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.list("pods")}
    async with extender(folder, client=client, watches=True) as running:
        victims = {
            name: {"Pods": [{"UID": uid[f"{name}1"]}], "NumPDBViolations": 0} for name in "ab"
        }
        asked = {"Pod": asked_pod(cluster), "NodeNameToMetaVictims": victims}
        status, answer = await running.post("preempt", asked)
        assert (status, answer) == (200, {"NodeNameToMetaVictims": {"b": victims["b"]}})
        # A policy that fails here says so, as for any other hook.
        victims["c"] = {"Pods": [{"UID": uid["c1"]}], "NumPDBViolations": 0}
        status, answer = await running.post("preempt", asked)
        assert status == 500
        assert "few.star" in str(answer)


async def test_binding_binds_once_and_says_why_not(
    cluster: DevCluster, client: ApiClient, folder: Path
) -> None:
    async with extender(folder, client=client, watches=True) as running:
        meta = asked_pod(cluster)["metadata"]
        asked = {"PodName": "new", "PodNamespace": "default", "PodUID": meta["uid"], "Node": "b"}
        assert await running.post("bind", asked) == (200, {"Error": ""})
        assert node_of(cluster, "new") == "b"
        # Asked again, because kube-scheduler did not hear the answer: it is there.
        assert await running.post("bind", asked) == (200, {"Error": ""})
        status, answer = await running.post("bind", {**asked, "Node": "c"})
        assert status == 200
        assert "is on node `b`" in answer["Error"]
        status, answer = await running.post("bind", {**asked, "PodName": "gone"})
        assert "is gone" in answer["Error"]


async def test_counters_see_the_pods_of_the_cluster(
    cluster: DevCluster, client: ApiClient, tmp_path: Path
) -> None:
    text = '''"""One pod of an app in each zone."""

ZONE = "topology.kubernetes.io/zone"

def counters(pod):
    return [count_pods(topology = ZONE, labels = {"app": "web"}, namespaces = [pod.namespace])]

def filter(pod, node, counts):
    return "zone is taken" if counts[0].here else None
'''
    cluster.create(make_node("z1", zone="one"), make_node("z1b", zone="one"))
    cluster.create(make_node("z2", zone="two"))
    cluster.create(make_pod("web-1", nodeName="z1", labels={"app": "web"}))
    folder = write(tmp_path / "p", {"apart.star": text})
    async with extender(folder, client=client, watches=True) as running:
        pod = asked_pod(cluster, labels={"app": "web"})
        _, answer = await running.post("filter", with_names(pod, ["z1", "z1b", "z2"]))
        assert answer["NodeNames"] == ["z2"]


COOL = '''"""Goes to nodes that are known to be cool, if the pod is known. Hooks: filter."""

def filter(pod, node):
    heat, wants = node.facts["heat"], pod.facts["wants"]
    if wants == None:
        return "nothing is known of the pod"
    return None if heat != None and heat.value < 50 else "node(s) were not known to be cool"
'''
FACTS = """
apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts:
  sources:
  - configMap: {namespace: default, name: heat}
  - annotations: {of: pods, keys: {wants: %s}}
"""


def cool(key: str = "example.com/wants") -> dict[str, str]:
    return {"cool.star": COOL, "runtime.yaml": FACTS % key}


HEAT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "heat", "namespace": "default"},
    "data": {"a.json": '{"nodes": {"b": {"heat": 30}}}'},
}


def annotated_pod(cluster: DevCluster, key: str) -> dict[str, Any]:
    manifest = make_pod("new")
    cluster.create({**manifest, "metadata": {**manifest["metadata"], "annotations": {key: "1"}}})
    return cluster.get("pods", "new", "default") or {}


async def test_nothing_is_answered_before_the_sources_of_facts_have_reported(
    cluster: DevCluster, client: ApiClient, tmp_path: Path
) -> None:
    """An extender answered as if nobody had measured anything, for as long as that took."""
    cluster.create(HEAT)
    hold = cluster.faults.hang(verb="list", resource="configmaps", namespace="default")
    folder = write(tmp_path / "p", cool())
    starting = asyncio.ensure_future(_answers(cluster, client, folder))
    await hold.wait_hit()
    await asyncio.wait({starting}, timeout=0.5)
    hold.release()
    assert await starting == ["b"]


async def _answers(cluster: DevCluster, client: ApiClient, folder: Path) -> list[str]:
    """The nodes that an extender lets through as soon as it answers."""
    pod = annotated_pod(cluster, "example.com/wants")
    async with extender(folder, client=client, watches=True) as running:
        _, answer = await running.post("filter", with_names(pod, ["a", "b"]))
        return list(answer["NodeNames"])


async def test_an_edit_of_the_sources_reads_the_pods_that_wait_too(
    cluster: DevCluster, client: ApiClient, tmp_path: Path
) -> None:
    """A pod that waited already had no facts of its own after the edit, until it changed."""
    cluster.create(HEAT)
    pod = annotated_pod(cluster, "example.com/likes")
    folder = write(tmp_path / "p", cool())
    async with extender(folder, client=client, watches=True) as running:
        first = running.app.rollout.active
        write(folder, cool("example.com/likes"))
        await eventually(lambda: running.app.rollout.active is not first)
        _, answer = await running.post("filter", with_names(pod, ["a", "b"]))
        assert answer["NodeNames"] == ["b"]


@pytest.mark.parametrize("cached", [True, False])
async def test_our_scheduler_and_our_extender_understand_each_other(
    cluster: DevCluster, client: ApiClient, folder: Path, cached: bool
) -> None:
    """Names or whole nodes, a watched cluster or none: the policies decide where pods go."""
    label = (
        '"""Prefers the labelled node."""\n\n'
        "def filter(pod, node):\n"
        '    return "not for this app" if node.name == "a" else None\n\n'
        "def score(pod, node):\n"
        '    return 100 if node.labels.get("best") else 0\n'
    )
    write(folder, {"label.star": label})
    cluster.create(make_node("best", labels={"best": "yes"}))
    async with extender(folder, client=client, watches=cached) as running:
        entry = (
            f"{{urlPrefix: '{running.url}', filterVerb: filter, prioritizeVerb: prioritize, "
            f"weight: 10, nodeCacheCapable: {str(cached).lower()}}}"
        )
        config = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            f"extenders: [{entry}]\n"
        )
        edit(cluster, {"config.yaml": config})
        async with scheduler(cluster, from_config_map=True, stages=make_stages()):
            cluster.create(*(make_pod(f"p{i}") for i in range(3)))
            await eventually(lambda: len(placements(cluster)) == 3)
            assert set(placements(cluster).values()) == {"best"}
            cluster.create(make_pod("picky", nodeSelector={"kubernetes.io/hostname": "a"}))
            await eventually(lambda: events(cluster, "FailedScheduling"))
            note = events(cluster, "FailedScheduling")[0]["note"]
            assert "1 not for this app" in note


async def test_a_policy_sees_the_replicas_of_a_workload(
    cluster: DevCluster, client: ApiClient, tmp_path: Path
) -> None:
    """Deployments are watched from the edit on that reads them."""
    folder = write(tmp_path / "policies", {"few.star": FEW})
    spot = make_node("spot", labels={"capacity": "spot"})
    owner = owned_by("Deployment", "web")
    cluster.create(spot, replica_set("web-1", owner=owner), workload("Deployment", replicas=3))
    pod = asked_pod(cluster)
    pod["metadata"]["ownerReferences"] = [owned_by("ReplicaSet", "web-1")]
    async with extender(folder, client=client, watches=True) as running:
        _, answer = await running.post("filter", with_names(pod, ["a", "spot"]))
        assert answer["NodeNames"] == ["a", "spot"]
        before = running.app.rollout.active.bundle.revision
        write(folder, {"share.star": SPOT_SHARE})
        await eventually(lambda: running.app.rollout.active.bundle.revision != before)
        _, answer = await running.post("filter", with_names(pod, ["a", "spot"]))
        assert answer["FailedNodes"] == {"spot": "too many replicas on spot nodes"}
        found = cluster.get("deployments", "web")
        assert found is not None
        cluster.update("deployments", {**found, "spec": {**found["spec"], "replicas": 10}})

        assert running.app.watched is not None
        objects = running.app.watched.cache.objects
        await eventually(lambda: [d.spec.replicas for d in objects.list("deployments")] == [10])
        _, answer = await running.post("filter", with_names(pod, ["a", "spot"]))
        assert answer["NodeNames"] == ["a", "spot"]
