"""A plan: which pods are decided differently by another text, and by which rule of which file."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING, NEWLY_PLACED, OTHER_VICTIMS
from engine.files.cluster_file import Cluster
from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator
from workbench.comparing.kinds import NEWLY_GATED, NEWLY_UNGATED, OTHER_ORDER
from workbench.plan.plan import (
    Comparison,
    EditedFiles,
    Planner,
    kind_of,
    sample,
)
from workbench.plan.what_if import Decider, Outcome, Scene

Files = Mapping[str, str]

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [%s]}
"""
SCORE = (
    '"""Prefers a node."""\n\ndef score(pod, node):\n    return 100 if node.name == "%s" else 0\n'
)
FILTER = """
def filter(pod, node):
    return "not here" if node.name == "%s" else None
"""


def profile(*names: str) -> str:
    return PROFILE % ", ".join(f"{{name: {name}, weight: 100}}" for name in names)


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    room = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"},
        "spec": {"containers": [container], **spec},
    }


Compare = Callable[[Files, Files, list[dict[str, Any]]], Comparison]


def assert_is_json(found: Comparison) -> None:
    """A plan whose differences a filter caused ended in a traceback instead of JSON."""
    plain = msgspec.to_builtins(found)
    assert json.loads(msgspec.json.encode(plain)) == json.loads(json.dumps(plain))


@pytest.fixture
def compare() -> Iterator[Compare]:
    with contextlib.ExitStack() as stack:

        def decider(files: Files, scene: Scene, known: Decider | None) -> Decider:
            bundle = build_bundle(files)
            evaluator = InProcessEvaluator(bundle.program)
            stack.callback(evaluator.close)
            return Decider(bundle, evaluator, scene, known)

        def run(base: Files, after: Files, objects: list[dict[str, Any]]) -> Comparison:
            cluster = Cluster()
            for one in objects:
                cluster.add(one)
            scene = Scene.of(cluster, build_bundle(after))
            before = decider(base, scene, None)

            def make(files: Files, known: Decider) -> Decider | None:
                try:
                    return decider(files, scene, known)
                except PolicyErrors:
                    return None

            planner = Planner(before, EditedFiles(base, after), make)
            waiting = [cluster.pod_of(one, unplaced=False) for one in cluster.pending_pods()]
            running = [cluster.pod_of(one, unplaced=False) for one in cluster.placed_pods()]
            found = planner.compare(
                waiting, running, waiting_count=len(waiting), running_count=len(running)
            )
            assert_is_json(found)
            return found

        yield run


def test_equal_texts_make_no_difference(compare: Compare) -> None:
    base = {"s.star": SCORE % "a", "p.yaml": profile("s")}
    after = {**base, "s.star": SCORE % "a" + "\n# formatted\n"}
    found = compare(base, after, [node("a"), node("b"), pod("x"), pod("y", nodeName="b")])
    assert found.differences == ()
    assert found.measures.counts == {}
    assert (found.measures.compared_waiting, found.measures.compared_running) == (1, 1)


def test_a_pod_that_moves_is_caused_by_the_changed_line_of_the_score(compare: Compare) -> None:
    base = {"s.star": SCORE % "a", "p.yaml": profile("s")}
    found = compare(base, {**base, "s.star": SCORE % "b"}, [node("a"), node("b"), pod("x")])
    (one,) = found.differences
    assert (one.kind, one.before.node, one.after.node) == (MOVED, "a", "b")
    assert (one.causes, one.policy, one.place) == (("s.star",), "s", "s.star:4")
    assert one.why == "`s` prefers b by 10000 points; before, a by 10000 points"
    assert one.scores_before["s"] == one.scores_after["s"] == 10000


def test_of_two_edits_the_one_that_makes_the_difference_is_named(compare: Compare) -> None:
    base = {"s.star": SCORE % "a", "f.star": FILTER % "c", "p.yaml": profile("s", "f")}
    after = {**base, "s.star": SCORE % "a" + "# note\n", "f.star": FILTER % "a"}
    found = compare(base, after, [node("a"), node("b"), pod("x"), pod("y", nodeName="a")])
    assert [one.kind for one in found.differences] == [MOVED, MOVED]
    assert {one.causes for one in found.differences} == {("f.star",)}
    assert {one.place for one in found.differences} == {"f.star:3"}
    assert found.differences[0].why == "`f` rejects a: not here"
    assert found.measures.by_cause == {"f.star": 2}


def test_a_new_policy_and_the_profile_that_enables_it_are_one_cause(compare: Compare) -> None:
    base = {"s.star": SCORE % "a", "p.yaml": profile("s")}
    after = {**base, "f.star": FILTER % "a", "p.yaml": profile("s", "f")}
    (one,) = compare(base, after, [node("a"), pod("x")]).differences
    assert one.kind == NEWLY_PENDING
    assert one.causes == ("f.star", "p.yaml")
    assert one.place == "f.star:3"


def test_a_filter_that_is_given_up_places_a_pod(compare: Compare) -> None:
    base = {"f.star": FILTER % "a", "p.yaml": profile("f")}
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    after = {"p.yaml": head}
    (one,) = compare(base, after, [node("a"), pod("x")]).differences
    assert (one.kind, one.after.node) == (NEWLY_PLACED, "a")
    assert one.why == "`f` no longer rejects a: not here"
    # Without a profile that says otherwise, the policy would be enabled.
    assert (one.causes, one.place) == (("f.star", "p.yaml"), "f.star (removed)")


