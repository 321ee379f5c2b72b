"""What is kept of a choice is what the whole explanation of the same decision says."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.scheduling.choice import KeptNode, shown_raw
from engine.core.scheduling.decision import Decision, Explanation
from engine.core.scheduling.extenders import ExtenderPrioritize, PrioritizeAnswer, unopposed
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import ZONE, make_node, make_pod
from tests.profiles import only

COUNTED = """
def counters(pod):
    key = "topology.kubernetes.io/zone"
    return [count_pods(key, labels = {"app": "web"}, namespaces = ["default"])]

def score(pod, node, counts):
    return 50 - counts[0].here

def normalize(score, over):
    return 100 * (score - over.min) // max(1, over.max - over.min)
"""
WHOLE = "def score_all(pod, nodes):\n    return [len(nodes) + int(n.labels['i']) for n in nodes]\n"
PLAIN = """
def score(pod, node):
    return None if node.labels["i"] == "3" else node.requested.get("cpu", 0)

def normalize(score, over):
    return 100 - 100 * (score - over.min) // max(1, over.max - over.min)
"""
FAILS = 'def score(pod, node):\n    return 1 // (int(node.labels["i"]) - 4)\n'
NARROWS = 'def filter(pod, node):\n    return "odd" if node.labels["i"] == pod.name[1:] else None\n'
IGNORE = """
apiVersion: starsched.dev/v1
kind: PolicyRuntime
failurePolicy: {score: Ignore}
"""
_THREE = "{name: plain, weight: 3}"

PROFILES: Mapping[str, Mapping[str, str]] = {
    "built-in": {},
    "of the class": {"plain.star": PLAIN, "p.yaml": only(_THREE, "NodeResourcesFit")},
    "counted": {
        "plain.star": PLAIN,
        "counted.star": COUNTED,
        "p.yaml": only("NodeResourcesFit", "{name: counted, weight: 2}", _THREE),
    },
    "whole": {"plain.star": PLAIN, "whole.star": WHOLE, "p.yaml": only("whole", _THREE)},
    "narrowed": {"plain.star": PLAIN, "narrows.star": NARROWS, "p.yaml": only(_THREE, "narrows")},
    "failing": {"plain.star": PLAIN, "fails.star": FAILS, "p.yaml": only(_THREE, "fails"),
                "r.yaml": IGNORE},
}  # fmt: skip


def scheduler_of(files: Mapping[str, str], **words: Any) -> Scheduler:
    bundle = build_bundle(files)
    return Scheduler(bundle, InProcessEvaluator(bundle.program), **words)


def shown(decision: Decision, node: KeptNode) -> dict[str, tuple[int | None, int, int, int]]:
    """The scores that are kept of *node*: raw, normalized, weight and weighted."""
    assert decision.choice is not None
    return {
        one.policy: (one.raw, one.normal, one.weight, one.normal * one.weight)
        for one in decision.choice.scores_of(node)
    }


def expected(explanation: Explanation, name: str) -> dict[str, tuple[int | None, int, int, int]]:
    at = explanation.feasible.index(name)
    return {
        row.policy: (raw, row.normalized.item(at), row.weight, row.weighted.item(at))
        for row in explanation.scores
        if (raw := shown_raw(row.raw.item(at))) or row.weighted.item(at)
    }


def check(decision: Decision, explanation: Explanation) -> None:
    """*decision* keeps what *explanation*, of the same pod and cluster, says."""
    choice = decision.choice
    assert choice is not None
    assert choice.chosen.name == decision.node == explanation.decision.node
    totals = dict(zip(explanation.feasible, explanation.totals, strict=True))
    assert choice.chosen.total == max(totals.values())
    assert choice.best_count == list(totals.values()).count(choice.chosen.total)
    others = sorted((t for name, t in totals.items() if name != decision.node), reverse=True)
    if choice.best_count > 1 or not others:
        assert choice.next is None
    else:
        assert choice.next is not None
        assert choice.next.total == others[0]
    for node in filter(None, (choice.chosen, choice.next)):
        assert totals[node.name] == node.total
        kept = shown(decision, node)
        assert {p: s for p, s in kept.items() if s[0] or s[3]} == expected(explanation, node.name)
        assert sum(weighted for _, _, _, weighted in kept.values()) == node.total


@pytest.mark.parametrize("name", PROFILES)
def test_what_is_kept_is_what_an_explanation_says(name: str) -> None:
    rng = random.Random(name)
    files = PROFILES[name]
    keeping, other = scheduler_of(files), scheduler_of(files)
    keeping.keeps_choices = True
    cache = Cache()
    for i in range(8):
        cpu = str(rng.choice((4, 8, 16)))
        cache.add_node(make_node(f"n{i}", cpu=cpu, zone=f"z{i % 3}", labels={"i": str(i)}))
    kept: list[tuple[Decision, Explanation]] = []
    for number in range(30):
        pod = make_pod(
            f"p{number % 9}",
            uid=str(number),
            cpu=f"{rng.choice((100, 500))}m",
            labels={"app": rng.choice(("web", "db"))},
        )
        explanation = other.explain(pod, cache.snapshot())
        decision = keeping.schedule(pod, cache.snapshot())
        kept.append((decision, explanation))
        if decision.node is not None:
            cache.assume(pod, decision.node)
    # Later decisions change nothing of earlier ones.
    for decision, explanation in kept:
        check(decision, explanation)
    counts = {decision.choice.best_count == 1 for decision, _ in kept if decision.choice}
    assert True in counts


def test_scores_of_extenders_are_kept() -> None:
    files = {"plain.star": PLAIN, "p.yaml": only(_THREE)}
    scheduler = scheduler_of(files, has_extenders=True)
    scheduler.keeps_choices = True
    cache = Cache()
    for i in range(3):
        cache.add_node(make_node(f"n{i}", labels={"i": str(i)}))
    steps = scheduler.steps(make_pod(), cache.snapshot())
    question = next(steps)
    while not isinstance(question, ExtenderPrioritize):
        question = steps.send(unopposed(question))
    points = tuple(10 * int(info.name[1:]) for info in question.infos)
    with pytest.raises(StopIteration) as end:
        steps.send(PrioritizeAnswer(points, by_extender={"far": points}))
    decision = end.value.value.decision
    assert decision.choice.chosen.name == "n2"
    assert shown(decision, decision.choice.chosen)["far"] == (20, 20, 1, 20)
    assert shown(decision, decision.choice.next)["far"] == (10, 10, 1, 10)


def test_nothing_is_kept_where_nobody_asks_or_scores_do_not_decide() -> None:
    cache = Cache()
    for i in range(3):
        cache.add_node(make_node(f"n{i}", zone="z", labels={"i": str(i), ZONE: "z"}))
    scheduler = scheduler_of({})
    assert scheduler.schedule(make_pod(), cache.snapshot()).choice is None
    scheduler.keeps_choices = True
    assert scheduler.schedule(make_pod(), cache.snapshot()).choice is not None
    assert scheduler.explain(make_pod(), cache.snapshot()).decision.choice is None
    nominated = scheduler.schedule(make_pod(nominated="n1"), cache.snapshot())
    assert (nominated.node, nominated.choice) == ("n1", None)
    assert scheduler.schedule(make_pod(cpu="100"), cache.snapshot()).choice is None


def test_a_profile_with_very_many_scores_keeps_none() -> None:
    """What is kept of thousands of decisions stays small."""
    names = [f"s{i}" for i in range(33)]
    text = "def score(pod, node):\n    return 1\n"
    cache = Cache()
    cache.add_node(make_node("n"))
    for count, is_kept in ((32, True), (33, False)):
        files = {f"{name}.star": text for name in names[:count]}
        scheduler = scheduler_of({**files, "p.yaml": only(*names[:count])})
        scheduler.keeps_choices = True
        decision = scheduler.schedule(make_pod(), cache.snapshot())
        assert decision.node == "n"
        assert (decision.choice is not None) is is_kept
