"""The openb trace, and `make bench-openb` at a small size on the real control plane."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from devkit.benchmarks import bench_openb
from devkit.benchmarks.bench_openb import count_reasons
from devkit.benchmarks.openb import GPU, GPU_MODEL, node_from_row, pod_from_row, read_trace

pytestmark = pytest.mark.slow("runs a bench")

POD_ROW = {
    "name": "p",
    "cpu_milli": "6000",
    "memory_mib": "12288",
    "num_gpu": "1",
    "gpu_milli": "460",
    "gpu_spec": "",
    "qos": "LS",
}


def test_the_whole_trace_is_read() -> None:
    trace = read_trace()
    assert (len(trace.nodes), len(trace.pods)) == (1213, 8152)
    offered = sum(int(n["status"]["allocatable"].get(GPU, 0)) for n in trace.nodes)
    assert offered == 6_212_000


def test_a_share_of_a_gpu_is_asked_for_in_thousandths() -> None:
    got = pod_from_row(POD_ROW)["spec"]["containers"][0]["resources"]
    assert got == {
        "requests": {"cpu": "6000m", "memory": "12288Mi", GPU: "460"},
        "limits": {GPU: "460"},
    }


def test_several_gpus_are_asked_for_whole() -> None:
    row = POD_ROW | {"num_gpu": "8", "gpu_milli": "1000"}
    got = pod_from_row(row)["spec"]["containers"][0]["resources"]["requests"]
    assert got[GPU] == "8000"


def test_a_pod_without_gpu_asks_for_none() -> None:
    row = POD_ROW | {"num_gpu": "0", "gpu_milli": "0"}
    got = pod_from_row(row)["spec"]["containers"][0]["resources"]
    assert got == {"requests": {"cpu": "6000m", "memory": "12288Mi"}}


def test_accepted_models_become_node_affinity_on_the_model_label() -> None:
    node = node_from_row(
        0, {"sn": "n", "cpu_milli": "64000", "memory_mib": "262144", "gpu": "2", "model": "T4"}
    )
    assert node["metadata"]["labels"][GPU_MODEL] == "T4"
    spec = pod_from_row(POD_ROW | {"gpu_spec": "T4|P100"})["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": GPU_MODEL, "operator": "In", "values": ["T4", "P100"]}]}
    ]


def test_pending_pods_are_counted_by_their_reasons_without_node_counts() -> None:
    got = count_reasons(
        [
            "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.",
            "0/3 nodes are available: 2 Insufficient cpu, 1 Insufficient memory. preemption: "
            "0/3 nodes are available: 3 No preemption victims found for incoming pod.",
            "0/3 nodes are available: 3 node(s) had untolerated taint(s).",
        ]
    )
    assert got == {
        "Insufficient cpu; Insufficient memory": 2,
        "node(s) had untolerated taint(s)": 1,
    }


@pytest.mark.slow("runs a bench")
@pytest.mark.timeout(180)
def test_a_small_part_of_the_trace_is_placed_and_checked(tmp_path: Path) -> None:
    output = tmp_path / "openb.json"
    result = CliRunner().invoke(
        bench_openb.main, ["--nodes", "10", "--pods", "80", "--output", "json", str(output)]
    )
    assert result.exit_code == 0, result.output
    assert "every pod is accounted for exactly once" in result.output
    document = json.loads(output.read_text())
    assert document["violations"] == []
    assert document["placed"] + document["pending"] == 80
    assert document["pending"] > 0, "ten nodes have no room for eighty pods"
    assert f"Insufficient {GPU}" in " ".join(document["pending_reasons"])


@pytest.mark.slow("runs a bench")
@pytest.mark.timeout(180)
def test_nodes_that_hold_too_much_fail_the_run() -> None:
    """A scheduler that looks at nothing over-commits, and the command says so."""
    result = CliRunner().invoke(
        bench_openb.main, ["--scheduler", "ceiling", "--nodes", "4", "--pods", "80"]
    )
    assert result.exit_code == 1
    assert f"of {GPU}, want at most 2000" in result.output
