"""A simulation is the engine in virtual time: same input, same run, and nothing is overfull."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.files.cluster_file import Cluster
from engine.files.world import ManifestError, node_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    claiming_pod,
    device_class,
    resource_slice,
)
from tests.profiles import default_bundle, default_evaluator
from tests.searching import examples
from workbench.simulation.simulation import Simulation
from workbench.simulation.simulation_report import Recorder, Report, jain, report
from workbench.simulation.workload import (
    Arrival,
    NodeChange,
    Workload,
    WorkloadError,
    read_workload,
)

GROUPED = {
    "config.yaml": """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {enabled: [{name: GangScheduling}]}
  pluginConfig:
  - name: GangScheduling
    args: {groupLabel: group, minCountLabel: least}
""",
}


def node(name: str, cpu: int = 4) -> dict[str, Any]:
    room = {"cpu": f"{cpu}", "memory": "8Gi", "pods": "10"}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {"kind": "Node", "metadata": meta, "status": {"allocatable": room}}


def pod(name: str, cpu: str = "1", owned: bool = False, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    meta: dict[str, Any] = {"name": name, "namespace": "a"}
    if owned:
        meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": "rs", "controller": True}]
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def workload(
    nodes: list[dict[str, Any]],
    *arrivals: tuple[float, dict[str, Any], float | None],
    pods: list[dict[str, Any]] | None = None,
) -> Workload:
    cluster = Cluster(nodes=nodes, pods=pods or [])
    return Workload(cluster, [Arrival(at, cluster.pod_of(p), until) for at, p, until in arrivals])


def run(
    planned: Workload, files: Mapping[str, str] | None = None
) -> tuple[Simulation, Recorder, Report]:
    recorder = Recorder()
    bundle = default_bundle() if files is None else build_bundle(files)
    evaluator = default_evaluator() if files is None else InProcessEvaluator(bundle.program)
    simulation = Simulation(bundle, evaluator, planned, on_moment=recorder)
    simulation.run()
    return simulation, recorder, report(simulation, recorder.steps)


_arrivals = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.sampled_from(["500m", "1", "2500m", "3", "9"]),
        st.one_of(st.none(), st.integers(1, 15)),
        st.sampled_from([0, 0, 10]),
        st.booleans(),
    ),
    max_size=14,
)


@settings(max_examples=examples(30), deadline=None)
@given(arrivals=_arrivals, nodes=st.integers(0, 3))
def test_no_node_is_overfull_and_no_pod_is_lost(arrivals: list[Any], nodes: int) -> None:
    planned = workload(
        [node(f"n{i}") for i in range(nodes)],
        *(
            (float(at), pod(f"p{i}", cpu, owned, priority=priority), stay and float(at + stay))
            for i, (at, cpu, stay, priority, owned) in enumerate(arrivals)
        ),
    )
    simulation, recorder, result = run(planned)
    again, _, same = run(planned)
    simulation.cache.check_invariants()
    simulation.kernel.queue.check_invariants()
    # 1. Nothing is overfull, at no moment.
    for step in recorder.steps:
        for name, amount in step.requested.items():
            assert amount <= step.allocatable.get(name, 0)
    for info in simulation.cache.snapshot().infos:
        assert info is not None
        assert info.node is not None
        assert info.requested.get("cpu", 0) <= info.node.allocatable["cpu"]
    # 2. Every pod is in exactly one place, and the sums say so.
    ends = result.placed + result.completed + result.given_up + result.evicted + result.pending
    assert result.arrived == len(arrivals) == ends
    assert result.placed == len(simulation.placed)
    assert simulation.pending_count == result.pending
    if recorder.steps:
        last = recorder.steps[-1]
        counted = sum(p.requests["cpu"] for p in simulation.placed.values())
        assert last.requested.get("cpu", 0) == counted
    # 3. Whoever still waits would fit nowhere.
    for life in simulation.lives.values():
        if life.is_pending:
            decided = simulation._scheduler.schedule(life.wants, simulation.cache.snapshot())
            assert decided.node is None
    # 4. The same workload gives the same run.
    assert same == result
    assert {k: v.node for k, v in again.lives.items()} == {
        k: v.node for k, v in simulation.lives.items()
    }


def test_a_pod_that_waits_gets_the_capacity_that_becomes_free() -> None:
    planned = workload([node("n")], (0.0, pod("first", "3"), 100.0), (10.0, pod("next", "3"), None))
    simulation, recorder, result = run(planned)
    assert simulation.lives["a/next"].placed_at == 100.0
    assert result.waits == (0.0, 90.0)
    assert [step.at for step in recorder.steps] == [0.0, 10.0, 100.0]
    assert [step.pending for step in recorder.steps] == [0, 1, 0]
    assert (result.completed, result.placed, result.pending) == (1, 1, 0)
    assert result.resources["cpu"].mean == pytest.approx(0.75)


def test_the_end_of_a_pod_is_not_that_of_another_one_of_its_name() -> None:
    """What was given a time took the next pod of its name with it when that was over."""
    planned = workload([node("n")], (0.0, pod("a"), 10.0), (5.0, pod("a", "2"), None))
    simulation, recorder, got = run(planned)
    assert (got.placed, got.completed) == (1, 1)
    assert simulation.lives["a/a"].is_placed
    assert [step.requested["cpu"] for step in recorder.steps][-1] == 2000


def test_a_pod_that_is_there_for_no_time_goes() -> None:
    """It went before it came, and stayed for ever."""
    _, _, got = run(workload([node("n")], (5.0, pod("a"), 5.0)))
    assert (got.placed, got.pending) == (0, 0)


def test_a_pod_takes_the_name_of_one_that_was_there_at_the_start() -> None:
    """Both held room."""
    there = pod("a", "3", nodeName="n")
    planned = workload([node("n")], (5.0, pod("a", "2"), None), pods=[there])
    _, recorder, got = run(planned)
    assert (got.placed, got.pending) == (1, 0)
    assert [step.requested["cpu"] for step in recorder.steps][-1] == 2000


def test_without_retries_a_pod_has_one_chance() -> None:
    planned = workload([node("n")], (0.0, pod("first", "3"), 9.0), (1.0, pod("next", "3"), None))
    simulation = Simulation(default_bundle(), default_evaluator(), planned, retries=False)
    simulation.run()
    assert (simulation.lives["a/next"].is_pending, simulation.decisions) == (True, 2)


def test_an_urgent_pod_evicts_and_the_victim_of_a_controller_comes_again() -> None:
    planned = workload(
        [node("n")],
        (0.0, pod("weak", "3", owned=True), None),
        (5.0, pod("urgent", "3", priority=10), 50.0),
    )
    simulation, _, result = run(planned)
    weak = simulation.lives["a/weak"]
    assert (result.evictions, weak.evictions) == (1, 1)
    assert (simulation.lives["a/urgent"].gone_at, weak.node, weak.placed_at) == (50.0, "n", 50.0)


def test_pods_that_ended_once_take_capacity_when_they_come_again(tmp_path: Path) -> None:
    """Those of last week's Jobs, as kubectl shows them, were placed and took no room."""
    ended = [{**pod(f"p{i}", "3"), "status": {"phase": "Succeeded"}} for i in range(3)]
    ended[2]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    lines = ({"at": 1, "add": one, "for": 10} for one in ended)
    simulation, _, result = run(events(tmp_path, {"add": node("n")}, *lines))
    assert (result.completed, result.given_up) == (1, 2)
    assert "1 Insufficient cpu" in simulation.lives["a/p2"].reason


