"""Writes a software bill of materials (SPDX 2.3, JSON) of a folder of wheels.

Each wheel is a package with its version, licence, purl and SHA-256, and depends on those that its
metadata requires. With `--dpkg`, the Debian packages and the Python of the base image are in it
too: that is everything in the image. The same input gives the same bytes. Needs nothing but a
Python, because the image's build runs it.
"""

import argparse
import email
import hashlib
import json
import platform
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

UNKNOWN: Final = "NOASSERTION"
#: What `License-Expression` replaced: a text, if it is nothing but the SPDX name of a licence.
_LICENCES: Final = (
    "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "PSF-2.0", "Unlicense",
)  # fmt: skip


@dataclass(frozen=True)
class Package:
    """One package of the bill.

    Attributes:
        name, version, purl: What it is.
        license: An SPDX expression, or `NOASSERTION`.
        sha256: Of the archive that it came in; "" if that is not known.
        requires: Names of what it depends on.
        purpose: SPDX's word for what it is for.
    """

    name: str
    version: str
    purl: str
    license: str = UNKNOWN
    sha256: str = ""
    requires: tuple[str, ...] = field(default=(), compare=False)
    purpose: str = "LIBRARY"

    @property
    def spdx_id(self) -> str:
        """Its identifier within the document."""
        kind = self.purl.removeprefix("pkg:").partition("/")[0]
        return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", self.name)


def document(
    packages: Iterable[Package], subject: str, created: int, base: str = ""
) -> dict[str, Any]:
    """The SPDX document of *packages*.

    Args:
        packages: At most one of a name and kind.
        subject: Name of the one that the others are there for.
        created: Seconds since the epoch.
        base: The image that the subject runs in, as `NAME:TAG@sha256:DIGEST`; "" if it is in none.
    """
    listed = sorted(packages, key=lambda one: one.spdx_id)
    (main,) = (one for one in listed if one.name == subject)
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", main.spdx_id)]
    python = {one.name: one for one in listed if one.purl.startswith("pkg:pypi/")}
    for one in listed:
        relations += [
            (one.spdx_id, "DEPENDS_ON", python[name].spdx_id)
            for name in sorted(set(one.requires))
            if name in python
        ]
        if one.spdx_id not in {each.spdx_id for each in python.values()}:
            relations.append((main.spdx_id, "DEPENDS_ON", one.spdx_id))
    if base:
        image = _base_image(base)
        listed.append(image)
        relations.append((main.spdx_id, "DEPENDS_ON", image.spdx_id))
    body = {
        "packages": [_as_spdx(one) for one in listed],
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relations
        ],
    }
    name = f"{main.name}-{main.version}"
    # The namespace has to be the document's alone: another content has another one.
    digest = hashlib.sha256(json.dumps([name, created, body]).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{digest[:32]}",
        "creationInfo": {
            "created": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: {main.name}-sbom"],
        },
        **body,
    }


def of_wheels(folder: Path) -> Iterator[Package]:
    """The wheels in *folder* as packages."""
    return map(of_wheel, sorted(folder.glob("*.whl")))


def of_wheel(path: Path) -> Package:
    """The wheel at *path* as a package."""
    with zipfile.ZipFile(path) as archive:
        (inside,) = (
            name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
        )
        metadata = email.message_from_bytes(archive.read(inside))
    name, version = normalized(metadata["Name"]), metadata["Version"]
    said = (metadata["License"] or "").strip()
    return Package(
        name,
        version,
        f"pkg:pypi/{name}@{quote(version)}",
        metadata["License-Expression"] or (said if said in _LICENCES else UNKNOWN),
        hashlib.sha256(path.read_bytes()).hexdigest(),
        tuple(
            normalized(re.split(r"[^\w.-]", text, maxsplit=1)[0])
            for text in metadata.get_all("Requires-Dist") or ()
            if "extra ==" not in text
        ),
    )


def of_debian(status: Path, os_release: Path) -> Iterator[Package]:
    """What dpkg's *status* file lists as installed, as packages."""
    system = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release.read_text(), re.MULTILINE))
    distribution = f"{system['ID']}-{system.get('VERSION_ID', '')}".rstrip("-")
    for paragraph in status.read_text().split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            yield Package(
                name,
                version,
                f"pkg:deb/{system['ID']}/{quote(name)}@{quote(version)}"
                f"?arch={fields['Architecture']}&distro={distribution}",
            )


def running_python() -> Package:
    """The Python that runs this, which is the base image's."""
    version = platform.python_version()
    return Package("python", version, f"pkg:generic/python@{version}", "PSF-2.0")


def normalized(name: str) -> str:
    """The name of a Python package as PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _base_image(reference: str) -> Package:
    """The package of an image, as `NAME:TAG@sha256:DIGEST`."""
    tagged, _, digest = reference.partition("@")
    path, _, tag = tagged.rpartition(":")
    name = path.rpartition("/")[2]
    return Package(
        name,
        tag,
        f"pkg:oci/{name}@{quote(digest, safe='')}?repository_url={quote(path, safe='/')}&tag={tag}",
        purpose="CONTAINER",
    )


def _as_spdx(package: Package) -> dict[str, Any]:
    found: dict[str, Any] = {
        "SPDXID": package.spdx_id,
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": package.license,
        "copyrightText": UNKNOWN,
        "primaryPackagePurpose": package.purpose,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": package.purl,
            }
        ],
    }
    if package.sha256:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": package.sha256}]
    return found


def main() -> int:
    """Write the document and return the exit code."""
    parser = argparse.ArgumentParser(description="write an SPDX document of a folder of wheels")
    parser.add_argument("--wheels", type=Path, required=True, help="the folder")
    parser.add_argument("--subject", default="starsched", help="the package it is about")
    parser.add_argument("--created", type=int, required=True, help="seconds since the epoch")
    parser.add_argument("--dpkg", type=Path, help="dpkg's status file of the base image")
    parser.add_argument("--os-release", type=Path, help="its os-release file")
    parser.add_argument("--base", default="", help="the base image, NAME:TAG@DIGEST")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    given = parser.parse_args()
    packages = list(of_wheels(given.wheels))
    if given.dpkg:
        packages += [running_python(), *of_debian(given.dpkg, given.os_release)]
    written = document(packages, given.subject, given.created, given.base)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
