"""Every pod that an event makes schedulable is tried, judged by the scheduler itself.

Random events go through the kernel into cache and queue; pods are popped and decided by the real
scheduling cycle, with kube-scheduler's policies and some of a user. The flush is switched off.
After each step every pod that is set aside is decided anew: had it a place now, or pods that it
could preempt, or a gate that is open, then an event was missed. Beside that, no pod may be lost or
be in two places.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.caching.objects import object_key
from engine.core.kernel import events
from engine.core.kernel.events import ObjectChanged, RevisionSwitched, TimePassed
from engine.core.kernel.kernel import Kernel
from engine.core.model import devices, storage
from engine.core.model import objects as api
from engine.core.model.node import Node
from engine.core.model.objects import Namespace, ObjectMeta
from engine.core.model.pod import Pod
from engine.core.queueing.events import ASSIGNED_POD_DELETE
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import VirtualClock
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.telemetry.metrics import Metrics
from tests.builders import ZONE, make_node, make_pod, taint, toleration

pytestmark = pytest.mark.slow("searches for long")

# --- the policies of a user --------------------------------------------------------------------

USER_POLICIES = {
    "quota.star": '''
"""Nodes whose quota is used up take nobody."""

def filter(pod, node):
    return "used up" if node.annotations.get("quota") == "full" else None
''',
    "company.star": '''
"""Social pods do not go where nobody is."""

def filter(pod, node):
    return "alone" if pod.labels.get("mood") == "social" and node.pod_count == 0 else None
''',
    "apart.star": '''
"""Lonely pods want no other lonely pod in their zone."""

def counters(pod):
    zone = "topology.kubernetes.io/zone"
    return [count_pods(zone, labels = {"mood": "lonely"}, namespaces = [pod.namespace])]

def filter(pod, node, counts):
    return "crowded" if pod.labels.get("mood") == "lonely" and counts[0].here else None
''',
    "thrifty.star": '''
"""The pods of a namespace request no more than three cores of a zone."""

def counters(pod):
    zone = "topology.kubernetes.io/zone"
    return [sum_requests(zone, [pods_in([pod.namespace], {})], "cpu")]

def filter(pod, node, counts):
    return "spent" if (counts[0].here or 0) + pod.requests.get("cpu", 0) > 3000 else None
''',
    "spared.star": '''
"""One node keeps two cores and capacity for two pods, as long as there is one."""

def counters(pod):
    return [count_nodes(None, free = {"cpu": 2000, "pods": 2})]

def filter(pod, node, counts):
    return "the last one" if counts[0].here and counts[0].total <= 1 else None
''',
    "grand.star": '''
"""Grand pods want a cluster of two nodes at least."""

def pre_filter(pod, cluster):
    small = pod.labels.get("mood") == "grand" and cluster.node_count < 2
    return reject("too small a cluster") if small else None
''',
    "picky.star": '''
"""Picky pods go to one node only."""

def pre_filter(pod):
    return only_nodes(["n1"]) if pod.labels.get("mood") == "picky" else None
''',
    "tenants.star": '''
"""Nodes of a tier are for namespaces of that tier."""

def filter(pod, node):
    tier = node.labels.get("tier")
    return None if tier in (None, pod.namespace_labels.get("tier")) else "not your tier"
''',
    "held.star": '''
"""Pods wait while their namespace or they themselves are on hold."""

def pre_enqueue(pod):
    on_hold = pod.annotations.get("hold") or pod.namespace_labels.get("hold")
    return "on hold" if on_hold else None
''',
}
PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{enabled}]
  pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}}
"""


def make_bundle(*names: str) -> Bundle:
    files = {f"{name}.star": USER_POLICIES[f"{name}.star"] for name in names}
    enabled = ", ".join(f"{{name: {name}}}" for name in names)
    return build_bundle({**files, "profile.yaml": PROFILE.format(enabled=enabled)})


# --- what there is, theme by theme -------------------------------------------------------------

Words = dict[str, list[Any]]
NODES = ("n0", "n1", "n2")
NAMESPACES = ("red", "blue")

