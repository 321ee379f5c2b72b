"""A collector for tests: takes spans by OTLP over gRPC, as any program that speaks it would."""

import contextlib
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Received:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    kind: int
    attributes: dict[str, Any]
    events: list[str]
    error: str
    resource: dict[str, Any]

    @classmethod
    def of(cls, span: trace_pb2.Span, resource: dict[str, Any]) -> Self:
        is_error = span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
        return cls(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.kind,
            _plain(span.attributes),
            [event.name for event in span.events],
            span.status.message if is_error else "",
            resource,
        )


@dataclass
class Collector:
    """What was received so far, and how the next requests are answered.

    Attributes:
        refuses: Answer with this status instead.
        gate: If it is set, requests wait for it.
    """

    endpoint: str
    spans: list[Received] = field(default_factory=list)
    requests: int = 0
    refuses: grpc.StatusCode | None = None
    gate: Event | None = None

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def of_pod(self, pod: str) -> dict[str, list[Received]]:
        """The spans of the trace of *pod* by name, oldest first; empty before its root is there."""
        for root in self.named("schedule pod"):
            if root.attributes["k8s.pod.name"] == pod:
                found: dict[str, list[Received]] = {}
                for span in sorted(self.spans, key=lambda one: one.start):
                    if span.trace_id == root.trace_id:
                        found.setdefault(span.name, []).append(span)
                return found
        return {}


class _Service(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        collector = self._collector
        collector.requests += 1
        if collector.gate is not None:
            collector.gate.wait(20.0)
        if collector.refuses is not None:
            context.abort(collector.refuses, "as the test wants it")
        for of_resource in request.resource_spans:
            resource = _plain(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                collector.spans += [Received.of(span, resource) for span in of_scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@contextlib.contextmanager
def collecting(endpoint: str = "127.0.0.1:0") -> Iterator[Collector]:
    """A collector that listens at *endpoint* until the block ends."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    port = server.add_insecure_port(endpoint)
    collector = Collector(f"127.0.0.1:{port}" if endpoint.endswith(":0") else endpoint)
    add_service = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add_service(_Service(collector), server)  # type: ignore[no-untyped-call]  # made code
    server.start()
    try:
        yield collector
    finally:
        if collector.gate is not None:
            collector.gate.set()
        server.stop(0).wait()


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
