"""The resources that the embedded API server serves, as data.

Owns names, paths and the traits in which resources differ (subresources, generations, what a
deletion answers, which field selectors exist). Adding a resource is adding a line here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Json = dict[str, Any]
FieldReader = Callable[[Json], str]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _read(path: str, default: str = "") -> FieldReader:
    """A reader of the dotted *path* that answers text, *default* where nothing is set."""
    keys = path.split(".")

    def read(manifest: Json) -> str:
        value: Any = manifest
        for key in keys:
            if not isinstance(value, dict):
                return default
            value = value.get(key)
        return _text(value) or default

    return read


def _fields(*paths: str, **defaults: str) -> dict[str, FieldReader]:
    """Readers of *paths*; a keyword gives a path (dots as `__`) that has a default."""
    readers = {path: _read(path) for path in paths}
    for name, default in defaults.items():
        path = name.replace("__", ".")
        readers[path] = _read(path, default)
    return readers


_POD_FIELDS = _fields(
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.nominatedNodeName",
    spec__hostNetwork="false",
)
_POD_FIELDS |= {
    "spec.host": _POD_FIELDS["spec.nodeName"],  # its name before v1
    "status.podIP": lambda pod: _text(
        next((one.get("ip") for one in (pod.get("status") or {}).get("podIPs") or ()), None)
    ),
    "status.podIPs": lambda _: "",  # known, and never filled in
}
_EVENT_FIELDS = {
    **_fields(
        "metadata.name",
        "metadata.namespace",
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
    "source": lambda event: (
        _text((event.get("source") or {}).get("component"))
        or _text(event.get("reportingComponent"))
    ),
}
# The events.k8s.io names of the same fields; events are stored in their core form.
_NEW_EVENT_FIELDS = {
    {"reportingComponent": "reportingController"}.get(
        name, name.replace("involvedObject.", "regarding.")
    ): reader
    for name, reader in _EVENT_FIELDS.items()
    if name != "source"
}
_NAMES = _fields("metadata.name", "metadata.namespace")
_NO_FIELD = "field label not supported: {}"


@dataclass(frozen=True, eq=False)
class Kind:
    """One resource of one API group version.

    Attributes:
        table: Where its objects are stored; both event resources share one table.
        subresources: `status` splits updates in two; the others are operations of their own.
        counts_generations: `metadata.generation` starts at 1 and grows with the specification.
        returns_deleted: A deletion answers the object instead of a `Status`.
        creates_on_update: PUT of a name that does not exist creates it.
        unconditional_updates: PUT without a resourceVersion is allowed.
        fields: What a field selector may ask for.
        no_field: How any other field is refused.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    counts_generations: bool = False
    returns_deleted: bool = False
    creates_on_update: bool = False
    unconditional_updates: bool = True
    table: str = ""
    fields: Mapping[str, FieldReader] = field(default_factory=lambda: _NAMES)
    no_field: str = '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'

    @cached_property
    def api_version(self) -> str:
        """As in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """As in messages: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        """As in discovery."""
        return self.kind.lower()

    @cached_property
    def has_status(self) -> bool:
        """True if `status` is written through its own subresource."""
        return "status" in self.subresources

    @property
    def base_path(self) -> str:
        """The path of the group version: `/api/v1`, `/apis/apps/v1`."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @cached_property
    def storage(self) -> str:
        """The name of the table that holds the objects."""
        return self.table or self.resource

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of an object, or of its subresource."""
        parts = [self.base_path]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Kind(
    "",
    "v1",
    "pods",
    "Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("status", "binding", "eviction", "resize"),
    counts_generations=True,
    returns_deleted=True,
    fields=_POD_FIELDS,
    no_field=_NO_FIELD,
)
NODES = Kind(
    "",
    "v1",
    "nodes",
    "Node",
    namespaced=False,
    short_names=("no",),
    subresources=("status",),
    fields=_fields("metadata.name", spec__unschedulable="false"),
    no_field=_NO_FIELD,
)
NAMESPACES = Kind(
    "",
    "v1",
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("status", "finalize"),
    returns_deleted=True,
    fields=_fields("metadata.name", "status.phase"),
    no_field=_NO_FIELD,
)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
SECRETS = Kind("", "v1", "secrets", "Secret", fields=_fields(*_NAMES, "type"), no_field=_NO_FIELD)
SERVICES = Kind(
    "",
    "v1",
    "services",
    "Service",
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    returns_deleted=True,
    fields=_fields(*_NAMES, "spec.clusterIP", "spec.type"),
    no_field=_NO_FIELD,
)
SERVICE_ACCOUNTS = Kind(
    "", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True
)
EVENTS = Kind(
    "",
    "v1",
    "events",
    "Event",
    short_names=("ev",),
    creates_on_update=True,
    table="events",
    fields=_EVENT_FIELDS,
    no_field=_NO_FIELD,
)
NEW_EVENTS = Kind(
    "events.k8s.io",
    "v1",
    "events",
    "Event",
    short_names=("ev",),
    creates_on_update=True,
    table="events",
    fields=_NEW_EVENT_FIELDS,
    no_field=_NO_FIELD,
)
REPLICATION_CONTROLLERS = Kind(
    "",
    "v1",
    "replicationcontrollers",
    "ReplicationController",
    short_names=("rc",),
    categories=("all",),
    subresources=("status",),
    counts_generations=True,
    returns_deleted=True,
    fields=_fields(*_NAMES, status__replicas="0"),
    no_field=_NO_FIELD,
)
PERSISTENT_VOLUMES = Kind(
    "",
    "v1",
    "persistentvolumes",
    "PersistentVolume",
    namespaced=False,
    short_names=("pv",),
    subresources=("status",),
    returns_deleted=True,
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    short_names=("pvc",),
    subresources=("status",),
    returns_deleted=True,
)


