"""The clock in a simulation: its steps come in virtual time."""

from typing import Any

import pytest

from engine.files.cluster_file import Cluster
from engine.files.world import World
from engine.io.facts.collection import FactsDocument
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.workbench.simulation.test_simulation import node, pod, run, workload
from workbench.plan.what_if import Scene
from workbench.simulation.simulation import Simulation
from workbench.simulation.workload import Arrival, Workload

HOUR, DAY = 3600.0, 24 * 3600.0
NIGHT = '''"""Holds batch pods back by day."""

def pre_enqueue(pod, cluster):
    if pod.name.startswith("batch") and cluster.facts["hour"].value in range(6, 20):
        return "batch pods wait for the night"
    return None
'''
WEEKEND = '''"""Keeps pods off nodes on weekdays."""

def filter(pod, node, cluster):
    return "node(s) are for weekdays" if cluster.facts["weekday"].value < 6 else None
'''
NEVER = '''"""Keeps pods off nodes for ever."""

def filter(pod, node, cluster):
    return "node(s) closed" if cluster.facts["date"].text != "1999-12-31" else None
'''
RUNTIME = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts: {timeZone: Europe/Berlin}
"""
PROFILE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: mine}]}}
"""


def placed_at(
    policy: str, *arrivals: tuple[float, dict[str, Any], float | None]
) -> tuple[dict[str, float | None], float]:
    """When each pod got its node, in hours from Monday at 18:15 in Berlin, and when it ended."""
    planned = workload([node("a", cpu=9)], *arrivals)
    planned.cluster.taken_at = "2026-11-30T18:15:00+01:00"
    files = {"mine.star": policy, "runtime.yaml": RUNTIME, "config.yaml": PROFILE}
    simulation, recorder, _ = run(planned, files)
    assert recorder.steps[-1].placed == simulation.placed_count
    lives = simulation.lives.items()
    found = {
        key.partition("/")[2]: None if life.placed_at is None else life.placed_at / HOUR
        for key, life in lives
    }
    return found, simulation.now / HOUR


def test_gated_pods_go_when_the_night_begins_also_after_the_last_event() -> None:
    arrivals = (
        (0.0, pod("web"), None),
        (0.0, pod("batch-1"), None),
        (30 * HOUR, pod("batch-2"), None),
        (14 * HOUR, pod("batch-3"), None),
    )
    placed, end = placed_at(NIGHT, *arrivals)
    # 18:15; 20:00; of the next day 00:15; from 08:15 to 20:00.
    assert placed == {"web": 0.0, "batch-1": 1.75, "batch-2": 30.0, "batch-3": 25.75}
    assert end == 30.0


def test_rejected_pods_go_when_the_weekend_begins() -> None:
    placed, _ = placed_at(WEEKEND, (0.0, pod("p"), None))
    assert placed["p"] == pytest.approx(5.75 + 4 * 24, abs=0.01)


def test_a_day_that_never_comes_ends_the_simulation_after_a_week() -> None:
    placed, end = placed_at(NEVER, (0.0, pod("p"), None))
    assert placed == {"p": None}
    assert 6 * 24 < end <= 7 * 24


def test_a_pod_that_no_hour_helps_is_not_waited_for() -> None:
    _, end = placed_at(NIGHT, (0.0, pod("large", cpu="99"), None))
    assert end < 1.0


def test_an_hour_that_is_given_as_a_fact_stays() -> None:
    bundle = build_bundle({"mine.star": NIGHT, "config.yaml": PROFILE})
    cluster = Cluster(nodes=[node("a")])
    cluster.facts.append(FactsDocument("file:/x.json", {"cluster": {"hour": 12}}))
    planned = Workload(cluster, [Arrival(0.0, cluster.pod_of(pod("batch")), None)])
    simulation = Simulation(bundle, InProcessEvaluator(bundle.program), planned)
    simulation.run()
    assert simulation.pending_count == 1
    assert simulation.now == 0.0


ANNOTATED = RUNTIME.replace(
    "{timeZone: Europe/Berlin}",
    "{timeZone: Europe/Berlin, sources: [{annotations: {keys: {heat: example.com/heat}}}]}",
)


@pytest.mark.parametrize("runtime", [RUNTIME, ANNOTATED])
@pytest.mark.parametrize("taken_at", ["2026-11-30T18:15:00+01:00", ""])
@pytest.mark.parametrize("policy", [NIGHT, NEVER.replace('cluster.facts["date"].text', '"x"')])
def test_the_note_of_the_clock_needs_no_world(
    monkeypatch: pytest.MonkeyPatch, policy: str, taken_at: str, runtime: str
) -> None:
    """`simulate`, `diff` and `compare` built the whole cluster once more for one line."""
    heat = '{"value": 3, "time": "2026-12-24T12:00:00Z"}'
    warm = {**node("a"), "kind": "Node"}
    warm["metadata"] = {**warm["metadata"], "annotations": {"example.com/heat": heat}}
    cluster = Cluster(nodes=[warm], pods=[pod("waits")], taken_at=taken_at, read_at=7 * HOUR)
    bundle = build_bundle({"mine.star": policy, "runtime.yaml": runtime, "config.yaml": PROFILE})
    want = Scene.of(cluster, bundle).clock_note
    assert bool(want) == (policy == NIGHT)

    def refuse(*_: object) -> World:
        raise AssertionError("a world was built")

    monkeypatch.setattr(World, "from_manifests", refuse)
    assert cluster.clock_note(bundle) == want
