"""kube-scheduler and ours do the same with a feature gate on that is off by default."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.live import node, pod, pod_group
from tests.parity.group_workloads import members
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


def _group(name: str, count: int, *claims: str) -> Json:
    """A PodGroup that names claims."""
    group = pod_group(name, count)
    group["spec"]["resourceClaims"] = [{"name": c, "resourceClaimName": c} for c in claims]
    return group


def _members(group: str, count: int, claim: str) -> list[Json]:
    named = [{"name": claim, "resourceClaimName": claim}]
    return members(group, count, cpu="1", resourceClaims=named)


CLAIMS: Final = Workload(
    "gangs that use a claim as one, and a gang that has nothing to use",
    objects=[
        node("n1", cpu="3"),
        node("n2", cpu="4"),
        device_class("gpu"),
        devices("n2", "one"),
        device_claim("shared"),
        device_claim("second"),
        _group("g", 3, "shared"),
        _group("late", 2, "second"),
    ],
    pending=_members("g", 3, "shared"),
    later=_members("late", 2, "second"),
    is_undecided=frozenset(f"g-{i}" for i in range(3)),
    nodes_are_certain=True,
)
SHARED_CLAIMS: Final = "DRAWorkloadResourceClaims"


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both schedulers with a gate on."""
    with pair(gates=[request.param], with_groups=request.param == SHARED_CLAIMS) as both:
        yield both


@pytest.mark.parametrize(
    ("both", "workload"),
    [
        pytest.param("DRAListTypeAttributes", LISTS, id="lists"),
        pytest.param("DRADeviceCompatibilityGroups", GROUPS, id="groups"),
        pytest.param(SHARED_CLAIMS, CLAIMS, id="claims"),
    ],
    indirect=["both"],
)
@pytest.mark.long("starts both schedulers, each on a control plane of its own, for every gate")
async def test_both_schedulers_do_the_same_with_the_gate_on(both: Pair, workload: Workload) -> None:
    ours, found = await both.compare(workload)
    assert not found, "\n".join(found)
    assert ours.placed
    assert ours.pending
