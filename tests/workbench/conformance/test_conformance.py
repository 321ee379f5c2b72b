import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.parity.record import FILES
from workbench.conformance.conformance import (
    Agreement,
    CaseRunner,
    Scenario,
    ScenarioError,
    read_scenarios,
)

DATA = Path(__file__).parents[2] / "data" / "conformance"
OF_1_38 = Path(__file__).parents[2] / "data" / "conformance-1.38"
COMPLETE = (
    "resources",
    "scoring",
    "taints",
    "nodeaffinity",
    "ports",
    "images",
    "spread",
    "interpod",
    "mixed",
    "volumes",
    "preemption",
    *FILES,
)


#: How many answers differ on purpose, by file: over pools of devices, and admin access to them.
ON_PURPOSE = {"counters": 3, "device_rules": 4, "shares": 2}


@pytest.fixture(scope="module")
def runner() -> CaseRunner:
    return CaseRunner(37)  # of which the answers were recorded


@pytest.mark.budget(5, "all recorded answers of a kind")
@pytest.mark.parametrize("name", COMPLETE)
def test_every_recorded_answer_is_ours(runner: CaseRunner, name: str) -> None:
    outcomes = [o for s in read_scenarios(DATA / f"{name}.jsonl") for o in runner.run(s)]
    kept = (Agreement.MATCHED, Agreement.ON_PURPOSE)
    assert [o for o in outcomes if o.agreement not in kept] == []
    assert len(outcomes) == 200
    meant = sum(o.agreement is Agreement.ON_PURPOSE for o in outcomes)
    assert meant == ON_PURPOSE.get(name, 0)


@pytest.fixture(scope="module")
def runner_of_1_38() -> CaseRunner:
    return CaseRunner(38)


#: Of 1.38, likewise: scores of storage beyond int64.
ON_PURPOSE_IN_1_38 = {"edges38": 3}


@pytest.mark.budget(5, "all recorded answers of a kind")
@pytest.mark.parametrize("path", sorted(OF_1_38.glob("*.jsonl.gz")), ids=lambda path: path.name)
def test_every_recorded_answer_of_1_38_is_ours(runner_of_1_38: CaseRunner, path: Path) -> None:
    outcomes = [o for s in read_scenarios(path) for o in runner_of_1_38.run(s)]
    name = path.name.partition(".")[0]
    other = [o for o in outcomes if o.agreement not in (Agreement.MATCHED, Agreement.ON_PURPOSE)]
    assert other == []
    assert len(outcomes) == (300 if name == "edges38" else 200)
    meant = [o for o in outcomes if o.agreement is Agreement.ON_PURPOSE]
    assert sum("VolumeBinding" in o.differences[0] for o in meant) == ON_PURPOSE_IN_1_38.get(
        name, 0
    )


@pytest.mark.parametrize(
    "scenario", [*read_scenarios(DATA / "found.jsonl")], ids=lambda scenario: scenario.id
)
def test_a_difference_that_was_found_once_is_gone(runner: CaseRunner, scenario: Scenario) -> None:
    assert [o for o in runner.run(scenario) if o.agreement is not Agreement.MATCHED] == []


def _scenario(**pod_spec: Any) -> dict[str, Any]:
    def node(name: str, cpu: str) -> dict[str, Any]:
        allocatable = {"cpu": cpu, "memory": "1000Mi", "pods": "10"}
        return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}

    row = {
        "DynamicResources": 0,
        "ImageLocality": 0,
        "NodeResourcesBalancedAllocation": 67,
        "NodeResourcesFit": 65,
        "TaintToleration": 300,
        "VolumeBinding": 0,
    }
    requests = {"cpu": "500m", "memory": "200Mi"}
    return {
        "id": "s",
        "nodes": [node("a", "1"), node("b", "100m")],
        "incoming": [
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"resources": {"requests": requests}}], **pod_spec},
            }
        ],
        "answers": [
            {
                "pod": "default/p",
                "rejected": {
                    "b": {
                        "plugin": "NodeResourcesFit",
                        "code": "UnschedulableAndUnresolvable",
                        "reasons": ["Insufficient cpu"],
                    }
                },
                "scores": {"a": row},
                "total": {"a": sum(row.values())},
                "best": ["a"],
            }
        ],
    }


@pytest.mark.parametrize(
    ("chance", "want"),
    [
        pytest.param({"scores": {"a": {"ImageLocality": [7, 0]}}}, (), id="another score"),
        pytest.param(
            {"scores": {"a": {"ImageLocality": [7]}}},
            ("node a: score of ImageLocality: want 5, got 0",),
            id="no score of ours",
        ),
    ],
)
def test_one_of_the_scores_that_chance_brings_is_right(
    runner: CaseRunner, chance: dict[str, Any], want: tuple[str, ...]
) -> None:
    plain = _scenario()
    answer = plain["answers"][0]
    answer["scores"]["a"]["ImageLocality"] += 5
    answer["total"]["a"] += 5
    answer["chance"] = chance
    assert _run(runner, plain).differences == want


