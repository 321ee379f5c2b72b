"""Who gives back when a queue has no room: as few as have to, and none in a circle."""

import itertools
import random
from collections import deque
from typing import Any

import pytest

from engine.core.kernel.events import PreemptionEnded, TimePassed
from engine.core.kernel.instructions import Bind, Evict, Instruction, ReportDecision, ReportFault
from engine.core.kernel.reclaims import Shift
from engine.core.kernel.victim_search import SnapshotNodes, VictimSearch, budget_wait
from engine.explaining.reclaim_words import reclaim_text
from engine.rollout.trial import frozen_copy
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import FAIR, QueueWorld, tree_files
from tests.engine.core.kernel.small_world import CONFIG, World

#: Shares by weight; who has more than its share gives to who has less, the one beyond most first.
SHARED = (
    FAIR.replace('"entry", "plus")', '"dominant", "entry", "over", "plus")')
    + """
def turn_key(queue):
    return dominant(queue.allocated, queue.share)

def admit(request, path):
    leaf = path[0]
    short = over(plus(leaf.allocated, request.resources), leaf.share, of = {"cpu": 1})
    return hold("has its share", short = short, at = leaf.path) if short else None

def reclaim(taker, victim):
    over_share = over(victim.queue.allocated, victim.queue.share)
    return 0 if over_share and over_share.resource in victim.resources else None

def giver_key(queue):
    d = dominant(queue.allocated, queue.share)
    return ratio(-d.n, d.d)
"""
)
#: A quota below one that lends what it does not use: who borrows gives it back.
LENT = '''"""Quotas of which the sum of the siblings may be used by any of them.

Hooks: queue_of, admit, reclaim.
"""

load("@std/amounts.star", "over", "plus")

tree = queue_attributes(quota = {})

def queue_of(pod):
    return pod.labels.get("queue")

def admit(request, path):
    above = path[1]
    short = over(plus(above.allocated, request.resources), above.quota)
    return hold("the quota of all is used", short = short, at = above.path) if short else None

def reclaim(taker, victim):
    if over(plus(taker.queue.allocated, taker.request.resources), taker.queue.quota):
        return None
    return 0 if over(victim.queue.allocated, victim.queue.quota) else None
'''
#: The same by what the queues pass up, which is how cohorts count.
LENT_UP = (
    LENT.replace("queue_of, admit", "queue_of, passes_up, admit").replace(
        "plus(above.allocated, request", 'plus(above.up["used"], request'
    )
    + """
def passes_up(queue):
    return {"used": queue.allocated}
"""
)
EVICTING = LENT.replace(
    "    if over(plus(taker.queue", "    return 0\n    if over(plus(taker.queue"
)


def _pod(name: str, queue: str, cpu: int = 1, **more: Any) -> Any:
    labels = {"queue": queue, **more.pop("labels", {})}
    return make_pod(name, cpu=cpu, labels=labels, **more)


class ReclaimWorld(QueueWorld):
    """A world in which victims go when they are evicted."""

    def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        self._follow(instructions)
        for one in instructions:
            if isinstance(one, Bind):
                self.bindings.append(one.placement)
            elif isinstance(one, Evict):
                self.evictions.append(one)
        return instructions

    def __init__(self, policy: str, **document: Any) -> None:
        self.evictions: list[Evict] = []
        limits = {"minRuntime": "0s", **document.pop("limits", {})}
        super().__init__(policy, limits=limits, **document)

    def run(self, turns: int = 300) -> list[str]:
        """Let it come to rest; the names of the pods that went, in order."""
        gone: list[str] = []
        quiet = 0
        for _ in range(100):
            self.settle()
            self.turns(turns)
            has_bound = bool(self.bindings)
            while self.bindings:
                self.end_binding(0, succeeds=True)
            quiet = 0 if self.evictions or has_bound else quiet + 1
            if quiet > 2:
                return gone
            for evict in self.evictions:
                for name in [one.name for one in evict.victims if one.name in self.known]:
                    gone.append(name)
                    self.delete(name)
                self.report(PreemptionEnded(evict.preemptor, evict.preemption.node))
            self.evictions.clear()
            self.wait(11)
        raise AssertionError("it goes on evicting")

    def nodes_of(self, queue: str) -> set[str]:
        return {
            pod.name
            for pod in self.known.values()
            if pod.labels["queue"] == queue and pod.node_name
        }


