"""The scheduling queue: order, attempts, waits, events, gates, and which pods are known."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.framework.reasons import Reason
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    ClusterEvent,
)
from engine.core.queueing.hints import Hints
from engine.core.queueing.places import Gate
from engine.core.queueing.queued_pod import QueuedPod, SortKey
from engine.core.queueing.scheduling_queue import RetryTimes, SchedulingQueue
from engine.core.queueing.transitions import Trigger
from engine.lib.clock import VirtualClock
from tests.builders import make_node, make_pod, taint, toleration
from tests.engine.core.queueing.hinting import hints_with

FIT = frozenset({"NodeResourcesFit"})
TAINTS = frozenset({"TaintToleration"})


def by_priority(pod: Pod) -> SortKey:
    return ((0, -pod.priority),)


TOO_SMALL = Reason("InsufficientResources", "NodeResourcesFit", node_helps=True)


def gates(pod: Pod) -> tuple[str, str] | None:
    names = [gate.name for gate in pod.manifest.spec.scheduling_gates]
    return ("SchedulingGates", f"waiting for {names}") if names else None


class Bench:
    """A queue with its clock, and the calls that tests make again and again."""

    def __init__(self, **words: Any) -> None:
        self.clock = VirtualClock()
        self.incoming: list[tuple[str, str]] = []
        settings: dict[str, Any] = {"key_of": by_priority, **words}
        door = words.get("pre_enqueue", gates)
        settings["pre_enqueue"] = lambda pod: (said := door(pod)) and Gate(*said)
        self.queue = SchedulingQueue(
            self.clock,
            on_incoming=lambda _, queue, event: self.incoming.append((queue, event)),
            **settings,
        )

    def pop(self) -> QueuedPod:
        queued = self.queue.pop()
        assert queued is not None
        self.queue.check_invariants()
        return queued

    def pop_names(self) -> list[str]:
        names = []
        while (queued := self.queue.pop()) is not None:
            names.append(queued.pod.name)
        return names

    def reject(self, pod: Pod, rejectors: frozenset[str] = FIT) -> QueuedPod:
        """Add *pod*, try it, and have it rejected."""
        self.queue.add(pod)
        queued = self.pop()
        assert queued.pod is pod
        self.queue.requeue(queued, rejectors, reason=TOO_SMALL, message="Insufficient cpu")
        self.queue.check_invariants()
        return queued

    def place(self, pod: Pod) -> str:
        self.queue.check_invariants()
        return str(self.queue.describe(pod.key).get("queue", "unknown"))

    def after(self, seconds: float) -> int:
        self.clock.advance(seconds)
        return self.queue.flush()


def big_node() -> Any:
    return make_node("n", cpu="64", memory="256Gi")


# --- order and attempts ------------------------------------------------------------------------


def test_the_smallest_key_goes_first_and_equal_keys_first_come_first_served() -> None:
    bench = Bench()
    for name, priority in (("a", 0), ("b", 10), ("c", 0), ("d", 10)):
        bench.queue.add(make_pod(name, priority=priority))
        bench.clock.advance(0.1)
    assert bench.pop_names() == ["b", "d", "a", "c"]


def test_a_rejected_pod_queues_by_when_its_last_attempt_ended() -> None:
    bench = Bench()
    first = bench.reject(make_pod("first"))
    bench.clock.advance(5)
    bench.queue.add(make_pod("second"))
    bench.clock.advance(5)
    bench.queue.move(NODE_ADD, None, big_node())
    assert bench.place(first.pod) == "active"
    assert bench.pop_names() == ["first", "second"]
    assert first.attempts == 2


def test_attempts_are_counted_at_pop() -> None:
    """A crash between pop and failure must not hand out a free retry."""
    bench = Bench()
    bench.queue.add(make_pod())
    assert bench.pop().attempts == 1


def test_nothing_to_try_is_nothing() -> None:
    assert Bench().queue.pop() is None


def test_a_gated_pod_is_not_poppable_and_a_rejected_one_in_backoff_is() -> None:
    bench = Bench()
    bench.queue.add(make_pod("gated", gates=["a"]))
    assert not bench.queue.has_poppable
    bench.reject(make_pod("b"))
    assert not bench.queue.has_poppable
    bench.queue.move(NODE_ADD, None, big_node())  # to backoff: `pop` may take it early
    assert bench.queue.has_poppable


def test_a_pod_with_an_error_is_not_poppable_until_its_wait_is_over() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    queued = bench.pop()
    bench.queue.requeue(queued)
    assert (bench.queue.has_poppable, bench.queue.pop()) == (False, None)
    assert bench.after(1.0) == 0
    assert bench.after(1.0) == 1
    assert bench.pop() is queued


def test_errors_in_a_row_double_the_wait_and_a_rejection_starts_it_over() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    for want in (1, 2, 4, 8, 10, 10):
        queued = bench.pop()
        bench.queue.requeue(queued)
        assert bench.queue.next_flush_in() == want + 1
        assert bench.after(want + 1) == 1
    queued = bench.pop()
    bench.queue.requeue(queued, FIT)
    assert (queued.error_count, queued.unschedulable_count) == (0, 1)


def test_without_other_work_a_rejected_pod_is_tried_before_its_wait_is_over() -> None:
    bench = Bench()
    waiting = bench.reject(make_pod("waiting"))
    bench.queue.move(NODE_ADD, None, big_node())
    assert bench.place(waiting.pod) == "backoff"
    bench.queue.add(make_pod("new"))
    assert bench.pop_names() == ["new", "waiting"]
    assert ("active", "PopFromBackoffQ") in bench.incoming


# --- events ------------------------------------------------------------------------------------


def test_an_event_that_may_help_brings_a_pod_back() -> None:
    bench = Bench()
    queued = bench.reject(make_pod(cpu="2"))
    assert bench.queue.move(NODE_ADD, None, make_node("small", cpu="1")) == 0
    assert bench.place(queued.pod) == "unschedulable"
    assert bench.queue.move(NODE_ADD, None, big_node()) == 1
    assert bench.place(queued.pod) == "backoff"


def test_a_pod_whose_wait_is_over_comes_back_at_once() -> None:
    bench = Bench()
    queued = bench.reject(make_pod())
    bench.clock.advance(2.0)
    bench.queue.move(NODE_ADD, None, big_node())
    assert bench.place(queued.pod) == "active"


def test_an_event_that_concerns_other_policies_moves_nothing() -> None:
    bench = Bench()
    queued = bench.reject(make_pod(), TAINTS)
    assert bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="n")) == 0
    assert bench.place(queued.pod) == "unschedulable"


def test_an_event_during_the_attempt_is_not_lost() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    queued = bench.pop()
    bench.queue.move(NODE_ADD, None, big_node())
    bench.queue.requeue(queued, FIT)
    assert bench.place(queued.pod) == "backoff"


def test_an_event_before_the_attempt_or_of_no_help_is_not_replayed() -> None:
    bench = Bench()
    bench.queue.add(make_pod("other"))
    bench.pop()
    bench.queue.add(make_pod("p", cpu="2"))
    bench.queue.move(NODE_ADD, None, big_node())  # the snapshot of `p`'s attempt has this node
    queued = bench.pop()
    bench.queue.move(NODE_ADD, None, make_node("small", cpu="1"))
    bench.queue.requeue(queued, FIT)
    assert bench.place(queued.pod) == "unschedulable"


def test_events_are_dropped_when_no_pod_in_flight_has_to_see_them() -> None:
    bench = Bench()
    for name in ("a", "b"):
        bench.queue.add(make_pod(name))
    first = bench.pop()
    bench.queue.move(NODE_ADD, None, big_node())
    second = bench.pop()
    bench.queue.move(NODE_ADD, None, big_node())
    assert bench.queue.in_flight_events().total() == 2
    bench.queue.done(first.uid)
    assert bench.queue.in_flight_events().total() == 1
    bench.queue.requeue(second, FIT)
    assert bench.queue.in_flight_events().total() == 0
    bench.queue.move(NODE_ADD, None, big_node())
    assert bench.queue.in_flight_events().total() == 0


def test_an_event_with_a_priority_concerns_pods_up_to_it() -> None:
    bench = Bench()
    low, high = make_pod("low", priority=1), make_pod("high", priority=2)
    for pod in (low, high):
        bench.reject(pod)
    gone = make_pod("nominated", nominated="n", priority=1)
    assert bench.queue.move(ASSIGNED_POD_DELETE, gone, max_priority=1) == 1
    assert (bench.place(low), bench.place(high)) == ("backoff", "unschedulable")


def test_after_five_minutes_a_pod_is_tried_in_any_case() -> None:
    bench = Bench()
    queued = bench.reject(make_pod())
    assert bench.queue.next_flush_in() == 300.0
    assert bench.after(299.0) == 0
    assert bench.after(1.0) == 1
    assert queued.tried_because == "no event helped for too long"
    assert bench.place(queued.pod) == "active"
    assert bench.queue.next_flush_in() is None


def test_activation_ends_every_wait() -> None:
    bench = Bench()
    rejected, backing_off, gated = make_pod("a"), make_pod("b"), make_pod("c", gates=["g"])
    bench.reject(backing_off)
    bench.queue.move(NODE_ADD, None, big_node())
    bench.queue.add(gated)
    bench.queue.add(rejected)
    queued = bench.pop()
    bench.queue.requeue(queued, FIT)
    uids = [pod.uid for pod in (rejected, backing_off, gated)]
    assert bench.queue.activate([*uids, "unknown"]) == 2
    assert [bench.place(p) for p in (rejected, backing_off, gated)] == ["active", "active", "gated"]


def test_activation_of_a_pod_in_flight_counts_when_its_attempt_fails() -> None:
    bench = Bench()
    for name in ("a", "b"):
        bench.queue.add(make_pod(name))
    one, other = bench.pop(), bench.pop()
    bench.queue.activate([one.pod.uid])
    for queued in (one, other):
        bench.queue.requeue(queued, FIT)
    assert (bench.place(one.pod), bench.place(other.pod)) == ("backoff", "unschedulable")


# --- updates -----------------------------------------------------------------------------------


def test_an_update_of_the_pod_that_may_help_brings_it_back() -> None:
    bench = Bench()
    old = make_pod(uid="u")
    bench.reject(old, TAINTS)
    same = make_pod(uid="u", labels={"a": "b"})
    bench.queue.update(old, same)
    assert bench.place(old) == "unschedulable"
    bench.queue.update(same, make_pod(uid="u", labels={"a": "b"}, tolerations=[toleration()]))
    assert bench.place(old) == "backoff"


def test_an_update_while_in_flight_is_not_lost() -> None:
    bench = Bench()
    old, new = make_pod(uid="u"), make_pod(uid="u", tolerations=[toleration()])
    bench.queue.add(old)
    queued = bench.pop()
    bench.queue.update(old, new)
    bench.queue.requeue(queued, TAINTS)
    assert bench.place(new) == "backoff"
    assert bench.pop().pod is new


def test_an_update_keeps_a_pod_in_backoff() -> None:
    """A controller that touches labels every second must not keep a pod at the head."""
    bench = Bench()
    old = make_pod(uid="u")
    bench.reject(old)
    bench.queue.move(NODE_ADD, None, big_node())
    new = make_pod(uid="u", labels={"a": "b"})
    bench.queue.update(old, new)
    assert bench.place(new) == "backoff"
    assert bench.pop().pod is new


def test_an_update_changes_the_place_in_the_order() -> None:
    bench = Bench()
    old = make_pod("a", uid="u")
    bench.queue.add(old)
    bench.queue.add(make_pod("b", priority=5))
    bench.queue.update(old, make_pod("a", uid="u", priority=10))
    assert bench.pop_names() == ["a", "b"]


def test_an_update_that_wakes_no_pod_still_changes_its_place_in_the_order() -> None:
    """A rejected pod came back with the place that it had before its label said otherwise."""

    def by_rank(pod: Pod) -> SortKey:
        return ((0, int(pod.labels.get("rank", "5"))),)

    bench = Bench(key_of=by_rank)
    pod = make_pod("late", resource_version="1")
    bench.reject(pod)
    bench.queue.add(make_pod("other", labels={"rank": "3"}))
    first = make_pod("late", uid=pod.uid, resource_version="2", labels={"rank": "1"})
    bench.queue.update(pod, first)
    assert bench.place(first) == "unschedulable"
    bench.queue.activate([pod.uid])
    assert bench.pop_names() == ["late", "other"]


def test_a_place_in_the_order_that_is_asked_for_again_holds_wherever_the_pod_waits() -> None:
    """A pod whose key failed for a moment kept the place that it was given instead of one."""
    keys: dict[str, int] = {}
    bench = Bench(key_of=lambda pod: ((0, keys.get(pod.name, 0)),))
    names = ["ready", "backing off", "set aside"]
    aside, off, ready = make_pod("set aside"), make_pod("backing off"), make_pod("ready")
    bench.queue.add(off)
    bench.queue.requeue(bench.pop())
    bench.reject(aside)
    bench.queue.add(ready)
    keys.update({name: place for place, name in enumerate(names)})
    for pod in (aside, off, ready):
        bench.queue.reorder(pod.uid)
    assert [bench.place(pod) for pod in (aside, off, ready)] == [
        "unschedulable",
        "backoff",
        "active",
    ]
    bench.after(60)
    bench.queue.activate([aside.uid])
    assert bench.pop_names() == names


def test_a_version_that_is_known_already_is_ignored() -> None:
    bench = Bench()
    old = make_pod(uid="u", resource_version="1")
    queued = bench.reject(old, TAINTS)
    echo = make_pod(uid="u", resource_version="1", tolerations=[toleration()])
    bench.queue.update(old, echo)
    assert queued.pod is old
    assert bench.place(old) == "unschedulable"


def test_a_pod_that_is_skipped_says_why_and_comes_back_only_if_it_lives_on() -> None:
    """It was shown as being bound. An API server that was restored may take the deletion back."""
    going, living = make_pod(uid="u", terminating=True), make_pod(uid="u")
    bench = Bench()
    bench.queue.add(going)
    bench.queue.skip(bench.pop().uid)
    assert bench.place(going) == "terminating"
    bench.queue.update(going, make_pod(uid="u", terminating=True))
    assert bench.place(going) == "terminating"
    assert not bench.queue.has_poppable
    bench.queue.update(going, living)
    assert bench.pop().pod is living


def test_an_update_of_an_unknown_pod_adds_it() -> None:
    bench = Bench()
    bench.queue.update(make_pod(uid="u"), make_pod(uid="u"))
    assert bench.pop().uid == "u"


def test_an_added_pod_that_is_known_is_updated_and_stays_once() -> None:
    bench = Bench()
    bench.queue.add(make_pod(uid="u"))
    newer = make_pod(uid="u", labels={"a": "b"})
    bench.queue.add(newer)
    assert bench.pop().pod is newer
    bench.queue.add(make_pod(uid="u"))
    assert bench.queue.pop() is None


# --- gates -------------------------------------------------------------------------------------


def test_a_gated_pod_is_not_tried_until_its_last_gate_is_gone() -> None:
    bench = Bench()
    pod = make_pod(uid="u", gates=["a", "b"])
    bench.queue.add(pod)
    assert bench.place(pod) == "gated"
    one_left = make_pod(uid="u", gates=["b"])
    bench.queue.update(pod, one_left)
    assert bench.place(pod) == "gated"
    assert bench.queue.describe(pod.key)["gate_reason"] == "waiting for ['b']"
    bench.queue.update(one_left, make_pod(uid="u"))
    assert bench.place(pod) == "active"
    assert bench.queue.counts()["gated"] == 0


def test_a_gated_pod_ignores_events_that_do_not_concern_its_gate() -> None:
    bench = Bench()
    pod = make_pod(gates=["a"])
    bench.queue.add(pod)
    assert bench.queue.move(NODE_ADD, None, big_node()) == 0
    assert bench.place(pod) == "gated"


class Door:
    """A gate of a user's policy that looks at the world."""

    def __init__(self) -> None:
        self.is_open = False
        self.asked = 0

    def __call__(self, pod: Pod) -> tuple[str, str] | None:
        self.asked += 1
        return None if self.is_open else ("quota", "no quota left")


