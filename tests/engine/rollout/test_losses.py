"""An edit says what it would take away before it takes it."""

from collections.abc import Mapping
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.model.pod import Pod
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from engine.policy.rollout_config import Gates
from engine.rollout.judge import TakenAway, judge_losses
from engine.rollout.losses import MOST_CLASSES, losses_of
from engine.rollout.measures import FIT_NOWHERE, NODES, ORDER, WITHOUT_PROFILE, Losses
from tests.builders import make_node, make_pod

TEXT = '''"""Few rules."""

def queue_key(pod):
    return (-pod.priority,)

def filter(pod, node):
    there = node.allocatable.get("example.com/gpu", 0)
    if pod.requests.get("example.com/gpu", 0) > 0 and there == 0:
        return "no gpus here"
    return None

def score(pod, node):
    return 50
'''
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: NAME
  plugins:
    queueSort: {enabled: [{name: mine}], disabled: [{name: "*"}]}
    multiPoint: {enabled: [{name: mine, weight: 5}]}
"""
NAMES = ("default-scheduler",)


def files(text: str = TEXT, names: tuple[str, ...] = NAMES) -> dict[str, str]:
    head, profile = CONFIG.split("- schedulerName")
    profiles = "".join(f"- schedulerName{profile.replace('NAME', name)}" for name in names)
    return {"mine.star": text, "config.yaml": head + profiles}


def edited(old: str, new: str) -> dict[str, str]:
    assert TEXT.count(old) == 1
    return files(TEXT.replace(old, new))


def rejecting(condition: str, reason: str = "wrong") -> dict[str, str]:
    rule = f'    if {condition}:\n        return "{reason}"\n    return None\n'
    return edited("    return None\n", rule)


def cluster(placed: int = 48) -> Cache:
    """Five zones of five nodes, of which one zone has GPUs, and pods on them."""
    cache = Cache()
    for number in range(25):
        gpus = {"example.com/gpu": "8"} if number % 5 == 0 else {}
        zone = {"topology.kubernetes.io/zone": f"z{number % 5}"}
        node = make_node(f"n{number}", cpu=8, labels=zone, allocatable=gpus)
        cache.add_node(node)
    for number in range(placed):
        cache.add_pod(pod(f"p{number}", node=f"n{number % 25}"))
    return cache


def pod(name: str, *, node: str = "", gpus: int = 0, **words: Any) -> Pod:
    requests = {"cpu": "100m", **({"example.com/gpu": str(gpus)} if gpus else {})}
    return make_pod(name, requests=requests, node=node, **words)


def losses(
    now: Mapping[str, str],
    *waiting: Pod,
    before: Mapping[str, str] | None = None,
    cache: Cache | None = None,
) -> Losses:
    candidate, base = build_bundle(dict(now)), build_bundle(dict(before or files()))
    snapshot = (cache or cluster()).snapshot()
    placed = [one.unplaced() for info in snapshot.infos if info for one in info.pods.values()]

    def start() -> Evaluator:
        return InProcessEvaluator(base.program)

    evaluator = InProcessEvaluator(candidate.program)
    return losses_of(candidate, evaluator, base, start, [*waiting, *placed], snapshot)


def failed(found: Losses, *, is_meant: bool = False) -> str:
    """The gates that fail by default."""
    verdict = judge_losses(TakenAway(found, is_meant), Gates())
    return verdict.why if verdict.outcome == "fail" else ""


# --- what is taken away ----------------------------------------------------------------------


def test_pods_whose_profile_goes_are_counted() -> None:
    """A typo in one line renamed a profile: 51 waiting pods left the queue, metrics and alerts."""
    names = ("default-scheduler", "team")
    waiting = [pod(f"w{number}", scheduler_name="team") for number in range(51)]
    found = losses(files(names=("default-scheduler", "taem")), *waiting, before=files(names=names))
    assert found.count(WITHOUT_PROFILE) == 51
    (lost,) = found.found
    assert lost.profile == "team"
    for part in ("`team`", "51 pods", "`default/w0`"):
        assert part in lost.text
    assert "maxWithoutProfile: 51 pods would have no profile, want at most 0" in failed(found)


def test_pods_that_no_profile_ever_had_are_not_lost() -> None:
    found = losses(files(), pod("w", scheduler_name="somebody-elses"))
    assert not found.found
    assert found.of_pods == 48


def test_pods_that_fitted_and_would_fit_nowhere_are_counted() -> None:
    found = losses(rejecting('pod.namespace == "default"'), pod("other", namespace="rare"))
    assert found.count(FIT_NOWHERE) == 48
    lost = next(one for one in found.found if one.kind == FIT_NOWHERE)
    assert "`mine` accepts 0 of 48 pods that fitted before" in lost.text
    assert (lost.policy, lost.file) == ("mine", "mine.star")
    assert "maxFitNowhere: 48 pods" in failed(found)


@pytest.mark.parametrize("others", [0, 400])
def test_a_rare_pod_is_looked_at_among_many(others: int) -> None:
    waiting = [pod(f"w{n}", labels={"app": str(n)}) for n in range(others)]
    text = 'pod.labels.get("app") == "none" or pod.requests.get("example.com/gpu", 0) >= 4'
    found = losses(rejecting(text), *waiting, pod("big", gpus=4))
    assert found.count(FIT_NOWHERE) == 1
    assert found.classes <= MOST_CLASSES


def test_a_pod_that_never_fitted_is_not_lost() -> None:
    found = losses(rejecting('pod.name == "huge"'), pod("huge", gpus=99))
    assert not found.count(FIT_NOWHERE)


def test_a_gate_that_lets_nothing_through_is_seen() -> None:
    gate = TEXT + '\ndef pre_enqueue(pod):\n    return "closed"\n'
    found = losses(files(gate))
    assert found.count(FIT_NOWHERE) == 48
    assert failed(found)


def test_nodes_that_took_pods_and_would_take_none_are_counted() -> None:
    """A filter that is never true in one zone of five moved fewer pods than any gate allows."""
    zone = 'node.labels.get("topology.kubernetes.io/zone") == "z4"'
    found = losses(rejecting(f'{zone} and node.labels.get("never") != "yes"'))
    assert not found.count(FIT_NOWHERE)
    assert (found.count(NODES), found.of(NODES)) == (5, 25)
    assert "maxNodesLost: 20% (5 of 25)" in failed(found)


def test_nodes_that_take_other_pods_than_before_are_not_lost() -> None:
    zone = 'node.labels.get("topology.kubernetes.io/zone") == "z4"'
    reserved = rejecting(f'{zone} and pod.namespace != "team"')
    found = losses(reserved, pod("of-team", namespace="team"))
    assert not found.found


def test_a_node_that_took_nothing_before_is_not_lost() -> None:
    cache = cluster()
    cache.add_node(make_node("control-plane", taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert not losses(edited("return 50", "return 51"), cache=cache).found


def test_a_few_nodes_are_a_warning_and_no_failure() -> None:
    found = losses(rejecting('node.name in ("n1", "n2")'))
    assert found.count(NODES) == 2
    assert not failed(found)
    assert "`mine` lets none of the pods onto 2 of 25 nodes" in found.problems()[0].message


def test_a_reversed_order_is_seen_without_contention() -> None:
    """Reversed priorities came into force: no pod was late as long as there was room."""
    waiting = [pod(f"w{number}", priority=1000 * (number % 2)) for number in range(20)]
    found = losses(edited("(-pod.priority,)", "(pod.priority,)"), *waiting)
    assert found.count(ORDER) == found.of(ORDER) > 0
    assert "maxReordered: 100%" in failed(found)


def test_an_order_that_only_breaks_ties_reverses_nothing() -> None:
    waiting = [pod(f"w{number}", priority=1000 * (number % 2)) for number in range(20)]
    found = losses(edited("(-pod.priority,)", "(-pod.priority, pod.name)"), *waiting)
    assert not found.found


# --- what is not -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "now",
    [
        files(),
        edited("return 50", "return 100 - 50"),
        edited("def score", "def helper(pod):\n    return pod.name\n\ndef score"),
        edited('"no gpus here"', '"this node has no GPU"'),
        edited(" > 0 and", " != 0 and"),
        rejecting('pod.namespace == "nobody-is-here"'),
    ],
    ids=["nothing", "another score", "a helper", "other words", "rephrased", "for others"],
)
def test_a_harmless_edit_takes_nothing_away(now: Mapping[str, str]) -> None:
    waiting = [pod("gpu", gpus=1), pod("hopeless", gpus=99), pod("w", priority=5)]
    assert not losses(now, *waiting).found


def test_what_was_looked_at_is_said() -> None:
    found = losses(rejecting('pod.namespace == "default"'))
    assert found.looked_at == "looked at 48 of 48 pods in 1 of 1 classes, 25 nodes"
    assert found.problems()[0].hint == found.looked_at


def test_what_is_meant_passes_and_is_said() -> None:
    found = losses(rejecting('pod.namespace == "default"'))
    assert not failed(found, is_meant=True)
    verdict = judge_losses(TakenAway(found, is_meant=True), Gates())
    assert "maxFitNowhere: 48 pods would fit nowhere, want at most 0 (meant)" in verdict.why


def test_what_is_not_known_is_no_pass() -> None:
    verdict = judge_losses(TakenAway(Losses(failed="MemoryError")), Gates())
    assert verdict.outcome == "inconclusive"
    assert Losses(failed="MemoryError").problems()
