"""The policies of users: what their hooks read decides which events are news."""

import json
from typing import Any

import pytest

from engine.core.model.event_kinds import ASSIGNED_POD, FACTS
from engine.core.model.node import Node
from engine.core.model.objects import ObjectMeta, Service
from engine.core.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSIGNED_POD_UPDATE,
    FACTS_AGE,
    FACTS_UPDATE,
    NODE_ADD,
    NODE_DELETE,
    TARGET_POD_UPDATE,
    UNSCHEDULED_POD_ADD,
    ClusterEvent,
)
from engine.core.queueing.hints import EitherHints, Hints
from engine.policy.bundle import build_bundle
from engine.policy.node_views import NODE_FIELDS
from engine.policy.view_events import ANYTHING, resources_behind
from tests.builders import make_node, make_pod, node_manifest, taint
from tests.engine.core.queueing.hinting import namespace, plain, worth

NODE_LABEL = ClusterEvent("Node", "UpdateNodeLabel")
NODE_TAINT = ClusterEvent("Node", "UpdateNodeTaint")
NODE_ALLOCATABLE = ClusterEvent("Node", "UpdateNodeAllocatable")
NAMESPACE = ClusterEvent("Namespace", "Update")


def hints_of(text: str) -> Hints:
    bundle = build_bundle({"mine.star": text})
    return Hints(policies={"mine": dict(bundle.policies["mine"].hooks)})


class Policy:
    """A user's policy that has rejected a pod."""

    def __init__(self, text: str) -> None:
        self.hints = hints_of(text)
        self.pod = make_pod("p", "mine", uid="u")

    def after(self, event: ClusterEvent, old: Any, new: Any, *, is_gated: bool = False) -> bool:
        may_help = worth("mine", event, self.pod, old, new, self.hints, is_gated=is_gated)
        is_own = isinstance(new, type(self.pod)) and new.uid == "u"
        if may_help and not is_own:
            # What the index is asked first must not hide what the look at the objects would find.
            assert self.hints.is_interested("mine", event, is_gate=is_gated)
        return may_help

    def own(self, *, is_gated: bool = False, **changes: Any) -> bool:
        new = make_pod("p", "mine", **{"uid": "u", **changes})
        return self.after(TARGET_POD_UPDATE, self.pod, new, is_gated=is_gated)

    def node(self, event: ClusterEvent, before: dict[str, Any], after: dict[str, Any]) -> bool:
        return self.after(event, make_node("n", **before), make_node("n", **after))


def placed(ns: str = "mine", **words: Any) -> Any:
    return make_pod("other", ns, uid="other", node="n", **words)


# --- what is written on nodes and on the pod ---------------------------------------------------


def test_labels_of_nodes_that_are_read_may_help_when_they_change() -> None:
    policy = Policy('def filter(pod, node):\n    return None if node.labels.get("disk") else "no"')
    assert policy.node(NODE_LABEL, {}, {"labels": {"disk": "ssd"}})
    assert not policy.node(NODE_LABEL, {}, {"labels": {"other": "x"}})
    assert not policy.node(NODE_TAINT, {}, {"taints": [taint("a")]})
    assert policy.after(NODE_ADD, None, make_node("m"))
    assert not policy.after(NODE_DELETE, make_node("m"), None)
    assert not policy.after(ASSIGNED_POD_ADD, None, placed())
    assert not policy.after(ASSIGNED_POD_DELETE, placed(), None)
    assert not policy.own(labels={"a": "b"})
    assert not policy.after(NAMESPACE, namespace("mine"), namespace("mine", a="b"))
    assert not policy.after(ClusterEvent("Service", "Add"), None, plain("s", "mine"))
    assert not policy.after(FACTS_UPDATE, None, None)


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("taints", {"taints": [taint("a")]}, {}),
        ("unschedulable", {"unschedulable": True}, {}),
        ("unschedulable", {}, {"unschedulable": True}),
        ("allocatable", {"cpu": "1"}, {"cpu": "2"}),
        ("capacity", {"capacity": {"cpu": "1"}}, {"capacity": {"cpu": "2"}}),
        ("conditions", {"conditions": {"Ready": "False"}}, {"conditions": {"Ready": "True"}}),
        ("annotations", {}, {"annotations": {"a": "b"}}),
        ("declared_features", {}, {"declared_features": ["X"]}),
        ("images", {}, {"images": {"i": 1}}),
    ],
)
def test_each_field_of_a_node_may_help_policies_that_read_it(
    field: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    event = ClusterEvent("Node", "Update")
    reads = Policy(f"def filter(pod, node):\n    return str(node.{field})")
    other = Policy("def filter(pod, node):\n    return node.name")
    assert reads.node(event, before, after)
    assert not other.node(event, before, after)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("labels", {"labels": {"a": "b"}}),
        ("annotations", {"annotations": {"a": "b"}}),
        ("requests", {"cpu": "1"}),
        ("tolerations", {"tolerations": [{"key": "a", "operator": "Exists"}]}),
        ("node_selector", {"node_selector": {"a": "b"}}),
        ("scheduling_gates", {"gates": ["g"]}),
        ("host_ports", {"ports": [80]}),
    ],
)
def test_each_field_of_the_pod_may_help_policies_that_read_it(
    field: str, changes: dict[str, Any]
) -> None:
    reads = Policy(f"def filter(pod, node):\n    return str(pod.{field})")
    other = Policy("def filter(pod, node):\n    return pod.name")
    assert reads.own(**changes)
    assert not other.own(**changes)
    assert not reads.after(TARGET_POD_UPDATE, make_pod("q"), make_pod("q", **changes))


