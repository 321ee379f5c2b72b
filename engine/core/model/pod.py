"""A pod as the scheduler sees it: the manifest and what is derived from it.

Owns identity, requests, host ports, quality of service and the list of what is wrong with the
quantities. Does not know nodes' contents: that is `node_info.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.core.model.decoding import decode_object, object_from_plain
from engine.core.model.objects import OwnerReference, PodManifest
from engine.core.model.pod_volumes import PodVolume, pod_volumes
from engine.core.model.resources import (
    Amounts,
    Quantities,
    RequestSums,
    exact_amounts,
    is_sidecar,
    quantity_problems,
    running_sums,
    spec_sums,
)
from engine.core.model.times import epoch_seconds

HostPort = tuple[str, str, int]
"""(ip, protocol, port) with the defaults filled in: `0.0.0.0`, `TCP`."""

ANY_IP: Final = "0.0.0.0"
#: Labels that the API server copies from a node to the pods that are bound to it.
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_QOS_RESOURCES: Final = ("cpu", "memory")
_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}


class Pod:
    """A pod. Never changed after it is made; derived values are computed when first asked for.

    Attributes:
        manifest: The typed record; `node_name` below is the same as in its spec.
        raw: The JSON text the pod was decoded from, kept only while it has no node.
        uid: The API's uid; a manifest without one is identified by its key.
        key: `namespace/name`.
        node_name: The node it is on, or assumed on; empty while pending.
        added_annotations: Those of its annotations that its binding is to bring.
    """

    __slots__ = (
        "__weakref__",
        "_created_at",
        "_host_ports",
        "_problems",
        "_qos_class",
        "_running",
        "_spec",
        "_volumes",
        "added_annotations",
        "key",
        "manifest",
        "name",
        "namespace",
        "node_name",
        "raw",
        "uid",
    )

    manifest: PodManifest
    raw: bytes | None
    uid: str
    name: str
    namespace: str
    key: str
    node_name: str
    _spec: RequestSums | None
    _running: RequestSums | None
    _host_ports: tuple[HostPort, ...] | None
    _qos_class: str | None
    _created_at: float | None
    _problems: tuple[str, ...] | None
    _volumes: tuple[PodVolume, ...] | None
    added_annotations: Mapping[str, str]

    def __init__(self, manifest: PodManifest, raw: bytes | None = None) -> None:
        meta = manifest.metadata
        self.manifest = manifest
        self.name = meta.name
        # Manifests from files may leave it out; the API server never does.
        self.namespace = meta.namespace or "default"
        self.key = f"{self.namespace}/{meta.name}"
        # Everything that is kept by pod is kept by uid: a pod that is deleted and created again
        # under its name is another one. Manifests from files may have none; names are unique there.
        self.uid = meta.uid or self.key
        self.node_name = manifest.spec.node_name
        # The text is kept for hooks that read the whole manifest, of the pod to be placed alone: of
        # placed pods, which are most, it would double what the cache takes.
        self.raw = None if self.node_name else raw
        # Derived at first use: most events about a pod need none of it, and a start decodes tens of
        # thousands. A manifest never changes, so what was derived once holds.
        self._spec = None
        self._running = None
        self._host_ports = None
        self._qos_class = None
        self._created_at = None
        self._problems = None
        self._volumes = None
        self.added_annotations = _NO_ANNOTATIONS

    @classmethod
    def from_raw(cls, raw: bytes) -> "Pod":
        """The pod of a JSON text.

        Quantities never fail (see `problems`). Raises `msgspec.DecodeError` when *raw* is not JSON
        and its subclass `ValidationError` when another field has a type that the API forbids.
        """
        return cls(decode_object(PodManifest, raw), raw)

    @classmethod
    def from_manifest(cls, manifest: PodManifest) -> "Pod":
        """The pod of a typed record."""
        return cls(manifest)

    @classmethod
    def from_plain(cls, manifest: Mapping[str, Any]) -> "Pod":
        """The pod of a decoded YAML or JSON manifest. Raises like `from_raw`."""
        return cls(object_from_plain(PodManifest, manifest))

    def with_node(self, node_name: str) -> "Pod":
        """A copy that is on *node_name*; what was derived is kept, the JSON text is not."""
        manifest = self.manifest
        # Replaced, never changed in place: snapshots, recordings and a shadow hold the old version.
        spec = msgspec.structs.replace(manifest.spec, node_name=node_name)
        return self._derived_alike(Pod(msgspec.structs.replace(manifest, spec=spec)))

    def unplaced(self) -> "Pod":
        """A copy that has no node and no nominated node, as when it was created."""
        manifest = self.manifest
        spec = msgspec.structs.replace(manifest.spec, node_name="")
        status = msgspec.structs.replace(manifest.status, nominated_node_name="")
        return Pod(msgspec.structs.replace(manifest, spec=spec, status=status))

    def without_labels_of(self, node_labels: Mapping[str, str]) -> "Pod":
        """The pod without the topology labels that it has from a node with *node_labels*."""
        own = self.labels
        # The API server copies a node's topology labels to a pod that is bound there. A decision
        # made again has to see the pod as it was; a label of the pod's own with another value
        # stays.
        copied = {k for k in TOPOLOGY_LABELS if k in own and own[k] == node_labels.get(k)}
        if not copied:
            return self
        kept = {key: value for key, value in own.items() if key not in copied}
        meta = msgspec.structs.replace(self.manifest.metadata, labels=kept)
        return self._derived_alike(Pod(msgspec.structs.replace(self.manifest, metadata=meta)))

    def _derived_alike(self, copy: "Pod") -> "Pod":
        """*copy*, of which all is derived as of this pod, with what is derived already."""
        # Any of these may be None still; then the copy derives it for itself.
        copy._spec = self._spec
        copy._running = self._running
        copy._host_ports = self._host_ports
        copy._qos_class = self._qos_class
        copy._created_at = self._created_at
        copy._problems = self._problems
        copy._volumes = self._volumes
        copy.added_annotations = self.added_annotations
        return copy

    def with_annotations(self, added: Mapping[str, str]) -> "Pod":
        """A copy with more annotations, which its binding is to bring."""
        meta = self.manifest.metadata
        grown = msgspec.structs.replace(meta, annotations={**meta.annotations, **added})
        copy = self._derived_alike(Pod(msgspec.structs.replace(self.manifest, metadata=grown)))
        copy.added_annotations = {**self.added_annotations, **added}
        return copy

    def renamed(self, uid: str, name: str = "") -> "Pod":
        """A copy that is another pod, of this *uid* and, if one is given, of this *name*."""
        manifest = self.manifest
        meta = msgspec.structs.replace(manifest.metadata, uid=uid, name=name or self.name)
        copy = self._derived_alike(Pod(msgspec.structs.replace(manifest, metadata=meta)))
        copy._volumes = None  # some are named after the pod
        return copy

    def __repr__(self) -> str:
        where = f" on {self.node_name}" if self.node_name else ""
        return f"<Pod {self.key}{where}>"

    # --- as written --------------------------------------------------------------------------

    @property
    def resource_version(self) -> str:
        """The opaque version of the object."""
        return self.manifest.metadata.resource_version

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.manifest.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        return self.manifest.metadata.annotations

    @property
    def scheduler_name(self) -> str:
        """The profile that is to schedule it."""
        return self.manifest.spec.scheduler_name

    @property
    def priority(self) -> int:
        """Its priority; 0 if not given."""
        # The Priority admission plugin writes one into every pod; manifests from files need not.
        return self.manifest.spec.priority or 0

    @property
    def nominated_node_name(self) -> str:
        """The node that its status nominates, or empty."""
        return self.manifest.status.nominated_node_name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages it, or None."""
        return self.manifest.metadata.controller

    @property
    def is_terminating(self) -> bool:
        """True once its deletion has been requested."""
        return self.manifest.metadata.deletion_timestamp is not None

    @property
    def created_at(self) -> float:
        """Creation time in seconds since the epoch; 0 if not given."""
        if self._created_at is None:
            # Whole seconds, as the API writes them: pods of one second are ordered by other means.
            self._created_at = epoch_seconds(self.manifest.metadata.creation_timestamp) or 0.0
        return self._created_at

    @property
    def start_time(self) -> float | None:
        """When its node acknowledged it, in seconds since the epoch; None before."""
        return epoch_seconds(self.manifest.status.start_time)

    # --- derived -----------------------------------------------------------------------------

    @property
    def _spec_sums(self) -> RequestSums:
        if self._spec is None:
            self._spec = spec_sums(self.manifest)
        return self._spec

    @property
    def _running_sums(self) -> RequestSums:
        if self._running is None:
            self._running = running_sums(self.manifest)
        return self._running

    @property
    def requests(self) -> Amounts:
        """What it asks for before it is placed: millicores for cpu, whole units for the rest.

        Overhead included, no defaults; holds only the names that were requested. Shared between
        equal pods: not to be changed.
        """
        return self._spec_sums.requests

    @property
    def nonzero_requests(self) -> Amounts:
        """Its cpu and memory with a default for each container that names none."""
        return self._spec_sums.nonzero

    @property
    def scoring_requests(self) -> Amounts:
        """What NodeResourcesFit scores an incoming pod with.

        Like `requests`, with a default of cpu and memory for each container that names none,
        whatever the pod requests as a whole.
        """
        return self._spec_sums.scoring

    @property
    def containers_scoring_requests(self) -> Amounts:
        """The same without pod-level requests, which kube-scheduler up to 1.37 leaves out there."""
        return self._spec_sums.containers_scoring

    @property
    def running_requests(self) -> Amounts:
        """What it counts for on its node: like `requests`, and more while it is being resized."""
        return self._running_sums.requests

    @property
    def running_nonzero_requests(self) -> Amounts:
        """Like `nonzero_requests`, for a pod on its node."""
        return self._running_sums.nonzero

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        """The host ports of its containers and sidecars, each once, in the order of the spec."""
        if self._host_ports is None:
            self._host_ports = _host_ports(self.manifest)
        return self._host_ports

    @property
    def volumes(self) -> tuple[PodVolume, ...]:
        """Its claims and disks, in the order of the spec; usually none."""
        if self._volumes is None:
            self._volumes = pod_volumes(
                self.manifest.spec.volumes, self.namespace, self.name, self.uid
            )
        return self._volumes

    @property
    def qos_class(self) -> str:
        """`Guaranteed`, `Burstable` or `BestEffort`."""
        if self._qos_class is None:
            self._qos_class = _qos_class(self.manifest)
        return self._qos_class

    @property
    def problems(self) -> tuple[str, ...]:
        """What in the manifest does not count as written, each with its path; usually empty.

        Malformed and negative quantities count as 0, those from 2^63 on as the largest int64.
        """
        if self._problems is None:
            self._problems = tuple(_problems(self.manifest))
        return self._problems


