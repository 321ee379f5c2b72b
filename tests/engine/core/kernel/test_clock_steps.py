"""A step of the clock: the pods whose answers it can change are looked at, and no others."""

import json
from collections.abc import Mapping
from typing import Any

from engine.core.kernel.events import OtherFactsChanged
from engine.core.kernel.instructions import ReportDecision
from engine.core.model.clock_facts import clock_facts
from engine.core.model.fact import Fact
from engine.lib.time_zones import zone_of
from engine.policy.evaluator import Call
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.profiles import only

NOON = 12 * 3600.0  # of a Thursday
HOUR, DAY = 3600.0, 24 * 3600.0

GATE = '''"""Holds batch pods back by day."""

def pre_enqueue(pod, cluster):
    if pod.labels.get("tier") == "batch" and cluster.facts["hour"].value in range(6, 20):
        return "batch pods wait for the night"
    return None
'''
FILTER = '''"""Keeps night pods off nodes by day."""

def filter(pod, node, cluster):
    if pod.labels.get("tier") == "night" and cluster.facts["hour"].value in range(6, 20):
        return "node(s) sleep by day"
    return None
'''
WEEKEND = '''"""Keeps weekend pods off nodes from Monday to Friday."""

def filter(pod, node, cluster):
    if pod.labels.get("tier") == "weekend" and cluster.facts["weekday"].value < 6:
        return "node(s) are for weekdays"
    return None
'''
MEASURED = '''"""Keeps measured pods off nodes whose heat is not known."""

def filter(pod, node):
    if pod.labels.get("tier") == "measured" and node.facts["heat"] == None:
        return "node(s) had no known heat"
    return None
'''
ORDER = '''"""Batch goes first by night, and last by day."""

def queue_key(pod, cluster):
    is_day = cluster.facts["hour"].value in range(6, 20)
    return 1 if (pod.labels.get("tier") == "batch") == is_day else 0
'''
FILES = {
    "gate.star": GATE,
    "asleep.star": FILTER,
    "weekend.star": WEEKEND,
    "measured.star": MEASURED,
    "config.yaml": only("NodeResourcesFit", "gate", "asleep", "weekend", "measured"),
}


class Clock(World):
    """A small world with a clock, which stands at noon."""

    def __init__(self, files: Mapping[str, str] = FILES) -> None:
        self.calls: list[Call] = []
        super().__init__(files)
        self.show(NOON)

    def show(self, at: float, **more: Fact) -> list[tuple[str, str]]:
        """Report the time; returns what policies were asked for that: the hook and the tier."""
        clock = clock_facts(at, zone_of("UTC"))
        evaluate, asked = self.evaluator.evaluate, list[Call]()

        def counted(calls: Any) -> Any:
            asked.extend(calls)
            return evaluate(calls)

        self.evaluator.evaluate = counted  # type: ignore[method-assign]  # counts, and asks
        try:
            self.report(OtherFactsChanged({**clock, **more}, {}, {}))
        finally:
            self.evaluator.evaluate = evaluate  # type: ignore[method-assign]  # as it was
        pods = [(call.hook, json.loads(call.pod)) for call in asked]
        return sorted((hook, pod.get("labels", {}).get("tier", "")) for hook, pod in pods)

    def tried(self) -> list[str]:
        """The pods that are decided now, in their order."""
        before = len(self.done)
        self.turns(100)
        made = self.done[before:]
        return [one.pod.name for one in made if isinstance(one, ReportDecision)]

    def place_of(self, name: str) -> str:
        queued = self.queue.named(f"default/{name}")
        assert queued is not None
        return queued.place.label


def test_the_begin_of_the_night_lets_the_gated_pods_go_and_looks_at_no_others() -> None:
    world = Clock()
    world.add_node(make_node("a", cpu=8))
    for name, tier in (("b", "batch"), ("w", "weekend"), ("m", "measured"), ("n", "night")):
        world.add(make_pod(name, labels={"tier": tier}))
    world.add(make_pod("large", cpu=99))
    world.add(make_pod("web"))
    assert sorted(world.tried()) == ["large", "m", "n", "w", "web"]
    asked = world.show(19 * HOUR)
    assert asked == [("pre_enqueue", "batch"), ("pre_enqueue", "night")]
    world.wait(60.0)
    assert world.tried() == ["n"], "a filter that reads the hour has rejected it"
    world.show(20 * HOUR)
    world.wait(60.0)
    assert sorted(world.tried()) == ["b", "n"]
    # Midnight in two days: another hour, and another weekday.
    world.show(2 * DAY)
    world.wait(60.0)
    assert world.tried() == ["w"]
    world.check()


