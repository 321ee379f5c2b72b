"""What a process can still do once it may only compute.

What such a process cannot do is tried in tests/engine/policy/test_sandbox_escape.py.
"""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from engine.lib import system_calls
from engine.lib.system_calls import CALLS, allow_only_computing

_ROOT = str(Path(__file__).parents[3])

_PROGRAM = """
import ctypes, os, signal, sys, time
sys.path.insert(0, ROOT)
from engine.lib.system_calls import allow_only_computing

libc = ctypes.CDLL(None, use_errno=True)
BEFORE
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert allow_only_computing()
DO
"""


def _done(what: str, before: str = "") -> "subprocess.CompletedProcess[str]":
    program = _PROGRAM.replace("ROOT", repr(_ROOT)).replace("DO", what).replace("BEFORE", before)
    return subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")
@pytest.mark.parametrize(
    ("what", "said", "code"),
    [
        pytest.param(
            "print(sorted([3, 1, 2]), len(bytearray(1 << 20)))", "[1, 2, 3] 1048576\n", 0, id="work"
        ),
        pytest.param("os.abort()", "", -6, id="abort"),
        pytest.param("os.kill(os.getpid(), signal.SIGTERM)", "", -15, id="end itself"),
        pytest.param(
            "signal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile True: pass", "", -14, id="an alarm"
        ),
        pytest.param("time.sleep(0.001); print(time.time() > 0)", "True\n", 0, id="time"),
        pytest.param("print(len(os.urandom(8)))", "8\n", 0, id="chance"),
        pytest.param(
            "def deep(): return [deep()]\ntry: deep()\nexcept RecursionError: print('deep')",
            "deep\n",
            0,
            id="deep recursion",
        ),
        pytest.param(
            "try: open('/etc/passwd')\nexcept PermissionError: print('refused')",
            "refused\n",
            0,
            id="go on after a refusal",
        ),
        pytest.param(
            "try: import tabnanny\nexcept ImportError: print('missing')",
            "missing\n",
            0,
            id="miss a module",
        ),
        pytest.param(
            "try: ''.encode('cp037')\nexcept LookupError: print('missing')",
            "missing\n",
            0,
            id="miss a codec",
        ),
    ],
)
def test_what_computing_needs_is_allowed(what: str, said: str, code: int) -> None:
    done = _done(what)
    assert said in done.stdout + done.stderr
    assert done.returncode == code, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")
def test_a_thread_that_was_there_before_is_held_to_it_too() -> None:
    """Libraries start some on their own, such as those of numpy."""
    before = (
        "import threading\n"
        "go, refused = threading.Event(), []\n"
        "def look():\n"
        "    go.wait()\n"
        "    try: os.stat('/')\n"
        "    except PermissionError: refused.append(True)\n"
        "thread = threading.Thread(target=look)\n"
        "thread.start()\n"
    )
    assert _done("go.set(); thread.join(); print(refused)", before).stdout == "[True]\n"


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    assert not allow_only_computing()


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_no_number_stands_for_two_calls(column: int) -> None:
    numbers = [both[column] for both in CALLS.values() if both[column] is not None]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("machine", system_calls._MACHINES.values(), ids=system_calls._MACHINES)
def test_every_jump_of_the_filter_stays_within_it(machine: system_calls._Machine) -> None:
    program = list(system_calls._filter(machine, 7))
    assert len(program) <= 4096
    for place, (_, if_true, if_false, _) in enumerate(program):
        assert place + max(if_true, if_false) < len(program) - 1 or not if_true + if_false
        assert max(if_true, if_false) < 256
    assert program[-1][0] == system_calls._RETURN
