"""A trial asks every hook, about what there is in the cluster."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.language.hooks import HOOKS
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure, Program, Verdict
from engine.rollout.rehearsal import failures_of, rehearse
from tests.builders import make_node, make_pod
from workbench.scaffold import new_policy

EVERYTHING, _ = new_policy("mine", HOOKS.keys() - {"score_all"})
TREE = """
apiVersion: starsched.dev/v1
kind: QueueTree
policy: mine
queues: {web: {}, research/vision: {}}
"""


class Listening:
    """Answers as the evaluator in this process does, and remembers what it was asked."""

    def __init__(self, program: Program) -> None:
        self._evaluator = InProcessEvaluator(program)
        self._program = program
        self.hooks: set[str] = set()

    def close(self) -> None:
        pass

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        names = self._program.instances
        self.hooks.update(call.hook for call in calls if names[call.instance].policy == "mine")
        return self._evaluator.evaluate(calls)


def rehearsed(
    text: str, cache: Cache, *pods: Pod, config: str = "", **words: Any
) -> tuple[list[PolicyFailure], set[str]]:
    files = {"mine.star": text}
    if "def shares(" in text:
        files["tree.yaml"] = TREE
    bundle = build_bundle(files | ({"config.yaml": config} if config else {}))
    evaluator = Listening(bundle.program)
    scheduler = Scheduler(bundle, evaluator)
    found = rehearse(scheduler, bundle.profiles, pods, cache.snapshot(), **words)
    assert scheduler.hooks.groups is None
    return failures_of(found), evaluator.hooks


def small(*placed: Pod) -> Cache:
    cache = Cache()
    for name in ("a", "b"):
        cache.add_node(make_node(name, cpu=8))
    for pod in placed:
        cache.add_pod(pod)
    return cache


@pytest.mark.parametrize(
    "placed",
    [
        pytest.param((), id="on an empty cluster"),
        pytest.param((make_pod("old", node="a"),), id="where pods run"),
    ],
)
def test_every_hook_is_asked(placed: tuple[Pod, ...]) -> None:
    failures, asked = rehearsed(EVERYTHING, small(*placed))
    assert failures == []
    # A policy has the first in place of `score`, and is asked the second of objects alone.
    assert HOOKS.keys() - asked == {"score_all", "queues"}
    failures, asked = rehearsed("def score_all(pod, nodes):\n    return [1] * len(nodes)", small())
    assert failures == []
    assert asked == {"score_all"}


def test_a_tree_whose_shares_fail_for_the_pods_of_the_cluster_is_refused() -> None:
    text = (
        'def queue_of(pod):\n    return "web"\n'
        "def shares(parent, children):\n"
        "    return {q.name: {'cpu': 1 // (4000 - q.allocated.get('cpu', 0))} for q in children}\n"
    )
    assert rehearsed(text, small())[0] == []
    ((failure),) = rehearsed(text, small(make_pod("old", cpu=4, node="a")))[0]
    assert (failure.hook, failure.line) == ("shares", 4)
    assert "division by zero" in failure.message


def test_no_other_pod_is_asked_about_once_it_is_given_up() -> None:
    """A scheduler that was stopped during a trial was there until the trial was over, for 27 s."""
    text = 'def filter(pod, node):\n    return None if pod.name == "first" else 1\n'
    pods = make_pod("first"), make_pod("second")
    (failure,), _ = rehearsed(text, small(), *pods)
    assert failure.hook == "filter"
    is_given_up = iter([False, True])
    failures, asked = rehearsed(text, small(), *pods, is_stopped=lambda: next(is_given_up))
    assert (failures, asked) == ([], {"filter"})


def test_victims_are_those_that_run() -> None:
    text = 'def victim_key(pod):\n    return pod.labels["tier"]\n'
    assert rehearsed(text, small(make_pod("old", node="a", labels={"tier": "x"})))[0] == []
    (failure,), _ = rehearsed(text, small(make_pod("old", node="a")))
    assert failure.hook == "victim_key"


def test_candidates_are_nodes_with_their_pods() -> None:
    text = "def candidate_key(node, victims, violations):\n    return 10 // (len(victims) - 2)\n"
    many_pods = [make_pod(f"p{i}", node="a") for i in range(3)]
    assert rehearsed(text, small(*many_pods))[0] == []
    (failure,), _ = rehearsed(text, small(*many_pods[:2]))
    assert failure.hook == "candidate_key"


def test_a_group_is_asked_about_as_it_grows() -> None:
    """With its first pod, and when it is whole: what a policy says then is another branch."""
    text = (
        "def group_of(pod):\n"
        '    return gang("g", min_count = 3) if pod.labels.get("g") else None\n\n'
        "def permit(pod, group):\n"
        "    if group == None:\n        return None\n"
        "    return wait(60) if group.waiting < group.min_count else 1\n"
    )
    assert rehearsed(text, small(), make_pod("p"))[0] == []
    (failure,), _ = rehearsed(text, small(), make_pod("p", labels={"g": "1"}))
    assert failure.hook == "permit"
