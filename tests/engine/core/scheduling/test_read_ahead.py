"""Which inputs are foreseen after those that had to be asked."""

from engine.core.caching.cache import Cache
from engine.core.scheduling.read_ahead import AHEAD, MOST_NUMBERS, ReadAhead
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod
from tests.profiles import only

_FRAGILE = """
_ALIKE = struct(labels = {"app": "a"}, expressions = [])

def counters(pod):
    return {"score": [count_pods("zone", [pods_in([pod.namespace], _ALIKE)])]}

def score(pod, node, counts):
    return 100 // (9 - counts[0].here)
"""


def test_two_equal_steps_go_on() -> None:
    ahead = ReadAhead()
    assert ahead.after((0, 5)) == []
    assert ahead.after((0, 7)) == []
    assert ahead.after((0, 9)) == [(0, 9 + 2 * times) for times in range(1, AHEAD + 1)]


def test_what_follows_the_last_one_foreseen_continues() -> None:
    ahead = ReadAhead()
    for count in (1, 2, 3):
        found = ahead.after((count,))
    (last,) = found[-1]
    assert ahead.after((last + 1,))[0] == (last + 2,)


def test_another_step_ends_it() -> None:
    ahead = ReadAhead()
    for count in (1, 2, 3):
        ahead.after((count,))
    assert ahead.after((5,)) == []


def test_no_step_jumps_and_many_numbers_are_not_followed() -> None:
    for numbers in ([(4,)] * 3, [(0,), (5_000,), (10_000,)]):
        ahead = ReadAhead()
        assert [ahead.after(each) for each in numbers] == [[], [], []]
    ahead = ReadAhead()
    many = [(count,) * (MOST_NUMBERS + 1) for count in range(3)]
    assert [ahead.after(each) for each in many] == [[], [], []]


def test_inputs_that_have_something_else_in_common_are_not_compared() -> None:
    ahead = ReadAhead()
    ahead.after((1,), of="zone")
    ahead.after((2,), of="zone")
    assert ahead.after((3,), of="host") == []


def test_failures_among_what_was_foreseen_fail_only_pods_that_need_it() -> None:
    files = {"fragile.star": _FRAGILE, "profile.yaml": only("fragile")}
    bundle = build_bundle(files)
    cache = Cache()
    cache.add_node(make_node("n0", cpu="64", labels={"zone": "a"}))
    cache.add_node(make_node("n1", cpu="64", labels={"zone": "a"}))
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    failed = []
    for number in range(12):
        pod = make_pod(f"p{number}", labels={"app": "a"})
        decision = scheduler.schedule(pod, cache.snapshot())
        failed.append(decision.is_error)
        cache.assume(pod, decision.node or "n0")
    # It divides by zero for 9 pods and is below 0 beyond; both were foreseen from the third pod on.
    assert failed == [number >= 9 for number in range(12)]