def test_the_time_on_a_node_is_no_wait_for_the_next_one(tmp_path: Path) -> None:
    """A pod that ran for an hour and lost its node had waited for an hour."""
    simulation, _, result = run(
        events(
            tmp_path,
            {"add": node("n1")},
            {"at": 1, "add": pod("p", owned=True)},
            {"at": 3600, "delete": "node/n1"},
            {"at": 3605, "add": node("n2")},
        )
    )
    assert simulation.lives["a/p"].node == "n2"
    assert 5.0 <= result.waits[0] <= 10.0  # until the end of its backoff


def test_a_victim_without_a_controller_is_gone() -> None:
    weak = pod("weak", "3", nodeName="n")
    planned = workload([node("n")], (5.0, pod("urgent", "3", priority=10), None), pods=[weak])
    simulation, _, result = run(planned)
    assert (result.evictions, result.arrived, result.placed) == (1, 1, 1)
    assert list(simulation.placed) == ["a/urgent"]


def test_a_pod_that_is_deleted_the_moment_it_comes_goes(tmp_path: Path) -> None:
    """Room becomes free before pods come, so it was not there yet, and stayed for ever."""
    simulation, _, result = run(
        events(
            tmp_path,
            {"add": node("n")},
            {"at": 5, "add": pod("p")},
            {"at": 5, "delete": "pod/a/p"},
            {"at": 5, "add": pod("q")},
            {"at": 9, "delete": "pod/a/q"},
            {"at": 9, "add": pod("q")},
        )
    )
    assert (result.completed, result.given_up, list(simulation.placed)) == (1, 1, ["a/q"])
    path = tmp_path / "pending.json"
    path.write_text(json.dumps({"kind": "List", "items": [node("m"), pod("r")]}))
    (tmp_path / "x.jsonl").write_text('{"at": 0, "delete": "pod/a/r"}')
    assert run(read_workload(path, tmp_path / "x.jsonl"))[2].placed == 0


