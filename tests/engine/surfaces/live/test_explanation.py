"""An explanation says what the engine decides, and what it promises comes true."""

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.model.quantity import amount_text, bytes_text
from engine.core.queueing.hints import INTERESTS, Hints
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.explaining.remedies import shortfall
from engine.explaining.verdict_table import VerdictTable, ask_each
from engine.files.cluster_file import Cluster
from engine.files.world import World
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.surfaces.live.answers import PodAnswer
from engine.surfaces.live.rules import Rules
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.small_world import CONFIG
from tests.engine.core.kernel.test_reclaims import LENT, SHARED
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.profiles import default_bundle, default_evaluator
from tests.searching import examples
from workbench.cli.explain_on_a_copy import explain_on_a_copy
from workbench.cli.explain_text import print_answer

POLICY = '''"""Keeps pods off nodes of the wrong colour."""

_WANT = "node(s) had the colour %s"

def filter(pod, node):
    colour = node.labels.get("colour", "none")
    return None if colour == "red" else _WANT % colour

def score(pod, node):
    return len(node.name)
'''


GPU = "nvidia.com/gpu"


def node(name: str, cpu: int = 4, **more: Any) -> dict[str, Any]:
    labels, spec = more.get("labels", {}), {"taints": more.get("taints", [])}
    spec["unschedulable"] = more.get("cordoned", False)
    room = {"cpu": f"{cpu}", "memory": "8Gi", "pods": f"{more.get('pods', 10)}"}
    if gpus := more.get("gpus", 0):
        room[GPU] = f"{gpus}"
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": room},
    }


def pod(name: str = "p", cpu: str = "1", gpus: int = 0, **spec: Any) -> dict[str, Any]:
    limits = {GPU: f"{gpus}"} if gpus else {}
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, **limits}, "limits": limits}}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def explained(
    nodes: list[dict[str, Any]],
    wanted: dict[str, Any],
    others: list[dict[str, Any]] | None = None,
    bundle: Bundle | None = None,
    **words: Any,
) -> PodAnswer:
    cluster = Cluster(nodes=nodes, pods=others or [])
    evaluator = default_evaluator() if bundle is None else InProcessEvaluator(bundle.program)
    asked = cluster.pod_of(wanted)
    return explain_on_a_copy(bundle or default_bundle(), evaluator, cluster.world(), asked, **words)


def asked_each(asked: Pod, snapshot: Snapshot) -> VerdictTable:
    scheduler = Scheduler(default_bundle(), default_evaluator())
    return ask_each(scheduler, asked, snapshot, Nominator())


# --- the table ------------------------------------------------------------------------------

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
_nodes = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.integers(1, 4),
            "labels": st.sampled_from([{}, {"disk": "ssd"}, {"disk": "hdd"}]),
            "taints": st.sampled_from([[], [TAINT]]),
            "cordoned": st.booleans(),
        }
    ),
    min_size=1,
    max_size=6,
)
_pods = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["500m", "1", "2500m", "9"]),
        "nodeSelector": st.sampled_from([{}, {"disk": "ssd"}]),
    }
)


def _world(shapes: list[dict[str, Any]], taken: int) -> tuple[list[dict[str, Any]], World]:
    nodes = [node(f"n{i}", **shape) for i, shape in enumerate(shapes)]
    others = [pod(f"o{i}", "500m", nodeName=f"n{i % len(nodes)}") for i in range(taken)]
    return nodes, Cluster(nodes=nodes, pods=others).world()


@settings(max_examples=examples(60), deadline=None)
@given(shapes=_nodes, wanted=_pods, taken=st.integers(0, 4))
def test_asking_each_policy_alone_agrees_with_the_decision(
    shapes: list[dict[str, Any]], wanted: dict[str, Any], taken: int
) -> None:
    _, world = _world(shapes, taken)
    asked = Pod.from_plain(pod(**wanted))
    table = asked_each(asked, world.snapshot)
    decided = Scheduler(default_bundle(), default_evaluator()).explain(asked, world.snapshot)
    assert not table.failures
    assert set(decided.feasible) == {n for n in table.nodes if not table.rejectors_of(n)}
    for name, status in decided.rejected.items():
        assert table.rejectors_of(name)[0] == status.plugin
        assert table.rejections[status.plugin][name] == status


