"""How long pods whose policies lose time are throttled, and which of them is tried first."""

import json
from typing import Any

import pytest

from devkit.benchmarks.costly_pods import COSTLY
from engine.core.model.pod import Pod
from engine.core.queueing.throttle import LARGE_POD_BYTES, SLOW_SECONDS, Throttle, Work
from engine.lib.clock import VirtualClock
from engine.policy.evaluator import PolicyFailure
from tests.builders import make_pod, pod_manifest

WHY = "filter() of policy `mine` took too long for other pods"


def failed(kind: str = "deadline") -> PolicyFailure:
    return PolicyFailure("mine", "filter", "mine.star", 1, 1, "did not answer", kind)


def pod(name: str, namespace: str = "team", profile: str = "profile") -> Pod:
    return make_pod(name, uid=name, namespace=namespace, scheduler_name=profile)


def names(count: int) -> list[str]:
    return [f"p{i}" for i in range(count)]


def test_what_others_decide_from_now_on_is_tried_at_the_next_look() -> None:
    """A canary that lost time was given up: those that waited for it would wait for ever."""
    clock = VirtualClock()
    throttle = Throttle(clock)
    throttle.charge(Work.ATTEMPT, pod("slow"), [failed()], 20.0)
    throttle.charge(Work.ATTEMPT, pod("slower"), [failed()], 20.0)
    assert throttle.why_throttled(Work.ATTEMPT, pod("waits")) is not None
    throttle.hook_failed(Work.GATE, pod("gated"), [failed("error")], 0.0)
    throttle.forgive()
    tried: list[tuple[Work, str]] = []

    def try_again(work: Work, uid: str) -> bool:
        tried.append((work, uid))
        return True

    throttle.retry(try_again)
    assert tried == [(Work.ATTEMPT, "waits"), (Work.GATE, "gated")]
    assert not throttle


def test_who_is_decided_by_others_does_not_pay() -> None:
    clock = VirtualClock()
    throttle = Throttle(clock, profile_of=lambda one: "canary" if one.name == "slow" else "")
    for _ in range(3):
        throttle.charge(Work.ATTEMPT, pod("slow"), [failed()], 20.0)
    throttle.charge(Work.ATTEMPT, pod("slow", "other"), [failed()], 20.0)
    assert throttle.why_throttled(Work.ATTEMPT, pod("slow", "third")) is not None
    assert throttle.why_throttled(Work.ATTEMPT, pod("fast")) is None


def test_a_loss_counts_for_the_next_one_though_no_pod_waits() -> None:
    """The pause after a second pod's loss was the shortest, as if it were the first."""
    throttle = Throttle(clock := VirtualClock())
    throttle.charge(Work.ATTEMPT, pod("slow"), [failed()], 10.0)
    clock.advance(1.0)
    throttle.retry(lambda *_: True)
    throttle.charge(Work.ATTEMPT, pod("slower"), [failed()], 10.0)
    clock.advance(19.0)
    assert throttle.why_throttled(Work.ATTEMPT, pod("waits")) == WHY
    clock.advance(1.0)
    assert throttle.why_throttled(Work.ATTEMPT, pod("waits")) is None


def test_large_pods_that_take_long_are_throttled_by_their_namespace_alone() -> None:
    """Ten pods of 1 MB, each of which is bound, kept those of other namespaces waiting for them.

    An ordinary pod that takes long may be the first one on a large cluster.
    """
    throttle = Throttle(clock := VirtualClock())
    assert not throttle.charge_large(pod("ordinary"), 3.0)
    assert not throttle
    large: dict[str, Any] = {"name": "large", "namespace": "team"}
    large["annotations"] = {"x": "y" * LARGE_POD_BYTES}
    one, other = (
        Pod.from_raw(json.dumps({"metadata": large | {"uid": uid}}).encode())
        for uid in ("one", "other")
    )
    assert not throttle.charge_large(one, 0.05)
    assert throttle.charge_large(one, 3.0)
    clock.advance(0.3)
    assert throttle.charge_large(other, 3.0)
    clock.advance(5.9)
    waits = make_pod("waits", "team", uid="waits")
    assert "large pods of this namespace" in (throttle.why_throttled(Work.ATTEMPT, waits) or "")
    assert throttle.why_throttled(Work.ATTEMPT, make_pod("calm", "calm")) is None
    clock.advance(0.2)
    tried: list[str] = []

    def try_again(_: Work, uid: str) -> bool:
        tried.append(uid)
        return True

    throttle.retry(try_again)
    assert tried == ["waits"]


@pytest.mark.parametrize("name", COSTLY)
def test_pods_that_can_take_long_by_what_is_in_them_are_large(name: str) -> None:
    """500 spread constraints, 58 kB, take half a second on 5,000 nodes, and were not."""
    pod = Pod.from_raw(json.dumps(COSTLY[name].pod(0)).encode())
    assert Throttle(VirtualClock()).charge_large(pod, 1.0)


