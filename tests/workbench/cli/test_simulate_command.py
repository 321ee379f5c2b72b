"""`starsched simulate`: what is printed and written."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.workbench.cli.test_explain_command import NODE, pod
from workbench.cli.band_chart import Bands, band_chart
from workbench.cli.line_chart import line_chart
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([NODE, *(pod(f"p{i}", "1500m") for i in range(3))]))
    return str(path)


def test_what_does_not_fit_is_reported_and_ends_with_3(cluster: str) -> None:
    result = run(cluster)
    assert result.exit_code == 3, result.output
    assert "3 pods: 1 placed, 2 pending" in result.output
    assert "2 pending, such as a/p1, a/p2: 0/1 nodes are available: 1 Insufficient cpu" in (
        result.output
    )
    explained = "`No preemption victims found for incoming pod`: no pods there have a lower"
    assert result.output.count(explained) == 1


def test_it_says_where_each_pod_went_and_when(cluster: str) -> None:
    """Neither the text nor the JSON had the name of a node."""
    found = json.loads(run(cluster, "--output=json").stdout)["placements"]
    assert [(one["pod"], one["node"], one["placed_at"]) for one in found] == [
        ("a/p0", "n", 0.0),
        ("a/p1", "", None),
        ("a/p2", "", None),
    ]
    rows = list(csv.DictReader(run(cluster, "--output=csv").stdout.splitlines()))
    assert [(row["pod"], row["node"], row["placed_at"]) for row in rows] == [
        ("a/p0", "n", "0.0"),
        ("a/p1", "", ""),
        ("a/p2", "", ""),
    ]
    assert "Insufficient cpu" in rows[1]["reason"]
    lines = run(cluster, "--placements").output.splitlines()
    assert ["a/p0", "n", "0", "s", "0", "s", "-"] in [line.split() for line in lines]
    assert any(line.startswith("2 x a/p*") for line in lines)


def test_policies_that_fail_end_with_1(cluster: str, tmp_path: Path) -> None:
    """It was 3, as if the pods had no room, where the page says 1."""
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "x.star").write_text(
        '"""X."""\n\ndef filter(pod, node):\n    return node.labels["zone"]\n'
    )
    result = run(cluster, f"--policies={tmp_path / 'p'}")
    assert result.exit_code == 1, result.output
    assert "3 pending (3 of failing policies)" in result.output


def test_more_nodes_can_be_tried(cluster: str) -> None:
    result = run(cluster, "--nodes=+2")
    assert result.exit_code == 0, result.output
    assert "3 pods: 3 placed, 0 pending" in result.output


def test_an_empty_profile_is_none(cluster: str) -> None:
    """Nobody decided pods of that name: all were pending, and no reason was said."""
    result = run(cluster, "--profile=", "--nodes=+2")
    assert "3 pods: 3 placed, 0 pending" in result.output


def test_json_and_files_hold_the_run(cluster: str, tmp_path: Path) -> None:
    steps, chart = tmp_path / "s.csv", tmp_path / "c.svg"
    result = run(cluster, "--output=json", f"--steps={steps}", f"--chart={chart}", "--seed=1")
    got = json.loads(result.stdout)
    assert (got["arrived"], got["placed"], got["resources"]["cpu"]["final"]) == (3, 1, 0.75)
    (row,) = csv.DictReader(steps.read_text().splitlines())
    assert (row["pending"], row["requested:cpu"], row["allocatable:cpu"]) == ("2", "1500", "2000")
    assert ElementTree.fromstring(chart.read_text()).tag.endswith("svg")


def test_steps_count_the_pods_that_the_report_counts(cluster: str, tmp_path: Path) -> None:
    """They counted those on nodes from the start as placed: 4 of 3."""
    there = tmp_path / "there.yaml"
    there.write_text(yaml.safe_dump_all([pod(f"t{i}", "100m", nodeName="n") for i in range(3)]))
    steps = tmp_path / "s.csv"
    got = json.loads(run(cluster, str(there), "--output=json", f"--steps={steps}").stdout)
    (row,) = csv.DictReader(steps.read_text().splitlines())
    for name in ("arrived", "placed", "pending", "evictions"):
        assert int(row[name]) == got[name]
    assert int(row["requested:pods"]) == got["placed"] + 3


@pytest.mark.slow("computes for long")
def test_extenders_are_not_asked_and_it_says_so(cluster: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders:\n- {urlPrefix: 'http://127.0.0.1:1/', filterVerb: filter, weight: 1}\n"
    )
    result = run(cluster, f"--config={config}", "--output=json")
    assert result.exit_code == 3, result.output
    assert "configured extenders are not called here" in result.stderr
    assert json.loads(result.stdout)["placed"] == 1
    for others in (
        ["diff", "builtin", "builtin", "--on", cluster],
        ["sweep", cluster, f"--to={tmp_path}", "--set=InterPodAffinity.hardPodAffinityWeight=0"],
    ):
        result = CliRunner().invoke(main, [*others, f"--config={config}"])
        assert "configured extenders are not called here" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["--nodes=many"], 2, "want `+N`", id="nodes"),
        pytest.param(["--chart=x.gif"], 2, ".svg", id="chart"),
        pytest.param(["--profile=x"], 2, "`default-scheduler`", id="profile"),
        pytest.param(["/nowhere"], 2, "does not exist", id="file"),
    ],
)
def test_what_cannot_run_is_reported(
    cluster: str, arguments: list[str], code: int, message: str
) -> None:
    result = run(cluster, *arguments)
    assert (result.exit_code, message in result.output) == (code, True)


def test_a_value_of_a_chart_holds_until_the_next() -> None:
    text = line_chart([0.0, 10.0, 20.0], [("a < b", 1.0, {"x": [0.0, 1.0, 0.5]})])
    root = ElementTree.fromstring(text)
    (line,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    ys = [point.split(",")[1] for point in line.attrib["points"].split()]
    assert len(ys) == 5
    assert ys[0] == ys[1] != ys[2] == ys[3] != ys[4]


def test_a_chart_of_nothing_is_a_chart() -> None:
    assert ElementTree.fromstring(line_chart([], [("t", None, {"x": []})])) is not None


def test_files_are_one_cluster_whatever_their_order(tmp_path: Path) -> None:
    """A pod of one file named the priority class of another, which was not known."""
    classes = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    default = {
        "kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 7, "globalDefault": True
    }  # fmt: skip
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all([NODE, classes, default]))
    (tmp_path / "low.yaml").write_text(yaml.safe_dump(pod("low", "1500m")))
    (tmp_path / "high.yaml").write_text(
        yaml.safe_dump(pod("high", "1500m", priorityClassName="high"))
    )
    paths = [str(tmp_path / name) for name in ("low.yaml", "high.yaml", "nodes.yaml")]
    result = run(*paths)
    assert result.exit_code == 3, result.output
    assert "1 pending, such as a/low" in result.output


def test_a_priority_class_may_come_after_those_that_name_it(tmp_path: Path) -> None:
    """In events it had to come first, and a default one left pods before it at 0, in silence."""
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    usual = {
        "kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 7, "globalDefault": True
    }  # fmt: skip
    early = {
        "a.jsonl": [
            {"add": pod("kept", "1500m", priorityClassName="high")},
            {"at": 1, "add": pod("usual", "1500m")},
        ],
        "b.jsonl": [{"add": usual}, {"add": NODE}, {"add": high}],
    }
    for name, lines in early.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    there = tmp_path / "there.yaml"
    there.write_text(yaml.safe_dump(pod("there", "500m", priorityClassName="high")))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "there.yaml", "b.jsonl")]
    assert json.loads(run(*paths, "--output=json").stdout)["placed"] == 2
    # A pod of priority 1 leaves one of the default class where it is.
    later = tmp_path / "c.jsonl"
    later.write_text(json.dumps({"at": 2, "add": pod("late", "1500m", priority=1)}))
    alone = tmp_path / "d.jsonl"
    alone.write_text(json.dumps({"at": 1, "add": pod("usual", "1500m")}))
    table = tmp_path / "t.csv"
    table.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nt,1500,0,0,0\n")
    for first in (alone, table):
        got = json.loads(run(str(first), str(later), paths[2], "--output=json").stdout)
        assert (got["evictions"], got["reasons"][0]["examples"]) == (0, ["a/late"]), first


def test_what_is_given_twice_counts_once_and_is_reported(cluster: str, tmp_path: Path) -> None:
    """The second pod pushed the first out: "1 never got a node"."""
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump_all([NODE, pod("p0", "100m")]))
    result = run(cluster, str(again), cluster, "--output=json")
    got = json.loads(result.stdout)
    assert (got["arrived"], got["given_up"], got["nodes"]) == (3, 0, 1)
    assert "given more than once; the last one is used: Node `n`, Pod `a/p0`" in result.stderr
    got = json.loads(run(cluster, str(again), "--output=json").stdout)
    assert (got["placed"], got["resources"]["cpu"]["requested"]) == (2, 1600)


def test_a_pod_that_takes_the_place_of_another_one_is_reported(
    cluster: str, tmp_path: Path
) -> None:
    """The first was counted as one that went, and nothing was said."""
    lines = [
        {"at": 1, "add": pod("p0", "100m")},
        {"at": 2, "add": pod("q", "100m"), "for": 1},
        {"at": 3, "add": pod("q", "100m")},
    ]
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join(map(json.dumps, lines)))
    reported = "arrived again while still present; the later one replaces it: Pod `a/p0`\n"
    result = run(cluster, str(events), "--output=json")
    assert reported in result.stderr
    assert json.loads(result.stdout)["replaced"] == ["a/p0"]
    arguments = ["diff", "builtin", "builtin", "--on", cluster, "--on", str(events)]
    assert reported in CliRunner().invoke(main, arguments).stderr


def test_pods_that_leave_their_name_to_the_server_are_each_one(tmp_path: Path) -> None:
    """Both were the pod with no name, and one of them was lost."""
    unnamed = pod("", "500m")
    unnamed["metadata"] = {"generateName": "run-"}
    job = {
        "kind": "Job",
        "metadata": {"generateName": "run-"},
        "spec": {"parallelism": 2, "template": {"spec": unnamed["spec"]}},
    }
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all([NODE, unnamed, unnamed, job, pod("x", "9")]))
    result = run(str(path))
    assert "5 pods: 4 placed, 1 pending" in result.output, result.output
    events = [{"at": 1, "add": one} for one in (NODE, unnamed, unnamed)]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert "2 pods: 2 placed, 0 pending" in run(str(path)).output


def test_a_pod_that_is_being_deleted_wants_no_node(tmp_path: Path) -> None:
    """It was pending for ever, "not tried", and the exit code was 3."""
    going = pod("going", "1")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all([NODE, going, pod("p", "1")]))
    result = run(str(path))
    assert result.exit_code == 0, result.output
    assert "1 pod: 1 placed, 0 pending" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "SNAPSHOT"],
        ["diff", "builtin", "builtin", "--on=SNAPSHOT"],
        ["sweep", "SNAPSHOT", "--to=DIR", "--set=Nothing.x=1"],
        ["explain", "p", "--snapshot=SNAPSHOT", "--output=json"],
    ],
)
def test_what_a_snapshot_could_not_read_is_reported(tmp_path: Path, arguments: list[str]) -> None:
    """`explain` alone said so, and in its text alone."""
    path = tmp_path / "cluster.json"
    missing = {"persistentvolumeclaims": "forbidden"}
    items = [NODE, pod("p", "1")]
    path.write_text(json.dumps({"kind": "ClusterSnapshot", "missing": missing, "items": items}))
    places = {"SNAPSHOT": str(path), "DIR": str(tmp_path / "out")}
    for name, place in places.items():
        arguments = [one.replace(name, place) for one in arguments]
    result = CliRunner().invoke(main, arguments)
    assert "not read: persistentvolumeclaims: forbidden\n" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "-", "-"],
        ["simulate", "-", "--policies=-"],
        ["diff", "-", "builtin", "--on=-"],
        ["explain", "p0", "--snapshot=-", "-f", "-"],
        ["sweep", "-", "-", "--to=DIR", "--set=InterPodAffinity.hardPodAffinityWeight=1"],
    ],
)
def test_the_standard_input_is_one_file(tmp_path: Path, arguments: list[str]) -> None:
    """The second was empty: that pods were missing was said, or that a file was empty."""
    result = CliRunner().invoke(main, [one.replace("DIR", str(tmp_path)) for one in arguments])
    assert result.exit_code == 2, result.output
    assert "want `-` once, the standard input, got it twice" in result.stderr


@pytest.mark.slow("starts programs")
def test_standard_input_and_pipes_are_read(cluster: str) -> None:
    """A pipe was told to be empty: a look whether it is a log had read it already."""
    for argument in ("-", "/dev/stdin"):
        with subprocess.Popen(["cat", cluster], stdout=subprocess.PIPE) as cat:
            result = subprocess.run(
                [sys.executable, "-m", "workbench.cli.main", "simulate", argument],
                stdin=cat.stdout,
                capture_output=True,
                text=True,
                check=False,
            )
        assert "3 pods: 1 placed, 2 pending" in result.stdout, result.stderr


def test_so_many_nodes_that_no_cluster_has_them_are_refused(cluster: str) -> None:
    """They were made, one after another, until memory was full."""
    result = run(cluster, "--nodes=+99999999999")
    assert result.exit_code == 2
    assert "want `+N`, at most +100000, got `+99999999999`" in result.output


def test_the_queues_of_a_tree_are_reported_and_drawn(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    for name, text in tree_files(DRF, queues={"a": {"limit": {"cpu": 1}}, "b": {}}).items():
        (policies / name).write_text(text)
    pods = [pod(f"{queue}{n}", "1") for queue in "ab" for n in range(2)]
    for one in pods:
        one["metadata"]["labels"] = {"queue": one["metadata"]["name"][0]}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([NODE, *pods]))
    steps, chart = tmp_path / "s.csv", tmp_path / "c.svg"
    words = [str(path), f"--policies={policies}"]
    result = run(*words, f"--steps={steps}", f"--chart-shares={chart}")
    assert result.exit_code == 3, result.output
    rows = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "What the queues of fair had of cpu, on average" in rows
    assert "a 2 1 0 1.0 1.0 - 0.0 % 0 s 0 s 0 s" in rows
    assert any(row.startswith("share error 0.0 % of what there is") for row in rows)
    *_, last = csv.DictReader(steps.read_text().splitlines())
    assert (last["allocated:a:cpu"], last["requested:a:cpu"]) == ("1000", "2000")
    drawn = ElementTree.fromstring(chart.read_text())
    assert len(drawn.findall(".//{*}polygon")) == 2
    plain = json.loads(run(*words, "--output=json", "--shares-of=memory").stdout)
    assert (plain["queues"]["resource"], plain["queues"]["level"]) == ("memory", 1)
    assert [one["queue"] for one in plain["queues"]["queues"]] == ["a", "b"]
    # Without a tree there is nothing to draw.
    without = run(str(path), f"--chart-shares={chart}")
    assert (without.exit_code, "have no QueueTree" in without.output) == (2, True)


def test_bands_are_on_each_other_and_lines_where_they_would_go() -> None:
    panel = Bands("t", [0.0, 10.0], {"a": [1, 1], "b": [1, 3]}, {"a": [2, 2], "b": [2, 2]}, 4.0)
    drawn = ElementTree.fromstring(band_chart([panel]))
    lines = [one.get("points", "").split(" ") for one in drawn.findall(".//{*}polyline")]
    assert lines[1][0].split(",")[1] == "40.0", "both together are all there is"
    assert lines[0][0].split(",")[1] == "130.0"
