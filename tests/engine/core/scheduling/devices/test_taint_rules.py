"""Taints that DeviceTaintRules add to devices: which devices, next to which others, and when."""

import json
from typing import Any

import pytest

from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.core.framework.status import Status
from engine.core.model.devices import DeviceTaintRule, ResourceSlice
from engine.core.model.objects import decode, from_plain
from engine.core.scheduling.devices.pools import SliceIndex
from engine.core.scheduling.devices.taint_rules import is_changed, rules_for, tainted
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.files.world import World, pod_of
from tests.builders import make_node, node_manifest
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    claiming_pod,
    device_class,
    request,
    resource_slice,
    taint_rule,
)

Json = dict[str, Any]

BEHAVES = behaviors_of(RELEASED)
DRAINED: Json = {"key": "drained", "value": "yes", "effect": "NoSchedule"}


def record(**words: Any) -> ResourceSlice:
    return from_plain(ResourceSlice, resource_slice("a", "g0", "g1", **words))


def rule(selector: Json | None, name: str = "r", **taint: str) -> DeviceTaintRule:
    return from_plain(DeviceTaintRule, taint_rule(name, selector, **{**DRAINED, **taint}))


def keys(made: ResourceSlice) -> dict[str, list[str]]:
    return {device.name: [taint.key for taint in device.taints] for device in made.spec.devices}


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, [], id="no selector"),
        pytest.param({}, ["g0", "g1"], id="empty selector"),
        pytest.param({"driver": DRIVER}, ["g0", "g1"], id="driver"),
        pytest.param({"driver": "other.example.com"}, [], id="other driver"),
        pytest.param({"pool": "a"}, ["g0", "g1"], id="pool"),
        pytest.param({"pool": "b"}, [], id="other pool"),
        pytest.param({"device": "g1"}, ["g1"], id="device"),
        pytest.param({"device": "g2"}, [], id="other device"),
        pytest.param({"driver": DRIVER, "pool": "a", "device": "g0"}, ["g0"], id="all"),
        pytest.param({"driver": DRIVER, "pool": "b", "device": "g0"}, [], id="all but one"),
        pytest.param({"driver": ""}, [], id="no driver has an empty name"),
    ],
)
def test_a_rule_means_the_devices_that_equal_what_it_gives(
    selector: Json | None, want: list[str]
) -> None:
    of_slice = rules_for(record(), [rule(selector)])
    found = keys(tainted(record(), of_slice))
    assert [name for name, taints in found.items() if taints] == want
    assert is_changed(record(), None, rule(selector)) == bool(want)
    assert is_changed(record(), rule(selector), None) == bool(want)


def test_null_is_no_selector() -> None:
    spec = {"deviceSelector": None, "taint": DRAINED}
    text = json.dumps({"metadata": {"name": "r"}, "spec": spec})
    assert decode(DeviceTaintRule, text) == rule(None)


def test_taints_of_rules_come_after_those_of_the_driver() -> None:
    own = [{"key": "own", "effect": "NoExecute"}]
    made = from_plain(ResourceSlice, resource_slice("a", {"name": "g0", "taints": own}, "g1"))
    rules = (rule({"device": "g0"}, key="first"), rule({}, key="second"))
    assert keys(tainted(made, rules)) == {"g0": ["own", "first", "second"], "g1": ["second"]}
    assert keys(made) == {"g0": ["own"], "g1": []}, "what the driver published stays as it is"


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(rule({}), rule({}), False, id="the same"),
        pytest.param(rule({}), rule({}, value="no"), True, id="another taint"),
        pytest.param(rule({"device": "g0"}), rule({"device": "g1"}), True, id="another device"),
        pytest.param(rule({"pool": "a"}), rule({}), False, id="the same devices here"),
        pytest.param(rule(None), rule({"pool": "b"}), False, id="none before and after"),
    ],
)
def test_a_rule_changes_a_slice_if_a_taint_of_a_device_differs(
    old: DeviceTaintRule, new: DeviceTaintRule, want: bool
) -> None:
    assert is_changed(record(), old, new) is want


def test_only_slices_whose_rules_change_are_made_anew() -> None:
    node = make_node("a")
    other = resource_slice("b", "g0", name="other", nodeName="a")
    slices = [record(), from_plain(ResourceSlice, other)]
    first = SliceIndex(slices, behaves=BEHAVES)
    second = SliceIndex(slices, [rule({"pool": "b"})], first, behaves=BEHAVES)
    made = {pool.id[1]: pool.slices for pool in first.pools(node)}
    again = {pool.id[1]: pool.slices for pool in second.pools(node)}
    assert made["a"][0] is again["a"][0]
    assert made["b"][0] is not again["b"][0]


class Bench:
    """One node with two devices, and a claim for one of them."""

    def __init__(self, *objects: Json, **exactly: Any) -> None:
        self.world = World.from_manifests(
            [node_manifest("a")],
            (),
            [
                device_class(),
                resource_slice("a", "g0", "g1"),
                claim("one", request(**exactly)),
                *objects,
            ],
        )
        self.plugin = DynamicResources(self.world.cache.objects)

    def chosen(self) -> str | None:
        """The device that the claim gets; None if there is none."""
        state = self.plugin.pre_filter(pod_of(claiming_pod("p", "one")), self.world.snapshot, {})
        assert not isinstance(state, Status)
        info = self.world.snapshot.info("a")
        assert info is not None
        status = self.plugin.filter(state, info)
        if status is not None:
            assert status.reasons == ("cannot allocate all claims",)
            return None
        return str(state.answers["a"].allocations[0].devices.results[0].device)


@pytest.mark.parametrize(
    ("effect", "want"),
    [
        ("NoSchedule", "g1"),
        ("NoExecute", "g1"),
        ("None", "g0"),
        pytest.param("OfANewerVersion", "g0", id="unknown"),
    ],
)
def test_the_effect_of_a_rule_decides_as_that_of_a_taint_does(effect: str, want: str) -> None:
    bench = Bench(taint_rule("r", {"device": "g0"}, key="drained", effect=effect))
    assert bench.chosen() == want


def test_a_toleration_lets_a_claim_have_a_device_of_a_rule() -> None:
    tolerating = {"tolerations": [{"key": "drained", "operator": "Exists"}]}
    assert Bench(taint_rule("r", {}, **DRAINED), **tolerating).chosen() == "g0"
    assert Bench(taint_rule("r", {}, **DRAINED)).chosen() is None


def test_the_next_decision_goes_by_the_rules_as_they_are() -> None:
    bench = Bench()
    assert bench.chosen() == "g0"
    bench.world.cache.objects.put("devicetaintrules", rule({"device": "g0"}))
    assert bench.chosen() == "g1"
    bench.world.cache.objects.put("devicetaintrules", rule({"device": "g1"}))
    assert bench.chosen() == "g0"
    bench.world.cache.objects.put("devicetaintrules", rule({}))
    assert bench.chosen() is None
    bench.world.cache.objects.delete("devicetaintrules", "r")
    assert bench.chosen() == "g0"
