"""What the API server refuses and fills in of storage and runtime classes, as tables.

Owns the tables; `test_rules` asks both servers.
"""

from typing import Any

from engine.core.manifests import kinds
from engine.core.manifests.kinds import Kind
from tests.contract.rule_cases import Case, Json

NODE_NAME = "kubernetes.io/hostname"
LEGACY_CLASS = "volume.beta.kubernetes.io/storage-class"


def _made(kind: Kind, plain: Json, *, within_spec: bool = True) -> Any:
    """A maker of cases for *kind*: of *plain* with other members, those that are None left out."""

    def case(
        name: str,
        want: str,
        change: Json | tuple[Json, ...] | None = None,
        *,
        sub: str = "",
        metadata: Json | None = None,
        **members: Any,
    ) -> Case:
        found = {key: one for key, one in {**plain, **members}.items() if one is not None}
        body = {"spec": found} if within_spec else found
        manifest = {"metadata": {"name": "a", **(metadata or {})}, **body}
        return Case(f"{kind.kind}: {name}", kind, manifest, want, change, sub)

    return case


# --- claims ---------------------------------------------------------------------------------------

SIZE: Json = {"requests": {"storage": "1Gi"}}
claim = _made(
    kinds.PERSISTENT_VOLUME_CLAIMS,
    {"accessModes": ["ReadWriteOnce"], "resources": SIZE, "storageClassName": "x"},
)
IMMUTABLE = "422 Invalid: spec Forbidden"


def size(amount: str) -> Json:
    return {"spec": {"resources": {"requests": {"storage": amount}}}}


CLAIM_CASES: list[Case] = [
    claim("as it should be", "201"),
    claim("no modes", "422 Invalid: spec.accessModes Required", accessModes=[]),
    claim("no mode of the name", "422 Invalid: spec.accessModes NotSupported", accessModes=["RWO"]),
    claim(
        "of one pod and of many",
        "422 Invalid: spec.accessModes Forbidden",
        accessModes=["ReadWriteOncePod", "ReadWriteOnce"],
    ),
    claim("no size", "422 Invalid: spec.resources[storage] Required", resources=None),
    claim(
        "a size of nothing",
        "422 Invalid: spec.resources[storage] Invalid",
        resources={"requests": {"storage": "0"}},
    ),
    claim("a bad class", "422 Invalid: spec.storageClassName Invalid", storageClassName="A_b"),
    claim("no class of that name", "201", storageClassName=""),
    claim("a bad volume mode", "422 Invalid: spec.volumeMode NotSupported", volumeMode="Tape"),
    claim("an empty volume mode", "422 Invalid: spec.volumeMode NotSupported", volumeMode=""),
    claim(
        "a bad selector",
        "422 Invalid: spec.selector.matchExpressions[0].values Required",
        selector={"matchExpressions": [{"key": "a", "operator": "In"}]},
    ),
    claim(
        "a source of two kinds",
        "422 Invalid: spec Invalid",
        dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
        dataSourceRef={"kind": "PersistentVolumeClaim", "name": "b"},
    ),
    claim(
        "a source without name",
        "422 Invalid: spec.dataSource.name Required, spec.dataSourceRef.name Required",
        dataSourceRef={"apiGroup": "example.com", "kind": "Image", "name": ""},
    ),
    claim(
        "a bad class of attributes",
        "422 Invalid: spec.volumeAttributesClassName Invalid",
        volumeAttributesClassName="A_b",
    ),
    claim("its volume is found", "200", {"spec": {"volumeName": "v"}}),
    claim("another volume", IMMUTABLE, {"spec": {"volumeName": "w"}}, volumeName="v"),
    claim("another class", IMMUTABLE, {"spec": {"storageClassName": "y"}}),
    claim("a class at last", "200", {"spec": {"storageClassName": "y"}}, storageClassName=None),
    claim("other modes", IMMUTABLE, {"spec": {"accessModes": ["ReadWriteMany"]}}),
    claim(
        "another volume mode",
        "422 Invalid: spec Forbidden, volumeMode Invalid",
        {"spec": {"volumeMode": "Block"}},
    ),
    claim(
        "no limits at all",
        "200",
        {"spec": {"volumeName": "v", "resources": {"limits": {}}}},
    ),
    claim(
        "the annotation of a class goes",
        f"422 Invalid: metadata.annotations.{LEGACY_CLASS} Invalid",
        {"metadata": {"annotations": {LEGACY_CLASS: None}}},
        metadata={"annotations": {LEGACY_CLASS: "x"}},
        storageClassName=None,
    ),
    claim(
        "the annotation of a class becomes a field",
        "200",
        {"metadata": {"annotations": {LEGACY_CLASS: None}}, "spec": {"storageClassName": "x"}},
        metadata={"annotations": {LEGACY_CLASS: "x"}},
        storageClassName=None,
    ),
    claim("less, unbound", IMMUTABLE, size("500Mi")),
]