def test_a_user_s_gate_is_asked_again_on_events() -> None:
    door = Door()
    bench = Bench(pre_enqueue=door)
    pod = make_pod()
    bench.queue.add(pod)
    bench.queue.move(ASSIGNED_POD_ADD, None, make_pod(node="n"))
    assert bench.place(pod) == "gated"
    door.is_open = True
    assert bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="n")) == 1
    assert bench.place(pod) == "active"


def test_a_gate_can_close_after_a_rejection() -> None:
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    queued = bench.reject(make_pod())
    door.is_open = False
    assert bench.queue.move(NODE_ADD, None, big_node()) == 0
    assert bench.place(queued.pod) == "gated"
    door.is_open = True
    bench.queue.move(ASSIGNED_POD_ADD, None, make_pod(node="n"))
    assert bench.place(queued.pod) == "backoff"


def test_gated_pods_are_flushed_too_once_per_period() -> None:
    door = Door()
    bench = Bench(pre_enqueue=door)
    pod = make_pod()
    bench.queue.add(pod)
    asked = door.asked
    for _ in range(10):
        bench.after(100.0)
    assert door.asked == asked + 3
    door.is_open = True
    assert bench.after(300.0) == 1
    assert bench.place(pod) == "active"
    assert bench.pop().was_flushed


