"""Batch only at night: the example of the documents, on the embedded control plane.

The clock is the test's: it stands in the evening of Berlin, and is set to the night.
"""

import re
from pathlib import Path

import pytest

from devkit.cluster import DevCluster
from engine.io.informers import OTHER_OBJECTS
from engine.policy.bundle import build_bundle
from engine.recording.log_writer import LogSettings, LogWriter
from engine.recording.recorder import Recorder
from tests.builders import node_manifest, pod_manifest
from tests.engine.app.harness import condition, edit, namespace, node_of, scheduler
from tests.engine.io.facts.test_clock import SetClock
from tests.waiting import eventually
from workbench.replay.decision_log import read_log
from workbench.replay.replay import Outcome, Replayer

pytestmark = pytest.mark.usefixtures("no_sandboxes")

PAGE = Path(__file__).parents[3] / "docs" / "hooks" / "pre_enqueue.md"
NIGHT = "batch_at_night.star"
# The night is noticed within `ageStep`, however it comes.
RUNTIME = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts: {timeZone: Europe/Berlin, ageStep: 1s}
"""
# The same as a filter, by which attempts are in the log.
FILTER = """\"\"\"Keeps batch pods off nodes by day.\"\"\"

def filter(pod, node, cluster):
    if pod.labels.get("tier") == "batch" and cluster.facts["hour"].value in range(6, 20):
        return "node(s) take no batch pods by day"
    return None
"""
BATCH = {"tier": "batch"}


def example() -> str:
    """The policy of the page."""
    found = re.search(rf"^`{NIGHT}`:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert found is not None
    return found[1]


async def test_the_begin_of_the_night_lets_batch_pods_go_and_no_others_are_tried() -> None:
    clock = SetClock("2026-11-30T19:30:00+01:00")
    async with DevCluster() as cluster:
        cluster.create(namespace(), node_manifest("a"))
        edit(cluster, {NIGHT: example(), "runtime.yaml": RUNTIME})
        async with scheduler(cluster, from_config_map=True, clock=clock) as app:
            cluster.create(
                pod_manifest("batch", image="app", labels=BATCH),
                pod_manifest("large", image="app", cpu="99"),
                pod_manifest("web", image="app"),
            )
            await eventually(lambda: node_of(cluster, "web") == "a")
            await eventually(
                lambda: "Insufficient" in condition(cluster, "large").get("message", "")
            )
            assert app.kernel.queue.describe("default/batch")["gate_reason"] == (
                "batch pods wait for the night"
            )
            clock.set("2026-11-30T20:00:00+01:00")
            await eventually(lambda: node_of(cluster, "batch") == "a")
            assert app.kernel.queue.describe("default/large")["attempts"] == 1
            # Morning: those that come now wait.
            clock.set("2026-12-01T06:00:00+01:00")
            await eventually(lambda: app.cache.snapshot().cluster_facts["hour"].value == 6)
            cluster.create(pod_manifest("late", image="app", labels=BATCH))
            await eventually(lambda: app.kernel.queue.describe("default/late").get("gated_by"))


async def test_an_edit_may_be_the_first_that_reads_the_clock() -> None:
    """Its trial reads the clock, too, which no policy has read until then."""
    clock = SetClock("2026-11-30T19:30:00+01:00")
    async with DevCluster() as cluster:
        cluster.create(namespace(), node_manifest("a"))
        edit(cluster, {"runtime.yaml": RUNTIME})
        async with scheduler(cluster, from_config_map=True, clock=clock) as app:
            cluster.create(pod_manifest("large", image="app", cpu="99", labels=BATCH))
            await eventually(lambda: condition(cluster, "large"))
            assert app.cache.snapshot().cluster_facts == {}
            before = app.policies.rollout.active.bundle.revision
            edit(cluster, {NIGHT: example(), "runtime.yaml": RUNTIME})
            await eventually(lambda: app.policies.rollout.active.bundle.revision != before)
            assert list(app.cache.snapshot().cluster_facts) == ["hour"]


async def test_a_recording_has_the_hour_and_is_replayed_by_it(tmp_path: Path) -> None:
    clock = SetClock("2026-11-30T19:30:00+01:00")
    kinds = [resource.plural for resource, _ in OTHER_OBJECTS]
    recorder = Recorder(LogWriter(LogSettings(tmp_path), "test"), clock, kinds)
    recorder.start()
    async with DevCluster() as cluster:
        cluster.create(namespace(), node_manifest("a"))
        edit(cluster, {"by_day.star": FILTER, "runtime.yaml": RUNTIME})
        words = {"from_config_map": True, "clock": clock, "decision_log": recorder}
        async with scheduler(cluster, **words):
            cluster.create(pod_manifest("batch", image="app", labels=BATCH))
            await eventually(lambda: "by day" in condition(cluster, "batch").get("message", ""))
            clock.set("2026-11-30T20:00:00+01:00")
            await eventually(lambda: node_of(cluster, "batch") == "a")
    recorder.close()
    made = outcomes(tmp_path)
    assert [one.recorded["node"] for one in made] == [None, "a"]
    assert all(one.is_same and not one.notes for one in made), made
    # Other policies read what the log has not: it is the time of the entry.
    other = FILTER.replace('"hour"', '"minute"').replace("range(6, 20)", "range(30, 60)")
    bundle = build_bundle({"by_day.star": other, "runtime.yaml": RUNTIME})
    assert [one.replayed["node"] for one in outcomes(tmp_path, Replayer(bundle))] == [None, "a"]


def outcomes(log: Path, replayer: Replayer | None = None) -> list[Outcome]:
    replayer = replayer or Replayer()
    try:
        return list(replayer.outcomes(read_log(log)))
    finally:
        replayer.close()
