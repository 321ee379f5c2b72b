"""With reuse and without it: the recorded questions of kube-scheduler, and the openb trace."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from devkit.benchmarks import openb
from engine.core.caching.cache import Cache
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import ManifestError, World, pod_of
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.properties.sameness import assert_same
from tests.searching import part_of
from workbench.conformance.conformance import Scenario, read_scenarios

pytestmark = pytest.mark.slow("searches for long")

RECORDINGS: Final = Path(__file__).parents[1] / "data" / "conformance"
# Of the trace, each such pod is decided without reuse too; that takes a third of a second.
EVERY: Final = 100


class Kept:
    """Schedulers by configuration, each with all that it remembers of the scenarios before."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Scheduler, InProcessEvaluator]] = {}

    def of(self, scenario: Scenario) -> tuple[Scheduler, InProcessEvaluator]:
        key = msgspec.json.encode(scenario.config)
        if key not in self._known:
            files = {} if scenario.config is None else {"config.yaml": key.decode()}
            bundle = build_bundle(files, None)
            evaluator = InProcessEvaluator(bundle.program)
            self._known[key] = Scheduler(bundle, evaluator), evaluator
        return self._known[key]


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_questions_are_decided_alike(path: Path) -> None:
    kept = Kept()
    asked = 0
    for scenario in part_of(list(read_scenarios(path))):
        scheduler, evaluator = kept.of(scenario)
        placed = [one for one in scenario.pods if (one.get("spec") or {}).get("nodeName")]
        world = World.from_manifests(scenario.nodes, placed, scenario.objects)
        rebuilt = World.from_manifests(scenario.nodes, placed, scenario.objects)
        known = {profile.scheduler_name for profile in scheduler.bundle.profiles}
        pods = [pod for pod in _readable(scenario) if pod.scheduler_name in known]
        nobody = Nominator()
        assert_same(scheduler, world.cache, nobody, pods, (rebuilt.cache, nobody), evaluator)
        asked += len(pods)
    assert asked >= 1


def _readable(scenario: Scenario) -> Iterator[Pod]:
    for manifest in scenario.incoming:
        with contextlib.suppress(ManifestError):
            yield pod_of(manifest)


@pytest.mark.long("thousands of decisions, twice each")
def test_the_openb_trace_is_decided_alike() -> None:
    trace = openb.read_trace()
    bundle: Bundle = build_bundle({}, None)
    evaluator = InProcessEvaluator(bundle.program)
    scheduler, nobody = Scheduler(bundle, evaluator), Nominator()
    nodes = [Node.from_raw(msgspec.json.encode(node)) for node in trace.nodes]
    cache = _cache_of(nodes, [])
    placed: list[Pod] = []
    compared = 0
    for number, manifest in enumerate(trace.pods):
        metadata = {**manifest["metadata"], "uid": f"uid-{number}"}
        pod = Pod.from_raw(msgspec.json.encode({**manifest, "metadata": metadata}))
        if number % EVERY:
            decision = scheduler.schedule(pod, cache.snapshot())
        else:
            rebuilt = _cache_of(nodes, placed), nobody
            (decision,) = assert_same(scheduler, cache, nobody, [pod], rebuilt, evaluator)
            compared += 1
        if decision.node is not None:
            placed.append(cache.assume(pod, decision.node))
    assert compared == len(range(0, len(trace.pods), EVERY))
    assert len(placed) > 8000


def _cache_of(nodes: list[Node], placed: list[Pod]) -> Cache:
    cache = Cache()
    for node in nodes:
        cache.add_node(node)
    for pod in placed:
        cache.add_pod(pod)
    return cache
