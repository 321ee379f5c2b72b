"""A small cluster on which two sets of policies differ, made from a large one.

Owns what is taken away and what stays: the difference stays the same one (its signature), and every
object keeps its name.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from engine.comparing.population import PolicySet
from engine.core.model.pod import Pod
from engine.files.cluster_file import Cluster
from engine.files.world import ManifestError
from workbench.comparing.policy_differences import (
    Pair,
    PolicyDifference,
    compare_pod,
    compare_queue,
)
from workbench.comparing.population import manifest_of, snapshots_of
from workbench.comparing.shrinking import Path, Plain, shorter, shrink

_LISTS: Final = ("objects", "pods", "nodes")
# What identifies an object, or says what it is.
_IDENTITY: Final = frozenset({"kind", "name", "namespace"})


class Counterexample(msgspec.Struct, frozen=True):
    """A cluster on which two sets of policies differ, and from which nothing can be taken away.

    Attributes:
        kind: What is different.
        first, second: What each set says.
        first_policy, second_policy: Whose verdict that is; empty if no policy's alone.
        first_source, second_source: `file:line` of it.
        of: The pod of the workload that it was made from.
        pod, other: The pod, and for the order of the queue the one that it is compared with.
        nodes, pods, objects: The cluster; *pods* are on its nodes.
    """

    kind: str
    first: str
    second: str
    first_policy: str
    second_policy: str
    first_source: str
    second_source: str
    of: str
    pod: dict[str, Any]
    other: dict[str, Any] | None
    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    objects: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Found:
    """A difference with where it was found; *other* is the second pod of an order of two."""

    difference: PolicyDifference
    pod: Pod
    cluster: Cluster
    other: Pod | None = None


def counterexample(pair: Pair, found: Found) -> Counterexample:
    """What is left of *found* without all that the difference does not need."""
    # What differs may be worded after what went: it is asked about at the end.
    seen: dict[str, PolicyDifference] = {}

    def holds(case: Plain) -> bool:
        difference = _difference(pair, found, case)
        if difference is not None:
            seen["last"] = difference
        return difference is not None

    case = reduced(_whole(found), found.difference.nodes, holds)
    difference = seen.get("last", found.difference)
    first, second = difference.before, difference.after
    return Counterexample(
        kind=difference.kind,
        first=first.text,
        second=second.text,
        first_policy=first.policy,
        second_policy=second.policy,
        first_source=first.source,
        second_source=second.source,
        of=found.pod.key,
        pod=case["pod"],
        other=case.get("other"),
        nodes=case["nodes"],
        pods=case["pods"],
        objects=case["objects"],
    )


def _whole(found: Found) -> Plain:
    cluster = found.cluster
    case: Plain = {"pod": manifest_of(found.pod)}
    if found.other is not None:
        case["other"] = manifest_of(found.other)
    case["nodes"] = [] if found.other is not None else cluster.nodes
    return {**case, "pods": [*cluster.placed_pods()], "objects": cluster.objects}


def reduced(case: Plain, nodes: tuple[str, ...], holds: Callable[[Plain], bool]) -> Plain:
    """The smallest case that *holds* by taking away objects, and then fields of what is left.

    The members `nodes`, `pods` and `objects` of *case* are lists of manifests, `pod` is one. The
    difference is about *nodes*. The last case that *holds* held for is the result. Objects and
    fields go in one order, so the result is always the same.
    """
    # 1. Objects: mostly the nodes alone will do, or the nodes with their pods.
    own = {
        "nodes": [one for one in case["nodes"] if _name(one) in nodes],
        "pods": [one for one in case["pods"] if (one.get("spec") or {}).get("nodeName") in nodes],
    }
    alone = {**case, **own, "pods": [], "objects": []}
    candidates = (alone, {**alone, **own}, {**case, **own}, case)
    found = next(filter(holds, candidates), None)
    if found is None:
        return alone  # it takes more than the objects: what each pod has seen of the others
    case = found
    for member in _LISTS:
        case = {**case, member: _needed(case, member, holds)}
    # 2. Fields.
    case = shrink(case, lambda cases: [holds(each) for each in cases], is_needed=is_needed, batch=1)
    holds(case)
    return case


def _needed(case: Plain, member: str, holds: Callable[[Plain], bool]) -> list[Any]:
    return shorter(case[member], lambda items: holds({**case, member: items}))


def is_needed(path: Path) -> bool:
    """True for what every case has, and for the names of its objects."""
    of_list = path[0] in _LISTS
    inside = path[2:] if of_list else path[1:]
    if not inside:
        return not of_list or len(path) == 1
    match inside:
        case ("kind",) | ("metadata",):
            return True
        case ("metadata", key):
            return key in _IDENTITY
        case _:
            return False


def _name(manifest: Plain) -> str:
    return str((manifest.get("metadata") or {}).get("name") or "")


def snapshot_of_case(
    case: Plain, cluster: Cluster, sets: tuple[PolicySet, ...]
) -> tuple[list[Any], list[Pod]]:
    """*case* as each of *sets* sees it, and its pods. Raises `ManifestError`.

    Priority classes and facts are those of *cluster*.
    """
    small = replace(cluster, nodes=case["nodes"], pods=case["pods"], objects=case["objects"])
    pods = [small.pod_of(case[member]) for member in ("pod", "other") if member in case]
    return snapshots_of(small, sets, pods), pods


def _difference(pair: Pair, found: Found, case: Plain) -> PolicyDifference | None:
    """The difference of *found* if it is there in *case* too."""
    wanted = found.difference.signature
    try:
        snapshots, pods = snapshot_of_case(case, found.cluster, pair)
    except ManifestError:
        return None  # no object of the API without that field
    if found.other is not None:
        swapped = compare_queue(pair, pods, snapshots)
        return None if swapped is None or swapped[0].signature != wanted else swapped[0]
    compared = compare_pod(pair, pods[0], snapshots)
    return next((one for one in compared.differences if one.signature == wanted), None)
