"""What the trace of a pod looks like, by the instructions of a real kernel."""

import random
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from engine.core.kernel import instructions as to_do
from engine.core.kernel.events import BindingFailed, Bound
from engine.core.kernel.instructions import Instruction
from engine.io.tracing import pod_traces
from engine.io.tracing.pod_traces import Tracing
from engine.io.tracing.sampling import ANNOTATION, Sampler, trace_id_of
from engine.policy.metered import Evaluations, MeteredEvaluator
from engine.telemetry import spans
from engine.telemetry.spans import Span
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import GANGS, MOST_TURNS, World, member
from tests.engine.core.kernel.test_permits import labelled, patient

CARRIED_OUT = tuple(
    kind
    for kind in vars(to_do).values()
    if isinstance(kind, type) and kind.__module__ == to_do.__name__
)


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.is_closed = False

    def emit(self, span: Span) -> None:
        assert not self.is_closed
        self.spans.append(span)

    def close(self, seconds: float) -> None:
        self.is_closed = True

    @property
    def outcomes(self) -> Mapping[str, int]:
        return {}


class TracedWorld(World):
    """A world whose instructions are carried out traced; one carrier notes where it runs."""

    def __init__(self, files: Mapping[str, str] = GANGS, per_million: int = 1_000_000) -> None:
        self.within: list[tuple[type, str]] = []
        self.tracing: Tracing | None = None
        self.carriers: Mapping[type, Any] = {}
        super().__init__(files)
        self.sink = Sink()
        self.tracing = Tracing(
            Sampler(per_million), self.sink, clock=self.clock, rng=random.Random(1)
        )
        plain = dict.fromkeys(CARRIED_OUT, self._note)
        self.carriers = self.tracing.traced(plain, self.queue)

    def _note(self, instruction: Any) -> None:
        span = spans.current.get()
        self.within.append((type(instruction), "" if span is None else span.name))

    def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        for one in instructions:
            if type(one) in self.carriers:
                self.carriers[type(one)](one)
        assert spans.current.get() is None
        return super()._carry_out(instructions)

    @property
    def live(self) -> int:
        assert self.tracing is not None
        return self.tracing.live

    def decide_all(self) -> None:
        assert not self.turns(MOST_TURNS)
        self.check()

    def spans_of(self, uid: str) -> dict[str, list[Span]]:
        """The spans of a pod by name, in the order in which they ended."""
        found: dict[str, list[Span]] = {}
        for span in self.sink.spans:
            if span.trace.trace_id == trace_id_of(uid):
                found.setdefault(span.name, []).append(span)
        return found


def world_with_node(files: Mapping[str, str] = GANGS, **words: Any) -> TracedWorld:
    world = TracedWorld(files, **words)
    world.add_node(make_node("n", cpu=4))
    return world


def test_a_pod_that_is_bound_has_a_trace_from_the_queue_to_its_binding() -> None:
    world = world_with_node()
    world.add(make_pod("a", uid="a", cpu=1))
    world.clock.advance(2.0)
    world.decide_all()
    world.clock.advance(0.5)
    world.report(Bound(world.bindings[0]))
    got = world.spans_of("a")
    assert set(got) == {"schedule pod", "queue", "attempt", "decision", "binding cycle"}
    root, queue, attempt = got["schedule pod"][0], got["queue"][0], got["attempt"][0]
    assert (root.began, root.ended_at, root.parent_id) == (0.0, 2.5, 0)
    assert (queue.began, queue.ended_at) == (0.0, 2.0)
    assert (attempt.began, attempt.ended_at) == (2.0, 2.5)
    assert {queue.parent_id, attempt.parent_id} == {root.span_id}
    assert got["decision"][0].parent_id == attempt.span_id
    assert got["binding cycle"][0].parent_id == attempt.span_id
    assert root.attributes == {
        "k8s.namespace.name": "default",
        "k8s.pod.name": "a",
        "k8s.pod.uid": "a",
        "k8s.node.name": "n",
        "starsched.profile": "default-scheduler",
        "starsched.attempts": 1,
        "starsched.result": "scheduled",
    }
    assert attempt.attributes["starsched.revision"] == world.bundle.revision
    assert [event[0] for event in queue.events] == ["active"]
    assert world.live == 0


