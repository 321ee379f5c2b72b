"""A simulation honours the turns and quotas of a tree, and measures what its queues had."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.files.cluster_file import Cluster
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.engine.core.kernel.queue_world import FAIR, tree_files
from tests.engine.core.kernel.test_reclaims import LENT, SHARED
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.profiles import default_bundle, default_evaluator
from workbench.simulation.shares_over_time import (
    QueueStep,
    curves,
    deserved,
    most_wanted,
    queue_report,
)
from workbench.simulation.simulation import Simulation
from workbench.simulation.simulation_report import Recorder, Report, report
from workbench.simulation.workload import Arrival, Workload, WorkloadError, read_workload

GPU = "nvidia.com/gpu"


def _node(cpu: int) -> dict[str, Any]:
    room = {"cpu": str(cpu), "memory": "64Gi", "pods": "200"}
    return {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}}


def _arrivals(
    cluster: Cluster, queue: str, count: int, at: float, seconds: float | None, cpu: int = 1
) -> list[Arrival]:
    found = []
    for number in range(count):
        name = f"{queue.replace('/', '-')}-{at:g}-{number}"
        requests = {"cpu": str(cpu)}
        manifest = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "a",
                "labels": {"queue": queue.replace("/", ".")},
                "ownerReferences": [{"kind": "Job", "name": name, "controller": True}],
            },
            "spec": {"containers": [{"name": "c", "image": "i",
                                     "resources": {"requests": requests}}]},
        }  # fmt: skip
        found.append(Arrival(at, cluster.pod_of(manifest), runs=seconds))
    return found


def _ran(
    policy: str,
    arrivals: list[tuple[str, int, float, float | None]],
    cpu: int = 4,
    others: list[dict[str, Any]] | None = None,
    **tree: Any,
) -> tuple[Simulation, Report]:
    cluster = Cluster(nodes=[_node(cpu)])
    for manifest in others or []:
        cluster.add(manifest)
    planned = [one for given in arrivals for one in _arrivals(cluster, *given)]
    bundle = build_bundle(tree_files(policy, **tree))
    evaluator, recorder = InProcessEvaluator(bundle.program), Recorder()
    simulation = Simulation(bundle, evaluator, Workload(cluster, planned), on_moment=recorder)
    simulation.run()
    found = report(simulation, recorder.steps)
    evaluator.close()
    return simulation, found


def _placed_at(simulation: Simulation, queue: str) -> list[float | None]:
    return sorted(
        (life.placed_at for life in simulation.lives.values() if life.queue == queue),
        key=lambda at: (at is None, at),
    )


def test_queues_take_turns_in_virtual_time() -> None:
    simulation, found = _ran(
        DRF, [("a", 4, 0.0, 100.0), ("b", 4, 0.0, 100.0)], queues={"a": {"weight": 3}, "b": {}}
    )
    assert _placed_at(simulation, "a") == [0.0, 0.0, 0.0, 100.0]
    assert _placed_at(simulation, "b") == [0.0, 100.0, 100.0, 100.0]
    assert found.queues is not None
    assert (found.queues.policy, found.queues.resource, found.queues.level) == ("fair", "cpu", 1)


def test_a_quota_holds_until_there_is_room_in_it() -> None:
    simulation, found = _ran(
        DRF,
        [("a", 3, 0.0, 50.0), ("b", 1, 10.0, None)],
        queues={"a": {"limit": {"cpu": 1}}, "b": {}},
    )
    assert _placed_at(simulation, "a") == [0.0, 50.0, 100.0], "one after the other"
    assert _placed_at(simulation, "b") == [10.0]
    assert (found.completed, found.placed) == (3, 1)


def test_what_waits_in_the_end_says_what_it_is_held_for_even_behind_another() -> None:
    _, found = _ran(DRF, [("a", 3, 0.0, None)], queues={"a": {"limit": {"cpu": 1}}})
    (reason,) = found.reasons
    assert (reason.pods, reason.reason) == (
        2,
        "queue `a`: is at its limit (short of 1 cpu at `a`)",
    )


def test_a_share_that_grows_lets_pods_start_without_another_event() -> None:
    """Shares are computed a tenth of a second later; nothing else happens then."""
    by_share = DRF.replace("q.limit)", "q.share)").replace("for q in path:", "for q in path[:1]:")
    simulation, _ = _ran(
        by_share,
        [("a", 4, 0.0, None), ("b", 4, 5.0, None)],
        queues={"a": {}, "b": {}},
        shares={"refresh": "100ms"},
        cpu=8,
    )
    assert _placed_at(simulation, "a") == [0.1] * 4 or _placed_at(simulation, "a") == [0.0] * 4
    assert all(at is not None and at <= 5.2 for at in _placed_at(simulation, "b"))


def test_more_start_than_retries_that_find_nothing() -> None:
    """Of a quota of another form, a few are asked about each second: all that there is room for."""
    hidden = DRF.replace("at = q.path, short = short)", 'at = "", short = short)')
    simulation, _ = _ran(
        hidden,
        [("a", 40, 0.0, 10.0), ("a", 40, 5.0, None)],
        cpu=40,
        queues={"a": {"limit": {"cpu": 40}}},
    )
    later = [at for at in _placed_at(simulation, "a") if at is not None and at > 0]
    assert len(later) == 40


def test_queues_come_from_objects_among_the_manifests() -> None:
    queue = {
        "apiVersion": "example.com/v1",
        "kind": "Queue",
        "metadata": {"name": "a"},
        "spec": {"has": {"limit": {"cpu": 1000}}},
    }
    source = [{"apiVersion": "example.com/v1", "kind": "Queue"}]
    simulation, found = _ran(DRF, [("a", 2, 0.0, None)], others=[queue], objects=source)
    assert _placed_at(simulation, "a") == [0.0, None]
    assert found.queues is not None
    assert [one.queue for one in found.queues.queues] == ["a"]


def test_without_a_tree_nothing_is_said_of_queues() -> None:
    cluster = Cluster(nodes=[_node(4)])
    bundle = build_bundle({"config.yaml": tree_files(FAIR)["config.yaml"]})
    evaluator, recorder = InProcessEvaluator(bundle.program), Recorder()
    planned = Workload(cluster, _arrivals(cluster, "a", 2, 0.0, None))
    simulation = Simulation(bundle, evaluator, planned, on_moment=recorder)
    simulation.run()
    assert report(simulation, recorder.steps).queues is None
    assert all(step.queues == {} for step in recorder.steps)


def test_queues_give_back_once_their_pods_have_run_long_enough() -> None:
    """Also if nothing else happens until then."""
    for policy, queues in (
        (SHARED, {"a": {}, "b": {}}),
        (LENT, {"top": {"quota": {"cpu": 4}}, "top/a": {"quota": {"cpu": 2}},
                "top/b": {"quota": {"cpu": 2}}}),
    ):  # fmt: skip
        a, b = (name for name in queues if name.endswith(("a", "b")))
        simulation, found = _ran(
            policy.replace('.get("queue")', '.get("queue", "").replace(".", "/")'),
            [(a, 4, 0.0, None), (b, 2, 10.0, None)],
            queues=queues,
            limits={"minRuntime": "300s"},
        )
        assert found.evictions == 2
        taken = _placed_at(simulation, b)
        assert all(at is not None and 300 <= at <= 330 for at in taken), taken
        assert len([one for one in _placed_at(simulation, a) if one is not None]) == 2
        assert found.queues is not None
        assert sum(one.evictions for one in found.queues.queues) == 2


# --- the measures ---------------------------------------------------------------------------


def _moment(total: int, **queues: tuple[int, int]) -> dict[str, QueueStep]:
    root = QueueStep({GPU: sum(a for a, _ in queues.values())}, {}, {GPU: total})
    found = {"": root}
    for path, (allocated, requested) in queues.items():
        found[path.replace("_", "/")] = QueueStep({GPU: allocated}, {GPU: requested}, None)
    return found


def test_what_is_deserved_goes_by_weight_to_those_that_want_it_at_each_level() -> None:
    moment = _moment(16, a=(0, 30), a_x=(0, 2), a_y=(0, 28), b=(0, 4))
    weights = {"a": 3, "b": 1}
    assert deserved(moment, GPU, weights) == {"": 16, "a": 12, "b": 4, "a/x": 2, "a/y": 10}
    assert deserved(_moment(16, a=(0, 30), b=(0, 2)), GPU, weights) == {"": 16, "a": 14, "b": 2}


def test_the_error_is_how_far_queues_were_from_that_over_time() -> None:
    moments = [
        _moment(8, a=(8, 8), b=(0, 8)),
        _moment(8, a=(4, 8), b=(4, 8)),
        _moment(8, a=(4, 8), b=(4, 8)),
    ]
    found = curves([0.0, 10.0, 40.0], moments, resource=GPU, level=1, weights={})
    assert found.capacity == 8
    assert found.used == {"a": [8, 4, 4], "b": [0, 4, 4]}
    assert found.deserved == {"a": [4, 4, 4], "b": [4, 4, 4]}
    made = queue_report(found, [], policy="p", resource=GPU, level=1, queues=3)
    # A quarter of the time each was half of all there is away.
    assert made.error == pytest.approx(2 * 0.5 / 4)
    a, b = made.queues
    assert (a.mean, a.deserved, a.starved_seconds) == (5.0, 4.0, 0)
    assert (b.mean, b.starved_seconds, made.left_out) == (3.0, 10, 1)


def test_the_resource_is_the_one_that_most_is_in_use_of() -> None:
    root = QueueStep({"cpu": 100, GPU: 4}, {}, {"cpu": 1000, GPU: 8})
    assert most_wanted([{"": root}]) == GPU
    assert most_wanted([{}]) == ""


# --- how long pods run ----------------------------------------------------------------------


def test_a_pod_that_runs_ends_so_long_after_it_got_a_node() -> None:
    """Also one that got its node by a retry, before the next event."""
    simulation, found = _ran(DRF, [("a", 4, 0.0, 30.0)], queues={"a": {"limit": {"cpu": 2}}}, cpu=4)
    ends = sorted(life.gone_at or 0.0 for life in simulation.lives.values())
    assert ends == [30.0, 30.0, 60.0, 60.0]
    assert found.seconds == pytest.approx(60.0, abs=0.01)
    assert found.completed == 4


def test_events_say_how_long_pods_run(tmp_path: Path) -> None:
    events = tmp_path / "day.jsonl"
    node = _node(1)
    manifest = {
        "kind": "Pod",
        "metadata": {"generateName": "p-", "namespace": "a"},
        "spec": {"containers": [{"name": "c", "image": "i",
                                 "resources": {"requests": {"cpu": "1"}}}]},
    }  # fmt: skip
    lines = [
        {"at": 0, "add": node},
        {"at": 0, "add": manifest, "runs": 5},
        {"at": 1, "add": manifest, "runs": 5},
    ]
    events.write_text("\n".join(json.dumps(line) for line in lines))
    planned = read_workload(events)
    assert [(a.at, a.until, a.runs) for a in planned.arrivals] == [(0, None, 5.0), (1, None, 5.0)]
    evaluator = default_evaluator()
    simulation = Simulation(default_bundle(), evaluator, planned)
    simulation.run()
    assert [life.gone_at for life in simulation.lives.values()] == [5.0, 10.0]
    for wrong in ("soon", -1, True):
        events.write_text(json.dumps({"at": 0, "add": manifest, "runs": wrong}))
        with pytest.raises(WorkloadError, match="want `runs` to be seconds"):
            read_workload(events)


def test_of_a_large_tree_the_queues_near_the_root_are_followed() -> None:
    queues: dict[str, Any] = {f"q{n:03}/x": {} for n in range(150)} | {"q000/x/y": {}}
    policy = DRF.replace('.get("queue")', '.get("queue", "").replace(".", "/")')
    _, found = _ran(policy, [("q000/x/y", 1, 0.0, None)], queues=queues)
    assert found.queues is not None
    assert (len(found.queues.queues), found.queues.left_out) == (150, 0)
    queues |= {f"z{n:03}": {} for n in range(100)}
    _, found = _ran(policy, [("z099", 1, 0.0, None)], queues=queues)
    assert found.queues is not None
    assert (len(found.queues.queues), found.queues.left_out) == (199, 51), "the root is one"
