"""Hints: which event is worth a retry, policy by policy."""

import time
from typing import Any

import pytest

from engine.core.caching.objects import ObjectStore
from engine.core.framework.profile import Profile
from engine.core.framework.reasons import CLUSTER_READS
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import ObjectMeta, PlainObject
from engine.core.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSIGNED_POD_UPDATE,
    FORCE_ACTIVATE,
    NODE_ADD,
    NODE_DELETE,
    TARGET_POD_UPDATE,
    UNSCHEDULED_POD_ADD,
    ClusterEvent,
)
from engine.core.queueing.hints import INTERESTS, Hints
from engine.core.queueing.throttle import THROTTLE
from tests.builders import container, make_node, make_pod, taint, toleration
from tests.engine.core.queueing.hinting import hints_with, worth

NODE_TAINT = ClusterEvent("Node", "UpdateNodeTaint")
NODE_LABEL = ClusterEvent("Node", "UpdateNodeLabel")
NODE_ALLOCATABLE = ClusterEvent("Node", "UpdateNodeAllocatable")
POD_TOLERATION = ClusterEvent("TargetPod", "UpdatePodToleration")


# What each plugin of kube-scheduler 1.37 registers; DefaultPreemption's never helps.
REGISTERED = {
    "SchedulingGates": ["TargetPod UpdatePodSchedulingGatesEliminated"],
    "NodeName": ["Node Add"],
    "NodePorts": ["Node Add", "AssignedPod Delete"],
    "VolumeRestrictions": ["Node Add", "AssignedPod Delete", "PersistentVolumeClaim Add"],
    "NodeUnschedulable": ["Node Add", "Node UpdateNodeTaint", "TargetPod UpdatePodToleration"],
    "TaintToleration": ["Node Add", "Node UpdateNodeTaint", "TargetPod UpdatePodToleration"],
    "NodeAffinity": ["Node Add", "Node UpdateNodeLabel"],
    "NodeResourcesFit": [
        *("AssignedPod Delete", "AssignedPod UpdatePodScaleDown", "TargetPod UpdatePodScaleDown"),
        *("Node Add", "Node UpdateNodeAllocatable", "DeviceClass Add", "DeviceClass Update"),
    ],
    "NodeVolumeLimits": [
        *("CSINode Add", "CSINode Update", "AssignedPod Delete"),
        *("PersistentVolumeClaim Add", "VolumeAttachment Delete"),
    ],
    "VolumeBinding": [
        *("StorageClass Add", "StorageClass Update"),
        *("PersistentVolumeClaim Add", "PersistentVolumeClaim Update"),
        *("PersistentVolume Add", "PersistentVolume Update", "Node Add", "Node UpdateNodeLabel"),
        *("CSINode Add", "CSINode Update", "CSIDriver Update"),
        *("CSIStorageCapacity Add", "CSIStorageCapacity Update"),
    ],
    "VolumeZone": [
        *("StorageClass Add", "Node Add", "Node UpdateNodeLabel"),
        *("PersistentVolumeClaim Add", "PersistentVolumeClaim Update"),
        *("PersistentVolume Add", "PersistentVolume Update"),
    ],
    "PodTopologySpread": [
        *("AssignedPod Add", "AssignedPod UpdatePodLabel", "AssignedPod Delete"),
        *("TargetPod UpdatePodToleration", "TargetPod UpdatePodLabel"),
        *("Node Add", "Node Delete", "Node UpdateNodeLabel", "Node UpdateNodeTaint"),
    ],
    "InterPodAffinity": [
        *("AssignedPod Add", "AssignedPod UpdatePodLabel", "AssignedPod Delete"),
        *("TargetPod UpdatePodLabel", "Node Add", "Node UpdateNodeLabel"),
    ],
    "DynamicResources": [
        *("Node Add", "Node UpdateNodeLabel", "Node UpdateNodeAllocatable"),
        *("ResourceClaim Add", "ResourceClaim Update", "ResourceClaim Delete"),
        *("TargetPod UpdatePodGeneratedResourceClaim", "DeviceClass Add", "DeviceClass Update"),
        *("ResourceSlice Add", "ResourceSlice Update"),
    ],
    "NodeDeclaredFeatures": ["Node Add", "Node UpdateNodeDeclaredFeature", "TargetPod Update"],
}


