"""A sort key that comes from another object follows it while the pod waits."""

import pytest

from engine.core.kernel.events import ObjectChanged
from engine.core.kernel.instructions import ReportDecision
from engine.core.model import objects as api
from engine.core.model.objects import from_plain
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.profiles import only
from tests.workloads import owned_by, workload

SMALL_FIRST = '''"""Pods of small workloads go first."""

def queue_key(pod):
    if pod.workload == None or pod.workload.replicas == None:
        return 0
    return pod.workload.replicas
'''
BY_NAMESPACE = '''"""Pods of namespaces with a lower `tier` go first."""

def queue_key(pod):
    return pod.namespace_labels.get("tier", "")
'''


def _world(text: str) -> World:
    config = only("NodeResourcesFit").replace("PrioritySort", "order")
    return World({"order.star": text, "config.yaml": config})


def _tried(world: World) -> list[str]:
    before = len(world.done)
    world.add_node(make_node("a", cpu=8))
    world.turns(100)
    return [one.pod.name for one in world.done[before:] if isinstance(one, ReportDecision)]


def _stateful_set(name: str, replicas: int) -> api.Workload:
    made: api.Workload = from_plain(api.Workload, workload("StatefulSet", name, replicas=replicas))
    return made


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        pytest.param([("big", 9)], ["small", "big"], id="one is seen after its pod"),
        pytest.param([("big", 9), ("small", 10)], ["big", "small"], id="both are"),
        pytest.param([("big", 9), ("small", 10), ("small", 3)], ["small", "big"], id="scaled"),
    ],
)
def test_pods_are_ordered_by_a_workload_that_is_seen_after_them(
    sizes: list[tuple[str, int]], want: list[str]
) -> None:
    """The pod of a new StatefulSet often comes before the StatefulSet itself does."""
    world = _world(SMALL_FIRST)
    for name in ("big", "small"):
        world.add(make_pod(name, owner=owned_by("StatefulSet", name)))
    for name, replicas in sizes:
        world.put_object("statefulsets", _stateful_set(name, replicas))
    assert _tried(world) == want


def test_pods_are_ordered_by_labels_that_their_namespace_gets() -> None:
    world = _world(BY_NAMESPACE)
    for name in ("one", "two"):
        world.add(make_pod("p", namespace=name))
    for name, tier in (("one", "b"), ("two", "a")):
        manifest = {"metadata": {"name": name, "labels": {"tier": tier}}}
        world.put_object("namespaces", from_plain(api.Namespace, manifest))
    before = len(world.done)
    world.add_node(make_node("a", cpu=8))
    world.turns(100)
    tried = [one.pod.key for one in world.done[before:] if isinstance(one, ReportDecision)]
    assert tried == ["two/p", "one/p"]


def test_a_change_that_the_order_does_not_read_asks_nothing() -> None:
    world = _world(SMALL_FIRST)
    world.add(make_pod("web", owner=owned_by("StatefulSet", "web")))
    world.put_object("statefulsets", _stateful_set("web", 3))
    asked: list[str] = []
    key_of = world.queue._key_of

    def counted(pod):  # type: ignore[no-untyped-def]
        asked.append(pod.name)
        return key_of(pod)

    world.queue._key_of = counted
    three, four = _stateful_set("web", 3), _stateful_set("web", 4)
    world.report(ObjectChanged("statefulsets", three, _stateful_set("web", 3)))
    world.report(ObjectChanged("statefulsets", None, _stateful_set("other", 7)))
    assert asked == []
    world.report(ObjectChanged("statefulsets", three, four))
    assert asked == ["web"]
