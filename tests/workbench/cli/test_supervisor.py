"""A policy that takes all time or memory in a command's own process is ended and named."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.builders import of_cluster
from tests.waiting import wait_until
from tests.workbench.cli.test_explain_command import NODE, pod

pytestmark = [
    pytest.mark.slow("runs commands"),
    pytest.mark.xdist_group("each takes a gigabyte of memory"),  # so one at a time
]

LOADS = 'load("@std/testing.star", "asserts", "cases", "cluster", "make_node", "make_pod")\n'
# Each is one call that the interpreter neither counts nor lets anybody interrupt.
_SLOW = "max(range(len(node.name) + 2000000000)) + max(range(len(node.name) + 2000000001))"
SLOW = f"def filter(pod, node):\n    return None if {_SLOW} else pod.name\n"
GREEDY = """def filter(pod, node):
    text = [node.name]
    for _ in range(40):
        text = text + text
    return None
"""
GOOD = "def filter(pod, node):\n    return None\n"
PASSES = "def test_{}():\n    asserts.true(True)\n"
ASKS = "def test_{}():\n    asserts.fits(cluster(make_node()), make_pod())\n"
TAKES = "def test_{}():\n    sorted(range(500000000))\n"
NAMED = "x.star:1: filter() of policy `x`"
PROFILE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: x}]}}
"""
# Tests have no time.
_PROGRAM = """
from workbench.cli import supervisor
from workbench.cli import policy_test_session
{} = {}
from workbench.cli.main import main
main()
"""
WITH_SHORT_CALLS = (sys.executable, "-c", _PROGRAM.format("supervisor.CALL_SECONDS", 0.5))
WITH_SHORT_TESTS = (sys.executable, "-c", _PROGRAM.format("policy_test_session.TEST_SECONDS", 0))
STARSCHED = (sys.executable, "-m", "workbench.cli.main")
SECONDS = 60.0


