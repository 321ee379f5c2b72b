"""What differs between minor versions of Kubernetes where devices are chosen, for 1.37 and 1.38.

Each is as kube-scheduler 1.37.2 and 1.38.0-beta.0 answer it. The texts of 1.38 were compared with
those of its structured allocator and of its plugin.
"""

from typing import Any

import pytest

from engine.core.framework.behaviors import behaviors_of
from engine.core.framework.reasons import token_of
from engine.core.framework.status import Code, Status
from engine.core.model.devices import ResourceClaim
from engine.core.model.objects import from_plain
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    device_class,
    request,
    resource_slice,
)
from tests.engine.core.scheduling.devices.test_plugin import Bench, pod

Json = dict[str, Any]
NOTHING_THERE = "cannot allocate all claims"


def on(minor: int, *objects: Json, nodes: tuple[str, ...] = ("a",)) -> Bench:
    """A world of Kubernetes 1.*minor*."""
    bench = Bench(device_class(), *objects, nodes=nodes)
    bench.objects.behaves = behaviors_of(minor)
    return bench


def said(bench: Bench, node: str = "a") -> Any:
    """What the claim `c` of a pod gets on a node: what is consumed by device, or a text."""
    state, statuses = bench.decide(pod("p", "c"))
    if isinstance(state, Status):
        return state.message
    status = statuses[node]
    if status is not None:
        return status.message
    results = state.answers[node].allocations[0].devices.results
    return {result.device: dict(result.consumed_capacity) for result in results}


def shared_device(name: str, policy: Json | None = None, value: str = "8") -> Json:
    """A device with a capacity `memory` that claims may share."""
    return device(name, {"memory": value}, policy, allowMultipleAllocations=True)


def device(name: str, capacity: Json, policy: Json | None = None, **fields: Any) -> Json:
    asked = {} if not policy else {"requestPolicy": policy}
    return {
        "name": name,
        "capacity": {key: {"value": value, **asked} for key, value in capacity.items()},
        **fields,
    }


def asking(amount: str | None, name: str = "memory") -> Json:
    """The claim `c` for an amount of a capacity."""
    return claim("c", request(capacity={"requests": {} if amount is None else {name: amount}}))


def taken(name: str, device: str, *, share: str | None = "1", **consumed: str) -> Json:
    """Another claim, which has a share of a device, or all of it."""
    result: Json = {"request": "r", "driver": DRIVER, "pool": "a", "device": device}
    if share is not None:
        result |= {"shareID": f"00000000-0000-4000-8000-00000000000{share}"}
    if consumed:
        result["consumedCapacity"] = {key.replace("__", "/"): v for key, v in consumed.items()}
    allocation = {"devices": {"results": [result]}}
    return {**claim(name), "status": {"allocation": allocation}}


# --- ranges in thousandths -----------------------------------------------------------------------

RANGE: Json = {"default": "1", "validRange": {"min": "500m", "max": "4", "step": "250m"}}


@pytest.mark.parametrize(
    ("amount", "before", "then"),
    [
        # 1.37 counts from 1, in steps of 1: what `500m` and `250m` are in whole numbers.
        ("600m", "1", "750m"),
        ("1100m", "2", "1250m"),
        ("2", "2", "2"),
        ("100u", "500m", "500m"),
        (None, "1", "1"),
    ],
)
def test_a_range_is_counted_in_thousandths(amount: str | None, before: str, then: str) -> None:
    for minor, want in ((37, before), (38, then)):
        bench = on(minor, resource_slice("a", shared_device("d", RANGE)), asking(amount))
        assert said(bench) == {"d": {"memory": want}}, minor


def test_what_is_no_number_of_thousandths_is_no_request_for_a_range() -> None:
    for minor, want in (
        (37, {"d": {"memory": "2"}}),
        (
            38,
            "claim default/c, request r: checking capacity for device gpu.example.com/a/d: "
            f'capacity "{DRIVER}/memory": capacity request cannot be represented in the device\'s '
            "range arithmetic: request 1000100u is not a representable milli value",
        ),
    ):
        bench = on(minor, resource_slice("a", shared_device("d", RANGE)), asking("1.0001"))
        assert said(bench) == want


def test_the_last_step_may_pass_what_thousandths_can_hold() -> None:
    policy = {"default": "1", "validRange": {"min": "0", "step": "9000000000000000"}}
    bench = on(38, resource_slice("a", shared_device("d", policy, "1")), asking("9000000000000001"))
    assert said(bench).endswith(
        "rounding request 9000000000000001 up to the next step passes the milli-value range"
    )


def test_a_range_beyond_thousandths_is_counted_in_whole_numbers() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "max": "10P", "step": "1500m"}}
    for minor in (37, 38):
        bench = on(minor, resource_slice("a", shared_device("d", policy)), asking("1500m"))
        assert said(bench) == {"d": {"memory": "3"}}, minor


