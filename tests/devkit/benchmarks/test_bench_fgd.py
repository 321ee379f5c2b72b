"""The published comparison is run as it was published."""

import csv
import json
import os
import statistics
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from devkit.benchmarks.bench_fgd import (
    LOAD,
    Trace,
    configuration,
    main,
    run,
    summary,
    typical_pods,
    workload,
)
from devkit.benchmarks.openb import DATA
from engine.policy.bundle import build_bundle
from workbench.simulation.workload import GPU_MILLI

pytestmark = pytest.mark.slow("runs a bench")


def test_pods_come_until_so_many_gpus_are_asked_for() -> None:
    got = workload(42)
    there_is = sum(int(n["status"]["allocatable"][GPU_MILLI]) for n in got.cluster.nodes)
    wanted = [one.pod.requests.get(GPU_MILLI, 0) for one in got.arrivals]
    assert there_is == 6_212_000
    assert sum(wanted) >= LOAD * there_is > sum(wanted[:-1])
    assert len({one.pod.key for one in got.arrivals}) == len(got.arrivals)
    assert [one.pod.key for one in workload(43).arrivals] != [one.pod.key for one in got.arrivals]


@pytest.mark.parametrize("policy", ["Random", "BestFit", "FGD"])
def test_the_first_pods_all_find_capacity_and_no_gpu_is_lost(policy: str) -> None:
    got = run(policy, 42, pods=40)
    wanted = sum(o.pod.requests.get(GPU_MILLI, 0) for o in workload(42, 40).arrivals)
    assert (got["pods"], got["placed"]) == (40, 40)
    assert got["allocated"] == pytest.approx(100 * wanted / 6_212_000)


@pytest.mark.parametrize("policy", ["Random", "BestFit", "FGD"])
def test_only_the_policy_itself_scores(policy: str) -> None:
    (profile,) = build_bundle({"config.yaml": configuration(policy)}).profiles
    scorers = [enabled.policy for enabled in profile.at("score")]
    assert scorers == {"Random": [], "BestFit": ["GpuBestFit"], "FGD": ["FGDScore"]}[policy]
    assert [enabled.policy for enabled in profile.at("filter")] == ["GpuShare", "NodeResourcesFit"]


def test_typical_pods_are_the_kinds_that_make_95_percent_of_the_trace() -> None:
    with (DATA / "openb_pod_list_default.csv").open(newline="") as file:
        kinds = typical_pods(list(csv.DictReader(file)))
    assert sum(kind["share"] for kind in kinds) == pytest.approx(1, abs=1e-4)
    profile = Path(__file__).parents[3] / "deploy" / "examples" / "gpu" / "profile.yaml"
    (example,) = yaml.safe_load(profile.read_text())["profiles"]
    (entry,) = example["pluginConfig"]
    assert kinds == entry["args"]["typicalPods"]


NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,64000,262144,,\n"
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
NO_GPU = "".join(f"cpu-{n},1000,1024,0,,,BE\n" for n in range(30))


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """A small trace in which most pods ask for no GPU."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES)
    pods.write_text(HEAD + NO_GPU + "gpu-0,1000,1024,1,500,,LS\n")
    return nodes, pods


def test_the_first_pods_of_a_trace_need_ask_for_no_gpu(tables: tuple[Path, Path]) -> None:
    """The run ended with a KeyError."""
    trace = Trace(*tables)
    first = next(s for s in range(99) if workload(s, 1, trace).arrivals[0].pod.name != "gpu-0")
    got = run("Random", first, trace=trace)
    assert got["curve"][0] == (0, 0)
    assert got["allocated"] == pytest.approx(100)
    none = run("Random", first, pods=1, trace=trace)
    assert (none["placed"], none["allocated"]) == (1, 0)


def test_another_trace_is_compared_with_no_published_figure(tables: tuple[Path, Path]) -> None:
    nodes, pods = tables
    arguments = [f"--nodes={nodes}", f"--pods={pods}", "--seeds=1", "--policies=Random,FGD"]
    done = CliRunner().invoke(main, [*arguments, "--output=json"], catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [row["policy"] for row in found["results"]] == ["Random", "FGD"]
    assert all("published" not in row for row in found["results"])
    text = CliRunner().invoke(main, arguments, catch_exceptions=False).output
    assert "published" not in text


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param("a,b\n1,2\n", "'name'", id="another table"),
        pytest.param(HEAD + NO_GPU, "no pod asks for a GPU", id="no GPU"),
        pytest.param(HEAD + "p,1000,x,0,,,BE\n", "memory_mib", id="no number"),
    ],
)
def test_a_trace_that_cannot_be_used_is_a_usage_error(
    tables: tuple[Path, Path], pods: str, want: str
) -> None:
    tables[1].write_text(pods)
    done = CliRunner().invoke(main, [f"--nodes={tables[0]}", f"--pods={tables[1]}"])
    assert done.exit_code == 2
    assert want in done.output


def test_a_mean_too_far_from_the_published_one_is_not_reproduced() -> None:
    rows = [{"policy": "FGD", "allocated": a, "cpu_seconds": 1.0} for a in (94.0, 96.0)]
    (got,) = summary(rows)
    assert got["mean"] == statistics.fmean((94.0, 96.0))
    assert got["is_reproduced"]
    (far,) = summary([{**rows[0], "allocated": 94.0}])
    assert not far["is_reproduced"]


@pytest.mark.long("runs a bench")
def test_the_command_uses_every_core_and_writes_its_runs() -> None:
    arguments = ["--seeds=1", "--policies=Random", "--output=json"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["settings"]["workers"] == len(os.sched_getaffinity(0))
    [row] = found["runs"]
    assert (row["policy"], row["seed"], row["pods"]) == ("Random", 42, len(workload(42).arrivals))
    assert 80 < row["allocated"] < 95
