"""What a scheduler asks of policies for the next pod of a class: what changed, and no more."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator
from tests.builders import HOSTNAME, make_node, make_pod

_OVER_REQUESTED = {
    ("NodeResourcesFit", "filter"),
    ("NodeResourcesFit", "score"),
    ("NodeResourcesBalancedAllocation", "score"),
}


class _Asked:
    """Counts the nodes it is asked about, by policy and hook."""

    def __init__(self, bundle: Bundle) -> None:
        self._inner = InProcessEvaluator(bundle.program)
        self._policies = [instance.policy for instance in bundle.program.instances]
        self.nodes: Counter[tuple[str, str]] = Counter()
        self.round_trips = 0

    def close(self) -> None:
        pass

    def evaluate(self, calls: Sequence[Call]) -> list[Any]:
        self.round_trips += 1
        for call in calls:
            if call.nodes is not None and call.hook in ("filter", "score"):
                self.nodes[self._policies[call.instance], call.hook] += len(call.nodes)
        return list(self._inner.evaluate(calls))

    def forget(self) -> None:
        self.nodes.clear()
        self.round_trips = 0


class _World:
    """Nodes of *cpu* cores each, and a scheduler with the shipped policies."""

    def __init__(self, *cpu: str) -> None:
        bundle = build_bundle({})
        self.cache = Cache()
        for number, cores in enumerate(cpu):
            self.cache.add_node(make_node(f"n{number}", cpu=cores))
        self.asked = _Asked(bundle)
        self.scheduler = Scheduler(bundle, self.asked)
        self._count = 0

    def place(self, cpu: str = "1", *, labels: dict[str, str] | None = None) -> str | None:
        """Decide a new pod, and count what was asked for it alone."""
        pod = self._pod(cpu, labels)
        self.asked.forget()
        node = self.scheduler.schedule(pod, self.cache.snapshot()).node
        if node is not None:
            self.cache.assume(pod, node)
        return node

    def _pod(self, cpu: str, labels: dict[str, str] | None) -> Pod:
        self._count += 1
        return make_pod(f"p{self._count}", requests={"cpu": cpu}, labels=labels or {})


@pytest.fixture
def world() -> _World:
    return _World("8", "8", "8")


def test_hooks_that_see_nothing_new_are_not_asked(world: _World) -> None:
    world.place()
    world.place()
    assert set(world.asked.nodes) <= _OVER_REQUESTED
    assert max(world.asked.nodes.values()) == 1
    assert world.asked.round_trips == 1


def test_what_other_classes_changed_is_asked_in_one_round_trip(world: _World) -> None:
    world.place()
    for _ in range(3):
        world.place("500m", labels={"app": "other"})
    world.place()
    assert set(world.asked.nodes) <= _OVER_REQUESTED
    assert max(world.asked.nodes.values()) <= 3
    assert world.asked.round_trips == 1


def test_a_node_that_is_still_full_is_not_scored() -> None:
    world = _World("8", "2")
    world.place("3")
    world.cache.assume(make_pod("other", requests={"cpu": "1"}), "n1")
    world.place("3")  # which never fitted there
    assert world.asked.nodes == {
        ("NodeResourcesFit", "filter"): 2,
        ("NodeResourcesFit", "score"): 1,
        ("NodeResourcesBalancedAllocation", "score"): 1,
    }


def test_a_node_that_has_capacity_again_is_scored(world: _World) -> None:
    placed = [world.place("8") for _ in range(3)]
    assert sorted(str(node) for node in placed) == ["n0", "n1", "n2"]
    assert world.place("8") is None
    gone = next(iter(world.cache.snapshot().infos[1].pods.values()))  # type: ignore[union-attr]
    world.cache.remove_pod(gone)
    assert world.place("8") == "n1"
    assert world.asked.nodes == {}  # as it was before the first pod: all of it is remembered


def test_a_node_that_comes_is_looked_at_by_every_hook(world: _World) -> None:
    world.place()
    world.cache.add_node(make_node("n9", cpu="64", labels={"new": "yes"}))
    world.place()
    assert {hook for _, hook in world.asked.nodes} == {"filter", "score"}
    assert world.place("60") == "n9"


def _near(number: int, **labels: str) -> Pod:
    """A pod that wants to be in the zone of others like it."""
    term = {"labelSelector": {"matchLabels": {"app": "near"}}, "topologyKey": "zone"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return make_pod(f"near-{number}", labels={"app": "near", **labels}, affinity=affinity)


def _apart_from(name: str, label: dict[str, str], **words: Any) -> Pod:
    """A pod that no pod with *label* may be on a node with."""
    term = {"labelSelector": {"matchLabels": label}, "topologyKey": HOSTNAME}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return make_pod(name, affinity=rules, **words)


def test_counts_and_ranges_that_keep_growing_are_read_ahead() -> None:
    world = _World()
    for number in range(2):
        world.cache.add_node(make_node(f"n{number}", cpu="64", labels={"zone": f"z{number}"}))
    trips = 0
    for number in range(44):
        world.asked.forget()
        pod = _near(number)
        node = world.scheduler.schedule(pod, world.cache.snapshot()).node
        assert node is not None
        world.cache.assume(pod, node)
        # The node that has changed is asked about in a trip of its own.
        trips += world.asked.round_trips - 1
    # Without reading ahead: 88, a count and a range for each pod.
    assert trips < 20


def test_counts_that_grow_with_the_least_of_them_are_read_ahead() -> None:
    world = _World()
    for number in range(3):
        world.cache.add_node(make_node(f"n{number}", cpu="64", labels={"zone": f"z{number}"}))
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
    spread = {"topologySpreadConstraints": [constraint]}
    trips = 0
    for number in range(60):
        world.asked.forget()
        pod = make_pod(f"p{number}", labels={"app": "spread"}, spec=spread)
        node = world.scheduler.schedule(pod, world.cache.snapshot()).node
        assert node is not None
        world.cache.assume(pod, node)
        trips += world.asked.round_trips
    # Of each of the 20 rounds one is about the first node with so many pods. Without reading
    # ahead: 66.
    assert trips < 40


def test_a_label_that_no_filter_or_score_is_given_makes_no_class(world: _World) -> None:
    """A label of its own on each pod, as those of StatefulSets have, cost a look at every node."""
    for number in range(4):
        world.place(labels={"app": "web", "group": f"g{number}"})
    assert len(world.scheduler.recent_pods(10)) == 1


def test_a_label_that_no_selector_names_makes_no_class() -> None:
    """As the index of a StatefulSet's pods, of which each asks for a place by its peers."""
    world = _World()
    for number in range(3):
        world.cache.add_node(make_node(f"n{number}", cpu="64", labels={"zone": "a"}))
    for number in range(6):
        pod = _near(number, index=f"{number}")
        world.asked.forget()
        node = world.scheduler.schedule(pod, world.cache.snapshot()).node
        assert node is not None
        world.cache.assume(pod, node)
    # The first of them had no peer.
    assert len(world.scheduler.recent_pods(10)) == 2
    assert world.asked.round_trips == 0


