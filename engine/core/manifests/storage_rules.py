"""Field rules of storage: claims, volumes, classes, drivers, and what drivers offer on nodes.

Owns the tables, and what an update may not change. Of a volume's source only the members that it
cannot be without are looked at.

Source:
    pkg/apis/storage/validation, and the claims and volumes of pkg/apis/core/validation, of
    Kubernetes 1.37.
"""

import posixpath
from collections.abc import Iterator
from typing import Any, Final

from engine.core.manifests.errors import Cause
from engine.core.manifests.field_rules import (
    Check,
    Json,
    Rules,
    at_least,
    denied,
    driver_name,
    duplicate,
    is_set,
    is_there,
    label_if_set,
    name_problems,
    node_selector,
    of,
    of_if_there,
    qualified,
    qualified_name,
    required,
    selector,
    subdomain_if_set,
    too_long,
    unique,
    unsupported,
    within,
    wrong,
)
from engine.core.manifests.quantities import amount
from engine.core.model.storage import BETA_CLASS

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
_LONGEST_NODE_ID: Final = 256
_LARGEST_PARAMETERS: Final = 256 * 1024
# The API server takes so many parameters of a StorageClass.
_MOST_PARAMETERS: Final = 512
_SHORTEST_TOKEN: Final = 600  # seconds
_LONGEST_TOKEN: Final = 2**32
_SHORTEST_PERIOD_SECONDS: Final = 10
_LIFECYCLE_MODES: Final = ("Persistent", "Ephemeral")

_volume_mode: Final = of_if_there("Block", "Filesystem")


def _name(field: str, value: Any, _: Any) -> Iterator[Cause]:
    yield from name_problems(field, value or "")


