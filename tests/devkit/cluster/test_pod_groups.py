"""PodGroups and Workloads of the embedded API server: defaults, admission, what is refused."""

from typing import Any

import pytest

from devkit.cluster import DevCluster
from engine.core.manifests.errors import ApiStatus

GROUPS = "podgroups.scheduling.k8s.io"
GANG: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 2}}}


def group(spec: dict[str, Any], version: str = "v1beta1") -> dict[str, Any]:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": spec,
    }


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_a_group_has_the_priority_of_its_class_and_a_mode(version: str) -> None:
    cluster = DevCluster()
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 7,
        }
    )
    (made,) = cluster.create(group({**GANG, "priorityClassName": "high"}, version))
    assert (made["spec"]["priority"], made["spec"]["disruptionMode"]) == (7, {"single": {}})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({}, "spec.schedulingPolicy", id="no policy"),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": 2}, "basic": {}}},
            "spec.schedulingPolicy",
            id="both policies",
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": -1}}},
            "spec.schedulingPolicy.gang.minCount",
            id="a negative number",
        ),
        pytest.param(
            {**GANG, "disruptionMode": {"all": {}, "single": {}}},
            "spec.disruptionMode",
            id="both modes",
        ),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiStatus, match=field) as refusal:
        DevCluster().create(group(spec))
    assert refusal.value.code == 422


def test_only_the_number_of_a_gang_can_change() -> None:
    cluster = DevCluster()
    (made,) = cluster.create(group(GANG))
    more = {**made, "spec": {**made["spec"], "schedulingPolicy": {"gang": {"minCount": 5}}}}
    made = cluster.update(GROUPS, more)
    assert made["spec"]["schedulingPolicy"] == {"gang": {"minCount": 5}}
    other = {**made, "spec": {**made["spec"], "disruptionMode": {"all": {}}}}
    with pytest.raises(ApiStatus, match="field is immutable"):
        cluster.update(GROUPS, other)
