"""Pods that only make sense together are tried one after the other."""

from engine.queueing.transitions import Place
from tests.builders import make_pod
from tests.queueing.test_scheduling_queue import Bench


def test_pods_activated_to_the_front_go_first_in_the_order_of_their_arrival() -> None:
    bench = Bench()
    pods = {name: make_pod(name) for name in ("a", "b", "c", "d")}
    for pod in pods.values():
        bench.queue.add(pod)
    bench.queue.add(make_pod("urgent", priority=1000))
    bench.queue.activate([pods["d"].uid, pods["c"].uid], to_front=True)
    bench.queue.check_invariants()
    assert bench.pop_names() == ["c", "d", "urgent", "a", "b"]


def test_pods_go_to_the_front_where_nothing_orders_the_queue() -> None:
    bench = Bench(key_of=lambda pod: ())
    pods = [make_pod(name) for name in ("a", "b", "c")]
    for pod in pods:
        bench.queue.add(pod)
    bench.queue.activate([pods[2].uid], to_front=True)
    assert bench.pop_names() == ["c", "a", "b"]


def test_a_rejected_pod_goes_to_the_front_without_backoff_and_a_gated_one_does_not() -> None:
    bench = Bench()
    rejected, gated = make_pod("rejected"), make_pod("gated", gates=["wait"])
    bench.reject(rejected)
    bench.queue.add(gated)
    bench.queue.activate([rejected.uid, gated.uid, "unknown"], to_front=True)
    bench.queue.check_invariants()
    assert bench.pop_names() == ["rejected"]
    assert bench.place(gated) == "gated"


def test_a_pod_goes_to_the_front_only_once_the_backoff_after_its_error_is_over() -> None:
    """Pods of one group evicted each other in permit: each activated the other, without end."""
    bench = Bench()
    failed = make_pod("failed")
    bench.queue.add(failed)
    bench.queue.requeue(bench.pop())
    bench.queue.activate([failed.uid], to_front=True)
    assert bench.place(failed) == "backoff"
    bench.after(1.0)
    bench.after(1.0)
    bench.queue.add(make_pod("urgent", priority=1000))
    bench.queue.activate([failed.uid], to_front=True)
    bench.queue.check_invariants()
    assert bench.pop_names() == ["failed", "urgent"]


def test_one_active_pod_can_be_popped_by_its_uid() -> None:
    bench = Bench()
    first, second = make_pod("first"), make_pod("second")
    bench.queue.add(first)
    bench.queue.add(second)
    taken = bench.queue.pop(second.uid)
    assert taken is not None
    assert (taken.pod.name, taken.attempts, taken.place) == ("second", 1, Place.IN_FLIGHT)
    assert bench.queue.is_being_tried(second.uid)
    assert bench.queue.pop(second.uid) is None
    bench.queue.check_invariants()
    assert bench.pop_names() == ["first"]
    assert bench.queue.requeue(taken)
    bench.queue.check_invariants()
    assert not bench.queue.is_being_tried(second.uid)