def test_a_policy_that_reads_the_pod_alone_does_not_wait_for_nodes() -> None:
    policy = Policy('def filter(pod, node):\n    return "no" if pod.labels.get("a") else None')
    assert not policy.after(NODE_ADD, None, make_node("m"))


def test_a_pre_filter_may_name_nodes_that_are_yet_to_come() -> None:
    policy = Policy('def pre_filter(pod):\n    return only_nodes([pod.labels.get("n", "")])')
    assert policy.after(NODE_ADD, None, make_node("m"))
    assert not policy.node(NODE_LABEL, {}, {"labels": {"a": "b"}})


def test_a_pod_of_lower_priority_that_is_not_protected_any_more_may_help() -> None:
    text = 'def victim_key(pod):\n    return None if pod.labels.get("keep") else pod.priority'
    policy = Policy(text)
    policy.pod = make_pod("p", "mine", uid="u", priority=10)
    label = ClusterEvent("AssignedPod", "UpdatePodLabel")
    kept, free = placed("theirs", labels={"keep": "yes"}), placed("theirs")
    assert policy.after(label, kept, free)
    assert not policy.after(label, kept, placed("theirs", labels={"keep": "yes", "more": "no"}))
    peers = [placed("theirs", priority=10, labels=labels) for labels in ({"keep": "yes"}, {})]
    assert not policy.after(label, *peers), "it is not evicted anyway"
    assert not policy.after(NODE_ADD, None, make_node("n"))


def test_the_labels_of_namespaces_may_help_if_they_keep_pods() -> None:
    text = "def victim_key(pod):\n    return None if pod.namespace_labels else 1"
    policy = Policy(text)
    assert policy.after(NAMESPACE, namespace("theirs", keep="yes"), namespace("theirs"))
    assert not policy.after(NAMESPACE, namespace("theirs"), namespace("theirs"))


def test_scores_are_no_reason_to_wait() -> None:
    policy = Policy(
        'def filter(pod, node):\n    return None if node.labels.get("disk") else "no"\n'
        "def score(pod, node):\n    return len(node.taints) + node.pod_count"
    )
    assert not policy.node(NODE_TAINT, {}, {"taints": [taint("a")]})
    assert not policy.after(ASSIGNED_POD_ADD, None, placed())


# --- what pods on nodes add up to --------------------------------------------------------------


@pytest.mark.parametrize("field", ["requested", "nonzero_requested", "pod_count", "used_ports"])
def test_sums_over_pods_may_help_when_pods_come_go_and_change(field: str) -> None:
    policy = Policy(f'def filter(pod, node):\n    return "no" if node.{field} else None')
    big, small = placed(cpu="2", ports=[80]), placed(cpu="1")
    assert policy.after(ASSIGNED_POD_DELETE, big, None)
    # Whether more or less is better is the policy's secret.
    assert policy.after(ASSIGNED_POD_ADD, None, big)
    assert policy.after(ClusterEvent("AssignedPod", "UpdatePodScaleDown"), big, small)
    assert not policy.after(ASSIGNED_POD_UPDATE, big, placed(cpu="2", ports=[80], phase="Running"))
    assert not policy.node(NODE_LABEL, {}, {"labels": {"a": "b"}})


