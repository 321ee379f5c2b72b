"""Workloads that kube-scheduler and ours have to answer alike, on a real control plane each."""

from collections.abc import Mapping
from typing import Any, Final

from tests.live import HOSTNAME, NAMESPACE, ZONE, Json, budget, node, pod
from tests.parity.side_by_side import Workload

GPU: Final = "example.com/gpu"


def _affinity(kind: str, key: str, labels: Mapping[str, str]) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": dict(labels)}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _node_affinity(key: str, operator: str, *values: str) -> Json:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _spread(key: str, labels: Mapping[str, str], skew: int = 1, **words: Any) -> list[Json]:
    return [
        {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": dict(labels)},
            **words,
        }
    ]


def storage_class(name: str, mode: str = "WaitForFirstConsumer", **words: Any) -> Json:
    """A class of a provisioner that nobody runs, or of none at all."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": mode,
        **words,
    }


def volume(name: str, size: str, *, claim: str = "", on: Json | None = None, **spec: Any) -> Json:
    """A PersistentVolume; `claim` is the one that it is bound to, `on` the nodes it is for."""
    if claim:
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim}
    if on is not None:
        spec["nodeAffinity"] = {"required": on}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "hostPath": {"path": f"/data/{name}"},
            **spec,
        },
        "status": {"phase": "Bound" if claim else "Available"},
    }


def claim(name: str, size: str, *, to: str = "", mode: str = "ReadWriteOnce", **spec: Any) -> Json:
    """A PersistentVolumeClaim; `to` is the volume that it is bound to."""
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "accessModes": [mode],
            "storageClassName": "local",
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }
    if to:
        manifest["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        manifest["spec"]["volumeName"] = to
        manifest["status"] = {"phase": "Bound"}
    return manifest


def _with_claims(*names: str) -> list[Json]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


def _in_zone(zone: str) -> Json:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeSelectorTerms": [term]}


def devices(node_name: str, *names: str) -> Json:
    """The devices of one node, as its driver publishes them."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-devices"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": name, "attributes": {"model": {"string": name}}} for name in names
            ],
        },
    }


def device_class(name: str) -> Json:
    """A class of every device of the driver."""
    expression = "device.driver == 'gpu.example.com'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def device_claim(name: str, *, of: str = "gpu", count: int = 1, model: str = "") -> Json:
    """A ResourceClaim for devices of a class."""
    exactly: Json = {"deviceClassName": of, "count": count, "allocationMode": "ExactCount"}
    if model:
        expression = f"device.attributes['gpu.example.com'].model == '{model}'"
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def _devices_of(name: str) -> list[Json]:
    return [{"name": "d", "resourceClaimName": name}]


_WEB: Final = {"app": "web"}
_TOLERATES_ALL: Final = [{"operator": "Exists"}]


# --- pods that wait ----------------------------------------------------------------------------

