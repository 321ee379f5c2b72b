"""What every component of Kubernetes shows, in the form that dashboards read."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from devkit.cluster import DevCluster, make_pod
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import ApiError, ConnectionLost
from engine.io.kube.resources import PODS
from engine.telemetry.component_metrics import (
    EMULATES,
    BuildInfo,
    RequestMetrics,
    show_concurrency,
)
from tests.scripts import script


def shown(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_requests_are_counted_and_timed() -> None:
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry, "host:6443")
    for status, seconds in ((200, 0.005), (200, 0.006), (404, 3.0), (0, 100.0)):
        metrics.observe("GET", status, seconds, 0)
    metrics.observe("POST", 201, 0.1, 300)
    text = shown(registry)
    for line in (
        'rest_client_requests_total{code="200",host="host:6443",method="GET"} 2.0',
        'rest_client_requests_total{code="404",host="host:6443",method="GET"} 1.0',
        'rest_client_requests_total{code="<error>",host="host:6443",method="GET"} 1.0',
        '_bucket{host="host:6443",le="0.005",verb="GET"} 1.0',
        '_bucket{host="host:6443",le="0.025",verb="GET"} 2.0',
        '_bucket{host="host:6443",le="2.0",verb="GET"} 2.0',
        '_bucket{host="host:6443",le="4.0",verb="GET"} 3.0',
        '_bucket{host="host:6443",le="60.0",verb="GET"} 3.0',
        '_bucket{host="host:6443",le="+Inf",verb="GET"} 4.0',
        '_count{host="host:6443",verb="GET"} 4.0',
        '_sum{host="host:6443",verb="GET"} 103.011',
        'size_bytes_bucket{host="host:6443",le="64.0",verb="GET"} 4.0',
        'size_bytes_bucket{host="host:6443",le="256.0",verb="POST"} 0.0',
        'size_bytes_bucket{host="host:6443",le="512.0",verb="POST"} 1.0',
        'size_bytes_sum{host="host:6443",verb="POST"} 300.0',
    ):
        assert line in text, line


async def test_each_request_of_a_client_is_passed_on_with_its_status() -> None:
    seen: list[tuple[str, int]] = []
    async with DevCluster() as cluster, ApiClient(Endpoint(server=cluster.url)) as client:
        client.observe(lambda method, status, seconds, size: seen.append((method, status)))
        cluster.create(make_pod("p"))
        await client.get(PODS, "p", "default")
        for method, path in (("GET", PODS.path("default", "no")), ("POST", PODS.path("default"))):
            with pytest.raises(ApiError):
                await client.request(method, path, body=b"{}" if method == "POST" else None)
        cluster.faults.drop(verb="delete")
        with pytest.raises(ConnectionLost):
            await client.delete(PODS, "p", "default")
        async for _ in client.stream(PODS, "", timeout_seconds=1):
            break
    assert [one for one in seen if one[0] != "POST"] == [
        ("GET", 200),
        ("GET", 404),
        ("DELETE", 0),
        ("GET", 200),
    ]
    assert any(method == "POST" and status >= 400 for method, status in seen)


async def test_the_same_holds_through_a_proxy() -> None:
    """The other transport reports failures to connect, too."""
    seen: list[tuple[str, int]] = []
    endpoint = Endpoint(server="http://127.0.0.1:9", proxy="http://127.0.0.1:1")
    async with ApiClient(endpoint) as client:
        client.observe(lambda method, status, seconds, size: seen.append((method, status)))
        with pytest.raises(ConnectionLost):
            await client.request("GET", "/livez")
    assert seen == [("GET", 0)]


def test_the_build_names_the_kubernetes_that_it_behaves_like() -> None:
    """An alert of every cluster compares the beginnings of these versions."""
    assert script("devkit/controlplane/build.py").NEWEST == EMULATES
    registry = CollectorRegistry()
    BuildInfo(registry, "0.1.0")
    text = shown(registry)
    assert f'git_version="v{EMULATES}.0+starsched.0.1.0"' in text
    assert 'kubernetes_feature_enabled{name="DynamicResourceAllocation",stage=""} 1.0' in text


def test_the_features_are_at_the_stages_of_the_kubernetes_that_it_behaves_like() -> None:
    """Source: `pkg/features` of kube-scheduler 1.37.2 and 1.38.0-beta.0."""

    def value(name: str, stage: str) -> float | None:
        labels = {"name": name, "stage": stage}
        return registry.get_sample_value("kubernetes_feature_enabled", labels)

    registry = CollectorRegistry()
    build = BuildInfo(registry, "0.1.0")
    for minor in (37, 38, 37):
        build.show(f"1.{minor}")
        is_old, is_new = (1.0, None) if minor == 37 else (None, 1.0)
        assert value("DynamicResourceAllocation", "") == is_old
        assert value("DRAPartitionableDevices", "BETA") == is_old
        assert value("DRAPartitionableDevices", "") == is_new
        assert value("DRAFractionalCapacityRange", "") == is_new
        assert value("DRAExtendedResource", "") == 1.0


async def test_a_task_and_a_thread_more_are_shown() -> None:
    registry = CollectorRegistry()
    show_concurrency(registry)

    def count() -> float:
        return registry.get_sample_value("go_goroutines") or 0.0

    before, ended = count(), threading.Event()
    task = asyncio.ensure_future(asyncio.Event().wait())
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert count() == before + 2
    ended.set()
    thread.join()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert count() == before


def test_threads_are_shown_without_an_event_loop() -> None:
    registry = CollectorRegistry()
    show_concurrency(registry)
    assert registry.get_sample_value("go_goroutines") == threading.active_count()
