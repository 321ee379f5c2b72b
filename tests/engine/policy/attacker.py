"""Native code in a sandbox process: what a bug of the interpreter would give to a hostile policy.

A child that is started by `PROGRAM` restricts itself as always and then runs what `FINDINGS` names
where it would load policies. What that finds reaches the parent as a problem of the program.
"""

import ctypes
import gc
import json
import mmap
import os
import platform
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

import msgspec

from engine.lib.system_calls import CALLS
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.sandbox import child
from engine.policy.sandbox.protocol import Call, Progress, RawAnswer
from engine.policy.sandbox.worker import PolicyWorker

#: What `warm_pool` starts instead of a child; FINDING stands for a name.
PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from tests.engine.policy.attacker import main; main('FINDING')"
)
MIB: Final = 1 << 20
#: Traps of the kernel's own (`uretprobe`, `uprobe`) that no filter sees. Where the kernel did not
#: set them, they end the process.
_TRAPS: Final = {335, 336}
#: As many as any kernel has, and more; the second numbers of x86_64 calls; and odd ones.
NUMBERS: Final = [
    *(number for number in range(1024) if number not in _TRAPS),
    *range(0x40000000, 0x40000000 + 600),
    0x7FFFFFFF,
    -1,
]
#: The listed calls after which there is nothing to report.
ENDING: Final = frozenset({"exit", "exit_group", "rt_sigreturn"})

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_LIBC.mmap.restype = ctypes.c_long
_PARENT: Final = os.getppid()
_COLUMN: Final = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), 0)
_PAGE: Final = mmap.PAGESIZE
_ANONYMOUS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_HELD: Final = ctypes.create_string_buffer(2 * _PAGE)
_HELD_PAGE: Final = ctypes.c_void_p((ctypes.addressof(_HELD) + _PAGE) & -_PAGE)
_TOKEN: Final = b"/var/run/secrets/kubernetes.io/serviceaccount/token"
_LOOPBACK: Final = struct.pack("=HH4s8x", 2, 0x5000, bytes([127, 0, 0, 1]))
_RUNTIME: Final = b"\1\0/run/containerd/containerd.sock\0"