def _app(plural: str, kind: str, short: str) -> Kind:
    return Kind(
        "apps",
        "v1",
        plural,
        kind,
        short_names=(short,),
        categories=("all",),
        subresources=("status",),
        counts_generations=True,
    )


REPLICA_SETS = _app("replicasets", "ReplicaSet", "rs")
STATEFUL_SETS = _app("statefulsets", "StatefulSet", "sts")
DEPLOYMENTS = _app("deployments", "Deployment", "deploy")
DAEMON_SETS = _app("daemonsets", "DaemonSet", "ds")
JOBS = Kind(
    "batch",
    "v1",
    "jobs",
    "Job",
    categories=("all",),
    subresources=("status",),
    counts_generations=True,
    returns_deleted=True,
    # The selector's name for `status.succeeded`.
    fields={**_NAMES, "status.successful": _read("status.succeeded", "0")},
    no_field='field label "{}" not supported for Job',
)
CRON_JOBS = Kind(
    "batch",
    "v1",
    "cronjobs",
    "CronJob",
    short_names=("cj",),
    categories=("all",),
    subresources=("status",),
    counts_generations=True,
    returns_deleted=True,
)
LIMIT_RANGES = Kind("", "v1", "limitranges", "LimitRange", short_names=("limits",))
POD_DISRUPTION_BUDGETS = Kind(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    short_names=("pdb",),
    subresources=("status",),
    counts_generations=True,
    unconditional_updates=False,
)
LEASES = Kind(
    "coordination.k8s.io",
    "v1",
    "leases",
    "Lease",
    creates_on_update=True,
    unconditional_updates=False,
)
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    namespaced=False,
    short_names=("pc",),
    counts_generations=True,
)
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)


def _storage(
    plural: str, kind: str, *, short: tuple[str, ...] = (), namespaced: bool = False
) -> Kind:
    return Kind(
        "storage.k8s.io",
        "v1",
        plural,
        kind,
        namespaced=namespaced,
        short_names=short,
        subresources=("status",) if plural == "volumeattachments" else (),
        returns_deleted=not namespaced,
    )


