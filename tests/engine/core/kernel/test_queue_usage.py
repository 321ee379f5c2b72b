"""What queues used in the past, in a kernel: what goes by it, when that changes, what is saved."""

import itertools
from typing import Any, Final

import pytest

from engine.core.kernel.events import UsageRestored
from engine.core.kernel.instructions import ReportDecision, ReportHeld
from engine.core.kernel.kernel import Kernel
from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import FAIR, QueueWorld, tree_files
from tests.engine.core.kernel.random_life import FILES, RandomLife
from tests.engine.core.kernel.small_world import World

#: The queue that used least goes next; one that used half of the cluster waits.
BY_PAST: Final = (
    FAIR[: FAIR.index("def passes_up")]
    + """
def turn_key(queue):
    return queue.usage.get("cpu", 0)

def admit(request, path):
    if path[0].usage.get("cpu", 0) > 500:
        return hold("has used half of the cluster", token = "UsedMuch")
    return None
"""
)
_MINUTE: Final = {"halfLife": "1m", "sampling": "5s"}
_QUEUES: Final[dict[str, Any]] = {"a": {}, "b": {}}


def _pod(name: str, queue: str, cpu: int = 1) -> Any:
    return make_pod(name, cpu=cpu, labels={"queue": queue})


def _world(policy: str = BY_PAST, **document: Any) -> QueueWorld:
    world = QueueWorld(policy, **{"queues": _QUEUES, "usage": _MINUTE, **document})
    world.add_node(make_node("n", cpu=100))
    return world


def _usage(world: World, path: str = "a") -> dict[str, int]:
    world.kernel.check_invariants()
    found = world.kernel.shares.state(path).usage
    assert found is not None
    return dict(found)


def _tried(world: QueueWorld) -> list[str]:
    """Which of two pods, one of each queue, is tried first; both are gone afterwards."""
    before = len(world.done)
    for name in ("a", "b"):
        world.add(_pod(f"probe-{name}", name))
    world.turns(10)
    for name in ("a", "b"):
        world.delete(f"probe-{name}")
    done = world.done[before:]
    return [one.pod.name.removeprefix("probe-") for one in done if isinstance(one, ReportDecision)]


def test_usage_counts_in_a_queue_and_in_those_above() -> None:
    world = _world(queues={"a/x": {}, "b": {}})
    world.add(_pod("one", "a/x", 40).with_node("n"))
    world.add(_pod("two", "b", 40).with_node("n"))
    world.wait(60.0)
    assert [_usage(world, path) for path in ("a/x", "a", "b")] == [{"cpu": 200}] * 3
    assert _usage(world, "") == {"cpu": 400}
    world.delete("two")
    world.wait(60.0)
    assert (_usage(world, "b"), _usage(world, "")) == ({"cpu": 100}, {"cpu": 400})


def test_the_order_changes_at_sampling_steps_alone() -> None:
    """b goes first until it has used more than a, which is seen at a multiple of five seconds."""
    world = _world()
    world.add(_pod("of-a", "a", 40).with_node("n"))
    world.wait(20.0)
    world.delete("of-a")
    world.add(_pod("of-b", "b", 40).with_node("n"))
    seen = []
    for _ in range(120):
        world.wait(0.25)
        first = _tried(world)[0]
        seen.append((world.clock.monotonic(), _usage(world, "b").get("cpu", 0), first))
    changes = [
        (now, one) for (_, *before), (now, *one) in itertools.pairwise(seen) if before != one
    ]
    assert [one for _, one in changes] == [
        [22, "b"],
        [44, "b"],
        [64, "b"],
        [83, "a"],
        [100, "a"],
        [117, "a"],
    ]
    assert all(now % 5.0 == 0 for now, _ in changes)


