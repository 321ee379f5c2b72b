"""A change reaches the cache first, then the pods that wait; the order of watches is free."""

from typing import Any

import pytest

from engine.core.kernel.events import NODES, ObjectChanged
from engine.core.kernel.instructions import ForgetReports
from engine.core.model import devices
from engine.core.model.event_kinds import KINDS
from engine.core.model.node import Node
from engine.core.model.objects import Namespace, ObjectMeta, from_plain
from engine.core.model.pod import Pod
from engine.io.informers import OTHER_OBJECTS
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.bench import KernelBench, ScriptedScheduler
from tests.engine.core.scheduling.devices.builders import resource_slice, taint_rule


class Bench(KernelBench):
    def __init__(self) -> None:
        super().__init__()
        self.add_node(make_node("node-1"))

    def add_node(self, node: Node) -> None:
        self.report(ObjectChanged(NODES, None, node))

    def check(self) -> None:
        self.kernel.check_invariants()

    def reject(self, plugin: str = "NodeResourcesFit") -> None:
        queued = self.queue.pop()
        assert queued is not None
        self.queue.requeue(queued, frozenset({plugin}))

    @property
    def counts(self) -> dict[str, int]:
        return {place: n for place, n in self.queue.counts().items() if n}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def web(**words: Any) -> Pod:
    return make_pod("web", uid="u1", **words)


def test_a_pending_pod_of_ours_is_queued(bench: Bench) -> None:
    bench.add(web())
    assert bench.counts == {"active": 1}


def test_the_kernel_knows_the_kind_of_all_that_is_watched() -> None:
    assert {resource.plural: resource.kind for resource, _ in OTHER_OBJECTS} == KINDS


@pytest.mark.parametrize(
    ("selector", "is_retried"),
    [
        pytest.param({"device": "g0"}, True, id="of a device that is there"),
        pytest.param({"device": "g1"}, False, id="of no device"),
        pytest.param(None, False, id="without a selector"),
    ],
)
def test_a_rule_that_taints_a_device_is_a_change_of_its_slice(
    bench: Bench, selector: dict[str, str] | None, is_retried: bool
) -> None:
    offered = from_plain(devices.ResourceSlice, resource_slice("node-1", "g0"))
    bench.report(ObjectChanged("resourceslices", None, offered))
    made = taint_rule("r", selector, key="drained", effect="NoSchedule")
    rule = from_plain(devices.DeviceTaintRule, made)
    bench.add(web())
    bench.reject("DynamicResources")
    bench.report(ObjectChanged("devicetaintrules", None, rule))
    assert ("unschedulable" not in bench.counts) == is_retried
    assert bench.cache.objects.list("devicetaintrules") == [rule]
    bench.add(make_pod("other"))
    bench.reject("DynamicResources")
    bench.report(ObjectChanged("devicetaintrules", rule, None))
    assert ("unschedulable" not in bench.counts) == is_retried
    assert bench.cache.objects.count("devicetaintrules") == 0


def test_a_rule_retries_only_pods_that_found_no_devices(bench: Bench) -> None:
    offered = from_plain(devices.ResourceSlice, resource_slice("node-1", "g0"))
    bench.report(ObjectChanged("resourceslices", None, offered))
    bench.add(web())
    bench.reject("NodeResourcesFit")
    rule = from_plain(
        devices.DeviceTaintRule, taint_rule("r", {}, key="drained", effect="NoSchedule")
    )
    bench.report(ObjectChanged("devicetaintrules", None, rule))
    assert bench.counts == {"unschedulable": 1}


def test_a_pod_of_another_scheduler_is_not_queued_but_counts_on_its_node(bench: Bench) -> None:
    bench.add(web(scheduler_name="other"))
    assert bench.counts == {}
    bench.change(
        web(scheduler_name="other"),
        web(scheduler_name="other", node="node-1", resource_version="2"),
    )
    assert bench.cache.pod_count == 1


def test_a_pod_that_is_bound_leaves_the_queue(bench: Bench) -> None:
    bench.add(web())
    bench.change(web(), web(node="node-1", resource_version="2"))
    assert bench.counts == {}
    assert "u1" not in bench.queue
    assert bench.cache.pod_count == 1
    bench.check()


