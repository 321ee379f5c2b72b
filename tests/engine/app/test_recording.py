"""What a scheduler records it decides again: on the embedded API server and on a real one."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App
from engine.core.caching.cache import Cache
from engine.core.kernel.instructions import Instruction, PodAssumed, ReportDecision
from engine.core.kernel.kernel import Kernel
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.diagnosis import Diagnosis
from engine.io.informers import OTHER_OBJECTS
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.lib.clock import SystemClock
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.recording.log_writer import Checkpoint, LogSettings, LogWriter, log_files
from engine.recording.recorder import Recorder
from engine.telemetry.metrics import Metrics
from tests.controlplane import ControlPlane
from tests.engine.app import harness
from tests.engine.app.harness import metric
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.live import LiveCluster, node, pod
from tests.waiting import eventually, wait_until
from workbench.cli.main import main
from workbench.replay.decision_log import read_log
from workbench.replay.replay import RECORDS, Outcome, Replayer
from workbench.simulation.simulation import Simulation
from workbench.simulation.workload import read_workload

pytestmark = pytest.mark.usefixtures("no_sandboxes")

SLOW = pytest.mark.slow("starts the real control plane")
#: On one worker, which starts one control plane.
TOGETHER = pytest.mark.xdist_group(__name__)

KINDS = [resource.plural for resource, _ in OTHER_OBJECTS]
PREFERS = """\"\"\"Prefers one node.\"\"\"

def score(pod, node):
    return 100 if node.name == "node-1" else 0
