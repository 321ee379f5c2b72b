"""The format of a decision log: its entries as lines of JSON, and the hash of a state.

Owns the format. An entry is a JSON object with its number `n`, its time `t` (seconds since the
epoch) and its kind `e`:

    log          the head of a file: `format`, `version`, `reason` of its checkpoint, `lost` entries
    policies     `revision`, `files`, `config`; no candidate decides from here on
    candidate    the same of policies that may decide some pods; with the `revision` "" none do
    hole, fill   a slot that no node has: `key`; the end of that: `keys`
    node, pod    a node, or a pod that is on a node: `object`
    pending      the pod that is decided, assumed or nominated next, in its newest version: `object`
    object       another object: `kind` (the plural resource name), `object`
    queue        an object that adds queues to a tree: `kind` (`plural.group`), `key`, `object`;
                 null if it is gone
    gone         `of` (`node`, `pod`, or the kind of an object), `key` (a pod's is its uid)
    assume       `uid`, `node`, `annotations`; forget: `uid`, `undone` (it was still assumed)
    facts        `of` (`node`, `pod`, `others`), `key`, `facts`
    typeLabels   `labels`
    kubernetes   the minor version that is answered like: `minor`, 37 in logs without it; `gates`:
                 the feature gates that are on, if any are
    unknown      the kinds that cannot be read, by plural name, with the reason: `kinds`
    nominations  `pods`: [uid, node] of every pod that is nominated for a node, in order
    checkpoint   the state is complete: `state`, `held`, `queues`: how many objects add queues,
                 absent in older logs, which lack those objects
    decision     `pod`, `uid`, `podHash`, `state`, `revision`, `verdict`, `answers`
    lost         an attempt that ended with an exception: `pod`, `uid`, `error`

Between `log` and `checkpoint`, entries build the state; after it, they change it. `nominations` was
`promises` in older logs; both are read.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.extenders import (
    Answer,
    ExtenderFailure,
    FilterAnswer,
    NodeVictims,
    PreemptAnswer,
    PrioritizeAnswer,
)
from engine.files.cluster_file import redact, redacted

SUFFIXES: Final = (".jsonl", ".jsonl.gz")

#: The text of an object that is gone.
NO_OBJECT: Final = b"null"

#: The minor version that is answered like in logs that do not say it.
UNRECORDED: Final = 37

Entry: TypeAlias = dict[str, Any]

_encode = msgspec.json.encode
_MASK: Final = (1 << 128) - 1

# What may be secret in a record, which keeps neither commands nor environments.
_SUSPECTS: Final = (b"/last-applied-configuration", b'"volumeAttributes"', b'"options"')


def digest(raw: bytes) -> str:
    """The hash of an object's text: 16 hexadecimal digits."""
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def object_text(obj: Any) -> bytes:
    """The JSON text of a pod, a node, another record or plain data, without what may be secret."""
    if isinstance(obj, Mapping):
        return _encode(redacted(obj))
    is_known = isinstance(obj, Node | Pod)
    raw = obj.raw if is_known else None
    if raw is None:
        raw = _encode(obj.manifest if is_known else obj)
        if not any(word in raw for word in _SUSPECTS):
            return raw  # a record holds only what is read of an object
    plain = msgspec.json.decode(raw)
    if not is_known:
        return _encode(redacted(plain))
    redact(plain)
    return _encode(plain)


def verdict(decision: Decision) -> Entry:
    """*decision* as it is recorded, without its revision."""
    entry: Entry = {"node": decision.node, "feasible": decision.feasible_count}
    if decision.node is None:
        entry["message"] = decision.message()
        entry["rejectors"] = sorted(decision.diagnosis.rejectors)
        entry["nominated"] = decision.nominated_node
    if decision.failures:
        entry["failures"] = [str(failure) for failure in decision.failures]
    if decision.ignored:
        entry["ignored"] = [str(failure) for failure in decision.ignored]
    if decision.eviction is not None:
        victims = [victim.key for victim in decision.eviction.victims]
        entry["eviction"] = {"node": decision.eviction.node, "victims": victims}
    if decision.annotations:
        entry["annotations"] = dict(decision.annotations)
    return entry


