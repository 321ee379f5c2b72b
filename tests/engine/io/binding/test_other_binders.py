"""Bindings of our pods by another scheduler are counted, and many of them cause a warning."""

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from engine.io.binding.other_binders import MANY, PAUSE, OtherBinders
from engine.lib.clock import VirtualClock
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod


class World:
    """What decides if a binding is another's, and what was seen of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.is_leading = True
        self.counted: set[str] = set()
        self._registry = CollectorRegistry()
        self.watching = OtherBinders(
            is_to_place=lambda pod: self.is_leading and pod.scheduler_name == "ours",
            is_counted=self.counted.__contains__,
            counter=Metrics(self._registry).pods_bound_by_others,
            clock=self.clock,
        )

    def bind(self, name: str, scheduler: str = "ours") -> None:
        """See *name* pending, and then on a node."""
        pending = make_pod(name, scheduler_name=scheduler, uid=name)
        placed = make_pod(name, scheduler_name=scheduler, uid=name, node="n")
        self.watching.see(pending, placed)

    def number(self) -> float | None:
        """What the metric says."""
        return self._registry.get_sample_value("starsched_pods_bound_by_others_total")


@pytest.fixture
def world() -> World:
    return World()


def warned(world: World, names: list[str]) -> list[int]:
    """How many pods each warning is about that the bindings of *names* cause."""
    with capture_logs() as lines:
        for name in names:
            world.bind(name)
    return [line["pods"] for line in lines]


def test_many_cause_a_warning_and_no_more_for_a_while(world: World) -> None:
    names = [f"p{number}" for number in range(MANY)]
    assert warned(world, names[:-1]) == []
    assert warned(world, names[-1:]) == [MANY]
    assert warned(world, names * 2) == []
    world.clock.advance(PAUSE)
    assert warned(world, names[:1]) == [2 * MANY + 1]
    assert world.number() == 3 * MANY + 1


def test_what_this_process_decided_is_no_others(world: World) -> None:
    world.counted.add("p")
    world.bind("p")
    assert world.number() == 0
    world.bind("q")
    assert world.number() == 1


def test_pods_of_other_profiles_and_those_of_a_standby_are_not_ours(world: World) -> None:
    world.bind("theirs", scheduler="default-scheduler")
    world.is_leading = False
    world.bind("p")
    assert world.number() == 0


def test_a_pod_of_the_same_name_that_was_made_again_says_nothing(world: World) -> None:
    world.watching.see(
        make_pod("p", scheduler_name="ours", uid="1"),
        make_pod("p", scheduler_name="ours", uid="2", node="n"),
    )
    assert world.number() == 0
