"""`make bench` at a small size, on the real control plane."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench
from devkit.benchmarks.subjects import Starsched
from devkit.benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.slow("runs a bench")

SMALL = ["--nodes", "20", "--pods", "10", "--warm-up", "2"]


def row(name: str, pods_per_second: float, *, bound: int = 10) -> dict[str, Any]:
    run = {
        "bound": bound,
        "pods": 10,
        "pods_per_second": pods_per_second,
        "pods_per_second_written": pods_per_second,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "scheduler_cpu_ms": 1.0,
        "apiserver_cpu_ms": 1.0,
        "etcd_cpu_ms": 1.0,
        "generator_cpu_ms": 0.1,
        "peak_mib": 100.0,
        "first_pod_ms": 5.0,
        "others_share": 0.01,
    }
    return {
        "workload": "plain",
        "scheduler": name,
        "supported": True,
        "missing_plugins": [],
        "runs": [run],
        "median": run,
    }


def test_the_ratio_is_throughput_over_kube_schedulers_round_by_round() -> None:
    def rounds(name: str, *values: float) -> dict[str, Any]:
        return row(name, 0.0) | {"runs": [{"pods_per_second": value} for value in values]}

    rows = [rounds("kube-scheduler", 100, 50, 80), rounds("starsched", 250, 150, 80)]
    bench._add_ratios(rows)
    assert [r["ratio"] for r in rows] == [1.0, 2.5]


def test_a_run_that_lost_pods_is_not_complete() -> None:
    assert bench.is_complete([row("starsched", 100.0)])
    assert not bench.is_complete([row("starsched", 100.0, bound=9)])


def test_lost_pods_and_missing_plugins_are_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    lost = row("starsched", 100.0, bound=9) | {"ratio": 1.0}
    missing = row("starsched", 0.0) | {
        "supported": False,
        "missing_plugins": ["InterPodAffinity"],
        "workload": "zone-affinity",
    }
    bench.print_rows([lost, missing])
    text = capsys.readouterr().out
    assert "1 pods not bound!" in text
    assert "not supported yet: InterPodAffinity" in text


def test_every_workload_makes_objects_that_differ_in_name_only_by_number() -> None:
    for workload in WORKLOADS.values():
        first, second = workload.make_pod(1), workload.make_pod(2)
        assert first["metadata"]["name"] != second["metadata"]["name"]
        assert first["spec"] == second["spec"]
        assert workload.make_pod(1) == first


def test_an_unknown_workload_is_an_error_that_lists_the_known_ones() -> None:
    result = CliRunner().invoke(bench.main, ["--workloads", "pain"])
    assert result.exit_code == 2
    assert "got `pain`" in result.output
    assert "zone-affinity" in result.output


@pytest.mark.slow("runs a bench")
@pytest.mark.timeout(180)
@pytest.mark.long("the same command, with a scheduler that is not ours")
def test_a_small_run_measures_kube_scheduler_and_writes_everything(tmp_path: Path) -> None:
    output, chart = tmp_path / "bench.json", tmp_path / "bench.svg"
    result = CliRunner().invoke(
        bench.main,
        [*SMALL, "--workloads", "node-affinity", "--schedulers", "kube-scheduler",
         "--output", "json", str(output), "--chart", str(chart)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "required node affinity" in result.output
    document = json.loads(output.read_text())
    assert document["versions"]["kube-scheduler"].startswith("v1.")
    assert document["machine"]["cores"] >= 1
    (measured,) = document["rows"]
    run = measured["runs"][0]
    assert (run["bound"], run["pods"]) == (10, 10)
    assert 0 < run["p50_ms"] <= run["p99_ms"]
    assert run["pods_per_second"] > 0
    assert run["peak_mib"] > 10
    assert run["events"] == 10
    assert "<svg" in chart.read_text()


@pytest.mark.slow("runs a bench")
@pytest.mark.timeout(180)
def test_a_small_run_measures_ours_next_to_the_ceiling(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    result = CliRunner().invoke(
        bench.main,
        [*SMALL, "--workloads", "zone-spread", "--schedulers", "ceiling,starsched",
         "--output", "json", str(output), "--profile", str(tmp_path / "profile")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Stages of zone-spread" in result.output
    rows = json.loads(output.read_text())["rows"]
    assert [row["scheduler"] for row in rows] == ["ceiling", "starsched"]
    ours = rows[1]["runs"][0]
    assert (ours["bound"], ours["events"]) == (10, 10)
    assert ours["processes"] >= 2, "the sandbox counts with its parent"


@pytest.mark.slow("runs a bench")
@pytest.mark.timeout(180)
def test_a_scheduler_that_does_not_start_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Starsched, "_command", lambda *_: [sys.executable, "-c", "exit('broken')"])
    result = CliRunner().invoke(bench.main, [*SMALL, "--schedulers", "starsched"])
    assert result.exit_code == 1
    assert "starsched ended with code 1" in result.output
    assert "broken" in result.output
