"""Builds kubectl, with which the test of the tutorial runs its commands as they are written.

The sources are the Go modules pinned by `go.mod` and `go.sum` beside this file; the binary goes to
`${XDG_CACHE_HOME:-~/.cache}/starsched/kubectl/<hash>/`, outside the checkout. Go is found, or
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
PACKAGE = "."


def binary() -> Path:
    """The path of the kubectl binary; builds it if it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((HERE / name).read_bytes())
    target = base / "starsched" / "kubectl" / digest.hexdigest()[:12] / "kubectl"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    go, environment = _controlplane_build()._find_go()
    print(f"kubectl: building it with {go} (a minute or two, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / "kubectl"
        command = [go, "build", "-ldflags", "-s -w", "-o", str(built), PACKAGE]
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