@pytest.mark.parametrize("placed_before", [False, True])
@pytest.mark.parametrize("end", ["is on a node", "is gone", "is another pod"])
def test_what_was_reported_of_a_pod_is_dropped_when_it_waits_no_more(
    bench: Bench, placed_before: bool, end: str
) -> None:
    before = web(node="node-1") if placed_before else web()
    bench.add(before)
    bench.done.clear()
    if end == "is gone":
        bench.delete(before)
    elif end == "is another pod":
        bench.change(before, make_pod("web", uid="u2"))
    else:
        bench.change(before, web(node="node-1", resource_version="2"))
    forgotten = [one.uid for one in bench.done if isinstance(one, ForgetReports)]
    is_news = not (placed_before and end == "is on a node")
    assert forgotten == (["u1"] if is_news else [])


def test_a_pod_bound_between_two_lists_is_seen_as_bound(bench: Bench) -> None:
    bench.add(web())
    bench.delete(web())
    bench.add(web(node="node-1"))
    assert "u1" not in bench.queue
    assert bench.cache.pod_count == 1


def test_a_confirmed_pod_is_not_assumed_any_more(bench: Bench) -> None:
    bench.add(web())
    queued = bench.queue.pop()
    assert queued is not None
    bench.cache.assume(queued.pod, "node-1")
    bench.queue.done("u1")
    bench.change(web(), web(node="node-1", resource_version="2"))
    assert not bench.cache.is_assumed("u1")
    assert bench.cache.pod_count == 1
    bench.check()


def test_a_pod_deleted_while_it_is_assumed_frees_its_capacity_and_wakes_others(
    bench: Bench,
) -> None:
    bench.add(make_pod("big", cpu="4"))
    bench.reject()
    bench.add(web(cpu="4"))
    queued = bench.queue.pop()
    assert queued is not None
    bench.cache.assume(queued.pod, "node-1")
    bench.queue.done("u1")
    assert bench.counts == {"unschedulable": 1}
    bench.delete(web(cpu="4"))
    assert bench.cache.pod_count == 0
    assert "unschedulable" not in bench.counts
    bench.check()


def test_a_pod_that_ends_frees_its_capacity(bench: Bench) -> None:
    bench.add(web(node="node-1"))
    bench.delete(web(node="node-1"))
    assert bench.cache.pod_count == 0
    bench.check()


def test_a_new_pod_under_an_old_name_is_another_pod(bench: Bench) -> None:
    bench.add(web(node="node-1"))
    bench.change(web(node="node-1"), make_pod("web", uid="u2"))
    assert bench.cache.pod_count == 0
    assert "u2" in bench.queue
    bench.check()


def test_pods_may_come_before_their_node(bench: Bench) -> None:
    bench.add(web(node="later"))
    assert bench.cache.pod_count == 1
    bench.add_node(make_node("later"))
    info = bench.cache.node_info("later")
    assert info is not None
    assert info.pod_count == 1
    bench.check()


def test_a_node_that_goes_keeps_its_pods_until_they_go(bench: Bench) -> None:
    bench.add(web(node="node-1"))
    bench.report(ObjectChanged(NODES, make_node("node-1"), None))
    assert (bench.cache.node_count, bench.cache.pod_count) == (0, 1)
    bench.delete(web(node="node-1"))
    assert bench.cache.node_info("node-1") is None
    bench.check()


def test_a_new_node_wakes_those_who_fit_nowhere(bench: Bench) -> None:
    bench.add(web(cpu="1"))
    bench.reject()
    bench.add_node(make_node("node-2"))
    assert "unschedulable" not in bench.counts


def test_a_heartbeat_of_a_node_wakes_nobody(bench: Bench) -> None:
    bench.add(web(cpu="100"))
    bench.reject()
    bench.report(
        ObjectChanged(NODES, make_node("node-1"), make_node("node-1", resource_version="7"))
    )
    assert bench.counts == {"unschedulable": 1}


