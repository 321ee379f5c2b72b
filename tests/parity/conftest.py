"""Fixtures of the comparison with kube-scheduler's own plugins."""

from collections.abc import Iterator

import pytest

from tests.parity.oracle import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The oracle, shared by the run: it keeps nothing between two scenarios."""
    with Oracle() as process:
        yield process


@pytest.fixture(scope="session")
def oracle_of_1_38() -> Iterator[Oracle]:
    """That of the plugins of 1.38."""
    with Oracle(minor="1.38") as process:
        yield process
