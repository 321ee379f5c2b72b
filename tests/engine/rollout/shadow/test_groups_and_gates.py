"""What keeps pods pending that no node shows: gates, approval, and groups that cannot be whole."""

import pytest

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING, NEWLY_PLACED
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import member
from tests.engine.rollout.shadow.watched import WatchedWorld
from tests.profiles import only

PROFILE = only("NodeResourcesFit", "gang", "care")
GANG = """
def group_of(pod):
    name = pod.labels.get("group")
    if not name:
        return None
    return gang(name, min_count = parse_int(pod.labels.get("min", ""), 0))

def pre_enqueue(pod, group):
    if group != None and group.pod_count < group.min_count:
        return "too few pods"
    return None

def permit(pod, group):
    if group != None and group.waiting + group.placed < group.min_count:
        return wait(300, "the others have no node")
    return None
"""
CARE = """
def pre_enqueue(pod):
    return None

def permit(pod, group):
    return None

def filter(pod, node):
    return None
"""
FILES = {"config.yaml": PROFILE, "gang.star": GANG, "care.star": CARE}


def world_of(**edits: str) -> WatchedWorld:
    candidate = FILES | {f"{name}.star": text for name, text in edits.items()}
    world = WatchedWorld(FILES, candidate)
    for number in range(3):
        world.add_node(make_node(f"n{number}", cpu=4, labels={"number": str(number)}))
    return world


def add_group(world: WatchedWorld, size: int, wanted: int, cpu: int = 1) -> None:
    for number in range(size):
        world.add(member(f"g-{number}", "g", wanted, cpu, 0))
    world.turns(9)


@pytest.mark.parametrize(
    ("gang", "kind", "why"),
    [
        pytest.param(
            GANG.replace('get("min", ""), 0)', 'get("min", ""), 0) + 1'),
            NEWLY_PENDING,
            "too few pods",
            id="a gate",
        ),
        pytest.param(
            GANG.replace('get("min", ""), 0)', 'get("min", ""), 0) + 1').replace(
                "group.pod_count <", "False and group.pod_count <"
            ),
            NEWLY_PENDING,
            "the others have no node",
            id="approval",
        ),
        pytest.param(GANG + "\n# more words\n", "", "", id="no difference"),
    ],
)
def test_a_group_that_cannot_be_whole_with_the_pods_that_there_are(
    gang: str, kind: str, why: str
) -> None:
    world = world_of(gang=gang)
    add_group(world, size=3, wanted=3)
    assert len(world.bindings) == 3
    got = world.shadow.measures
    assert got.compared == got.decided == got.timed == 3
    assert got.counts == ({kind: 3} if kind else {})
    assert all(one.after == why for one in got.examples)
    assert got.by_policy == ({"gang": 3} if kind else {})


def test_a_group_of_which_too_few_would_have_a_node_stays_pending_as_one() -> None:
    text = CARE.replace(
        "def filter(pod, node):\n    return None",
        'def filter(pod, node):\n    return "no" if pod.name == "g-2" else None',
    )
    world = world_of(care=text)
    add_group(world, size=3, wanted=3)
    got = world.shadow.measures
    assert got.counts == {NEWLY_PENDING: 3}
    others = [one for one in got.examples if one.pod != "default/g-2"]
    assert {one.after for one in others} == {
        "the pod's group cannot be whole: 2 of 3 pods would have a node"
    }


def test_a_group_that_can_do_without_the_pod_keeps_its_nodes() -> None:
    text = CARE.replace(
        "def filter(pod, node):\n    return None",
        'def filter(pod, node):\n    return "no" if pod.name == "g-2" else None',
    )
    world = world_of(care=text)
    add_group(world, size=3, wanted=2)
    assert world.shadow.measures.counts == {NEWLY_PENDING: 1}


def test_pods_of_a_group_see_each_other_where_the_candidate_has_placed_them() -> None:
    """Each fills a node: placed where the policies in force have them, they would not fit."""
    text = CARE + '\ndef score(pod, node):\n    return parse_int(node.labels["number"], 0)\n'
    world = world_of(care=text)
    add_group(world, size=3, wanted=3, cpu=4)
    got = world.shadow.measures
    assert got.compared == 3
    assert set(got.counts) <= {MOVED}
    snapshot = world.cache.snapshot()
    assert sum(len(info.pods) for info in snapshot.infos if info is not None) == 3


def test_a_group_that_was_not_whole_and_would_be_is_newly_placed() -> None:
    rejects = CARE.replace(
        "def filter(pod, node):\n    return None",
        'def filter(pod, node):\n    return "no" if pod.name == "g-2" else None',
    )
    world = WatchedWorld(FILES | {"care.star": rejects}, FILES)
    for number in range(3):
        world.add_node(make_node(f"n{number}", cpu=4))
    add_group(world, size=3, wanted=3)
    got = world.shadow.measures
    assert got.counts.keys() == {NEWLY_PLACED}
    assert got.compared == got.decided


def test_pods_that_come_into_a_group_are_counted_with_the_others_that_would() -> None:
    grouped = GANG.replace('get("group")', 'get("team")')
    world = world_of(gang=grouped)
    for number in range(2):
        world.add(make_pod(f"p{number}", cpu=1, labels={"team": "a", "min": "2"}))
    for number in range(2):
        world.add(make_pod(f"q{number}", cpu=1, labels={"team": "b", "min": "3"}))
    world.turns(9)
    got = world.shadow.measures
    assert got.compared == 4
    assert got.counts == {NEWLY_PENDING: 2}
    assert {one.pod for one in got.examples} == {"default/q0", "default/q1"}


@pytest.mark.parametrize(
    ("care", "kind", "why"),
    [
        pytest.param(
            CARE.replace(
                "def pre_enqueue(pod):\n    return None",
                'def pre_enqueue(pod):\n    return "not now" if pod.name == "p1" else None',
            ),
            NEWLY_PENDING,
            "not now",
            id="a gate",
        ),
        pytest.param(
            CARE.replace(
                "def permit(pod, group):\n    return None",
                'def permit(pod, group):\n    return "not you" if pod.name == "p1" else None',
            ),
            NEWLY_PENDING,
            "not you",
            id="approval",
        ),
        pytest.param(
            CARE.replace(
                "def pre_enqueue(pod):\n    return None",
                'def pre_enqueue(pod):\n    return fail("oh") if pod.name == "p1" else None',
            ),
            FAILED,
            "care.star:3: pre_enqueue() failed: oh",
            id="a gate that fails",
        ),
    ],
)
def test_a_gate_that_opens_for_no_pod_leaves_it_pending(care: str, kind: str, why: str) -> None:
    world = world_of(care=care)
    for number in range(3):
        world.add(make_pod(f"p{number}", cpu=1))
    world.turns(9)
    got = world.shadow.measures
    assert got.counts == {kind: 1}
    assert [(one.pod, one.after) for one in got.examples] == [("default/p1", why)]


def test_nothing_is_asked_about_gates_that_the_edit_left_as_they_were() -> None:
    gated = CARE.replace(
        "def pre_enqueue(pod):\n    return None",
        'def pre_enqueue(pod):\n    return "not now" if pod.name == "p1" else None',
    )
    world = WatchedWorld(FILES | {"care.star": gated}, FILES | {"care.star": gated + "\n# so\n"})
    world.add_node(make_node("n", cpu=8))
    for number in range(3):
        world.add(make_pod(f"p{number}", cpu=1))
    world.turns(9)
    got = world.shadow.measures
    assert (got.compared, got.counts) == (2, {})
