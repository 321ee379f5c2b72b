"""The sandbox process: what it cannot reach, and what is left when it dies."""

import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import Instance, Limits, PolicyFailure, Program
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.protocol import MIB
from tests.engine.policy.programs import named, per_node, per_pod, program_of
from tests.waiting import wait_until

LINUX = sys.platform == "linux"

# Sizes depend on what is passed in: the interpreter computes constants when it loads the file.
BOMBS = """
def filter(pod, node):
    size = len(node.name)
    if node.name == "list":
        return str(len([0] * (size << 26)))
    if node.name == "text":
        return str(len("a" * (size << 28)))
    if node.name == "grow":
        rows = []
        for i in range(1 << 30):
            rows.append([i] * 10000)
    if node.name == "stuck":
        return str(sorted(range(size * 4000000), key = lambda n: -n)[0])
    return None

def score(pod, node):
    return 1
"""


@pytest.fixture
def bombs() -> Iterator[SandboxEvaluator]:
    with SandboxEvaluator(program_of(BOMBS, limits=Limits(deadline=60.0))) as evaluator:
        yield evaluator


def _state(evaluator: SandboxEvaluator) -> Path:
    assert evaluator.pid is not None
    return Path(f"/proc/{evaluator.pid}")


# --- walls -----------------------------------------------------------------------------------


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_the_child_has_no_environment_and_no_descriptors_but_its_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBERNETES_TOKEN", "secret")
    with (tmp_path / "open").open("w") as leak:
        os.set_inheritable(leak.fileno(), True)
        with SandboxEvaluator(program_of("def queue_key(pod): return 1\n")) as evaluator:
            process = _state(evaluator)
            assert (process / "environ").read_bytes() == b""
            opened = {fd.name: os.readlink(fd) for fd in (process / "fd").iterdir()}
            kinds = sorted(target.partition(":")[0] for target in opened.values())
            assert kinds == ["/dev/null", "/dev/null", "pipe", "socket"], opened
            assert os.readlink(process / "cwd") == "/"


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_the_childs_limits_are_hard() -> None:
    limits = Limits(address_space=300 * MIB)
    with SandboxEvaluator(program_of("def queue_key(pod): return 1\n", limits=limits)) as evaluator:
        assert evaluator.pid is not None

        def hard(kind: int) -> int:
            assert evaluator.pid is not None
            return resource.prlimit(evaluator.pid, kind)[1]

        assert hard(resource.RLIMIT_AS) == 300 * MIB
        assert hard(resource.RLIMIT_NOFILE) == 0, "it cannot open a file or a socket"
        assert hard(resource.RLIMIT_NPROC) == 0
        assert hard(resource.RLIMIT_CORE) == 0
        assert hard(resource.RLIMIT_FSIZE) == 0
        status = (_state(evaluator) / "status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        threads = status.split("Threads:\t")[1].split("\n")[0]
        assert threads == "1"


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_the_child_is_ended_first_where_memory_runs_out() -> None:
    """A policy that filled the container's memory had the scheduler ended, which was larger."""
    with SandboxEvaluator(program_of("def queue_key(pod): return 1\n")) as evaluator:
        assert (_state(evaluator) / "oom_score_adj").read_text() == "1000\n"


def test_the_child_ends_with_the_evaluator() -> None:
    evaluator = SandboxEvaluator(program_of("def queue_key(pod): return 1\n"))
    pid = evaluator.pid
    assert pid is not None
    evaluator.close()
    evaluator.close()
    assert evaluator.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ValueError, match="closed"):
        evaluator.evaluate([])


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_the_child_ends_when_its_parent_is_killed() -> None:
    program = (
        "import time\n"
        "from tests.engine.policy.programs import program_of\n"
        "from engine.policy.sandbox.process import SandboxEvaluator\n"
        "evaluator = SandboxEvaluator(program_of('def queue_key(pod): return 1'))\n"
        "print(evaluator.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=root, text=True
    ) as parent:
        assert parent.stdout is not None
        child = Path(f"/proc/{int(parent.stdout.readline())}")
        assert child.exists()
        parent.kill()

    def has_ended() -> bool:
        return not child.exists() or "Z" in (child / "stat").read_text().split()[2]

    wait_until(has_ended, seconds=10, what="the child to end with its parent")


@pytest.mark.slow("starts processes")
@pytest.mark.skipif(not LINUX, reason="looks into /proc")
def test_no_descriptor_is_lost_over_many_children() -> None:
    def opened() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    program = program_of("def queue_key(pod): return 1\n")
    with SandboxEvaluator(program):
        pass
    before = opened()
    for _ in range(3):
        with SandboxEvaluator(program) as evaluator:
            assert evaluator.pid is not None
            os.kill(evaluator.pid, signal.SIGKILL)
            evaluator.evaluate([per_pod("queue_key")])
    with pytest.raises(PolicyErrors):
        SandboxEvaluator(program_of("x = y\n"))
    assert opened() == before


# --- policies that take too much -------------------------------------------------------------


@pytest.mark.parametrize("bomb", ["list", "text", "grow"])
def test_a_policy_that_takes_all_memory_costs_its_entry_alone(
    bombs: SandboxEvaluator, bomb: str
) -> None:
    calls = [
        per_node("score", {}),
        per_node("filter", *named("a", bomb, "b")),
        per_node("score", {}),
    ]
    before, (first, failure, last), after = bombs.evaluate(calls)
    assert (before, first, last, after) == ([1], None, None, [1])
    assert isinstance(failure, PolicyFailure)
    assert failure.kind == "memory", failure
    assert (failure.policy, failure.hook, failure.file) == ("x", "filter", "x.star")
    assert bombs.evaluate([per_node("filter", *named("a"))]) == [[None]]


