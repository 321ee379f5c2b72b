"""One leads, the others stand by; a leader that cannot renew stops acting before its time is up."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devkit.cluster import DevCluster
from engine.io import leader_election
from engine.io.binding.event_recorder import Reference
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import ConnectionLost, TimedOut
from engine.io.kube.resources import LEASES
from engine.io.leader_election import HolderPage, LeaderElector, LeadershipLost, LeaseSettings
from engine.lib.clock import VirtualClock
from tests.builders import make_pod, node_manifest, pod_manifest
from tests.controlplane import ControlPlane
from tests.engine.app.harness import condition, scheduler
from tests.engine.io.kube.faulty_server import FaultyServer, answer
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")


class Bench:
    """Electors over one embedded API server, all on one virtual clock."""

    def __init__(self, cluster: DevCluster, client: ApiClient, clock: VirtualClock) -> None:
        self.cluster = cluster
        self.client = client
        self.clock = clock
        self.reported: list[str] = []
        self.about: list[Reference] = []
        self.slept: list[float] = []

    def elector(self, identity: str, page: str = "", **times: float) -> LeaderElector:
        return LeaderElector(
            self.client,
            LeaseSettings("starsched", "kube-system", **times),
            identity=identity,
            clock=self.clock,
            on_transition=self._report,
            page=lambda: HolderPage(page, "of " + page if page else ""),
            sleep=self.sleep,
            rng=random.Random(1),
        )

    def _report(self, about: Reference, note: str) -> None:
        self.about.append(about)
        self.reported.append(note)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    def requests(self, verb: str) -> int:
        """How many requests with *verb* there were for leases."""
        return self.cluster.requests[verb, "leases.coordination.k8s.io"]

    @property
    def lease(self) -> dict[str, object]:
        found = self.cluster.get("leases.coordination.k8s.io", "starsched", "kube-system")
        assert found is not None
        spec: dict[str, object] = found["spec"]
        return spec


async def started(cluster: DevCluster) -> str:
    await cluster.start()
    return cluster.url


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = VirtualClock()
    clock.advance(1000.0)  # the machine has been up for a while: no time counts from zero
    cluster = DevCluster(clock=clock)
    async with cluster, ApiClient(Endpoint(server=await started(cluster))) as client:
        yield Bench(cluster, client, clock)


async def test_the_first_to_come_leads(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    assert first.is_leading
    assert first.may_act
    assert bench.lease["holderIdentity"] == "one"
    assert bench.lease["leaseDurationSeconds"] == 15
    assert bench.lease["leaseTransitions"] == 0
    assert bench.reported == ["one became leader"]
    found = bench.cluster.get("leases.coordination.k8s.io", "starsched", "kube-system")
    assert found is not None
    assert first.version == found["metadata"]["resourceVersion"]
    assert bench.about == [
        Reference(
            "coordination.k8s.io/v1", "Lease", "kube-system", "starsched", found["metadata"]["uid"]
        )
    ]


async def test_a_standby_waits_until_the_lease_has_not_moved_for_its_duration(
    bench: Bench,
) -> None:
    await bench.elector("one").acquire()
    second = bench.elector("two")
    started = bench.clock.monotonic()
    await second.acquire()
    # Counted from when the standby first saw the lease, whatever the leader's clock said.
    assert bench.clock.monotonic() - started >= 15
    assert bench.lease["holderIdentity"] == "two"
    assert bench.lease["leaseTransitions"] == 1


async def test_a_released_lease_is_taken_at_the_next_try(bench: Bench) -> None:
    first, second = bench.elector("one"), bench.elector("two")
    await first.acquire()
    await first.release()
    assert bench.lease["holderIdentity"] == ""
    assert bench.lease["leaseDurationSeconds"] == 1  # the least that the API server takes
    assert not first.may_act
    started = bench.clock.monotonic()
    await second.acquire()
    assert bench.clock.monotonic() - started < 3
    assert bench.reported == ["one became leader", "one stopped leading", "two became leader"]


async def test_a_lease_is_released_although_a_renewal_was_broken_off(bench: Bench) -> None:
    """SIGTERM in the middle of a renewal left the lease to expire, seconds without a scheduler."""
    leader = bench.elector("one")
    await leader.acquire()
    bench.clock.advance(2)
    await bench.elector("one").acquire()  # arrived, and its answer was not waited for
    await leader.release()
    assert bench.lease["holderIdentity"] == ""


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_a_lease_is_released_although_acquiring_it_was_broken_off(
    bench: Bench, verb: str
) -> None:
    """SIGTERM while the first request was on its way left a lease that nobody knew he had."""
    if verb == "update":
        other = bench.elector("other")
        await other.acquire()
        await other.release()
    hung = bench.cluster.faults.hang(applied=True, verb=verb, resource="leases*")
    one = bench.elector("one")
    acquiring = asyncio.ensure_future(one.acquire())
    await hung.wait_hit()
    acquiring.cancel()
    await asyncio.gather(acquiring, return_exceptions=True)
    asyncio.get_running_loop().call_soon(hung.release)
    await one.release()
    assert bench.lease["holderIdentity"] == ""
    assert not one.is_leading


async def test_a_lease_that_another_replica_took_is_not_released(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    bench.clock.advance(60)
    await bench.elector("two").acquire()
    await first.release()
    assert bench.lease["holderIdentity"] == "two"


async def test_renewing_keeps_the_acquire_time_and_the_transitions(bench: Bench) -> None:
    """One request renews the lease, also that of a leader that took it from another one."""
    first, second = bench.elector("one"), bench.elector("two")
    await first.acquire()
    await first.release()
    await second.acquire()
    before, read = dict(bench.lease), bench.requests("get")
    assert before["leaseTransitions"] == 1
    keeping = asyncio.ensure_future(second.keep())
    await eventually(lambda: bench.lease["renewTime"] != before["renewTime"])
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert bench.lease["acquireTime"] == before["acquireTime"]
    assert bench.lease["leaseTransitions"] == 1
    assert bench.requests("get") == read


async def test_labels_that_others_gave_the_lease_stay(bench: Bench) -> None:
    """Every renewal took them away again, and a GitOps controller put them back."""
    first = bench.elector("one")
    await first.acquire()
    given = {"labels": {"team": "x"}, "annotations": {"note": "y"}, "finalizers": ["example.com/z"]}
    patch = json.dumps({"metadata": given}).encode()
    await bench.client.patch(LEASES, "starsched", patch, "kube-system", content_type=MERGE_PATCH)
    await first.release()
    await bench.elector("two").acquire()
    raw = await bench.client.get(LEASES, "starsched", "kube-system")
    got = json.loads(raw)["metadata"]
    assert {key: got.get(key) for key in given} == given
    assert bench.lease["holderIdentity"] == "two"


async def test_a_leader_cut_off_gives_up_before_a_standby_may_take_over(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    started = bench.clock.monotonic()
    bench.cluster.faults.fail(503, resource="leases*", times=None)
    with pytest.raises(LeadershipLost, match="not renewed for"):
        await first.keep()
    assert 10 <= bench.clock.monotonic() - started < 15
    assert not first.may_act


@pytest.mark.parametrize(
    ("refused", "most"),
    [
        pytest.param(0, 10.0, id="from the first renewal on"),
        # The last try may begin just before the deadline; no request is given less than a second.
        pytest.param(3, 11.0, id="after some renewals that fail at once"),
    ],
)
async def test_a_leader_whose_requests_hang_knows_at_its_deadline_that_it_leads_no_more(
    bench: Bench, refused: int, most: float
) -> None:
    """It sat out the time-outs of a renewal and of the read after it: 18 s, and told nobody."""
    client = _Hanging(
        Endpoint(server=bench.cluster.url), bench.clock, passes=2, refused=2 * refused
    )
    async with client:
        settings = LeaseSettings(name="starsched", namespace="kube-system")
        first = LeaderElector(
            client, settings, identity="one", clock=bench.clock, sleep=bench.sleep
        )
        await first.acquire()
        started = bench.clock.monotonic()
        with pytest.raises(LeadershipLost, match="not renewed for"):
            await first.keep()
        assert 10 <= bench.clock.monotonic() - started <= most


class _Hanging(ApiClient):
    """Lets requests pass, then refuses some, then hangs for as long as each is waited for."""

    def __init__(self, endpoint: Endpoint, clock: VirtualClock, passes: int, refused: int) -> None:
        super().__init__(endpoint)
        self._virtual, self._passes, self._refused = clock, passes, refused

    def _next(self, timeout: float | None) -> None:
        if self._passes:
            self._passes -= 1
            return
        if not self._refused:
            assert timeout is not None
            self._virtual.advance(timeout)
            raise TimedOut("no answer")
        self._refused -= 1
        raise ConnectionLost("refused", sent=False)

    async def get(self, *args: Any, **words: Any) -> bytes:
        self._next(words["timeout"])
        return await super().get(*args, **words)

    async def create(self, *args: Any, **words: Any) -> bytes:
        self._next(words["timeout"])
        return await super().create(*args, **words)

    async def update(self, *args: Any, **words: Any) -> bytes:
        self._next(words["timeout"])
        return await super().update(*args, **words)


async def test_a_process_that_slept_through_its_deadline_may_not_act(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    bench.clock.advance(10.1)
    assert first.is_leading  # nobody told it yet
    assert not first.may_act
    assert first.check() is None
    bench.clock.advance(30)
    assert first.check() == "failed election to renew leadership on lease starsched"


async def test_a_leader_whose_lease_was_taken_stops_at_once(bench: Bench) -> None:
    first, second = bench.elector("one"), bench.elector("two")
    await first.acquire()
    bench.clock.advance(60)
    await second.acquire()
    with pytest.raises(LeadershipLost, match="`two` holds it"):
        await first.keep()


async def test_a_short_outage_changes_nothing(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    bench.cluster.faults.fail(500, resource="leases*", verb="update", times=2)
    bench.cluster.faults.drop(resource="leases*", verb="update", applied=True, times=1)
    keeping = asyncio.ensure_future(first.keep())
    tried = bench.cluster.requests["update", "leases.coordination.k8s.io"]
    await eventually(
        lambda: (
            bench.cluster.requests["update", "leases.coordination.k8s.io"] >= tried + 20
            or keeping.done()
        )
    )
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert first.may_act


async def test_a_failed_renewal_is_no_lost_lease_before_the_deadline(bench: Bench) -> None:
    """Only the time since the last renewal counts, and a failed one is tried again within it."""
    first = bench.elector("one")
    await first.acquire()
    renewed = bench.clock.monotonic()
    bench.cluster.faults.fail(500, resource="leases*", times=1000)
    with pytest.raises(LeadershipLost, match=r"not renewed for 10\.0s"):
        await first.keep()
    assert bench.clock.monotonic() - renewed == pytest.approx(10.0)
    assert not first.is_leading


async def test_the_health_check_counts_from_the_last_renewal(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    bench.clock.advance(15 + 20)
    assert first.check() is None
    bench.clock.advance(0.1)
    assert first.check() == "failed election to renew leadership on lease starsched"


async def test_a_deleted_lease_is_made_again(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    bench.cluster.delete("leases.coordination.k8s.io", "starsched", "kube-system")
    keeping = asyncio.ensure_future(first.keep())
    while not bench.cluster.get("leases.coordination.k8s.io", "starsched", "kube-system"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert bench.lease["holderIdentity"] == "one"


async def test_standbys_try_again_after_a_pause_that_differs_a_little(bench: Bench) -> None:
    """All replicas of a deployment start together, and must not ask together for ever."""
    await bench.elector("one").acquire()
    await bench.elector("two").acquire()
    assert len(set(bench.slept)) == len(bench.slept) > 5
    assert all(2.0 <= pause <= 2.4 for pause in bench.slept)
    assert max(bench.slept) > 2.2 > min(bench.slept)


@pytest.mark.parametrize(
    ("holder", "seconds", "later", "takes"),
    [
        pytest.param("other", 15, 14.9, False, id="held"),
        pytest.param("other", 15, 15.0, True, id="run out just now"),
        pytest.param("other", None, 0.0, True, id="held for no time"),
        pytest.param("", 15, 0.0, True, id="given back"),
        pytest.param("one", 15, 0.0, True, id="our own"),
    ],
)
async def test_a_lease_is_held_for_its_duration_and_no_longer(
    bench: Bench, holder: str, seconds: int | None, later: float, takes: bool
) -> None:
    since = "2026-01-01T00:00:00.000000Z"
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "leaseTransitions": 3,
        "acquireTime": since,
    }
    lease = {"metadata": {"name": "starsched"}, "spec": spec}
    await bench.client.create(LEASES, json.dumps(lease).encode(), "kube-system")
    one = bench.elector("one")
    await one._read()
    bench.clock.advance(later)
    assert one.leader == ("" if takes and holder != "one" else holder)
    assert await one._try() is one.is_leading is takes
    assert bench.lease["holderIdentity"] == ("one" if takes else "other")
    is_another = takes and holder != "one"
    assert bench.lease["leaseTransitions"] == 3 + is_another
    assert (bench.lease["acquireTime"] != since) is is_another


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, 1), (1.0, 1), (14.6, 15)])
async def test_a_lease_shows_its_duration_in_whole_seconds(
    bench: Bench, seconds: float, shown: int
) -> None:
    one = bench.elector("one", lease_duration=seconds, renew_deadline=0.3, retry_period=0.1)
    await one.acquire()
    assert bench.lease["leaseDurationSeconds"] == shown


async def test_a_leader_may_act_until_its_deadline_and_not_at_it(bench: Bench) -> None:
    first = bench.elector("one")
    await first.acquire()
    bench.clock.advance(9.9)
    assert first.may_act
    bench.clock.advance(10.0 - 9.9)
    assert not first.may_act


@pytest.mark.parametrize(
    ("retry", "failing", "is_lost"),
    [
        pytest.param(3.0, 2, False, id="a second before the deadline"),
        pytest.param(2.0, 4, True, id="at the deadline"),
    ],
)
async def test_a_renewal_is_tried_again_before_the_deadline_and_not_at_it(
    bench: Bench, retry: float, failing: int, is_lost: bool
) -> None:
    """At the deadline another replica may be about to lead, whatever a request would say."""
    first = bench.elector("one", retry_period=retry)
    await first.acquire()
    renewed = bench.requests("update")
    bench.cluster.faults.fail(500, resource="leases*", times=2 * failing)  # a write and a read each
    keeping = asyncio.ensure_future(first.keep())
    await eventually(lambda: keeping.done() or bench.requests("update") > renewed + failing)
    assert keeping.done() is is_lost
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_a_try_that_has_no_end_is_broken_off_by_the_end_of_the_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could take the lease when nothing is left that would give it back."""
    monkeypatch.setattr(leader_election, "_PATIENCE_SECONDS", 0.01)
    hung = bench.cluster.faults.hang(verb="create", resource="leases*")
    one = bench.elector("one")
    acquiring = asyncio.ensure_future(one.acquire())
    await hung.wait_hit()
    acquiring.cancel()
    await asyncio.gather(acquiring, return_exceptions=True)
    await one.release()
    assert one._acquiring is not None
    assert one._acquiring.cancelled()
    assert bench.reported == []