def test_a_flushed_pod_is_marked_until_it_is_tried_or_gated_again() -> None:
    """kube-scheduler counts the pods that only the flush helped."""
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    queued = bench.reject(make_pod())
    bench.after(300.0)
    assert bench.pop().was_flushed
    bench.queue.requeue(queued, FIT)
    assert not queued.was_flushed
    bench.after(300.0)
    door.is_open = False
    bench.queue.recheck(queued.uid, Trigger.PREEMPTION_STARTED)
    assert bench.place(queued.pod) == "gated"
    assert not queued.was_flushed
    bench.after(300.0)
    assert bench.place(queued.pod) == "gated"
    door.is_open = True
    bench.queue.recheck(queued.uid, Trigger.PREEMPTION_DONE)
    assert not bench.pop().was_flushed


def test_pods_are_counted_when_they_enter_a_queue_and_not_where_they_stay() -> None:
    bench = Bench()
    pod = make_pod("p", uid="u")
    bench.queue.add(pod)
    bench.queue.update(pod, make_pod("p", uid="u", labels={"a": "b"}))
    gated = make_pod("g", uid="v", gates=["a", "b"])
    bench.queue.add(gated)
    one_less = make_pod("g", uid="v", gates=["a"])
    bench.queue.update(gated, one_less)
    bench.queue.update(one_less, make_pod("g", uid="v"))
    assert bench.incoming == [
        ("active", "UnscheduledPodAdd"),
        ("gated", "UnscheduledPodAdd"),
        ("active", "TargetPodUpdatePodSchedulingGatesEliminated"),
    ]


