"""A difference is traced to the edited policy that makes it, and to a line."""

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
FILES = {"config.yaml": PROFILE, "size.star": SIZE, "colour.star": COLOUR}
#: Says the same.
SIZE_AGAIN = SIZE.replace("return", "# in cores\n    return")


def compared(candidate: dict[str, str], pods: int = 6) -> WatchedWorld:
    world = WatchedWorld(FILES, candidate)
    for number, colour in enumerate(("red", "blue", "green")):
        world.add_node(make_node(f"n{number}", cpu=10 * (3 - number), labels={"colour": colour}))
    for number in range(pods):
        world.add(make_pod(f"p{number}", cpu=1))
    world.turns(pods)
    return world


@pytest.mark.parametrize(
    ("edits", "kind", "cause", "place"),
    [
        pytest.param(
            {"size.star": SIZE.replace("return", "return 99 -")},
            "moved",
            "size",
            "size.star:3",
            id="the only file",
        ),
        pytest.param(
            {
                "size.star": SIZE_AGAIN,
                "colour.star": COLOUR.replace('"colour") == _RED', '"colour") != _RED'),
            },
            "moved",
            "colour",
            "colour.star:5",
            id="one of two",
        ),
        pytest.param(
            {
                "size.star": SIZE_AGAIN,
                "colour.star": COLOUR.replace("if node", "if True or node").replace(
                    '"red"', '"rosso"'
                ),
            },
            "newly_pending",
            "colour",
            "colour.star:5",
            id="the changed line nearest to the rule",
        ),
        pytest.param(
            {"size.star": SIZE_AGAIN, "colour.star": COLOUR + FAILING},
            "failed",
            "colour",
            "colour.star:11",
            id="where it fails",
        ),
        pytest.param(
            {
                "config.yaml": only("NodeResourcesFit", "{name: size, weight: 2}", "shade"),
                "shade.star": COLOUR.replace("== _RED", '== "blue"'),
            },
            "moved",
            "config.yaml, shade",
            "shade.star:1",
            id="both are needed",
        ),
    ],
)  # fmt: skip
def test_the_cause_of_a_difference(
    edits: dict[str, str], kind: str, cause: str, place: str
) -> None:
    got = compared(FILES | edits).shadow.measures
    assert set(got.counts) == {kind}
    assert got.by_policy == {cause: got.counts[kind]}
    assert {(one.cause, one.place) for one in got.examples} == {(cause, place)}


def test_a_file_that_is_gone() -> None:
    candidate = {name: text for name, text in FILES.items() if name != "colour.star"}
    candidate |= {"config.yaml": only("NodeResourcesFit", "{name: size, weight: 2}")}
    got = compared(candidate).shadow.measures
    assert set(got.counts) == {"moved"}
    assert got.examples[0].cause == "config.yaml"