@pytest.mark.slow("compares much")
@settings(max_examples=examples(60), deadline=None)
@given(shapes=_nodes, wanted=_pods, taken=st.integers(0, 4))
def test_what_a_node_lacks_is_what_has_to_be_added_and_no_less(
    shapes: list[dict[str, Any]], wanted: dict[str, Any], taken: int
) -> None:
    nodes, world = _world(shapes, taken)
    asked = Pod.from_plain(pod(**wanted))
    table = asked_each(asked, world.snapshot)
    for i, shape in enumerate(nodes):
        info = world.snapshot.info(f"n{i}")
        assert info is not None
        lacking = shortfall(asked, info)
        assert bool(lacking) == (f"n{i}" in table.rejections["NodeResourcesFit"])
        for more, is_enough in ((0, True), (-1, False)) if lacking else ():
            room = shape["status"]["allocatable"]
            millis = int(room["cpu"]) * 1000 + lacking["cpu"] + more
            grown = {**shape, "status": {"allocatable": {**room, "cpu": f"{millis}m"}}}
            others = [p.manifest for p in info.pods.values()]
            again = Cluster(nodes=[grown]).world()
            for one in others:
                again.cache.add_pod(Pod.from_manifest(one))
            snapshot = again.cache.snapshot()
            result = asked_each(asked, snapshot)
            assert (not result.rejections["NodeResourcesFit"]) == is_enough


# --- what is said ----------------------------------------------------------------------------


def test_a_pod_that_fits_nowhere_learns_every_way_out() -> None:
    nodes = [
        node("small", cpu=2, labels={"disk": "ssd"}),
        node("hdd", cpu=8, labels={"disk": "hdd"}),
        node("tainted", cpu=8, labels={"disk": "ssd"}, taints=[TAINT]),
        node("cordoned", cpu=8, labels={"disk": "ssd"}, cordoned=True),
        node("hopeless", cpu=2, taints=[TAINT]),
    ]
    got = explained(nodes, pod(cpu="2500m", nodeSelector={"disk": "ssd"}), asked=["hopeless"])
    assert (got.outcome, got.feasible, got.nodes) == ("unschedulable", 0, 5)
    answer = {(r.policy, r.text): r.nodes for r in got.remedies}
    assert answer["NodeResourcesFit", "small lacks 500m cpu"] == 1
    assert answer["TaintToleration", "tolerate `gpu=yes:NoSchedule`"] == 1
    assert answer["NodeAffinity", "nodes do not meet `disk=ssd`"] == 1
    assert answer["NodeUnschedulable", "uncordon cordoned"] == 1
    # A plugin is not left out: nodes are tainted for a reason, and a kubelet may refuse the pod.
    assert not any(text == "leave this policy out" for _, text in answer)
    assert got.asked[0].rejections == {
        "TaintToleration": ("node(s) had untolerated taint(s)",),
        "NodeAffinity": ("node(s) didn't match Pod's node affinity/selector",),
        "NodeResourcesFit": ("Insufficient cpu",),
    }
    taints = next(v for v in got.policies if v.policy == "TaintToleration")
    assert (taints.rejects, taints.decides, taints.fits) == (2, 1, 3)
    assert "taints of a Node changed" in taints.waits_for
    source = taints.groups[0].source
    file, _, line = source.rpartition(":")
    assert "untolerated taint" in default_bundle().files[file].splitlines()[int(line) - 1]


def test_a_cordon_with_its_taint_is_one_thing_to_lift() -> None:
    """As a cluster has it: two policies reject the node, and neither was said to be enough."""
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    nodes = [
        node("cordoned", taints=[cordon], cordoned=True),
        node("tainted-too", taints=[cordon, TAINT], cordoned=True),
        node("full", cpu=0, taints=[cordon], cordoned=True),
    ]
    got = explained(nodes, pod())
    answer = {(r.policy, r.text): r.nodes for r in got.remedies}
    assert answer["NodeUnschedulable", "uncordon cordoned"] == 1
    only, both = {"effect": "NoSchedule", "key": cordon["key"], "operator": "Exists"}, TAINT["key"]
    tolerated = f"tolerate `{cordon['key']}:NoSchedule`"
    assert answer["TaintToleration", tolerated] == 1
    # Who tolerates both tolerates the one: it was said of a single node.
    assert answer["TaintToleration", f"tolerate `gpu=yes:NoSchedule` and {tolerated[9:]}"] == 2
    assert not any(text == "leave this policy out" for _, text in answer)
    # And it is so.
    assert explained([node("cordoned"), *nodes[1:]], pod()).feasible == 1
    assert explained(nodes, pod(tolerations=[only])).feasible == 1
    exists = [only, {"key": both, "operator": "Exists"}]
    assert explained(nodes, pod(tolerations=exists)).feasible == 2


def test_the_requirement_of_an_affinity_that_nodes_miss_is_named() -> None:
    required = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
        ]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    got = explained([node("n"), node("m")], pod(affinity=affinity))
    answer = {(r.policy, r.text): r.nodes for r in got.remedies}
    assert answer["NodeAffinity", "nodes do not meet `zone In (a, b)`"] == 2


def test_a_pod_larger_than_every_node_is_sent_to_none() -> None:
    """`lacks 97 cpu: fits on 1` was said of a node of 16, and a node was said to help."""
    nodes = [node("large", cpu=32), node("small", cpu=16)]
    got = explained(nodes, pod(cpu="111"))
    assert [(one.text, one.nodes) for one in got.remedies] == [
        ("it asks for 111 cpu, and the largest of these nodes, large, has 32 cpu", 0)
    ]
    assert got.is_new_shape
    # What is nearly large enough is a near miss, and comes before what lacks more.
    near = explained(nodes, pod(cpu="33"))
    assert near.remedies[0].text == "large lacks 1 cpu"
    assert near.is_new_shape
    assert not explained(nodes, pod(cpu="32"), [pod("other", "1", nodeName="large")]).is_new_shape


