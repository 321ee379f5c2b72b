"""Clusters as files: snapshots, and manifests in every common form.

Owns the format of snapshots, what is left out of them so that they can be shared, and reading them
and every other form in which objects come: lists of kubectl, documents of YAML, directories.
Reading the objects of a live cluster is `cli.cluster_reading`'s.
"""

import gzip
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from engine.core.caching.cache import Cache
from engine.core.framework.behaviors import NO_GATES, RELEASED, Behaviors, behaviors_of, minor_of
from engine.core.manifests.field_errors import describe_error
from engine.core.model import objects as api
from engine.core.model.event_kinds import KINDS
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.model.pod_group import PodGroup
from engine.files.admission import NOT_DONE, AlikePods, KnownObjects, admitted, is_of_cluster
from engine.files.given_objects import GivenObject, LineOf, located, require_types
from engine.files.known_facts import SECTIONS, ShownFacts, show_facts
from engine.files.templates import CLAIMS, planned_claims, planned_objects, template_of
from engine.files.text_places import (
    FileError,
    TextError,
    decoded,
    line_at,
    parsed_json_values,
    parsed_yaml,
)
from engine.files.world import OBJECT_KINDS, Manifest, ManifestError, World, node_of, pod_of
from engine.io.facts.collection import FactsDocument
from engine.lib.clock import SystemClock
from engine.policy.analysis import time_reads
from engine.policy.bundle import Bundle
from engine.policy.documents import did_you_mean
from engine.policy.fact_config import AnnotationFacts, FactsConfig

T = TypeVar("T")

API_VERSION: Final = "starsched.dev/v1"
KIND: Final = "ClusterSnapshot"

_SUFFIXES: Final = (".json", ".yaml", ".yml", ".json.gz", ".yaml.gz", ".yml.gz")
_FINISHED: Final = ("Succeeded", "Failed")
# Kinds that are validated before they are decoded; "object" is a pod without a `kind`.
_WITH_STATUS: Final = ("Node", "Pod", "PodGroup", "object")
# Versions of the API whose claims and slices have other members than `v1`.
_OTHER_DEVICES: Final = tuple(f"resource.k8s.io/{one}" for one in ("v1alpha3", "v1beta1"))
_PREEMPTION_POLICIES: Final = ("Never", "PreemptLowerPriority")
# Kinds that admission alone reads.
_FOR_ADMISSION: Final = ("PriorityClass", "RuntimeClass", "LimitRange", "ResourceClaimTemplate")

# --- redaction -------------------------------------------------------------------------------

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
# Configuration of containers: not read by a scheduler, and may contain passwords.
_TOLD: Final = (
    "args",
    "command",
    "env",
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
)
_TOLD_SET: Final = frozenset(_TOLD)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Attributes and options of drivers, which may contain anything.
_DRIVERS_OWN: Final = ("volumeAttributes", "options")


def redacted(manifest: Manifest) -> dict[str, Any]:
    """*manifest* without the environment, arguments, commands and probes of containers.

    Managed fields, kubectl's last applied configuration and drivers' own attributes are removed,
    too. Everything that decisions read is kept.
    """
    copy: dict[str, Any] = _without_secrets(manifest)
    metadata = copy.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return copy


def redact(manifest: dict[str, Any]) -> None:
    """Redact the pod or node *manifest* in place, as `redacted` does.

    Looks only at the fields where the API has such content, which is ten times as fast.
    """
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        _forget_applied(metadata)
    if not isinstance(spec, dict):
        return
    for group in _CONTAINERS:
        containers = spec.get(group)
        for container in containers if isinstance(containers, list) else ():
            if isinstance(container, dict):
                for key in container.keys() & _TOLD_SET:
                    del container[key]
    volumes = spec.get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        if not isinstance(volume, dict):
            continue
        for kind in ("csi", "flexVolume"):
            driver = volume.get(kind)
            if isinstance(driver, dict):
                for key in _DRIVERS_OWN:
                    driver.pop(key, None)
        if isinstance(claim := volume.get("ephemeral"), dict):
            template = claim.get("volumeClaimTemplate")
            if isinstance(template, dict) and isinstance(template.get("metadata"), dict):
                _forget_applied(template["metadata"])


