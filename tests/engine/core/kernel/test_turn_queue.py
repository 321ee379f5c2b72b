"""Whose turn it is in a tree of queues, what is held, and what may go on when something is free."""

import itertools
import random
from typing import Any

import pytest

from engine.core.framework.reason_kinds import REASONS
from engine.core.kernel.events import TimePassed
from engine.core.kernel.instructions import ReportDecision, ReportFault, ReportHeld
from engine.core.kernel.turn_standing import hold_text
from engine.core.scheduling.tree_hooks import Hold
from engine.core.sharing.ratios import turn_key_text
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import FAIR, QueueWorld, tree_files
from tests.engine.core.kernel.random_life import FILES, RandomLife
from tests.engine.core.kernel.small_world import CONFIG, World

#: The queue that has least of what it needs most, by weight; no queue has more than its limit.
DRF = (
    FAIR[: FAIR.index("def passes_up")].replace(
        'load("@std/amounts.star", "entry", "plus")',
        'load("@std/amounts.star", "dominant", "over", "plus")',
    )
    + """
def turn_key(queue, total):
    return dominant(queue.allocated, total, queue.weight)

def admit(request, path):
    for q in path:
        short = over(plus(q.allocated, request.resources), q.limit)
        if short:
            return hold("is at its limit", token = "QuotaReached", at = q.path, short = short)
    return None
"""
)

#: The same, and what is used goes up to the root: a cohort's sums are no news of nodes.
PASSING_UP = (
    DRF
    + """
def passes_up(queue):
    return {"used": queue.allocated}
"""
)


def _pod(name: str, queue: str, cpu: int = 1, **more: Any) -> Any:
    labels = {"queue": queue, **more.pop("labels", {})}
    return make_pod(name, cpu=cpu, labels=labels, **more)


def _world(policy: str = DRF, *, cpu: int = 100, **document: Any) -> QueueWorld:
    world = QueueWorld(policy, **document)
    world.add_node(make_node("n", cpu=cpu))
    return world


def _tried(world: QueueWorld, turns: int = 200) -> list[str]:
    before = len(world.done)
    world.turns(turns)
    world.kernel.check_invariants()
    return [one.pod.name for one in world.done[before:] if isinstance(one, ReportDecision)]


def _held(world: QueueWorld) -> list[tuple[str, str, str]]:
    return [(o.pod.name, o.token, o.reason) for o in world.done if isinstance(o, ReportHeld)]


def test_queues_take_turns_by_what_they_have() -> None:
    world = _world(queues={"a": {}, "b": {}})
    for number in range(3):
        world.add(_pod(f"a{number}", "a"))
    for number in range(3):
        world.add(_pod(f"b{number}", "b"))
    assert _tried(world) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_weight_is_worth_so_many_turns() -> None:
    world = _world(queues={"a": {"weight": 3}, "b": {}})
    for number in range(6):
        world.add(_pod(f"a{number}", "a"))
        world.add(_pod(f"b{number}", "b"))
    assert [name[0] for name in _tried(world)[:8]] == ["a", "b", "a", "a", "b", "a", "a", "a"]


def test_turns_are_taken_at_each_level() -> None:
    """Two queues below one have its turns together, not one each."""
    world = _world(queues={"a/x": {}, "a/y": {}, "b": {}})
    for number in range(4):
        for queue in ("a/x", "a/y", "b"):
            world.add(_pod(f"{queue[-1]}{number}", queue))
    assert [name[0] for name in _tried(world)[:8]] == ["x", "b", "y", "b", "x", "b", "y", "b"]


def test_what_runs_already_counts() -> None:
    world = _world(queues={"a": {}, "b": {}})
    for number in range(2):
        world.add(_pod(f"running{number}", "a", node="n"))
        world.add(_pod(f"a{number}", "a"))
    for number in range(3):
        world.add(_pod(f"b{number}", "b"))
    assert _tried(world)[:2] == ["b0", "b1"]


def test_within_a_queue_the_usual_order_holds() -> None:
    world = _world(queues={"a": {}})
    world.add(_pod("first", "a"))
    world.add(_pod("urgent", "a", priority=10))
    assert _tried(world) == ["urgent", "first"]


def test_pods_in_no_queue_go_in_the_usual_order_beside_the_next_of_the_queues() -> None:
    world = _world(queues={"a": {}, "b": {}})
    world.add(_pod("a0", "a"))
    world.add(make_pod("outside", cpu=1))
    world.add(_pod("b0", "b"))
    assert _tried(world) == ["a0", "outside", "b0"]


