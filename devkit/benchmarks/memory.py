"""The memory of processes: resident (RSS), and with a proportional share of shared pages (PSS).

Reads `/proc/<pid>/smaps_rollup`, so it runs on Linux only. RSS counts a page that two processes
share in both; PSS counts half of it in each, so that sums of PSS are what would be free without
them.
"""

import contextlib
import dataclasses
from pathlib import Path

_PROC = Path("/proc")


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """MiB of a process, or of several."""

    rss_mib: float = 0.0
    pss_mib: float = 0.0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.rss_mib + other.rss_mib, self.pss_mib + other.pss_mib)

    def as_dict(self) -> dict[str, float]:
        """Plain data, rounded."""
        return {"rss_mib": round(self.rss_mib, 1), "pss_mib": round(self.pss_mib, 1)}


def memory_of(pid: int) -> Memory:
    """Of one process; nothing if it is gone."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text("ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in ("Rss", "Pss"):
                found[name] = int(rest.split()[0])
    return Memory(found.get("Rss", 0) / 1024, found.get("Pss", 0) / 1024)


def children_of(pid: int) -> list[int]:
    """The processes that *pid* started and that live."""
    found: list[int] = []
    for task in (_PROC / str(pid) / "task").glob("*"):
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text("ascii").split())
    return sorted(found)


def memory_by_part(pid: int) -> dict[str, Memory]:
    """Of a scheduler: the `parent`, its `sandbox` processes together, and `both`."""
    parent = memory_of(pid)
    sandbox = sum((memory_of(child) for child in children_of(pid)), Memory())
    return {"parent": parent, "sandbox": sandbox, "both": parent + sandbox}
