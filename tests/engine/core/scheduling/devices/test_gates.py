"""What kube-scheduler does with a feature gate on where devices are chosen.

Random clusters are compared in `tests/parity`; here are the edges, one at a time.
"""

from typing import Any

import pytest

from engine.core.framework.behaviors import GATES, behaviors_of
from engine.core.model.pod import Pod
from engine.core.scheduling.plugins.dynamic_resources_state import PodState
from engine.files.world import pod_of
from tests.builders import pod_manifest
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    device_class,
    request,
    resource_slice,
)
from tests.engine.core.scheduling.devices.test_behaviors import NOTHING_THERE, Json, said, taken
from tests.engine.core.scheduling.devices.test_plugin import Bench

LISTS = frozenset({"DRAListTypeAttributes"})


def having(gates: frozenset[str], *objects: Json, minor: int = 37) -> Bench:
    """A world of one node, answered with *gates* on."""
    bench = Bench(device_class(), *objects, nodes=("a",))
    bench.objects.behaves = behaviors_of(minor, gates)
    return bench


def test_a_gate_needs_a_version_that_has_it() -> None:
    for name, gate in GATES.items():
        on = frozenset({name})
        assert behaviors_of(gate.since, on).gates == on
        assert behaviors_of(gate.since - 1, on) is behaviors_of(gate.since - 1)
        assert behaviors_of(gate.since) is not behaviors_of(gate.since, on)


# --- lists -----------------------------------------------------------------------------------


def chosen(
    kind: str, *values: Any, count: int = 2, minor: int = 37, gates: frozenset[str] = LISTS
) -> Any:
    """The numbers of the devices with these values that are chosen under a constraint."""
    devices = [
        {"name": str(i), "attributes": {"x": value} if value else {}}
        for i, value in enumerate(values)
    ]
    wanted = claim("c", request(count=count), constraints=[{kind: f"{DRIVER}/x"}])
    got = said(having(gates, resource_slice("a", *devices), wanted, minor=minor))
    return "".join(got) if isinstance(got, dict) else got


def test_devices_match_by_an_element_that_all_of_them_have() -> None:
    """The pairs among the first three have elements in common, which are others each time."""
    one, two, three = {"ints": [1, 2]}, {"ints": [2, 3]}, {"ints": [1, 3]}
    assert chosen("matchAttribute", one, two, three) == "01"
    assert chosen("matchAttribute", one, two, three, count=3) == NOTHING_THERE
    assert chosen("matchAttribute", one, two, three, {"ints": [5, 2]}, count=3) == "013"
    assert chosen("matchAttribute", one, {"ints": [4]}, three) == "02"


def test_devices_are_distinct_if_no_two_have_an_element_in_common() -> None:
    values = [{"strings": ["a", "b"]}, {"strings": ["b"]}, {"strings": ["c"]}, {"string": "d"}]
    assert chosen("distinctAttribute", *values) == "02"
    assert chosen("distinctAttribute", *values, count=3) == "023"
    assert chosen("distinctAttribute", *values, count=4) == NOTHING_THERE


def test_a_value_is_a_list_of_one() -> None:
    assert chosen("matchAttribute", {"bool": True}, {"bools": [False, True]}) == "01"
    assert chosen("distinctAttribute", {"int": 3}, {"ints": [3, 4]}) == NOTHING_THERE


def test_elements_of_two_types_have_nothing_in_common() -> None:
    values = [{"strings": ["1.0.0"]}, {"versions": ["1.0.0"]}, {"ints": [1]}, {"bools": [True]}]
    assert chosen("matchAttribute", *values) == NOTHING_THERE
    assert chosen("distinctAttribute", *values, count=4) == "0123"


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_device_without_such_an_attribute_or_elements_is_passed_over(kind: str) -> None:
    values: tuple[Json, ...] = ({}, {"unknown": 1}, {"ints": []}, {"ints": [1]})
    assert chosen(kind, *values, count=1) == "3"
    # 1.38 fails for one of a type that it does not know.
    assert "unsupported attribute value" in chosen(kind, *values, count=1, minor=38)


def test_versions_in_lists_are_compared_as_others_are() -> None:
    values = [{"versions": ["1.0.0+b1"]}, {"version": "1.0.0+b2"}]
    assert chosen("matchAttribute", *values) == NOTHING_THERE
    assert chosen("matchAttribute", *values, minor=38) == "01"
    broken = [{"versions": ["1.0.0", "1.x"]}, {"version": "1.0.0"}]
    assert chosen("matchAttribute", *broken) == "01"
    assert "unsupported attribute value" in chosen("matchAttribute", *broken, minor=38)


