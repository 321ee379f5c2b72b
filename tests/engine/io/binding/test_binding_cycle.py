"""A binding cycle leaves the pod bound, or everything as it was before."""

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from engine.core.kernel.events import TimePassed
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.placement import Placement, PreBindError, Reserver
from engine.io.binding.binder import Binder
from engine.io.binding.binding_cycle import BindingCycle
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.event_recorder import EventRecorder
from engine.io.binding.outcomes import AttemptOutcomes
from engine.io.binding.pod_status import PodStatusUpdater
from engine.io.binding.waiting import waiting_for_others
from engine.io.kube.client import ApiClient
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.bench import KernelBench, reporting
from tests.engine.io.binding.scripted_api import Hold, Linger, Lose, Refuse, ScriptedApi
from tests.waiting import eventually, idle, one_turn


class Bench(KernelBench):
    """A cache with one node, a queue, and binding cycles against a scripted API server."""

    def __init__(self, api: ScriptedApi, client: ApiClient, **parts: Any) -> None:
        super().__init__()
        self.api = api
        self.cache.add_node(make_node("node-1"))
        self.is_busy = False
        self.writer = DeferredWriter(clock=self.clock, is_busy=lambda: self.is_busy, sleep=one_turn)
        common: dict[str, Any] = {"clock": self.clock, "metrics": self.metrics}
        self.status = PodStatusUpdater(client, self.writer, **common)
        events = EventRecorder(client, self.writer, instance="test", **common)
        self.outcomes = AttemptOutcomes(
            events=events, status=self.status, logs_attempts=True, **common
        )
        self.carriers |= reporting(self.outcomes)
        binder = Binder(client, sleep=self._sleep, rng=random.Random(1), **common)
        self.cycle = BindingCycle(
            reports=self.outcomes,
            report=self.report,
            **{"binder": binder, **common, **parts},
        )

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def place(
        self,
        name: str = "web",
        *,
        pod: Pod | None = None,
        is_known_to_server: bool = True,
        reserves: tuple[tuple[Reserver, Any], ...] = (),
    ) -> QueuedPod:
        """Start the cycle of a popped and assumed pod."""
        pod = pod or make_pod(name, cpu="1")
        if is_known_to_server:
            self.api.add_pod(name, pod.uid)
        self.add(pod)
        queued = self.popped(pod)
        placement = Placement(
            queued,
            self.kernel.attempts.assume(pod, "node-1"),
            "node-1",
            "default-scheduler",
            "rev1",
            self.clock.monotonic(),
            reserves,
        )
        self.queue.done(pod.uid)
        self.cycle.start(placement)
        return queued

    async def settle(self) -> None:
        await eventually(lambda: not self.cycle.in_flight)
        await self.writer.flush(5)
        self.carry_out(self.kernel.take_instructions())
        self.kernel.check_invariants()

    def notes(self, reason: str) -> list[str]:
        return [e["note"] for e in self.api.events.values() if e["reason"] == reason]


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as api:
        yield api


@pytest.fixture
async def client(api: ScriptedApi) -> AsyncIterator[ApiClient]:
    async with api.client() as client:
        yield client


@pytest.fixture
async def make_bench(api: ScriptedApi, client: ApiClient) -> AsyncIterator[Callable[..., Bench]]:
    """Makes benches, whose writers run until the test ends."""
    tasks: list[asyncio.Task[None]] = []

    def make(**parts: Any) -> Bench:
        bench = Bench(api, client, **parts)
        tasks.append(asyncio.ensure_future(bench.writer.run()))
        return bench

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


async def test_a_bound_pod_stays_assumed_until_the_watch_shows_it(bench: Bench) -> None:
    queued = bench.place()
    await bench.settle()
    assert bench.api.pods["web"]["spec"]["nodeName"] == "node-1"
    assert bench.cache.is_assumed(queued.uid)
    assert bench.notes("Scheduled") == ["Successfully assigned default/web to node-1"]
    (event,) = bench.api.events.values()
    assert event["metadata"]["annotations"] == {"starsched.dev/policy-revision": "rev1"}
    assert event["action"] == "Binding"


