"""Spans: timed steps of the work for one pod, each within another, as traces are made of.

Owns the record of a span and which span the work at hand belongs to. That is a context variable:
tasks and callbacks inherit it from what starts them. It is set only while something is done for
a pod that is traced (`engine.io.tracing` decides which), so without tracing a step costs one look
at the variable.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

Attributes = dict[str, Any]


class Trace(Protocol):
    """What spans belong to."""

    trace_id: int
    #: Add this to monotonic seconds to get Unix time.
    epoch: float

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def new_span_id(self) -> int:
        """An id that no other span of the trace has."""
        ...

    def ended(self, span: "Span") -> None:
        """Take a span that has ended."""
        ...


class Span:
    """A step of the work for a pod.

    Attributes:
        name: Of the kind of step: there are few of them.
        parent_id: The id of the span that it is a part of; 0: it is the outermost.
        began, ended_at: Monotonic seconds.
        attributes: Plain values by name.
        error: Why it failed; "" if it did not.
        error_type: What kind of failure that was.
        is_request: Another program was asked, and this is the time until its answer.
    """

    __slots__ = (
        "attributes",
        "began",
        "ended_at",
        "error",
        "error_type",
        "events",
        "is_request",
        "name",
        "parent_id",
        "span_id",
        "trace",
    )

    def __init__(
        self,
        trace: Trace,
        name: str,
        parent_id: int,
        *,
        began: float | None = None,
        attributes: Attributes | None = None,
        is_request: bool = False,
    ) -> None:
        self.trace = trace
        self.name = name
        self.span_id = trace.new_span_id()
        self.parent_id = parent_id
        self.began = trace.now() if began is None else began
        self.ended_at = self.began
        self.attributes: Attributes = {} if attributes is None else attributes
        self.error = ""
        self.error_type = ""
        self.is_request = is_request
        #: (name, monotonic seconds, attributes)
        self.events: list[tuple[str, float, Attributes]] = []

    def child(
        self,
        name: str,
        *,
        began: float | None = None,
        attributes: Attributes | None = None,
        is_request: bool = False,
    ) -> "Span":
        """A part of this span that begins now, or *began* earlier."""
        return Span(
            self.trace,
            name,
            self.span_id,
            began=began,
            attributes=attributes,
            is_request=is_request,
        )

    def fail(self, error: BaseException | str) -> None:
        """Note that the step failed, and why."""
        if isinstance(error, BaseException):
            self.error, self.error_type = str(error) or "no message", type(error).__name__
        else:
            self.error = error

    def end(self, at: float | None = None) -> None:
        """The step is over, now or since *at*; never before it began."""
        ended_at = self.trace.now() if at is None else at
        self.ended_at = max(self.began, ended_at)
        self.trace.ended(self)

    @property
    def traceparent(self) -> str:
        """The context as the W3C writes it: servers that trace continue the trace with it."""
        return f"00-{self.trace.trace_id:032x}-{self.span_id:016x}-01"

    @property
    def exemplar(self) -> Mapping[str, str]:
        """What points from a measurement, or a line of the log, to this span."""
        return {"trace_id": f"{self.trace.trace_id:032x}", "span_id": f"{self.span_id:016x}"}


#: The span that the work at hand is a part of; None: it is not traced.
current: Final[ContextVar[Span | None]] = ContextVar("current_span", default=None)


@contextlib.contextmanager
def within(span: Span) -> Iterator[None]:
    """Make what is done, and started, in the block a part of *span*."""
    token = current.set(span)
    try:
        yield
    finally:
        current.reset(token)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """The block as a span of its own, if it is traced; an exception is its error."""
    parent = current.get()
    if parent is None:
        yield
        return
    span = parent.child(name)
    try:
        with within(span):
            yield
    except BaseException as error:
        span.fail(error)
        raise
    finally:
        span.end()


def request_span(method: str, target: str) -> Span | None:
    """A span for a request to the API server that is sent now; None if it is not traced."""
    parent = current.get()
    if parent is None:
        return None
    path = target.partition("?")[0]
    attributes: Attributes = {"http.request.method": method, "url.path": path}
    return parent.child(f"{method} {_kind(path)}", attributes=attributes, is_request=True)


def answered(span: Span, status: int, error: BaseException | None) -> None:
    """End the *span* of a request that was answered with *status* (0: not at all)."""
    if status:
        span.attributes["http.response.status_code"] = status
    if error is not None:
        span.fail(error)
    span.end()


def _kind(path: str) -> str:
    """The resource of a path with its subresource, without names: `pods/status`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return "/".join([*parts[:1], *parts[2:]])
