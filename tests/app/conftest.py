"""Marks that these tests use."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: starts servers; left out by `make check`")
