"""Pods that no node accepts, even an empty one: which policy is to blame, and for which pods."""

import pytest

from engine.comparing.population import PolicySet
from engine.policy.bundle import build_bundle
from tests.workbench.plan.test_equivalence import WITHOUT_QUEUE, Plain, node, pod, workload
from workbench.comparing.acceptance import RejectedPods, rejected_pods

NODES = [node("n1"), node("n2", "8", disk="ssd")]
WEB = 'def filter(pod, node):\n    return "no web" if pod.labels.get("team") == "web" else None\n'


def rejected(text: str, pods: list[Plain], nodes: list[Plain] = NODES) -> list[RejectedPods]:
    with PolicySet(build_bundle({"mine.star": text, "config.yaml": WITHOUT_QUEUE})) as asked:
        return rejected_pods(asked, workload(nodes, pods).population())


def test_a_class_that_a_policy_keeps_off_every_node_is_found_with_its_line() -> None:
    pods = [pod("w1", team="web"), pod("w2", "2", team="web", app="x"), pod("b", team="batch")]
    (found,) = rejected(WEB, pods)
    # The two differ in much, but in nothing that matters here.
    assert (found.of, found.count, found.nodes) == ("default/w1", 2, 2)
    (by,) = found.by
    assert (by.policy, by.source, by.reason, by.nodes) == ("mine", "mine.star:2", "no web", 2)
    assert not by.is_builtin
    assert not found.is_hopeless
    assert found.pod["metadata"]["labels"] == {"team": "web"}
    assert "spec" not in found.pod


def test_full_nodes_reject_nothing_for_good() -> None:
    full = [pod("f1", "4", on="n1"), pod("f2", "8", on="n2")]
    assert rejected(WEB, [*full, pod("p", team="batch")]) == []


def test_a_pod_that_needs_others_near_it_is_accepted_if_they_are_there() -> None:
    text = """
def counters(pod):
    team = {"team": pod.labels.get("team", "")}
    return [count_pods(topology = "zone", labels = team, namespaces = [pod.namespace])]

def filter(pod, node, counts):
    return None if counts[0].here else "none of its team"
"""
    there = pod("a", team="x", on="n1")
    assert rejected(text, [there, pod("b", team="x")]) == []
    (found,) = rejected(text, [there, pod("c", team="y")])
    assert found.of == "default/c"


def test_a_pod_that_the_built_in_policies_leave_no_node_is_hopeless() -> None:
    (found,) = rejected(WEB, [pod("huge", "64")])
    assert found.is_hopeless
    assert [by.policy for by in found.by] == ["NodeResourcesFit"]
    # Not if a policy of the user alone would reject it everywhere.
    (found,) = rejected(WEB, [pod("huge", "64", team="web")])
    assert not found.is_hopeless
    assert [by.policy for by in found.by] == ["NodeResourcesFit", "mine"]


def test_policies_that_only_together_leave_no_node_are_all_named() -> None:
    text = 'def filter(pod, node):\n    return "no ssd" if "disk" in node.labels else None\n'
    (found,) = rejected(text, [pod("p", "6")])
    assert [(by.policy, by.nodes) for by in found.by] == [("NodeResourcesFit", 1), ("mine", 1)]
    assert not found.is_hopeless


def test_a_filter_that_fails_accepts_nothing() -> None:
    (found,) = rejected("def filter(pod, node):\n    return 1 // 0\n", [pod("p")])
    (by,) = found.by
    assert (by.policy, by.source) == ("mine", "mine.star:2")
    assert by.reason.startswith("`filter` fails: ")


@pytest.mark.parametrize("hook", ["only_nodes(['n9'])", "reject('never')", "unresolvable('never')"])
def test_a_pre_filter_rejects_everything_too(hook: str) -> None:
    (found,) = rejected(f"def pre_filter(pod):\n    return {hook}\n", [pod("p")])
    assert [(by.policy, by.nodes) for by in found.by] == [("mine", 2)]


@pytest.mark.parametrize(
    "hook",
    [
        "score(pod, node):\n    return fail(node.name)",
        "normalize(score, over):\n    return fail('no')\n\ndef score(pod, node):\n    return 1",
        "pre_score(pod):\n    return fail('no')\n\ndef score(pod, node):\n    return 1",
    ],
    ids=["score", "normalize", "pre_score"],
)
def test_a_hook_that_fails_after_the_filters_is_the_one_to_blame(hook: str) -> None:
    """`check --never-rejects-everything` ended in a traceback: no filter had rejected anything."""
    (one,) = rejected(f"def {hook}", [pod("a")])
    assert [by.policy for by in one.by] == ["mine"]
    assert "fail" in one.by[0].reason
