"""The bodies of the extender protocol, as bytes: what is asked, and what is answered.

Owns their form (`k8s.io/kube-scheduler/extender/v1`): capitalised keys, read whatever their case,
with Kubernetes objects in their usual JSON inside. Objects go out as the API server sent them,
without `managedFields`; one whose text was not kept is encoded from what was decoded of it.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec

from engine.core.framework.extender import MalformedAnswer
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.scheduling.extenders import NodeVictims
from engine.lib.deep_json import UNREADABLE
from engine.lib.short import shortened

T = TypeVar("T")

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode
_MANAGED: Final = b'"managedFields"'
# Characters of a reason, and how many different ones an answer may have: they are in the condition
# of the pod and in a metric.
_REASON_LENGTH: Final = 256
_MOST_REASONS: Final = 64
_OTHER_REASONS: Final = "node(s) were rejected by an extender for other reasons"
# Questions between two sweeps of texts that are not needed any more.
_SWEEP_EVERY: Final = 256


# --- objects ----------------------------------------------------------------------------------


def pod_text(pod: Pod) -> bytes:
    """The JSON of *pod*."""
    return _without_managed_fields(pod.raw) if pod.raw is not None else _encode(pod.manifest)


def node_text(node: Node) -> bytes:
    """The JSON of *node*."""
    return _without_managed_fields(node.raw) if node.raw is not None else _encode(node.manifest)


def _without_managed_fields(raw: bytes) -> bytes:
    if _MANAGED not in raw:
        return bytes(raw)
    members = _members.decode(raw)
    metadata = _members.decode(members["metadata"])
    metadata.pop("managedFields", None)
    members["metadata"] = msgspec.Raw(_encode(metadata))
    return _encode(members)


class NodeTexts:
    """The JSON of nodes, kept while the node stays as it is and is asked about."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Node, bytes]] = {}
        self._used: set[str] = set()
        self._calls = 0

    def of(self, infos: Iterable[NodeInfo]) -> list[bytes]:
        """One text per node."""
        self._calls += 1
        if self._calls % _SWEEP_EVERY == 0:
            self._texts = {n: known for n, known in self._texts.items() if n in self._used}
            self._used = set()
        return [self._text(info.node) for info in infos if info.node is not None]

    def _text(self, node: Node) -> bytes:
        self._used.add(node.name)
        known = self._texts.get(node.name)
        if known is not None and known[0] is node:
            return known[1]
        text = node_text(node)
        self._texts[node.name] = (node, text)
        return text


# --- questions --------------------------------------------------------------------------------


def nodes_request(pod: Pod, nodes: Sequence[bytes] | None, names: Sequence[str] | None) -> bytes:
    """`ExtenderArgs`, of filter and prioritize: with *nodes*, or with *names* alone."""
    listed = b"null"
    if nodes is not None:
        listed = b'{"metadata":{},"items":[' + b",".join(nodes) + b"]}"
    return b'{"Pod":%b,"Nodes":%b,"NodeNames":%b}' % (pod_text(pod), listed, _encode(names))


def victims_request(pod: Pod, victims: Mapping[str, NodeVictims], *, meta: bool) -> bytes:
    """`ExtenderPreemptionArgs`: with the pods, or with their uids alone if *meta*."""
    encoded = _meta_victims(victims) if meta else _full_victims(victims)
    key = b"NodeNameToMetaVictims" if meta else b"NodeNameToVictims"
    other = b"NodeNameToVictims" if meta else b"NodeNameToMetaVictims"
    return b'{"Pod":%b,"%b":%b,"%b":null}' % (pod_text(pod), key, encoded, other)


def _meta_victims(victims: Mapping[str, NodeVictims]) -> bytes:
    return _encode(
        {
            node: {
                "Pods": [{"UID": pod.uid} for pod in found.pods],
                "NumPDBViolations": found.pdb_violations,
            }
            for node, found in victims.items()
        }
    )


def _full_victims(victims: Mapping[str, NodeVictims]) -> bytes:
    return _encode(
        {
            node: {
                "Pods": [msgspec.Raw(pod_text(pod)) for pod in found.pods],
                "NumPDBViolations": found.pdb_violations,
            }
            for node, found in victims.items()
        }
    )