def _full(policy: str, *, cpu: int, **document: Any) -> ReclaimWorld:
    """Queue `b` has a node of so many cores for itself."""
    world = ReclaimWorld(policy, **document)
    world.add_node(make_node("n", cpu=cpu))
    for number in range(cpu):
        world.add(_pod(f"b{number}", "b", node="n"))
        world.clock.advance(1)
    world.settle()
    return world


def test_who_has_more_than_its_share_gives_to_who_has_less() -> None:
    world = _full(SHARED, cpu=8, queues={"a": {}, "b": {}})
    for number in range(6):
        world.add(_pod(f"a{number}", "a"))
    gone = world.run()
    assert len(gone) == 4, "no more than half"
    assert len(world.nodes_of("a")) == len(world.nodes_of("b")) == 4
    assert gone == ["b7", "b6", "b5", "b4"], "those that started last"
    assert world.kernel.reclaims.taken == {("a", "b"): 4}
    last = world.kernel.reclaims.latest[-1]
    assert world.kernel.reclaims.for_taker(last.taker) is last
    assert (last.queue, last.giver_of("default/b4")) == ("a", "b")
    assert last.giver_of("default/b3") is None, "it stays"
    assert last.shifts == (Shift("a", "cpu", 3000, 4000, 4000), Shift("b", "cpu", 5000, 4000, 4000))
    assert reclaim_text(last, "b", "fair.star:9") == (
        "queue `b` gives back to queue `a`, by fair.star:9 "
        "(a: 3 cpu -> 4 cpu of a share of 4 cpu; b: 5 cpu -> 4 cpu of a share of 4 cpu)"
    )
    assert reclaim_text(last, "a", "") == "", "for a more important pod of its own"
    assert world.kernel.reclaims.for_taker("default/other") is None
    assert world.kernel.reclaims.reversals == 0


def test_a_search_on_a_copy_finds_whom_the_scheduler_takes_and_changes_nothing() -> None:
    world = ReclaimWorld(SHARED, queues={"a": {}, "b": {}}, limits={"minRuntime": "60s"})
    for name, cores in (("small", 2), ("large", 4)):
        world.add_node(make_node(name, cpu=cores))
        for number in range(cores):
            world.add(_pod(f"{name}{number}", "b", node=name))
    world.add(_pod("a0", "a", cpu=3))
    world.settle()
    kernel, taker = world.kernel, world.known["a0"]

    def found() -> tuple[set[str], int]:
        case, scheduler = kernel.reclaims.case_of(taker), kernel.scheduler
        assert case is not None
        assert scheduler is not None
        before = kernel.cache.snapshot()
        copied = frozen_copy(before)
        search = VictimSearch(case.holdings, SnapshotNodes(copied), scheduler)
        got = search.for_pod(taker, case.request, case.queue, kernel.queue.nominator, case.now)
        assert copied.infos == before.infos, "all pods are where they were"
        case.holdings.sums.check_invariants()
        kernel.check_invariants()
        return {pod.name for pod in got.pods}, got.left_out.young

    assert found() == (set(), 6)
    world.clock.advance(61)
    world.settle()
    victims, _ = found()
    assert len(victims) == 3
    assert world.kernel.reclaims.latest == deque(), "nothing of it has happened"
    assert set(world.run()) == victims


@pytest.mark.parametrize(
    ("count", "most", "want"),
    [(1, 3, 0), (2, 3, 10), (3, 3, 30), (9, 3, 30), (1, 2, 10), (1, 1, 30)],
)
def test_a_queue_waits_until_enough_of_its_victims_are_a_minute_old(
    count: int, most: int, want: float
) -> None:
    assert budget_wait([0.0, 50.0, 70.0], count, most, 100.0) == want
    assert budget_wait([], count, most, 100.0) == 0, "the first may need more"


