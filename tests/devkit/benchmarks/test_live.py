"""`make bench-live` at a small size."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench_live
from devkit.benchmarks.bench_live import waiting_pods
from engine.core.model.pod import Pod

pytestmark = pytest.mark.slow("runs a bench")


def test_waiting_pods_are_of_three_kinds() -> None:
    pods = [(kind, Pod.from_plain(manifest)) for kind, manifest in waiting_pods(4)]
    assert len({kind for kind, _ in pods}) == 3
    assert len({pod.key for _, pod in pods}) == 12


@pytest.mark.timeout(180)
def test_answers_are_measured(tmp_path: Path) -> None:
    output = tmp_path / "live.json"
    result = CliRunner().invoke(
        bench_live.main,
        ["--groups", "answers", "--servers", "embedded", "--nodes", "40", "--placed", "80",
         "--waiting", "3", "--asked", "2", "--output", "json", str(output)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    answers = json.loads(output.read_text())["results"]["answers"]["embedded"]
    assert set(answers) == {
        "too large", "no such node", "full pool", "placed", "/queue", "/nodes",
        "page /queue", "page /queue?by=reason", "page /pods?q=node-00001",
    }  # fmt: skip
    assert all(row["p50_ms"] > 0 for row in answers.values())


@pytest.mark.timeout(240)
@pytest.mark.long("measures for half a minute")
def test_the_cost_for_decisions_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "live.json"
    result = CliRunner().invoke(
        bench_live.main,
        ["--groups", "load", "--nodes", "20", "--pods", "60", "--repeat", "1", "--rate", "50",
         "--output", "json", str(output)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    load = json.loads(output.read_text())["results"]["load"]
    assert load["answers"] > 0
    assert load["ratio"] > 0
