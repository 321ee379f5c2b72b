"""The scheduler answers like the API server's version of Kubernetes, also once that is upgraded."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from devkit.cluster import DevCluster, discovery, make_node, make_pod
from engine.app import App
from engine.core.framework.behaviors import RELEASED
from tests.engine.app.harness import condition, node_of, scheduler
from tests.engine.app.test_recording import make_recorder, outcomes
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    device_class,
    request,
    resource_slice,
)
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

ZONE = "topology.kubernetes.io/zone"
#: Two zones must not differ by more than one of all pods there are: only 1.38 counts any.
EVERY_POD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {},
}

Is = Callable[[str], None]


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as cluster:
        yield cluster


@pytest.fixture
def server_is(monkeypatch: pytest.MonkeyPatch) -> Is:
    """Have API servers say that they are of this version."""

    def say(version: str) -> None:
        monkeypatch.setattr(
            discovery, "VERSION", {**vars(discovery)["VERSION"], "gitVersion": version}
        )

    return say


async def answers(app: App, path: str) -> str:
    url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return await answer.text()


async def shown(app: App) -> tuple[Any, ...]:
    """What is answered like: by `/policies`, `/statusz` and the metric."""
    policies = json.loads(await answers(app, "/policies"))["kubernetes"]
    status = (await answers(app, "/statusz")).partition("Emulation version: ")[2].split("\n")[0]
    metrics = (await answers(app, "/metrics")).splitlines()
    [build] = [line for line in metrics if line.startswith("kubernetes_build_info{")]
    return policies["emulated"], policies["server"], status, build.partition("v1.")[2][:2]


def fill(cluster: DevCluster) -> None:
    """Two zones: one has room and a pod, the other has neither."""
    for zone, cpu in (("a", "4"), ("b", "1")):
        cluster.create(make_node(zone, cpu=cpu, zone=zone))
    cluster.create(make_pod("there", nodeName="a", labels={"app": "other"}))
    cluster.create(make_pod("large", cpu="2", topologySpreadConstraints=[EVERY_POD]))


def waits_for_spreading(cluster: DevCluster) -> bool:
    return "topology spread" in condition(cluster, "large").get("message", "")


async def test_answers_are_those_of_the_servers_version(cluster: DevCluster, server_is: Is) -> None:
    server_is("v1.38.0-beta.0")
    fill(cluster)
    async with scheduler(cluster, local_port=0) as app:
        await eventually(lambda: waits_for_spreading(cluster))
        assert await shown(app) == ("1.38", "v1.38.0-beta.0", "1.38", "38")


async def test_an_upgrade_of_the_server_is_followed(cluster: DevCluster, server_is: Is) -> None:
    """The upgrade comes with new connections; the pod that waited is tried again."""
    server_is("v1.38.0")
    fill(cluster)
    async with scheduler(cluster, local_port=0) as app:
        await eventually(lambda: waits_for_spreading(cluster))
        server_is("v1.37.2")
        cluster.close_watches(abort=True)
        await eventually(lambda: node_of(cluster, "large") == "a")
        assert await shown(app) == ("1.37", "v1.37.2", "1.37", "37")


async def test_a_version_that_is_given_counts(cluster: DevCluster, server_is: Is) -> None:
    server_is("v1.38.0")
    fill(cluster)
    async with scheduler(cluster, local_port=0, emulated_minor=37) as app:
        await eventually(lambda: node_of(cluster, "large") == "a")
        assert await shown(app) == ("1.37", "", "1.37", "37")


@pytest.mark.parametrize(
    ("said", "emulated"), [("v1.99.0", "1.38"), ("v1.34.1", "1.35"), ("2.0", f"1.{RELEASED}")]
)
async def test_a_version_that_is_not_known_is_answered_like_the_nearest(
    cluster: DevCluster, server_is: Is, said: str, emulated: str
) -> None:
    server_is(said)
    with structlog.testing.capture_logs() as logs:
        async with scheduler(cluster, local_port=0) as app:
            assert (await shown(app))[:2] == (emulated, said)
    assert [
        (one["log_level"], one["server"], one["emulated"]) for one in logs if "server" in one
    ] == [("warning", said, emulated)]


async def test_a_server_that_does_not_say_its_version_keeps_no_pod_waiting(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = vars(discovery)["VERSION"]
    monkeypatch.setattr(discovery, "VERSION", {})
    fill(cluster)
    async with scheduler(cluster, local_port=0) as app:
        await eventually(lambda: node_of(cluster, "large") == "a")
        assert (await shown(app))[:2] == (f"1.{RELEASED}", "")
        monkeypatch.setattr(discovery, "VERSION", said)
        await eventually(lambda: app.emulation.describe()["server"] == "v1.37.2")


async def test_a_log_of_an_upgrade_is_decided_again_as_it_was(
    cluster: DevCluster, server_is: Is, tmp_path: Path
) -> None:
    server_is("v1.38.0")
    fill(cluster)
    recorder = make_recorder(tmp_path)
    async with scheduler(cluster, decision_log=recorder):
        await eventually(lambda: waits_for_spreading(cluster))
        server_is("v1.37.2")
        cluster.close_watches(abort=True)
        await eventually(lambda: node_of(cluster, "large") == "a")
    recorder.close()
    found = outcomes(tmp_path)
    assert len(found) >= 2
    assert [one for one in found if not one.is_same or one.notes] == []


def claim_of_two() -> list[dict[str, Any]]:
    """Two devices that have an element of a list in common, and a claim for both of them."""
    devices = [{"name": str(i), "attributes": {"roots": {"ints": [i, 7]}}} for i in range(2)]
    wanted = claim("c", request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/roots"}])
    return [device_class(), resource_slice("a", *devices), wanted]


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_feature_gate_is_followed_shown_and_recorded(
    cluster: DevCluster, tmp_path: Path, is_on: bool
) -> None:
    gates = frozenset({"DRAListTypeAttributes"} if is_on else ())
    recorder = make_recorder(tmp_path)
    cluster.create(make_node("a"))
    for manifest in claim_of_two():
        cluster.create(manifest)
    named = [{"name": "d", "resourceClaimName": "c"}]
    cluster.create(make_pod("p", resourceClaims=named))
    settings = {"local_port": 0, "decision_log": recorder, "gates": gates}
    async with scheduler(cluster, **settings) as app:
        if is_on:
            await eventually(lambda: node_of(cluster, "p") == "a")
        else:
            await eventually(
                lambda: "allocate all claims" in condition(cluster, "p").get("message", "")
            )
        metrics = await answers(app, "/metrics")
    shown_as = 'kubernetes_feature_enabled{name="DRAListTypeAttributes",stage="ALPHA"}'
    assert f"{shown_as} {float(is_on)}" in metrics
    recorder.close()
    found = outcomes(tmp_path)
    assert found
    assert [one for one in found if not one.is_same or one.notes] == []
