"""Events have kube-scheduler's form; repeats are counted, floods are bounded."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from engine.io.binding import event_recorder
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.event_recorder import (
    REVISION_ANNOTATION,
    EventRecorder,
    Occurrence,
    pod_reference,
    truncate_note,
)
from engine.io.kube.client import ApiClient
from engine.lib.clock import VirtualClock
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod
from tests.engine.io.binding.scripted_api import Lose, Refuse, ScriptedApi
from tests.engine.lib.hostile import HOSTILE, raw_in
from tests.waiting import eventually, idle, one_turn


class MovedClock(VirtualClock):
    """A clock whose time of day may be set by hand."""

    moved = 0.0

    def now(self) -> float:
        return super().now() + self.moved


class Bench:
    def __init__(self, api: ScriptedApi, client: ApiClient) -> None:
        self.api = api
        self.clock = MovedClock()
        self.metrics = Metrics(CollectorRegistry())
        self.is_busy = False
        self.writer = DeferredWriter(
            clock=self.clock, is_busy=lambda: self.is_busy, capacity=8, sleep=one_turn
        )
        self.recorder = EventRecorder(
            client,
            self.writer,
            clock=self.clock,
            metrics=self.metrics,
            instance="host-1",
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def fail(self, note: str = "0/1 nodes are available: 1 Too many pods.", **words: Any) -> None:
        self.recorder.record(
            pod_reference(make_pod("web", uid="u1")),
            Occurrence(
                kind="Warning",
                reason="FailedScheduling",
                action="Scheduling",
                note=note,
                controller="default-scheduler",
                revision="abc123",
            ),
            **words,
        )

    def dropped(self, cause: str) -> float:
        name = "starsched_events_dropped_total"
        return self.metrics.registry.get_sample_value(name, {"cause": cause}) or 0.0


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with ScriptedApi() as api, api.client() as client:
        bench = Bench(api, client)
        task = asyncio.ensure_future(bench.writer.run())
        yield bench
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_event_has_kube_schedulers_form_and_the_revision(bench: Bench) -> None:
    bench.fail()
    assert await bench.writer.flush(5) == 0
    (event,) = bench.api.events.values()
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("web.")
    assert event["metadata"]["annotations"] == {REVISION_ANNOTATION: "abc123"}
    assert event["eventTime"] == "2023-11-14T22:13:20.000000Z"
    assert event["note"] == "0/1 nodes are available: 1 Too many pods."
    want = {
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-host-1",
    }
    assert {key: event[key] for key in want} == want
    assert event["regarding"]["uid"] == "u1"


async def test_an_event_names_the_other_object_that_has_to_do_with_it(bench: Bench) -> None:
    bench.fail(related=pod_reference(make_pod("other", uid="u2")))
    bench.fail("another note", repeats=False, related=pod_reference(make_pod("third", uid="u3")))
    assert await bench.writer.flush(5) == 0
    first, second = bench.api.events.values()
    assert first["related"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "other",
        "uid": "u2",
    }
    assert second["related"]["name"] == "third"


async def test_what_happens_once_is_one_event_whichever_component_reports_it(bench: Bench) -> None:
    """Two schedulers may find a pod bound as both wanted; kubectl showed it bound twice."""
    bench.fail("Successfully assigned", repeats=False)
    bench.clock.advance(1)
    bench.fail("Successfully assigned", repeats=False)
    bench.fail("something else", repeats=False)
    assert await bench.writer.flush(5) == 0
    notes = [event["note"] for event in bench.api.events.values()]
    assert notes == ["Successfully assigned", "something else"]
    assert bench.dropped("rejected") == 0


async def test_repeats_become_a_series_of_one_event(bench: Bench) -> None:
    for _ in range(3):
        bench.fail()
        await eventually(lambda: not len(bench.writer) and not bench.writer.in_flight)
    (event,) = bench.api.events.values()
    assert event["series"]["count"] == 2  # the third is counted, and written with a later one
    bench.clock.advance(61)
    bench.fail()
    await bench.writer.flush(5)
    assert event["series"]["count"] == 4
    assert len(bench.api.events) == 1


@pytest.mark.parametrize("moved", [-7200.0, 7200.0], ids=["back", "forward"])
async def test_a_time_of_day_that_is_set_again_neither_ends_nor_silences_a_series(
    bench: Bench, moved: float
) -> None:
    """Set back by two hours, the repeats of the next two hours were not written."""
    for _ in range(2):
        bench.fail()
        await eventually(lambda: not len(bench.writer) and not bench.writer.in_flight)
    bench.clock.moved = moved
    bench.clock.advance(61)
    bench.fail()
    await bench.writer.flush(5)
    (event,) = bench.api.events.values()
    assert event["series"]["count"] == 3


async def test_another_text_is_another_event(bench: Bench) -> None:
    bench.fail("one")
    bench.fail("two")
    await bench.writer.flush(5)
    assert sorted(event["note"] for event in bench.api.events.values()) == ["one", "two"]


async def test_after_six_quiet_minutes_a_repeat_is_a_new_event(bench: Bench) -> None:
    bench.fail()
    bench.clock.advance(361)
    bench.fail()
    await bench.writer.flush(5)
    assert len(bench.api.events) == 2


async def test_an_event_that_expired_on_the_server_is_created_again(bench: Bench) -> None:
    bench.fail()
    await eventually(lambda: len(bench.api.events) == 1)
    await eventually(lambda: not bench.writer.in_flight)
    bench.api.events.clear()
    bench.fail()
    await eventually(lambda: len(bench.api.events) == 1)


async def test_events_wait_while_bindings_are_in_flight_but_not_for_ever(bench: Bench) -> None:
    bench.is_busy = True
    bench.fail()
    await idle()
    assert bench.api.requests == []
    bench.clock.advance(11)
    await eventually(lambda: len(bench.api.events) == 1)


async def test_what_waits_is_counted_up_however_many_others_come(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of more pods than there are series was tried again: each pod had another event."""
    monkeypatch.setattr(event_recorder, "_MOST_SERIES", 2)
    bench.is_busy = True
    for _ in range(3):
        for i in range(6):
            bench.fail(f"note {i}")
    bench.is_busy = False
    await bench.writer.flush(5)
    assert [event["series"]["count"] for event in bench.api.events.values()] == [3] * 6
    assert bench.dropped("full") == 0
    # Written ones are forgotten, the oldest first.
    for i in range(4):
        bench.fail(f"other note {i}")
    await bench.writer.flush(5)
    bench.fail("note 5")
    await bench.writer.flush(5)
    assert len(bench.api.events) == 6 + 4 + 1


