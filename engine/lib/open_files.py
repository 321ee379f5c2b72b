"""Raises the limit of open files and connections of this process.

Owns the limit of the process. Shells and service managers leave it low and the ceiling high, so
that programs that wait with `select` stay within its reach; this one does not.
"""

import resource


def allow_open_files(wanted: int) -> int:
    """Raise the limit to *wanted*, as far as its ceiling goes.

    Returns:
        The limit that holds now; less than *wanted* if the ceiling is lower.
    """
    limit, ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    if limit >= wanted:
        return limit
    raised = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, ceiling))
    except (OSError, ValueError):  # some platforms report a ceiling that they do not grant
        return limit
    return raised
