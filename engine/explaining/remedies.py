"""Finds the smallest changes that would make an unschedulable pod fit.

Owns the arithmetic for kube-scheduler's own policies (resources, taints, labels). Of other policies
only the runtime's answer counts: the number of nodes that no other policy rejects.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.reasons import is_plugin
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import NodeSelectorRequirement, NodeSelectorTerm, Taint
from engine.core.model.pod import Pod
from engine.core.model.quantity import amount_text
from engine.core.model.selectors import matches_node_selector_term
from engine.core.queueing.hints.nodes import tolerates
from engine.core.queueing.nominator import Nominator
from engine.explaining.verdict_table import VerdictTable

_MOST: Final = 3
# Sets of taints that are compared with all others: every node may have a set of its own.
_MOST_SETS: Final = 100
# Up to so many nodes are looked at one by one.
_FEW: Final = 64
_FIT: Final = "NodeResourcesFit"
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_CORDON: Final = "node.kubernetes.io/unschedulable:NoSchedule"


class Remedy(msgspec.Struct, frozen=True):
    """One change that would help.

    Attributes:
        policy: The policy whose rejection it lifts.
        text: The change.
        nodes: On how many nodes the pod would fit after it alone; 0 where that is not enough.
    """

    policy: str
    text: str
    nodes: int


def remedies(
    pod: Pod,
    snapshot: Snapshot,
    table: VerdictTable,
    nominator: Nominator,
    kept_by: Mapping[str, int],
) -> list[Remedy]:
    """What would help, the most promising first within each policy.

    *kept_by*: on how many nodes a policy keeps the pods whose eviction would free capacity.
    """
    found: list[Remedy] = []
    cordoned = _only_cordoned(pod, snapshot, table)
    for policy in table.columns:
        rejected = table.slots_rejected_by(policy).tolist()
        if not rejected:
            continue
        alone = table.slots_rejected_only_by(policy).tolist()
        # Without a plugin a pod is placed where a kubelet refuses it, or where it does not work.
        if alone and not is_plugin(policy):
            found.append(Remedy(policy, "leave this policy out", len(alone)))
        match policy:
            case "NodeUnschedulable":
                alone += [slot for slot, by_that_alone in cordoned.items() if by_that_alone]
            case "TaintToleration":
                alone += cordoned
        infos = [info for slot in alone or rejected if (info := snapshot.infos[slot]) is not None]
        fits = bool(alone)
        match policy:
            case "NodeResourcesFit":
                near = _near(pod, infos) if fits else []
                if not near:
                    fits = False
                    others = (snapshot.infos[slot] for slot in rejected)
                    near = _near(pod, [info for info in others if info is not None])
                found += _capacity(pod, near, nominator, fits)
                found += _too_large(pod, snapshot)
            case "TaintToleration":
                found += _taints(pod, infos, fits)
            case "NodeAffinity":
                found += _labels(pod, infos, fits)
            case "NodeUnschedulable" if fits:
                text = f"uncordon {_named(sorted(info.name for info in infos))}"
                found.append(Remedy(policy, text, len(infos)))
    for policy, nodes in kept_by.items():
        text = "evict pods of lower priority that it protects: victim_key returns None"
        found.append(Remedy(policy, text, nodes))
    return found


def _only_cordoned(pod: Pod, snapshot: Snapshot, table: VerdictTable) -> dict[int, bool]:
    """The nodes that their cordon and their taints alone keep the pod off; True if the cordon does.

    By slot. Where there is a controller for it a cordoned node has a taint that says so. It goes
    with the cordon, and a pod that tolerates it may come in spite of it.
    """
    both = ("NodeUnschedulable", "TaintToleration")
    found = {}
    for slot in table.slots_rejected_only_by(*both).tolist():
        info = snapshot.infos[slot]
        if info is not None:
            untolerated = _untolerated(pod, info)
            if _CORDON in untolerated:
                found[slot] = len(untolerated) == 1
    return found


def shortfall(pod: Pod, info: NodeInfo, nominated: Sequence[Pod] = ()) -> dict[str, int]:
    """How much of each resource *info* lacks for *pod*: millicores for cpu, else whole units.

    *nominated* are the nominated pods for which capacity is kept there.
    """
    if info.node is None:
        return {}
    offered, wanted = info.node.allocatable, {**pod.requests, "pods": 1}
    taken = Counter({**info.requested, "pods": len(info.pods) + len(nominated)})
    for other in nominated:
        taken.update(other.requests)
    lacking = {
        name: amount + taken.get(name, 0) - offered.get(name, 0) for name, amount in wanted.items()
    }
    return {name: amount for name, amount in lacking.items() if amount > 0 and wanted[name] > 0}


def _capacity(
    pod: Pod, infos: list[NodeInfo], nominator: Nominator, fits: bool
) -> Iterator[Remedy]:
    """The nodes that lack the least of what the pod asks for."""
    wanted = {**pod.requests, "pods": 1}
    offered = [info.node.allocatable if info.node else {} for info in infos]

    def nominated(info: NodeInfo) -> list[Pod]:
        others = nominator.pods_on(info.name)
        return [one for one in others if one.uid != pod.uid and one.priority >= pod.priority]

    def share(lacking: dict[str, int]) -> float:
        return max(amount / max(1, wanted[name]) for name, amount in lacking.items())

    near = {info.name: info for info in _nearest(wanted, infos, offered)}
    if kept := set(nominator.nodes()):
        near |= {info.name: info for info in infos if info.name in kept}
    short = [
        (lacking, info)
        for info in near.values()
        if (lacking := shortfall(pod, info, nominated(info)))
    ]
    short.sort(key=lambda pair: (len(pair[0]), share(pair[0]), pair[1].name))
    for lacking, info in short[:_MOST]:
        amounts = " and ".join(
            amount_text(name, amount, is_least=True) for name, amount in lacking.items()
        )
        yield Remedy(_FIT, f"{info.name} lacks {amounts}", int(fits))


def _near(pod: Pod, infos: Sequence[NodeInfo]) -> list[NodeInfo]:
    """Those of *infos* that are at least half as large as the pod asks for, of each resource."""
    return [info for info in infos if _offers(pod, info, 2)]


def _offers(pod: Pod, info: NodeInfo, times: int) -> bool:
    """True if the node, *times* as large and empty, would have what the pod requests."""
    there = info.node.allocatable if info.node is not None else {}
    return all(times * there.get(name, 0) >= amount for name, amount in pod.requests.items())


def _too_large(pod: Pod, snapshot: Snapshot) -> Iterator[Remedy]:
    """The requests that no empty node could serve: a mistake in the pod, or a shape is missing."""
    for name, amount in pod.requests.items():
        most, largest = 0, ""
        for info in snapshot.infos:
            there = info.node.allocatable.get(name, 0) if info is not None and info.node else 0
            if info is not None and there > most:
                most, largest = there, info.name
        if amount <= most:
            continue
        text = f"it asks for {amount_text(name, amount)}, "
        if largest:
            text += f"and the largest of these nodes, {largest}, has {amount_text(name, most)}"
        else:
            text += "which no node has"
        yield Remedy(_FIT, text, 0)


def shape_text(pod: Pod) -> str:
    """What a node must offer for *pod* to fit on it: `4 cpu and 8 nvidia.com/gpu`."""
    wanted = [
        amount_text(name, amount, is_least=True) for name, amount in pod.requests.items() if amount
    ]
    return " and ".join(wanted)


def is_offered(pod: Pod, snapshot: Snapshot) -> bool:
    """True if some node, were it empty, would have what *pod* requests."""
    return any(
        info is not None and info.node is not None and _offers(pod, info, 1)
        for info in snapshot.infos
    )


def _nearest(
    wanted: Mapping[str, int], infos: list[NodeInfo], offered: Sequence[Mapping[str, int]]
) -> list[NodeInfo]:
    """The nodes among which those are that lack the least, nominated pods left out of account.

    *offered* is what each offers. All of them if there are few. An estimate in floats: those that
    are as near are among them.
    """
    if len(infos) <= _FEW:
        return infos
    shares = []
    requested = [info.requested for info in infos]
    for name, amount in wanted.items():
        if name == "pods":
            taken = [len(info.pods) for info in infos]
        else:
            taken = [of_node.get(name, 0) for of_node in requested]
        there = [of_node.get(name, 0) for of_node in offered]
        lacking = amount + np.array(taken, np.float64) - np.array(there, np.float64)
        shares.append(np.maximum(lacking, 0.0) / max(1, amount) if amount else lacking * 0.0)
    of_all = np.array(shares)
    # Those that lack nothing are rejected for something else: nothing is said of them.
    rank = np.count_nonzero(of_all > 0, axis=0) + of_all.max(axis=0) / (1.0 + of_all.max())
    rank[rank == 0.0] = np.inf
    bound = np.partition(rank, _MOST)[_MOST]
    return [infos[at] for at in np.flatnonzero(rank <= bound).tolist()[:_FEW]]


def _taints(pod: Pod, infos: list[NodeInfo], fits: bool) -> Iterator[Remedy]:
    """The sets of taints to tolerate, the one that opens most nodes first."""
    sets: Counter[tuple[str, ...]] = Counter()
    for info, nodes in _alike(infos, lambda info: tuple(map(taint_text, _taints_of(info)))):
        if untolerated := _untolerated(pod, info):
            sets[untolerated] += nodes
    # A pod that tolerates a set of taints tolerates its subsets.
    opened = {
        taints: sum(number for within, number in sets.items() if {*within} <= {*taints})
        for taints, _ in sets.most_common(_MOST_SETS)
    }
    for taints in sorted(opened, key=lambda one: (-opened[one], len(one), one))[:_MOST]:
        text = "tolerate " + " and ".join(f"`{taint}`" for taint in taints)
        yield Remedy("TaintToleration", text, opened[taints] if fits else 0)


def _taints_of(info: NodeInfo) -> Sequence[Taint]:
    return info.node.taints if info.node is not None else ()


def _alike(
    infos: list[NodeInfo], key_of: Callable[[NodeInfo], Hashable]
) -> list[tuple[NodeInfo, int]]:
    """One of the nodes for each key, and how many have it."""
    found: dict[Hashable, tuple[NodeInfo, int]] = {}
    for info in infos:
        key = key_of(info)
        one, nodes = found.get(key, (info, 0))
        found[key] = one, nodes + 1
    return list(found.values())


def _untolerated(pod: Pod, info: NodeInfo) -> tuple[str, ...]:
    """The taints that keep the pod off the node, sorted."""
    tolerations = pod.manifest.spec.tolerations
    return tuple(
        sorted(
            taint_text(taint)
            for taint in _taints_of(info)
            if taint.effect in _EFFECTS and not any(tolerates(t, taint) for t in tolerations)
        )
    )


def _labels(pod: Pod, infos: list[NodeInfo], fits: bool) -> Iterator[Remedy]:
    """The sets of requirements that nodes do not meet, the one that stops most nodes first."""
    sets: Counter[tuple[str, ...]] = Counter()
    helped: Counter[tuple[str, ...]] = Counter()
    for info, nodes in _alike(infos, _looked_at(pod)):
        unmet, can_be_met = _unmet(pod, info)
        if unmet:
            sets[unmet] += nodes
            helped[unmet] += nodes * can_be_met
    for unmet, _ in sorted(sets.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST]:
        text = "nodes do not meet " + " and ".join(f"`{one}`" for one in unmet)
        yield Remedy("NodeAffinity", text, helped[unmet] if fits else 0)


def _looked_at(pod: Pod) -> Callable[[NodeInfo], Hashable]:
    """Gives of a node what the pod's selector and affinity look at."""
    spec = pod.manifest.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else []
    keys = {*spec.node_selector, *(one.key for term in terms for one in term.match_expressions)}
    by_name = any(term.match_fields for term in terms)

    def looked_at(info: NodeInfo) -> Hashable:
        labels = info.node.labels if info.node is not None else {}
        return (info.name if by_name else "", *(labels.get(key) for key in keys))

    return looked_at