def test_a_pod_counts_for_each_plugin_that_rejected_it_until_it_is_tried_or_deleted() -> None:
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    queued = bench.reject(make_pod("p"), FIT | TAINTS)
    want = {
        ("NodeResourcesFit", "default-scheduler"): 1,
        ("TaintToleration", "default-scheduler"): 1,
    }
    assert bench.queue.rejections() == want
    bench.queue.move(NODE_ADD, None, big_node())
    assert bench.place(queued.pod) == "backoff"
    assert bench.queue.rejections() == want
    door.is_open = False
    bench.queue.recheck(queued.uid, Trigger.PREEMPTION_STARTED)
    assert bench.queue.rejections() == want | {("quota", "default-scheduler"): 1}
    door.is_open = True
    bench.queue.recheck(queued.uid, Trigger.PREEMPTION_DONE)
    bench.pop()
    assert not bench.queue.rejections()
    bench.queue.requeue(queued, FIT)
    bench.queue.activate([queued.uid])
    bench.queue.delete(queued.pod)
    assert not bench.queue.rejections()


@pytest.mark.parametrize("uid", [pytest.param("u", id="unknown"), pytest.param("v", id="its uid")])
def test_an_update_of_an_unknown_pod_or_to_another_uid_adds_it(uid: str) -> None:
    bench = Bench()
    old, new = make_pod("p", uid=uid), make_pod("p", uid="u", nominated="n")
    if uid != "u":
        bench.queue.add(old)
        bench.incoming.clear()
    bench.queue.update(old, new)
    assert bench.place(new) == "active"
    assert bench.queue.keys() == [new.key]
    assert bench.incoming == [("active", "UnscheduledPodAdd")]
    assert bench.queue.nominator.pods_on("n") == [new]


def test_a_pod_whose_gate_has_opened_by_itself_goes_on_in_its_turn() -> None:
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    queued = bench.reject(make_pod())
    door.is_open = False
    bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="n"))
    assert bench.place(queued.pod) == "gated"
    assert not bench.queue.recheck(queued.uid, Trigger.PREEMPTION_DONE)
    assert bench.place(queued.pod) == "gated"
    door.is_open = True
    assert bench.queue.recheck(queued.uid, Trigger.PREEMPTION_DONE)
    assert bench.place(queued.pod) == "backoff"
    assert bench.incoming[-1] == ("backoff", "PreemptionDone")


def test_a_pod_whose_group_changed_is_retried_with_its_new_sort_key() -> None:
    keys = {"a": 1, "b": 2, "c": 3, "d": 4}
    bench = Bench(key_of=lambda pod: ((0, keys[pod.name]),))
    pods = {name: make_pod(name) for name in keys}
    bench.reject(pods["a"])
    bench.reject(pods["b"])
    bench.queue.recheck(pods["b"].uid, Trigger.GROUP_CHANGED)
    bench.queue.add(pods["c"])
    bench.queue.add(pods["d"])
    assert [bench.place(pod) for pod in pods.values()] == [
        "unschedulable",
        "backoff",
        "active",
        "active",
    ]
    keys.update(a=14, b=13, c=12)
    for pod in pods.values():
        bench.queue.reorder(pod.uid)
        bench.queue.recheck(pod.uid, Trigger.GROUP_CHANGED)
    assert [bench.place(pod) for pod in pods.values()] == ["backoff", "backoff", "active", "active"]
    bench.after(10)
    assert bench.pop_names() == ["d", "c", "b", "a"]