def test_a_status_written_by_us_does_not_cause_the_next_attempt(bench: Bench) -> None:
    bench.add(web(cpu="100"))
    bench.reject()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    new = web(cpu="100", resource_version="2", status={"conditions": [condition]})
    bench.change(web(cpu="100"), new)
    assert bench.counts == {"unschedulable": 1}


def test_other_objects_are_kept_for_policies(bench: Bench) -> None:
    one = Namespace(metadata=ObjectMeta(name="a", labels={"x": "1"}))
    two = Namespace(metadata=ObjectMeta(name="a", labels={"x": "2"}))
    bench.report(ObjectChanged("namespaces", None, one))
    bench.report(ObjectChanged("namespaces", one, two))
    assert bench.cache.objects.get("namespaces", "a") is two
    bench.report(ObjectChanged("namespaces", two, None))
    assert bench.cache.objects.list("namespaces") == []


def test_new_profiles_take_in_the_pods_that_name_them(bench: Bench) -> None:
    bench.add(web(scheduler_name="packed"))
    bench.add(make_pod("old", uid="u2"))
    bench.use(ScriptedScheduler({"packed"}))
    assert "u1" in bench.queue
    assert "u2" not in bench.queue
    bench.check()


# --- pods that others wait for, or wait behind -------------------------------------------------


def low(bench: Bench, priority: int = 0) -> None:
    """A pod is rejected, and stays aside until something helps it."""
    bench.add(make_pod("low", uid="low", cpu="4", priority=priority))
    bench.reject()
    assert bench.counts == {"unschedulable": 1}


def is_aside(bench: Bench, name: str) -> bool:
    return bool(bench.queue.describe(f"default/{name}").get("queue") == "unschedulable")


@pytest.mark.parametrize(("priority", "want"), [(0, False), (5, False), (6, True)])
def test_a_nominated_pod_that_is_deleted_frees_capacity_for_pods_up_to_its_priority(
    bench: Bench, priority: int, want: bool
) -> None:
    low(bench, priority=priority)
    nominated = web(cpu="4", priority=5, nominated="node-1")
    bench.add(nominated)
    bench.reject()
    bench.delete(nominated)
    assert is_aside(bench, "low") is want
    bench.check()


@pytest.mark.parametrize("nominated", [None, "node-2"])
def test_a_pod_that_others_nominate_elsewhere_or_nowhere_frees_capacity_and_looks_again(
    bench: Bench, nominated: str | None
) -> None:
    low(bench)
    before = web(cpu="4", priority=5, nominated="node-1", resource_version="1")
    bench.add(before)
    bench.reject()
    after = web(cpu="4", priority=5, nominated=nominated, resource_version="2")
    bench.change(before, after)
    assert not is_aside(bench, "low")
    assert not is_aside(bench, "web")
    bench.check()


@pytest.mark.parametrize("change", [{"cpu": "1"}, {"labels": {"app": "other"}}])
def test_a_nominated_pod_that_changes_frees_capacity_for_those_that_waited_for_it(
    bench: Bench, change: dict[str, Any]
) -> None:
    """A pod may be resized and relabelled before it has a node, and what it was promised counts."""
    low(bench)
    words: dict[str, Any] = {"cpu": "4", "priority": 5, "nominated": "node-1"}
    bench.add(web(**words))
    bench.reject()
    bench.change(web(**words), web(**{**words, **change}, resource_version="2"))
    assert not is_aside(bench, "low")
    bench.check()


def test_nothing_more_is_said_of_a_pod_that_is_another_schedulers_now(bench: Bench) -> None:
    bench.add(web())
    bench.done.clear()
    bench.use(ScriptedScheduler({"packed"}))
    assert bench.done == [ForgetReports("u1")]


def test_a_nominated_pod_whose_status_changes_wakes_nobody(bench: Bench) -> None:
    low(bench)
    words: dict[str, Any] = {"cpu": "4", "priority": 5, "nominated": "node-1"}
    bench.add(web(**words))
    bench.reject()
    bench.change(web(**words), web(**words, phase="Pending", resource_version="2"))
    assert is_aside(bench, "low")
    bench.check()