# --- volumes --------------------------------------------------------------------------------------

DISK: Json = {"csi": {"driver": "disk.example.com", "volumeHandle": "h"}}
volume = _made(
    kinds.PERSISTENT_VOLUMES,
    {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **DISK},
)


def on_nodes(*terms: Json) -> Json:
    return {"required": {"nodeSelectorTerms": list(terms)}}


def on_node(name: str, key: str = NODE_NAME) -> Json:
    return on_nodes({"matchExpressions": [{"key": key, "operator": "In", "values": [name]}]})


VOLUME_CASES: list[Case] = [
    volume("as it should be", "201"),
    volume("no modes", "422 Invalid: spec.accessModes Required", accessModes=None),
    volume(
        "no capacity",
        "422 Invalid: spec.capacity NotSupported, spec.capacity Required",
        capacity=None,
    ),
    volume(
        "a capacity of nothing",
        "422 Invalid: spec.capacity[storage] Invalid",
        capacity={"storage": "0"},
    ),
    volume(
        "a capacity of more",
        "422 Invalid: spec.capacity NotSupported",
        capacity={"storage": "1Gi", "cpu": "1"},
    ),
    volume(
        "an unknown policy",
        "422 Invalid: spec.persistentVolumeReclaimPolicy NotSupported",
        persistentVolumeReclaimPolicy="Burn",
    ),
    volume("of no kind", "422 Invalid: spec Required", csi=None),
    volume("of two kinds", "422 Invalid: spec.csi Forbidden", hostPath={"path": "/a"}),
    volume(
        "without driver or handle",
        "422 Invalid: spec.csi.driver Required, spec.csi.volumeHandle Required",
        csi={"driver": ""},
    ),
    volume(
        "a driver of a bad name",
        "422 Invalid: spec.csi.driver Invalid, spec.csi.driver TooLong",
        csi={"driver": "_" * 64, "volumeHandle": "h"},
    ),
    volume(
        "a secret of no namespace",
        "422 Invalid: spec.csi.nodePublishSecretRef.namespace Required",
        csi={**DISK["csi"], "nodePublishSecretRef": {"name": "s"}},
    ),
    volume(
        "a disk without name",
        "422 Invalid: spec.persistentDisk.partition Invalid, spec.persistentDisk.pdName Required",
        csi=None,
        gcePersistentDisk={"pdName": "", "partition": 300},
    ),
    volume(
        "a relative path of a server",
        "422 Invalid: spec.nfs.path Invalid, spec.nfs.server Required",
        csi=None,
        nfs={"server": "", "path": "a"},
    ),
    volume(
        "local, of no node",
        "422 Invalid: spec.nodeAffinity Required",
        csi=None,
        local={"path": "/a"},
    ),
    volume(
        "local, with steps back",
        "422 Invalid: spec.local.path Invalid",
        csi=None,
        local={"path": "/a/../b"},
        nodeAffinity=on_node("n"),
    ),
    volume(
        "the whole disk, to be recycled",
        "422 Invalid: spec.persistentVolumeReclaimPolicy Forbidden",
        csi=None,
        hostPath={"path": "/./"},
        persistentVolumeReclaimPolicy="Recycle",
    ),
    volume(
        "an affinity of nothing",
        "422 Invalid: spec.nodeAffinity.required Required",
        nodeAffinity={},
    ),
    volume(
        "an affinity of no terms",
        "422 Invalid: spec.nodeAffinity.required.nodeSelectorTerms Required",
        nodeAffinity=on_nodes(),
    ),
    volume(
        "an affinity of a bad key",
        "422 Invalid: spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key "
        "Invalid",
        nodeAffinity=on_node("n", key="a b"),
    ),
    volume("a bad class", "422 Invalid: spec.storageClassName Invalid", storageClassName="A_b"),
    volume("an unknown mode", "422 Invalid: spec.volumeMode NotSupported", volumeMode="Tape"),
    volume(
        "attributes without a driver",
        "422 Invalid: spec.csi Required, spec.volumeAttributesClassName Required",
        csi=None,
        hostPath={"path": "/a"},
        volumeAttributesClassName="",
    ),
    volume(
        "options of a kind that has none",
        "422 Invalid: metadata.annotations.volume.beta.kubernetes.io/mount-options Forbidden",
        metadata={"annotations": {"volume.beta.kubernetes.io/mount-options": "ro"}},
    ),
    volume(
        "another handle",
        "422 Invalid: spec.persistentvolumesource Forbidden",
        {"spec": {"csi": {"volumeHandle": "i"}}},
    ),
    volume(
        "a secret for growing",
        "200",
        {"spec": {"csi": {"controllerExpandSecretRef": {"name": "s", "namespace": "n"}}}},
    ),
    volume("another mode", "422 Invalid: volumeMode Invalid", {"spec": {"volumeMode": "Block"}}),
    volume("nodes at last", "200", {"spec": {"nodeAffinity": on_node("n")}}),
    volume(
        "other nodes",
        "422 Invalid: nodeAffinity Invalid",
        {"spec": {"nodeAffinity": on_node("m")}},
        nodeAffinity=on_node("n"),
    ),
    volume(
        "the new name of a label",
        "200",
        {"spec": {"nodeAffinity": on_node("z", "topology.kubernetes.io/zone")}},
        nodeAffinity=on_node("z", "failure-domain.beta.kubernetes.io/zone"),
    ),
    volume(
        "the old name of a label",
        "422 Invalid: nodeAffinity Invalid",
        {"spec": {"nodeAffinity": on_node("z", "failure-domain.beta.kubernetes.io/zone")}},
        nodeAffinity=on_node("z", "topology.kubernetes.io/zone"),
    ),
    volume("more capacity", "200", {"spec": {"capacity": {"storage": "2Gi"}}}),
    volume("a claim", "200", {"spec": {"claimRef": {"namespace": "n", "name": "c"}}}),
    volume(
        "attributes go",
        "422 Invalid: spec.volumeAttributesClassName Forbidden",
        {"spec": {"volumeAttributesClassName": None}},
        volumeAttributesClassName="fast",
    ),
]


