"""The sandbox process as an attacker: with native code, what can it reach?"""

import errno
import functools
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.lib.landlock import landlock_version
from engine.lib.system_calls import CALLS
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import Limits, PolicyFailure
from engine.policy.sandbox import warm_pool
from engine.policy.sandbox.process import SandboxEvaluator
from engine.testing import process
from engine.testing.process import run_tests_confined
from tests.engine.policy import attacker
from tests.engine.policy.programs import per_node, per_pod, program_of

KNOWN = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
pytestmark = pytest.mark.skipif(not KNOWN, reason="a filter of Linux")

_POLICY = "def score(pod, node): return 1\n"
_MIB = attacker.MIB
# Where no call of the list is: what the kernel itself says of arguments that make no sense.
_NEITHER = {errno.EPERM, errno.ENOSYS}


def _outcome(finding: str, limits: Limits | None = None) -> str:
    """What a child reports that runs *finding* of the attacker, or how it ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_pool, "_PROGRAM", attacker.PROGRAM.replace("FINDING", finding))
        with pytest.raises(PolicyErrors) as raised:
            SandboxEvaluator(program_of(_POLICY, limits=limits or Limits()))
    return raised.value.problems[0].message


@functools.cache
def _found(finding: str) -> Any:
    return json.loads(_outcome(finding))


def _of_policies() -> Any:
    return _found("refused")


def _of_tests() -> Any:
    """The same in the child in which the tests of a candidate run."""
    with pytest.MonkeyPatch.context() as patch:
        program = attacker.PROGRAM.replace("main('FINDING')", "main_of_tests('refused')")
        patch.setattr(process, "_PROGRAM", program.replace("import main;", "import main_of_tests;"))
        (result,) = run_tests_confined({})
    return json.loads(result.message)


@pytest.mark.parametrize("attack", attacker.ATTACKS)
def test_native_code_reaches_nothing_outside(attack: str) -> None:
    want = {"take hold of the parent": errno.ENOSYS, "send to a name": errno.EISCONN}
    assert _found("attacks")[attack] == want.get(attack, errno.EPERM)


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(_of_policies, id="policies"),
        pytest.param(
            _of_tests, id="tests", marks=pytest.mark.budget(4, "the child imports the engine")
        ),
    ],
)
def test_every_system_call_outside_the_list_is_refused(refused: Callable[[], Any]) -> None:
    """Each number is tried, also those that no kernel has yet."""
    got = refused()
    assert len(got) == len({number for number, _ in got}), "refused whatever the arguments are"
    assert len(got) == len(attacker.NUMBERS) - _listed_here()
    wrong = [
        (number, found)
        for number, found in got
        if found != (errno.ENOSYS if number >= 424 or number < 0 else errno.EPERM)
    ]
    assert wrong == []


def test_every_system_call_on_the_list_is_allowed() -> None:
    got = _found("listed")
    assert len(got) == _listed_here() - len(attacker.ENDING)
    assert {name for name, found in got.items() if found in _NEITHER} == set()


@pytest.mark.parametrize(
    ("finding", "want"),
    [
        pytest.param("exit", "ended (exit code 7)", id="exit"),
        pytest.param("exit_group", "ended (exit code 7)", id="exit_group"),
        pytest.param("rt_sigreturn", "crashed the sandbox", id="rt_sigreturn"),
    ],
)
def test_calls_that_end_the_process_end_it(finding: str, want: str) -> None:
    assert want in _outcome(finding)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="code of x86_64")
def test_a_call_by_the_numbers_of_another_architecture_ends_the_process() -> None:
    """A filter of numbers that forgets the architecture takes `execve` for something harmless."""
    assert "was ended by SIGSYS" in _outcome("foreign")


def test_memory_beyond_the_limit_cannot_be_had() -> None:
    limits = Limits(address_space=300 * _MIB)
    got = int(_outcome("filled", limits))
    assert 50 < got < 300


def _listed_here() -> int:
    column = 0 if platform.machine() == "x86_64" else 1
    return sum(numbers[column] is not None for numbers in CALLS.values())


def test_what_a_child_writes_to_shared_memory_is_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fills the page, so that the call at which it then ends is one that there is not."""
    monkeypatch.setattr(warm_pool, "_PROGRAM", attacker.PROGRAM.replace("FINDING", "scribble"))
    policy = "def score(pod, node): return 1\ndef queue_key(pod): return len(pod.name)\n"
    with SandboxEvaluator(program_of(policy)) as evaluator:
        quick, last = per_node("score", {}), per_pod("queue_key", {"name": "a"})
        (first,), (failure,) = evaluator.evaluate([quick, last])
        assert first == 1
        assert isinstance(failure, PolicyFailure)
        assert evaluator.restarts == 2
        assert evaluator.evaluate([quick]) == [[1]]


def test_what_is_in_force_is_reported() -> None:
    with SandboxEvaluator(program_of(_POLICY)) as evaluator:
        got = evaluator.confinement
    assert (got.system_calls, got.landlock) == (True, landlock_version())
    assert got.missing == (() if landlock_version() else ("landlock",))


# A process to which the kernel, as it were, refuses `NUMBER` if its first argument is `FIRST`.
_LACKING = """
import ctypes, errno, json, struct
from tests.engine.policy.programs import per_node, program_of
from engine.policy.sandbox.process import SandboxEvaluator

class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

code = b"".join(struct.pack("=HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 3, NUMBER), (0x20, 0, 0, 16), (0x15, 0, 1, FIRST),
    (0x06, 0, 0, 0x50000 | errno.ENOSYS), (0x06, 0, 0, 0x7FFF0000),
))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(len(code) // 8, code)), 0, 0) == 0
with SandboxEvaluator(program_of("def score(pod, node): return 1")) as evaluator:
    verdicts = evaluator.evaluate([per_node("score", {})])
    print(json.dumps([[list(one) for one in verdicts], evaluator.confinement.missing]))
"""
_SECCOMP = 317 if platform.machine() == "x86_64" else 277


@pytest.mark.parametrize(
    ("number", "first", "want"),
    [
        # Its first argument is no address: the version is asked for.
        pytest.param(444, 0, ["landlock"], id="landlock"),
        pytest.param(_SECCOMP, 1, ["system_calls"], id="filters"),
    ],
)
def test_policies_run_where_the_kernel_lacks_a_wall_and_it_is_reported(
    number: int, first: int, want: list[str]
) -> None:
    program = _LACKING.replace("NUMBER", str(number)).replace("FIRST", str(first))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    missing = dict.fromkeys([*want, *([] if landlock_version() else ["landlock"])])
    got = json.loads(done.stdout)
    assert got == [[[1]], [one for one in ("system_calls", "landlock") if one in missing]]