WAITING: Final = (
    Workload(
        "no nodes at all",
        pending=[pod("a"), pod("b", cpu="1")],
    ),
    Workload(
        "resources of every kind",
        objects=[
            node("n1", cpu="2", memory="2Gi"),
            node("n2", cpu="4", memory="1Gi"),
            node("n3", cpu="1", memory="8Gi", pods="1", extended={GPU: "1"}),
        ],
        placed=[pod("full", on="n3", extended={GPU: "1"})],
        pending=[
            pod("fits", cpu="1500m", memory="512Mi"),
            pod("cpu", cpu="5"),
            pod("both", cpu="3", memory="1500Mi"),
            pod("gpu", extended={GPU: "1"}),
            pod("two-gpus", extended={GPU: "2"}, cpu="100"),
            pod("nothing"),
        ],
    ),
    Workload(
        "the order of many reasons",
        objects=[
            *(node(f"c{i:02}", cpu="1") for i in range(11)),
            *(node(f"p{i}", pods="1") for i in range(3)),
            *(node(f"t{i}", taints=["dedicated=db:NoSchedule"]) for i in range(2)),
            node("x", cordoned=True),
        ],
        placed=[pod(f"only-{i}", on=f"p{i}") for i in range(3)],
        pending=[pod("a", cpu="2")],
    ),
    Workload(
        "taints and cordons",
        objects=[
            node("n1", taints=["a=1:NoSchedule"]),
            node("n2", taints=["a=1:NoSchedule", "b=2:NoExecute"]),
            node("n3", cordoned=True),
            node("n4", taints=["c=3:PreferNoSchedule"], cpu="1"),
        ],
        pending=[
            pod("plain", cpu="2"),
            pod("some", cpu="2", tolerations=[{"key": "b", "operator": "Exists"}]),
            pod("n1-only", cpu="2", tolerations=[{"key": "a", "value": "1"}]),
            pod("wrong", cpu="2", tolerations=[{"key": "a", "value": "9"}]),
            pod("all", cpu="3", tolerations=_TOLERATES_ALL, nodeSelector={HOSTNAME: "n3"}),
        ],
        nodes_are_certain=True,
    ),
    Workload(
        "labels that nodes must have",
        objects=[
            node("n1", zone="a", labels={"disk": "ssd", "size": "10"}),
            node("n2", zone="b", labels={"size": "3"}),
        ],
        pending=[
            pod("selected", nodeSelector={"disk": "ssd"}),
            pod("nowhere", nodeSelector={"disk": "hdd"}),
            pod("zone", affinity=_node_affinity(ZONE, "In", "c")),
            pod("greater", affinity=_node_affinity("size", "Gt", "5")),
            pod("too-great", affinity=_node_affinity("size", "Gt", "50")),
            pod("without", affinity=_node_affinity("disk", "DoesNotExist")),
        ],
        nodes_are_certain=True,
    ),
    Workload(
        "one node by its name",
        objects=[node("n1"), node("n2", cpu="1")],
        pending=[
            pod(
                name,
                cpu=cpu,
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchFields": [
                                        {"key": "metadata.name", "operator": "In", "values": [on]}
                                    ]
                                }
                            ]
                        }
                    }
                },
            )
            for name, on, cpu in (
                ("here", "n2", "500m"),
                ("too-big", "n2", "2"),
                ("missing", "nowhere", "100m"),
            )
        ],
        nodes_are_certain=True,
    ),
    Workload(
        "host ports",
        objects=[node("n1"), node("n2", taints=["a=1:NoSchedule"])],
        pending=[pod("first", port=80), pod("second", port=80), pod("other", port=81)],
        nodes_are_certain=True,
    ),
    Workload(
        "spread over zones",
        objects=[
            node("a1", zone="a"),
            node("b1", zone="b"),
            node("c1", zone="c", cpu="1"),
            node("none"),
        ],
        placed=[pod("w0", on="a1", labels=_WEB), pod("w1", on="b1", labels=_WEB)],
        pending=[
            pod("big", cpu="2", labels=_WEB, topologySpreadConstraints=_spread(ZONE, _WEB)),
            pod("small", cpu="500m", labels=_WEB, topologySpreadConstraints=_spread(ZONE, _WEB)),
            pod(
                "domains",
                labels=_WEB,
                topologySpreadConstraints=_spread(ZONE, _WEB, minDomains=5),
            ),
            pod("rack", labels=_WEB, topologySpreadConstraints=_spread("rack", _WEB)),
        ],
    ),
    Workload(
        "pods that want and avoid each other",
        objects=[node("a1", zone="a"), node("a2", zone="a", cpu="1"), node("b1", zone="b")],
        placed=[
            pod("web", on="b1", labels=_WEB),
            pod(
                "lonely",
                on="a1",
                labels={"app": "db"},
                affinity=_affinity("podAntiAffinity", HOSTNAME, {"app": "batch"}),
            ),
        ],
        pending=[
            pod("near", affinity=_affinity("podAffinity", ZONE, _WEB)),
            pod("far", cpu="2", affinity=_affinity("podAntiAffinity", ZONE, _WEB)),
            pod("avoided", cpu="3", labels={"app": "batch"}, nodeSelector={ZONE: "a"}),
            pod("nobody", affinity=_affinity("podAffinity", ZONE, {"app": "none"})),
            pod(
                "itself",
                labels={"app": "self"},
                nodeSelector={HOSTNAME: "a2"},
                affinity=_affinity("podAffinity", ZONE, {"app": "self"}),
            ),
            pod(
                "everywhere",
                affinity=_affinity("podAntiAffinity", "kubernetes.io/os", {"app": "x"}),
            ),
        ],
        nodes_are_certain=False,
    ),
    Workload(
        "gates, and a scheduler that nobody runs",
        objects=[node("n1")],
        pending=[
            pod("gated", schedulingGates=[{"name": "example.com/wait"}]),
            pod("theirs", schedulerName="somebody-else"),
            pod("ours"),
        ],
        is_undecided=frozenset({"gated", "theirs"}),
        nodes_are_certain=True,
    ),
    Workload(
        "a node that comes later",
        objects=[node("n1", cpu="1")],
        pending=[pod("a", cpu="3"), pod("b", cpu="3"), pod("c", nodeSelector={"x": "y"})],
        later=[node("n2", cpu="4")],
        nodes_are_certain=True,
    ),
    Workload(
        "more urgent pods go first when room comes",
        # Without any node they would be tried again and again, each in its own time.
        objects=[node("small", cpu="1")],
        pending=[
            pod("low", cpu="2", priority="low"),
            pod("middle", cpu="2", priority="middle"),
            pod("high", cpu="2", priority="high-but-polite"),
        ],
        later=[node("n1", cpu="4")],
        nodes_are_certain=True,
    ),
    Workload(
        "a profile without some filters",
        profile={
            "schedulerName": "default-scheduler",
            "plugins": {
                "filter": {"disabled": [{"name": "TaintToleration"}, {"name": "NodeResourcesFit"}]},
                "postFilter": {"disabled": [{"name": "*"}]},
            },
        },
        objects=[node("n1", cpu="1", taints=["a=1:NoSchedule"]), node("n2", cordoned=True)],
        pending=[pod("big", cpu="8"), pod("ported", port=80), pod("again", port=80)],
        nodes_are_certain=True,
    ),
    Workload(
        "an affinity that the configuration adds",
        profile={
            "schedulerName": "default-scheduler",
            "pluginConfig": [
                {
                    "name": "NodeAffinity",
                    "args": {
                        "addedAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {"key": "pool", "operator": "In", "values": ["web"]}
                                        ]
                                    }
                                ]
                            }
                        }
                    },
                },
                {
                    "name": "PodTopologySpread",
                    "args": {
                        "defaultingType": "List",
                        "defaultConstraints": [
                            {
                                "maxSkew": 1,
                                "topologyKey": HOSTNAME,
                                "whenUnsatisfiable": "DoNotSchedule",
                            }
                        ],
                    },
                },
            ],
        },
        objects=[
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "web", "namespace": NAMESPACE},
                "spec": {"selector": _WEB, "ports": [{"port": 80}]},
            },
            node("n1", labels={"pool": "web"}),
            node("n2", labels={"pool": "web"}, cpu="1"),
            node("n3", labels={"pool": "db"}),
        ],
        placed=[pod("w0", on="n1", labels=_WEB)],
        pending=[
            pod("w1", cpu="2", labels=_WEB),
            pod("w2", cpu="500m", labels=_WEB),
            pod("db", nodeSelector={"pool": "db"}),
        ],
        nodes_are_certain=True,
    ),
)


