"""Keeps a process from reaching other processes, by a filter of system calls (seccomp).

Owns the filter. Resource limits keep a process from opening files and sockets, but not from
reading, writing, stopping and starving other processes of the same user: the kernel allows that by
default, and their memory holds credentials.
"""

import ctypes
import os
import platform
import struct
import sys
from typing import Final

_PR_SET_SECCOMP: Final = 22
_FILTER_MODE: Final = 2

# By architecture: its seccomp id, the calls that send a signal to the process that is their first
# argument, and those that reach other processes, other programs or parts of the kernel that are not
# needed here.
_MACHINES: Final = {
    "x86_64": (
        0xC000003E,
        {"kill": 62, "tkill": 200, "tgkill": 234},
        {
            "execve": 59, "ptrace": 101, "rt_sigqueueinfo": 129, "setpriority": 141,
            "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203,
            "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256,
            "unshare": 272, "move_pages": 279, "rt_tgsigqueueinfo": 297, "prlimit64": 302,
            "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
            "bpf": 321, "execveat": 322, "pidfd_send_signal": 424, "io_uring_setup": 425,
            "pidfd_open": 434, "pidfd_getfd": 438, "process_madvise": 440,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {"kill": 129, "tkill": 130, "tgkill": 131},
        {
            "unshare": 97, "ptrace": 117, "sched_setparam": 118, "sched_setscheduler": 119,
            "sched_setaffinity": 122, "rt_sigqueueinfo": 138, "setpriority": 140, "add_key": 217,
            "request_key": 218, "keyctl": 219, "execve": 221, "migrate_pages": 238,
            "move_pages": 239, "rt_tgsigqueueinfo": 240, "prlimit64": 261, "setns": 268,
            "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "bpf": 280,
            "execveat": 281, "pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_open": 434,
            "pidfd_getfd": 438, "process_madvise": 440,
        },
    ),
}  # fmt: skip

# Instructions of the classic packet filter, and where in `struct seccomp_data` things are.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | 1  # as not permitted (EPERM)
# From here on are the x32 duplicates of all x86_64 calls.
_SECOND_NUMBERS: Final = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def confine_to_own_process() -> bool:
    """Have the kernel refuse calls that reach other processes, from now on and irrevocably.

    `no_new_privs` must be set already. No effect on an unknown architecture.

    Returns:
        True if the filter is in force.
    """
    known = _MACHINES.get(platform.machine()) if sys.platform == "linux" else None
    if known is None:
        return False
    program = _filter(*known)
    text = ctypes.create_string_buffer(program, len(program))
    given = _Program(len(program) // 8, ctypes.addressof(text))
    done: int = ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(given), 0, 0)
    return done == 0


def _filter(machine: int, signals: dict[str, int], refused: dict[str, int]) -> bytes:
    """The filter's instructions: (code, jump if true, jump if false, constant)."""
    numbers = [*refused.values()]
    found: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_IF_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    # After the comparisons: allow; or for a signal, allow it to the process itself only.
    to_allow = 1 + len(numbers) + len(signals)
    found.append((_IF_AT_LEAST, to_allow + 2, 0, _SECOND_NUMBERS))
    for place, number in enumerate(numbers, 1):
        found.append((_IF_EQUAL, to_allow + 2 - place, 0, number))
    for place, number in enumerate(signals.values(), 1 + len(numbers)):
        found.append((_IF_EQUAL, to_allow - place, 0, number))
    found += [
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_IF_EQUAL, 1, 0, os.getpid()),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in found)
