"""When a hook that failed is asked again."""

import pytest

from engine.lib.clock import VirtualClock
from engine.queueing.failed_hooks import FailedHooks


class Bench:
    """A hook that fails for the pods in `failing`."""

    def __init__(self, *failing: str) -> None:
        self.clock = VirtualClock()
        self.failing = set(failing)
        self.asked: list[str] = []
        self.seconds = 0.0
        self.hooks = FailedHooks(self.clock, self.ask)
        for uid in failing:
            self.hooks.note(uid, "profile", "policy", 0.0)

    def ask(self, uid: str) -> None:
        if self.hooks.puts_off(uid, "profile") is not None:
            return
        self.asked.append(uid)
        if uid in self.failing:
            self.clock.advance(self.seconds)
            self.hooks.note(uid, "profile", "policy", self.seconds)
        else:
            self.hooks.forget(uid)

    def run(self, seconds: int) -> list[str]:
        """Who was asked about within so many seconds."""
        before = len(self.asked)
        for _ in range(seconds):
            self.hooks.retry()
            self.clock.advance(1)
        return self.asked[before:]


def test_all_are_asked_about_as_soon_as_the_first_is_answered() -> None:
    bench = Bench("a", "b", "c")
    assert bench.run(1) == ["a"]
    bench.failing.clear()
    assert bench.run(1) == ["b", "c", "a"]
    assert len(bench.hooks) == 0


def test_a_hook_that_fails_for_good_is_asked_once_a_minute_in_the_end() -> None:
    bench = Bench(*(f"p{i}" for i in range(1000)))
    assert len(bench.run(600)) < 20
    assert len(set(bench.asked)) == len(bench.asked)  # each in its turn


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_so_is_one_that_takes_its_time_to_fail(seconds: float) -> None:
    """The rest after a slow failure made the next wait short again: it took a fifth of all time."""
    bench = Bench("a", "b", "c")
    bench.seconds = seconds
    assert len(bench.run(600)) < 20


def test_the_first_wait_is_short_again_after_answers() -> None:
    bench = Bench("a")
    bench.seconds = 2.0
    bench.run(300)
    bench.failing.clear()
    bench.run(60)
    assert len(bench.hooks) == 0
    bench.failing.add("b")
    bench.ask("b")
    assert bench.run(20).count("b") > 1


def test_a_crowd_is_not_asked_about_at_once() -> None:
    bench = Bench(*(f"p{i}" for i in range(1000)))
    bench.failing.clear()
    assert len(bench.run(1)) == 100
    bench.run(9)
    assert len(bench.asked) == 1000


def test_a_pod_whose_hook_has_answered_is_left_alone() -> None:
    bench = Bench("a", "b")
    bench.hooks.forget("a")
    assert bench.run(60).count("a") == 0


def test_pods_that_come_after_a_slow_failure_are_put_off() -> None:
    """A crowd for which the gate ran into its deadline stopped everything for minutes."""
    bench = Bench()
    bench.failing, bench.seconds = {f"p{i}" for i in range(60)}, 2.0
    for uid in sorted(bench.failing):
        bench.ask(uid)
    assert len(bench.asked) == 1
    assert bench.hooks.puts_off("p1", "profile") == "policy"
    assert bench.hooks.puts_off("other", "another profile") is None
    began = bench.clock.monotonic()
    while len(set(bench.asked)) < 60:
        bench.run(1)
    # Most of the time belongs to the others, and everyone has its turn.
    assert 2.0 * len(bench.asked) <= (bench.clock.monotonic() - began) / 4


def test_a_pod_that_was_put_off_does_not_wait_behind_those_that_failed() -> None:
    bench = Bench()
    bench.failing, bench.seconds = {f"p{i}" for i in range(10)}, 2.0
    for uid in sorted(bench.failing):
        bench.ask(uid)
        bench.clock.advance(60)
    bench.ask("p0")
    bench.ask("good")
    assert "good" not in bench.asked
    bench.run(10)
    assert "good" in bench.asked


def test_a_failure_that_takes_no_time_puts_nobody_off() -> None:
    bench = Bench()
    bench.failing = {"a", "b"}
    bench.ask("a")
    bench.ask("b")
    assert bench.asked == ["a", "b"]
