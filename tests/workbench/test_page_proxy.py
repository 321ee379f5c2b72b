"""The ways to a leader when it changes, and the tokens on them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from click.testing import CliRunner

from devkit.cluster import DevCluster, make_node, make_pod
from engine.io.endpoints.server import SecureSettings
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.leader_election import LeaseSettings
from engine.lib.clock import VirtualClock
from tests.engine.app.harness import scheduler
from tests.engine.io.kube.faulty_server import FaultyServer, answer
from tests.engine.surfaces.live.forwarding import api_server_with_kubelets, write_kubeconfig
from tests.waiting import eventually
from workbench.cli.kubectl_plugin import main as kubectl_starsched
from workbench.leader_way import LeaderAt
from workbench.page_proxy import PageProxy
from workbench.service_account_token import ServiceAccountToken

pytestmark = pytest.mark.usefixtures("no_sandboxes")

LEASE = LeaseSettings(name="starsched", namespace="kube-system")
JSON = {"Accept": "application/json"}


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        cluster.create(make_node("small", cpu="1"), make_pod("big", cpu="4"))
        yield cluster


async def visited(proxy: PageProxy, session: aiohttp.ClientSession) -> str:
    """The address of the proxy, whose cookie *session* now has."""
    async with session.get(proxy.address) as answered:
        assert answered.status == 200
    return proxy.address.partition("/?")[0]


async def test_the_page_follows_when_another_process_leads(
    cluster: DevCluster, tmp_path: Path
) -> None:
    ports: dict[int, int] = {}
    async with (
        contextlib.AsyncExitStack() as leading,
        api_server_with_kubelets(cluster.url, ports) as server,
    ):
        first = await leading.enter_async_context(scheduler(cluster, lease=LEASE, local_port=0))
        ports[10260] = first.surfaces.endpoints.local_port
        where = LeaderAt(kubeconfig=write_kubeconfig(tmp_path / "kubeconfig", server))

        async def find() -> LeaderAt:
            return where

        proxy = PageProxy(find, look_seconds=0)
        await proxy.start()
        # Cookies of an address are kept on request alone.
        jar = aiohttp.CookieJar(unsafe=True)
        async with (
            scheduler(cluster, lease=LEASE, local_port=0, wait=False) as second,
            aiohttp.ClientSession(cookie_jar=jar) as session,
        ):
            base = await visited(proxy, session)

            async def leader() -> Any:
                async with session.get(f"{base}/queue", headers=JSON) as answered:
                    return (await answered.json())["leader"]["identity"]

            assert first.leadership.elector is not None
            assert second.leadership.elector is not None
            assert await leader() == first.leadership.elector.identity
            stream = await session.get(f"{base}/queue", headers={"Accept": "text/event-stream"})
            await stream.content.readline()
            ports[10260] = second.surfaces.endpoints.local_port
            await leading.aclose()
            # What goes on and on from the old one ends, so that the browser opens another.
            async with asyncio.timeout(30):
                await stream.content.read()
            await eventually(second.leadership.leading.is_set)
            assert await leader() == second.leadership.elector.identity
        await proxy.stop()


async def test_a_standby_leads_to_the_leader(cluster: DevCluster, tmp_path: Path) -> None:
    cluster.access.add_user("of-a-reader", "reader", "system:masters")
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", cluster.url)
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": "of-a-reader"}
    kubeconfig.write_text(yaml.safe_dump(document))
    secure = SecureSettings("127.0.0.1")
    async with (
        scheduler(cluster, lease=LEASE, secure=secure) as leader,
        scheduler(cluster, lease=LEASE, secure=secure, wait=False) as standby,
    ):
        assert standby.leadership.elector is not None
        elector = standby.leadership.elector
        await eventually(lambda: elector.holder_page)
        words = [
            "queue",
            "-A",
            f"--kubeconfig={kubeconfig}",
            f"--server=https://127.0.0.1:{standby.surfaces.endpoints.secure_port}",
            "--insecure-skip-tls-verify",
        ]
        await eventually(lambda: leader.kernel.queue.counts()["unschedulable"] == 1)
        result = await asyncio.to_thread(CliRunner().invoke, kubectl_starsched, words)
        assert result.exit_code == 0, result.output
        assert "big" in result.stdout


async def test_a_token_is_renewed_before_it_runs_out_and_when_it_is_rejected() -> None:
    def made(token: str) -> Any:
        request = f'{{"spec": {{"expirationSeconds": 600}}, "status": {{"token": "{token}"}}}}'
        return answer(201, request.encode())

    clock = VirtualClock()
    async with (
        FaultyServer(made("one"), made("two"), made("three")) as server,
        ApiClient(Endpoint(server=server.url), clock=clock) as client,
    ):
        token = ServiceAccountToken(client, "ns", "page")
        assert await token.authorization() == "Bearer one"
        clock.advance(479)
        assert await token.authorization() == "Bearer one"
        clock.advance(1)
        assert await token.authorization() == "Bearer two"
        assert await token.authorization(rejected="Bearer one") == "Bearer two"
        assert await token.authorization(rejected="Bearer two") == "Bearer three"
