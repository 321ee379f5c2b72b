"""The verbs of the API on the store: create, read, list, update, patch, delete, and subresources.

Owns what a request does to the stored objects. Knows nothing of HTTP: bodies are plain data,
refusals are `ApiStatus` exceptions. Every verb is synchronous and atomic.
"""

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from devkit.cluster import event_forms, patch, pods
from devkit.cluster.kinds import BY_MANIFEST
from devkit.cluster.lists import ListOptions, Page, find_page
from devkit.cluster.store import Store, Version
from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.core.manifests import admission, defaults, kinds, validation
from engine.core.manifests.errors import (
    Undecodable,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_options,
    not_found,
    precondition_failed,
    undecodable,
    unpatchable,
    unsupported_media_type,
)
from engine.core.manifests.field_rules import required, selects, wrong
from engine.core.manifests.kinds import Kind
from engine.core.manifests.pod_defaults import set_pod_resources
from engine.core.manifests.schema import read_types, shape_of, without_nulls
from engine.lib.clock import Clock

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
#: What a pod keeps where an update says nothing of it.
_KEPT_SPECIFICATION = ("priority", "priorityClassName", "preemptionPolicy", "nodeName", "resources")
_KEPT_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)
_SERVER_METADATA = (*_KEPT_METADATA, "selfLink", "managedFields")
_PERMANENT = ("default", "kube-system", "kube-public")
#: By which finalizer a garbage collector is asked for what a `propagationPolicy` says.
PROPAGATION: Final = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
# Those whose dependents outlive them if a deletion does not say otherwise.
_ORPHANING: Final = frozenset({kinds.JOBS, kinds.REPLICATION_CONTROLLERS})


