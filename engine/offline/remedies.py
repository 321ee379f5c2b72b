"""What would make a pod fit that fits nowhere: the smallest change, in words.

Owns the arithmetic for kube-scheduler's own policies (room, taints, labels). Of other policies only
the runtime's answer counts: on how many nodes nothing else stands in the way.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from engine.caching.snapshot import Snapshot
from engine.model.node_info import NodeInfo
from engine.model.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint
from engine.model.pod import Pod
from engine.model.selectors import matches_node_selector
from engine.offline.matrix import Matrix
from engine.queueing.hints.nodes import tolerates

_MOST: Final = 3
_FIT: Final = "NodeResourcesFit"
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi")


class Remedy(msgspec.Struct, frozen=True):
    """One change that would help.

    Attributes:
        policy: Whose rejection it lifts.
        text: The change.
        nodes: On how many nodes the pod would fit after it alone; 0 where that is not enough.
    """

    policy: str
    text: str
    nodes: int


def remedies(pod: Pod, snapshot: Snapshot, matrix: Matrix) -> list[Remedy]:
    """What would help, the most promising first within each policy."""
    found: list[Remedy] = []
    for policy, rejected in matrix.rejections.items():
        if not rejected:
            continue
        alone = matrix.rejected_only_by(policy)
        if alone:
            found.append(Remedy(policy, "leave this policy out", len(alone)))
        infos = [i for name in alone or rejected if (i := snapshot.info(name)) is not None]
        fits = bool(alone)
        match policy:
            case "NodeResourcesFit":
                found += _room(pod, infos, fits)
            case "TaintToleration":
                found += _taints(pod, infos, fits)
            case "NodeAffinity":
                found += _labels(pod, infos, fits)
            case "NodeUnschedulable" if fits:
                text = f"uncordon {_named([info.name for info in infos])}"
                found.append(Remedy(policy, text, len(infos)))
    return found


def shortfall(pod: Pod, info: NodeInfo) -> dict[str, int]:
    """How much of each resource *info* lacks for *pod*: millicores for cpu, else whole units."""
    if info.node is None:
        return {}
    offered, wanted = info.node.allocatable, {**pod.requests, "pods": 1}
    taken = {**info.requested, "pods": len(info.pods)}
    lacking = {
        name: amount + taken.get(name, 0) - offered.get(name, 0) for name, amount in wanted.items()
    }
    return {name: amount for name, amount in lacking.items() if amount > 0 and wanted[name] > 0}


def _room(pod: Pod, infos: list[NodeInfo], fits: bool) -> Iterator[Remedy]:
    """The nodes that lack the least of what the pod asks for."""

    def share(lacking: dict[str, int], info: NodeInfo) -> float:
        wanted = {**pod.requests, "pods": 1}
        return max(amount / max(1, wanted[name]) for name, amount in lacking.items())

    short = [(lacking, info) for info in infos if (lacking := shortfall(pod, info))]
    short.sort(key=lambda pair: (len(pair[0]), share(*pair), pair[1].name))
    for lacking, info in short[:_MOST]:
        amounts = " and ".join(amount_text(name, amount) for name, amount in lacking.items())
        yield Remedy(_FIT, f"{info.name} lacks {amounts}", int(fits))
    # What no node could give even if it were empty is a mistake in the pod, or a missing shape.
    for name, amount in pod.requests.items():
        most = max((i.node.allocatable.get(name, 0) for i in infos if i.node), default=0)
        if amount > most:
            text = (
                f"it asks for {amount_text(name, amount)}, "
                f"and the largest of these nodes has {amount_text(name, most)}"
            )
            yield Remedy(_FIT, text, 0)


def _taints(pod: Pod, infos: list[NodeInfo], fits: bool) -> Iterator[Remedy]:
    """The sets of taints to tolerate, the one that opens most nodes first."""
    tolerations = pod.manifest.spec.tolerations
    sets: Counter[tuple[str, ...]] = Counter()
    for info in infos:
        unborne = [
            taint_text(taint)
            for taint in (info.node.taints if info.node is not None else ())
            if taint.effect in _EFFECTS and not any(tolerates(t, taint) for t in tolerations)
        ]
        if unborne:
            sets[tuple(sorted(unborne))] += 1
    for taints, number in sorted(sets.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST]:
        text = "tolerate " + " and ".join(f"`{taint}`" for taint in taints)
        yield Remedy("TaintToleration", text, number if fits else 0)


def _labels(pod: Pod, infos: list[NodeInfo], fits: bool) -> Iterator[Remedy]:
    """The sets of requirements that nodes do not meet, the one that stops most nodes first."""
    sets: Counter[tuple[str, ...]] = Counter(_unmet(pod, info) for info in infos)
    sets.pop((), None)
    for unmet, number in sorted(sets.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST]:
        text = "nodes do not meet " + " and ".join(f"`{one}`" for one in unmet)
        yield Remedy("NodeAffinity", text, number if fits else 0)


def _unmet(pod: Pod, info: NodeInfo) -> tuple[str, ...]:
    """The fewest requirements of the pod that the node would have to meet in addition."""
    if info.node is None:
        return ()
    spec, labels = pod.manifest.spec, info.node.labels
    unmet = [f"{k}={v}" for k, v in spec.node_selector.items() if labels.get(k) != v]
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is not None and not matches_node_selector(required, labels, info.name):
        by_term = [
            [_requirement_text(r) for term in _single_terms(one) for r in _unmet_of(term, info)]
            for one in required.node_selector_terms
        ]
        by_term.sort(key=len)
        unmet += next((term for term in by_term if term), ["any term"])
    return tuple(unmet)


def _single_terms(term: NodeSelectorTerm) -> Iterator[NodeSelectorTerm]:
    for requirement in term.match_expressions:
        yield NodeSelectorTerm(match_expressions=[requirement])
    for requirement in term.match_fields:
        yield NodeSelectorTerm(match_fields=[requirement])


def _unmet_of(term: NodeSelectorTerm, info: NodeInfo) -> list[NodeSelectorRequirement]:
    assert info.node is not None
    selector = NodeSelector(node_selector_terms=[term])
    if matches_node_selector(selector, info.node.labels, info.name):
        return []
    return [*term.match_expressions, *term.match_fields]


def _requirement_text(requirement: NodeSelectorRequirement) -> str:
    values = ", ".join(requirement.values)
    text = f"{requirement.key} {requirement.operator}"
    return f"{text} ({values})" if values else text


def taint_text(taint: Taint) -> str:
    """`key=value:NoSchedule`, as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def amount_text(resource: str, amount: int) -> str:
    """`500m cpu`, `1.5Gi memory`, `2 nvidia.com/gpu`: an amount as people write it."""
    if resource == "cpu":
        return f"{amount // 1000} cpu" if amount % 1000 == 0 else f"{amount}m cpu"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{bytes_text(amount)} {resource}"
    return f"{amount} {resource}"


def bytes_text(amount: int) -> str:
    """`1.5Gi`: bytes with the largest unit that leaves at least 1."""
    value, unit = float(amount), ""
    for larger in _BINARY:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g}{unit}" if value < 1000 else f"{value:.0f}{unit}"


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST])
    return f"{shown} and {len(names) - _MOST} more" if len(names) > _MOST else shown
