"""What is tried as one, by its type: the labels are those of the minor version of the cluster."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from engine.core.framework.behaviors import behaviors_of
from engine.surfaces.pulled_metrics import show_queue
from engine.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_group_attempts import rest


@pytest.mark.parametrize("minor", [37, 38])
def test_entities_have_the_label_entity_from_1_38_on(minor: int) -> None:
    """Beside `type`, which dashboards ask for still. An empty label is none to Prometheus.

    Source: `pkg/scheduler/metrics` of kube-scheduler 1.37.2 and 1.38.0-beta.0.
    """
    world, registry = World({}), CollectorRegistry()
    objects = world.cache.objects
    show_queue(Metrics(registry), world.queue, world.kernel.entities, objects)
    world.add_node(make_node("small", cpu=1))
    world.add(make_pod("large", cpu=2))
    rest(world)
    objects.behaves = behaviors_of(minor)
    entity = "pod" if minor == 38 else ""
    labels = {"type": "pod", "entity": entity, "queue": "unschedulable"}
    assert registry.get_sample_value("scheduler_queued_entities", labels) == 1
    entered = {**labels, "queue": "active", "event": "UnscheduledPodAdd"}
    name = "scheduler_queue_incoming_entities_total"
    assert registry.get_sample_value(name, entered) == 1
    said = generate_latest(registry).decode()
    assert ("compositepodgroup" in said) is (minor == 38)
