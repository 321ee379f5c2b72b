"""The environment of a run: the machine, the versions, the load. Part of every result."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from engine import __version__


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, kernel, Python, and the load before the run."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(_memory_kib() / 1024**2, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def source_revision() -> str:
    """Version of the installed product and commit of the checkout, `+` if it has changes."""
    root = Path(__file__).parent
    commit = _git(root, "rev-parse", "--short", "HEAD")
    if not commit:
        return __version__
    return f"{__version__} ({commit}{'+' if _git(root, 'status', '--porcelain') else ''})"


def _git(root: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError:  # no git here
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_kib() -> int:
    for line in Path("/proc/meminfo").read_text("utf-8").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    return 0
