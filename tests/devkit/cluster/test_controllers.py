"""The controllers of an embedded cluster: namespaces, owners' garbage, the pods of workloads."""

from collections import Counter
from typing import Any

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.core.manifests.kinds import REPLICA_SETS
from tests.waiting import eventually, idle

Json = dict[str, Any]


@pytest.fixture(autouse=True)
async def running(cluster: DevCluster) -> None:
    cluster.start_controllers()


def a_namespace(name: str = "shop") -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def a_config_map(name: str, namespace: str = "default", owner: Json | None = None) -> Json:
    metadata: Json = {"name": name, "namespace": namespace}
    if owner is not None:
        uid = owner["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "uid": uid}
        metadata["ownerReferences"] = [{**reference, "name": owner["metadata"]["name"]}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def a_workload(kind: str, name: str = "web", *, image: str = "app:1", **spec: Any) -> Json:
    labels = {"app": name}
    template: Json = {"spec": {"containers": [{"name": "main", "image": image}]}}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        template["metadata"] = {"labels": labels, "annotations": {"note": "kept"}}
        spec = {"selector": {"matchLabels": labels}, **spec}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def change(cluster: DevCluster, resource: str, name: str, **spec: Any) -> None:
    stored = cluster.get(resource, name)
    assert stored is not None
    cluster.update(resource, {**stored, "spec": {**stored["spec"], **spec}})


def status(cluster: DevCluster, resource: str, name: str = "web") -> Json:
    stored = cluster.get(resource, name)
    assert stored is not None
    found: Json = stored["status"]
    return found


def end(cluster: DevCluster, pod: Json, phase: str) -> None:
    cluster.update("pods", {**pod, "status": {"phase": phase}}, subresource="status")


# --- protection ----------------------------------------------------------------------------


GROUP: Json = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}
GROUPS = "podgroups.scheduling.k8s.io"
CLAIM: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
DATA: Json = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


async def test_a_group_without_pods_goes(cluster: DevCluster) -> None:
    cluster.create(GROUP, make_pod("other"))
    cluster.delete(GROUPS, "train")
    await eventually(lambda: cluster.get(GROUPS, "train") is None)


@pytest.mark.parametrize("how", ["deleted", "Succeeded", "Failed"])
async def test_a_group_stays_until_its_last_pod_has_ended(cluster: DevCluster, how: str) -> None:
    in_group: Json = {"schedulingGroup": {"podGroupName": "train"}}
    cluster.create(GROUP, make_pod("a", **in_group), make_pod("b", nodeName="n1", **in_group))
    cluster.delete(GROUPS, "train")
    cluster.delete("pods", "a")
    await idle()
    left = cluster.get(GROUPS, "train")
    assert left is not None
    assert left["metadata"]["deletionTimestamp"]
    pod = cluster.get("pods", "b")
    assert pod is not None
    if how == "deleted":
        cluster.delete("pods", "b")
        await idle()
        assert cluster.get(GROUPS, "train") is not None  # the pod takes its time to end
        cluster.delete("pods", "b", grace=0)
    else:
        end(cluster, pod, how)
    await eventually(lambda: cluster.get(GROUPS, "train") is None)


async def test_a_group_that_other_finalizers_hold_stays(cluster: DevCluster) -> None:
    metadata = {**GROUP["metadata"], "finalizers": ["example.com/own"]}
    cluster.create({**GROUP, "metadata": metadata})
    cluster.delete(GROUPS, "train")
    await idle()
    left = cluster.get(GROUPS, "train")
    assert left is not None
    assert left["metadata"]["finalizers"] == ["example.com/own"]


async def test_a_group_does_not_keep_its_namespace(cluster: DevCluster) -> None:
    group = {**GROUP, "metadata": {"name": "train", "namespace": "shop"}}
    pod = make_pod("a", namespace="shop", schedulingGroup={"podGroupName": "train"})
    cluster.create(a_namespace(), group, pod)
    cluster.delete("namespaces", "shop")
    await eventually(lambda: cluster.get("namespaces", "shop") is None)


async def test_a_claim_stays_while_a_pod_on_a_node_uses_it(cluster: DevCluster) -> None:
    """A pod that waits does not keep it: with a claim that goes, no kubelet starts a pod."""
    claims = "persistentvolumeclaims"
    cluster.create(CLAIM, make_pod("a", volumes=[DATA]))
    cluster.delete(claims, "data")
    await eventually(lambda: cluster.get(claims, "data") is None)
    cluster.create(CLAIM, make_pod("b", nodeName="n1", volumes=[DATA]))
    cluster.delete(claims, "data")
    await idle()
    assert cluster.get(claims, "data") is not None
    cluster.delete("pods", "b", grace=0)
    await eventually(lambda: cluster.get(claims, "data") is None)


async def test_a_volume_stays_while_it_is_bound(cluster: DevCluster) -> None:
    volumes = "persistentvolumes"
    volume: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
        },
    }
    (made,) = cluster.create(volume)
    cluster.update(volumes, {**made, "status": {"phase": "Bound"}}, subresource="status")
    cluster.delete(volumes, "disk")
    await idle()
    left = cluster.get(volumes, "disk")
    assert left is not None
    cluster.update(volumes, {**left, "status": {"phase": "Released"}}, subresource="status")
    await eventually(lambda: cluster.get(volumes, "disk") is None)