# --- pods that make others go ------------------------------------------------------------------

PREEMPTING: Final = (
    Workload(
        "the least important victim of one node",
        objects=[node("n1", cpu="4")],
        placed=[
            pod("low", on="n1", cpu="2", priority="low"),
            pod("middle", on="n1", cpu="2", priority="middle"),
        ],
        pending=[pod("urgent", cpu="2", priority="high")],
        nodes_are_certain=True,
    ),
    Workload(
        "the node whose victims matter least",
        objects=[node(f"n{i}", cpu="4") for i in range(1, 5)],
        placed=[
            pod("middle-1", on="n1", cpu="4", priority="middle"),
            pod("low-2", on="n2", cpu="2", priority="low"),
            pod("other-2", on="n2", cpu="2", priority="low"),
            pod("low-3", on="n3", cpu="4", priority="low"),
            pod("high-4", on="n4", cpu="4", priority="high"),
        ],
        pending=[pod("urgent", cpu="4", priority="high")],
        nodes_are_certain=True,
    ),
    Workload(
        "the victim that has run for the shortest time",
        objects=[node("n1", cpu="4"), node("n2", cpu="4")],
        placed=[
            pod("old-1", on="n1", cpu="2", priority="low", start="2026-01-01T00:00:00Z"),
            pod("new-1", on="n1", cpu="2", priority="low", start="2026-01-01T05:00:00Z"),
            pod("old-2", on="n2", cpu="2", priority="low", start="2026-01-01T01:00:00Z"),
            pod("new-2", on="n2", cpu="2", priority="low", start="2026-01-01T07:00:00Z"),
        ],
        pending=[pod("urgent", cpu="2", priority="high")],
        nodes_are_certain=True,
    ),
    Workload(
        "a disruption budget is respected where it can be",
        objects=[
            node("n1", cpu="4"),
            node("n2", cpu="4"),
            budget("web", _WEB, 0),
        ],
        placed=[
            pod("guarded", on="n1", cpu="4", priority="low", labels=_WEB),
            pod("free-1", on="n2", cpu="2", priority="middle"),
            pod("free-2", on="n2", cpu="2", priority="middle"),
        ],
        pending=[pod("urgent", cpu="4", priority="high")],
        nodes_are_certain=True,
    ),
    Workload(
        "a disruption budget does not stop what cannot be had otherwise",
        objects=[node("n1", cpu="4"), budget("web", _WEB, 1)],
        placed=[
            pod("w1", on="n1", cpu="2", priority="low", labels=_WEB, start="2026-01-01T01:00:00Z"),
            pod("w2", on="n1", cpu="1", priority="low", labels=_WEB, start="2026-01-01T02:00:00Z"),
            pod("x", on="n1", cpu="1", priority="low", start="2026-01-01T00:00:00Z"),
        ],
        pending=[pod("urgent", cpu="3", priority="high")],
        nodes_are_certain=True,
    ),
    Workload(
        "who may not preempt",
        objects=[node("n1", cpu="4")],
        placed=[pod("low", on="n1", cpu="4", priority="low")],
        pending=[
            pod("polite", cpu="2", priority="high-but-polite"),
            pod("equal", cpu="2", priority="low"),
            pod("too-big", cpu="5", priority="high"),
        ],
    ),
    Workload(
        "preemption where it does not help",
        objects=[
            node("n1", cpu="4", taints=["a=1:NoSchedule"]),
            node("n2", cpu="4", cordoned=True),
            node("n3", cpu="2"),
            node("n4", cpu="4"),
        ],
        placed=[
            pod("low-1", on="n1", cpu="4", priority="low"),
            pod("low-2", on="n2", cpu="4", priority="low"),
            pod("high-4", on="n4", cpu="3", priority="highest"),
        ],
        pending=[pod("urgent", cpu="3", priority="high")],
    ),
    Workload(
        "victims of every kind of clash",
        objects=[node("n1", zone="a"), node("n2", zone="b", taints=["x=y:NoSchedule"])],
        placed=[
            pod("ported", on="n1", port=80, priority="low"),
            pod(
                "jealous",
                on="n1",
                priority="low",
                affinity=_affinity("podAntiAffinity", ZONE, {"app": "new"}),
            ),
            pod("bystander", on="n1", cpu="3", priority="low"),
        ],
        pending=[pod("urgent", cpu="1", port=80, priority="high", labels={"app": "new"})],
        nodes_are_certain=True,
    ),
    Workload(
        "two urgent pods, one after the other",
        objects=[node("n1", cpu="2"), node("n2", cpu="2")],
        placed=[
            pod("low-1", on="n1", cpu="2", priority="low"),
            pod("middle-2", on="n2", cpu="2", priority="middle"),
        ],
        pending=[
            pod("first", cpu="2", priority="high"),
            pod("second", cpu="2", priority="high"),
            pod("third", cpu="2", priority="high"),
        ],
        nodes_are_certain=True,
    ),
    Workload(
        "victims that take their time",
        objects=[node("n1", cpu="2")],
        placed=[pod("stuck-low", on="n1", cpu="2", priority="low")],
        pending=[
            pod("urgent", cpu="2", priority="high"),
            pod("lower", cpu="2", priority="middle"),
        ],
        later=[node("n2", cpu="1")],
    ),
)


