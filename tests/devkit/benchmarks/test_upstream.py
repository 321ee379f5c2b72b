"""`make bench-upstream`: definitions are read as scheduler_perf reads them, and runs are real."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from devkit.benchmarks import bench_upstream
from devkit.benchmarks.placement_check import over_capacity
from devkit.benchmarks.upstream.collecting import sampled
from devkit.benchmarks.upstream.definitions import FOLDER, Workload, largest, matching, read
from devkit.benchmarks.upstream.operations import path_of
from devkit.benchmarks.upstream.run import given_twice, reason_not_to_run
from devkit.benchmarks.upstream.templates import TemplateError, Templates

CASE: dict[str, Any] = {
    "name": "Case",
    "defaultPodTemplatePath": "../templates/pod.yaml",
    "featureGates": {"A": True},
    "workloadTemplate": [
        {"opcode": "createNodes", "countParam": "$nodes"},
        {
            "opcode": "createPods",
            "countParam": "$groups",
            "countMultiplierParam": "$size",
            "templateParams": {"fixed": 1, "given": "$size", "left": "$nothing|7", "none": "$no|"},
            "collectMetrics": True,
        },
    ],
    "workloads": [
        {"name": "small", "params": {"nodes": 5, "groups": 0, "size": 3}},
        {
            "name": "large",
            "labels": ["performance"],
            "threshold": {"here": 40, "there": 50},
            "featureGates": {"A": False, "B": True},
            "params": {"nodes": 500, "groups": 10, "size": 3},
        },
        {"name": "broken", "params": {"nodes": 9999, "groups": 1}},
    ],
}


def workloads(folder: Path, case: dict[str, Any] = CASE, scale: float = 1.0) -> list[Workload]:
    path = folder / FOLDER / "misc" / "performance-config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump([case]), encoding="utf-8")
    return read(folder, scale)


def test_parameters_take_the_place_of_their_names(tmp_path: Path) -> None:
    small, large, _ = workloads(tmp_path)
    nodes, pods = large.operations
    assert nodes == {"opcode": "createNodes", "count": 500}
    assert pods["count"] == 30
    assert pods["templateParams"] == {"fixed": 1, "given": 3, "left": 7, "none": None}
    assert (large.title, large.size, large.threshold) == ("Case/large", 530, 50.0)
    assert large.gates == {"A": False, "B": True}
    assert small.gates == {"A": True}
    assert small.threshold is None
    assert large.pod_template == large.folder / "../templates/pod.yaml"


def test_a_scale_is_for_what_is_counted(tmp_path: Path) -> None:
    small, large, _ = workloads(tmp_path, scale=0.01)
    assert [one["count"] for one in large.operations] == [5, 3]
    assert [one["count"] for one in small.operations] == [1, 0]


def test_the_largest_that_kubernetes_measures_is_chosen(tmp_path: Path) -> None:
    found = workloads(tmp_path)
    assert [one.name for one in largest(found)] == ["large"]
    assert [one.name for one in matching(found, "^Case/s")] == ["small"]


def test_of_equals_one_that_turns_no_feature_off_is_chosen(tmp_path: Path) -> None:
    params = {"nodes": 1, "groups": 1, "size": 1}
    names = {"on": True, "default": None, "off": False}
    case = CASE | {
        "featureGates": None,
        "workloads": [
            {"name": name, "params": params, "featureGates": {} if on is None else {"A": on}}
            for name, on in names.items()
        ],
    }
    assert [one.name for one in largest(workloads(tmp_path, case))] == ["default"]


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    *_, broken = found = workloads(tmp_path)
    assert reason_not_to_run(broken) == "its definition has no parameter 'size'"
    assert reason_not_to_run(found[0]) == ""
    (empty,) = workloads(
        tmp_path,
        CASE | {"workloadTemplate": [], "workloads": [{"name": "empty"}]},
    )
    assert "no pod is scheduled" in reason_not_to_run(empty)


@pytest.mark.parametrize(
    ("times", "want"),
    [
        ([], 0.0),
        ([0.5, 0.6], 0.0),  # within one second
        ([0.5, 1.1, 1.2, 2.9], 1.5),  # 2 and 1; the first second does not count
        ([0.5, 4.1, 4.2], 0.5),  # four seconds with half a pod each
    ],
)
def test_pods_per_second_are_averaged_over_seconds(times: list[float], want: float) -> None:
    assert sampled(100.0, [100.0 + at for at in times]) == pytest.approx(want)


def test_collections_of_the_api_are_named_as_it_names_them() -> None:
    assert path_of({"apiVersion": "v1", "kind": "Node"}, "") == "/api/v1/nodes"
    group = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    assert path_of(group, "") == "/apis/resource.k8s.io/v1/deviceclasses"
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    assert path_of(claim, "x") == "/api/v1/namespaces/x/persistentvolumeclaims"


def test_a_device_with_two_claims_is_found() -> None:
    def claim(device: str, **more: Any) -> dict[str, Any]:
        result = {"driver": "d", "pool": "p", "device": device, **more}
        return {"status": {"allocation": {"devices": {"results": [result]}}}}

    assert given_twice([claim("a"), claim("b"), {}, {"status": {}}]) == []
    assert given_twice([claim("a", adminAccess=True), claim("a"), claim("a", shareID="s")]) == []
    assert given_twice([claim("a"), claim("a")]) == ["device d/p/a has 2 claims"]


def test_a_node_with_too_much_on_it_is_found_but_for_what_devices_serve() -> None:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    requests = {"cpu": "600m", "example.com/gpu": "1"}
    pod = {"spec": {"nodeName": "n", "containers": [{"resources": {"requests": requests}}]}}
    waiting = {"spec": {"containers": pod["spec"]["containers"]}}
    assert over_capacity([node], [pod, waiting], {"example.com/gpu"}) == []
    assert over_capacity([node], [pod]) == ["node `n` holds 1 of example.com/gpu, want at most 0"]
    assert over_capacity([node], [pod, pod], {"example.com/gpu"}) == [
        "node `n` holds 1.2 of cpu, want at most 1"
    ]


@pytest.mark.slow("compiles a program")
def test_templates_know_their_index_and_what_they_are_given(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(
        "{{$some := or .some 2}}kind: Pod\n"
        "metadata: {name: p-{{AddInt .Index 1}}-{{Mod .Index 2}}}\n"
        "spec: {n: {{DivideInt .big .Count}}, all: [{{range ($some | Int)}}1,{{end}}]}\n"
    )
    with Templates() as templates:
        made = templates.objects(path, 3, {"big": 3_000_000})
        assert [one["metadata"]["name"] for one in made] == ["p-1-0", "p-2-1", "p-3-0"]
        assert made[0]["spec"] == {"n": 1_000_000, "all": [1, 1]}
        assert templates.objects(path, 1, {"big": 1, "some": 1})[0]["spec"]["all"] == [1]
        path.write_text("{{.Index")
        with pytest.raises(TemplateError, match=r"template\.yaml"):
            templates.objects(path, 1)
        path.write_text("kind: Pod\n")  # and it goes on
        assert templates.objects(path, 1) == [{"kind": "Pod", "metadata": {}}]


@pytest.mark.long("runs a bench")
@pytest.mark.timeout(600)
def test_small_workloads_run_on_both_schedulers_and_without_any_decision(tmp_path: Path) -> None:
    output = tmp_path / "upstream.json"
    chosen = ("SchedulingCSIPVs/5Nodes", "SchedulingWithResourceClaimTemplate/fast")
    arguments = ["--filter", "|".join(f"^{one}$" for one in chosen), "--output", "json"]
    result = CliRunner().invoke(bench_upstream.main, [*arguments, str(output)])
    assert result.exit_code == 0, result.output
    rows = json.loads(output.read_text())["rows"]
    schedulers = {
        one: {row["scheduler"]: row for row in rows if row["workload"] == one} for one in chosen
    }
    assert list(dict.fromkeys(row["workload"] for row in rows)) == sorted(chosen, reverse=True)
    for one in chosen:
        assert {*schedulers[one]} >= {"kube-scheduler", "starsched"}
        peer, ours = schedulers[one]["kube-scheduler"], schedulers[one]["starsched"]
        speeds = [row["median"][""]["pods_per_second"] for row in (peer, ours)]
        is_fast = speeds[1] >= 2 * speeds[0]
        assert ("ceiling" not in schedulers[one]) == is_fast
        assert ("" not in ours["of_ceiling"]) == is_fast
    for row in rows:
        assert row["median"][""]["pods"] == 10
        assert 0 <= row["median"][""]["load"] <= 1
        # The others may take less for ten pods than a tick of the clock.
        assert row["median"][""]["cpu_ms"] > 0 or row["scheduler"] != "starsched"
        assert row["runs"][0]["events"] >= 10
        # Less than a tick of kube-scheduler's is no time to compare with.
        has_peer = schedulers[row["workload"]]["kube-scheduler"]["median"][""]["cpu_ms"] > 0
        want = {"pods_per_second", "cpu_ms"} if has_peer else set()
        assert set(row["ratio"].get("", ())) == want
    assert "SchedulingCSIPVs/5Nodes" in result.output


@pytest.mark.slow("looks for the sources of Kubernetes")
def test_a_filter_without_a_match_says_so() -> None:
    result = CliRunner().invoke(bench_upstream.main, ["--filter", "Nothing"])
    assert result.exit_code == 2
    assert "no workload matches `Nothing`" in result.output