class Bench:
    """A profile whose decisions about the pods in `slow` take the deadline.

    Its pods are tried in their order, one after the other, as long as none is throttled.
    """

    def __init__(self, slow: set[str] | None = None, seconds: float = 2.0) -> None:
        self.clock = VirtualClock()
        self.slow = slow or set()
        self.seconds = seconds
        self.namespaces: dict[str, str] = {}
        self.ready: list[str] = []
        self.gone: set[str] = set()
        self.lost_at: list[float] = []
        self.done: list[str] = []
        self.throttle = Throttle(self.clock)

    def try_again(self, work: Work, uid: str) -> bool:
        assert work is Work.ATTEMPT
        if uid in self.gone:
            return False
        self.ready.append(uid)
        return True

    def work(self) -> None:
        """Try every pod that is ready."""
        while self.ready:
            name = self.ready.pop(0)
            one = pod(name, self.namespaces.get(name, "team"))
            if self.throttle.why_throttled(Work.ATTEMPT, one) is not None:
                continue
            if name in self.slow:
                self.clock.advance(self.seconds)
                self.lost_at.append(self.clock.monotonic())
                self.throttle.charge(Work.ATTEMPT, one, [failed()], self.seconds)
                self.ready.append(name)
            else:
                self.done.append(name)
                self.throttle.succeeded(Work.ATTEMPT, one)

    def run(self, seconds: float) -> None:
        ends_at = self.clock.monotonic() + seconds
        while self.clock.monotonic() < ends_at:
            self.work()
            self.clock.advance(1.0 - self.clock.monotonic() % 1.0)
            self.throttle.retry(self.try_again)


def test_many_slow_pods_leave_others_most_of_the_time() -> None:
    """Each of sixty pods took its two seconds, one after the other, and then each again."""
    bench = Bench(set(names(60)))
    bench.ready = names(60)
    bench.run(600)
    gaps = [after - before for before, after in zip(bench.lost_at, bench.lost_at[1:], strict=False)]
    assert min(gaps) > bench.seconds, "one right after the other"
    assert gaps[:5] == sorted(gaps[:5]), "the pauses do not grow"
    assert max(gaps) <= 30 + bench.seconds + 1
    assert len(bench.lost_at) * bench.seconds < 600 / 8


def test_each_of_many_slow_pods_is_tried_and_tried_again() -> None:
    bench = Bench(set(names(5)))
    bench.ready = names(5)
    bench.run(300)
    assert len(bench.lost_at) > 10


def test_one_pod_holds_up_its_profile_for_a_moment_only() -> None:
    """It is the pod, and not the policy: its own backoff keeps it from coming too often."""
    bench = Bench({"bad"})
    bench.ready = ["bad", "good"]
    bench.work()
    bench.clock.advance(1.0)
    bench.throttle.retry(bench.try_again)
    bench.work()
    assert bench.done == ["good"]


def test_a_pod_that_arrives_after_many_slow_ones_does_not_wait_for_all_of_them() -> None:
    bench = Bench(set(names(60)))
    bench.ready = names(60)
    bench.run(120)
    bench.ready.append("good")
    bench.run(40)
    assert bench.done == ["good"]


def test_all_that_have_lost_no_time_are_tried_as_soon_as_one_succeeds() -> None:
    bench = Bench(set(names(3)))
    bench.ready = [*names(3), *(f"good{i}" for i in range(20))]
    bench.run(60)
    assert len(bench.done) == 20


def test_a_policy_that_behaves_again_is_soon_as_before() -> None:
    bench = Bench(set(names(60)))
    bench.ready = names(60)
    bench.run(300)
    bench.slow.clear()
    bench.run(60)
    assert set(bench.done) == set(names(60))
    bench.run(10)
    assert not bench.throttle


def test_other_profiles_and_other_work_are_not_throttled() -> None:
    throttle = Throttle(VirtualClock())
    throttle.charge(Work.ATTEMPT, pod("p"), [failed()], 2.0)
    assert throttle.why_throttled(Work.ATTEMPT, pod("q")) == WHY
    assert throttle.why_throttled(Work.ATTEMPT, pod("q", "others")) == WHY
    assert throttle.why_throttled(Work.ATTEMPT, pod("q", profile="another")) is None
    assert throttle.why_throttled(Work.GATE, pod("q")) is None


def test_a_slow_group_throttles_attempts_too() -> None:
    """A cycle asks for the group as well: each attempt would fail over it."""
    throttle = Throttle(VirtualClock())
    throttle.charge(Work.GROUP, pod("p"), [failed()], 2.0)
    assert throttle.why_throttled(Work.GROUP, pod("q")) == WHY
    assert throttle.why_throttled(Work.ATTEMPT, pod("q")) == WHY


