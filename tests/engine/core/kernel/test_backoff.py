"""When a pod that was rejected is tried again, in a scheduler that has nothing else to do."""

import dataclasses
from typing import Any

import pytest

from engine.core.kernel.instructions import ReportFailure
from engine.core.kernel.kernel import Kernel
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.profiles import only

FILES = {
    "wants.star": '"""Waits for a label."""\n\ndef filter(pod, node):\n'
    '    return None if pod.labels.get("turn") == "go" else "not yet"\n',
    "config.yaml": only("wants"),
}
CHANGES = 25


def _attempts(world: World, seconds: float) -> int:
    """How many attempts fail while a label of one pod changes every so many *seconds*."""
    world.add_node(make_node("n1", cpu=4))
    world.add(make_pod("p", uid="p", labels={"turn": "0"}))
    world.turns(CHANGES)
    for turn in range(1, CHANGES + 1):
        world.wait(seconds)
        world.turns(CHANGES)
        world.change(make_pod("p", uid="p", labels={"turn": str(turn)}))
        world.turns(CHANGES)
    return sum(isinstance(one, ReportFailure) for one in world.done)


def test_an_idle_scheduler_tries_at_once_by_default() -> None:
    """As kube-scheduler does: each change that may help is an attempt."""
    assert _attempts(World(FILES), 0.3) == CHANGES + 1


def _patient_kernel(*arguments: Any, **words: Any) -> Kernel:
    """One whose backoff holds while no pod is active, too."""
    retries = dataclasses.replace(words["retries"], pops_early=False)
    return Kernel(*arguments, **{**words, "retries": retries})


@pytest.mark.parametrize("seconds", [0.01, 0.3])
def test_a_flapping_label_costs_attempts_that_are_bounded(seconds: float) -> None:
    """25 changes of a label in 8 seconds were 25 attempts.

    With a backoff of 1, 2, 4, ... seconds that holds in an idle scheduler, too, they are no more
    than the doubling allows.
    """
    world = World(FILES, _patient_kernel)
    assert _attempts(world, seconds) <= 1 + 3
    # And it is tried with its newest version in the end, without another event.
    world.change(make_pod("p", uid="p", labels={"turn": "go"}))
    world.wait(30.0)
    world.turns(CHANGES)
    assert [placement.pod.name for placement in world.bindings] == ["p"]
    world.check()
