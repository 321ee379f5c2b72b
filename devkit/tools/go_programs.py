"""Builds the Go programs that tests run in addition to the control plane.

The sources of each are Go modules pinned by `go.mod` and `go.sum` in a folder of its own, those of
the oracle by those of the control plane's minor version, those of the oracles of fair sharing by
one folder for each original; the binary goes to
`${XDG_CACHE_HOME:-~/.cache}/starsched/<program>/<hash>/`, outside the checkout. Go is found, or
installed, the way the control plane's build does it.

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


def _controlplane_build() -> ModuleType:
    """`devkit/controlplane/build.py` as a module: it finds a Go that is new enough."""
    path = HERE.parent / "controlplane" / "build.py"
    spec = importlib.util.spec_from_file_location("controlplane_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONTROL_PLANE: Final = _controlplane_build()


@dataclass(frozen=True)
class GoProgram:
    """A program: the folder of its sources, the package, build tags, how long it takes.

    `modules` is the folder of `go.mod` and `go.sum`, if it is another one.
    """

    folder: Path
    package: str = "."
    tags: str = ""
    takes: str = "a minute or two"
    modules: Path | None = None


def _oracle(minor: str) -> GoProgram:
    """kube-scheduler's own plugins of a minor version, asked for their answers.

    In the control plane's versions, so that compiled packages are reused.
    """
    # What differs is in files with a tag for the minor version that it came with.
    minors = CONTROL_PLANE.ORACLES
    tags = [f"since_{each.replace('.', '_')}" for each in minors[1 : minors.index(minor) + 1]]
    is_built = minor in CONTROL_PLANE.MINORS
    return GoProgram(
        ROOT / "tests" / "oracle",
        tags=",".join(tags),
        takes="seconds after the control plane" if is_built else "some minutes",
        modules=CONTROL_PLANE.HERE / minor,
    )


#: What shares fairly, and can be asked how: the build tags of `tests/fairness/oracle`.
ORIGINALS: Final = ("kueue", "koordinator", "yunikorn", "capacity")


def _fairness(original: str) -> GoProgram:
    """A program that answers with the code of one of `ORIGINALS`."""
    folder = ROOT / "tests" / "fairness" / "oracle"
    takes = "half a minute" if original == "yunikorn" else "two to four minutes"
    return GoProgram(folder, tags=original, takes=takes, modules=folder / "modules" / original)


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
    "oracle": _oracle(CONTROL_PLANE.NEWEST),
    **{f"oracle-{minor}": _oracle(minor) for minor in CONTROL_PLANE.ORACLES},
    **{f"fairness-{original}": _fairness(original) for original in ORIGINALS},
}


def binary(name: str) -> Path:
    """The path of the binary of a program; builds it if it is missing."""
    program = PROGRAMS[name]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kind = name.partition("-1.")[0]  # the minors' oracles are in one folder
    target = base / "starsched" / kind / _digest(program) / kind
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    modules = program.modules or program.folder
    go, environment = CONTROL_PLANE.find_go(modules)
    print(f"{name}: building it with {go} ({program.takes}, once)", file=sys.stderr)
    options = ["-tags", program.tags] if program.tags else []
    if program.modules is not None:
        options += ["-modfile", str(modules / "go.mod")]
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / kind
        command = [go, "build", *options, "-ldflags", "-s -w", "-o", str(built), program.package]
        subprocess.run(command, cwd=program.folder, env=environment, check=True)
        # Renamed when complete: two builds at once both end with a whole binary.
        built.replace(target)
    return target


def _digest(program: GoProgram) -> str:
    modules = program.modules or program.folder
    digest = hashlib.sha256(program.tags.encode())
    sources = [*sorted(program.folder.glob("*.go")), *sorted(program.folder.glob("*.s"))]
    for path in (modules / "go.mod", modules / "go.sum", *sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    for wanted in sys.argv[1:] or PROGRAMS:
        for each in PROGRAMS:
            if each == wanted or each.startswith(f"{wanted}-"):  # `oracle`: of every minor
                print(binary(each))