def test_near_misses_are_the_first_nodes_that_a_policy_is_shown_with() -> None:
    nodes = [*(node(f"plain-{i}", cpu=8) for i in range(3)), node("full", cpu=8, gpus=8)]
    got = explained(nodes, pod(cpu="1", gpus=8), [pod("other", "1", gpus=6, nodeName="full")])
    (fit,) = (one for one in got.policies if one.policy == "NodeResourcesFit")
    assert [group.example for group in fit.groups] == ["full", "plain-0"]


def test_a_gpu_pod_is_not_sent_to_nodes_without_gpus() -> None:
    """Nodes without a GPU were said to lack 8, and those with some were not named."""
    nodes = [
        *(node(f"cpu-{number}", cpu=8) for number in range(3)),
        node("gpu-full", cpu=8, gpus=8),
        node("gpu-small", cpu=8, gpus=4),
        node("gpu-tainted", cpu=8, gpus=8, taints=[TAINT]),
    ]
    there = pod("other", "1", gpus=6, nodeName="gpu-full")
    got = explained(nodes, pod(cpu="1", gpus=8), [there])
    texts = [r.text for r in got.remedies]
    assert f"gpu-full lacks 6 {GPU}" in texts
    assert "tolerate `gpu=yes:NoSchedule`" in texts
    assert not any("cpu-" in text for text in texts)
    assert (got.reason, got.node_helps) == ("InsufficientResources", True)
    assert got.node_shape == f"1 cpu and 8 {GPU}"
    assert got.next_step == "lower the pod's requests, free capacity, or add a node"


def test_a_request_beyond_every_node_says_what_shape_of_node_would_do() -> None:
    """It was told to free capacity, and that a node like those with 16 cores helps one with 111."""
    nodes = [node("small", cpu=8), node("large", cpu=16)]
    got = explained(nodes, pod(cpu="111"))
    assert got.node_shape == "111 cpu"
    assert got.next_step == "lower the pod's requests, or add a node that offers 111 cpu"
    texts = [r.text for r in got.remedies]
    assert "it asks for 111 cpu, and the largest of these nodes, large, has 16 cpu" in texts
    got = explained(nodes, pod(cpu="1", gpus=2))
    assert f"it asks for 2 {GPU}, which no node has" in [r.text for r in got.remedies]
    assert not any(" lacks " in r.text for r in got.remedies)


def test_full_nodes_that_lack_a_gpu_lack_a_gpu() -> None:
    """The reason was `TooManyPods`, the first in the list of most nodes, and so was the advice."""
    nodes = [node(f"n{number}", cpu=8, pods=1 if number < 3 else 10) for number in range(5)]
    others = [pod(f"o{number}", "1", nodeName=f"n{number}") for number in range(3)]
    got = explained(nodes, pod(cpu="1", gpus=1), others)
    assert got.reason == "InsufficientResources"
    # The text stays kube-scheduler's.
    assert "0/5 nodes are available: 3 Too many pods, 5 Insufficient nvidia.com/gpu" in got.message
    assert got.next_step == f"lower the pod's requests, or add a node that offers 1 cpu and 1 {GPU}"


NAME = {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}
SSD = {"key": "disk", "operator": "In", "values": ["ssd", "hdd"]}
NO_DISK = {"key": "disk", "operator": "DoesNotExist"}
BIG = {"key": "size", "operator": "Gt", "values": ["9"]}
SMALL = {"key": "size", "operator": "Lt", "values": ["11"]}
NOT_TEN = {"key": "size", "operator": "NotIn", "values": ["10"]}
# Trying each value with each other took minutes.
CROWD = [
    {"key": "disk", "operator": "Exists"},
    {"key": "disk", "operator": "NotIn", "values": [str(number) for number in range(5000)]},
]