# --- namespaces ----------------------------------------------------------------------------


async def test_a_deleted_namespace_is_emptied_and_goes(cluster: DevCluster) -> None:
    cluster.create(
        a_namespace(),
        make_pod("a", namespace="shop"),
        a_config_map("policies", "shop"),
        make_pod("elsewhere"),
    )
    cluster.delete("namespaces", "shop")
    await eventually(lambda: cluster.get("namespaces", "shop") is None)
    assert cluster.list("pods", "shop") == []
    assert cluster.list("configmaps", "shop") == []
    assert len(cluster.list("pods")) == 1


async def test_a_namespace_waits_for_its_pods_to_end(cluster: DevCluster) -> None:
    cluster.create(a_namespace(), make_pod("a", namespace="shop", nodeName="n1"))
    cluster.delete("namespaces", "shop")
    await idle()
    assert cluster.get("namespaces", "shop") is not None
    cluster.delete("pods", "a", "shop", grace=0)
    await eventually(lambda: cluster.get("namespaces", "shop") is None)


async def test_workloads_do_not_keep_their_namespace(cluster: DevCluster) -> None:
    """A ReplicaSet wants new pods in place of those that are deleted."""
    cluster.start_kubelets()
    web = a_workload("Deployment", replicas=2)
    web["metadata"]["namespace"] = "shop"
    cluster.create(make_node("n1"), a_namespace(), web)
    await eventually(lambda: len(cluster.list("pods", "shop")) == 2)
    for pod in cluster.list("pods", "shop"):
        cluster.bind(pod["metadata"]["name"], "n1", "shop")
    cluster.delete("namespaces", "shop")
    await eventually(lambda: cluster.get("namespaces", "shop") is None)
    assert cluster.list("pods") == []


# --- garbage -------------------------------------------------------------------------------


async def test_what_belongs_to_an_owner_that_is_gone_goes_too(cluster: DevCluster) -> None:
    (owner,) = cluster.create(a_config_map("owner"))
    (child,) = cluster.create(a_config_map("child", owner=owner))
    cluster.create(a_config_map("grandchild", owner=child), a_config_map("stranger"))
    await idle()
    cluster.delete("configmaps", "owner")
    await eventually(lambda: len(cluster.list("configmaps")) == 1)
    assert cluster.get("configmaps", "stranger")


