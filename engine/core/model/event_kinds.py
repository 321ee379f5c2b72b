"""The kinds of objects that events are about: the API server's, and those that it does not have."""

from collections.abc import Mapping
from typing import Final

ASSIGNED_POD: Final = "AssignedPod"
"""A pod on a node, or nominated to one."""
TARGET_POD: Final = "TargetPod"
"""The waiting pod itself."""
UNSCHEDULED_POD: Final = "UnscheduledPod"
"""Another pod without a node."""
NODE: Final = "Node"
FACTS: Final = "Facts"
"""What is measured or known elsewhere about nodes, pods or the cluster."""
VERSION: Final = "Version"
"""The minor version of the API server."""

#: What decisions read besides pods and nodes: kube's kind of each plural resource name.
KINDS: Final[Mapping[str, str]] = {
    "namespaces": "Namespace",
    "services": "Service",
    "replicationcontrollers": "ReplicationController",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "deployments": "Deployment",
    "jobs": "Job",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "persistentvolumes": "PersistentVolume",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
    "csidrivers": "CSIDriver",
    "csistoragecapacities": "CSIStorageCapacity",
    "volumeattachments": "VolumeAttachment",
    "podgroups": "PodGroup",
    "deviceclasses": "DeviceClass",
    "resourceslices": "ResourceSlice",
    "devicetaintrules": "DeviceTaintRule",
    "resourceclaims": "ResourceClaim",
}
PLURALS: Final[Mapping[str, str]] = {kind: plural for plural, kind in KINDS.items()}