STORAGE_CLASSES = _storage("storageclasses", "StorageClass", short=("sc",))
CSI_NODES = _storage("csinodes", "CSINode")
CSI_DRIVERS = _storage("csidrivers", "CSIDriver")
CSI_STORAGE_CAPACITIES = _storage("csistoragecapacities", "CSIStorageCapacity", namespaced=True)
VOLUME_ATTACHMENTS = _storage("volumeattachments", "VolumeAttachment")


def _device(
    plural: str,
    kind: str,
    *,
    namespaced: bool,
    status: bool = False,
    generations: bool = False,
    **selectable: Any,
) -> Kind:
    return Kind(
        "resource.k8s.io",
        "v1",
        plural,
        kind,
        namespaced=namespaced,
        subresources=("status",) if status else (),
        counts_generations=generations,
        returns_deleted=True,
        **selectable,
    )


RESOURCE_CLAIMS = _device("resourceclaims", "ResourceClaim", namespaced=True, status=True)
RESOURCE_CLAIM_TEMPLATES = _device(
    "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
RESOURCE_SLICES = _device(
    "resourceslices",
    "ResourceSlice",
    namespaced=False,
    generations=True,
    fields=_fields("metadata.name", "spec.nodeName", "spec.driver", "spec.pool.name"),
    no_field="field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}",
)
DEVICE_CLASSES = _device("deviceclasses", "DeviceClass", namespaced=False, generations=True)
DEVICE_TAINT_RULES = _device(
    "devicetaintrules", "DeviceTaintRule", namespaced=False, status=True, generations=True
)


def _workload(version: str, plural: str, kind: str, *, status: bool = False) -> Kind:
    """Both versions have the same fields, and their objects are in one table."""
    return Kind(
        "scheduling.k8s.io",
        version,
        plural,
        kind,
        subresources=("status",) if status else (),
        returns_deleted=True,
        unconditional_updates=False,
    )


POD_GROUPS = _workload("v1beta1", "podgroups", "PodGroup", status=True)
ALPHA_POD_GROUPS = _workload("v1alpha3", "podgroups", "PodGroup", status=True)
WORKLOADS = _workload("v1beta1", "workloads", "Workload")
ALPHA_WORKLOADS = _workload("v1alpha3", "workloads", "Workload")


def _kept(group: str, plural: str, kind: str, *, namespaced: bool = True) -> Kind:
    """A kind that is stored, so that whole sets of manifests can be applied, and has no effect."""
    return Kind(group, "v1", plural, kind, namespaced=namespaced)


RBAC = "rbac.authorization.k8s.io"

KINDS: tuple[Kind, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    SERVICE_ACCOUNTS,
    EVENTS,
    NEW_EVENTS,
    REPLICATION_CONTROLLERS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DEPLOYMENTS,
    DAEMON_SETS,
    JOBS,
    CRON_JOBS,
    LIMIT_RANGES,
    POD_DISRUPTION_BUDGETS,
    LEASES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    VOLUME_ATTACHMENTS,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    POD_GROUPS,
    WORKLOADS,
    ALPHA_POD_GROUPS,
    ALPHA_WORKLOADS,
    _kept(RBAC, "roles", "Role"),
    _kept(RBAC, "rolebindings", "RoleBinding"),
    _kept(RBAC, "clusterroles", "ClusterRole", namespaced=False),
    _kept(RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _kept("networking.k8s.io", "networkpolicies", "NetworkPolicy"),
)
BY_PATH: dict[tuple[str, str, str], Kind] = {
    (kind.group, kind.version, kind.plural): kind for kind in KINDS
}
BY_MANIFEST: dict[tuple[str, str], Kind] = {(kind.api_version, kind.kind): kind for kind in KINDS}
