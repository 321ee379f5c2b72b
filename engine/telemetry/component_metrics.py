"""Metrics that every component of Kubernetes has, whatever it does.

Owns their names and labels, which dashboards and alerts for clusters expect: the build, the
features, what runs at the same time, and the requests to the API server.
"""

import asyncio
import contextlib
import platform
import sys
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.telemetry.families import Family, counter, gauge, histogram

#: The minor version of Kubernetes that is answered like until the API server says its own.
EMULATES: Final = f"1.{RELEASED}"

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

#: Feature gates of kube-scheduler whose feature is built in, and the stage that each has in
#: `EMULATES`: "" is stable. Shown as off are features that are not built in, and those of gates
#: that are off.
FEATURES: Final[Mapping[str, tuple[str, bool]]] = {
    "DRAConsumableCapacity": ("BETA", True),
    "DRADeviceCompatibilityGroups": ("ALPHA", False),
    "DRADeviceTaintRules": ("", True),
    "DRAExtendedResource": ("", True),
    "DRAFractionalCapacityRange": ("ALPHA", False),
    "DRAListTypeAttributes": ("ALPHA", False),
    "DRAPartitionableDevices": ("BETA", True),
    "DRAWorkloadResourceClaims": ("BETA", False),
    "DynamicResourceAllocation": ("", True),
    "GenericWorkload": ("BETA", True),
    "MatchLabelKeysInPodAffinity": ("", True),
    "NodeDeclaredFeatures": ("", True),
    "PodLevelResources": ("BETA", True),
    "SchedulerQueueingHints": ("", True),
    "StorageCapacityScoring": ("BETA", True),
    "TopologyAwareWorkloadScheduling": ("ALPHA", False),
    "VolumeLimitScaling": ("BETA", True),
}
#: Those that are otherwise where the gates are those of 1.38; None: gone.
_OF_1_38: Final[Mapping[str, tuple[str, bool] | None]] = {
    "DRAConsumableCapacity": ("", True),
    "DRAFractionalCapacityRange": ("", True),
    "DRAPartitionableDevices": ("", True),
    "DynamicResourceAllocation": None,
    "MatchLabelKeysInPodAffinity": None,
    "TopologyAwareWorkloadScheduling": ("BETA", False),
}

BUILD: Final = gauge(
    "kubernetes_build_info{major,minor,git_version,git_commit,git_tree_state,build_date,"
    "go_version,compiler,platform}",
    "1 for the build that runs: its version behind that of Kubernetes which it behaves like.",
)
FEATURE: Final = gauge(
    "kubernetes_feature_enabled{name,stage}",
    "1 for a feature gate of kube-scheduler whose feature is built in, 0 for one that is not.",
)
CONCURRENCY: Final = gauge(
    "go_goroutines",
    "Tasks of the event loop and threads: what goroutines are to components written in Go.",
)
REQUESTS: Final = counter(
    "rest_client_requests_total{code,method,host}",
    "Requests to the API server, by status code (`<error>`: none came), method and host.",
)
SECONDS: Final = histogram(
    "rest_client_request_duration_seconds{verb,host}",
    "Seconds until the API server had answered; of a watch, until it had begun to.",
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
SIZES: Final = histogram(
    "rest_client_request_size_bytes{verb,host}",
    "Sizes of the bodies of requests to the API server; 0 for one without.",
    buckets=(64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216),
)
HEALTH: Final = gauge(
    "kubernetes_healthcheck{name,type}", "The result of a health check the last time it was made."
)
HEALTH_CHECKS: Final = counter(
    "kubernetes_healthchecks_total{name,type,status}",
    "Health checks by result: `success` or `error`.",
)


def language() -> str:
    """`Python 3.13.1`."""
    return f"Python {platform.python_version()}"


class BuildInfo:
    """What is running and which features it has, of the build *version*, in *registry*.

    The version of Kubernetes comes first: an alert compares it over the components of a cluster.
    """

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        self._version = version
        self._build = BUILD.make(registry)
        self._features = FEATURE.make(registry)
        self.show(EMULATES)

    def show(self, emulated: str, gates: Collection[str] = ()) -> None:
        """Show that the version *emulated* of Kubernetes is answered like, as `1.38`.

        *gates* are the feature gates that are on though their default is off.
        """
        major, minor = emulated.split(".")
        labels = {
            "major": major,
            "minor": minor,
            "git_version": f"v{emulated}.0+starsched.{self._version}",
            "git_commit": "",
            "git_tree_state": "",
            "build_date": "",
            "go_version": language(),
            "compiler": platform.python_implementation(),
            "platform": f"{sys.platform}/{_MACHINES.get(platform.machine(), platform.machine())}",
        }
        self._build.clear()
        self._build.labels(**labels).set(1)
        self._features.clear()
        changed = _OF_1_38 if behaviors_of(int(minor)).removed_gates_refused else {}
        for name, known in {**FEATURES, **changed}.items():
            if known is not None:
                stage, is_built_in = known
                self._features.labels(name, stage).set(is_built_in or name in gates)


def show_concurrency(registry: CollectorRegistry) -> None:
    """Show how much runs at the same time, where dashboards of components look for a leak of it."""

    def count() -> int:
        running = threading.active_count()
        with contextlib.suppress(RuntimeError):  # read where no event loop is
            running += len(asyncio.all_tasks())
        return running

    CONCURRENCY.make(registry).set_function(count)


class RequestMetrics(Collector):
    """Counts and times requests to one API server.

    Every binding passes here: adding to numbers costs a tenth of what the library's metrics cost,
    which are made when they are scraped.

    Args:
        registry: Where they are shown.
        host: The server: name and port.
    """

    def __init__(self, registry: CollectorRegistry, host: str) -> None:
        self._host = host
        self._counts: Counter[tuple[str, int]] = Counter()
        self._seconds = _Histograms(SECONDS)
        self._sizes = _Histograms(SIZES)
        registry.register(self)

    def observe(self, method: str, status: int, seconds: float, size: int) -> None:
        """Count a request with *size* bytes, answered with *status* (0: not at all)."""
        self._counts[method, status] += 1
        self._seconds.observe(method, seconds)
        self._sizes.observe(method, size)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known to be unique."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        requests = CounterMetricFamily(REQUESTS.name, REQUESTS.text, labels=REQUESTS.labels)
        for (method, status), count in sorted(self._counts.items()):
            code = str(status) if status else "<error>"
            requests.add_metric([code, method, self._host], count)
        yield requests
        yield self._seconds.metric(self._host)
        yield self._sizes.metric(self._host)


class _Histograms:
    """The histograms of one row of the table by method, of one server."""

    def __init__(self, family: Family[Histogram]) -> None:
        self._family = family
        self._sums: defaultdict[str, float] = defaultdict(float)
        # By method, the requests up to each bound; those beyond the last come last.
        self._buckets: defaultdict[str, list[int]] = defaultdict(
            lambda: [0] * (len(family.buckets) + 1)
        )

    def observe(self, method: str, number: float) -> None:
        """Count *number*."""
        self._sums[method] += number
        self._buckets[method][bisect_left(self._family.buckets, number)] += 1

    def metric(self, host: str) -> Metric:
        """What is exported."""
        family = self._family
        made = HistogramMetricFamily(family.name, family.text, labels=family.labels)
        bounds = [*(str(float(bound)) for bound in family.buckets), "+Inf"]
        for method, counts in sorted(self._buckets.items()):
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            made.add_metric([method, host], buckets, self._sums[method])
        return made
