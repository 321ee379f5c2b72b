"""A shadow counts what a candidate decides differently, and nothing else."""

import gc
import weakref
from datetime import timedelta

import pytest

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING, NEWLY_PLACED, OTHER_VICTIMS
from engine.core.kernel.instructions import ReportDecision
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.rollout_config import Gates, ShadowStage
from engine.rollout.judge import judge_shadow
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.status import Verdict
from tests.builders import make_node, make_pod
from tests.engine.rollout.shadow.watched import WatchedWorld, in_process
from tests.profiles import only
from tests.searching import part_of
from tests.waiting import wait_until

GROUPS = """
  pluginConfig:
    - name: GangScheduling
      args: {groupLabel: group, minCountLabel: min}
"""
PROFILE = only(
    "NodeResourcesFit", "GangScheduling", "DefaultPreemption", "{name: roomy, weight: 3}"
)
ROOMY = '''"""Prefers nodes with much free CPU."""

def filter(pod, node):
    if node.labels.get("number", "0") == "7" and pod.priority > 5:
        return "not on this one"
    return None

def score(pod, node):
    return node.allocatable.get("cpu", 0) * 100 // 64000
'''
#: The same in other words.
SAME = '''"""Prefers nodes with much free CPU.

As before.
"""

_MOST = 64_000

def _is_seventh(node):
    return node.labels.get("number", "0") == "7"

def filter(pod, node):
    return "not on this one" if pod.priority > 5 and _is_seventh(node) else None

def score(pod, node):
    cpu = node.allocatable.get("cpu", 0)
    return (100 * cpu) // _MOST
'''.replace("64_000", "64000")
FILES = {"config.yaml": PROFILE + GROUPS, "roomy.star": ROOMY}


def with_text(text: str) -> dict[str, str]:
    return FILES | {"roomy.star": text}


@pytest.mark.parametrize("seed", part_of(range(4)))
def test_the_same_in_other_words_makes_no_difference(seed: int) -> None:
    world = WatchedWorld(FILES, with_text(SAME))
    world.live(seed, 150)
    got = world.shadow.measures
    assert got.counts == {}, got
    assert got.skipped == {}, got
    assert got.compared == got.decided > 150
    assert got.victims == 0
    assert 0 < got.timed <= got.compared


def test_the_worlds_of_these_tests_have_everything_in_them() -> None:
    world = WatchedWorld(FILES, with_text(SAME))
    world.live(1, 250)
    done = {type(one).__name__ for one in world.done}
    assert {"Evict", "PodForgotten", "PodUncounted", "ReportGate", "Bind"} <= done, done
    made = [one for one in world.done if isinstance(one, ReportDecision)]
    assert any(one.is_member and one.decision.node for one in made)
    assert any(one.is_member and not one.decision.node for one in made)
    assert any(one.decision.nominated_node for one in made)


def test_a_wrong_sign_moves_pods() -> None:
    world = WatchedWorld(
        FILES, with_text(ROOMY.replace("return node.alloc", "return 100 - node.alloc"))
    )
    world.live(3, 600)  # which uids pods have, and so which of equal nodes, other tests decide
    got = world.shadow.measures
    # With its first members on other nodes, a group may be whole, or no longer.
    assert got.counts.keys() <= {MOVED, NEWLY_PENDING, NEWLY_PLACED}
    assert all("/g" in one.pod for one in got.examples if one.kind != MOVED), got.examples
    assert got.counts[MOVED] > 5, got
    assert got.examples[0].before != got.examples[0].after
    assert got.examples[0].scores_before["roomy"] < got.examples[0].scores_after["roomy"]
    # Both nodes under both texts: each text likes the node that it chose at least as much.
    (one, *_) = (one for one in got.examples if one.rival_before)
    assert sum(one.scores_before.values()) >= sum(one.rival_before.values())
    assert sum(one.scores_after.values()) >= sum(one.rival_after.values())
    assert one.rival_after["roomy"] < one.scores_after["roomy"]


GPU = "example.com/gpu"