def test_a_pod_that_is_being_deleted_frees_capacity_when_its_nomination_is_cleared(
    bench: Bench,
) -> None:
    """A finalizer may keep it for ever, and nothing but its status says that it wants a node."""
    low(bench)
    words: dict[str, Any] = {"cpu": "4", "priority": 5, "terminating": True}
    bench.add(web(**words, nominated="node-1"))
    assert bench.queue.pop() is not None
    bench.queue.skip("u1")
    bench.change(web(**words, nominated="node-1"), web(**words, resource_version="2"))
    assert bench.queue.nominator.node_of("u1") is None
    assert not is_aside(bench, "low")
    bench.check()


def test_a_nominated_pod_that_is_bound_elsewhere_frees_capacity(bench: Bench) -> None:
    """kube-scheduler tells nobody here (kubernetes/kubernetes#134859)."""
    bench.add_node(make_node("node-2"))
    low(bench)
    nominated = web(cpu="4", priority=5, nominated="node-1")
    bench.add(nominated)
    bench.reject()
    bench.change(nominated, web(cpu="4", priority=5, node="node-2", resource_version="2"))
    assert not is_aside(bench, "low")
    assert bench.queue.nominator.node_of("u1") is None
    bench.check()


def test_a_nominated_pod_that_is_bound_there_frees_no_capacity(bench: Bench) -> None:
    low(bench)
    nominated = web(cpu="4", priority=5, nominated="node-1")
    bench.add(nominated)
    bench.reject()
    bench.change(nominated, web(cpu="4", priority=5, node="node-1", resource_version="2"))
    assert is_aside(bench, "low")
    bench.check()


def test_a_pod_whose_deletion_begins_while_it_is_bound_gives_its_capacity_back(
    bench: Bench,
) -> None:
    low(bench)
    bench.add(web(cpu="4"))
    queued = bench.queue.pop()
    assert queued is not None
    bench.cache.assume(queued.pod, "node-1")
    bench.queue.done("u1")
    assert is_aside(bench, "low")
    going = web(cpu="4", terminating=True, resource_version="2")
    bench.change(web(cpu="4"), going)
    assert not is_aside(bench, "low")
    assert bench.cache.pod_count == 0
    assert not bench.cache.forget("u1")  # the binding cycle has nothing left to undo
    bench.delete(going)
    bench.check()


def test_a_pod_that_is_bound_elsewhere_than_assumed_gives_its_capacity_back(bench: Bench) -> None:
    bench.add_node(make_node("node-2"))
    low(bench)
    bench.add(web(cpu="4"))
    queued = bench.queue.pop()
    assert queued is not None
    bench.cache.assume(queued.pod, "node-1")
    bench.queue.done("u1")
    bench.change(web(cpu="4"), web(cpu="4", node="node-2", resource_version="2"))
    assert not is_aside(bench, "low")
    bench.check()


def test_a_pod_that_is_on_another_node_now_gives_its_capacity_back(bench: Bench) -> None:
    """An API server that was restored to a backup let it be bound a second time."""
    bench.add_node(make_node("node-2"))
    bench.add(web(cpu="4", node="node-1"))
    low(bench)
    bench.change(web(cpu="4", node="node-1"), web(cpu="4", node="node-2", resource_version="2"))
    assert not is_aside(bench, "low")
    bench.check()


def test_a_pod_that_changes_while_it_is_bound_is_reported_as_a_change(bench: Bench) -> None:
    """It counted with its old labels from the moment it was assumed."""
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}]
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    bench.add(make_pod("low", uid="low", affinity={"podAntiAffinity": apart}))
    bench.reject("InterPodAffinity")
    before = web(labels={"app": "a"}, resource_version="1")
    bench.add(before)
    queued = bench.queue.pop()
    assert queued is not None
    bench.cache.assume(queued.pod, "node-1")
    bench.queue.done("u1")
    changed = web(labels={"app": "b"}, resource_version="2")
    bench.change(before, changed)
    assert is_aside(bench, "low")
    bench.change(changed, web(labels={"app": "b"}, node="node-1", resource_version="3"))
    assert not is_aside(bench, "low")
    bench.check()
