"""Nodes that are not there yet, made like one that is, or of a machine type.

Owns what of a node is its shape, and what belongs to the one node or to a moment of its life.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import NodeCondition, NodeManifest, ObjectMeta, Taint
from engine.core.model.pod import Pod
from engine.surfaces.live.what_if.changes import EFFECTS

HOSTNAME: Final = "kubernetes.io/hostname"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
#: Kinds of controllers whose pods belong to one node.
DAEMON_SET: Final = "DaemonSet"
STATIC: Final = "Node"
# Taints of a moment in the life of a node, by what their keys begin with.
_OF_A_MOMENT: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/unregistered",
    "node.cilium.io/agent-not-ready",
)


class WrongTypes(ValueError):
    """A file of machine types that makes no sense; the text says where, and what was wanted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What new nodes are like.

    Attributes:
        name: Of the node or the machine type.
        node: The template, without what belongs to the one node.
        daemons: The pods of DaemonSets that each of them has.
        like: The node that it was made of; "": it is a machine type.
    """

    name: str
    node: Node
    daemons: tuple[Pod, ...] = ()
    like: str = ""


def shape_of(info: NodeInfo) -> Shape:
    """The shape of a node that is there, with the pods that DaemonSets have on it."""
    assert info.node is not None, "only nodes that the API server has"
    daemons = tuple(
        pod
        for pod in info.pods.values()
        if pod.controller is not None and pod.controller.kind == DAEMON_SET
    )
    return Shape(info.name, _template(info.node), daemons, like=info.name)


def shape_of_type(node: Node) -> Shape:
    """The shape of a machine type, which is written as a Node."""
    return Shape(node.name, _template(node))


def new_nodes(shape: Shape, taken: Collection[str]) -> Iterator[tuple[Node, list[Pod]]]:
    """Nodes of *shape*, one after the other, with their pods; none has a name that is *taken*."""
    number = 0
    while True:
        number += 1
        name = f"{shape.name}-new-{number}"
        if name not in taken:
            yield _named(shape.node, name), [_daemon(pod, name) for pod in shape.daemons]


def machine_types(path: Path) -> dict[str, Shape]:
    """The machine types of a file of Node manifests, by name. Raises `WrongTypes`, `OSError`."""
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise WrongTypes(f"{path}: want YAML: {error}") from error
    manifests: list[Any] = []
    for document in documents:
        is_list = isinstance(document, Mapping) and isinstance(document.get("items"), list)
        manifests += document["items"] if is_list else [document] if document is not None else []
    found: dict[str, Shape] = {}
    for number, manifest in enumerate(manifests, 1):
        shape = shape_of_type(node_of(manifest, f"{path}: document {number}"))
        if shape.name in found:
            raise WrongTypes(f"{path}: document {number}: metadata.name: `{shape.name}` is twice")
        found[shape.name] = shape
    return found


def node_of(manifest: Any, place: str) -> Node:
    """The node of a manifest at *place*. Raises `WrongTypes`."""
    if not isinstance(manifest, Mapping) or manifest.get("kind", "Node") != "Node":
        kind = manifest.get("kind") if isinstance(manifest, Mapping) else manifest
        raise WrongTypes(f"{place}: kind: want `Node`, got `{str(kind)[:40]}`")
    try:
        node = Node.from_plain(manifest)
    except msgspec.ValidationError as error:
        raise WrongTypes(f"{place}: {error}") from error
    if not node.name:
        raise WrongTypes(f"{place}: metadata.name: want a name, got none")
    if node.problems:
        raise WrongTypes(f"{place}: {node.problems[0]}")
    for number, taint in enumerate(node.manifest.spec.taints):
        if not taint.key or taint.effect not in EFFECTS:
            want = f"want a key and an effect of {', '.join(EFFECTS)}"
            got = f"got the key `{taint.key[:80]}` and the effect `{taint.effect[:40]}`"
            raise WrongTypes(f"{place}: spec.taints[{number}]: {want}, {got}")
    if not node.allocatable:
        raise WrongTypes(f"{place}: status.allocatable: want what the machine offers, got none")
    return node


def _template(node: Node) -> Node:
    manifest, meta = node.manifest, node.manifest.metadata
    own = {node.name, meta.uid, manifest.spec.provider_id} - {""}
    labels = {
        name: value for name, value in meta.labels.items() if name == HOSTNAME or value not in own
    }
    annotations = {
        name: value
        for name, value in meta.annotations.items()
        if not any(one in value for one in own)
    }
    taints = tuple(one for one in node.taints if not one.key.startswith(_OF_A_MOMENT))
    replace = msgspec.structs.replace
    return Node(
        NodeManifest(
            metadata=ObjectMeta(name=node.name, labels=labels, annotations=annotations),
            spec=replace(manifest.spec, unschedulable=False, taints=taints, provider_id=""),
            status=replace(
                manifest.status,
                capacity=manifest.status.capacity or manifest.status.allocatable,
                images=(),  # nothing was pulled yet
                conditions=(NodeCondition(type="Ready", status="True"),),
            ),
        )
    )


def _named(template: Node, name: str) -> Node:
    manifest = template.manifest
    labels = manifest.metadata.labels | {HOSTNAME: name}
    replace = msgspec.structs.replace
    meta = replace(manifest.metadata, name=name, uid=f"new/{name}", labels=labels)
    return Node(replace(manifest, metadata=meta))


def _daemon(pod: Pod, node: str) -> Pod:
    return pod.unplaced().renamed(f"{pod.uid}/{node}", f"{pod.name}-{node}").with_node(node)


# --- nodes that are changed --------------------------------------------------------------------


def without_taint(node: Node, taint: Taint) -> Node:
    """*node* without *taint*; without that of a cordon, it is not cordoned."""
    return _with_taints(
        node,
        tuple(one for one in node.taints if one != taint),
        unschedulable=node.unschedulable and taint.key != UNSCHEDULABLE,
    )


def cordoned(node: Node) -> Node:
    """*node* as `kubectl cordon` and the node controller leave it."""
    mark = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
    others = tuple(one for one in node.taints if one != mark)
    return _with_taints(node, (*others, mark), unschedulable=True)


def _with_taints(node: Node, taints: tuple[Taint, ...], *, unschedulable: bool) -> Node:
    replace = msgspec.structs.replace
    spec = replace(node.manifest.spec, taints=taints, unschedulable=unschedulable)
    return Node(replace(node.manifest, spec=spec))
