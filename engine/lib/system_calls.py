"""Limits a process to the system calls that computing needs, by a filter in the kernel (seccomp).

Owns the list of calls and the filter. What is on the list works on the process's own memory, time,
signals and open descriptors; everything else is refused, and with it files, sockets, programs and
other processes, whose memory holds credentials.

A refused call fails, it does not end the process: a new C library that tries something else first
must not cost every policy its sandbox. Only a call by the numbers of another architecture ends it,
because no library makes one.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_SET_FILTER: Final = 1
# For all threads of the process, should a library have started one.
_ALL_THREADS: Final = 1


class _Only(NamedTuple):
    """Allows a call only if its argument number *position*, masked, is one of *values*."""

    position: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


class _Machine(NamedTuple):
    """How the kernel numbers an architecture and its `seccomp`, and the column of its numbers."""

    audit_id: int
    seccomp: int
    column: int


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 317, 0),
    "aarch64": _Machine(0xC00000B7, 277, 1),
}

# Name: (number on x86_64, number on aarch64), None where the call does not exist. Calls with
# conditions come first: the kernel remembers which of the others it always allows.
CALLS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # The open descriptors: a socket, a pipe and /dev/null. Only `sendto` and `recvfrom` are called
    # all the time; the C library writes the last words of a crash by `writev`.
    "sendto": (44, 206), "recvfrom": (45, 207), "read": (0, 63), "write": (1, 64),
    "writev": (20, 66), "lseek": (8, 62), "fstat": (5, 80), "close": (3, 57),
    # Memory, up to the limit of the address space.
    "mmap": (9, 222), "mprotect": (10, 226), "madvise": (28, 233), "munmap": (11, 215),
    "mremap": (25, 216), "brk": (12, 214), "sysinfo": (99, 179),
    # Locks of the interpreters. There is one thread, which never waits.
    "futex": (202, 98), "sched_yield": (24, 124),
    # Signals, to itself: `abort`, the alarm, the guard page of the stack.
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "getpid": (39, 172),
    "gettid": (186, 178), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sigaltstack": (131, 132), "setitimer": (38, 103),
    "alarm": (37, None),
    # Time and chance. Clocks are read without a system call where the machine allows that.
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169),
    "time": (201, None), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "restart_syscall": (219, 128), "getrandom": (318, 278),
    # The end.
    "exit_group": (231, 94), "exit": (60, 93),
}  # fmt: skip

_NO_FLAGS: Final = (0,)
_PROT_EXEC: Final = 4
_NOT_EXECUTABLE: Final = _Only(2, (0,), _PROT_EXEC)
# FUTEX_WAIT, _WAKE, _WAIT_BITSET and _WAKE_BITSET, whatever the clock and whether private or not.
# Others act on the priority of the thread that the caller says holds the lock.
_FUTEXES: Final = _Only(1, (0, 1, 9, 10), 0xFFFFFFFF & ~(128 | 256))
# DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE. Others share pages between processes or mark them broken.
_ADVICE: Final = _Only(2, (4, 8, 14, 15))


def _conditions(pid: int) -> dict[str, _Only]:
    """What the calls that are not always allowed must satisfy in the process *pid*."""
    to_itself = _Only(0, (pid,))
    return {
        "kill": to_itself,
        # A process's first thread has its id, and no other thread needs signals.
        "tkill": to_itself,
        "tgkill": to_itself,
        "mmap": _NOT_EXECUTABLE,
        "mprotect": _NOT_EXECUTABLE,
        "madvise": _ADVICE,
        "futex": _FUTEXES,
        # Urgent data of local sockets has been a way into the kernel.
        "sendto": _Only(3, _NO_FLAGS),
        "recvfrom": _Only(3, _NO_FLAGS),
    }


# Instructions of the classic packet filter, and where in `struct seccomp_data` things are.
_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_END: Final = 0x80000000
_FAIL: Final = 0x00050000
# From here on, all architectures number calls alike, and all are younger than Linux 5.0. A library
# that knows one also knows what to do on a kernel that does not have it.
_YOUNG: Final = 424


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def allow_only_computing() -> bool:
    """Have the kernel refuse every system call that is not in `CALLS`, irrevocably.

    A refused call fails with `EPERM`, one that is younger than Linux 5.0 with `ENOSYS`.
    `no_new_privs` must be set already. No effect on an unknown architecture.

    Returns:
        True if the filter is in force.
    """
    machine = _MACHINES.get(platform.machine()) if sys.platform == "linux" else None
    if machine is None:
        return False
    program = b"".join(struct.pack("=HBBI", *one) for one in _filter(machine, os.getpid()))
    text = ctypes.create_string_buffer(program, len(program))
    given = ctypes.byref(_Program(len(program) // 8, ctypes.addressof(text)))
    done: int = ctypes.CDLL(None).syscall(machine.seccomp, _SET_FILTER, _ALL_THREADS, given)
    return done == 0  # or the id of a thread that does not obey it


def _filter(machine: _Machine, pid: int) -> Iterator[tuple[int, int, int, int]]:
    """The filter's instructions: (code, skipped if true, skipped if false, constant)."""
    yield _LOAD, 0, 0, _MACHINE_AT
    yield _IF_EQUAL, 1, 0, machine.audit_id
    yield _RETURN, 0, 0, _END
    yield _LOAD, 0, 0, _NUMBER_AT
    conditions = _conditions(pid)
    for name in sorted(CALLS, key=lambda name: name not in conditions):
        number = CALLS[name][machine.column]
        if number is None:
            continue
        only = conditions.get(name)
        if only is None:
            yield _IF_EQUAL, 0, 1, number
        else:
            values = len(only.values)
            yield _IF_EQUAL, 0, values + 4, number
            # The lower half of the argument: those with conditions are ints or have no upper half.
            yield _LOAD, 0, 0, _ARGUMENTS_AT + 8 * only.position
            yield _AND, 0, 0, only.mask
            for place, value in enumerate(only.values):
                yield _IF_EQUAL, values - place, 0, value
            yield _RETURN, 0, 0, _FAIL | errno.EPERM
        yield _RETURN, 0, 0, _ALLOW
    yield _IF_AT_LEAST, 0, 1, _YOUNG
    yield _RETURN, 0, 0, _FAIL | errno.ENOSYS
    yield _RETURN, 0, 0, _FAIL | errno.EPERM