def test_a_volume_stays_its_claim_s_when_the_pod_has_gone(tmp_path: Path) -> None:
    """Another claim got it, and an evicted pod came again on a node without its volume."""

    def volume(name: str, on: str) -> dict[str, Any]:
        is_there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
        reach = {"required": {"nodeSelectorTerms": [{"matchExpressions": [is_there]}]}}
        spec = {"storageClassName": "local", "nodeAffinity": reach, "capacity": {"storage": "1Gi"}}
        spec |= {"accessModes": ["ReadWriteOnce"], "local": {"path": "/data"}}
        free = {"phase": "Available"}
        return {
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": spec,
            "status": free,
        }

    def claim(name: str) -> dict[str, Any]:
        spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
        room = {"resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": name, "namespace": "a"}
        return {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**spec, **room}}

    def using(name: str, cpu: str, claim: str, **more: Any) -> dict[str, Any]:
        source = {"persistentVolumeClaim": {"claimName": claim}}
        return pod(name, cpu, volumes=[{"name": "v", **source}], **more)

    local = {
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    there = [node("n1"), local, volume("v1", "n1"), claim("c1"), claim("c2")]
    (tmp_path / "there.json").write_text(json.dumps({"kind": "List", "items": there}))

    def simulated(*lines: dict[str, Any]) -> Simulation:
        events(tmp_path, {"add": node("n9")}, *lines)
        return run(read_workload(tmp_path / "there.json", tmp_path / "events.jsonl"))[0]

    first, second = using("p1", "1", "c1"), using("p2", "1", "c2")
    simulation = simulated(
        {"add": first},
        {"at": 1, "add": second},
        {"at": 5, "delete": "pod/a/p1"},
        {"at": 6, "add": using("p3", "1", "c1")},
    )
    assert simulation.lives["a/p2"].is_pending
    assert simulation.lives["a/p3"].node == "n1"
    urgent = pod("urgent", "3", priority=10, nodeSelector={"kubernetes.io/hostname": "n1"})
    simulation = simulated(
        {"add": using("p1", "3", "c1", owned=True)},
        {"at": 1, "add": {"kind": "Node", **node("n2")}},
        {"at": 2, "add": urgent},
    )
    evicted = simulation.lives["a/p1"]
    assert (evicted.evictions, evicted.is_pending) == (1, True)


def test_pods_that_lose_their_node_for_good_did_not_go_without_one(tmp_path: Path) -> None:
    """They were counted among those that never got a node, and there was no count of them."""
    _, _, result = run(
        events(
            tmp_path,
            {"add": node("n")},
            {"at": 1, "add": pod("bare")},
            {"at": 1, "add": pod("owned", owned=True)},
            {"at": 1, "add": pod("too-large", "9"), "for": 1},
            {"at": 5, "delete": "node/n"},
        )
    )
    assert (result.evicted, result.given_up, result.pending) == (1, 1, 1)
    assert (result.arrived, result.evictions) == (3, 2)


def events(path: Path, *lines: dict[str, Any]) -> Workload:
    file = path / "events.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_workload(file)


def written(path: Path, *manifests: dict[str, Any]) -> Workload:
    path.write_text(json.dumps({"kind": "List", "items": manifests}))
    return read_workload(path)


def test_a_pod_keeps_the_capacity_that_it_is_nominated_for(tmp_path: Path) -> None:
    """Promises of pending pods were read and dropped, so the first of the file took the room."""
    nominated = pod("promised", "4") | {"status": {"nominatedNodeName": "n1"}}
    planned = written(tmp_path / "c.json", node("n1"), pod("first", "1"), nominated)
    simulation, _, _ = run(planned)
    assert simulation.lives["a/promised"].node == "n1"
    assert "1 Insufficient cpu" in simulation.lives["a/first"].reason


def test_victims_of_a_nomination_go_at_the_start(tmp_path: Path) -> None:
    """Nobody is evicted for a pod that waits for victims, which held their room for ever."""
    nominated = pod("promised", "4", priority=10) | {"status": {"nominatedNodeName": "n1"}}
    victim = pod("victim", "4", nodeName="n1", priority=0)
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    simulation, _, result = run(written(tmp_path / "c.json", node("n1"), victim, nominated))
    assert (simulation.lives["a/promised"].node, result.evictions) == ("n1", 0)


def test_the_nomination_of_an_evicted_pod_does_not_pass_to_its_replacement(
    tmp_path: Path,
) -> None:
    old = pod("old", "4", owned=True, nodeName="n1", priority=0)
    old["status"] = {"nominatedNodeName": "n1"}
    planned = written(tmp_path / "c.json", node("n1"), old, pod("urgent", "4", priority=10))
    simulation, _, _ = run(planned)
    again = simulation.lives["a/old"]
    assert (again.evictions, again.wants.nominated_node_name) == (1, "")


def test_nodes_come_and_go(tmp_path: Path) -> None:
    events = [
        {"at": 0, "add": node("tiny", 0)},
        {"at": 0, "add": pod("p")},
        {"at": 10, "add": node("late")},
        {"at": 20, "delete": "node/late"},
        {"at": 30, "add": pod("q"), "for": 5},
        {"at": 31, "add": node("last")},
        {"at": 40, "delete": "pod/a/p"},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(json.dumps(event) for event in events))
    simulation, recorder, _ = run(read_workload(path))
    at = {step.at: (step.placed, step.pending) for step in recorder.steps}
    assert at[0.0] == (0, 1)
    assert at[10.0] == (1, 0)
    assert at[20.0] == (0, 0)  # it had no controller
    assert at[31.0] == (1, 0)
    assert simulation.lives["a/q"].waited == 1.0


def members(count: int, cpu: str = "2") -> list[dict[str, Any]]:
    """Pods of a group of which three belong together."""
    found = [pod(f"m{i}", cpu) for i in range(count)]
    for one in found:
        one["metadata"]["labels"] = {"group": "g", "least": "3"}
    return found


def test_half_of_a_group_holds_nothing() -> None:
    small = pod("small", "3")
    come = [(0.0, one, None) for one in members(3)]
    simulation, _, result = run(workload([node("n")], *come, (0.0, small, None)), GROUPED)
    assert [one.key for one in simulation.placed.values()] == ["a/small"]
    assert {r.reason.split(": ")[1][:13]: r.pods for r in result.reasons} == {
        "2 scheduled, ": 2,
        "1 Insufficien": 1,
    }


def test_a_group_is_placed_when_there_is_capacity_for_all_of_it() -> None:
    come = [(float(i), one, None) for i, one in enumerate(members(3))]
    planned = workload([node("n"), node("full")], (0.0, pod("first", "4"), 30.0), *come)
    simulation, _, result = run(planned, GROUPED)
    assert [simulation.lives[f"a/m{i}"].placed_at for i in range(3)] == [30.0] * 3
    assert (result.placed, result.completed) == (3, 1)


def test_a_group_that_is_not_complete_says_so_and_is_not_tried() -> None:
    come = [(0.0, one, None) for one in members(2)]
    _, _, result = run(workload([node("n"), node("o")], *come), GROUPED)
    (reason,) = result.reasons
    assert reason.reason == "waiting for minCount pods from a gang to appear in scheduling queue"
    assert (reason.pods, result.decisions) == (2, 0)


def test_a_pod_group_says_how_many_belong_together() -> None:
    group = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    cluster = Cluster(
        nodes=[node("n")],
        objects=[{"kind": "PodGroup", "metadata": {"name": "g", "namespace": "a"}, "spec": group}],
    )
    named = {"podGroupName": "g"}
    one, two, third = (cluster.pod_of(pod(f"m{i}", "2", schedulingGroup=named)) for i in range(3))
    alone = Workload(cluster, [Arrival(0.0, one)])
    assert run(alone, GROUPED)[2].placed == 0
    both = Workload(cluster, [Arrival(0.0, one), Arrival(5.0, two), Arrival(9.0, third)])
    assert sorted(run(both, GROUPED)[0].placed) == ["a/m0", "a/m1"]


def test_a_pod_of_another_scheduler_is_counted_and_not_tried() -> None:
    planned = workload([node("n")], (0.0, pod("p", schedulerName="other"), None))
    _, _, result = run(planned)
    assert (result.pending, result.decisions) == (1, 0)
    assert "no profile is called `other`" in result.reasons[0].reason
    assert run(planned.decided_as("default-scheduler"))[2].placed == 1


def test_a_pod_of_another_scheduler_that_comes_again_is_decided_as_all_others() -> None:
    """It was "not tried", also where every pod was to be decided as one profile."""
    there = pod("p", owned=True, nodeName="n1", schedulerName="other")
    planned = workload([node("n1"), node("n2")], pods=[there])
    planned.changes.append(NodeChange(5.0, "n1", None))
    (reason,) = run(planned)[2].reasons
    assert (reason.pods, reason.reason) == (1, "no profile is called `other`")
    assert run(planned.decided_as("default-scheduler"))[2].placed == 1


def test_a_policy_that_always_fails_does_not_keep_a_run_going() -> None:
    files = {"x.star": "def filter(pod, node):\n    return 1 // 0\n"}
    _, _, result = run(workload([node("n")], (0.0, pod("p"), 10**6)), files)
    assert (result.given_up, result.placed) == (1, 0)
    assert result.decisions <= 6


def of_node(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "x", "controller": True}]
    return made


