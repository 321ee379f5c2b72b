"""Fixtures of the deployment's tests."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.chart import helm_binary
from tests.deploy.image import Image, build
from tests.deploy.rendering import kustomize_binary


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """The real kustomize. Tests that render name it, so that quick runs leave them out."""
    return kustomize_binary()


@pytest.fixture(scope="session")
def helm() -> Path:
    """The real helm; see `kustomize`."""
    return helm_binary()


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """The image's files, read-only, where any user can reach them."""
    workspace = Path(tempfile.mkdtemp(prefix="starsched-image-"))
    try:
        workspace.chmod(0o755)
        built = build(workspace)
        subprocess.run(["chmod", "-R", "a-w,a+rX", str(built.tree)], check=True)
        # The one folder that a volume is mounted at.
        (built.tree / "var/lib/starsched").chmod(0o700)
        yield built
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(workspace)], check=False)
        shutil.rmtree(workspace)
