"""A decision log as a workload: the recorded cluster, and the pods that arrived and ended.

Owns which entries of a log are causes and which are effects. Causes are the first checkpoint,
pending pods (from their first decision on), deleted pods, and nodes and objects that add queues
that came, changed or were deleted.
Placements, nominations and revisions are effects, and left out. Of the part before the workload
begins, if there is one, everything counts: it makes the state that the workload begins with.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import msgspec

from engine.core.model.clock_facts import CLOCK_FACTS
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.files.cluster_file import Cluster
from engine.files.known_facts import RECORDED
from engine.files.world import OBJECT_KINDS
from engine.io.facts.collection import FactsDocument
from engine.recording.entries import NO_OBJECT
from workbench.replay.decision_log import Line, making_sense

_KIND_OF: Final = {plural: kind for kind, (plural, _) in OBJECT_KINDS.items()}


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod that was pending from *at* (seconds from the start of the log), deleted at *until*."""

    at: float
    pod: Pod
    until: float | None = None


@dataclass
class RecordedWorkload:
    """The workload that a log contains.

    Attributes:
        cluster: The cluster at the first checkpoint, with the known facts.
        stays: The pending pods, in the order of their first decisions.
        nodes: Changes of nodes: the time, the name, and the node, or None for a deletion.
        queues: Changes of objects that add queues: the time, the manifest, and if it is there.
        departures: Deletions of pods of the first checkpoint: the time, and the pod's key.
        ignored: The number of changes that are not carried out: of other objects, and of pods that
            other schedulers placed.
        gaps: How often the log starts again, as after a restart. Of the time in between only the
            result is known: which nodes changed, and which pods were deleted.
        began, ended: From when to when it is, in seconds since the epoch.
    """

    cluster: Cluster = field(default_factory=Cluster)
    stays: list[Stay] = field(default_factory=list)
    nodes: list[tuple[float, str, Node | None]] = field(default_factory=list)
    queues: list[tuple[float, dict[str, Any], bool]] = field(default_factory=list)
    departures: list[tuple[float, str]] = field(default_factory=list)
    ignored: int = 0
    gaps: int = 0
    began: float = 0.0
    ended: float = 0.0


def recorded_workload(lines: Iterable[Line], since: float = -inf) -> RecordedWorkload:
    """The workload that *lines* record, from the first checkpoint on, but not from before *since*.

    Raises `LogError` for inconsistent entries.
    """
    reader = _Reader(since)
    for line in lines:
        with making_sense(line):
            reader.take(line)
    return reader.workload()


@dataclass
class _Shown:
    """The state of a checkpoint: nodes by name, objects that add queues, pods by uid."""

    nodes: dict[str, bytes] = field(default_factory=dict)
    queues: dict[tuple[str, str], bytes] = field(default_factory=dict)
    pods: dict[str, None] = field(default_factory=dict)
    pending: dict[str, bytes] = field(default_factory=dict)