async def test_a_lease_that_has_run_out_makes_no_leader(bench: Bench) -> None:
    """A standby named the last leader as the one that leads, long after it had gone."""
    first, second = bench.elector("one"), bench.elector("two")
    assert second.leader == ""
    await first.acquire()
    assert not await second._try()
    assert second.leader == "one"
    bench.clock.advance(14.0)
    assert second.leader == "one"
    bench.clock.advance(2.0)
    assert second.leader == ""
    assert second.holder == "one"  # as last seen


async def test_the_lease_says_where_the_page_of_its_holder_is(bench: Bench) -> None:
    first, second = bench.elector("one", "https://10.0.0.1:10259/"), bench.elector("two")
    await first.acquire()
    assert not await second._try()
    assert second.holder == "one"
    assert second.holder_page == "https://10.0.0.1:10259/"
    cluster, name = bench.cluster, ("leases.coordination.k8s.io", "starsched", "kube-system")
    found = cluster.get(*name)
    assert found is not None
    annotations = {**found["metadata"]["annotations"], "example.com/other": ""}
    assert annotations["starsched.dev/page-certificate"] == "of https://10.0.0.1:10259/"
    metadata = {**found["metadata"], "annotations": annotations}
    cluster.update(name[0], {**found, "metadata": metadata})
    await first.release()
    await second.acquire()
    # One without a page removes that of the one before, and nothing of others.
    found = cluster.get(*name)
    assert found is not None
    assert found["metadata"]["annotations"] == {"example.com/other": ""}
    assert second.holder_page == ""


