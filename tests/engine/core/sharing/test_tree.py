"""The tree of queues: where each is, and that what is wrong with one leaves the others alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.sharing.tree import (
    DEEPEST,
    MOST_QUEUES,
    ROOT,
    Alias,
    GivenQueue,
    QueueTree,
    build_tree,
)


def _named(**parents: str) -> list[GivenQueue]:
    return [GivenQueue(name, parent, {"weight": 1}, name) for name, parent in parents.items()]


def _paths(tree: QueueTree) -> list[str]:
    return [path for path in tree.queues if path != ROOT]


def test_queues_are_found_by_path_name_and_alias() -> None:
    tree = build_tree(
        _named(vision="research", research="", web=""), [Alias("team-a/batch", "vision")]
    )
    assert _paths(tree) == ["research", "research/vision", "web"]
    assert tree.queues[ROOT].children == ("research", "web")
    for name in ("research/vision", "vision", "team-a/batch"):
        found = tree.find(name)
        assert found is not None
        assert found.path == "research/vision"
    assert tree.find("nowhere") is None
    assert [queue.path for queue in tree.above("research/vision")] == [
        "research/vision", "research", ROOT,
    ]  # fmt: skip
    assert not tree.problems


def test_queues_on_the_way_of_a_path_are_made() -> None:
    tree = build_tree([GivenQueue("a/b/c", attributes={"weight": 2}, is_path=True)])
    assert _paths(tree) == ["a", "a/b", "a/b/c"]
    assert tree.queues["a/b"].attributes == {}
    assert tree.queues["a/b/c"].is_leaf
    assert not tree.queues["a"].is_leaf


@pytest.mark.parametrize(
    ("given_queues", "problem", "kept"),
    [
        (_named(a="b", b="a", c="", d="c"), "is under itself: a > b > a", ["c", "c/d"]),
        (_named(a="a", c=""), "is under itself: a > a", ["c"]),
        (_named(vision="reserch", research=""),
         "is under `reserch`, which is not there; did you mean `research`?", ["research"]),
        ([*_named(a=""), GivenQueue("b"), GivenQueue("b", "a")],
         "is given twice, under the root and under `a`",
         ["a", "b"]),
        ([GivenQueue("a", source="q.yaml:3"), GivenQueue("a")],
         "is given twice; the first is q.yaml:3", ["a"]),
        ([GivenQueue("a/b"), *_named(c="")], "want a name without a slash", ["c"]),
        ([GivenQueue("a//b", is_path=True), *_named(c="")],
         "want names with single slashes between them, such as `research/vision`", ["c"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_queue_leaves_it_out_alone(
    given_queues: list[GivenQueue], problem: str, kept: list[str]
) -> None:
    tree = build_tree(given_queues)
    assert problem in {one.message for one in tree.problems}
    assert _paths(tree) == kept


def test_what_is_under_a_queue_that_is_left_out_is_left_out() -> None:
    tree = build_tree(_named(a="b", b="a", c="a", d="c", e=""))
    assert _paths(tree) == ["e"]
    assert len(tree.problems) == 4


def test_levels_and_queues_are_bounded() -> None:
    chain = [GivenQueue(f"q{k}", f"q{k - 1}" if k else "") for k in range(DEEPEST + 1)]
    tree = build_tree(chain)
    assert len(_paths(tree)) == DEEPEST
    assert tree.problems[0].message == f"is on level {DEEPEST + 1}, want at most {DEEPEST}"
    many = build_tree(GivenQueue(f"q{k}") for k in range(MOST_QUEUES + 2))
    assert len(_paths(many)) == MOST_QUEUES
    assert len(many.problems) == 2


def test_another_name_of_a_queue_that_is_not_there_is_a_problem() -> None:
    tree = build_tree(_named(a=""), [Alias("ns/lq", "b", "LocalQueue ns/lq")])
    assert tree.find("ns/lq") is None
    assert tree.problems[0].message == "is another name of `b`, which is not there"


NAMES = st.sampled_from("abcdefgh")


@given(st.dictionaries(NAMES, st.sampled_from(["", *"abcdefghx"])), st.randoms())
def test_any_parents_give_a_tree_in_any_order(parents: dict[str, str], random: object) -> None:
    queues = [GivenQueue(name, parent) for name, parent in parents.items()]
    tree = build_tree(queues)
    assert len(_paths(tree)) + sum(one.left_out for one in tree.problems) == len(queues)
    for path, queue in tree.queues.items():
        if queue.parent is not None:
            assert path in tree.queues[queue.parent].children
            assert tree.above(path)[-1].path == ROOT
    random.shuffle(queues)  # type: ignore[attr-defined]  # a Random
    again = build_tree(queues)
    assert list(again.queues) == list(tree.queues)


def test_a_queue_that_is_implied_gives_way_to_one_that_is_given() -> None:
    """Kueue's ClusterQueues name cohorts of which there need be no object."""
    implied = [GivenQueue("all", "", {"weight": 1}, f"ClusterQueue {n}", False, True) for n in "ab"]
    queues = [*implied, *_named(a="all", b="all")]
    tree = build_tree(queues)
    assert list(tree.queues) == ["", "all", "all/a", "all/b"]
    assert tree.problems == ()
    tree = build_tree([*queues, *_named(all="org", org="")])
    assert list(tree.queues) == ["", "org", "org/all", "org/all/a", "org/all/b"]
    assert tree.problems == ()
