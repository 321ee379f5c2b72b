"""A binding takes effect once, and its outcome is known when `bind` returns."""

import math
import random
from collections.abc import AsyncIterator

import pytest
import structlog
from prometheus_client import CollectorRegistry

from engine.core.model.pod import Pod
from engine.io.binding.binder import Binder, BindingRefused, BoundElsewhere, PodIsGone
from engine.io.kube.client import ApiClient
from engine.lib.clock import VirtualClock
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod
from tests.engine.io.binding.scripted_api import Lose, Refuse, ScriptedApi, Step


class Bench:
    """A binder against a scripted API server; waits pass on a virtual clock."""

    def __init__(self, api: ScriptedApi, client: ApiClient) -> None:
        self.api = api
        self.clock = VirtualClock()
        self.waits: list[float] = []
        self.lease_ends_at = math.inf
        self.metrics = Metrics(CollectorRegistry())
        self.binder = Binder(
            client,
            clock=self.clock,
            metrics=self.metrics,
            sleep=self._sleep,
            rng=random.Random(1),
            may_act=lambda: self.clock.monotonic() < self.lease_ends_at,
        )

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)

    def node_of(self, name: str) -> str:
        return str(self.api.pods[name]["spec"].get("nodeName", ""))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with ScriptedApi() as api, api.client() as client:
        api.add_pod("web", "u1")
        yield Bench(api, client)


def web() -> Pod:
    return make_pod("web", uid="u1")


async def test_a_binding_is_one_request_with_the_uid(bench: Bench) -> None:
    await bench.binder.bind(web(), "node-1")
    assert bench.node_of("web") == "node-1"
    (request,) = bench.api.requests
    assert request.path == "/api/v1/namespaces/default/pods/web/binding"
    assert request.body is not None
    assert request.body["metadata"]["uid"] == "u1"
    assert request.body["target"]["name"] == "node-1"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b'{"kind":"Status","metadata":{},"code":201}', id="1.37"),
        pytest.param(b'{"kind":"Status","metadata":{"resourceVersion":"7"},"code":201}', id="1.38"),
        pytest.param(b'{"kind":"Status","metadata":{"resourceVersion":7}}', id="another type"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="no JSON"),
    ],
)
async def test_the_answer_to_a_binding_may_say_anything(bench: Bench, answer: bytes) -> None:
    """That of 1.38 has the version of the bound pod: the watch, which brings the pod, has it, too.

    Source: `BindingREST` of the registry of kube-apiserver 1.38.0-beta.0.
    """
    bench.api.bound = answer
    await bench.binder.bind(web(), "node-1")
    bench.api.add_pod("other", "u2")
    other = make_pod("other", uid="u2")
    await bench.binder.finish(other, "node-1", bench.binder.send(other, "node-1"))
    assert (bench.node_of("web"), bench.node_of("other")) == ("node-1", "node-1")
    assert [request.method for request in bench.api.requests] == ["POST", "POST"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([Lose(after=True)], id="answer lost after it took effect"),
        pytest.param([Lose(after=False)], id="answer lost before it took effect"),
        pytest.param([Refuse(500, "InternalError")], id="500"),
        pytest.param([Refuse(503, "ServiceUnavailable")], id="503"),
        pytest.param([Refuse(504, "Timeout")], id="504"),
        pytest.param([Refuse(429, "TooManyRequests", retry_after="2")], id="429"),
        pytest.param(
            [Lose(after=False), Refuse(500), Refuse(429), Lose(after=True)], id="one after another"
        ),
    ],
)
async def test_the_pod_is_bound_once_whatever_happens_on_the_way(
    bench: Bench, steps: list[Step]
) -> None:
    bench.api.script["bind"] = list(steps)
    await bench.binder.bind(web(), "node-1")
    assert bench.node_of("web") == "node-1"
    assert bench.api.binds_that_took_effect == 1


async def test_a_lost_answer_is_resolved_by_reading_not_by_sending_again(bench: Bench) -> None:
    bench.api.script["bind"] = [Lose(after=True)]
    await bench.binder.bind(web(), "node-1")
    assert bench.api.count("POST", "/binding") == 1
    assert bench.api.count("GET", "/web") == 1


async def test_an_unknown_outcome_is_asked_for_until_it_is_known(bench: Bench) -> None:
    """Giving up would free the node's room under a pod that may be there."""
    bench.api.script["bind"] = [Lose(after=True)]
    bench.api.script["read"] = [Refuse(503)] * 40
    with structlog.testing.capture_logs() as logs:
        await bench.binder.bind(web(), "node-1")
    assert sum(bench.waits) > 60
    assert bench.api.count("POST", "/binding") == 1
    assert [entry["pod"] for entry in logs if entry["log_level"] == "warning"] == ["default/web"]


async def test_a_retry_waits_at_least_as_long_as_the_server_asks(bench: Bench) -> None:
    bench.api.script["bind"] = [Refuse(429, "TooManyRequests", retry_after="7")]
    await bench.binder.bind(web(), "node-1")
    assert bench.waits[0] >= 7