def required(**term: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("selector", "term", "want"),
    [
        pytest.param({}, {"matchFields": [NAME]}, 0, id="the name of another node"),
        pytest.param({"disk": "nvme"}, {"matchExpressions": [SSD]}, 0, id="two values of a label"),
        pytest.param({}, {"matchExpressions": [SSD, NO_DISK]}, 0, id="a label and none"),
        pytest.param({"disk": "ssd"}, {"matchExpressions": [SSD, BIG]}, 1, id="what labels can do"),
        pytest.param({}, {"matchExpressions": [BIG, SMALL]}, 1, id="a number between two"),
        pytest.param({}, {"matchExpressions": [BIG, SMALL, NOT_TEN]}, 0, id="no number is left"),
        pytest.param({}, {"matchExpressions": [NO_DISK, *CROWD]}, 0, id="thousands of values"),
    ],
)
def test_what_no_label_can_bring_about_does_not_help(
    selector: dict[str, str], term: dict[str, Any], want: int
) -> None:
    """It was counted as if a label would do."""
    got = explained([node("n")], pod(nodeSelector=selector, affinity=required(**term)))
    reported = [r.nodes for r in got.remedies if r.text.startswith("nodes do not meet")]
    assert reported == [want]


ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(("zone", "rejected"), [("a", 0), ("b", 2)])
def test_a_placed_pod_is_decided_without_the_labels_of_its_node(zone: str, rejected: int) -> None:
    """The API server had given it the labels, so that it was explained as another pod."""
    text = f"""
def filter(pod, node):
    return "it has a zone" if "{ZONE}" in pod.labels else None
"""
    nodes = [node("n", labels={ZONE: "a"}), node("other", labels={ZONE: "b"})]
    there = pod() | {"metadata": {"name": "p", "labels": {"app": "web", ZONE: zone}}}
    got = explained(nodes, there, bundle=build_bundle({"own.star": text}), placed_on="n")
    assert [one.rejects for one in got.policies if one.policy == "own"] == [rejected]


def test_capacity_that_is_kept_for_others_is_lacking() -> None:
    """The room of a promised pod was taken for free, so what lacks was too little, or nothing."""
    urgent = {**pod("urgent", cpu="3", priority=10), "status": {"nominatedNodeName": "n"}}
    urgent["metadata"] = {"name": "urgent", "uid": "urgent"}
    got = explained([node("n")], pod(cpu="2"), pending=[Cluster().pod_of(urgent, unplaced=False)])
    assert "n lacks 1 cpu" in [r.text for r in got.remedies]


def test_nodes_that_a_pre_filter_leaves_out_are_rejected_by_it() -> None:
    """A pod of a DaemonSet names its node. Others looked as if only room were missing there."""
    name = {"key": "metadata.name", "operator": "In", "values": ["own"]}
    nodes = [node("own", taints=[TAINT]), node("other", cpu=1)]
    got = explained(nodes, pod(cpu="2", affinity=required(matchFields=[name])), asked=["other"])
    answer = {(r.policy, r.text): r.nodes for r in got.remedies}
    assert answer["TaintToleration", "tolerate `gpu=yes:NoSchedule`"] == 1
    assert answer["NodeResourcesFit", "other lacks 1 cpu"] == 0
    assert got.asked[0].rejections == {
        "NodeAffinity": ("node(s) didn't satisfy plugin(s) [NodeAffinity]",),
        "NodeResourcesFit": ("Insufficient cpu",),
    }


def test_a_pod_learns_which_policy_keeps_its_victims() -> None:
    text = 'def victim_key(pod):\n    return None if pod.name == "kept" else 0\n'
    bundle = build_bundle({"keeps.star": text})
    weak = [pod(name, "2", nodeName=name, priority=0) for name in ("kept", "peer")]
    weak[1]["spec"]["priority"] = 50
    world = Cluster(nodes=[node("kept", cpu=2), node("peer", cpu=2)], pods=weak).world()
    asked = Pod.from_plain(pod(cpu="2", priority=50))
    got = explain_on_a_copy(bundle, InProcessEvaluator(bundle.program), world, asked)
    sentence = "node(s) would fit only without pods that are never evicted"
    assert got.message.endswith(
        f"0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 {sentence}."
    )
    assert any(one.startswith(f"`{sentence}`: ") for one in got.words)
    answer = {r.policy: (r.text, r.nodes) for r in got.remedies}
    assert answer["keeps"] == (
        "evict pods of lower priority that it protects: victim_key returns None",
        1,
    )


def test_a_pod_that_fits_learns_what_made_the_difference() -> None:
    got = explained([node("empty"), node("used")], pod(), [pod("o", "2", nodeName="used")])
    assert (got.outcome, got.node) == ("placed", "empty")
    first, second = got.ranking
    assert (first.node, first.place, second.place) == ("empty", 1, 2)
    assert f"{first.total - second.total} more than `used`" in got.why[0]
    gaps = {p: s.weighted - second.scores[p].weighted for p, s in first.scores.items()}
    assert sum(gaps.values()) == first.total - second.total
    widest = max(gaps, key=lambda policy: abs(gaps[policy]))
    assert got.why[1] == f"{widest} favors it: {gaps[widest]:+d}"
    assert not got.remedies


def test_a_tie_is_reported_as_one() -> None:
    got = explained([node("a"), node("b")], pod())
    assert [row.place for row in got.ranking] == [1, 1]
    assert got.ranking[0].node == got.node
    assert "2 nodes have the highest total" in got.why[0]


def test_a_pod_that_could_preempt_learns_whom() -> None:
    got = explained([node("n")], pod(cpu="3", priority=10), [pod("weak", "2", nodeName="n")])
    assert got.outcome == "unschedulable"
    assert got.preemption is not None
    assert (got.preemption.outcome, got.preemption.node) == ("would_evict", "n")
    assert [victim.pod for victim in got.preemption.victims] == ["default/weak"]
    assert [one.node for one in got.preemption.candidates] == ["n"]