async def test_an_object_stays_as_long_as_it_has_an_owner(cluster: DevCluster) -> None:
    first, second = cluster.create(a_config_map("first"), a_config_map("second"))
    both = a_config_map("child", owner=first)
    both["metadata"]["ownerReferences"] += a_config_map("x", owner=second)["metadata"][
        "ownerReferences"
    ]
    cluster.create(both)
    cluster.delete("configmaps", "first")
    await idle()
    assert cluster.get("configmaps", "child")
    cluster.delete("configmaps", "second")
    await eventually(lambda: cluster.get("configmaps", "child") is None)


async def test_an_owner_of_the_same_name_is_another_one(cluster: DevCluster) -> None:
    (owner,) = cluster.create(a_config_map("owner"))
    cluster.delete("configmaps", "owner")
    cluster.create(a_config_map("owner"), a_config_map("child", owner=owner))
    await eventually(lambda: cluster.get("configmaps", "child") is None)


async def test_what_belongs_to_an_owner_can_be_kept(cluster: DevCluster) -> None:
    cluster.create(a_workload("ReplicaSet", replicas=2))
    await eventually(lambda: len(cluster.list("pods")) == 2)
    cluster.api.delete(REPLICA_SETS, "default", "web", {"propagationPolicy": "Orphan"})
    await eventually(lambda: cluster.get("replicasets", "web") is None)
    await idle()
    pods = cluster.list("pods")
    assert [pod["metadata"].get("ownerReferences") for pod in pods] == [None, None]


async def test_an_owner_can_wait_until_what_belongs_to_it_is_gone(cluster: DevCluster) -> None:
    cluster.create(a_workload("ReplicaSet", replicas=1))
    await eventually(lambda: len(cluster.list("pods")) == 1)
    cluster.bind(cluster.list("pods")[0]["metadata"]["name"], "n1")
    cluster.api.delete(REPLICA_SETS, "default", "web", {"propagationPolicy": "Foreground"})
    await eventually(lambda: "deletionTimestamp" in cluster.list("pods")[0]["metadata"])
    await idle()
    assert cluster.get("replicasets", "web")
    cluster.delete("pods", cluster.list("pods")[0]["metadata"]["name"], grace=0)
    await eventually(lambda: cluster.get("replicasets", "web") is None)
    assert cluster.list("pods") == []


async def test_an_owner_that_cannot_be_looked_up_is_not_gone(cluster: DevCluster) -> None:
    child = a_config_map("child")
    owner = {"apiVersion": "example.com/v1", "kind": "Train", "name": "x", "uid": "1"}
    child["metadata"]["ownerReferences"] = [owner]
    node = make_node("n1")
    node["metadata"]["ownerReferences"] = [{**owner, "apiVersion": "v1", "kind": "ConfigMap"}]
    cluster.create(child, node)
    await idle()
    assert cluster.get("configmaps", "child")
    assert cluster.get("nodes", "n1")


# --- workloads -----------------------------------------------------------------------------


async def test_a_replica_set_has_as_many_pods_as_it_wants(cluster: DevCluster) -> None:
    cluster.create(a_workload("ReplicaSet", replicas=3))
    await eventually(lambda: len(cluster.list("pods")) == 3)
    pod = cluster.list("pods")[0]
    assert pod["metadata"]["name"].startswith("web-")
    assert pod["metadata"]["labels"] == {"app": "web"}
    assert pod["metadata"]["annotations"] == {"note": "kept"}
    cluster.delete("pods", pod["metadata"]["name"], grace=0)
    await eventually(lambda: len(cluster.list("pods")) == 3)
    change(cluster, "replicasets", "web", replicas=1)
    await eventually(lambda: len(cluster.list("pods")) == 1)
    await eventually(lambda: status(cluster, "replicasets")["replicas"] == 1)
    cluster.delete("replicasets", "web")
    await eventually(lambda: cluster.list("pods") == [])


