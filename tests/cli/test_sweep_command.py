"""`starsched sweep`: a grid of simulations, here and on a Dask cluster, computed once each."""

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from distributed import LocalCluster

from engine.cli.main import main
from engine.offline.sweep import Axis, SweepError, make_points, with_arguments
from tests.cli.test_diff_command import node, pod

GRID = "NodeResourcesFit.scoringStrategy.type=LeastAllocated,MostAllocated"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    items = [*(node(f"n{i}") for i in range(4)), *(pod(f"p{i}") for i in range(4))]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def sweep(snapshot: Path, to: Path, *more: str, grid: str = GRID) -> Result:
    arguments = ["sweep", str(snapshot), "--to", str(to), "--set", grid, *more]
    return CliRunner().invoke(main, arguments)


def table(to: Path) -> list[dict[str, str]]:
    with (to / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_grid_is_computed_and_goes_on_where_it_was(snapshot: Path, tmp_path: Path) -> None:
    to = tmp_path / "out"
    result = sweep(snapshot, to, "--seeds", "2")
    assert result.exit_code == 0, result.output
    assert "4 results, 4 of them new" in result.output
    rows = table(to)
    empty = {row["NodeResourcesFit.scoringStrategy.type"]: row["empty nodes"] for row in rows}
    # Spread out, every node has a pod; packed, one node has them all.
    assert empty == {"LeastAllocated": "0.0", "MostAllocated": "3.0"}
    texts = [one.text for one in ET.parse(to / "chart.svg").iter() if one.text]
    assert "empty nodes" in texts
    # Cut off in the middle of the third result, it computes what is missing.
    results = to / "results.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    again = sweep(snapshot, to, "--seeds", "2")
    assert "4 results, 2 of them new" in again.output
    assert table(to) == rows
    # Another workload is another input.
    items = [node("n0"), pod("p0")]
    snapshot.write_text(json.dumps({"kind": "List", "items": items}))
    assert "4 results, 4 of them new" in sweep(snapshot, to, "--seeds", "2").output


def test_a_dask_cluster_computes_the_same(snapshot: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert sweep(snapshot, here).exit_code == 0
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:  # type: ignore[no-untyped-call]
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        result = sweep(snapshot, there, "--executor", address)
    assert result.exit_code == 0, result.output
    assert "2 results, 2 of them new" in result.output
    assert (here / "results.csv").read_text() == (there / "results.csv").read_text()


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("NodeResourcesFit=1", "want `Plugin.argument=value,value`"),
        ("NodeResourcesFit.scoringStrategy.type=Sideways", "Sideways"),
        ("NoSuchPolicy.weight=1", "NoSuchPolicy"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_before_anything_runs(
    snapshot: Path, tmp_path: Path, grid: str, said: str
) -> None:
    result = sweep(snapshot, tmp_path / "out", grid=grid)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not (tmp_path / "out").exists()


def test_arguments_go_to_every_profile_and_leave_the_others(tmp_path: Path) -> None:
    config = "kind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: a\n- schedulerName: b\n"
    files = {"config.yaml": config, "mine.star": "x = 1"}
    texts, changed = with_arguments(files, None, {"A.b.c": 5, "A.d": [1]})
    assert texts == {"mine.star": "x = 1"}
    assert changed.count("c: 5") == 2
    assert "schedulerName: b" in changed


def test_every_combination_and_seed_is_a_point(snapshot: Path) -> None:
    axes = [Axis.parse(GRID), Axis.parse("InterPodAffinity.hardPodAffinityWeight=1,5,10")]
    points = make_points({}, None, axes, range(3), [snapshot])
    assert len({point.key for point in points}) == len(points) == 2 * 3 * 3
    with pytest.raises(SweepError, match="want `Plugin"):
        Axis.parse("=1")
