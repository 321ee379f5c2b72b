"""The trace of a pod, made from the instructions about it as they are carried out.

    schedule pod                       from its entry into the queue to its binding, or its end
      queue                            a wait for an attempt, with the moves in between
      attempt                          profile, revision, result, node, what rejected it
        decision                       choosing a node
          sandbox, extender filter     round trips of the decision
        permit                         waiting for the approval of policies
        binding cycle
          PreBind NAME                 a plugin that writes claims or volumes, or waits for them
          POST pods/binding            requests to the API server
        PATCH pods/status, POST events reports, which may be sent much later

Owns what the spans are. It wraps what carries instructions out, so the kernel is not involved and
nothing runs when tracing is off; what a component sends or starts for an instruction inherits the
span (`engine.telemetry.spans`). A pod is first looked at when it was decided: the queue remembers
how it came there.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from engine.core.kernel import instructions as to_do
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.transitions import Move, Place
from engine.core.scheduling.placement import Placement
from engine.io.tracing.sampling import Context, Sampler
from engine.lib.clock import Clock
from engine.policy.evaluator import Call
from engine.telemetry.spans import Span, within

# Why a pod is traced, or is not though it was sampled, as metrics name it.
RATE: Final = "rate"
PARENT: Final = "parent"
FULL: Final = "full"

#: Pods whose traces are under way at once; of more pods none is begun.
MOST_LIVE: Final = 10_000
#: Round trips that are remembered until the decision that they belong to is reported.
_MOST_TRIPS: Final = 256
_MOST_MESSAGE: Final = 1024
#: A wait for approval that takes no longer is not worth a span.
_SHORTEST_PERMIT: Final = 0.01

Carrier = Callable[[Any], None]


class Sink(Protocol):
    """Where ended spans go."""

    def emit(self, span: Span) -> None:
        """Take a span; returns at once."""
        ...

    def close(self, seconds: float) -> None:
        """Send what is left, for *seconds* at most; blocks."""
        ...

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Spans by what became of them."""
        ...


class Queue(Protocol):
    """What is read of the queue."""

    def named(self, key: str) -> QueuedPod | None:
        """The pod `namespace/name`, wherever it is."""
        ...


class _Trip(NamedTuple):
    """A round trip, to the sandbox or to an extender."""

    name: str
    began: float
    ended: float
    attributes: dict[str, Any]
    error: str


class _PodTrace:
    """The trace of one pod, as far as it has got: what `spans.Trace` asks for, and what is open.

    Attributes:
        root: From the queue to the end.
        attempt: The one under way, if any.
        phase: What an attempt is at after its decision: waiting in permit, or binding.
        placed_at: When a node was chosen; None: it is being bound, or there is none.
        waits_since: When the pod began to wait for its next attempt.
        is_gone: The pod does not want a node any more; the attempt under way will notice.
    """

    __slots__ = (
        "_tracing",
        "attempt",
        "epoch",
        "is_gone",
        "phase",
        "placed_at",
        "root",
        "trace_id",
        "waits_since",
    )

    def __init__(self, tracing: "Tracing", context: Context, began: float) -> None:
        self._tracing = tracing
        self.trace_id = context.trace_id
        self.epoch = tracing.clock.now() - tracing.clock.monotonic()
        self.root = Span(self, "schedule pod", context.span_id, began=began)
        self.attempt: Span | None = None
        self.phase: Span | None = None
        self.waits_since = began
        self.placed_at: float | None = None
        self.is_gone = False

    def now(self) -> float:
        return self._tracing.clock.monotonic()

    def new_span_id(self) -> int:
        return self._tracing.new_span_id()

    def ended(self, span: Span) -> None:
        self._tracing.sink.emit(span)

    @property
    def innermost(self) -> Span:
        """What is under way."""
        return self.phase or self.attempt or self.root