def test_a_policy_that_cannot_be_interrupted_is_killed_at_the_deadline() -> None:
    limits = Limits(deadline=0.3, address_space=4096 * MIB)
    with SandboxEvaluator(program_of(BOMBS, limits=limits)) as evaluator:
        quick = per_node("score", {})
        began = time.monotonic()
        before, (failure,), after = evaluator.evaluate(
            [quick, per_node("filter", *named("stuck")), quick]
        )
        assert time.monotonic() - began < 20
        assert isinstance(failure, PolicyFailure)
        assert failure.kind == "deadline"
        assert failure.message == "filter() did not answer within 0.3 s"
        assert before == after == [1], "it is known which of the calls it was"
        assert evaluator.restarts == 1


@pytest.mark.slow("starts processes")
def test_many_nodes_that_take_all_memory_cost_a_bounded_number_of_children(
    bombs: SandboxEvaluator,
) -> None:
    (verdicts,) = bombs.evaluate([per_node("filter", *named(*["list"] * 50))])
    assert len(verdicts) == 50
    assert {v.kind for v in verdicts if isinstance(v, PolicyFailure)} == {"memory"}
    assert bombs.restarts <= 5


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("x = [0] * (1 << 28)\n", "memory", id="memory"),
        pytest.param("x = sorted(range(20000000), key = lambda n: -n)\n", "", id="time"),
    ],
)
def test_a_file_whose_top_level_takes_too_much_does_not_load(text: str, want: str) -> None:
    program = Program(
        {"good.star": "def queue_key(pod): return 1\n", "x.star": text},
        (Instance("good", "good.star"), Instance("x", "x.star")),
        Limits(deadline=0.5),
    )
    with pytest.raises(PolicyErrors) as caught:
        SandboxEvaluator(program)
    (problem,) = caught.value.problems
    assert problem.file == "x.star"
    assert want in problem.message


def test_text_that_would_overflow_a_parser_is_the_childs_end_alone() -> None:
    with pytest.raises(PolicyErrors) as caught:
        SandboxEvaluator(program_of("x = " + "[" * 200_000 + "]" * 200_000))
    assert caught.value.problems[0].file == "x.star"


# --- SIGKILL at any point --------------------------------------------------------------------


def test_a_child_that_is_killed_between_calls_costs_nothing(bombs: SandboxEvaluator) -> None:
    for _ in range(3):
        assert bombs.pid is not None
        os.kill(bombs.pid, signal.SIGKILL)
        assert bombs.evaluate([per_node("score", {}, {})]) == [[1, 1]]
    assert bombs.restarts == 3


@pytest.mark.slow("starts processes")
def test_a_child_that_is_killed_while_it_works_is_asked_again() -> None:
    text = "def score(pod, node):\n    for i in range(100000):\n        pass\n    return 1\n"
    with SandboxEvaluator(program_of(text, limits=Limits(deadline=30.0))) as evaluator:
        pid = evaluator.pid
        assert pid is not None
        killer = threading.Timer(0.05, os.kill, (pid, signal.SIGKILL))
        killer.start()
        (verdicts,) = evaluator.evaluate([per_node("score", *[{}] * 400)])
        killer.join()
        assert verdicts == [1] * 400
        assert evaluator.restarts == 1


@pytest.mark.slow("starts processes")
def test_no_verdict_is_ever_wrong_while_children_are_killed_at_random() -> None:
    text = "def score(pod, node): return node.pod_count % 100\n"
    with SandboxEvaluator(program_of(text)) as evaluator:
        done = threading.Event()

        def kill() -> None:
            pause = 0.001
            while not done.wait(pause):
                pause = pause * 1.7 % 0.04  # somewhere else each time
                if (pid := evaluator.pid) is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for turn in range(15):
                nodes = [{"pod_count": n + turn} for n in range(300)]
                for verdicts in evaluator.evaluate([per_node("score", *nodes)] * 2):
                    assert len(verdicts) == 300
                    for n, verdict in enumerate(verdicts):
                        is_failure = isinstance(verdict, PolicyFailure)
                        assert is_failure or verdict == (n + turn) % 100
        finally:
            done.set()
            killer.join()
        assert evaluator.restarts > 0
        assert evaluator.evaluate([per_node("score", {"pod_count": 7})]) == [[7]]


def test_a_child_does_not_mind_control_c(bombs: SandboxEvaluator) -> None:
    assert bombs.pid is not None
    os.kill(bombs.pid, signal.SIGINT)
    assert bombs.evaluate([per_node("score", {})]) == [[1]]
    assert bombs.restarts == 0


@pytest.mark.skipif(not LINUX, reason="stops a process")
def test_a_child_that_is_stopped_is_replaced_at_the_deadline() -> None:
    with SandboxEvaluator(program_of(BOMBS, limits=Limits(deadline=0.8))) as evaluator:
        assert evaluator.pid is not None
        os.kill(evaluator.pid, signal.SIGSTOP)
        (failure,), after = evaluator.evaluate([per_node("score", {})] * 2)
        assert isinstance(failure, PolicyFailure)
        assert failure.kind == "deadline"
        assert after == [1]
