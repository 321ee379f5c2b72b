"""What Landlock takes from a process, by itself: no filter of system calls stands before it."""

import json
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from engine.lib import landlock
from engine.lib.landlock import deny_all_objects, landlock_version, ruleset

_ROOT = Path(__file__).parents[3]

# Prints the version in force, and the errno of each thing that is tried; 0 for success.
_PROGRAM = """
import ctypes, json, os, socket, sys
from engine.lib.landlock import deny_all_objects

def tried(what):
    try:
        what()
    except OSError as error:
        return error.errno
    return 0

port, parent = int(sys.argv[1]), os.getppid()
tcp, other = socket.socket(), socket.socket()
local = socket.socket(socket.AF_UNIX)
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
version = deny_all_objects()
print(json.dumps([version, {
    "read a file": tried(lambda: open("/etc/passwd")),
    "list a folder": tried(lambda: os.listdir("/")),
    "make a file": tried(lambda: open("/tmp/starsched-landlock", "w")),
    "open the parent's memory": tried(lambda: open(f"/proc/{parent}/mem", "rb")),
    "connect": tried(lambda: tcp.connect(("127.0.0.1", port))),
    "bind": tried(lambda: other.bind(("127.0.0.1", 0))),
    "connect to a name": tried(lambda: local.connect(f"\\0starsched-{port}")),
    "signal the parent": tried(lambda: os.kill(parent, 0)),
    "signal itself": tried(lambda: os.kill(os.getpid(), 0)),
}]))
"""
_EACCES, _EPERM = 13, 1
# By the version of the interface that first refuses it.
_REFUSED = {
    "read a file": (1, _EACCES),
    "list a folder": (1, _EACCES),
    "make a file": (1, _EACCES),
    "open the parent's memory": (1, _EACCES),
    "connect": (4, _EACCES),
    "bind": (4, _EACCES),
    "connect to a name": (6, _EPERM),
    "signal the parent": (6, _EPERM),
}


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_all_that_the_kernel_can_refuse_is_refused() -> None:
    """On a kernel without Landlock nothing is, and the answer says so."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        port = server.getsockname()[1]
        local.bind(f"\0starsched-{port}")
        local.listen()
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(port)],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    version, got = json.loads(done.stdout)
    assert version == landlock_version()
    want = {what: error if since <= version else 0 for what, (since, error) in _REFUSED.items()}
    assert got == {**want, "signal itself": 0}


@pytest.mark.parametrize(
    ("version", "want"),
    [
        pytest.param(1, (0x1FFF, 0, 0), id="files"),
        pytest.param(2, (0x3FFF, 0, 0), id="moving files"),
        pytest.param(3, (0x7FFF, 0, 0), id="truncating"),
        pytest.param(4, (0x7FFF, 3, 0), id="TCP"),
        pytest.param(5, (0xFFFF, 3, 0), id="devices"),
        pytest.param(6, (0xFFFF, 3, 3), id="signals and local sockets"),
        pytest.param(99, (0xFFFF, 3, 3), id="what is not known here"),
    ],
)
def test_the_rules_name_what_a_version_knows(version: int, want: tuple[int, int, int]) -> None:
    """The kernel refuses rules with a right that it does not know, all of them."""
    assert struct.unpack("=QQQ", ruleset(version)) == want


@pytest.mark.parametrize("failing", [0, 1, 2], ids=["asking", "making rules", "obeying them"])
def test_what_the_kernel_does_not_do_is_not_in_force(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    answers = iter([6, 1 << 30, 0])
    calls = []

    def call(number: int, *_: object) -> int:
        calls.append(number)
        answer = next(answers)
        return -1 if len(calls) > failing else answer

    monkeypatch.setattr(landlock, "_call", call)
    monkeypatch.setattr("os.close", lambda _: None)
    monkeypatch.setattr(sys, "platform", "linux")
    assert deny_all_objects() == 0
    assert len(calls) == failing + 1