class Tracing:
    """Traces the pods of one scheduler process.

    Args:
        sampler: Chooses the pods.
        sink: Takes the spans.
        clock: Time, the same as the scheduler's.
        rng: Makes span ids. Trace ids come from the pods.
    """

    def __init__(self, sampler: Sampler, sink: Sink, *, clock: Clock, rng: random.Random) -> None:
        self.sampler = sampler
        self.sink = sink
        self.clock = clock
        self._rng = rng
        self._queue: Queue | None = None
        self._live: dict[str, _PodTrace] = {}
        self._trips: deque[_Trip] = deque(maxlen=_MOST_TRIPS)
        self._thread = threading.get_ident()
        self._begun = {RATE: 0, PARENT: 0, FULL: 0}

    @property
    def live(self) -> int:
        """Pods whose traces are under way."""
        return len(self._live)

    @property
    def causes(self) -> Mapping[str, int]:
        """How often a pod was traced, or a parent not followed, by the cause."""
        return {**self._begun, **self.sampler.ignored}

    def new_span_id(self) -> int:
        """A random id."""
        return self._rng.getrandbits(64) or 1

    # --- what the scheduler wraps --------------------------------------------------------------

    def traced(
        self, carriers: Mapping[type[Any], Carrier], queue: Queue
    ) -> Mapping[type[Any], Carrier]:
        """*carriers* of instructions, which then trace what they carry out.

        Instructions that have none have no part in a trace.
        """
        self._queue = queue
        begins: dict[type[Any], Callable[[_PodTrace, Any], Span]] = {
            to_do.ReportWaiting: self._waits,
            to_do.Bind: self._binds,
            to_do.ReportBound: self._bound,
            to_do.ReportFailure: self._failed,
            to_do.ReportFault: self._fault,
            to_do.RunAction: self._under_way,
            to_do.ReportGate: self._under_way,
            to_do.ReportHeld: self._under_way,
            to_do.ReportThrottled: self._under_way,
            to_do.ReportDeleting: self._under_way,
            to_do.ReportNomination: self._under_way,
            to_do.Evict: self._under_way,
            to_do.ForgetReports: self._gone,
        }
        wrapped = dict(carriers)
        for kind, begin in begins.items():
            if kind in wrapped:
                wrapped[kind] = self._wrapped(wrapped[kind], begin, _UIDS.get(kind, _OF_POD))
        if to_do.ReportDecision in wrapped:
            wrapped[to_do.ReportDecision] = self._wrapped_decision(wrapped[to_do.ReportDecision])
        return wrapped

    def round_trip(self, seconds: float, calls: Sequence[Call]) -> None:
        """Remember a round trip to the sandbox that ends now."""
        if threading.get_ident() != self._thread:
            return  # the trial of other policies, or a comparison with them
        ended = self.clock.monotonic()
        attributes = {
            "starsched.calls": len(calls),
            "starsched.hooks": sorted({call.hook for call in calls}),
            "starsched.entries": sum(
                1 if call.nodes is None else len(call.nodes) for call in calls
            ),
        }
        self._trips.append(_Trip("sandbox", ended - seconds, ended, attributes, ""))

    def extender_answered(self, extender: str, verb: str, seconds: float, error: str) -> None:
        """Remember a request of a decision to *extender* that ends now; *error*: how it failed."""
        ended = self.clock.monotonic()
        attributes = {"starsched.extender": extender}
        self._trips.append(_Trip(f"extender {verb}", ended - seconds, ended, attributes, error))

    def close(self, seconds: float) -> None:
        """End the traces under way, and send what is left for *seconds* at most; blocks."""
        for uid in list(self._live):
            self._finish(uid, "interrupted")
        self.sink.close(seconds)

    # --- wrapping -----------------------------------------------------------------------------

    def _wrapped(
        self,
        carry_out: Carrier,
        begin: Callable[[_PodTrace, Any], Span],
        uid_of: Callable[[Any], str],
    ) -> Carrier:
        live = self._live

        def carried_out(instruction: Any) -> None:
            trace = live.get(uid_of(instruction)) if live else None
            if trace is None:
                carry_out(instruction)
                return
            with within(begin(trace, instruction)):
                carry_out(instruction)

        return carried_out

    def _wrapped_decision(self, carry_out: Carrier) -> Carrier:
        live, choose, monotonic = self._live, self.sampler.choose, self.clock.monotonic

        def carried_out(made: to_do.ReportDecision) -> None:
            trace = live.get(made.pod.uid)
            if trace is None:
                # Most pods are not traced, so this is what tracing costs.
                context = choose(made.pod, monotonic)
                if context is not None:
                    trace = self._begin(made.pod, context, made.started_at)
                if trace is None:
                    carry_out(made)
                    return
            with within(self._decided(trace, made)):
                carry_out(made)

        return carried_out

    # --- the life of a trace --------------------------------------------------------------------

    def _begin(self, pod: Pod, context: Context, decided_at: float) -> _PodTrace | None:
        """The trace of a pod that was just decided; None if it is gone, or too many are live."""
        queued = self._queued(pod)
        if queued is None:
            return None
        if len(self._live) >= MOST_LIVE:
            self._begun[FULL] += 1
            return None
        self._begun[PARENT if context.span_id else RATE] += 1
        first = [decided_at, *(move.at for move in queued.moves[:1])]
        if queued.initial_attempt_at is not None:
            first.append(queued.initial_attempt_at)
        trace = self._live[pod.uid] = _PodTrace(self, context, min(first))
        trace.root.attributes |= {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": pod.uid,
            "starsched.profile": pod.scheduler_name,
        }
        return trace

    def _queued(self, pod: Pod) -> QueuedPod | None:
        queued = None if self._queue is None else self._queue.named(pod.key)
        return queued if queued is not None and queued.uid == pod.uid else None

    def _attempt(self, trace: _PodTrace, pod: Pod, started_at: float) -> Span:
        """The attempt under way; it begins with the end of a wait in the queue."""
        if trace.attempt is not None:
            return trace.attempt
        queued = self._queued(pod)
        waited = trace.root.child("queue", began=trace.waits_since)
        if queued is not None:
            # The last attempt put the pod back a moment before its span ended.
            waited.events += [
                (move.place.label, max(move.at, waited.began), {"starsched.cause": move.why})
                for move in _moves_before_last_pop(queued)
            ]
        waited.end(started_at)
        attempt = trace.attempt = trace.root.child("attempt", began=started_at)
        attempt.attributes["starsched.profile"] = pod.scheduler_name
        return attempt

    def _decided(self, trace: _PodTrace, made: to_do.ReportDecision) -> Span:
        attempt = self._attempt(trace, made.pod, made.started_at)
        decision = made.decision
        span = attempt.child("decision", began=made.started_at)
        span.attributes |= {
            "starsched.revision": decision.revision,
            "starsched.feasible_nodes": decision.feasible_count,
        }
        if decision.node is not None:
            span.attributes["k8s.node.name"] = decision.node
        failures = (*decision.failures, *decision.ignored)
        if failures:
            span.fail("; ".join(map(str, failures))[:_MOST_MESSAGE])
            span.error_type = failures[0].kind
        ends_at = made.started_at + made.seconds
        for trip in self._trips:
            is_later = trip.ended > ends_at  # policies were asked for their approval
            if trip.began < made.started_at or (is_later and made.is_member):
                continue
            part = (attempt if is_later else span).child(
                trip.name, began=trip.began, attributes=trip.attributes, is_request=True
            )
            if trip.error:
                part.fail(trip.error)
            part.end(trip.ended)
        span.end(ends_at)
        trace.placed_at = None if decision.node is None else ends_at
        return span

    def _waits(self, trace: _PodTrace, report: to_do.ReportWaiting) -> Span:
        placement = report.placement
        attempt = self._placed(trace, placement)
        if trace.phase is None:
            trace.phase = attempt.child("permit", began=trace.placed_at)
        trace.phase.events.append(("waits", trace.now(), {"starsched.message": report.text}))
        return trace.phase

    def _binds(self, trace: _PodTrace, instruction: to_do.Bind) -> Span:
        attempt = self._placed(trace, instruction.placement)
        _end_permit(trace, attempt)
        trace.phase = attempt.child("binding cycle")
        return trace.phase

    def _placed(self, trace: _PodTrace, placement: Placement) -> Span:
        attempt = self._attempt(trace, placement.pod, placement.started_at)
        attempt.attributes |= {
            "k8s.node.name": placement.node,
            "starsched.attempt": placement.queued.attempts,
            "starsched.revision": placement.revision,
            "starsched.tried_because": placement.queued.tried_because,
        }
        return attempt

    def _bound(self, trace: _PodTrace, report: to_do.ReportBound) -> Span:
        placement = report.placement
        attempt = self._placed(trace, placement)
        trace.root.attributes |= {
            "k8s.node.name": placement.node,
            "starsched.attempts": placement.queued.attempts,
        }
        attempt.attributes["starsched.result"] = "scheduled"
        self._finish(placement.pod.uid, "scheduled")
        return attempt

    def _failed(self, trace: _PodTrace, report: to_do.ReportFailure) -> Span:
        rejection = report.rejection
        attempt = self._attempt(trace, report.pod, report.started_at)
        attempt.attributes |= {
            "starsched.attempt": report.attempts,
            "starsched.revision": report.revision,
            "starsched.tried_because": report.tried_because,
            "starsched.result": "error" if rejection.is_error else "unschedulable",
            "starsched.reason": rejection.reason.token,
            "starsched.message": rejection.message[:_MOST_MESSAGE],
            "starsched.rejected_by": sorted(rejection.rejectors),
        }
        _end_permit(trace, attempt)
        if rejection.nominated_node:
            attempt.attributes["starsched.nominated_node"] = rejection.nominated_node
        if rejection.is_error:
            for span in filter(None, (trace.phase, attempt)):
                span.fail(rejection.message[:_MOST_MESSAGE])
                span.error_type = rejection.reason.token
        trace.root.attributes["starsched.attempts"] = report.attempts
        if trace.is_gone or not report.is_queued:
            self._finish(report.pod.uid, "gone")
        else:
            _end_attempt(trace)
        return attempt

    def _fault(self, trace: _PodTrace, report: to_do.ReportFault) -> Span:
        span = trace.innermost
        error = report.error
        event = {"exception.type": type(error).__name__, "exception.message": str(error)}
        span.events.append(("exception", trace.now(), event))
        return span

    def _under_way(self, trace: _PodTrace, _instruction: object) -> Span:
        return trace.innermost

    def _gone(self, trace: _PodTrace, instruction: to_do.ForgetReports) -> Span:
        span = trace.innermost
        if trace.phase is None:
            self._finish(instruction.uid, "gone")
        else:
            trace.is_gone = True  # or bound: the answer to the binding may come after the watch's
        return span

    def _finish(self, uid: str, result: str) -> None:
        """End the trace of the pod with *uid*."""
        trace = self._live.pop(uid)
        if trace.attempt is not None:
            trace.attempt.attributes.setdefault("starsched.result", result)
        _end_attempt(trace)
        trace.root.attributes["starsched.result"] = result
        trace.root.end()