def test_what_is_carried_out_for_a_pod_is_within_its_spans() -> None:
    """So the requests that it leads to, now or later, have a parent."""
    world = world_with_node()
    world.add(make_pod("a", uid="a", cpu=1))
    world.decide_all()
    world.report(Bound(world.bindings[0]))
    assert [pair for pair in world.within if pair[1]] == [
        (to_do.ReportDecision, "decision"),
        (to_do.Bind, "binding cycle"),
        (to_do.ReportBound, "attempt"),
    ]


def test_each_attempt_and_each_wait_is_a_span() -> None:
    world = world_with_node()
    world.add(make_pod("a", uid="a", cpu=8))
    world.decide_all()
    world.clock.advance(60.0)
    world.add_node(make_node("large", cpu=16))
    world.decide_all()
    world.report(Bound(world.bindings[0]))
    got = world.spans_of("a")
    first, second = got["attempt"]
    assert first.attributes["starsched.result"] == "unschedulable"
    assert first.attributes["starsched.rejected_by"] == ["NodeResourcesFit"]
    assert first.attributes["starsched.message"].startswith("0/1 nodes are available")
    assert first.error == "", "a pod that fits nowhere is no error"
    assert second.attributes["starsched.result"] == "scheduled"
    assert second.attributes["starsched.tried_because"] == "NodeAdd large (NodeResourcesFit)"
    assert (first.attributes["starsched.attempt"], second.attributes["starsched.attempt"]) == (1, 2)
    waited = got["queue"][1]
    assert (waited.began, waited.ended_at) == (0.0, 60.0)
    assert [(event[0], event[1]) for event in waited.events] == [
        ("unschedulable", 0.0),
        ("active", 60.0),
    ]
    assert waited.events[1][2] == {"starsched.cause": "NodeAdd large (NodeResourcesFit)"}


def test_a_wait_in_permit_is_a_span() -> None:
    world = world_with_node(patient())
    world.add(labelled("a", "g", uid="a"))
    world.decide_all()
    for _ in range(6):
        world.wait(10.0)
    got = world.spans_of("a")
    permit = got["permit"][0]
    assert (permit.began, permit.ended_at) == (0.0, 60.0)
    assert permit.events[0][2]["starsched.message"]
    assert got["attempt"][0].attributes["starsched.result"] == "unschedulable"
    assert "binding cycle" not in got


def test_a_wait_in_permit_that_is_too_short_to_be_reported_is_a_span_too() -> None:
    world = world_with_node(patient("0.5"))
    world.add(labelled("a", "g", uid="a"))
    world.add(make_pod("b", uid="b"))
    world.decide_all()
    world.wait(0.5)
    assert (to_do.ReportWaiting, "permit") not in world.within
    assert [(p.began, p.ended_at) for p in world.spans_of("a")["permit"]] == [(0.0, 0.5)]
    assert "permit" not in world.spans_of("b"), "it was approved at once"


def test_a_binding_that_fails_is_an_error_and_the_trace_goes_on() -> None:
    world = world_with_node()
    world.add(make_pod("a", uid="a", cpu=1))
    world.decide_all()
    world.report(BindingFailed(world.bindings.pop(), "binding rejected: no"))
    got = world.spans_of("a")
    assert got["binding cycle"][0].error == "binding rejected: no"
    assert got["attempt"][0].error == "binding rejected: no"
    assert got["attempt"][0].error_type == "BindingFailed"
    assert world.live == 1
    world.wait(20.0)
    world.decide_all()
    world.report(Bound(world.bindings.pop()))
    assert [one.error for one in world.spans_of("a")["attempt"]] == ["binding rejected: no", ""]
    assert [event[0] for event in world.spans_of("a")["queue"][1].events] == ["backoff", "active"]
    assert world.live == 0


