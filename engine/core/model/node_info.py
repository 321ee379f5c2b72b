"""NodeInfo: a node plus the pods counted against it, with summed requests.

Owns the sums that filters and scores read. A NodeInfo never changes: each change gives a new one
that shares what is equal, so that a snapshot can hold it while the cache goes on.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Final, TypeVar

from engine.core.model.fact import NO_FACTS, NodeFacts
from engine.core.model.node import Node
from engine.core.model.pod import HostPort, Pod
from engine.core.model.pod_volumes import VolumeUse
from engine.core.model.resources import Amounts
from engine.lib.shared_dict import SharedDict

Key = TypeVar("Key")

#: Of how many changes of its pods a NodeInfo knows which pods they were about, at least half of
#: that: so many, and one more for every eight pods. A reader that is further behind looks at all.
_MOST_STEPS: Final = 16
_PODS_OF_STEP: Final = 8

# The version before a change of a pod, its uid, the step before, and how many those are with it.
_Step = tuple[int, str, "_Step | None", int]

# One counter for all nodes: a node that is deleted and created again never repeats a generation.
_generations = itertools.count(1)

_NO_PODS: Final[SharedDict[str, Pod]] = SharedDict()
_NO_AMOUNTS: Final[Amounts] = {}
_NOTHING_REQUESTED: Final[Amounts] = {"cpu": 0, "memory": 0}
_NO_PORTS: Final[dict[HostPort, int]] = {}
_NO_VOLUMES: Final[dict[VolumeUse, int]] = {}


def _plus(sums: Amounts, amounts: Amounts) -> Amounts:
    """*sums* and *amounts*, without zeros, so that equal contents are equal however they came."""
    total = sums.copy()
    for name, amount in amounts.items():
        if amount:
            total[name] = total.get(name, 0) + amount
    return total


def _minus(sums: Amounts, amounts: Amounts) -> Amounts:
    rest = sums.copy()
    for name, amount in amounts.items():
        if amount:
            left = rest[name] - amount
            if left:
                rest[name] = left
            else:
                del rest[name]
    return rest


def _newest(last: _Step, count: int) -> _Step | None:
    """The *count* steps that end with *last*, without those before them."""
    taken: list[tuple[int, str]] = []
    step: _Step | None = last
    while step is not None and len(taken) < count:
        taken.append(step[:2])
        step = step[2]
    made: _Step | None = None
    for number, (version, uid) in enumerate(reversed(taken), 1):
        made = version, uid, made, number
    return made


def _counts_alike(one: Pod, other: Pod) -> bool:
    return (
        one.running_requests == other.running_requests
        and one.running_nonzero_requests == other.running_nonzero_requests
        and one.host_ports == other.host_ports
        and one.volumes == other.volumes
    )


def _more(counts: dict[Key, int], keys: Iterable[Key]) -> dict[Key, int]:
    grown = counts.copy()
    for key in keys:
        grown[key] = grown.get(key, 0) + 1
    return grown


def _fewer(counts: dict[Key, int], keys: Iterable[Key]) -> dict[Key, int]:
    left = counts.copy()
    for key in keys:
        if left[key] == 1:
            del left[key]
        else:
            left[key] -= 1
    return left


class NodeInfo:
    """A node and what is placed on it.

    Attributes:
        name: The node's name.
        node: The node, or None while only its pods are known.
        pods: The pods by uid, in the order they came. Not to be changed, like every dict here.
        requested: Sum of the pods' `running_requests`, no zero entries.
        nonzero_requested: Sum of their `running_nonzero_requests`: cpu and memory, always both.
        used_ports: How many pods hold each host port (more than one only after a conflict).
        volumes: How many volumes of its pods use each claim and each disk.
        storage: Another object whenever storage objects say something else of the node.
        facts: What is known of the node from outside the API.
        generation: Grows with each change, over all nodes.
        pods_version: The generation in which its pods changed last; see `pods_since`.
    """

    __slots__ = (
        "_lowest_priority",
        "_steps",
        "facts",
        "generation",
        "name",
        "node",
        "nonzero_requested",
        "pods",
        "pods_version",
        "requested",
        "storage",
        "used_ports",
        "volumes",
    )

    name: str
    node: Node | None
    pods: SharedDict[str, Pod]
    requested: Amounts
    nonzero_requested: Amounts
    used_ports: dict[HostPort, int]
    volumes: dict[VolumeUse, int]
    storage: object
    facts: NodeFacts
    generation: int
    pods_version: int
    _steps: _Step | None  # the last one
    _lowest_priority: float | None  # None: not computed yet

    def __init__(self, name: str, node: Node | None = None, pods: Iterable[Pod] = ()) -> None:
        self.name = name
        self.node = node
        self.pods = _NO_PODS
        self.requested = _NO_AMOUNTS
        self.nonzero_requested = _NOTHING_REQUESTED
        self.used_ports = _NO_PORTS
        self.volumes = _NO_VOLUMES
        self.storage = None
        self.facts = NO_FACTS
        self._lowest_priority = None
        self.generation = self.pods_version = next(_generations)
        self._steps = None
        for pod in pods:
            grown = self.with_pod(pod)
            self.pods_version, self._steps = grown.pods_version, grown._steps
            self.pods, self.requested = grown.pods, grown.requested
            self.nonzero_requested, self.used_ports = grown.nonzero_requested, grown.used_ports
            self.volumes = grown.volumes

    def __repr__(self) -> str:
        return f"<NodeInfo {self.name}: {len(self.pods)} pods, generation {self.generation}>"

    @property
    def pod_count(self) -> int:
        """How many pods count against the node."""
        return len(self.pods)

    @property
    def lowest_priority(self) -> float:
        """The lowest priority of its pods; infinity if there are none. Computed on demand."""
        if self._lowest_priority is None:
            priorities = (pod.priority for pod in self.pods.values())
            self._lowest_priority = min(priorities, default=math.inf)
        return self._lowest_priority

    def _copy(self) -> "NodeInfo":
        copy = NodeInfo.__new__(NodeInfo)
        copy.name = self.name
        copy.node = self.node
        copy.pods = self.pods
        copy.requested = self.requested
        copy.nonzero_requested = self.nonzero_requested
        copy.used_ports = self.used_ports
        copy.volumes = self.volumes
        copy.storage = self.storage
        copy.facts = self.facts
        copy._lowest_priority = self._lowest_priority
        copy.generation = next(_generations)
        copy.pods_version, copy._steps = self.pods_version, self._steps
        return copy

    def _copy_with(self, pods: SharedDict[str, Pod], uid: str) -> "NodeInfo":
        """A copy that has *pods*; the one of *uid* has come, changed or gone."""
        copy = self._copy()
        copy.pods = pods
        copy.pods_version = copy.generation
        before = self._steps
        most = _MOST_STEPS + len(pods) // _PODS_OF_STEP
        if before is not None and before[3] >= most:
            before = _newest(before, most // 2)
        count = 1 if before is None else before[3] + 1
        copy._steps = self.pods_version, uid, before, count
        return copy

    def pods_since(self, version: int) -> list[str] | None:
        """The uids of the pods that came, changed or went since `pods_version` was *version*.

        None if that is not known any more: it may be any.
        """
        if version == self.pods_version:
            return []
        uids = []
        step = self._steps
        while step is not None:
            before, uid, step, _ = step
            uids.append(uid)
            if before == version:
                return uids[::-1]
        return None

    def with_node(self, node: Node | None) -> "NodeInfo":
        """The same pods on another version of the node, or on none."""
        copy = self._copy()
        copy.node = node
        return copy

    def with_facts(self, facts: NodeFacts) -> "NodeInfo":
        """The same node and pods with other facts."""
        copy = self._copy()
        copy.facts = facts
        return copy

    def with_new_storage(self) -> "NodeInfo":
        """The same node and pods after a change of its volumes or of what drivers say of it."""
        copy = self._copy()
        copy.storage = object()
        return copy

    def with_pod(self, pod: Pod) -> "NodeInfo":
        """With *pod* counted; a pod of the same uid is replaced. Cost: see `SharedDict`."""
        known = self.pods.get(pod.uid)
        if known is not None and not _counts_alike(known, pod):
            return self.without_pod(pod.uid).with_pod(pod)
        copy = self._copy_with(self.pods.having(pod.uid, pod), pod.uid)
        if known is not None:
            copy._lowest_priority = None
            # Most updates of a placed pod are its kubelet reporting status: the sums stand.
            return copy
        if copy._lowest_priority is not None:
            copy._lowest_priority = min(copy._lowest_priority, pod.priority)
        copy.requested = _plus(self.requested, pod.running_requests)
        nonzero, more = self.nonzero_requested, pod.running_nonzero_requests
        copy.nonzero_requested = {
            "cpu": nonzero["cpu"] + more["cpu"],
            "memory": nonzero["memory"] + more["memory"],
        }
        if pod.host_ports:
            copy.used_ports = _more(self.used_ports, pod.host_ports)
        if pod.volumes:
            copy.volumes = _more(self.volumes, (volume.use for volume in pod.volumes))
        return copy

    def without_pod(self, uid: str) -> "NodeInfo":
        """Without the pod with *uid*. Raises `KeyError` if it is not here."""
        pod = self.pods[uid]
        copy = self._copy_with(self.pods.without(uid), uid)
        copy._lowest_priority = None
        copy.requested = _minus(self.requested, pod.running_requests)
        nonzero, less = self.nonzero_requested, pod.running_nonzero_requests
        copy.nonzero_requested = {
            "cpu": nonzero["cpu"] - less["cpu"],
            "memory": nonzero["memory"] - less["memory"],
        }
        if pod.host_ports:
            copy.used_ports = _fewer(self.used_ports, pod.host_ports)
        if pod.volumes:
            copy.volumes = _fewer(self.volumes, (volume.use for volume in pod.volumes))
        return copy