def test_a_label_that_a_term_of_a_placed_pod_names_makes_a_class(world: _World) -> None:
    for number in range(2):
        world.cache.add_pod(_apart_from(f"alone-{number}", {"group": "g1"}, node=f"n{number}"))
    found = [world.place(labels={"group": f"g{number}"}) for number in (0, 1, 2, 1)]
    assert (found[1], found[3]) == ("n2", "n2")
    assert len(world.scheduler.recent_pods(10)) == 2


def test_a_label_that_a_term_of_a_nominated_pod_names_makes_a_class() -> None:
    """Also if the pod is on no node, and came after others with the label had been decided."""
    world = _World("8", "8")
    snapshot = world.cache.snapshot()
    # With a rule of their own, for else nobody asks whether others keep them away.
    pods = [
        _apart_from(f"p{number}", {"app": "none"}, labels={"group": f"g{number}"})
        for number in range(2)
    ]
    for pod in pods:
        assert world.scheduler.schedule(pod, snapshot).node is not None
    nominator = Nominator()
    nominator.nominate(_apart_from("alone", {"group": "g1"}, priority=10), "n0")
    fits = [
        [world.scheduler.fits(pod, f"n{number}", snapshot, nominator) for number in range(2)]
        for pod in pods
    ]
    assert fits == [[True, True], [False, True]]