# --- classes --------------------------------------------------------------------------------------

storage_class = _made(kinds.STORAGE_CLASSES, {"provisioner": "example.com/disk"}, within_spec=False)


def topology(*expressions: Json) -> Json:
    return {"matchLabelExpressions": list(expressions)}


ZONE: Json = {"key": "zone", "values": ["a"]}
CLASS_CASES: list[Case] = [
    storage_class("as it should be", "201"),
    storage_class("no provisioner", "422 Invalid: provisioner Required", provisioner=None),
    storage_class("a bad provisioner", "422 Invalid: provisioner Invalid", provisioner="a b"),
    storage_class("a provisioner in capitals", "201", provisioner="Example.com/Disk"),
    storage_class(
        "an unknown policy", "422 Invalid: reclaimPolicy NotSupported", reclaimPolicy="Recycle"
    ),
    storage_class(
        "an unknown mode",
        "422 Invalid: volumeBindingMode NotSupported",
        volumeBindingMode="Whenever",
    ),
    storage_class(
        "an empty mode", "422 Invalid: volumeBindingMode NotSupported", volumeBindingMode=""
    ),
    storage_class(
        "a topology of no values",
        "422 Invalid: allowedTopologies[0].matchLabelExpressions[0].key Invalid, "
        "allowedTopologies[0].matchLabelExpressions[0].values Required",
        allowedTopologies=[topology({"key": "", "values": []})],
    ),
    storage_class(
        "a topology of a key and a value twice",
        "422 Invalid: allowedTopologies[0].matchLabelExpressions[1].key Duplicate, "
        "allowedTopologies[0].matchLabelExpressions[1].values[1] Duplicate",
        allowedTopologies=[topology(ZONE, {"key": "zone", "values": ["b", "b"]})],
    ),
    storage_class(
        "a topology twice",
        "422 Invalid: allowedTopologies[1].matchLabelExpressions Duplicate",
        allowedTopologies=[topology(ZONE), topology(ZONE)],
    ),
    storage_class(
        "a topology of nothing",
        "422 Invalid: allowedTopologies[0].matchLabelExpressions Duplicate",
        allowedTopologies=[topology()],
    ),
    storage_class("a parameter of no name", "422 Invalid: parameters Invalid", parameters={"": ""}),
    storage_class(
        "513 parameters",
        "422 Invalid: parameters TooLong",
        parameters={f"p{index}": "" for index in range(513)},
    ),
    storage_class(
        "another policy", "422 Invalid: reclaimPolicy Invalid", {"reclaimPolicy": "Retain"}
    ),
    storage_class(
        "another mode",
        "422 Invalid: volumeBindingMode Invalid",
        {"volumeBindingMode": "WaitForFirstConsumer"},
    ),
    storage_class(
        "another provisioner, with parameters",
        "422 Invalid: parameters Invalid, provisioner Invalid",
        {"provisioner": "example.com/tape", "parameters": {"a": "b"}},
    ),
    storage_class("no parameters at all", "200", {"parameters": {}, "allowVolumeExpansion": True}),
    storage_class("another topology", "200", {"allowedTopologies": [topology(ZONE)]}),
]