PLAIN_NODE: dict[str, Any] = {
    "cpu": 9,
    "pods": 9,
    "zone": "a",
    "labels": {},
    "taints": [],
    "unschedulable": False,
    "annotations": {},
}
PLAIN_POD: dict[str, Any] = {
    "namespace": "red",
    "cpu": None,
    "labels": {},
    "annotations": {},
    "tolerations": [],
    "node_selector": {},
    "affinity": {},
    "topology_spread": [],
    "ports": [],
    "gates": [],
    "priority": 0,
    "volumes": [],
    "spec": {},
}


def near(app: str, *, key: str = ZONE, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def wants(*terms: Any) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def shuns(*terms: Any) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(app: str = "x", **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


SERVICE: dict[str, Any] = {
    "metadata": {"name": "svc", "namespace": "red"},
    "spec": {"selector": {"app": "x"}},
}


# --- volumes

DISK: dict[str, Any] = {"name": "v", "gcePersistentDisk": {"pdName": "disk"}}


def uses(name: str) -> dict[str, Any]:
    return {"name": "v", "persistentVolumeClaim": {"claimName": name}}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    # One with a volume is bound to it.
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if "volumeName" in spec else {}
    return {"metadata": {"name": name, "namespace": "red", "annotations": bound}, "spec": spec}


def volume(name: str, of: str, zone: str) -> dict[str, Any]:
    spec = {
        "claimRef": {"namespace": "red", "name": of},
        "csi": {"driver": "drv", "volumeHandle": name},
    }
    return {"metadata": {"name": name, "labels": {ZONE: zone} if zone else {}}, "spec": spec}


def csi_node(name: str, count: int | None) -> dict[str, Any]:
    driver = {"name": "drv", "nodeID": name, "allocatable": {"count": count}}
    return {"metadata": {"name": name}, "spec": {"drivers": [driver]}}


def attachment(of: str, node: str) -> dict[str, Any]:
    spec = {"attacher": "drv", "nodeName": node, "source": {"persistentVolumeName": of}}
    return {"metadata": {"name": f"{of}-{node}"}, "spec": spec}


GIB: dict[str, Any] = {"requests": {"storage": "1Gi"}}


def local(name: str, zone: str, claimed: bool = False) -> dict[str, Any]:
    """A volume of one zone that a claim of class `slow` may get."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claimed:
        spec["claimRef"] = {"namespace": "red", "name": "another", "uid": "u"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


def slow(provisioner: str, *zones: str) -> dict[str, Any]:
    words: dict[str, Any] = {"metadata": {"name": "slow"}, "provisioner": provisioner}
    words["volumeBindingMode"] = "WaitForFirstConsumer"
    if zones:
        expression = {"key": ZONE, "values": list(zones)}
        words["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    return words


def capacity(zone: str, size: str) -> dict[str, Any]:
    return {
        "metadata": {"name": zone, "namespace": "red"},
        "storageClassName": "slow",
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "capacity": size,
    }


# --- devices


def asks_for(name: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "r", "resourceClaimName": name}]}


def device_claim(name: str, node: str = "") -> dict[str, Any]:
    """A claim to one device; with a node, it has that of the node."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    status: dict[str, Any] = {}
    if node:
        result = {"request": "r", "driver": "drv", "pool": node, "device": "d"}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        status["allocation"] = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    return {
        "metadata": {"name": name, "namespace": "red", "uid": name},
        "spec": {"devices": {"requests": [request]}},
        "status": status,
    }


def device_slice(node: str, *devices: str) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    given = [{"name": one} for one in devices]
    spec = {"driver": "drv", "nodeName": node, "pool": pool, "devices": given}
    return {"metadata": {"name": node}, "spec": spec}


RECORDS: dict[str, tuple[str, type[Any]]] = {
    "services": ("Service", api.Service),
    "persistentvolumeclaims": ("PersistentVolumeClaim", storage.PersistentVolumeClaim),
    "persistentvolumes": ("PersistentVolume", storage.PersistentVolume),
    "storageclasses": ("StorageClass", storage.StorageClass),
    "csinodes": ("CSINode", storage.CSINode),
    "volumeattachments": ("VolumeAttachment", storage.VolumeAttachment),
    "csidrivers": ("CSIDriver", storage.CSIDriver),
    "csistoragecapacities": ("CSIStorageCapacity", storage.CSIStorageCapacity),
    "resourceclaims": ("ResourceClaim", devices.ResourceClaim),
    "resourceslices": ("ResourceSlice", devices.ResourceSlice),
    "deviceclasses": ("DeviceClass", devices.DeviceClass),
}

ANYWHERE: dict[str, Any] = {"namespaceSelector": {}}
OF_TIER: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"tier": "gold"}}}
APPS: list[Any] = [{"app": "x"}, {"app": "y"}, {}]