async def test_a_pod_that_only_the_flush_helped_is_counted_when_it_is_bound(bench: Bench) -> None:
    pod = make_pod("web", cpu="1")
    bench.add(pod)
    bench.queue.requeue(bench.popped(pod), frozenset({"NodeResourcesFit"}))
    bench.clock.advance(300)
    bench.report(TimePassed())
    bench.place(pod=pod)
    bench.place("other")
    await bench.settle()
    value = bench.metrics.registry.get_sample_value
    assert value("scheduler_pod_scheduled_after_flush_total") == 1
    # Of the two, the other was bound at its first attempt.
    at_once = "starsched_first_attempt_duration_seconds_count"
    assert value(at_once, {"priority_class": ""}) == 1


async def test_a_refused_pod_is_forgotten_and_waits_with_the_errors(bench: Bench) -> None:
    bench.api.script["bind"] = [Refuse(403, "Forbidden", "no")]
    queued = bench.place()
    await bench.settle()
    assert bench.cache.get_pod(queued.uid) is None
    assert queued.error_count == 1
    assert bench.queue.counts()["backoff"] == 1
    (note,) = bench.notes("FailedScheduling")
    assert note.startswith("binding rejected: ")
    status = bench.api.pods["web"]["status"]
    assert status["conditions"][0]["reason"] == "SchedulerError"
    value = bench.metrics.registry.get_sample_value
    assert value("starsched_binding_failures_total", {"cause": "Forbidden"}) == 1


async def test_the_log_of_each_attempt_says_why_it_was_made(bench: Bench) -> None:
    bench.api.script["bind"] = [Refuse(403, "Forbidden", "no")]
    with capture_logs() as lines:
        queued = bench.place()
        await bench.settle()
        bench.queue.activate([queued.uid])
        bench.place(pod=queued.pod, is_known_to_server=False)
        await bench.settle()
    answer = [(line["event"], line["tried_because"]) for line in lines if "tried_because" in line]
    assert answer == [("Cannot schedule pod", "new pod"), ("Bound pod", "activated")]


async def test_the_capacity_of_a_failed_binding_wakes_the_pods_that_wait_for_it(
    bench: Bench,
) -> None:
    waiting = make_pod("waiting", cpu="4")
    bench.add(waiting)
    rejected = bench.queue.pop()
    assert rejected is not None
    bench.queue.requeue(rejected, frozenset({"NodeResourcesFit"}))
    assert bench.queue.counts()["unschedulable"] == 1
    bench.api.script["bind"] = [Refuse(422, "Invalid", "no")]
    bench.place()
    await bench.settle()
    assert bench.queue.counts()["unschedulable"] == 0


async def test_a_pod_deleted_while_it_is_bound_leaves_nothing(bench: Bench) -> None:
    queued = bench.place(is_known_to_server=False)
    bench.delete(queued.pod)  # as the watch tells it
    await bench.settle()
    assert bench.cache.get_pod(queued.uid) is None
    assert queued.uid not in bench.queue
    assert bench.api.events == {}


async def test_a_pod_that_the_server_does_not_know_is_tried_again_until_the_watch_agrees(
    bench: Bench,
) -> None:
    """The watch may lag behind the server; nobody is told of a pod that is gone."""
    queued = bench.place(is_known_to_server=False)
    await bench.settle()
    assert queued.uid in bench.queue
    assert bench.api.events == {}
    bench.delete(queued.pod)
    bench.queue.check_invariants()


async def test_a_lost_answer_does_not_free_the_capacity(bench: Bench) -> None:
    bench.api.script["bind"] = [Lose(after=True)]
    queued = bench.place()
    await bench.settle()
    assert bench.cache.is_assumed(queued.uid)
    assert bench.api.binds_that_took_effect == 1


class Holder:
    """A plugin that holds something, and remembers what it was told."""

    name: ClassVar[str] = "Holder"

    def __init__(self, log: list[str], label: str, failure: str = "") -> None:
        self.log = log
        self.label = label
        self.failure = failure

    def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
        self.log.append(f"unreserve {self.label} {state} of {pod.name} on {node_name}")

    async def pre_bind(self, state: object, pod: Pod, node_name: str) -> None:
        self.log.append(f"pre-bind {self.label} {state} of {pod.name} on {node_name}")
        if self.failure:
            raise PreBindError(self.failure)