@pytest.mark.parametrize("place", ["active", "backoff"])
def test_a_pod_whose_gate_has_closed_is_gated_until_it_opens(place: str) -> None:
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    pod = make_pod()
    if place == "active":
        bench.queue.add(pod)
    else:
        bench.reject(pod)
        bench.queue.recheck(pod.uid, Trigger.PREEMPTION_FAILED)
    assert not bench.queue.recheck(pod.uid, Trigger.PREEMPTION_STARTED)
    assert bench.place(pod) == place
    door.is_open = False
    assert bench.queue.recheck(pod.uid, Trigger.PREEMPTION_STARTED)
    assert bench.place(pod) == "gated"
    assert bench.incoming[-1] == ("gated", "PreemptionStarted")
    assert bench.queue.pop() is None
    door.is_open = True
    assert bench.queue.recheck(pod.uid, Trigger.PREEMPTION_DONE)
    assert bench.place(pod) == place


def test_a_pod_that_is_requeued_untried_has_no_attempt_counted() -> None:
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    bench.queue.add(make_pod("first"))
    bench.clock.advance(1)
    bench.queue.add(make_pod("second"))
    first = bench.pop()
    door.is_open = False
    bench.queue.requeue_untried(first, Trigger.THROTTLED)
    assert bench.place(first.pod) == "gated"
    assert bench.incoming[-1] == ("gated", "Throttled")
    assert first.attempts == 0
    door.is_open = True
    bench.queue.recheck(first.uid, Trigger.THROTTLE_ENDED)
    assert bench.pop_names() == ["first", "second"]


def test_a_pod_that_is_gone_is_not_requeued_untried() -> None:
    bench = Bench()
    bench.queue.add(make_pod("p"))
    queued = bench.pop()
    bench.queue.delete(queued.pod)
    bench.queue.requeue_untried(queued, Trigger.THROTTLED)
    assert bench.place(queued.pod) == "unknown"


def test_only_pods_that_wait_for_their_turn_are_gated_by_a_preemption() -> None:
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    rejected = bench.reject(make_pod("rejected"))
    bench.queue.add(make_pod("tried"))
    tried = bench.queue.pop()
    assert tried is not None
    door.is_open = False
    for uid in (rejected.uid, tried.uid, "unknown"):
        assert not bench.queue.recheck(uid, Trigger.PREEMPTION_STARTED)
    assert bench.place(rejected.pod) == "unschedulable"
    assert bench.place(tried.pod) == "in_flight"


def test_a_recheck_moves_a_rejected_pod_unless_its_trigger_is_for_gated_ones() -> None:
    bench = Bench()
    queued = bench.reject(make_pod())
    assert not bench.queue.recheck(queued.uid, Trigger.PREEMPTION_DONE)
    assert bench.place(queued.pod) == "unschedulable"
    assert bench.queue.recheck(queued.uid, Trigger.PREEMPTION_FAILED)
    assert bench.place(queued.pod) == "backoff"
    assert not bench.queue.recheck(queued.uid, Trigger.PREEMPTION_FAILED)
    assert not bench.queue.recheck("unknown", Trigger.PREEMPTION_FAILED)


# --- which pods are known ----------------------------------------------------------------------


def test_a_deleted_pod_is_gone_from_wherever_it_was() -> None:
    bench = Bench()
    active, rejected, gated = make_pod("a"), make_pod("b"), make_pod("c", gates=["g"])
    bench.reject(rejected)
    bench.queue.add(active)
    bench.queue.add(gated)
    for pod in (active, rejected, gated):
        bench.queue.delete(pod)
        bench.queue.delete(pod)
        assert bench.place(pod) == "unknown"
    assert set(bench.queue.counts().values()) == {0}
    assert len(bench.queue) == 0


def test_a_pod_deleted_while_in_flight_does_not_come_back() -> None:
    bench = Bench()
    calls: list[Callable[[QueuedPod], bool]] = [
        lambda queued: bench.queue.requeue(queued, FIT),
        lambda queued: bench.queue.requeue(queued),
    ]
    for requeue in calls:
        pod = make_pod()
        bench.queue.add(pod)
        queued = bench.pop()
        bench.queue.delete(pod)
        assert not requeue(queued)
        assert bench.place(pod) == "unknown"
        assert bench.queue.counts()["in_flight"] == 0


def test_a_pod_deleted_or_seen_bound_while_its_binding_runs_does_not_come_back() -> None:
    """The answer to the binding was lost; the watch was faster than the error."""
    bench = Bench()
    pod = make_pod()
    bench.queue.add(pod)
    queued = bench.pop()
    bench.queue.done(queued.uid)
    assert bench.place(pod) == "binding"
    bench.queue.delete(pod.with_node("n"))
    assert not bench.queue.requeue(queued)
    assert bench.queue.pop() is None


def test_a_pod_whose_binding_failed_comes_back_as_it_is_now() -> None:
    bench = Bench()
    old, new = make_pod(uid="u"), make_pod(uid="u", labels={"a": "b"})
    bench.queue.add(old)
    queued = bench.pop()
    bench.queue.done(queued.uid)
    bench.queue.update(old, new)
    assert bench.queue.pop() is None
    assert bench.queue.requeue(queued)
    bench.after(2.0)
    assert bench.pop().pod is new


def test_a_rejection_after_done_is_retried_because_its_events_were_not_recorded() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    queued = bench.pop()
    bench.queue.done(queued.uid)
    bench.queue.requeue(queued, FIT)
    assert bench.place(queued.pod) == "backoff"


def test_a_pod_created_again_under_its_name_is_another_pod() -> None:
    bench = Bench()
    old, new = make_pod("p", uid="old"), make_pod("p", uid="new")
    bench.queue.add(old)
    queued = bench.pop()
    bench.queue.add(new)
    assert not bench.queue.requeue(queued, FIT)
    assert bench.pop().uid == "new"
    bench.queue.delete(old)
    assert bench.place(new) == "in_flight"


