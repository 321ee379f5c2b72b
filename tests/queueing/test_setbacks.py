"""How long the pods of a profile that loses time are put off, and who of them is tried first."""

import pytest

from engine.lib.clock import VirtualClock
from engine.policy.evaluator import PolicyFailure
from engine.queueing.setbacks import Setbacks, losses


def failed(kind: str = "deadline") -> PolicyFailure:
    return PolicyFailure("mine", "filter", "mine.star", 1, 1, "did not answer", kind)


class Bench:
    """A profile whose decisions about the pods in `slow` take the deadline.

    Its pods are tried in their order, one after the other, as long as none is put off.
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
        self.setbacks = Setbacks(self.clock, self.let_in)

    def let_in(self, uid: str) -> bool:
        if uid in self.gone:
            return False
        self.ready.append(uid)
        return True

    def work(self) -> None:
        """Try everybody who is ready."""
        while self.ready:
            uid = self.ready.pop(0)
            whose = uid, "profile", self.namespaces.get(uid, "team")
            if self.setbacks and self.setbacks.puts_off(*whose):
                continue
            if uid in self.slow:
                self.clock.advance(self.seconds)
                self.lost_at.append(self.clock.monotonic())
                self.setbacks.lose(*whose, failed(), self.seconds)
                self.ready.append(uid)
            else:
                self.done.append(uid)
                self.setbacks.decided(*whose)

    def run(self, seconds: float) -> None:
        ends_at = self.clock.monotonic() + seconds
        while self.clock.monotonic() < ends_at:
            self.work()
            self.clock.advance(1.0 - self.clock.monotonic() % 1.0)
            self.setbacks.retry()


def names(count: int) -> list[str]:
    return [f"p{i}" for i in range(count)]


def test_a_crowd_leaves_others_most_of_the_time() -> None:
    """Each of sixty pods took its two seconds, one after the other, and then each again."""
    bench = Bench(set(names(60)))
    bench.ready = names(60)
    bench.run(600)
    gaps = [after - before for before, after in zip(bench.lost_at, bench.lost_at[1:], strict=False)]
    assert min(gaps) > bench.seconds, "one right after the other"
    assert gaps[:5] == sorted(gaps[:5]), "the rests do not grow"
    assert max(gaps) <= 30 + bench.seconds + 1
    assert len(bench.lost_at) * bench.seconds < 600 / 8


def test_every_one_of_a_crowd_is_tried_and_tried_again() -> None:
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
    bench.setbacks.retry()
    bench.work()
    assert bench.done == ["good"]


def test_who_comes_after_a_crowd_does_not_wait_for_all_of_it() -> None:
    bench = Bench(set(names(60)))
    bench.ready = names(60)
    bench.run(120)
    bench.ready.append("good")
    bench.run(40)
    assert bench.done == ["good"]


def test_all_that_have_lost_no_time_are_let_in_as_soon_as_one_is_decided() -> None:
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
    assert not bench.setbacks


def test_other_profiles_are_not_put_off() -> None:
    bench = Bench()
    bench.setbacks.lose("p", "profile", "team", failed(), 2.0)
    assert bench.setbacks.puts_off("q", "profile", "team") is not None
    assert bench.setbacks.puts_off("q", "profile", "others") is not None
    assert bench.setbacks.puts_off("q", "another", "team") is None


def test_pods_of_one_namespace_hold_up_those_of_others_for_a_moment_only() -> None:
    """Whoever could make a few pods that run into a deadline held up all pods of the profile."""
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


def test_other_policies_begin_anew() -> None:
    bench = Bench({"a", "b"})
    bench.ready = ["a", "b", "c"]
    bench.work()
    bench.setbacks.forget()
    assert not bench.setbacks
    assert bench.setbacks.puts_off("c", "profile", "team") is None


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
    assert bool(losses([failed(kind)], seconds)) is want
