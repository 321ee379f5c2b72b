"""What several sources say together, and what becomes of it as time passes."""

from engine.core.model.fact import NO_FACTS, Fact, NodeFacts
from engine.io.facts.readings import CLUSTER, Reading
from engine.io.facts.store import FactStore, nodes_of

A = ("node", "a")
PAIR = ("pair", "web", "a")


def _r(value: float, at: float | None = None) -> Reading:
    return Reading(value, str(value), at)


def test_a_later_source_wins_and_leaves_what_it_does_not_say() -> None:
    store = FactStore()
    store.replace(1, {A: {"x": _r(2)}})
    store.replace(0, {A: {"x": _r(1), "y": _r(1)}})
    assert store.node("a", 0.0).own == {"x": Fact(2, "2"), "y": Fact(1, "1")}
    store.forget(1)
    assert store.node("a", 0.0).own == {"x": Fact(1, "1"), "y": Fact(1, "1")}


def test_replacing_returns_what_changed() -> None:
    store = FactStore()
    assert store.replace(0, {A: {"x": _r(1)}, CLUSTER: {"x": _r(1)}}) == {A, CLUSTER}
    assert store.replace(0, {A: {"x": _r(1)}, CLUSTER: {"x": _r(2)}}) == {CLUSTER}
    assert store.replace(0, {A: {"x": _r(1)}}) == {CLUSTER}
    assert store.put(0, A, {"x": _r(1)}) is False
    assert store.put(0, A, {}) is True
    assert store.node("a", 0.0) == NO_FACTS


def test_pairs_are_facts_of_their_node_by_type() -> None:
    store = FactStore()
    store.replace(0, {PAIR: {"reward": _r(1)}, ("pair", "db", "a"): {"reward": _r(2)}})
    want = {"reward": {"web": Fact(1, "1"), "db": Fact(2, "2")}}
    assert store.node("a", 0.0) == NodeFacts({}, want)
    assert nodes_of([A, PAIR, CLUSTER, ("type", "web"), ("node", "b")]) == {"a", "b"}
    store.replace(0, {})
    assert store.node("a", 0.0) == NO_FACTS


def test_other_facts_are_sorted_by_what_they_are_about() -> None:
    store = FactStore()
    store.replace(
        0, {CLUSTER: {"c": _r(1)}, ("type", "web"): {"t": _r(2)}, ("pod", "d/p"): {"p": _r(3)}}
    )
    others = store.others(0.0)
    assert others.cluster == {"c": Fact(1, "1")}
    assert others.types == {"web": {"t": Fact(2, "2")}}
    assert others.pods == {"d/p": {"p": Fact(3, "3")}}


def test_facts_grow_old_in_steps_and_are_dropped_at_an_age() -> None:
    store = FactStore(step_seconds=5.0, max_age_seconds=10.0)
    store.replace(0, {A: {"old": _r(1, 100.0), "timeless": _r(2)}})
    shown = [store.node("a", now).own for now in (104.0, 105.0, 110.0, 115.0)]
    assert [facts["old"].age_seconds if "old" in facts else None for facts in shown] == [
        0,
        5,
        10,
        None,
    ]
    assert all("timeless" in facts for facts in shown)


def test_what_is_too_old_hides_nothing_that_is_not() -> None:
    """A source that was down for long left nothing of what an earlier one still said."""
    store = FactStore(step_seconds=5.0, max_age_seconds=10.0)
    store.replace(0, {A: {"load": _r(1, 110.0)}})
    store.replace(1, {A: {"load": _r(2, 100.0)}})
    assert store.node("a", 110.0).own["load"].value == 2
    assert store.node("a", 115.0).own["load"].value == 1
    assert "load" not in store.node("a", 125.0).own
