"""Records the events of the kernel and its decisions in the log.

Owns what is recorded and when a checkpoint is taken. Everything here runs between decisions, so it
only notes references to what never changes; encoding and writing are the log writer's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from engine.core.caching.cache import Cache
from engine.core.framework.behaviors import Behaviors, behaviors_of
from engine.core.kernel.events import (
    NODES,
    PODS,
    Event,
    NodeFactsChanged,
    ObjectChanged,
    OtherFactsChanged,
    PodFactsChanged,
    PodTypeLabelsChanged,
    QueueObjectChanged,
    ReadabilityChanged,
    VersionChanged,
)
from engine.core.kernel.instructions import (
    Instruction,
    PodAssumed,
    PodCounted,
    PodForgotten,
    PodUncounted,
    ReportDecision,
    ReportFault,
)
from engine.core.kernel.kernel import Kernel
from engine.core.model.fact import Facts
from engine.core.queueing.nominator import Nominator
from engine.lib.clock import Clock
from engine.policy.bundle import Bundle
from engine.recording.entries import UNRECORDED, Entry, answer_plain, verdict
from engine.recording.log_writer import Checkpoint, LogWriter, key_of

log = structlog.get_logger(component="record")

#: A new file waits for pods that hold volumes or devices, but at most for this many decisions.
_MOST_DEFERRED: Final = 5000
# What says how an attempt at a pod has ended.
_ENDS: Final = (ReportDecision, ReportFault)


def state_of(cache: Cache) -> list[tuple[str, Entry]]:
    """Everything in *cache* but objects, as entries that build it again, its slots included.

    Cost: a reference to each object; what it refers to never changes.
    """
    snapshot = cache.snapshot()
    infos = {info.name: info for info in cache.infos()}
    shown: dict[str, Any] = {}
    holes: list[str] = []
    entries: list[tuple[str, Entry]] = []
    # 1. Nodes by slot. An empty slot is made by a node that comes and goes.
    for slot, info in enumerate(snapshot.infos):
        if info is None or info.node is None:
            holes.append(f"(slot {slot})")
            entries.append(("hole", {"key": holes[-1]}))
        else:
            shown[info.name] = info
            entries.append(("node", {"object": info.node}))
    entries += [("fill", {"keys": holes})] if holes else []
    # 2. Pods, in the order in which each node counts them; with those of unknown nodes.
    for name in [*shown, *(name for name in infos if name not in shown)]:
        for pod in infos[name].pods.values():
            if cache.is_assumed(pod.uid):
                added = dict(pod.added_annotations)
                contents = {"uid": pod.uid, "node": name, "annotations": added, "pod": pod}
                entries.append(("assume", contents))
            else:
                entries.append(("pod", {"object": pod}))
    # 3. Facts.
    entries += [
        ("facts", {"of": "node", "key": name, "facts": facts})
        for name, facts in cache.node_facts().items()
    ]
    entries.append(
        ("facts", _others(snapshot.cluster_facts, snapshot.type_facts, snapshot.pod_facts))
    )
    entries.append(("typeLabels", {"labels": list(snapshot.pod_type_labels)}))
    behaves = cache.objects.behaves
    if behaves.minor != UNRECORDED or behaves.gates:
        entries.append(("kubernetes", _version(behaves)))
    # 4. What cannot be read: usually nothing.
    if cache.objects.unknown:
        entries.append(("unknown", {"kinds": dict(cache.objects.unknown)}))
    return entries


def _version(behaves: Behaviors) -> Entry:
    gates = sorted(behaves.gates)
    return {"minor": behaves.minor, "gates": gates} if gates else {"minor": behaves.minor}


def _others(cluster: Facts, types: Mapping[str, Facts], pods: Mapping[str, Facts]) -> Entry:
    facts = {"cluster": dict(cluster), "types": dict(types), "pods": dict(pods)}
    return {"of": "others", "key": "", "facts": facts}


class Candidate(Protocol):
    """Policies on their way: their bundle, and its files by name."""

    bundle: Bundle
    files: Mapping[str, str]


class Recorder:
    """Records the events of a kernel and what it decides; its shell reports both.

        idle --a decision begins--> recording --too much waits--> lost --it was written--> recording

    Args:
        writer: Writes; started and closed by the recorder.
        clock: Dates entries.
        kinds: The kinds of objects that decisions read in addition to pods and nodes.
        config_text: The configuration that was given in addition to the policies, if any.
    """

    def __init__(
        self,
        writer: LogWriter,
        clock: Clock,
        kinds: Sequence[str],
        config_text: str | None = None,
    ) -> None:
        self.writer = writer
        self._clock = clock
        self._kinds = tuple(kinds)
        self._config_text = config_text
        self._policies: Entry | None = None
        self._candidate: Entry | None = None
        self._is_recording = False
        self._is_overrun = False
        self._is_off = False
        self._held: list[tuple[float, str, Entry]] | None = None
        self._nominations = -1
        self._holders: set[str] = set()
        self._to_hold = ""  # the uid of a pod for which plugins hold something once it is assumed
        self._deferred = 0

    @property
    def directory(self) -> Path:
        """Where the log is."""
        return self.writer.settings.directory

    def start(self) -> None:
        """Begin. Raises `OSError` if the log's directory cannot be written."""
        self.writer.start()

    def close(self) -> None:
        """Have all entries written, and end."""
        self._is_off = True
        self.writer.close()

    def policies(self, revision: str, files: Mapping[str, str]) -> None:
        """Record that these policies decide from now on, and no candidate."""
        self._policies = self._entry_of(revision, files)
        self._candidate = None
        self._note("policies", self._policies)

    def candidate(self, candidate: Candidate | None) -> None:
        """Record that these policies may decide some pods from now on; None: no others do."""
        before = self._candidate
        if candidate is None:
            self._candidate = None
            if before is not None:
                self._note("candidate", {"revision": ""})
            return
        revision = candidate.bundle.revision
        if before is None or before["revision"] != revision:
            self._candidate = self._entry_of(revision, candidate.files)
            self._note("candidate", self._candidate)

    def _entry_of(self, revision: str, files: Mapping[str, str]) -> Entry:
        return {"revision": revision, "files": dict(files), "config": self._config_text}

    # --- changes -----------------------------------------------------------------------------

    def handled(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """Record that the kernel has handled *event*, with the resulting *instructions*."""
        if not self._is_recording and not self._is_overrun:
            return
        match event:
            case ObjectChanged(plural=plural, old=old, new=new) if plural != PODS:
                self._note_object(plural, old, new)
            case QueueObjectChanged():
                self._note(*_queue(event))
            case NodeFactsChanged(name=name, facts=of_node):
                self._note("facts", {"of": "node", "key": name, "facts": of_node})
            case PodFactsChanged(key=key, facts=facts):
                self._note("facts", {"of": "pod", "key": key, "facts": facts})
            case OtherFactsChanged(cluster=cluster, types=types, pods=pods):
                self._note("facts", _others(cluster, types, pods))
            case PodTypeLabelsChanged(labels=labels):
                self._note("typeLabels", {"labels": list(labels)})
            case VersionChanged(minor=minor, gates=gates):
                self._note("kubernetes", _version(behaviors_of(minor, frozenset(gates))))
            case ReadabilityChanged(unknown=unknown):
                self._note("unknown", {"kinds": dict(unknown)})
        self._note_all(instructions)

    def _note_object(self, plural: str, old: Any | None, new: Any | None) -> None:
        of = "node" if plural == NODES else plural
        if new is None:
            self._note("gone", {"of": of, "key": key_of(old)})
        elif plural == NODES:
            self._note("node", {"object": new})
        elif plural in self._kinds:
            self._note("object", {"kind": plural, "object": new})

    def _note_all(self, instructions: Sequence[Instruction]) -> None:
        """Note what *instructions* change in the kernel's cache."""
        for one in instructions:
            match one:
                case PodCounted(pod=pod):
                    self._note("pod", {"object": pod})
                case PodUncounted(uid=uid):
                    self._note("gone", {"of": "pod", "key": uid})
                case PodAssumed(uid=uid, node=node, annotations=added):
                    contents = {"uid": uid, "node": node, "annotations": dict(added)}
                    self._note("assume", contents)
                case PodForgotten(uid=uid, was_assumed=was_assumed):
                    # Also if it was not assumed any more: what plugins hold for the pod is
                    # released.
                    self._note("forget", {"uid": uid, "undone": was_assumed})

    def _note(self, kind: str, contents: Entry) -> None:
        if not self._is_recording:
            if self._is_overrun:
                self.writer.counts.dropped += 1
            return
        if kind == "assume":
            if contents["uid"] == self._to_hold:
                self._holders.add(self._to_hold)
        elif kind == "forget":
            self._holders.discard(contents["uid"])
        elif kind == "pod":
            self._holders.discard(contents["object"].uid)
        elif kind == "gone" and contents["of"] == "pod":
            self._holders.discard(contents["key"])
        entry = (self._clock.now(), kind, contents)
        if self._held is not None:
            self._held.append(entry)
        else:
            self._put(entry)

    def _put(self, entry: tuple[float, str, Entry]) -> None:
        if self.writer.is_full:
            self._is_recording, self._is_overrun = False, True
            self._held = None
            self.writer.counts.dropped += 1
            log.warning("Decision log cannot keep up, entries are left out until it can")
            return
        self.writer.put(*entry)

    # --- decisions ---------------------------------------------------------------------------

    def deciding(self, kernel: Kernel) -> None:
        """Begin a decision; changes of the cluster until its end are recorded after it."""
        if self._is_off:
            return
        nominator = kernel.queue.nominator
        try:
            # Also before a checkpoint: a replay that goes on from file to file does not read that.
            if self._is_recording and nominator.generation != self._nominations:
                self._put((self._clock.now(), "nominations", self._nominated(nominator)))
            if self._is_time_for_checkpoint():
                self._checkpoint(kernel)
            if self._is_recording:
                self._held = []
        except Exception as error:
            self._fail(error)

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """End the decision with *instructions*; perhaps the pod must not be tried."""
        if not self._is_recording or self._is_off:
            if self._is_overrun:
                self.writer.counts.dropped += 1
            return
        try:
            # Of a group there are several decisions, each on what was assumed for those before.
            # What the cluster did meanwhile comes after the last one: none of them has seen it.
            ends = [k for k, one in enumerate(instructions) if isinstance(one, _ENDS)]
            last = ends[-1] + 1 if ends else 0
            held, self._held = self._held, None
            for one in instructions[:last]:
                if isinstance(one, ReportDecision):
                    reserves = one.decision.reserves and one.decision.node is not None
                    self._to_hold = one.pod.uid if reserves else ""
                    self._put((self._clock.now(), *_decision(one)))
                elif isinstance(one, ReportFault):
                    text = f"{type(one.error).__name__}: {one.error}"
                    contents = {"pod": one.pod.key, "uid": one.pod.uid, "error": text}
                    self._put((self._clock.now(), "lost", contents))
                else:
                    self._note_all([one])
            for entry in held or ():
                if self._is_recording:
                    self._put(entry)
            self._note_all(instructions[last:])
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """A bug must not cost a decision, only the record."""
        log.error("Decisions are not recorded any more", exc_info=error)
        self.writer.counts.failures += 1
        self._is_recording, self._is_overrun, self._is_off = False, True, True
        self._held = None

    # --- checkpoints -------------------------------------------------------------------------

    def _is_time_for_checkpoint(self) -> bool:
        if self._policies is None:
            return False
        if not self._is_recording:
            return self.writer.waiting == 0
        reason = self.writer.wants_checkpoint
        if not reason:
            return False
        # What plugins hold for pods on their way is in no object yet, so a later replay could
        # not know of it: a full file waits for a better moment.
        if reason == "size" and self._holders and self._deferred < _MOST_DEFERRED:
            self._deferred += 1
            return False
        return True

    def _checkpoint(self, kernel: Kernel) -> None:
        reason = "overrun" if self._is_overrun else self.writer.wants_checkpoint or "start"
        assert self._policies is not None
        entries: list[tuple[str, Entry]] = [("policies", self._policies)]
        if self._candidate is not None:
            entries.append(("candidate", self._candidate))
        entries += state_of(kernel.cache)
        for kind in self._kinds:
            objects = kernel.cache.objects.list(kind)
            entries += [("object", {"kind": kind, "object": obj}) for obj in objects]
        queues = [_queue(one) for one in kernel.shares.objects()]
        entries += queues
        entries.append(("nominations", self._nominated(kernel.queue.nominator)))
        entries.append(("checkpoint", {"held": sorted(self._holders), "queues": len(queues)}))
        self.writer.wants_checkpoint = ""
        self.writer.put(self._clock.now(), "", Checkpoint(reason, entries))
        self._is_recording, self._is_overrun = True, False
        self._deferred = 0

    def _nominated(self, nominator: Nominator) -> Entry:
        self._nominations = nominator.generation
        pods = list(nominator)
        pairs = [[pod.uid, nominator.node_of(pod.uid) or ""] for pod in pods]
        return {"pods": pairs, "objects": pods}


def _queue(event: QueueObjectChanged) -> tuple[str, Entry]:
    """The entry of an object that adds queues."""
    return "queue", {"kind": event.kind, "key": event.key, "object": event.object}


def _decision(made: ReportDecision) -> tuple[str, Entry]:
    """The entry of a decision."""
    contents: Entry = {
        "pod": made.pod.key,
        "uid": made.pod.uid,
        "object": made.pod,
        "revision": made.decision.revision,
        "verdict": verdict(made.decision),
    }
    if made.is_member:
        contents["member"] = True
    if made.answers:
        contents["answers"] = [answer_plain(answer) for answer in made.answers]
    return "decision", contents