def verdict_text(entry: Entry) -> bytes:
    """The text by which verdicts are compared."""
    return _encode(entry)


# --- extenders -------------------------------------------------------------------------------


def answer_plain(answer: Answer) -> Entry:
    """An extender's answer as it is recorded."""
    if isinstance(answer, PreemptAnswer):
        victims = {
            name: [[pod.uid for pod in found.pods], found.pdb_violations]
            for name, found in answer.victims.items()
        }
        plain: Entry = {"preempt": victims, "failure": answer.failure}
    elif isinstance(answer, FilterAnswer):
        plain = {"filter": answer}
    else:
        plain = {"prioritize": answer}
    built: Entry = msgspec.to_builtins(plain)
    return built


def answer_of(plain: Mapping[str, Any], pods: Mapping[str, Pod]) -> Answer:
    """The recorded answer; *pods* are the victims by uid."""
    if "filter" in plain:
        return msgspec.convert(plain["filter"], FilterAnswer)
    if "prioritize" in plain:
        return msgspec.convert(plain["prioritize"], PrioritizeAnswer)
    victims = {
        name: NodeVictims(tuple(pods[uid] for uid in uids if uid in pods), violations)
        for name, (uids, violations) in plain["preempt"].items()
    }
    failure = plain["failure"]
    converted = None if failure is None else msgspec.convert(failure, ExtenderFailure)
    return PreemptAnswer(victims, converted)


# --- the state -------------------------------------------------------------------------------


class StateHash:
    """A hash over all that a decision reads, independent of the order of changes.

    Updated with each entry, at the cost of hashing that entry's text.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], int] = {}
        self._sum = 0

    def __str__(self) -> str:
        return f"{self._sum:032x}"

    def put(self, kind: str, key: str, text: bytes) -> None:
        """Note that something was added or changed."""
        sha = hashlib.blake2b(f"{kind}\0{key}\0".encode(), digest_size=16)
        sha.update(text)
        part = int.from_bytes(sha.digest())
        self._sum = (self._sum - self._parts.get((kind, key), 0) + part) & _MASK
        self._parts[kind, key] = part

    def drop(self, kind: str, key: str) -> None:
        """Note that something was removed; no effect if it was not there."""
        self._sum = (self._sum - self._parts.pop((kind, key), 0)) & _MASK

    def put_queue(self, kind: str, key: str, text: bytes) -> None:
        """Note the object that adds queues; the *text* `null` means that it is gone."""
        if text == NO_OBJECT:
            self.drop(f"queue {kind}", key)
        else:
            self.put(f"queue {kind}", key, text)

    def put_unknown(self, kinds: Mapping[str, str]) -> None:
        """Note which kinds cannot be read."""
        if kinds:
            self.put("unknown", "", _encode(dict(sorted(kinds.items()))))
        else:
            self.drop("unknown", "")

    def put_minor(self, minor: int, gates: Sequence[str] = ()) -> None:
        """Note the minor version that is answered like, and the feature gates that are on."""
        if gates:
            self.put("kubernetes", "", _encode([minor, *gates]))
        elif minor != UNRECORDED:
            self.put("kubernetes", "", _encode(minor))
        else:
            self.drop("kubernetes", "")

    def put_nominations(self, pods: Sequence[Sequence[str]]) -> None:
        """Note all nominations, as [uid, node]."""
        # The key is part of the hash, so it stays as in the oldest logs of this format.
        self.put("promises", "", _encode([list(pair) for pair in pods]))

    def put_facts(self, of: str, key: str, text: bytes) -> None:
        """Note new facts; an empty *text* means that none are known."""
        if of == "others":
            for name in [name for kind, name in self._parts if kind == "facts pod"]:
                self.drop("facts pod", name)
            entry = msgspec.json.decode(text)
            for name, facts in entry.pop("pods").items():
                self.put("facts pod", name, _encode(facts))
            text = _encode(entry)
        if text in _NOTHING:
            self.drop(f"facts {of}", key)
        else:
            self.put(f"facts {of}", key, text)


_NOTHING: Final = (b"{}", b'{"own":{},"of_pods":{}}')


def assumed_text(node: str) -> bytes:
    """The text of a pod assumed on *node*, for the hash."""
    return b"assumed " + node.encode()