def test_pods_of_one_node_go_with_it() -> None:
    """A static pod was put on another node, and one of a DaemonSet waited for its node for ever."""
    there = [of_node("Node", "etcd", nodeName="n1"), of_node("DaemonSet", "logs", nodeName="n1")]
    there.append(of_node("ReplicaSet", "web", nodeName="n1"))
    coming = of_node("DaemonSet", "late", nodeSelector={"kubernetes.io/hostname": "n1"})
    planned = workload([node("n1"), node("n2")], (1.0, coming, None), pods=there)
    planned.changes.append(NodeChange(5.0, "n1", None))
    simulation, _, result = run(planned)
    assert [one.key for one in simulation.placed.values()] == ["a/web"]
    assert (result.placed, result.completed, result.pending) == (1, 1, 0)
    assert (result.evictions, result.evicted) == (1, 0)


def test_a_static_pod_that_is_evicted_comes_nowhere_else() -> None:
    static = of_node("Node", "etcd", cpu="4", nodeName="n1", priority=0)
    urgent = pod("urgent", "4", priority=9, nodeSelector={"kubernetes.io/hostname": "n1"})
    simulation, _, result = run(
        workload([node("n1"), node("n2")], (0, urgent, None), pods=[static])
    )
    assert simulation.lost_at_start == ["a/etcd"]
    assert (result.placed, result.evictions, result.pending) == (1, 1, 0)


