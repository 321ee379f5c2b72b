"""Pods that do not exist yet: where they go, before whom, and when at the earliest."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.files.cluster_file import Cluster
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from workbench.plan.new_pods import NewPod, endings_of, new_pods
from workbench.plan.what_if import Decider, Scene

NOW = "2026-01-01T00:00:00Z"


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    room = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"containers": [container], **spec},
    }


def leaving(manifest: dict[str, Any], at: str = NOW) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "deletionTimestamp": at}}


Run = Callable[..., list[NewPod]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    bundle = build_bundle({})
    evaluator = InProcessEvaluator(bundle.program)

    def decide(objects: list[dict[str, Any]], *new: dict[str, Any]) -> list[NewPod]:
        cluster = Cluster()
        for one in objects:
            cluster.add(one)
        decider = Decider(bundle, evaluator, Scene.of(cluster, bundle))
        placed = {one.key: one for one in decider.scene.placed()}
        pairs = [(placed[f"a/{one['metadata']['name']}"], one) for one in cluster.placed_pods()]
        return list(new_pods(decider, [cluster.pod_of(one) for one in new], endings_of(pairs)))

    yield decide
    evaluator.close()


def test_each_pod_sees_those_before_it_placed(run: Run) -> None:
    first, second, third = run([node("n")], pod("one", "2"), pod("two", "2"), pod("three", "2"))
    assert [first.outcome.node, second.outcome.node, third.outcome.node] == ["n", "n", ""]
    assert [first.position, second.position, third.position] == [1, 2, 3]
    assert third.outcome.reason == "InsufficientResources"
    assert third.next_step
    assert (first.start, third.start) == ("now", "unknown")


def test_pods_are_decided_as_the_queue_takes_them(run: Run) -> None:
    waiting = [pod("urgent", priority=100), pod("idle", priority=-1)]
    got = run([node("n"), *waiting], pod("low", "3"), pod("high", "3", priority=50))
    assert [(one.pod, one.position, one.outcome.node) for one in got] == [
        ("a/high", 2, "n"),
        ("a/low", 3, ""),
    ]
    assert got[0].waiting == 2
    assert got[0].assumption == "the 1 pod(s) that wait before it do not take its place"


def test_a_pod_that_evicts_starts_after_the_longest_grace(run: Run) -> None:
    victim = pod("victim", "4", nodeName="n", terminationGracePeriodSeconds=90)
    (one,) = run([node("n"), victim], pod("urgent", "4", priority=10))
    assert (one.start, one.after) == ("after_eviction", ("a/victim",))
    assert one.assumption == "1 pod(s) are evicted, which may take 90 s"


def test_capacity_that_is_freed_for_one_is_not_given_to_the_next(run: Run) -> None:
    victim = pod("victim", "4", nodeName="n")
    got = run([node("n"), victim], pod("urgent", "4", priority=10), pod("also", "4", priority=10))
    assert [one.outcome.victims for one in got] == [("a/victim",), ()]


def test_a_pod_starts_when_those_that_are_being_deleted_have_gone(run: Run) -> None:
    job = pod("job", "2", nodeName="n", restartPolicy="Never")
    gone = leaving(pod("gone", "2", nodeName="n"), "2026-01-01T00:00:30Z")
    (one,) = run([node("n"), job, gone], pod("new", "2"))
    assert (one.start, one.after, one.by) == ("when_pods_end", ("a/gone",), "2026-01-01T00:00:30Z")
    assert one.assumption == "when a/gone on n has gone"


def test_the_fewest_pods_are_named_that_end_by_themselves(run: Run) -> None:
    jobs = [pod(f"job-{i}", "1", nodeName="n", restartPolicy="OnFailure") for i in range(3)]
    jobs[2]["spec"]["activeDeadlineSeconds"] = 60
    jobs[2]["status"] = {"startTime": NOW}
    service = pod("service", "1", nodeName="n")
    (one,) = run([node("n"), service, *jobs], pod("new", "1"))
    assert (one.start, one.after, one.by) == ("when_pods_end", ("a/job-2",), "2026-01-01T00:01:00Z")
    (two,) = run([node("n"), service, *jobs], pod("new", "2"))
    assert (len(two.after), two.by) == (2, "")
    (none,) = run([node("n"), service, *jobs], pod("new", "4"))
    assert none.start == "unknown"


def test_a_gated_pod_has_no_position(run: Run) -> None:
    gated, free = run([node("n")], pod("gated", schedulingGates=[{"name": "x"}]), pod("free"))
    assert (gated.position, gated.start) == (None, "unknown")
    assert gated.assumption == "when policy `SchedulingGates` no longer gates it"
    assert free.position == 1
