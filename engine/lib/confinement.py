"""Takes from a process what running policies does not need, and reports what is in force.

Owns the order of the restrictions; the walls themselves are in `landlock`, `system_calls` and
`address_space`. All of it is irrevocable and needs no privilege.
"""

import ctypes
import resource
import sys
from typing import Final

import msgspec

from engine.lib.address_space import limit_address_space
from engine.lib.landlock import deny_all_objects
from engine.lib.system_calls import allow_only_computing

_PR_SET_NO_NEW_PRIVS: Final = 38


class Confinement(msgspec.Struct, frozen=True):
    """What the kernel holds a confined process to, apart from resource limits.

    Attributes:
        system_calls: Whether only listed system calls are allowed.
        landlock: The version of Landlock's interface that refuses files and ports; 0: none.
    """

    system_calls: bool
    landlock: int

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of what is not in force."""
        return tuple(name for name in self.__struct_fields__ if not getattr(self, name))


def confine(address_space: int) -> Confinement:
    """Let this process only compute, within *address_space* bytes, and use what it has open.

    No privileges by way of other programs, no core dump, nothing written to files, no children,
    no new descriptors, and what `Confinement` reports. Resource limits that the platform does not
    have are skipped; what Linux has always had raises `OSError` if it cannot be set.
    """
    for name in ("RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NPROC"):
        _set_to_zero(name)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot give up new privileges")
    # Landlock's rules take a descriptor for a moment, and the filter would refuse all of this.
    landlock = deny_all_objects()
    limit_address_space(address_space)
    _set_to_zero("RLIMIT_NOFILE")
    return Confinement(system_calls=allow_only_computing(), landlock=landlock)


def _set_to_zero(name: str) -> None:
    kind = getattr(resource, name, None)
    if kind is not None:
        resource.setrlimit(kind, (0, 0))
