"""Builds Prometheus, which the tests of facts let scrape and query for real.

The source is the Go module pinned by `go.mod` and `go.sum` beside this file, without its service
discoveries, which are most of it; the binary goes to
`${XDG_CACHE_HOME:-~/.cache}/starsched/prometheus/<hash>/`, outside the checkout. Go is found, or
installed, the way the control plane's build does it.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PACKAGE = "github.com/prometheus/prometheus/cmd/prometheus"
TAGS = "remove_all_sd"


def binary() -> Path:
    """The path of the prometheus binary; builds it if it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(TAGS.encode())
    for name in ("go.mod", "go.sum"):
        digest.update((HERE / name).read_bytes())
    target = base / "starsched" / "prometheus" / digest.hexdigest()[:12] / "prometheus"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    go, environment = _controlplane_build()._find_go()
    print(f"prometheus: building {PACKAGE} with {go} (some minutes, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / "prometheus"
        command = [go, "build", "-tags", TAGS, "-ldflags", "-s -w", "-o", str(built), PACKAGE]
        subprocess.run(command, cwd=HERE, env=environment, check=True)
        # Renamed when complete: two builds at once both end with a whole binary.
        built.replace(target)
    return target


def _controlplane_build() -> ModuleType:
    """`controlplane/build.py` as a module: it knows where to find a Go that is new enough."""
    path = HERE.parent.parent / "controlplane" / "build.py"
    spec = importlib.util.spec_from_file_location("controlplane_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    print(binary())
