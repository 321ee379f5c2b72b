"""A recorded log as a workload of `simulate`, `diff --simulate` and `sweep`."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from engine.core.kernel.events import NODES, NodeFactsChanged, ObjectChanged
from engine.core.model.fact import Fact, NodeFacts
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.lib.clock import VirtualClock
from engine.recording.log_writer import log_files
from tests.recorded import RecordedKernel
from tests.workbench.cli.test_diff_command import node, pod, policies
from workbench.cli.main import main
from workbench.replay.decision_log import Damage, read_log
from workbench.replay.replay import Outcome, Replayer
from workbench.simulation.workload import Workload, WorkloadError, read_last, read_workload

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

BEGAN = 1_800_000_000.0


def placed(name: str, on: str) -> Pod:
    plain = pod(name)
    return Pod.from_plain({**plain, "spec": {**plain["spec"], "nodeName": on}})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two nodes with a pod on one of them; p0..p2 come at 0, 10, 20; old goes at 20, p0 at 30;
    a node comes at 30. The log has several files."""
    directory = tmp_path / "log"
    clock = VirtualClock(BEGAN)
    run = RecordedKernel(directory, clock)
    for name in ("n1", "n2"):
        run.node(Node.from_plain(node(name)))
    run.pod(None, old := placed("old", "n1"))
    own, of_pods = {"heat": Fact(60, "60", 30)}, {"load": {"web": Fact(1, "1")}}
    run.report(NodeFactsChanged("n1", NodeFacts(own, of_pods)))
    bound = []
    for number in range(3):
        wants = Pod.from_plain(pod(f"p{number}"))
        decision = run.decide(wants)
        assert decision.node is not None
        run.pod(wants, bound_pod := placed(f"p{number}", decision.node))
        bound.append(bound_pod)
        clock.advance(10.0)
        if number == 1:
            run.pod(old, None)
            run.writer.wants_checkpoint = "size"
    run.pod(bound[0], None)
    run.node(Node.from_plain(node("n3")))
    run.close()
    return directory


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


def summary(workload: Workload) -> dict[str, Any]:
    return {
        "nodes": [n["metadata"]["name"] for n in workload.cluster.nodes],
        "placed": [p["metadata"]["name"] for p in workload.cluster.pods],
        "stays": [(a.at, a.pod.name, a.until) for a in workload.arrivals],
        "changes": [(c.at, c.name, c.node is not None) for c in workload.changes],
        "departures": workload.departures,
    }


def test_what_came_and_went_is_the_workload_and_where_it_was_put_is_not(log: Path) -> None:
    assert len(list(log.iterdir())) == 2
    assert summary(read_workload(log)) == {
        "nodes": ["n1", "n2"],
        "placed": ["old"],
        "stays": [(0.0, "p0", 30.0), (10.0, "p1", None), (20.0, "p2", None)],
        "changes": [(30.0, "n3", True)],
        "departures": [(20.0, "default/old")],
    }


def record(
    directory: Path,
    clock: VirtualClock,
    nodes: list[str],
    there: dict[str, str],
    wants: list[str],
    nominated: dict[str, str] | None = None,
) -> None:
    """A run of a scheduler: pods that are there, that are promised a node, and that come."""
    run = RecordedKernel(directory, clock)
    for name in nodes:
        run.node(Node.from_plain(node(name)))
    for name, on in there.items():
        run.pod(None, placed(name, on))
    for name, on in (nominated or {}).items():
        run.kernel.queue.nominator.nominate(Pod.from_plain(pod(name)), on)
    for name in wants:
        pending = Pod.from_plain(pod(name))
        decision = run.decide(pending)
        assert decision.node is not None
        run.pod(pending, placed(name, decision.node))
        clock.advance(10.0)
    run.close()


def test_a_pod_that_is_nominated_when_the_log_begins_wants_one(tmp_path: Path) -> None:
    """It was left out, and said to be a pod that others placed."""
    record(tmp_path / "log", VirtualClock(BEGAN), ["n"], {}, ["p", "q"], nominated={"p": "n"})
    got = read_workload(tmp_path / "log")
    assert summary(got)["stays"] == [(0.0, "p", None), (10.0, "q", None)]
    assert got.cluster.missing == {}


