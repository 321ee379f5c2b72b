"""The condition of a PodGroup is written when it changes, and never goes back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from devkit.cluster import DevCluster
from engine.core.caching.objects import ObjectStore
from engine.core.kernel.instructions import ReportPodGroup
from engine.core.model.objects import decode
from engine.core.model.pod_group import PodGroup
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.pod_group_status import FIRST_PAUSE, PodGroupStatusUpdater, condition_type
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.resources import OLDER_VERSIONS, POD_GROUPS, Resource
from engine.lib.clock import VirtualClock
from engine.telemetry.metrics import Metrics
from tests.waiting import one_turn

KEY = "default/train"
SCHEDULED = ReportPodGroup(KEY, True, "Scheduled", "")


def unschedulable(message: str) -> ReportPodGroup:
    return ReportPodGroup(KEY, False, "Unschedulable", message)


class Bench:
    """A PodGroup of the embedded API server, and what writes its condition."""

    def __init__(self, cluster: DevCluster, client: ApiClient) -> None:
        self.cluster = cluster
        self.clock = VirtualClock()
        self.served: Resource | None = POD_GROUPS
        self.objects = ObjectStore()
        self.writer = DeferredWriter(clock=self.clock, is_busy=lambda: False, sleep=one_turn)
        self.status = PodGroupStatusUpdater(
            client,
            self.writer,
            objects=self.objects,
            served=lambda: self.served,
            clock=self.clock,
            metrics=Metrics(CollectorRegistry()),
        )
        cluster.create(
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "train", "namespace": "default"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
            }
        )
        self.see()

    def see(self) -> None:
        """What the informer does with the group as it is now."""
        manifest = self.cluster.get("podgroups.scheduling.k8s.io", "train", "default")
        self.objects.put("podgroups", decode(PodGroup, msgspec.json.encode(manifest)))

    def overwrite(self, status: dict[str, Any]) -> None:
        """What another writer does to the status."""
        manifest = self.cluster.get("podgroups.scheduling.k8s.io", "train", "default")
        assert manifest is not None
        self.cluster.update(
            "podgroups.scheduling.k8s.io", {**manifest, "status": status}, subresource="status"
        )
        self.see()

    async def report(self, report: ReportPodGroup) -> None:
        self.status.report(report)
        assert await self.writer.flush(5) == 0

    @property
    def patches(self) -> int:
        return self.cluster.requests["patch", "podgroups.scheduling.k8s.io/status"]

    @property
    def conditions(self) -> list[dict[str, Any]]:
        manifest = self.cluster.get("podgroups.scheduling.k8s.io", "train", "default")
        assert manifest is not None
        found: list[dict[str, Any]] = manifest.get("status", {}).get("conditions", [])
        return found


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with DevCluster() as cluster, ApiClient(Endpoint(server=cluster.url)) as client:
        bench = Bench(cluster, client)
        task = asyncio.ensure_future(bench.writer.run())
        yield bench
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_rejected_attempt_is_in_the_condition(bench: Bench) -> None:
    await bench.report(unschedulable("0/1 nodes are available: 1 Insufficient cpu."))
    (condition,) = bench.conditions
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "PodGroupInitiallyScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
    }


async def test_the_same_outcome_is_written_once(bench: Bench) -> None:
    for _ in range(3):
        await bench.report(unschedulable("no"))
    bench.see()
    await bench.report(unschedulable("no"))
    assert bench.patches == 1


async def test_a_new_message_keeps_the_time_of_the_transition(bench: Bench) -> None:
    await bench.report(unschedulable("no"))
    since = bench.conditions[0]["lastTransitionTime"]
    bench.clock.advance(90)
    await bench.report(unschedulable("still no"))
    assert bench.conditions[0]["message"] == "still no"
    assert bench.conditions[0]["lastTransitionTime"] == since
    await bench.report(SCHEDULED)
    assert bench.conditions[0]["lastTransitionTime"] != since


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_group_that_was_scheduled_stays_so(bench: Bench, is_seen: bool) -> None:
    await bench.report(SCHEDULED)
    if is_seen:
        bench.see()
    await bench.report(ReportPodGroup(KEY, False, "SchedulerError", "other priorities"))
    (condition,) = bench.conditions
    assert (condition["status"], condition["reason"], bench.patches) == ("True", "Scheduled", 1)


async def test_other_conditions_stay(bench: Bench) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    bench.overwrite({"conditions": [target]})
    await bench.report(SCHEDULED)
    types = {condition["type"] for condition in bench.conditions}
    assert types == {"DisruptionTarget", "PodGroupInitiallyScheduled"}


async def test_the_newest_of_several_outcomes_is_written(bench: Bench) -> None:
    bench.status.report(unschedulable("no"))
    bench.status.report(SCHEDULED)
    assert await bench.writer.flush(5) == 0
    assert (bench.patches, bench.conditions[0]["status"]) == (1, "True")


@pytest.mark.parametrize("has_failed", [True, False])
async def test_a_success_that_is_not_written_yet_stays(bench: Bench, has_failed: bool) -> None:
    if has_failed:
        bench.cluster.faults.fail(503, verb="patch", resource="podgroups*", times=1)
        await bench.report(SCHEDULED)
        bench.clock.advance(FIRST_PAUSE)
    else:
        bench.status.report(SCHEDULED)
    bench.status.report(unschedulable("no"))
    bench.status.retry()
    assert await bench.writer.flush(5) == 0
    assert [condition["status"] for condition in bench.conditions] == ["True"]


async def test_a_failed_write_is_repeated_after_a_pause(bench: Bench) -> None:
    bench.cluster.faults.fail(503, verb="patch", resource="podgroups*", times=1)
    await bench.report(SCHEDULED)
    bench.status.retry()
    assert (await bench.writer.flush(5), bench.conditions) == (0, [])
    bench.clock.advance(FIRST_PAUSE)
    bench.status.retry()
    assert await bench.writer.flush(5) == 0
    assert bench.conditions[0]["status"] == "True"


async def test_nothing_is_written_about_a_group_that_is_gone(bench: Bench) -> None:
    bench.cluster.faults.fail(503, verb="patch", resource="podgroups*", times=1)
    await bench.report(SCHEDULED)
    bench.objects.delete("podgroups", KEY)
    bench.clock.advance(FIRST_PAUSE)
    bench.status.retry()
    await bench.report(unschedulable("no"))
    assert (bench.patches, bench.conditions) == (1, [])


async def test_a_condition_that_others_removed_is_written_again(bench: Bench) -> None:
    await bench.report(unschedulable("no"))
    bench.see()
    bench.overwrite({})
    await bench.report(unschedulable("no"))
    assert [condition["message"] for condition in bench.conditions] == ["no"]


def test_v1alpha2_has_another_name_for_the_condition() -> None:
    older = OLDER_VERSIONS[POD_GROUPS]
    assert [condition_type(one) for one in (POD_GROUPS, *older)] == [
        "PodGroupInitiallyScheduled",
        "PodGroupInitiallyScheduled",
        "PodGroupScheduled",
    ]


async def test_nothing_is_written_while_no_version_is_served(bench: Bench) -> None:
    bench.served = None
    await bench.report(SCHEDULED)
    assert bench.patches == 0