def _unmet(pod: Pod, info: NodeInfo) -> tuple[tuple[str, ...], bool]:
    """The fewest requirements of the pod that the node would have to meet in addition.

    And whether labels can make it meet them: none changes its name, or meets what contradicts
    itself.
    """
    if info.node is None:
        return (), False
    spec, labels = pod.manifest.spec, info.node.labels
    chosen = [
        NodeSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in spec.node_selector.items()
    ]
    unmet = [f"{k}={v}" for k, v in spec.node_selector.items() if labels.get(k) != v]
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is None:
        return tuple(unmet), True
    ways: list[tuple[list[str], bool]] = []
    for term in required.node_selector_terms:
        missing = _unmet_of(term, info)
        if missing or matches_node_selector_term(term, labels, info.name):
            is_other_name = any(one in term.match_fields for one in missing)
            can_be_met = not is_other_name and _can_be_met([*chosen, *term.match_expressions])
            ways.append(([_requirement_text(one) for one in missing], can_be_met))
    if not ways:
        return (*unmet, "any term"), False
    texts, can_be_met = min(ways, key=lambda way: (not way[1], len(way[0])))
    return (*unmet, *texts), can_be_met


def _unmet_of(term: NodeSelectorTerm, info: NodeInfo) -> list[NodeSelectorRequirement]:
    """The requirements of *term* that the node does not meet by itself."""
    assert info.node is not None
    labels, name = info.node.labels, info.name
    alone = [NodeSelectorTerm(match_expressions=(one,)) for one in term.match_expressions]
    alone += [NodeSelectorTerm(match_fields=(one,)) for one in term.match_fields]
    return [
        one
        for single in alone
        if not matches_node_selector_term(single, labels, name)
        for one in (*single.match_expressions, *single.match_fields)
    ]


