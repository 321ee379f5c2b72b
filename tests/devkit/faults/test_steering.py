"""What is chosen by what was reached: seldom reached transitions are varied more often."""

from collections import Counter
from dataclasses import replace

from devkit.faults.faults import all_kinds
from devkit.faults.life import FEATURES
from devkit.faults.plans import plan_of
from devkit.faults.reached import possible
from devkit.faults.steering import Steering
from devkit.faults.world import Outcome, Plan
from engine.core.queueing.transitions import TRANSITIONS

COMMON, RARE = "event: TimePassed", "queue: binding -> gated by OUTDATED"


def reached(plan: Plan, *names: str) -> Outcome:
    return Outcome(plan, reached=Counter(names))


def test_the_first_worlds_are_those_of_their_numbers() -> None:
    steering = Steering(60.0)
    assert [steering.plan(n) for n in range(5)] == [plan_of(n, 60.0) for n in range(5)]


def test_what_few_worlds_reached_is_varied_more_often() -> None:
    steering = Steering()
    frequent = [replace(plan_of(n), nodes=100) for n in range(99)]
    seldom = replace(plan_of(99), nodes=200)
    for plan in frequent:
        steering.learn(reached(plan, COMMON))
    steering.learn(reached(seldom, RARE))

    sizes = Counter(steering.plan(n).nodes for n in range(1000, 1400))
    assert sizes[200] > 10 * sizes[100] > 0
    assert 150 < sizes[200] + sizes[100] < 250  # the others are worlds of their numbers


def test_a_variation_is_another_world_with_a_few_changes() -> None:
    steering = Steering()
    example = replace(plan_of(3), nodes=200)
    steering.learn(reached(example, RARE))
    varied = [p for n in range(10, 60) if (p := steering.plan(n)).nodes == 200]

    assert len({plan.seed for plan in varied}) == len(varied) > 10
    assert all(len(plan.faults ^ example.faults) <= 3 for plan in varied)
    assert any(plan.faults != example.faults for plan in varied)
    assert all(plan.faults <= frozenset(all_kinds()) for plan in varied)
    assert all(plan.features <= frozenset(FEATURES) for plan in varied)


def test_every_move_of_the_queues_table_can_be_reached() -> None:
    moves = sum(map(len, TRANSITIONS.values()))
    assert sum(name.startswith("queue: ") for name in possible(all_kinds())) == moves