async def test_pods_that_wait_are_deleted_before_those_that_run(cluster: DevCluster) -> None:
    cluster.start_kubelets()
    cluster.create(make_node("n1"), a_workload("ReplicaSet", replicas=3))
    await eventually(lambda: len(cluster.list("pods")) == 3)
    runs = cluster.list("pods")[1]["metadata"]["name"]
    cluster.bind(runs, "n1")
    await eventually(lambda: status(cluster, "replicasets").get("readyReplicas") == 1)
    change(cluster, "replicasets", "web", replicas=1)
    await eventually(lambda: len(cluster.list("pods")) == 1)
    assert cluster.get("pods", runs)


async def test_an_ended_pod_of_a_replica_set_is_replaced(cluster: DevCluster) -> None:
    cluster.create(a_workload("ReplicaSet", replicas=1))
    await eventually(lambda: len(cluster.list("pods")) == 1)
    end(cluster, cluster.list("pods")[0], "Failed")
    await eventually(lambda: len(cluster.list("pods")) == 2)


async def test_a_deployment_replaces_its_pods_when_its_template_changes(
    cluster: DevCluster,
) -> None:
    cluster.create(a_workload("Deployment", replicas=2))
    await eventually(lambda: len(cluster.list("pods")) == 2)
    (replica_set,) = cluster.list("replicasets")
    hashes = {pod["metadata"]["labels"]["pod-template-hash"] for pod in cluster.list("pods")}
    assert hashes == {replica_set["spec"]["selector"]["matchLabels"]["pod-template-hash"]}
    change(
        cluster,
        "deployments",
        "web",
        template=a_workload("Deployment", image="app:2")["spec"]["template"],
    )

    def images() -> Counter[str]:
        pods = cluster.list("pods")
        return Counter(pod["spec"]["containers"][0]["image"] for pod in pods)

    await eventually(lambda: images() == {"app:2": 2})
    await eventually(lambda: status(cluster, "deployments").get("updatedReplicas") == 2)
    cluster.delete("deployments", "web")
    await eventually(lambda: cluster.list("pods") == cluster.list("replicasets") == [])


async def test_a_job_runs_pods_until_enough_have_succeeded(cluster: DevCluster) -> None:
    cluster.create(a_workload("Job", parallelism=2, completions=3))
    await eventually(lambda: len(cluster.list("pods")) == 2)
    labels = cluster.list("pods")[0]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == "web"
    end(cluster, cluster.list("pods")[0], "Succeeded")
    await eventually(lambda: len(cluster.list("pods")) == 3)
    for pod in cluster.list("pods"):
        end(cluster, pod, "Succeeded")
    await eventually(lambda: "completionTime" in status(cluster, "jobs"))
    assert status(cluster, "jobs")["succeeded"] == len(cluster.list("pods")) == 3


async def test_a_job_whose_pods_fail_ends(cluster: DevCluster) -> None:
    cluster.create(a_workload("Job", backoffLimit=1))

    def waiting() -> list[Json]:
        return [pod for pod in cluster.list("pods") if pod["status"]["phase"] == "Pending"]

    for _ in range(2):
        await eventually(waiting)
        end(cluster, waiting()[0], "Failed")
    await eventually(lambda: status(cluster, "jobs").get("conditions"))
    assert status(cluster, "jobs")["conditions"][0]["type"] == "Failed"
    assert len(cluster.list("pods")) == 2


async def test_a_job_that_is_suspended_has_no_pods(cluster: DevCluster) -> None:
    cluster.create(a_workload("Job", suspend=True))
    await idle()
    assert cluster.list("pods") == []
    change(cluster, "jobs", "web", suspend=False)
    await eventually(lambda: len(cluster.list("pods")) == 1)


async def test_nothing_changes_once_all_is_as_it_should_be(cluster: DevCluster) -> None:
    cluster.create(a_workload("Deployment", replicas=2), a_workload("Job", "work"))
    await eventually(lambda: len(cluster.list("pods")) == 3)
    await idle()
    before = cluster.store.revision
    cluster.create(a_config_map("news"))
    await idle()
    assert cluster.store.revision == before + 1
