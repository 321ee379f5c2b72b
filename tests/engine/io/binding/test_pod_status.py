"""The PodScheduled condition is written when it changes, and only then."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from engine.core.model.pod import Pod
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.pod_status import PodStatusUpdater
from engine.io.kube.client import ApiClient
from engine.lib.clock import VirtualClock
from engine.lib.printable import LONGEST_MESSAGE
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod
from tests.engine.io.binding.scripted_api import Refuse, ScriptedApi
from tests.engine.lib.hostile import HOSTILE, raw_in
from tests.waiting import one_turn


class Bench:
    def __init__(self, api: ScriptedApi, client: ApiClient) -> None:
        self.api = api
        self.clock = VirtualClock()
        self.metrics = Metrics(CollectorRegistry())
        self.is_busy = False
        self.writer = DeferredWriter(clock=self.clock, is_busy=lambda: self.is_busy, sleep=one_turn)
        self.status = PodStatusUpdater(
            client, self.writer, clock=self.clock, metrics=self.metrics, sleep=self._sleep
        )

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @property
    def patches(self) -> list[dict[str, Any]]:
        return [r.body or {} for r in self.api.requests if r.method == "PATCH"]

    async def report(self, pod: Pod, message: str = "no room", **words: Any) -> None:
        self.status.report(pod, reason="Unschedulable", message=message, **words)
        assert await self.writer.flush(5) == 0


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with ScriptedApi() as api, api.client() as client:
        bench = Bench(api, client)
        api.add_pod("web", "u1")
        task = asyncio.ensure_future(bench.writer.run())
        yield bench
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def web(**words: Any) -> Pod:
    return make_pod("web", uid="u1", **words)


def condition(reason: str, message: str) -> dict[str, Any]:
    answer = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"conditions": [answer]}


async def test_the_condition_is_a_strategic_patch_with_the_uid(bench: Bench) -> None:
    await bench.report(web())
    (patch,) = bench.patches
    assert patch["metadata"] == {"uid": "u1"}
    (answer,) = patch["status"]["conditions"]
    assert answer["type"] == "PodScheduled"
    assert answer["status"] == "False"
    assert answer["reason"] == "Unschedulable"
    assert answer["message"] == "no room"
    assert answer["lastTransitionTime"] == "2023-11-14T22:13:20Z"


async def test_the_same_words_are_not_written_twice(bench: Bench) -> None:
    await bench.report(web())
    await bench.report(web())
    assert len(bench.patches) == 1
    await bench.report(web(), "still no room")
    assert len(bench.patches) == 2


async def test_what_the_status_shows_already_is_not_written(bench: Bench) -> None:
    """After a restart nothing is remembered; the pod itself tells."""
    await bench.report(web(status=condition("Unschedulable", "no room")))
    assert bench.patches == []


async def test_a_change_of_words_is_no_transition(bench: Bench) -> None:
    await bench.report(web(status=condition("Unschedulable", "other words")))
    (patch,) = bench.patches
    assert "lastTransitionTime" not in patch["status"]["conditions"][0]


async def test_a_long_message_is_not_cut(bench: Bench) -> None:
    await bench.report(web(), "x" * 5000)
    assert len(bench.patches[0]["status"]["conditions"][0]["message"]) == 5000


async def test_the_nomination_is_set_and_cleared(bench: Bench) -> None:
    await bench.report(web(), nominated_node="node-1")
    assert bench.patches[0]["status"]["nominatedNodeName"] == "node-1"
    await bench.report(web(nominated="node-1"), nominated_node="")
    assert bench.patches[1]["status"]["nominatedNodeName"] is None


async def test_a_nomination_alone_leaves_the_condition(bench: Bench) -> None:
    bench.status.nominate(web(nominated="node-1"), "")
    assert await bench.writer.flush(5) == 0
    assert bench.patches == [{"metadata": {"uid": "u1"}, "status": {"nominatedNodeName": None}}]


async def test_a_nomination_that_the_pod_has_is_not_written(bench: Bench) -> None:
    bench.status.nominate(web(nominated="node-1"), "node-1")
    bench.status.nominate(web(), "")
    assert await bench.writer.flush(5) == 0
    assert bench.patches == []


async def test_a_nomination_that_another_client_wrote_is_cleared(bench: Bench) -> None:
    """What this process last wrote says nothing of a nomination that it left alone."""
    await bench.report(web())
    await bench.report(web(nominated="node-1"), nominated_node="")
    assert bench.patches[1]["status"]["nominatedNodeName"] is None


async def test_news_of_the_nomination_and_of_the_condition_join(bench: Bench) -> None:
    bench.status.report(web(), reason="Unschedulable", message="no room", nominated_node="node-1")
    bench.status.nominate(web(), "node-2")
    bench.status.report(web(), reason="Unschedulable", message="still no room")
    await bench.writer.flush(5)
    (patch,) = bench.patches
    assert patch["status"]["nominatedNodeName"] == "node-2"
    assert patch["status"]["conditions"][0]["message"] == "still no room"
    # All of it is on record: nothing of it is written again.
    await bench.report(web(), "still no room", nominated_node="node-2")
    assert len(bench.patches) == 1


@pytest.mark.parametrize(
    "overwritten",
    [
        pytest.param({"nominated": "node-2"}, id="another node"),
        pytest.param({"status": condition("Other", "no room")}, id="another condition"),
        pytest.param({"status": {"conditions": []}}, id="nothing"),
    ],
)
async def test_what_others_overwrote_is_written_again(
    bench: Bench, overwritten: dict[str, Any]
) -> None:
    """Preemption evicted for a pod whose nomination was not on record any more."""
    await bench.report(web(), nominated_node="node-1")
    shown = web(nominated="node-1", status=condition("Unschedulable", "no room"))
    bench.status.seen(web(), shown)
    await bench.report(shown, nominated_node="node-1")
    assert len(bench.patches) == 1
    other = web(**{"nominated": "node-1", **overwritten})
    bench.status.seen(shown, other)
    await bench.report(other, nominated_node="node-1")
    assert len(bench.patches) == 2


async def test_a_version_from_before_the_words_does_not_bring_them_again(bench: Bench) -> None:
    await bench.report(web(), nominated_node="node-1")
    labelled = web(labels={"a": "b"})
    bench.status.seen(web(), labelled)
    await bench.report(labelled, nominated_node="node-1")
    assert len(bench.patches) == 1


async def test_what_must_be_on_record_first_does_not_wait_for_its_turn(bench: Bench) -> None:
    bench.is_busy = True
    bench.status.report(web(), reason="Unschedulable", message="no room", nominated_node="node-1")
    await bench.status.flush("u1")
    assert bench.patches[0]["status"]["nominatedNodeName"] == "node-1"
    await bench.status.flush("u1")
    await bench.status.flush("unknown")
    assert await bench.writer.flush(5) == 0
    assert len(bench.patches) == 1


async def test_a_binding_supersedes_a_patch_that_waits(bench: Bench) -> None:
    bench.status.report(web(), reason="Unschedulable", message="no room")
    bench.status.forget("u1")
    await bench.writer.flush(5)
    assert bench.patches == []


async def test_newer_words_replace_those_that_wait(bench: Bench) -> None:
    bench.status.report(web(), reason="Unschedulable", message="old")
    bench.status.report(web(), reason="Unschedulable", message="new")
    await bench.writer.flush(5)
    (patch,) = bench.patches
    assert patch["status"]["conditions"][0]["message"] == "new"


@pytest.mark.parametrize(
    ("steps", "result"),
    [
        pytest.param([Refuse(500), Refuse(429)], "written", id="errors that pass"),
        pytest.param([Refuse(409, "Conflict")], "written", id="changed meanwhile"),
        pytest.param([Refuse(409, "Conflict")] * 9, "failed", id="changed again and again"),
        pytest.param([Refuse(404, "NotFound")], "gone", id="deleted"),
        pytest.param([Refuse(403, "Forbidden")], "failed", id="forbidden"),
    ],
)
async def test_errors_end_as_they_should(bench: Bench, steps: list[Any], result: str) -> None:
    bench.api.script["status"] = steps
    await bench.report(web())
    name = "starsched_pod_status_patches_total"
    assert bench.metrics.registry.get_sample_value(name, {"result": result}) == 1


async def test_another_pod_of_that_name_is_left_alone(bench: Bench) -> None:
    bench.api.add_pod("web", "u2")
    await bench.report(web())
    assert "status" not in bench.api.pods["web"]
    name = "starsched_pod_status_patches_total"
    assert bench.metrics.registry.get_sample_value(name, {"result": "gone"}) == 1


# --- a server that is away for longer ----------------------------------------------------------


def shown(bench: Bench) -> list[str]:
    """The messages of the pod's conditions, as the server has them."""
    conditions = bench.api.pods["web"].get("status", {}).get("conditions", [])
    return [answer["message"] for answer in conditions]


