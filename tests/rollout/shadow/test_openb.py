"""Real nodes and pods: the same policies in other words, and a text that differs for one pod."""

import ast
import re
from collections.abc import Mapping
from typing import Final

import pytest

from benchmarks.openb import read_trace
from engine.model.node import Node
from engine.model.pod import Pod
from engine.policy.shipped import KUBERNETES, shipped_files
from engine.rollout.measures import MOVED, ShadowMeasures
from tests.rollout.shadow.watched import WatchedWorld

CONFIG: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: taste, weight: 2}]
"""
TASTE: Final = '''
"""Prefers nodes whose GPUs are of a good year."""

_YEARS = {"G2": 3, "T4": 2, "P100": 1}

def filter(pod, node):
    if pod.labels.get("only") and node.name != pod.labels["only"]:
        return "not there"
    return None

def score(pod, node):
    model = node.labels.get("alibabacloud.com/gpu-card-model", "")
    return 10 * _YEARS.get(model, 0)
'''
BASE: Final = {"config.yaml": CONFIG, "taste.star": TASTE}
SLOW: Final = pytest.mark.slow("thousands of decisions, two or three times each")
#: Pods that are there at a time: more do not fit.
MOST_PODS: Final = 6_000


def in_other_words(text: str) -> str:
    """The same policy: no comments, other line breaks and quotes, other names of its functions."""
    text = ast.unparse(ast.parse(text))
    for name in sorted(set(re.findall(r"^def (_\w+)", text, re.MULTILINE))):
        text = re.sub(rf"\b{name}\b", f"{name}_again", text)
    return text


def rephrased() -> dict[str, str]:
    """All of kube-scheduler's policies that score, and that of the user."""
    shipped = {
        file.removeprefix(KUBERNETES): text
        for file, text in shipped_files().items()
        if file.startswith(KUBERNETES) and not file.endswith("_test.star")
    }
    chosen = {name: text for name, text in shipped.items() if "\ndef score" in text}
    return {name: in_other_words(text) for name, text in (chosen | {"taste.star": TASTE}).items()}


def decided(candidate: Mapping[str, str], decisions: int, odd: int = -1) -> ShadowMeasures:
    """What a shadow counts while pods of the trace come and go; that of number *odd* says so."""
    trace = read_trace()
    world = WatchedWorld(BASE, candidate)
    for manifest in trace.nodes:
        world.add_node(Node.from_plain(manifest))
    for number in range(decisions):
        manifest = trace.pods[number % len(trace.pods)]
        metadata = {**manifest["metadata"], "name": f"pod-{number}", "uid": f"uid-{number}"}
        if number == odd:
            metadata["labels"] = {**metadata["labels"], "odd": "yes"}
        world.add(Pod.from_plain({**manifest, "metadata": metadata}))
        world.turns(1)
        while world.bindings:
            world.end_binding(0, succeeds=True)
        if number >= MOST_PODS:
            world.delete(f"pod-{number - MOST_PODS}")
    return world.shadow.measures


def test_the_policies_of_this_test_are_rephrased() -> None:
    files = rephrased()
    assert {"taste.star", "node_resources_fit.star", "taint_toleration.star"} <= files.keys()
    world = WatchedWorld(BASE, BASE | files)
    builtin = {p.name for p in world.candidate.bundle.policies.values() if p.is_builtin}
    assert "NodeResourcesFit" not in builtin


@pytest.mark.parametrize(
    "decisions",
    [
        pytest.param(400, id="a few"),
        pytest.param(20_000, id="many", marks=[SLOW, pytest.mark.timeout(1_200)]),
    ],
)
def test_the_same_policies_in_other_words_make_no_difference(decisions: int) -> None:
    got = decided(BASE | rephrased(), decisions)
    assert got.counts == {}, got
    assert got.skipped == {}, got
    assert got.compared == got.decided >= decisions


@pytest.mark.parametrize(
    "decisions",
    [
        pytest.param(400, id="a few"),
        pytest.param(10_000, id="many", marks=[SLOW, pytest.mark.timeout(1_200)]),
    ],
)
def test_a_text_that_differs_for_one_pod_makes_exactly_that_difference(decisions: int) -> None:
    text = TASTE.replace(
        "    return 10",
        '    if pod.labels.get("odd"):\n        return 100 - len(node.name)\n    return 10',
    )
    got = decided(BASE | {"taste.star": text}, decisions, odd=decisions - 300)
    assert got.counts == {MOVED: 1}, got
    assert (got.compared, got.skipped) == (got.decided, {})
    (example,) = got.examples
    assert (example.pod, example.cause, example.place) == (
        f"openb/pod-{decisions - 300}",
        "taste",
        "taste.star:13",
    )