class _Span(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


_SPAN: Final = ctypes.byref(_Span(ctypes.addressof(_HELD), 8))


def _number(name: str) -> int:
    number = CALLS[name][_COLUMN]
    assert number is not None
    return number


def _socket() -> int:
    """The one socket that there is."""
    return int(sys.argv[1])


def _called(number: int, *arguments: Any) -> int:
    """The errno of a system call; 0 if it succeeds."""
    ctypes.set_errno(0)
    wide = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return ctypes.get_errno() if _LIBC.syscall(ctypes.c_long(number), *wide) == -1 else 0


def _libc(name: str, *arguments: Any) -> int:
    """The errno of a function of the C library; 0 if it succeeds."""
    ctypes.set_errno(0)
    return ctypes.get_errno() if getattr(_LIBC, name)(*arguments) == -1 else 0


def _map(size: int, protection: int = mmap.PROT_READ | mmap.PROT_WRITE) -> int:
    size_t, offset = ctypes.c_size_t(size), ctypes.c_long(0)
    return _libc("mmap", None, size_t, protection, _ANONYMOUS, -1, offset)


ATTACKS: Final[dict[str, Callable[[], int]]] = {
    # Files.
    "open a file": lambda: _libc("open", b"/etc/passwd", os.O_RDONLY),
    "open the token": lambda: _libc("open", _TOKEN, os.O_RDONLY),
    "make a file": lambda: _libc("open", b"/tmp/x", os.O_CREAT | os.O_RDWR, 0o600),
    "open a file by its handle": lambda: _libc("open_by_handle_at", -100, _HELD, 0),
    "look for a file": lambda: _libc("access", b"/etc/passwd", 0),
    "read a link": lambda: _libc("readlink", b"/proc/self/exe", _HELD, 64),
    "remove a file": lambda: _libc("unlink", b"/tmp/x"),
    "make a file in memory": lambda: _libc("memfd_create", b"x", 0),
    # The network.
    "make a TCP socket": lambda: _libc("socket", 2, 1, 0),
    "make a local socket": lambda: _libc("socket", 1, 1, 0),
    "make a pair of sockets": lambda: _libc("socketpair", 1, 1, 0, _HELD),
    "connect its socket elsewhere": lambda: _libc("connect", _socket(), _LOOPBACK, 16),
    "connect its socket to a name": lambda: _libc("connect", _socket(), _RUNTIME, len(_RUNTIME)),
    "send to a name": lambda: _libc("sendto", _socket(), b"x", 1, 0, _RUNTIME, len(_RUNTIME)),
    "listen": lambda: _libc("listen", _socket(), 1),
    "pass descriptors": lambda: _libc("sendmsg", _socket(), _HELD, 0),
    "set an option of its socket": lambda: _libc("setsockopt", _socket(), 1, 7, _HELD, 4),
    "send urgent data": lambda: _libc("send", _socket(), b"x", 1, 1),
    # Other processes, above all the parent.
    "signal the parent": lambda: _libc("kill", _PARENT, 0),
    "signal everybody": lambda: _libc("kill", -1, 0),
    "signal its group": lambda: _libc("kill", 0, 0),
    "signal a thread of the parent": lambda: _called(_number("tgkill"), _PARENT, _PARENT, 0),
    "trace the parent": lambda: _libc("ptrace", 16, _PARENT, None, None),
    "read the parent's memory": lambda: _libc("process_vm_readv", _PARENT, _SPAN, 1, _SPAN, 1, 0),
    "write the parent's memory": lambda: _libc("process_vm_writev", _PARENT, _SPAN, 1, _SPAN, 1, 0),
    "open the parent's memory": lambda: _libc("open", b"/proc/%d/mem" % _PARENT, os.O_RDWR),
    "limit the parent": lambda: _libc("prlimit", _PARENT, 7, None, None),
    "take hold of the parent": lambda: _called(434, _PARENT, 0),
    "have the kernel signal the parent": lambda: _libc("fcntl", _socket(), 8, _PARENT),
    "have the socket signal the parent": lambda: _libc("ioctl", _socket(), 0x8901, _HELD),
    "say that the parent holds a lock": lambda: _called(_number("futex"), _HELD, 6, 0, 0),
    # Other programs, more processes.
    "fork": lambda: _libc("fork"),
    "run a program": lambda: _libc("execv", b"/bin/true", (ctypes.c_char_p * 1)()),
    "make a namespace": lambda: _libc("unshare", 0x10000000),
    # Memory.
    "map code": lambda: _map(_PAGE, mmap.PROT_READ | mmap.PROT_EXEC),
    "make memory code": lambda: _libc(
        "mprotect", _HELD_PAGE, ctypes.c_size_t(_PAGE), mmap.PROT_READ | mmap.PROT_EXEC
    ),
    "have its pages merged": lambda: _libc("madvise", _HELD_PAGE, ctypes.c_size_t(_PAGE), 12),
    "share memory": lambda: _libc("shmget", 0, ctypes.c_size_t(_PAGE), 0o1600),
    "lock memory": lambda: _libc("mlock", _HELD_PAGE, ctypes.c_size_t(_PAGE)),
    # Its own restrictions.
    "raise its limits": lambda: _libc("setrlimit", 9, (ctypes.c_long * 2)(-1, -1)),
    "replace its filter": lambda: _libc("prctl", 22, 2, _HELD, 0, 0),
    "be root": lambda: _libc("setuid", 0),
}


def _refused() -> list[tuple[int, int]]:
    """Each call that is not listed with each errno that it failed with, 0 for a success."""
    listed = {numbers[_COLUMN] for numbers in CALLS.values()}
    return [
        (number, found)
        for number in NUMBERS
        if number not in listed
        for found in {_called(number, *[argument] * 6) for argument in (-1, 0, 1)}
    ]


def _listed() -> dict[str, int]:
    """The errno of each listed call that does not end the process, with arguments of no effect."""
    own = os.getpid()
    given: dict[str, tuple[Any, ...]] = {
        "kill": (own, 0), "tkill": (own, 0), "tgkill": (own, own, 0),
        "mmap": (0, 0, 3, _ANONYMOUS, -1, 0), "mprotect": (0, 0, 3), "madvise": (0, 0, 4),
        "futex": (_HELD, 1, 0, 0, 0, 0), "sendto": (-1, _HELD, 1, 0, 0, 0),
        "recvfrom": (-1, _HELD, 1, 0, 0, 0), "alarm": (0,), "brk": (0,),
    }  # fmt: skip
    return {
        name: _called(numbers[_COLUMN] or 0, *given.get(name, (-1,) * 6))
        for name, numbers in CALLS.items()
        if numbers[_COLUMN] is not None and name not in ENDING
    }


def _filled() -> int:
    """How many MiB can be mapped in pieces, after those that are in use."""
    pieces = 0
    while _map(MIB) == 0:
        pieces += 1
    return pieces


# `getpid` by the numbers of 32-bit programs. Mapped now: later it could not be executed.
_FOREIGN: Final = mmap.mmap(-1, _PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
_FOREIGN.write(b"\xb8\x14\0\0\0\xcd\x80\xc3")


def _foreign() -> int:
    code = ctypes.addressof(ctypes.c_char.from_buffer(_FOREIGN))
    done: int = ctypes.CFUNCTYPE(ctypes.c_int)(code)()
    return done


FINDINGS: Final[dict[str, Callable[[], Any]]] = {
    "attacks": lambda: {name: attack() for name, attack in ATTACKS.items()},
    "refused": _refused,
    "listed": _listed,
    "filled": _filled,
    "foreign": _foreign,
    "exit": lambda: _called(_number("exit"), 7),
    "exit_group": lambda: _called(_number("exit_group"), 7),
    "rt_sigreturn": lambda: _called(_number("rt_sigreturn")),
}


class _Scribbler(PolicyWorker):
    """A worker that fills all memory that it shares with the parent, and ends at the last call."""

    def evaluate(self, call: Call) -> RawAnswer:
        progress = next(one for one in gc.get_objects() if isinstance(one, Progress))
        start = ctypes.addressof(ctypes.c_char.from_buffer(progress._memory))
        ctypes.memset(start, 0xFF, _PAGE)
        if call.pod != b"{}":
            os._exit(0)
        return super().evaluate(call)


def main(finding: str) -> None:
    """Be a child that is taken over before it loads policies."""

    def take_over(*_: Any, **__: Any) -> PolicyWorker:
        raise PolicyErrors([Problem("x.star", 0, 0, json.dumps(FINDINGS[finding]()))])

    worker: Any = _Scribbler if finding == "scribble" else take_over
    vars(child)["PolicyWorker"] = worker
    child.main()


def main_of_tests(finding: str) -> None:
    """Be the child in which the tests of a candidate run, taken over before it loads them."""
    # Here alone: it brings numpy.
    from engine.testing import child as tests_child

    def take_over(_request: tests_child.Request, sink: BinaryIO) -> None:
        problem = Problem("x.star", 0, 0, json.dumps(FINDINGS[finding]()))
        sink.write(msgspec.json.encode(tests_child.Refusal([problem])) + b"\n")
        sink.flush()

    vars(tests_child)["run"] = take_over
    tests_child.main()
