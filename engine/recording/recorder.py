"""Hears of every change of the cache and of every decision, and has them written.

Owns what is recorded and when a checkpoint is taken. Everything here runs between the decisions, so
it only notes references to what never changes; encoding and writing are the log writer's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from engine.caching.cache import Cache
from engine.lib.clock import Clock
from engine.model.fact import Facts, NodeFacts
from engine.model.node import Node
from engine.model.pod import Pod
from engine.queueing.nominator import Nominator
from engine.recording.entries import Entry, answer_plain, verdict
from engine.recording.log_writer import Checkpoint, LogWriter, key_of
from engine.scheduling.decision import Decision
from engine.scheduling.extenders import Answer

log = structlog.get_logger(component="record")

Tell = Callable[[str, Entry], None]

#: A new file waits for pods that hold volumes or devices, but not for ever: so many decisions.
_MOST_DEFERRED: Final = 5000


class RecordedCache(Cache):
    """A cache that tells of every change, in order, after it was made."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def add_node(self, node: Node) -> None:
        """As the cache's."""
        super().add_node(node)
        self._tell("node", {"object": node})

    def remove_node(self, name: str) -> None:
        """As the cache's."""
        super().remove_node(name)
        self._tell("gone", {"of": "node", "key": name})

    def add_pod(self, pod: Pod) -> None:
        """As the cache's."""
        self._tell_namesake(pod)
        super().add_pod(pod)
        if self.get_pod(pod.uid) is None:  # it has come to its end
            self._tell("gone", {"of": "pod", "key": pod.uid})
        else:
            self._tell("pod", {"object": pod})

    def remove_pod(self, pod: Pod) -> None:
        """As the cache's."""
        super().remove_pod(pod)
        self._tell("gone", {"of": "pod", "key": pod.uid})

    def assume(self, pod: Pod, node_name: str) -> Pod:
        """As the cache's."""
        if self.get_pod(pod.uid) is None:
            self._tell_namesake(pod)
        placed = super().assume(pod, node_name)
        added = dict(pod.added_annotations)
        self._tell("assume", {"uid": pod.uid, "node": node_name, "annotations": added})
        return placed

    def forget(self, uid: str) -> bool:
        """As the cache's. Told in any case: what plugins hold for the pod is let go."""
        is_undone = super().forget(uid)
        self._tell("forget", {"uid": uid, "undone": is_undone})
        return is_undone

    def set_node_facts(self, name: str, facts: NodeFacts) -> None:
        """As the cache's."""
        if self.facts_of_node(name) == facts:
            return
        super().set_node_facts(name, facts)
        self._tell("facts", {"of": "node", "key": name, "facts": facts})

    def set_other_facts(
        self, *, cluster: Facts, types: Mapping[str, Facts], pods: Mapping[str, Facts]
    ) -> None:
        """As the cache's."""
        super().set_other_facts(cluster=cluster, types=types, pods=pods)
        self._tell("facts", _others(cluster, types, pods))

    def set_pod_facts(self, key: str, facts: Facts) -> None:
        """As the cache's."""
        super().set_pod_facts(key, facts)
        self._tell("facts", {"of": "pod", "key": key, "facts": facts})

    def set_pod_type_labels(self, labels: Sequence[str]) -> None:
        """As the cache's."""
        super().set_pod_type_labels(labels)
        self._tell("typeLabels", {"labels": list(labels)})

    def _tell_namesake(self, pod: Pod) -> None:
        """The pod that had the name of *pod* is gone, seen or not."""
        uid = self._uid_of.get(pod.key)
        if uid is not None and uid != pod.uid:
            self._tell("gone", {"of": "pod", "key": uid})

    def state(self) -> list[tuple[str, Entry]]:
        """Everything in it, as entries that build it again, its slots included.

        Cost: a reference to each object; what it refers to never changes.
        """
        snapshot = self.snapshot()
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
        for name in [*shown, *(name for name in self._infos if name not in shown)]:
            for pod in self._infos[name].pods.values():
                if pod.uid in self._assumed:
                    added = dict(pod.added_annotations)
                    contents = {"uid": pod.uid, "node": name, "annotations": added, "pod": pod}
                    entries.append(("assume", contents))
                else:
                    entries.append(("pod", {"object": pod}))
        # 3. Facts.
        entries += [
            ("facts", {"of": "node", "key": name, "facts": facts})
            for name, facts in self._facts.items()
        ]
        entries.append(
            ("facts", _others(snapshot.cluster_facts, snapshot.type_facts, snapshot.pod_facts))
        )
        entries.append(("typeLabels", {"labels": list(snapshot.pod_type_labels)}))
        return entries


def _others(cluster: Facts, types: Mapping[str, Facts], pods: Mapping[str, Facts]) -> Entry:
    facts = {"cluster": dict(cluster), "types": dict(types), "pods": dict(pods)}
    return {"of": "others", "key": "", "facts": facts}