# --- pods that need more than room --------------------------------------------------------------

HOLDING: Final = (
    Workload(
        "claims that are missing, waiting and bound elsewhere",
        objects=[
            node("n1", zone="a"),
            node("n2", zone="b", cpu="1"),
            storage_class("local"),
            storage_class("now", mode="Immediate"),
            volume("in-a", "1Gi", claim="bound-a", on=_in_zone("a")),
            claim("bound-a", "1Gi", to="in-a"),
            volume("free-b", "2Gi", on=_in_zone("b")),
            claim("small", "1Gi"),
            claim("too-big", "9Gi"),
            claim("at-once", "1Gi", storageClassName="now"),
            claim("lost", "1Gi", to="nothing"),
        ],
        pending=[
            pod("no-claim", volumes=_with_claims("missing")),
            pod("not-bound", volumes=_with_claims("at-once")),
            pod("no-volume", volumes=_with_claims("too-big")),
            pod("lost", volumes=_with_claims("lost")),
            pod("wrong-zone", volumes=_with_claims("bound-a"), nodeSelector={ZONE: "b"}),
            pod("in-a", volumes=_with_claims("bound-a")),
            pod("no-room", cpu="2", volumes=_with_claims("small")),
        ],
        nodes_are_certain=True,
    ),
    Workload(
        "a volume that nobody makes",
        objects=[
            node("n1", cpu="2"),
            storage_class("made", provisioner="csi.example.com"),
            claim("slow", "1Gi", storageClassName="made"),
        ],
        pending=[
            pod("waits", cpu="2", priority="low", volumes=_with_claims("slow")),
            pod("no-room", cpu="1", priority="low"),
        ],
        is_undecided=frozenset({"waits"}),
    ),
    # One at a time: together, who gets the claim once it is free depends on who waits for longer.
    *(
        Workload(
            f"a claim for one pod alone, and one of {priority} priority",
            objects=[
                node("n1"),
                node("n2"),
                storage_class("local"),
                volume("only", "1Gi", claim="only", accessModes=["ReadWriteOncePod"]),
                claim("only", "1Gi", to="only", mode="ReadWriteOncePod"),
            ],
            placed=[pod("holder", on="n1", priority="middle", volumes=_with_claims("only"))],
            pending=[pod("wants-it", priority=priority, volumes=_with_claims("only"))],
            nodes_are_certain=True,
        )
        for priority in ("middle", "high")
    ),
    Workload(
        "devices that are not there, and taken",
        objects=[
            node("n1"),
            node("n2"),
            device_class("gpu"),
            devices("n1", "small", "large"),
            device_claim("one", model="small"),
            device_claim("again", model="small"),
            device_claim("three", count=3),
            device_claim("of-no-class", of="tpu"),
        ],
        pending=[
            pod("first", resourceClaims=_devices_of("one")),
            pod("second", resourceClaims=_devices_of("again")),
            pod("too-many", resourceClaims=_devices_of("three")),
            pod("no-claim", resourceClaims=_devices_of("missing")),
            pod("no-class", resourceClaims=_devices_of("of-no-class")),
        ],
        is_undecided=frozenset({"no-claim"}),
        nodes_are_certain=True,
    ),
)