"""
CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: mine, weight: 1000}]
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@dataclass
class World:
    endpoint: Endpoint
    cluster: LiveCluster


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.long("the same on the embedded server")),
        pytest.param("real", marks=[SLOW, TOGETHER]),
    ],
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "real":
            endpoint = request.getfixturevalue("plane").endpoint()
        else:
            server = await stack.enter_async_context(DevCluster())
            endpoint = Endpoint(server=server.url)
        client = await stack.enter_async_context(ApiClient(endpoint))
        cluster = LiveCluster(client)
        await cluster.prepare()
        yield World(endpoint, cluster)
        await cluster.clear()


def make_recorder(directory: Path, **settings: object) -> Recorder:
    words = {"directory": directory, **settings}
    writer = LogWriter(LogSettings(**words), "test")  # type: ignore[arg-type]  # as given
    recorder = Recorder(writer, SystemClock(), KINDS)
    recorder.start()
    return recorder


def outcomes(log: Path) -> list[Outcome]:
    replayer = Replayer()
    try:
        return list(replayer.outcomes(read_log(log)))
    finally:
        replayer.close()


def placed(app: App) -> int:
    return app.cache.pod_count


async def write_policies(cluster: LiveCluster, files: dict[str, str]) -> None:
    folder = f"/api/v1/namespaces/{harness.NAMESPACE}/configmaps"
    with contextlib.suppress(Exception):
        await cluster.request("POST", "/api/v1/namespaces", harness.namespace())
    with contextlib.suppress(Exception):
        await cluster.request("DELETE", f"{folder}/{harness.NAME}")
    await cluster.request("POST", folder, harness.config_map(files))


async def busy_day(world: World, app: App) -> None:
    """A hundred pods, some too large, with nodes that come, go and change, and new policies."""
    cluster = world.cluster
    sizes = ("250m", "500m", "1", "100m")
    for number in range(40):
        labels = {"app": f"app-{number % 3}"}
        await cluster.create(pod(f"a-{number}", cpu=sizes[number % 4], labels=labels))
    await cluster.create(pod("huge", cpu="9", memory="1Gi"))
    await eventually(lambda: placed(app) == 40, what="the first forty")
    await cluster.delete("Node", "node-2")
    await cluster.create(node("node-7", cpu="16", zone="b"), node("node-8", zone="a"))
    await eventually(lambda: placed(app) == 41, what="the pod that was too large")
    await cluster.request("PATCH", "/api/v1/nodes/node-3", {"spec": {"unschedulable": True}})
    for number in range(0, 40, 5):
        await cluster.delete("Pod", f"a-{number}", gracePeriodSeconds=0)
    await eventually(lambda: placed(app) == 33, what="the deletions")
    before = app.policies.rollout.active.bundle.revision
    await write_policies(cluster, {"mine.star": PREFERS, "config.yaml": CONFIG})
    await eventually(
        lambda: app.policies.rollout.active.bundle.revision != before, what="the policies"
    )
    for number in range(50):
        await cluster.create(pod(f"b-{number}", cpu=sizes[number % 4]))
    await eventually(lambda: app.kernel.queue.counts()["active"] == 0, what="the last fifty")
    # Too much for what is left: somebody has to go. Others were tried in vain before.
    attempts = metric(app, "scheduler_preemption_attempts_total")
    await cluster.create(pod("urgent", cpu="3500m", priority="high"))
    await eventually(
        lambda: (
            app.carrying.preemptor.in_flight
            or metric(app, "scheduler_preemption_attempts_total") > attempts
        ),
        what="an eviction",
    )
    await asyncio.sleep(0)


@pytest.mark.slow("runs a whole scheduler")
async def test_a_recorded_day_is_decided_again(world: World, tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path)
    await world.cluster.create(*(node(f"node-{n}", zone="ab"[n % 2]) for n in range(1, 7)))
    await write_policies(world.cluster, {})
    async with harness.scheduler_at(
        world.endpoint, from_config_map=True, decision_log=recorder
    ) as app:
        await busy_day(world, app)
        assert metric(app, "starsched_recorded_entries_total", outcome="dropped") == 0
    recorder.close()
    found = outcomes(tmp_path)
    assert len(found) >= 92
    assert len({outcome.revision for outcome in found}) == 2
    assert any(outcome.recorded["node"] is None for outcome in found)
    assert any("eviction" in outcome.recorded for outcome in found)
    assert [o for o in found if not o.is_same or o.notes] == []
    # The command says the same.
    result = CliRunner().invoke(main, ["replay", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert f"{len(found)} the same, 0 different" in result.output


def _are_placed(app: App, count: int) -> bool:
    return placed(app) == count


_CANARY = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
rollout:
  canary:
    steps:
    - {share: 50%, duration: 1s, decisions: 1000000}
"""


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(1 << 26, id="one file"),
        pytest.param(4_000, id="many files", marks=pytest.mark.long("the same in many files")),
    ],
)
async def test_decisions_of_a_canary_are_decided_again_by_its_policies(
    tmp_path: Path, size: int
) -> None:
    """They were compared with what the policies in force decide, and were all different."""
    recorder = make_recorder(tmp_path, file_bytes=size, files=1000, compress=False)
    before = {"runtime.yaml": _CANARY}
    async with DevCluster() as cluster:
        names = [f"node-{number}" for number in range(1, 4)]
        cluster.create(harness.namespace(), *(make_node(name) for name in names))
        harness.edit(cluster, before)
        async with harness.scheduler(cluster, from_config_map=True, decision_log=recorder) as app:
            harness.edit(cluster, before | {"mine.star": PREFERS, "config.yaml": CONFIG})
            await eventually(lambda: app.kernel.schedulers.canary is not None, what="the canary")
            candidate = app.policies.rollout.status.candidate
            for number in range(40):
                cluster.create(make_pod(f"a-{number}", cpu="10m", memory="1Mi"))
                await eventually(partial(_are_placed, app, number + 1))
            harness.edit(cluster, before)
            await eventually(lambda: app.kernel.schedulers.canary is None, what="its end")
            cluster.create(make_pod("last", cpu="10m", memory="1Mi"))
            await eventually(lambda: placed(app) == 41)
            in_force = app.policies.rollout.active.bundle.revision
    recorder.close()
    assert (len(log_files(tmp_path)) > 2) == (size == 4_000)
    found = outcomes(tmp_path)
    assert {outcome.revision for outcome in found} == {in_force, candidate}
    assert found[-1].revision == in_force
    assert [one for one in found if not one.is_same or one.notes] == []
    for file in log_files(tmp_path)[:10]:  # each begins with a checkpoint that has the candidate
        assert [one for one in outcomes(file) if not one.is_same or one.notes] == []
    # The candidate does decide something else.
    replayer = Replayer(build_bundle(before))
    others = list(replayer.outcomes(read_log(tmp_path)))
    replayer.close()
    assert {one.revision for one in others if not one.is_same} == {candidate}