# --- drivers --------------------------------------------------------------------------------------

driver = _made(kinds.CSI_DRIVERS, {})
DRIVER_CASES: list[Case] = [
    driver("as it should be", "201"),
    driver(
        "an unknown policy", "422 Invalid: spec.fsGroupPolicy NotSupported", fsGroupPolicy="Some"
    ),
    driver(
        "an unknown mode",
        "422 Invalid: spec.volumeLifecycleModes NotSupported",
        volumeLifecycleModes=["Eternal"],
    ),
    driver(
        "an audience twice, and for too short",
        "422 Invalid: spec.tokenRequests[0].expirationSeconds Invalid, "
        "spec.tokenRequests[1].audience Duplicate",
        tokenRequests=[{"audience": "a", "expirationSeconds": 1}, {"audience": "a"}],
    ),
    driver(
        "tokens in secrets, and no tokens",
        "422 Invalid: spec.serviceAccountTokenInSecrets Invalid",
        serviceAccountTokenInSecrets=False,
    ),
    driver(
        "updated too often",
        "422 Invalid: spec.nodeAllocatableUpdatePeriodSeconds Invalid",
        nodeAllocatableUpdatePeriodSeconds=9,
    ),
    driver(
        "attached or not",
        "422 Invalid: spec.attachedRequired Invalid",
        {"spec": {"attachRequired": False}},
    ),
    driver(
        "other modes",
        "422 Invalid: spec.volumeLifecycleModes Invalid",
        {"spec": {"volumeLifecycleModes": ["Ephemeral"]}},
    ),
    driver("capacity counts", "200", {"spec": {"storageCapacity": True}}),
]

BARE: Json = {"name": "disk.example.com", "nodeID": "n"}
csi_node = _made(kinds.CSI_NODES, {"drivers": [BARE]})


def drivers(*found: Json) -> Json:
    return {"spec": {"drivers": list(found)}}