@pytest.mark.parametrize("plugin", REGISTERED)
def test_a_plugin_hears_of_what_it_registers_in_kube_scheduler(plugin: str) -> None:
    for event in (ClusterEvent(*words.split()) for words in REGISTERED[plugin]):
        assert Hints().is_interested(plugin, event), event


def test_taints_wake_only_pods_whose_plugins_look_at_taints() -> None:
    """Until kube-scheduler 1.37 they woke every pod of a plugin that hears of new nodes."""
    woken = {plugin for plugin in INTERESTS if Hints().is_interested(plugin, NODE_TAINT)}
    assert woken == {"NodeUnschedulable", "TaintToleration", "PodTopologySpread"}


# --- NodeResourcesFit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, {"cpu": "2"}, True, id="a new node that would hold the pod"),
        pytest.param(None, {"cpu": "1"}, False, id="a new node that is too small"),
        pytest.param(None, {"cpu": "2", "pods": 0}, False, id="a new node for no pods"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, True, id="grown"),
        pytest.param({"cpu": "4"}, {"cpu": "2"}, False, id="shrunk"),
        pytest.param({"memory": "1Gi"}, {"memory": "2Gi"}, False, id="grown in what is not asked"),
        pytest.param({"pods": 1}, {"pods": 2}, True, id="room for more pods"),
    ],
)
def test_fit_retries_where_the_pod_would_fit_an_empty_node_that_is_new_or_grew(
    old: dict[str, Any] | None, new: dict[str, Any], want: bool
) -> None:
    pod = make_pod(cpu="2")
    before = None if old is None else make_node("n", **old)
    event = NODE_ADD if old is None else NODE_ALLOCATABLE
    assert worth("NodeResourcesFit", event, pod, before, make_node("n", **new)) is want


@pytest.mark.parametrize(
    ("words", "old", "new", "want"),
    [
        pytest.param({"cpu": "3"}, {}, {"cpu": "2"}, True, id="it shrank below the pod"),
        pytest.param({"memory": "3Gi"}, {}, {"memory": "2Gi"}, True, id="in memory"),
        pytest.param({"cpu": "3"}, {"cpu": "8"}, {"cpu": "4"}, False, id="it would still do"),
        pytest.param({"cpu": "3"}, {"cpu": "2"}, {"cpu": "1"}, False, id="it never did"),
        pytest.param({"cpu": "3"}, {}, {"pods": 0}, False, id="in the number of pods"),
        pytest.param(
            {"requests": {"example.com/foo": 1}},
            {"allocatable": {"example.com/foo": 1}},
            {"allocatable": {"example.com/foo": 0}},
            False,
            id="in devices, whose plugin may just have been restarted",
        ),
        pytest.param(
            {"cpu": "3", "spec": {"schedulingGroup": {"podGroupName": "g"}}},
            {},
            {"cpu": "2"},
            False,
            id="the pod is of a group",
        ),
    ],
)
def test_fit_retries_from_1_38_on_when_the_nominated_node_shrinks_below_the_pod(
    words: dict[str, Any], old: dict[str, Any], new: dict[str, Any], want: bool
) -> None:
    """It waits there for victims in vain, and may preempt elsewhere. Until 1.37 it waits on.

    Source: `isSchedulableAfterNodeChange` of NodeResourcesFit in kube-scheduler 1.38.
    """
    nodes = make_node("n", **old), make_node("n", **new)
    for minor, nominated in ((37, "n"), (38, "n"), (38, "m"), (38, None)):
        pod = make_pod(nominated=nominated, **words)
        is_news = want and (minor, nominated) == (38, "n")
        hints = hints_with(minor=minor)
        assert worth("NodeResourcesFit", NODE_ALLOCATABLE, pod, *nodes, hints) is is_news


def test_fit_retries_when_a_placed_or_nominated_pod_goes() -> None:
    pod = make_pod(cpu="2")
    for gone, want in (
        (make_pod(node="n"), True),
        (make_pod(nominated="n"), True),
        (make_pod(), False),
    ):
        assert worth("NodeResourcesFit", ASSIGNED_POD_DELETE, pod, gone) is want


def test_fit_retries_when_a_placed_pod_gives_back_what_is_asked_for() -> None:
    event = ClusterEvent("AssignedPod", "UpdatePodScaleDown")
    big, small = make_pod(cpu="2", node="n"), make_pod(cpu="1", node="n")
    assert worth("NodeResourcesFit", event, make_pod(cpu="1"), big, small)
    assert not worth("NodeResourcesFit", event, make_pod(memory="1Gi"), big, small)