def test_annotations_of_pods_on_nodes_may_help_when_they_change() -> None:
    policy = Policy('def filter(pod, node):\n    return str(node.pod_annotations["a/"])')
    assert policy.after(ASSIGNED_POD_UPDATE, placed(), placed(annotations={"a/b": "c"}))
    assert not policy.after(ASSIGNED_POD_UPDATE, placed(), placed(phase="Running"))


@pytest.mark.parametrize(
    ("read", "kind", "ns", "want"),
    [
        ("pod.volumes", "PersistentVolumeClaim", "mine", True),
        ("pod.volumes", "PersistentVolumeClaim", "other", False),
        ("pod.volumes", "PersistentVolume", "", True),
        ("node.volumes_in_use", "PersistentVolumeClaim", "other", True),
        ("node.volume_limits", "CSINode", "", True),
        ("node.volume_limits", "PersistentVolume", "", False),
        ("pod.device_resources", "DeviceClass", "", True),
    ],
)
def test_volumes_and_devices_may_help_policies_that_read_them(
    read: str, kind: str, ns: str, want: bool
) -> None:
    policy = Policy(f"def filter(pod, node):\n    return str({read})")
    assert policy.after(ClusterEvent(kind, "Add"), None, plain("x", ns)) is want


COUNTS = """
def counters(pod):
    return [count_pods("zone", labels = {"app": "a"}, namespaces = [pod.namespace])]

def filter(pod, node, counts):
    return "no" if counts[0].here else None
"""


def test_counters_may_help_when_pods_labels_and_domains_change() -> None:
    policy = Policy(COUNTS)
    labelled, bare = placed(labels={"app": "a"}), placed()
    assert policy.after(ASSIGNED_POD_ADD, None, bare)
    assert policy.after(ASSIGNED_POD_DELETE, bare, None)
    assert policy.after(ClusterEvent("AssignedPod", "UpdatePodLabel"), labelled, bare)
    terminating = ClusterEvent("AssignedPod", "UpdatePodTerminating")
    assert policy.after(terminating, bare, placed(terminating=True))
    assert not policy.after(ASSIGNED_POD_UPDATE, bare, placed(phase="Running"))
    assert policy.after(ClusterEvent("AssignedPod", "UpdatePodScaleDown"), placed(cpu=2), bare)
    assert policy.node(NODE_LABEL, {}, {"labels": {"zone": "z"}})
    assert policy.node(ClusterEvent("Node", "UpdateNodeAllocatable"), {"cpu": 8}, {"cpu": 2})
    assert not policy.node(NODE_TAINT, {}, {"taints": [taint("a")]})
    assert policy.after(NODE_ADD, None, make_node("m"))
    assert policy.after(NODE_DELETE, make_node("m"), None)
    assert policy.after(NAMESPACE, namespace("other"), namespace("other", a="b"))


def test_what_nodes_are_counted_among_is_read_too() -> None:
    text = COUNTS.replace('labels = {"app": "a"}', 'among = "among_clean"').replace(
        ", namespaces = [pod.namespace]", ""
    )
    policy = Policy(text + "\ndef among_clean(pod, node):\n    return not node.taints\n")
    assert policy.node(NODE_TAINT, {}, {"taints": [taint("a")]})


# --- what comes from other objects -------------------------------------------------------------


def test_labels_of_the_namespace_may_help_when_they_change() -> None:
    policy = Policy('def filter(pod, node):\n    return pod.namespace_labels.get("a")')
    assert policy.after(NAMESPACE, namespace("mine"), namespace("mine", a="b"))
    assert policy.after(ClusterEvent("Namespace", "Add"), None, namespace("mine", a="b"))
    assert not policy.after(NAMESPACE, namespace("other"), namespace("other", a="b"))
    assert not policy.after(NAMESPACE, namespace("mine", a="b"), namespace("mine", a="b"))


def test_services_may_help_policies_that_read_what_they_select() -> None:
    policy = Policy('def filter(pod, node):\n    return "no" if pod.spread_selector else None')
    added = ClusterEvent("Service", "Add")
    assert policy.after(added, None, Service(ObjectMeta(name="s", namespace="mine")))
    assert not policy.after(added, None, Service(ObjectMeta(name="s", namespace="other")))


