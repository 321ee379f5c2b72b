"""A sandbox process that is ready before anybody wants it."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.warm_pool import WarmPool
from tests.engine.policy.programs import per_node, program_of
from tests.waiting import wait_until

ANSWERS = "def score(pod, node):\n    return node.pod_count\n"


@pytest.fixture
def pool() -> Iterator[WarmPool]:
    pool = WarmPool()
    yield pool
    pool.close()


def _stocked(pool: WarmPool) -> int:
    """The process that *pool* has ready."""
    pool.restock()
    assert pool.pid is not None
    return pool.pid


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_process_that_is_ready_gets_the_program(pool: WarmPool) -> None:
    ready = _stocked(pool)
    with SandboxEvaluator(program_of(ANSWERS), pool) as evaluator:
        assert evaluator.pid == ready
        assert pool.pid is None
        assert evaluator.evaluate([per_node("score", {"pod_count": 7})]) == [[7]]


def test_another_one_is_made_ready_after_it_was_taken(pool: WarmPool) -> None:
    ready = _stocked(pool)
    with SandboxEvaluator(program_of(ANSWERS), pool):
        wait_until(lambda: pool.pid is not None)
        assert pool.pid != ready


def test_one_that_cannot_be_made_ready_has_no_cost(
    pool: WarmPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no more processes or threads may be started, an evaluation failed for a reserve."""
    with SandboxEvaluator(program_of(ANSWERS), pool) as evaluator:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", _refuse_thread)
            patch.setattr(subprocess, "Popen", _refuse_process)
            pool.restock()
            assert pool.pid is None
            evaluator.wait_until_ready()
            assert evaluator.evaluate([per_node("score", {"pod_count": 7})]) == [[7]]
        evaluator.wait_until_ready()
        assert len(evaluator.pids) == 2, "the one in reserve is there later"


def _refuse_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def _refuse_process(*_: object, **__: object) -> None:
    raise BlockingIOError("no more processes")


def test_one_that_was_killed_while_it_waited_is_not_used(pool: WarmPool) -> None:
    ready = _stocked(pool)
    os.kill(ready, signal.SIGKILL)
    os.waitid(os.P_PID, ready, os.WEXITED | os.WNOWAIT)
    with SandboxEvaluator(program_of(ANSWERS), pool) as evaluator:
        assert evaluator.pid != ready
        assert evaluator.evaluate([per_node("score", {"pod_count": 7})]) == [[7]]


def test_a_closed_one_leaves_no_process(pool: WarmPool) -> None:
    ready = _stocked(pool)
    pool.close()
    assert _is_gone(ready)
    pool.restock()
    assert pool.pid is None
    pool.close()  # twice does no harm