class Recorder:
    """The journal of a running scheduler.

        idle --a decision begins--> recording --too much waits--> lost --it was written--> recording

    Args:
        writer: Writes; started and closed by the recorder.
        clock: Tells when.
        kinds: The kinds of objects that decisions read beside pods and nodes.
        config_text: The configuration that was given beside the policies, if any.
    """

    def __init__(
        self,
        writer: LogWriter,
        clock: Clock,
        kinds: Sequence[str],
        config_text: str | None = None,
    ) -> None:
        self.writer = writer
        self.cache = RecordedCache(self._tell)
        self._clock = clock
        self._kinds = tuple(kinds)
        self._config_text = config_text
        self._policies: Entry | None = None
        self._is_recording = False
        self._is_overrun = False
        self._is_off = False
        self._held: list[tuple[float, str, Entry]] | None = None
        self._promises = -1
        self._holders: set[str] = set()
        self._to_hold = ""  # the uid of a pod for which plugins hold something once it is assumed
        self._deferred = 0
        for kind in self._kinds:
            self.cache.objects.listen(kind, self._listener(kind))

    def start(self) -> None:
        """Begin. Raises `OSError` if the log's directory cannot be written."""
        self.writer.start()

    def close(self) -> None:
        """Have all that was told written, and end."""
        self._is_off = True
        self.writer.close()

    def policies(self, revision: str, files: Mapping[str, str]) -> None:
        """These decide from now on."""
        self._policies = {
            "revision": revision,
            "files": dict(files),
            "config": self._config_text,
        }
        self._tell("policies", self._policies)

    # --- changes -----------------------------------------------------------------------------

    def _listener(self, kind: str) -> Callable[[Any | None, Any | None], None]:
        def told(before: Any | None, after: Any | None) -> None:
            if after is not None:
                self._tell("object", {"kind": kind, "object": after})
            else:
                self._tell("gone", {"of": kind, "key": key_of(before)})

        return told

    def _tell(self, kind: str, contents: Entry) -> None:
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

    def deciding(self, nominator: Nominator) -> None:
        """A decision begins; what the cluster does until its end comes after it."""
        if self._is_off:
            return
        try:
            if self._is_time_for_checkpoint():
                self._checkpoint(nominator)
            elif self._is_recording and nominator.generation != self._promises:
                self._put((self._clock.now(), "promises", self._promised(nominator)))
            if self._is_recording:
                self._held = []
        except Exception as error:
            self._fail(error)

    def decided(self, pod: Pod, decision: Decision, answers: Sequence[Answer] = ()) -> None:
        """It has ended."""
        if not self._is_recording or self._is_off:
            if self._is_overrun:
                self.writer.counts.dropped += 1
            return
        try:
            contents: Entry = {
                "pod": pod.key,
                "uid": pod.uid,
                "object": pod,
                "revision": decision.revision,
                "verdict": verdict(decision),
            }
            if answers:
                contents["answers"] = [answer_plain(answer) for answer in answers]
            self._to_hold = pod.uid if decision.reserves and decision.node is not None else ""
            self._end("decision", contents)
        except Exception as error:
            self._fail(error)

    def lost(self, pod: Pod, error: Exception) -> None:
        """A turn ended with an exception."""
        if self._is_recording and not self._is_off:
            text = f"{type(error).__name__}: {error}"
            self._end("lost", {"pod": pod.key, "uid": pod.uid, "error": text})

    def _end(self, kind: str, contents: Entry) -> None:
        """Put the end of a decision, then what the cluster did meanwhile."""
        held, self._held = self._held, None
        self._put((self._clock.now(), kind, contents))
        for entry in held or ():
            if self._is_recording:
                self._put(entry)

    def _fail(self, error: Exception) -> None:
        """A fault of ours: it costs the record, never a decision."""
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

    def _checkpoint(self, nominator: Nominator) -> None:
        reason = "overrun" if self._is_overrun else self.writer.wants_checkpoint or "start"
        assert self._policies is not None
        entries: list[tuple[str, Entry]] = [("policies", self._policies)]
        entries += self.cache.state()
        for kind in self._kinds:
            objects = self.cache.objects.list(kind)
            entries += [("object", {"kind": kind, "object": obj}) for obj in objects]
        entries.append(("promises", self._promised(nominator)))
        entries.append(("checkpoint", {"held": sorted(self._holders)}))
        self.writer.wants_checkpoint = ""
        self.writer.put(self._clock.now(), "", Checkpoint(reason, entries))
        self._is_recording, self._is_overrun = True, False
        self._deferred = 0

    def _promised(self, nominator: Nominator) -> Entry:
        self._promises = nominator.generation
        pods = list(nominator)
        pairs = [[pod.uid, nominator.node_of(pod.uid) or ""] for pod in pods]
        return {"pods": pairs, "objects": pods}