# --- all devices of a pool that is not usable ----------------------------------------------------


@pytest.mark.parametrize("state", ["being updated", "invalid"])
def test_a_pool_that_is_not_usable_is_named_to_its_nodes(state: str) -> None:
    wanted = claim("c", request(allocationMode="All"))
    slices = 2 if state == "being updated" else 1
    spoiled = resource_slice(
        "a", "d", "d", pool={"name": "a", "generation": 1, "resourceSliceCount": slices}
    )
    whole = resource_slice("b", "d")
    for minor, want in (
        (
            37,
            "all devices of a resource pool are asked for, and it is "
            + ("being updated" if state == "being updated" else "invalid"),
        ),
        (
            38,
            "claim default/c, request r: asks for all devices, "
            f"but resource pool {DRIVER}/a is currently {state}",
        ),
    ):
        bench = on(minor, spoiled, whole, wanted, nodes=("a", "b"))
        _, statuses = bench.decide(pod("p", "c"))
        status = statuses["a"]
        assert status is not None
        assert status.code is Code.UNRESOLVABLE
        assert (status.message, statuses["b"]) == (want, None)
        assert token_of(status) == "DevicePoolNotReady"


def test_what_names_a_claim_is_not_said_to_the_pods_of_others() -> None:
    """Pods that ask for the same are of one kind, and what is said to one is said to the next."""
    everything = request(allocationMode="All")
    for minor, is_shared in ((37, True), (38, False)):
        bench = on(
            minor, resource_slice("a", "d"), claim("c", everything), claim("other", everything)
        )
        kinds = [bench.plugin.kind_of(bench.decide(pod("p", name))[0]) for name in ("c", "other")]
        assert (kinds[0] == kinds[1]) is is_shared, minor


# --- names with and without the domain of the driver ---------------------------------------------

FULL = f"{DRIVER}/memory"


@pytest.mark.parametrize(("published", "asked"), [("memory", FULL), (FULL, "memory")])
def test_a_capacity_has_one_name(published: str, asked: str) -> None:
    gpu = device("d", {published: "8"}, allowMultipleAllocations=True)
    for minor, want in ((37, NOTHING_THERE), (38, {"d": {published: "3"}})):
        bench = on(minor, resource_slice("a", gpu), asking("3", asked))
        assert said(bench) == want


def test_of_two_capacities_of_one_name_the_one_with_the_domain_counts() -> None:
    gpu = device("d", {"memory": "8", FULL: "2"}, allowMultipleAllocations=True)
    for minor, want in ((37, {"d": {"memory": "3", FULL: "2"}}), (38, NOTHING_THERE)):
        assert said(on(minor, resource_slice("a", gpu), asking("3"))) == want
    assert said(on(38, resource_slice("a", gpu), asking("2"))) == {"d": {FULL: "2"}}


def test_a_capacity_that_is_requested_by_both_names_fails_the_attempt() -> None:
    both = claim("c", request(capacity={"requests": {"memory": "1", FULL: "2"}}))
    slices = resource_slice("a", shared_device("d"))
    assert said(on(37, slices, both)) == NOTHING_THERE
    assert said(on(38, slices, both)) == (
        "claim default/c, request r: checking capacity for device gpu.example.com/a/d: "
        f'capacity "memory" requested both as "{FULL}" and as "memory"'
    )
    lacking = claim("c", request(capacity={"requests": {"memory": "1", FULL: "2", "x": "1"}}))
    assert said(on(38, slices, lacking)) == NOTHING_THERE, "it is not asked of this device"


def test_what_is_consumed_counts_by_either_name() -> None:
    slices = resource_slice("a", shared_device("d"))
    other = taken("t", "d", **{FULL.replace("/", "__"): "6"})
    for minor, want in ((37, {"d": {"memory": "3"}}), (38, NOTHING_THERE)):
        assert said(on(minor, slices, other, asking("3"))) == want
    twice = taken("t", "d", memory="8", **{FULL.replace("/", "__"): "5"})
    assert said(on(38, slices, twice, asking("3"))) == {"d": {"memory": "3"}}


def test_the_attribute_with_the_domain_is_the_one_that_expressions_see() -> None:
    attributes = {f"{DRIVER}/model": {"string": "a"}, "model": {"string": "b"}}
    gpu = {"name": "d", "attributes": attributes}
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "a"'}}
    bench = on(38, resource_slice("a", gpu), claim("c", request(selectors=[selector])))
    assert said(bench) == {"d": {}}


# --- constraints ---------------------------------------------------------------------------------


