"""Generated objects get the same answer from the embedded and from the real API server."""

import aiohttp
import pytest

from devkit.cluster import DevCluster
from tests.contract.compare import differences
from tests.contract.conftest import embedded_api, real_api
from tests.controlplane import ControlPlane


@pytest.mark.slow("starts the real control plane")
@pytest.mark.kubernetes("1.37")
@pytest.mark.xdist_group("serves groups")
async def test_generated_objects_get_the_same_answer(plane_with_groups: ControlPlane) -> None:
    async with aiohttp.ClientSession() as session, DevCluster(token="secret") as cluster:
        embedded, real = await embedded_api(cluster, session), real_api(plane_with_groups, session)
        assert [one async for one in differences(embedded, real, count=500, seed=1)] == []