NODE_CASES: list[Case] = [
    csi_node("as it should be", "201"),
    csi_node("without drivers", "201", drivers=[]),
    csi_node(
        "a driver without name or node",
        "422 Invalid: spec.drivers[0].name Required, spec.drivers[0].nodeID Required",
        drivers=[{"name": "", "nodeID": ""}],
    ),
    csi_node("a driver twice", "422 Invalid: spec.drivers[1].name Duplicate", drivers=[BARE, BARE]),
    csi_node(
        "a count below zero",
        "422 Invalid: spec.drivers[0].allocatable.count Invalid",
        drivers=[{**BARE, "allocatable": {"count": -1}}],
    ),
    csi_node(
        "bad keys of topology",
        "422 Invalid: spec.drivers[0] Duplicate, spec.drivers[0] Invalid, spec.drivers[0] Required",
        drivers=[{**BARE, "topologyKeys": ["", "zone", "zone"]}],
    ),
    csi_node(
        "a long name of a node",
        "422 Invalid: spec.drivers[0].nodeID Invalid",
        drivers=[{**BARE, "nodeID": "n" * 257}],
    ),
    csi_node(
        "another name of the node",
        "422 Invalid: spec.drivers Invalid",
        drivers({**BARE, "nodeID": "m"}),
    ),
    csi_node("another count", "200", drivers({**BARE, "allocatable": {"count": 3}})),
    csi_node("another driver", "200", drivers({**BARE, "name": "tape.example.com"})),
]

capacity = _made(
    kinds.CSI_STORAGE_CAPACITIES,
    {"storageClassName": "x", "nodeTopology": {}},
    within_spec=False,
)
attachment = _made(
    kinds.VOLUME_ATTACHMENTS,
    {"attacher": "disk.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
)
OTHER_STORAGE_CASES: list[Case] = [
    capacity("as it should be", "201", capacity="1Gi", maximumVolumeSize="-1"),
    capacity("no class", "422 Invalid: storageClassName Invalid", storageClassName=""),
    capacity("below zero", "422 Invalid: capacity Invalid", capacity="-1"),
    capacity(
        "a bad topology",
        "422 Invalid: nodeTopology.matchExpressions[0].operator Invalid",
        nodeTopology={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
    ),
    capacity(
        "another class, nowhere",
        "422 Invalid: nodeTopology Invalid, storageClassName Invalid",
        {"storageClassName": "y", "nodeTopology": None},
    ),
    capacity("less", "200", {"capacity": "1"}, capacity="2"),
    attachment("as it should be", "201"),
    attachment(
        "of nothing to nothing",
        "422 Invalid: spec.attacher Required, spec.nodeName Invalid, spec.source Required",
        attacher="",
        nodeName="",
        source={},
    ),
    attachment(
        "of two sources",
        "422 Invalid: spec.source Forbidden",
        source={"persistentVolumeName": "v", "inlineVolumeSpec": {}},
    ),
    attachment("to another node", "422 Invalid: spec Invalid", {"spec": {"nodeName": "m"}}),
]


# --- runtime classes, and pods with claims of their own -------------------------------------------

runtime_class = _made(kinds.RUNTIME_CLASSES, {"handler": "h"}, within_spec=False)
RUNTIME_CASES: list[Case] = [
    runtime_class("as it should be", "201"),
    runtime_class("no handler", "422 Invalid: handler Required", handler=None),
    runtime_class("a bad handler", "422 Invalid: handler Invalid", handler="A_b"),
    runtime_class(
        "an overhead of no resource",
        "422 Invalid: overhead.limits[disk] Invalid",
        overhead={"podFixed": {"disk": "1"}},
    ),
    runtime_class(
        "an overhead below zero",
        "422 Invalid: overhead.limits[cpu] Invalid",
        overhead={"podFixed": {"cpu": "-1"}},
    ),
    runtime_class(
        "a bad label of nodes",
        "422 Invalid: scheduling.nodeSelector Invalid",
        scheduling={"nodeSelector": {"a b": "c"}},
    ),
    runtime_class(
        "a toleration twice, and a bad one",
        "422 Invalid: scheduling.tolerations[1] Duplicate, "
        "scheduling.tolerations[2].operator Invalid",
        scheduling={
            "tolerations": [
                {"key": "a", "operator": "Exists"},
                {"key": "a", "operator": "Exists", "tolerationSeconds": None},
                {"operator": "Equal"},
            ]
        },
    ),
    runtime_class("another handler", "422 Invalid: handler Invalid", {"handler": "i"}),
    runtime_class("an overhead at last", "200", {"overhead": {"podFixed": {"cpu": "1"}}}),
]


def pod_with(*volumes: Json) -> Json:
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, "volumes": list(volumes)}}