def test_the_queue_that_is_furthest_beyond_its_share_gives_first() -> None:
    world = ReclaimWorld(SHARED, queues={"a": {}, "b": {}, "c": {}})
    world.add_node(make_node("n", cpu=9))
    for queue, count in (("b", 5), ("c", 4)):
        for number in range(count):
            world.add(_pod(f"{queue}{number}", queue, node="n"))
    world.add(_pod("b-more", "b"))
    world.add(_pod("c-more", "c"))
    for number in range(3):
        world.add(_pod(f"a{number}", "a"))
    assert [name[0] for name in world.run()] == ["b", "b", "c"]


def test_a_quota_that_is_lent_comes_back() -> None:
    queues = {
        "top": {"quota": {"cpu": 6}},
        "top/a": {"quota": {"cpu": 4}},
        "top/b": {"quota": {"cpu": 2}},
    }
    world = ReclaimWorld(LENT, queues=queues)
    world.add_node(make_node("n", cpu=100))
    for number in range(6):
        world.add(_pod(f"b{number}", "top/b", node="n"))
        world.clock.advance(1)
    world.add(_pod("a0", "top/a", cpu=3))
    assert world.run() == ["b5", "b4", "b3"]
    assert world.nodes_of("top/a") == {"a0"}
    world.add(_pod("a1", "top/a", cpu=2))
    assert world.run() == [], "it would be above its own quota"


def test_only_those_go_that_make_room_where_the_taker_fits() -> None:
    """Of a queue that has too much, the pod goes that is on the right node."""
    world = ReclaimWorld(SHARED, queues={"a": {}, "b": {}})
    world.add_node(make_node("small", cpu=2))
    world.add_node(make_node("large", cpu=4))
    for number in range(4):
        world.add(_pod(f"large{number}", "b", node="large"))
    world.clock.advance(10)
    for number in range(2):
        world.add(_pod(f"small{number}", "b", node="small"))
    world.add(_pod("a0", "a", cpu=3))
    gone = world.run()
    assert len(gone) == 3
    assert all(name.startswith("large") for name in gone), "those on the small node would not help"
    assert world.nodes_of("a") == {"a0"}


def test_a_more_important_pod_of_the_borrower_is_taken_last() -> None:
    world = ReclaimWorld(SHARED, queues={"a": {}, "b": {}})
    world.add_node(make_node("n", cpu=4))
    for number in range(4):
        world.add(_pod(f"b{number}", "b", node="n", priority=100 if number == 3 else 0))
        world.clock.advance(1)
    world.add(_pod("a0", "a"))
    world.add(_pod("a1", "a"))
    assert world.run() == ["b2", "b1"]


def test_pods_that_are_not_preemptible_or_kept_by_a_budget_stay() -> None:
    world = ReclaimWorld(SHARED, queues={"a": {}, "b": {}})
    world.add_node(make_node("n", cpu=4))
    for number in range(4):
        labels = {"keep": "1"} if number != 1 else {}
        world.add(_pod(f"b{number}", "b", node="n", labels=labels))
    world.add(_pod("a0", "a"))
    world.add(_pod("a1", "a"))
    assert world.run() == ["b1"]


def test_what_has_just_started_stays_for_its_minimal_time() -> None:
    world = _full(SHARED, cpu=4, queues={"a": {}, "b": {}}, limits={"minRuntime": "5m"})
    world.add(_pod("a0", "a"))
    assert world.run() == []
    world.clock.advance(301)
    world.wait(1.1)
    assert world.run() == ["b3"]


def test_a_pack_that_always_evicts_is_held_to_so_many_a_minute() -> None:
    queues = {"top": {"quota": {"cpu": 8}}, "top/a": {}, "top/b": {}}
    world = ReclaimWorld(EVICTING, queues=queues, limits={"victimsPerMinute": 2})
    world.add_node(make_node("n", cpu=100))
    for number in range(8):
        world.add(_pod(f"b{number}", "top/b", node="n"))
    for number in range(6):
        world.add(_pod(f"a{number}", "top/a"))
    assert len(world.run()) == 2


