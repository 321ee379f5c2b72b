from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.parity import generator
from tests.parity.oracle import Oracle

DATA = Path(__file__).parents[1] / "data" / "conformance"
FILES = sorted(path.name for path in DATA.glob("*.jsonl"))
NODE = {"metadata": {"name": "n00"}, "status": {"allocatable": {"pods": "1"}}}
POD = {"metadata": {"name": "p00", "namespace": "default"}, "spec": {"containers": []}}


def _comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """*answer* without the order of reasons, which changes, and the outcomes of chance."""
    by_chance = {"preemption", "chance"}
    if "chance" in answer:
        by_chance |= {"rejected", "scores", "total", "best", "postFilter"}
    plain = {key: value for key, value in answer.items() if key not in by_chance}
    for rejection in plain.get("rejected", {}).values():
        rejection["reasons"].sort()
    return plain


def _seen(answer: dict[str, Any]) -> set[tuple[str, ...]]:
    """What was seen where chance decides: rejections, scores, victims and what was said of them."""
    found = set()
    for one in (answer, answer.get("chance") or {}):
        for node, rejections in (one.get("rejected") or {}).items():
            for each in rejections if one is not answer else [rejections]:
                found.add((node, each["plugin"], each["code"], *sorted(each["reasons"])))
        for node, row in (one.get("scores") or {}).items():
            for plugin, scores in row.items():
                for score in scores if one is not answer else [scores]:
                    found.add((node, plugin, str(score)))
        for node, victims in (one.get("preemption") or {}).items():
            for each in victims if one is not answer else [victims]:
                found.add((node, "victims", *each))
        texts = one.get("postFilter") or []
        found.update(
            ("post-filter", each) for each in ([texts] if isinstance(texts, str) else texts)
        )
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_recorded_answers_are_the_oracles(oracle: Oracle, name: str) -> None:
    recorded = [msgspec.json.decode(line) for line in (DATA / name).read_bytes().splitlines()]
    asks = any({"preemption", "postFilter"} & set(a) for s in recorded for a in s["answers"])
    runs = {"runs": 32} if asks else {}
    # All at once: the oracle, which others use too, must not be left with answers to give.
    often = [{**s, **runs, **({"repeats": 64} if "repeats" in s else {})} for s in recorded]
    answers = list(oracle.ask(often))
    for scenario, answered in zip(recorded, answers, strict=True):
        assert "error" not in answered, scenario["id"]
        for want, got in zip(scenario["answers"], answered["answers"], strict=True):
            if "chance" in got:
                want.setdefault("chance", {})
            assert _comparable(got) == _comparable(want), scenario["id"]
            # Of equal candidates one is taken by chance: what was seen then is among what is now.
            assert _seen(want) <= _seen(got), scenario["id"]


@pytest.mark.parametrize(
    ("broken", "want"),
    [
        pytest.param({"nodes": [{"metadata": 5}]}, "nodes[0]", id="an object of the wrong shape"),
        pytest.param({"config": {"kind": "KubeSchedulerConfiguration"}}, "config", id="config"),
        pytest.param({"objects": [{"kind": "Pod"}]}, "objects[0]", id="an object without version"),
        pytest.param({"pods": [POD]}, "neither a node", id="a pod that is nowhere"),
        pytest.param(
            {"incoming": [{**POD, "spec": {"schedulerName": "nobody"}}]}, "nobody", id="no profile"
        ),
    ],
)
def test_a_bad_scenario_costs_only_itself(
    oracle: Oracle, broken: dict[str, Any], want: str
) -> None:
    good = {"id": "good", "nodes": [NODE], "incoming": [POD]}
    first, second, third = oracle.ask([good, {**good, "id": "bad", **broken}, good])
    assert want in second["error"]
    assert "answers" not in second
    assert first == third
    assert first["answers"][0]["best"] == ["n00"]


def test_what_an_api_server_would_refuse_is_named(oracle: Oracle) -> None:
    nameless = {"metadata": {"name": "No Name"}, "status": {"allocatable": {"pods": "1"}}}
    (answered,) = oracle.ask([{"id": "x", "nodes": [nameless], "incoming": [POD]}])
    assert [text for text in answered["invalid"] if text.startswith("nodes[0]: metadata.name")]
    assert [text for text in answered["invalid"] if text.startswith("incoming[0]: spec.containers")]


@pytest.mark.parametrize("minor", ["oracle", "oracle_of_1_38"])
def test_a_class_of_devices_stands_for_an_extended_resource(
    minor: str, request: pytest.FixtureRequest
) -> None:
    """The cache of such classes is filled by their events alone."""
    asked: Oracle = request.getfixturevalue(minor)
    devices = {
        "driver": "gpu.example.com",
        "nodeName": "n00",
        "pool": {"name": "n00", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}],
    }
    specs = {"DeviceClass": {"extendedResourceName": "example.com/gpu"}, "ResourceSlice": devices}
    objects = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "one"},
            "spec": spec,
        }
        for kind, spec in specs.items()
    ]
    amounts = {"example.com/gpu": "1"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    pod = {**POD, "spec": {"containers": [container]}}
    scenario = {"id": "x", "nodes": [NODE], "incoming": [pod]}
    with_class, without = asked.ask([{**scenario, "objects": objects}, scenario])
    assert with_class["answers"][0]["best"] == ["n00"]
    assert without["answers"][0]["rejected"]["n00"]["reasons"] == ["Insufficient example.com/gpu"]


@pytest.mark.parametrize("theme", generator.NEWER)
def test_the_generator_makes_what_a_newer_api_server_accepts(
    oracle_of_1_38: Oracle, theme: str
) -> None:
    scenarios = [generator.scenario(7, index, theme) for index in range(10)]
    for answered in oracle_of_1_38.ask(scenarios):
        assert "error" not in answered, answered["id"]
        assert "invalid" not in answered, answered["id"]


@pytest.mark.parametrize("theme", generator.THEMES)
def test_the_generator_makes_what_an_api_server_accepts(oracle: Oracle, theme: str) -> None:
    scenarios = [generator.scenario(7, index, theme) for index in range(10)]
    for answered in oracle.ask(scenarios):
        assert "error" not in answered, answered["id"]
        assert "invalid" not in answered, answered["id"]