async def later(bench: Bench, seconds: float) -> None:
    """Let time go by, as the scheduler does: it looks once a second."""
    for _ in range(round(seconds)):
        bench.clock.advance(1)
        bench.status.retry()
        assert await bench.writer.flush(5) == 0


async def test_what_no_server_accepted_is_written_when_there_is_one(bench: Bench) -> None:
    """The pod may not be tried again for five minutes: no autoscaler saw it until then."""
    bench.api.script["status"] = [Refuse(503)] * 6
    await bench.report(web())
    assert shown(bench) == []
    await later(bench, 40)
    assert shown(bench) == ["no room"]
    assert len(bench.patches) == 7
    await later(bench, 60)
    assert len(bench.patches) == 7


async def test_it_is_tried_less_and_less(bench: Bench) -> None:
    bench.api.script["status"] = [Refuse(503)] * 1000
    await bench.report(web())
    await later(bench, 600)
    assert 20 <= len(bench.patches) <= 26
    assert metric(bench, "failed") == len(bench.patches) - 3  # the first four count as one


async def test_the_newest_message_is_written_in_the_end(bench: Bench) -> None:
    bench.api.script["status"] = [Refuse(503)] * 5
    await bench.report(web(), "old", nominated_node="node-1")
    await bench.report(web(), "new")
    await later(bench, 15)
    assert shown(bench) == ["new"]
    assert bench.api.pods["web"]["status"]["nominatedNodeName"] == "node-1"