def pair(kind: str, *values: Json) -> list[Json]:
    """A slice of devices with an attribute `v` each, and a claim for as many with a constraint."""
    devices = [{"name": f"d{i}", "attributes": {"v": v}} for i, v in enumerate(values)]
    constraint = {kind: f"{DRIVER}/v"}
    return [
        resource_slice("a", *devices),
        claim("c", request(count=len(values)), constraints=[constraint]),
    ]


@pytest.mark.parametrize(
    ("kind", "before"), [("matchAttribute", False), ("distinctAttribute", True)]
)
def test_build_metadata_does_not_tell_versions_apart(kind: str, before: bool) -> None:
    objects = pair(kind, {"version": "1.2.0+a"}, {"version": "1.2.0+b"})
    for minor, is_met in ((37, before), (38, not before)):
        assert (said(on(minor, *objects)) != NOTHING_THERE) is is_met, minor
    other = pair(kind, {"version": "1.2.0-rc.1"}, {"version": "1.2.0"})
    for minor in (37, 38):
        assert (said(on(minor, *other)) == NOTHING_THERE) is (kind == "matchAttribute")


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
@pytest.mark.parametrize(
    "value", [{"strings": ["x"]}, {}, {"version": "18446744073709551616.0.0"}], ids=str
)
def test_a_constraint_on_what_cannot_be_compared_fails_the_attempt(kind: str, value: Json) -> None:
    [slices, wanted] = pair(kind, value)
    assert said(on(37, slices, wanted)) == {"d0": {}}, "it is the only one that is wanted"
    assert said(on(38, slices, wanted)) == (
        f"claim default/c, request r: device {DRIVER}/a/d0: "
        f"unsupported attribute value for {DRIVER}/v"
    )
    objects = pair(kind, {"string": "x"}, {"string": "y"} if kind[0] == "d" else {"string": "x"})
    objects[0]["spec"]["devices"].insert(0, {"name": "bare"})
    for minor in (37, 38):
        assert said(on(minor, *objects)) == {"d0": {}, "d1": {}}, "absent is another thing"


def test_a_device_without_room_is_not_compared() -> None:
    first, second = (shared_device(name) for name in ("d0", "d1"))
    first["attributes"], second["attributes"] = {"v": {"ints": [1]}}, {"v": {"int": 1}}
    wanted = asking("3")
    wanted["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/v"}]
    for minor in (37, 38):
        bench = on(minor, resource_slice("a", first, second), taken("t", "d0", memory="6"), wanted)
        assert said(bench) == {"d1": {"memory": "3"}}, minor


# --- negative amounts ----------------------------------------------------------------------------


def test_a_negative_amount_on_record_stops_all_pods_that_need_devices() -> None:
    slices, wanted = resource_slice("a", shared_device("d")), asking("8")
    others = [taken("t", "d", memory="-1Gi"), taken("s", "d", share="2", memory="7")]
    text = (
        f"gather allocation state: claim default/t, device {DRIVER}/a/d: "
        'consumed capacity "memory" must not be negative, got -1Gi'
    )
    assert said(on(37, slices, wanted, *others)) == {"d": {"memory": "8"}}
    bench = on(38, slices, wanted, *others)
    state, _ = bench.decide(pod("p", "c"))
    assert isinstance(state, Status)
    assert (state.code, state.message) == (Code.ERROR, text)
    assert state.subject == "resourceclaim default/t", "the pod waits for that claim"

    worse = taken("q", "d", share="3", a="-1", memory="-2")
    bench.objects.put("resourceclaims", from_plain(ResourceClaim, worse))
    assert said(bench) == (
        f"gather allocation state: claim default/q, device {DRIVER}/a/d: consumed capacity "
        '"a" must not be negative, got -1 (and 1 more claims with invalid consumed capacity)'
    )
    for name in ("t", "q"):
        bench.objects.delete("resourceclaims", f"default/{name}")
    assert said(bench) == NOTHING_THERE, "7 of 8 are taken"
    allocated = on(38, slices, *others, taken("c", "d", share="4", memory="1"))
    assert allocated.feasible(pod("p", "c")) == ["a"], "nothing is searched for"


def test_a_negative_request_is_refused_before_it_is_rounded() -> None:
    slices = resource_slice("a", shared_device("d", RANGE))
    assert said(on(37, slices, asking("-1"))) == {"d": {"memory": "500m"}}
    assert said(on(38, slices, asking("-1"))) == (
        "claim default/c, request r: checking capacity for device gpu.example.com/a/d: "
        f'capacity "{FULL}": capacity value is negative: request -1'
    )