def test_a_gated_pod_says_which_policy_gates_it() -> None:
    got = explained([node("n")], pod(schedulingGates=[{"name": "later"}]))
    assert got.outcome == "gated"
    assert "SchedulingGates" in got.message


def test_capacity_that_another_pod_is_nominated_for_is_taken() -> None:
    nominated = Pod.from_plain(
        {**pod("first", "3", priority=5), "status": {"nominatedNodeName": "n"}}
    )
    assert explained([node("n")], pod(cpu="2")).outcome == "placed"
    assert explained([node("n")], pod(cpu="2"), pending=[nominated]).outcome == "unschedulable"


@pytest.mark.parametrize(
    "hook",
    [
        "def pre_score(pod): return 1 // 0",
        "def score(pod, node): return 1 // 0",
        "def tie_key(pod, node): return [1 // 0]",
    ],
)
def test_a_pod_with_a_nomination_needs_no_score(hook: str) -> None:
    """It was said to lose by scores, which a scheduler ignores for a nominated pod."""
    bundle = build_bundle({"broken.star": f"{hook}\n"})
    evaluator = InProcessEvaluator(bundle.program)
    nodes = [node("a"), node("b")]
    nominated = Pod.from_plain({**pod(), "status": {"nominatedNodeName": "b"}})
    got = explain_on_a_copy(bundle, evaluator, Cluster(nodes=nodes).world(), nominated)
    assert (got.outcome, got.node) == ("placed", "b")
    assert got.why == (
        "the pod is nominated to `b` (status.nominatedNodeName), whatever the scores",
    )
    assert explained(nodes, pod(), bundle=bundle).outcome == "failed"
    decision = Scheduler(bundle, evaluator).schedule(
        nominated, Cluster(nodes=nodes).world().snapshot
    )
    assert decision.node == "b"


def test_a_policy_of_the_user_is_quoted_by_line_and_waits_for_what_it_reads() -> None:
    bundle = build_bundle({"colour.star": POLICY})
    nodes = [node("a", labels={"colour": "blue"}), node("b")]
    got = explained(nodes, pod(), bundle=bundle)
    colour = next(v for v in got.policies if v.policy == "colour")
    assert {group.reason: group.source for group in colour.groups} == {
        "node(s) had the colour blue": "colour.star:3",
        "node(s) had the colour none": "colour.star:3",
    }
    assert [(group.example, group.read) for group in colour.groups] == [
        ("a", {"labels": {"colour": "blue"}}),
        ("b", {"labels": {}}),
    ]
    assert "Node changed" in colour.waits_for
    assert "placed pod deleted" not in colour.waits_for
    assert {r.text: r.nodes for r in got.remedies if r.policy == "colour"} == {
        "leave this policy out": 2
    }


def test_a_pod_that_waits_in_permit_says_so() -> None:
    """Only "not called here" was reported, although the pod itself says what it waits for."""
    answer = "waiting on node `a` for policy `mine`, 30s at most: the licence"
    condition = {"type": "PodScheduled", "status": "False", "reason": "WaitingOnPermit"}
    waiting = {**pod(), "status": {"conditions": [{**condition, "message": answer}]}}
    got = explained([node("a")], waiting)
    assert f"a scheduler has a node for it and reports: {answer}" in got.notes


def test_a_pod_that_is_throttled_says_so() -> None:
    """Alone it fits, and nothing but its condition tells why it is not tried."""
    answer = "throttled: filter() of policy `mine` took too long for other pods"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Throttled"}
    got = explained(
        [node("a")], {**pod(), "status": {"conditions": [condition | {"message": answer}]}}
    )
    assert got.outcome == "placed"
    assert f"a scheduler does not try it for now and reports: {answer}" in got.notes


@pytest.mark.parametrize(
    ("hook", "want"),
    [
        ('def filter(pod, node):\n    return "no" if pod.labels.get("a") else "never"', True),
        ('def filter(pod, node):\n    return "no" if node.labels.get("a") else "never"', False),
    ],
    ids=["of the pod", "of the node"],
)
def test_a_change_of_the_pod_is_waited_for_where_it_is_read(hook: str, want: bool) -> None:
    """A label of the pod made it fit at once, and was not told."""
    got = explained([node("a")], pod(), bundle=build_bundle({"mine.star": f"{hook}\n"}))
    mine = next(policy for policy in got.policies if policy.policy == "mine")
    assert ("the pod itself changed" in mine.waits_for) is want


GATE = """
def group_of(pod):
    return gang("job", min_count = 3)

def pre_enqueue(pod, group):
    return "too few" if group != None and group.pod_count < group.min_count else None
"""