def _host_ports(manifest: PodManifest) -> tuple[HostPort, ...]:
    # Init containers that are no sidecars end before the others begin: kube-scheduler does not
    # count their ports, so two pods may share one.
    containers = manifest.spec.containers
    if manifest.spec.init_containers:
        containers = (*filter(is_sidecar, manifest.spec.init_containers), *containers)
    ports: dict[HostPort, None] = {}
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                # A dict as an ordered set: reasons and projections repeat from run to run.
                ports[port.host_ip or ANY_IP, port.protocol or "TCP", port.host_port] = None
    return tuple(ports)


def _qos_class(manifest: PodManifest) -> str:
    """The class by kubelet's rule: requests and limits of cpu and memory, zero counting as none."""
    spec = manifest.spec
    if spec.resources is not None:
        parts: list[tuple[Quantities, Quantities]] = [
            (spec.resources.requests, spec.resources.limits)
        ]
    else:
        parts = [
            (c.resources.requests, c.resources.limits)
            for c in (*spec.containers, *spec.init_containers)
        ]
    requests, limits = dict.fromkeys(_QOS_RESOURCES, 0), dict.fromkeys(_QOS_RESOURCES, 0)
    is_guaranteed = True
    for requested, limited in parts:
        # Exact, not rounded up to millicores: kubelet compares what is written.
        request, limit = exact_amounts(requested), exact_amounts(limited)
        for name in _QOS_RESOURCES:
            requests[name] += request.get(name, 0)
            limits[name] += limit.get(name, 0)
            is_guaranteed = is_guaranteed and limit.get(name, 0) > 0
    if not any(requests.values()) and not any(limits.values()):
        return "BestEffort"
    return "Guaranteed" if is_guaranteed and requests == limits else "Burstable"


