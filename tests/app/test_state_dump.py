"""What the scheduler believes, beside what it was told."""

from engine.caching.cache import Cache
from engine.state_dump import mismatches
from tests.builders import make_node, make_pod


def test_a_cache_that_followed_has_no_mismatch() -> None:
    cache = Cache()
    node, placed, assumed = make_node("n"), make_pod("placed", node="n"), make_pod("assumed")
    cache.add_node(node)
    cache.add_pod(placed)
    cache.assume(assumed, "n")
    assert mismatches(cache, [node], [placed, assumed, make_pod("pending")]) == {}


def test_what_one_side_alone_has_is_named() -> None:
    cache = Cache()
    cache.add_node(make_node("gone"))
    cache.add_pod(make_pod("gone", node="gone"))
    cache.add_pod(make_pod("elsewhere", node="unknown"))
    told = [make_pod("new", node="n")]
    assert mismatches(cache, [make_node("n")], told) == {
        "nodes": {"missed": ["n"], "redundant": ["gone"]},
        "pods": {"missed": ["default/new"], "redundant": ["default/elsewhere", "default/gone"]},
    }
