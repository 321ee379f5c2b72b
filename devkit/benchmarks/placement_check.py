"""Checks a finished placement from what the API server says, and from nothing else.

Shares no code with the scheduler, so that a mistake there is not repeated here: quantities are
parsed by the Kubernetes client library, sums are exact.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

Manifest = Mapping[str, Any]

_PODS = "pods"


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome for the pods.

    Attributes:
        bound: Pods with a node.
        pending: Pods without one that were given a reason; by `namespace/name`.
        violations: Broken rules; empty for a good placement.
        used: Share of what all nodes offer that bound pods ask for, by resource.
    """

    bound: int
    pending: Mapping[str, str]
    violations: Sequence[str]
    used: Mapping[str, float] = field(default_factory=dict)


def check_placement(
    nodes: Iterable[Manifest], pods: Iterable[Manifest], want: Iterable[str]
) -> Placement:
    """Judge *pods* on *nodes*.

    Args:
        nodes: As listed.
        pods: As listed; their containers' requests count, their other fields do not.
        want: `namespace/name` of every pod that was created.

    Returns:
        With a violation for each node that holds more than its allocatable in any resource or in
        number of pods, each pod on a node that does not exist, each pod that is missing, listed
        twice, not asked for, or neither bound nor pending with a reason.
    """
    pods = list(pods)
    used, allocatable = _sums(nodes, pods)
    violations: list[str] = []
    bound = 0
    pending: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for pod in pods:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        seen[key] += 1
        node = pod["spec"].get("nodeName")
        if node:
            bound += 1
            if node not in allocatable:
                violations.append(f"pod `{key}` is bound to node `{node}`, which does not exist")
        elif reason := pending_reason(pod):
            pending[key] = reason
        else:
            violations.append(f"pod `{key}` is neither bound nor pending with a reason")
    violations += _over_capacity(used, allocatable)
    violations += _accounts(seen, want)
    return Placement(bound, pending, violations, _shares(used, allocatable))


def over_capacity(
    nodes: Iterable[Manifest], pods: Iterable[Manifest], ignoring: Collection[str] = ()
) -> list[str]:
    """What the bound ones of *pods* ask for beyond what *nodes* offer, but for some resources."""
    used, allocatable = _sums(nodes, pods)
    for amounts in used.values():
        for resource in ignoring:
            amounts.pop(resource, None)
    return _over_capacity(used, allocatable)


def _sums(
    nodes: Iterable[Manifest], pods: Iterable[Manifest]
) -> tuple[dict[str, dict[str, Decimal]], dict[str, dict[str, Decimal]]]:
    """By node, what the pods on it ask for, and what it offers."""
    allocatable = {
        node["metadata"]["name"]: _amounts(node["status"].get("allocatable") or {})
        for node in nodes
    }
    used: dict[str, dict[str, Decimal]] = {name: defaultdict(Decimal) for name in allocatable}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        for resource, amount in _requests(pod).items() if node in used else ():
            used[node][resource] += amount
    return used, allocatable


def pending_reason(pod: Manifest) -> str:
    """The message of the condition that says why the pod has no node; empty without one."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


def _over_capacity(
    used: Mapping[str, Mapping[str, Decimal]], allocatable: Mapping[str, Mapping[str, Decimal]]
) -> list[str]:
    return [
        f"node `{node}` holds {amount.normalize():f} of {resource}, "
        f"want at most {allocatable[node].get(resource, Decimal()).normalize():f}"
        for node, amounts in used.items()
        for resource, amount in amounts.items()
        if amount > allocatable[node].get(resource, Decimal())
    ]


def _accounts(seen: Mapping[str, int], want: Iterable[str]) -> list[str]:
    wanted = set(want)
    return [
        *(f"pod `{key}` is gone" for key in sorted(wanted - seen.keys())),
        *(f"pod `{key}` was never created" for key in sorted(seen.keys() - wanted)),
        *(f"pod `{key}` is listed {n} times" for key, n in sorted(seen.items()) if n > 1),
    ]


def _requests(pod: Manifest) -> dict[str, Decimal]:
    total: dict[str, Decimal] = defaultdict(Decimal)
    total[_PODS] = Decimal(1)
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests") or {}
        for resource, amount in _amounts(requests).items():
            total[resource] += amount
    return total


def _amounts(quantities: Mapping[str, str]) -> dict[str, Decimal]:
    return {
        resource: parse_quantity(amount)  # type: ignore[no-untyped-call]  # the client has no types
        for resource, amount in quantities.items()
    }


def _shares(
    used: Mapping[str, Mapping[str, Decimal]], allocatable: Mapping[str, Mapping[str, Decimal]]
) -> dict[str, float]:
    wanted: dict[str, Decimal] = defaultdict(Decimal)
    offered: dict[str, Decimal] = defaultdict(Decimal)
    for node, amounts in allocatable.items():
        for resource, amount in amounts.items():
            offered[resource] += amount
            wanted[resource] += used[node].get(resource, Decimal())
    return {
        resource: round(float(amount / offered[resource]), 4)
        for resource, amount in sorted(wanted.items())
        if amount
    }
