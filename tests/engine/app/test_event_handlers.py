"""How long changes take is measured by kind of event, under kube-scheduler's labels."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from engine.core.kernel.events import ObjectChanged
from engine.io.event_handlers import ObjectReporter, SampledHandler
from engine.lib.clock import VirtualClock
from engine.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod

_WAITING, _PLACED = make_pod(uid="u"), make_pod(uid="u", node="n")


@pytest.mark.parametrize(
    ("kind", "old", "new", "want"),
    [
        pytest.param("Pod", None, _WAITING, "UnscheduledPodAdd", id="a new pod"),
        pytest.param("Pod", _WAITING, _WAITING, "UnscheduledPodUpdate", id="a waiting pod"),
        pytest.param("Pod", _WAITING, None, "UnscheduledPodDelete", id="a waiting pod that goes"),
        pytest.param("Pod", _WAITING, _PLACED, "AssignedPodAdd", id="a pod that is bound"),
        pytest.param("Pod", None, _PLACED, "AssignedPodAdd", id="a placed pod"),
        pytest.param("Pod", _PLACED, _PLACED, "AssignedPodUpdate", id="its update"),
        pytest.param("Pod", _PLACED, None, "AssignedPodDelete", id="a placed pod that goes"),
        pytest.param("Node", None, make_node("n"), "NodeAdd", id="a node"),
        pytest.param("CSINode", None, object(), "storage.k8s.io/CSINodeAdd", id="with its group"),
    ],
)
def test_a_change_is_timed_under_the_label_of_its_event(
    kind: str, old: Any, new: Any, want: str
) -> None:
    metrics, taken = Metrics(CollectorRegistry()), list[ObjectChanged]()
    reporter = ObjectReporter("things", taken.append)
    handler = SampledHandler(reporter, kind, metrics.event_handling_seconds, VirtualClock())
    for _ in range(16):
        if old is None:
            handler.on_add(new)
        elif new is None:
            handler.on_delete(old)
        else:
            handler.on_update(old, new)
    assert taken == [ObjectChanged("things", old, new)] * 16
    name = "scheduler_event_handling_duration_seconds_count"
    assert metrics.registry.get_sample_value(name, {"event": want}) == 1
