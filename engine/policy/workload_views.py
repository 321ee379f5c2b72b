"""What a policy sees of the workload that a pod belongs to.

Owns which owners are followed, and how many pods each kind wants. ReplicaSets and Jobs are made by
others, so their own controller is the workload; nothing else is followed: a Deployment is the
workload of its pods whatever made the Deployment.
"""

from collections.abc import Mapping
from typing import Any, Final

from engine.core.caching.objects import ObjectStore
from engine.core.model import objects as api
from engine.core.model.event_kinds import PLURALS
from engine.core.model.pod import Pod
from engine.policy.term_views import Selector, shown

WORKLOAD_RECORDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Workload": {
        "kind": ("str", "for example Deployment"),
        "name": ("str", "its name"),
        "replicas": (
            "int?",
            "how many pods it wants at once; of a Job its parallelism, or its completions if those "
            "are fewer; of a CronJob, those of the pod's Job. None for a DaemonSet and for other "
            "kinds, and if it is not there",
        ),
        "selector": (
            "Selector?",
            "which pods of the namespace are its own, for `pods_in`; of a CronJob, those of the "
            "pod's Job; None as for `replicas`",
        ),
    },
}

# What is looked up, by API group and kind, and if its controller counts instead.
_KNOWN: Final[Mapping[tuple[str, str], bool]] = {
    ("apps", "ReplicaSet"): True,
    ("batch", "Job"): True,
    ("apps", "Deployment"): False,
    ("apps", "StatefulSet"): False,
    ("", "ReplicationController"): False,
}
_CRON_JOB: Final = ("batch", "CronJob")

#: The label of the pods of a Job with its name.
JOB_NAME: Final = "batch.kubernetes.io/job-name"
#: The kinds whose changes can change the workload of a pod.
WORKLOAD_KINDS: Final = tuple(kind for _, kind in _KNOWN)


def workload(pod: Pod, objects: ObjectStore) -> dict[str, Any] | None:
    """The record `Workload` of *pod*; None if nothing controls it."""
    owner = pod.controller
    if owner is None:
        return None
    found = _looked_up(owner, pod, objects)
    is_made = found is not None and _KNOWN[_kind(owner)]
    above = found.metadata.controller if is_made else None
    if above is not None:
        owner = above
        if _kind(owner) != _CRON_JOB:
            found = _looked_up(owner, pod, objects)
    return {
        "kind": owner.kind,
        "name": owner.name,
        "replicas": None if found is None else _replicas(found.spec),
        "selector": None if found is None else _selector(found),
    }


def _looked_up(owner: api.OwnerReference, pod: Pod, objects: ObjectStore) -> Any:
    """The object that *owner* names, as far as it is looked up and is there."""
    if _kind(owner) not in _KNOWN:
        return None
    return objects.get(PLURALS[owner.kind], f"{pod.namespace}/{owner.name}")


def _kind(owner: api.OwnerReference) -> tuple[str, str]:
    group, slash, _ = owner.api_version.partition("/")
    return group if slash else "", owner.kind


def _replicas(spec: Any) -> int:
    # What leaves its number out wants one pod.
    if not isinstance(spec, api.JobSpec):
        return 1 if spec.replicas is None else int(spec.replicas)
    parallel = 1 if spec.parallelism is None else spec.parallelism
    return parallel if spec.completions is None else min(parallel, spec.completions)


def _selector(found: Any) -> Selector | None:
    given = found.spec.selector
    if given is None and isinstance(found, api.Job):
        given = {JOB_NAME: found.metadata.name}  # the API server gives each one a selector
    if given is None:
        return None
    if not isinstance(given, api.LabelSelector):
        given = api.LabelSelector(dict(given))
    return shown(given, Selector)
