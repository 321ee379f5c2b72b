"""A plan says what an edit does to the queues of a tree, and to pods that these hold."""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from rich.console import Console

from engine.files.cluster_file import Cluster
from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator
from engine.rollout.vanishing import vanishing_queues
from tests.engine.core.kernel.queue_world import FAIR, tree_files
from tests.engine.core.kernel.test_reclaims import LENT, SHARED
from tests.engine.core.kernel.test_turn_queue import DRF
from workbench.cli.queue_plan_text import print_queue_changes
from workbench.comparing.kinds import NEWLY_GATED, NEWLY_UNGATED
from workbench.plan.new_pods import new_pods
from workbench.plan.plan import Comparison, EditedFiles, Planner
from workbench.plan.what_if import Decider, Scene

Files = Mapping[str, str]
Plan = Callable[[Files, Files], Comparison]

#: By weight, in turns, and no queue has more than its share.
BY_SHARE = FAIR.replace('"entry", "plus"', '"dominant", "entry", "over", "plus"') + DRF[
    DRF.index("def turn_key") :
].replace("q.limit", "q.share").replace("for q in path:", "for q in path[:1]:")


def _pod(name: str, queue: str, node: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    metadata = {"name": name, "namespace": "a", "uid": name, "labels": {"queue": queue}}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def plan() -> Iterator[Plan]:
    """Compares two texts on four cpu, of which `a` has two, with two more pods of each waiting."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}}
    pods = [_pod(f"a{n}", "a", "n" if n < 2 else "") for n in range(4)]
    pods += [_pod(f"b{n}", "b") for n in range(2)]
    cluster = Cluster(nodes=[node], pods=pods)
    with contextlib.ExitStack() as stack:

        def compared(before: Files, after: Files) -> Comparison:
            bundle = build_bundle(before)
            scene = Scene.of(cluster, bundle)

            def make(texts: Files, known: Decider | None = None) -> Decider | None:
                try:
                    made = build_bundle(texts)
                except PolicyErrors:
                    return None
                evaluator = InProcessEvaluator(made.program)
                stack.callback(evaluator.close)
                return Decider(made, evaluator, scene, known)

            first = make(before)
            assert first is not None
            planner = Planner(first, EditedFiles(before, after), make)
            waiting = [pod for pod in scene.pending if not pod.node_name]
            return planner.compare(waiting, [], waiting_count=len(waiting), running_count=0)

        yield compared


def _text(found: Comparison) -> list[str]:
    assert found.queues is not None
    console = Console(width=200, record=True, file=io.StringIO())
    print_queue_changes(console, found.queues, ("before", "after"))
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_other_weights_are_other_shares_and_other_pods_that_may_start(plan: Plan) -> None:
    before = tree_files(BY_SHARE, queues={"a": {"weight": 1}, "b": {"weight": 3}})
    after = tree_files(BY_SHARE, queues={"a": {"weight": 3}, "b": {"weight": 1}})
    found = plan(before, after)
    # Of four cpu, `a` wants four and `b` two.
    assert found.queues is not None
    a, b = found.queues.changes
    assert (a.queue, a.pods, a.share_before, a.share_after) == (
        "a",
        4,
        {"cpu": 2000},
        {"cpu": 3000},
    )
    assert (b.queue, b.share_before, b.share_after) == ("b", {"cpu": 2000}, {"cpu": 1000})
    ungated = [one for one in found.differences if one.kind == NEWLY_UNGATED]
    assert [one.pod for one in ungated] == ["a/a2", "a/a3"], "each alone has room now"
    assert found.queues.causes == ("tree.yaml",)
    file, _, line = found.queues.place.partition(":")
    assert "weight" in after[file].splitlines()[int(line) - 1]
    (first, *_) = ungated
    assert (first.causes, first.before.gate, first.hook) == (("tree.yaml",), "fair", "admit")
    assert first.place.startswith("tree.yaml:")
    assert "is at its limit" in first.why
    rows = _text(found)
    assert "a 4 2 cpu 3 cpu 2" in rows
    assert "caused by tree.yaml:6" in rows


def test_pods_that_would_stop_being_admitted_are_named(plan: Plan) -> None:
    before = tree_files(DRF, queues={"a": {}, "b": {}})
    after = tree_files(DRF, queues={"a": {"limit": {"cpu": 2}}, "b": {}})
    found = plan(before, after)
    gated = [one for one in found.differences if one.kind == NEWLY_GATED]
    assert [one.pod for one in gated] == ["a/a2", "a/a3"]
    assert {one.after.reason for one in gated} == {"QuotaReached"}
    assert gated[0].after.message == "queue `a`: is at its limit (short of 1 cpu at `a`)"
    assert found.queues is not None
    assert found.queues.changes == (), "whose turn it is did not change, nor did shares"


def test_an_edit_of_the_policy_is_its_cause(plan: Plan) -> None:
    tree: dict[str, Any] = {"queues": {"a": {}, "b": {}}}
    before = tree_files(DRF, **tree)
    after = tree_files(DRF.replace("queue.allocated, total", "{}, total"), **tree)
    after["more.star"] = '"""Not enabled."""\n\ndef score(pod, node):\n    return 1\n'
    found = plan(before, after)
    assert found.queues is not None
    assert (found.queues.reordered, found.queues.causes) == (2, ("fair.star",))
    line = int(found.queues.place.partition(":")[2])
    assert "return dominant({}" in after["fair.star"].splitlines()[line - 1]


def test_a_tree_that_is_edited_to_nothing_is_said_to_vanish(plan: Plan) -> None:
    before = tree_files(DRF, queues={"a": {"limit": {"cpu": 2}}, "b": {}, "c/d": {}})
    after = {"config.yaml": before["config.yaml"]}
    found = plan(before, after)
    assert found.queues is not None
    assert (found.queues.policy_before, found.queues.policy_after) == ("fair", "")
    assert (found.queues.vanished, [one.queue for one in found.queues.changes]) == (
        4,
        ["a", "b", "c", "c/d"],
    )
    assert "queues 4 queues vanish" in _text(found)
    assert [one.kind for one in found.differences if one.pod == "a/a2"] == [NEWLY_UNGATED]
    # And one that appears.
    back = plan(after, before)
    assert back.queues is not None
    assert (back.queues.appeared, back.queues.vanished) == (4, 0)


def test_without_trees_nothing_is_said_of_queues(plan: Plan) -> None:
    files = {"config.yaml": tree_files(DRF)["config.yaml"]}
    assert plan(files, files).queues is None
    same = tree_files(DRF, queues={"a": {}})
    found = plan(same, same)
    assert found.queues is not None
    assert found.queues.changes == ()
    assert _text(found) == ["queues the same shares and order"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"queues": {"a": {}, "b": {}}}, {"queues": {"a": {}, "b": {}, "c": {}}}, ""),
        ({"queues": {"a": {}, "b": {}}}, {"queues": {"a": {}}}, "1 queue vanishes: `b`"),
        (
            {"queues": {"a/x": {}, "b": {}}},
            {"queues": {"c": {}}},
            "3 queues vanish: `a`, `a/x`, `b`",
        ),
        ({"queues": {"a": {}, "b": {}}}, None, "2 queues vanish: there is no QueueTree any more"),
        ({"namespaces": {"label": "q"}}, None, "all queues vanish: there is no QueueTree"),
        ({"namespaces": {"label": "q"}}, {"queues": {"a": {}}}, "the queues vanish that objects"),
        ({"queues": {"a": {}}}, {"namespaces": {"label": "q"}}, ""),
        (None, {"queues": {"a": {}}}, ""),
    ],
)
def test_what_apply_asks_to_be_sure_about(
    before: dict[str, Any] | None, after: dict[str, Any] | None, said: str
) -> None:
    made = [
        build_bundle(
            tree_files(DRF, **tree) if tree else {"config.yaml": tree_files(DRF)["config.yaml"]}
        )
        for tree in (before, after)
    ]
    found = vanishing_queues(*made)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_new_pods_count_in_their_queues_one_after_the_other() -> None:
    """They were said to get nodes, whatever quota there is."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}}
    cluster = Cluster(nodes=[node], pods=[_pod("a0", "a", "n")])
    for policy, placed, why in (
        (DRF, 2, "is at its limit (short of 1 cpu at `a`)"),
        (BY_SHARE.replace("weight = 1,", "weight = 1, unused = 0,"), 3, ""),
    ):
        queues: dict[str, Any] = {"a": {"limit": {"cpu": 3}}, "b": {}}
        bundle = build_bundle(tree_files(policy, queues=queues))
        evaluator = InProcessEvaluator(bundle.program)
        made = [cluster.pod_of(_pod(f"new{n}", "a")) for n in range(4)]
        decider = Decider(bundle, evaluator, Scene.of(cluster, bundle, made))
        found = list(new_pods(decider, made))
        assert [bool(one.outcome.node) for one in found] == [n < placed for n in range(4)], policy
        assert why in found[-1].outcome.message
        assert decider.queues is not None
        decider.queues.kernel.shares.check_invariants()
        decider.queues.kernel.turns.check_invariants()
        evaluator.close()


def test_a_pod_for_which_another_queue_gives_back_says_who_would_go(plan: Plan) -> None:
    """It is held, but not for long: by the weights that are planned, `a` has too much."""
    before = tree_files(SHARED, queues={"a": {"weight": 3}, "b": {}})
    after = tree_files(SHARED, queues={"a": {}, "b": {"weight": 3}})
    # Of four cpu, `a` runs two and wants four, `b` wants two.
    found = plan(before, after)
    by_pod = {one.pod: one for one in found.differences}
    assert by_pod["a/a2"].kind == NEWLY_GATED, "its share is used up by then"
    assert by_pod["a/a2"].after.victims == ()
    lent = {"top": {"quota": {"cpu": 2}}, "top/a": {"quota": {"cpu": 2}}, "top/b": {}}
    given = lent | {"top/a": {"quota": {"cpu": 1}}, "top/b": {"quota": {"cpu": 1}}}
    by_path = LENT.replace('pod.labels.get("queue")', '"top/" + pod.labels.get("queue", "")')
    found = plan(tree_files(by_path, queues=lent), tree_files(by_path, queues=given))
    taken = [one for one in found.differences if one.after.victims]
    assert [one.pod for one in taken] == ["a/b0", "a/b1"], "each by itself"
    assert {one.kind for one in taken} == {NEWLY_UNGATED}
    (first, _) = taken
    assert first.after.victims in (("a/a0",), ("a/a1",))
    assert first.after.victims_on == "n"
    assert "1 pod(s) of others are evicted for it" in first.after.message