def test_lists_are_not_compared_without_the_gate() -> None:
    values = [{"ints": [1]}, {"ints": [1]}]
    assert chosen("matchAttribute", *values, gates=frozenset()) == NOTHING_THERE
    assert chosen("matchAttribute", *values, minor=35) == NOTHING_THERE


# --- compatibility groups --------------------------------------------------------------------

GROUPS = frozenset({"DRADeviceCompatibilityGroups"})


def partition(name: str, *groups: str, of: str = "s", **fields: Any) -> Json:
    """A device that draws on a counter set, with these compatibility groups."""
    consumed: Json = {"counterSet": of, "counters": {"m": {"value": "1"}}}
    if groups:
        consumed["compatibilityGroups"] = list(groups)
    attributes = {"name": {"string": name}}
    return {"name": name, "attributes": attributes, "consumesCounters": [consumed], **fields}


def divided(*devices: Json, counters: str = "9") -> list[Json]:
    """The slices of a pool with two counter sets."""
    sets = [{"name": name, "counters": {"m": {"value": counters}}} for name in ("s", "t")]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    return [
        resource_slice("a", *devices, name="devices", pool=pool),
        resource_slice("a", name="counters", pool=pool, sharedCounters=sets),
    ]


def named(name: str) -> Json:
    """A selector for one of them."""
    return {"cel": {"expression": f'device.attributes["{DRIVER}"].name == "{name}"'}}


def parts(*objects: Json, gates: frozenset[str] = GROUPS) -> Any:
    """The names of the devices that the claim `c` gets."""
    got = said(having(gates, *objects))
    return "".join(got) if isinstance(got, dict) else got


def holds(device: str, share: str | None = None) -> Json:
    """Another claim, which has *device*."""
    return taken("other", device, share=share)


def test_devices_of_a_counter_set_have_a_group_in_common() -> None:
    slices = divided(partition("1", "x", "y"), partition("2", "y", "z"), partition("3", "x", "z"))
    assert parts(*slices, claim("c", request(count=2))) == "12"
    assert parts(*slices, claim("c", request(count=3))) == NOTHING_THERE


def test_devices_without_groups_go_with_their_like_alone() -> None:
    slices = divided(partition("1"), partition("2", "x"), partition("3"), partition("4", "x"))
    assert parts(*slices, claim("c", request(count=2))) == "13"
    assert parts(*slices, claim("c", request(count=3))) == NOTHING_THERE
    assert parts(*slices, claim("c"), holds("4")) == "2"
    assert parts(*slices, claim("c"), holds("3")) == "1"


def test_other_counter_sets_and_devices_without_any_are_not_concerned() -> None:
    slices = divided(partition("1", "x"), partition("2", "y", of="t"), {"name": "3"})
    assert parts(*slices, claim("c", request(count=3))) == "123"


def test_devices_in_use_that_go_with_none_admit_none() -> None:
    """Their groups were changed while they were in use."""
    slices = divided(
        partition("1", "x"), partition("2", "y"), partition("3", "x", "y"), partition("4")
    )
    both = taken("both", "1", share=None)
    both["status"]["allocation"]["devices"]["results"] += [
        {"request": "r", "driver": DRIVER, "pool": "a", "device": "2"}
    ]
    assert parts(*slices, claim("c"), both) == NOTHING_THERE


def test_a_choice_that_is_taken_back_leaves_its_groups() -> None:
    """`1` goes with none of the others, and `2` not with `4`."""
    slices = divided(
        partition("1", "w"), partition("2", "x"), partition("3", "x", "y"), partition("4", "y")
    )
    assert parts(*slices, claim("c", request(count=2))) == "23"
    wanted = claim("c", request("first"), request("second", selectors=[named("4")]))
    assert parts(*slices, wanted) == "34"


def test_another_share_of_a_device_needs_no_group() -> None:
    shared = partition("1", "x", capacity={"m": {"value": "4"}}, allowMultipleAllocations=True)
    slices = divided(shared, partition("2", "y"))
    asked = request(count=1, capacity={"requests": {"m": "1"}})
    assert parts(*slices, claim("c", asked), holds("1", share="1")) == "1"


