"""Manifests that no cluster has seen yet, as the API server would store them.

Owns which manifests those are, and what is forgiven them: a manifest that is only decided about
may be a sketch. What the API server does is `engine.core.manifests`'.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from engine.core.framework.behaviors import Behaviors
from engine.core.manifests import admission, defaults, kinds, validation
from engine.core.manifests.errors import ApiStatus, Cause
from engine.core.manifests.field_errors import Steps, place_of, steps_of, written
from engine.core.manifests.field_rules import name_problems
from engine.core.manifests.kinds import BY_MANIFEST, KINDS, Kind
from engine.core.manifests.schema import Problem, amount_problems, without_nulls
from engine.files.world import Manifest, ManifestError

#: What kube-apiserver does to a new object by default and is not done here.
NOT_DONE: Final = (
    "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceLifecycle", "PodSecurity",
    "ResourceQuota", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
)  # fmt: skip

_KINDS: Final = {kind.kind: kind for kind in reversed(KINDS)}
# Those of the API, and what Deployments were in once.
_GROUPS: Final = {*(kind.group for kind in KINDS), "extensions"}
_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
# No decision reads these: a sketch of a pod may leave them out.
_POLICY: Final = ".template.spec.restartPolicy"
_FORGIVEN: Final = (".name", ".image", "spec.containers", "spec.selector", _POLICY)
# Nor these: who has a uid was created somewhere.
_FORGIVEN_IF_CREATED: Final = (*_FORGIVEN, ".resources.limits")
# The fields that refusals of admission are about, by a word in them.
_FIELDS: Final[dict[str, Steps]] = {
    "PriorityClass": ("spec", "priorityClassName"),
    "RuntimeClass": ("spec", "runtimeClassName"),
}
_PRIORITY: Final = ("priority", "priorityClassName", "preemptionPolicy")


class Refused(ManifestError):
    """A manifest that the API server would refuse; *problems* has the field of each, if known."""

    def __init__(self, manifest: Manifest, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        metadata = manifest.get("metadata") or {}
        named = f"{manifest.get('kind') or 'Pod'} `{metadata.get('name') or ''}`"
        super().__init__("\n".join(f"{named}: {one}" for one in self.problems))


class KnownObjects:
    """The objects that admission looks up, by kind, namespace and name; the last of a name counts.

    The classes that every cluster has are there from the start.
    """

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[tuple[str, str], dict[str, Any]]] = {}
        for name, value in _SYSTEM_CLASSES.items():
            self.add({"kind": "PriorityClass", "metadata": {"name": name}, "value": value})

    def add(self, manifest: dict[str, Any]) -> None:
        """Add an object, if it is of a kind that the API has."""
        kind = kind_of(manifest)
        if kind is not None:
            self._objects.setdefault(kind, {})[self._key(kind, manifest)] = manifest

    def add_missing(self, manifests: Iterable[dict[str, Any]]) -> None:
        """Add the objects of which none of the name is known."""
        for manifest in manifests:
            kind = kind_of(manifest)
            if kind is not None:
                self._objects.setdefault(kind, {}).setdefault(self._key(kind, manifest), manifest)

    def update(self, other: "KnownObjects") -> None:
        """Add the objects of *other*, which replace those of the same name."""
        for kind, objects in other._objects.items():
            self._objects.setdefault(kind, {}).update(objects)

    def find(self, kind: Kind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object's manifest, or None."""
        return self._objects.get(kind, {}).get((namespace, name))

    def every(self, kind: Kind) -> Iterable[dict[str, Any]]:
        """Every object of a kind."""
        return self._objects.get(kind, {}).values()

    @staticmethod
    def _key(kind: Kind, manifest: Manifest) -> tuple[str, str]:
        metadata = manifest.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        return str(namespace), str(metadata.get("name") or "")


def kind_of(manifest: Manifest) -> Kind | None:
    """The kind of the API that *manifest* is of; one without `apiVersion` is of the usual one."""
    name, version = manifest.get("kind"), manifest.get("apiVersion")
    if not isinstance(name, str):
        return None
    return _KINDS.get(name) if version is None else BY_MANIFEST.get((str(version), name))


def kind_problem(manifest: Manifest) -> Problem | None:
    """What is wrong with the kind or version of *manifest*, if a kind of the API is meant.

    Of other groups, and of groups that have several versions, nothing is known.
    """
    name, version = manifest.get("kind"), manifest.get("apiVersion")
    if not isinstance(name, str) or kind_of(manifest) is not None:
        return None
    group = str(version or "").rpartition("/")[0]
    if group not in _GROUPS:
        return None
    lower = {one.lower(): one for one in _KINDS}
    close = get_close_matches(name.lower(), lower, 1, 0.85)
    if not close:
        return None
    meant = lower[close[0]]
    if meant != name:
        return Problem(("kind",), f"want a kind, got `{name}`; did you mean `{meant}`?")
    versions = [one.api_version for one in KINDS if one.kind == name]
    if "." in group and any(one.kind == name and one.group == group for one in KINDS):
        return None
    return Problem(("apiVersion",), f"want `{versions[0]}`, got `{version}`")