def test_two_queues_do_not_take_from_each_other_in_turn() -> None:
    """By such a policy they would for ever; nobody takes back at once from whom it gave to."""
    queues = {"top": {"quota": {"cpu": 3}}, "top/a": {}, "top/b": {}}
    world = ReclaimWorld(EVICTING, queues=queues, limits={"minRuntime": "60s"})
    world.add_node(make_node("n", cpu=100))
    world.add(_pod("old", "top/a", node="n"))
    for number in range(2):
        world.add(_pod(f"b{number}", "top/b", node="n", priority=number))
    world.clock.advance(61)
    world.add(_pod("a0", "top/a", priority=1))
    world.settle()
    world.turns(50)
    (evict,) = world.evictions
    (victim,) = evict.victims
    assert victim.name == "b0"
    world.delete("b0")
    world.report(PreemptionEnded(evict.preemptor, evict.preemption.node))
    world.evictions.clear()
    world.add(_pod("b2", "top/b"))
    for _ in range(4):
        world.wait(11)
        world.settle()
        world.turns(50)
    assert world.evictions == [], "`old` has run long enough, but `b` has just given to `a`"
    for _ in range(4):
        world.wait(11)
        world.settle()
        world.turns(50)
    assert world.evictions, "a minute later it may"
    assert world.kernel.reclaims.reversals == 0


def test_a_reversal_is_counted_where_no_guard_keeps_it_away() -> None:
    queues = {"top": {"quota": {"cpu": 1}}, "top/a": {}, "top/b": {}}
    world = ReclaimWorld(EVICTING, queues=queues)
    world.add_node(make_node("n", cpu=100))
    world.add(_pod("b0", "top/b", node="n"))
    world.add(_pod("a0", "top/a"))
    for name in ("b1", "a1"):
        world.settle()
        world.turns(50)
        (evict,) = world.evictions
        world.delete(evict.victims[0].name)
        world.report(PreemptionEnded(evict.preemptor, evict.preemption.node))
        world.evictions.clear()
        world.wait(3)
        world.turns(50)
        world.end_binding(0, succeeds=True)
        world.add(_pod(name, "top/b" if name == "b1" else "top/a"))
    assert world.kernel.reclaims.reversals == 1
    assert world.kernel.reclaims.latest[-1].is_reversal


def _beside_a_gang(policy: str, **more: Any) -> World:
    """A node that queue `b` fills, and three pods of `a` that start together."""
    files = tree_files(policy, queues={"a": {}, "b": {}}, limits={"minRuntime": "0s"})
    world = World({**files, "config.yaml": CONFIG})
    world.add_node(make_node("n", cpu=6))
    for number in range(6):
        world.add(_pod(f"b{number}", "b", node="n"))
        world.clock.advance(1)
    for number in range(3):
        world.add(_pod(f"g{number}", "a", labels={"group": "g", "min": "3"}, **more))
    return world


def _evictions(world: World) -> list[Evict]:
    """Those that begin within half a minute."""
    for _ in range(3):
        world.report(TimePassed())
        world.turns(100)
        world.wait(11)
    world.kernel.check_invariants()
    return [one for one in world.done if isinstance(one, Evict)]


def test_room_is_made_for_a_group_as_a_whole_or_not_at_all() -> None:
    (evict,) = _evictions(_beside_a_gang(SHARED))
    assert [pod.name for pod in evict.victims] == ["b5", "b4", "b3"]
    assert evict.group == "default/g"


@pytest.mark.parametrize("policy", [SHARED, SHARED.replace("def admit", "def _admit")])
def test_a_search_on_a_copy_finds_whom_a_group_takes(policy: str) -> None:
    world = _beside_a_gang(policy)
    world.report(TimePassed())
    kernel = world.kernel
    case, scheduler = kernel.reclaims.case_of(world.known["g1"]), kernel.scheduler
    assert case is not None
    assert scheduler is not None
    assert ([pod.name for pod in case.taking], case.least) == (["g0", "g1", "g2"], 3)
    before = kernel.cache.snapshot()
    copied = frozen_copy(before)
    search = VictimSearch(case.holdings, SnapshotNodes(copied), scheduler)
    got = search.for_case(case, kernel.queue.nominator, case.now)
    assert copied.infos == before.infos, "all pods are where they were"
    (evict,) = _evictions(world)
    assert {pod.name for pod in got.pods} == {pod.name for pod in evict.victims}
    assert len(got.pods) == 3