class _Reader:
    """Reads a log: `building --it begins--> running --log--> skipping --checkpoint--> running`.

    It begins with the first checkpoint, or later, at *since*.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._is_building = True
        self._is_whole = False  # a checkpoint has been read
        self._is_skipping = False
        self._is_gap = False
        # The current state of the log: nodes by name, objects that add queues, and placed pods by
        # uid.
        self._there: dict[str, bytes] = {}
        self._queues: dict[tuple[str, str], bytes] = {}
        self._on_nodes: dict[str, None] = {}
        # The checkpoint of a later file.
        self._shown: _Shown = _Shown()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._placed: dict[str, dict[str, Any]] = {}  # when it begins, by uid
        self._others: dict[tuple[str, str], dict[str, Any]] = {}
        self._shown_facts: dict[tuple[str, str], Line] = {}
        self._facts: dict[str, Any] = {}
        self._waiting: dict[str, bytes] = {}
        self._stays: dict[str, Stay] = {}
        self._found = RecordedWorkload()

    def take(self, line: Line) -> None:
        """Read one entry."""
        self._found.ended = max(self._found.ended, line.at)
        if self._is_building and self._is_whole and line.at >= self._since:
            self._begin(self._since)
        if self._is_building:
            if line.event == "log":
                self._build_again(line)
            self._build(line)
        elif line.event == "log":
            # After a rotation, the checkpoint repeats what is known; after a gap it has news.
            self._is_skipping, self._shown = True, _Shown()
            self._is_gap = line.reason != "size" or bool(line.lacks)
        elif self._is_skipping:
            self._look(line)
        else:
            self._follow(line)

    def workload(self) -> RecordedWorkload:
        """The workload of the entries so far."""
        found, cluster = self._found, self._found.cluster
        cluster.nodes += self._nodes.values()
        cluster.pods += self._placed.values()
        cluster.objects += self._others.values()
        began = datetime.datetime.fromtimestamp(found.began, datetime.UTC)
        cluster.taken_at = began.isoformat().replace("+00:00", "Z")
        if self._facts:
            cluster.facts.append(FactsDocument(RECORDED, self._facts))
        found.stays += self._stays.values()
        return found

    # --- until it begins ---------------------------------------------------------------------

    def _build_again(self, line: Line) -> None:
        """Forget what a new file's checkpoint repeats."""
        parts: tuple[dict[Any, Any], ...] = (
            self._nodes, self._there, self._queues, self._placed, self._others, self._shown_facts
        )  # fmt: skip
        for part in parts:
            part.clear()
        if line.reason != "size" or line.lacks:
            self._waiting.clear()  # who knows which of them still do
        self._is_whole = False

    def _begin(self, at: float) -> None:
        self._is_building, self._found.began = False, at
        self._on_nodes = dict.fromkeys(self._placed)
        self._found.cluster.others += map(msgspec.json.decode, self._queues.values())
        for line in self._shown_facts.values():
            self._know(line)

    def _build(self, line: Line) -> None:
        match line.event:
            case "node":
                node = _plain(line.object, "Node")
                self._nodes[node["metadata"]["name"]] = node
                self._there[node["metadata"]["name"]] = bytes(line.object)
            case "pod":
                pod = _plain(line.object, "Pod")
                self._placed[pod["metadata"]["uid"]] = pod
                self._waiting.pop(pod["metadata"]["uid"], None)
            case "object" if line.kind in _KIND_OF:
                made = _plain(line.object, _KIND_OF[line.kind])
                meta = made.get("metadata") or {}
                namespace, name = meta.get("namespace"), meta.get("name", "")
                key = f"{namespace}/{name}" if namespace else name
                self._others[line.kind, key] = made
            case "queue":
                _put_queue(self._queues, line)
            case "pending":
                pod = _plain(line.object, "Pod")
                self._waiting[pod["metadata"]["uid"]] = bytes(line.object)
            case "assume":
                pod = _plain(self._waiting[line.uid], "Pod")
                spec = {**pod.get("spec", {}), "nodeName": line.node}
                self._placed[line.uid] = {**pod, "spec": spec}
            case "forget" if line.undone:
                self._placed.pop(line.uid, None)
            case "gone" if line.of == "node":
                self._nodes.pop(line.key, None)
                self._there.pop(line.key, None)
            case "gone" if line.of == "pod":
                self._placed.pop(line.key, None)
                self._waiting.pop(line.key, None)
            case "gone":
                self._others.pop((line.of, line.key), None)
            case "facts":
                if line.of == "others":  # has those of all pods
                    for key in [key for key in self._shown_facts if key[0] == "pod"]:
                        del self._shown_facts[key]
                self._shown_facts[line.of, line.key] = line
            case "kubernetes":
                self._found.cluster.minor = line.minor
                self._found.cluster.gates = frozenset(line.gates)
            case "checkpoint":
                self._is_whole = True
                if line.at >= self._since:
                    self._begin(line.at)
                    # A nominated pod is pending.
                    self._come(0.0, self._waiting)

    def _know(self, line: Line) -> None:
        """Add the facts of an entry to the document, with their times instead of their ages."""
        given: Any = msgspec.json.decode(line.facts)
        if line.of == "node":
            self._add(given["own"], line.at, "nodes", line.key)
            for name, of_types in given["of_pods"].items():
                for kind, fact in of_types.items():
                    self._add({name: fact}, line.at, "pairs", kind, line.key)
        elif line.of == "pod":
            self._add(given, line.at, "pods", line.key)
        else:
            # The clock goes on in virtual time.
            own = {k: v for k, v in given["cluster"].items() if k not in CLOCK_FACTS}
            self._add(own, line.at, "cluster")
            for section in ("types", "pods"):
                for name, facts in given[section].items():
                    self._add(facts, line.at, section, name)

    def _add(self, facts: dict[str, Any], at: float, *path: str) -> None:
        if not facts:
            return
        place = self._facts
        for member in path:
            place = place.setdefault(member, {})
        for name, fact in facts.items():
            plain = {"value": fact["value"], "text": fact["text"]}
            if fact.get("age_seconds") is not None:
                plain["time"] = at - fact["age_seconds"]
            place[name] = plain

    # --- entries after the first checkpoint ------------------------------------------------

    def _follow(self, line: Line) -> None:
        at = max(0.0, line.at - self._found.began)
        match line.event:
            case "pending":
                pod = Pod.from_raw(bytes(line.object))
                came = 0.0 if pod.uid in self._waiting else at
                self._come(came, {pod.uid: bytes(line.object)})
            case "decision" if line.uid in self._waiting:
                # It waited when this began. Whether one that is not tried again was deleted before
                # is not known.
                self._come(0.0, {line.uid: self._waiting[line.uid]})
            case "assume":
                self._on_nodes[line.uid] = None
            case "forget" if line.undone:
                self._on_nodes.pop(line.uid, None)
            case "pod":
                uid = Pod.from_raw(bytes(line.object)).uid
                self._on_nodes[uid] = None
                self._found.ignored += not self._is_known(uid)
            case "node":
                node = Node.from_raw(bytes(line.object))
                self._there[node.name] = bytes(line.object)
                self._found.nodes.append((at, node.name, node))
            case "gone" if line.of == "node":
                self._there.pop(line.key, None)
                self._found.nodes.append((at, line.key, None))
            case "gone" if line.of == "pod":
                self._on_nodes.pop(line.key, None)
                self._leave(line.key, at)
            case "queue":
                before = self._queues.get((line.kind, line.key))
                _put_queue(self._queues, line)
                self._change_queue(at, before, self._queues.get((line.kind, line.key)))
            case "object" | "gone":
                self._found.ignored += 1

    def _change_queue(self, at: float, before: bytes | None, after: bytes | None) -> None:
        text = before if after is None else after
        if text is not None and after != before:
            self._found.queues.append((at, msgspec.json.decode(text), after is not None))

    def _is_known(self, uid: str) -> bool:
        return uid in self._stays or uid in self._placed

    def _come(self, at: float, pods: Mapping[str, bytes]) -> None:
        for uid, text in pods.items():
            if not self._is_known(uid):
                self._stays[uid] = Stay(at, Pod.from_raw(text))

    # --- later checkpoints -----------------------------------------------------------------

    def _look(self, line: Line) -> None:
        """Collect a later checkpoint; at its end, add what changed during a gap."""
        shown = self._shown
        match line.event:
            case "node":
                shown.nodes[Node.from_raw(bytes(line.object)).name] = bytes(line.object)
            case "queue":
                _put_queue(shown.queues, line)
            case "pod":
                shown.pods[Pod.from_raw(bytes(line.object)).uid] = None
            case "pending":
                shown.pending[Pod.from_raw(bytes(line.object)).uid] = bytes(line.object)
            case "assume":
                shown.pods[line.uid] = None
                shown.pending.pop(line.uid, None)
            case "checkpoint":
                self._is_skipping = False
                if self._is_gap:
                    self._catch_up(max(0.0, line.at - self._found.began))

    def _catch_up(self, at: float) -> None:
        found, shown = self._found, self._shown
        found.gaps += 1
        found.nodes += [(at, name, None) for name in self._there if name not in shown.nodes]
        for name, text in shown.nodes.items():
            if self._there.get(name) != text:
                found.nodes.append((at, name, Node.from_raw(text)))
        for key in dict.fromkeys((*self._queues, *shown.queues)):
            self._change_queue(at, self._queues.get(key), shown.queues.get(key))
        for uid in self._on_nodes:
            if uid not in shown.pods:
                self._leave(uid, at)
        self._come(at, shown.pending)
        found.ignored += sum(not self._is_known(uid) for uid in shown.pods)
        self._there, self._queues, self._on_nodes = shown.nodes, shown.queues, shown.pods

    def _leave(self, uid: str, at: float) -> None:
        stay = self._stays.get(uid)
        if stay is not None:
            if stay.until is None:
                self._stays[uid] = Stay(stay.at, stay.pod, max(at, stay.at))
        elif uid in self._placed:
            meta = self._placed[uid]["metadata"]
            key = f"{meta.get('namespace') or 'default'}/{meta['name']}"
            self._found.departures.append((at, key))


def _put_queue(queues: dict[tuple[str, str], bytes], line: Line) -> None:
    """Have *queues* follow an entry: an object that adds queues, or that is gone."""
    text = bytes(line.object)
    if text == NO_OBJECT:
        queues.pop((line.kind, line.key), None)
    else:
        queues[line.kind, line.key] = text


def _plain(text: bytes | msgspec.Raw, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(text)
    made["kind"] = kind
    return made
