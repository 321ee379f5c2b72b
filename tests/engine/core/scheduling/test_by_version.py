"""What is answered otherwise from one minor version of Kubernetes on, asked one after the other.

One scheduler is asked about one cluster: nothing that it remembers of one version may be taken for
an answer of the other.
"""

from collections.abc import Iterator

import pytest

from engine.core.caching.cache import Cache
from engine.core.framework.behaviors import behaviors_of
from engine.core.model.objects import (
    LabelSelector,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.testing.full_decision import FullDecision, decide
from tests.builders import ZONE, make_node, make_pod


class Asked:
    """A scheduler with the shipped policies, and a cluster whose version can change."""

    def __init__(self) -> None:
        bundle = build_bundle({})
        self.cache = Cache()
        self._evaluator = InProcessEvaluator(bundle.program)
        self._scheduler = Scheduler(bundle, self._evaluator)

    def answer(self, minor: int, pod: Pod) -> FullDecision:
        self.cache.objects.behaves = behaviors_of(minor)
        return decide(World(self.cache), self._scheduler, pod)

    def close(self) -> None:
        self._evaluator.close()

    def add(self, name: str, node: str = "n", *, uid: str = "", labels: str = "") -> None:
        """Add a pod of one core and low priority."""
        named = {"app": labels} if labels else {}
        self.cache.add_pod(
            make_pod(name, node=node, cpu="1", priority=0, labels=named, uid=uid or name)
        )

    def protect(self, selector: LabelSelector | None) -> None:
        """Add a budget that allows no disruption."""
        meta, spec = ObjectMeta(name="b", namespace="default"), PodDisruptionBudgetSpec(selector)
        budget = PodDisruptionBudget(meta, spec, PodDisruptionBudgetStatus(0))
        self.cache.objects.put("poddisruptionbudgets", budget)

    def victims(self, minor: int) -> list[str]:
        urgent = make_pod("urgent", cpu="1", priority=100)
        [named] = self.answer(minor, urgent).preemption.values()
        return [name.rpartition("/")[2] for name in named]


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked()
    yield made
    made.close()


@pytest.mark.parametrize("minors", [(37, 38, 37), (38, 35, 99)])
def test_an_empty_selector_of_spreading(asked: Asked, minors: tuple[int, ...]) -> None:
    for zone in "ab":
        asked.cache.add_node(make_node(zone, labels={ZONE: zone}))
    asked.add("there", "a", labels="other")
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    pod = make_pod("p", topology_spread=[{**rule, "labelSelector": {}}])
    null = make_pod("q", topology_spread=[rule])
    for minor in minors:
        assert set(asked.answer(minor, pod).rejected) == ({"a"} if minor >= 38 else set())
        assert set(asked.answer(minor, null).rejected) == set()  # a null selector selects none


@pytest.mark.parametrize("minors", [(37, 38, 37), (38, 36, 38)])
def test_a_budget_of_everything(asked: Asked, minors: tuple[int, ...]) -> None:
    """Of two nodes the one is taken whose pod no budget covers, though it is the better one."""
    for node in ("n", "m"):
        asked.cache.add_node(make_node(node, cpu="1"))
    asked.add("covered", "n", labels="web")
    other = make_pod("other", namespace="x", node="m", cpu="1", priority=1, labels={"app": "web"})
    asked.cache.add_pod(other)
    asked.protect(LabelSelector())
    for minor in minors:
        assert asked.victims(minor) == ["other" if minor >= 38 else "covered"]
    asked.protect(None)
    assert [asked.victims(minor) for minor in minors] == [["covered"]] * 3


@pytest.mark.parametrize("minors", [(37, 38, 37), (38, 36, 38)])
def test_a_pod_without_labels_and_a_budget(asked: Asked, minors: tuple[int, ...]) -> None:
    asked.cache.add_node(make_node("n", cpu="2"))
    asked.add("first", labels="web")
    asked.add("last")
    selector = {"key": "app", "operator": "NotIn", "values": ["web"]}
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchExpressions": [selector]}},
        "status": {"disruptionsAllowed": 0},
    }
    world = World.from_manifests([], objects=[budget])
    [record] = world.cache.objects.list("poddisruptionbudgets")
    asked.cache.objects.put("poddisruptionbudgets", record)
    for minor in minors:
        # With the larger uid it goes, unless a budget spares it.
        assert asked.victims(minor) == ["first" if minor >= 38 else "last"]


@pytest.mark.parametrize("minors", [(37, 38, 37), (38, 36, 38)])
@pytest.mark.parametrize("allowed", [None, 0])
def test_equally_important_victims(
    asked: Asked, minors: tuple[int, ...], allowed: int | None
) -> None:
    asked.cache.add_node(make_node("n", cpu="3"))
    for name, uid in (("one", "b"), ("two", "c"), ("three", "a")):
        asked.add(name, uid=uid, labels="web")
    if allowed is not None:
        asked.protect(LabelSelector({"app": "web"}))
    for minor in minors:
        assert asked.victims(minor) == ["two" if minor >= 38 else "three"]


def test_requests_of_the_pod_as_a_whole_in_the_score(asked: Asked) -> None:
    asked.cache.add_node(make_node("n", cpu="10", memory="10Gi"))
    pod = make_pod("p", cpu="9", memory="9Gi", resources={"requests": {"cpu": 1, "memory": "1Gi"}})
    scores = {
        minor: asked.answer(minor, pod).scores["n"]["NodeResourcesFit"] for minor in (37, 38, 36)
    }
    assert scores == {37: 10, 38: 90, 36: 10}
