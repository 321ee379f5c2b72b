"""`make bench-core` at a small size: no API server, the sandbox included."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench_core, hostile
from devkit.benchmarks.core import (
    COUNTERS,
    of_adversary,
    of_counters,
    of_rare_resources,
    of_workload,
    run_scenario,
)
from devkit.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.timeout(120)


@pytest.mark.slow("runs all groups and a profiler")
def test_every_group_is_measured_and_written(tmp_path: Path) -> None:
    output, chart = tmp_path / "core.json", tmp_path / "core.png"
    result = CliRunner().invoke(
        bench_core.main,
        ["--groups", "workloads,sizes,adversarial", "--nodes", "30", "--pods", "20",
         "--sizes", "10,40", "--adversarial-pods", "3", "--workloads", "plain,zone-spread",
         "--repeat", "2", "--in-process", "--output", "json", str(output), "--chart", str(chart),
         "--profile", str(tmp_path / "profile")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(output.read_text())["rows"]
    assert [(row["scenario"], row["nodes"]) for row in rows] == [
        ("plain", 30), ("zone-spread", 30), ("plain", 10), ("plain", 40), ("adversarial", 30),
    ]  # fmt: skip
    assert all(row["placed"] == row["pods"] for row in rows)
    assert all(len(row["runs"]) == 2 for row in rows)
    assert "Stages of zone-spread, 30 nodes" in result.output
    assert chart.stat().st_size > 0
    assert (tmp_path / "profile" / "plain-30.txt").read_text().count("engine.") > 5


def test_what_repeats_is_not_evaluated_again() -> None:
    got = run_scenario(of_workload(WORKLOADS["plain"], 50, 20), in_process=True)
    assert (got.placed, got.classes) == (20, 1)
    assert got.reuse > 0.9
    assert got.evaluations < 10


def test_the_adversary_repeats_nothing() -> None:
    scenario = of_adversary(20, 4)
    got = run_scenario(scenario, in_process=True)
    assert (got.placed, got.failed, got.classes) == (4, 0, 4)
    assert got.evaluations > 20 * 4


def test_nodes_without_the_rare_resource_of_a_pod_are_evaluated_once() -> None:
    got = run_scenario(of_rare_resources(40, 8, 1), in_process=True)
    assert (got.placed, got.failed, got.classes) == (8, 0, 8)
    assert got.evaluations < 40


def test_figures_are_medians_and_no_failure_is_lost() -> None:
    runs = [
        {"scenario": "a", "nodes": 7, "pods_per_second": rate, "failed": failed}
        for rate, failed in ((30.0, 0), (10.0, 2), (20.0, 0))
    ]
    row = bench_core.median_row(runs)
    assert row == {
        "scenario": "a", "nodes": 7, "pods_per_second": 20.0, "failed": 2,
        "runs": [30.0, 10.0, 20.0],
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name, one in WORKLOADS.items() if not one.has_groups])
def test_every_supported_workload_is_placed(name: str) -> None:
    result = CliRunner().invoke(
        bench_core.main,
        ["--groups", "workloads", "--workloads", name, "--nodes", "20", "--pods", "5",
         "--repeat", "1", "--in-process"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert WORKLOADS[name].title in result.output


def test_groups_are_placed_by_podgroup_and_by_label() -> None:
    result = CliRunner().invoke(
        bench_core.main,
        ["--groups", "gangs", "--nodes", "20", "--gangs", "3", "--members", "10",
         "--repeat", "1", "--output", "json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["kernel"]
    assert [(row["scenario"], row["groups"], row["pods"], row["failed"]) for row in rows] == [
        ("gang", 1, 10, 0), ("gangs", 3, 9, 0), ("label-gangs", 3, 9, 0),
    ]  # fmt: skip


def test_pods_with_claims_for_devices_are_placed_until_no_device_is_left() -> None:
    arguments = ["--groups", "claims", "--nodes", "4", "--repeat", "1", "--output", "json"]
    # Of three pods, two take a device each and one takes two; one wants one of the larger half.
    result = CliRunner().invoke(bench_core.main, [*arguments, "--pods", "15"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["kernel"]
    assert [(row["scenario"], row["pods"], row["failed"]) for row in rows] == [
        ("claims", 15, 0), ("shared-claims", 15, 0),
    ]  # fmt: skip
    result = CliRunner().invoke(bench_core.main, [*arguments, "--pods", "27"])
    assert result.exit_code == 1
    assert [row["failed"] > 0 for row in json.loads(result.stdout)["kernel"]] == [True, False]


def test_what_the_policy_of_a_tree_is_asked_is_counted_for_each_pod() -> None:
    arguments = ["--groups", "queues", "--nodes", "10", "--pods", "60", "--queues", "8"]
    result = CliRunner().invoke(bench_core.main, [*arguments, "--repeat", "1", "--output", "json"])
    assert result.exit_code == 0, result.output
    rows = {row["scenario"]: row for row in json.loads(result.stdout)["kernel"]}
    assert {row["failed"] for row in rows.values()} == {0}
    alone, quota = rows.pop("queues-none"), rows["queues-quota"]
    assert (alone["keys"], alone["shares"], alone["admits"]) == (0, 0, 0)
    assert all(row["keys"] > 0 for row in rows.values())
    assert [name for name, row in rows.items() if row["shares"]] == ["queues-proportion"]
    assert quota["admits"] > 0
    assert quota["wakes"] > 0
    assert quota["wakes"] >= quota["in_vain"]


@pytest.mark.long("runs seven scenarios")
@pytest.mark.timeout(300)
def test_no_ordinary_pod_waits_for_a_hostile_cluster() -> None:
    result = CliRunner().invoke(
        bench_core.main,
        ["--groups", "hostile", "--nodes", "20", "--rounds", "12", "--large-pods", "1",
         "--output", "json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = {row["scenario"]: row for row in json.loads(result.stdout)["hostile"]}
    assert [*rows] == [one.name for one in hostile.SCENARIOS]
    assert {row["starved"] for row in rows.values()} == {0}
    outcomes = {name: (row["placed"], row["waiting"]) for name, row in rows.items()}
    assert outcomes == {
        "slices": (12, 0),
        "large-driver": (12, 0),
        "selectors": (0, 12),
        "claims-deleted": (0, 12),
        "volumes": (12, 0),
        "gates": (600, 0),
        "label": (0, 1000),
    }


@pytest.mark.slow("places the pods of all kinds of groups")
def test_a_group_that_does_not_fit_fails_the_run() -> None:
    arguments = ["--groups", "gangs", "--nodes", "1", "--gangs", "1", "--members", "99"]
    result = CliRunner().invoke(bench_core.main, [*arguments, "--repeat", "1"])
    assert result.exit_code == 1
    assert "one PodGroup (99 failed!)" in result.output


def test_json_goes_to_the_standard_output_without_a_file() -> None:
    result = CliRunner().invoke(
        bench_core.main,
        ["--groups", "sizes", "--sizes", "10", "--pods", "3", "--in-process", "--output", "json"],
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"][0]["nodes"] == 10


def test_a_file_without_its_format_is_wrong_usage() -> None:
    result = CliRunner().invoke(bench_core.main, ["somewhere.json"])
    assert result.exit_code == 2
    assert "FILE goes with `--output json`, got `somewhere.json`" in result.output


@pytest.mark.parametrize("name", COUNTERS)
def test_a_filter_by_a_counter_decides_in_addition_to_the_shipped_ones(name: str) -> None:
    got = run_scenario(of_counters(name, WORKLOADS["plain"], 10, 4, 20), in_process=True)
    assert (got.placed, got.failed) == (4, 0)
