"""Pods of a group leave the queue together, and share their backoff."""

import math

import pytest

from engine.core.queueing.transitions import Place, Trigger
from tests.builders import make_pod
from tests.engine.core.queueing.test_scheduling_queue import FIT, Bench


def test_one_active_pod_can_be_popped_by_its_uid() -> None:
    bench = Bench()
    first, second = make_pod("first"), make_pod("second")
    bench.queue.add(first)
    bench.queue.add(second)
    taken = bench.queue.pop(second.uid)
    assert taken is not None
    assert (taken.pod.name, taken.attempts, taken.place) == ("second", 1, Place.IN_FLIGHT)
    assert bench.queue.pop(second.uid) is None
    bench.queue.check_invariants()
    assert bench.pop_names() == ["first"]
    assert bench.queue.requeue(taken)
    bench.queue.check_invariants()


def test_a_rejected_pod_goes_with_another_of_its_group_and_a_gated_one_does_not() -> None:
    bench = Bench()
    rejected, gated = make_pod("rejected"), make_pod("gated", gates=["wait"])
    bench.reject(rejected)
    bench.queue.add(gated)
    assert bench.place(rejected) == "unschedulable"
    assert bench.queue.pop(rejected.uid) is not None
    assert bench.queue.pop(gated.uid) is None
    bench.queue.check_invariants()


def test_pods_that_were_tried_together_wait_as_long_as_the_one_that_failed_most() -> None:
    bench = Bench()
    old, new = make_pod("old"), make_pod("new")
    for _ in range(8):
        bench.queue.add(old)
        tried = bench.queue.pop(old.uid)
        assert tried is not None
        bench.queue.requeue(tried)
    bench.queue.add(new)
    taken = [one for pod in (old, new) if (one := bench.queue.pop(pod.uid)) is not None]
    bench.queue.align(taken)
    for queued in taken:
        bench.queue.requeue(queued)
    left = [bench.queue.describe(pod.key)["seconds_of_backoff_left"] for pod in (old, new)]
    assert left[0] == left[1]
    # The longest backoff of ten seconds, for two pods.
    assert math.floor(10 * math.sqrt(2)) <= left[0] <= 10 * math.sqrt(2) + 1


def test_a_pod_that_joins_a_group_in_backoff_waits_with_it() -> None:
    bench = Bench()
    old, new = make_pod("old"), make_pod("new")
    bench.queue.add(old)
    tried = bench.queue.pop()
    assert tried is not None
    bench.queue.requeue(tried)
    bench.queue.add(new)
    assert (bench.place(old), bench.place(new)) == ("backoff", "active")
    bench.queue.join([old.uid, new.uid])
    bench.queue.recheck(new.uid, Trigger.GROUP_CHANGED)
    bench.queue.check_invariants()
    assert bench.place(new) == "backoff"


@pytest.mark.parametrize("is_error", [False, True])
def test_a_pod_that_joins_a_group_has_failed_as_often_as_the_last_of_it(is_error: bool) -> None:
    bench = Bench()
    old, new, other = make_pod("old"), make_pod("new"), make_pod("other")
    bench.queue.add(old)
    for _ in range(3):
        tried = bench.queue.pop(old.uid)
        assert tried is not None
        bench.queue.align([tried])
        bench.queue.requeue(tried, frozenset() if is_error else FIT)
    bench.clock.advance(0.5)
    for pod in (new, other):
        bench.queue.add(pod)
    bench.queue.join([old.uid, new.uid, "unknown"])
    counts = ("unschedulable_count", "error_count", "seconds_in_queue")
    of_old, of_new, of_other = (
        [bench.queue.describe(pod.key)[name] for name in counts] for pod in (old, new, other)
    )
    assert of_new == of_old
    assert of_old == ([0, 3, 0.5] if is_error else [3, 0, 0.5])
    assert of_other == [0, 0, 0.0]