def _forget_applied(metadata: dict[str, Any]) -> None:
    for name in ("annotations", "labels"):
        if isinstance(texts := metadata.get(name), dict):
            texts.pop(_LAST_APPLIED, None)


def _without_secrets(value: Any, within: str = "") -> Any:
    if isinstance(value, list):
        if within in _CONTAINERS:
            return [_without_secrets(_drop(one, _TOLD)) for one in value]
        return [_without_secrets(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if within in ("annotations", "labels"):
        return _drop(value, (_LAST_APPLIED,))
    if within in ("csi", "flexVolume"):
        value = _drop(value, _DRIVERS_OWN)
    return {key: _without_secrets(member, key) for key, member in value.items()}


def _drop(value: Any, keys: Iterable[str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: member for key, member in value.items() if key not in keys}


# --- the cluster -----------------------------------------------------------------------------


class ClusterFileError(FileError):
    """A file that is not a cluster; the message starts with its path."""


@dataclass
class Cluster:
    """The objects of a cluster, grouped by their role for a scheduler.

    Attributes:
        nodes: Manifests of nodes.
        pods: Manifests of pods, placed and pending ones.
        objects: The other objects that decisions read.
        known: What admission looks up: priority classes, limit ranges, and all others.
        is_written: Some of the objects have never been in a cluster, and were admitted here.
        ask: What a live API server would store of a pod; None if it may not be asked.
        minor: The minor version of Kubernetes that is answered like; None: it is not known.
        gates: The feature gates of kube-scheduler that are on.
        taken_at: When a snapshot was taken, as RFC 3339; empty if that is not known.
        read_at: When it was read here, in seconds since the epoch.
        missing: What a snapshot could not read, and why.
        facts: The documents of sources of facts, each with the name of its source.
        skipped: Objects of kinds that no decision reads, by kind.
        others: The same, themselves: a tree of queues may be made of some.
        repeated: Nodes and pods that were given more than once, as `Pod web/a`.
    """

    nodes: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    objects: list[dict[str, Any]] = field(default_factory=list)
    known: KnownObjects = field(default_factory=KnownObjects)
    is_written: bool = False
    ask: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    minor: int | None = None
    gates: frozenset[str] = NO_GATES
    taken_at: str = ""
    read_at: float = field(default_factory=lambda: math.floor(SystemClock().now()))
    missing: dict[str, str] = field(default_factory=dict)
    facts: list[FactsDocument] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    others: list[dict[str, Any]] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)

    @property
    def not_applied(self) -> tuple[str, ...]:
        """The admission plugins that new objects did not pass; empty if there is none."""
        return NOT_DONE if self.is_written else ()

    def add(self, manifest: dict[str, Any]) -> None:
        """Add an object. Raises `ManifestError` if it is not an object of the API."""
        _require_shape(manifest)
        self.known.add(manifest)
        match kind := str(manifest.get("kind", "")):
            case "Node":
                self.nodes.append(manifest)
            case "Pod":
                self.pods.append(manifest)
            case _ if kind in OBJECT_KINDS:
                self.objects.append(manifest)
            case _ if kind not in _FOR_ADMISSION:
                self.skipped[kind or "(no kind)"] += 1
                self.others.append(manifest)

    def admitted(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """*manifest* as the API server of this cluster would store it.

        One that a cluster has stored is as it is. Raises `ManifestError`.
        """
        if self.ask is not None and manifest.get("kind") == "Pod" and not is_of_cluster(manifest):
            stored = self.ask(manifest)
            if stored is not None:
                return stored
        found = admitted(manifest, self.known, self._behaves)
        # Of what makes pods, those matter, and the API server may have been asked about them.
        self.is_written |= found is not manifest and template_of(manifest) is None
        return found

    @property
    def _behaves(self) -> Behaviors:
        return behaviors_of(RELEASED if self.minor is None else self.minor, self.gates)

    def pod_of(self, manifest: Manifest, *, unplaced: bool = True) -> Pod:
        """The pod of *manifest*, admitted, as if it were on no node. Raises `ManifestError`."""
        _require_shape(manifest)
        plain = dict(self._settled(manifest))
        if unplaced:
            spec = plain.get("spec") or {}
            plain["spec"] = {k: v for k, v in spec.items() if k != "nodeName"}
            status = dict(plain.get("status") or {})
            plain["status"] = {k: v for k, v in status.items() if k != "nominatedNodeName"}
        return pod_of(plain)

    def _settled(self, manifest: Manifest) -> Manifest:
        """*manifest*, admitted unless it is: admission gives everything a priority."""
        if (manifest.get("spec") or {}).get("priority") is not None:
            return manifest
        return self.admitted({"kind": "Pod", **manifest})

    def pending_pods(self) -> Iterator[dict[str, Any]]:
        """The manifests of pending pods that are not being deleted."""
        for manifest in self.pods:
            placed = (manifest.get("spec") or {}).get("nodeName")
            if not (placed or _is_finished(manifest) or _meta(manifest, "deletionTimestamp")):
                yield manifest

    def placed_pods(self) -> Iterator[dict[str, Any]]:
        """The manifests of pods that occupy capacity of a node."""
        for manifest in self.pods:
            if (manifest.get("spec") or {}).get("nodeName") and not _is_finished(manifest):
                yield manifest

    def leaving_pods(self) -> Iterator[dict[str, Any]]:
        """The manifests of placed pods that are being deleted."""
        return (one for one in self.placed_pods() if _meta(one, "deletionTimestamp"))

    def find_pod(self, name: str) -> dict[str, Any]:
        """The manifest of the pod `namespace/name`, or of the only one called `name`.

        Raises `KeyError` with a message that lists the available pods.
        """
        namespace, slash, plain = name.rpartition("/")
        found = [
            pod
            for pod in self.pods
            if _meta(pod, "name") == plain
            and (not slash or (_meta(pod, "namespace") or "default") == namespace)
        ]
        if not found:
            hint = did_you_mean(plain, {_meta(pod, "name") for pod in self.pods})
            more = f"\nhint: {hint}" if hint else ""
            raise KeyError(f"no pod `{name}` among {len(self.pods)} pods{more}")
        if len(found) > 1:
            keys = ", ".join(sorted(f"`{_key(pod)}`" for pod in found))
            raise KeyError(f"several pods are called `{name}`: {keys}")
        return found[0]

    def world(self, without: Pod | None = None) -> World:
        """The cluster at rest, with the placed pods except *without*. Raises `ManifestError`.

        Decisions that depend on kinds of which the objects could not be read are held.
        """
        world = World.from_manifests(
            self.nodes,
            (
                self._settled(one)
                for one in self.placed_pods()
                if without is None or not _is_same(one, without)
            ),
            self.objects,
            minor=RELEASED if self.minor is None else self.minor,
            gates=self.gates,
        )
        world.cache.objects.unknown = self.unknown_kinds()
        return world

    def unknown_kinds(self) -> dict[str, str]:
        """The kinds that could not be read, by plural name, with the reason."""
        named = {resource.partition(".")[0]: resource for resource in self.missing}
        return {
            plural: f"{resource} cannot be read: {self.missing[resource]}"
            for plural, resource in named.items()
            if plural in KINDS
        }

    def show_facts(
        self, cache: Cache, config: FactsConfig, pods: Iterable[Pod], nodes: Iterable[Node] = ()
    ) -> ShownFacts:
        """Show in *cache* the facts that policies with *config* see of this cluster.

        *pods* and *nodes* are those whose annotations count in addition to the nodes in *cache*.
        Raises `ManifestError`.
        """
        infos = cache.snapshot().infos
        present = [info.node for info in infos if info is not None and info.node is not None]
        return show_facts(
            cache,
            config,
            self.facts,
            taken_at=self.taken_at,
            read_at=self.read_at,
            nodes=[*present, *nodes],
            pods=[*pods],
        )

    def clock_note(self, bundle: Bundle) -> str:
        """What time the clock shows that the policies of *bundle* read; empty if they read none.

        No world is built for it. Raises `ManifestError`.
        """
        if not time_reads(bundle.policies.values()).clock:
            return ""
        config = bundle.runtime.facts
        nodes: list[Node] = []
        pods: list[Pod] = []
        if not self.taken_at and any(isinstance(one, AnnotationFacts) for one in config.sources):
            # The newest annotation may be what says when it is.
            nodes = [node_of(one) for one in self.nodes]
            pods = [self.pod_of(one, unplaced=False) for one in self.pending_pods()]
        shown = show_facts(
            Cache(),
            config,
            self.facts,
            taken_at=self.taken_at,
            read_at=self.read_at,
            nodes=nodes,
            pods=pods,
        )
        return shown.clock_note(bundle)


def _require_shape(manifest: Manifest) -> None:
    """Raise `ManifestError` unless the members of *manifest* that are read undecoded are sound."""
    kind = str(manifest.get("kind") or "object")
    for member in ("metadata", "spec", "status") if kind in _WITH_STATUS else ("metadata",):
        if not isinstance(value := manifest.get(member) or {}, (dict, Mapping)):
            got = type(value).__name__
            raise ManifestError(f"{kind}: {member}: want an object, got {got}")
    name = _meta(manifest, "name")
    value = manifest.get("value", 0)
    if kind == "PriorityClass" and (not isinstance(value, int) or isinstance(value, bool)):
        raise ManifestError(f"{kind} `{name}`: value: want an int, got `{value}`")
    says = manifest.get("preemptionPolicy")
    if kind == "PriorityClass" and says not in (None, "", *_PREEMPTION_POLICIES):
        wanted = " or ".join(f"`{one}`" for one in _PREEMPTION_POLICIES)
        raise ManifestError(f"{kind} `{name}`: preemptionPolicy: want {wanted}, got `{says}`")
    version = manifest.get("apiVersion")
    if kind in ("ResourceClaim", "ResourceSlice", "DeviceTaintRule") and version in _OTHER_DEVICES:
        wanted = "want `resource.k8s.io/v1`"
        raise ManifestError(f"{kind} `{name}`: apiVersion: {wanted}, got `{version}`")
    if kind == "PodGroup":
        try:
            api.from_plain(PodGroup, manifest)
        except msgspec.ValidationError as error:
            raise ManifestError(
                f"{kind} `{name}`: {describe_error(manifest, str(error))}"
            ) from error


def _is_same(manifest: Manifest, pod: Pod) -> bool:
    uid = _meta(manifest, "uid")
    if uid:
        return uid == pod.uid
    return _key(manifest) == pod.key


def _is_finished(manifest: Manifest) -> bool:
    return (manifest.get("status") or {}).get("phase") in _FINISHED


def _key(manifest: Manifest) -> str:
    return f"{_meta(manifest, 'namespace') or 'default'}/{_meta(manifest, 'name')}"


def _meta(manifest: Manifest, name: str) -> str:
    return str((manifest.get("metadata") or {}).get(name) or "")


# --- writing ---------------------------------------------------------------------------------


def snapshot_bytes(
    items: Iterable[Manifest],
    taken_at: str,
    missing: Mapping[str, str],
    facts: Sequence[FactsDocument] = (),
    *,
    version: str = "",
    compress: bool,
) -> bytes:
    """The text of a snapshot: JSON with one object a line, so that it can be searched by line.

    *version* is what the API server said it is, if it said so.
    """
    encode = msgspec.json.encode
    head: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "takenAt": taken_at}
    if version:
        head["serverVersion"] = version
    if missing:
        head["missing"] = dict(missing)
    if facts:
        head["facts"] = list(facts)
    lines = b",\n".join(encode(item) for item in items)
    text = encode(head)[:-1] + b',"items":[\n' + lines + b"\n]}\n"
    # Without a timestamp, so that the same cluster gives the same file.
    return gzip.compress(text, 6, mtime=0) if compress else text


# --- reading ---------------------------------------------------------------------------------


def read_cluster(
    *paths: Path, known: KnownObjects | None = None, minor: int | None = None
) -> Cluster:
    """The objects in *paths*: snapshots, lists, manifests, and directories of those.

    A workload that was never applied stands for the pods that its controller would create. Of nodes
    or pods with one name the last one counts, as if the files were applied one after another.
    Admission looks up what is *known*, too, and refuses what Kubernetes 1.*minor* does; None: what
    the version of a snapshot does.

    Raises `ClusterFileError` for what cannot be read or is empty, and `ManifestError`.
    """
    cluster, given = Cluster(minor=minor), list[GivenObject]()
    if known is not None:
        cluster.known.update(known)
    for path in paths:
        documents = list(_documents(path))
        if not documents:
            raise ClusterFileError(f"{path}: want objects, found none: it is empty")
        for file, number, document, line_of in documents:
            if document.get("kind") == KIND:
                cluster.taken_at = cluster.taken_at or str(document.get("takenAt", ""))
                version = str(document.get("serverVersion", ""))
                cluster.minor = cluster.minor or minor_of(version)
                cluster.missing.update(_member(document, path, "missing", dict[str, str]))
                cluster.facts += _member(document, path, "facts", list[FactsDocument])
            elif document and document.keys() <= SECTIONS:
                cluster.facts.append(FactsDocument(f"file:{path.absolute()}", document))
                continue
            given += _items(GivenObject(file, number, (), document, line_of))
    take_given(cluster, given)
    cluster.nodes = last_of_each("Node", cluster.nodes, cluster.repeated)
    cluster.pods = last_of_each("Pod", cluster.pods, cluster.repeated)
    return cluster


def take_given(cluster: Cluster, given: Sequence[GivenObject]) -> None:
    """Add the objects of files to *cluster*, admitted, and what controllers would make of them.

    Raises `ManifestError` with every problem of their fields, each with its place.
    """
    require_types(given)
    # 1. Admission of any may look up any other.
    for one in given:
        cluster.known.add(one.manifest)
    # 2. Pods come last: what their admission looks up is then as it stays.
    for one in given:
        kind = one.manifest.get("kind")
        if kind != "Pod":
            with located(one):
                stored = cluster.admitted(one.manifest)
            # What makes pods is not read itself, unless it is known as their workload.
            if template_of(one.manifest) is None or kind in OBJECT_KINDS:
                cluster.add(stored)
    admit = cluster.admitted if cluster.ask else AlikePods(cluster.admitted).admitted
    for one in given:
        if one.manifest.get("kind") == "Pod":
            with located(one):
                cluster.add(admit(one.manifest))
    # 3. What controllers would make.
    nodes = last_of_each("Node", cluster.nodes, [])
    planned: list[dict[str, Any]] = []
    for one in given:
        with located(one, ("spec", "template")):
            planned += planned_objects(one.manifest, cluster.admitted, nodes)
    there = {_key(pod) for pod in cluster.pods}
    for made in planned:
        if made["kind"] != "Pod" or _key(made) not in there:
            cluster.add(made)
    names = {(one["kind"], _key(one)) for one in cluster.objects if one.get("kind") in CLAIMS}
    for pod in named(cluster.pods):
        if not is_of_cluster(pod):
            for claim in planned_claims(pod, cluster.known):
                if (claim["kind"], _key(claim)) not in names:
                    cluster.add(cluster.admitted(claim))


def named(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*pods* with names for those whose name the API server would generate (`generateName`)."""
    made = Counter[str]()
    taken = {_key(pod) for pod in pods}
    for pod in pods:
        prefix = _meta(pod, "generateName")
        if _meta(pod, "name") or not prefix:
            continue
        while True:
            name, made[prefix] = f"{prefix}{made[prefix]}", made[prefix] + 1
            pod["metadata"] = {**pod["metadata"], "name": name}
            if _key(pod) not in taken:
                break
    return pods


def last_of_each(
    kind: str, manifests: list[dict[str, Any]], repeated: list[str]
) -> list[dict[str, Any]]:
    """*manifests* with the last one of each name, in its place; *repeated* gets the others.

    Those without a name are all kept.
    """
    last = {_key(one): one for one in manifests}
    if len(last) == len(manifests):
        return manifests
    kept: list[dict[str, Any]] = []
    for one in manifests:
        if last[_key(one)] is one or not _meta(one, "name"):
            kept.append(one)
        else:
            key = _key(one) if kind == "Pod" else _meta(one, "name")
            repeated.append(f"{kind} `{key}`")
    return kept


def read_documents(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a file, or of every file of a directory and those inside it."""
    return (document for _, _, document, _ in _documents(path))


def _documents(path: Path) -> Iterator[tuple[str, int, dict[str, Any], LineOf]]:
    """The documents of *path*, each with its file, its number there, and the lines of its paths."""
    for file in manifest_files(path):
        raw = unpacked(file)
        for number, document in enumerate(_parse(raw, file), 1):
            if document is None:
                continue
            if not isinstance(document, dict):
                kind = type(document).__name__
                raise ClusterFileError(f"{file}: document {number}: want an object, got {kind}")
            version = document.get("apiVersion", API_VERSION)
            if document.get("kind") == KIND and version != API_VERSION:
                raise ClusterFileError(
                    f"{file}: {KIND}: apiVersion: want `{API_VERSION}`, got `{version}`"
                )
            yield str(file), number, document, _line_of(str(file), raw, number)


def _line_of(name: str, raw: bytes, number: int) -> LineOf:
    return lambda path: line_at(decoded(name, raw), number, path)


def read_objects(path: Path) -> list[GivenObject]:
    """The objects of the documents of *path*, each item of a list by itself."""
    return [
        item
        for file, number, document, line_of in _documents(path)
        for item in _items(GivenObject(file, number, (), document, line_of))
    ]


def manifest_files(path: Path) -> list[Path]:
    """*path* itself, or the files with manifests of a directory and of those inside it."""
    if not path.is_dir():
        return [path]
    files = [p for p in sorted(path.rglob("*")) if _is_readable(p, path)]
    if not files:
        raise ClusterFileError(f"{path}: want `*.yaml` or `*.json` files, found none")
    return files


def unpacked(file: Path) -> bytes:
    """The bytes of a file, which may be compressed. Raises `ClusterFileError`."""
    try:
        raw = file.read_bytes()
        return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterFileError(f"{file}: {reason[:1].lower()}{reason[1:]}") from error


def _is_readable(path: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return path.is_file() and path.name.endswith(_SUFFIXES) and not hidden


def _parse(raw: bytes, path: Path) -> Iterator[Any]:
    name = str(path)
    try:
        if raw.lstrip()[:1] == b"{":
            try:
                yield from parsed_json_values(name, raw)
                return
            except TextError:
                if name.removesuffix(".gz").endswith(".json"):
                    raise
        yield from parsed_yaml(name, decoded(name, raw))
    except TextError as error:
        raise ClusterFileError(str(error)) from error


def _member(document: dict[str, Any], path: Path, name: str, kind: type[T]) -> T:
    """A member of a snapshot, empty if it is absent. Raises `ClusterFileError`."""
    given = document.get(name)
    try:
        return kind() if given is None else msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ClusterFileError(f"{path}: {name}: {error}") from error


def _items(given: GivenObject) -> Iterator[GivenObject]:
    document, path = given.manifest, given.file
    kind = str(document.get("kind", ""))
    if kind != KIND and not kind.endswith("List"):
        yield given
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise ClusterFileError(f"{path}: {kind}: want `items` to be a list")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise ClusterFileError(f"{path}: {kind}: want objects, got {type(item).__name__}")
        if kind not in (KIND, "List"):  # the API leaves out what the list says
            item = {"kind": kind.removesuffix("List"), **item}
        yield from _items(replace(given, path=(*given.path, "items", index), manifest=item))