async def test_nothing_is_bound_when_the_lease_may_have_run_out(bench: Bench) -> None:
    bench.lease_ends_at = bench.clock.monotonic()
    with pytest.raises(BindingRefused, match="the lease may have run out") as refused:
        await bench.binder.bind(web(), "node-1")
    assert refused.value.cause == "BindingRefused"
    assert bench.api.requests == []


async def test_a_binding_is_not_begun_when_the_lease_may_have_run_out(bench: Bench) -> None:
    """A leader that was stopped in the middle of a decision sent its binding when it went on."""
    bench.lease_ends_at = bench.clock.monotonic()
    assert bench.binder.send(web(), "node-1") is None
    assert bench.api.requests == []


async def test_a_binding_is_not_sent_again_when_the_lease_may_have_run_out(bench: Bench) -> None:
    """A leader that was stopped in such a wait bound the pod after another one had taken over."""
    bench.lease_ends_at = bench.clock.monotonic() + 5
    bench.api.script["bind"] = [Refuse(429, "TooManyRequests", retry_after="7")]
    with pytest.raises(BindingRefused, match="the lease may have run out"):
        await bench.binder.bind(web(), "node-1")
    assert bench.api.count("POST", "/binding") == 1
    assert bench.node_of("web") == ""


async def test_a_pod_bound_elsewhere_is_not_ours(bench: Bench) -> None:
    bench.api.add_pod("web", "u1", nodeName="node-9")
    with pytest.raises(BoundElsewhere, match="is on node `node-9`, want `node-1`"):
        await bench.binder.bind(web(), "node-1")


async def test_a_pod_found_on_our_node_counts_as_bound(bench: Bench) -> None:
    bench.api.add_pod("web", "u1", nodeName="node-1")
    await bench.binder.bind(web(), "node-1")
    assert bench.node_of("web") == "node-1"
    assert bench.api.binds_that_took_effect == 0


async def test_a_new_pod_of_the_same_name_is_never_bound_by_mistake(bench: Bench) -> None:
    bench.api.add_pod("web", "u2")
    with pytest.raises(PodIsGone, match="want uid `u1`, got `u2`"):
        await bench.binder.bind(web(), "node-1")
    assert bench.node_of("web") == ""


async def test_a_deleted_pod_is_gone(bench: Bench) -> None:
    del bench.api.pods["web"]
    with pytest.raises(PodIsGone, match=r"pod `default/web` is gone") as gone:
        await bench.binder.bind(web(), "node-1")
    assert gone.value.cause == "PodIsGone"


async def test_a_pod_that_is_being_deleted_is_gone(bench: Bench) -> None:
    bench.api.pods["web"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(PodIsGone, match="is being deleted"):
        await bench.binder.bind(web(), "node-1")


@pytest.mark.parametrize(
    ("status", "cause"),
    [(400, "Invalid"), (401, "Unauthorized"), (403, "Forbidden"), (422, "Invalid")],
)
async def test_a_refusal_for_good_is_not_tried_again(bench: Bench, status: int, cause: str) -> None:
    bench.api.script["bind"] = [Refuse(status, message="no way")] * 5
    with pytest.raises(BindingRefused, match="no way") as refused:
        await bench.binder.bind(web(), "node-1")
    assert refused.value.cause == cause
    assert bench.waits == []


async def test_a_conflict_about_an_unbound_pod_is_not_tried_again(bench: Bench) -> None:
    bench.api.script["bind"] = [Refuse(409, "Conflict", message="odd")] * 5
    with pytest.raises(BindingRefused, match="odd") as refused:
        await bench.binder.bind(web(), "node-1")
    assert refused.value.cause == "Conflict"
    assert bench.api.count("POST", "/binding") == 1


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Refuse(500, "InternalError"), id="500"),
        pytest.param(Refuse(503, "ServiceUnavailable"), id="503"),
        pytest.param(Lose(after=False), id="no answer"),
    ],
)
async def test_the_first_retries_come_as_soon_as_kube_schedulers(bench: Bench, step: Step) -> None:
    bench.api.script["bind"] = [step] * 3
    await bench.binder.bind(web(), "node-1")
    for wait, want in zip(bench.waits, (0.01, 0.05, 0.25), strict=True):
        assert want <= wait <= 1.1 * want


async def test_a_server_that_sheds_load_for_long_gets_its_peace(bench: Bench) -> None:
    """Known to be unbound, so the pod may go back to the queue and leave its room to others."""
    bench.api.script["bind"] = [Refuse(429, "TooManyRequests", message="busy")] * 500
    with pytest.raises(BindingRefused, match=r"gave up: .*busy"):
        await bench.binder.bind(web(), "node-1")
    assert 30 <= sum(bench.waits) < 45


async def test_a_server_that_is_away_is_waited_for(bench: Bench) -> None:
    client = bench.api.client()
    await bench.api.__aexit__()
    binder = Binder(client, clock=bench.clock, metrics=bench.metrics, sleep=bench._sleep)
    with pytest.raises(BindingRefused, match="gave up"):
        await binder.bind(web(), "node-1")
    assert len(bench.waits) > 5
    await client.close()
