"""CPU seconds and peak memory of a process with all its children.

Reads `/proc`, so it runs on Linux only. CPU comes in ticks of 10 ms: read it over whole runs.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process tree has used since its start.

    Attributes:
        cpu_seconds: User and system time, of the living and of the children that were waited for.
        peak_mib: Sum over the living of the most memory that each ever held (VmHWM).
        processes: How many live.
    """

    cpu_seconds: float
    peak_mib: float
    processes: int


def usage_of(pid: int) -> Usage:
    """Usage of *pid* and all its descendants; zero for a process that is gone."""
    cpu, peak, count = 0.0, 0.0, 0
    for member in _tree(pid):
        with contextlib.suppress(OSError):
            cpu += _cpu_seconds(member)
            peak += _peak_mib(member)
            count += 1
    return Usage(cpu, peak, count)


def own_cpu_seconds(pid: int) -> float:
    """CPU seconds of *pid* alone, its children left out; zero if it is gone."""
    with contextlib.suppress(OSError):
        return sum(int(ticks) for ticks in _stat(pid)[11:13]) / _TICKS  # utime stime
    return 0.0


def machine_busy_seconds() -> float:
    """CPU seconds used by all processes since boot, and by other guests of the host (steal)."""
    fields = (_PROC / "stat").read_text("ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(f) for f in fields[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def resident_mib_of(pid: int) -> float:
    """Memory that *pid* and all its descendants hold now."""
    total = 0.0
    for member in _tree(pid):
        with contextlib.suppress(OSError):
            pages = int((_PROC / str(member) / "statm").read_text().split()[1])
            total += pages * os.sysconf("SC_PAGE_SIZE") / 1024**2
    return total


def forget_peak() -> None:
    """Let this process's peak memory start from what it holds now."""
    (_PROC / "self" / "clear_refs").write_text("5")


def _tree(root: int) -> list[int]:
    """*root* and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int(_stat(int(entry.name))[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:  # grows while we walk it
        found.extend(children.get(pid, ()))
    return found


def _stat(pid: int) -> list[str]:
    """Fields of `/proc/<pid>/stat` from the state on: the name before it may hold anything."""
    text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    return text[text.rindex(")") + 2 :].split()


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS  # utime stime cutime cstime


def _peak_mib(pid: int) -> float:
    for line in (_PROC / str(pid) / "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