def test_a_queue_at_its_limit_is_passed_over_and_says_so() -> None:
    world = _world(queues={"a": {"limit": {"cpu": 2}}, "b": {}})
    for number in range(4):
        world.add(_pod(f"a{number}", "a"))
    world.add(_pod("b0", "b"))
    assert _tried(world) == ["a0", "b0", "a1"]
    reason = "queue `a`: is at its limit (short of 1 cpu at `a`)"
    assert _held(world) == [("a2", "QuotaReached", reason)], "those behind it are not reported"
    assert not world.kernel.has_work
    assert world.kernel.waiting_reasons()["QuotaReached", "fair", "default-scheduler"] == 1


def test_only_so_many_go_on_as_have_room() -> None:
    world = _world(queues={"a": {"limit": {"cpu": 2}}, "b": {}})
    for number in range(6):
        world.add(_pod(f"a{number}", "a"))
    assert _tried(world) == ["a0", "a1"]
    world.end_binding(0, succeeds=True)
    world.delete("a0")
    assert _tried(world) == ["a2"]
    assert not world.kernel.has_work


def test_a_smaller_pod_behind_one_that_is_held_goes_unless_the_whole_queue_waits() -> None:
    whole = DRF.replace("short = short)", "short = short, whole_queue = True)")
    for policy, want in ((DRF, ["big0", "small"]), (whole, ["big0"])):
        world = _world(policy, queues={"a": {"limit": {"cpu": 3}}})
        world.add(_pod("big0", "a", cpu=2))
        world.add(_pod("big1", "a", cpu=2))
        world.add(_pod("small", "a"))
        assert _tried(world) == want
        world.add(_pod("later", "a", memory=1))
        assert _tried(world) == (["later"] if policy is DRF and len(want) < 2 else [])
        world.end_binding(0, succeeds=True)
        world.delete("big0")
        assert _tried(world)[:1] == ["big1"]


@pytest.mark.parametrize("policy", [DRF, PASSING_UP], ids=["sums", "passed up"])
def test_room_goes_to_the_queue_whose_turn_it_is(policy: str) -> None:
    """Two queues wait for the limit of the one above them; the one that has less goes on."""
    world = _world(policy, queues={"top": {"limit": {"cpu": 4}}, "top/a": {}, "top/b": {}})
    for number in range(3):
        world.add(_pod(f"run-a{number}", "top/a", node="n"))
    world.add(_pod("run-b0", "top/b", node="n"))
    for number in range(3):
        world.add(_pod(f"a{number}", "top/a"))
    for number in range(3):
        world.add(_pod(f"b{number}", "top/b"))
    assert _tried(world) == []
    world.delete("run-a0")
    assert _tried(world) == ["b0"]
    world.delete("run-a1")
    assert _tried(world) == ["a0"]
    turns = world.kernel.turns
    assert (turns.woken, turns.started, turns.woken_in_vain) == (2, 2, 0), (
        "no queue was asked that starts nothing then"
    )


def test_a_request_that_is_asked_about_in_vain_after_a_second_counts_as_woken() -> None:
    """What became free has been taken again, and only its policy knows if that is the same."""
    world = _world(DRF, queues={"top": {"limit": {"cpu": 2}}, "top/a": {}, "top/b": {}})
    for number in range(2):
        world.add(_pod(f"run{number}", "top/b", node="n"))
    world.add(_pod("a0", "top/a"))
    assert _tried(world) == []
    world.delete("run0")
    world.add(_pod("run2", "top/b", node="n"))
    assert _tried(world) == []
    turns = world.kernel.turns
    assert (turns.woken, turns.woken_in_vain) == (0, 0)
    world.wait(1.5)
    assert _tried(world) == []
    assert (turns.woken, turns.started, turns.woken_in_vain) == (1, 0, 1)
    world.delete("run1")
    assert _tried(world) == ["a0"]
    assert (turns.woken, turns.started, turns.woken_in_vain) == (2, 1, 1)


