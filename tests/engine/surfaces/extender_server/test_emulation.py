"""The extender answers like the API server's version of Kubernetes, or like the one given."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devkit.cluster import DevCluster, discovery, make_node, make_pod
from engine.core.framework.behaviors import RELEASED
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from tests.engine.app.harness import namespace
from tests.engine.surfaces.extender_server.harness import (
    Running,
    extender,
    with_names,
    with_nodes,
    write,
)
from tests.waiting import eventually

pytestmark = pytest.mark.slow("runs a whole extender")

MINOR = '''"""Says which version it answers like.

Hooks: filter.
"""

def filter(pod, node, cluster):
    return "like 1.%d" % cluster.kubernetes_minor
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "policies", {"minor.star": MINOR})


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(namespace(), make_node("a"))
        yield cluster


def server_is(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have API servers say that they are of this version."""
    monkeypatch.setattr(discovery, "VERSION", {**discovery.VERSION, "gitVersion": version})


async def said(running: Running) -> tuple[str, str]:
    """What the filter says, and what `/policies` says is answered like."""
    _, answer = await running.post("filter", with_names(make_pod("new"), ["a"]))
    _, text = await running.get("/policies")
    return answer["FailedNodes"]["a"], json.loads(text)["kubernetes"]["emulated"]


async def test_the_servers_version_is_followed(
    cluster: DevCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_is("v1.38.0", monkeypatch)
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        async with extender(folder, client=client, watches=True) as running:
            assert await said(running) == ("like 1.38", "1.38")
            server_is("v1.37.2", monkeypatch)
            cluster.close_watches(abort=True)

            async def is_followed() -> bool:
                return await said(running) == ("like 1.37", "1.37")

            await eventually(is_followed)
        async with extender(folder, client=client, watches=True, emulated_minor=38) as running:
            assert await said(running) == ("like 1.38", "1.38")


@pytest.mark.parametrize(("given", "minor"), [(None, RELEASED), (38, 38)])
async def test_without_a_server_the_given_version_counts(
    folder: Path, given: int | None, minor: int
) -> None:
    async with extender(folder, emulated_minor=given) as running:
        _, answer = await running.post("filter", with_nodes(make_pod("new"), make_node("a")))
        assert answer["FailedNodes"] == {"a": f"like 1.{minor}"}
        _, text = await running.get("/policies")
        assert json.loads(text)["kubernetes"] == {"emulated": f"1.{minor}"}