async def test_reservations_are_made_so_before_the_binding(bench: Bench) -> None:
    log: list[str] = []
    bench.place(reserves=((Holder(log, "a"), 1), (Holder(log, "b"), 2)))
    await bench.settle()
    assert log == ["pre-bind a 1 of web on node-1", "pre-bind b 2 of web on node-1"]
    assert bench.api.count("POST", "/binding") == 1
    # How long that takes is not the scheduler's.
    at_once = "starsched_first_attempt_duration_seconds_count"
    assert bench.metrics.registry.get_sample_value(at_once, {"priority_class": ""}) is None


async def test_reservations_are_let_go_in_reverse_if_one_cannot_be_made_so(bench: Bench) -> None:
    log: list[str] = []
    holders = (Holder(log, "a"), 1), (Holder(log, "b", "no volume came"), 2), (Holder(log, "c"), 3)
    queued = bench.place(reserves=holders)
    await bench.settle()
    assert log == [
        "pre-bind a 1 of web on node-1",
        "pre-bind b 2 of web on node-1",
        "unreserve c 3 of web on node-1",
        "unreserve b 2 of web on node-1",
        "unreserve a 1 of web on node-1",
    ]
    assert bench.cache.get_pod(queued.uid) is None
    assert bench.notes("FailedScheduling") == ['running PreBind plugin "Holder": no volume came']
    assert queued.error_count == 1
    assert bench.api.count("POST", "/binding") == 0


class Found:
    """What a plugin has found for a pod, which may be much."""


@pytest.mark.parametrize("failure", ["", "no volume came"])
async def test_what_a_plugin_found_is_freed_with_the_cycle(bench: Bench, failure: str) -> None:
    """It stayed until the next collection of garbage: hundreds of MB of searches for devices."""
    gc.collect()
    gc.disable()
    try:
        found = Found()
        is_there = weakref.ref(found)
        bench.place(reserves=((Holder([], "a", failure), found),))
        del found
        assert is_there() is not None
        await bench.settle()
        bench.done.clear()
        assert is_there() is None
    finally:
        gc.enable()


async def test_reservations_are_let_go_when_the_binding_fails(bench: Bench) -> None:
    log: list[str] = []
    bench.api.script["bind"] = [Refuse(403)]
    bench.place(reserves=((Holder(log, "a"), 1),))
    await bench.settle()
    assert log == ["pre-bind a 1 of web on node-1", "unreserve a 1 of web on node-1"]


class Lingering(Holder):
    """Sets `has_begun`, then prepares until `go_on` is set."""

    def __init__(self, log: list[str], *, is_stubborn: bool = False) -> None:
        super().__init__(log, "slow")
        self.has_begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.is_stubborn = is_stubborn

    async def pre_bind(self, state: object, pod: Pod, node_name: str) -> None:
        self.has_begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            if not self.is_stubborn:
                raise


class Provisioned(Lingering):
    """Waits for the work of other components."""

    async def pre_bind(self, state: object, pod: Pod, node_name: str) -> None:
        with waiting_for_others():
            await super().pre_bind(state, pod, node_name)


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_pod_that_is_being_prepared_can_be_cancelled(
    bench: Bench, is_stubborn: bool
) -> None:
    """Also if a plugin finishes in spite of it: somebody counts on the room.

    Kube-scheduler says which plugin was at work; ours left that out.
    """
    log: list[str] = []
    plugin = Provisioned(log, is_stubborn=is_stubborn)
    queued = bench.place(reserves=((plugin, 1),))
    assert not bench.cycle.cancel(queued.uid)  # not begun
    await plugin.has_begun.wait()
    assert bench.cycle.cancel(queued.uid)
    await bench.settle()
    assert log == ["unreserve slow 1 of web on node-1"]
    assert bench.cache.get_pod(queued.uid) is None
    assert bench.api.count("POST", "/binding") == 0
    why = 'running PreBind plugin "Holder": preempted by DefaultPreemption'
    assert bench.notes("FailedScheduling") == [why]
    assert queued.error_count == 1
    assert not bench.cycle.cancel(queued.uid)


class Writing(Lingering):
    """Writes, and then waits for the work of other components."""

    async def pre_bind(self, state: object, pod: Pod, node_name: str) -> None:
        await super().pre_bind(state, pod, node_name)
        self.log.append("written")
        with waiting_for_others():
            await asyncio.Event().wait()