@pytest.mark.parametrize("others", [1, 2])
def test_the_group_of_a_pod_is_seen_by_its_gate(others: int) -> None:
    """A pod was said to fit that a scheduler keeps out until its group is there."""
    bundle = build_bundle({"gate.star": GATE})
    cluster = Cluster(nodes=[node("a")], pods=[pod("placed", nodeName="a")])
    waiting = [Pod.from_plain(pod(f"w{number}")) for number in range(others)]
    got = explain_on_a_copy(
        bundle,
        InProcessEvaluator(bundle.program),
        cluster.world(),
        waiting[0],
        pending=waiting,
    )
    want = ("placed", "") if others == 2 else ("gated", "gated by policy `gate`: too few")
    assert (got.outcome, got.message) == want


def test_a_policy_that_fails_is_named() -> None:
    bundle = build_bundle({"broken.star": "def filter(pod, node):\n    return 1 // 0\n"})
    got = explained([node("a")], pod(), bundle=bundle)
    assert got.outcome == "failed"
    assert any("broken.star:2" in text for text in got.failures)


@pytest.mark.parametrize(
    ("resource", "amount", "want"),
    [
        ("cpu", 500, "500m cpu"),
        ("cpu", 2000, "2 cpu"),
        ("memory", 3 << 29, "1.5Gi memory"),
        ("nvidia.com/gpu", 2, "2 nvidia.com/gpu"),
        ("pods", 1, "1 pods"),
    ],
)
def test_amounts_are_written_as_people_write_them(resource: str, amount: int, want: str) -> None:
    assert amount_text(resource, amount) == want


def test_bytes_keep_their_size() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1024, 1 << 40)] == ["0", "1023", "1Ki", "1Ti"]
    assert [bytes_text(n << 20) for n in (12, 1250, 12_650)] == ["12Mi", "1.22Gi", "12.4Gi"]


@given(st.integers(0, 1 << 60))
def test_what_lacks_is_never_said_to_be_less(amount: int) -> None:
    """Rounded to the nearest, what was said to be enough was not."""
    text = bytes_text(amount, is_least=True)
    digits = text.rstrip("KMGTPi")
    size = 1024 ** ["", "Ki", "Mi", "Gi", "Ti", "Pi"].index(text.removeprefix(digits))
    assert amount <= Fraction(digits) * size <= amount * Fraction(101, 100)


def test_of_many_nodes_those_that_lack_least_are_named() -> None:
    """Beyond some nodes they are picked by arrays, which must pick the same."""
    nodes = [node(f"n{number:03d}", cpu=2 + (number == 70)) for number in range(100)]
    others = [pod(f"o{number:03d}", "1", nodeName=f"n{number:03d}") for number in range(0, 100, 2)]
    got = explained(nodes, pod(cpu="4"), others)
    lacks = [r.text for r in got.remedies if " lacks " in r.text]
    assert lacks[0] == "n001 lacks 2 cpu"
    assert {text.partition(" ")[2] for text in lacks} == {"lacks 2 cpu"}
    alone = explained(nodes, pod(cpu="2500m"), others)
    lacks = [r.text for r in alone.remedies if " lacks " in r.text]
    assert lacks == ["n001 lacks 500m cpu", "n003 lacks 500m cpu", "n005 lacks 500m cpu"]


def test_every_event_that_a_plugin_waits_for_has_words() -> None:
    bundle = default_bundle()
    rules = Rules(bundle, Hints.of(bundle, Cache()))
    said = [words for policy in INTERESTS for words in rules.waits_for(policy)]
    assert {"Node added", "taints of a Node changed", "placed pod deleted"} <= set(said)
    assert not [words for words in said if re.search("Update|Add$|Delete$", words)]


# --- the turn in a tree of queues -----------------------------------------------------------

TREE = {"a": {"limit": {"cpu": 3}}, "a/x": {"limit": {"cpu": 2}}, "a/y": {}, "b": {}}


# The value of a label has no slashes.
BY_LABEL = DRF.replace('.get("queue")', '.get("queue", "").replace(".", "/")')


def of_queue(name: str, queue: str, cpu: str = "1", node: str = "") -> dict[str, Any]:
    made = pod(name, cpu)
    if node:
        made["spec"]["nodeName"] = node
    made["metadata"] |= {
        "labels": {"queue": queue.replace("/", ".")},
        "namespace": "default",
        "uid": name,
    }
    return made


def explained_in_turn(
    wanted: dict[str, Any],
    *others: dict[str, Any],
    policy: str = BY_LABEL,
    queues: dict[str, Any] = TREE,
    nodes: int = 1,
    config: str = "",
) -> PodAnswer:
    files = tree_files(policy, queues=queues)
    bundle = build_bundle({**files, "config.yaml": config or files["config.yaml"]})
    cluster = Cluster(pods=list(others))
    pending = [cluster.pod_of(one, unplaced=False) for one in cluster.pending_pods()]
    made = [node("n" if n == 0 else f"n{n}", cpu=16) for n in range(nodes)]
    return explained(made, wanted, list(others), bundle, pending=pending)


