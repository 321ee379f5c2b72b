"""The requests of kube-scheduler to an extender, and the bodies of the answers.

Owns decoding requests and encoding answers (`k8s.io/kube-scheduler/extender/v1`). Keys are
case-insensitive, as in Go. No decision is made here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from engine.core.framework.extender import MalformedAnswer
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.extender_messages import MetaVictims, lower_members
from engine.lib.deep_json import UNREADABLE

T = TypeVar("T")

_encode = msgspec.json.encode


class BadRequest(Exception):
    """A body that does not follow the protocol; the message is sent back to the client."""


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """Filter and prioritize: a pod, and its nodes, complete or as names.

    `texts` has the received JSON of each node by name; None if only names were sent.
    """

    pod: Pod
    names: tuple[str, ...]
    texts: Mapping[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class VictimsRequest:
    """Preempt: a pod, and the victims on each candidate by uid."""

    pod: Pod
    victims: Mapping[str, MetaVictims]


@dataclass(frozen=True, slots=True)
class BindRequest:
    """Bind: a pod and its node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The answer to filter: names in the order of the request, reasons by name."""

    feasible: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_named = msgspec.json.Decoder(_Named).decode


def read_nodes_request(body: bytes) -> NodesRequest:
    """`ExtenderArgs`. Raises `BadRequest`."""
    members = _members(body)
    pod = _pod(members)
    names = _read(members, "NodeNames", list[str] | None)
    nodes = _read(members, "Nodes", dict[str, msgspec.Raw] | None)
    if nodes is None:
        if names is None:
            raise BadRequest("want `Nodes` or `NodeNames`, got neither")
        return NodesRequest(pod, tuple(names))
    texts: dict[str, msgspec.Raw] = {}
    inner = {key.lower(): value for key, value in nodes.items()}
    for text in _read(inner, "items", list[msgspec.Raw] | None) or ():
        name = _decoded("Nodes.items", lambda text=text: _named(text)).metadata.name
        if not name:
            raise BadRequest("Nodes.items: a node without a name")
        texts[name] = text
    return NodesRequest(pod, tuple(texts), texts)


def read_victims_request(body: bytes) -> VictimsRequest:
    """`ExtenderPreemptionArgs`. Raises `BadRequest`."""
    members = _members(body)
    pod = _pod(members)
    whole = _read(members, "NodeNameToVictims", dict[str, msgspec.Raw] | None)
    meta = _read(members, "NodeNameToMetaVictims", dict[str, msgspec.Raw] | None)
    if whole is None and meta is None:
        raise BadRequest("want `NodeNameToVictims` or `NodeNameToMetaVictims`, got neither")
    victims: dict[str, MetaVictims] = {}
    for node, text in (meta if meta is not None else whole or {}).items():
        inner = _members(text)
        pods = _read(inner, "Pods", list[msgspec.Raw] | None) or ()
        if meta is not None:
            uids = [_read(_members(pod), "UID", str | None) or "" for pod in pods]
        else:
            uids = [_decoded("Pods", lambda pod=pod: _named(pod)).metadata.uid for pod in pods]
        victims[node] = MetaVictims(tuple(uids), _read(inner, "NumPDBViolations", int | None) or 0)
    return VictimsRequest(pod, victims)


def read_bind_request(body: bytes) -> BindRequest:
    """`ExtenderBindingArgs`. Raises `BadRequest`."""
    members = _members(body)
    values = {
        key: _read(members, key, str | None) or ""
        for key in ("PodNamespace", "PodName", "PodUID", "Node")
    }
    missing = [key for key, value in values.items() if not value]
    if missing:
        raise BadRequest(f"want `{missing[0]}`, got none")
    return BindRequest(*values.values())


def _members(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return lower_members(body)
    except MalformedAnswer as error:
        raise BadRequest(f"want the JSON of a request, got something else: {error}") from error


def _pod(members: Mapping[str, msgspec.Raw]) -> Pod:
    raw = members.get("pod")
    if raw is None or bytes(raw) == b"null":
        raise BadRequest("want `Pod`, got none")
    # A nomination would have this one node request about first; kube-scheduler does that itself.
    pod: Pod = _decoded("Pod", lambda: Pod.from_raw(bytes(raw)))
    if pod.nominated_node_name:
        status = msgspec.structs.replace(pod.manifest.status, nominated_node_name="")
        return Pod.from_manifest(msgspec.structs.replace(pod.manifest, status=status))
    return pod


def node_of(text: msgspec.Raw) -> Node:
    """Decode a node. Raises `BadRequest`."""
    node: Node = _decoded("Nodes.items", lambda: Node.from_raw(bytes(text)))
    return node


def _read(members: Mapping[str, msgspec.Raw], key: str, kind: Any) -> Any:
    raw = members.get(key.lower())
    if raw is None:
        return None
    return _decoded(key, lambda: msgspec.json.decode(raw, type=kind))


def _decoded(key: str, decode: Any) -> Any:
    try:
        return decode()
    except UNREADABLE as error:
        raise BadRequest(f"{key}: {error}") from error


# --- answers ----------------------------------------------------------------------------------


def filter_answer(request: NodesRequest, verdicts: Verdicts) -> bytes:
    """`ExtenderFilterResult`: nodes as they came, or names if only names came."""
    nodes, names = b"null", b"null"
    if request.texts is None:
        names = _encode(verdicts.feasible)
    else:
        kept = b",".join(bytes(request.texts[name]) for name in verdicts.feasible)
        nodes = b'{"metadata":{},"items":[' + kept + b"]}"
    return (
        b'{"Nodes":%b,"NodeNames":%b,"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":""}'
        % (nodes, names, _encode(verdicts.failed), _encode(verdicts.unresolvable))
    )


def error_answer(text: str) -> bytes:
    """The answer of filter and bind when the request could not be served."""
    return _encode({"Error": text})


def priorities_answer(scores: Iterable[tuple[str, int]]) -> bytes:
    """`HostPriorityList`."""
    return _encode([{"Host": host, "Score": score} for host, score in scores])


def victims_answer(victims: Mapping[str, MetaVictims], names: Sequence[str]) -> bytes:
    """`ExtenderPreemptionResult` with the candidates *names*."""
    kept = {
        name: {
            "Pods": [{"UID": uid} for uid in victims[name].uids],
            "NumPDBViolations": victims[name].pdb_violations,
        }
        for name in names
    }
    return _encode({"NodeNameToMetaVictims": kept})