def test_an_update_that_is_another_pod_replaces_it() -> None:
    bench = Bench()
    old, new = make_pod("p", uid="old"), make_pod("p", uid="new")
    bench.queue.add(old)
    bench.queue.update(old, new)
    assert bench.pop().uid == "new"
    assert bench.queue.pop() is None


def test_a_pod_that_reappears_while_in_flight_is_tried_once_at_a_time() -> None:
    bench = Bench()
    pod = make_pod(uid="u")
    bench.queue.add(pod)
    queued = bench.pop()
    bench.queue.delete(pod)
    bench.queue.add(make_pod(uid="u", tolerations=[toleration()]))
    assert bench.queue.pop() is None
    assert bench.queue.requeue(queued, TAINTS)
    assert bench.place(pod) == "backoff"


def test_a_rejection_without_rejectors_is_an_error() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    queued = bench.pop()
    bench.queue.requeue(queued, frozenset())
    assert (queued.error_count, queued.unschedulable_count) == (1, 0)
    assert bench.queue.pop() is None


# --- policies and nominations ------------------------------------------------------------------


def test_new_policies_reorder_ungate_and_retry() -> None:
    door = Door()
    order = {"a": 2, "b": 1}

    def key_of(pod: Pod) -> SortKey:
        return ((0, order.get(pod.name, 9)),)

    bench = Bench(key_of=key_of, pre_enqueue=lambda pod: door(pod) if pod.name == "g" else None)
    rejected = bench.reject(make_pod("r"))
    for name in ("a", "b", "g"):
        bench.queue.add(make_pod(name))
    order.update(a=1, b=2)
    door.is_open = True
    bench.queue.rekey(Hints())
    assert bench.place(rejected.pod) == "backoff"
    assert bench.pop_names() == ["a", "b", "g", "r"]


def test_new_policies_retry_a_pod_that_the_old_ones_are_rejecting_just_now() -> None:
    bench = Bench()
    bench.queue.add(make_pod())
    queued = bench.pop()
    bench.queue.rekey()
    bench.queue.requeue(queued, FIT)
    assert bench.place(queued.pod) == "backoff"


def test_hints_are_replaced_with_the_policies() -> None:
    bench = Bench()
    queued = bench.reject(make_pod())
    bench.queue.rekey(Hints(policies={"NodeResourcesFit": {}}))
    bench.pop()
    bench.queue.requeue(queued, FIT)
    node = make_node("n")
    assert bench.queue.move(ClusterEvent("Node", "UpdateNodeLabel"), node, node) == 1


def test_nominations_follow_the_pod() -> None:
    bench = Bench()
    pod = make_pod("p", uid="u", nominated="n1")
    bench.queue.add(pod)
    assert bench.queue.nominator.pods_on("n1") == [pod]
    moved = make_pod("p", uid="u", nominated="n2")
    bench.queue.update(pod, moved)
    assert bench.queue.nominator.pods_on("n2") == [moved]
    bench.queue.delete(moved)
    assert len(bench.queue.nominator) == 0


def test_a_pod_is_nominated_before_its_gate_is_evaluated() -> None:
    """It holds its node against pods of no higher priority while it is gated."""
    seen = list[str | None]()

    def gate(pod: Pod) -> tuple[str, str] | None:
        seen.append(bench.queue.nominator.node_of(pod.uid))
        return gates(pod)

    bench = Bench(pre_enqueue=gate)
    pod = make_pod("p", uid="u", nominated="n1", gates=["a"])
    bench.queue.add(pod)
    assert bench.place(pod) == "gated"
    assert bench.queue.nominator.pods_on("n1") == [pod]
    ungated = make_pod("p", uid="u", nominated="n1")
    bench.queue.update(pod, ungated)
    assert bench.queue.nominator.pods_on("n1") == [ungated]
    assert seen == ["n1", "n1"]


def test_a_gated_pod_is_nominated_when_its_status_starts_to_name_a_node() -> None:
    """A component that gates a pod and then nominates it keeps its capacity; other pods took it."""
    bench = Bench()
    pod = make_pod("p", uid="u", gates=["a"])
    bench.queue.add(pod)
    named = make_pod("p", uid="u", nominated="n1", gates=["a"])
    bench.queue.update(pod, named)
    assert bench.place(named) == "gated"
    assert bench.queue.nominator.pods_on("n1") == [named]
    bench.queue.update(named, pod)
    assert len(bench.queue.nominator) == 0


def test_a_nomination_that_the_status_does_not_show_yet_outlives_a_gate() -> None:
    """Preemption nominates a pod and closes its gate, both before the API server knows of it."""
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    pod = make_pod("p", uid="u")
    bench.reject(pod)
    bench.queue.nominator.nominate(pod, "n1")
    door.is_open = False
    bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="n"))
    labelled = make_pod("p", uid="u", labels={"a": "b"})
    bench.queue.update(pod, labelled)
    assert bench.queue.nominator.pods_on("n1") == [labelled]
    door.is_open = True
    bench.queue.recheck("u", Trigger.PREEMPTION_DONE)
    assert bench.queue.nominator.pods_on("n1") == [labelled]


def crowded(name: str) -> NodeInfo:
    """A node without room."""
    return NodeInfo(name, make_node(name, cpu="1"), [make_pod(node=name, cpu="1")])


