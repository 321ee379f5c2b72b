"""Both sides are timed alike, on a sample, and where a class of pods is new."""

from collections.abc import Sequence

from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call, Evaluator, InProcessEvaluator
from engine.rollout.measures import ShadowMeasures
from engine.rollout.shadow.comparer import TIMED_FIRST
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.shadow.side import Clocks
from tests.builders import make_node, make_pod
from tests.engine.rollout.shadow.watched import InStep, WatchedWorld
from tests.profiles import only

PROFILE = only("NodeResourcesFit", "size")
SIZE = """
def score(pod, node):
    return len(pod.labels.get("app", "") + node.labels["number"])
"""
FILES = {"config.yaml": PROFILE, "size.star": SIZE}
SLOWER = {**FILES, "size.star": SIZE + "\n# slower for some\n"}


class Time:
    """A clock that stands still but for what evaluations take."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now


class Slow(InProcessEvaluator):
    """Takes a millisecond for each node, of one app."""

    def __init__(self, bundle: Bundle, time: Time, app: str) -> None:
        super().__init__(bundle.program)
        self._time, self._app = time, app.encode()

    def evaluate(self, calls: Sequence[Call]) -> list[Sequence[object]]:
        for call in calls:
            if self._app in call.pod:
                self._time.now += 0.001 * len(call.nodes or ())
        return super().evaluate(calls)


def timed(
    slow: str, *, is_base_slow: bool = False, pods: int = 100, late: str = ""
) -> ShadowMeasures:
    """What a shadow measures of ten apps' pods, if evaluations are slow for one of them.

    Pods of the app *late* come after `TIMED_FIRST` others.
    """
    time = Time()

    def make(bundle: Bundle) -> Evaluator:
        is_slow = is_base_slow or "slower" in bundle.files["size.star"]
        return Slow(bundle, time, slow if is_slow else "no app")

    clocks = Clocks(worked=lambda: 0.0, passed=time.read)
    shadow = Shadow(make, make_worker=InStep, clocks=clocks)
    world = WatchedWorld(FILES, SLOWER, shadow)
    for number in range(5):
        world.add_node(make_node(f"n{number}", cpu=1_000, labels={"number": str(number)}))
    for number in range(pods):
        app = f"app-{number % 10}"
        if app == late and number <= TIMED_FIRST:
            app = "app-0"
        world.add(make_pod(f"{app}x-{number}", cpu=1, labels={"app": app}))
    world.turns(pods)
    return world.shadow.measures


def test_a_candidate_that_is_slow_for_one_class_of_pods_is_seen_to_be() -> None:
    got = timed("app-7")
    assert got.seconds >= 0.005
    assert got.seconds_before == 0.0


def test_both_sides_take_the_same_for_the_same() -> None:
    got = timed("app-7", is_base_slow=True)
    assert got.seconds == got.seconds_before >= 0.005
    assert got.squares == got.squares_before


def test_the_first_decisions_are_timed_and_then_the_first_of_each_class() -> None:
    got = timed("no app", pods=TIMED_FIRST + 50)
    assert (got.compared, got.timed) == (TIMED_FIRST + 50, TIMED_FIRST)


def test_a_class_that_comes_later_is_timed_with_both_sides_in_the_same_state() -> None:
    both = timed("app-7", is_base_slow=True, pods=TIMED_FIRST + 50, late="app-7")
    assert both.timed == TIMED_FIRST + 1
    assert both.seconds == both.seconds_before >= 0.005
    assert timed("app-7", pods=TIMED_FIRST + 50, late="app-7").seconds >= 0.005
