"""Two sets of policies on a finite set of pods and nodes: equivalent, implied, or a small example.

Each difference is one that checks and tests of the policy's author would not find.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.comparing.population import PolicySet
from engine.files.cluster_file import Cluster
from engine.policy.bundle import build_bundle
from workbench.plan.equivalence import Equivalence, compare
from workbench.simulation.workload import Arrival, Workload, read_workload

CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    queueSort: {enabled: [{name: mine}], disabled: [{name: "*"}]}
    multiPoint: {enabled: [{name: mine, weight: 9}]}
"""
WITHOUT_QUEUE = "\n".join(line for line in CONFIG.splitlines() if "queueSort" not in line)

Plain = dict[str, Any]
OPENB = Path(__file__).resolve().parents[2] / "data" / "openb"


def node(name: str, cpu: str = "4", **labels: str) -> Plain:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": "a", **labels}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }


def pod(name: str, cpu: str = "1", on: str = "", priority: int = 0, **labels: str) -> Plain:
    requests = {"cpu": cpu, "memory": "64Mi"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            "priority": priority,
            "tolerations": [{"key": "a", "operator": "Exists"}],
            **({"nodeName": on} if on else {}),
        },
    }


def workload(nodes: list[Plain], pods: list[Plain]) -> Workload:
    cluster = Cluster(nodes=nodes, pods=pods)
    coming = [Arrival(0.0, cluster.pod_of(one)) for one in cluster.pending_pods()]
    cluster.pods = [*cluster.placed_pods()]
    return Workload(cluster, coming)


NODES = [node("n1"), node("n2", "8", disk="ssd"), node("n3", "16", disk="ssd", zone="b")]
PODS = [
    pod("web-1", team="web"),
    pod("web-2", "2", team="web"),
    pod("batch-1", "2", team="batch"),
    pod("batch-2", "2", team="batch"),
    pod("old", team="web", on="n1"),
]


def compared(
    first: str,
    second: str,
    nodes: list[Plain] = NODES,
    pods: list[Plain] = PODS,
    config: str = WITHOUT_QUEUE,
) -> Equivalence:
    def made(text: str) -> PolicySet:
        return PolicySet(build_bundle({"mine.star": text, "config.yaml": config}))

    with made(first) as one, made(second) as other:
        return compare((one, other), workload(nodes, pods).population())


FILTER = """
def filter(pod, node):
    if pod.labels.get("team") == "batch" and node.labels.get("disk") == "ssd":
        return "batch stays off ssd"
    return None
"""
REFACTORED = """
_WHY = "batch stays off ssd"

def _is(labels, key, value):
    return labels.get(key, "") == value

def filter(pod, node):
    is_off = _is(node.labels, "disk", "ssd") and _is(pod.labels, "team", "batch")
    return _WHY if is_off else None
"""
SCORE = "def score(pod, node):\n    return node.allocatable.get('cpu', 0) // 1000\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(FILTER, FILTER, id="the same text"),
        pytest.param(FILTER, REFACTORED, id="a refactored filter"),
        pytest.param(SCORE, SCORE.replace("1000", "500"), id="other totals, the same order"),
    ],
)
def test_equivalent_texts_are_equivalent(first: str, second: str) -> None:
    found = compared(first, second)
    assert found.relation == "equivalent"
    assert found.counterexample is None
    assert not found.differing
    assert found.first_implies_second
    assert found.second_implies_first
    # The two batch pods are alike.
    assert (found.pods, found.skipped, found.nodes) == (5, 0, 3)


def test_pods_that_no_policy_can_tell_apart_are_one_class() -> None:
    found = compared(FILTER, REFACTORED, pods=[pod(f"p{i}", team="web") for i in range(9)])
    assert (found.classes, found.pods) == (1, 9)


def test_a_filter_that_is_stricter_for_one_class_gives_that_class_alone() -> None:
    stricter = FILTER.replace(
        "    return None", '    return "no web" if pod.labels.get("team") == "web" else None'
    )
    found = compared(FILTER, stricter)
    assert found.relation == "implies"
    assert found.first_implies_second
    assert not found.second_implies_first
    assert found.differing == {"verdict": 3}  # `old`, too, as if it came now
    example = found.counterexample
    assert example is not None
    assert example.kind == "verdict"
    assert example.first == "accepts `n1`"
    assert (example.second, example.second_policy) == ("rejects `n1`: no web", "mine")
    assert example.second_source == "mine.star:5"
    # Of the smallest manifest that is rejected. Without `pods` of the node, both would reject it.
    assert example.pod == {
        "kind": "Pod",
        "metadata": {"name": "old", "namespace": "default", "labels": {"team": "web"}},
    }
    assert example.nodes == [
        {
            "kind": "Node",
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"pods": "110"}},
        }
    ]
    assert example.pods == example.objects == []


def test_the_other_way_round_the_implication_is_the_other_one() -> None:
    none = "def filter(pod, node):\n    return None\n"
    found = compared(FILTER, none)
    assert found.relation == "implies"
    assert not found.first_implies_second
    assert found.second_implies_first