def test_fit_retries_when_the_pod_itself_asks_for_less() -> None:
    event = ClusterEvent("TargetPod", "UpdatePodScaleDown")
    old, new, other = make_pod(cpu="2", uid="u"), make_pod(cpu="1", uid="u"), make_pod(cpu="1")
    assert worth("NodeResourcesFit", event, new, old, new)
    assert not worth("NodeResourcesFit", event, other, old, new)


@pytest.mark.parametrize(
    "arguments",
    [{"ignoredResources": ["example.com/foo"]}, {"ignoredResourceGroups": ["example.com"]}],
)
def test_fit_looks_away_from_what_its_arguments_ignore(arguments: dict[str, Any]) -> None:
    pod = make_pod(requests={"example.com/foo": 1})
    profile = Profile("default-scheduler", {}, {"NodeResourcesFit": arguments})
    node = make_node("n")
    assert not worth("NodeResourcesFit", NODE_ADD, pod, None, node)
    assert worth("NodeResourcesFit", NODE_ADD, pod, None, node, Hints([profile]))


def device_class(name: str, resource: str | None = None) -> PlainObject:
    spec = {} if resource is None else {"extendedResourceName": resource}
    return PlainObject(ObjectMeta(name=name), spec)


def test_fit_ignores_resources_that_devices_provide() -> None:
    pod = make_pod(requests={"example.com/gpu": 1})
    assert not worth("NodeResourcesFit", NODE_ADD, pod, None, make_node("n"))
    objects = ObjectStore()
    objects.put("deviceclasses", device_class("gpus", "example.com/gpu"))
    hints = Hints(objects=objects)
    assert worth("NodeResourcesFit", NODE_ADD, pod, None, make_node("n"), hints)


def test_fit_retries_when_devices_take_over_a_resource_of_a_node() -> None:
    """Its device plugin went, and a driver came: the pod waited, though it was DynamicResources'.

    Fit had rejected it where all was in use, so no event of devices concerned it.
    """
    event = ClusterEvent("Node", "UpdateNodeAllocatable")
    pod = make_pod(requests={"example.com/gpu": 1})
    old = make_node("n", allocatable={"example.com/gpu": "2"})
    new = make_node("n", allocatable={"example.com/gpu": "0"})
    objects = ObjectStore()
    objects.put("deviceclasses", device_class("gpus", "example.com/gpu"))
    hints = Hints(objects=objects)
    assert worth("NodeResourcesFit", event, pod, old, new, hints)
    assert not worth("NodeResourcesFit", event, pod, new, new, hints)
    assert not worth("NodeResourcesFit", event, pod, old, new)


# --- TaintToleration, NodeUnschedulable --------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, [], True, id="a new node without taints"),
        pytest.param(None, [taint("a")], False, id="a new node with one"),
        pytest.param(None, [taint("b")], True, id="a new node with a tolerated one"),
        pytest.param([taint("a")], [], True, id="the taint is gone"),
        pytest.param([taint("a")], [taint("a"), taint("b")], False, id="another one came"),
        pytest.param([], [taint("b")], False, id="it was no obstacle before"),
        pytest.param(
            [taint("a")], [taint("a", effect="PreferNoSchedule")], True, id="only a preference now"
        ),
        pytest.param([taint("a", effect="NoExecute")], [], True, id="NoExecute"),
    ],
)
def test_taints_retry_where_the_pod_is_tolerated_now_and_was_not(
    old: list[dict[str, str]] | None, new: list[dict[str, str]], want: bool
) -> None:
    pod = make_pod(tolerations=[toleration("b")])
    before = None if old is None else make_node("n", taints=old)
    event = NODE_ADD if old is None else NODE_TAINT
    assert worth("TaintToleration", event, pod, before, make_node("n", taints=new)) is want


def test_taints_retry_when_the_pod_tolerates_more() -> None:
    old, new = make_pod(uid="u"), make_pod(uid="u", tolerations=[toleration("a")])
    assert worth("TaintToleration", POD_TOLERATION, new, old, new)
    assert not worth("TaintToleration", POD_TOLERATION, make_pod(), old, new)