def bind_request(pod: Pod, node_name: str) -> bytes:
    """`ExtenderBindingArgs`."""
    return _encode(
        {
            "PodName": pod.name,
            "PodNamespace": pod.namespace,
            "PodUID": pod.uid,
            "Node": node_name,
        }
    )


# --- answers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilterResult:
    """`ExtenderFilterResult`; of the nodes only the names. None: the extender did not say."""

    nodes: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """The uids to evict from one node."""

    uids: tuple[str, ...] = ()
    pdb_violations: int = 0


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _HostPriority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str
    score: _Int64


_usual = msgspec.json.Decoder(list[_HostPriority])


def filter_result(body: bytes) -> FilterResult:
    """What an extender answered to filter. Raises `MalformedAnswer`."""
    members = lower_members(body)
    nodes = _read(members, "nodes", dict[str, msgspec.Raw] | None)
    names = _read(members, "nodenames", list[str] | None)
    return FilterResult(
        nodes=None if nodes is None else _names(nodes),
        node_names=None if names is None else tuple(names),
        failed=_reasons(_read(members, "failednodes", dict[str, str] | None)),
        unresolvable=_reasons(_read(members, "failedandunresolvablenodes", dict[str, str] | None)),
        error=_read(members, "error", str | None) or "",
    )


def _reasons(by_node: Mapping[str, str] | None) -> dict[str, str]:
    """Why nodes were rejected, as far as pods' conditions can say it."""
    reasons: dict[str, str] = {}
    known: set[str] = set()
    for node, text in (by_node or {}).items():
        reason = shortened(text, _REASON_LENGTH)
        if reason not in known and len(known) >= _MOST_REASONS:
            reason = _OTHER_REASONS
        known.add(reason)
        reasons[node] = reason
    return reasons


def _names(nodes: Mapping[str, msgspec.Raw]) -> tuple[str, ...]:
    """The names of a `NodeList`."""
    members = {name.lower(): value for name, value in nodes.items()}
    return tuple(item.metadata.name for item in _read(members, "items", list[_Named] | None) or ())


def priorities(body: bytes) -> list[tuple[str, int]]:
    """`HostPriorityList`: host and score. Raises `MalformedAnswer`."""
    with contextlib.suppress(*UNREADABLE):  # nearly all write them so; a tenth of the time
        return [(one.host, one.score) for one in _usual.decode(body)]
    found: list[tuple[str, int]] = []
    for item in _decode(body, list[msgspec.Raw] | None) or ():
        members = lower_members(item)
        host = _read(members, "host", str | None) or ""
        found.append((host, _read(members, "score", _Int64 | None) or 0))
    return found


def preemption_result(body: bytes) -> dict[str, MetaVictims]:
    """`ExtenderPreemptionResult`, by node. Raises `MalformedAnswer`."""
    by_node = _read(lower_members(body), "nodenametometavictims", dict[str, msgspec.Raw] | None)
    found: dict[str, MetaVictims] = {}
    for node, raw in (by_node or {}).items():
        members = lower_members(raw)
        uids = [
            _read(lower_members(pod), "uid", str | None) or ""
            for pod in _read(members, "pods", list[msgspec.Raw] | None) or ()
        ]
        violations = _read(members, "numpdbviolations", int | None) or 0
        found[node] = MetaVictims(tuple(uids), violations)
    return found


def binding_result(body: bytes) -> str:
    """The error of an `ExtenderBindingResult`, or "". Raises `MalformedAnswer`."""
    return _read(lower_members(body), "error", str | None) or ""


def lower_members(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of an object by lower-case name; null has none. Raises `MalformedAnswer`."""
    members = _decode(body, dict[str, msgspec.Raw] | None) or {}
    return {name.lower(): value for name, value in members.items()}


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decode(body: bytes | msgspec.Raw, kind: Any) -> Any:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    if not bytes(body).strip():
        raise MalformedAnswer("EOF")
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise MalformedAnswer(str(error)) from error


def _read(members: Mapping[str, msgspec.Raw], name: str, kind: Any) -> Any:
    raw = members.get(name)
    return None if raw is None else _decode(raw, kind)
