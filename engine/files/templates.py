"""What controllers would make of manifests that no cluster has seen yet: pods, and claims for them.

Owns how many there are, what they are called and whose they are. A workload from a cluster has a
uid, and its pods are there by themselves.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.core.manifests import kinds
from engine.core.manifests.field_errors import shown
from engine.core.queueing.hints.nodes import has_untolerated_taint, matches_own_affinity
from engine.files.admission import KnownObjects
from engine.files.world import OBJECT_KINDS, Manifest, ManifestError, node_of, pod_of
from engine.policy.workload_views import JOB_NAME

#: Kinds of what is made for pods from templates in them.
CLAIMS: Final = ("PersistentVolumeClaim", "ResourceClaim")

# Kinds with a template of pods, and the field that says how many run at once.
_COUNTS: Final = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
    "DaemonSet": "",
}
_API_VERSIONS: Final = {kind.kind: kind.api_version for kind in kinds.KINDS}
_MOST: Final = 100_000
# What pods of a DaemonSet tolerate whatever it says, and on the network of the node, too.
_DAEMON_TOLERATIONS: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_NO_NETWORK: Final = ("network-unavailable", "NoSchedule")

Admit = Callable[[dict[str, Any]], dict[str, Any]]


def planned_objects(
    manifest: Manifest,
    admit: Admit = lambda manifest: manifest,
    nodes: Iterable[Manifest] = (),
) -> list[dict[str, Any]]:
    """What a cluster would make of *manifest*: its pods, before them a Deployment's ReplicaSet.

    Empty for what makes no pods, or was made by a cluster. A DaemonSet has a pod for each of
    *nodes* that it asks for, a StatefulSet the claims of its templates. *admit* gives the form in
    which the API server would store an object; it is asked once for all pods of a template, whose
    fields are shared. Raises `ManifestError` for a malformed number of pods.
    """
    kind, metadata = str(manifest.get("kind", "")), _object(manifest.get("metadata"))
    template = template_of(manifest)
    if kind not in _COUNTS or metadata.get("uid") or template is None:
        return []
    spec = _object(manifest.get("spec"))
    name, within = _name(manifest), _within(manifest)
    made = owners_of(manifest)
    reference = reference_to(made[-1] if made else manifest)
    is_daemon = kind == "DaemonSet"
    count = 1 if is_daemon else _count(f"{kind} `{name}`", _COUNTS[kind], spec)
    if not count:
        return made
    model = admit({**template, "metadata": {**template["metadata"], **within, "name": f"{name}-0"}})
    wanted = _daemon_nodes(model, nodes) if is_daemon else []
    count = len(wanted) if is_daemon else count
    volumes = spec.get("volumeClaimTemplates") if kind == "StatefulSet" else None
    for number in range(count):
        meta = {
            **model["metadata"],
            "name": f"{name}-{number}",
            "ownerReferences": [reference],
        }
        pod_spec = dict(model["spec"])
        if is_daemon:
            pod_spec["affinity"] = _on_node(pod_spec.get("affinity"), wanted[number])
        for volume in volumes or ():
            claim = _claim_of(volume, f"{name}-{number}", within)
            made.append(admit(claim))
            source = {"claimName": claim["metadata"]["name"]}
            mounted = {"name": volume["metadata"]["name"], "persistentVolumeClaim": source}
            others = [
                one for one in pod_spec.get("volumes") or () if one["name"] != mounted["name"]
            ]
            pod_spec["volumes"] = [*others, mounted]
        made.append({"kind": "Pod", "metadata": meta, "spec": pod_spec})
    return made


def owners_of(manifest: Manifest) -> list[dict[str, Any]]:
    """What the controller of *manifest* makes that has the pods: a ReplicaSet, a Job or nothing."""
    kind, spec = str(manifest.get("kind", "")), _object(manifest.get("spec"))
    if kind == "Deployment":
        # Its selector is what the pods spread by.
        made = {"kind": "ReplicaSet", "spec": {"selector": spec.get("selector")}}
    elif kind == "CronJob":
        made = {"kind": "Job", "spec": _object(_object(spec.get("jobTemplate")).get("spec"))}
    else:
        return []
    head = {"namespace": "default", **_within(manifest), "name": _name(manifest)}
    return [{**made, "metadata": {**head, "ownerReferences": [reference_to(manifest)]}}]


def workload_of(manifest: Manifest) -> list[dict[str, Any]]:
    """What policies read of the workload *manifest*, and of what its controller makes of it."""
    metadata = {"namespace": "default", **_object(manifest.get("metadata"))}
    every = [{**manifest, "metadata": metadata}, *owners_of(manifest)]
    return [one for one in every if one.get("kind") in OBJECT_KINDS]


def reference_to(owner: Manifest) -> dict[str, Any]:
    """What the controller of *owner* writes into what it makes."""
    kind, name = str(owner.get("kind", "")), _name(owner)
    about = {"apiVersion": _API_VERSIONS.get(kind, "apps/v1"), "kind": kind, "name": name}
    return {**about, "uid": f"{kind}/{name}", "controller": True}


def _name(manifest: Manifest) -> str:
    metadata = _object(manifest.get("metadata"))
    return str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-."))


def _within(manifest: Manifest) -> dict[str, Any]:
    metadata = _object(manifest.get("metadata"))
    return {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}


def template_of(manifest: Manifest) -> dict[str, Any] | None:
    """The pod, without a name, that the workload *manifest* makes; None if it makes none."""
    spec = _object(manifest.get("spec"))
    template = _object(spec.get("template"))
    pod_spec = _object(template.get("spec"))
    if not pod_spec:
        return None
    metadata, pod_spec = dict(_object(template.get("metadata"))), dict(pod_spec)
    match manifest.get("kind"):
        case "Deployment":
            # It distinguishes revisions: `matchLabelKeys` names it.
            digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()
            metadata["labels"] = {
                **_object(metadata.get("labels")), "pod-template-hash": digest[:10],
            }  # fmt: skip
        case "Job":
            metadata["labels"] = {**_object(metadata.get("labels")), JOB_NAME: _name(manifest)}
        case "DaemonSet":
            pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or ()), *_tolerated(pod_spec)]
    return {"kind": "Pod", "metadata": metadata, "spec": pod_spec}


def _tolerated(pod_spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    network = (_NO_NETWORK,) if pod_spec.get("hostNetwork") else ()
    for key, effect in (*_DAEMON_TOLERATIONS, *network):
        yield {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}


def _daemon_nodes(model: Manifest, nodes: Iterable[Manifest]) -> list[str]:
    """The names of the *nodes* on which the DaemonSet controller wants a pod like *model*.

    Source:
        NodeShouldRunDaemonPod.
    """
    pod = pod_of(model)
    return [
        node.name
        for node in map(node_of, nodes)
        if matches_own_affinity(pod, node) and not has_untolerated_taint(node, pod)
    ]


def _on_node(affinity: Any, node: str) -> dict[str, Any]:
    """*affinity* with *node* as the only one, as the DaemonSet controller writes it."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    hard = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    nodes = _object(_object(affinity).get("nodeAffinity"))
    within = {**nodes, "requiredDuringSchedulingIgnoredDuringExecution": hard}
    return {**_object(affinity), "nodeAffinity": within}


