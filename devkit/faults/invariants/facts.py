"""The data that rules are about: what happened, and the objects at one moment.

Owns these types and the few readings of a pod that all rules share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

#: An API object as JSON has it.
Manifest = Mapping[str, Any]


class Violation(NamedTuple):
    """Something that must not be.

    Attributes:
        rule: The name of the function that found it.
        about: The object: `namespace/name`, or the name of what has no namespace.
        text: What is wrong, in words.
    """

    rule: str
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding that the API server accepted.

    Attributes:
        at: When the replica sent it, in seconds of the clock that tenures are in; where that is
            not known, when the server received it.
        pod_uid, pod: The pod, by its uid and as `namespace/name`.
        node: Where to.
        by: The identity of the replica, as in `Tenure.holder`.
    """

    at: float
    pod_uid: str
    pod: str
    node: str
    by: str


@dataclass(frozen=True, slots=True)
class Eviction:
    """Pods that a replica evicted for one preemptor, in one decision.

    Attributes:
        at: As of `Binding`.
        preemptor: `namespace/name` of the pod that the capacity is for.
        node: Where it is to go.
        victims: `namespace/name` of the evicted pods.
    """

    at: float
    preemptor: str
    node: str
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tenure:
    """One holder's time with the lease: *since* is part of it, *until* is not."""

    holder: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Group:
    """Pods, by uid, of which *min_count* must be bound if any is."""

    name: str
    min_count: int
    pods: frozenset[str]


@dataclass(frozen=True, slots=True)
class History:
    """All that happened, each sequence in order of time."""

    bindings: Sequence[Binding] = ()
    tenures: Sequence[Tenure] = ()
    groups: Sequence[Group] = ()


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of an API server at one moment, as plain manifests.

    Attributes:
        claims, slices: ResourceClaims and ResourceSlices.
        volumes, volume_claims: PersistentVolumes and PersistentVolumeClaims.
        budgets: PodDisruptionBudgets.
        events: Of either API group.
        storage_classes, device_classes: With their provisioning and selectors.
        schedulers: The `schedulerName`s that the scheduler answers for.
    """

    nodes: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    claims: Sequence[Manifest] = ()
    slices: Sequence[Manifest] = ()
    volumes: Sequence[Manifest] = ()
    volume_claims: Sequence[Manifest] = ()
    budgets: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()
    storage_classes: Sequence[Manifest] = ()
    device_classes: Sequence[Manifest] = ()
    schedulers: frozenset[str] = frozenset({"default-scheduler"})

    def pods_on(self, node: str) -> Iterator[Manifest]:
        """The pods that take capacity of *node*."""
        return (pod for pod in self.pods if node_of(pod) == node and not is_over(pod))

    def pending(self) -> Iterator[Manifest]:
        """The pods that the scheduler still has to place."""
        return (
            pod
            for pod in self.pods
            if not node_of(pod)
            and not is_over(pod)
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"].get("schedulerName", "default-scheduler") in self.schedulers
        )


def key_of(manifest: Manifest) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def node_of(pod: Manifest) -> str:
    """The node that a pod is bound to; "" if it is pending."""
    return pod["spec"].get("nodeName") or ""


def is_over(pod: Manifest) -> bool:
    """True for a pod that ran and takes nothing any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def priority_of(pod: Manifest) -> int:
    """The priority that the API server gave a pod."""
    return pod["spec"].get("priority") or 0


def nominated_node(pod: Manifest) -> str:
    """Where a pending pod has a nomination; "" if nowhere."""
    return pod.get("status", {}).get("nominatedNodeName") or ""


def condition_of(pod: Manifest, kind: str) -> Manifest | None:
    """The condition of a kind; None without one."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == kind:
            found: Manifest = condition
            return found
    return None
