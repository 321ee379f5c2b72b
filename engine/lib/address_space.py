"""How much memory this process may map, and who pays where the machine has no more.

Owns the limit of the process: what it is to be, and what the starting process allows.
"""

import contextlib
import resource


def limit_address_space(wanted: int) -> None:
    """Let this process map no more than *wanted* bytes, for ever."""
    most = allowed_address_space(wanted)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def allowed_address_space(wanted: int) -> int:
    """*wanted* bytes, or what this process and its children may map if that is less."""
    ceiling = resource.getrlimit(resource.RLIMIT_AS)[1]
    # Only root may go beyond it, and should not either.
    return wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)


def be_ended_first() -> None:
    """Have the kernel end this process, not a larger one, where memory runs out; for ever.

    Without effect on platforms that know no such order.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