def test_a_round_trip_is_a_part_of_its_decision_and_of_no_other() -> None:
    world = world_with_node()
    assert world.tracing is not None
    evaluations = Evaluations(world.clock.monotonic)
    evaluations.on_round_trip = world.tracing.round_trip
    world.evaluator = MeteredEvaluator(  # type: ignore[assignment]  # it evaluates
        world.evaluator, world.bundle, evaluations
    )
    world.switch()
    # Not of this pod: before its decision, and in a thread that tries other policies.
    world.tracing.round_trip(0.0, [])
    world.clock.advance(1.0)
    elsewhere = threading.Thread(target=world.tracing.round_trip, args=(0.0, []))
    elsewhere.start()
    elsewhere.join()
    for name in ("a", "b"):
        world.add(make_pod(name, uid=name, cpu=1))
    world.turns(1)
    world.clock.advance(1.0)
    world.decide_all()
    for uid in ("a", "b"):
        (decision,) = world.spans_of(uid)["decision"]
        trips = world.spans_of(uid)["sandbox"]
        assert {trip.parent_id for trip in trips} == {decision.span_id}
        assert {trip.began for trip in trips} == {decision.began}
        assert all(trip.attributes["starsched.hooks"] for trip in trips)


def test_a_policy_that_fails_is_an_error_of_the_decision() -> None:
    world = world_with_node({"mine.star": "def filter(pod, node):\n    fail('broken')\n"})
    world.add(make_pod("a", uid="a"))
    world.decide_all()
    (decision,) = world.spans_of("a")["decision"]
    assert "broken" in decision.error
    assert world.spans_of("a")["attempt"][0].attributes["starsched.result"] == "error"


def test_pods_of_a_group_have_traces_of_their_own() -> None:
    world = world_with_node()
    for name in ("a", "b"):
        world.add(member(name, "g", 2, 1, 0))
    uids = {name: world.known[name].uid for name in ("a", "b")}
    world.decide_all()
    for placement in list(world.bindings):
        world.report(Bound(placement))
    for uid in uids.values():
        counts = {name: len(found) for name, found in world.spans_of(uid).items()}
        assert counts["schedule pod"] == counts["attempt"] == counts["binding cycle"] == 1
    assert world.live == 0


@pytest.mark.parametrize("is_decided", [True, False])
def test_the_trace_of_a_pod_that_is_deleted_ends(is_decided: bool) -> None:
    world = world_with_node()
    world.add(make_pod("a", uid="a", cpu=8))
    if is_decided:
        world.decide_all()
    world.delete("a")
    roots = world.spans_of("a").get("schedule pod", [])
    assert [root.attributes["starsched.result"] for root in roots] == ["gone"] * is_decided
    assert world.live == 0


def test_a_pod_that_is_deleted_while_it_waits_in_permit_is_gone() -> None:
    world = world_with_node(patient())
    world.add(labelled("a", "g", uid="a"))
    world.decide_all()
    world.delete("a")
    assert world.spans_of("a")["schedule pod"][0].attributes["starsched.result"] == "gone"
    assert world.live == 0


def test_a_binding_that_the_watch_shows_before_its_answer_comes_is_one() -> None:
    world = world_with_node()
    world.add(make_pod("a", uid="a", cpu=1))
    world.decide_all()
    world.change(world.known["a"].with_node("n"))
    assert world.live == 1
    world.report(Bound(world.bindings[0]))
    assert world.spans_of("a")["schedule pod"][0].attributes["starsched.result"] == "scheduled"
    assert world.live == 0