def _with_some_gpu_pods(candidate: str) -> Verdict:
    """What a shadow comes to after 150 pods of which every twelfth requests a GPU."""
    world = WatchedWorld(FILES, with_text(candidate))
    for number, cpu in enumerate((8, 16, 24, 32, 40)):
        world.add_node(make_node(f"n{number}", cpu=cpu, allocatable={GPU: "8"}))
    for number in range(150):
        requests = {"cpu": "100m", **({GPU: "1"} if number % 12 == 0 else {})}
        world.add(make_pod(f"p{number}", requests=requests))
        world.turns(3)
        while world.bindings:
            world.end_binding(0, succeeds=True)
        world.delete(f"p{number}")
    stage = ShadowStage(timedelta(seconds=1), compared=150)
    # What a decision takes is not the subject.
    gates = Gates(latency=1_000_000.0)
    return judge_shadow(world.shadow.measures, stage, gates, 60.0)


def test_gpu_pods_that_are_scored_the_wrong_way_are_found_among_many_others() -> None:
    wrong = ROOMY.replace(
        "    return node.alloc",
        f'    if pod.requests.get("{GPU}", 0) > 0:\n'
        '        return 100 - node.allocatable.get("cpu", 0) * 100 // 64000\n'
        "    return node.alloc",
    )
    verdict = _with_some_gpu_pods(wrong)
    assert verdict.outcome == "fail"
    assert verdict.why.startswith(f"maxMovedOfClass: 100% (13 of 13) of `requests {GPU}`")
    harmless = _with_some_gpu_pods(SAME)
    assert harmless.outcome == "pass", harmless.why


def test_a_filter_that_rejects_some_pods_leaves_them_pending() -> None:
    text = ROOMY.replace(
        "    if node.labels",
        '    if pod.labels.get("group"):\n        return "no groups"\n    if node.labels',
        1,
    )
    world = WatchedWorld(FILES, with_text(text))
    world.live(4, 200)
    got = world.shadow.measures
    assert got.counts.keys() == {NEWLY_PENDING}
    assert sum(got.by_class.values()) == got.counts[NEWLY_PENDING]
    assert all("/Pod/g" in name for name in got.by_class), got.by_class


def test_a_failure_for_some_pods_is_counted_as_one() -> None:
    text = ROOMY.replace(
        "    if node.labels",
        '    if pod.name[-3:] == "1-1":\n        fail("no")\n    if node.labels',
        1,
    )
    world = WatchedWorld(FILES, with_text(text))
    world.live(4, 200)
    got = world.shadow.measures
    # What is left of a group one of whose pods failed stays pending with it.
    assert got.counts.keys() == {FAILED, NEWLY_PENDING}
    assert all("no" in one.after for one in got.examples if one.kind == FAILED)


def test_pods_of_a_profile_that_is_gone_would_stay_pending() -> None:
    """They were not compared: a slip in a schedulerName left the pods of it to nobody."""
    renamed = {name: text.replace("default-scheduler", "another") for name, text in FILES.items()}
    world = WatchedWorld(FILES, renamed)
    world.live(1, 100)
    got = world.shadow.measures
    made = [one for one in world.done if isinstance(one, ReportDecision)]
    assert got.compared == got.decided == len(made)
    assert set(got.counts) == {NEWLY_PENDING, OTHER_VICTIMS}  # nobody is evicted for one of them
    assert 0 < got.counts[NEWLY_PENDING] <= sum(one.decision.node is not None for one in made)
    example = next(one for one in got.examples if one.kind == NEWLY_PENDING)
    assert example.after == "no profile has the schedulerName `default-scheduler`"


def test_a_shadow_that_has_ended_is_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[object]] = []
    make = Scheduler.__init__

    def note(self: Scheduler, *args: object, **words: object) -> None:
        make(self, *args, **words)  # type: ignore[arg-type]
        made.append(weakref.ref(self.memo))

    monkeypatch.setattr(Scheduler, "__init__", note)
    gc.disable()  # collections of what is old are hours apart
    try:
        shadow = Shadow(in_process)
        world = WatchedWorld(FILES, with_text(SAME), shadow)
        world.live(1, 15)
        wait_until(lambda: shadow.measures.compared > 3)
        shadow.close()
        left = [one() for one in made]
        assert [memo for memo in left if memo is not None] == [
            world.scheduler.memo,
            world.candidate.scheduler.memo,
        ]
        assert len(left) >= 4  # both sides of the shadow
    finally:
        gc.enable()