def test_what_is_deleted_while_nothing_records_is_gone_afterwards(tmp_path: Path) -> None:
    """Pods and nodes that went between two runs of a scheduler stayed, and nothing was said."""
    log, clock = tmp_path / "log", VirtualClock(BEGAN)
    record(log, clock, ["n1", "n2"], {"old": "n1", "kept": "n2"}, ["a", "b"])
    clock.advance(80.0)
    record(log, clock, ["n1", "n3"], {"kept": "n1", "b": "n1", "new": "n3"}, ["c"], {"d": "n3"})
    got = read_workload(log)
    assert summary(got) == {
        "nodes": ["n1", "n2"],
        "placed": ["old", "kept"],
        "stays": [
            (0.0, "a", 100.0), (10.0, "b", None), (100.0, "d", None), (100.0, "c", None),
        ],
        "changes": [(100.0, "n2", False), (100.0, "n3", True)],
        "departures": [(100.0, "default/old")],
    }  # fmt: skip
    reported = run("simulate", log).stderr
    assert (
        "1 changes of other objects, or of pods placed by other schedulers; what happened in 1"
        in reported
    )


def test_a_log_whose_first_checkpoint_is_cut_off_begins_with_the_next(tmp_path: Path) -> None:
    """What the first one still said was there too."""
    log, clock = tmp_path / "log", VirtualClock(BEGAN)
    record(log, clock, ["n1", "n2"], {"old": "n1"}, ["a"])
    first, lines = lines_of(log, 1)
    end = next(i for i, line in enumerate(lines) if b'"e":"checkpoint"' in line)
    first.write_bytes(b"".join(lines[:end]))
    record(log, clock, ["n1"], {}, ["b"])
    got = summary(read_workload(log))
    assert (got["nodes"], got["placed"], got["stays"]) == (["n1"], [], [(0.0, "b", None)])


def test_facts_are_those_that_the_first_decision_saw(log: Path) -> None:
    (answer,) = read_workload(log).cluster.facts
    assert answer.document == {
        "nodes": {"n1": {"heat": {"value": 60, "text": "60", "time": BEGAN - 30}}},
        "pairs": {"web": {"n1": {"load": {"value": 1, "text": "1"}}}},
    }


def test_a_log_is_simulated(log: Path) -> None:
    result = run("simulate", log, "--output=json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["arrived"], answer["placed"], answer["completed"], answer["nodes"]) == (
        3,
        2,
        1,
        3,
    )
    assert answer["seconds"] == 30.0


@pytest.mark.slow("computes for long")
def test_diff_simulates_a_log_on_request(log: Path, tmp_path: Path) -> None:
    second = policies(tmp_path / "second", "n2")
    wanted = ("diff", policies(tmp_path / "first", "n1"), second, "--on", log, "--output=json")
    both = run(*wanted, "--simulate", "--seeds=2")
    assert both.exit_code == 0, both.output
    assert json.loads(both.stdout)["moved"] == 3
    refused = run(*wanted, "--seeds=2")
    assert refused.exit_code == 2
    assert "--simulate takes the log as a workload" in refused.output


@pytest.mark.slow("starts programs")
def test_a_log_is_swept(log: Path, tmp_path: Path) -> None:
    grid = "NodeResourcesFit.scoringStrategy.type=LeastAllocated,MostAllocated"
    result = run("sweep", log, "--to", tmp_path / "out", "--set", grid, "--jobs=1")
    assert result.exit_code == 0, result.output
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        assert [row["placed"] for row in csv.DictReader(file)] == ["2.0", "2.0"]


def test_a_log_that_is_damaged_is_reported(log: Path) -> None:
    file = min(log.iterdir())
    file.write_bytes(b'{"n":1,"t":0,"e":"log","format":1}\n{"n":2}\n')
    with pytest.raises(WorkloadError, match=r"decisions-000001.*:2: "):
        read_workload(log)


