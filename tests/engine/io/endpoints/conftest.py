"""An embedded cluster that knows some users."""

from collections.abc import AsyncIterator

import pytest

from devkit.cluster import DevCluster


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster(seed=1) as cluster:
        access = cluster.access
        access.add_user("of-root", "root", "system:masters")
        access.add_user("of-alice", "alice", "team-red")
        access.allow_path(
            "alice", "/", "/policies", "/rows", "/rows/red", "/rows/green", "/metrics"
        )
        access.allow_namespace("alice", "red")
        access.add_user("of-bob", "bob")
        yield cluster