def test_a_pod_that_its_queue_holds_is_not_explained_by_nodes() -> None:
    running = [of_queue(f"x{n}", "a/x", node="n") for n in range(2)]
    got = explained_in_turn(of_queue("p", "a/x"), *running)
    assert (got.outcome, got.reason, got.node, got.node_helps) == (
        "held",
        "QuotaReached",
        "",
        False,
    )
    text = "queue `a/x`: is at its limit (short of 1 cpu at `a/x`)"
    assert (got.headline, got.message) == (f"default/p is held: {text}", text)
    assert (got.policies, got.ranking, got.preemption, got.why) == ((), (), None, ())
    assert got.notes == ("once it may be tried, it fits on 1 of 1 nodes as they are now",)
    turn = got.turn
    assert turn is not None
    assert (turn.policy, turn.queue, turn.place, turn.pods, turn.behind) == (
        "fair",
        "a/x",
        1,
        1,
        "",
    )
    assert turn.hold is not None
    assert (turn.hold.at, turn.hold.resource, turn.hold.short, turn.hold.has) == (
        *("a/x", "cpu"),
        *(1000, 2000),
    )
    file, _, line = turn.hold.source.partition(":")
    assert (file, BY_LABEL.splitlines()[int(line) - 1].strip()[:12]) == (
        "fair.star",
        "return hold(",
    )


def test_a_held_pod_is_explained_whatever_nodes_there_are() -> None:
    """With more than one node that it fits on, it ended with an error."""
    tree = {"a/x": {"limit": {"cpu": 0}}}
    for count, fits in ((2, "fits on 2 of 2"), (0, "fits on none of 0")):
        got = explained_in_turn(of_queue("p", "a/x"), queues=tree, nodes=count)
        assert (got.outcome, got.policies, got.ranking) == ("held", (), ())
        assert fits in got.notes[-1]
    large = explained_in_turn(of_queue("p", "a/x", cpu="99"), queues=tree, nodes=2)
    assert (large.outcome, large.remedies[0].nodes) == ("held", 0)
    assert large.notes[-1] == "besides, it fits on none of 2 nodes as they are now"
    assert any(one.rejects for one in large.policies), "which is said, too"


def test_what_would_let_it_start_is_what_the_policy_says() -> None:
    """One limit is not enough where the queue above is full, too."""
    running = [of_queue(f"x{n}", "a/x", node="n") for n in range(2)]
    running.append(of_queue("y", "a/y", node="n"))
    got = explained_in_turn(of_queue("p", "a/x"), *running)
    first, second = got.remedies
    lines = tree_files(BY_LABEL, queues=TREE)["tree.yaml"].split("\n")
    at = {name.strip(" :"): 2 + number for number, name in enumerate(lines)}
    assert first.text == (
        f"raise `limit` of queue `a/x` to 3 cpu (tree.yaml:{at['a/x']}) and "
        f"raise `limit` of queue `a` to 4 cpu (tree.yaml:{at['a']})"
    )
    assert second.text == "1 cpu less in use by queue `a/x`"
    assert (first.nodes, second.nodes) == (1, 1)
    raised = TREE | {"a": {"limit": {"cpu": 4}}, "a/x": {"limit": {"cpu": 3}}}
    assert explained_in_turn(of_queue("p", "a/x"), *running, queues=raised).outcome == "placed"


def test_who_has_what_the_pod_lacks_is_named() -> None:
    running = [of_queue(f"y{n}", "a/y", node="n") for n in range(3)]
    got = explained_in_turn(of_queue("p", "a/x"), *running)
    assert got.turn is not None
    assert got.turn.hold is not None
    assert (got.turn.hold.at, got.turn.hold.has) == ("a", 3000)
    assert [(one.queue, one.allocated) for one in got.turn.hold.holders] == [("a/y", 3000)]


def test_a_policy_that_cannot_say_is_at_fault_and_no_node() -> None:
    failing = BY_LABEL.replace(
        "    for q in path:\n        short", "    fail('no')\n    for q in path:\n        short"
    )
    got = explained_in_turn(of_queue("p", "a/x"), policy=failing)
    assert got.outcome == "failed"
    assert "no" in got.message
    assert got.turn is not None
    assert got.turn.hold is not None
    assert (got.turn.hold.has_failed, got.turn.hold.source, got.remedies) == (True, "", ())


def test_a_queue_that_is_not_there_is_said() -> None:
    got = explained_in_turn(of_queue("p", "nowhere"))
    assert (got.outcome, got.reason) == ("held", "QueueMissing")
    assert got.turn is not None
    assert (got.turn.queue, got.turn.is_there, got.turn.levels) == ("nowhere", False, ())


