"""kube-scheduler and ours do the same with a feature gate on that is off by default."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.live import node, pod
from tests.parity.side_by_side import Pair, Workload, pair
from tests.parity.side_by_side_workloads import device_claim, device_class, devices

pytestmark = [
    pytest.mark.slow("starts the real kube-scheduler"),
    pytest.mark.kubernetes("1.37"),
]

Json = dict[str, Any]
DRIVER: Final = "gpu.example.com"


def _uses(claim: str) -> list[Json]:
    return [{"name": "d", "resourceClaimName": claim}]


def _with_roots(published: Json, *roots: list[str]) -> Json:
    for device, own in zip(published["spec"]["devices"], roots, strict=True):
        device["attributes"]["roots"] = {"strings": own}
    return published


def _constrained(name: str, kind: str, count: int) -> Json:
    claim = device_claim(name, count=count)
    claim["spec"]["devices"]["constraints"] = [{kind: f"{DRIVER}/roots"}]
    return claim


LISTS: Final = Workload(
    "devices that have an element of a list in common, or none",
    objects=[
        node("n1"),
        node("n2"),
        device_class("gpu"),
        _with_roots(devices("n1", "a", "b", "c"), ["x", "y"], ["y", "z"], ["x", "z"]),
        _with_roots(devices("n2", "a", "b", "c", "d"), ["x"], ["x", "y"], ["y"], ["z"]),
        _constrained("all-alike", "matchAttribute", 3),
        _constrained("apart", "distinctAttribute", 3),
        _constrained("pair", "matchAttribute", 2),
        _constrained("pair-again", "matchAttribute", 2),
        _constrained("two-apart", "distinctAttribute", 2),
    ],
    pending=[
        pod("all-alike", resourceClaims=_uses("all-alike")),
        pod("apart", resourceClaims=_uses("apart")),
        pod("pair", resourceClaims=_uses("pair")),
        pod("pair-again", resourceClaims=_uses("pair-again")),
        pod("two-apart", resourceClaims=_uses("two-apart")),
    ],
    nodes_are_certain=True,
)


def _in_parts(node_name: str, **groups: str) -> list[Json]:
    """A card in partitions, each with its compatibility groups."""
    published = devices(node_name, *groups)
    published["spec"]["pool"]["resourceSliceCount"] = 2
    for device, own in zip(published["spec"]["devices"], groups.values(), strict=True):
        consumed: Json = {"counterSet": "card", "counters": {"memory": {"value": "1Gi"}}}
        device["consumesCounters"] = [consumed | ({"compatibilityGroups": own.split()})]
    card = devices(node_name)
    del card["spec"]["devices"]
    card["metadata"]["name"] = f"{node_name}-card"
    card["spec"]["pool"]["resourceSliceCount"] = 2
    card["spec"]["sharedCounters"] = [{"name": "card", "counters": {"memory": {"value": "9Gi"}}}]
    return [published, card]


GROUPS: Final = Workload(
    "partitions of a card that go together, and do not",
    objects=[
        node("n1"),
        device_class("gpu"),
        *_in_parts("n1", small="x", medium="x y", large="y", other="z"),
        device_claim("three", count=3),
        device_claim("one", model="medium"),
        device_claim("alone", model="other"),
        device_claim("next", count=1),
        device_claim("last", model="large"),
    ],
    pending=[
        pod("three", resourceClaims=_uses("three")),
        pod("one", resourceClaims=_uses("one")),
        pod("alone", resourceClaims=_uses("alone")),
        pod("next", resourceClaims=_uses("next")),
        pod("last", resourceClaims=_uses("last")),
    ],
    nodes_are_certain=True,
)


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both schedulers with a gate on."""
    with pair(gates=[request.param]) as both:
        yield both


@pytest.mark.parametrize(
    ("both", "workload"),
    [
        pytest.param("DRAListTypeAttributes", LISTS, id="lists"),
        pytest.param("DRADeviceCompatibilityGroups", GROUPS, id="groups"),
    ],
    indirect=["both"],
)
@pytest.mark.long("starts both schedulers, each on a control plane of its own, for every gate")
async def test_both_schedulers_do_the_same_with_the_gate_on(both: Pair, workload: Workload) -> None:
    ours, found = await both.compare(workload)
    assert not found, "\n".join(found)
    assert ours.placed
    assert ours.pending
