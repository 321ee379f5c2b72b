"""When a hook outside of scheduling cycles that failed, or was throttled, is asked again."""

import pytest

from engine.core.queueing.throttle import Throttle, Work
from engine.lib.clock import VirtualClock
from engine.policy.evaluator import PolicyFailure
from tests.builders import make_pod


class Bench:
    """A gate that fails for the pods in `failing`, and takes `seconds` to do so."""

    def __init__(self, *failing: str, seconds: float = 0.0) -> None:
        self.clock = VirtualClock()
        self.failing = set(failing)
        self.asked: list[str] = []
        self.seconds = seconds
        self.throttle = Throttle(self.clock)

    def ask(self, name: str, namespace: str = "team") -> None:
        pod = make_pod(name, uid=f"{namespace}/{name}", namespace=namespace)
        if self.throttle.why_throttled(Work.GATE, pod) is not None:
            return
        self.asked.append(name)
        self.clock.advance(self.seconds)
        if name not in self.failing:
            self.throttle.succeeded(Work.GATE, pod)
            return
        kind = "deadline" if self.seconds else "error"
        failure = PolicyFailure("mine", "pre_enqueue", "mine.star", 1, 1, "no", kind)
        self.throttle.hook_failed(Work.GATE, pod, [failure], self.seconds)

    def try_again(self, work: Work, uid: str) -> bool:
        assert work is Work.GATE
        namespace, name = uid.split("/")
        self.ask(name, namespace)
        return True

    def run(self, seconds: int) -> list[str]:
        """The pods that were asked about within so many seconds."""
        before = len(self.asked)
        for _ in range(seconds):
            self.throttle.retry(self.try_again)
            self.clock.advance(1)
        return self.asked[before:]


def failed_bench(*failing: str) -> Bench:
    """All of *failing* have failed already, at once."""
    bench = Bench(*failing)
    for name in failing:
        bench.ask(name)
    bench.asked.clear()
    return bench


def test_all_are_asked_about_as_soon_as_the_first_is_answered() -> None:
    bench = failed_bench("a", "b", "c")
    assert bench.run(1) == ["a"]
    bench.failing.clear()
    assert bench.run(1) == ["b", "c", "a"]
    assert not bench.throttle


def test_a_hook_that_fails_for_good_is_asked_once_a_minute_in_the_end() -> None:
    bench = failed_bench(*(f"p{i}" for i in range(1000)))
    assert len(bench.run(600)) < 20
    assert len(set(bench.asked)) == len(bench.asked)  # each in its turn


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_so_is_one_that_takes_its_time_to_fail(seconds: float) -> None:
    """The pause after a slow failure made the next wait short again, so it was asked too often."""
    bench = failed_bench("a", "b", "c")
    bench.seconds = seconds
    assert len(bench.run(600)) < 20


def test_the_first_wait_is_short_again_after_answers() -> None:
    bench = failed_bench("a")
    bench.seconds = 2.0
    bench.run(300)
    bench.failing.clear()
    bench.run(120)
    bench.failing.add("b")
    bench.ask("b")
    assert bench.run(20).count("b") > 1


def test_many_are_not_asked_about_in_one_go() -> None:
    """Decisions have their turn in between."""
    bench = failed_bench(*(f"p{i}" for i in range(1000)))
    bench.failing.clear()
    bench.seconds = 0.001
    assert 90 < len(bench.run(1)) < 110
    bench.run(11)
    assert len(bench.asked) == 1000


def test_a_pod_whose_hook_has_answered_is_left_alone() -> None:
    bench = failed_bench("a", "b")
    bench.failing.remove("a")
    bench.ask("a")
    assert bench.run(60).count("a") == 0


def test_pods_that_come_after_slow_failures_are_throttled() -> None:
    """A crowd for which the gate ran into its deadline stopped everything for minutes."""
    bench = Bench(*(f"p{i}" for i in range(60)), seconds=2.0)
    for name in sorted(bench.failing):
        bench.ask(name)
    assert len(bench.asked) == 1
    began = bench.clock.monotonic()
    while len(set(bench.asked)) < 60:
        bench.run(1)
    # Most of the time belongs to the others, and every pod has its turn.
    assert 2.0 * len(bench.asked) <= (bench.clock.monotonic() - began) / 4


def test_a_throttled_pod_does_not_wait_behind_those_that_failed() -> None:
    bench = Bench(*(f"p{i}" for i in range(10)), seconds=2.0)
    for name in sorted(bench.failing):
        bench.ask(name)
        bench.clock.advance(60)
    bench.ask("p0")
    bench.ask("good")
    assert "good" not in bench.asked
    bench.run(35)
    assert "good" in bench.asked


def test_a_pod_of_another_namespace_hardly_waits() -> None:
    bench = Bench(*(f"p{i}" for i in range(10)), seconds=2.0)
    for name in sorted(bench.failing):
        bench.ask(name)
        bench.clock.advance(31)
    bench.ask("p0")
    bench.clock.advance(1)
    bench.ask("good", "others")
    assert "good" in bench.asked


def test_a_failure_that_takes_no_time_throttles_no_pod() -> None:
    bench = Bench("a", "b")
    bench.ask("a")
    bench.ask("b")
    assert bench.asked == ["a", "b"]
