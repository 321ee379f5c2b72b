"""What counters take of memory; what they count is in `tests/properties`."""

import tracemalloc
from typing import Any

import numpy as np

from engine.caching.cache import Cache
from engine.caching.counters import Counters
from tests.builders import ZONE, make_node, make_pod


def _of_app(name: str) -> dict[str, Any]:
    """A counter of the pods of one app."""
    selector = {"labels": {"app": name}, "expressions": []}
    return {
        "kind": "pods",
        "topology": ZONE,
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