def test_files_that_a_running_scheduler_deletes_are_read_all_the_same(log: Path) -> None:
    """A replay of a log that was being written ended at a file that had just made room."""
    want = [line.number for line in read_log(log)]
    lines = read_log(log)
    got = [next(lines).number]
    for file in log_files(log):
        file.unlink()
    assert got + [line.number for line in lines] == want


def test_a_file_that_is_gone_once_it_is_listed_is_the_rotated_beginning(log: Path) -> None:
    want = [line.number for line in read_log(log)]
    (log / "decisions-000000.jsonl").symlink_to("deleted")
    assert [line.number for line in read_log(log)] == want


def lines_of(log: Path, number: int) -> tuple[Path, list[bytes]]:
    """A file of the log, no longer compressed, and its lines."""
    packed = log / f"decisions-{number:06}.jsonl.gz"
    text = gzip.decompress(packed.read_bytes())
    packed.unlink()
    plain = packed.with_suffix("")
    plain.write_bytes(text)
    return plain, text.splitlines(keepends=True)


def test_a_log_that_was_cut_off_is_replayed_up_to_there(log: Path) -> None:
    cut, lines = lines_of(log, 2)
    cut.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    result = run("replay", log, "--output=json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["cutOff"] == [f"{cut}:{len(lines)}"]
    assert f"{cut}:{len(lines)}: it ends in the middle of an entry" in result.stderr
    # One in the middle is no end.
    cut.write_bytes(b"".join([*lines[:-2], lines[-2][:20] + b"\n", lines[-1]]))
    result = run("replay", log)
    assert result.exit_code == 2
    assert f"Error: {cut}:{len(lines) - 1}: want an entry of a log: " in result.output


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("simulate LOG --retry", id="simulate"),
        pytest.param("diff builtin builtin --on LOG", id="diff"),
        pytest.param("diff builtin builtin --on LOG --simulate", id="diff of simulations"),
        pytest.param(
            "sweep LOG --to OUT --set InterPodAffinity.hardPodAffinityWeight=1", id="sweep"
        ),
        pytest.param("bench builtin --on LOG --rounds 3", id="bench"),
    ],
)
def test_every_command_says_where_a_log_is_cut_off(log: Path, tmp_path: Path, command: str) -> None:
    """Only `replay` did; what was left out of the others looked as if it had not happened."""
    cut, lines = lines_of(log, 2)
    cut.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    words = {"LOG": str(log), "OUT": str(tmp_path / "out")}
    result = run(*(words.get(word, word) for word in command.split()))
    assert result.exit_code == 0, result.output
    answer = f"{cut}:{len(lines)}: it ends in the middle of an entry, which is ignored\n"
    assert result.stderr.count(answer) == 1


def damaged(log: Path, how: str) -> str:
    """Damages *log*; what is told of it."""
    first, lines = lines_of(log, 1)
    second, third = (log / f"decisions-{number:06}.jsonl.gz" for number in (2, 3))
    at = next(i for i, line in enumerate(lines) if b'"e":"decision"' in line)
    match how:
        case "a decision":
            first.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
            return f"{first}:{at + 1}: entry {at + 1} is missing before it"
        case "a pod and its decision":
            first.write_bytes(b"".join([*lines[: at - 1], *lines[at + 3 :]]))
            return f"{first}:{at}: every entry from {at} to {at + 3} is missing before it"
        case "an end":
            first.write_bytes(b"".join(lines[:-1]))
            return f"{second}:1: entry {len(lines)} is missing before it"
        case "a file":
            second.rename(third)
            return f"{third}:1: file 2 is missing before it"
    raise AssertionError(how)


