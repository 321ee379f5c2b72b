"""Ties: the node whose `tie_key` is smallest goes first, however many there are."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod
from tests.profiles import only

POLICY = """
def score(pod, node):
    return 1

def tie_key(pod, node):
    key = node.labels["key"]
    return [parse_int(key, key), -len(node.labels.get("second", ""))]
"""
BUNDLE = build_bundle({"first.star": POLICY, "profile.yaml": only("first")})
EVALUATOR = InProcessEvaluator(BUNDLE.program)

labels = st.fixed_dictionaries(
    {"key": st.sampled_from(["1", "2", "10", "-3", "a", "b", "B"])},
    optional={"second": st.sampled_from(["", "x", "xx"])},
)


def _key(given: Mapping[str, str]) -> tuple[bool, int | str, int]:
    """Ints go before texts."""
    key = given["key"]
    is_text = key.isalpha()
    return (is_text, key if is_text else int(key), -len(given.get("second", "")))


@given(st.lists(st.lists(labels, min_size=1, max_size=90), min_size=1, max_size=3))
def test_the_smallest_key_goes_first_also_after_nodes_come_and_go(
    rounds: list[list[dict[str, str]]],
) -> None:
    cache, scheduler = Cache(), Scheduler(BUNDLE, EVALUATOR)
    for nodes in rounds:
        for number, given_labels in enumerate(nodes):
            cache.add_node(make_node(f"n{number}", labels=given_labels))
        for name in [f"n{i}" for i in range(len(nodes), 90)]:
            if cache.node_info(name) is not None:
                cache.remove_node(name)
        decision = scheduler.schedule(make_pod(), cache.snapshot())
        assert decision.node is not None
        chosen = nodes[int(decision.node[1:])]
        assert _key(chosen) == min(map(_key, nodes))


def test_many_different_keys_that_grow_are_compared_as_few_are() -> None:
    cache, scheduler = Cache(), Scheduler(BUNDLE, EVALUATOR)
    for number in range(300, 0, -1):
        cache.add_node(make_node(f"n{number}", labels={"key": str(number % 280)}))
        if number % 7 == 0:
            decision = scheduler.schedule(make_pod(), cache.snapshot())
            want = min(n % 280 for n in range(number, 301))
            assert decision.node in {f"n{want}", f"n{want + 280}"}


def test_keys_of_pods_that_never_come_again_are_forgotten() -> None:
    policy = POLICY.replace("return [parse", 'return [pod.labels["n"], parse')
    bundle = build_bundle({"first.star": policy, "profile.yaml": only("first")})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    keys = scheduler._tie_keys
    keys._capacity_bytes = 100_000
    cache = Cache()
    for number in range(20):
        cache.add_node(make_node(f"n{number}", labels={"key": str(number)}))
    for number in range(400):
        pod = make_pod(f"p{number}", labels={"n": str(number)})
        assert scheduler.schedule(pod, cache.snapshot()).node == "n0"
        assert keys.memory_bytes <= 100_000
        assert keys.memory_bytes == sum(each.nbytes for each in keys._keys.values())
    assert len(keys._keys) < 50
