"""How long a pod waits after a failure."""

import pytest

from engine.core.queueing.backoff_queue import BackoffQueue
from engine.core.queueing.queued_pod import QueuedPod
from engine.lib.clock import VirtualClock
from tests.builders import make_pod


def queued(timestamp: float = 0.0, *, rejected: int = 0, errors: int = 0) -> QueuedPod:
    rejectors = frozenset({"NodeName"} if rejected and not errors else ())
    return QueuedPod(
        make_pod(), (), timestamp, 1, unschedulable_count=rejected, error_count=errors,
        rejectors=rejectors,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("count", "want"),
    [
        pytest.param(0, 0, id="no failure, no wait"),
        pytest.param(1, 1, id="first"),
        pytest.param(2, 2, id="doubles"),
        pytest.param(3, 4, id="doubles per failure"),
        pytest.param(4, 8, id="still below the ceiling"),
        pytest.param(5, 10, id="at the ceiling"),
        pytest.param(1_000_000, 10, id="never above the ceiling"),
    ],
)
def test_the_wait_doubles_up_to_the_ceiling(count: int, want: float) -> None:
    assert BackoffQueue(VirtualClock(), 1.0, 10.0).backoff_for(count) == want


def test_an_initial_wait_above_the_ceiling_is_cut() -> None:
    assert BackoffQueue(VirtualClock(), 30.0, 10.0).backoff_for(1) == 10.0


def test_a_ceiling_of_zero_switches_waiting_off() -> None:
    queue = BackoffQueue(VirtualClock(), 1.0, 0.0)
    assert queue.backoff_for(3) == 0.0
    assert not queue.is_backing_off(queued(rejected=3))


def test_errors_in_a_row_decide_over_rejections() -> None:
    queue = BackoffQueue(VirtualClock(), 1.0, 10.0)
    assert queue.expiry(queued(rejected=4, errors=1)) == 1.0
    assert queue.expiry(queued(rejected=4)) == 8.0


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(1.5, True, id="before the end"),
        pytest.param(2.0, True, id="in the second of the end"),
        pytest.param(2.999, True, id="still in that second"),
        pytest.param(3.0, False, id="when that second is over"),
    ],
)
def test_the_wait_ends_with_the_second_of_its_end(now: float, want: bool) -> None:
    clock = VirtualClock()
    queue = BackoffQueue(clock, 1.0, 10.0)
    pod = queued(1.7, rejected=1)  # until 2.7, which is in second 2
    clock.advance(now)
    assert queue.is_backing_off(pod) is want


def test_pods_of_one_second_come_back_together_in_the_order_of_their_keys() -> None:
    clock = VirtualClock()
    queue = BackoffQueue(clock, 1.0, 10.0)
    low = QueuedPod(make_pod(), ((0, 5),), 0.1, 1, unschedulable_count=1, rejectors=frozenset("A"))
    high = QueuedPod(make_pod(), ((0, 1),), 0.9, 2, unschedulable_count=1, rejectors=frozenset("A"))
    queue.add(low)
    queue.add(high)
    assert queue.pop_expired() == []
    clock.advance(2.0)
    assert queue.pop_expired() == [high, low]
    assert len(queue) == 0


def test_pods_with_errors_are_not_popped_early() -> None:
    queue = BackoffQueue(VirtualClock(), 1.0, 10.0)
    queue.add(queued(errors=1))
    assert queue.pop_early() is None
    rejected = queued(rejected=1)
    queue.add(rejected)
    assert queue.pop_early() is rejected
    queue.check_invariants()


def test_the_next_expiry_is_when_a_second_ends() -> None:
    clock = VirtualClock()
    queue = BackoffQueue(clock, 1.0, 10.0)
    assert queue.next_expiry_in() is None
    queue.add(queued(0.5, rejected=2))
    queue.add(queued(0.5, errors=1))
    assert queue.next_expiry_in() == 2.0
    clock.advance(2.0)
    assert queue.next_expiry_in() == 0.0
    assert len(queue.pop_expired()) == 1
    assert queue.next_expiry_in() == 1.0
