"""A difference names the rule that makes it, as far as the two decisions show it."""

import pytest

from tests.builders import make_node, make_pod
from tests.engine.rollout.shadow.watched import WatchedWorld
from tests.profiles import only

PROFILE = only("NodeResourcesFit", "{name: size, weight: 2}", "colour")
SIZE = """
def score(pod, node):
    return node.allocatable.get("cpu", 0) // 1000
"""
COLOUR = """
_RED = "red"

def filter(pod, node):
    if node.labels.get("colour") == _RED:
        return "too red"
    return None
"""
FAILING = """

def score(pod, node):
    fail("x")
"""
GATE = """

def pre_enqueue(pod):
    return "not before noon"
"""
FILES = {"config.yaml": PROFILE, "size.star": SIZE, "colour.star": COLOUR}
#: Says the same.
SIZE_AGAIN = SIZE.replace("return", "# in cores\n    return")


def compared(
    candidate: dict[str, str], pods: int = 6, base: dict[str, str] = FILES
) -> WatchedWorld:
    world = WatchedWorld(base, candidate)
    for number, colour in enumerate(("red", "blue", "green")):
        world.add_node(make_node(f"n{number}", cpu=10 * (3 - number), labels={"colour": colour}))
    for number in range(pods):
        world.add(make_pod(f"p{number}", cpu=1))
    world.turns(pods)
    return world


@pytest.mark.parametrize(
    ("edits", "kind", "rule"),
    [
        pytest.param(
            {"size.star": SIZE.replace("return", "return 99 -")},
            "moved",
            ("size", "score", "size.star:2"),
            id="a score",
        ),
        pytest.param(
            {
                "size.star": SIZE_AGAIN,
                "colour.star": COLOUR.replace("if node", "if True or node"),
            },
            "newly_pending",
            ("colour", "filter", "colour.star:6"),
            id="a filter",
        ),
        pytest.param(
            {"size.star": SIZE_AGAIN, "colour.star": COLOUR + FAILING},
            "failed",
            ("colour", "score", "colour.star:11"),
            id="where it fails",
        ),
        pytest.param(
            {"colour.star": COLOUR.replace('"red"', '"green"')},
            "moved",
            ("colour", "", ""),
            id="a filter that moves pods is named if it alone was edited",
        ),
        pytest.param(
            {"colour.star": COLOUR + GATE},
            "newly_pending",
            ("colour", "pre_enqueue", "colour.star:11"),
            id="a gate",
        ),
    ],
)  # fmt: skip
def test_the_rule_of_a_difference(
    edits: dict[str, str], kind: str, rule: tuple[str, str, str]
) -> None:
    got = compared(FILES | edits).shadow.measures
    assert set(got.counts) == {kind}
    assert got.by_policy == {rule[0]: got.counts[kind]}
    assert {(one.policy, one.hook, one.place) for one in got.examples} == {rule}


def test_a_pod_that_is_placed_again_names_what_rejected_it_in_force() -> None:
    files = FILES | {"colour.star": COLOUR.replace("if node", "if True or node")}
    got = compared(FILES, base=files).shadow.measures
    assert set(got.counts) == {"newly_placed"}
    (example, *_) = got.examples
    assert (example.policy, example.hook, example.place) == ("colour", "filter", "colour.star:6")