async def test_events_leave_room_for_urgent_writes(bench: Bench) -> None:
    bench.is_busy = True
    for i in range(12):
        bench.fail(f"note {i}")
    written = asyncio.Event()

    async def write() -> None:
        written.set()

    assert bench.writer.submit(write, urgent=True)
    bench.is_busy = False
    await eventually(written.is_set)


async def test_a_full_queue_drops_and_counts(bench: Bench) -> None:
    bench.is_busy = True
    for i in range(12):
        bench.fail(f"note {i}")
    assert bench.dropped("full") == 4
    bench.is_busy = False
    await bench.writer.flush(5)
    assert len(bench.api.events) == 8


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([Refuse(500), Refuse(429, retry_after="1")], id="errors that pass"),
        pytest.param([Lose(after=True)], id="lost answer after it was written"),
        pytest.param([Lose(after=False)], id="lost answer before it was written"),
        pytest.param([Lose(after=False)] * 12, id="a restart of the server"),
    ],
)
async def test_an_event_is_written_once_despite_errors(bench: Bench, steps: list[Any]) -> None:
    bench.api.script["event"] = steps
    bench.fail()
    assert await bench.writer.flush(5) == 0
    assert len(bench.api.events) == 1
    assert bench.dropped("failed") == 0


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        pytest.param(Refuse(403), "rejected", id="namespace is terminating"),
        pytest.param(Refuse(404), "rejected", id="namespace is gone"),
        pytest.param(Refuse(422), "rejected", id="the server does not like it"),
        pytest.param(Refuse(500), "failed", id="down for too long"),
        pytest.param(Lose(after=False), "failed", id="away for too long"),
    ],
)
async def test_what_cannot_be_written_is_dropped_and_counted(
    bench: Bench, step: Refuse | Lose, cause: str
) -> None:
    bench.api.script["event"] = [step] * 100
    bench.fail()
    await bench.writer.flush(5)
    assert bench.dropped(cause) == 1


@pytest.mark.parametrize(
    ("cause", "want"), [("NamespaceTerminating", []), ("", ["Dropped an event"])]
)
async def test_a_namespace_that_is_being_deleted_is_no_warning(
    bench: Bench, cause: str, want: list[str]
) -> None:
    """Deleting one with a thousand pods wrote as many lines."""
    bench.api.script["event"] = [Refuse(403, "Forbidden", cause=cause)]
    with structlog.testing.capture_logs() as logs:
        bench.fail()
        assert await bench.writer.flush(5) == 0
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == want
    assert bench.dropped("rejected") == 1


async def test_an_event_that_expired_while_the_server_was_busy_is_created_again(
    bench: Bench,
) -> None:
    """The last try found out, and nothing was written, counted or told."""
    bench.fail()
    await eventually(lambda: len(bench.api.events) == 1)
    await eventually(lambda: not bench.writer.in_flight)
    bench.api.events.clear()
    bench.api.script["event"] = [Refuse(500)] * 3
    bench.fail()
    assert await bench.writer.flush(5) == 0
    assert len(bench.api.events) == 1


async def test_flushing_ends_in_time_and_returns_what_is_left(bench: Bench) -> None:
    bench.is_busy = True
    bench.api.script["event"] = [Refuse(500)] * 100

    async def for_ever(_seconds: float) -> None:
        await asyncio.Event().wait()

    bench.recorder._sleep = for_ever
    bench.fail()
    assert await bench.writer.flush(0.1) == 1


@pytest.mark.parametrize(
    ("note", "want_bytes"),
    [
        pytest.param("x" * 1024, 1024, id="just fits"),
        pytest.param("x" * 1025, 1024, id="one too many"),
        pytest.param("é" * 600, 1024, id="two bytes a character"),
        pytest.param("x" + "é" * 600, 1023, id="a character is never split"),
    ],
)
def test_a_note_is_cut_to_1024_bytes(note: str, want_bytes: int) -> None:
    got = truncate_note(note)
    assert len(got.encode()) == want_bytes
    assert got == note or got.endswith(" ...")


async def test_a_long_pod_name_still_makes_a_valid_event_name(bench: Bench) -> None:
    bench.recorder.record(
        pod_reference(make_pod("a" * 253, uid="u2")),
        Occurrence("Normal", "Scheduled", "Binding", "x", "c" * 200),
        repeats=False,
    )
    await bench.writer.flush(5)
    (event,) = bench.api.events.values()
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["reportingInstance"]) <= 128


def test_a_note_has_no_control_characters() -> None:
    note = truncate_note(HOSTILE + "\x1b" * 2000)
    assert raw_in(note) == []
    assert len(note.encode()) <= 1024
    assert truncate_note("a\nhint: b") == "a\nhint: b"