def test_a_running_pod_is_decided_without_itself(compare: Compare) -> None:
    """It fills its node: counted there, it would go nowhere under both, and no edit would show."""
    base = {"s.star": SCORE % "a", "p.yaml": profile("s")}
    objects = [node("a"), node("b", "1"), pod("full", "4", nodeName="a")]
    found = compare(base, {**base, "f.star": FILTER % "a", "p.yaml": profile("s", "f")}, objects)
    (one,) = found.differences
    assert (one.kind, one.is_running, one.runs_on) == (NEWLY_PENDING, True, "a")
    # And the node has it again.
    assert compare(base, base, objects).differences == ()


def test_other_victims_are_a_difference(compare: Compare) -> None:
    base = {"f.star": FILTER % "a", "p.yaml": profile("f")}
    objects = [node("a"), node("b"), pod("urgent", "4", priority=10)]
    objects += [pod("one", "4", nodeName="a"), pod("two", "4", nodeName="b")]
    found = compare(base, {**base, "f.star": FILTER % "b"}, objects)
    one = next(one for one in found.differences if one.pod == "a/urgent")
    assert one.kind == OTHER_VICTIMS
    assert (one.before.victims, one.after.victims) == (("a/two",), ("a/one",))
    assert one.why == "would evict a/one on a, before: a/two on b"
    assert found.measures.victims == 0


def test_a_policy_that_fails_is_the_gravest_difference(compare: Compare) -> None:
    base = {"f.star": FILTER % "c", "p.yaml": profile("f")}
    broken = '"""Fails."""\n\ndef filter(pod, node):\n    fail("never")\n'
    (one,) = compare(base, {**base, "f.star": broken}, [node("a"), pod("x")]).differences
    assert (one.kind, one.place, one.policy) == (FAILED, "f.star:4", "f")
    assert "never" in one.why


def test_a_gate_is_a_difference(compare: Compare) -> None:
    gate = """
def pre_enqueue(pod):
    return "later" if pod.name == "%s" else None
"""
    base = {"g.star": gate % "x", "p.yaml": profile("g")}
    found = compare(base, {**base, "g.star": gate % "y"}, [node("a"), pod("x"), pod("y")])
    assert [(one.kind, one.pod) for one in found.differences] == [
        (NEWLY_GATED, "a/y"),
        (NEWLY_UNGATED, "a/x"),
    ]
    assert found.differences[0].why == "`g` gates it: later"
    assert found.differences[0].place == "g.star:3"


def test_the_fewest_pods_are_said_to_have_another_place_in_the_queue(compare: Compare) -> None:
    """One that goes to the front moves all others by one, which is no news about them."""
    key = '"""Orders."""\n\ndef queue_key(pod):\n    return [0 if pod.name == "%s" else 1]\n'
    order = PROFILE % "" + "    queueSort: {enabled: [{name: q}], disabled: [{name: '*'}]}\n"
    base = {"q.star": key % "none", "p.yaml": order}
    objects = [node("a"), *(pod(name) for name in "uvwxyz")]
    (one,) = compare(base, {**base, "q.star": key % "z"}, objects).differences
    assert (one.kind, one.pod) == (OTHER_ORDER, "a/z")
    assert (one.position_before, one.position_after) == (6, 1)
    assert (one.causes, one.place) == (("q.star",), "q.star:4")


def test_with_too_many_edited_files_the_cause_is_not_looked_for(
    compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mixture of both texts has a scheduler of its own; the rule is still shown."""
    monkeypatch.setattr("workbench.plan.plan._MOST_MIXTURES", 1)
    base = {"a.star": "", "f.star": FILTER % "c", "p.yaml": profile("f")}
    after = {"a.star": "# a", "b.star": "", "f.star": FILTER % "a", "p.yaml": profile("f")}
    (one,) = compare(base, after, [node("a"), pod("x")]).differences
    assert (one.kind, one.causes, one.place) == (NEWLY_PENDING, (), "f.star:3")


def test_a_pod_of_a_profile_that_one_text_has_not_is_skipped(compare: Compare) -> None:
    base = {"s.star": SCORE % "a", "p.yaml": profile("s")}
    after = {**base, "p.yaml": profile("s").replace("- plugins", "- schedulerName: x\n  plugins")}
    found = compare(base, after, [node("a"), pod("x")])
    assert found.measures.compared_waiting == 0
    assert found.measures.skipped == {"of a profile that only one of both has": 1}


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(Outcome(node="a"), Outcome(node="a"), "", id="same node"),
        pytest.param(Outcome(message="x"), Outcome(message="y"), "", id="another reason"),
        pytest.param(Outcome(has_failed=True), Outcome(has_failed=True), "", id="fails as before"),
        pytest.param(Outcome(has_failed=True), Outcome(node="a"), NEWLY_PLACED, id="repaired"),
        pytest.param(Outcome(gate="g"), Outcome(has_failed=True), FAILED, id="fails, was gated"),
        pytest.param(
            Outcome(),
            Outcome(victims=("a/x",), victims_on="n"),
            OTHER_VICTIMS,
            id="evicts, did not before",
        ),
    ],
)
def test_kinds(before: Outcome, after: Outcome, want: str) -> None:
    assert kind_of(before, after) == want


def test_a_sample_has_one_pod_of_each_controller_first() -> None:
    def of(owner: str, number: int) -> dict[str, Any]:
        one = pod(f"{owner}-{number}")
        one["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True}]
        return one

    pods = [of("many", number) for number in range(500)] + [of("few", 0), of("pair", 0)]
    chosen = [one["metadata"]["name"] for one in sample(pods, 4)]
    assert {name.partition("-")[0] for name in chosen[:3]} == {"many", "few", "pair"}
    assert [one["metadata"]["name"] for one in sample(reversed(pods), 4)] == chosen
    assert len(sample(pods, 1000)) == 502
