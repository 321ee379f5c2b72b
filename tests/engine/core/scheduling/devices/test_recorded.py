"""Our answers beside kube-scheduler's, on worlds that were recorded.

Recorded from Kubernetes v1.37.2: a program of a few lines called `structured.NewAllocator` and
`cel.NewCache` of k8s.io/dynamic-resource-allocation with the features that are on by default, on
the worlds of `scenarios.py` (seeds 0 to 149) and on one device with many expressions. Names of
shares are left out.
"""

import json
from pathlib import Path
from typing import Any

from engine.core.framework.behaviors import behaviors_of
from engine.core.model.devices import ResourceSlice
from engine.core.model.objects import from_plain
from engine.core.scheduling.devices.pools import PoolSlice
from engine.core.scheduling.devices.selectors import SelectorError, matches
from tests.engine.core.scheduling.devices.answers import answers, comparable

DATA = Path(__file__).resolve().parents[4] / "data" / "devices"


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def _as_meant(answer: dict[str, Any]) -> dict[str, Any]:
    """*answer*, with a pool that is not usable as what rejects the node and not every node."""
    is_of_pool = "asks for all devices, but resource pool" in answer["error"]
    return {**answer, "onNode": True} if is_of_pool else answer


def test_claims_get_the_devices_that_kube_scheduler_gives_them() -> None:
    recorded = _lines("allocations.jsonl")
    different = [
        (number, want, got)
        for number, line in enumerate(recorded)
        for want, got in zip(
            map(_as_meant, line["answers"]), map(comparable, answers(line["world"])), strict=True
        )
        if want != got
    ]
    assert different == []
    outcomes = [bool(answer["found"]) for line in recorded for answer in line["answers"]]
    assert 20 < sum(outcomes) < len(outcomes) - 20, "the worlds say too little"
    errors = " ".join(answer["error"] for line in recorded for answer in line["answers"])
    for text in (
        "consider using CEL optional chaining",
        "devices exceeds the claim limit of 32, with",
        "capacity value is negative",
        "capacity request cannot be represented",
        "because a claim constraint would not be satisfied",
        "cannot handle request with derived attributes",
        "unsupported count mode",
    ):
        assert text in errors


def test_expressions_say_of_a_device_what_they_say_in_kubernetes() -> None:
    head, *lines = _lines("selectors.jsonl")
    spec = {"driver": head["driver"], "pool": {"name": "p"}, "devices": [head["device"]]}
    device = PoolSlice(from_plain(ResourceSlice, {"spec": spec}), behaves=behaviors_of(37)).devices[
        0
    ]
    different = []
    for line in lines:
        # The compiler is another one, so what is wrong with an expression has other words.
        is_about_device = "runtime" in line and "device" in line["expression"]
        fails = "compile" in line or "runtime" in line
        want = f"CEL runtime error: {line.get('runtime')}" if is_about_device else None
        try:
            got: bool | str | None = matches(line["expression"], device)[0]
        except SelectorError as error:
            got = str(error) if is_about_device else None
        if got != (want if fails else line["matches"]):
            different.append((line, got))
    assert different == []
    assert len(lines) > 250