def test_a_minute_that_nothing_reads_asks_no_policy() -> None:
    world = Clock()
    world.add(make_pod("b", labels={"tier": "batch"}))
    assert world.show(NOON + 60) == []
    assert world.place_of("b") == "gated"


def test_a_gate_that_closes_takes_back_pods_that_are_ready_or_in_backoff() -> None:
    world = Clock()
    world.show(3 * HOUR)
    world.add(make_pod("large", cpu=99, labels={"tier": "batch"}))
    assert world.tried() == ["large"]
    world.add_node(make_node("a", cpu=128))
    assert world.place_of("large") == "backoff"
    world.add(make_pod("b", labels={"tier": "batch"}))
    world.add(make_pod("web"))
    world.show(6 * HOUR)
    assert world.place_of("b") == world.place_of("large") == "gated"
    world.wait(60.0)
    assert world.tried() == ["web"]
    # They come back when the night does.
    world.show(20 * HOUR)
    assert world.tried() == ["large", "b"]
    world.check()


def test_the_queue_is_ordered_by_the_hour_that_it_is() -> None:
    files = {"order.star": ORDER, "config.yaml": only("NodeResourcesFit")}
    files["config.yaml"] = files["config.yaml"].replace("PrioritySort", "order")
    world = Clock(files)
    for name, tier in (("b1", "batch"), ("web1", "web"), ("b2", "batch"), ("web2", "web")):
        world.add(make_pod(name, labels={"tier": tier}))
    world.show(20 * HOUR)
    assert world.tried() == ["b1", "b2", "web1", "web2"]


def test_a_queue_key_follows_any_fact_of_the_cluster_that_it_reads() -> None:
    text = '''"""Small pods first while power is dear."""

def queue_key(pod, cluster):
    price = cluster.facts["price"]
    cpu = pod.requests.get("cpu", 0)
    return cpu if price != None and price.value > 10 else -cpu
'''
    config = only("NodeResourcesFit").replace("PrioritySort", "order")
    world = Clock({"order.star": text, "config.yaml": config})
    world.add(make_pod("small", cpu=1))
    world.add(make_pod("large", cpu=4))
    assert world.show(NOON, price=Fact(20, "20")) == [("queue_key", "")] * 2
    assert world.show(13 * HOUR, price=Fact(20, "20")) == [], "it does not read the hour"
    assert world.tried() == ["small", "large"]


def test_an_attempt_during_which_the_hour_turns_is_repeated() -> None:
    world = Clock()
    world.add_node(make_node("a", cpu=8))
    world.add(make_pod("n", labels={"tier": "night"}))
    queued = world.queue.pop()
    assert queued is not None
    world.show(20 * HOUR)
    world.queue.requeue(queued, frozenset({"asleep"}))
    assert world.place_of("n") == "backoff"


def test_a_queue_key_can_go_by_how_long_a_pod_has_waited() -> None:
    text = '''"""Pods that have waited for ten minutes go first, whatever their priority."""

def queue_key(pod, cluster):
    waited = cluster.facts["epoch_minute"].value - pod.created_at // 60
    return (0 if waited > 10 else 1, -pod.priority)
'''
    config = only("NodeResourcesFit").replace("PrioritySort", "order")
    for minutes, want in ((10, ["high", "low"]), (11, ["low", "high"])):
        world = Clock({"order.star": text, "config.yaml": config})
        world.add_node(make_node("a", cpu=8))
        world.add(make_pod("low", created="1970-01-01T12:00:59Z"))
        world.add(make_pod("high", priority=9, created="1970-01-01T12:05:00Z"))
        world.show(NOON + minutes * 60)
        assert world.tried() == want, minutes