@pytest.mark.slow("computes for long")
@pytest.mark.parametrize("how", ["a decision", "a pod and its decision", "an end", "a file"])
def test_what_is_missing_in_a_log_is_reported(log: Path, how: str) -> None:
    """Unless a later decision came out otherwise, nobody heard that there were decisions less."""
    want = damaged(log, how)
    result = run("replay", log, "--output=json")
    assert result.exit_code in (0, 1)
    assert json.loads(result.stdout)["missing"] == [want]
    assert f"{want}\n" in result.stderr
    for command in (["simulate", log], ["diff", "builtin", "builtin", "--on", log]):
        assert f"{want}\n" in run(*command).stderr


@pytest.mark.parametrize("number", [1, 2])
def test_an_empty_file_of_a_log_is_reported(log: Path, number: int) -> None:
    """Its decisions were missing, and nothing was said."""
    file, _ = lines_of(log, number)
    file.write_bytes(b"")
    result = run("replay", log, "--output=json")
    assert json.loads(result.stdout)["cutOff"] == [f"{file}:1"]
    answer = f"{file}:1: it ends in the middle of an entry, which is ignored\n"
    assert answer in run("simulate", log).stderr


def test_entries_in_another_order_are_reported(log: Path) -> None:
    first, lines = lines_of(log, 1)
    at = next(i for i, line in enumerate(lines) if b'"e":"decision"' in line)
    swapped = [lines[at + 2], lines[at + 1]]
    first.write_bytes(b"".join([*lines[: at + 1], *swapped, *lines[at + 3 :]]))
    answer = run("replay", log).stderr
    assert f"{first}:{at + 3}: entry {at + 2} comes after entry {at + 3}\n" in answer


def test_a_whole_log_lacks_nothing(log: Path) -> None:
    """The oldest files are deleted, and each start counts from one."""
    assert json.loads(run("replay", log, "--output=json").stdout)["missing"] == []
    (log / "decisions-000001.jsonl.gz").unlink()
    assert json.loads(run("replay", log, "--output=json").stdout)["missing"] == []


def test_a_file_that_is_unpacked_next_to_itself_counts_once(log: Path) -> None:
    """Its decisions were there twice."""
    want = json.loads(run("replay", log, "--output=json").stdout)
    packed = (log / "decisions-000001.jsonl.gz").read_bytes()
    (log / "decisions-000001.jsonl").write_bytes(gzip.decompress(packed))
    assert json.loads(run("replay", log, "--output=json").stdout) == want


@pytest.mark.parametrize("command", ["simulate", "diff"])
def test_a_log_that_cannot_be_read_is_a_log_all_the_same(
    log: Path, tmp_path: Path, command: str
) -> None:
    """It was taken for events: want `at`, `add`, `for` or `delete`, got `e`."""
    text = gzip.decompress(log_files(log)[0].read_bytes())
    other = tmp_path / "newer.jsonl"
    other.write_bytes(text.replace(b'"format":1', b'"format":2'))
    cut = tmp_path / "decisions-000009.jsonl"
    cut.write_bytes(text[:40])
    before = [command, "builtin", "builtin", "--on"] if command == "diff" else [command]
    for path, answer in (
        (other, f"{other}:1: want a decision log of format 1, got format 2\n"),
        (cut, f"{cut}:1: want a whole checkpoint, the log ends before it does\n"),
    ):
        result = CliRunner().invoke(main, [*before, str(path)])
        assert (result.exit_code, result.stderr) == (2, f"Error: {answer}")


def test_a_log_without_a_whole_checkpoint_decides_nothing(log: Path) -> None:
    first, lines = lines_of(log, 1)
    first.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    for command in (["replay", first], ["simulate", first], ["diff", "builtin", "builtin", "--on"]):
        result = run(*command, *([first] if command[0] == "diff" else []))
        assert result.exit_code == 2
        assert f"{first}:3: want a whole checkpoint, the log ends before it does" in result.output


# --- the last part of a log --------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [40.0, 30.0])
def test_a_log_that_is_not_longer_is_read_whole(log: Path, seconds: float) -> None:
    part = read_last(log, seconds)
    assert summary(part.workload) == summary(read_workload(log))
    assert (part.began, part.ended) == (BEGAN, BEGAN + 30)