def test_a_pod_is_retried_when_its_nominated_node_loses_a_pod_whether_it_fits_or_not() -> None:
    """Another pod took the capacity: the preemptor has to be retried to look elsewhere."""
    bench = Bench(hints=Hints(node_info=crowded))
    nominated, other = make_pod("p", cpu="1", nominated="n"), make_pod("o", cpu="1")
    bench.reject(nominated)
    bench.reject(other)
    assert bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="elsewhere")) == 0
    assert bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="n")) == 1
    assert bench.place(nominated) == "backoff"
    assert bench.place(other) == "unschedulable"


def test_a_pod_is_retried_when_the_taints_of_its_nominated_node_change() -> None:
    """It may not go there any more; it kept the room there, and looked nowhere else."""
    bench = Bench()
    nominated, other = make_pod("p", cpu="1", nominated="n"), make_pod("o", cpu="1")
    bench.reject(nominated)
    bench.reject(other)
    event = ClusterEvent("Node", "UpdateNodeTaint")
    assert bench.queue.move(event, make_node("m"), make_node("m", taints=[taint("a")])) == 0
    assert bench.queue.move(event, make_node("n"), make_node("n", taints=[taint("a")])) == 1
    assert bench.place(nominated) == "backoff"
    assert bench.place(other) == "unschedulable"


def test_so_is_a_nominated_pod_in_flight() -> None:
    bench = Bench(hints=Hints(node_info=crowded))
    nominated = make_pod("p", cpu="1", nominated="n")
    bench.queue.add(nominated)
    queued = bench.pop()
    bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="n"))
    bench.queue.requeue(queued, FIT)
    assert bench.place(nominated) == "backoff"


def test_pods_that_are_nominated_to_many_nodes_are_not_gone_through_for_each_victim() -> None:
    """They were no more alike when the nomination was among what decides: 150 ms for each event."""
    asked: list[str] = []

    def info(name: str) -> None:
        asked.append(name)  # that it is not known may help

    bench = Bench(hints=Hints(node_info=info))
    for n in range(100):
        bench.reject(make_pod(f"p{n}", uid=f"p{n}", cpu="1", nominated=f"n{n}"))
    assert bench.queue.move(ASSIGNED_POD_DELETE, make_pod(uid="gone", node="other")) == 100
    assert asked == ["other"]


@pytest.mark.parametrize("minor", [37, 38])
def test_from_1_38_on_a_pod_is_retried_whose_nominated_node_shrinks_below_it(minor: int) -> None:
    """Of pods that are alike but for the nomination, that one alone."""
    bench = Bench(hints=hints_with(minor=minor))
    other, nominated = make_pod("o", cpu="3"), make_pod("p", cpu="3", nominated="n")
    bench.reject(other)
    bench.reject(nominated)
    event = ClusterEvent("Node", "UpdateNodeAllocatable")
    moved = bench.queue.move(event, make_node("n", cpu="4"), make_node("n", cpu="2"))
    assert moved == (1 if minor == 38 else 0)
    assert bench.place(nominated) == ("backoff" if minor == 38 else "unschedulable")
    assert bench.place(other) == "unschedulable"


@pytest.mark.parametrize("elsewhere", [None, "n2"])
def test_a_pod_whose_nomination_another_component_clears_or_moves_is_retried(
    elsewhere: str | None,
) -> None:
    """It stayed without the nomination until an event came that could help it."""
    bench = Bench()
    pod = make_pod("p", uid="u", nominated="n1")
    bench.reject(pod)
    bench.queue.update(pod, make_pod("p", uid="u", nominated=elsewhere))
    assert bench.place(pod) == "backoff"
    assert bench.incoming[-1] == ("backoff", "AssignedPodDelete")


def test_a_pod_whose_nomination_is_cleared_here_is_not_retried_when_the_status_follows() -> None:
    bench = Bench()
    pod = make_pod("p", uid="u", nominated="n1")
    bench.reject(pod)
    bench.queue.nominator.nominate(pod, "")
    bench.queue.update(pod, make_pod("p", uid="u"))
    assert bench.place(pod) == "unschedulable"


def test_a_gated_pod_loses_its_nomination_with_its_status() -> None:
    door = Door()
    door.is_open = True
    bench = Bench(pre_enqueue=door)
    pod = make_pod("p", uid="u", nominated="n1")
    bench.reject(pod)
    door.is_open = False
    bench.queue.move(ASSIGNED_POD_DELETE, make_pod(node="n"))
    assert bench.place(pod) == "gated"
    bench.queue.update(pod, make_pod("p", uid="u"))
    assert len(bench.queue.nominator) == 0


def test_pods_that_wait_are_counted_by_their_reason() -> None:
    bench = Bench()
    bench.reject(make_pod("w"))
    bench.queue.move(NODE_ADD, None, big_node())
    bench.reject(make_pod("u"))
    bench.queue.add(make_pod("g", gates=["x"]))
    bench.queue.add(make_pod("a"))
    queue = bench.queue
    fit = ("InsufficientResources", "NodeResourcesFit", "default-scheduler")
    gated = ("GatedByPolicy", "SchedulingGates", "default-scheduler")
    new = ("NotYetTried", "", "default-scheduler")
    assert queue.waiting_reasons() == {fit: 2, gated: 1, new: 1}
    # One that is tried does not wait; one that comes back has another reason; one is deleted.
    tried = bench.pop()
    assert queue.waiting_reasons() == {fit: 2, gated: 1}
    queue.requeue(tried, reason=Reason("BindingFailed"), message="refused")
    assert queue.waiting_reasons()["BindingFailed", "", "default-scheduler"] == 1
    queue.delete(make_pod("g", uid=named(bench, "g").uid, gates=["x"]))
    assert gated not in queue.waiting_reasons()


def named(bench: Bench, name: str) -> QueuedPod:
    found = bench.queue._places.named(f"default/{name}")
    assert found is not None
    return found


