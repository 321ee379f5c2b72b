"""What kube-controller-manager does in an embedded cluster, as far as a demo needs it.

Namespaces that are deleted are emptied; what belongs to owners that are gone is deleted; what pods
use stays while they do; Deployments have a ReplicaSet, and ReplicaSets and Jobs their pods. Each
change says what it concerns, and that is compared as a whole with how it should be: there is no
other state.

Different from the real ones on purpose: an update of a Deployment replaces all pods at once, pods
without an owner are not adopted, Jobs have no indexes and no backoff, and no conditions are
written but those of Jobs.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from devkit.cluster.api import PROPAGATION
from devkit.cluster.companion import Companion
from devkit.cluster.kinds import BY_MANIFEST, KINDS
from devkit.cluster.pods import TERMINAL
from devkit.cluster.store import Version
from engine.core.manifests import admission, kinds
from engine.core.manifests.kinds import Kind

Json = dict[str, Any]

# One kind for each table: some are served in several versions.
_STORED: Final = {kind.storage: kind for kind in reversed(KINDS)}
# They come often, and nothing follows from them; with their namespace they are deleted.
_UNFOLLOWED: Final = frozenset({kinds.EVENTS.storage, kinds.LEASES.storage})
_HASH: Final = "pod-template-hash"
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_JOB_UID: Final = "batch.kubernetes.io/controller-uid"
# How objects are deleted: what belongs to them follows by itself.
_BACKGROUND: Final = {"propagationPolicy": "Background"}
_FOREGROUND: Final = PROPAGATION["Foreground"]


class Controllers(Companion):
    """The controllers of namespaces, garbage, protection, Deployments, ReplicaSets and Jobs."""

    _kinds = tuple(kind for storage, kind in _STORED.items() if storage not in _UNFOLLOWED)

    def consider(self, kind: Kind, version: Version) -> None:
        """Bring about what the object wants, and what its owners want of it."""
        self._sync_soon(kind, version.key)
        if kind in _PROTECTED:
            self._after(0, self._let_go, kind, version.key)
        if kind is kinds.PODS:
            self._let_go_of_used(version.manifest)
        if _owners(version.manifest):
            self._after(0, self._collect, kind, version.key)
        if _wanted_of_dependents(version.manifest):
            self._after(0, self._release, kind, version.key)
        self._sync_owners(version.manifest)

    def consider_gone(self, kind: Kind, version: Version) -> None:
        """Do without the object: its owners may want another one, and what it owned goes too."""
        self._sync_owners(version.manifest)
        if kind is kinds.PODS:
            self._let_go_of_used(version.manifest)
        self._after(0, self._collect_all)
        if namespace := version.manifest["metadata"].get("namespace"):
            self._sync_soon(kinds.NAMESPACES, namespace)

    def _sync_owners(self, manifest: Json) -> None:
        for owner in _owners(manifest):
            if kind := _kind_of(owner):
                key = _owner_key(kind, owner, manifest)
                self._sync_soon(kind, key)
                self._after(0, self._release, kind, key)

    def _sync_soon(self, kind: Kind, key: str) -> None:
        if kind in _SYNCS:
            self._after(0, self._sync, kind, key)

    def _sync(self, kind: Kind, key: str) -> None:
        version = self._api.store.get(kind.storage, key)
        if version is not None:
            _SYNCS[kind](self, version.manifest)

    # --- namespaces ------------------------------------------------------------------------

    def empty(self, namespace: Json) -> None:
        """Delete what is in a namespace that is being deleted, and then let it go."""
        metadata = namespace["metadata"]
        if not metadata.get("deletionTimestamp"):
            return
        left = 0
        for kind in _STORED.values():
            if kind.namespaced:
                for version in self._in_namespace(kind, metadata["name"]):
                    left += not self._delete(kind, version.manifest)
        # Pods go when their grace is over, others with their last finalizer: changes come then.
        if not left:
            self._api.finalize(metadata["name"], {"spec": {"finalizers": []}})

    # --- garbage ---------------------------------------------------------------------------

    def _collect_all(self) -> None:
        for kind, version in self._all_owned():
            self._after(0, self._collect, kind, version.key)

    def _collect(self, kind: Kind, key: str) -> None:
        """Delete an object whose owners are all gone."""
        version = self._api.store.get(kind.storage, key)
        if version is None or version.manifest["metadata"].get("deletionTimestamp"):
            return
        if not any(self._is_there(owner, version.manifest) for owner in _owners(version.manifest)):
            self._delete(kind, version.manifest)

    def _release(self, kind: Kind, key: str) -> None:
        """Orphan what belongs to an object that is being deleted, or delete it first: as asked."""
        version = self._api.store.get(kind.storage, key)
        wanted = "" if version is None else _wanted_of_dependents(version.manifest)
        if version is None or not wanted:
            return
        uid = version.manifest["metadata"]["uid"]
        dependents = [
            (of, one.manifest)
            for of, one in self._all_owned()
            if any(owner["uid"] == uid for owner in _owners(one.manifest))
        ]
        for of, one in dependents:
            if wanted == _FOREGROUND:
                self._delete(of, one)
                continue
            left = [owner for owner in _owners(one) if owner["uid"] != uid]
            metadata = {**one["metadata"], "ownerReferences": left}
            if not left:
                del metadata["ownerReferences"]
            self._write(of, {**one, "metadata": metadata})
        if wanted != _FOREGROUND or not dependents:
            metadata = version.manifest["metadata"]
            kept = [one for one in metadata["finalizers"] if one != wanted]
            self._write(kind, {**version.manifest, "metadata": {**metadata, "finalizers": kept}})

    def _is_there(self, owner: Json, manifest: Json) -> bool:
        kind = _kind_of(owner)
        # Nothing says that an owner is gone which is of a kind that is not served, or which would
        # be in a namespace where what belongs to it is in none.
        if kind is None or (kind.namespaced and not manifest["metadata"].get("namespace")):
            return True
        version = self._api.store.get(kind.storage, _owner_key(kind, owner, manifest))
        return version is not None and version.manifest["metadata"]["uid"] == owner["uid"]

    # --- protection ------------------------------------------------------------------------

    def _let_go_of_used(self, pod: Json) -> None:
        for kind, name, _ in _used(pod):
            self._after(0, self._let_go, kind, f"{pod['metadata']['namespace']}/{name}")

    def _let_go(self, kind: Kind, key: str) -> None:
        """Take the finalizer off an object that is being deleted and not used any more."""
        version = self._api.store.get(kind.storage, key)
        if version is None or not version.manifest["metadata"].get("deletionTimestamp"):
            return
        metadata, finalizer = version.manifest["metadata"], _PROTECTED[kind]
        finalizers = metadata.get("finalizers") or []
        if finalizer not in finalizers or self._is_used(kind, version.manifest):
            return
        kept = [one for one in finalizers if one != finalizer]
        self._write(kind, {**version.manifest, "metadata": {**metadata, "finalizers": kept}})

    def _is_used(self, kind: Kind, manifest: Json) -> bool:
        if kind is kinds.PERSISTENT_VOLUMES:
            return _phase(manifest) == "Bound"
        wanted = (kind, manifest["metadata"]["name"], True)
        pods = self._in_namespace(kinds.PODS, manifest["metadata"]["namespace"])
        return any(wanted in _used(pod.manifest) for pod in pods)

    # --- workloads -------------------------------------------------------------------------

    def roll_out(self, deployment: Json) -> None:
        """Give a Deployment the ReplicaSet of its template, and the older ones no pods."""
        metadata, spec = deployment["metadata"], deployment["spec"]
        if metadata.get("deletionTimestamp"):
            return
        name, template = metadata["name"], spec["template"]
        digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:10]
        current = f"{name}-{digest}"
        owned = self._owned(kinds.REPLICA_SETS, deployment)
        for one in owned:
            wanted = spec["replicas"] if one["metadata"]["name"] == current else 0
            if one["spec"]["replicas"] != wanted:
                resized = {**one, "spec": {**one["spec"], "replicas": wanted}}
                self._write(kinds.REPLICA_SETS, resized)
        if current not in [one["metadata"]["name"] for one in owned]:
            hashed = {_HASH: digest}
            labels = {**(template["metadata"].get("labels") or {}), **hashed}
            selector = spec["selector"]
            matched = {**(selector.get("matchLabels") or {}), **hashed}
            made: Json = {
                "metadata": {"name": current, "labels": labels},
                "spec": {
                    "replicas": spec["replicas"],
                    "selector": {**selector, "matchLabels": matched},
                    "template": {
                        **template,
                        "metadata": {**template["metadata"], "labels": labels},
                    },
                },
            }
            self._create(kinds.REPLICA_SETS, made, kinds.DEPLOYMENTS, deployment)
        statuses = {one["metadata"]["name"]: one.get("status") or {} for one in owned}
        ready = sum(one.get("readyReplicas", 0) for one in statuses.values())
        status = {
            "replicas": sum(one.get("replicas", 0) for one in statuses.values()),
            "updatedReplicas": statuses.get(current, {}).get("replicas", 0),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        self._report(kinds.DEPLOYMENTS, deployment, status)

    def replicate(self, replica_set: Json) -> None:
        """Give a ReplicaSet as many pods as it wants."""
        if replica_set["metadata"].get("deletionTimestamp"):
            return
        template, wanted = replica_set["spec"]["template"], replica_set["spec"]["replicas"]
        pods = self._active_pods(replica_set)
        self._scale(kinds.REPLICA_SETS, replica_set, template, pods, wanted)
        ready = sum(map(_is_ready, pods))
        status = {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
        self._report(kinds.REPLICA_SETS, replica_set, status)

    def run_job(self, job: Json) -> None:
        """Give a Job pods until enough of them have succeeded, or too many failed."""
        metadata, spec, before = job["metadata"], job["spec"], job.get("status") or {}
        if metadata.get("deletionTimestamp") or before.get("completionTime"):
            return
        phases = [_phase(pod) for pod in self._owned(kinds.PODS, job)]
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        at_once, completions = spec.get("parallelism", 1), spec.get("completions")
        if completions is None and "parallelism" not in spec:
            completions = 1
        is_failed = failed > spec.get("backoffLimit", 6) or before.get("conditions")
        pods = self._active_pods(job)
        if is_failed or spec.get("suspend"):
            wanted = 0
        elif completions is None:
            # Pods that share out their work: once one has succeeded, no other is started.
            wanted = len(pods) if succeeded else at_once
        else:
            wanted = min(at_once, completions - succeeded)
        template = dict(spec["template"])
        labels = {_JOB_NAME: metadata["name"], _JOB_UID: metadata["uid"]}
        inner = template.get("metadata") or {}
        template["metadata"] = {**inner, "labels": {**(inner.get("labels") or {}), **labels}}
        self._scale(kinds.JOBS, job, template, pods, wanted)
        status: Json = {
            "startTime": before.get("startTime") or self._api.now(),
            "active": len(pods),
            "ready": sum(map(_is_ready, pods)),
            "succeeded": succeeded,
            "failed": failed,
        }
        is_done = succeeded if completions is None else succeeded >= completions
        if is_failed:
            status["conditions"] = [{"type": "Failed", "status": "True"}]
        elif is_done and not pods:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
            status["completionTime"] = self._api.now()
        self._report(kinds.JOBS, job, status)

    def _scale(
        self, kind: Kind, owner: Json, template: Json, pods: list[Json], wanted: int
    ) -> None:
        """Create pods of *template*, or delete some of *pods*; least is lost with the first."""
        head = template.get("metadata") or {}
        for _ in range(wanted - len(pods)):
            meta = {key: head[key] for key in ("labels", "annotations") if key in head}
            meta["generateName"] = f"{owner['metadata']['name']}-"
            self._create(kinds.PODS, {"metadata": meta, "spec": template["spec"]}, kind, owner)
        newest_first = sorted(pods, key=lambda pod: -int(pod["metadata"]["resourceVersion"]))
        for pod in sorted(newest_first, key=_progress)[: max(0, len(pods) - wanted)]:
            self._delete(kinds.PODS, pod)

    # --- objects ---------------------------------------------------------------------------

    def _in_namespace(self, kind: Kind, namespace: str) -> list[Version]:
        table = self._api.store.table(kind.storage)
        return table.at(self._api.store.revision).scan(f"{namespace}/")

    def _all_owned(self) -> list[tuple[Kind, Version]]:
        """Every object that has owners, with its kind."""
        return [
            (kind, version)
            for kind in self._kinds
            for version in self._api.store.table(kind.storage).objects.values()
            if _owners(version.manifest)
        ]

    def _owned(self, kind: Kind, owner: Json) -> list[Json]:
        """The objects of *kind* of which *owner* is the controller."""
        uid, namespace = owner["metadata"]["uid"], owner["metadata"]["namespace"]
        return [
            version.manifest
            for version in self._in_namespace(kind, namespace)
            if any(one["uid"] == uid and one.get("controller") for one in _owners(version.manifest))
        ]

    def _active_pods(self, owner: Json) -> list[Json]:
        """The pods of *owner* that run or will, those that are being deleted left out."""
        return [
            pod
            for pod in self._owned(kinds.PODS, owner)
            if not pod["metadata"].get("deletionTimestamp") and _phase(pod) not in TERMINAL
        ]

    def _create(self, kind: Kind, manifest: Json, owner_kind: Kind, owner: Json) -> None:
        metadata = owner["metadata"]
        reference = {
            "apiVersion": owner_kind.api_version,
            "kind": owner_kind.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        manifest["metadata"]["ownerReferences"] = [reference]
        self._api.create(kind, metadata["namespace"], manifest)

    def _delete(self, kind: Kind, manifest: Json) -> bool:
        """Delete an object; True if it is gone already."""
        metadata = manifest["metadata"]
        options = {**_BACKGROUND, "preconditions": {"uid": metadata["uid"]}}
        _, is_gone = self._api.delete(
            kind, metadata.get("namespace", ""), metadata["name"], options
        )
        return is_gone

    def _write(self, kind: Kind, manifest: Json) -> None:
        metadata = manifest["metadata"]
        self._api.update(kind, metadata.get("namespace", ""), metadata["name"], manifest)

    def _report(self, kind: Kind, manifest: Json, status: Json) -> None:
        """Write a status; one that says nothing new is not written."""
        metadata = manifest["metadata"]
        status["observedGeneration"] = metadata["generation"]
        changed = {**manifest, "status": {**(manifest.get("status") or {}), **status}}
        self._api.update(
            kind, metadata["namespace"], metadata["name"], changed, subresource="status"
        )


_SYNCS: Final[dict[Kind, Callable[[Controllers, Json], None]]] = {
    kinds.NAMESPACES: Controllers.empty,
    kinds.DEPLOYMENTS: Controllers.roll_out,
    kinds.REPLICA_SETS: Controllers.replicate,
    kinds.JOBS: Controllers.run_job,
}


#: The finalizers of what is kept while it is used, which admission has put there.
_PROTECTED: Final = {
    kinds.POD_GROUPS: admission.POD_GROUP_PROTECTION,
    kinds.PERSISTENT_VOLUME_CLAIMS: admission.CLAIM_PROTECTION,
    kinds.PERSISTENT_VOLUMES: admission.VOLUME_PROTECTION,
}


def _used(pod: Json) -> Iterator[tuple[Kind, str, bool]]:
    """The kind and name of what a pod names, and whether it keeps it now.

    Source:
        podgroupprotection, pvcprotection (but for claims of ephemeral volumes).
    """
    spec = pod["spec"]
    if group := (spec.get("schedulingGroup") or {}).get("podGroupName"):
        yield kinds.POD_GROUPS, group, _phase(pod) not in TERMINAL
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            is_used = bool(spec.get("nodeName"))
            yield kinds.PERSISTENT_VOLUME_CLAIMS, claim["claimName"], is_used


def _owners(manifest: Json) -> list[Json]:
    return manifest["metadata"].get("ownerReferences") or []


def _wanted_of_dependents(manifest: Json) -> str:
    """The finalizer for a garbage collector of an object that is being deleted, or ""."""
    metadata = manifest["metadata"]
    there = (metadata.get("finalizers") or ()) if metadata.get("deletionTimestamp") else ()
    return next((one for one in PROPAGATION.values() if one in there), "")


def _kind_of(owner: Json) -> Kind | None:
    kind = BY_MANIFEST.get((owner["apiVersion"], owner["kind"]))
    return None if kind is None else _STORED[kind.storage]


def _owner_key(kind: Kind, owner: Json, manifest: Json) -> str:
    """The key of *owner*, which is in the namespace of *manifest* if it is in one."""
    within = f"{manifest['metadata'].get('namespace', '')}/" if kind.namespaced else ""
    return f"{within}{owner['name']}"


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase"))


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _progress(pod: Json) -> tuple[bool, bool]:
    """How far a pod has come: that with the least is the first to be deleted."""
    return bool(pod["spec"].get("nodeName")), _is_ready(pod)
