"""The API resources that the scheduler touches, and their paths.

Owns names and URL paths; knows nothing of requests.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

#: Names that need no escaping, as nearly all: matching one is several times faster than escaping.
_is_plain: Final = re.compile(r"[A-Za-z0-9._-]+").fullmatch


def _escaped(name: str) -> str:
    return name if _is_plain(name) else quote(name, safe="")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API.

    Attributes:
        group: API group; "" for the core group.
        version: API version, such as `v1`.
        plural: Name in paths, such as `pods`.
        kind: Name in objects, such as `Pod`.
        namespaced: False if its objects belong to the whole cluster.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """What objects carry as `apiVersion`: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> str:
        """URL path of the collection, one object, or its subresource.

        Raises `ValueError` for a namespace on a cluster-wide resource, and for a single object of
        a namespaced resource without one: both would silently name something else.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural}: not namespaced, got namespace `{namespace}`")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural}: `{name}` needs a namespace")
        if subresource and not name:
            raise ValueError(f"{self.plural}: subresource `{subresource}` needs a name")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace:
            parts += ["namespaces", _escaped(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_escaped(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        """`pods`, `leases.coordination.k8s.io`: as people write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods", "Pod", True)
NODES = Resource("", "v1", "nodes", "Node", False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
SERVICES = Resource("", "v1", "services", "Service", True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", True
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True
)

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True)
JOBS = Resource("batch", "v1", "jobs", "Job", True)
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True
)

STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False)
CSI_STORAGE_CAPACITIES = Resource(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True
)
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False
)

WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True)

RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False)
# Served since Kubernetes 1.37.
DEVICE_TAINT_RULES = Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", False)

# Served with the feature gate GenericWorkload and one of its versions on.
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True)

#: Resources that an API server may serve only in an older version, with these, the newest first.
OLDER_VERSIONS: Mapping[Resource, tuple[Resource, ...]] = {
    POD_GROUPS: tuple(replace(POD_GROUPS, version=version) for version in ("v1alpha3", "v1alpha2"))
}


def resource_of(api_version: str, kind: str) -> Resource:
    """The resource of a kind that is known by its name alone, to list all of its objects.

    Its plural is guessed as Kubernetes' own tools do (`meta.UnsafeGuessKindToResource`).
    """
    group, _, version = api_version.rpartition("/")
    name = kind.lower()
    if name.endswith("s"):
        plural = f"{name}es"
    elif name.endswith("y"):
        plural = f"{name[:-1]}ies"
    else:
        plural = f"{name}s"
    return Resource(group, version, plural, kind, namespaced=True)