# --- attributes that are not understood ----------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "then"),
    [
        (f'device.attributes["{DRIVER}"].model == "a"', {"d": {}}),
        (f'device.attributes["{DRIVER}"].odd == "a"', None),
        (f'has(device.attributes["{DRIVER}"].odd)', None),
        (f'device.attributes["{DRIVER}"] == device.attributes["{DRIVER}"]', None),
        (f'"odd" in device.attributes["{DRIVER}"]', NOTHING_THERE),
        (f'size(device.attributes["{DRIVER}"]) == 2', {"d": {}}),
        ("type(device.attributes) == map", {"d": {}}),
        (f'device.attributes["{DRIVER}"].odd == "a" || true', {"d": {}}),
    ],
)
def test_an_attribute_of_an_unknown_type_fails_what_reads_it(expression: str, then: Any) -> None:
    gpu = {"name": "d", "attributes": {"model": {"string": "a"}, "odd": {"ofANewerVersion": 1}}}
    wanted = claim("c", request(selectors=[{"cel": {"expression": expression}}]))
    failure = "claim default/c: selector #0 on device gpu.example.com/a/d: CEL runtime error: "
    slices = resource_slice("a", gpu)
    assert said(on(37, slices, wanted)) == f"{failure}attribute odd: unsupported attribute value"
    assert said(on(38, slices, wanted)) == (
        then
        or f"{failure}attribute odd: value is invalid or its type is not supported by this version"
    )


def test_maps_with_values_that_cannot_be_compared_are_not_equal() -> None:
    """1.37 takes a version for equal to a text there; 1.38 fails."""
    gpu = {"name": "d", "attributes": {"v": {"version": "1.0.0"}}}
    expression = f'device.attributes["{DRIVER}"] == {{"v": "1.0.0"}}'
    wanted = claim("c", request(selectors=[{"cel": {"expression": expression}}]))
    assert said(on(37, resource_slice("a", gpu), wanted)) == {"d": {}}
    assert said(on(38, resource_slice("a", gpu), wanted)).endswith("no such overload")


@pytest.mark.parametrize(
    ("expression", "before", "then"),
    [
        ("1.0 <= 0.0 / 0.0", "NaN values cannot be ordered", False),
        ("!(0.0 / 0.0 > 1)", "NaN values cannot be ordered", True),
        (f'device.attributes["{DRIVER}"].model < 0.0 / 0.0', "no such overload", False),
        ('quantity("9223372036854775807").isInteger()', False, True),
        ('quantity("-9223372036854775808").asInteger() < 0', "cannot convert value", True),
        ('sign(quantity("9E").sub(-9223372036854775808)) == 1', False, True),
        (f'dyn(b"model") in device.attributes["{DRIVER}"]', "unsupported key type", True),
        (f'dyn([1]) in device.attributes["{DRIVER}"]', "unsupported key type", False),
        (f'device.attributes["{DRIVER}"][dyn(true)] == "b"', "no such key", True),
        (f'device.attributes["{DRIVER}"][dyn([1])] == "b"', "unsupported key type", "overload"),
    ],
)
def test_expressions_at_the_edges(expression: str, before: bool | str, then: bool | str) -> None:
    """As the evaluators of both versions say (`k8s.io/dynamic-resource-allocation/cel`).

    1.37 says of a key that is no text that it is not there, or that there is no such overload.
    """
    gpu = {"name": "d", "attributes": {"model": {"string": "a"}, "true": {"string": "b"}}}
    wanted = claim("c", request(selectors=[{"cel": {"expression": expression}}]))
    for minor, want in ((37, before), (38, then)):
        got = said(on(minor, resource_slice("a", gpu), wanted))
        if isinstance(want, str):
            assert want in got, minor
        else:
            assert got == ({"d": {}} if want else NOTHING_THERE), minor


# --- devices that were shared --------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_a_device_that_may_not_be_shared_any_more_is_kept_by_its_shares(mode: str) -> None:
    slices, other = resource_slice("a", "d"), taken("t", "d")
    for minor, want in ((37, {"d": {}}), (38, NOTHING_THERE)):
        assert said(on(minor, slices, other, claim("c", request(allocationMode=mode)))) == want
    admin = claim("c", request(allocationMode=mode, adminAccess=True))
    assert said(on(38, slices, other, admin)) == {"d": {}}, "it takes nothing"


# --- the version changes -------------------------------------------------------------------------


def test_devices_are_counted_again_when_the_version_of_the_cluster_changes() -> None:
    slices = resource_slice("a", shared_device("d"))
    other = taken("t", "d", **{FULL.replace("/", "__"): "6"})
    bench = on(37, slices, other, asking("3"))
    assert said(bench) == {"d": {"memory": "3"}}
    bench.objects.behaves = behaviors_of(38)
    assert said(bench) == NOTHING_THERE
    bench.objects.delete("resourceclaims", "default/t")
    assert said(bench) == {"d": {"memory": "3"}}
    bench.objects.behaves = behaviors_of(37)
    assert said(bench) == {"d": {"memory": "3"}}
