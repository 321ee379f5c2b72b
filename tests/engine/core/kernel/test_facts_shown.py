"""Facts: policies see those that were reported last, and rejected pods are tried again for them."""

from engine.core.kernel.events import (
    FactsReported,
    NodeFactsChanged,
    OtherFactsChanged,
    PodFactsChanged,
    PodTypeLabelsChanged,
)
from engine.core.kernel.instructions import ReportFailure
from engine.core.model.fact import Fact, Facts, NodeFacts
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import MOST_TURNS, World

_HEAT = {
    "mine.star": """
def filter(pod, node):
    found = [of.facts["heat"] for of in (node, pod)]
    known = ["none" if fact == None else str(fact.value) for fact in found]
    return None if known == ["1", "2"] else " and ".join(known)
"""
}


def _heat(value: int) -> Facts:
    return {"heat": Fact(value, str(value))}


def _on_node(value: int) -> NodeFacts:
    return NodeFacts(_heat(value), {})


def _of_others(team: int | None = None, pod: int | None = None) -> OtherFactsChanged:
    types = {} if team is None else {"blue": _heat(team)}
    return OtherFactsChanged({}, types, {} if pod is None else {"default/p": _heat(pod)})


def _tried(world: World) -> list[str]:
    """What each attempt since the last call has ended with."""
    world.turns(MOST_TURNS)
    failures = [one.rejection.message for one in world.done if isinstance(one, ReportFailure)]
    found = [text.split(": 1 ")[1].partition(".")[0] for text in failures]
    found += ["bound"] * len(world.bindings)
    world.done.clear()
    return found


def test_what_is_reported_of_nodes_types_and_pods_is_what_policies_see() -> None:
    """Of facts that only grew older, no pod is tried again: the policy reads no age."""
    world = World(_HEAT)
    world.add_node(make_node("n"))
    world.add(make_pod("p", cpu=1, labels={"team": "blue"}))
    assert _tried(world) == ["none and none"]
    for event, want in (
        (NodeFactsChanged("n", _on_node(3)), "3 and none"),
        (_of_others(team=4), "3 and none"),  # it is not known yet that a label says the type
        (PodTypeLabelsChanged(("team",)), "3 and 4"),
        (_of_others(team=4, pod=5), "3 and 5"),
        (PodFactsChanged("default/p", _heat(6)), "3 and 6"),
        (PodFactsChanged("default/p", {}), "3 and 4"),
        (_of_others(), "3 and none"),
        (PodFactsChanged("default/p", _heat(2)), "3 and 2"),
        (NodeFactsChanged("n", _on_node(1)), "bound"),
    ):
        world.wait(11.0)
        world.report(event)
        world.report(FactsReported(is_age=True))
        assert _tried(world) == []
        world.report(FactsReported())
        assert _tried(world) == [want]
