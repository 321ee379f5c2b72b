"""The metrics of the tree of queues, as a scrape has them."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from engine.surfaces import pulled_metrics
from engine.surfaces.pulled_metrics import show_shares
from engine.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import QueueWorld
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_turn_queue import DRF

PREFIX = "starsched_queue_"
OTHERS = ("starsched_reclaim", "starsched_shares_")


class Scraped:
    """The metrics of queues of a world."""

    def __init__(self, world: World, *, is_leading: bool = True) -> None:
        self.world, self.registry = world, CollectorRegistry()
        self.is_leading = is_leading
        show_shares(Metrics(self.registry), world.kernel, world.clock, lambda: self.is_leading)

    def read(self, prefix: str | tuple[str, ...] = PREFIX) -> dict[str, float]:
        """Values by `name queue resource`."""
        return {
            " ".join((one.name.removeprefix(PREFIX), *one.labels.values())): one.value
            for family in self.registry.collect()
            for one in family.samples
            if one.name.startswith(prefix) and not one.name.endswith("_created")
        }


def pods(world: QueueWorld, queue: str, count: int, **words: Any) -> None:
    for number in range(count):
        name = f"{queue.replace('/', '-')}-{words.get('node', 'waits')}-{number}"
        where = words if "node" in words else {"gates": ["example.com/wait"]}
        world.add(make_pod(name, cpu=1, labels={"queue": queue}, **where))


def test_what_queues_have_and_may_have() -> None:
    world = QueueWorld(queues={"research": {"weight": 3}, "research/vision": {}, "web": {}})
    world.add_node(make_node("n", cpu=8, memory=0))
    pods(world, "web", 7, node="n")
    pods(world, "research/vision", 1, node="n")
    pods(world, "research/vision", 6)
    pods(world, "web", 2)
    world.add(make_pod("odd", labels={"queue": "web"}, requests={"example.com/made-up": "3"}))
    world.settle()
    scraped = Scraped(world)
    world.clock.advance(30)
    found = scraped.read()
    assert found["allocated web cpu"] == 7000
    assert found["allocated / cpu"] == found["share / cpu"] == 8000
    assert found["requested research cpu"] == found["requested research/vision cpu"] == 7000
    assert (found["share research cpu"], found["share web cpu"]) == (6000, 2000)
    # What is 0 is exported, so that it can be compared with a share.
    assert (found["claimed web cpu"], found["leaving web cpu"]) == (0, 0)
    assert (found["dominant_share web"], found["dominant_share /"]) == (875, 1000)
    assert found["starved_seconds_total research"] == found["borrowed_seconds_total web"] == 30
    assert found["borrowed_seconds_total research"] == 0
    assert "starved_seconds_total /" not in found
    assert found["tree_problems"] == 0
    # A pod may ask for anything: only what nodes offer is a label.
    assert not [name for name in found if "made-up" in name or name.endswith(" pods")]


def test_what_was_used_is_exported_if_it_is_kept() -> None:
    queues = {"a": {"weight": 1}, "b": {}}
    kept: dict[str, Any] = {"usage": {"halfLife": "1m"}}
    for more, want in ((kept, {"a": 500, "b": 0, "/": 500}), ({}, {})):
        world = QueueWorld(queues=queues, **more)
        world.add_node(make_node("n", cpu=2, memory=0))
        pods(world, "a", 2, node="n")
        world.wait(60)
        found = Scraped(world).read()
        assert {
            name.split()[1]: value
            for name, value in found.items()
            if name.startswith("usage ") and name.endswith(" cpu")
        } == want


def test_a_standby_and_a_scheduler_without_a_tree_have_none() -> None:
    world = QueueWorld(queues={"web": {}})
    world.settle()
    assert Scraped(world, is_leading=False).read() == {"tree_problems": 0}
    assert Scraped(World()).read() == {"tree_problems": 0}


def test_queues_far_down_are_in_those_above() -> None:
    world = QueueWorld(queues={"a/b/c/d": {}})
    world.add_node(make_node("n", cpu=8, memory=0))
    pods(world, "a/b/c/d", 2, node="n")
    world.settle()
    found = Scraped(world).read()
    queues = {name.split(" ")[1] for name in found if name.startswith("allocated")}
    assert queues == {"/", "a", "a/b"}
    assert found["allocated a/b cpu"] == 2000


@pytest.mark.parametrize(
    ("most", "want"),
    [
        pytest.param(4, {"/", "a", "b", "a/x", "a/y", "other"}, id="a queue of the second level"),
        pytest.param(1, {"/", "a", "other"}, id="with those below it"),
    ],
)
def test_queues_beyond_a_number_are_others(
    monkeypatch: pytest.MonkeyPatch, most: int, want: set[str]
) -> None:
    monkeypatch.setattr(pulled_metrics, "_MOST_QUEUES", most)
    world = QueueWorld(queues={"a/x": {}, "a/y": {}, "b/z": {}})
    world.add_node(make_node("n", cpu=8, memory=0))
    pods(world, "a/x", 1, node="n")
    pods(world, "b/z", 2, node="n")
    world.settle()
    found = Scraped(world).read()
    assert {name.split(" ")[1] for name in found if name.startswith("allocated")} == want
    assert found["allocated other cpu"] == (2000 if most == 4 else 3000), "each pod once"


def test_queues_are_read_once_for_a_scrape_and_again_for_the_next() -> None:
    world = QueueWorld(queues={"web": {}})
    world.add_node(make_node("n", cpu=8, memory=0))
    world.settle()
    scraped = Scraped(world)
    assert scraped.read()["allocated web cpu"] == 0
    pods(world, "web", 1, node="n")
    world.settle()
    world.clock.advance(2)
    assert scraped.read()["allocated web cpu"] == 1000


def test_problems_are_counted() -> None:
    world = QueueWorld(objects=[{"apiVersion": "example.com/v1", "kind": "Queue"}])
    world.put_queue("vision", {"parent": "research"})
    world.settle()
    assert Scraped(world).read()["tree_problems"] == 2  # and its other name


def test_what_is_held_by_queue_and_reason() -> None:
    world = QueueWorld(DRF, queues={"a": {"limit": {"cpu": 1}}, "a/x/deep": {}, "b": {}})
    world.add_node(make_node("n", cpu=8))
    for number in range(3):
        world.add(make_pod(f"a{number}", cpu=1, labels={"queue": "a/x/deep"}))
    world.add(make_pod("lost", cpu=1, labels={"queue": "a-word-of-users"}))
    world.turns(20)
    found = {
        name: value
        for name, value in Scraped(world).read().items()
        if name.startswith("waiting_requests")
    }
    assert found == {
        "waiting_requests / QuotaReached": 2,
        "waiting_requests a QuotaReached": 2,
        "waiting_requests a/x QuotaReached": 2,
        "waiting_requests / QueueMissing": 1,
    }


def test_reasons_beyond_a_number_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulled_metrics, "_MOST_TOKENS", 1)
    policy = DRF.replace('"QuotaReached"', '"A" if request.resources["cpu"] > 1000 else "B"')
    world = QueueWorld(policy, queues={"a": {"limit": {"cpu": 1}}})
    world.add_node(make_node("n", cpu=8))
    for number in range(3):
        world.add(make_pod(f"a{number}", cpu=1, labels={"queue": "a"}))
    world.add(make_pod("large", cpu=2, labels={"queue": "a"}))
    world.turns(20)
    found = Scraped(world).read()
    assert (found["waiting_requests a B"], found["waiting_requests a Other"]) == (2, 1)


def test_requests_that_something_free_woke_are_counted_by_what_came_of_it() -> None:
    world = QueueWorld(DRF, queues={"a": {"limit": {"cpu": 1}}})
    world.add_node(make_node("n", cpu=8))
    world.add(make_pod("runs", cpu=1, labels={"queue": "a"}, node="n"))
    world.add(make_pod("waits", cpu=1, labels={"queue": "a"}))
    world.turns(20)
    scraped = Scraped(world)
    assert (scraped.read()["woken_total true"], scraped.read()["woken_total false"]) == (0, 0)
    world.delete("runs")
    world.turns(20)
    assert (scraped.read()["woken_total true"], scraped.read()["woken_total false"]) == (1, 0)
    scraped.is_leading = False
    assert "woken_total true" not in scraped.read()


def test_pods_that_were_taken_are_counted_by_queues_of_two_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = QueueWorld(queues={"a": {}})
    reclaims, scraped = world.kernel.reclaims, Scraped(world)
    assert scraped.read(OTHERS)["starsched_reclaim_reversals_total"] == 0
    reclaims.taken.update({("a/b/c", "d"): 2, ("a/b/e", "d"): 3, ("f", "d"): 1, ("g", "d"): 4})
    reclaims.reversals = 5
    monkeypatch.setattr(pulled_metrics, "_MOST_PAIRS", 2)
    found = scraped.read(OTHERS)
    name = "starsched_reclaimed_pods_total"
    assert {key: value for key, value in found.items() if key.startswith(name)} == {
        f"{name} a/b d": 5,
        f"{name} f d": 1,
        f"{name} other other": 4,
    }
    assert found["starsched_reclaim_reversals_total"] == 5
    assert found["starsched_shares_seconds_total"] == world.kernel.shares.seconds
