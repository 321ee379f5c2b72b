"""Spans leave for a collector in the background, and are dropped and counted where it is away."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from engine.io.tracing import export
from engine.io.tracing.configuration import decode_tracing_configuration
from engine.io.tracing.export import MOST_WAITING, SpanSender
from engine.telemetry.spans import Span
from tests.engine.io.tracing.kept import KeptTrace
from tests.engine.io.tracing.receiver import Collector, collecting
from tests.waiting import wait_until


def span(name: str = "step") -> Span:
    return Span(
        KeptTrace(), name, 7, began=1.5, attributes={"text": "a", "list": ["b"], "number": 3}
    )


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(autouse=True)
def _short_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(export, "_DELAY_SECONDS", 0.05)


def test_a_span_arrives_as_it_was(collector: Collector) -> None:
    sender = SpanSender(collector.endpoint, {"service.version": "1.2"})
    sent = span()
    sent.fail(ValueError("no"))
    sent.events.append(("something", 2.0, {"why": "so"}))
    sent.ended_at = 2.5
    sender.emit(sent)
    sender.close(5.0)
    (got,) = collector.spans
    assert (got.name, got.trace_id, got.span_id, got.parent_id) == (
        "step",
        f"{0xABC:032x}",
        f"{1:016x}",
        f"{7:016x}",
    )
    assert (got.start, got.end) == (1_700_000_001_500_000_000, 1_700_000_002_500_000_000)
    assert got.attributes == {"text": "a", "list": ["b"], "number": 3, "error.type": "ValueError"}
    assert got.events == ["something"]
    assert got.error == "no"
    assert got.resource["service.name"] == "starsched"
    assert got.resource["service.version"] == "1.2"
    assert sender.outcomes == {"exported": 1, "failed": 0, "full": 0, "shutdown": 0}


def test_a_collector_may_listen_at_a_socket(tmp_path: Path) -> None:
    said = f"unix://{tmp_path}/otel.sock"
    text = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
    endpoint = decode_tracing_configuration(f"{text}endpoint: {said}\n").endpoint
    with collecting(said) as collector:
        sender = SpanSender(endpoint, {})
        sender.emit(span())
        sender.close(5.0)
    assert [one.name for one in collector.spans] == ["step"]


def test_the_environment_says_more_about_the_service(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "kube-scheduler")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=east")
    sender = SpanSender(collector.endpoint, {})
    sender.emit(span())
    sender.close(5.0)
    (got,) = collector.spans
    assert got.resource["service.name"] == "kube-scheduler"
    assert got.resource["k8s.cluster.name"] == "east"


def test_spans_for_a_collector_that_is_away_are_dropped_and_counted() -> None:
    with collecting() as gone:
        pass
    with capture_logs() as logs:
        sender = SpanSender(gone.endpoint, {})
        for _ in range(3):
            sender.emit(span())
        wait_until(lambda: sender.outcomes["failed"] == 3)
        sender.emit(span())
        wait_until(lambda: sender.outcomes["failed"] == 4)
        # It comes back, and nothing has to be restarted.
        with collecting(gone.endpoint) as back:
            sender.emit(span("late"))
            wait_until(lambda: back.spans or _again(sender))
            sender.close(5.0)
    assert {one.name for one in back.spans} == {"late"}
    warnings = [line for line in logs if line["event"] == "Cannot send spans; they are dropped"]
    assert len(warnings) == 1, "once, not for each"
    assert warnings[0]["endpoint"] == gone.endpoint
    assert "Failed to export traces" in warnings[0]["reason"]
    assert "Spans are sent again" in [line["event"] for line in logs]


def _again(sender: SpanSender) -> bool:
    """gRPC waits before it connects again; what it drops meanwhile is sent another time."""
    if sender.outcomes["failed"] + sender.outcomes["exported"] == sender._taken:
        sender.emit(span("late"))
    return False


def test_a_refusal_is_a_failure(collector: Collector) -> None:
    collector.refuses = grpc.StatusCode.PERMISSION_DENIED
    sender = SpanSender(collector.endpoint, {})
    sender.emit(span())
    wait_until(lambda: sender.outcomes["failed"] == 1)
    collector.refuses = None
    sender.emit(span())
    sender.close(5.0)
    assert sender.outcomes["exported"] == 1


def test_half_a_character_costs_no_more_than_itself(collector: Collector) -> None:
    """It is written out like control characters, which a viewer of traces may obey."""
    sender = SpanSender(collector.endpoint, {})
    bad = span()
    bad.attributes = {"text": "a\ud800é", "list": ["\udfff"], "reason": "\x1b[31m\u202e"}
    bad.events.append(("something", 2.0, {"why": "\ud800"}))
    bad.fail("because of \ud800")
    sender.emit(bad)
    sender.close(5.0)
    (got,) = collector.spans
    assert got.attributes == {
        "text": r"a\ud800é",
        "list": [r"\udfff"],
        "reason": r"\x1b[31m\u202e",
    }
    assert got.error == r"because of \ud800"


def test_spans_that_cannot_be_encoded_do_not_end_the_sending(collector: Collector) -> None:
    sender = SpanSender(collector.endpoint, {})
    bad = span()
    bad.name = "\ud800"
    sender.emit(bad)
    wait_until(lambda: sender.outcomes["failed"] == 1)
    sender.emit(span())
    sender.close(5.0)
    assert sender.outcomes["exported"] == 1


def test_what_waits_is_bounded_and_nothing_waits_for_a_slow_collector(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than this takes on a busy machine: a request given up makes room for more spans.
    monkeypatch.setattr(export, "_TIMEOUT_SECONDS", 60.0)
    collector.gate = threading.Event()
    sender = SpanSender(collector.endpoint, {})
    one = span()
    for _ in range(MOST_WAITING + 100):
        sender.emit(one)  # would hang here
    assert sender.outcomes["full"] == 100
    # Nor does the end wait: less than the time-out of the request under way.
    sender.close(0.1)
    sender.emit(one)
    # What waited is dropped, or fails with the request under way.
    wait_until(
        lambda: (
            sender.outcomes["failed"] + sender.outcomes["shutdown"] == MOST_WAITING + 1
            and sender.outcomes["shutdown"] > 0
        )
    )


@pytest.mark.slow("starts an interpreter, which imports the scheduler")
def test_without_tracing_nothing_of_opentelemetry_is_loaded() -> None:
    """It takes 30 MB and half a second."""
    look = (
        "import sys, engine.surfaces.cli.run_command, engine.app, engine.io.tracing.pod_traces\n"
        "names = ('opentelemetry', 'grpc')\n"
        "print([name for name in sys.modules if name.split('.')[0] in names])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
