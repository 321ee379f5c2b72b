"""An embedded cluster and a client of it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from devkit.cluster import DevCluster
from tests.contract.harness import Api


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster(seed=1) as cluster:
        yield cluster
        cluster.store.check_invariants()


@pytest.fixture
async def api(cluster: DevCluster) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(cluster.url, "default", True, session)