def is_of_cluster(manifest: Manifest) -> bool:
    """True if an API server has stored *manifest*: it is not admitted a second time."""
    metadata = manifest.get("metadata")
    # (What is read from text is a dict; asking for a `Mapping` takes ten times as long.)
    return isinstance(metadata, (dict, Mapping)) and bool(
        metadata.get("uid") and metadata.get("resourceVersion")
    )


def admitted(manifest: dict[str, Any], known: KnownObjects, behaves: Behaviors) -> dict[str, Any]:
    """*manifest* as the API server would store it, with the status that it has.

    A priority that a pod has already stays. Raises `Refused`.
    """
    kind = kind_of(manifest)
    if kind is None or is_of_cluster(manifest):
        return manifest
    text = msgspec.json.encode(manifest)
    found: dict[str, Any] = msgspec.json.decode(text)
    if b"null" in text:
        found = without_nulls(kind, found)
    metadata = found.setdefault("metadata", {})
    if kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    if kind is kinds.RESOURCE_CLAIMS:
        # Devices are taken by a claim's uid, which is the API server's to give.
        metadata.setdefault("uid", f"{metadata['namespace']}/{metadata['name']}")
    own = _own_priority(kind, found)
    try:
        defaults.set_defaults(kind, found)
        admission.admit(kind, found, known)
    except ApiStatus as error:
        if amounts := list(amount_problems(kind, found)):
            raise Refused(manifest, amounts) from error
        # Which object it is about is said anyway.
        why = error.message.partition(" is forbidden: ")[2] or error.message
        at = next((path for word, path in _FIELDS.items() if word in why), ())
        raise Refused(manifest, [Problem(at, why)]) from error
    if own:
        found["spec"].update(own)
    every = validation.problems(kind, found, behaves, is_new=True)
    causes = [cause for cause in every if not _is_forgiven(cause, found)]
    if causes:
        raise Refused(manifest, [Problem(*_placed(found, cause)) for cause in causes])
    return found


class AlikePods:
    """Admits pods; of those that differ in nothing but their names, only the first is looked at.

    To be used for as long as what admission looks up does not change.
    """

    def __init__(self, admit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._admit = admit
        self._stored: dict[bytes, bytes] = {}

    def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """*pod* as *admit* gives it. Raises what that raises."""
        metadata = pod.get("metadata") or {}
        name = metadata.get("name")
        if is_of_cluster(pod) or (name is not None and any(name_problems("", name))):
            return self._admit(pod)
        alike = msgspec.json.encode({**pod, "metadata": {**metadata, "name": name and ""}})
        text = self._stored.get(alike)
        if text is None:
            first = self._admit(pod)
            self._stored[alike] = msgspec.json.encode(first)
            return first
        found: dict[str, Any] = msgspec.json.decode(text)
        if name is not None:
            found["metadata"]["name"] = name
        return found


def _own_priority(kind: Kind, manifest: dict[str, Any]) -> dict[str, Any]:
    """The priority that *manifest* has, taken out of it; empty if admission has to find it."""
    spec = manifest.get("spec")
    if kind not in (kinds.PODS, kinds.POD_GROUPS, kinds.ALPHA_POD_GROUPS) or not spec:
        return {}
    if spec.get("priority") is None:
        return {}
    return {name: spec.pop(name) for name in _PRIORITY if name in spec}


def _is_forgiven(cause: Cause, manifest: Manifest) -> bool:
    if cause.field == "spec.template.metadata.labels" and not manifest["spec"].get("selector"):
        return True  # a selector that is left out matches no labels
    forgiven = _FORGIVEN_IF_CREATED if manifest["metadata"].get("uid") else _FORGIVEN
    if cause.reason != "FieldValueRequired" or not cause.field.endswith(forgiven):
        return False
    # Of a Job whose pods restart always, the API server says that a policy is required.
    return not (cause.field.endswith(_POLICY) and _has(manifest, cause.field.split(".")))


def _has(manifest: Manifest, path: Iterable[str]) -> bool:
    value: Any = manifest
    for key in path:
        value = (value or {}).get(key)
    return value is not None


def _placed(manifest: Manifest, cause: Cause) -> tuple[Steps, str]:
    """Where in *manifest* the field of *cause* is, and what is wrong with it."""
    at = place_of(manifest, f".{cause.field}", "")
    # Keys are in brackets there: `limits[cpu]`.
    is_whole = written(at) == written(steps_of(f".{cause.field}"))
    return at, cause.message if is_whole else f"{cause.field}: {cause.message}"