async def test_an_answer_that_is_no_lease_is_a_failed_try() -> None:
    """A proxy's page, with 200, ended the process with a traceback."""
    page = answer(200, b"<html>Down for maintenance</html>")
    clock, lease = VirtualClock(), {"metadata": {"resourceVersion": "1"}, "spec": {}}

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        await asyncio.sleep(0)

    # A read; a read and a write that lead; a renewal, and the read that follows it.
    steps = [page, answer(200, lease), answer(200, lease), page, page, answer(200, lease)]
    async with FaultyServer(*steps) as server, server.client() as client:
        settings = LeaseSettings(name="starsched", namespace="kube-system")
        elector = LeaderElector(client, settings, identity="one", clock=clock, sleep=sleep)
        await elector.acquire()
        keeping = asyncio.ensure_future(elector.keep())
        while server.steps and not keeping.done():  # noqa: ASYNC110  # the script has no event
            await asyncio.sleep(0)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping


async def test_a_count_of_transitions_at_its_end_prevents_no_leader(
    control_plane: ControlPlane, admin: ApiClient, namespace: str
) -> None:
    settings = LeaseSettings(name="starsched", namespace=namespace)
    spec = {"leaseTransitions": 2**31 - 1, "holderIdentity": "gone", "leaseDurationSeconds": 1}
    lease = {"metadata": {"name": "starsched"}, "spec": spec}
    await admin.create(LEASES, json.dumps(lease).encode(), namespace)
    clock = VirtualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    elector = LeaderElector(admin, settings, identity="one", clock=clock, sleep=sleep)
    async with asyncio.timeout(10):
        await elector.acquire()
    assert elector.holder == "one"


