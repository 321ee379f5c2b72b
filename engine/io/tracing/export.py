"""Sending spans to a collector, by OTLP over gRPC.

Owns OpenTelemetry: no other module imports it, and this one is imported only by a process that
traces. Sending has a thread of its own. Spans wait for it in a queue with a bound: when the
collector is away or slow they are dropped and counted, and nothing waits for it.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from engine.lib.printable import message
from engine.telemetry.spans import Span

log = structlog.get_logger(component="tracing")

#: Spans that may wait to be sent, those of the request under way included.
MOST_WAITING: Final = 4096
_BATCH: Final = 512
_DELAY_SECONDS: Final = 1.0
#: For how long the spans of one request are tried.
_TIMEOUT_SECONDS: Final = 5.0

# What became of a span, as metrics name it.
EXPORTED: Final = "exported"
FAILED: Final = "failed"
FULL: Final = "full"
SHUTDOWN: Final = "shutdown"

_SCOPE: Final = InstrumentationScope("starsched")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status(StatusCode.UNSET)
_NANOS: Final = 1_000_000_000


class SpanSender:
    """Takes ended spans and sends them.

    Args:
        endpoint: The collector, as gRPC takes it.
        service: What the resource of all spans says: `service.version` and so on. What the
            environment says (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`) wins.
    """

    def __init__(self, endpoint: str, service: Mapping[str, str]) -> None:
        self._reasons = _reasons()
        self._exporter = _CountingExporter(
            OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=_TIMEOUT_SECONDS),
            endpoint,
            self._reasons,
        )
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=MOST_WAITING,
            schedule_delay_millis=_DELAY_SECONDS * 1000,
            max_export_batch_size=_BATCH,
            export_timeout_millis=_TIMEOUT_SECONDS * 1000,
        )
        own = Resource.create({"service.name": "starsched", **service})
        merged = own.merge(OTELResourceDetector().detect())
        self._resource = _OneResource(merged.attributes, merged.schema_url)
        self._taken = 0
        self._full = 0
        self._late = 0
        self._is_closing = self._is_closed = False

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Spans by what became of them."""
        return {
            EXPORTED: self._exporter.exported,
            FAILED: self._exporter.failed,
            FULL: self._full,
            SHUTDOWN: self._late + (self._waiting if self._is_closed else 0),
        }

    def emit(self, span: Span) -> None:
        """Have *span* sent; it is dropped if too many wait."""
        if self._is_closing:
            self._late += 1
        elif self._waiting >= MOST_WAITING:
            self._full += 1
        else:
            self._taken += 1
            self._processor.on_end(readable(span, self._resource))

    def close(self, seconds: float) -> None:
        """Send what waits, for *seconds* at most, and drop the rest; blocks."""
        self._is_closing = True
        # A thread, because the library would wait longer; it does not keep the process from ending.
        ending = threading.Thread(target=self._processor.shutdown, daemon=True)
        ending.start()
        ending.join(seconds)
        self._is_closed = True
        if left := self._waiting:
            log.warning("Spans dropped at shutdown", count=left)
        if ending.is_alive():
            self._exporter.shutdown()  # ends the request under way

    @property
    def _waiting(self) -> int:
        return self._taken - self._exporter.exported - self._exporter.failed


class _OneResource(Resource):
    """A resource that is equal only to itself: there is one.

    The library's own writes itself as JSON to get its hash, for each span.
    """

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class _CountingExporter(SpanExporter):
    """Counts what *inner* sends, and logs when that begins to fail and when it works again."""

    def __init__(self, inner: SpanExporter, endpoint: str, reasons: "_Reasons") -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._reasons = reasons
        self._is_failing = False
        self._is_closed = False
        # Written by the sending thread alone.
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send *spans*; blocks."""
        self._reasons.last = ""
        try:
            result = self._inner.export(spans)
        except Exception as error:  # a span that cannot be encoded must not end the thread
            self._reasons.last = f"{type(error).__name__}: {error}"
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
            if self._is_failing:
                log.info("Spans are sent again", endpoint=self._endpoint)
        else:
            self.failed += len(spans)
            if not self._is_failing and not self._is_closed:
                log.warning(
                    "Cannot send spans; they are dropped",
                    endpoint=self._endpoint,
                    reason=self._reasons.last,
                )
        self._is_failing = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """End the request under way; more are not sent."""
        self._is_closed = True
        self._inner.shutdown()


class _Reasons(logging.Handler):
    """Keeps the last thing that the library said, which logs each failure and each retry."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of *record*."""
        self.last = record.getMessage()


def _reasons() -> _Reasons:
    handler = _Reasons(logging.WARNING)
    library = logging.getLogger("opentelemetry")
    library.handlers = [handler]
    library.propagate = False
    return handler


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """*span* as OpenTelemetry has it."""
    trace = span.trace
    parent = None
    if span.parent_id:
        parent = SpanContext(trace.trace_id, span.parent_id, False, _SAMPLED)
    status = _UNSET
    if span.error:
        status = Status(StatusCode.ERROR, _encodable(span.error))
    attributes = {name: _encodable(value) for name, value in span.attributes.items()}
    if span.error_type:
        attributes["error.type"] = span.error_type
    return ReadableSpan(
        span.name,
        context=SpanContext(trace.trace_id, span.span_id, False, _SAMPLED),
        parent=parent,
        resource=resource,
        attributes=attributes,
        events=[
            Event(
                name,
                {key: _encodable(value) for key, value in fields.items()},
                _nanos(at, trace.epoch),
            )
            for name, at, fields in span.events
        ],
        kind=SpanKind.CLIENT if span.is_request else SpanKind.INTERNAL,
        status=status,
        start_time=_nanos(span.began, trace.epoch),
        end_time=_nanos(span.ended_at, trace.epoch),
        instrumentation_scope=_SCOPE,
    )


def _encodable(value: Any) -> Any:
    """*value* without control characters, and what UTF-8 has not: that would cost the batch."""
    if isinstance(value, str):
        return message(value)
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    return value


def _nanos(at: float, epoch: float) -> int:
    return round((at + epoch) * _NANOS)
