"""Placements that leave what no typical pod can use strand capacity."""

import pytest

from engine.core.caching.cache import Cache
from engine.rollout.shadow.stranding import Stranding
from tests.builders import make_node, make_pod


def test_a_pod_that_fills_a_node_strands_less_than_one_that_leaves_a_rest() -> None:
    cache = Cache()
    cache.add_node(make_node("even", cpu=4))
    cache.add_node(make_node("odd", cpu=5))
    snapshot = cache.snapshot()
    stranding = Stranding()
    assert stranding.share is None
    pod = make_pod(cpu=4)
    stranding.note(pod, "even", "even", snapshot)
    assert stranding.share == 0.0
    stranding.note(pod, "even", "odd", snapshot)  # leaves one core of five, of use to none
    assert stranding.share == pytest.approx(1 / 8)
    stranding.note(pod, "odd", "even", snapshot)
    assert stranding.share == pytest.approx(0.0)


def test_capacity_that_was_stranded_before_is_put_to_use() -> None:
    cache = Cache()
    cache.add_node(make_node("large", cpu=8))
    cache.add_node(make_node("rest", cpu=4))
    cache.add_pod(make_pod("there", cpu=2, node="rest"))
    stranding = Stranding()
    usual, small = make_pod("usual", cpu=4), make_pod("small", cpu=2)
    for _ in range(9):
        stranding.note(usual, "large", "large", cache.snapshot())
    stranding.note(small, "large", "rest", cache.snapshot())
    share = stranding.share
    assert share is not None
    assert share < 0.0


def test_of_several_resources_the_worst_counts() -> None:
    cache = Cache()
    cache.add_node(make_node("even", cpu=4, memory="4Gi"))
    cache.add_node(make_node("odd", cpu=4, memory="5Gi"))
    stranding = Stranding()
    stranding.note(make_pod(cpu=2, memory="4Gi"), "even", "odd", cache.snapshot())
    # On `odd` one of five Gi is left, on `even` none; on both two cores are.
    assert stranding.share == pytest.approx(0.25)