def test_pods_that_are_not_sampled_leave_nothing() -> None:
    world = world_with_node(per_million=0)
    world.add(make_pod("a", uid="a", cpu=1))
    world.decide_all()
    world.report(Bound(world.bindings[0]))
    assert world.sink.spans == []
    assert {name for _, name in world.within} == {""}


def test_a_trace_goes_on_from_that_of_the_pods_creator() -> None:
    world = world_with_node(per_million=0)
    context = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    world.add(make_pod("a", uid="a", cpu=1, annotations={ANNOTATION: context}))
    world.decide_all()
    world.report(Bound(world.bindings[0]))
    assert {span.trace.trace_id for span in world.sink.spans} == {0xABC}
    assert [one.parent_id for one in world.sink.spans if one.name == "schedule pod"] == [0xDEF]


def test_no_more_traces_are_under_way_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_traces, "MOST_LIVE", 2)
    world = world_with_node()
    for i in range(5):
        world.add(make_pod(f"p{i}", cpu=8))
    world.decide_all()
    assert world.live == 2
    assert world.tracing is not None
    assert world.tracing.causes == {"rate": 2, "parent": 0, "full": 3, "limited": 0, "invalid": 0}


def test_traces_under_way_end_with_the_process() -> None:
    world = world_with_node()
    world.add(make_pod("a", uid="a", cpu=8))
    world.decide_all()
    assert world.tracing is not None
    world.tracing.close(1.0)
    assert world.spans_of("a")["schedule pod"][0].attributes["starsched.result"] == "interrupted"
    assert world.sink.is_closed


def _drive(world: TracedWorld, seed: int) -> None:
    """Pods come and go, some in groups; bindings succeed, fail, and are seen before they end."""
    rng = random.Random(seed)
    for step in range(100):
        match rng.randrange(7):
            case 0 | 1:
                labels = rng.choice([{}, {}, {"group": "g", "min": "2"}])
                cpu = rng.choice([1, 1, 2, 8])
                world.add(make_pod(f"p{step}", uid=f"p{step}-{seed}", cpu=cpu, labels=labels))
            case 2 if world.known:
                world.delete(rng.choice(sorted(world.known)))
            case 3 if world.bindings:
                world.end_binding(0, succeeds=rng.random() < 0.7)
            case 4 if world.bindings:
                pod = world.known.get(world.bindings[0].pod.name)
                if pod is not None and not pod.node_name:
                    world.change(pod.with_node(world.bindings[0].node))
            case 5:
                world.wait(rng.choice([0.5, 12.0]))
            case _:
                world.turns(rng.randrange(1, 5))
    while world.bindings:
        world.end_binding(0, succeeds=True)
    for name in list(world.known):
        world.delete(name)
    while world.bindings:
        world.end_binding(0, succeeds=False)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_trace_ends_once_and_is_a_tree(seed: int) -> None:
    world = world_with_node()
    _drive(world, seed)
    assert world.live == 0
    by_id = {span.span_id: span for span in world.sink.spans}
    assert len(by_id) == len(world.sink.spans), "ids are unique, and no span ends twice"
    assert len(world.sink.spans) > 20
    names = Counter(span.name for span in world.sink.spans)
    assert names["queue"] == names["attempt"]
    for span in world.sink.spans:
        assert span.began <= span.ended_at
        if span.name == "schedule pod":
            assert span.parent_id == 0
        else:
            parent = by_id[span.parent_id]
            assert parent.trace is span.trace
            assert parent.began <= span.began
            assert span.ended_at <= parent.ended_at


def test_the_same_seed_gives_the_same_spans() -> None:
    def told(world: TracedWorld) -> list[tuple[Any, ...]]:
        return [
            (s.name, s.trace.trace_id, s.span_id, s.parent_id, s.began, s.ended_at, s.attributes)
            for s in world.sink.spans
        ]

    worlds = [world_with_node() for _ in range(2)]
    for world in worlds:
        _drive(world, 1)
    assert told(worlds[0]) == told(worlds[1])
