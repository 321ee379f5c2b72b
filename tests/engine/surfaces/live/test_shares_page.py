"""What `/queues` says of a tree, and who lacks what others have."""

from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from engine.core.kernel.queue_shares import QueueShares
from engine.surfaces.live.answers import Leader
from engine.surfaces.live.share_answers import (
    NextRequest,
    PodCounts,
    ResourceStanding,
    ShareAnswer,
    ShareRow,
    SharesPage,
)
from engine.surfaces.live.share_pairs import SharePairs
from engine.surfaces.live.shares_page import ShareFilter, share_answer, shares_page
from engine.surfaces.state_dump import dump
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import FAIR, QueueWorld
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_reclaims import SHARED, ReclaimWorld
from tests.engine.core.kernel.test_turn_queue import DRF

Result = TypeVar("Result")
TEAMS = {"research": {"weight": 3}, "research/vision": {}, "research/speech": {}, "web": {}}
WHO: dict[str, Any] = {"revision": "3f2a9c41d07b", "leader": Leader()}


def made(steps: Generator[None, None, Result]) -> tuple[Result, int]:
    """What *steps* return, and how many they were."""
    number = 0
    while True:
        try:
            next(steps)
            number += 1
        except StopIteration as end:
            result: Result = end.value
            return result, number


def page(world: World, **wanted: Any) -> SharesPage:
    steps = shares_page(world.kernel, ShareFilter(**wanted), clock=world.clock, **WHO)
    return made(steps)[0]


def answer(world: World, path: str, **words: Any) -> ShareAnswer:
    return made(share_answer(world.kernel, path, clock=world.clock, **WHO, **words))[0]


def pods(world: QueueWorld, queue: str, count: int, **words: Any) -> None:
    """Pods of one core each."""
    for number in range(count):
        name = f"{queue.rpartition('/')[2]}-{words.get('node', 'waits')}-{number}"
        words = {"cpu": 1, "labels": {"queue": queue}, **words}
        if "node" not in words:
            words.setdefault("gates", ["example.com/wait"])
        world.add(make_pod(name, **words))


@pytest.fixture
def contested() -> QueueWorld:
    """Eight cores: web has seven and waits for more, vision has one and waits for six."""
    world = QueueWorld(queues=TEAMS)
    world.add_node(make_node("n", cpu=8, memory=0))
    pods(world, "web", 7, node="n")
    pods(world, "research/vision", 1, node="n")
    pods(world, "web", 2)
    pods(world, "research/vision", 6)
    world.settle()
    return world