def a_group(name: str, min_count: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}, **spec},
    }


def members(group: str, count: int, cpu: str, **spec: Any) -> list[dict[str, Any]]:
    pods = []
    for number in range(count):
        manifest = make_pod(f"{group}-{number}", cpu=cpu)
        manifest["spec"] |= {"schedulingGroup": {"podGroupName": group}, **spec}
        pods.append(manifest)
    return pods


@pytest.mark.slow("runs a whole scheduler")
async def test_attempts_at_groups_are_decided_again(tmp_path: Path) -> None:
    """One that is placed, one that gives back what it held, one that others go for."""
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
    }
    recorder = make_recorder(tmp_path)
    async with DevCluster() as cluster:
        cluster.create(high, make_node("node-1", cpu="4"), make_node("node-2", cpu="4"))
        async with harness.scheduler(cluster, decision_log=recorder) as app:
            cluster.create(
                a_group("fits", 3), *members("fits", 3, "1", terminationGracePeriodSeconds=0)
            )
            await eventually(lambda: placed(app) == 3, what="the group that fits")
            cluster.create(a_group("large", 3), *members("large", 3, "2"))
            few = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
            await eventually(
                lambda: (
                    few in harness.condition(cluster, "large-0").get("message", "")
                    or few in harness.condition(cluster, "large-1").get("message", "")
                ),
                what="the group that is too large",
            )
            cluster.create(
                a_group("urgent", 2, priorityClassName="high"),
                *members("urgent", 2, "4", priorityClassName="high"),
            )
            await eventually(
                lambda: {"urgent-0", "urgent-1"} <= harness.placements(cluster).keys(),
                what="the urgent group",
            )
            assert metric(app, "starsched_recorded_entries_total", outcome="dropped") == 0
    recorder.close()
    found = outcomes(tmp_path)
    tried = {o.pod.removeprefix("default/") for o in found}
    assert tried >= {"fits-2", "large-0", "urgent-1"}
    assert any(o.recorded["node"] is None for o in found)
    assert [o for o in found if not o.is_same or o.notes] == []


_TREE: Final = tree_files(
    DRF[: DRF.index("def queues")]
    + """
def queues(object):
    meta = object["metadata"]
    if meta["namespace"] != "teams":
        return []
    return queue(meta["name"], limit = {"cpu": int(object["data"]["cpu"])})

"""
    + DRF[DRF.index("def queue_of") :],
    objects=[{"apiVersion": "v1", "kind": "ConfigMap"}],
)


def a_team(name: str, cpu: int) -> dict[str, Any]:
    """An object that is a queue of so many cores."""
    metadata = {"name": name, "namespace": "teams"}
    data = {"cpu": str(1000 * cpu)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.mark.slow("runs a whole scheduler")
async def test_a_tree_of_queues_from_objects_is_recorded_with_them(tmp_path: Path) -> None:
    """Each pod of the log waited for a queue that was not there when it was simulated."""
    recorder = make_recorder(tmp_path / "log")
    teams = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "teams"}}
    async with DevCluster() as cluster:
        cluster.create(harness.namespace(), teams, make_node("node-1", cpu="8"), a_team("a", 2))
        harness.edit(cluster, _TREE)
        async with harness.scheduler(cluster, from_config_map=True, decision_log=recorder) as app:

            def held() -> list[str]:
                return [lane.hold.token for lane in app.kernel.turns.held() if lane.hold]

            for number in range(3):
                cluster.create(make_pod(f"a-{number}", cpu="1", labels={"queue": "a"}))
            await eventually(lambda: placed(app) == 2 and held() == ["QuotaReached"], what="held")
            cluster.create(make_pod("b-0", cpu="1", labels={"queue": "b"}))
            await eventually(lambda: "QueueMissing" in held(), what="no queue")
            cluster.update("configmaps", a_team("a", 3))
            cluster.create(a_team("b", 1))
            await eventually(lambda: placed(app) == 4, what="the rest")
            want = dict(app.kernel.shares.tree.queues)
    recorder.close()
    found = outcomes(tmp_path / "log")
    assert [o for o in found if not o.is_same or o.notes] == []
    assert {o.pod for o in found} == {f"default/{name}" for name in ("a-0", "a-1", "a-2", "b-0")}
    assert CliRunner().invoke(main, ["replay", str(tmp_path / "log")]).exit_code == 0
    bundle = build_bundle(_TREE)
    evaluator = InProcessEvaluator(bundle.program)
    simulation = Simulation(bundle, evaluator, read_workload(tmp_path / "log"))
    simulation.run()
    evaluator.close()
    assert simulation.pending_count == 0
    got = simulation.kernel.shares.tree.queues
    assert {path: one.attributes for path, one in got.items()} == {
        path: one.attributes for path, one in want.items()
    }


