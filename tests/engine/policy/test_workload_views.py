"""`pod.workload`: the top owner of a pod, how many replicas it wants, and which pods those are."""

from typing import Any, Final

import msgspec
import pytest

from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.model.objects import from_plain
from engine.files.world import OBJECT_KINDS
from engine.policy.projections import Projector
from tests.builders import make_pod
from tests.workloads import owned_by, replica_set, workload

_SELECTOR: Final = {"expressions": [], "labels": {"app": "web"}}


def _shown(owner: dict[str, Any] | None, *objects: dict[str, Any]) -> Any:
    """The value of `pod.workload`, as hooks are given it."""
    store = ObjectStore()
    for manifest in objects:
        plural, record = OBJECT_KINDS[manifest["kind"]]
        made: Any = from_plain(record, manifest)
        store.put(plural, made)
    text = Projector("pod", {"workload"}).project(make_pod(owner=owner), Snapshot(store))
    return msgspec.json.decode(text)["workload"]


def _workload(kind: str, replicas: int | None, name: str = "web") -> dict[str, Any]:
    selector = None if replicas is None else _SELECTOR
    return {"kind": kind, "name": name, "replicas": replicas, "selector": selector}


_RS: Final = owned_by("ReplicaSet", "web-1")


@pytest.mark.parametrize(
    ("owner", "objects", "want"),
    [
        pytest.param(None, [], None, id="nothing controls it"),
        pytest.param(
            _RS,
            [
                replica_set("web-1", owner=owned_by("Deployment", "web"), replicas=2),
                workload("Deployment", replicas=10),
            ],
            _workload("Deployment", 10),
            id="the Deployment of its ReplicaSet",
        ),
        pytest.param(
            _RS, [replica_set("web-1", replicas=2)], _workload("ReplicaSet", 2, "web-1"), id="plain"
        ),
        pytest.param(
            _RS,
            [replica_set("web-1", owner=owned_by("Rollout", "web", "argoproj.io/v1alpha1"))],
            _workload("Rollout", None),
            id="of a kind that is not known",
        ),
        pytest.param(
            owned_by("StatefulSet", "web"),
            [
                workload(
                    "StatefulSet", replicas=3, owner=owned_by("Database", "db", "example.com/v1")
                )
            ],
            _workload("StatefulSet", 3),
            id="whatever made it",
        ),
        pytest.param(
            owned_by("StatefulSet", "web"),
            [workload("StatefulSet")],
            _workload("StatefulSet", 1),
            id="one if nothing is said",
        ),
        pytest.param(
            owned_by("ReplicationController", "web"),
            [workload("ReplicationController", replicas=4)],
            _workload("ReplicationController", 4),
            id="a plain selector",
        ),
        pytest.param(
            owned_by("Job", "web"),
            [workload("Job", parallelism=8, completions=5)],
            _workload("Job", 5),
            id="no more than complete",
        ),
        pytest.param(
            owned_by("Job", "web"),
            [workload("Job", parallelism=8, owner=owned_by("CronJob", "nightly"))],
            _workload("CronJob", 8, "nightly"),
            id="the CronJob of its Job",
        ),
        pytest.param(
            owned_by("Job", "web"),
            [workload("Job", owner=owned_by("JobSet", "train", "jobset.x-k8s.io/v1alpha2"))],
            _workload("JobSet", None, "train"),
            id="a Job of another kind",
        ),
        pytest.param(
            owned_by("DaemonSet", "web"), [], _workload("DaemonSet", None), id="DaemonSet"
        ),
        pytest.param(_RS, [], _workload("ReplicaSet", None, "web-1"), id="not there"),
        pytest.param(
            owned_by("Deployment", "web", "example.com/v1"),
            [workload("Deployment", replicas=10)],
            _workload("Deployment", None),
            id="a kind of another group that has the name",
        ),
    ],
)
def test_the_workload_of_a_pod(
    owner: dict[str, Any] | None, objects: list[dict[str, Any]], want: Any
) -> None:
    assert _shown(owner, *objects) == want
