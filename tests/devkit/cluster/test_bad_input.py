"""Whatever is sent, the embedded server answers with a refusal or obeys: it never breaks."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devkit.cluster import DevCluster, make_node, make_pod
from devkit.cluster.api import MERGE_PATCH, STRATEGIC_PATCH
from devkit.cluster.store import Version
from engine.core.manifests.errors import ApiStatus
from engine.core.manifests.kinds import BY_MANIFEST, KINDS
from tests.contract.harness import Api
from tests.searching import examples

Json = dict[str, Any]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "-1", "1Gi", "1e999999", "\u0000", "x" * 300, "é", "$patch"]),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "key", "values", "cpu", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)

SEEDS: list[Json] = [
    make_pod(
        "a",
        resources={"example.com/gpu": "1"},
        tolerations=[{"key": "x", "operator": "Exists", "effect": "NoSchedule"}],
        nodeSelector={"disk": "ssd"},
        schedulingGates=[{"name": "x"}],
        initContainers=[{"name": "init", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                    ]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}},
                    }
                ]
            },
        },
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    ),
    make_node(
        "n",
        taints=[{"key": "a", "effect": "NoSchedule"}],
        images={"example/app:1": 5},
    ),
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "spec": {"leaseDurationSeconds": 5, "renewTime": "2030-01-02T03:04:05.000006Z"},
    },
    {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a"},
        "eventTime": "2030-01-02T03:04:05.000006Z",
        "reportingController": "c",
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
        "series": {"count": 2, "lastObservedTime": "2030-01-02T03:04:05.000006Z"},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "a"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": "h"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}},
        },
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "a"},
        "provisioner": "p",
        "parameters": {"a": "b"},
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}],
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "a"},
        "spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["z"]}]},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "a"},
        "spec": {"tokenRequests": [{"audience": "a"}], "volumeLifecycleModes": ["Persistent"]},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "a"},
        "storageClassName": "s",
        "capacity": "1Gi",
        "nodeTopology": {"matchLabels": {"a": "b"}},
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "a"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "a"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "a"},
        "value": 5,
        "globalDefault": True,
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
    },
]


def is_obeyed(act: Callable[[], object]) -> bool:
    """Do *act*; False if the server refuses it as a mistake of the client.

    That includes the refusals that the real server reports as 500 with an empty reason.
    """
    try:
        act()
    except ApiStatus as refusal:
        if refusal.code >= 500 and refusal.reason:
            raise
        return False
    return True


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside."""
    found = [path] if path else []
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        found += places(item, (*path, key))
    return found


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[Json, Json]:
    """A good object, and the same with one value replaced or removed."""
    seed = draw(st.sampled_from(SEEDS))
    body = copy.deepcopy(seed)
    options = [place for place in places(body) if place not in (("kind",), ("apiVersion",))]
    *path, last = draw(st.sampled_from(options))
    parent: Any = body
    for key in path:
        parent = parent[key]
    if draw(st.booleans()) and isinstance(parent, dict):
        del parent[last]
    else:
        parent[last] = draw(ANYTHING)
    return seed, body


@settings(max_examples=examples(300), deadline=None)
@given(pair=spoiled())
def test_a_spoiled_object_is_refused_or_stored(pair: tuple[Json, Json]) -> None:
    good, body = pair
    cluster = DevCluster(seed=1)
    kind = BY_MANIFEST[good["apiVersion"], good["kind"]]
    namespace = "default" if kind.namespaced else ""
    made: list[Version] = []
    is_obeyed(lambda: made.append(cluster.api.create(kind, namespace, body)))
    for version in made:
        cluster.api.delete(kind, namespace, version.manifest["metadata"]["name"])
    # And as an update of the good one.
    name = good["metadata"]["name"]
    is_obeyed(lambda: cluster.api.create(kind, namespace, good))
    for part in ("", "status") if kind.has_status else ("",):
        metadata = body.get("metadata")
        if isinstance(metadata, dict):
            metadata["name"] = name
        is_obeyed(partial(cluster.api.update, kind, namespace, name, body, subresource=part))
    # Whatever is stored now, other pods are still admitted and lists still answer.
    cluster.create(make_pod("other"))
    cluster.store.check_invariants()


@settings(max_examples=examples(200), deadline=None)
@given(
    change=ANYTHING,
    where=st.sampled_from(["metadata", "spec", "status", "labels", "conditions", "containers"]),
    language=st.sampled_from([MERGE_PATCH, STRATEGIC_PATCH]),
    subresource=st.sampled_from(["", "status"]),
)
def test_a_spoiled_patch_is_refused_or_applied(
    change: Any, where: str, language: str, subresource: str
) -> None:
    cluster = DevCluster(seed=1)
    cluster.create(SEEDS[0])
    body: Any = {where: change}
    if where == "labels":
        body = {"metadata": {where: change}}
    elif where == "conditions":
        body = {"status": {where: change}}
    elif where == "containers":
        body = {"spec": {where: change}}
    kind = BY_MANIFEST["v1", "Pod"]
    is_obeyed(
        lambda: cluster.api.patch(kind, "default", "a", body, language, subresource=subresource)
    )
    cluster.store.check_invariants()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_bodies_that_are_no_objects_are_refused(api: Api, method: str, body: bytes) -> None:
    await api.make_pod("a")
    for path in (api.pods(), api.pods("a"), api.pods("a", "binding"), api.pods("a", "status")):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await api.call(method, path, body, content_type=kind)
        assert answer.status < 500, (path, answer)


_POD = {"containers": [{"name": "c", "image": "i"}]}
_ENDING: Json = {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}
_APP: Json = {
    "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": _POD},
    }
}
#: What objects cannot do without, by kind.
_NEEDED: Json = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), _APP),
    "ReplicationController": {
        "spec": {"selector": {"app": "a"}, "template": _APP["spec"]["template"]}
    },
    "Job": {"spec": _ENDING},
    "CronJob": {"spec": {"schedule": "@daily", "jobTemplate": {"spec": _ENDING}}},
    "DeviceTaintRule": {"spec": {"taint": {"key": "k", "effect": "NoSchedule"}}},
    "PodGroup": {"spec": {"schedulingPolicy": {"basic": {}}}},
    "Workload": {"spec": {"podGroupTemplates": [{"name": "w", "schedulingPolicy": {"basic": {}}}]}},
    "ResourceSlice": {
        "spec": {
            "driver": "d.example.com",
            "allNodes": True,
            "pool": {"name": "p", "resourceSliceCount": 1},
        }
    },
    "PersistentVolume": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": "h"},
        }
    },
    "PersistentVolumeClaim": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "StorageClass": {"provisioner": "p"},
    "CSIStorageCapacity": {"storageClassName": "s"},
    "VolumeAttachment": {
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    },
    "RuntimeClass": {"handler": "h"},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)
async def test_every_kind_is_created_listed_and_deleted(api: Api, kind: Any) -> None:
    namespace = "default" if kind.namespaced else ""
    body: Json = {"metadata": {"name": "a"}, **_NEEDED.get(kind.kind, {})}
    if kind.plural == "pods":
        body = make_pod("a")
    elif kind.plural == "events":
        body = {**SEEDS[3], "involvedObject": SEEDS[3]["regarding"], "reportingComponent": "c"}
        del body["kind"], body["apiVersion"]
    answer = await api.post(kind.path(namespace), body)
    assert answer.status == 201, answer
    listed = await api.get(kind.path(namespace))
    assert "a" in [item["metadata"]["name"] for item in listed.body["items"]]
    assert (await api.delete(kind.path(namespace, "a"))).status == 200
