"""Builds the oracle: kube-scheduler's own plugins, asked for their answers.

The sources are the Go files beside this one; the modules are pinned by `go.mod` and `go.sum`, in
the versions of the control plane's build, whose compiled packages are used again. The binary goes
to `${XDG_CACHE_HOME:-~/.cache}/starsched/oracle/<hash>/`, outside the checkout. Go is found, or
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


def binary() -> Path:
    """The path of the oracle's binary; builds it if it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = base / "starsched" / "oracle" / _digest() / "oracle"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    go, environment = _controlplane_build()._find_go()
    print(f"oracle: building with {go} (seconds after the control plane, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / "oracle"
        command = [go, "build", "-ldflags", "-s -w", "-o", str(built), "."]
        subprocess.run(command, cwd=HERE, env=environment, check=True)
        # Renamed when complete: two builds at once both end with a whole binary.
        built.replace(target)
    return target


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted([*HERE.glob("*.go"), HERE / "go.mod", HERE / "go.sum"]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _controlplane_build() -> ModuleType:
    """`controlplane/build.py` as a module: it knows where to find a Go that is new enough."""
    path = HERE.parents[1] / "controlplane" / "build.py"
    spec = importlib.util.spec_from_file_location("controlplane_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    print(binary())