def test_the_time_before_anything_happens_counts() -> None:
    """What was there at the start had no part in the average, nor in the peak."""
    there = [pod("p", "2", nodeName="n")]
    planned = workload([node("n")], pods=there)
    planned.departures.append((8.0, "a/p"))
    planned.arrivals.append(Arrival(10.0, planned.cluster.pod_of(pod("q", "1"))))
    cpu = run(planned)[2].resources["cpu"]
    assert (cpu.mean, cpu.peak, cpu.final) == (0.4, 0.5, 0.25)


def test_more_nodes_are_like_the_most_common_one() -> None:
    planned = workload([node("a"), node("b"), node("big", 64)], (0.0, pod("p", "3"), None))
    grown = planned.with_nodes(2).cluster.nodes
    assert [n["metadata"]["name"] for n in grown[3:]] == ["extra-1", "extra-2"]
    assert [n["status"]["allocatable"]["cpu"] for n in grown[3:]] == ["4", "4"]
    assert grown[3]["metadata"]["labels"] == {"kubernetes.io/hostname": "extra-1"}
    with pytest.raises(WorkloadError, match="no node"):
        Workload().with_nodes(1)


def test_more_nodes_are_like_those_that_come_where_there_are_no_others() -> None:
    """There was said to be no node."""
    planned = workload([], (0.0, pod("p", "3"), None), (0.0, pod("q", "3"), None))
    for name, cpu in (("a", 4), ("b", 64), ("c", 4)):
        planned.changes.append(NodeChange(5.0, name, node_of(node(name, cpu))))
    planned.changes.append(NodeChange(6.0, "b", node_of(node("b", 65))))
    planned.changes.append(NodeChange(7.0, "b", node_of(node("b", 65))))
    grown = planned.with_nodes(2).cluster.nodes
    assert [n["status"]["allocatable"]["cpu"] for n in grown] == ["4", "4"]
    assert run(planned.with_nodes(2))[2].waits == (0.0, 0.0)


