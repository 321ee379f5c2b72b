"""The bill of materials: valid SPDX, and true to what was installed."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from tests.deploy.conftest import ARGUMENTS
from tests.deploy.image import Image, parse
from tests.deploy.locks import locked
from tests.deploy.rendering import ROOT
from tests.scripts import script


def purls(document: dict[str, Any]) -> set[str]:
    """The package URLs of everything in *document*."""
    return {one["externalRefs"][0]["referenceLocator"] for one in document["packages"]}


def assert_valid(path: Path) -> None:
    """*path* is what the SPDX project's own library takes without a complaint."""
    said = validate_full_spdx_document(parse_file(str(path)))
    assert [f"{one.context.spdx_id}: {one.validation_message}" for one in said] == []


@pytest.fixture(scope="module")
def bill(image: Image) -> Path:
    return image.tree / "opt/starsched/share/sbom/starsched.spdx.json"


def test_the_image_s_bill_is_valid_and_has_all_that_is_in_it(bill: Path) -> None:
    assert_valid(bill)
    document = json.loads(bill.read_text())
    got = purls(document)
    version = next(one for one in document["packages"] if one["name"] == "starsched")["versionInfo"]
    want = {f"pkg:pypi/{name}@{pin}" for name, pin in locked("requirements.lock").items()}
    assert {one for one in got if one.startswith("pkg:pypi/")} == {
        *want,
        f"pkg:pypi/starsched@{version}",
    }
    # The base's Debian packages that are installed, its Python, and itself.
    assert {one for one in got if one.startswith("pkg:deb/")} == {
        "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64&distro=debian-13",
        "pkg:deb/debian/libstdc%2B%2B6@14.2.0-19?arch=amd64&distro=debian-13",
    }
    assert len([one for one in got if one.startswith("pkg:generic/python@")]) == 1
    digest = parse((ROOT / "Dockerfile").read_text())[0]["PYTHON_DIGEST"].replace(":", "%3A")
    assert [one for one in got if one.startswith(f"pkg:oci/python@{digest}")]
    assert document["creationInfo"]["created"] == ARGUMENTS["CREATED"]


def test_the_hashes_of_the_bill_are_those_of_the_lock_file(bill: Path) -> None:
    text = (ROOT / "requirements.lock").read_text()
    for package in json.loads(bill.read_text())["packages"]:
        if package["name"] in locked("requirements.lock"):
            assert f"sha256:{package['checksums'][0]['checksumValue']}" in text, package["name"]


def wheel(folder: Path, name: str, *fields: str) -> None:
    """Write a wheel of version 1.0 whose metadata has *fields*."""
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        text = "\n".join(
            ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields, "", ""]
        )
        archive.writestr(zipfile.ZipInfo(f"{name}-1.0.dist-info/METADATA"), text)


def test_dependencies_and_licences_are_those_of_the_metadata(tmp_path: Path) -> None:
    needs = "Requires-Dist: Big.Thing[fast]>=2 ; python_version < '4'"
    unused = "Requires-Dist: small; extra == 'more'"
    wheel(tmp_path, "main", "License-Expression: MIT OR Apache-2.0", needs, unused)
    wheel(tmp_path, "big_thing", "License: MIT", "Requires-Dist: nowhere")
    wheel(tmp_path, "small", "License: do what you like")
    sbom = script("devkit/tools/sbom.py")
    document = sbom.document(sbom.of_wheels(tmp_path), "main", 0)
    got = {one["name"]: one["licenseDeclared"] for one in document["packages"]}
    assert got == {"main": "MIT OR Apache-2.0", "big-thing": "MIT", "small": "NOASSERTION"}
    assert [
        (one["spdxElementId"], one["relatedSpdxElement"])
        for one in document["relationships"]
        if one["relationshipType"] == "DEPENDS_ON"
    ] == [("SPDXRef-pypi-main", "SPDXRef-pypi-big-thing")]


def test_the_namespace_is_another_for_another_content_and_the_same_for_the_same(
    tmp_path: Path,
) -> None:
    sbom = script("devkit/tools/sbom.py")
    wheel(tmp_path, "main")

    def namespace(created: int) -> str:
        found: str = sbom.document(sbom.of_wheels(tmp_path), "main", created)["documentNamespace"]
        return found

    assert namespace(0) == namespace(0)
    assert namespace(0) != namespace(1)
    before = namespace(0)
    wheel(tmp_path, "other")
    assert namespace(0) != before
