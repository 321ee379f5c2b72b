"""The lock files and the wheel: complete, pinned, and true to pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.image import Image
from tests.deploy.locks import locked
from tests.deploy.rendering import ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_RUNTIME = _PROJECT["project"]["dependencies"]
_DEV = _PROJECT["project"]["optional-dependencies"]["dev"]
_BUILD = _PROJECT["build-system"]["requires"]

LOCKS = {
    "requirements.lock": _RUNTIME,
    "requirements-build.lock": _BUILD,
    "requirements-dev.lock": [*_RUNTIME, *_BUILD, *_DEV],
}


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_locked_at_a_version_that_it_allows(name: str) -> None:
    versions = locked(name)
    for text in LOCKS[name]:
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{name}: no {requirement.name}; run `make lock`"
        assert requirement.specifier.contains(version), f"{name}: {text}, got {version}"


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_hashes_and_no_place_to_fetch_it_from(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked(name))
    assert [e.split()[0] for e in entries if "--hash=sha256:" not in e] == []
    assert not re.search(r"://|^-|index-url|find-links", text, re.MULTILINE)


def test_what_is_in_two_lock_files_has_one_version() -> None:
    everything = locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-build.lock"):
        assert locked(name).items() <= everything.items()


def test_the_wheel_brings_every_policy_that_ships(image: Image) -> None:
    (packages,) = (image.tree / "opt/starsched/lib").glob("python*/site-packages")
    want = {path.relative_to(ROOT).as_posix() for path in (ROOT / "policies").rglob("*.star")}
    got = {path.relative_to(packages).as_posix() for path in packages.glob("policies/**/*.star")}
    assert got == want


def test_the_wheel_brings_every_module_and_no_test(image: Image) -> None:
    (packages,) = (image.tree / "opt/starsched/lib").glob("python*/site-packages")

    def modules(root: Path) -> set[str]:
        return {
            path.relative_to(root).as_posix()
            for package in ("engine", "workbench")
            for path in root.glob(f"{package}/**/*.py")
        }

    assert modules(packages) == modules(ROOT)
    for name in ("tests", "devkit"):
        assert not (packages / name).exists()


def test_the_wheel_says_its_licence_and_brings_the_texts(image: Image) -> None:
    """Those of the files of others too, which NOTICE lists."""
    (folder,) = (image.tree / "opt/starsched/lib").glob("python*/site-packages/starsched-*-info")
    metadata = (folder / "METADATA").read_text(encoding="utf-8")
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    licences = folder / "licenses"
    got = {path.relative_to(licences).as_posix() for path in licences.rglob("*") if path.is_file()}
    others = {path.relative_to(ROOT).as_posix() for path in (ROOT / "engine").rglob("*.LICENSE")}
    assert got == {"LICENSE", "NOTICE"} | others