def _can_be_met(requirements: Sequence[NodeSelectorRequirement]) -> bool:
    """Whether some labels meet all of *requirements*. Each key stands by itself."""
    by_key: dict[str, list[NodeSelectorRequirement]] = {}
    for one in requirements:
        by_key.setdefault(one.key, []).append(one)
    return all(
        any(
            matches_node_selector_term(NodeSelectorTerm(tuple(of_key)), labels, "")
            for labels in _tries(key, of_key)
        )
        for key, of_key in by_key.items()
    )


def _tries(key: str, requirements: list[NodeSelectorRequirement]) -> Iterator[Mapping[str, str]]:
    """No label *key*, and one with each value that can matter to *requirements*."""
    yield {}
    wanted = [one.values for one in requirements if one.operator == "In"]
    if wanted:
        yield from ({key: value} for value in min(wanted, key=len))
        return
    named = [value for one in requirements for value in one.values]
    yield {key: "any" + "".join(named)}
    bounds: dict[str, list[int]] = {"Gt": [], "Lt": []}
    for one in requirements:
        if one.operator in bounds:
            with contextlib.suppress(ValueError):
                bounds[one.operator] += map(int, one.values)
    # Of an order, the neighbours of the strictest bounds; one more of them than can be forbidden.
    for step in range(1, len(named) + 2):
        yield from ({key: str(bound + step)} for bound in sorted(bounds["Gt"])[-1:])
        yield from ({key: str(bound - step)} for bound in sorted(bounds["Lt"])[:1])


def _requirement_text(requirement: NodeSelectorRequirement) -> str:
    values = ", ".join(requirement.values)
    text = f"{requirement.key} {requirement.operator}"
    return f"{text} ({values})" if values else text


def taint_text(taint: Taint) -> str:
    """`key=value:NoSchedule`, as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST])
    return f"{shown} and {len(names) - _MOST} more" if len(names) > _MOST else shown