@dataclass(frozen=True)
class Theme:
    """What varies in a world: of nodes, of pods, and what of pods may change later.

    A few at a time: where everything varies, one obstacle hides another, and a missed event is
    made up for by the next one. What is in the way comes up more often than not.
    """

    nodes: Words
    pods: Words
    changes: Words
    policies: tuple[str, ...] = ()
    namespaces: tuple[dict[str, str], ...] = ({},)
    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


THEMES = {
    "room": Theme(
        {"cpu": [1, 2, 3], "pods": [1, 2]},
        {"cpu": [None, 1, 2, 3], "priority": [0, 0, 1]},
        {"cpu": [1]},
    ),
    "preemption": Theme({"cpu": [3]}, {"cpu": [1, 2, 3], "priority": [0, 1]}, {}),
    "one node at a time": Theme(
        {
            "labels": [{}, {"disk": "ssd"}],
            "taints": [[taint("a")], []],
            "unschedulable": [True, False],
            "cpu": [1, 9],
        },
        {
            "node_selector": [{"disk": "ssd"}, {}],
            "tolerations": [[], [toleration("a")]],
            "ports": [[80], []],
            "cpu": [None, 2],
        },
        {"tolerations": [[toleration("a")]]},
    ),
    "near its like": Theme(
        {"zone": ["a", "b"], "unschedulable": [True, False]},
        {"labels": [{"app": "x"}], "affinity": [{}, wants(near("x"))]},
        {"labels": [{"app": "x"}, {}]},
    ),
    "affinity": Theme(
        {"zone": ["a", "b", None], "unschedulable": [True, False, False]},
        {
            "namespace": list(NAMESPACES),
            "labels": APPS,
            "affinity": [
                {},
                wants(near("x")),
                wants(near("x"), near("y", key="kubernetes.io/hostname")),
                wants(near("x", **ANYWHERE)),
                wants(near("x", **OF_TIER)),
            ],
        },
        {"labels": APPS},
        namespaces=({}, {"tier": "gold"}),
    ),
    "away from its like": Theme(
        {"zone": ["a", "a", "b"]},
        {"labels": [{"app": "x"}], "affinity": [{}, shuns(near("x"))]},
        {"labels": [{"app": "x"}, {}]},
    ),
    "anti-affinity": Theme(
        {"zone": ["a", "a", "b", None]},
        {
            "namespace": list(NAMESPACES),
            "labels": APPS,
            "affinity": [
                {},
                shuns(near("x")),
                shuns(near("x"), near("y", key="kubernetes.io/hostname")),
                shuns(near("y", **ANYWHERE)),
                shuns(near("x", **OF_TIER)),
            ],
        },
        {"labels": APPS},
        namespaces=({}, {"tier": "gold"}),
    ),
    "spreading over some nodes": Theme(
        {
            "zone": ["a", "b"],
            "labels": [{}, {"disk": "ssd"}, {"disk": "ssd"}],
            "unschedulable": [True, False],
        },
        {
            "labels": [{"app": "x"}],
            "node_selector": [{}, {"disk": "ssd"}],
            "topology_spread": [[], [spread()]],
        },
        {"labels": [{"app": "x"}, {}]},
    ),
    "spreading": Theme(
        {
            "zone": ["a", "b", None],
            "labels": [{}, {"disk": "ssd"}],
            "taints": [[taint("a")], []],
            "unschedulable": [True, False, False],
        },
        {
            "labels": [{"app": "x"}, {"app": "x"}, {"app": "x", "version": "2"}, {}],
            "node_selector": [{}, {"disk": "ssd"}],
            "tolerations": [[], [toleration("a")]],
            "topology_spread": [
                [],
                [spread()],
                [spread(minDomains=2)],
                [spread(nodeTaintsPolicy="Honor")],
                [spread(nodeAffinityPolicy="Ignore")],
                [spread(matchLabelKeys=["version"])],
                [spread(), spread(topologyKey="kubernetes.io/hostname")],
            ],
        },
        {"labels": [{"app": "x"}, {}], "tolerations": [[toleration("a")]]},
        objects={"services": [SERVICE]},
    ),
    "amounts": Theme(
        {"zone": ["a", "b", None], "cpu": [1, 2, 4], "pods": [1, 9]},
        {"cpu": [1, 2, 3], "namespace": list(NAMESPACES)},
        {"cpu": [1], "labels": [{"app": "x"}]},
        policies=("thrifty", "spared"),
    ),
    "policies of a user": Theme(
        {
            "zone": ["a", "b"],
            "annotations": [{"quota": "full"}, {}, {}],
            "labels": [{}, {}, {"tier": "gold"}],
        },
        {
            "namespace": list(NAMESPACES),
            "labels": [{"mood": m} for m in ("social", "lonely", "lonely", "grand", "picky")],
            "annotations": [{}, {}, {"hold": "yes"}],
        },
        {"labels": [{"mood": "easy"}, {"mood": "lonely"}], "annotations": [{}]},
        policies=("quota", "company", "apart", "grand", "picky", "tenants", "held"),
        namespaces=({}, {"tier": "gold"}, {"hold": "yes"}),
    ),
    "volumes": Theme(
        {"zone": ["a", "b"]},
        {"volumes": [[], [uses("c")], [uses("c")], [uses("d")], [DISK]]},
        {},
        objects={
            "persistentvolumeclaims": [
                claim("c", volumeName="v", accessModes=["ReadWriteOncePod"]),
                claim("d", volumeName="w"),
                claim("d", storageClassName="slow"),
            ],
            "persistentvolumes": [volume("v", "c", zone) for zone in ("a", "b")]
            + [volume("w", "d", zone) for zone in ("a", "")],
            "storageclasses": [
                {"metadata": {"name": "slow"}, "provisioner": "drv", "volumeBindingMode": mode}
                for mode in ("WaitForFirstConsumer", "Immediate")
            ],
            "csinodes": [csi_node(name, count) for name in NODES for count in (0, 1, 2, None)],
            "volumeattachments": [attachment("v", "n0"), attachment("w", "n1")],
        },
    ),
    "volumes to be found": Theme(
        {"zone": ["a", "b", None]},
        {"volumes": [[], [uses("c")], [uses("c")]]},
        {},
        objects={
            "persistentvolumeclaims": [
                claim("c", storageClassName="slow", accessModes=["ReadWriteOnce"], resources=GIB)
            ],
            "persistentvolumes": [local("u", "a", True), local("u", "a"), local("u", "b")],
            "storageclasses": [
                slow("drv", "a", "b"),
                slow("drv", "a"),
                slow("kubernetes.io/no-provisioner"),
            ],
            "csidrivers": [
                {"metadata": {"name": "drv"}, "spec": {"storageCapacity": is_tracked}}
                for is_tracked in (False, True)
            ],
            "csistoragecapacities": [
                capacity(zone, size) for zone in ("a", "b") for size in ("2Gi", "1Mi")
            ],
        },
    ),
    "devices": Theme(
        {},
        {"spec": [{}, asks_for("x"), asks_for("x"), asks_for("y")]},
        {},
        objects={
            "deviceclasses": [{"metadata": {"name": "gpu"}, "spec": {}}],
            "resourceclaims": [
                *(device_claim(name) for name in "xy"),
                *(device_claim(name, node) for name in "xyz" for node in NODES[:2]),
            ],
            "resourceslices": [
                device_slice(node, *given) for node in NODES[:2] for given in ((), ("d",))
            ],
        },
    ),
    "gates": Theme({"pods": [1, 2]}, {"gates": [["g"], []]}, {"gates": [[]]}),
}

