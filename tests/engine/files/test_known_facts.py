"""Facts of a cluster that is a file: written down, read again, and seen as they were then."""

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.model.fact import Fact
from engine.files.cluster_file import Cluster, read_cluster, snapshot_bytes
from engine.files.known_facts import show_facts
from engine.files.world import ManifestError, node_of, pod_of
from engine.io.facts.collection import FactsDocument, document_of
from engine.io.facts.readings import CLUSTER, Reading, Readings, Subject, read_plain
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.fact_config import AnnotationFacts, ConfigMapFacts, FactsConfig, FileFacts
from workbench.simulation.simulation import Simulation
from workbench.simulation.workload import Arrival, Workload

KUBE_RL = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {multiPoint: {enabled: [{name: KubeRL, weight: 100}]}}
"""
TAKEN_AT = "1970-01-01T01:00:00Z"  # 3600 seconds since the epoch
HEAT = AnnotationFacts(keys={"heat": "example.com/heat"})
LOADS = ConfigMapFacts("monitoring", "loads")


def loads(**values: Any) -> FactsDocument:
    """What the ConfigMap of `LOADS` says of node `n`."""
    return FactsDocument("configmap:monitoring/loads", {"nodes": {"n": values}})


def heated(text: str) -> Any:
    meta = {"name": "n", "annotations": {"example.com/heat": text}}
    return node_of({"kind": "Node", "metadata": meta})


def own(cache: Cache) -> dict[str, Fact]:
    return dict(cache.facts_of_node("n").own)


def test_a_fact_is_as_old_as_it_was_when_the_snapshot_was_taken() -> None:
    cache, answer = Cache(), loads(load={"value": 7, "time": 3478})
    shown = show_facts(cache, FactsConfig((LOADS,)), [answer], taken_at=TAKEN_AT)
    assert shown.unknown == ()
    assert own(cache) == {"load": Fact(7, "7", 120)}


def test_what_was_too_old_for_the_scheduler_is_not_there() -> None:
    cache, answer = Cache(), loads(load={"value": 7, "time": 3478}, heat={"value": 1, "time": 3599})
    config = FactsConfig((LOADS,), max_age=timedelta(seconds=60))
    show_facts(cache, config, [answer], taken_at=TAKEN_AT)
    assert own(cache).keys() == {"heat"}


def test_without_a_time_of_its_own_a_cluster_is_seen_as_of_the_newest_fact() -> None:
    cache = Cache()
    answer = loads(load={"value": 7, "time": 1000}, heat={"value": 1, "time": 1030})
    show_facts(cache, FactsConfig((LOADS,)), [answer])
    assert {name: fact.age_seconds for name, fact in own(cache).items()} == {"load": 30, "heat": 0}


def test_annotations_of_nodes_and_pods_are_facts() -> None:
    cache = Cache()
    of_pods = AnnotationFacts(of="pods", prefix="facts/")
    pod = pod_of({"metadata": {"name": "p", "namespace": "a", "annotations": {"facts/cost": "3"}}})
    show_facts(cache, FactsConfig((HEAT, of_pods)), [], nodes=[heated("60")], pods=[pod])
    assert own(cache) == {"heat": Fact(60, "60")}
    assert cache.snapshot().pod_facts["a/p"] == {"cost": Fact(3, "3")}


@pytest.mark.parametrize(
    ("sources", "want"),
    [
        pytest.param((HEAT, LOADS), 10, id="the ConfigMap comes later"),
        pytest.param((LOADS, HEAT), 60, id="the annotation does"),
    ],
)
def test_the_later_source_wins_as_in_the_scheduler(sources: Any, want: int) -> None:
    cache = Cache()
    show_facts(cache, FactsConfig(sources), [loads(heat=10)], nodes=[heated("60")])
    assert own(cache)["heat"].value == want


def test_what_is_not_configured_is_shown_below_what_is_configured() -> None:
    cache = Cache()
    extra = FactsDocument("file:/somewhere.json", {"nodes": {"n": {"load": 1, "cost": 5}}})
    show_facts(cache, FactsConfig((LOADS,)), [loads(load=2), extra])
    assert {name: fact.value for name, fact in own(cache).items()} == {"load": 2, "cost": 5}


def test_sources_of_which_nothing_is_known_are_named() -> None:
    config = FactsConfig((LOADS, FileFacts("/facts.json"), HEAT))
    assert show_facts(Cache(), config, [loads(load=1)]).unknown == ("file:/facts.json",)


@pytest.mark.parametrize(
    ("times", "want"),
    [
        pytest.param({"taken_at": TAKEN_AT, "time": 9 * 3600}, 2, id="of the snapshot"),
        pytest.param({"time": 9 * 3600}, 10, id="of the facts"),
        pytest.param({}, 6, id="of the reading"),
        pytest.param({"taken_at": TAKEN_AT, "cluster": {"hour": 22}}, 22, id="as a fact"),
    ],
)
def test_the_clock_shows_the_time_of_what_is_given(times: Any, want: int) -> None:
    given = dict(times)
    taken_at = given.pop("taken_at", "")
    cache, config = Cache(), FactsConfig(time_zone="Europe/Berlin")
    document = FactsDocument("file:/x.json", given)
    show_facts(cache, config, [document], taken_at=taken_at, read_at=5 * 3600.0)
    assert cache.snapshot().cluster_facts["hour"].value == want


def test_a_document_that_is_none_is_refused() -> None:
    answer = FactsDocument("file:/x.json", {"knots": {}})
    with pytest.raises(ManifestError, match=r"file:/x\.json: knots: unknown section"):
        show_facts(Cache(), FactsConfig(), [answer])


def test_facts_go_through_a_snapshot_file(tmp_path: Path) -> None:
    node = {"kind": "Node", "metadata": {"name": "n"}}
    path = tmp_path / "cluster.json.gz"
    path.write_bytes(snapshot_bytes([node], TAKEN_AT, {}, [loads(load=4)], compress=True))
    cluster = read_cluster(path)
    assert cluster.facts == [loads(load=4)]
    world = cluster.world()
    cluster.show_facts(world.cache, FactsConfig((LOADS,)), [])
    assert own(world.cache)["load"].value == 4


def test_a_facts_document_next_to_manifests_is_one_of_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text('{"cluster": {"price": 12}}')
    cluster = read_cluster(path)
    assert cluster.facts == [FactsDocument(f"file:{path}", {"cluster": {"price": 12}})]
    assert not cluster.skipped


@pytest.mark.parametrize(("rewards", "want"), [((0.9, 0.2), "a"), ((0.2, 0.9), "b")])
def test_a_simulation_goes_by_facts(rewards: tuple[float, float], want: str) -> None:
    room = {"allocatable": {"cpu": "8", "pods": "9"}}
    nodes = [{"kind": "Node", "metadata": {"name": name}, "status": room} for name in "ab"]
    learned = {name: {"reward": reward} for name, reward in zip("ab", rewards, strict=True)}
    cluster = Cluster(nodes=nodes, facts=[FactsDocument("x", {"pairs": {"web": learned}})])
    pod = pod_of({"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {}})
    bundle = build_bundle({"profile.yaml": KUBE_RL})
    evaluator = InProcessEvaluator(bundle.program)
    simulation = Simulation(bundle, evaluator, Workload(cluster, [Arrival(0, pod)]))
    simulation.run()
    evaluator.close()
    assert [one.node_name for one in simulation.placed.values()] == [want]


_names = st.text("abc/.-", min_size=1, max_size=4)
_subjects: st.SearchStrategy[Subject] = st.one_of(
    st.just(CLUSTER),
    st.tuples(st.sampled_from(["node", "pod", "type"]), _names),
    st.tuples(st.just("pair"), _names, _names),
)
_numbers = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False).filter(
    math.isfinite))  # fmt: skip
_readings = st.dictionaries(
    _names,
    st.builds(Reading, _numbers, st.text(max_size=5), st.none() | st.floats(0, 2e9)),
    min_size=1,
    max_size=3,
)


@given(st.dictionaries(_subjects, _readings, max_size=5))
def test_what_sources_say_is_the_same_after_it_was_written(answer: dict[Subject, Readings]) -> None:
    text = msgspec.json.encode(document_of(answer))
    document = read_plain(msgspec.json.decode(text))
    assert document.problems == []
    assert document.readings == answer