async def test_two_that_come_at_once_do_not_both_lead(bench: Bench) -> None:
    electors = [bench.elector(str(i)) for i in range(5)]
    tries = [asyncio.ensure_future(e.acquire()) for e in electors]
    await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
    for task in tries:
        task.cancel()
    await asyncio.gather(*tries, return_exceptions=True)
    assert sum(e.may_act for e in electors) == 1


async def test_what_waited_while_the_process_slept_is_not_sent_after_the_lease() -> None:
    """A condition that was queued before a pause said afterwards that a bound pod is pending."""
    lease = LeaseSettings("starsched", "kube-system", 1500.0, 1000.0, 100.0)
    async with DevCluster() as cluster, scheduler(cluster, lease=lease) as app:
        elector = app.leadership.elector
        assert elector is not None
        cluster.create(pod_manifest("p", cpu="1", image="a"))
        await eventually(lambda: condition(cluster, "p"), what="the pod to be reported on")
        pod = make_pod("p", uid=uid_of(cluster, "p"))
        renewed_at, elector._renewed_at = elector._renewed_at, elector._renewed_at - 1000.0
        app.reporting.status.report(pod, reason="Unschedulable", message="old news")
        await app.reporting.writer.flush(0.3)
        assert condition(cluster, "p")["message"].startswith("no nodes available")
        elector._renewed_at = renewed_at  # a renewal showed that nobody else had led
        await eventually(lambda: condition(cluster, "p")["message"] == "old news")


