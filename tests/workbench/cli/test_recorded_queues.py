"""A log of policies with a tree of queues from objects, as a workload and in a replay."""

import gzip
import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from engine.core.kernel.events import QueueObjectChanged
from engine.lib.clock import VirtualClock
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.recording.log_writer import log_files
from tests.builders import make_node, make_pod
from tests.recorded import RecordedKernel
from tests.workbench.replay.test_recorded_queues import KIND, OF_OBJECTS, queue
from workbench.cli.main import main
from workbench.simulation.simulation import Simulation
from workbench.simulation.workload import read_last, read_workload

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

BEGAN: Final = 1_800_000_000.0
NOTE: Final = "recorded by an older version, without the objects that add queues to the tree"


class RecordedQueues(RecordedKernel):
    """A kernel with a tree of queues from objects, and a node."""

    def __init__(self, directory: Path, clock: VirtualClock) -> None:
        super().__init__(directory, clock, files=OF_OBJECTS)
        self.node(make_node("n", cpu=8))

    def put(self, name: str, made: dict[str, Any] | None) -> None:
        self.report(QueueObjectChanged(KIND, name, made))

    def place(self, name: str, queue_name: str) -> None:
        """Have a pod of one core come, which may start now."""
        pod = make_pod(name, uid=name, cpu=1, labels={"queue": queue_name})
        decision = self.decide(pod)
        assert decision.node == "n"
        self.pod(pod, pod.with_node("n"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Queue `a` may have one core, two from 20 s on; `b` comes at 10 s and goes at 30 s."""
    clock = VirtualClock(BEGAN)
    run = RecordedQueues(tmp_path / "log", clock)
    run.put("a", queue("a", 1))
    run.place("a0", "a")
    clock.advance(10.0)
    run.put("b", queue("b"))
    run.place("b0", "b")
    clock.advance(10.0)
    run.put("a", queue("a", 2))
    run.place("a1", "a")
    clock.advance(10.0)
    run.put("b", None)
    run.put("c", queue("c"))
    run.place("c0", "c")
    run.close()
    return tmp_path / "log"


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    directory = tmp_path / "policies"
    directory.mkdir()
    for name, text in OF_OBJECTS.items():
        (directory / name).write_text(text)
    return directory


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


def test_the_objects_of_queues_are_part_of_the_workload(log: Path) -> None:
    """None were, and every pod waited for a queue that was not there."""
    got = read_workload(log)
    assert got.cluster.others == [queue("a", 1)]
    assert [(one.at, one.manifest, one.is_there) for one in got.queue_changes] == [
        (10.0, queue("b"), True),
        (20.0, queue("a", 2), True),
        (30.0, queue("b"), False),
        (30.0, queue("c"), True),
    ]
    assert got.cluster.missing == {}


def test_a_part_of_a_log_begins_with_the_objects_of_that_time(log: Path) -> None:
    part = read_last(log, 15.0).workload
    by_name = sorted(part.cluster.others, key=lambda one: str(one["metadata"]["name"]))
    assert by_name == [queue("a", 1), queue("b")]
    assert [(one.at, one.manifest["metadata"]["name"]) for one in part.queue_changes] == [
        (5.0, "a"),
        (15.0, "b"),
        (15.0, "c"),
    ]


def test_what_changed_while_nothing_was_recorded_has_changed_afterwards(log: Path) -> None:
    clock = VirtualClock(BEGAN + 80.0)
    again = RecordedQueues(log, clock)
    again.put("a", queue("a", 2))
    again.put("d", queue("d"))
    again.place("d0", "d")
    again.close()
    late = [one for one in read_workload(log).queue_changes if one.at > 30.0]
    assert [(one.at, one.manifest, one.is_there) for one in late] == [
        (80.0, queue("c"), False),
        (80.0, queue("d"), True),
    ]


def test_a_simulation_has_the_queues_as_they_were(log: Path, policies: Path) -> None:
    result = run("simulate", log, "--policies", policies, "--output=json")
    assert result.exit_code == 0, result.output
    placed = {one["pod"]: one["placed_at"] for one in json.loads(result.stdout)["placements"]}
    assert {name: round(at, 3) for name, at in placed.items()} == {
        "default/a0": 0.0,
        "default/b0": 10.0,
        "default/a1": 20.0,
        "default/c0": 30.0,
    }
    assert "ignored, because" not in result.stderr


def test_a_queue_that_goes_is_gone_in_a_simulation(log: Path) -> None:
    bundle = build_bundle(OF_OBJECTS)
    evaluator = InProcessEvaluator(bundle.program)
    simulation = Simulation(bundle, evaluator, read_workload(log))
    simulation.run()
    evaluator.close()
    assert [*simulation.kernel.shares.tree.queues] == ["", "a", "c"]


def test_a_replay_has_the_objects_in_the_hash_of_its_state(log: Path) -> None:
    result = run("replay", log, "--output=json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["decisions"], found["same"]) == (4, 4)
    assert NOTE not in result.stderr
    (file,) = log_files(log)
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    entries = [json.loads(line) for line in lines]
    states = [one["state"] for one in entries if one["e"] == "decision"]
    assert len(set(states)) == len(states)
    texts = [one for one in entries if one["e"] == "queue"]
    assert [(one["kind"], one["key"], one["object"]) for one in texts[-2:]] == [
        (KIND, "b", None),
        (KIND, "c", queue("c")),
    ]


def as_older(log: Path) -> None:
    """Rewrites the log as versions wrote it that did not know of objects of queues."""
    for file in log_files(log):
        kept = []
        for line in gzip.decompress(file.read_bytes()).splitlines():
            entry = msgspec.json.decode(line)
            entry.pop("queues", None)
            if entry["e"] != "queue":
                kept.append(msgspec.json.encode(entry) + b"\n")
        file.write_bytes(gzip.compress(b"".join(kept)))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("replay LOG", 0, id="replay"),
        pytest.param("diff POLICIES POLICIES --on LOG", 0, id="diff"),
        pytest.param("simulate LOG --policies POLICIES", 3, id="simulate"),
    ],
)
def test_an_older_log_is_read_and_what_it_lacks_is_said(
    log: Path, policies: Path, command: str, code: int
) -> None:
    as_older(log)
    words = {"LOG": str(log), "POLICIES": str(policies)}
    result = run(*(words.get(word, word) for word in command.split()))
    assert result.exit_code == code, result.output
    assert result.stderr.count(NOTE) == 1


def test_nothing_is_lacking_where_no_queue_comes_from_objects(log: Path) -> None:
    as_older(log)
    result = run("simulate", log, "--policies", "builtin")
    assert result.exit_code == 0, result.output
    assert NOTE not in result.stderr


def test_what_may_be_secret_in_an_object_of_a_queue_is_not_recorded(tmp_path: Path) -> None:
    secret = {"name": "PASSWORD", "value": "hunter2"}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}
    made = queue("a")
    made["metadata"] |= {"annotations": {**applied, "example.com/owner": "us"}}
    made["spec"] |= {"template": {"spec": {"containers": [{"name": "c", "env": [secret]}]}}}
    recorded = RecordedQueues(tmp_path / "log", VirtualClock(BEGAN))
    recorded.put("a", made)
    recorded.place("a0", "a")
    recorded.close()
    (file,) = log_files(tmp_path / "log")
    text = gzip.decompress(file.read_bytes())
    assert b"example.com/owner" in text
    assert b"hunter2" not in text


def test_manifests_of_queues_are_read_from_the_files_of_a_cluster(
    tmp_path: Path, policies: Path
) -> None:
    """They were left out, and the note said that no decision reads their kind."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {"queue": "a"}},
        "spec": {"containers": [container]},
    }
    other = {**queue("b"), "apiVersion": "example.com/v2"}
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all([node, pod, queue("a"), other]))
    result = run("simulate", cluster, "--policies", policies, "--output=json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["placed"] == 1
    assert "no decision reads their kind: 1 Queue\n" in result.stderr