def test_a_row_has_what_was_used_if_that_is_kept() -> None:
    kept: dict[str, Any] = {"usage": {"halfLife": "1m"}}
    for more, cpu in ((kept, 438), ({}, None)):
        world = QueueWorld(queues=TEAMS, **more)
        world.add_node(make_node("n", cpu=8, memory=0))
        pods(world, "web", 7, node="n")
        world.wait(60)
        resources = answer(world, "web").queue.resources
        assert (resources["cpu"].usage, resources["pods"].usage) == (cpu, None)
        for name in list(world.known):
            world.delete(name)
        world.wait(60)
        # What was used is shown of a queue that has nothing now.
        resources = answer(world, "web").queue.resources
        assert resources["cpu"].usage == (cpu and cpu // 2)


def test_a_row_has_sums_and_share_and_what_is_borrowed(contested: QueueWorld) -> None:
    found = page(contested)
    rows = {row.path: row for row in found.rows}
    assert [*rows] == ["", "research", "research/speech", "research/vision", "web"]
    assert [row.level for row in found.rows] == [0, 1, 2, 2, 1]
    cpu = rows["web"].resources["cpu"]
    assert (cpu.allocated, cpu.waiting, cpu.requested) == (7000, 2000, 9000)
    assert (cpu.share, cpu.borrowed, cpu.lacks) == (2000, 5000, 0)
    assert (rows["web"].is_borrowing, rows["web"].is_starved) == (True, False)
    assert (rows["web"].dominant_share, rows["web"].dominant_resource) == (875, "cpu")
    assert rows["web"].pods == PodCounts(waiting=2, allocated=7)
    cpu = rows["research"].resources["cpu"]
    assert (cpu.allocated, cpu.share, cpu.borrowed, cpu.lacks) == (1000, 6000, 0, 5000)
    assert rows["research"].attributes["weight"] == 3
    assert rows["research"].source.startswith("tree.yaml:")
    # The root is what there is: it has nobody to borrow from.
    root = rows[""].resources["cpu"]
    assert (root.share, root.borrowed, root.lacks) == (8000, 0, 0)
    assert (found.queues, found.starved, found.borrowing) == (4, 2, 1)
    assert found.headline == "Of 4 queues, 2 starve and 1 borrows."
    assert (found.policy, found.next_step, found.problems) == ("fair", "", ())
    assert found.resources == ("cpu", "pods")


def test_seconds_go_on_while_it_lasts(contested: QueueWorld) -> None:
    contested.clock.advance(30)
    rows = {row.path: row for row in page(contested).rows}
    assert (rows["research"].starved_seconds, rows["web"].borrowed_seconds) == (30, 30)
    assert (rows[""].starved_seconds, rows["research"].borrowed_seconds) == (0, 0)


def test_pairs_are_of_queues_under_one_parent(contested: QueueWorld) -> None:
    (pair,) = page(contested).pairs
    assert (pair.starved, pair.borrowing, pair.resource) == ("research", "web", "cpu")
    assert (pair.amount, pair.lacks, pair.borrowed) == (5000, 5000, 5000)


def test_what_a_page_is_filtered_by(contested: QueueWorld) -> None:
    def paths(**wanted: Any) -> list[str]:
        return [row.path for row in page(contested, **wanted).rows]

    assert paths(queue="ear") == ["research", "research/speech", "research/vision"]
    assert paths(state="borrowing") == ["web"]
    assert paths(state="starved") == ["research", "research/vision"]
    assert paths(state="starved", resource="memory") == []
    shown = page(contested, resource="cpu")
    assert {name for row in shown.rows for name in row.resources} == {"cpu"}
    assert shown.resources == ("cpu", "pods"), "what can be asked for"
    first = page(contested, limit=2)
    assert (first.next, first.total) == ("2", 5)
    rest = page(contested, limit=3, offset=2)
    assert rest.next is None
    assert [*first.rows, *rest.rows] == [*page(contested).rows]


def test_one_queue_has_its_pods_and_pairs(contested: QueueWorld) -> None:
    found = answer(contested, "web", limit=3)
    assert (found.queue.path, found.children, found.total_pods) == ("web", (), 9)
    assert [(one.phase, one.node) for one in found.pods] == [
        ("waiting", ""), ("waiting", ""), ("allocated", "n"),
    ]  # fmt: skip
    assert found.pods[0].requests == {"cpu": 1000}
    assert found.next == "3"
    assert [one.borrowing for one in found.pairs] == ["web"]
    inner = answer(contested, "research")
    assert [row.path for row in inner.children] == ["research/speech", "research/vision"]
    assert inner.pods == ()
    root = answer(contested, "")
    assert [row.path for row in root.children] == ["research", "web"]
    assert root.pairs == ()
    with pytest.raises(KeyError):
        answer(contested, "gone")


def test_pods_of_other_namespaces_count_and_are_not_shown(contested: QueueWorld) -> None:
    contested.add(make_pod("mine", namespace="shop", cpu=1, labels={"queue": "web"}))
    contested.settle()
    found = answer(contested, "web", readable={"shop"})
    assert [one.pod for one in found.pods] == ["shop/mine"]
    assert (found.total_pods, found.hidden_pods) == (1, 9)
    assert found.queue.resources["cpu"].requested == 10_000


def test_without_a_tree_it_says_what_to_do() -> None:
    found = page(World())
    assert found.policy == ""
    assert found.headline.startswith("The policies in force have no QueueTree")
    assert "docs/queues.md" in found.next_step
    assert found.rows == ()


def test_without_shares_there_are_sums() -> None:
    world = QueueWorld(FAIR[: FAIR.index("def shares")], queues=TEAMS)
    world.add_node(make_node("n", cpu=8, memory=0))
    pods(world, "web", 1, node="n")
    world.settle()
    found = page(world)
    cpu = {row.path: row for row in found.rows}["web"].resources["cpu"]
    assert (cpu.allocated, cpu.share, cpu.borrowed) == (1000, None, 0)
    assert found.headline == "`fair` gives no shares to 4 queues: there are sums alone."
    assert "docs/hooks/shares.md" in found.next_step


def test_problems_and_pods_outside_are_said() -> None:
    world = QueueWorld(objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    for number in range(60):  # each with another name
        world.put_queue(f"q{number:02}", {"parent": "none"})
    world.add(make_pod("a", cpu=1, labels={"queue": "elsewhere"}))
    world.settle()
    found = page(world)
    assert (len(found.problems), found.problems_left_out, found.outside) == (50, 71, 1)
    assert "is under `none`, which is not there" in found.problems[0]
    assert found.headline == "The tree of `fair` has no queues."


def test_a_large_tree_is_made_in_short_steps() -> None:
    world = QueueWorld(queues={f"q{number:04}": {} for number in range(2_000)})
    world.settle()
    steps = shares_page(world.kernel, ShareFilter(), clock=world.clock, **WHO)
    found, number = made(steps)
    assert len(found.rows) == 500
    assert number >= 2_000 / 32


def test_a_tree_that_is_made_again_meanwhile_leaves_out_what_is_gone() -> None:
    kind = [{"apiVersion": "example.com/v1", "kind": "Queue"}]
    world = QueueWorld(objects=kind)
    for number in range(100):
        world.put_queue(f"q{number:02}", {})
    world.settle()
    steps = shares_page(world.kernel, ShareFilter(), clock=world.clock, **WHO)
    next(steps)
    world.put_queue("q99", None)
    world.settle()
    found, _ = made(steps)
    assert found.rows[-1].path == "q98"


async def test_the_dump_has_the_queues(contested: QueueWorld) -> None:
    kernel = contested.kernel
    with capture_logs() as lines:
        await dump(contested.cache, kernel.queue, kernel.shares, kernel.turns, [], [])
    (tree,) = [line for line in lines if line["event"] == "Dump of QueueTree"]
    assert (tree["policy"], tree["problems"]) == ("fair", [])
    queues = {one["queue"]: one for one in lines if one["event"] == "Dump of queue in QueueTree"}
    assert [*queues] == ["", "research", "research/speech", "research/vision", "web"]
    assert queues["web"]["allocated"] == {"cpu": 7000, "pods": 7}
    assert queues["web"]["share"]["cpu"] == 2000
    assert queues["web"]["attributes"]["weight"] == 1


# --- what is held, and who takes from whom ---------------------------------------------------


@pytest.fixture
def limited() -> QueueWorld:
    """Team `a` may have two cores, and has one pod more of each of its queues."""
    world = QueueWorld(DRF, queues={"a": {"limit": {"cpu": 2}}, "a/x": {}, "a/y": {}, "b": {}})
    world.add_node(make_node("n", cpu=16))
    for number in range(4):
        world.add(make_pod(f"x{number}", namespace="shop", cpu=1, labels={"queue": "a/x"}))
    world.add(make_pod("y", cpu=2, labels={"queue": "a/y"}))
    for number in range(2):
        world.add(make_pod(f"lost{number}", cpu=1, labels={"queue": "else"}))
    world.turns(50)
    return world


async def test_the_dump_has_what_stands_still(limited: QueueWorld) -> None:
    kernel = limited.kernel
    with capture_logs() as lines:
        await dump(limited.cache, kernel.queue, kernel.shares, kernel.turns, [], [])
    held = [line for line in lines if line["event"] == "Dump of requests held in QueueTree"]
    names = ("queue", "is_there", "pod", "pods", "token", "short", "at")
    assert [tuple(line[name] for name in names) for line in held] == [
        ("a/x", True, "shop/x2", 2, "QuotaReached", {"cpu": 1000}, "a"),
        ("a/y", True, "default/y", 1, "QuotaReached", {"cpu": 1000}, "a"),
        ("else", False, "default/lost0", 2, "QueueMissing", {}, ""),
    ]
    assert held[0]["reason"] == "is at its limit"


def test_what_is_held_is_said_with_what_it_is_short_of(limited: QueueWorld) -> None:
    found = page(limited)
    rows = [(o.queue, o.is_there, o.token, o.at, o.resource, o.short, o.pods) for o in found.held]
    assert rows == [
        ("a/x", True, "QuotaReached", "a", "cpu", 1000, 2),
        ("else", False, "QueueMissing", "", "", 0, 2),
        ("a/y", True, "QuotaReached", "a", "cpu", 1000, 1),  # when only x0 was there
    ]
    assert found.held[0].reason == "is at its limit"
    held = {row.path: row.held for row in found.rows}
    assert held == {"": 3, "a": 3, "a/x": 2, "a/y": 1, "b": 0}
    assert [one.queue for one in page(limited, queue="els").held] == ["else"]
    one = answer(limited, "a/x")
    assert [row.pods for row in one.held] == [2]
    assert one.next_request == NextRequest(queue="a/x", pod="shop/x2", is_held=True)
    assert len(answer(limited, "a").held) == 2
    assert answer(limited, "b").next_request is None


def test_what_is_said_of_pods_that_a_caller_may_not_list_is_left_out(limited: QueueWorld) -> None:
    found = page(limited, readable={"default"})
    reasons = {one.queue: one.reason for one in found.held}
    assert (reasons["a/x"], reasons["a/y"]) == ("", "is at its limit")
    assert [one.pods for one in found.held] == [2, 2, 1], "numbers are of all"
    head = answer(limited, "a/x", readable={"default"}).next_request
    assert head == NextRequest(queue="a/x", is_held=True)


def test_a_policy_that_fails_is_said_to_hold() -> None:
    world = QueueWorld(DRF.replace("path:\n", "path:\n        q.gone()\n"), queues={"b": {}})
    world.add_node(make_node("n", cpu=16))
    world.add(make_pod("b0", cpu=1, labels={"queue": "b"}))
    world.turns(20)
    (row,) = page(world).held
    assert (row.queue, row.has_failed, row.pods) == ("b", True, 1)


def test_more_that_is_held_than_is_listed_is_counted() -> None:
    queues = {f"q{number:02}": {"limit": {"cpu": 0}} for number in range(60)}
    world = QueueWorld(DRF.replace("limit = {}", 'limit = {"cpu": 0}'), queues=dict(queues))
    world.add_node(make_node("n", cpu=16))
    for name in queues:
        world.add(make_pod(name, cpu=1, labels={"queue": name}))
    world.turns(50)
    found = page(world)
    assert (len(found.held), found.held_left_out) == (50, 10)


def test_the_latest_reclaims_are_listed() -> None:
    world = ReclaimWorld(SHARED, queues={"a/x": {}, "b": {}, "c": {}})
    world.add_node(make_node("n", cpu=4))
    for number in range(4):
        world.add(make_pod(f"b{number}", cpu=1, labels={"queue": "b"}, node="n"))
    world.settle()
    world.clock.advance(60)
    for number in range(2):
        world.add(make_pod(f"x{number}", namespace="shop", cpu=1, labels={"queue": "a/x"}))
    world.turns(20)
    found = page(world)
    assert found.reversals == 0
    (row,) = found.reclaims[-1:]
    assert (row.queue, row.taker, row.is_reversal) == ("a/x", "shop/x0", False)
    assert [(one.queue, one.stage, one.count, one.pods) for one in row.victims] == [
        ("b", 0, 1, ("default/b0",))
    ]
    assert row.at == found.at
    hidden = page(world, readable={"default"}).reclaims[-1]
    assert (hidden.taker, hidden.victims) == ("", row.victims)
    hidden = page(world, readable={"shop"}).reclaims[-1]
    assert (hidden.victims[0].count, hidden.victims[0].pods) == (1, ())
    for path, number in (("a", 1), ("a/x", 1), ("b", 1), ("c", 0)):
        assert bool(answer(world, path).reclaims) == bool(number), path


# --- pairs -----------------------------------------------------------------------------------


def _row(path: str, lacks: int, borrowed: int, resource: str = "cpu") -> ShareRow:
    one = ResourceStanding(lacks=lacks, borrowed=borrowed)
    return ShareRow(
        path=path,
        level=1,
        resources={resource: one},
        is_starved=lacks > 0,
        is_borrowing=borrowed > 0,
    )


def _pairs(rows: list[ShareRow], most: int = 50, **words: Any) -> SharePairs:
    found = SharePairs({"cpu": 100, "gpu": 10}, most, **words)
    found.add(rows)
    return found


def test_the_largest_are_paired_with_each_other() -> None:
    rows = [_row("a", 3, 0), _row("b", 5, 0), _row("c", 0, 6), _row("d", 0, 1)]
    found = [(one.starved, one.borrowing, one.amount) for one in _pairs(rows).largest]
    assert found == [("b", "c", 5), ("a", "c", 1), ("a", "d", 1)]
    about = _pairs(rows, about="d")
    assert [one.starved for one in about.largest] == ["a"]
    assert about.left_out == 0


def test_amounts_of_resources_are_compared_by_their_part_of_all() -> None:
    pairs = SharePairs({"cpu": 100, "gpu": 10}, 1)
    pairs.add([_row("a", 9, 0), _row("b", 0, 9)])
    pairs.add([_row("x/a", 1, 0, "gpu"), _row("x/b", 0, 1, "gpu")])
    (first,) = pairs.largest
    assert (first.resource, pairs.left_out) == ("gpu", 1)


_ROWS = st.lists(
    st.tuples(st.integers(0, 6), st.booleans(), st.sampled_from(["cpu", "gpu"])), max_size=12
)


@given(_ROWS, st.randoms(use_true_random=False))
def test_no_amount_is_in_two_pairs_and_none_that_fits_is_missing(rows: Any, chance: Any) -> None:
    made = [
        _row(f"q{number}", amount * lacks, amount * (not lacks), resource)
        for number, (amount, lacks, resource) in enumerate(rows)
    ]
    found = _pairs(made)
    for resource in ("cpu", "gpu"):
        of = [one for one in found.largest if one.resource == resource]
        lacks = {
            row.path: row.resources[resource].lacks for row in made if resource in row.resources
        }
        over = {
            row.path: row.resources[resource].borrowed for row in made if resource in row.resources
        }
        assert sum(one.amount for one in of) == min(sum(lacks.values()), sum(over.values()))
        for path, amount in lacks.items():
            assert sum(one.amount for one in of if one.starved == path) <= amount
        for path, amount in over.items():
            assert sum(one.amount for one in of if one.borrowing == path) <= amount
    assert all(one.amount > 0 for one in found.largest)
    again = [*made]
    chance.shuffle(again)
    assert _pairs(again).largest == found.largest, "whatever the order in which they come"


def test_shares_that_are_read_are_not_changed(contested: QueueWorld) -> None:
    shares: QueueShares = contested.kernel.shares
    before = [(one.sums.vectors, one.standing.share) for one in shares.states()]
    page(contested)
    answer(contested, "web")
    assert [(one.sums.vectors, one.standing.share) for one in shares.states()] == before
