"""The two API servers that every contract test runs against."""

import contextlib
import secrets
import ssl
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from devkit.cluster import DevCluster
from tests.contract.harness import Api, Breakable
from tests.controlplane import ControlPlane, serving_groups

SERVERS = ["embedded", "real"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        call = getattr(item, "callspec", None)
        if (
            call
            and {"api", "breakable", "served"} & call.params.keys()
            and "real" in call.params.values()
        ):
            item.add_marker(pytest.mark.slow("starts the real control plane"))
            if "breakable" in call.params:
                # One worker starts the module's server.
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
            if "served" in call.params:
                item.add_marker(pytest.mark.xdist_group("serves groups"))


async def embedded_api(cluster: DevCluster, session: aiohttp.ClientSession) -> Api:
    """A namespace of the embedded API server."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    headers = {"Authorization": f"Bearer {cluster.token}"}
    return Api(cluster.url, name, True, session, headers=headers)


def real_api(plane: ControlPlane, session: aiohttp.ClientSession) -> Api:
    """A namespace of a real API server."""
    name = f"test-{secrets.token_hex(4)}"
    plane.create_if_missing("/api/v1/namespaces", {"metadata": {"name": name}})
    headers = {"Authorization": f"Bearer {plane.token}"}
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    return Api(plane.url, name, False, session, tls, headers)


@contextlib.asynccontextmanager
async def wanted_api(request: pytest.FixtureRequest, plane: str) -> AsyncIterator[Api]:
    """The API server that *request* names: the embedded one, or the real one of fixture *plane*."""
    async with aiohttp.ClientSession() as session:
        if request.param == "real":
            api = real_api(request.getfixturevalue(plane), session)
            yield api
            await api.clean()
            return
        async with DevCluster(token="secret") as cluster:
            yield await embedded_api(cluster, session)
            cluster.store.check_invariants()


@pytest.fixture(params=SERVERS)
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """An API server: the embedded one, or the real one that the run shares."""
    async with wanted_api(request, "control_plane") as api:
        yield api


@pytest.fixture(scope="session")
def plane_with_groups() -> Iterator[ControlPlane]:
    """A real API server that serves PodGroups, which is off by default."""
    with ControlPlane(apiserver_args=serving_groups()) as plane:
        yield plane


@pytest.fixture(params=SERVERS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """An API server that has PodGroups."""
    async with wanted_api(request, "plane_with_groups") as api:
        yield api


@pytest.fixture(scope="module")
def breakable_plane() -> Iterator[ControlPlane]:
    """A real API server and etcd for one module, to restart and to compact."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(params=SERVERS)
async def breakable(request: pytest.FixtureRequest) -> AsyncIterator[Breakable]:
    """Like `api`, but of the test's own, or the module's where it is the real one."""
    async with aiohttp.ClientSession() as session:
        if request.param == "real":
            yield _breakable_real(request.getfixturevalue("breakable_plane"), session)
            return
        async with DevCluster(token="secret") as cluster:
            yield await _breakable_embedded(cluster, session)
            cluster.store.check_invariants()


async def _breakable_embedded(cluster: DevCluster, session: aiohttp.ClientSession) -> Breakable:
    async def compact() -> None:
        cluster.compact()

    async def restart() -> None:
        await cluster.crash()
        await cluster.recover()

    return Breakable(await embedded_api(cluster, session), compact, restart)


def _breakable_real(plane: ControlPlane, session: aiohttp.ClientSession) -> Breakable:
    async def compact() -> None:
        # The API server's memory of recent events goes with its process.
        plane.compact_etcd()
        plane.restart_apiserver()

    async def restart() -> None:
        plane.restart_apiserver()

    return Breakable(real_api(plane, session), compact, restart)
