"""Fixtures of the deployment's tests."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.chart import helm_binary
from tests.deploy.image import Image, build
from tests.deploy.rendering import kustomize_binary
from tests.scripts import script

#: What `make image` gives, each value another than the default.
ARGUMENTS: Final = {
    "SOURCE_DATE_EPOCH": "1700000000",
    "VERSION": "1.2.3",
    "REVISION": "0123456789abcdef0123456789abcdef01234567",
    "CREATED": "2023-11-14T22:13:20Z",
}


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """The real kustomize. Tests that render name it, so that quick runs leave them out."""
    return kustomize_binary()


@pytest.fixture(scope="session")
def helm() -> Path:
    """The real helm; see `kustomize`."""
    return helm_binary()


@pytest.fixture(scope="session")
def made_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the release of the commit that is checked out."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    script("devkit/tools/release.py").release(folder)
    return folder


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """The image's files, read-only, where any user can reach them."""
    workspace = Path(tempfile.mkdtemp(prefix="starsched-image-"))
    try:
        workspace.chmod(0o755)
        built = build(workspace, arguments=ARGUMENTS)
        subprocess.run(["chmod", "-R", "a-w,a+rX", str(built.tree)], check=True)
        # The one folder that a volume is mounted at.
        (built.tree / "var/lib/starsched").chmod(0o700)
        yield built
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(workspace)], check=False)
        shutil.rmtree(workspace)