def test_a_log_that_was_recorded_before_the_kernel_is_decided_the_same() -> None:
    """By a scheduler that recorded changes of its cache: gangs, preemption, volumes, an edit."""
    found = outcomes(
        Path(__file__).parents[2] / "data" / "recordings" / "before_the_kernel.jsonl.gz"
    )
    assert len(found) == 24
    assert sum("eviction" in one.recorded for one in found) == 1
    assert len({one.revision for one in found}) == 2
    # kube-scheduler 1.37 says something of a preemption that helps, and nothing where a post-filter
    # has nothing to do; the decisions are the same.
    different = [one for one in found if not one.is_same]
    assert all(one.changed == ("message",) for one in different)
    before = (str(one.recorded["message"]) for one in different)
    after = (str(one.replayed["message"]) for one in different)
    for was, now in zip(before, after, strict=True):
        assert was.replace("no new claims to deallocate, ", "") == re.sub(
            r" preemption: found a potential placement .*", "", now
        )
    assert not [note for one in found for note in one.notes if "state" in note]


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(make_node("node-1"), make_node("node-2"))
        yield cluster


async def decide(cluster: DevCluster, app: App, names: list[str]) -> None:
    cluster.create(*(make_pod(name) for name in names))
    await eventually(lambda: all(harness.node_of(cluster, name) for name in names))


