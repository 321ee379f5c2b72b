"""The pods that a workload would make: for manifests that no cluster has seen yet.

Owns how many there are and what they are called. A workload from a cluster has a uid, and its pods
are there by themselves.
"""

from collections.abc import Mapping
from typing import Any, Final

from engine.manifests.field_errors import shown
from engine.offline.world import Manifest, ManifestError

# Kinds with a template of pods, and the field that says how many run at once.
_COUNTS: Final = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
_MOST: Final = 100_000


def planned_objects(manifest: Manifest) -> list[dict[str, Any]]:
    """What a cluster would make of *manifest*: its pods, before them a Deployment's ReplicaSet.

    Empty for what makes no pods, or was made by a cluster. Raises `ManifestError` for a malformed
    number of pods.
    """
    kind, metadata = str(manifest.get("kind", "")), _object(manifest.get("metadata"))
    spec = _object(manifest.get("spec"))
    template = _object(spec.get("template"))
    if kind not in _COUNTS or metadata.get("uid") or not _object(template.get("spec")):
        return []
    name = str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-."))
    within = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
    made: list[dict[str, Any]] = []
    owner = kind
    if kind == "Deployment":
        owner = "ReplicaSet"
        # Its selector is what the pods spread by.
        head = {"name": name, **within}
        made.append({"kind": owner, "metadata": head, "spec": {"selector": spec.get("selector")}})
    reference = {"kind": owner, "name": name, "uid": f"{owner}/{name}", "controller": True}
    for number in range(_count(f"{kind} `{name}`", _COUNTS[kind], spec)):
        meta = {
            **_object(template.get("metadata")),
            **within,
            "name": f"{name}-{number}",
            "ownerReferences": [reference],
        }
        made.append({"kind": "Pod", "metadata": meta, "spec": dict(template["spec"])})
    return made


def _count(what: str, member: str, spec: Mapping[str, Any]) -> int:
    """How many pods run at once: of a job no more than are to complete."""
    counts = []
    for name, default in ((member, 1), ("completions", None)):
        count = spec.get(name, default)
        if count is None:
            continue
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST:
            wanted = f"want an int in 0..{_MOST}, got {shown(count)}"
            raise ManifestError(f"{what}: spec.{name}: {wanted}")
        counts.append(count)
    return min(counts, default=1)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