def test_cordons_retry_where_a_node_takes_pods_now_and_did_not() -> None:
    pod, cordoned, free = make_pod(), make_node("n", unschedulable=True), make_node("n")
    assert worth("NodeUnschedulable", NODE_ADD, pod, None, free)
    assert not worth("NodeUnschedulable", NODE_ADD, pod, None, cordoned)
    assert worth("NodeUnschedulable", NODE_TAINT, pod, cordoned, free)
    assert not worth("NodeUnschedulable", NODE_TAINT, pod, free, free)


@pytest.mark.parametrize(
    ("added", "want"),
    [
        (toleration("node.kubernetes.io/unschedulable", effect="NoSchedule"), True),
        (toleration(), True),
        (toleration("other"), False),
    ],
)
def test_cordons_retry_when_the_pod_tolerates_them(added: dict[str, str], want: bool) -> None:
    old, new = make_pod(uid="u"), make_pod(uid="u", tolerations=[added])
    assert worth("NodeUnschedulable", POD_TOLERATION, new, old, new) is want


# --- NodeAffinity ------------------------------------------------------------------------------


def required(key: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"node_selector": {"disk": "ssd"}}, id="selector"),
        pytest.param({"affinity": {"nodeAffinity": required("disk")}}, id="affinity"),
    ],
)
def test_affinity_retries_where_the_node_matches_now_and_did_not(words: dict[str, Any]) -> None:
    pod, plain, ssd = make_pod(**words), make_node("n"), make_node("n", labels={"disk": "ssd"})
    other = make_node("n", labels={"disk": "ssd", "rank": "1"})
    assert worth("NodeAffinity", NODE_ADD, pod, None, ssd)
    assert not worth("NodeAffinity", NODE_ADD, pod, None, plain)
    assert worth("NodeAffinity", NODE_LABEL, pod, plain, ssd)
    assert not worth("NodeAffinity", NODE_LABEL, pod, ssd, other)
    assert not worth("NodeAffinity", NODE_LABEL, pod, ssd, plain)


def test_affinity_retries_when_the_affinity_of_the_profile_matches_now() -> None:
    """kube-scheduler asks only for the pod's own affinity here, which matched all along."""
    profile = Profile("default-scheduler", {}, {"NodeAffinity": {"addedAffinity": required("own")}})
    hints = Hints([profile])
    plain, own = make_node("n"), make_node("n", labels={"own": ""})
    assert worth("NodeAffinity", NODE_LABEL, make_pod(), plain, own, hints)
    assert not worth("NodeAffinity", NODE_ADD, make_pod(), None, plain, hints)


# --- NodePorts and the rest --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "want"),
    [
        (80, True),
        (81, False),
        ("80/UDP", False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, True),
    ],
)
def test_ports_retry_when_a_pod_with_a_clashing_port_goes(port: Any, want: bool) -> None:
    gone = make_pod(ports=[port], node="n")
    assert worth("NodePorts", ASSIGNED_POD_DELETE, make_pod(ports=[80]), gone) is want


def test_ports_of_different_addresses_do_not_clash() -> None:
    def at(ip: str, node: str | None = None) -> Any:
        port = {"hostPort": 80, "hostIP": ip}
        return make_pod(containers=[container("a", ports=[port])], node=node)

    gone = at("10.0.0.2", "n")
    assert not worth("NodePorts", ASSIGNED_POD_DELETE, at("10.0.0.1"), gone)


def test_thousands_of_ports_are_not_compared_one_by_one() -> None:
    """Each with each: a pod with 20,000 that went cost all others 13 s for each that waited."""
    waiting = make_pod(ports=list(range(1, 20_000)))
    gone = make_pod(ports=list(range(20_000, 40_000)), node="n")
    began = time.process_time()
    assert not worth("NodePorts", ASSIGNED_POD_DELETE, waiting, gone)
    assert time.process_time() - began < 3
    clashing = make_pod(ports=list(range(19_999, 40_000)), node="n")
    assert worth("NodePorts", ASSIGNED_POD_DELETE, waiting, clashing)


def test_spreading_retries_for_pods_of_its_namespace_only() -> None:
    pod = make_pod(namespace="mine")
    assert worth("PodTopologySpread", ASSIGNED_POD_ADD, pod, None, make_pod("x", "mine", node="n"))
    other = make_pod("x", "other", node="n")
    assert not worth("PodTopologySpread", ASSIGNED_POD_ADD, pod, None, other)
    assert worth("PodTopologySpread", NODE_DELETE, pod, make_node("n"))


