"""Quantities, and what a pod takes of its node."""

from fractions import Fraction
from typing import Any

import pytest

from devkit.faults.invariants.amounts import quantity, requests_of
from tests.builders import container, pod_manifest


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("100m", Fraction(1, 10)),
        ("1", 1),
        (2, 2),
        (0.5, Fraction(1, 2)),
        ("1.5Gi", 3 * 2**29),
        ("1k", 1000),
        ("12e3", 12000),
        ("1E", 10**18),
        ("2E2", 200),
        (".5", Fraction(1, 2)),
        ("3n", Fraction(3, 10**9)),
    ],
)
def test_a_quantity_is_exact(text: str | float, want: Fraction) -> None:
    assert quantity(text) == want


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1ki", "abc"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="want a quantity"):
        quantity(text)


def _cpu(name: str, cpu: int, *, sidecar: bool = False) -> dict[str, Any]:
    return container(name, requests={"cpu": cpu}, sidecar=sidecar)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param({"cpu": "2"}, 2, id="a container"),
        pytest.param({"containers": [_cpu("a", 1), _cpu("b", 2)]}, 3, id="containers add up"),
        pytest.param(
            {"cpu": 1, "init_containers": [_cpu("i", 5), _cpu("j", 4)]}, 5, id="the largest init"
        ),
        pytest.param(
            {"cpu": 1, "init_containers": [_cpu("s", 2, sidecar=True)]}, 3, id="a sidecar stays"
        ),
        pytest.param(
            {"cpu": 1, "init_containers": [_cpu("s", 2, sidecar=True), _cpu("i", 4)]},
            6,
            id="an init container beside an earlier sidecar",
        ),
        pytest.param(
            {"cpu": 1, "init_containers": [_cpu("i", 4), _cpu("s", 2, sidecar=True)]},
            4,
            id="an init container before a sidecar",
        ),
        pytest.param({"cpu": 1, "overhead": {"cpu": "500m"}}, Fraction(3, 2), id="overhead"),
        pytest.param(
            {"cpu": 1, "resources": {"requests": {"cpu": 4}}, "overhead": {"cpu": 1}},
            5,
            id="of the pod itself",
        ),
        pytest.param({}, 0, id="nothing"),
    ],
)
def test_what_a_pod_takes(words: dict[str, Any], want: Fraction) -> None:
    taken = requests_of(pod_manifest("p", **words))
    assert taken.get("cpu", 0) == want
    assert taken["pods"] == 1


def test_what_devices_stand_for_is_not_taken_of_the_node() -> None:
    mapped = {"extendedResourceClaimStatus": {"requestMappings": [{"resourceName": "a.b/gpu"}]}}
    pod = pod_manifest("p", requests={"a.b/gpu": 1, "cpu": 1})
    assert requests_of(pod)["a.b/gpu"] == 1
    assert "a.b/gpu" not in requests_of({**pod, "status": mapped})
