"""What kube-scheduler does with a feature gate on where devices are chosen.

Random clusters are compared in `tests/parity`; here are the edges, one at a time.
"""

from typing import Any

import pytest

from engine.core.framework.behaviors import GATES, behaviors_of
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    device_class,
    request,
    resource_slice,
)
from tests.engine.core.scheduling.devices.test_behaviors import NOTHING_THERE, Json, said
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
    kind: str, *values: Json, count: int = 2, minor: int = 37, gates: frozenset[str] = LISTS
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
    values = ({}, {"unknown": 1}, {"ints": []}, {"ints": [1]})
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