class Api:
    """The embedded API server's state and verbs.

    Args:
        seed: Makes uids and generated names repeat; None draws them from the system.
    """

    def __init__(self, store: Store, clock: Clock, *, seed: int | None = None) -> None:
        self.store = store
        self.clock = clock
        self._random: random.Random = random.SystemRandom() if seed is None else random.Random(seed)
        self._service_ip = 1
        self._bootstrap()

    def _bootstrap(self) -> None:
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create(kinds.NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in (
            ("system-node-critical", 2_000_001_000),
            ("system-cluster-critical", 2_000_000_000),
        ):
            manifest = {"metadata": {"name": name}, "value": value}
            self.create(kinds.PRIORITY_CLASSES, "", manifest)

    # --- lookups ---------------------------------------------------------------------------

    def find(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        """The manifest of an object (not to be changed), or None."""
        version = self.store.get(kind.storage, _key(namespace, name))
        return version.manifest if version else None

    def every(self, kind: Kind) -> Iterator[Json]:
        """The manifests of every object of a kind, in no particular order."""
        return (version.manifest for version in self.store.table(kind.storage).objects.values())

    def now(self, *, later: float = 0.0) -> str:
        """The time as objects carry it, *later* seconds from now."""
        moment = datetime.fromtimestamp(int(self.clock.now() + later), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def get(self, kind: Kind, namespace: str, name: str) -> Version:
        """The current version. Refuses with 404."""
        version = self.store.get(kind.storage, _key(namespace, name))
        if version is None:
            raise not_found(kind, name)
        return version

    # --- create ----------------------------------------------------------------------------

    def create(
        self,
        kind: Kind,
        namespace: str,
        body: Json,
        *,
        dry_run: bool = False,
        is_strict: bool = False,
        owned: dict[str, frozenset[patch.FieldPath]] | None = None,
    ) -> Version:
        """Store a new object made from *body*, which now belongs to the server.

        Unknown fields are dropped, or refused if *is_strict*; the same holds for the other verbs.

        Raises:
            ApiStatus: 400 if *body* is no such object, 403 if admission refuses it, 404 if the
                namespace does not exist, 409 if the name is taken, 422 if a field is wrong.
        """
        manifest = self._decoded(kind, body, is_strict=is_strict)
        metadata = manifest["metadata"]
        self._settle_namespace(kind, metadata, namespace)
        if kind.namespaced:
            self._require_namespace(kind, namespace, metadata.get("name") or "")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + self._suffix()
        for field in _SERVER_METADATA:
            metadata.pop(field, None)
        now = self.now()
        metadata["uid"] = self._uid()
        if kind.counts_generations:
            metadata["generation"] = 1
        metadata["creationTimestamp"] = now
        defaults.set_defaults(kind, manifest)
        admission.admit(kind, manifest, self)
        defaults.initial_status(kind, manifest, now)
        self._check(kind, manifest, is_new=True)
        admission.check(kind, manifest, self)
        if kind is kinds.SERVICES:
            self._assign_cluster_ip(manifest["spec"])
        key = _key(namespace, metadata["name"])
        if self.store.get(kind.storage, key) is not None:
            raise already_exists(kind, metadata["name"])
        if dry_run:
            return Version(key, manifest, 0, {})
        return self.store.write(kind.storage, key, manifest, owned=owned)

    def _decoded(self, kind: Kind, body: Any, *, is_strict: bool = False) -> Json:
        """*body* as a stored manifest: right kind and types, no nulls, no type fields.

        Unknown fields are dropped, or refused if *is_strict*.
        """
        if body is None:
            body = {}
        if not isinstance(body, dict):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get "
                "version/kind; json parse error: json: cannot unmarshal array into Go value"
            )
        body_kind, version = body.get("kind") or kind.kind, body.get("apiVersion")
        if (version or kind.api_version, body_kind) != (kind.api_version, kind.kind):
            sent = (version or kind.version, body_kind)
            if (version, body_kind) in BY_MANIFEST:
                other = BY_MANIFEST[sent]
                source = f"{other.version}.{other.kind}"
                why = f"converting ({source}) to (core.{kind.kind}): unknown conversion"
                raise undecodable(kind, why, sent=(other.version, other.kind))
            why = f'no kind "{body_kind}" is registered for version "{sent[0]}" in scheme'
            raise undecodable(kind, why, sent=sent)
        raw = _encode(read_types(kind, body, is_strict=is_strict))
        manifest: Json = _decode(raw)  # a copy of one's own
        if b"null" in raw:
            manifest = without_nulls(kind, manifest)
        manifest.pop("kind", None)
        manifest.pop("apiVersion", None)
        # Metadata first: the raw form is read by people, too.
        manifest = {"metadata": manifest.pop("metadata", {}), **manifest}
        if kind.storage == "events":
            manifest = event_forms.core_event(manifest)
        return manifest

    def _settle_namespace(self, kind: Kind, metadata: Json, namespace: str) -> None:
        sent = metadata.get("namespace")
        if sent and sent != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        metadata.pop("namespace", None)
        if kind.namespaced:
            metadata["namespace"] = namespace

    def _require_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        found = self.find(kinds.NAMESPACES, namespace)
        if found is None:
            raise not_found(kinds.NAMESPACES, namespace)
        if found["metadata"].get("deletionTimestamp"):
            why = f"namespace {namespace} is being terminated"
            raise forbidden(
                kind,
                name,
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated",
                causes=[
                    {
                        "reason": "NamespaceTerminating",
                        "message": why,
                        "field": "metadata.namespace",
                    }
                ],
            )

    def _check(self, kind: Kind, manifest: Json, *, is_new: bool = False) -> None:
        found = validation.problems(kind, manifest, behaviors_of(RELEASED), is_new=is_new)
        if found:
            named = kinds.EVENTS if kind is kinds.NEW_EVENTS else kind
            raise invalid(named, manifest["metadata"].get("name") or "", found)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _suffix(self) -> str:
        return "".join(self._random.choices(_SUFFIX_LETTERS, k=5))

    def _assign_cluster_ip(self, spec: Json) -> None:
        if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
            self._service_ip += 1
            spec["clusterIP"] = f"10.0.{self._service_ip >> 8 & 255}.{self._service_ip & 255}"
            spec["clusterIPs"] = [spec["clusterIP"]]

    # --- list ------------------------------------------------------------------------------

    def list(
        self, kind: Kind, namespace: str, options: ListOptions, *, seen: int | None = None
    ) -> Page:
        """One page of the objects that match; see `lists.find_page`."""
        return find_page(self.store, kind, namespace, options, seen=seen)

    # --- update and patch ------------------------------------------------------------------

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Json,
        *,
        subresource: str = "",
        dry_run: bool = False,
        is_strict: bool = False,
    ) -> tuple[Version, bool]:
        """Replace the object (or its status) by *body*. Returns it, and True if it is new.

        An update that changes nothing writes nothing.

        Raises:
            ApiStatus: 409 if *body* carries another resourceVersion or uid than the stored
                object's, 404 if there is none, 400, 403 and 422 as for `create`.
        """
        manifest = self._decoded(kind, body, is_strict=is_strict)
        metadata = manifest["metadata"]
        if metadata.get("name") not in (None, "", name):
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL "
                f"({name})"
            )
        self._settle_namespace(kind, metadata, namespace)
        old = self.store.get(kind.storage, _key(namespace, name))
        if old is None:
            if kind.creates_on_update and not subresource:
                metadata["name"] = name
                return self.create(kind, namespace, manifest, dry_run=dry_run), True
            raise not_found(kind, name)
        metadata["name"] = name
        self._check_preconditions(kind, old, metadata)
        return self._replace(kind, old, manifest, subresource, dry_run=dry_run), False

    def _check_preconditions(self, kind: Kind, old: Version, metadata: Json) -> None:
        stored = old.manifest["metadata"]
        name = stored["name"]
        uid = metadata.get("uid")
        if uid and uid != stored["uid"]:
            raise precondition_failed(kind, old.key, name, "UID", uid, stored["uid"])
        revision = metadata.get("resourceVersion")
        if revision:
            if revision != stored["resourceVersion"]:
                raise conflict(kind, name)
        elif not kind.unconditional_updates:
            cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
            error = invalid(kind, name, [cause])
            error.message = error.message.replace(kind.kind, kind.plural, 1)
            raise error

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Any,
        content_type: str,
        *,
        subresource: str = "",
        manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        is_strict: bool = False,
    ) -> tuple[Version, bool]:
        """Change the object by a patch in one of the four languages. Returns as `update` does."""
        if content_type == APPLY_PATCH:
            return self._apply(
                kind, namespace, name, body, subresource, manager, force, dry_run, is_strict
            )
        change = _PATCHES.get(content_type)
        if change is None:
            raise unsupported_media_type()
        old = self.get(kind, namespace, name)
        # The patch speaks of the resource's own form, and may not reach into the stored one.
        current = self._form(kind, old)
        wanted = change(kind, current, body)
        with _patching():
            patched = self._decoded(kind, wanted, is_strict=is_strict)
            metadata, stored = patched["metadata"], old.manifest["metadata"]
            if metadata.get("name") != name or metadata.get("namespace", namespace) != namespace:
                raise bad_request("the name or namespace of an object cannot be changed by a patch")
            if metadata.get("uid") != stored["uid"]:
                cause = wrong("metadata.uid", metadata.get("uid") or "", "field is immutable")
                raise invalid(kind, name, [cause, cause])
            if metadata.get("resourceVersion") not in (None, "", stored["resourceVersion"]):
                raise conflict(kind, name)
            return self._replace(kind, old, patched, subresource, dry_run=dry_run), False

    def _form(self, kind: Kind, version: Version) -> Json:
        copied = version.copy()
        return event_forms.new_event(copied) if kind is kinds.NEW_EVENTS else copied

    def _apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Any,
        subresource: str,
        manager: str,
        force: bool,
        dry_run: bool,
        is_strict: bool,
    ) -> tuple[Version, bool]:
        if not manager:
            cause = required("fieldManager", "is required for apply patch")
            raise invalid_options("PatchOptions", cause)
        if not isinstance(body, dict):
            raise bad_request("error decoding YAML: want an object")
        old = self.store.get(kind.storage, _key(namespace, name))
        if old is None:
            if subresource:
                raise not_found(kind, name)
            _, owned = patch.apply({}, body, shape_of(kind), {}, manager, force=force)
            body.setdefault("metadata", {})["name"] = name
            made = self.create(
                kind, namespace, body, dry_run=dry_run, is_strict=is_strict, owned=owned
            )
            return made, True
        merged, owned = patch.apply(
            self._form(kind, old), body, shape_of(kind), old.owned, manager, force=force
        )
        merged["metadata"].pop("managedFields", None)
        manifest = self._decoded(kind, merged, is_strict=is_strict)
        self._check_preconditions(kind, old, manifest["metadata"])
        new = self._replace(kind, old, manifest, subresource, dry_run=dry_run)
        if not dry_run:
            new.owned = owned
        return new, False

    def _replace(
        self, kind: Kind, old: Version, manifest: Json, subresource: str, *, dry_run: bool
    ) -> Version:
        """Make *manifest* the new version of *old*, after the rules of updates."""
        before = old.manifest
        metadata = manifest["metadata"]
        for field in _SERVER_METADATA:
            metadata.pop(field, None)
        for field in _KEPT_METADATA:
            if field in before["metadata"]:
                metadata[field] = before["metadata"][field]
        if subresource == "status":
            manifest = self._with_status(kind, before, manifest)
        else:
            if kind.has_status:
                manifest.pop("status", None)
                if "status" in before:
                    manifest["status"] = before["status"]
            self._prepare(kind, manifest, before)
        if subresource != "status":
            self._check(kind, manifest)
            found = validation.update_problems(kind, manifest, before)
            if found:
                raise invalid(kind, metadata["name"], found)
            admission.check(kind, manifest, self)
        else:
            if kind is not kinds.PODS:  # its rules look at its specification, which is unchanged
                self._check(kind, manifest)
            found = validation.status_problems(kind, manifest, before)
            if found:
                raise invalid(kind, metadata["name"], found)
        return self._commit(kind, old, manifest, dry_run=dry_run)

    def _with_status(self, kind: Kind, before: Json, manifest: Json) -> Json:
        sent = manifest["metadata"]
        owners = before["metadata"].get("ownerReferences")
        if owners is None:
            sent.pop("ownerReferences", None)
        else:
            sent["ownerReferences"] = owners
        merged = {**before, "metadata": sent, "status": manifest.get("status") or {}}
        if kind is kinds.PODS:
            merged["status"].setdefault("qosClass", (before.get("status") or {}).get("qosClass"))
            pods.settle_status(merged["status"])
        elif kind is kinds.NODES:
            defaults.set_defaults(kind, merged)
        return merged

    def _prepare(self, kind: Kind, manifest: Json, before: Json) -> None:
        """Defaults and admission of an update."""
        if kind is kinds.PODS:
            defaults.set_defaults(kind, manifest)
            spec, was = manifest["spec"], before["spec"]
            for field in _KEPT_SPECIFICATION:
                if field in was:
                    spec.setdefault(field, was[field])
            admission.add_default_tolerations(spec)
            return
        if kind is kinds.NODES and "status" in manifest:
            manifest["status"] = msgspec.json.decode(msgspec.json.encode(manifest["status"]))
        elif kind is kinds.NAMESPACES:
            manifest["spec"] = before["spec"]
        elif kind is kinds.SERVICES:
            spec = manifest.setdefault("spec", {})
            for field in ("clusterIP", "clusterIPs"):
                if field in before["spec"]:
                    spec.setdefault(field, before["spec"][field])
        defaults.set_defaults(kind, manifest)

    def _commit(self, kind: Kind, old: Version, manifest: Json, *, dry_run: bool) -> Version:
        before, metadata = old.manifest, manifest["metadata"]
        if manifest == before:
            return old
        if kind.counts_generations and _specification(manifest) != _specification(before):
            metadata["generation"] = before["metadata"].get("generation", 0) + 1
        if dry_run:
            return Version(old.key, manifest, old.revision, old.owned)
        deleting = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if deleting and not metadata.get("deletionGracePeriodSeconds"):
            if kind is kinds.NAMESPACES and manifest["spec"].get("finalizers"):
                return self.store.write(kind.storage, old.key, manifest)
            # The last finalizer is gone: nothing holds the object any more.
            self.store.delete(kind.storage, old.key)
            return Version(old.key, manifest, old.revision, old.owned)
        return self.store.write(kind.storage, old.key, manifest)

    # --- delete ----------------------------------------------------------------------------

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        options: Json | None = None,
        *,
        dry_run: bool = False,
    ) -> tuple[Version, bool]:
        """Delete the object. Returns its last state, and True if it is gone already.

        Args:
            options: A `DeleteOptions` object: `gracePeriodSeconds`, `preconditions`,
                `propagationPolicy`.

        A pod that runs on a node gets its grace period; whatever plays the kubelet deletes it
        again with grace 0. An object with finalizers stays until they are removed, such as that by
        which a garbage collector is asked to orphan what belongs to the object.
        """
        options = options or {}
        old = self.get(kind, namespace, name)
        self._check_delete_preconditions(kind, old, options.get("preconditions") or {})
        if kind is kinds.NAMESPACES:
            return self._delete_namespace(old, dry_run=dry_run)
        grace = 0
        if kind is kinds.PODS:
            grace = pods.grace_seconds(old.manifest, options.get("gracePeriodSeconds"))
        metadata = old.manifest["metadata"]
        if metadata.get("deletionTimestamp") and grace:
            shorter = self._shorten(old, grace)
            if shorter is None or dry_run:
                return old, False
            return self.store.write(kind.storage, old.key, shorter), False
        finalizers = _finalizers(kind, metadata, options.get("propagationPolicy"))
        if dry_run:
            return old, not grace and not finalizers
        if grace or finalizers or kind is kinds.PODS:
            manifest = self._terminating(kind, old.manifest, grace)
            if finalizers != (metadata.get("finalizers") or []):
                changed = {**manifest["metadata"], "finalizers": finalizers}
                manifest = {**manifest, "metadata": changed}
            if manifest != old.manifest:
                old = self.store.write(kind.storage, old.key, manifest)
            if grace or finalizers:
                return old, False
        return self.store.delete(kind.storage, old.key), True

    def _check_delete_preconditions(self, kind: Kind, old: Version, wanted: Json) -> None:
        metadata = old.manifest["metadata"]
        uid, revision = wanted.get("uid"), wanted.get("resourceVersion")
        if uid and uid != metadata["uid"]:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record "
                f"({metadata['uid']}). The object might have been deleted and then recreated"
            )
            raise conflict(kind, metadata["name"], why, label=kind.kind)
        if revision and revision != metadata["resourceVersion"]:
            why = (
                f"the ResourceVersion in the precondition ({revision}) does not match the "
                f"ResourceVersion in record ({metadata['resourceVersion']}). The object might "
                "have been modified"
            )
            raise conflict(kind, metadata["name"], why, label=kind.kind)

    def _shorten(self, old: Version, grace: int) -> Json | None:
        """The manifest with a shorter grace period, None if it is not shorter."""
        metadata = old.manifest["metadata"]
        before: int = metadata.get("deletionGracePeriodSeconds") or 0
        if grace >= before:
            return None
        deadline = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
        asked_at = deadline - before
        ends = datetime.fromtimestamp(asked_at + grace, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        changed = {**metadata, "deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}
        return {**old.manifest, "metadata": changed}

    def _terminating(self, kind: Kind, manifest: Json, grace: int) -> Json:
        metadata = dict(manifest["metadata"])
        if (
            metadata.get("deletionTimestamp")
            and metadata.get("deletionGracePeriodSeconds") == grace
        ):
            return manifest
        if kind.counts_generations and not metadata.get("deletionTimestamp"):
            metadata["generation"] = metadata.get("generation", 0) + 1
        metadata["deletionTimestamp"] = self.now(later=grace)
        metadata["deletionGracePeriodSeconds"] = grace
        return {**manifest, "metadata": metadata}

    def _delete_namespace(self, old: Version, *, dry_run: bool) -> tuple[Version, bool]:
        metadata = old.manifest["metadata"]
        if metadata["name"] in _PERMANENT:
            raise forbidden(kinds.NAMESPACES, metadata["name"], "this namespace may not be deleted")
        if metadata.get("deletionTimestamp") or dry_run:
            return old, False
        manifest = {
            **old.manifest,
            "metadata": {**metadata, "deletionTimestamp": self.now()},
            "status": {**old.manifest["status"], "phase": "Terminating"},
        }
        return self.store.write(kinds.NAMESPACES.storage, old.key, manifest), False

    def delete_collection(
        self, kind: Kind, namespace: str, options: ListOptions, delete_options: Json | None
    ) -> Page:
        """Delete every object that matches. Returns them as they were."""
        page = self.list(kind, namespace, options)
        for version in page.versions:
            if self.store.get(kind.storage, version.key) is version:
                metadata = version.manifest["metadata"]
                self.delete(kind, metadata.get("namespace", ""), metadata["name"], delete_options)
        return Page(page.versions, self.store.revision)

    # --- subresources of pods and namespaces -----------------------------------------------

    def bind(self, namespace: str, name: str, body: Json, *, dry_run: bool = False) -> Version:
        """Assign the pod to a node, by a `Binding` object.

        Raises:
            ApiStatus: 409 if the pod is assigned, gated or being deleted, or if the uid or
                resourceVersion in the binding is not the pod's; 404 if there is no such pod.
        """
        if not isinstance(body, dict):
            raise bad_request("the object provided is unrecognized (must be of type Binding)")
        pods.check_binding(body, namespace, name)
        target = pods.target_of(body)
        old = self.get(kinds.PODS, namespace, name)
        sent, stored = body.get("metadata") or {}, old.manifest["metadata"]
        if sent.get("uid") and sent["uid"] != stored["uid"]:
            raise precondition_failed(kinds.PODS, old.key, name, "UID", sent["uid"], stored["uid"])
        revision = sent.get("resourceVersion")
        if revision and revision != stored["resourceVersion"]:
            raise precondition_failed(
                kinds.PODS, old.key, name, "ResourceVersion", revision, stored["resourceVersion"]
            )
        node = self.find(kinds.NODES, target)
        bound = pods.bind(old.manifest, target, body.get("metadata") or {}, node, self.now())
        if dry_run:
            return Version(old.key, bound, old.revision, old.owned)
        return self.store.write(kinds.PODS.storage, old.key, bound)

    def evict(self, namespace: str, name: str, body: Any, *, dry_run: bool = False) -> None:
        """Delete the pod if its disruption budget allows it, else refuse with 429."""
        if not isinstance(body, dict):
            raise bad_request("the object provided is unrecognized (must be of type Eviction)")
        pods.check_eviction(body, name)
        old = self.get(kinds.PODS, namespace, name)
        budget = None
        if not pods.needs_no_budget(old.manifest):
            budgets = [
                one
                for one in self.every(kinds.POD_DISRUPTION_BUDGETS)
                if one["metadata"]["namespace"] == namespace
                and selects(
                    one["spec"].get("selector"), old.manifest["metadata"].get("labels") or {}
                )
            ]
            budget = pods.budget_spent(old.manifest, budgets)
        options: Json = dict(body.get("deleteOptions") or {})
        if not dry_run:
            if budget is not None:
                charged = pods.charged(budget, name, self.now())
                key = _key(namespace, budget["metadata"]["name"])
                self.store.write(kinds.POD_DISRUPTION_BUDGETS.storage, key, charged)
            preconditions = options.get("preconditions") or {}
            self._check_delete_preconditions(kinds.PODS, old, preconditions)
            evicted = pods.evicted(old.manifest, self.now())
            self._commit(kinds.PODS, old, evicted, dry_run=False)
            # The version asked for has been found, and is another one now.
            options["preconditions"] = {**preconditions, "resourceVersion": None}
        self.delete(kinds.PODS, namespace, name, options, dry_run=dry_run)

    def resize(self, namespace: str, name: str, body: Any, content_type: str) -> Version:
        """Change the resources of a pod's containers; by PUT if *content_type* is empty."""
        old = self.get(kinds.PODS, namespace, name)
        change = _PATCHES.get(content_type)
        wanted = body if change is None else change(kinds.PODS, old.copy(), body)
        with contextlib.nullcontext() if change is None else _patching():
            manifest = self._decoded(kinds.PODS, wanted)
            defaults.set_defaults(kinds.PODS, manifest)
        spec, was = manifest["spec"], old.manifest["spec"]
        if "resources" in was:
            spec.setdefault("resources", was["resources"])
        set_pod_resources(spec)
        resized = pods.resize(old.manifest, manifest)
        resized = {**resized, "metadata": dict(resized["metadata"])}
        self._check(kinds.PODS, resized)
        return self._commit(kinds.PODS, old, resized, dry_run=False)

    def finalize(self, name: str, body: Json) -> Version:
        """Write a namespace's finalizers; the namespace goes with the last one."""
        kind = kinds.NAMESPACES
        old = self.get(kind, "", name)
        finalizers = ((body or {}).get("spec") or {}).get("finalizers") or []
        manifest = {
            **old.manifest,
            "metadata": dict(old.manifest["metadata"]),
            "spec": {"finalizers": finalizers} if finalizers else {},
        }
        return self._commit(kind, old, manifest, dry_run=False)


_PATCHES: dict[str, Callable[[Kind, Json, Any], Json]] = {
    MERGE_PATCH: lambda _, target, body: patch.merge(target, body),
    STRATEGIC_PATCH: lambda kind, target, body: patch.strategic_merge(target, body, shape_of(kind)),
}


@contextlib.contextmanager
def _patching() -> Iterator[None]:
    """Refuse with 422 what a patch makes of an object, if it is none."""
    try:
        yield
    except Undecodable as error:
        raise unpatchable(error.message) from error


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _finalizers(kind: Kind, metadata: Json, policy: str | None) -> list[str]:
    """The finalizers of an object that is deleted with *policy*, or as its kind has it."""
    there: list[str] = metadata.get("finalizers") or []
    if policy is None and not any(one in there for one in PROPAGATION.values()):
        policy = "Orphan" if kind in _ORPHANING else None
    elif policy is None:
        return there
    asked = [PROPAGATION[policy]] if policy in PROPAGATION else []
    return [one for one in there if one not in PROPAGATION.values()] + asked


def _specification(manifest: Json) -> Json:
    return {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