def _end_permit(trace: _PodTrace, attempt: Span) -> None:
    """The wait for approval is over. Most pods do not wait, and a short wait is not reported."""
    if trace.placed_at is None:
        return
    now = trace.now()
    if trace.phase is None and now - trace.placed_at >= _SHORTEST_PERMIT:
        trace.phase = attempt.child("permit", began=trace.placed_at)
    if trace.phase is not None:
        trace.phase.end(now)
    trace.phase = trace.placed_at = None


def _end_attempt(trace: _PodTrace) -> None:
    now = trace.now()
    if trace.phase is not None:
        trace.phase.end(now)
    if trace.attempt is not None:
        trace.attempt.end(now)
    trace.attempt = trace.phase = trace.placed_at = None
    trace.waits_since = now


def _moves_before_last_pop(queued: QueuedPod) -> list[Move]:
    """The moves of a pod from the end of one attempt to the beginning of the next, its last."""
    found: list[Move] = []
    is_before = False
    for move in reversed(queued.moves):
        if move.place is Place.IN_FLIGHT:
            if is_before:
                break
            is_before = True
        elif is_before and move.place is not Place.BINDING:
            found.append(move)
    return found[::-1]


#: The uid of the pod that an instruction is about; other kinds have a `pod`.
_UIDS: Final[Mapping[type[Any], Callable[[Any], str]]] = {
    to_do.Bind: attrgetter("placement.queued.pod.uid"),
    to_do.ReportBound: attrgetter("placement.queued.pod.uid"),
    to_do.Evict: attrgetter("preemptor.uid"),
    to_do.ForgetReports: attrgetter("uid"),
}
_OF_POD: Final[Callable[[Any], str]] = attrgetter("pod.uid")