def test_a_pod_says_why_it_waits_without_being_decided_again() -> None:
    bench = Bench()
    queued = bench.reject(make_pod("u"))
    assert (queued.reason, queued.reason_text) == (TOO_SMALL, "Insufficient cpu")
    bench.queue.add(make_pod("g", gates=["x"]))
    gated = named(bench, "g")
    assert gated.reason == Reason("GatedByPolicy", "SchedulingGates", condition="SchedulingGated")
    assert gated.reason_text == "waiting for ['x']"


def test_counts_and_description_say_where_pods_are() -> None:
    bench = Bench()
    bench.reject(make_pod("w"))
    bench.queue.move(NODE_ADD, None, big_node())
    bench.reject(make_pod("u"))
    bench.queue.add(make_pod("g", gates=["x"]))
    bench.queue.add(make_pod("f"))
    bench.pop()
    bench.queue.add(make_pod("a"))
    assert bench.queue.counts() == {
        "active": 1,
        "backoff": 1,
        "unschedulable": 1,
        "gated": 1,
        "in_flight": 1,
    }
    bench.clock.advance(0.5)
    got = bench.queue.describe("default/w")
    assert got | {"uid": ""} == {
        "pod": "default/w",
        "uid": "",
        "queue": "backoff",
        "sort_key": [0],
        "attempts": 1,
        "unschedulable_count": 1,
        "error_count": 0,
        "rejectors": ["NodeResourcesFit"],
        "gated_by": None,
        "gate_reason": "",
        "reason": "InsufficientResources",
        "node_helps": True,
        "tried_because": "NodeAdd n (NodeResourcesFit)",
        "moves": [
            "0.5s ago: unknown -> active: new pod",
            "0.5s ago: active -> in_flight: its turn",
            "0.5s ago: in_flight -> unschedulable: rejected",
            "0.5s ago: unschedulable -> backoff: NodeAdd n (NodeResourcesFit)",
        ],
        "seconds_in_queue": 0.5,
        "seconds_of_backoff_left": 1.5,
        "nominated_node": None,
    }
    assert bench.queue.describe("default/unknown") == {}


# --- names, nominations and time that come late ------------------------------------------------


def test_a_known_pod_that_takes_a_name_ends_the_pod_that_had_it() -> None:
    """A restored API server: the deletion of the one and the new name of the other were missed."""
    bench = Bench()
    bench.queue.add(first := make_pod("a", uid="1"))
    bench.queue.add(make_pod("b", uid="2"))
    bench.queue.update(first, make_pod("a", uid="2"))
    bench.queue.check_invariants()
    assert "1" not in bench.queue
    assert bench.queue.describe("default/a")["uid"] == "2"
    assert bench.queue.describe("default/b") == {}


@pytest.mark.parametrize(("nominated", "place"), [("n", "backoff"), (None, "unschedulable")])
def test_labels_of_a_pod_free_capacity_only_where_it_is_nominated(
    nominated: str | None, place: str
) -> None:
    bench = Bench()
    bench.reject(rejected := make_pod("rejected", priority=1))
    before, after = (
        make_pod("other", uid="o", priority=5, nominated=nominated, labels={"app": app})
        for app in ("a", "b")
    )
    bench.queue.add(before)
    bench.queue.update(before, after)
    assert bench.place(rejected) == place


def test_the_next_flush_is_when_the_first_wait_ends() -> None:
    bench = Bench(retries=RetryTimes(max_unschedulable=60.0))
    assert bench.queue.next_flush_in() is None
    bench.clock.advance(1_000.0)
    bench.reject(first := make_pod("first"))
    assert bench.queue.next_flush_in() == 60.0
    bench.clock.advance(20.0)
    bench.reject(make_pod("second"))
    assert bench.queue.next_flush_in() == 40.0
    assert bench.after(39.0) == 0
    assert bench.after(1.0) == 1
    assert bench.place(first) == "active"
    assert bench.queue.next_flush_in() == 20.0
    bench.clock.advance(100.0)
    assert bench.queue.next_flush_in() == 0.0


# --- what another process has tried ------------------------------------------------------------


def _tried(name: str, nominated: str = "", version: str = "1", **words: Any) -> Pod:
    """A pod that its condition says to be unschedulable."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"conditions": [condition], "nominatedNodeName": nominated}
    return make_pod(name, resource_version=version, status=status, **words)


def test_after_a_hand_over_new_pods_go_before_those_that_were_tried() -> None:
    """A new leader went through the whole backlog first: 46 s with 4,022 pods that fit nowhere."""
    bench = Bench()
    for name in ("old-0", "old-1"):
        bench.queue.add(_tried(name, priority=int(name[-1])))
    bench.queue.add(_tried("makes-room", nominated="n", priority=1))
    bench.queue.add(make_pod("new"))
    assert bench.pop_names() == ["makes-room", "new", "old-1", "old-0"]


def test_a_pod_that_was_tried_here_is_no_backlog_whatever_its_condition() -> None:
    bench = Bench()
    mine = bench.reject(make_pod("mine", resource_version="1", priority=1))
    bench.queue.update(mine.pod, _tried("mine", uid=mine.uid, priority=1, version="2"))
    bench.queue.add(make_pod("new"))
    bench.queue.activate([mine.uid])
    assert bench.pop_names() == ["mine", "new"]


def test_a_standby_learns_by_the_condition_that_the_leader_tried_a_pod() -> None:
    bench = Bench()
    pod = make_pod("old", resource_version="1", priority=1)
    bench.queue.add(pod)
    bench.queue.add(make_pod("new"))
    bench.queue.update(pod, _tried("old", uid=pod.uid, priority=1, version="2"))
    bench.queue.check_invariants()
    assert bench.pop_names() == ["new", "old"]
