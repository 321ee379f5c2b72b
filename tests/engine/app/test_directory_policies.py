"""Policies in a directory come into force like those of a ConfigMap."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devkit.cluster import DevCluster, make_node, make_pod
from engine.app import App, PolicyParts, Settings
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.rollout.assembly import make_stages
from engine.rollout.sources import DirectoryPolicies
from tests.engine.app.harness import node_of
from tests.waiting import eventually


def prefer(name: str) -> str:
    return f'def score(pod, node):\n    return 100 if node.name == "{name}" else 0\n'


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(make_node("node-1"), make_node("node-2"))
        yield cluster


@pytest.fixture
async def app(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[App]:
    (tmp_path / "mine.star").write_text(prefer("node-1"))
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        app = App(
            client,
            policies=PolicyParts(
                source=DirectoryPolicies(tmp_path),
                stages=make_stages(),
            ),
            settings=Settings(),
        )
        running = asyncio.ensure_future(app.run())
        await asyncio.wait_for(app.leadership.leading.wait(), 30)
        yield app
        app.request_stop()
        await running


async def test_an_edit_of_a_file_decides_the_next_pod(
    cluster: DevCluster, app: App, tmp_path: Path
) -> None:
    cluster.create(make_pod("one"))
    await eventually(lambda: node_of(cluster, "one") == "node-1")
    before = app.policies.rollout.active.bundle.revision
    (tmp_path / "mine.star").write_text(prefer("node-2"))
    await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
    cluster.create(make_pod("two"))
    await eventually(lambda: node_of(cluster, "two") == "node-2")


async def test_a_file_that_cannot_be_read_rejects_the_whole(app: App, tmp_path: Path) -> None:
    before = app.policies.rollout.active.bundle.revision
    (tmp_path / "more.star").write_bytes(b"\xff\xfe not text")
    await eventually(lambda: app.policies.rollout.describe()["last_rejected"])
    rejected = app.policies.rollout.describe()["last_rejected"]
    assert rejected["stage"] == "read"
    assert "more.star:1: want UTF-8 text" in rejected["note"]
    assert app.policies.rollout.active.bundle.revision == before