def test_a_claim_of_another_namespace_helps_no_pod() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    pod = make_pod(namespace="mine", volumes=[volume])
    event = ClusterEvent("PersistentVolumeClaim", "Add")
    for namespace, want in (("mine", True), ("other", False)):
        claim = PlainObject(ObjectMeta(name="c", namespace=namespace))
        assert worth("VolumeBinding", event, pod, None, claim) is want


# These reject pods, not nodes.
_PER_POD = {
    "PodSpec",
    "SchedulingGates",
    "DefaultPreemption",
    "GangScheduling",
    "PodGroup",
    CLUSTER_READS,
    THROTTLE,
}


@pytest.mark.parametrize("plugin", sorted(INTERESTS.keys() - _PER_POD))
def test_every_policy_that_rejects_nodes_looks_at_new_ones(plugin: str) -> None:
    """A pod rejected everywhere may fit on a node that did not exist: no filter may miss it."""
    pod = make_pod(cpu="1")
    assert worth(plugin, NODE_ADD, pod, None, make_node("n"))


def test_preemption_never_asks_for_a_retry_itself() -> None:
    assert not worth("DefaultPreemption", ASSIGNED_POD_DELETE, make_pod(), make_pod(node="n"))


# --- policies of users -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "old", "new"),
    [
        pytest.param(NODE_ADD, None, make_node("n"), id="a new node"),
        pytest.param(NODE_DELETE, make_node("n"), None, id="a node gone"),
        pytest.param(
            ClusterEvent("Node", "Update"), make_node("n"), make_node("n"), id="any node update"
        ),
        pytest.param(ASSIGNED_POD_ADD, None, make_pod(node="n"), id="a pod placed"),
        pytest.param(ASSIGNED_POD_DELETE, make_pod(node="n"), None, id="a pod gone"),
        pytest.param(
            ASSIGNED_POD_UPDATE,
            make_pod(node="n"),
            make_pod(node="n", annotations={"a": "b"}),
            id="a placed pod changed",
        ),
        pytest.param(ClusterEvent("Service", "Add"), None, PlainObject(), id="any other object"),
    ],
)
def test_a_user_policy_is_retried_on_everything_that_it_could_see(
    event: ClusterEvent, old: Any, new: Any
) -> None:
    assert worth("my_policy", event, make_pod(), old, new)


def test_a_user_policy_is_not_retried_on_status_or_on_other_pending_pods() -> None:
    pod = make_pod(uid="u")
    reported = make_pod(uid="u", status={"conditions": [{"type": "PodScheduled"}]})
    assert not worth("my_policy", TARGET_POD_UPDATE, pod, pod, reported)
    assert worth(
        "my_policy", TARGET_POD_UPDATE, pod, pod, make_pod(uid="u", annotations={"a": "b"})
    )
    assert not worth("my_policy", TARGET_POD_UPDATE, make_pod(), pod, make_pod(uid="u", cpu="1"))
    assert not worth("my_policy", UNSCHEDULED_POD_ADD, make_pod(), None, pod)
    running = make_pod(uid="u", node="n", phase="Running")
    assert not worth("my_policy", ASSIGNED_POD_UPDATE, make_pod(), pod.with_node("n"), running)


def test_a_pod_is_not_retried_because_of_capacity_that_it_freed_itself() -> None:
    """A pod that waits for leave is assumed; when leave is refused, it is forgotten."""
    pod = make_pod(cpu="1")
    for plugin in ("my_policy", "NodeResourcesFit"):
        assert not worth(plugin, ASSIGNED_POD_DELETE, pod, pod.with_node("n"))


def test_a_built_in_that_a_user_replaced_is_a_user_policy() -> None:
    hints = Hints(policies={"NodeResourcesFit": {}})
    assert hints.is_interested("NodeResourcesFit", NODE_TAINT)
    assert worth("NodeResourcesFit", NODE_TAINT, make_pod(), make_node("n"), make_node("n"), hints)


def test_a_wildcard_is_worth_it_for_all_or_for_its_pod() -> None:
    pod, other = make_pod(), make_pod()
    assert worth("NodeName", FORCE_ACTIVATE, pod)
    assert worth("NodeName", FORCE_ACTIVATE, pod, None, pod)
    assert not worth("NodeName", FORCE_ACTIVATE, pod, None, other)


# --- room, where it is known what is on the node -------------------------------------------------


def room(*pods: Any, **node: Any) -> Hints:
    """Hints that know of one node and what is on it."""
    info = NodeInfo("n", make_node("n", **{"cpu": "4", **node}), pods)
    return Hints(node_info={"n": info}.get)