async def test_the_configuration_of_containers_is_not_recorded(
    cluster: DevCluster, tmp_path: Path
) -> None:
    recorder = make_recorder(tmp_path, compress=False)
    async with harness.scheduler(cluster, decision_log=recorder):
        manifest = make_pod("one")
        container = manifest["spec"]["containers"][0]
        container["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
        container["command"] = ["hunter2"]
        cluster.create(manifest)
        await eventually(lambda: harness.node_of(cluster, "one"))
    recorder.close()
    (file,) = log_files(tmp_path)
    text = file.read_bytes()
    assert b'"default/one"' in text
    assert b"hunter2" not in text
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.slow("runs a whole scheduler")
async def test_full_files_are_followed_by_new_ones_and_the_oldest_go(
    cluster: DevCluster, tmp_path: Path
) -> None:
    recorder = make_recorder(tmp_path, compress=False, file_bytes=20_000, files=2)
    async with harness.scheduler(cluster, decision_log=recorder) as app:
        for batch in range(8):
            await decide(cluster, app, [f"pod-{batch}-{n}" for n in range(10)])
            await eventually(lambda: recorder.writer.waiting == 0)
        assert metric(app, "starsched_record_checkpoints_total") > 2
    recorder.close()
    files = log_files(tmp_path)
    assert len(files) == 2
    assert not (tmp_path / "decisions-000001.jsonl").exists()
    # Each file alone, and both in a row, can be decided again.
    both = outcomes(tmp_path)
    apart = [outcome for file in files for outcome in outcomes(file)]
    assert [o.number for o in both] == [o.number for o in apart]
    assert len(both) > 2
    assert all(o.is_same and not o.notes for o in [*both, *apart])


def test_a_file_that_is_full_is_followed_by_one_new_file(tmp_path: Path) -> None:
    """What was not yet written of a full file asked for another one, right behind the new one.

    Half of the files that are kept held a checkpoint and next to nothing else.
    """
    writer = LogWriter(LogSettings(tmp_path, file_bytes=1000, compress=False), "test")
    writer.wants_checkpoint = ""
    writer.put(0.0, "", Checkpoint("start", []))
    writer.put(0.0, "note", {"text": "x" * 2000})
    writer.put(0.0, "", Checkpoint("size", []))
    writer.start()
    writer.close()
    assert len(log_files(tmp_path)) == 2
    assert writer.wants_checkpoint == ""


def test_what_comes_without_a_pause_is_on_disk_soon(tmp_path: Path) -> None:
    """Only half a second without entries wrote them out.

    Of a scheduler that always had some, a sudden death took all that was not yet compressed: the
    file was empty after minutes.
    """
    writer = LogWriter(LogSettings(tmp_path), "test")
    writer.put(0.0, "", Checkpoint("start", [("checkpoint", {})]))
    writer.start()

    def is_on_disk() -> bool:
        writer.put(0.0, "note", {})
        files = log_files(tmp_path)
        return bool(files and files[0].stat().st_size)

    wait_until(is_on_disk, seconds=10)
    assert [line.event for line in read_log(tmp_path)][:3] == ["log", "checkpoint", "note"]
    writer.close()


@pytest.mark.slow("runs a whole scheduler")
async def test_a_checkpoint_larger_than_a_file_may_get_is_not_taken_for_each_decision(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """In a large cluster a small `--record-file-size` wrote everything down over and over."""
    recorder = make_recorder(tmp_path, compress=False, file_bytes=1, files=100)
    async with harness.scheduler(cluster, decision_log=recorder) as app:
        for number in range(12):
            await decide(cluster, app, [f"pod-{number}"])
            await eventually(lambda: recorder.writer.waiting == 0)
        assert metric(app, "starsched_record_checkpoints_total") < 6
    recorder.close()
    assert [o.is_same for o in outcomes(tmp_path)] == [True] * 12


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_checkpoint_waits_for_what_is_held_for_pods_on_their_way(
    tmp_path: Path, is_gone: bool
) -> None:
    """Nothing is held for a pod that is gone when its extender has answered."""
    recorder = make_recorder(tmp_path)
    recorder.policies("revision", {})
    kernel = Kernel(Cache(), {}, metrics=Metrics(CollectorRegistry()))
    recorder.deciding(kernel)
    reserves: tuple[Any, ...] = ((object(), object()),)
    pod = Pod.from_plain(make_pod("web"))
    decision = Decision("node", Diagnosis(1), "revision", reserves=reserves)
    made: list[Instruction] = [ReportDecision(pod, decision, (), 0.0, 0.0, (), ())]
    if not is_gone:
        made.append(PodAssumed(pod.uid, "node", {}))
    recorder.decided(made)
    recorder.writer.wants_checkpoint = "size"
    recorder.deciding(kernel)
    assert recorder.writer.wants_checkpoint == ("" if is_gone else "size")
    recorder.close()


@pytest.mark.slow("runs a whole scheduler")
async def test_a_log_that_cannot_keep_up_starts_again_and_says_so(
    cluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder(tmp_path)
    async with harness.scheduler(cluster, decision_log=recorder) as app:
        await decide(cluster, app, ["one"])
        monkeypatch.setattr(type(recorder.writer), "is_full", property(lambda self: True))
        await decide(cluster, app, ["two"])
        monkeypatch.undo()
        assert metric(app, "starsched_recorded_entries_total", outcome="dropped") > 0
        await eventually(lambda: recorder.writer.waiting == 0)
        await decide(cluster, app, ["three"])
    recorder.close()
    found = outcomes(tmp_path)
    assert [o.pod for o in found] == ["default/one", "default/three"]
    assert all(o.is_same and not o.notes for o in found)
    heads = [line for line in read_log(tmp_path) if line.event == "log"]
    # Each checkpoint that the full writer drops is followed by another one.
    assert heads[0].reason == "start"
    assert {head.reason for head in heads[1:]} == {"overrun"}
    assert heads[1].lost > 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_a_full_disk_costs_the_log_and_no_decision(
    cluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def open_full(path: object, *args: int) -> int:
        if "decisions-" in str(path):
            return real_open("/dev/full", os.O_WRONLY)
        return real_open(path, *args)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr("engine.recording.log_writer.os.open", open_full)
    recorder = make_recorder(tmp_path, compress=False)
    async with harness.scheduler(cluster, decision_log=recorder) as app:
        await decide(cluster, app, ["one", "two"])
        await eventually(lambda: metric(app, "starsched_record_failures_total") > 0)
        await decide(cluster, app, ["three"])
    recorder.close()


@pytest.mark.slow("runs a whole scheduler")
async def test_a_log_says_where_it_was_changed(cluster: DevCluster, tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path, compress=False)
    async with harness.scheduler(cluster, decision_log=recorder) as app:
        await decide(cluster, app, [f"pod-{n}" for n in range(5)])
    recorder.close()
    (file,) = log_files(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    whole = outcomes(file)
    # A node that was there then is not in the log any more.
    at = next(i for i, line in enumerate(lines) if b'"e":"node"' in line)
    name = msgspec.json.decode(lines[at])["object"]["metadata"]["name"]
    file.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    changed = outcomes(file)
    assert all("not the recorded one" in " ".join(o.notes) for o in changed)
    assert any(o.recorded["node"] == name for o in whole)
    result = CliRunner().invoke(main, ["replay", str(file)])
    assert result.exit_code == 1
    assert "first difference: entry " in result.output
    assert "the state is not the recorded one" in result.output
    # A log that ends in the middle of a line ends before it.
    file.write_bytes(b"".join(lines)[:-7])
    assert all(o.is_same for o in outcomes(file))


@pytest.mark.slow("runs a whole scheduler")
async def test_a_garbled_entry_is_reported_with_its_place(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Some ended in a traceback, others named no line, or the words of an exception alone."""
    recorder = make_recorder(tmp_path, compress=False)
    async with harness.scheduler(cluster, decision_log=recorder) as app:
        await decide(cluster, app, ["one", "two"])
        # The watch tells where they are.
        await eventually(lambda: app.cache.assumed_count == 0)
    recorder.close()
    (file,) = log_files(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)

    def reported(command: str, event: str, old: bytes, new: bytes) -> str:
        at = next(i for i, line in enumerate(lines) if b'"e":"%s"' % event.encode() in line)
        garbled = re.sub(old, lambda _: new, lines[at], count=1)
        assert garbled != lines[at]
        file.write_bytes(b"".join([*lines[:at], garbled, *lines[at + 1 :]]))
        arguments = ["builtin", "builtin", f"--on={file}"] if command == "diff" else [str(file)]
        result = CliRunner().invoke(main, [command, *arguments])
        assert result.exit_code == 2, result.output
        place = f"Error: {file}:{at + 1}: entry {at + 1} (`{event}`): "
        error = result.output.splitlines()[-1]
        assert error.startswith(place)
        return error.removeprefix(place)

    for command in ("replay", "diff", "simulate"):
        assert "UTF-8" in reported(command, "pending", b"default", b"def\xffult")
        assert "Expected `object`" in reported(command, "pending", b'"spec":{', b'"spec":1,"x":{')
    for command in ("replay", "diff"):
        assert "Expected `object`" in reported(
            command, "decision", b'"verdict":{', b'"verdict":1,"x":{'
        )
        assert "names no node" in reported(command, "pod", b'"nodeName":"[^"]*"', b'"nodeName":""')
        assert "no pending pod" in reported(command, "assume", b'"uid":"[^"]*"', b'"uid":"x"')
        assert "want one of the kinds" in reported(command, "object", b'"kind":"', b'"kind":"un')


async def test_other_policies_are_compared_on_the_recorded_states(
    cluster: DevCluster, tmp_path: Path
) -> None:
    log, policies = tmp_path / "log", tmp_path / "policies"
    recorder = make_recorder(log)
    async with harness.scheduler(cluster, decision_log=recorder) as app:
        await decide(cluster, app, [f"pod-{n}" for n in range(10)])
    recorder.close()
    policies.mkdir()
    (policies / "mine.star").write_text(PREFERS)
    (policies / "config.yaml").write_text(CONFIG)
    arguments = ["replay", str(log), "--policies", str(policies), "--output", "json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    answer = msgspec.json.decode(result.stdout)
    assert answer["decisions"] == 10
    assert 0 < len(answer["differences"]) < 10
    for difference in answer["differences"]:
        assert difference["recorded"]["node"] == "node-2"
        assert difference["replayed"]["node"] == "node-1"
        assert difference["notes"] == []


def test_every_kind_that_decisions_read_can_be_read_from_a_log() -> None:
    assert {resource.plural: record for resource, record in OTHER_OBJECTS} == RECORDS