def run(
    *arguments: str, command: tuple[str, ...] = STARSCHED
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS
    )


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of policies, beside a cluster; the current directory is theirs."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(
        yaml.safe_dump_all([of_cluster(NODE), of_cluster(pod("p", "1"))])
    )
    Path("profile.yaml").write_text(PROFILE)
    Path("policies").mkdir()
    return Path("policies")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("simulate cluster.yaml --policies policies --output json", 2),
        pytest.param(
            "explain a/p --snapshot cluster.yaml --policies policies --output json",
            2,
            marks=pytest.mark.long("in the same process as `simulate`"),
        ),
        pytest.param(
            "diff builtin policies --on cluster.yaml --output json",
            2,
            marks=pytest.mark.long("in the same process as `simulate`"),
        ),
        (
            "sweep cluster.yaml --policies policies --config profile.yaml --to out --jobs 1 "
            "--set InterPodAffinity.hardPodAffinityWeight=1,2 --output json",
            1,
        ),
    ],
    ids=lambda one: str(one).split()[0],
)
def test_a_hook_that_takes_all_memory_ends_the_command_and_is_named(
    policies: Path, command: str, code: int
) -> None:
    """It took what the machine had, and then the kernel chose somebody to kill."""
    (policies / "x.star").write_text(GREEDY)
    done = run(*command.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"Error: {NAMED} took more than 1024 MiB of memory\n"


def test_a_hook_that_does_not_answer_ends_the_command_and_is_named(policies: Path) -> None:
    (policies / "x.star").write_text(SLOW)
    # More than the half of a second: what the policies' own limit is.
    limits = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nlimits: {deadline: 1s}\n"
    (policies / "runtime.yaml").write_text(limits)
    done = run("simulate", "cluster.yaml", "--policies", "policies", command=WITH_SHORT_CALLS)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: {NAMED} did not answer within 1 s\n"


def cpu_seconds(group: int) -> float:
    """What the processes of *group* have used so far."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            ticks += (int(fields[11]) + int(fields[12])) * (int(fields[2]) == group)
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(os.kill, id="one process", marks=pytest.mark.long("as a terminal does")),
        pytest.param(os.killpg, id="as a terminal does"),
    ],
)
def test_a_hook_that_does_not_answer_can_be_interrupted(
    policies: Path, send: Callable[[int, int], None]
) -> None:
    """Ctrl-C did nothing: the interpreter's functions take no signals."""
    (policies / "x.star").write_text(SLOW)
    (policies / "x_test.star").write_text(LOADS + PASSES.format("a") + ASKS.format("b"))
    with subprocess.Popen(
        [*STARSCHED, "test", "policies"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("PASS")
        before = cpu_seconds(process.pid)
        # A signal during its own work before that ends it with 1.
        wait_until(lambda: cpu_seconds(process.pid) > before + 3, what="the hook to be called")
        send(process.pid, signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr.read() == f"Error: {NAMED} was interrupted\n"


def test_a_command_ends_as_it_would_unwatched(policies: Path) -> None:
    (policies / "x.star").write_text(GOOD)
    assert run("simulate", "cluster.yaml", "--policies", "policies").returncode == 0
    assert run("simulate", "nowhere.yaml").returncode == 2
    assert run("test", "policies").returncode == 2
    (policies / "x_test.star").write_text(LOADS + PASSES.format("passes"))
    with subprocess.Popen(
        [*STARSCHED, "test", "policies", "--watch"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("PASS")
        process.terminate()
        assert process.wait(SECONDS) == -signal.SIGTERM


# --- unit tests ------------------------------------------------------------------------------


def test_a_test_that_takes_all_memory_fails_and_the_others_run(policies: Path) -> None:
    (policies / "x.star").write_text(GREEDY)
    tests = [PASSES.format("a"), ASKS.format("b"), TAKES.format("c"), PASSES.format("d")]
    (policies / "x_test.star").write_text(LOADS + "".join(tests))
    done = run("test", "policies", "--coverage")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[:6] == [
        "PASS  policies/x_test.star:2  test_a",
        "FAIL  policies/x_test.star:4  test_b",
        f"      {NAMED} took more than 1024 MiB of memory",
        "FAIL  policies/x_test.star:6  test_c",
        "      took more than 1024 MiB of memory",
        "PASS  policies/x_test.star:8  test_d",
    ]
    assert lines[-1].startswith("2 passed, 2 failed in ")


def test_a_test_that_cannot_be_interrupted_fails_with_the_hook_that_it_is_in(
    policies: Path,
) -> None:
    (policies / "x.star").write_text(SLOW)
    test = f"def test_b():\n    node = make_node()\n    {_SLOW.replace('node.name', 'str(node)')}\n"
    (policies / "x_test.star").write_text(LOADS + ASKS.format("a") + test)
    done = run("test", "policies", "--output", "json", command=WITH_SHORT_TESTS)
    assert (done.returncode, done.stderr) == (1, "")
    assert [one["message"] for one in json.loads(done.stdout)["tests"]] == [
        f"took longer than 2 s, in {NAMED}",
        "took longer than 2 s, in a call that cannot be interrupted",
    ]


@pytest.mark.long("takes a gigabyte of memory, again and again")
def test_after_three_tests_that_had_to_be_ended_no_other_of_the_file_is_run(
    policies: Path,
) -> None:
    """A hook that hangs does so in every test that asks it; each costs seconds."""
    (policies / "x.star").write_text(GOOD)
    ended = "".join(TAKES.format(name) for name in "bcd")
    (policies / "x_test.star").write_text(LOADS + PASSES.format("a") + ended + PASSES.format("e"))
    (policies / "y_test.star").write_text(LOADS + PASSES.format("f"))
    done = run("test", "policies", "--output", "json")
    results = {one["name"]: one for one in json.loads(done.stdout)["tests"]}
    assert [name for name, one in results.items() if one["passed"]] == ["test_a", "test_f"]
    want = "not run: 3 tests of the file had to be stopped before it"
    assert results["test_e"]["message"] == want


@pytest.mark.long("takes a gigabyte of memory, again and again")
def test_a_table_whose_file_takes_all_memory_fails(policies: Path) -> None:
    """Its cases are not known before its file has run."""
    (policies / "x.star").write_text(GOOD)
    (policies / "x_test.star").write_text(
        f"{LOADS}_LIST = sorted(range(500000000))\n"
        "test_table = cases(lambda one: None, {'a': 1})\n"
    )
    for more in ([], ["--run", "test_table[a]"]):
        done = run("test", "policies", *more)
        assert (done.returncode, done.stdout.splitlines()[:2]) == (
            1,
            [
                "FAIL  policies/x_test.star:3  test_table",
                "      took more than 1024 MiB of memory",
            ],
        )
    assert run("test", "policies", "--list").stdout == "policies/x_test.star::test_table\n"


@pytest.mark.parametrize("command", ["simulate", "fmt"])
def test_an_interrupt_has_an_exit_code_of_its_own(command: str, tmp_path: Path) -> None:
    """It was 1, which says of `diff` that a budget is exceeded and of `test` that a test fails."""
    pipe = tmp_path / "pipe.star"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [*STARSCHED, command, str(pipe)], stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        with pipe.open("w"):  # which waits until it is read
            # Python heeds a signal that falls between two of its system calls only when the second
            # ends, which one on this pipe never does; people press the keys again.
            deadline = time.monotonic() + SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                os.killpg(process.pid, signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            assert process.returncode == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"\ninterrupted\n"
