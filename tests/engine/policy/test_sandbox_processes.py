"""Several sandbox processes: one takes over from another."""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.policy.evaluator import Limits, PolicyFailure, Verdict
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.protocol import MIB
from tests.engine.policy.programs import per_node, program_of

LINUX = sys.platform == "linux"

SCORES = """
def score(pod, node):
    total = 0
    for i in range(node.pod_count % 40):
        total += i
    return total % 101

def filter(pod, node):
    if node.name == "stuck":
        return str(sorted(range(40000000), key = lambda n: -n)[0])
    if node.name == "list":
        return str(len([0] * (len(node.name) << 27)))
    return None
"""
NODES = [{"pod_count": number} for number in range(6000)]


def _want(nodes: list[dict[str, int]]) -> list[Verdict]:
    return [sum(range(node["pod_count"] % 40)) % 101 for node in nodes]


def _evaluator(**limits: float | int) -> SandboxEvaluator:
    made = Limits(**limits)  # type: ignore[arg-type]  # of two kinds
    evaluator = SandboxEvaluator(program_of(SCORES, limits=made))
    evaluator.wait_until_ready()
    return evaluator


def test_a_child_that_waits_takes_over_at_once() -> None:
    with _evaluator() as evaluator:
        first, second = evaluator.pids
        assert evaluator.pid == first
        os.kill(first, signal.SIGKILL)
        assert evaluator.evaluate([per_node("score", {"pod_count": 3})]) == [[3]]
        assert evaluator.pid == second
        assert evaluator.restarts == 1
        evaluator.wait_until_ready()
        assert len(evaluator.pids) == 2
        # And so again, as often as it takes.
        os.kill(second, signal.SIGKILL)
        assert evaluator.evaluate([per_node("score", {"pod_count": 3})]) == [[3]]


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_every_child_has_the_same_walls() -> None:
    with _evaluator(address_space=300 * MIB) as evaluator:
        for pid in evaluator.pids:
            status = Path(f"/proc/{pid}/status").read_text()
            assert "NoNewPrivs:\t1" in status
            limits = Path(f"/proc/{pid}/limits").read_text()
            (line,) = [row for row in limits.splitlines() if row.startswith("Max address space")]
            assert line.split()[3:5] == [str(300 * MIB)] * 2
            opened = sorted(os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir())
            assert [target.partition(":")[0] for target in opened] == [
                "/dev/null",
                "/dev/null",
                "pipe",
                "socket",
            ]


@pytest.mark.slow("starts processes")
def test_a_child_that_dies_over_an_entry_costs_nothing_else() -> None:
    with _evaluator() as evaluator:
        done = threading.Event()

        def kill() -> None:
            pause = 0.001
            while not done.wait(pause):
                pause = pause * 3 % 0.4  # somewhere else each time
                for pid in evaluator.pids[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for _ in range(3):
                (got,) = evaluator.evaluate([per_node("score", *NODES)])
                want = _want(NODES)
                for verdict, right in zip(got, want, strict=True):
                    assert isinstance(verdict, PolicyFailure) or verdict == right
        finally:
            done.set()
            killer.join()
        assert evaluator.evaluate([per_node("score", *NODES)]) == [_want(NODES)]


def test_an_entry_that_takes_all_memory_costs_itself_alone() -> None:
    with _evaluator() as evaluator:
        names = [{"name": f"n{number}"} for number in range(3000)]
        names[1234]["name"] = "list"
        (got,) = evaluator.evaluate([per_node("filter", *names)])
        (failed,) = [n for n, verdict in enumerate(got) if verdict is not None]
        assert failed == 1234
        assert isinstance(got[1234], PolicyFailure)
        assert got[1234].kind == "memory"


def test_an_entry_that_takes_too_long_costs_its_call_and_no_more_than_that_time() -> None:
    with _evaluator(deadline=0.5, address_space=4096 * MIB) as evaluator:
        names = [{"name": f"n{number}"} for number in range(3000)]
        names[1500]["name"] = "stuck"
        began = time.monotonic()
        got, scores = evaluator.evaluate([per_node("filter", *names), per_node("score", *NODES)])
        assert time.monotonic() - began < 20
        assert scores == _want(NODES)
        assert isinstance(got[1500], PolicyFailure)
        assert got[1500].message == "filter() did not answer within 0.5 s"
        assert all(
            v is None or (isinstance(v, PolicyFailure) and v.kind == "deadline") for v in got
        )


def test_closing_does_not_leave_a_child_that_is_about_to_start() -> None:
    evaluator = SandboxEvaluator(program_of(SCORES))
    evaluator.evaluate([per_node("score", {"pod_count": 1})])
    before = threading.active_count()
    evaluator.close()
    assert evaluator.pids == []
    assert threading.active_count() <= before
    assert not [t for t in threading.enumerate() if t.name == "sandbox-start"]


@pytest.mark.skipif(not LINUX, reason="stops a process")
def test_a_process_that_does_not_react_is_given_up_at_the_deadline() -> None:
    with _evaluator(deadline=0.3) as evaluator:
        assert evaluator.pid is not None
        os.kill(evaluator.pid, signal.SIGSTOP)
        begun = time.monotonic()
        ((failure,),) = evaluator.evaluate([per_node("score", {"pod_count": 3})])
        assert isinstance(failure, PolicyFailure)
        assert failure.kind == "deadline"
        assert time.monotonic() - begun < 5
