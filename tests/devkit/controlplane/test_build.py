"""The build of the real control plane, with a Go that only pretends."""

import concurrent.futures
import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import script

#: Answers `go env GOVERSION`; `go build -v ... -o OUTPUT PACKAGE` logs, prints and writes OUTPUT.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo {version}; exit 0; fi
echo "$GOTOOLCHAIN $CGO_ENABLED $GOFLAGS $*" >> {log}
echo "some/package" >&2
if [ -n "{fail}" ]; then echo "boom: no network" >&2; exit 1; fi
while [ "$1" != -o ]; do shift; done
echo binary > "$2"
"""


def fake_go(folder: Path, log: Path, *, version: str = "go1.26.3", fail: bool = False) -> Path:
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
    for minor in builder.MINORS:
        shutil.copytree(builder.HERE / minor, module / minor)
    monkeypatch.setattr(builder, "HERE", module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # whatever Go this machine has is hidden
    return builder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "go.log"
    path.touch()
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An import folder, in which a `go` package can appear."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("go", None)
    importlib.invalidate_caches()


def install_go_package(site: Path, log: Path, version: str) -> None:
    fake_go(site / "go" / "bin", log, version=version)
    (site / "go" / "__init__.py").touch()
    importlib.invalidate_caches()


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
    assert build.MINORS == ["1.35", "1.36", "1.37"]
    assert build.NEWEST == "1.37"
    folders = {build.binaries(minor)["etcd"].parent for minor in build.MINORS}
    assert len(folders) == 3
    calls = log.read_text().splitlines()
    for minor in build.MINORS:
        version = build.kubernetes_version(minor)
        assert version.startswith(f"v{minor}.")
        assert sum(f"component-base/version.gitVersion={version} " in call for call in calls) == 3


def test_an_unknown_minor_names_those_that_there_are(build: ModuleType) -> None:
    with pytest.raises(build.BuildError, match=r"'1\.12': want one of 1\.35, 1\.36, 1\.37"):
        build.binaries("1.12")


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


@pytest.mark.parametrize("version", [None, "go1.25.9", "nonsense"])
def test_the_package_from_pypi_serves_where_go_is_missing_or_old(
    version: str | None, build: ModuleType, tmp_path: Path, log: Path, site: Path
) -> None:
    if version is not None:
        fake_go(tmp_path / "bin", log, version=version)
    install_go_package(site, log, "go1.26.6")
    go, environment = build.find_go()
    assert go == str(site / "go" / "bin" / "go")
    assert environment["GOROOT"] == str(site / "go")


def test_no_go_at_all_says_what_to_do(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_go_package_root", lambda: None)
    monkeypatch.setattr(build, "GO_PACKAGE", "./no-such-folder")  # pip fails without a network
    with pytest.raises(build.BuildError, match=r"hint: put Go 1\.26 or newer on the PATH"):
        build.find_go()


@pytest.mark.parametrize("version", ["go1.26", "go1.27.3", "go2.0.1", "go1.26.8-X:nodwarf5"])
def test_a_newer_go_on_the_path_is_taken(
    version: str, build: ModuleType, tmp_path: Path, log: Path
) -> None:
    want = fake_go(tmp_path / "bin", log, version=version)
    assert build.find_go()[0] == str(want)
