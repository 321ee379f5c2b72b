"""`starsched run --tracing-config-file`."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from devkit.cluster import DevCluster, make_pod
from engine.app.app import FLUSH_SPANS_SECONDS
from tests.engine.app.harness import placements
from tests.engine.app.test_devices import node
from tests.engine.io.tracing.receiver import Collector, collecting
from tests.engine.surfaces.cli.test_run_command import Process, kubeconfig, run
from tests.waiting import eventually

__all__ = ["kubeconfig"]

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"


def test_a_mistake_is_a_usage_error_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_text(f"{HEAD}samplingRatePerMillion: 2000000\n")
    result = run(f"--tracing-config-file={file}")
    assert result.exit_code == 2
    assert f"{file}:3:25: samplingRatePerMillion: want an int in 0..1000000" in result.output


def test_a_file_that_is_missing_is_a_usage_error() -> None:
    result = run("--tracing-config-file=/does/not/exist")
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_a_file_that_is_no_text_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    result = run(f"--tracing-config-file={file}")
    assert result.exit_code == 2
    assert str(file) in result.output


def test_an_environment_that_opentelemetry_rejects_is_a_usage_error(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_text(HEAD)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon")
    result = run(f"--kubeconfig={kubeconfig}", f"--tracing-config-file={file}")
    assert result.exit_code == 2
    assert "cannot trace: ValueError" in result.output
    assert "hint: look at OTEL_... variables" in result.output


@contextlib.asynccontextmanager
async def running(collector: Collector, directory: Path) -> AsyncIterator[Process]:
    """A process that traces every pod to *collector* and has bound one, `p`."""
    file, kubeconfig = directory / "tracing.yaml", directory / "kubeconfig"
    file.write_text(f"{HEAD}endpoint: {collector.endpoint}\nsamplingRatePerMillion: 1000000\n")
    async with DevCluster() as cluster:
        cluster.create(node("a"))
        config = {
            "clusters": [{"name": "a", "cluster": {"server": cluster.url}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        kubeconfig.write_text(yaml.safe_dump(config))
        with Process(
            f"--kubeconfig={kubeconfig}", "--no-leader-elect", f"--tracing-config-file={file}"
        ) as process:
            cluster.create(make_pod("p"))
            await eventually(lambda: placements(cluster), seconds=60.0)
            yield process


@pytest.mark.slow("starts programs")
async def test_a_process_sends_its_spans_before_it_ends(tmp_path: Path) -> None:
    with collecting() as collector:
        async with running(collector, tmp_path) as process:
            assert await asyncio.to_thread(process.stop) == 0
    spans = collector.of_pod("p")
    assert spans["schedule pod"][0].resource["service.version"]
    assert {"attempt", "POST pods/binding", "POST events"} <= set(spans)


@pytest.mark.slow("starts programs")
async def test_a_collector_that_does_not_answer_does_not_keep_the_process(tmp_path: Path) -> None:
    with collecting() as collector:
        collector.gate = threading.Event()
        async with running(collector, tmp_path) as process:
            await eventually(lambda: collector.requests)
            began = time.monotonic()
            assert await asyncio.to_thread(process.stop) == 0
            assert time.monotonic() - began < 2 * FLUSH_SPANS_SECONDS + 5.0
    # Every line of the log is JSON: libraries in C write none of their own.
    assert "Spans dropped at shutdown" in [line["message"] for line in process.lines]
