"""`starsched sweep`: a grid of simulations, here and on a Dask cluster, computed once each."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

from engine.policy.bundle import build_bundle
from engine.policy.config import API_VERSION, KIND, decode_configuration
from tests.builders import of_cluster
from tests.waiting import wait_until
from tests.workbench.cli.test_diff_command import node, pod
from workbench.cli.main import main
from workbench.cli.sweep_reports import columns_of, write_table
from workbench.simulation.sweep import Axis, Measured, SweepError, make_points, with_arguments

GRID = "NodeResourcesFit.scoringStrategy.type=LeastAllocated,MostAllocated"
GREEDY = """def score(pod, node):
    text = "ab"
    for _ in range(40):
        text += text
    return len(text)
"""
AS_PARQUET = ("--format", "parquet", "--output", "json")
SECONDS = 60.0


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    items = [*(node(f"n{i}") for i in range(4)), *(pod(f"p{i}") for i in range(4))]
    path.write_text(json.dumps({"kind": "List", "items": [*map(of_cluster, items)]}))
    return path


def sweep(snapshot: Path, to: Path, *more: str, grid: str = GRID) -> Result:
    arguments = ["sweep", str(snapshot), "--to", str(to), "--set", grid, *more]
    return CliRunner().invoke(main, arguments)


def table(to: Path) -> list[dict[str, str]]:
    with (to / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow("starts programs")
def test_a_grid_is_computed_and_goes_on_where_it_was(snapshot: Path, tmp_path: Path) -> None:
    to = tmp_path / "out"
    result = sweep(snapshot, to, "--seeds", "2")
    assert result.exit_code == 0, result.output
    assert "4 results, 4 of them new" in result.output
    assert [line.split()[:2] for line in result.output.splitlines() if "type=" in line] == [
        ["type=LeastAllocated", "0"],
        ["type=MostAllocated", "3"],
    ]
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
    # The same results in another form: nothing is computed.
    reported = json.loads(sweep(snapshot, to, "--seeds", "2", *AS_PARQUET).stdout)
    assert reported["new"] == 0
    assert reported["table"] == str(to / "results.parquet")
    parquet = pyarrow.parquet.read_table(reported["table"])
    assert [{name: str(v) for name, v in row.items()} for row in parquet.to_pylist()] == rows
    assert str(parquet.schema.field("empty nodes").type) == "double"
    assert str(parquet.schema.field("seed").type) == "int64"
    assert [one["metrics"]["empty nodes"] for one in reported["results"]] == [0, 0, 3, 3]
    # Another workload is another input.
    items = [node("n0"), pod("p0")]
    snapshot.write_text(json.dumps({"kind": "List", "items": [*map(of_cluster, items)]}))
    assert "4 results, 4 of them new" in sweep(snapshot, to, "--seeds", "2").output


@pytest.mark.slow("starts programs")
def test_a_table_that_cannot_be_written_is_named(snapshot: Path, tmp_path: Path) -> None:
    """A file beside it was, of which nobody had heard, and as if a simulation had failed."""
    to = tmp_path / "out"
    (to / "results.csv").mkdir(parents=True)
    result = sweep(snapshot, to)
    assert result.exit_code == 2
    assert result.output.endswith(f"Error: {to / 'results.csv'}: is a directory\n")


def local_cluster(**words: Any) -> Any:
    """A Dask cluster of this machine."""
    from distributed import LocalCluster  # it takes long to load

    # Any free port: two workers may run tests with clusters at the same time.
    return LocalCluster(dashboard_address=":0", **words)  # type: ignore[no-untyped-call]


@pytest.mark.long("starts the programs of a cluster")
def test_a_dask_cluster_computes_the_same(snapshot: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert sweep(snapshot, here).exit_code == 0
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "greedy.star").write_text(GREEDY)
    with local_cluster(n_workers=1, threads_per_worker=1) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        # Workers watch it, and take the next sweep. It took all memory that they had.
        greedy = sweep(snapshot, there, "--executor", address, "--policies", str(policies))
        result = sweep(snapshot, there, "--executor", address)
    assert greedy.exit_code == 1
    ended = "greedy.star:1: score() of policy `greedy` took more than 1024 MiB of memory"
    assert greedy.output.endswith(f"Error: {ended}\n")
    assert result.exit_code == 0, result.output
    assert "2 results, 2 of them new" in result.output
    assert (here / "results.csv").read_text() == (there / "results.csv").read_text()


def test_a_worker_of_dask_without_starsched_is_reported(snapshot: Path, tmp_path: Path) -> None:
    """It could not decode its task and lost its connection, and the sweep waited for ever."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for package in ("engine", "workbench"):
        (bare / f"{package}.py").write_text("")
    with local_cluster(n_workers=0) as cluster:
        address = cluster.scheduler_address
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
        with subprocess.Popen(
            [*worker, "--no-dashboard", "--death-timeout", "60"],
            cwd=bare,
            env={**os.environ, "PYTHONPATH": str(bare)},
            stderr=subprocess.DEVNULL,
        ) as process:
            where = address.replace("tcp://", "dask://")
            result = sweep(snapshot, tmp_path / "out", "--executor", where)
            is_alive = process.poll() is None
            process.terminate()
    assert result.exit_code == 1, result.output
    lacks = "a worker lacks starsched, or has another version: No module named '"
    assert f"Error: --executor {where}: {lacks}" in result.output
    assert is_alive


