"""How many classes of pods are remembered, and for what."""

import json

import pytest

from engine.core.caching.cache import Cache
from engine.core.model.pod import Pod
from engine.core.scheduling import pod_classes, scheduling_cycle
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, pod_manifest
from tests.profiles import only

FILTER = """\"\"\"Reads a label of each pod.\"\"\"

def filter(pod, node):
    return "no" if pod.%s.get("own") == "never" else None
"""
SIZE = 1000


def _scheduler(field: str) -> Scheduler:
    files = {"mine.star": FILTER % field, "config.yaml": only("mine")}
    bundle = build_bundle(files)
    return Scheduler(bundle, InProcessEvaluator(bundle.program))


def _decide(scheduler: Scheduler, cache: Cache, names: range) -> None:
    for name in names:
        own = f"{name:04d}"
        annotations = {"own": own + "x" * SIZE}
        manifest = pod_manifest(f"p{own}", labels={"own": own}, annotations=annotations)
        scheduler.schedule(Pod.from_raw(json.dumps(manifest).encode()), cache.snapshot())


@pytest.fixture
def cache() -> Cache:
    made = Cache()
    made.add_node(make_node("n"))
    return made


def test_what_no_policy_reads_of_pods_makes_nothing_be_forgotten(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 16 MiB of new pods all verdicts were forgotten, though no policy read so much."""
    monkeypatch.setattr(scheduling_cycle, "MOST_BYTES", 40 * SIZE)
    scheduler = _scheduler("labels")
    memo = scheduler._memo
    _decide(scheduler, cache, range(100))
    assert scheduler._memo is memo
    assert len(scheduler._classes) == 100
    read = _scheduler("annotations")
    memo = read._memo
    _decide(read, cache, range(100))
    assert read._memo is not memo


def test_the_classes_of_large_pods_go_one_by_one_the_oldest_first(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of classes that had been dropped were still counted."""
    monkeypatch.setattr(pod_classes, "MOST_BYTES", 20 * SIZE)
    scheduler = _scheduler("labels")
    _decide(scheduler, cache, range(100))
    kept = scheduler._classes
    assert 10 <= len(kept) <= 20
    assert kept.pod_bytes <= 20 * SIZE
    names = [pod.name for pod in kept.examples(100)]
    assert names == [f"p{number:04d}" for number in range(99, 99 - len(kept), -1)]
    # What is counted is what is there.
    assert kept.pod_bytes == sum(pod_classes._pod_bytes(*one) for one in kept._classes.items())
