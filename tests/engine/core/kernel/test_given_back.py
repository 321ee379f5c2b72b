"""What one gives back another gets: capacity, nominations, turns; and who is asked about what."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.kernel.events import (
    CanaryChanged,
    Event,
    LeadershipAcquired,
    Stopped,
    TimePassed,
    TurnBegan,
    WaitingPodPreempted,
)
from engine.core.kernel.instructions import Instruction, ReportFault, ReportGate
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.scheduler_selector import Canary
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.random_life import follow
from tests.engine.core.kernel.small_world import CONFIG, World
from tests.engine.core.kernel.test_decide import EXTENDER, answer
from tests.engine.core.kernel.test_group_attempts import (
    PREEMPTING,
    bound,
    evictions,
    grown,
    in_group,
    pod_group,
    rest,
    told,
)
from tests.engine.core.kernel.test_permits import decided, patient


def place(world: World, name: str) -> str:
    found: str = world.queue.describe(world.known[name].key)["queue"]
    return found


# --- capacity ------------------------------------------------------------------------------


def _times_out(world: World) -> None:
    world.wait(61.0)


def _is_preempted(world: World) -> None:
    world.report(WaitingPodPreempted(world.known["holds"].uid))


def _is_decided_by_others(world: World) -> None:
    candidate = Scheduler(world.bundle, world.evaluator)
    world.report(CanaryChanged(Canary(candidate, lambda pod, _: pod.name == "holds")))


def _is_deleted(world: World) -> None:
    world.delete("holds")


@pytest.mark.parametrize(
    "ends",
    [_times_out, _is_preempted, _is_decided_by_others, _is_deleted],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("group", ["", "g"])
def test_what_waits_for_capacity_is_tried_when_a_pod_in_permit_gives_it_back(
    ends: Callable[[World], None], group: str
) -> None:
    files = patient()
    if not group:
        files = {"mine.star": 'def permit(pod, group):\n    return wait(60, "x")\n'}
    world = grown(8, files)
    decided(world, make_pod("holds", cpu=8, labels={"group": group} if group else {}))
    decided(world, make_pod("wants", cpu=8))
    assert place(world, "wants") == "unschedulable"
    ends(world)
    assert place(world, "wants") in ("active", "backoff")


def test_a_new_node_is_offered_to_those_that_found_none() -> None:
    world = grown(1)
    world.add(make_pod("a", cpu=2))
    rest(world)
    assert place(world, "a") == "unschedulable"
    world.add_node(make_node("other", cpu=2))
    assert place(world, "a") in ("active", "backoff")
    rest(world)
    assert [one.node for one in world.bindings] == ["other"]


# --- groups --------------------------------------------------------------------------------


def test_a_group_whose_victims_are_all_on_their_way_out_has_none_evicted() -> None:
    world = grown(2, PREEMPTING)
    world.add(bound("low", cpu=2, terminating=True))
    world.put_object("podgroups", pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    rest(world)
    assert not evictions(world)
    world.delete("low")
    rest(world)
    assert {one.pod.name for one in world.bindings} == {"a", "b"}


@pytest.mark.parametrize("count", [1, 2])
def test_a_group_preempts_for_as_many_as_belong_together(count: int) -> None:
    world = grown(2, PREEMPTING)
    world.add(bound("low", cpu=2))
    world.put_object("podgroups", pod_group(count, priority=9))
    for number in range(count):
        world.add(in_group(f"p{number}", priority=9))
    rest(world)
    assert len(evictions(world)) == 1


def test_a_nominated_pod_that_is_held_counts_once() -> None:
    world = grown(3)
    world.put_object("podgroups", pod_group(3))
    for name in ("a", "b", "c"):
        world.add(in_group(name, nominated="n"))
    rest(world)
    assert len(world.bindings) == 3
    assert not len(world.queue.nominator)


def test_what_left_capacity_to_a_group_is_tried_when_the_group_gives_it_up() -> None:
    """A member that was held for a while, and released again, gives up its nomination, too."""
    world = grown(2)
    world.add(in_group("a", nominated="n", priority=9))
    world.add(make_pod("small", cpu=2))
    rest(world)
    assert place(world, "small") == "unschedulable"
    world.put_object("podgroups", pod_group(3, priority=9))
    for name in ("b", "c"):
        world.add(in_group(name, priority=9))
    rest(world)
    assert told(world)["a"].startswith("pod group is unschedulable")
    assert [one.pod.name for one in world.bindings] == ["small"]


def test_a_pod_that_joins_a_group_amid_its_preemption_has_no_more_evicted() -> None:
    class Evicting(World):
        """The eviction is still under way."""

        def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
            self._follow(instructions)
            return instructions

    world = Evicting(PREEMPTING)
    world.add_node(make_node("n", cpu=4))
    for name in ("low-0", "low-1"):
        world.add(bound(name, cpu=2))
    world.put_object("podgroups", pod_group(2, priority=9))
    for name in ("a", "b", "c"):
        world.add(in_group(name, priority=9))
        world.report(TurnBegan())
        world.turns(4)
    assert len(evictions(world)) == 1
    assert not [one for one in world.done if isinstance(one, ReportFault)]
    world.check()


def test_pods_of_another_priority_that_are_being_deleted_are_no_fault_of_their_group() -> None:
    world = grown(4)
    world.put_object("podgroups", pod_group(2, priority=5))
    world.add(in_group("old", priority=7, node="n", terminating=True))
    for name in ("a", "b"):
        world.add(in_group(name, priority=5))
    rest(world)
    assert len(world.bindings) == 2
    world = grown(4)
    world.put_object("podgroups", pod_group(2, priority=5))
    world.add(in_group("old", priority=7, node="n"))
    for name in ("a", "b"):
        world.add(in_group(name, priority=5))
    rest(world)
    assert "same priority" in told(world)["a"]


# --- who is asked, and what follows --------------------------------------------------------


def test_a_pod_of_another_scheduler_is_not_queued() -> None:
    world = grown(4)
    world.add(pod := make_pod("a", cpu=1, scheduler_name="another"))
    assert pod.uid not in world.queue
    assert pod.uid in {one.uid for one in world.kernel.cluster.pending_pods()}


def test_a_pod_whose_sort_key_fails_stands_among_the_others_by_its_priority() -> None:
    body = 'def queue_key(pod):\n    return fail("x") if pod.name == "b" else -pod.priority\n'
    world = grown(8, {"mine.star": body})
    for name, priority in (("a", 1), ("b", 5), ("c", 9)):
        world.add(make_pod(name, cpu=1, priority=priority))
    rest(world)
    assert [one.pod.name for one in world.bindings] == ["c", "b", "a"]


@pytest.mark.parametrize("is_canary", [False, True])
def test_plugins_of_the_runtime_are_asked_by_all_policies(is_canary: bool) -> None:
    def with_plugins(cache: Any, _: Any, **words: Any) -> Kernel:
        return Kernel(cache, make_plugins(cache.objects), **words)

    world = World({}, with_plugins)
    world.add_node(make_node("n", cpu=8))
    if is_canary:
        candidate = Scheduler(world.bundle, world.evaluator)
        world.report(CanaryChanged(Canary(candidate, lambda *_: True)))
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}
    world.add(make_pod("a", cpu=1, volumes=[claim]))
    rest(world)
    assert not world.bindings
    assert "missing" in told(world)["a"]


def test_the_next_look_is_never_in_the_past() -> None:
    world = grown(8, patient())
    decided(world, make_pod("a", cpu=1, labels={"group": "g"}))
    world.clock.advance(100.0)
    world.report(TurnBegan())  # not that time has passed
    at = world.kernel.wakes_at()
    assert at is not None
    assert at > world.clock.monotonic()


def test_a_stopped_process_lets_nothing_through_and_waits_for_nothing() -> None:
    world = grown(8, patient())
    decided(world, make_pod("a", cpu=1, labels={"group": "g"}))
    world.report(Stopped())
    assert (len(world.permits), world.groups.waiting) == (0, set())
    assert world.kernel.wakes_at() is None
    world.wait(61.0)
    assert not world.bindings
    assert world.cache.pod_count == 1  # nothing else takes it until the process ends


def test_a_standby_gathers_no_work_and_reports_again_what_it_reported_once_it_leads() -> None:
    class Standby(World):
        def report(self, event: Event) -> list[Instruction]:
            return [] if isinstance(event, LeadershipAcquired) else super().report(event)

    world = Standby()
    world.add_node(make_node("n", cpu=8))
    for name in ("a", "b"):
        world.add(in_group(name))
    world.report(TimePassed())
    assert not world.kernel.has_work
    found = World.report(world, LeadershipAcquired())
    assert {one.pod.name for one in found if isinstance(one, ReportGate)} == {"a", "b"}
    world.put_object("podgroups", pod_group(2))
    world.report(TimePassed())
    follow(world)
    rest(world)
    assert len(world.bindings) == 2


def test_a_pod_that_is_being_deleted_is_put_away_and_not_tried_again() -> None:
    world = World({"config.yaml": CONFIG + EXTENDER})
    world.add_node(make_node("n1", cpu=4))
    world.add(pod := make_pod("a", cpu=1))
    turn = world.begin_decision()
    next(turn)
    world.change(make_pod("a", uid=pod.uid, cpu=1, terminating=True))
    answer(turn)
    assert place(world, "a") == "terminating"
    assert not world.bindings
    world.wait(61.0)
    assert not world.queue.has_poppable