@pytest.mark.parametrize("policy", [SHARED, SHARED.replace("def admit", "def _admit")])
def test_no_room_is_made_for_a_group_that_preempts_never(policy: str) -> None:
    assert _evictions(_beside_a_gang(policy, spec={"preemptionPolicy": "Never"})) == []


def test_what_was_freed_for_one_is_not_taken_by_another() -> None:
    """While the victims go, their own queue has room by its sums; it is claimed."""
    world = _full(SHARED, cpu=4, queues={"a": {}, "b": {}})
    world.add(_pod("a0", "a"))
    world.settle()
    world.turns(50)
    (evict,) = world.evictions
    world.delete(evict.victims[0].name)  # gone before the eviction is reported as done
    world.add(_pod("b9", "b"))
    world.settle()
    before = len(world.done)
    world.turns(50)
    tried = [one.pod.name for one in world.done[before:] if isinstance(one, ReportDecision)]
    assert "b9" not in tried
    world.run()
    assert world.nodes_of("a") == {"a0"}


@pytest.mark.parametrize("seed", range(20))
def test_random_worlds_come_to_rest_with_shares_kept(seed: int) -> None:
    """Nobody is evicted who is not beyond its share, and nobody waits who could take."""
    rng = random.Random(seed)
    queues = {f"q{n}": {"weight": rng.randint(1, 3)} for n in range(rng.randint(2, 4))}
    world = ReclaimWorld(SHARED, queues=queues)
    for number in range(rng.randint(1, 3)):
        world.add_node(make_node(f"n{number}", cpu=rng.randint(2, 6)))
    names = itertools.count()
    for _ in range(12):
        queue = rng.choice(sorted(queues))
        for _ in range(rng.randint(1, 5)):
            world.add(_pod(f"p{next(names)}", queue))
        if rng.random() < 0.4 and world.known:
            world.delete(rng.choice(sorted(world.known)))
        world.run()
        world.kernel.check_invariants()
        assert [one for one in world.done if isinstance(one, ReportFault)] == []
        shares, total = world.shares(), sum(i.allocatable["cpu"] for i in _nodes(world))
        used = {q: world.sums(q).get("cpu", 0) for q in queues}
        wants = {q: world.sums(q, "requested").get("cpu", 0) for q in queues}
        for queue in queues:
            share = (shares[queue] or {}).get("cpu", 0)
            least = min(wants[queue], share // 1000 * 1000)
            assert used[queue] >= least, (queue, used, shares, total)


def _nodes(world: QueueWorld) -> list[Any]:
    return [info.node for info in world.cache.infos() if info.node is not None]


@pytest.mark.parametrize("policy", [LENT, LENT_UP], ids=["sums", "passed up"])
def test_what_was_freed_for_one_queue_is_not_taken_by_another(policy: str) -> None:
    quota = {"quota": {"cpu": 2}}
    queues = {"top": {"quota": {"cpu": 4}}, "top/a": quota, "top/b": quota, "top/c": {}}
    world = ReclaimWorld(policy, queues=queues)
    world.add_node(make_node("n", cpu=8))
    for number in range(4):
        world.add(_pod(f"b{number}", "top/b", node="n"))
    world.settle()
    world.add(_pod("a0", "top/a", cpu=2))
    world.turns(20)
    gone = [victim.name for evict in world.evictions for victim in evict.victims]
    assert len(gone) == 2
    world.add(_pod("c0", "top/c", priority=100))
    world.turns(20)
    for name in gone:
        world.delete(name)
    world.turns(20)
    assert [placement.pod.name for placement in world.bindings] == []
    for evict in world.evictions:
        world.report(PreemptionEnded(evict.preemptor, evict.preemption.node))
    world.wait(11)
    world.turns(50)
    assert [placement.pod.name for placement in world.bindings] == ["a0"]
    world.kernel.check_invariants()
