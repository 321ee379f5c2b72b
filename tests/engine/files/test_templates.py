"""Workloads that no cluster has seen stand for the pods that they would make."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.files.cluster_file import read_cluster
from engine.files.templates import planned_objects
from engine.files.world import ManifestError

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"schedulerName": "mine", "containers": [{"name": "main"}]},
}


def workload(kind: str, uid: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "uid": uid}
    return {"kind": kind, "metadata": metadata, "spec": {"template": TEMPLATE, **spec}}


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        pytest.param(workload("StatefulSet", replicas=2), 2, id="replicas"),
        pytest.param(workload("ReplicaSet"), 1, id="one if nothing is said"),
        pytest.param(workload("ReplicationController", replicas=0), 0, id="none"),
        pytest.param(workload("Job", parallelism=4, completions=3), 3, id="no more than complete"),
        pytest.param(workload("Job", completions=3), 1, id="one at a time"),
        pytest.param(workload("Job", uid="u", parallelism=4), 0, id="of a cluster"),
        pytest.param(workload("DaemonSet"), 0, id="one a node"),
        pytest.param({"kind": "Deployment", "spec": 5}, 0, id="no object"),
        pytest.param({"kind": "ReplicaSet", "spec": {"selector": {}}}, 0, id="no template"),
    ],
)
def test_so_many_pods_run_at_once(manifest: dict[str, Any], want: int) -> None:
    pods = planned_objects(manifest)
    assert len(pods) == want
    for number, pod in enumerate(pods):
        assert pod["metadata"]["name"] == f"web-{number}"
        own = {"batch.kubernetes.io/job-name": "web"} if manifest["kind"] == "Job" else {}
        assert pod["metadata"]["namespace"] == "shop"
        assert pod["metadata"]["labels"] == {"app": "web", **own}
        assert pod["spec"] == TEMPLATE["spec"]
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == (manifest["kind"], "web")


def test_a_deployment_has_the_replica_set_that_its_pods_spread_by() -> None:
    selector = {"matchLabels": {"app": "web"}}
    replica_set, *pods = planned_objects(workload("Deployment", replicas=2, selector=selector))
    assert (replica_set["kind"], replica_set["spec"]) == ("ReplicaSet", {"selector": selector})
    assert [pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods] == ["ReplicaSet"] * 2
    [owner] = replica_set["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("apps/v1", "Deployment", "web")


def test_a_daemon_set_has_a_pod_on_each_node_that_it_asks_for() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    nodes = [
        {"kind": "Node", "metadata": {"name": "a", "labels": {"disk": "ssd"}}},
        {"kind": "Node", "metadata": {"name": "b"}},
        {
            "kind": "Node",
            "metadata": {"name": "c", "labels": {"disk": "ssd"}},
            "spec": {"taints": [taint]},
        },
    ]
    spec = {**TEMPLATE["spec"], "nodeSelector": {"disk": "ssd"}}
    daemon = workload("DaemonSet", template={**TEMPLATE, "spec": spec})
    [made] = planned_objects(daemon, nodes=nodes)
    [term] = made["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    tolerated = {one["key"].partition("/")[2] for one in made["spec"]["tolerations"]}
    assert tolerated == {
        "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure",
        "unschedulable",
    }  # fmt: skip


CLAIMED = """
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: d}}]}}}
---
kind: StorageClass
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: p
---
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: &own {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  template:
    spec:
      resourceClaims: [{name: g, resourceClaimTemplateName: gpu}]
      volumes:
        - name: tmp
          ephemeral: {volumeClaimTemplate: {spec: {<<: *own, storageClassName: slow}}}
"""


def test_claims_are_made_from_templates(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(CLAIMED)
    cluster = read_cluster(tmp_path / "x.yaml")
    claims = {
        (one["kind"], one["metadata"]["name"]): one["spec"]
        for one in cluster.objects
        if one["kind"].endswith("Claim")
    }
    volumes = [(name, kind) for kind, name in claims if kind == "PersistentVolumeClaim"]
    assert sorted(name for name, _ in volumes) == ["data-db-0", "data-db-1", "db-0-tmp", "db-1-tmp"]
    assert claims["PersistentVolumeClaim", "data-db-0"]["storageClassName"] == "fast"
    assert claims["PersistentVolumeClaim", "db-1-tmp"]["storageClassName"] == "slow"
    first, _ = cluster.pods
    assert first["status"]["resourceClaimStatuses"] == [
        {"name": "g", "resourceClaimName": "db-0-g"}
    ]
    assert claims["ResourceClaim", "db-0-g"]["devices"]["requests"][0]["exactly"]["count"] == 1
    mounted = {one["name"]: one for one in first["spec"]["volumes"]}
    assert mounted["data"]["persistentVolumeClaim"] == {"claimName": "data-db-0"}


@pytest.mark.parametrize("wrong", ["many", -1, True, 10**9])
def test_a_number_of_pods_that_is_none_is_reported(wrong: object) -> None:
    with pytest.raises(ManifestError, match=r"`web`: spec.replicas: want an int in 0..100000, got"):
        planned_objects(workload("Deployment", replicas=wrong))


def test_pods_that_are_there_are_not_planned_again(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    there = {
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop"},
        "spec": {"nodeName": "n", "containers": [{"name": "main"}]},
    }
    path.write_text(yaml.safe_dump_all([workload("StatefulSet", replicas=2), there]))
    cluster = read_cluster(path)
    assert [p["metadata"]["name"] for p in cluster.placed_pods()] == ["web-0"]
    assert [p["metadata"]["name"] for p in cluster.pending_pods()] == ["web-1"]
    assert not cluster.skipped
    assert [one["kind"] for one in cluster.objects] == ["StatefulSet"]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"restartPolicy": "Always"}, "valid values"),
        ({"restartPolicy": "Never"}, None),
        ({}, None),
    ],
    ids=["always", "never", "nothing"],
)
def test_a_job_whose_pods_would_restart_for_ever_is_refused(
    spec: dict[str, Any], want: str | None, tmp_path: Path
) -> None:
    """What a sketch leaves out is forgiven; what it says must be right."""
    job = workload("Job")
    job["spec"]["template"] = {"spec": {**TEMPLATE["spec"], **spec}}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    if want is None:
        assert len(list(read_cluster(path).pending_pods())) == 1
        return
    with pytest.raises(ValueError, match=r"job\.yaml:\d+: .*restartPolicy") as error:
        read_cluster(path)
    assert 'valid values: "OnFailure", "Never"' in str(error.value)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"])
def test_a_selector_that_misses_its_template_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(yaml.safe_dump(workload(kind, selector={"matchLabels": {"app": "wbe"}})))
    with pytest.raises(ValueError, match="`selector` does not match template `labels`"):
        read_cluster(path)
