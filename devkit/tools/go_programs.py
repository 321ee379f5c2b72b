"""Builds the Go programs that tests run in addition to the control plane.

The sources of each are Go modules pinned by `go.mod` and `go.sum` in a folder of its own; the
binary goes to `${XDG_CACHE_HOME:-~/.cache}/starsched/<program>/<hash>/`, outside the checkout. Go
is found, or installed, the way the control plane's build does it.

Run it with the names of programs (all of them without), or call `binary`.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]


@dataclass(frozen=True)
class GoProgram:
    """A program: the folder of its `go.mod`, the package, build tags, how long it takes."""

    folder: Path
    package: str = "."
    tags: str = ""
    takes: str = "a minute or two"


PROGRAMS: Final = {
    # Reads the workflow files of `.github`, which nothing here runs.
    "actionlint": GoProgram(
        HERE / "actionlint",
        "github.com/rhysd/actionlint/cmd/actionlint",
        takes="half a minute",
    ),
    # Installs the plugin of kubectl from a release's own manifest and archive.
    "krew": GoProgram(HERE / "krew", "sigs.k8s.io/krew/cmd/krew", takes="half a minute"),
    # Runs the commands of the tutorial as they are written, in its test.
    "kubectl": GoProgram(HERE / "kubectl"),
    # Renders `deploy/` exactly as an operator's does.
    "kustomize": GoProgram(
        HERE / "kustomize",
        "sigs.k8s.io/kustomize/kustomize/v5",
        takes="half a minute",
    ),
    # Renders and installs the chart, `deploy/helm`.
    "helm": GoProgram(HERE / "helm", "helm.sh/helm/v4/cmd/helm", takes="some minutes"),
    # Plays kubelets in the walk-through of `deploy/kwok`.
    "kwok": GoProgram(HERE / "kwok", "sigs.k8s.io/kwok/cmd/kwok", takes="some minutes"),
    # Scrapes and answers queries in tests of facts; service discovery is most of its code.
    "prometheus": GoProgram(
        HERE / "prometheus",
        "github.com/prometheus/prometheus/cmd/prometheus",
        tags="remove_all_sd",
        takes="some minutes",
    ),
    # Checks and tests the alerts; of the same module as the server that evaluates them.
    "promtool": GoProgram(
        HERE / "prometheus",
        "github.com/prometheus/prometheus/cmd/promtool",
        tags="remove_all_sd",
        takes="a minute after Prometheus",
    ),
    # kube-scheduler's own plugins, asked for their answers. In the control plane's versions, so
    # that compiled packages are reused.
    "oracle": GoProgram(ROOT / "tests" / "oracle", takes="seconds after the control plane"),
}


def binary(name: str) -> Path:
    """The path of the binary of a program; builds it if it is missing."""
    program = PROGRAMS[name]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = base / "starsched" / name / _digest(program) / name
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    go, environment = _controlplane_build().find_go()
    print(f"{name}: building it with {go} ({program.takes}, once)", file=sys.stderr)
    tags = ["-tags", program.tags] if program.tags else []
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / name
        command = [go, "build", *tags, "-ldflags", "-s -w", "-o", str(built), program.package]
        subprocess.run(command, cwd=program.folder, env=environment, check=True)
        # Renamed when complete: two builds at once both end with a whole binary.
        built.replace(target)
    return target


def _digest(program: GoProgram) -> str:
    folder = program.folder
    digest = hashlib.sha256(program.tags.encode())
    for path in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _controlplane_build() -> ModuleType:
    """`devkit/controlplane/build.py` as a module: it finds a Go that is new enough."""
    path = HERE.parent / "controlplane" / "build.py"
    spec = importlib.util.spec_from_file_location("controlplane_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    for each in sys.argv[1:] or PROGRAMS:
        print(binary(each))
