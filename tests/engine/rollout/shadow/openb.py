"""The pods of the openb trace, decided by two texts side by side, and policies in other words."""

import ast
import re
from collections.abc import Callable, Mapping
from typing import Final

from devkit.benchmarks.openb import read_trace
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.policy.shipped import KUBERNETES, shipped_files
from engine.rollout.measures import ShadowMeasures
from tests.engine.rollout.shadow.watched import WatchedWorld

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
#: Chooses otherwise for pods with a label that one pod has.
ODD_TASTE: Final = TASTE.replace(
    "    return 10",
    '    if pod.labels.get("odd"):\n        return 100 - len(node.name)\n    return 10',
)
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


def decided(
    candidate: Mapping[str, str],
    decisions: int,
    odd: int = -1,
    progress: Callable[[int], None] = lambda done: None,
) -> ShadowMeasures:
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
        progress(number + 1)
    return world.shadow.measures