def test_other_attributes_of_a_queue_are_another_turn_of_those_below_it() -> None:
    by_above = (
        FAIR
        + """
def turn_key(queue):
    sign = -1 if queue.above[0].tier == "reverse" else 1
    return sign * queue.weight
"""
    )
    world = _world(by_above, objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    world.put_queue("top", {})
    for weight, name in enumerate(("a", "b", "c"), 1):
        world.put_queue(name, {"parent": "top", "has": {"weight": weight}})
        for number in range(2):
            world.add(_pod(f"{name}{number}", name))
    assert _tried(world, 1) == ["a0"]
    world.put_queue("top", {"has": {"tier": "reverse"}})
    world.settle()
    assert _tried(world) == ["c0", "c1", "b0", "b1", "a1"]


def test_a_larger_limit_lets_it_go_on() -> None:
    world = _world(objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    world.put_queue("a", {"has": {"limit": {"cpu": "1"}}})
    for number in range(4):
        world.add(_pod(f"a{number}", "a"))
    assert _tried(world) == ["a0"]
    world.put_queue("a", {"has": {"limit": {"cpu": "3"}}})
    world.settle()
    assert _tried(world) == ["a1", "a2"]


def test_a_share_that_grows_lets_it_go_on() -> None:
    by_share = (
        FAIR.replace('"entry", "plus")', '"entry", "over", "plus")')
        + """
def admit(request, path):
    short = over(plus(path[0].allocated, request.resources), path[0].share, of = {"cpu": 1})
    return hold("has its share", short = short, at = path[0].path) if short else None
"""
    )
    world = _world(by_share, cpu=4, queues={"a": {}, "b": {}})
    for number in range(4):
        world.add(_pod(f"a{number}", "a", gates=[]))
        world.add(_pod(f"b{number}", "b"))
    world.settle()
    assert len(_tried(world)) == 4
    assert world.sums("a") == world.sums("b") == {"cpu": 2000}
    world.add_node(make_node("m", cpu=2))
    world.settle()
    assert len(_tried(world)) == 2
    assert world.sums("a") == world.sums("b") == {"cpu": 3000}


@pytest.mark.parametrize(
    ("queue", "token"),
    [("elsewhere", "QueueMissing"), ("a", "QueueNotALeaf"), ("x/y", "QueueNotALeaf")],
)
def test_a_pod_whose_queue_is_not_there_or_no_leaf_waits_for_it(queue: str, token: str) -> None:
    """One of a queue under another that has others under it ended the loop of decisions."""
    queues: dict[str, Any] = {"a/b": {}, "x/y/z": {}}
    world = _world(queues=queues, objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    world.add(_pod("p", queue))
    world.add(_pod("q", "a/b"))
    assert _tried(world) == ["q"]
    assert [(name, told) for name, told, _ in _held(world)] == [("p", token)]
    assert not REASONS[token].node_helps
    if token == "QueueMissing":
        world.put_queue("elsewhere", {})
        world.settle()
        assert _tried(world) == ["p"]


def test_a_policy_without_turns_and_quota_changes_no_order() -> None:
    world = _world(FAIR, queues={"a": {}, "b": {}})
    names = list[str]()
    for number in range(3):
        for queue in ("a", "a", "b", "nowhere"):
            names.append(f"{queue}{len(names)}{number}")
            world.add(_pod(names[-1], queue))
    assert _tried(world) == names


def test_a_policy_that_fails_holds_the_pod_and_is_asked_again() -> None:
    failing = DRF.replace(
        "    for q in path:\n",
        "    1 // (3000 - path[0].allocated.get('cpu', 0))\n    for q in path:\n",
        1,
    )
    world = _world(failing, queues={"a": {}})
    for number in range(3):
        world.add(_pod(f"run{number}", "a", node="n"))
    world.add(_pod("p", "a"))
    assert _tried(world) == []
    ((name, token, reason),) = _held(world)
    assert (name, token) == ("p", "PolicyFailed")
    assert "fair.star:" in reason
    world.delete("run0")
    world.wait(1.1)
    assert _tried(world) == ["p"]


def test_a_group_is_one_request() -> None:
    config = tree_files(DRF, queues={"a": {"limit": {"cpu": 3}}, "b": {}})
    world = World({**config, "config.yaml": CONFIG})
    world.add_node(make_node("n", cpu=100))
    for number in range(2):
        world.add(_pod(f"g{number}", "a", labels={"group": "g", "min": "2"}, cpu=2))
    world.add(_pod("alone", "a", cpu=3))
    world.turns(100)
    tried = [one.pod.name for one in world.done if isinstance(one, ReportDecision)]
    assert tried == ["alone"], "the group wants 4 of 3"
    (report,) = [one for one in world.done if isinstance(one, ReportHeld)]
    assert "short of 1 cpu at `a`" in report.reason
    world.kernel.check_invariants()


def test_what_counts_in_the_root_waits_for_no_turn() -> None:
    world = _world(queues={"a": {"limit": {"cpu": 1}}}, unknown="count")
    world.add(_pod("a0", "a"))
    world.add(_pod("other", "nowhere", cpu=5))
    world.add(_pod("a1", "a"))
    assert sorted(_tried(world)) == ["a0", "other"]
    assert [name for name, *_ in _held(world)] == ["a1"]
    assert world.sums("", "requested") == {"cpu": 7000}


@pytest.mark.parametrize("first", range(0, 16, 4))
def test_nothing_is_lost_whatever_happens(first: int) -> None:
    tree = tree_files(
        DRF.replace('pod.labels.get("queue")', 'pod.labels.get("team")'),
        queues={"x": {"limit": {"cpu": 3}}, "z": {}},
        unknown="z",
    )
    files = {**FILES, "fair.star": tree["fair.star"], "tree.yaml": tree["tree.yaml"]}
    for seed in range(first, first + 4):
        life = RandomLife(seed, files)
        life.live(80)
        life.end_what_is_under_way()
        assert [one for one in life.done if isinstance(one, ReportFault)] == [], seed


def test_where_a_pod_stands_is_known_at_each_level() -> None:
    world = _world(queues={"a": {"limit": {"cpu": 2}}, "a/x": {}, "b": {"weight": 2}}, cpu=2)
    for number in range(4):
        world.add(_pod(f"x{number}", "a/x"))
        world.add(_pod(f"b{number}", "b", cpu=2))
    _tried(world)
    # `x0`, which went first, and `b0` fill the node or fail; `x2` waits for the limit of `a`.
    standing = world.kernel.turns.standing_of(world.known["x3"].uid)
    assert standing is not None
    assert (standing.queue, standing.is_there, standing.place, len(standing.ready)) == (
        "a/x",
        True,
        2,
        2,
    )
    assert standing.head.name == "x2", "it was asked about for those that are like it"
    assert standing.hold is not None
    assert (standing.hold.at, standing.hold.short) == ("a", ("cpu", 1000))
    assert standing.request.resources == {"cpu": 1000, "pods": 1}
    assert [view.queue.path for view in standing.path] == ["a/x", "a", ""]
    assert [(one.path, one.place, one.rivals) for one in standing.levels] == [
        ("a/x", None, 0),
        ("a", None, 0),
    ]
    assert world.kernel.turns.standing_of("nowhere") is None


def test_what_stands_still_and_what_is_next_is_known() -> None:
    world = _world(queues={"a": {"limit": {"cpu": 1}}, "a/x": {}, "b": {}}, cpu=3)
    for number in range(3):
        world.add(_pod(f"x{number}", "a/x"))
        world.add(_pod(f"lost{number}", "nowhere"))
    world.add(_pod("large", "a/x", cpu=2))
    _tried(world)
    turns = world.kernel.turns
    found = {
        (one.queue, one.head.name): (one.is_there, one.pods, one.requests, one.hold.token)
        for one in turns.held()
        if one.hold is not None
    }
    assert found == {
        ("a/x", "x1"): (True, 2, 2, "QuotaReached"),
        ("a/x", "large"): (True, 1, 1, "QuotaReached"),
        ("nowhere", "lost0"): (False, 3, 3, "QueueMissing"),
    }
    head = turns.head_of("a/x")
    assert head is not None
    assert (head.head.name, head.hold is not None) == ("x1", True), "all of it stands still"
    assert turns.head_of("a") is None, "so nothing below it is next"
    world.add(_pod("b0", "b"))
    world.add(_pod("b1", "b", cpu=9))
    assert _tried(world, 1) == ["b0"]
    head = turns.head_of("b")
    assert head is not None
    assert (head.queue, head.head.name, head.group, head.hold) == ("b", "b1", "", None)
    # Those that go while it is read are left out.
    reading = turns.held()
    next(reading)
    for number in range(3):
        world.delete(f"lost{number}")
    assert [one.queue for one in reading] == ["a/x"]


def test_the_keys_that_were_compared_are_known() -> None:
    world = _world(queues={"a": {}, "b": {"weight": 2}})
    world.add(_pod("running", "a", node="n"))
    for queue in "ab":
        world.add(_pod(f"{queue}0", queue))
        world.add(_pod(f"{queue}1", queue))
    assert world.kernel.turns.standing_of(world.known["a0"].uid) is not None
    world.turns(1)  # `b0`
    standing = world.kernel.turns.standing_of(world.known["a1"].uid)
    assert standing is not None
    (level,) = standing.levels
    assert (standing.hold, standing.place, level.place, level.rivals) == (None, 2, 2, 2)
    texts = turn_key_text(level.key), level.first, turn_key_text(level.first_key)
    assert world.kernel.turns.order_below("") == ["b", "a"]
    assert texts == ("0.01", "b", "0"), "as it was when `b0` was popped"


def test_of_a_queue_that_waits_as_a_whole_the_first_is_named() -> None:
    whole = DRF.replace("short = short)", "short = short, whole_queue = True)")
    world = _world(whole, queues={"a": {"limit": {"cpu": 1}}})
    world.add(_pod("big", "a", cpu=2))
    world.add(_pod("small", "a"))
    assert _tried(world) == []
    standing = world.kernel.turns.standing_of(world.known["small"].uid)
    assert standing is not None
    assert (standing.head.name, standing.place, len(standing.ready)) == ("big", 2, 2)


def test_of_a_queue_that_is_not_there_the_name_is_known() -> None:
    world = _world(queues={"a": {}})
    world.add(_pod("p", "nowhere"))
    _tried(world)
    standing = world.kernel.turns.standing_of(world.known["p"].uid)
    assert standing is not None
    assert (standing.queue, standing.is_there, standing.levels) == ("nowhere", False, ())
    assert standing.hold is not None
    assert standing.hold.token == "QueueMissing"


def test_what_is_wrong_with_its_name_is_known_before_a_pod_is_asked_about() -> None:
    """While a pod of no queue has its turn, the one behind it is not asked about."""
    world = _world(queues={"a": {}})
    world.add(make_pod("first"))
    world.add(_pod("p", "nowhere"))
    world.report(TimePassed())
    standing = world.kernel.turns.standing_of(world.known["p"].uid)
    assert standing is not None
    assert standing.hold is not None
    assert (standing.hold.token, standing.head.name) == ("QueueMissing", "p")


@pytest.mark.parametrize("seed", range(30))
def test_whoever_could_start_is_asked_before_the_world_comes_to_rest(seed: int) -> None:
    """Queues with limits at each level, and pods that come and go: none waits that has room."""
    rng = random.Random(seed)
    paths = ["a", "a/x", "a/y", "b", "b/x", "b/y", "c"]
    queues = {
        path: {"limit": {"cpu": rng.randint(1, 6)}} if rng.random() < 0.7 else {} for path in paths
    }
    world = _world(queues=queues, cpu=14)
    leaves, numbers = ["a/x", "a/y", "b/x", "b/y", "c"], itertools.count()
    for _ in range(40):
        if rng.random() < 0.6 or not world.known:
            name = f"p{next(numbers)}"
            world.add(_pod(name, rng.choice(leaves), cpu=rng.randint(1, 3)))
        else:
            world.delete(rng.choice(sorted(world.known)))
        world.turns(200)
        while world.bindings:
            world.end_binding(0, succeeds=True)
        world.wait(11)
        world.turns(200)
        while world.bindings:
            world.end_binding(0, succeeds=True)
        world.kernel.check_invariants()
        free = 14_000 - world.sums("").get("cpu", 0)
        for pod in world.known.values():
            if pod.node_name or pod.requests["cpu"] > free:
                continue
            path = pod.labels["queue"]
            above = [path, path.rpartition("/")[0]] if "/" in path else [path]
            room = [
                queues[one]["limit"]["cpu"] * 1000 - world.sums(one).get("cpu", 0)
                for one in above
                if queues[one]
            ]
            assert min(room, default=free) < pod.requests["cpu"], f"{pod.name} could start"


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("is full", "queue `a/b`: is full"),
        ("queue a/b is full", "queue a/b is full"),
        ("queue `a/b` is full", "queue `a/b` is full"),
        ("queue 'a/b': is full", "queue 'a/b': is full"),
        ("queue a/bc is full", "queue `a/b`: queue a/bc is full"),
        ("queue a/b/c is full", "queue `a/b`: queue a/b/c is full"),
    ],
)
def test_the_queue_is_named_once_whether_the_policy_names_it_or_not(reason: str, want: str) -> None:
    assert hold_text("a/b", Hold(reason)) == want