def test_it_wakes_at_multiples_and_only_while_there_is_something_to_read() -> None:
    world = _world()
    world.settle()
    assert world.kernel.shares.wakes_at() is None
    world.wait(1.25)
    world.add(_pod("one", "a", 40).with_node("n"))
    world.settle()
    assert world.kernel.shares.wakes_at() == 5.0
    world.wait(5.0)
    assert world.kernel.shares.wakes_at() == 10.0
    world.delete("one")
    world.wait(3600.0)
    assert (world.kernel.shares.wakes_at(), _usage(world)) == (None, {})


def test_a_request_that_waits_for_a_smaller_usage_is_asked_about_again() -> None:
    world = _world()
    world.add(_pod("much", "a", 90).with_node("n"))
    world.wait(90.0)
    world.delete("much")
    world.add(_pod("next", "a"))
    world.turns(10)
    held = [one.token for one in world.done if isinstance(one, ReportHeld)]
    assert (held, _usage(world)) == (["UsedMuch"], {"cpu": 582})
    world.wait(5.0)
    world.turns(10)
    assert not world.bindings
    world.wait(10.0)
    world.turns(10)
    assert [one.pod.name for one in world.bindings] == ["next"]


def test_shares_go_by_it() -> None:
    policy = FAIR.replace("weight = q.weight)", 'weight = 1000 - q.usage.get("cpu", 0))')
    world = _world(policy)
    for name in ("a", "b"):
        world.add(_pod(f"waits-{name}", name, 200))
    assert [(world.shares()[name] or {})["cpu"] for name in ("a", "b")] == [50_000, 50_000]
    world.add(_pod("one", "a", 80).with_node("n"))
    world.wait(60.0)
    got = [(world.shares()[name] or {})["cpu"] for name in ("a", "b")]
    assert got == [37_500, 62_500]  # 600 to 1,000


def test_a_policy_that_does_not_read_it_is_not_asked_again() -> None:
    world = _world(FAIR)
    world.add(_pod("one", "a", 40).with_node("n"))
    world.settle()
    world.wait(60.0)
    assert _usage(world) == {"cpu": 200}
    assert not world.kernel.shares.has_moved or not world.kernel.shares.aged


def test_without_it_nothing_is_kept() -> None:
    world = QueueWorld(queues=_QUEUES)
    world.add_node(make_node("n", cpu=100))
    world.add(_pod("one", "a", 40).with_node("n"))
    world.settle()
    world.report(UsageRestored({"a": {"cpu": 10**9}}, 0.0))
    assert not world.kernel.shares.keeps_usage
    assert world.kernel.shares.state("a").usage is None
    assert world.kernel.shares.wakes_at() is None
    assert world.kernel.shares.usage_to_save(60.0) == {}


def test_it_outlives_an_edit_of_the_policies() -> None:
    world = _world()
    world.add(_pod("one", "a", 80).with_node("n"))
    world.wait(60.0)
    world.switch()
    world.settle()
    assert _usage(world) == {"cpu": 400}
    world.wait(60.0)
    assert _usage(world) == {"cpu": 600}


def test_a_process_that_starts_goes_on_with_the_time_that_passed() -> None:
    world = _world()
    world.add(_pod("one", "a", 80).with_node("n"))
    world.add(_pod("gone", "b", 16).with_node("n"))
    world.wait(60.0)
    saved = world.kernel.shares.usage_to_save(world.clock.monotonic())
    assert saved == {"": {"cpu": 480_000_000}, "a": {"cpu": 400_000_000}, "b": {"cpu": 80_000_000}}
    other = _world()
    other.wait(7.0)
    other.add(_pod("one", "a", 80).with_node("n"))
    other.report(UsageRestored(saved, 120.0))
    other.kernel.check_invariants()
    assert [_usage(other, path)["cpu"] for path in ("a", "b", "")] == [700, 20, 720]
    assert _tried(other) == ["b"], "a has used more than half of the cluster"