def test_a_pod_that_goes_may_help_those_that_fit_now() -> None:
    """kube-scheduler retries everybody whenever a pod goes."""
    gone, stays = make_pod("gone", node="n", cpu="1"), make_pod("stays", node="n", cpu="2")
    for cpu, want in (("2", True), ("3", False)):
        pod = make_pod(cpu=cpu)
        assert worth("NodeResourcesFit", ASSIGNED_POD_DELETE, pod, gone, hints=room(stays)) is want
    event = ClusterEvent("AssignedPod", "UpdatePodScaleDown")
    big, small = (make_pod("stays", uid="s", node="n", cpu=cpu) for cpu in ("3", "2"))
    for cpu, want in (("2", True), ("3", False)):
        pod = make_pod(cpu=cpu)
        assert worth("NodeResourcesFit", event, pod, big, small, room(small)) is want


def test_a_pod_that_goes_may_help_those_that_could_preempt_the_rest() -> None:
    gone, stays = make_pod("gone", node="n", cpu="1"), make_pod("stays", node="n", cpu="2")

    def may_help(**words: Any) -> bool:
        pod = make_pod(cpu="3", **words)
        return worth("NodeResourcesFit", ASSIGNED_POD_DELETE, pod, gone, hints=room(stays))

    assert may_help(priority=1)
    assert not may_help(priority=0)
    assert not may_help(priority=1, spec={"preemptionPolicy": "Never"})


def test_the_number_of_pods_is_a_capacity_too() -> None:
    gone, stays = make_pod("gone", node="n"), make_pod("stays", node="n")
    for places, want in ((2, True), (1, False)):
        hints = room(stays, pods=places)
        assert worth("NodeResourcesFit", ASSIGNED_POD_DELETE, make_pod(), gone, hints=hints) is want


def test_capacity_of_an_unknown_node_may_help() -> None:
    gone = make_pod("gone", node="elsewhere", cpu="1")
    assert worth("NodeResourcesFit", ASSIGNED_POD_DELETE, make_pod(cpu="9"), gone, hints=room())


# --- gates and groups ----------------------------------------------------------------------------


def test_gates_retry_the_pod_that_has_lost_its_last_one() -> None:
    event = ClusterEvent("TargetPod", "UpdatePodSchedulingGatesEliminated")
    old, new = make_pod(uid="u", gates=["g"]), make_pod(uid="u")
    assert worth("SchedulingGates", event, new, old, new, is_gated=True)
    assert not worth("SchedulingGates", event, make_pod(), old, new, is_gated=True)
    assert not worth("SchedulingGates", NODE_ADD, new, None, make_node("n"), is_gated=True)


def in_group(name: str, namespace: str = "default", **words: Any) -> Any:
    spec = {"schedulingGroup": {"podGroupName": name}}
    return make_pod("member", namespace, spec=spec, **words)


def test_gangs_need_no_events_since_their_groups_are_followed() -> None:
    pod, other = in_group("g"), in_group("g", node="n")
    assert not worth("GangScheduling", UNSCHEDULED_POD_ADD, pod, None, other, is_gated=True)
    assert not worth("GangScheduling", ASSIGNED_POD_ADD, pod, None, other)
    assert not worth("PodGroup", ASSIGNED_POD_DELETE, pod, other, None)


def test_declared_features_retry_when_they_are_others() -> None:
    event = ClusterEvent("Node", "UpdateNodeDeclaredFeature")
    old, new = make_node("n"), make_node("n", declared_features=["X"])
    assert worth("NodeDeclaredFeatures", event, make_pod(), old, new)
    assert not worth("NodeDeclaredFeatures", event, make_pod(), new, new)
    before, after = make_pod(uid="u"), make_pod(uid="u", cpu="1")
    assert worth("NodeDeclaredFeatures", TARGET_POD_UPDATE, after, before, after)
    reported = make_pod(uid="u", phase="Pending")
    assert not worth("NodeDeclaredFeatures", TARGET_POD_UPDATE, reported, before, reported)


def test_a_pod_whose_amounts_make_no_sense_is_retried_when_it_changes() -> None:
    before, after = make_pod(uid="u", cpu="-1"), make_pod(uid="u", cpu="1")
    assert worth("PodSpec", TARGET_POD_UPDATE, after, before, after)
    assert not worth("PodSpec", NODE_ADD, before, None, make_node("n"))