@pytest.mark.parametrize("kind", [Lingering, Writing])
async def test_what_a_pod_writes_is_answered_before_it_is_cancelled(
    bench: Bench, kind: type[Lingering]
) -> None:
    """The device of a claim was given to another one while its allocation was being written."""
    log: list[str] = []
    plugin, other = kind(log), Holder(log, "other")
    queued = bench.place(reserves=((plugin, 1), (other, 2)))
    await plugin.has_begun.wait()
    assert bench.cycle.cancel(queued.uid)
    await idle()
    assert not log
    assert bench.cache.is_assumed(queued.uid)
    plugin.go_on.set()
    await bench.settle()
    assert [line for line in log if line != "written"] == [
        "unreserve other 2 of web on node-1",
        "unreserve slow 1 of web on node-1",
    ]
    assert bench.cache.get_pod(queued.uid) is None
    why = 'running PreBind plugin "Holder": preempted by DefaultPreemption'
    assert bench.notes("FailedScheduling") == [why]


async def test_a_pod_that_is_being_prepared_names_its_node(bench: Bench) -> None:
    """As kube-scheduler's do, so that nobody takes the node for unused meanwhile."""
    plugin = Provisioned([])
    queued = bench.place(reserves=((plugin, 1),))
    await plugin.has_begun.wait()
    await bench.writer.flush(5)
    assert bench.api.pods["web"]["status"]["nominatedNodeName"] == "node-1"
    assert bench.queue.nominator.node_of(queued.uid) is None, "it counts there once, as assumed"
    assert bench.cycle.cancel(queued.uid)
    await bench.settle()
    assert not bench.api.pods["web"]["status"].get("nominatedNodeName")


async def test_the_node_of_a_pod_that_was_prepared_is_named_before_the_binding(
    bench: Bench,
) -> None:
    """The API server clears it with the binding: coming after that, it would stay."""
    held = Hold()
    bench.api.script["status"] = [held]
    plugin = Provisioned([])
    bench.place(reserves=((plugin, 1),))
    await eventually(lambda: bench.api.count("PATCH", "/status"))
    plugin.go_on.set()
    await idle()
    assert bench.api.count("POST", "/binding") == 0
    held.until.set()
    await bench.settle()
    assert bench.api.pods["web"]["spec"]["nodeName"] == "node-1"


async def test_no_word_about_a_pod_arrives_after_its_binding(bench: Bench) -> None:
    """The condition of a pod that waited for leave stayed False when it arrived too late."""
    late = Linger()
    bench.api.script["status"] = [late, Refuse(503)]
    pod = make_pod("web", cpu="1")
    bench.api.add_pod("web", pod.uid)
    bench.status.report(pod, reason="WaitingOnPermit", message="waiting for its group")
    await eventually(lambda: bench.api.count("PATCH", "/status"))
    bench.status.report(pod, reason="WaitingOnPermit", message="waiting still")
    bench.place(pod=pod)
    await idle()
    assert bench.api.count("POST", "/binding") == 0
    late.until.set()
    await bench.settle()
    assert bench.api.pods["web"]["spec"]["nodeName"] == "node-1"
    assert bench.api.count("PATCH", "/status") == 1, "what was not sent is left unsaid"


async def test_words_that_wait_for_their_turn_are_left_unsaid_by_a_binding(bench: Bench) -> None:
    bench.is_busy = True
    pod = make_pod("web", cpu="1")
    bench.status.report(pod, reason="Unschedulable", message="no room")
    held = Hold()
    bench.api.script["bind"] = [held]
    bench.place(pod=pod)
    await eventually(lambda: bench.api.count("POST", "/binding"))
    bench.is_busy = False
    await idle()
    held.until.set()
    await bench.settle()
    assert bench.api.count("PATCH", "/status") == 0


async def test_a_pod_whose_binding_is_sent_cannot_be_cancelled(bench: Bench) -> None:
    held = Hold()
    bench.api.script["bind"] = [held]
    queued = bench.place(reserves=((Holder([], "a"), 1),))
    await eventually(lambda: bench.api.count("POST", "/binding"))
    assert not bench.cycle.cancel(queued.uid)
    held.until.set()
    await bench.settle()
    assert bench.api.pods["web"]["spec"]["nodeName"] == "node-1"


async def test_draining_gives_up_a_pod_that_is_being_prepared(bench: Bench) -> None:
    log: list[str] = []
    plugin = Lingering(log)
    bench.place(reserves=((plugin, 1),))
    await plugin.has_begun.wait()
    assert await bench.cycle.drain(0.01) == 1
    assert log == []  # what was written already may be in use
    assert bench.cache.assumed_count == 0