@pytest.mark.parametrize("how", ["bound or deleted", "about to be bound"])
async def test_a_pod_that_does_not_wait_any_more_is_left_alone(bench: Bench, how: str) -> None:
    bench.api.script["status"] = [Refuse(503)] * 4
    await bench.report(web())
    if how == "about to be bound":
        assert bench.status.withdraw("u1")
    else:
        bench.status.forget("u1")
    await later(bench, 60)
    assert len(bench.patches) == 4
    assert metric(bench, "superseded") == 1


async def test_what_must_be_on_record_first_is_not_waited_for_for_ever(bench: Bench) -> None:
    bench.api.script["status"] = [Refuse(503)] * 4
    bench.status.nominate(web(), "node-1")
    await asyncio.wait_for(bench.status.flush("u1"), 5)
    await later(bench, 10)
    assert bench.api.pods["web"]["status"]["nominatedNodeName"] == "node-1"


async def test_a_message_that_did_not_fit_the_queue_is_written_later(bench: Bench) -> None:
    while bench.writer.submit(lambda: asyncio.sleep(0), urgent=True):
        pass
    bench.status.report(web(), reason="Unschedulable", message="no room")
    assert metric(bench, "failed") == 1
    assert await bench.writer.flush(60) == 0
    await later(bench, 10)
    assert shown(bench) == ["no room"]


def metric(bench: Bench, result: str) -> float:
    name = "starsched_pod_status_patches_total"
    return bench.metrics.registry.get_sample_value(name, {"result": result}) or 0.0


async def test_a_condition_has_no_control_characters_and_an_end(bench: Bench) -> None:
    """A reason went into the condition as raw bytes, and one of 100,000 characters whole."""
    await bench.report(web(), HOSTILE + "w" * 100_000)
    (patch,) = bench.patches
    (written,) = patch["status"]["conditions"]
    assert raw_in(written["message"]) == []
    assert written["message"].startswith("a\\x1b]0;owned")
    assert len(written["message"]) <= LONGEST_MESSAGE
    # What is compared with what the server shows is the same text.
    await bench.report(web(), HOSTILE + "w" * 100_000)
    assert len(bench.patches) == 1