def _claim_of(template: Mapping[str, Any], pod: str, within: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(_object(template.get("metadata")))
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {**metadata, **within, "name": f"{metadata.get('name')}-{pod}"},
        "spec": dict(_object(template.get("spec"))),
    }


def planned_claims(pod: dict[str, Any], known: KnownObjects) -> Iterator[dict[str, Any]]:
    """The claims that controllers would make for *pod*, which names those of devices in its status.

    They are those of its generic ephemeral volumes, and of its `resourceClaimTemplateName`s.
    """
    metadata, spec = _object(pod.get("metadata")), _object(pod.get("spec"))
    if not (spec.get("volumes") or spec.get("resourceClaims")):
        return
    namespace, name = str(metadata.get("namespace") or "default"), metadata.get("name")
    uid = metadata.get("uid") or f"{namespace}/{name}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}

    def claim(kind: str, of: Any, called: str) -> dict[str, Any]:
        given = _object(_object(of).get("metadata"))
        meta = {**given, "name": called, "namespace": namespace, "ownerReferences": [owner]}
        return {"kind": kind, "metadata": meta, "spec": dict(_object(_object(of).get("spec")))}

    for volume in spec.get("volumes") or ():
        if (ephemeral := volume.get("ephemeral")) is not None:
            template = _object(ephemeral).get("volumeClaimTemplate")
            yield claim("PersistentVolumeClaim", template, f"{name}-{volume.get('name')}")
    status = _object(pod.get("status"))
    statuses = list(status.get("resourceClaimStatuses") or ())
    made = {one.get("name") for one in statuses}
    for wanted in spec.get("resourceClaims") or ():
        called = wanted.get("resourceClaimTemplateName")
        found = known.find(kinds.RESOURCE_CLAIM_TEMPLATES, called, namespace) if called else None
        if found is None or wanted.get("name") in made:
            continue
        one = claim("ResourceClaim", found.get("spec"), f"{name}-{wanted.get('name')}")
        statuses.append({"name": wanted.get("name"), "resourceClaimName": one["metadata"]["name"]})
        pod["status"] = {**status, "resourceClaimStatuses": statuses}
        yield one


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