BUNDLES: dict[tuple[str, ...], tuple[Bundle, InProcessEvaluator]] = {}


def scheduler_of(theme: Theme) -> Scheduler:
    if theme.policies not in BUNDLES:
        bundle = make_bundle(*theme.policies)
        BUNDLES[theme.policies] = (bundle, InProcessEvaluator(bundle.program))
    return Scheduler(*BUNDLES[theme.policies], plugins=make_plugins())


def some(words: Words, plain: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    varied = {name: st.sampled_from(values) for name, values in words.items()}
    return st.fixed_dictionaries(varied).map(lambda chosen: {**plain, **chosen})


def one_of(words: Words) -> st.SearchStrategy[tuple[str, Any]]:
    return st.sampled_from([(name, v) for name, values in words.items() for v in values])


Event = tuple[str, str, Any]
"""What may happen: a method of the machine and its arguments."""


def events_of(theme: Theme) -> st.SearchStrategy[Event]:
    node, pod = st.sampled_from(NODES), st.sampled_from("pqrs")
    new_pod = some(theme.pods, PLAIN_POD)
    kinds: list[st.SearchStrategy[Event]] = [
        st.tuples(st.just("put_node"), node, some(theme.nodes, PLAIN_NODE)),
        st.tuples(st.just("remove_node"), node, st.none()),
        st.tuples(st.just("create_pod"), pod, new_pod),
        *[st.tuples(st.just("delete_pod"), pod, st.none())] * 3,
        *[st.tuples(st.just("end_pod_gracefully"), pod, st.none())] * 2,
        *[st.tuples(st.just("place_pod"), pod, st.tuples(node, new_pod))] * 2,
    ]
    if theme.nodes:
        kinds += [st.tuples(st.just("change_node"), node, one_of(theme.nodes))] * 4
    if theme.changes:
        kinds += [st.tuples(st.just("change_pod"), pod, one_of(theme.changes))] * 2
    if len(theme.namespaces) > 1:
        namespace = st.sampled_from(NAMESPACES)
        labels = st.sampled_from(theme.namespaces)
        kinds.append(st.tuples(st.just("label_namespace"), namespace, labels))
    for kind, members in theme.objects.items():
        one = st.sampled_from(members)
        kinds.append(st.tuples(st.just("put_object"), st.just(kind), one))
        kinds.append(st.tuples(st.just("remove_object"), st.just(kind), one))
    return st.one_of(kinds)


def is_fixed(old: Any, new: Any) -> bool:
    """If the API server refuses to make *new* of *old*: a class is what it is."""
    return isinstance(old, storage.StorageClass) and (
        old.provisioner != new.provisioner or old.volume_binding_mode != new.volume_binding_mode
    )


@dataclass
class Attempt:
    """A pod in flight with what was decided when it was popped."""

    queued: QueuedPod
    decision: Decision
    is_assumed: bool = False


class SmallCluster(RuleBasedStateMachine):
    theme: ClassVar[Theme]

    def __init__(self) -> None:
        super().__init__()
        self.events = events_of(self.theme)
        self.clock = VirtualClock()
        self.cache = Cache()
        self.scheduler = scheduler_of(self.theme)
        self.kernel = Kernel(
            self.cache,
            make_plugins(),
            metrics=Metrics(CollectorRegistry()),
            retries=RetryTimes(max_unschedulable=1e9),
        )
        self.queue = self.kernel.queue
        self.report(RevisionSwitched(self.scheduler))
        self.nodes: dict[str, tuple[dict[str, Any], Node]] = {}
        self.pods: dict[str, tuple[dict[str, Any], Pod]] = {}  # what the API server holds, by name
        self.namespaces: dict[str, Namespace] = {}
        self.attempts: list[Attempt] = []
        self.versions = 0
        self.unchecked = True

    def report(self, event: events.Event) -> None:
        self.kernel.handle(event, self.clock.monotonic())

    def changed(self, plural: str, old: Any | None, new: Any | None) -> None:
        self.report(ObjectChanged(plural, old, new))

    # --- the API server, and what is heard of it -----------------------------------------------

    def happen(self, event: Event) -> None:
        kind, name, detail = event
        self.unchecked = True
        getattr(self, kind)(name, detail)

    def make(self, name: str, words: dict[str, Any], **more: Any) -> Pod:
        self.versions += 1
        return make_pod(name, resource_version=str(self.versions), **words, **more)

    def put_node(self, name: str, words: dict[str, Any]) -> None:
        known, new = self.nodes.get(name), make_node(name, **words)
        self.nodes[name] = (words, new)
        self.changed(events.NODES, None if known is None else known[1], new)

    def change_node(self, name: str, change: tuple[str, Any]) -> None:
        if name in self.nodes:
            self.put_node(name, {**self.nodes[name][0], change[0]: change[1]})

    def remove_node(self, name: str, _: None) -> None:
        if name in self.nodes:
            self.changed(events.NODES, self.nodes.pop(name)[1], None)

    def create_pod(self, name: str, words: dict[str, Any], node: str | None = None) -> None:
        if name not in self.pods:
            self.versions += 1
            uid = f"{name}-{self.versions}"
            words = {**words, "uid": uid, "node": node, "terminating": False, "nominated": None}
            if node is not None:
                words["gates"] = []
            self.pods[name] = (words, self.make(name, words))
            self.changed(events.PODS, None, self.pods[name][1])

    def place_pod(self, name: str, detail: tuple[str, dict[str, Any]]) -> None:
        """A pod comes that another scheduler has placed."""
        self.create_pod(name, detail[1], detail[0])

    def write(self, name: str, **changes: Any) -> None:
        words, old = self.pods[name]
        words = {**words, **changes}
        self.pods[name] = (words, self.make(name, words))
        self.changed(events.PODS, old, self.pods[name][1])

    def change_pod(self, name: str, change: tuple[str, Any]) -> None:
        if name in self.pods:
            self.write(name, **{change[0]: change[1]})

    def end_pod_gracefully(self, name: str, _: None) -> None:
        if name in self.pods:
            self.write(name, terminating=True)

    def delete_pod(self, name: str, _: None) -> None:
        if name in self.pods:
            self.changed(events.PODS, self.pods.pop(name)[1], None)

    def label_namespace(self, name: str, labels: dict[str, str]) -> None:
        old, new = self.namespaces.get(name), Namespace(ObjectMeta(name=name, labels=labels))
        self.namespaces[name] = new
        self.changed("namespaces", old, new)

    def put_object(self, plural: str, words: dict[str, Any]) -> None:
        new = api.from_plain(RECORDS[plural][1], words)
        old = self.cache.objects.get(plural, object_key(new))
        if old is None or (not self.is_protected(plural) and not is_fixed(old, new)):
            self.changed(plural, old, new)

    def remove_object(self, plural: str, words: dict[str, Any]) -> None:
        key = object_key(api.from_plain(RECORDS[plural][1], words))
        old = self.cache.objects.get(plural, key)
        if old is not None and not self.is_protected(plural):
            self.changed(plural, old, None)

    def is_protected(self, plural: str) -> bool:
        """Claims and volumes do not change or go while pods that are placed use them."""
        is_storage = plural in ("persistentvolumeclaims", "persistentvolumes")
        is_used = any(pod.volumes and pod.node_name for _, pod in self.pods.values())
        return is_storage and (is_used or self.cache.assumed_count > 0)

    @initialize(data=st.data())
    def begin_with_nodes_and_pods(self, data: st.DataObject) -> None:
        for name in NODES[:2]:
            self.put_node(name, data.draw(some(self.theme.nodes, PLAIN_NODE)))
        for kind, members in self.theme.objects.items():
            for one in members[:2]:
                self.put_object(kind, one)
        for name in "pqr":
            self.create_pod(name, data.draw(some(self.theme.pods, PLAIN_POD)))

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        self.happen(data.draw(self.events))

    @rule(data=st.data())
    def something_happens_while_all_pods_are_at_rest(self, data: st.DataObject) -> None:
        self.come_to_rest()
        self.no_pod_is_overlooked()
        self.happen(data.draw(self.events))

    @rule(data=st.data(), split=st.integers(0, 4))
    def something_happens_while_pods_are_tried(self, data: st.DataObject, split: int) -> None:
        self.come_to_rest()
        self.queue.activate([pod.uid for _, pod in self.pods.values()])
        for _ in range(split):
            self.begin_an_attempt()
        self.happen(data.draw(self.events))
        while self.queue.has_poppable:
            self.begin_an_attempt()
        self.happen(data.draw(self.events))
        while self.attempts:
            self.end_an_attempt(0, True)

    @rule(data=st.data(), tries=st.integers(1, 3))
    def pods_are_tried_and_something_happens(self, data: st.DataObject, tries: int) -> None:
        for _ in range(tries):
            self.begin_an_attempt()
            while self.attempts:
                self.end_an_attempt(0, True)
        self.happen(data.draw(self.events))

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.5]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.report(TimePassed())

    # --- the scheduler -------------------------------------------------------------------------

    def decide(self, pod: Pod) -> Decision:
        decision = self.scheduler.schedule(pod, self.cache.snapshot(), self.queue.nominator)
        assert not decision.failures
        return decision

    @rule()
    def begin_an_attempt(self) -> None:
        queued = self.queue.pop()
        if queued is None:
            return
        pod = queued.pod
        if self.cache.get_pod(pod.uid) is not None or pod.is_terminating:
            self.queue.done(pod.uid)
            return
        attempt = Attempt(queued, self.decide(pod))
        if attempt.decision.node is not None:
            self.cache.assume(pod, attempt.decision.node)
            self.queue.nominator.remove(pod.uid, placed_on=attempt.decision.node)
            attempt.is_assumed = True
        self.attempts.append(attempt)
        self.unchecked = True

    @precondition(lambda self: self.attempts)
    @rule(index=st.integers(0, 3), goes_well=st.booleans())
    def end_an_attempt(self, index: int, goes_well: bool) -> None:
        attempt = self.attempts.pop(index % len(self.attempts))
        queued, decision, pod = attempt.queued, attempt.decision, attempt.queued.pod
        self.unchecked = True
        if decision.node is None:
            self.reject(queued, decision) if goes_well else self.queue.requeue(queued)
            return
        current = self.pods.get(pod.name, ({}, None))[1]
        is_wanted = current is not None and current.uid == pod.uid and not current.is_terminating
        self.queue.done(pod.uid)
        if goes_well and is_wanted:
            self.write(pod.name, node=decision.node, nominated=None)
        else:
            assumed = self.cache.get_pod(pod.uid)
            self.cache.forget(pod.uid)
            self.queue.move(ASSIGNED_POD_DELETE, assumed or pod.with_node(decision.node), None)
            self.queue.requeue(queued)

    def reject(self, queued: QueuedPod, decision: Decision) -> None:
        pod = queued.pod
        if not self.queue.requeue(queued, decision.diagnosis.rejectors):
            return
        if decision.nominated_node is not None:
            self.queue.nominator.nominate(queued.pod, decision.nominated_node)
            self.write(pod.name, nominated=decision.nominated_node or None)
        if decision.eviction is not None:
            for victim in decision.eviction.victims:
                known = self.pods.get(victim.name)
                if known is not None and known[1].uid == victim.uid:
                    self.delete_pod(victim.name, None)

    def come_to_rest(self) -> None:
        """What is under way ends well, and waits run out."""
        for _ in range(300):
            while self.attempts:
                self.end_an_attempt(0, True)
            if not self.queue.has_poppable:
                # Without any node pods are tried again and again: nothing rejects them.
                if not self.queue.counts()["backoff"] or not self.nodes:
                    return
                self.clock.advance(1.0)
                self.report(TimePassed())
            self.begin_an_attempt()
        raise AssertionError(f"pods are tried again and again: {self.queue.counts()}")

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def no_pod_is_lost_or_in_two_places(self) -> None:
        self.queue.check_invariants()
        self.cache.check_invariants()
        pending = {pod.uid for _, pod in self.pods.values() if not pod.node_name}
        assert {pod.uid for _, pod in self.pods.values() if pod.uid in self.queue} == pending
        assert len(self.queue) == len(pending)

    @invariant()
    def no_pod_is_overlooked(self) -> None:
        # A pod that is assumed counts already, and is told when it is bound or forgotten.
        if not self.unchecked or self.cache.assumed_count:
            return
        self.unchecked = False
        for _, pod in self.pods.values():
            known = self.queue.describe(pod.key)
            if known.get("queue") == "gated":
                gate = self.scheduler.hooks.pre_enqueue(pod, self.cache.snapshot())
                assert gate is not None, f"the gate of `{pod.key}` is open"
            if known.get("queue") != "unschedulable":
                continue
            decision = self.decide(pod)
            why = f"`{pod.key}` waits for {known['rejectors']}, but would"
            if decision.node is not None:
                note(str(known))
            assert decision.node is None, f"{why} fit on `{decision.node}`"
            if decision.eviction is not None and not self.queue.nominator.node_of(pod.uid):
                raise AssertionError(f"{why} preempt {decision.eviction}")


@pytest.mark.parametrize("theme", sorted(THEMES))
def test_no_pod_is_lost_doubled_or_overlooked(theme: str) -> None:
    machine = type("Cluster", (SmallCluster,), {"theme": THEMES[theme]})
    # A decision costs more than a step of other machines; by night, the search is long.
    by_night = settings().max_examples > 100
    few = settings(max_examples=15, stateful_step_count=15)
    run_state_machine_as_test(machine, settings=settings() if by_night else few)
