"""Fixtures of the comparison with the originals of fair sharing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.fairness.originals import Original


@pytest.fixture(scope="session")
def original() -> Iterator[Callable[[str], Original]]:
    """An original by its name; each is started once and shared: it keeps nothing between cases."""
    with ExitStack() as stack:
        started: dict[str, Original] = {}

        def named(name: str) -> Original:
            if name not in started:
                started[name] = stack.enter_context(Original(name))
            return started[name]

        yield named
