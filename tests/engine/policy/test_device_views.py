"""What is left of each device of a node, as its pods say."""

from hypothesis import given
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.model.node_info import NodeInfo
from engine.policy.device_views import MOST_DEVICES, WHOLE, shares_left
from engine.policy.projections import Projector
from tests.builders import make_node, make_pod

GPU = "alibabacloud.com/gpu-"


def node_info(devices: int, *pods: dict[str, str]) -> NodeInfo:
    info = NodeInfo("a", make_node("a", allocatable={f"{GPU}count": str(devices)}))
    for number, given_ in enumerate(pods):
        annotations = {f"{GPU}{key}": text for key, text in given_.items()}
        info = info.with_pod(make_pod(f"p{number}", annotations=annotations))
    return info


def test_pods_count_on_the_devices_that_they_name() -> None:
    info = node_info(4, {"milli": "250", "index": "1"}, {"count": "2", "index": "2-3"}, {})
    assert shares_left(info, GPU) == [1000, 750, 0, 0]
    assert shares_left(info, "other/") == []


def test_a_pod_that_names_none_counts_on_the_tightest_that_takes_it() -> None:
    info = node_info(3, {"milli": "300", "index": "2"}, {"milli": "600"}, {"count": "1"})
    assert shares_left(info, GPU) == [0, 1000, 100]
    assert shares_left(node_info(1, {"count": "2"}), GPU) == [1000]


def test_what_makes_no_sense_takes_nothing() -> None:
    odd = [{"milli": "500", "index": "7"}, {"milli": "500", "index": "x"}, {"milli": "much"}]
    assert shares_left(node_info(1, *odd, {"count": "-3"}), GPU) == [1000]


shares = st.fixed_dictionaries(
    {"milli": st.integers(-1, 1100).map(str), "count": st.integers(-1, 3).map(str)},
    optional={"index": st.sampled_from(["0", "1", "2", "0-1", "1-2", "9", "", "-"])},
)


@given(devices=st.integers(0, 3), pods=st.lists(shares, max_size=6))
def test_the_order_in_which_pods_came_is_not_seen(devices: int, pods: list[dict[str, str]]) -> None:
    left = shares_left(node_info(devices, *pods), GPU)
    assert len(left) == devices
    assert all(0 <= milli <= WHOLE for milli in left)
    assert shares_left(node_info(devices, *reversed(pods)), GPU) == left


def test_a_node_may_say_that_it_has_devices_without_number() -> None:
    """A list as long as that, made for each decision, took all memory there was."""
    assert len(shares_left(node_info(10**12), GPU)) == MOST_DEVICES


def test_a_hook_is_given_the_prefix_that_it_asks_for() -> None:
    info = node_info(2, {"milli": "250", "index": "1"})
    got = Projector("node", [f"device_shares[{GPU}]"]).project(info, Cache().snapshot())
    assert got == b'{"device_shares":{"alibabacloud.com/gpu-":[1000,750]}}'
