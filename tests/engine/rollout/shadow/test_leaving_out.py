"""A shadow delays nothing: what it has no time for, or cannot do, is left out and counted."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import structlog

from engine.comparing.difference import FAILED
from engine.core.caching.cache import Cache
from engine.core.queueing.nominator import Nominator
from engine.policy.bundle import Bundle
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.evaluator import Call, Evaluator, InProcessEvaluator, PolicyFailure
from engine.rollout.mirror import Mirror
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.shadow.worker import (
    MOST_JOBS,
    SAVED_SECONDS,
    CpuBudget,
    Job,
    ThreadWorker,
    Work,
    Yield,
)
from tests.builders import make_node, make_pod
from tests.engine.rollout.shadow.test_shadow import FILES, SAME, with_text
from tests.engine.rollout.shadow.watched import Later, WatchedWorld, in_process, shadow_in_step


def job() -> Job:
    """A job that changes nothing."""
    return Job(Mirror(Cache().snapshot(), Nominator()), (), (), None, (), {})


class Workers:
    """Makes a worker that the test drives."""

    def __init__(self) -> None:
        self.made: list[Later] = []

    def __call__(self, work: Work, at_end: Callable[[], None], cores: float) -> Later:
        self.made.append(Later(work, at_end, cores))
        return self.made[-1]


def test_what_comes_while_the_thread_is_busy_is_counted_and_covered_by_later_changes() -> None:
    workers = Workers()
    world = WatchedWorld(FILES, with_text(SAME), shadow_in_step(make_worker=workers))
    for seed in range(6):
        world.live(seed, 60)
        assert workers.made[0].backlog <= MOST_JOBS
        workers.made[0].do()
    got = world.shadow.measures
    assert got.counts == {}, got
    assert got.skipped.keys() == {"busy"}
    assert got.compared + got.skipped["busy"] == got.decided
    # How many there is room for depends on how fast the thread is; it was 400 on a busy machine.
    assert got.compared > 200


def test_while_pods_wait_no_job_begins() -> None:
    world = WatchedWorld(FILES, with_text(SAME), shadow_in_step(make_worker=(workers := Workers())))
    world.add_node(make_node("n", cpu=8))
    for number in range(3):
        world.add(make_pod(f"p{number}", cpu=1))
    (worker,) = workers.made
    world.turns(2)
    assert worker.is_paused
    world.turns(1)
    assert not worker.is_paused


def test_a_thread_that_is_paused_begins_once_it_may_go_on() -> None:
    happened: list[str] = []
    is_done = threading.Event()

    def work(job: Job, yield_to_decisions: Yield) -> float:
        happened.append("worked")
        is_done.set()
        return 0.0

    worker = ThreadWorker(work, lambda: None, 1.0, patience=60.0)
    worker.pause()
    worker.put(job())
    happened.append("resumed")
    worker.resume()
    assert is_done.wait(30.0)
    worker.close()
    assert happened == ["resumed", "worked"]


def test_a_job_stands_still_while_a_pod_is_decided() -> None:
    """It would take turns with that decision, half a millisecond each."""
    happened: list[str] = []
    has_begun, is_done = threading.Event(), threading.Event()

    def work(job: Job, yield_to_decisions: Yield) -> float:
        worker.pause()
        has_begun.set()
        yield_to_decisions()
        happened.append("worked")
        is_done.set()
        return 0.0

    worker = ThreadWorker(work, lambda: None, 1.0, patience=60.0)
    worker.put(job())
    assert has_begun.wait(30.0)
    happened.append("resumed")
    worker.resume()
    assert is_done.wait(30.0)
    worker.close()
    assert happened == ["resumed", "worked"]


def test_once_there_is_no_room_all_is_done_before_more_is_taken() -> None:
    workers = Workers()
    world = WatchedWorld(FILES, with_text(SAME), shadow_in_step(make_worker=workers))
    world.add_node(make_node("n", cpu=999))
    (worker,) = workers.made

    def decide(pods: int) -> None:
        for _ in range(pods):
            world.add(make_pod(f"p{len(world.known)}", cpu=1))
        world.turns(pods)

    decide(MOST_JOBS + 3)
    assert worker.backlog == MOST_JOBS
    worker.do(MOST_JOBS - 1)
    decide(2)
    worker.do(1)
    decide(2)
    assert worker.backlog == 2
    worker.do()
    got = world.shadow.measures
    assert (got.compared, got.skipped) == (MOST_JOBS + 2, {"busy": 5})


def test_decisions_under_other_policies_are_not_compared() -> None:
    world = WatchedWorld(FILES, with_text(SAME))
    world.add_node(make_node("n", cpu=8))
    world.add(make_pod("first"))
    world.turns(1)
    world.shadow.begin(world.base, world.candidate, 1.0)  # the other way round: none of them is
    world.add(make_pod("second"))
    world.turns(1)
    got = world.shadow.measures
    assert (got.decided, got.compared, got.skipped) == (1, 0, {"canary": 1})


def test_a_candidate_whose_sandbox_does_not_start_compares_nothing() -> None:
    def fails(bundle: Bundle) -> Evaluator:
        raise PolicyErrors([Problem("roomy.star", 1, 1, "no memory")])

    world = WatchedWorld(FILES, with_text(SAME), shadow_in_step(fails))
    with structlog.testing.capture_logs() as logs:
        world.live(0, 20)
    got = world.shadow.measures
    # A machine short of memory is no bug: said once, without a traceback.
    assert [line["reason"] for line in logs if line["log_level"] != "info"] == [
        "roomy.star:1:1: no memory"
    ]
    assert got.compared == 0
    assert got.skipped == {"error": got.decided}
    assert got.decided > 20


def test_a_fault_of_the_shadow_costs_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    world = WatchedWorld(FILES, with_text(SAME))
    world.add_node(make_node("n", cpu=8))
    monkeypatch.setattr(world.kernel.cache.objects, "frozen", None)
    world.add(make_pod("p"))
    world.turns(1)
    assert len(world.bindings) == 1
    assert not world.shadow.is_running
    assert world.shadow.measures.skipped == {"error": 1}


def test_a_thread_ends_with_its_shadow_and_closes_what_it_started() -> None:
    closed: list[str] = []
    started = threading.Semaphore(0)

    def make(bundle: Bundle) -> Evaluator:
        started.release()
        evaluator = in_process(bundle)
        evaluator.close = lambda: closed.append(bundle.revision)  # type: ignore[method-assign]
        return evaluator

    shadow = Shadow(make)
    world = WatchedWorld(FILES, with_text(SAME), shadow)
    world.live(1, 60)
    assert started.acquire(timeout=30.0)
    assert started.acquire(timeout=30.0)
    shadow.close()
    assert sorted(closed) == sorted([world.base.bundle.revision, world.candidate.bundle.revision])
    got = shadow.measures
    assert got.counts == {}
    assert got.compared > 0
    world.live(2, 5)
    assert shadow.measures == got


def test_over_a_while_a_thread_takes_its_share_of_a_core() -> None:
    share, now, worked = CpuBudget(0.05, 0.0), 0.0, 0.0
    while now < 100.0:
        worked += 0.01
        now += 0.01
        now += share.rest_after(0.01, now)
    assert worked == pytest.approx(0.05 * 100.0 + SAVED_SECONDS, abs=0.02)


def test_after_a_pause_a_thread_need_not_rest_at_once() -> None:
    share = CpuBudget(0.05, 0.0)
    assert share.rest_after(SAVED_SECONDS / 2, 0.0) == 0.0
    assert share.rest_after(SAVED_SECONDS, 0.0) == pytest.approx(SAVED_SECONDS / 2 / 0.05)
    assert share.rest_after(SAVED_SECONDS, 1_000.0) == 0.0
    assert share.rest_after(SAVED_SECONDS, 1_000.0) == pytest.approx(5.0, abs=0.3)


class Killed(InProcessEvaluator):
    """Loses its sandbox over the first so many calls of the candidate's `score`."""

    def __init__(self, bundle: Bundle, times: int) -> None:
        super().__init__(bundle.program)
        self._modules = [one.module for one in bundle.program.instances]
        self._times = times if bundle.files["roomy.star"] == SAME else 0

    def evaluate(self, calls: Sequence[Call]) -> list[Sequence[Any]]:
        answers = super().evaluate(calls)
        for at, call in enumerate(calls):
            is_ours = self._modules[call.instance] == "roomy.star" and call.hook == "score"
            if is_ours and self._times:
                self._times -= 1
                failure = PolicyFailure("roomy", "score", "roomy.star", 1, 1, "died", "killed")
                answers[at] = [failure for _ in answers[at]]
        return answers


@pytest.mark.parametrize(
    ("times", "want"),
    [
        pytest.param(1_000, {FAILED: 3}, id="again and again"),
        pytest.param(1, {}, id="once, which can be the machine's fault"),
    ],
)
def test_a_candidate_that_kills_its_sandbox(times: int, want: dict[str, int]) -> None:
    shadow = shadow_in_step(lambda bundle: Killed(bundle, times))
    world = WatchedWorld(FILES, with_text(SAME), shadow)
    for number in range(2):
        world.add_node(make_node(f"n{number}", cpu=8 + number))
    for number in range(3):
        world.add(make_pod(f"p{number}", cpu=1))
    world.turns(3)
    got = world.shadow.measures
    assert (got.compared, got.counts) == (3, want)
