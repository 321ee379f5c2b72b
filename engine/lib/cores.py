"""Finds how many cores this process may use."""

import os
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_MINE: Final = Path("/proc/self/cgroup")


def usable_cores(mine: Path = _MINE, cgroups: Path = _CGROUPS) -> float:
    """Cores by affinity, or a container's cpu limit in cores if that is less; above 0.

    Args:
        mine: A file like `/proc/self/cgroup`, which names the process's control group.
        cgroups: Where the control groups are, of version 2; those of version 1 are ignored.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    else:
        cores = float(os.cpu_count() or 1)
    try:
        lines = mine.read_text().splitlines()
    except OSError:
        return cores
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None:
        return cores
    group = cgroups / path.lstrip("/")
    # A limit holds for all groups below. In a container the path may be the host's.
    for each in (group, *group.parents, cgroups):
        if each.is_relative_to(cgroups):
            cores = min(cores, _limit(each / "cpu.max"))
    return cores


def _limit(file: Path) -> float:
    """Cores that a `cpu.max` allows, `200000 100000` are 2; infinity without a limit."""
    try:
        quota, period = file.read_text().split()
        return max(int(quota) / int(period), 0.01)
    except (OSError, ValueError, ZeroDivisionError):  # no such file, `max`
        return float("inf")
