"""Takes files, TCP ports and other processes from a process by Landlock, where the kernel has it.

Owns the set of rules, which has none: everything that Landlock can refuse is refused. It needs no
privilege. It is a second wall behind `system_calls`, by other code of the kernel: it judges what is
done to an object, not how the call is numbered.
"""

import ctypes
import os
import struct
import sys
from typing import Final

# The calls have these numbers on every architecture.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_ASK_VERSION: Final = 1

# How many rights a version of the interface knows, lowest bit first, by the version that first
# knew as many: of files, of TCP ports, and what else may be confined to the process.
_FILES: Final = {1: 13, 2: 14, 3: 15, 5: 16}
_PORTS: Final = {4: 2}
_SCOPES: Final = {6: 2}


def landlock_version() -> int:
    """The version of the interface that the kernel has; 0 if there is none or it is off."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE_RULESET, None, 0, _ASK_VERSION))


def deny_all_objects() -> int:
    """Refuse this process all that Landlock can refuse, irrevocably; open descriptors remain.

    `no_new_privs` must be set already, and a descriptor must be free. For a process with one
    thread.

    Returns:
        The version of the interface by which it is refused; 0 if there is none.
    """
    version = landlock_version()
    if not version:
        return 0
    given = ruleset(version)
    rules = _call(_CREATE_RULESET, ctypes.create_string_buffer(given, len(given)), len(given), 0)
    if rules < 0:
        return 0
    try:
        return version if _call(_RESTRICT_SELF, rules, 0, 0) == 0 else 0
    finally:
        os.close(rules)


def ruleset(version: int) -> bytes:
    """`struct landlock_ruleset_attr` with all rights that the *version* knows.

    An older kernel takes a longer structure if what it does not know is zero.
    """
    return struct.pack("=QQQ", *(_rights(by, version) for by in (_FILES, _PORTS, _SCOPES)))


def _rights(known: dict[int, int], version: int) -> int:
    return (1 << max((bits for since, bits in known.items() if since <= version), default=0)) - 1


def _call(number: int, first: object, second: int, third: int) -> int:
    """The system call's result, -1 for an error."""
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    if isinstance(first, int):
        first = ctypes.c_long(first)
    done: int = call(ctypes.c_long(number), first, ctypes.c_long(second), ctypes.c_long(third))
    return done
