"""What a process can still do once it leaves others alone."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from engine.lib.system_calls import confine_to_own_process

_ROOT = Path(__file__).parents[2]
_KNOWN = sys.platform == "linux"

# `TRY` stands for what is tried; the parent's memory is that of this very test.
_PROGRAM = """
import ctypes, os, resource, signal, sys
from engine.lib.system_calls import confine_to_own_process

libc = ctypes.CDLL(None, use_errno=True)

class Span(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))

held = ctypes.create_string_buffer(8)
span = Span(ctypes.addressof(held), 8)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert confine_to_own_process()
TRY
"""


def _tried(what: str) -> "subprocess.CompletedProcess[str]":
    program = _PROGRAM.replace("TRY", what)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not _KNOWN, reason="a filter of Linux")
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            "libc.process_vm_readv(os.getppid(), ctypes.byref(span), 1, ctypes.byref(span), 1, 0)",
            id="read its memory",
        ),
        pytest.param("libc.ptrace(16, os.getppid(), 0, 0)", id="trace it"),
        pytest.param("libc.kill(os.getppid(), 0)", id="signal it"),
        pytest.param("libc.kill(-1, 0)", id="signal everybody"),
        pytest.param("libc.prlimit(os.getppid(), 7, None, None)", id="limit it"),
        pytest.param("libc.syscall(434, os.getppid(), 0)", id="take hold of it"),
        pytest.param('libc.execv(b"/bin/true", (ctypes.c_char_p * 1)())', id="be another program"),
    ],
)
def test_its_parent_is_out_of_reach(what: str) -> None:
    """A sandbox process could read the scheduler's token out of its memory."""
    done = _tried(f"print({what}, ctypes.get_errno())")
    assert (done.stdout, done.stderr) == ("-1 1\n", "")


@pytest.mark.skipif(not _KNOWN, reason="a filter of Linux")
def test_it_goes_on_and_can_end_itself() -> None:
    done = _tried("print(sorted([3, 1, 2]), len(bytearray(1 << 20)), flush=True)\nos.abort()")
    assert done.stdout == "[1, 2, 3] 1048576\n"
    assert done.returncode == -6


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    assert not confine_to_own_process()
