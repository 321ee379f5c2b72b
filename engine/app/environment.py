"""What every part of the process works with: the API server, time, metrics.

Owns the registry of metrics and which requests are measured. Not what is counted.
"""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from engine.app.settings import Settings
from engine.io.endpoints.server import ReviewClients
from engine.io.kube.client import ApiClient
from engine.io.tracing.pod_traces import Tracing
from engine.lib.clock import Clock
from engine.lib.saved_state import SavedStates
from engine.recording.recorder import Recorder
from engine.telemetry.component_metrics import BuildInfo, RequestMetrics, show_concurrency
from engine.telemetry.exemplars import ExemplarHistogram
from engine.telemetry.metrics import Metrics


@dataclass(frozen=True)
class Environment:
    """What every part of a scheduler process works with.

    Attributes:
        client: The API server.
        reviewers: Who knows the callers of the endpoints.
        clock: Time.
        settings: How the process runs.
        registry, metrics: What is measured.
        tracing: Traces pods, if they are traced.
        decision_log: Records decisions and what they read, if they are recorded.
        build: Shows which version runs.
        saved: Reads what an earlier process saved.
    """

    client: ApiClient
    reviewers: ReviewClients
    clock: Clock
    settings: Settings
    registry: CollectorRegistry
    metrics: Metrics
    tracing: Tracing | None
    decision_log: Recorder | None
    build: BuildInfo
    saved: SavedStates


def make_environment(
    client: ApiClient,
    *,
    settings: Settings,
    clock: Clock,
    reviewers: ReviewClients,
    tracing: Tracing | None,
    decision_log: Recorder | None,
) -> Environment:
    """The environment of a process; requests to the server of *client* are measured from now on."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    # Traces hang on to the measurements of histograms as exemplars.
    metrics = Metrics(registry) if tracing is None else Metrics(registry, ExemplarHistogram)
    build = BuildInfo(registry, settings.version)
    show_concurrency(registry)
    requests = RequestMetrics(registry, client.host)
    for one in {client, reviewers.authentication, reviewers.authorization}:
        if one is not None and one.host == client.host:
            one.observe(requests.observe)
    return Environment(
        client,
        reviewers,
        clock,
        settings,
        registry,
        metrics,
        tracing,
        decision_log,
        build,
        SavedStates(clock, settings.when_unread),
    )
