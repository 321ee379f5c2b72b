"""Guesses: what is asked ahead of need harms nobody, whatever becomes of the process it went to."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.policy.evaluator import Call, Limits, PolicyFailure, program_image
from engine.policy.sandbox import process
from engine.policy.sandbox.children import Child
from engine.policy.sandbox.guesses import GuessError, Guesses
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.protocol import MIB
from tests.policy.programs import named, per_node, program_of

LINUX = sys.platform == "linux"

POLICY = """
def filter(pod, node):
    if node.name == "stuck":
        return str(sorted(range(40000000), key = lambda n: -n)[0])
    return None

def score(pod, node):
    if node.pod_count > 900:
        fail("too many")
    return node.pod_count % 101
"""
STUCK = per_node("filter", {"name": "stuck"})
FINE = per_node("filter", *named("a", "b"))
SCORES = per_node("score", {"pod_count": 3}, {"pod_count": 205}, {"pod_count": 901})


class _Taken:
    """What came of guesses, in order."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, answers: Sequence[Sequence[Any]] | None) -> None:
        self.answers.append(answers)

    def after(self, evaluator: SandboxEvaluator, count: int = 1) -> list[Any]:
        """All, once there are *count*."""

        def are_there() -> bool:
            evaluator.settle(0.01)
            return len(self.answers) >= count

        _until(are_there)
        return self.answers


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def _evaluator(deadline: float = 10.0, processes: int = 1) -> SandboxEvaluator:
    limits = Limits(deadline=deadline, address_space=4096 * MIB, processes=processes)
    evaluator = SandboxEvaluator(program_of(POLICY, limits=limits))
    evaluator.wait_until_ready()
    return evaluator


def _works(evaluator: SandboxEvaluator) -> bool:
    return evaluator.evaluate([FINE]) == [[None, None]]


