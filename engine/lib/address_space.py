"""Limits how much memory this process may map, and makes it the first that the OOM killer ends.

Owns the limit of the process: what it is to be, and what the starting process allows.
"""

import contextlib
import resource


def limit_address_space(wanted: int) -> None:
    """Let this process map no more than *wanted* bytes, irrevocably."""
    most = allowed_address_space(wanted)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def allowed_address_space(wanted: int) -> int:
    """*wanted* bytes, or the limit of this process and its children if that is less."""
    ceiling = resource.getrlimit(resource.RLIMIT_AS)[1]
    # Only root may raise it, and should not.
    return wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)


def be_ended_first() -> None:
    """Have the kernel end this process, not a larger one, when memory runs out; irrevocable.

    Without effect on platforms that know no such order.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