def test_one_of_the_rejections_that_chance_brings_is_right(runner: CaseRunner) -> None:
    plain = _scenario()
    answer = plain["answers"][0]
    ours = answer["rejected"]["b"]
    answer["rejected"]["b"] = {**ours, "reasons": ["another driver"]}
    assert _run(runner, plain).agreement is Agreement.DIFFERS
    answer["chance"] = {"rejected": {"b": [ours]}}
    assert _run(runner, plain).agreement is Agreement.MATCHED


def _run(runner: CaseRunner, plain: dict[str, Any]) -> Any:
    (outcome,) = runner.run(msgspec.convert(plain, Scenario))
    return outcome


def _changed(path: str, value: Any) -> dict[str, Any]:
    plain = copy.deepcopy(_scenario())
    at: Any = plain["answers"][0]
    *parents, last = path.split(".")
    for key in parents:
        at = at[key]
    at[last] = value
    return plain


def test_the_scenario_of_these_tests_matches(runner: CaseRunner) -> None:
    outcome = _run(runner, _scenario())
    assert outcome.differences == ()
    assert outcome.agreement is Agreement.MATCHED


def test_a_pod_that_is_nominated_takes_its_capacity(runner: CaseRunner) -> None:
    """It was refused as one that is placed nowhere, though the oracle has answers for it."""
    plain = _scenario()
    requests = plain["incoming"][0]["spec"]["containers"][0]["resources"]["requests"]
    other = {"containers": [{"resources": {"requests": {**requests, "cpu": "600m"}}}]}
    status = {"nominatedNodeName": "a"}
    plain["pods"] = [{"metadata": {"name": "first"}, "spec": other, "status": status}]
    assert _run(runner, plain).differences[0] == (
        "node a: want no rejection, got rejected by NodeResourcesFit "
        "(Unschedulable: Insufficient cpu)"
    )


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        pytest.param(
            "scores.a.NodeResourcesFit",
            66,
            "node a: score of NodeResourcesFit: want 66, got 65",
            id="score",
        ),
        pytest.param("total.a", 1, "total: want {'a': 1}, got {'a': 432}", id="total"),
        pytest.param("best", ["b"], "best: want ['b'], got ['a']", id="best"),
        pytest.param("preFilterNodes", ["a"], "want a, got all", id="narrowed"),
        pytest.param("rejected.b.code", "Unschedulable", "(Unschedulable: ", id="code"),
        pytest.param("rejected.b.reasons", ["other"], "other", id="reasons"),
        pytest.param("rejected.b.plugin", "NodeName", "rejected by NodeName", id="plugin"),
        pytest.param("rejected", {}, "node b: want no rejection, got rejected by", id="rejection"),
        pytest.param("scores.b", {"ImageLocality": 0}, "node b: want a score", id="feasible"),
        pytest.param("postFilter", "no", "post-filter: want `no`, got ``", id="post-filter"),
        pytest.param("preemption", {"b": ["x"]}, "want one of {'b': ['x']}", id="preemption"),
    ],
)
def test_every_part_of_an_answer_is_compared(
    runner: CaseRunner, path: str, value: Any, want: str
) -> None:
    outcome = _run(runner, _changed(path, value))
    assert outcome.agreement is Agreement.DIFFERS
    assert any(want in difference for difference in outcome.differences), outcome.differences


@pytest.mark.parametrize(
    ("plain", "missing"),
    [
        pytest.param(_changed("rejected.b.plugin", "NoSuch"), "NoSuch", id="rejected by"),
        pytest.param(_changed("scores.a.NoSuch", 0), "NoSuch", id="scored by"),
        pytest.param(
            _changed("preFilter", {"plugin": "NoSuch", "code": "x", "reasons": []}),
            "NoSuch",
            id="pre-filtered by",
        ),
    ],
)
def test_an_answer_that_needs_a_missing_plugin_is_unsupported(
    runner: CaseRunner, plain: dict[str, Any], missing: str
) -> None:
    outcome = _run(runner, plain)
    assert outcome.agreement is Agreement.UNSUPPORTED
    assert missing in outcome.missing


def test_plain_volumes_need_no_plugin(runner: CaseRunner) -> None:
    outcome = _run(runner, _scenario(volumes=[{"name": "v", "emptyDir": {}}]))
    assert outcome.agreement is Agreement.MATCHED


def test_a_configuration_that_cannot_be_used_differs(runner: CaseRunner) -> None:
    plain = _scenario() | {"config": {"kind": "KubeSchedulerConfiguration", "profils": []}}
    outcome = _run(runner, plain)
    assert outcome.agreement is Agreement.DIFFERS
    assert any("profils" in difference for difference in outcome.differences)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param("{", "want a scenario", id="not JSON"),
        pytest.param('{"id": "x"}', "want a scenario", id="fields missing"),
        pytest.param(
            '{"id": "x", "nodes": [], "incoming": [], "answers": [{}]}',
            "got 1 for 0",
            id="answers without pods",
        ),
    ],
)
def test_a_line_that_is_no_scenario_is_named(tmp_path: Path, line: str, want: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(f"\n{line}\n")
    with pytest.raises(ScenarioError, match=want) as caught:
        list(read_scenarios(file))
    assert str(caught.value).startswith(f"{file}:2: ")