def _is_at_work(pid: int) -> bool:
    """Whether the process is at work; what ended is a zombie until it is buried."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_answers_are_those_of_a_question() -> None:
    taken = _Taken()
    with _evaluator() as evaluator:
        assert evaluator.guess([SCORES, FINE], taken)
        (answers,) = taken.after(evaluator)
        assert [list(each) for each in answers] == [
            list(each) for each in evaluator.evaluate([SCORES, FINE])
        ]
        assert isinstance(answers[0][2], PolicyFailure)
        assert evaluator.restarts == 0


def test_guesses_are_answered_in_their_order_and_once() -> None:
    taken = _Taken()
    with _evaluator() as evaluator:
        asked = 0
        for count in range(100):
            asked += evaluator.guess([per_node("score", {"pod_count": count})], taken)
            assert evaluator.evaluate([SCORES])[0][:2] == [3, 3]
        answers = [score for ((score,),) in taken.after(evaluator, asked)]
        assert sorted(answers) == answers
        assert len(answers) == asked
        assert evaluator.restarts == 0


def test_a_question_does_not_wait_for_a_guess() -> None:
    taken = _Taken()
    with _evaluator() as evaluator:
        assert evaluator.guess([STUCK], taken)
        for _ in range(20):
            assert _works(evaluator)
        assert taken.answers == []


def test_the_only_process_ends_its_guess_before_it_is_asked() -> None:
    taken = _Taken()
    with SandboxEvaluator(program_of(POLICY)) as evaluator:
        assert len(evaluator.pids) == 1
        assert evaluator.guess([FINE, SCORES], taken)
        assert evaluator.guess([FINE], taken)
        assert _works(evaluator)
        assert [len(answers) for answers in taken.answers] == [2, 1]
        assert evaluator.restarts == 0


def test_a_guess_without_end_costs_the_only_process_and_no_verdict() -> None:
    taken = _Taken()
    limits = Limits(deadline=0.4, address_space=4096 * MIB)
    with SandboxEvaluator(program_of(POLICY, limits=limits)) as evaluator:
        assert evaluator.guess([STUCK], taken)
        assert _works(evaluator)
        assert taken.answers == [None]
        assert evaluator.restarts == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_that_is_killed_over_a_guess_costs_no_verdict(processes: int) -> None:
    taken = _Taken()
    with _evaluator(processes=processes) as evaluator:
        first, second = evaluator.pids
        assert evaluator.guess([STUCK], taken)
        assert evaluator.guess([FINE], taken)
        os.kill(second, signal.SIGKILL)
        assert _works(evaluator)
        assert taken.after(evaluator, 2) == [None, None]
        assert evaluator.restarts == 1
        evaluator.wait_until_ready()
        assert evaluator.pids[0] == first
        assert second not in evaluator.pids


def test_guessing_rests_after_it_cost_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(taken: _Taken) -> None:
        assert evaluator.guess([STUCK], taken)
        os.kill(evaluator.pids[1], signal.SIGKILL)
        assert taken.after(evaluator) == [None]
        evaluator.wait_until_ready()
        assert len(evaluator.pids) == 2

    with _evaluator() as evaluator:
        monkeypatch.setattr(process, "_REST_SECONDS", 0.0)
        for _ in range(2):
            lose(_Taken())
        monkeypatch.undo()
        lose(_Taken())
        assert not evaluator.guess([FINE], _Taken())
        assert evaluator.restarts == 3


def test_whoever_takes_over_ends_its_guess_first() -> None:
    taken = _Taken()
    with _evaluator() as evaluator:
        first, second = evaluator.pids
        large = per_node("filter", *named(*map(str, range(2000))))
        assert evaluator.guess([large, FINE], taken)
        os.kill(first, signal.SIGKILL)
        assert evaluator.evaluate([FINE, SCORES])[1][0] == 3
        assert evaluator.pid == second
        assert taken.after(evaluator) == [[[None] * 2000, [None, None]]]
        assert evaluator.restarts == 1


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_a_guess_without_end_ends_at_the_deadline_though_nobody_asks() -> None:
    taken = _Taken()
    with _evaluator(deadline=0.4) as evaluator:
        _, second = evaluator.pids
        assert evaluator.guess([STUCK], taken)
        assert _is_at_work(second)
        _until(lambda: not _is_at_work(second))
        assert _works(evaluator)
        assert taken.answers == [None]
        evaluator.wait_until_ready()
        assert len(evaluator.pids) == 2
        assert evaluator.restarts == 1


@pytest.mark.skipif(not LINUX, reason="stops a process")
def test_a_process_that_does_not_react_is_given_up_at_the_deadline() -> None:
    taken = _Taken()
    with _evaluator(deadline=0.4) as evaluator:
        _, second = evaluator.pids
        os.kill(second, signal.SIGSTOP)
        assert evaluator.guess([FINE], taken)
        _until(lambda: _works(evaluator) and taken.answers == [None])
        assert not _is_at_work(second)
        assert evaluator.restarts == 1


def test_only_so_much_is_under_way() -> None:
    with _evaluator() as evaluator:
        taken = _Taken()
        assert not evaluator.guess([], taken)
        assert not evaluator.guess([per_node("filter", *named("n" * (1 << 20)))], taken)
        assert evaluator.guess([STUCK], taken)
        assert sum(evaluator.guess([FINE], taken) for _ in range(50)) < 10
        assert _works(evaluator)


def test_large_requests_are_spread_over_those_without_a_guess() -> None:
    nodes = [{"pod_count": number % 101} for number in range(6000)]
    with _evaluator(processes=2) as evaluator:
        assert evaluator.guess([STUCK], _Taken())
        (got,) = evaluator.evaluate([per_node("score", *nodes)])
        assert list(got) == [node["pod_count"] for node in nodes]


def test_closing_does_not_wait_for_a_guess() -> None:
    taken = _Taken()
    evaluator = _evaluator()
    pids = evaluator.pids
    assert evaluator.guess([STUCK], taken)
    evaluator.close()
    assert not any(map(_is_at_work, pids))
    assert taken.answers == []
    with pytest.raises(ValueError, match="closed"):
        evaluator.guess([FINE], taken)


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        pytest.param(FINE, per_node("filter", *named("a")), id="too many verdicts"),
        pytest.param(FINE, per_node("filter", *named("a", "b", "c")), id="too few verdicts"),
    ],
)
def test_answers_that_are_none_are_not_taken(told: Call, asked: Call) -> None:
    child = Child.loaded(program_image(program_of(POLICY)))
    try:
        guesses, taken = Guesses(), _Taken()
        child.send([told], one_by_one=False)  # whose answer comes first
        assert guesses.ask(child, [asked], taken)
        with pytest.raises(GuessError):
            guesses.take_in(10.0)
        assert taken.answers == []
        guesses.lose()
        assert taken.answers == [None]
        assert not guesses.are_under_way
    finally:
        child.stop()


def test_an_answer_that_cannot_be_taken_is_the_childs_end_alone() -> None:
    def choke(answers: Sequence[Sequence[Any]] | None) -> None:
        raise TypeError("want something else")

    with _evaluator() as evaluator:
        assert evaluator.guess([FINE], choke)
        _until(lambda: _works(evaluator) and evaluator.restarts == 1)
