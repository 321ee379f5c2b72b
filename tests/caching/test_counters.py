"""What counters take of memory; what they count is in `tests/properties`."""

import tracemalloc
from typing import Any

import numpy as np

from engine.caching.cache import Cache
from engine.caching.counters import Counters
from tests.builders import ZONE, make_node, make_pod


def _of_app(name: str, topology: str = ZONE) -> dict[str, Any]:
    """A counter of the pods of one app."""
    selector = {"labels": {"app": name}, "expressions": []}
    return {
        "kind": "pods",
        "topology": topology,
        "terms": [{"selector": selector, "namespaces": ["default"], "namespace_selector": None}],
        "among": None,
        "keys": [],
        "weight": 1,
        "terminating": False,
    }


def test_kinds_of_pods_that_a_counter_does_not_count_take_none_of_its_memory() -> None:
    """With 5,500 pods that each had a label of its own, as those of jobs do, it was half a GiB."""
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    for number in range(400):
        cache.add_pod(make_pod(f"p{number}", node="node", labels={"app": f"app-{number}"}))
    counters = Counters()
    counters.refresh(cache.snapshot())
    present = np.ones(1, np.bool_)
    tracemalloc.start()
    for number in range(100):
        column = counters.column(f"{number}".encode(), [_of_app(f"app-{number}")], present)
        assert not column.is_empty
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 100 * 10_000


def test_label_keys_that_pods_made_up_are_let_go() -> None:
    """Each was followed for ever, at a cost of memory by node and of time by decision."""
    cache = Cache()
    for number in range(50):
        cache.add_node(make_node(f"n{number}", zone="a"))
    cache.add_pod(make_pod("web", node="n0", labels={"app": "web"}))
    counters = Counters(capacity=50, most_held=200)
    present = np.ones(50, np.bool_)
    tracemalloc.start()
    try:
        for number in range(3_000):
            if number % 100 == 0:
                counters.refresh(cache.snapshot())
                column = counters.column(b"web", [_of_app("web")], present)
                assert column.total == 1 + number // 200
                if number % 200 == 100:
                    cache.add_pod(make_pod(f"w{number}", node="n1", labels={"app": "web"}))
            keys = [f"example.com/{number}", f"example.com/{number + 1}"]
            part = _of_app("web", keys[0]) | {"keys": keys}
            counters.column(f"{number}".encode(), [part], present)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1 << 20


def test_a_selector_that_cannot_be_read_counts_nothing() -> None:
    cache = Cache()
    cache.add_node(make_node("node", zone="a"))
    cache.add_pod(make_pod("web", node="node", labels={"app": "web"}))
    counters = Counters()
    counters.refresh(cache.snapshot())
    part = _of_app("web")
    part["terms"][0]["selector"]["expressions"] = [{"key": "app", "operator": "Like", "values": []}]
    column = counters.column(b"malformed", [part], np.ones(1, np.bool_))
    assert column.is_empty
