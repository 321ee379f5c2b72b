"""An attempt holds a node with all that it needs there, or nothing; a name belongs to one pod."""

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from engine.core.framework.status import Code, Status
from engine.core.kernel.events import RevisionSwitched
from engine.core.kernel.instructions import PodUncounted
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS
from engine.core.scheduling.decision import Explanation
from engine.core.scheduling.extenders import Answer, Question
from engine.core.scheduling.placement import Placement, Rejection
from engine.core.scheduling.scheduling_cycle import Scheduler
from tests.builders import make_pod
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_group_attempts import (
    bound,
    grown,
    in_group,
    pod_group,
    rest,
    told,
)


class Holder:
    """A plugin of the runtime that says *refusal*."""

    def __init__(self, name: str, held: list[str], refusal: Status | None = None) -> None:
        self.name = name
        self._held = held
        self._refusal = refusal

    def reserve(self, state: Any, pod: Pod, node: str) -> Status | None:
        if self._refusal is None:
            self._held.append(self.name)
        return self._refusal

    def unreserve(self, state: Any, pod: Pod, node: str) -> None:
        if self.name in self._held:
            self._held.remove(self.name)


def hold(world: World, *holders: Holder) -> Placement | Rejection:
    world.add(make_pod("a", cpu=1))
    queued = world.queue.pop()
    assert queued is not None
    decision = world.scheduler.schedule(
        queued.pod, world.cache.snapshot(), world.queue.nominator, has_post_filters=False
    )
    reserves: Any = [(one, None) for one in holders]
    decision = msgspec.structs.replace(decision, reserves=reserves)
    return world.kernel.attempts.hold(queued, decision, "n", 0.0)


def test_what_plugins_hold_for_a_pod_stays_while_it_has_its_node() -> None:
    world, held = grown(4), list[str]()
    assert isinstance(hold(world, Holder("one", held), Holder("two", held)), Placement)
    assert (held, world.cache.pod_count) == (["one", "two"], 1)


@pytest.mark.parametrize(
    ("code", "is_error"), [(Code.UNSCHEDULABLE, False), (Code.ERROR, True)], ids=["no", "failed"]
)
def test_nothing_is_held_where_one_plugin_refuses(code: Code, is_error: bool) -> None:
    world, held = grown(4), list[str]()
    refusal = Status(code, ("no disk",), "two")
    got = hold(world, Holder("one", held), Holder("two", held, refusal), Holder("three", held))
    assert isinstance(got, Rejection)
    assert (held, world.cache.pod_count) == ([], 0)
    assert got.is_error == is_error
    assert "no disk" in got.message


class Reserving(Scheduler):
    """One whose decisions all have a plugin reserve."""

    def __init__(self, world: World, plugin: Any, state: Any = None) -> None:
        super().__init__(world.bundle, world.evaluator)
        self._reserves = [(plugin, state)]

    def steps(self, *given: Any, **words: Any) -> Generator[Question, Answer, Explanation]:
        found = yield from super().steps(*given, **words)
        decision = msgspec.structs.replace(found.decision, reserves=self._reserves)
        return msgspec.structs.replace(found, decision=decision)


@pytest.mark.parametrize(
    ("code", "queue"), [(Code.UNSCHEDULABLE, "unschedulable"), (Code.ERROR, "backoff")]
)
def test_a_pod_that_a_plugin_refuses_has_no_pod_tried_again_by_what_it_gives_back(
    code: Code, queue: str
) -> None:
    """Not itself either: no decision was made while it held the node."""
    world = grown(4)
    world.add(bound("other", cpu=2))
    world.add(make_pod("large", cpu=3))
    rest(world)
    world.report(RevisionSwitched(Reserving(world, Holder("p", [], Status(code, ("no",), "p")))))
    world.turns(1)
    world.add(make_pod("a", cpu=1))
    world.turns(1)
    world.check()
    assert world.cache.pod_count == 1
    assert [world.queue.describe(f"default/{name}")["queue"] for name in ("large", "a")] == [
        "unschedulable",
        queue,
    ]


def test_a_group_hears_what_a_plugin_refuses_one_of_its_pods_for() -> None:
    world = grown(4)
    refusal = Status(Code.UNSCHEDULABLE, ("no disk",), "p")
    world.report(RevisionSwitched(Reserving(world, Holder("p", [], refusal))))
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    assert world.cache.pod_count == 0
    assert "no disk" in told(world)["a"]


@pytest.mark.parametrize("node", [None, "n"], ids=["is assumed", "is seen on a node"])
def test_a_pod_whose_name_another_one_has_is_no_longer_counted(node: str | None) -> None:
    """That it went was not seen."""
    world = grown(4)
    world.add(bound("a", uid="before", cpu=1))
    pod = make_pod("a", uid="after", cpu=1, node=node)
    world.add(pod)
    rest(world)
    world.add(bound("other", cpu=1))
    assert list(world.counted) == ["after", world.known["other"].uid]
    gone = [one.uid for one in world.done if isinstance(one, PodUncounted)]
    assert gone == ["before"]