def _access_modes(field: str, modes: Any, _: Any) -> Iterator[Cause]:
    if not modes:
        yield required(field)
        return
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield unsupported(field, mode, _ACCESS_MODES)
    known = {mode for mode in modes if mode in _ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield denied(field, "may not use ReadWriteOncePod with other access modes")


def _more_than_nothing(field: str, text: str) -> Iterator[Cause]:
    if amount(text) <= 0:
        yield wrong(field, text, "must be greater than zero")


# --- claims -------------------------------------------------------------------------------------


def _storage_request(field: str, resources: Any, _: Any) -> Iterator[Cause]:
    text = (resources.get("requests") or {}).get("storage")
    at = f"{field}[storage]"
    if text is None:
        yield required(at)
    else:
        yield from _more_than_nothing(at, text)


def _data_source(field: str, source: Any, _: Any) -> Iterator[Cause]:
    if source is None:
        return
    for name in ("name", "kind"):
        yield from is_set(f"{field}.{name}", source.get(name), source)
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        shown = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield wrong(field, source.get("kind") or "", shown)
    yield from subdomain_if_set(f"{field}.apiGroup", source.get("apiGroup"), source)


def _one_data_source(field: str, spec: Any, _: Any) -> Iterator[Cause]:
    one, other = spec.get("dataSource"), spec.get("dataSourceRef")
    if one and other and one != other:
        yield wrong(field, f"{field}.dataSource", "must match dataSourceRef")


#: The rules of a claim's specification, within whatever holds it.
CLAIM_SPEC: Final[list[tuple[str, Check]]] = [
    ("spec!.accessModes", _access_modes),
    ("spec!.selector", selector),
    ("spec!.resources!", _storage_request),
    ("spec!.storageClassName", subdomain_if_set),
    ("spec!.volumeMode", _volume_mode),
    ("spec!.dataSource", _data_source),
    ("spec!.dataSourceRef", _data_source),
    ("spec!", _one_data_source),
    ("spec!.volumeAttributesClassName", subdomain_if_set),
]
CLAIM: Final = Rules(CLAIM_SPEC)


def claim_changes(new: Json, old: Json) -> Iterator[Cause]:
    """What an update of a claim may not do: its volume is found once, its size follows rules."""
    now, was = dict(new["spec"]), dict(old["spec"])
    size, before = _requested(now), _requested(was)
    if not was.get("volumeName"):
        was["volumeName"] = now.get("volumeName")
    one, other = (item["metadata"].get("annotations") or {} for item in (new, old))
    name = now.get("storageClassName")
    mark, legacy = one.get(BETA_CLASS), other.get(BETA_CLASS)
    has_none = was.get("storageClassName") is None
    if has_none and legacy in (None, name):
        was["storageClassName"] = name
    # A class that was an annotation becomes a field, and the annotation may go.
    is_moved = has_none and legacy is not None and (name, mark or legacy) == (legacy, legacy)
    if not is_moved and (mark or "") != (legacy or ""):
        yield wrong(f"metadata.annotations.{BETA_CLASS}", mark or "", "field is immutable")
    status = old.get("status") or {}
    if status.get("phase") == "Bound":
        now["resources"] = _with_request(now, before)
        was["volumeAttributesClassName"] = now.get("volumeAttributesClassName")
    if _set_members(now) != _set_members(was):
        shown = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        yield denied("spec", shown)
    if amount(size) < amount(before):
        capacity = (status.get("capacity") or {}).get("storage") or "0"
        if amount(size) <= amount(str(capacity)):
            shown = "field can not be less than status.capacity"
            yield denied("spec.resources.requests.storage", shown)
    if now.get("volumeMode") != was.get("volumeMode"):
        yield wrong("volumeMode", now.get("volumeMode") or "", "field is immutable")
    wanted = new["spec"].get("volumeAttributesClassName")
    has_attributes = status.get("currentVolumeAttributesClassName") is not None
    if has_attributes and not wanted and wanted != old["spec"].get("volumeAttributesClassName"):
        shown = "update is forbidden when status.currentVolumeAttributesClassName is not nil"
        yield denied("spec.volumeAttributesClassName", shown)


def _requested(spec: Json) -> str:
    """The storage that a claim requests, which its rules have seen to be there."""
    text: str = spec["resources"]["requests"]["storage"]
    return text


def _with_request(spec: Json, text: str) -> Json:
    resources = spec["resources"]
    return {**resources, "requests": {**resources["requests"], "storage": text}}


def _set_members(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value is not None}


# --- volumes ------------------------------------------------------------------------------------


def _no_steps_back(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if ".." in (value or "").split("/"):
        yield wrong(field, value, "must not contain '..'")


def _absolute(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if not (value or "").startswith("/"):
        yield wrong(field, value or "", "must be an absolute path")


def _needs(*members: str) -> list[tuple[str, Check]]:
    return [(name, is_set) for name in members]


def _secret(name: str) -> list[tuple[str, Check]]:
    return [
        (f"{name}.name", is_set),
        (f"{name}.name", subdomain_if_set),
        (f"{name}.namespace", is_set),
        (f"{name}.namespace", label_if_set),
    ]


_PARTITION: Final = ("partition", within(0, 255))
#: The kinds of volumes in the order in which the API server looks, with their rules.
_SOURCES: Final[dict[str, list[tuple[str, Check]]]] = {
    "hostPath": [*_needs("path"), ("path", _no_steps_back)],
    "gcePersistentDisk": [*_needs("pdName"), _PARTITION],
    "awsElasticBlockStore": [*_needs("volumeID"), _PARTITION],
    "glusterfs": _needs("endpoints", "path"),
    "flocker": [],
    "nfs": [*_needs("server", "path"), ("path", _absolute)],
    "rbd": _needs("monitors", "image"),
    "quobyte": [],
    "cephfs": _needs("monitors"),
    "iscsi": [*_needs("targetPortal", "iqn"), ("lun", within(0, 255))],
    "cinder": _needs("volumeID"),
    "fc": [],
    "flexVolume": _needs("driver"),
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _needs("diskName", "diskURI"),
    "scaleIO": [],
    "local": [*_needs("path"), ("path", _no_steps_back)],
    "storageos": [],
    "csi": [
        ("driver", driver_name),
        *_needs("volumeHandle"),
        *_secret("controllerPublishSecretRef"),
        *_secret("controllerExpandSecretRef"),
        *_secret("nodePublishSecretRef"),
        *_secret("nodeExpandSecretRef"),
    ],
}
_SOURCE_RULES: Final = {name: Rules(rules) for name, rules in _SOURCES.items()}
#: What the API server calls a member in causes, where it does not use its name.
_CALLED: Final = {"gcePersistentDisk": "persistentDisk"}
_CALLED_SECOND: Final = {"cephfs": "cephFS"}
#: The kinds of volumes that are mounted with options of an annotation.
_WITH_OPTIONS: Final = frozenset(
    {
        "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi",
        "cinder", "cephfs", "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk",
    }
)  # fmt: skip


def _source(field: str, spec: Any, _: Any) -> Iterator[Cause]:
    """It is one kind of volume."""
    present = [name for name in _SOURCES if spec.get(name) is not None]
    if not present:
        yield required(field, "must specify a volume type")
    for name in present:
        if name == present[0] or name == "flexVolume":
            at = f"{field}.{_CALLED.get(name, name)}"
            yield from _SOURCE_RULES[name].problems(at, spec[name])
            if name == "local" and spec.get("nodeAffinity") is None:
                yield required(f"{field}.nodeAffinity", "Local volume requires node affinity")
        else:
            at = f"{field}.{_CALLED_SECOND.get(name, name)}"
            yield denied(at, "may not specify more than 1 volume type")
    root = (spec.get("hostPath") or {}).get("path") or ""
    is_root = bool(root) and not posixpath.normpath(root).strip("/")
    if is_root and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        shown = "may not be 'recycle' for a hostPath mount of '/'"
        yield denied(f"{field}.persistentVolumeReclaimPolicy", shown)


def _capacity(field: str, capacity: Any, _: Any) -> Iterator[Cause]:
    if not capacity:
        yield required(field)
    if {*(capacity or {})} != {"storage"}:
        yield unsupported(field, str(capacity or {}), ("storage",))
    for name, text in (capacity or {}).items():
        yield from _more_than_nothing(f"{field}[{name}]", text)


def _attributes_class(field: str, value: Any, spec: Any) -> Iterator[Cause]:
    if value is None:
        return
    if not value:
        yield required(field, "an empty string is disallowed")
    yield from subdomain_if_set(field, value, spec)
    if spec.get("csi") is None:
        at = f"{field.rpartition('.')[0]}.csi"
        yield required(at, "has to be specified when using volumeAttributesClassName")


_VOLUME: Final = Rules(
    [
        ("spec!.accessModes", _access_modes),
        ("spec!.capacity", _capacity),
        ("spec!.persistentVolumeReclaimPolicy", of("Delete", "Recycle", "Retain")),
        ("spec!.nodeAffinity.required", is_there),
        ("spec!.nodeAffinity.required", node_selector),
        ("spec!", _source),
        ("spec!.storageClassName", subdomain_if_set),
        ("spec!.volumeMode", _volume_mode),
        ("spec!.volumeAttributesClassName", _attributes_class),
    ]
)


def volume(manifest: Json) -> Iterator[Cause]:
    """The rules for a PersistentVolume."""
    yield from _VOLUME.problems("", manifest)
    has_options = _MOUNT_OPTIONS in (manifest["metadata"].get("annotations") or {})
    if has_options and not _WITH_OPTIONS & (manifest.get("spec") or {}).keys():
        shown = "may not specify mount options for this volume type"
        yield denied(f"metadata.annotations.{_MOUNT_OPTIONS}", shown)


def volume_changes(new: Json, old: Json) -> Iterator[Cause]:
    """What an update of a PersistentVolume may not do: what and where it is stays."""
    now, was = new["spec"], old["spec"]
    if _sources(now, was) != _sources(was, was):
        shown = "spec.persistentvolumesource is immutable after creation"
        yield denied("spec.persistentvolumesource", shown)
    if now.get("volumeMode") != was.get("volumeMode"):
        yield wrong("volumeMode", now.get("volumeMode") or "", "field is immutable")
    affinity = was.get("nodeAffinity")
    if affinity is not None and not _is_same_place(now.get("nodeAffinity"), affinity):
        shown = "field is immutable, except for updating from beta label to GA"
        yield wrong("nodeAffinity", "", shown)
    name = "volumeAttributesClassName"
    if was.get(name) is not None and now.get(name) is None:
        yield denied(f"spec.{name}", "update from non-nil value to nil is forbidden")


def _sources(spec: Json, old: Json) -> Json:
    found = {name: spec[name] for name in _SOURCES if spec.get(name) is not None}
    csi, name = old.get("csi"), "controllerExpandSecretRef"
    if "csi" in found and csi is not None and csi.get(name) is None:  # it may be set later
        found["csi"] = {key: value for key, value in found["csi"].items() if key != name}
    return found


#: The labels of topology that were renamed: a volume may get the new one.
_RENAMED: Final = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _is_same_place(new: Any, old: Any) -> bool:
    """True if two node affinities differ in nothing but labels that got their new names."""
    if isinstance(new, dict) and isinstance(old, dict):
        if "operator" in old and _RENAMED.get(old.get("key", "")) == new.get("key"):
            old = {**old, "key": new.get("key")}
        return new.keys() == old.keys() and all(_is_same_place(new[key], old[key]) for key in old)
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(_is_same_place, new, old))
    return bool(new == old)


# --- classes ------------------------------------------------------------------------------------


def _qualified_in_lower_case(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value:
        yield from qualified(field, value.lower())


def _parameters(field: str, parameters: Any, _: Any) -> Iterator[Cause]:
    found = parameters or {}
    if len(found) > _MOST_PARAMETERS:
        yield too_long(field, _MOST_PARAMETERS)
        return
    if "" in found:
        yield wrong(field, "", "field can not be empty.")
    if sum(len(f"{key}{text}".encode()) for key, text in found.items()) > _LARGEST_PARAMETERS:
        yield too_long(field, _LARGEST_PARAMETERS)


def _topologies(field: str, terms: Any, _: Any) -> Iterator[Cause]:
    """No two terms are alike, and none is empty."""
    seen: list[dict[str, set[str]]] = [{}]
    for index, term in enumerate(terms or ()):
        at, wanted = f"{field}[{index}].matchLabelExpressions", {}
        for position, one in enumerate(term.get("matchLabelExpressions") or ()):
            key, values = one.get("key") or "", one.get("values") or []
            if key in wanted:
                yield duplicate(f"{at}[{position}].key", key)
            wanted[key] = {*values}
        if wanted in seen:
            yield duplicate(at, "")
        seen.append(wanted)


STORAGE_CLASS: Final = Rules(
    [
        ("provisioner", is_set),
        ("provisioner", _qualified_in_lower_case),
        ("parameters", _parameters),
        ("reclaimPolicy", of("Delete", "Retain")),
        ("volumeBindingMode", of_if_there("Immediate", "WaitForFirstConsumer")),
        ("allowedTopologies", _topologies),
        ("allowedTopologies[].matchLabelExpressions[].key", qualified_name),
        ("allowedTopologies[].matchLabelExpressions[].values", is_set),
        ("allowedTopologies[].matchLabelExpressions[].values", unique()),
    ]
)


# --- drivers, and what they offer ---------------------------------------------------------------


def _token_requests(field: str, asked: Any, _: Any) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, one in enumerate(asked or ()):
        audience, seconds = one.get("audience") or "", one.get("expirationSeconds")
        if audience in seen:
            yield duplicate(f"{field}[{index}].audience", audience)
            continue
        seen.add(audience)
        if seconds is not None and not _SHORTEST_TOKEN <= seconds <= _LONGEST_TOKEN:
            shown = "may not specify a duration less than 10 minutes or larger than 2^32 seconds"
            yield wrong(f"{field}[{index}].expirationSeconds", seconds, shown)


def _tokens_in_secrets(field: str, value: Any, spec: Any) -> Iterator[Cause]:
    if value is not None and not spec.get("tokenRequests"):
        shown = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield wrong(field, str(value).lower(), shown)


def _lifecycle_modes(field: str, modes: Any, _: Any) -> Iterator[Cause]:
    for mode in modes or ():
        if mode not in _LIFECYCLE_MODES:
            yield unsupported(field, mode, _LIFECYCLE_MODES)


def _update_period(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value is not None and value < _SHORTEST_PERIOD_SECONDS:
        yield wrong(field, value, "must be greater than or equal to 10 seconds")


DRIVER: Final = Rules(
    [
        ("spec!.fsGroupPolicy", of_if_there("File", "None", "ReadWriteOnceWithFSType")),
        ("spec!.tokenRequests", _token_requests),
        ("spec!.volumeLifecycleModes", _lifecycle_modes),
        ("spec!.nodeAllocatableUpdatePeriodSeconds", _update_period),
        ("spec!.serviceAccountTokenInSecrets", _tokens_in_secrets),
    ]
)


def _node_id(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if not value:
        yield required(field)
    elif len(value.encode()) > _LONGEST_NODE_ID:
        yield wrong(field, value, f"must be {_LONGEST_NODE_ID} characters or less")


def _driver_names(field: str, drivers: Any, _: Any) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, driver in enumerate(drivers or ()):
        name = driver.get("name") or ""
        if name in seen:
            yield duplicate(f"{field}[{index}].name", name)
        seen.add(name)


def _topology_keys(field: str, driver: Any, _: Any) -> Iterator[Cause]:
    """The keys are labels; causes name the driver."""
    keys = driver.get("topologyKeys") or ()
    for index, key in enumerate(keys):
        yield from is_set(field, key, driver)
        if key in keys[:index]:
            yield duplicate(field, key)
        yield from qualified(field, key)


NODE: Final = Rules(
    [
        ("spec!.drivers", _driver_names),
        ("spec!.drivers[]", _topology_keys),
        ("spec!.drivers[].name", driver_name),
        ("spec!.drivers[].nodeID", _node_id),
        ("spec!.drivers[].allocatable.count", at_least(0)),
    ]
)


def node_changes(new: Json, old: Json) -> Iterator[Cause]:
    """What an update of a CSINode may not do: of a driver that stays, only its count changes."""
    known = {
        one.get("name"): _identity(one) for one in (old.get("spec") or {}).get("drivers") or ()
    }
    for driver in (new.get("spec") or {}).get("drivers") or ():
        if known.get(driver.get("name"), _identity(driver)) != _identity(driver):
            yield wrong("spec.drivers", "", "field is immutable")


def _identity(driver: Json) -> Json:
    return {key: value for key, value in driver.items() if key != "allocatable"}


def _not_negative(field: str, value: Any, _: Any) -> Iterator[Cause]:
    if value is not None and amount(value) < 0:
        yield wrong(field, value, "must be greater than or equal to 0")


CAPACITY: Final = Rules(
    [
        ("nodeTopology", selector),
        ("storageClassName", _name),
        ("capacity", _not_negative),
    ]
)


def _attached(field: str, source: Any, _: Any) -> Iterator[Cause]:
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    shown = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if name is None and inline is None:
        yield required(field, shown)
    elif name is not None and inline is not None:
        yield denied(field, shown)
    elif name == "":
        yield required(f"{field}.persistentVolumeName")
    if name is not None:
        yield from name_problems(f"{field}.persistentVolumeName", name)


ATTACHMENT: Final = Rules(
    [
        ("spec!.attacher", driver_name),
        ("spec!.source!", _attached),
        ("spec!.nodeName", _name),
    ]
)
