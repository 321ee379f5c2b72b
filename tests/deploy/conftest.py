"""Fixtures of the deployment's tests."""

from pathlib import Path

import pytest

from tests.deploy.rendering import kustomize_binary


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """The real kustomize. Tests that render name it, so that quick runs leave them out."""
    return kustomize_binary()