def test_pods_of_one_namespace_hold_up_those_of_others_for_a_moment_only() -> None:
    """A few pods that run into a deadline held up all pods of the profile."""
    bench = Bench(set(names(20)))
    bench.namespaces = {f"good{i}": "others" for i in range(100)}
    bench.ready = names(20)
    bench.run(120)
    for number in range(100):
        bench.ready.append(f"good{number}")
        bench.run(6)
        assert bench.done == [f"good{i}" for i in range(number + 1)]
    assert len(bench.lost_at) * bench.seconds < 720 / 8


def test_a_policy_that_loses_time_everywhere_is_tried_as_rarely_as_for_one_namespace() -> None:
    bench = Bench(set(names(60)))
    bench.namespaces = {uid: f"team-{number % 20}" for number, uid in enumerate(names(60))}
    bench.ready = names(60)
    bench.run(600)
    assert len(bench.lost_at) * bench.seconds < 600 / 8
    bench.ready.append("good")
    bench.run(40)
    assert bench.done == ["good"]


def test_a_pod_that_is_gone_does_not_take_the_turn_of_another() -> None:
    bench = Bench({"a", "b"})
    bench.ready = ["a", "b", "late", "latest"]
    bench.work()
    bench.gone.add("latest")
    bench.run(5)
    assert "late" in bench.done


def test_other_policies_are_not_throttled() -> None:
    bench = Bench({"a", "b"})
    bench.ready = ["a", "b", "c"]
    bench.work()
    bench.throttle.clear()
    assert not bench.throttle
    assert bench.throttle.why_throttled(Work.ATTEMPT, pod("c")) is None


@pytest.mark.parametrize(
    ("kind", "seconds", "want"),
    [
        pytest.param("deadline", 2.0, True, id="the deadline"),
        pytest.param("memory", 0.7, True, id="a child that died"),
        pytest.param("steps", 0.7, True, id="a loop that is too long"),
        pytest.param("steps", 0.01, False, id="over at once"),
        pytest.param("error", 2.0, False, id="a failure that takes no time by itself"),
    ],
)
def test_what_loses_time(kind: str, seconds: float, want: bool) -> None:
    throttle = Throttle(VirtualClock())
    assert bool(throttle.charge(Work.ATTEMPT, pod("p"), [failed(kind)], seconds)) is want
    assert bool(throttle) is want


@pytest.mark.parametrize(("seconds", "is_lost"), [(SLOW_SECONDS, True), (0.0999, False)])
def test_what_takes_as_long_as_the_limit_has_lost_time(seconds: float, is_lost: bool) -> None:
    throttle = Throttle(VirtualClock())
    assert bool(throttle.charge(Work.ATTEMPT, pod("slow"), [failed()], seconds)) is is_lost
    assert bool(throttle) is is_lost
    large = Pod.from_plain(pod_manifest("large", "other"))
    large.raw = b"x" * (LARGE_POD_BYTES + 1)
    assert throttle.charge_large(large, seconds) is is_lost


def test_a_pod_that_was_done_meanwhile_is_not_tried_again() -> None:
    throttle = Throttle(clock := VirtualClock())
    throttle.charge(Work.ATTEMPT, pod("slow"), [failed()], 1.0)
    for name in ("a", "b"):
        assert throttle.why_throttled(Work.ATTEMPT, pod(name)) is not None
    throttle.succeeded(Work.ATTEMPT, pod("a"))
    clock.advance(100.0)
    tried: list[str] = []

    def try_again(_: Work, uid: str) -> bool:
        tried.append(uid)
        return True

    throttle.retry(try_again)
    throttle.retry(try_again)
    assert tried == ["b"]


def test_other_policies_begin_with_nothing_throttled_and_nothing_to_repeat() -> None:
    throttle = Throttle(VirtualClock())
    throttle.charge(Work.ATTEMPT, pod("slow"), [failed()], 1.0)
    throttle.hook_failed(Work.GATE, pod("gated"), [failed("error")], 0.0)
    throttle.clear()
    assert not throttle
    throttle.retry(lambda *_: pytest.fail("something is tried"))


def test_a_hook_that_works_again_is_repeated_after_a_second_when_it_fails_next() -> None:
    throttle = Throttle(clock := VirtualClock())
    gated, works = pod("gated"), False
    asked: list[float] = []

    def ask(work: Work, uid: str) -> bool:
        asked.append(clock.monotonic())
        if works:
            throttle.succeeded(work, gated)
        else:
            throttle.hook_failed(work, gated, [failed("error")], 0.0)
        return True

    throttle.hook_failed(Work.GATE, gated, [failed("error")], 0.0)
    for _ in range(8):
        throttle.retry(ask)
        clock.advance(1.0)
    assert asked == [0.0, 1.0, 3.0, 7.0]
    works = True
    clock.advance(60.0)
    throttle.retry(ask)
    works = False
    throttle.hook_failed(Work.GATE, gated, [failed("error")], 0.0)
    asked.clear()
    began = clock.monotonic()
    for _ in range(4):
        throttle.retry(ask)
        clock.advance(1.0)
    assert asked == [began, began + 1.0, began + 3.0]