async def test_giving_up_a_binding_that_was_sent_leaves_what_was_made_for_the_pod(
    bench: Bench,
) -> None:
    """A leader that lost its lease took the devices of a pod back whose binding arrived."""
    held = Hold()
    bench.api.script["bind"] = [held]
    log: list[str] = []
    queued = bench.place(reserves=((Holder(log, "a"), 1),))
    await eventually(lambda: bench.api.count("POST", "/binding"))
    assert await bench.cycle.drain(0.01) == 1
    held.until.set()
    assert not [line for line in log if line.startswith("unreserve")]
    assert bench.cache.get_pod(queued.uid) is None


async def test_what_a_plugin_does_during_decisions_may_fail(bench: Bench) -> None:
    done: list[str] = []

    async def works() -> None:
        done.append("works")

    async def fails() -> None:
        raise RuntimeError("no")

    pod = make_pod("web")
    bench.cycle.run(fails, pod)
    bench.cycle.run(works, pod)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["works"]


class Broken:
    """A binder with a fault of its own."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        raise KeyError("oops")


async def test_a_fault_of_ours_costs_the_pod_one_attempt(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(binder=Broken())
    queued = bench.place()
    await bench.settle()
    assert bench.cache.get_pod(queued.uid) is None
    assert bench.queue.counts()["backoff"] == 1
    name = "starsched_loop_errors_total"
    assert bench.metrics.registry.get_sample_value(name, {"step": "binding"}) == 1


class Slow:
    """A binder that waits to be let go, and counts how many wait at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waiting = 0

    async def bind(self, pod: Pod, node_name: str) -> None:
        self.waiting += 1
        await self.go.wait()


async def test_no_more_cycles_run_than_the_limit(make_bench: Callable[..., Bench]) -> None:
    slow = Slow()
    bench = make_bench(binder=slow, limit=3)
    for i in range(3):
        assert bench.cycle.has_capacity
        bench.place(f"web-{i}")
    assert not bench.cycle.has_capacity
    waiting = asyncio.ensure_future(bench.cycle.wait_for_capacity())
    await idle()
    assert not waiting.done()
    slow.go.set()
    await waiting
    await bench.settle()
    assert slow.waiting == 3


async def test_a_cycle_that_waits_for_others_keeps_no_other_from_starting(
    make_bench: Callable[..., Bench],
) -> None:
    """Volumes can take minutes to be made: as many as bindings are in flight would stop it all."""
    patient, slow = Provisioned([]), Slow()
    bench = make_bench(binder=slow, limit=2)
    for i in range(5):
        bench.place(f"waits-{i}", reserves=((patient, None),))
        await asyncio.wait_for(bench.cycle.wait_for_capacity(), 5)
        await eventually(lambda: not bench.cycle.at_work, what="the cycle to wait for others")
    assert bench.cycle.in_flight == 5
    bench.place("one")
    assert bench.cycle.has_capacity
    bench.place("two")
    assert not bench.cycle.has_capacity
    patient.go_on.set()
    await idle()
    assert bench.cycle.at_work == 7
    assert not bench.cycle.has_capacity
    slow.go.set()
    await bench.settle()
    assert bench.cycle.has_capacity
    assert bench.cycle.at_work == 0


async def test_a_cycle_that_is_given_up_waits_no_longer(bench: Bench) -> None:
    patient = Provisioned([])
    bench.place(reserves=((patient, None),))
    await patient.has_begun.wait()
    assert await bench.cycle.drain(0.01) == 1
    await asyncio.sleep(0)
    assert (bench.cycle.in_flight, bench.cycle.at_work) == (0, 0)


async def test_draining_does_not_wait_for_the_work_of_others(bench: Bench) -> None:
    """A stop took all of its ten seconds while one pod waited for a volume, and kept the lease."""
    patient = Provisioned([])
    bench.place(reserves=((patient, None),))
    await patient.has_begun.wait()
    bench.place("other")
    async with asyncio.timeout(20):
        assert await bench.cycle.drain(10) == 1
    assert bench.api.pods["other"]["spec"]["nodeName"] == "node-1"


async def test_draining_gives_up_after_its_time(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(binder=Slow())
    bench.place()
    await asyncio.sleep(0)
    assert await bench.cycle.drain(0.05) == 1
    assert bench.cycle.in_flight == 0
