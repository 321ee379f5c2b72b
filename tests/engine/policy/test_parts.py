"""Large batches: cut into parts, views of nodes kept, and nothing of that is to be seen."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.evaluator import (
    Call,
    Evaluator,
    InProcessEvaluator,
    Limits,
    PolicyFailure,
    program_image,
)
from engine.policy.sandbox.node_views import NodeViews
from engine.policy.sandbox.parts import MAX_EXHAUSTED, split
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.protocol import MAX_REASONS, MIB
from engine.policy.sandbox.worker import PolicyWorker
from tests.engine.policy.programs import named, per_node, program_of
from tests.searching import examples

POLICY = """
def helper(node):
    return node.pod_count % 7

def filter(pod, node):
    labels = node.labels
    if pod.labels.get("mode") == "changes" and node.pod_count % 5 == 0:
        labels["x"] = "y"
        return "changed" if labels["x"] == "y" else None
    if pod.labels.get("mode") == "hashes" and node.pod_count % 3 == 0:
        return str({labels: 1})
    if pod.labels.get("mode") == "fails" and node.pod_count % 11 == 0:
        return labels["missing"]
    if pod.labels.get("mode") == "names" and node.pod_count % 45 == 0:
        return "no room on " + node.name
    if pod.labels.get("mode") == "wrong" and node.pod_count % 13 == 0:
        return 7
    if helper(node) == 0:
        return ["was seventh", "was odd" if node.pod_count % 2 else "was even"]
    return unresolvable("was third") if helper(node) == 3 else None

def score(pod, node):
    if node.pod_count == 50 and pod.labels.get("mode") == "fails":
        return "fifty"
    return None if helper(node) == 5 else node.pod_count % 101

def score_all(pod, nodes):
    most = max([node.pod_count for node in nodes])
    return [100 * node.pod_count // most for node in nodes]
"""


def _node(number: int) -> dict[str, Any]:
    return {"name": f"node-{number}", "labels": {"l": f"v{number}"}, "pod_count": number}


@pytest.fixture(scope="module", params=["in process", "sandbox"])
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    program = program_of(POLICY)
    made: Evaluator
    if request.param == "in process":
        made = InProcessEvaluator(program)
    else:
        made = SandboxEvaluator(program)
        made.wait_until_ready()
    yield made
    made.close()


@pytest.mark.parametrize("mode", ["", "changes", "hashes", "fails", "names", "wrong"])
@pytest.mark.parametrize("hook", ["filter", "score"])
def test_a_large_batch_is_answered_as_its_entries_alone(
    evaluator: Evaluator, hook: str, mode: str
) -> None:
    nodes = [_node(number) for number in range(1, 1500)]
    pod = {"labels": {"mode": mode}}
    alone = evaluator.evaluate([per_node(hook, node, pod=pod) for node in nodes])
    want = [verdict for (verdict,) in alone]
    for _ in range(2):  # the second time, views are kept
        (got,) = evaluator.evaluate([per_node(hook, *nodes, pod=pod)])
        assert got == want
    assert any(verdict is not None for verdict in want)
    # A node comes and one goes: the others are found as they were.
    fewer = [*nodes[:700], _node(9999), *nodes[701:]]
    (got,) = evaluator.evaluate([per_node(hook, *fewer, pod=pod)])
    assert list(got[:700]) + list(got[701:]) == list(want[:700]) + list(want[701:])


def test_score_all_sees_the_nodes_of_all_parts(evaluator: Evaluator) -> None:
    nodes = [_node(number) for number in range(1, 1200)]
    for _ in range(2):
        ((scores,),) = evaluator.evaluate([per_node("score_all", *nodes, pod={"labels": {}})])
        assert scores == [100 * node["pod_count"] // 1199 for node in nodes]


def test_reasons_that_vary_fail_over_all_parts_as_within_one() -> None:
    text = 'def filter(pod, node): return "reason %d" % (node.pod_count // 10)\n'
    nodes = [{"pod_count": number} for number in range(1300)]
    for made in (InProcessEvaluator, SandboxEvaluator):
        evaluator = made(program_of(text))
        (got,) = evaluator.evaluate([per_node("filter", *nodes)])
        evaluator.close()
        known = 10 * MAX_REASONS
        assert all(verdict == ["r", [f"reason {n // 10}"]] for n, verdict in enumerate(got[:known]))
        for failure in got[known:]:
            assert isinstance(failure, PolicyFailure)
            assert "more than 64 different reasons" in failure.message


def test_after_a_few_that_never_end_the_others_of_a_large_batch_are_not_tried() -> None:
    text = """
def filter(pod, node):
    if node.name.startswith("slow"):
        for i in range(1 << 30):
            pass
    return None
"""
    names = [f"n{n}" if n % 400 else f"slow{n}" for n in range(1, 2401)]
    limits = Limits(steps=20_000, deadline=30.0)
    for made in (InProcessEvaluator, SandboxEvaluator):
        evaluator = made(program_of(text, limits=limits))
        (got,) = evaluator.evaluate([per_node("filter", *named(*names))])
        evaluator.close()
        kinds = [v.kind if isinstance(v, PolicyFailure) else v for v in got]
        last = 400 * MAX_EXHAUSTED - 1
        assert kinds[: last + 1].count("steps") == MAX_EXHAUSTED
        assert kinds[: last + 1].count(None) == last + 1 - MAX_EXHAUSTED
        assert set(kinds[last + 1 :]) == {"deadline"}


# --- where batches are cut ---------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(st.integers(0, 4000), st.integers(0, 5), st.data())
def test_parts_are_the_entries_and_stay_where_they_are(
    count: int, salt: int, data: st.DataObject
) -> None:
    entries = [f'{{"n":{salt},"i":{i}}}'.encode() for i in range(count)]
    parts = split(entries)
    assert [entry for part in parts for entry in part] == entries
    assert all(split(part) == [part] for part in parts if part)
    if count > 1000:
        gone = data.draw(st.integers(0, count - 1))
        again = split(entries[:gone] + entries[gone + 1 :])
        known = {tuple(part) for part in parts}
        assert sum(tuple(part) not in known for part in again) <= 6


def test_what_is_kept_of_nodes_is_bounded() -> None:
    program = program_of(POLICY, limits=Limits(address_space=36 * MIB))
    worker = PolicyWorker(program_image(program), translates=False)
    views: NodeViews = worker._node_views
    for turn in range(12):
        nodes = [
            json.dumps({**_node(turn * 10_000 + n), "labels": {"l": "x" * 400}}).encode()
            for n in range(500)
        ]
        worker.evaluate(Call(0, "score", b'{"labels":{}}', nodes))
        assert views.size <= MIB + 500 * 500
    assert views.size > MIB // 2
    assert len(views._bound) <= len(views._nodes) + 1