def test_the_number_of_nodes_may_help_when_nodes_come_and_go() -> None:
    text = 'def pre_filter(pod, cluster):\n    return reject("x") if cluster.node_count else None'
    policy = Policy(text)
    assert policy.after(NODE_ADD, None, make_node("m"))
    assert policy.after(NODE_DELETE, make_node("m"), None)
    assert not policy.node(NODE_LABEL, {}, {"labels": {"a": "b"}})


@pytest.mark.parametrize(
    "read",
    [
        'filter(pod, node):\n    return node.facts.get("load")',
        'filter(pod, node):\n    return pod.facts.get("load")',
        'pre_filter(pod, cluster):\n    return cluster.facts.get("load")',
    ],
)
def test_facts_may_help_policies_that_read_them(read: str) -> None:
    assert Policy(f"def {read}").after(FACTS_UPDATE, None, None)


@pytest.mark.parametrize(
    ("hook", "want"),
    [
        pytest.param("filter(pod, node):\n    return _old(node.facts['load'])", True, id="age"),
        pytest.param("filter(pod, node):\n    return _hot(node.facts['load'])", False, id="value"),
        pytest.param("score(pod, node):\n    return 1", False, id="no filter"),
    ],
)
def test_an_age_may_help_only_policies_known_to_read_ages(hook: str, want: bool) -> None:
    helpers = """
def _old(fact):
    return None if fact == None or fact.age_seconds > 60 else "no"

def _hot(fact):
    return None if fact == None or fact.value > 60 else "no"
"""
    assert Policy(f"{helpers}\ndef {hook}").after(FACTS_AGE, None, None) == want


def test_a_manifest_may_help_when_something_in_it_changes() -> None:
    policy = Policy(
        'def filter(pod, node):\n    return node.manifest["status"].get("nodeInfo") and "no"'
    )

    def node(**status: Any) -> Node:
        manifest = node_manifest("n", resource_version=str(len(status)))
        manifest["status"] |= status
        return Node.from_raw(json.dumps(manifest).encode())

    event = ClusterEvent("Node", "Update")
    beat = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]
    later = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]
    assert policy.after(event, node(), node(nodeInfo={"kernelVersion": "6"}))
    assert not policy.after(event, node(conditions=beat), node(conditions=later))


def test_what_we_write_about_an_attempt_does_not_help() -> None:
    policy = Policy("def filter(pod, node):\n    return str(pod.manifest)")
    condition = {"type": "PodScheduled", "status": "False", "message": "str(pod.manifest)"}
    assert not policy.own(status={"conditions": [condition], "nominatedNodeName": "n"})
    assert policy.own(annotations={"a": "b"})


@pytest.mark.parametrize("is_gated", [False, True])
def test_a_condition_that_another_controller_writes_helps(is_gated: bool) -> None:
    """A pod that waited for `example.com/DataReady` was tried again after five minutes only.

    All conditions were taken for what schedulers write.
    """
    hook = "pre_enqueue(pod)" if is_gated else "filter(pod, node)"
    policy = Policy(f'def {hook}:\n    return str(pod.manifest["status"].get("conditions"))')
    ready = {"type": "example.com/DataReady", "status": "True"}
    ours = {"type": "PodScheduled", "status": "False", "lastProbeTime": None}
    preempted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
    }
    evicted = {**preempted, "reason": "EvictionByEvictionAPI"}
    assert policy.own(is_gated=is_gated, status={"conditions": [ready]})
    assert policy.own(is_gated=is_gated, status={"conditions": [ours, ready]})
    assert policy.own(is_gated=is_gated, status={"conditions": [evicted]})
    assert not policy.own(is_gated=is_gated, status={"conditions": [ours]})
    assert not policy.own(is_gated=is_gated, status={"conditions": [ours, preempted]})
    assert not policy.own(is_gated=is_gated, status={"conditions": []})


# --- gates, groups, and what is not known ------------------------------------------------------

HOLD = """
def pre_enqueue(pod):
    return "on hold" if pod.annotations.get("hold") else None

def filter(pod, node):
    return None if node.labels.get("disk") else "no"
"""