def _life(seed: int, usage: list[dict[str, Any]]) -> RandomLife:
    policy = BY_PAST.replace('pod.labels.get("queue")', 'pod.labels.get("team")')
    queues = {"x": {"weight": 2}, "x/y": {}}
    tree = tree_files(policy, queues=queues, unknown="x/y", usage={"halfLife": "30s"})
    life = RandomLife(
        seed, {**FILES, "fair.star": tree["fair.star"], "tree.yaml": tree["tree.yaml"]}
    )
    for _ in range(8):
        life.live(10)
        life.check()
        usage.append({one.queue.path: one.usage for one in life.kernel.shares.states()})
    return life


def test_the_same_events_give_the_same_usage() -> None:
    """To the last digit of what is saved, and so the same order and the same instructions."""
    has_used = 0
    for seed in range(8):
        shown: tuple[list[dict[str, Any]], ...] = ([], [])
        lives = [_life(seed, one) for one in shown]
        assert shown[0] == shown[1], seed
        saved = [life.kernel.shares.usage_to_save(life.clock.monotonic()) for life in lives]
        assert saved[0] == saved[1], seed
        has_used += any(usage for one in shown[0] for usage in one.values())
    assert has_used >= 3


def test_the_time_that_policies_take_is_not_in_it() -> None:
    """A replay, for which they take none, has the same."""
    saved = []
    for step in (0.0, 0.003):
        ticks = itertools.count()

        def make_kernel(*parts: Any, step: float = step, ticks: Any = ticks, **more: Any) -> Kernel:
            return Kernel(*parts, stopwatch=lambda: next(ticks) * step, **more)

        world = World(tree_files(BY_PAST, queues=_QUEUES, usage=_MINUTE), make_kernel)
        world.add_node(make_node("n", cpu=100))
        for number in range(5):
            world.add(_pod(f"p{number}", "a", 10))
            world.turns(3)
            world.wait(1.7)
        saved.append((world.kernel.shares.usage_to_save(60.0), len(world.bindings)))
    assert saved[0] == saved[1]
    assert saved[0][1] == 5


@pytest.mark.parametrize(
    ("usage", "policy", "want"),
    [
        pytest.param(
            {"halfLife": 0},
            FAIR,
            "usage.halfLife: want a duration of at least 1ms, got 0: usage would always be 0",
            id="half-life 0",
        ),
        pytest.param({}, FAIR, "usage: halfLife: required value", id="no half-life"),
        pytest.param(
            {"halfLife": "1h", "sampling": "5ms"},
            FAIR,
            'usage.sampling: want a duration of at least 1s, got "5ms"',
            id="sampled too often",
        ),
        pytest.param(
            None,
            BY_PAST,
            "policy: `fair` reads `usage` of queues (fair.star:23), which is not kept",
            id="read and not kept",
        ),
    ],
)
def test_what_is_wrong_is_said_at_its_line(
    usage: dict[str, Any] | None, policy: str, want: str
) -> None:
    document = {} if usage is None else {"usage": usage}
    with pytest.raises(PolicyErrors) as found:
        build_bundle(tree_files(policy, queues=_QUEUES, **document))
    (problem,) = [one for one in str(found.value).splitlines() if "tree.yaml" in one]
    assert want in problem
    assert problem.startswith("tree.yaml:")


_TURNED_ON: Final = (
    'args = plugin_args(past = 0)\n\ntree = queue_attributes(weight = 1, limit = {}, tier = "")'
)


@pytest.mark.parametrize(
    "read",
    [
        "q.usage.get(r, 0) if args.past else 0",
        "args.past and q.usage.get(r, 0)",
        "0 if not (args.past and q.usage) else 1",
    ],
)
def test_what_an_argument_turns_off_is_not_read(read: str) -> None:
    head, tail = FAIR.split('tree = queue_attributes(weight = 1, limit = {}, tier = "")')
    policy = head + _TURNED_ON + tail.replace("weight = q.weight)", f"weight = 1 + ({read}))")
    build_bundle(tree_files(policy, queues=_QUEUES))
    with pytest.raises(PolicyErrors, match="is not kept"):
        build_bundle(tree_files(policy, queues=_QUEUES, args={"past": 1}))
    build_bundle(tree_files(policy, queues=_QUEUES, args={"past": 1}, usage=_MINUTE))