def test_a_pool_with_groups_is_incomplete_without_the_gate() -> None:
    slices = divided(partition("1", "x"), partition("2"))
    assert parts(*slices, claim("c"), gates=frozenset()) == NOTHING_THERE
    assert parts(*slices, claim("c")) == "1"


# --- claims of groups ------------------------------------------------------------------------

SHARED = frozenset({"DRAWorkloadResourceClaims"})


def pod_group(name: str, *claims: Json) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": list(claims)},
    }


def member(name: str, group: str, wanted: Json, made: str = "") -> Pod:
    statuses = [{"name": wanted["name"], "resourceClaimName": made}] if made else []
    manifest = pod_manifest(
        name,
        spec={"resourceClaims": [wanted], "schedulingGroup": {"podGroupName": group}},
        status={"resourceClaimStatuses": statuses},
    )
    return pod_of(manifest)


def used(bench: Bench, pod: Pod, key: str = "default/c") -> str:
    """Who uses a claim of *pod* once it is bound: `podgroups/g`, or "" for the pod itself."""
    state, _ = bench.decide(pod)
    assert isinstance(state, PodState), state
    user = state.user_of(bench.stored(key))
    return "" if user is None else f"{user.resource}/{user.name}/{user.uid}"


NAMED: Json = {"name": "d", "resourceClaimName": "c"}


@pytest.mark.parametrize(
    ("of_group", "want"),
    [
        (NAMED, "podgroups/g/uid-g"),
        (NAMED | {"name": "other"}, ""),
        ({"name": "d", "resourceClaimName": "other"}, ""),
        ({"name": "d", "resourceClaimTemplateName": "c"}, ""),
        ({"name": 3}, ""),
    ],
)
def test_a_group_uses_a_claim_that_it_names_like_its_pod(of_group: Json, want: str) -> None:
    objects = (resource_slice("a", "d"), claim("c"), pod_group("g", of_group))
    assert used(having(SHARED, *objects), member("p", "g", NAMED)) == want
    assert used(having(frozenset(), *objects), member("p", "g", NAMED)) == ""


def test_a_group_that_uses_a_claim_already_is_enough_for_its_pods() -> None:
    taken_by_group = taken("c", "d", share=None)
    reference = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "1"}
    taken_by_group["status"]["reservedFor"] = [reference]
    objects = (resource_slice("a", "d"), taken_by_group, pod_group("g", NAMED), pod_group("h"))
    bench = having(SHARED, *objects)
    assert used(bench, member("p", "g", NAMED | {"name": "other"})) == "podgroups/g/1"
    assert used(bench, member("p", "h", NAMED)) == ""


def test_a_claim_that_was_made_for_the_group_is_one_of_its_pods() -> None:
    wanted = {"name": "d", "resourceClaimTemplateName": "t"}
    made = claim("c")
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "controller": True}
    made["metadata"]["ownerReferences"] = [owner | {"name": "g", "uid": "uid-g"}]
    objects = (resource_slice("a", "d"), made, pod_group("g", wanted), pod_group("h", wanted))
    bench = having(SHARED, *objects)
    assert used(bench, member("p", "g", wanted, "c")) == "podgroups/g/uid-g"
    state, _ = bench.decide(member("q", "h", wanted, "c"))
    assert state.message == (
        "ResourceClaim default/c was not created for Pod default/q "
        "(neither Pod nor PodGroup h is the owner)"
    )
    state, _ = having(frozenset(), *objects).decide(member("p", "g", wanted, "c"))
    assert state.message == (
        "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)"
    )


def test_a_group_gives_up_devices_that_none_of_its_pods_uses_yet() -> None:
    held = taken("c", "d", share=None)
    reference = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}
    held["status"]["reservedFor"] = [reference | {"uid": "uid-g"}]
    held["status"]["allocation"]["nodeSelector"] = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}
        ]
    }
    bench = having(SHARED, resource_slice("a", "d"), held, pod_group("g", NAMED))
    pod = member("p", "g", NAMED)
    state, statuses = bench.decide(pod)
    assert statuses["a"] is not None
    given_up = bench.plugin.post_filter(state, pod, {}, bench.world.snapshot)
    assert given_up is not None
    placed = pod_manifest("q", node="a", spec={"schedulingGroup": {"podGroupName": "g"}})
    bench.world.cache.add_pod(pod_of(placed))
    snapshot = bench.world.cache.snapshot()
    assert bench.plugin.post_filter(state, pod, {}, snapshot) is None