def _problems(manifest: PodManifest) -> Iterator[str]:
    spec, status = manifest.spec, manifest.status
    # All problems at once, each with its path: who mends one is not sent back for the next.
    yield from manifest.metadata.unread
    for field, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for i, container in enumerate(containers):
            path = f"spec.{field}[{i}].resources"
            yield from quantity_problems(f"{path}.requests", container.resources.requests)
            yield from quantity_problems(f"{path}.limits", container.resources.limits)
    if spec.resources is not None:
        yield from quantity_problems("spec.resources.requests", spec.resources.requests)
        yield from quantity_problems("spec.resources.limits", spec.resources.limits)
    yield from quantity_problems("spec.overhead", spec.overhead)
    for field, statuses in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for i, container_status in enumerate(statuses):
            path = f"status.{field}[{i}]"
            if container_status.resources is not None:
                yield from quantity_problems(
                    f"{path}.resources.requests", container_status.resources.requests or {}
                )
            yield from quantity_problems(
                f"{path}.allocatedResources", container_status.allocated_resources or {}
            )
    if status.resources is not None:
        yield from quantity_problems("status.resources.requests", status.resources.requests or {})
    yield from quantity_problems("status.allocatedResources", status.allocated_resources or {})
    if (
        manifest.metadata.creation_timestamp
        and epoch_seconds(manifest.metadata.creation_timestamp) is None
    ):
        yield (
            "metadata.creationTimestamp: want an RFC 3339 time, "
            f"got `{manifest.metadata.creation_timestamp}`"
        )
