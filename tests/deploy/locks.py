"""Reads the lock files."""

import re

from packaging.utils import canonicalize_name

from tests.deploy.rendering import ROOT


def markers(name: str) -> dict[str, str]:
    """Package -> when it is installed, "" for always, of a lock file."""
    found = re.findall(
        r"^([\w.-]+)==[^\s;]+ *;? *([^\\\n]*)", (ROOT / name).read_text(), re.MULTILINE
    )
    return {canonicalize_name(package): marker.strip() for package, marker in found}


def locked(name: str) -> dict[str, str]:
    """Package -> version of a lock file."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}
