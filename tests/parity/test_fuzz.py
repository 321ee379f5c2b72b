import itertools
import json
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.parity import fuzz, generator
from tests.parity.comparison import Comparison
from tests.parity.oracle import Oracle
from workbench.conformance.conformance import CaseRunner, Outcome, Scenario

SEED = 2026


class TaintBlind(CaseRunner):
    """Ours with a mistake in it: no taint of value `red` is ever seen."""

    def run(self, scenario: Scenario) -> list[Outcome]:
        nodes = [
            {**node, "spec": {**node["spec"], "taints": _without_red(node["spec"])}}
            if "taints" in node.get("spec", {})
            else node
            for node in scenario.nodes
        ]
        return super().run(msgspec.structs.replace(scenario, nodes=nodes))


def _without_red(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [taint for taint in spec["taints"] if taint.get("value") != "red"]


def test_random_clusters_are_answered_as_kube_scheduler_does(oracle: Oracle) -> None:
    cases = fuzz.scenarios(SEED, generator.themes())
    tally, differing = fuzz.search(Comparison(oracle), cases, 400)
    assert [finding.differences for finding in differing] == []
    assert tally.invalid == []
    assert tally.answers >= 400


@pytest.mark.slow("400 answers, as the test before")
def test_they_are_answered_as_the_next_kube_scheduler_does(oracle_of_1_38: Oracle) -> None:
    cases = fuzz.scenarios(SEED, generator.themes(minor=38))
    tally, differing = fuzz.search(fuzz.comparison_of(oracle_of_1_38, minor="1.38"), cases, 400)
    assert [finding.differences for finding in differing] == []
    assert tally.invalid == []


@pytest.mark.parametrize(
    "minor",
    [None, pytest.param("1.38", marks=pytest.mark.long("the same of the next minor version"))],
)
@pytest.mark.parametrize("theme", generator.GATED)
@pytest.mark.slow("starts the oracle again, with the gate on")
def test_random_clusters_with_a_gate_on_are_answered_as_kube_scheduler_does(
    theme: str, minor: str | None
) -> None:
    gates = generator.gates_of(theme)
    with Oracle(gates, minor) as oracle:
        comparison = fuzz.comparison_of(oracle, gates, minor)
        tally, differing = fuzz.search(comparison, fuzz.scenarios(SEED, [theme]), 300)
        assert [finding.differences for finding in differing] == []
        assert tally.invalid == []
        # Without the gate the answers are others: the theme is about it.
        blind = fuzz.comparison_of(oracle, minor=minor)
        _, differing = fuzz.search(blind, fuzz.scenarios(SEED, [theme]), 300)
        assert differing


def test_what_a_pod_asks_for_as_a_whole_is_never_less_than_its_containers_do(
    oracle: Oracle,
) -> None:
    """The API server works out what is left out of it before it rounds the amounts up."""
    cases = itertools.islice(fuzz.scenarios(73004, ["podlevel"]), 40)
    for tally in Comparison(oracle).compare(list(cases)):
        assert tally.invalid == []


def test_a_difference_is_found_and_made_small(oracle: Oracle) -> None:
    comparison = Comparison(oracle, TaintBlind)
    cases = fuzz.scenarios(SEED, ["taints"])
    _, differing = fuzz.search(comparison, cases, 400)
    (finding,) = differing
    small = fuzz.small_case(comparison, finding)
    scenario = small.scenario
    assert small.subjects & finding.subjects
    assert len(scenario["nodes"]) == 1
    assert [t["value"] for t in scenario["nodes"][0]["spec"]["taints"]] == ["red"]
    assert len(scenario["incoming"]) == len(scenario["answers"]) == 1
    assert not scenario.get("pods")
    assert not scenario.get("objects")
    assert len(json.dumps(scenario)) < 1_000
    # Without the mistake, the small case is answered as kube-scheduler does.
    (tally,) = Comparison(oracle).compare([scenario])
    assert tally.matched == 1


def test_a_tie_that_was_broken_the_other_way_is_no_difference(oracle: Oracle) -> None:
    """Ten equal nodes: one run shows one choice of kube-scheduler, ours is another most often."""
    nodes = [
        {"metadata": {"name": f"n{i:02}"}, "status": {"allocatable": {"pods": "1"}}}
        for i in range(10)
    ]
    pods = [_pod(f"e{i:02}", nodeName=f"n{i:02}", priority=0) for i in range(10)]
    incoming = [_pod(f"p{i:02}", priority=10) for i in range(6)]
    scenario = {"id": "x", "runs": 1, "nodes": nodes, "pods": pods, "incoming": incoming}
    (tally,) = Comparison(oracle).compare([scenario])
    assert tally.findings == []
    assert tally.matched == 6


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "x"}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": containers, **spec},
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    }


def test_the_same_seed_makes_the_same_clusters() -> None:
    def some() -> list[Any]:
        return list(itertools.islice(fuzz.scenarios(SEED, generator.themes()), 40))

    assert some() == some()
    assert some() != list(itertools.islice(fuzz.scenarios(SEED + 1, generator.themes()), 40))


@pytest.mark.parametrize("part", generator.PARTS)
def test_a_part_can_be_left_out(part: str) -> None:
    cases = itertools.islice(
        fuzz.scenarios(SEED, generator.themes(frozenset([part])), frozenset([part])), 100
    )
    signs = {
        "volumes": "PersistentVolumeClaim",
        "preemption": '"runs"',
        "dra": "ResourceClaim",
        "features": "declaredFeatures",
        "config": '"config"',
    }
    assert not [case["id"] for case in cases if signs[part] in json.dumps(case)]


def test_the_command_says_what_it_found(oracle: Oracle) -> None:
    result = CliRunner().invoke(fuzz.main, ["--seed", "3", "--count", "12", "--theme", "taints"])
    assert result.exit_code == 0, result.output
    assert "0 differ" in result.output


def test_the_command_fails_on_a_difference(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(fuzz, "comparison_of", lambda oracle, *_: Comparison(oracle, TaintBlind))
    kept = tmp_path / "cases.jsonl"
    arguments = ["--seed", "3", "--theme", "taints", "--out", str(kept)]
    result = CliRunner().invoke(fuzz.main, arguments)
    assert result.exit_code == 1
    (line,) = kept.read_text().splitlines()
    assert json.loads(line) == json.loads(result.output.splitlines()[0])
    assert "again: python -m tests.parity.fuzz --seed 3 --theme taints --index" in result.output