def test_who_gives_back_for_a_pod_that_is_held_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lent = {"top": {"quota": {"cpu": 2}}, "top/a": {"quota": {"cpu": 1}}}
    lent |= {"top/b": {"quota": {"cpu": 1}}}
    policy = LENT.replace('pod.labels.get("queue")', '"top/" + pod.labels.get("queue", "")')
    running = [of_queue(f"a{n}", "a", node="n") for n in range(2)]
    got = explained_in_turn(of_queue("p", "b"), *running, policy=policy, queues=lent)
    assert (got.outcome, got.reason) == ("held", "HeldByQueue")
    assert got.preemption is not None
    assert (got.preemption.outcome, got.preemption.node) == ("would_evict", "n")
    (victim,) = got.preemption.victims
    assert victim.pod in ("default/a0", "default/a1")
    assert (victim.queue, victim.why) == ("top/a", "queue `top/a` gives it back to `top/b`")
    file, _, line = got.preemption.rule.partition(":")
    assert (file, policy.splitlines()[int(line) - 1][:11]) == ("fair.star", "def reclaim")
    assert "older than `minRuntime`" in got.notes[-1]
    print_answer(got, 1)
    assert f"Reclaim would evict {victim.pod} of queue `top/a` on n" in capsys.readouterr().out
    # It has more than its own already.
    mine = explained_in_turn(of_queue("p", "a"), *running, policy=policy, queues=lent)
    assert mine.outcome == "held"
    assert mine.preemption is not None
    assert (mine.preemption.outcome, mine.preemption.victims) == ("cannot_help", ())
    (why,) = mine.preemption.why_not
    assert why.reason == (
        "queues give nothing back: no pod is a candidate, "
        "2 pods of its own queue that are not less important"
    )
    print_answer(mine, 1)
    assert why.reason in " ".join(capsys.readouterr().out.split())


def test_who_gives_back_for_a_pod_that_fits_nowhere_is_said() -> None:
    running = [of_queue(f"b{n}", "b", cpu="4", node="n") for n in range(4)]
    queues: dict[str, Any] = {"a": {}, "b": {}}
    nowhere = SHARED.replace("def admit", "def _admit")
    got = explained_in_turn(of_queue("p", "a"), *running, policy=nowhere, queues=queues)
    assert got.outcome == "unschedulable"
    assert got.preemption is not None
    assert (got.preemption.outcome, len(got.preemption.victims)) == ("would_evict", 1)
    none = nowhere.replace("return 0 if over_share and", "return 0 if not over_share and")
    got = explained_in_turn(of_queue("p", "a"), *running, policy=none, queues=queues)
    assert got.preemption is not None
    assert got.preemption.outcome == "cannot_help"
    assert got.preemption.why_not[-1].reason == (
        "queues give nothing back: of 4 candidates `reclaim` lets none go"
    )


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("policy", [SHARED, SHARED.replace("def admit", "def _admit")])
def test_who_gives_back_for_a_group_is_said_of_each_of_its_pods(
    policy: str, free: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of one that would fit by itself."""
    running = [of_queue(f"b{n}", "b", cpu="4", node="n") for n in range(4 - free)]
    gang = [of_queue(f"g{n}", "a", cpu="4") for n in range(3)]
    for one in gang:
        one["metadata"]["labels"] |= {"group": "g", "min": "3"}
    queues: dict[str, Any] = {"a": {"weight": 3}, "b": {}}
    given: dict[str, Any] = {"policy": policy, "queues": queues, "config": CONFIG}
    got = explained_in_turn(gang[0], *gang[1:], *running, **given)
    assert got.preemption is not None
    assert (got.preemption.outcome, got.preemption.pods) == ("would_evict", 3)
    assert len(got.preemption.victims) == 3 - free
    assert {one.queue for one in got.preemption.victims} == {"b"}
    print_answer(got, 1)
    assert "for its group of 3 pods" in " ".join(capsys.readouterr().out.split())


def test_nothing_is_said_of_giving_back_where_a_whole_group_fits() -> None:
    gang = [of_queue(f"g{n}", "a") for n in range(3)]
    for one in gang:
        one["metadata"]["labels"] |= {"group": "g", "min": "3"}
    running = [of_queue("b0", "b", node="n")]
    got = explained_in_turn(
        *gang, *running, policy=SHARED, queues={"a": {}, "b": {}}, config=CONFIG
    )
    assert (got.outcome, got.preemption) == ("placed", None)


def test_a_pod_behind_others_that_may_start_says_at_which_place() -> None:
    waiting = [of_queue(f"x{n}", "a/x") for n in range(2)]
    for number, one in enumerate(waiting):
        one["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
    got = explained_in_turn(of_queue("p", "a/x"), *waiting)
    assert got.outcome == "placed"
    assert got.turn is not None
    assert (got.turn.place, got.turn.pods, got.turn.hold) == (3, 3, None)
    assert [(one.queue, one.place, one.rivals) for one in got.turn.levels] == [
        ("a/x", 1, 1),
        ("a", 1, 1),
    ]


def test_a_pod_in_no_queue_has_no_turn() -> None:
    bundle = build_bundle(tree_files(BY_LABEL, queues=TREE))
    assert explained([node("n")], pod("p"), bundle=bundle).turn is None
    assert explained([node("n")], pod("p")).turn is None
