"""Histograms that point from a bucket to a trace: exemplars, shown in the OpenMetrics format.

Owns where the exemplar comes from. Used only with tracing: other processes have plain histograms.
"""

from prometheus_client import Histogram

from engine.telemetry import spans


class ExemplarHistogram(Histogram):
    """A histogram whose buckets keep the span in which they were last observed, if any."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Count *amount*."""
        span = spans.current.get()
        if span is not None and exemplar is None:
            exemplar = dict(span.exemplar)
        super().observe(amount, exemplar)