def test_the_last_part_begins_with_what_the_part_before_left(log: Path) -> None:
    part = read_last(log, 15.0)
    assert summary(part.workload) == {
        "nodes": ["n1", "n2"],
        "placed": ["old", "p0", "p1"],
        "stays": [(5.0, "p2", None)],
        "changes": [(15.0, "n3", True)],
        "departures": [(5.0, "default/old"), (15.0, "default/p0")],
    }
    assert (part.began, part.ended) == (BEGAN + 15, BEGAN + 30)
    # In the second file, whose checkpoint says what is there once more.
    part = read_last(log, 7.0)
    assert summary(part.workload) == {
        "nodes": ["n1", "n2"],
        "placed": ["p1", "p0", "p2"],
        "stays": [],
        "changes": [(7.0, "n3", True)],
        "departures": [(7.0, "default/p0")],
    }
    (facts,) = part.workload.cluster.facts
    assert facts.document["nodes"] == {
        "n1": {"heat": {"value": 60, "text": "60", "time": BEGAN - 10}}
    }


def test_everything_before_the_last_part_counts(tmp_path: Path) -> None:
    """Nodes and pods that went, facts that changed, and pods that waited already."""
    clock = VirtualClock(BEGAN)
    run = RecordedKernel(tmp_path / "log", clock)
    nodes = {name: Node.from_plain(node(name)) for name in ("n1", "n2", "n3")}
    for one in nodes.values():
        run.node(one)
    for name in ("first", "second"):
        run.pod(None, placed(name, "n1"))
    sizes = {"waits": "64", "gone": "64", "fits": "1"}
    wanted = {name: Pod.from_plain(pod(name, cpu)) for name, cpu in sizes.items()}
    for name, pending in wanted.items():
        assert bool(run.decide(pending).node) is (name == "fits")
    clock.advance(10.0)
    run.report(ObjectChanged(NODES, nodes["n3"], None))
    run.pod(placed("first", "n1"), None)
    for age in (30, 5):
        heat = {"heat": Fact(age, str(age), age)}
        run.report(NodeFactsChanged("n1", NodeFacts(heat, {})))
    run.pod(wanted["gone"], None)  # nothing records that a pod ends that waits
    clock.advance(10.0)
    run.node(Node.from_plain(node("big", "64")))
    assert run.try_next().pod.name == "waits"
    run.close()
    part = read_last(tmp_path / "log", 5.0)
    assert summary(part.workload) == {
        "nodes": ["n1", "n2"],
        "placed": ["second", "fits"],
        "stays": [(0.0, "waits", None)],
        "changes": [(5.0, "big", True)],
        "departures": [],
    }
    (facts,) = part.workload.cluster.facts
    assert facts.document == {
        "nodes": {"n1": {"heat": {"value": 5, "text": "5", "time": BEGAN + 5}}}
    }


def test_another_number_of_feasible_nodes_is_no_difference(log: Path, tmp_path: Path) -> None:
    """It was listed as one that shows none: `default/p0  n1 -> n1`."""
    recorded = {one.pod: one.recorded["node"] for one in _outcomes(log)}
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "same.star").write_text(
        f"_NODES = {json.dumps(recorded)}\n\n"
        "def filter(pod, node):\n"
        '    wanted = _NODES.get(pod.namespace + "/" + pod.name, node.name)\n'
        '    return None if node.name == wanted else "another one"\n'
    )
    result = run("replay", log, f"--policies={policies}")
    assert result.exit_code == 0, result.output
    alike = f"{len(recorded)} with the same outcome and other feasible nodes"
    assert f"0 the same, 0 different, {alike}" in result.output
    answer = json.loads(run("replay", log, f"--policies={policies}", "--output=json").stdout)
    assert answer["differences"] == []
    assert [one["changed"] for one in answer["alike"]] == [["feasible"]] * len(recorded)


def _outcomes(log: Path) -> list[Outcome]:
    replayer = Replayer()
    try:
        return list(replayer.outcomes(read_log(log, Damage())))
    finally:
        replayer.close()