def test_neither_implies_the_other() -> None:
    found = compared(FILTER, FILTER.replace("batch", "web"))
    assert found.relation == "differs"
    assert not found.first_implies_second
    assert not found.second_implies_first


def test_a_score_with_the_wrong_sign_swaps_two_nodes() -> None:
    wrong = "def score(pod, node):\n    return 100 - node.allocatable.get('cpu', 0) // 1000\n"
    found = compared(SCORE, wrong)
    assert found.relation == "differs"
    assert found.first_implies_second
    assert found.second_implies_first
    example = found.counterexample
    assert example is not None
    assert example.kind == "scores"
    names = [one["metadata"]["name"] for one in example.nodes]
    assert len(names) == 2
    assert f"`{names[0]}`" in example.first + example.second
    assert (example.first_policy, example.second_policy) == ("mine", "mine")
    assert "`mine`" in example.second


def test_a_mistake_that_no_pod_of_the_snapshot_meets_is_equivalent_on_it() -> None:
    """The answer is about this snapshot, and the command says so."""
    wrong = FILTER.replace(
        "    return None", '    return "no" if pod.labels.get("team") == "gpu" else None'
    )
    assert compared(FILTER, wrong).relation == "equivalent"
    met = compared(FILTER, wrong, pods=[*PODS, pod("g", team="gpu")])
    assert met.relation == "implies"
    assert met.counterexample is not None
    assert met.counterexample.of == "default/g"


def test_full_nodes_hide_nothing() -> None:
    wrong = FILTER.replace(
        "    return None", '    return "no" if pod.labels.get("team") == "web" else None'
    )
    full = [pod("f1", "4", on="n1", team="x")]
    found = compared(FILTER, wrong, [node("n1")], [*full, pod("w", team="web")])
    assert found.relation == "implies"
    assert found.counterexample is not None
    assert found.counterexample.pods == []


def test_a_difference_over_other_pods_has_them_in_the_example() -> None:
    counted = """
def counters(pod):
    team = {"team": pod.labels.get("team", "")}
    return [count_pods(topology = "zone", labels = team, namespaces = [pod.namespace])]

def filter(pod, node, counts):
    return "too many" if (counts[0].here or 0) > %d else None
"""
    pods = [pod("a", team="x", on="n1"), pod("b", team="x", on="n1"), pod("c", team="x", on="n2")]
    found = compared(counted % 2, counted % 3, pods=[*pods, pod("d", "3", team="x")])
    assert not found.first_implies_second
    assert found.second_implies_first
    example = found.counterexample
    assert example is not None
    assert len(example.pods) == 3
    assert all(one["metadata"]["labels"] == {"team": "x"} for one in example.pods)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        pytest.param(
            "gate",
            "def pre_enqueue(pod):\n    return None\n",
            "def pre_enqueue(pod):\n    return 'closed' if pod.labels['team'] == 'web' else None\n",
            id="a gate",
        ),
        pytest.param(
            "permit",
            "def permit(pod, group):\n    return None\n",
            "def permit(pod, group):\n    return wait(9, 'later')\n",
            id="approval",
        ),
        pytest.param(
            "tie",
            "def tie_key(pod, node):\n    return node.allocatable.get('memory', 0)\n",
            "def tie_key(pod, node):\n    return node.labels.get('disk', 'z')\n",
            id="a tie",
        ),
        pytest.param(
            "annotations",
            "def annotate(pod, node):\n    return {'a': 'b'}\n",
            "def annotate(pod, node):\n    return {'a': 'c'}\n",
            id="annotations",
        ),
        pytest.param(
            "other_reason",
            FILTER,
            FILTER.replace("batch stays", "batch pods stay"),
            id="a reason",
        ),
        pytest.param(
            "other_reason",
            FILTER,
            FILTER.replace('"batch stays off ssd"', 'unresolvable("batch stays off ssd")'),
            id="whether evicting pods can help",
        ),
        pytest.param(
            "failed",
            FILTER,
            FILTER.replace("    return None", "    return None if pod.requests['cpu'] else 1 // 0"),
            id="a failure",
        ),
    ],
)
def test_every_answer_is_compared(kind: str, first: str, second: str) -> None:
    pods = [*PODS, pod("idle", "0", team="none")]
    # Nodes alike in what the built-in scores look at, so that they are equally good.
    nodes = [node("n1"), node("n2", disk="ssd")] if kind == "tie" else NODES
    found = compared(first, second, nodes, pods)
    assert found.relation != "equivalent"
    assert found.counterexample is not None
    assert found.counterexample.kind == kind
    assert found.counterexample.second != found.counterexample.first


