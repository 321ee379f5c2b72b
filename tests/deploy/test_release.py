"""What a release has: complete, true to the commit, and the same bytes every time."""

import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import CHART, run_helm
from tests.deploy.rendering import ROOT
from tests.deploy.test_sbom import assert_valid, purls
from tests.scripts import script

#: What the wheel has: without benchmarks, the control plane's build and the tools.
_PACKAGES = (
    "engine",
    "workbench",
    "devkit/__init__.py",
    "devkit/cluster",
    "devkit/demo",
    "devkit/faults",
    "policies",
)
_VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
_WHEEL = f"starsched-{_VERSION}-py3-none-any.whl"
_PLUGIN = f"kubectl-starsched-{_VERSION}.tar.gz"


def committed(*folders: str) -> dict[str, bytes]:
    """Path -> content of the files of the commit in *folders*."""
    command = ["git", "archive", "--format=tar", "HEAD", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    # What makes a ConfigMap of a folder is for the manifests alone.
    found = unpacked(done.stdout)
    return {name: data for name, data in found.items() if not name.endswith("/Kustomization")}


def unpacked(data: bytes) -> dict[str, bytes]:
    """Path -> content of the files of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {
            one.name: opened.read()
            for one in archive
            if one.isfile() and (opened := archive.extractfile(one))
        }


@pytest.mark.slow("builds a release")
def test_it_is_complete_and_its_checksums_hold(made_release: Path) -> None:
    names = {path.name for path in made_release.iterdir()}
    downloads = {
        _WHEEL,
        f"starsched-{_VERSION}.tar.gz",
        f"starsched-{_VERSION}.tgz",
        f"starsched-{_VERSION}-linux-amd64.spdx.json",
        f"starsched-{_VERSION}-linux-arm64.spdx.json",
        _PLUGIN,
        "starsched.yaml",
    }
    assert names == {*downloads, "SHA256SUMS", "NOTES.md"}
    said = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=made_release,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.removesuffix(": OK") for line in said.stdout.splitlines()} == downloads


@pytest.mark.long("builds a release twice")
def test_a_second_release_of_the_commit_has_the_same_bytes(
    made_release: Path, tmp_path: Path
) -> None:
    """Also where another user's umask and a later time made the files."""
    command = f'umask 077; exec "$0" "$1" --output "{tmp_path / "again"}"'
    subprocess.run(
        ["sh", "-c", command, sys.executable, ROOT / "devkit/tools/release.py"], check=True
    )
    for path in made_release.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


@pytest.mark.slow("builds a release")
def test_the_wheel_has_the_modules_the_policies_the_page_and_the_licences(
    made_release: Path,
) -> None:
    with zipfile.ZipFile(made_release / _WHEEL) as archive:
        got = {name: archive.read(name) for name in archive.namelist()}
    info = f"starsched-{_VERSION}.dist-info"
    ours = {name: data for name, data in got.items() if not name.startswith(info)}
    assert ours == committed(*_PACKAGES)
    assert {f"{info}/licenses/{name}" for name in ("LICENSE", "NOTICE")} < got.keys()
    kinds = {Path(name).parts[1] for name in ours if name.startswith("policies/")}
    assert {"gpu", "trimaran", "kubernetes", "std"} < kinds


@pytest.mark.slow("builds a release")
def test_the_sdist_has_what_the_wheel_has_and_says_who_may_use_it(made_release: Path) -> None:
    inside = unpacked((made_release / f"starsched-{_VERSION}.tar.gz").read_bytes())
    top = f"starsched-{_VERSION}/"
    assert all(name.startswith(top) for name in inside)
    want = committed(*_PACKAGES, "LICENSE", "NOTICE", "README.md", "pyproject.toml")
    assert {name: inside.get(top + name) for name in want} == want


@pytest.mark.slow("builds a release")
def test_the_real_helm_renders_the_archive_as_it_renders_the_folder(
    helm: Path, made_release: Path
) -> None:
    rendered = [
        run_helm("template", "one", chart, "--namespace", "two", "--kube-version", "1.37.0")
        for chart in (CHART, made_release / f"starsched-{_VERSION}.tgz")
    ]
    assert [done.returncode for done in rendered] == [0, 0], rendered
    assert rendered[0].stdout == rendered[1].stdout
    assert "kind: Deployment" in rendered[0].stdout


@pytest.mark.slow("builds a release")
def test_the_bills_are_valid_and_each_is_of_its_platform(made_release: Path) -> None:
    hashes = dict(
        line.split()[::-1] for line in (made_release / "SHA256SUMS").read_text().splitlines()
    )
    numpy = set()
    for platform in ("amd64", "arm64"):
        path = made_release / f"starsched-{_VERSION}-linux-{platform}.spdx.json"
        assert_valid(path)
        document = json.loads(path.read_text())
        assert f"pkg:pypi/starsched@{_VERSION}" in purls(document)
        sums = {one["name"]: one["checksums"][0]["checksumValue"] for one in document["packages"]}
        assert sums["starsched"] == hashes[_WHEEL]
        numpy.add(sums["numpy"])
    assert len(numpy) == 2


@pytest.mark.slow("builds a release")
def test_the_plugin_s_archive_is_what_its_manifest_names(made_release: Path) -> None:
    hashes = dict(
        line.split()[::-1] for line in (made_release / "SHA256SUMS").read_text().splitlines()
    )
    manifest = yaml.safe_load((made_release / "starsched.yaml").read_text())
    assert manifest["spec"]["version"] == f"v{_VERSION}"
    for platform in manifest["spec"]["platforms"]:
        assert platform["sha256"] == hashes[_PLUGIN]
        assert platform["uri"].endswith(f"/releases/download/v{_VERSION}/{_PLUGIN}")
    inside = unpacked((made_release / _PLUGIN).read_bytes())
    assert inside[_WHEEL] == (made_release / _WHEEL).read_bytes()
    assert {"LICENSE", "NOTICE", "requirements.lock", "kubectl-starsched"} < inside.keys()


_CHANGELOG = """\
# Changelog

## 0.3.0 (unreleased)

## 0.2.0 (2026-01-02)

- One, [there](docs/a.md#b), [elsewhere](https://example.com/x).

## 0.2.0rc1

- Two.
"""


def test_the_notes_are_the_changelog_s_section_with_links_that_lead_somewhere() -> None:
    release = script("devkit/tools/release.py")
    got = release.notes(_CHANGELOG, "0.2.0")
    there = f"{release.REPOSITORY}/blob/v0.2.0/docs/a.md#b"
    assert got == f"- One, [there]({there}), [elsewhere](https://example.com/x).\n"


@pytest.mark.parametrize(
    ("version", "want"),
    [
        pytest.param("0.4.0", "no section `## 0.4.0`", id="no section"),
        pytest.param("0.2", "no section `## 0.2`", id="the beginning of another"),
        pytest.param("0.3.0", "the section `## 0.3.0` is empty", id="an empty section"),
    ],
)
def test_a_version_that_the_changelog_does_not_tell_of_is_refused(version: str, want: str) -> None:
    release = script("devkit/tools/release.py")
    with pytest.raises(release.CannotRelease, match=re.escape(want)):
        release.notes(_CHANGELOG, version)


def test_a_folder_that_has_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    release = script("devkit/tools/release.py")
    with pytest.raises(release.CannotRelease, match="want a folder that is empty"):
        release.release(tmp_path)


def test_every_file_that_names_the_version_names_that_of_pyproject() -> None:
    version = script("devkit/tools/version.py")
    for path, text in version.texts(_VERSION).items():
        assert path.read_text() == text, f"{path}: run `make version`"


def test_another_version_is_written_everywhere_the_old_one_was() -> None:
    version = script("devkit/tools/version.py")
    for path, text in version.texts("9.8.7rc6").items():
        assert "9.8.7rc6" in text
        assert not re.search(rf"(?<![\d.]){re.escape(_VERSION)}(?![\d.])", text), path


def test_no_other_file_for_users_names_the_version() -> None:
    """`make version` and `make chart` know them all."""
    version = script("devkit/tools/version.py")
    names = re.compile(rf"(?<![\d.]){re.escape(_VERSION)}(?![\d.])")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("deploy", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and names.search(path.read_text(errors="replace"))
    }
    charts = {one for one in found if one.startswith("deploy/helm/starsched/")}
    assert found - charts <= set(version.PLACES)
