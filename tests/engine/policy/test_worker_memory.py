"""What a worker keeps of the pods that it was asked about."""

import json
import tracemalloc

import pytest

from engine.policy.evaluator import InProcessEvaluator
from engine.policy.sandbox.protocol import Call
from tests.engine.policy.programs import program_of

_TEXT = "def score(pod, node): return 1 if node.name in pod.labels else 0\n"


@pytest.mark.slow("compares much")
def test_large_pods_are_not_kept_by_a_worker_for_ever() -> None:
    """Two thousand were, decoded, for each hook: a tenth of them is more than it may take."""
    nodes = [json.dumps({"name": "n"}).encode()]
    worker = InProcessEvaluator(program_of(_TEXT + "def normalize(score, over): return 0\n"))
    tracemalloc.start()
    try:
        for number in range(150):
            labels = {f"label-{number}-{i}": "x" * 20 for i in range(1_000)}
            pod = json.dumps({"labels": labels}).encode()
            assert worker.evaluate([Call(0, "score", pod, nodes)]) == [[0]]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 6 << 20
