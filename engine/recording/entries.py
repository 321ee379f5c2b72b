"""The format of a decision log: its entries as lines of JSON, and the hash of a state.

Owns the format. An entry is a JSON object with its number `n`, its time `t` (seconds since the
epoch) and its kind `e`:

    log          the head of a file: `format`, `version`, `reason` of its checkpoint, `lost` entries
    policies     `revision`, `files`, `config`
    hole, fill   a slot that no node has: `key`; the end of that: `keys`
    node, pod    a node, or a pod that is on a node: `object`
    pending      the pod that is decided, assumed or nominated next, in its newest version: `object`
    object       another object: `kind` (the plural resource name), `object`
    gone         `of` (`node`, `pod`, or the kind of an object), `key` (a pod's is its uid)
    assume       `uid`, `node`, `annotations`; forget: `uid`, `undone` (it was still assumed)
    facts        `of` (`node`, `pod`, `others`), `key`, `facts`
    typeLabels   `labels`
    promises     `pods`: [uid, node] of every pod that is nominated for a node, in order
    checkpoint   the state is complete: `state`, `held`
    decision     `pod`, `uid`, `podHash`, `state`, `revision`, `verdict`, `answers`
    lost         an attempt that ended with an exception: `pod`, `uid`, `error`

Between `log` and `checkpoint`, entries build the state; after it, they change it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from engine.model.node import Node
from engine.model.pod import Pod
from engine.offline.cluster_file import redact, redacted
from engine.scheduling.decision import Decision
from engine.scheduling.extenders import (
    Answer,
    ExtenderFailure,
    FilterAnswer,
    NodeVictims,
    PreemptAnswer,
    PrioritizeAnswer,
)

SUFFIXES: Final = (".jsonl", ".jsonl.gz")

Entry: TypeAlias = dict[str, Any]

_encode = msgspec.json.encode
_MASK: Final = (1 << 128) - 1

# What may be secret in a record, which keeps neither commands nor environments.
_SUSPECTS: Final = (b"/last-applied-configuration", b'"volumeAttributes"', b'"options"')


def digest(raw: bytes) -> str:
    """The hash of an object's text: 16 hexadecimal digits."""
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def object_text(obj: Any) -> bytes:
    """The JSON text of a pod, a node or another record, without what may be secret."""
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
    """Everything that *decision* says, but under which revision."""
    said: Entry = {"node": decision.node, "feasible": decision.feasible_count}
    if decision.node is None:
        said["message"] = decision.message()
        said["rejectors"] = sorted(decision.diagnosis.rejectors)
        said["nominated"] = decision.nominated_node
    if decision.failures:
        said["failures"] = [str(failure) for failure in decision.failures]
    if decision.ignored:
        said["ignored"] = [str(failure) for failure in decision.ignored]
    if decision.eviction is not None:
        victims = [victim.key for victim in decision.eviction.victims]
        said["eviction"] = {"node": decision.eviction.node, "victims": victims}
    if decision.annotations:
        said["annotations"] = dict(decision.annotations)
    return said


def verdict_text(said: Entry) -> bytes:
    """The bytes by which verdicts are compared."""
    return _encode(said)


# --- extenders -------------------------------------------------------------------------------


def answer_plain(answer: Answer) -> Entry:
    """An extender's answer as it is written."""
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
    """The answer that was written; *pods* are the victims by uid."""
    if "filter" in plain:
        return msgspec.convert(plain["filter"], FilterAnswer)
    if "prioritize" in plain:
        return msgspec.convert(plain["prioritize"], PrioritizeAnswer)
    victims = {
        name: NodeVictims(tuple(pods[uid] for uid in uids if uid in pods), violations)
        for name, (uids, violations) in plain["preempt"].items()
    }
    failure = plain["failure"]
    said = None if failure is None else msgspec.convert(failure, ExtenderFailure)
    return PreemptAnswer(victims, said)


# --- the state -------------------------------------------------------------------------------


class StateHash:
    """The hash of all that a decision reads: the same for the same state, however it came about.

    Follows entries; each costs the hash of its own text.
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

    def put_facts(self, of: str, key: str, text: bytes) -> None:
        """Note new facts; an empty *text* means that none are known."""
        if of == "others":
            for name in [name for kind, name in self._parts if kind == "facts pod"]:
                self.drop("facts pod", name)
            said = msgspec.json.decode(text)
            for name, facts in said.pop("pods").items():
                self.put("facts pod", name, _encode(facts))
            text = _encode(said)
        if text in _NOTHING:
            self.drop(f"facts {of}", key)
        else:
            self.put(f"facts {of}", key, text)


_NOTHING: Final = (b"{}", b'{"own":{},"of_pods":{}}')


def assumed_text(node: str) -> bytes:
    """What a pod that is assumed on *node* counts as in the hash."""
    return b"assumed " + node.encode()


def nominations_text(pods: Sequence[Sequence[str]]) -> bytes:
    """What the nominations count as in the hash."""
    return _encode([list(pair) for pair in pods])