@pytest.mark.parametrize(
    ("kind", "wanted", "size"),
    [
        pytest.param("gate", "group.pod_count < 3", 2, id="a gate that never opens"),
        pytest.param("permit", "group.waiting + group.placed < 3", 2, id="a group never whole"),
    ],
)
def test_groups_have_the_size_that_they_have_in_the_input(
    kind: str, wanted: str, size: int
) -> None:
    hook = "def pre_enqueue" if kind == "gate" else "def permit"
    text = f"""
def group_of(pod):
    name = pod.labels.get("gang")
    return gang(name, min_count = 2) if name else None

{hook}(pod, group):
    return "too few" if group != None and {wanted} else None
"""
    fine = text.replace("< 3", "< 2")
    pods = [pod("solo"), *(pod(f"g{i}", gang="x") for i in range(size))]
    found = compared(fine, text, pods=pods)
    assert found.differing == {kind: size}
    assert found.counterexample is not None
    assert found.counterexample.pod["metadata"]["labels"] == {"gang": "x"}
    assert "too few" in found.counterexample.second
    # Of three, one more is there than both want.
    assert compared(fine, text, pods=[*pods, pod("g9", gang="x")]).relation == "equivalent"


def test_two_pods_show_that_the_queue_has_another_order() -> None:
    key = "def queue_key(pod):\n    return %s\n"
    pods = [pod(f"p{i}", priority=i, team="x") for i in range(4)]
    first, second = key % "-pod.priority", key % "(-pod.priority if pod.priority > 1 else 0)"
    found = compared(first, second, pods=pods, config=CONFIG)
    assert found.relation == "differs"
    assert found.differing == {"other_order": 2}
    example = found.counterexample
    assert example is not None
    assert example.first == "tries `default/p1` before `default/p0`"
    assert example.second == "tries `default/p1` level with `default/p0`"
    assert example.pod["spec"] == {"priority": 1}
    assert example.other is not None
    assert "spec" not in example.other
    assert example.nodes == []


def test_other_victims_are_a_difference() -> None:
    key = "def victim_key(pod):\n    return %s\n"
    nodes = [node("n1", "2")]
    pods = [pod("a", on="n1", keep="x"), pod("b", on="n1"), pod("urgent", priority=9)]
    found = compared(
        key % "0 if pod.labels.get('keep') else 1",
        key % "1 if pod.labels.get('keep') else 0",
        nodes,
        pods,
    )
    assert found.differing == {"other_victims": 1}
    assert found.counterexample is not None
    assert found.counterexample.first == "evicts `default/b` from `n1`"
    assert found.counterexample.second == "evicts `default/a` from `n1`"


def test_a_profile_that_only_one_set_has_is_the_gravest_difference() -> None:
    other = WITHOUT_QUEUE.replace("- plugins", "- schedulerName: mine\n  plugins")
    sets = [
        PolicySet(build_bundle({"mine.star": FILTER, "config.yaml": config}))
        for config in (WITHOUT_QUEUE, other)
    ]
    found = compare((sets[0], sets[1]), workload(NODES, PODS).population())
    assert found.counterexample is not None
    assert found.counterexample.kind == "without_profile"
    assert not found.second_implies_first or found.first_implies_second


def test_pods_of_other_schedulers_are_counted_and_not_asked_about() -> None:
    foreign = pod("foreign", team="web")
    foreign["spec"]["schedulerName"] = "another"
    found = compared(FILTER, FILTER, pods=[*PODS, foreign])
    assert (found.pods, found.skipped) == (5, 1)


_GPU = """
def filter(pod, node):
    if pod.requests.get("cpu", 0) > 64000 and "G2" in node.labels.get(%s, ""):
        return "too large for a G2"
    return None
"""
_MODEL = '"alibabacloud.com/gpu-card-model"'


@pytest.mark.slow("asks about a trace")
def test_on_a_trace_a_refactoring_is_equivalent_and_one_pod_is_found() -> None:
    trace = read_workload(
        OPENB / "openb_node_list_gpu_node.csv", OPENB / "openb_pod_list_default.csv"
    )
    moved = f"_MODEL = {_MODEL}\n\ndef _model(node):\n    return node.labels.get(_MODEL, '')\n"
    refactored = moved + (_GPU % _MODEL).replace(f'node.labels.get({_MODEL}, "")', "_model(node)")

    def asked(text: str) -> PolicySet:
        return PolicySet(build_bundle({"mine.star": text, "config.yaml": WITHOUT_QUEUE}))

    with asked(_GPU % _MODEL) as one, asked(refactored) as other:
        found = compare((one, other), trace.population())
    assert found.relation == "equivalent"
    assert (found.pods, found.nodes) == (8152, 1213)
    assert found.classes < 200
    assert found.shapes < 20
    # A policy that reads names makes a class of each pod.
    exception = 'def filter(pod, node):\n    return "no" if pod.name == %s else None\n'
    name = trace.arrivals[150].pod.name
    few = replace(trace, arrivals=trace.arrivals[:300])
    with (
        asked("def filter(pod, node):\n    return None\n") as one,
        asked(exception % f'"{name}"') as other,
    ):
        found = compare((one, other), few.population())
    assert (found.relation, found.classes, found.differing) == (
        "implies",
        300,
        {"verdict": 1},
    )
    assert found.counterexample is not None
    assert found.counterexample.pod["metadata"]["name"] == name