def test_a_gate_is_asked_again_for_what_the_gate_reads() -> None:
    policy = Policy(HOLD)
    assert policy.own(is_gated=True, annotations={"hold": "x"})
    assert not policy.own(annotations={"hold": "x"})
    ssd = make_node("n", labels={"disk": "ssd"})
    assert not policy.after(NODE_ADD, None, ssd, is_gated=True)
    assert policy.after(NODE_ADD, None, ssd)


def test_a_gate_that_looks_at_its_group_needs_no_event_but_of_its_own_pod() -> None:
    """The pods of a group are rechecked when it changes, without an event."""
    policy = Policy('def pre_enqueue(pod, group):\n    return "x" if group.pod_count < 2 else None')
    for event, pod in ((UNSCHEDULED_POD_ADD, make_pod("q", "mine")), (ASSIGNED_POD_ADD, placed())):
        assert not policy.after(event, None, pod, is_gated=True)
    assert not policy.after(NODE_ADD, None, make_node("m"), is_gated=True)
    assert policy.own(is_gated=True, labels={"group": "another"})


def test_a_built_in_that_a_user_replaced_is_judged_by_what_the_file_reads() -> None:
    text = 'def filter(pod, node):\n    return None if node.labels.get("fits") else "no"'
    bundle = build_bundle({"node_resources_fit.star": text})
    replaced = bundle.policies["NodeResourcesFit"]
    assert not replaced.is_builtin
    hints = Hints(policies={"NodeResourcesFit": dict(replaced.hooks)})
    old, new = make_node("n"), make_node("n", labels={"fits": "yes"})
    assert worth("NodeResourcesFit", NODE_LABEL, make_pod(), old, new, hints)
    assert worth("NodeResourcesFit", ASSIGNED_POD_DELETE, make_pod(), placed(), None, Hints())
    assert not worth("NodeResourcesFit", ASSIGNED_POD_DELETE, make_pod(), placed(), None, hints)


def test_a_policy_that_reads_everything_is_retried_on_everything_but_status() -> None:
    text = (
        "def helper(x):\n    return dir(x)\n\ndef filter(pod, node):\n    return str(helper(node))"
    )
    policy = Policy(text)
    assert policy.node(NODE_TAINT, {}, {"taints": [taint("a")]})
    assert policy.after(ASSIGNED_POD_ADD, None, placed())
    assert not policy.after(ASSIGNED_POD_UPDATE, placed(), placed(phase="Running"))


_CHANGE_PARTS = {"facts": FACTS, "storage": "CSINode"}


@pytest.mark.parametrize("name", [name for name, field in NODE_FIELDS.items() if field.parts])
def test_what_changes_a_part_of_a_node_is_a_reason_to_retry(name: str) -> None:
    """A part that is not named here changes with the pods on the node."""
    field = NODE_FIELDS[name]
    want = {_CHANGE_PARTS.get(part, ASSIGNED_POD) for part in field.parts}
    assert want <= set(field.changed_by)


def test_a_field_that_no_view_has_counts_as_one_that_anything_changes() -> None:
    assert resources_behind("node", frozenset({"unknown"})) == {ANYTHING}


# --- two versions that both decide -------------------------------------------------------------

_WITH_FILTER = 'def filter(pod, node):\n    return None if node.labels.get("a") else "no"\n'
_WITHOUT = "def score(pod, node):\n    return node.pod_count\n"


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param((_WITH_FILTER, _WITHOUT), id="rejects no more"),
        pytest.param((_WITHOUT, _WITH_FILTER), id="begins to reject"),
    ],
)
def test_a_version_that_rejects_nothing_makes_no_event_worth_a_retry(texts: Any) -> None:
    either = EitherHints(*(hints_of(text) for text in texts))
    pod, placed = make_pod("p", "mine", uid="u"), make_pod("x", node="n")
    assert not worth("mine", ASSIGNED_POD_ADD, pod, None, placed, either)
    assert not either.is_interested("mine", ASSIGNED_POD_ADD)
    before, after = make_node("n"), make_node("n", labels={"a": "b"})
    assert worth("mine", NODE_LABEL, pod, before, after, either)


def test_a_policy_that_no_version_knows_is_retried_on_everything() -> None:
    either = EitherHints(hints_of(_WITHOUT), hints_of(_WITHOUT))
    placed = make_pod("x", node="n")
    assert worth("gone", ASSIGNED_POD_ADD, make_pod("p", uid="u"), None, placed, either)