async def test_a_leader_that_slept_too_long_does_not_save_its_policies() -> None:
    """A replica that was paused wrote its last good policies over those of the next leader."""
    lease = LeaseSettings("starsched", "kube-system", 1500.0, 1000.0, 100.0)
    async with DevCluster() as cluster, scheduler(cluster, lease=lease) as app:
        assert app.leadership.elector is not None
        assert app.policies.rollout._saved._is_leader()
        app.leadership.elector._renewed_at -= 1000.0
        assert not app.policies.rollout._saved._is_leader()
        app.leadership.elector._renewed_at += 1000.0


async def test_a_new_leader_knows_what_the_one_before_it_bound_last() -> None:
    """A standby whose watch was behind took over and gave away what was given away already."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "starsched", "namespace": "kube-system"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600},
    }
    times = LeaseSettings("starsched", "kube-system", 15.0, 10.0, 0.05)
    async with DevCluster() as cluster:
        cluster.create(lease, node_manifest("node-1", cpu="1"))
        cluster.create(pod_manifest("second", cpu="1", image="a"))
        async with scheduler(cluster, lease=times, wait=False) as app:
            await app.watching.synced.wait()
            cluster.stall_watches("pods")
            cluster.create(pod_manifest("first", cpu="1", image="a"))
            cluster.bind("first", "node-1")
            held = cluster.get("leases.coordination.k8s.io", "starsched", "kube-system")
            assert held is not None
            released = {**held, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
            cluster.update("leases.coordination.k8s.io", released)
            await app.leadership.leading.wait()
            await eventually(lambda: condition(cluster, "second"), what="a decision")
            assert condition(cluster, "second")["reason"] == "Unschedulable"


async def test_who_finds_no_lease_follows_no_one(bench: Bench) -> None:
    """It need not look again for what another one may have done."""
    first, second = bench.elector("one"), bench.elector("two")
    await first.acquire()
    await first.release()
    await second.acquire()
    assert (first.follows_another, second.follows_another) == (False, True)


def uid_of(cluster: DevCluster, name: str) -> str:
    pod = cluster.get("pods", name)
    assert pod is not None
    return str(pod["metadata"]["uid"])


@pytest.mark.parametrize(
    ("times", "message"),
    [
        pytest.param((10.0, 10.0, 2.0), "lease-duration: want more than", id="no reserve"),
        pytest.param((15.0, 2.0, 2.0), "renew-deadline: want more than 1.2 times", id="no retry"),
        pytest.param((15.0, 2.4, 2.0), "renew-deadline: want more than 1.2 times", id="one retry"),
        pytest.param((15.0, 10.0, 0.0), "retry-period: want more than 0s", id="no pause"),
    ],
)
def test_times_that_make_no_sense_are_refused(
    times: tuple[float, float, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LeaseSettings("a", "b", *times)