def test_a_dask_cluster_that_goes_away_ends_a_sweep(snapshot: Path, tmp_path: Path) -> None:
    """It was a traceback."""
    cluster = local_cluster(n_workers=0)
    where = cluster.scheduler_address.replace("tcp://", "dask://")
    scheduler: Any = cluster.scheduler

    def close_under_way() -> None:
        wait_until(lambda: scheduler.tasks, seconds=SECONDS, what="the sweep to wait for points")
        cluster.close()

    closing = threading.Thread(target=close_under_way)
    closing.start()
    result = sweep(snapshot, tmp_path / "out", "--executor", where)
    closing.join()
    assert result.exit_code == 1, result.output
    assert result.output.startswith(f"{where} has no workers yet: waiting for them\n")
    assert f"Error: --executor {where}: it went away\n" in result.output


@pytest.mark.parametrize(
    ("grid", "answer"),
    [
        ("NodeResourcesFit=1", "want `Plugin.argument=value,value`"),
        ("NodeResourcesFit.scoringStrategy.type=Sideways", "Sideways"),
        ("NoSuchPolicy.weight=1", "NoSuchPolicy"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_before_anything_runs(
    snapshot: Path, tmp_path: Path, grid: str, answer: str
) -> None:
    result = sweep(snapshot, tmp_path / "out", grid=grid)
    assert result.exit_code == 2, result.output
    assert answer in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("grid", "answer"),
    [
        pytest.param(
            "NodeResourcesFit.scoringStrategy.type=Sideways",
            ".scoringStrategy.type: want one of `LeastAllocated`, `MostAllocated`, "
            '`RequestedToCapacityRatio`, got "Sideways"',
            id="value",
        ),
        pytest.param(
            "NodeResourcesFit.scoringStrategy.typ=x",
            ".scoringStrategy.typ: unknown field\nhint: did you mean `type`?",
            id="name",
        ),
        pytest.param(
            "NodeResourcesFit.x=[1",
            ".x: want values of YAML, got `[1`: expected ',' or ']', but got '<stream end>'",
            id="no YAML",
        ),
        pytest.param("NodeResourcesFit.x= ", ".x: want values, got none", id="no value"),
    ],
)
def test_what_is_wrong_with_an_argument_is_reported_with_its_option(
    snapshot: Path, tmp_path: Path, grid: str, answer: str
) -> None:
    """It was told for each profile, with the line in a text that nobody has seen."""
    config = tmp_path / "config.yaml"
    profiles = [{"schedulerName": "a"}, {"schedulerName": "b"}]
    config.write_text(json.dumps({"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}))
    result = sweep(snapshot, tmp_path / "out", "--config", str(config), grid=grid)
    assert result.exit_code == 2
    assert result.output.endswith(f"Error: --set NodeResourcesFit{answer}\n"), result.output


def test_an_argument_that_is_set_twice_is_refused(snapshot: Path, tmp_path: Path) -> None:
    """The last one counted alone: the values of the others were left out without a word."""
    result = sweep(snapshot, tmp_path / "out", "--set", GRID)
    assert result.exit_code == 2, result.output
    assert "scoringStrategy.type: want it once, got it 2 times" in result.output
    assert "hint: commas separate the values of one argument" in result.output


@pytest.mark.slow("starts programs")
def test_an_argument_is_one_however_it_is_written(snapshot: Path, tmp_path: Path) -> None:
    """In both spellings it was two, of which the last one counted."""
    other = GRID.replace("scoringStrategy", "scoring_strategy")
    result = sweep(snapshot, tmp_path / "out", "--set", other)
    assert result.exit_code == 2, result.output
    assert "scoringStrategy.type: want it once, got it 2 times" in result.output
    (tmp_path / "p").mkdir()
    policy = "args = plugin_args(most_pods = 1)\ndef filter(pod, node): return None\n"
    (tmp_path / "p" / "x.star").write_text(policy)
    entry = {"name": "x", "args": {"mostPods": 2}}
    profiles = [{"plugins": {"filter": {"enabled": [{"name": "x"}]}}, "pluginConfig": [entry]}]
    text = json.dumps({"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles})
    (tmp_path / "p" / "config.json").write_text(text)
    given = f"--policies={tmp_path / 'p'}"
    result = sweep(snapshot, tmp_path / "out", given, grid="x.most_pods=3,4")
    assert result.exit_code == 0, result.output


def test_a_value_counts_once() -> None:
    """Each time that it was written it was simulated, and counted in the means."""
    assert Axis.parse("A.b=1,2,1,[1],true,[1]").values == (1, 2, [1], True)


def test_arguments_go_to_every_profile_and_leave_the_others(tmp_path: Path) -> None:
    config = "kind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: a\n- schedulerName: b\n"
    files = {"config.yaml": config, "mine.star": "x = 1"}
    texts, changed = with_arguments(files, None, {"A.b.c": 5, "A.d": [1]})
    assert texts == {"mine.star": "x = 1"}
    assert changed.count("c: 5") == 2
    assert "schedulerName: b" in changed


@pytest.mark.parametrize("config", [None, f"apiVersion: {API_VERSION}\nkind: {KIND}\n"])
def test_without_profiles_every_policy_decides(config: str | None) -> None:
    """The built-in ones alone did: an argument of one's own policy made no difference."""
    files = {
        "mine.star": "args = plugin_args(refuse = 0)\n\ndef filter(pod, node):\n    return None\n",
        "first.star": "def queue_key(pod):\n    return [0]\n",
        "node_name.star": "def filter(pod, node):\n    return None\n",
    }
    texts, changed = with_arguments(files, config, {"mine.refuse": 1})
    [want] = build_bundle(files, None).profiles
    [got] = build_bundle(texts, decode_configuration(changed)).profiles
    assert (got.points, got.order, got.weights) == (want.points, want.order, want.weights)
    assert got.arguments["mine"] == {"refuse": 1}


def test_every_combination_and_seed_is_a_point(snapshot: Path) -> None:
    axes = [Axis.parse(GRID), Axis.parse("InterPodAffinity.hardPodAffinityWeight=1,5,10")]
    points = make_points({}, None, axes, range(3), [snapshot])
    assert len({point.key for point in points}) == len(points) == 2 * 3 * 3
    with pytest.raises(SweepError, match="want `Plugin"):
        Axis.parse("=1")


def test_another_version_computes_results_again(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of before an upgrade stood beside those of after it, as if they were comparable."""
    before = make_points({}, None, [Axis.parse(GRID)], [0], [snapshot])
    monkeypatch.setattr("workbench.simulation.sweep.__version__", "99.0.0")
    after = make_points({}, None, [Axis.parse(GRID)], [0], [snapshot])
    assert not {one.key for one in before} & {one.key for one in after}


def is_there(group: int) -> bool:
    """Whether a process of the group runs or was not waited for."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow("starts programs")
def test_an_interrupted_sweep_counts_the_result_that_was_just_written(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # What comes next after a result is in the log.
    monkeypatch.setattr("rich.progress.Progress.advance", interrupt)
    log = tmp_path / "out" / "results.jsonl"
    result = sweep(snapshot, log.parent, "--seeds", "2", "--jobs", "1")
    assert result.exit_code == 130
    assert len(log.read_bytes().splitlines()) == 1
    assert f"interrupted: 1 of 4 results are in {log}; " in result.stderr


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    "sent",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long("as SIGINT does"))],
    ids=lambda one: one.name,
)
def test_an_interrupted_sweep_says_what_is_there_and_leaves_no_process(
    snapshot: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    log, many = tmp_path / "out" / "results.jsonl", 2 * 2000
    command = ["sweep", str(snapshot), "--to", str(log.parent), "--set", GRID, "--seeds", "2000"]
    with subprocess.Popen(
        [sys.executable, "-m", "workbench.cli.main", *command, "--jobs", "1"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait_until(lambda: log.exists() and log.stat().st_size, seconds=SECONDS)
        os.killpg(process.pid, sent)  # as a terminal does
        assert process.stderr is not None
        answer = process.stderr.read()
        assert process.wait(SECONDS) == 130
    lines = len(log.read_bytes().splitlines())
    assert 0 < lines < many
    assert answer == (
        f"interrupted: {lines} of {many} results are in {log}; "
        "the same command continues from there\n"
    )
    # multiprocessing's own helper goes once it sees that the others are gone.
    wait_until(lambda: not is_there(process.pid), seconds=SECONDS)


def test_values_of_one_type_are_a_column_of_it_and_others_are_text() -> None:
    def one(arguments: dict[str, object]) -> Measured:
        return Measured("k", arguments, 1, "r", {"placed": 2.0})

    columns = columns_of(
        [
            one({"A.on": True, "A.weight": 1, "A.mixed": "x", "A.list": [1]}),
            one({"A.on": False, "A.weight": 0.5, "A.mixed": None, "A.list": [{"b": 2}]}),
        ]
    )
    assert columns["A.on"] == [True, False]
    assert columns["A.weight"] == [1.0, 0.5]
    assert columns["A.mixed"] == ["x", "null"]
    assert columns["A.list"] == ["[1]", '[{"b":2}]']


@pytest.mark.slow("starts programs")
def test_a_table_in_the_other_form_is_not_left_as_it_was(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever read results.parquet took the results of an earlier sweep for the last one's."""
    to = tmp_path / "out"
    assert sweep(snapshot, to, *AS_PARQUET).exit_code == 0
    assert sweep(snapshot, to, "--seeds", "2").exit_code == 0
    assert len(table(to)) == 4
    other = to / "results.parquet"
    assert pyarrow.parquet.read_table(other).num_rows == 4
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet")
    assert sweep(snapshot, to, "--seeds", "2").exit_code == 0
    assert len(table(to)) == 4
    assert not other.exists()


def test_two_sweeps_can_end_at_once(tmp_path: Path) -> None:
    """Both wrote one file before it became the table: who was second found none, and failed."""
    results = [Measured("k", {"A.b": 1}, 0, "r", {"placed": 2.0})]
    table, others = tmp_path / "results.csv", tmp_path / ".results.csv"
    others.write_text("half of a table")
    write_table(table, results)
    assert table.read_bytes() == b"A.b,seed,revision,placed\r\n1,0,r,2.0\r\n"
    assert sorted(tmp_path.iterdir()) == [others, table]
    assert others.read_text() == "half of a table"


def test_parquet_without_its_package_says_what_to_install(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet")
    result = sweep(snapshot, tmp_path / "out", *AS_PARQUET)
    assert result.exit_code == 2
    assert "hint: pip install pyarrow, or starsched[parquet]" in result.output
    assert not (tmp_path / "out").exists()


def test_what_is_no_result_is_not_taken_for_one_that_was_cut_off(
    snapshot: Path, tmp_path: Path
) -> None:
    """The end of a file of somebody else was deleted, if no line feed came after it."""
    results = tmp_path / "results.jsonl"
    results.write_text('{"mine": 1}')
    assert sweep(snapshot, tmp_path).exit_code == 2
    assert results.read_text() == '{"mine": 1}'


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    "argument", ["-", pytest.param("/dev/stdin", marks=pytest.mark.long("read as `-` is"))]
)
def test_a_workload_can_come_from_a_pipe(snapshot: Path, tmp_path: Path, argument: str) -> None:
    """`-` was no file, and of a pipe the processes that simulate read nothing: it was read."""
    command = ["sweep", argument, "--to", str(tmp_path / "piped"), "--set", GRID, "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli.main", *command],
        input=snapshot.read_bytes(),
        capture_output=True,
        check=True,
    )
    assert b"2 results, 2 of them new" in done.stdout
    assert (tmp_path / "piped" / "workload-1-stdin").read_bytes() == snapshot.read_bytes()


def test_what_cannot_be_read_is_reported_with_its_place(snapshot: Path, tmp_path: Path) -> None:
    to = tmp_path / "out"
    to.mkdir()
    (to / "results.jsonl").write_text('{"key": 1}\n')
    result = sweep(snapshot, to)
    assert result.exit_code == 2
    assert f"Error: {to}/results.jsonl:1: want a result of a sweep: " in result.output
    assert "hint: delete the line, or take another directory with --to" in result.output
    table = tmp_path / "pods.csv"
    table.write_text("name,cpu\na,1\n")
    result = sweep(table, tmp_path / "other")
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {table}:1: want the columns of nodes: `cpu_milli`, ")
    assert not (tmp_path / "other").exists()
    result = sweep(snapshot, to, "--profile", "nobody")
    assert result.exit_code == 2
    assert "want one of `default-scheduler`, got `nobody`" in result.output
