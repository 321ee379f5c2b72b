"""Merges the answers of several extenders, by kube-scheduler's rules.

Owns interest, the merging of filters, priorities and victims, and the texts of what an extender
must not answer. Plain functions on plain data; asking is `engine.io.extender_calls`'.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.extender import EXTENDER, Extender, ExtenderError
from engine.core.framework.status import Code, Status
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.scheduling.extender_messages import FilterResult, MetaVictims
from engine.core.scheduling.extenders import (
    DROPPED,
    ExtenderFailure,
    FilterAnswer,
    NodeVictims,
    PrioritizeAnswer,
)

#: A node's best score is 100 here and 10 to an extender.
SCORE_FACTOR: Final = 10
# Of one extender; the totals of thousands of them are still numbers of 64 bits.
_MOST: Final = 1 << 50


def is_interested(extender: Extender, pod: Pod) -> bool:
    """True if *extender* is asked about *pod*: it manages nothing, or what the pod names."""
    if not extender.resources:
        return True
    spec = pod.manifest.spec
    return any(
        not extender.resources.isdisjoint(named)
        for container in (*spec.containers, *spec.init_containers)
        for named in (container.resources.requests, container.resources.limits)
    )


def failure(hook: str, error: ExtenderError) -> ExtenderFailure:
    """*error* as the failure of an attempt; *hook* is the extender's verb."""
    return ExtenderFailure(EXTENDER, hook, "", 0, 0, str(error), "extender")


class FilterMerge:
    """The nodes that are left while one extender after the other filters them."""

    def __init__(self, infos: Iterable[NodeInfo]) -> None:
        self.left: dict[str, NodeInfo] = {info.name: info for info in infos}
        self._asked = tuple(self.left)
        self._statuses: dict[str, Status] = {}

    def take(self, extender: Extender, result: FilterResult) -> None:
        """Continue with the nodes that *extender* let through.

        Raises `ExtenderError`, and changes nothing, if it reported one or named other nodes.
        """
        if result.error:
            raise ExtenderError(result.error)
        if extender.node_cache_capable and result.node_names is not None:
            names = result.node_names
        else:
            names = result.nodes or ()
        for name in names:
            if name not in self.left:
                raise ExtenderError(
                    f'extender "{extender.name}" claims a filtered node "{name}" '
                    "which is not found in the input node list"
                )
        for name, reason in result.unresolvable.items():
            self._statuses[name] = _rejection(Code.UNRESOLVABLE, reason)
        for name, reason in result.failed.items():
            if name not in result.unresolvable:
                self._statuses[name] = _rejection(Code.UNSCHEDULABLE, reason)
        is_empty = result.nodes is None and result.node_names is None
        if is_empty and not (result.unresolvable or result.failed):
            why = f'extender "{extender.name}" named neither nodes nor reasons'
            self._statuses |= dict.fromkeys(self.left, _rejection(Code.UNRESOLVABLE, why))
        kept = set(names)
        self.left = {name: info for name, info in self.left.items() if name in kept}

    def answer(self) -> FilterAnswer:
        """What all extenders asked so far say together."""
        rejected = {n: status for n, status in self._statuses.items() if n not in self.left}
        for name in self._asked:
            if name not in self.left:
                rejected.setdefault(name, DROPPED)
        return FilterAnswer(tuple(self.left), rejected)


def _rejection(code: Code, reason: str) -> Status:
    return Status(code, (reason,) if reason else (), EXTENDER)


def weighed(
    extender: Extender, scores: Iterable[tuple[str, int]], infos: Sequence[NodeInfo]
) -> tuple[int, ...]:
    """What *extender*'s scores, by host, add to the total of each of *infos*.

    It is bounded: in kube-scheduler, sums of far too large scores overflow.
    """
    by_host: dict[str, int] = {}
    for host, score in scores:
        by_host[host] = by_host.get(host, 0) + score * extender.weight * SCORE_FACTOR
    sums = (by_host.get(info.name, 0) for info in infos)
    return tuple(max(-_MOST, min(_MOST, one)) for one in sums)


def sum_of(by_extender: Mapping[str, tuple[int, ...]], node_count: int) -> PrioritizeAnswer:
    """The contributions of all extenders together."""
    columns = zip(*by_extender.values(), strict=True) if by_extender else ()
    totals = tuple(sum(column) for column in columns) or (0,) * node_count
    return PrioritizeAnswer(totals, by_extender)


def chosen_victims(
    extender: Extender,
    result: Mapping[str, MetaVictims],
    snapshot: Snapshot,
    shown: Mapping[str, NodeVictims],
) -> dict[str, NodeVictims]:
    """The candidates that *extender* left of those *shown* to it, its uids turned back into pods.

    Raises `ExtenderError` for nodes and pods that are not there, and for a node that has lost its
    victims; that last is just left out if the extender may be ignored.
    """
    chosen: dict[str, NodeVictims] = {}
    for node, victims in result.items():
        info = snapshot.info(node)
        if info is None:
            raise ExtenderError(f'nodeinfo not found for node name "{node}"')
        pods = tuple(_victim(extender, uid, info) for uid in victims.uids)
        chosen[node] = NodeVictims(pods, victims.pdb_violations)
    for node in [node for node, victims in chosen.items() if not victims.pods]:
        if node in shown and not shown[node].pods:
            continue  # the next extender may name some
        if not extender.ignorable:
            raise ExtenderError(f'expected at least one victim pod on node "{node}"')
        del chosen[node]
    return chosen


def _victim(extender: Extender, uid: str, info: NodeInfo) -> Pod:
    pod = info.pods.get(uid)
    if pod is None:
        raise ExtenderError(
            f"extender: {extender.name} claims to preempt pod (UID: &{{{uid}}}) on node: "
            f"{info.name}, but the pod is not found on that node"
        )
    return pod
