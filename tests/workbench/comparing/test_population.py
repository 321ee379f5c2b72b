"""Which pods are one class, and which nodes one shape: exactly those that are read alike."""

import functools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.comparing.population import PolicySet, classes_of
from engine.policy.bundle import build_bundle
from tests.searching import examples
from tests.workbench.plan.test_equivalence import (
    CONFIG,
    WITHOUT_QUEUE,
    Plain,
    node,
    pod,
    workload,
)
from workbench.comparing.policy_differences import Compared, compare_pod
from workbench.comparing.population import queue_classes_of, shape_count, snapshots_of

# Without those that read all labels of pods.
_WITHOUT = ", ".join(
    f"{{name: {name}}}" for name in ("PodTopologySpread", "InterPodAffinity", "GangScheduling")
)
ALONE, ALONE_IN_QUEUE = (
    one.replace("multiPoint: {", f"multiPoint: {{disabled: [{_WITHOUT}], ")
    for one in (WITHOUT_QUEUE, CONFIG)
)


def made(text: str, config: str = ALONE) -> PolicySet:
    return PolicySet(build_bundle({"mine.star": text, "config.yaml": config}))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("def filter(pod, node):\n    return None\n", 1, id="nothing more"),
        pytest.param(
            "def filter(pod, node):\n    return 'no' if pod.name == 'x' else None\n", 3, id="names"
        ),
        pytest.param(
            "def permit(pod, group):\n    return pod.labels.get('n', '') and None\n",
            2,
            id="a label",
        ),
        pytest.param(
            "def tie_key(pod, node):\n    return pod.annotations.get('n', '')\n",
            1,
            id="what none has",
        ),
    ],
)
def test_pods_are_alike_if_every_hook_reads_them_alike(text: str, want: int) -> None:
    pods = [pod("a", n="1"), pod("b", n="1"), pod("c", n="2")]
    found = workload([node("n1")], pods).population()
    with made(text) as one:
        snapshots = snapshots_of(found.cluster, [one], found.pods)
        classes = classes_of(found.pods, [one], snapshots)
    assert len(classes) == want
    assert sum(alike.count for alike in classes) == 3


def test_what_only_the_queue_reads_makes_no_classes_but_those_of_the_queue() -> None:
    text = "def queue_key(pod):\n    return pod.name\n"
    found = workload([node("n1")], [pod("a"), pod("b")]).population()
    with made(text, ALONE_IN_QUEUE) as one:
        snapshots = snapshots_of(found.cluster, [one], found.pods)
        assert len(classes_of(found.pods, [one], snapshots)) == 1
        assert len(queue_classes_of(found.pods, [one], snapshots)) == 2


def test_a_pod_with_claims_is_alike_to_no_other() -> None:
    def claiming(name: str) -> Plain:
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"{name}-data"}}
        one = pod(name)
        return {**one, "spec": {**one["spec"], "volumes": [claim]}}

    pods = [pod("a"), pod("b"), claiming("c"), claiming("d")]
    found = workload([node("n1")], pods).population()
    with made("def filter(pod, node):\n    return None\n") as one:
        snapshots = snapshots_of(found.cluster, [one], found.pods)
        assert [alike.count for alike in classes_of(found.pods, [one], snapshots)] == [2, 1, 1]


def test_nodes_that_differ_in_their_names_alone_have_one_shape() -> None:
    nodes = [node(name, **{"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
    found = workload([*nodes, node("n3", disk="ssd")], [pod("a")]).population()
    with made("def filter(pod, node):\n    return None\n") as one:
        assert shape_count([one], snapshots_of(found.cluster, [one], found.pods)) == 2


def test_pods_are_asked_about_as_if_they_came_now() -> None:
    nominated = pod("b")
    nominated["status"] = {"nominatedNodeName": "n1"}
    found = workload([node("n1")], [pod("a", on="n1"), nominated]).population()
    assert [one.key for one in found.pods] == ["default/a", "default/b"]
    assert not any(one.node_name or one.nominated_node_name for one in found.pods)
    empty, as_it_is = found.states()
    assert (len(empty.pods), len(as_it_is.pods)) == (0, 1)


_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))
_CONDITIONS = (
    "pod.labels.get('a') == 'x'",
    "pod.labels.get('b') == node.labels.get('b')",
    "pod.requests.get('cpu', 0) > 1500",
    "len(pod.labels) > 1",
)


@functools.cache
def filtering(condition: str) -> PolicySet:
    return made(f"def filter(pod, node):\n    return 'no' if {condition} else None\n")


def _answer(found: Compared) -> str:
    return re.sub(r"pod='[^']*'", "", repr(found))


@settings(max_examples=examples(25))
@given(
    st.lists(st.tuples(_LABELS, st.sampled_from("12")), min_size=1, max_size=6),
    st.lists(_LABELS, min_size=1, max_size=3),
    st.sampled_from(_CONDITIONS),
    st.sampled_from(_CONDITIONS),
)
def test_one_pod_of_a_class_stands_for_all(
    pods: list[tuple[dict[str, str], str]], labels: list[dict[str, str]], one: str, other: str
) -> None:
    coming = [pod(f"p{i}", cpu, "", 0, **own) for i, (own, cpu) in enumerate(pods)]
    found = workload([node(f"n{i}", **one) for i, one in enumerate(labels)], coming).population()
    pair = (filtering(one), filtering(other))
    snapshots = snapshots_of(found.cluster, pair, found.pods)
    of_classes = [
        compare_pod(pair, alike.example, snapshots)
        for alike in classes_of(found.pods, pair, snapshots)
        for _ in range(alike.count)
    ]
    of_pods = [compare_pod(pair, each, snapshots) for each in found.pods]
    # Without annotations, an answer says nothing of which pod it is.
    assert sorted(map(_answer, of_classes)) == sorted(map(_answer, of_pods))