def test_more_nodes_have_all_that_filters_look_at() -> None:
    """They declared no feature and had no condition: pods that need one fitted on none of them."""
    model = node("n")
    model["status"] |= {
        "capacity": {"cpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "declaredFeatures": ["UserNamespacesHostNetworkSupport"],
    }
    model["status"]["images"] = [{"names": ["i"], "sizeBytes": 1}]
    pods = [(0.0, pod(name, "3", hostNetwork=True, hostUsers=False), None) for name in "pq"]
    planned = workload([model], *pods).with_nodes(1)
    made = node_of(planned.cluster.nodes[1])
    assert (made.capacity["cpu"], made.conditions, made.images) == (8000, {"Ready": "True"}, {})
    assert run(planned)[2].placed == 2


def test_more_nodes_take_no_existing_name() -> None:
    """They took the place of the nodes of an earlier try: as many as before were left."""
    planned = workload([node("n"), node("extra-1")])
    planned.changes.append(NodeChange(5.0, "extra-3", node_of(node("extra-3"))))
    result = run(planned.with_nodes(2))[2]
    assert result.nodes == 5
    assert result.resources["cpu"].allocatable == 20_000


def test_a_seed_changes_the_order_within_a_moment_and_nothing_else() -> None:
    pods = [(float(i // 5), pod(f"p{i}"), None) for i in range(10)]
    planned = workload([node("n")], *pods)
    one, other = planned.shuffled(1), planned.shuffled(2)
    assert [a.pod.key for a in one.arrivals] != [a.pod.key for a in other.arrivals]
    assert [a.at for a in one.arrivals] == [a.at for a in planned.arrivals]
    assert planned.shuffled(1).arrivals[0].pod.uid == one.arrivals[0].pod.uid


def test_what_left_with_its_nodes_was_used_all_the_same(tmp_path: Path) -> None:
    """The report knew the resources of the end alone: no use, and no group that got anything."""
    gpus = node("gpus")
    gpus["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    wants = pod("train", "1")
    wants["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "4"}
    result = run(
        events(
            tmp_path,
            {"add": gpus},
            {"add": wants, "for": 10},
            {"add": {**pod("never", "99"), "metadata": {"name": "never", "namespace": "b"}}},
            {"at": 20, "delete": "node/gpus"},
        )
    )[2]
    use = result.resources["nvidia.com/gpu"]
    assert (use.requested, use.allocatable, use.final, use.mean, use.peak) == (0, 0, 0, 0.5, 1)
    assert result.groups == {"a": 1.0, "b": 0.0}


def test_a_resource_that_no_node_has_any_more_is_not_used_a_thousand_times_over(
    tmp_path: Path,
) -> None:
    """Pods from before ask for it: what they ask for was told as percents."""
    there = pod("old", nodeName="n")
    there["spec"]["containers"][0]["resources"]["limits"] = {"example.com/slots": "9"}
    (tmp_path / "there.json").write_text(json.dumps({"kind": "List", "items": [node("n"), there]}))
    back = node("n")
    back["status"]["allocatable"]["example.com/slots"] = "9"
    events(tmp_path, {"at": 5, "add": back})
    result = run(read_workload(tmp_path / "there.json", tmp_path / "events.jsonl"))[2]
    assert result.resources["example.com/slots"].peak == 1.0


def test_the_fragmented_part_is_what_typical_pods_cannot_use() -> None:
    """Two nodes with 1 core left are of no use to pods of 3; an empty one is of use."""
    nodes = [node("a"), node("b"), node("c")]
    planned = workload(nodes, *((0.0, pod(f"p{i}", "3"), None) for i in range(2)))
    _, _, result = run(planned)
    assert result.resources["cpu"].fragmentation == pytest.approx(2 / 6)


def test_fairness_is_jains_index_of_what_groups_got_of_what_they_asked_for() -> None:
    hungry = pod("hungry", "9")
    hungry["metadata"]["namespace"] = "b"
    _, _, result = run(workload([node("n")], (0.0, pod("p"), None), (0.0, hungry, None)))
    assert result.groups == {"a": 1.0, "b": 0.0}
    assert result.fairness == pytest.approx(0.5)


@given(values=st.lists(st.floats(0, 1), min_size=1))
def test_jains_index_is_between_one_nth_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9
    assert jain([1.0] * len(values)) == pytest.approx(1.0)


def test_tables_of_openb_are_nodes_and_pods(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n")
    (tmp_path / "p.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time\n"
        "p0,12000,16384,1,460,P100|T4,LS,7,9\np1,1000,1024,0,0,,BE,3,\n"
    )
    got = read_workload(tmp_path / "n.csv", tmp_path / "p.csv")
    assert got.cluster.nodes[0]["status"]["allocatable"] == {
        "cpu": "64000m",
        "memory": "262144Mi",
        "pods": "110",
        "alibabacloud.com/gpu-count": "2",
        "alibabacloud.com/gpu-milli": "2000",
    }
    share, plain = got.arrivals
    assert (share.at, share.until, plain.until) == (7.0, 9.0, None)
    assert share.pod.annotations == {
        "alibabacloud.com/gpu-count": "1",
        "alibabacloud.com/gpu-milli": "460",
        "alibabacloud.com/gpu-card-model": "P100|T4",
    }
    assert (plain.pod.annotations, plain.pod.requests["cpu"]) == ({}, 1000)


def test_tables_as_other_programs_write_them(tmp_path: Path) -> None:
    """Blank lines, other columns beside, whole numbers as 4.0, a name that comes again; gzip."""
    (tmp_path / "n.csv.gz").write_bytes(
        gzip.compress(
            b"\xef\xbb\xbf\r\n\r\nmodel,x,gpu,memory_mib,cpu_milli,sn\r\n,,0.0,1,4.0,a\r\n\r\n"
        )
    )
    (tmp_path / "p.csv").write_text(
        "gpu_milli,name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n"
        ",p,1,1,,0,5\n\n,p,2,1,,5,\n"
    )
    got = read_workload(tmp_path / "n.csv.gz", tmp_path / "p.csv")
    assert [n["status"]["allocatable"]["cpu"] for n in got.cluster.nodes] == ["4m"]
    assert [(one.at, one.pod.requests["cpu"]) for one in got.arrivals] == [(0, 1), (5, 2)]


def test_a_pod_of_a_table_is_there_for_as_long_as_it_says(tmp_path: Path) -> None:
    """One of half a second was there for a whole one; one of no time is, as the trace has such."""
    (tmp_path / "p.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"
        "half,1,1,0,0,2,2.5\nnone,1,1,0,0,2,2\n"
    )
    assert [one.until for one in read_workload(tmp_path / "p.csv").arrivals] == [2.5, 3.0]


def test_tables_are_one_cluster_too(tmp_path: Path) -> None:
    """A node of two files was there once, and nothing was said; a pod pushed itself out."""
    table = "sn,cpu_milli,memory_mib,gpu,model\nn,{},1,0,\n"
    (tmp_path / "a.csv").write_text(table.format(1))
    (tmp_path / "b.csv").write_text(table.format(2))
    got = read_workload(tmp_path / "a.csv", tmp_path / "b.csv")
    assert [one["status"]["allocatable"]["cpu"] for one in got.cluster.nodes] == ["2m"]
    assert got.cluster.repeated == ["Node `n`"]
    for name in ("p.csv", "Q.CSV"):
        (tmp_path / name).write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n")
    with pytest.raises(WorkloadError) as caught:
        read_workload(tmp_path / "p.csv", tmp_path / "Q.CSV")
    place = f"{tmp_path / 'p.csv'}:2"
    assert str(caught.value).endswith(f"Q.CSV:2: name: the pod `p` of {place} is still there")


def test_events_may_begin_with_a_byte_order_mark_and_delete_what_has_ended(tmp_path: Path) -> None:
    ended = {"kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Succeeded"}}
    there = {"kind": "Node", "metadata": {"name": "n"}}
    (tmp_path / "p.json").write_text(json.dumps({"kind": "List", "items": [ended, there]}))
    (tmp_path / "x.jsonl").write_bytes(b'\xef\xbb\xbf{"at": 9, "delete": "pod/p"}\n')
    got = read_workload(tmp_path / "p.json", tmp_path / "x.jsonl")
    assert got.departures == [(9, "default/p")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("x.csv", "a,b\n1,2\n", "want the columns of nodes: `cpu_milli`", id="columns"),
        pytest.param("x.csv", "sn,cpu_milli,memory_mib,gpu,model\nn,x,1,1,\n", ":2:", id="number"),
        pytest.param(
            "x.csv",
            "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1,\nn,1,1,1,\n",
            ":3: sn: `n` is a node of line 2",
            id="node twice",
        ),
        pytest.param(
            "x.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\np,1,1,0,0\n",
            ":3: name: the pod `p` of line 2 is still there",
            id="pod twice",
        ),
        pytest.param(
            "x.csv",
            "sn,cpu_milli,memory_mib,gpu,model\n,1,1,1,\n",
            ":2: sn: want a name",
            id="none",
        ),
        pytest.param(
            "x.csv",
            "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1,,a,b\n",
            "want 5 cells, got 7",
            id="too many cells",
        ),
        pytest.param(
            "x.csv",
            "sn,cpu_milli,gpu,memory_mib,model,gpu\nn,1,1,1,1,2\n",
            "x.csv:1: want each column once, got `gpu` twice",
            id="a column twice",
        ),
        pytest.param(
            "x.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"
            "p,1,1,0,0,100,50\n",
            ":2: deletion_time: want a time from `creation_time` 100 on, got `50`",
            id="deleted before it is created",
        ),
        pytest.param(
            "x.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,2,\n",
            ":2: gpu_milli: want the share of each GPU, in thousandths, got `` for 2 GPUs",
            id="GPUs of which nothing is asked",
        ),
        pytest.param(
            "x.csv",
            'sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1,a\nm,1,1,1,"a\n',
            "x.csv:3: unexpected end of data",
            id="a quotation that does not end",
        ),
        pytest.param(
            "x.jsonl",
            '{"add": {"kind": "ReplicaSet", "spec": {"template": {"spec": {"containers": []}}}}}',
            "x.jsonl:1: want a pod, a node or what they need in an event, got a ReplicaSet\n",
            id="a workload in an event, whose pods did not come",
        ),
        pytest.param(
            "x.jsonl",
            '{"at": 0, "add": {"kind": "Node", "metadata": {"name": "node-1"}}}\n'
            '{"at": 9, "delete": "node/node1"}',
            "x.jsonl:2: want the name of a node, got `node1`\nhint: did you mean `node-1`?",
            id="no such node",
        ),
        pytest.param(
            "x.jsonl",
            '{"at": 9, "delete": "pod/p"}',
            "x.jsonl:1: want the name of a pod, got `default/p`",
            id="no such pod",
        ),
        pytest.param(
            "x.jsonl",
            '{"at": 1, "delete": "pod/p"}\n{"at": 5, "add": {"metadata": {"name": "p"}}}',
            "x.jsonl:1: want a pod that is there at 1 s, `default/p` comes at 5 s",
            id="a delete of a pod that comes later",
        ),
        pytest.param(
            "x.jsonl",
            '{"at": 7, "add": {"kind": "Node", "metadata": {"name": "n"}}}\n'
            '{"at": 5, "delete": "node/n"}',
            "x.jsonl:2: want a node that is there at 5 s, `n` comes at 7 s",
            id="a delete of a node that comes later",
        ),
        pytest.param(
            "x.jsonl",
            '{"add": {"kind": "Pod", "spec": {}}}',
            "x.jsonl:1: want `metadata.name` or `generateName` in a pod, got neither",
            id="a pod without a name",
        ),
        pytest.param(
            "x.jsonl",
            '{"add": {"kind": "Node", "metadata": {}}}',
            "x.jsonl:1: want `metadata.name` in a node, got none",
            id="a node without a name",
        ),
        pytest.param("x.jsonl", '{"at": 0}', "x.jsonl:1: want `add`", id="nothing"),
        pytest.param("x.jsonl", '\n{"at": -1}', "x.jsonl:2: want an object", id="time"),
        pytest.param("x.jsonl", '{"at": 0, "delete": "x"}', "want `node/NAME`", id="name"),
        pytest.param("x.jsonl", "{", "x.jsonl:1", id="half"),
        pytest.param(
            "x.jsonl",
            '{"at": 0, "add": {"metadata": {"name": "p"}}, "delete": "pod/p"}',
            "x.jsonl:1: want `add` or `delete`, got both",
            id="both at once",
        ),
        pytest.param(
            "x.jsonl",
            '{"at": 0, "add": {"metadata": {"name": "p"}}, "until": 9}',
            "x.jsonl:1: want `at`, `add`, `for`, `runs` or `delete`, got `until`",
            id="a member that there is not",
        ),
        pytest.param(
            "x.jsonl",
            '{"at": 0, "add": {"kind": "Node", "metadata": {"name": "n"}}, "for": 9}',
            "x.jsonl:1: want `for` together with an `add` of a pod",
            id="a node that stays for so long",
        ),
    ],
)
def test_what_is_no_workload_is_reported_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((WorkloadError, ManifestError), match=message):
        read_workload(tmp_path / name)


# --- what is the kernel's ----------------------------------------------------------------------

BROKEN = """
profiles:
- schedulerName: default-scheduler
  plugins:
    queueSort: {enabled: [{name: broken}], disabled: [{name: "*"}]}
"""


def test_a_pod_whose_queue_key_fails_goes_by_its_priority() -> None:
    """It was sorted before all others here, and by its priority in a cluster."""
    config = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration{BROKEN}"
    policy = 'def queue_key(pod):\n    fail("no key")\n'
    files = {"config.yaml": config, "broken.star": policy}
    arrivals = [(1.0, pod(f"p{n}", cpu="3", priority=n), None) for n in (1, 3, 2)]
    simulation, _, _ = run(workload([node("n")], *arrivals), files)
    assert [life.wants.name for life in simulation.lives.values() if life.is_placed] == ["p3"]


def test_a_run_ends_though_a_policy_has_a_pod_wait_again_and_again() -> None:
    policy = "def permit(pod, group):\n    return wait(7)\n"
    files = {"patient.star": policy}
    simulation, _, result = run(workload([node("n")], (0.0, pod("p"), None)), files)
    assert (result.placed, result.pending) == (0, 1)
    assert simulation.now < 300


def test_devices_that_are_taken_back_in_a_simulation_are_free_afterwards() -> None:
    """The pod's reason said that a claim was deallocated; it was not, and the pod never started."""
    on_a = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
    allocated = claim("one")
    allocated["status"] = {
        "allocation": {
            "devices": {
                "results": [{"request": "r", "driver": DRIVER, "pool": "a", "device": "g0"}]
            },
            "nodeSelector": {"nodeSelectorTerms": on_a},
        }
    }
    objects = [device_class(), resource_slice("a", "g0"), resource_slice("b", "g0"), allocated]
    planned = workload([node("a", cpu=1), node("b", cpu=4)])
    planned.cluster.objects = objects
    waiting = claiming_pod("p", "one", cpu="2")
    planned.arrivals.append(Arrival(1.0, planned.cluster.pod_of(waiting), None))
    simulation, _, _ = run(planned)
    assert simulation.lives["default/p"].node == "b"