POD_CASES: list[Case] = [
    Case(
        "Pod: a claim of its own that says nothing",
        kinds.PODS,
        pod_with({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
        "422 Invalid: spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes Required, "
        "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage] Required",
    ),
    Case(
        "Pod: a claim of its own without template",
        kinds.PODS,
        pod_with({"name": "v", "ephemeral": {}}),
        "422 Invalid: spec.volumes[0].ephemeral.volumeClaimTemplate Required",
    ),
]

STORAGE_CASES: list[Case] = [
    *CLAIM_CASES,
    *VOLUME_CASES,
    *CLASS_CASES,
    *DRIVER_CASES,
    *NODE_CASES,
    *OTHER_STORAGE_CASES,
    *RUNTIME_CASES,
    *POD_CASES,
]


# --- defaults -------------------------------------------------------------------------------------

#: An object without its metadata and status, and what the API server adds to it.
DEFAULTS: list[tuple[Kind, Json, Json]] = [
    (
        kinds.STORAGE_CLASSES,
        {"provisioner": "example.com/disk"},
        {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    ),
    (
        kinds.CSI_DRIVERS,
        {"spec": {"volumeLifecycleModes": []}},
        {
            "spec": {
                "attachRequired": True,
                "podInfoOnMount": False,
                "storageCapacity": False,
                "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "volumeLifecycleModes": ["Persistent"],
                "requiresRepublish": False,
                "seLinuxMount": False,
                "preventPodSchedulingIfMissing": False,
            }
        },
    ),
    (
        kinds.PERSISTENT_VOLUMES,
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1024Mi"},
                "persistentVolumeReclaimPolicy": "",
                **DISK,
            }
        },
        {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "volumeMode": "Filesystem",
            }
        },
    ),
    (
        kinds.PERSISTENT_VOLUME_CLAIMS,
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1024Mi"}, "limits": {"storage": "0.5Gi"}},
                "storageClassName": "x",
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "other"},
            }
        },
        {
            "spec": {
                "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "512Mi"}},
                "volumeMode": "Filesystem",
                "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "other"},
            }
        },
    ),
    (
        kinds.PERSISTENT_VOLUME_CLAIMS,
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": SIZE,
                "storageClassName": "x",
                "dataSource": {"apiGroup": "example.com", "kind": "Image", "name": "other"},
            }
        },
        {"spec": {"volumeMode": "Filesystem", "dataSource": None}},
    ),
    (
        kinds.PERSISTENT_VOLUME_CLAIMS,
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": SIZE,
                "storageClassName": "x",
                "dataSourceRef": {"kind": "Image", "name": "other", "namespace": "elsewhere"},
            }
        },
        {"spec": {"volumeMode": "Filesystem", "dataSourceRef": None}},
    ),
    (
        kinds.CSI_STORAGE_CAPACITIES,
        {"storageClassName": "x", "capacity": "1024Mi", "maximumVolumeSize": "1000"},
        {"capacity": "1Gi", "maximumVolumeSize": "1k"},
    ),
    (
        kinds.RUNTIME_CLASSES,
        {"handler": "h", "overhead": {"podFixed": {"cpu": "0.5"}}},
        {"overhead": {"podFixed": {"cpu": "500m"}}},
    ),
]
