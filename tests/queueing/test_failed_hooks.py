"""When a hook that failed is asked again."""

from engine.lib.clock import VirtualClock
from engine.queueing.failed_hooks import FailedHooks


class Bench:
    """A hook that fails for the pods in `failing`."""

    def __init__(self, *failing: str) -> None:
        self.clock = VirtualClock()
        self.failing = set(failing)
        self.asked: list[str] = []
        self.hooks = FailedHooks(self.clock, self.ask)
        for uid in failing:
            self.hooks.note(uid)

    def ask(self, uid: str) -> None:
        self.asked.append(uid)
        if uid in self.failing:
            self.hooks.note(uid)

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
