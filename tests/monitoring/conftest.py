"""The run that all tests of monitoring look at."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitoring.world import World, run


@pytest.fixture(scope="package")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """What Prometheus knows of a scheduler that has seen every trouble; the scheduler is gone."""
    folder: Path = tmp_path_factory.mktemp("monitoring")
    world = World(folder)
    world.prometheus.start()
    try:
        asyncio.run(run(world))
        yield world
    finally:
        world.prometheus.stop()
