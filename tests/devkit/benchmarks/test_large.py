"""`make bench-large` at a small size, against the embedded API server."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench_large
from devkit.benchmarks.full_cluster import placed_pod
from devkit.benchmarks.holdings import HOLDINGS
from devkit.benchmarks.large import Reloads, mixed_pod
from devkit.benchmarks.memory import children_of, memory_by_part
from engine.core.model.pod import Pod

pytestmark = pytest.mark.slow("runs a bench")


@pytest.mark.long("runs a bench")
@pytest.mark.timeout(180)
def test_every_group_is_measured(tmp_path: Path) -> None:
    output, chart = tmp_path / "large.json", tmp_path / "memory.png"
    result = CliRunner().invoke(
        bench_large.main,
        ["--servers", "embedded", "--nodes", "40", "--pods", "80", "--repeat", "1",
         "--waiting", "30", "--edits", "1", "--dwell", "0.5", "--churn", "40",
         "--output", "json", str(output), "--chart", str(chart)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    start, handover, reload, memory = json.loads(output.read_text())["rows"]
    assert start["serving_seconds"] < start["synced_seconds"] < start["first_bound_seconds"]
    assert (handover["waiting"], handover["new"]) == (30, 40)
    assert 0 < handover["new_p50_s"] <= handover["new_worst_s"]
    assert handover["tried_s"] > 0
    assert handover["log_kb"] > 0
    assert handover["tried_again"] >= 29
    assert 0 < reload["in_force_p50_s"] <= reload["decides_p50_s"]
    assert [point["pods"] for point in memory["points"]][-1] == 40
    assert 0 < memory["sandbox_rss_mib"] < memory["start_rss_mib"]
    assert chart.stat().st_size > 0


@pytest.mark.long("runs a bench")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("holds", ["claims", "volumes"])
def test_pods_may_hold_claims_or_volumes(holds: str) -> None:
    result = CliRunner().invoke(
        bench_large.main,
        ["--servers", "embedded", "--groups", "memory", "--nodes", "10", "--pods", "60",
         "--churn", "20", "--holds", holds, "--output", "json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (memory,) = json.loads(result.stdout)["rows"]
    assert (memory["holds"], memory["pods"]) == (holds, 20)


def test_pods_hold_what_was_made_for_them() -> None:
    for holds, plural in (("claims", "resourceClaims"), ("volumes", "volumes")):
        pod = mixed_pod(1)
        made = HOLDINGS[holds].made(pod)
        assert {one["metadata"]["name"] for one in made} == {pod["metadata"]["name"]}
        assert len(pod["spec"][plural]) == 1
    devices = [
        HOLDINGS["claims"].placed(placed_pod(n, 4), n, 4)[0]["status"]["allocation"]["devices"]
        for n in range(32)
    ]
    taken = {(one["results"][0]["pool"], one["results"][0]["device"]) for one in devices}
    assert len(taken) == 32  # no device has two


def test_pauses_are_reported_by_the_bounds_of_the_histogram() -> None:
    found = Reloads(pauses={0.01: 5.0, 0.05: 8.0, 0.1: 9.0, float("inf"): 9.0})
    assert found.pauses_above(0.05) == 1
    assert found.longest_pause == 0.1


def test_own_memory_is_counted_once() -> None:
    parts = memory_by_part(os.getpid())
    assert parts["parent"].rss_mib >= parts["parent"].pss_mib > 0
    assert parts["both"].rss_mib == parts["parent"].rss_mib + parts["sandbox"].rss_mib
    assert os.getpid() not in children_of(os.getpid())


def test_placed_pods_are_spread_over_all_nodes() -> None:
    pods = [Pod.from_plain(placed_pod(number, 10)) for number in range(200)]
    assert {pod.node_name for pod in pods} == {f"node-{n:05d}" for n in range(10)}
    assert len({pod.key for pod in pods}) == 200
    assert not any(pod.problems for pod in pods)


def test_mixed_pods_are_of_eight_classes() -> None:
    pods = [Pod.from_plain(mixed_pod(number)) for number in range(16)]
    assert len({(tuple(p.labels.items()), tuple(p.requests.items())) for p in pods}) == 8
