"""Sandbox processes that are none: the real evaluator survives whatever they do."""

import random
from typing import Any

import pytest

from devkit.faults.hosts import HostClock, Simulator
from devkit.faults.sandbox import FAULTS, SimulatedPool, Trouble
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure
from engine.policy.sandbox.process import SandboxEvaluator

BUNDLE = build_bundle({"taste.star": "def score(pod, node):\n    return 7\n"})


class Asked:
    """An evaluator on simulated processes, and the faults that happened to it."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = HostClock(Simulator(random.Random(seed)))
        self.faults: list[str] = []
        self.trouble = Trouble(random.Random(seed), self.faults.append)
        self.evaluator = SandboxEvaluator(BUNDLE.program, SimulatedPool(self.clock, self.trouble))

    def ask(self) -> Any:
        (answer,) = self.evaluator.evaluate([call()])
        return list(answer)


def call() -> Call:
    hooks = BUNDLE.program.instances
    index = next(n for n, one in enumerate(hooks) if one.policy == "taste")
    return Call(index, "score", b"{}", [b"{}", b"{}"])


def test_it_answers_as_the_evaluator_in_process_does() -> None:
    (want,) = InProcessEvaluator(BUNDLE.program).evaluate([call()])
    assert Asked().ask() == list(want)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_at_most_its_call(fault: str) -> None:
    asked = Asked()
    want = asked.ask()
    asked.trouble.due.append(fault)
    during = asked.ask()
    assert asked.faults == [f"sandbox {fault}"]
    assert during == want or all(isinstance(one, PolicyFailure) for one in during)
    assert asked.ask() == want


def test_one_that_hangs_takes_the_time_of_its_deadline() -> None:
    asked = Asked()
    asked.ask()
    before = asked.clock.monotonic()
    asked.trouble.due.append("hangs")
    asked.ask()
    assert asked.clock.monotonic() - before >= BUNDLE.program.limits.deadline
