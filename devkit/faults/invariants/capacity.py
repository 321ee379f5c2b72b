"""Rules about the capacity of nodes: never more than there is, and never left unused.

Owns the check of one binding, and the search for a node by arithmetic alone, for pods that ask for
nothing else but volumes and devices of which it is plain where they are.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from devkit.faults.invariants.amounts import Amounts, allocatable_of, missing, requests_of, total
from devkit.faults.invariants.claims import is_reachable
from devkit.faults.invariants.facts import (
    Binding,
    Group,
    Manifest,
    Objects,
    Violation,
    key_of,
    nominated_node,
    priority_of,
)

_MORE: Final = (
    "affinity",
    "nodeSelector",
    "schedulingGates",
    "topologySpreadConstraints",
)
_CLAIMING: Final = frozenset({"persistentVolumeClaim", "ephemeral", "csi"})


def overcommitted(
    binding: Binding,
    before: Objects,
    *,
    known: Sequence[Manifest] = (),
    unseen: Container[str] = frozenset(),
) -> Iterator[Violation]:
    """A binding to a node that had not enough left for the pod.

    Only the resources that the pod requests are looked at, so a node that shrank later, or that
    is short of something else, is not blamed on the scheduler.

    Args:
        binding: Its pod is in *before*.
        before: The objects just before the server accepted it.
        known: Earlier versions of the node that the replica may have decided by: the largest
            counts.
        unseen: Uids of pods that others had placed and that the replica could not know of yet.
    """
    versions = [node for node in (*before.nodes, *known) if key_of(node) == binding.node]
    pod = _find(before.pods, binding.pod_uid)
    if pod is None:
        return
    if not versions:
        yield Violation("overcommitted", binding.pod, f"bound to `{binding.node}`, which is gone")
        return
    others = [
        requests_of(other)
        for other in before.pods_on(binding.node)
        if other["metadata"]["uid"] != binding.pod_uid and other["metadata"]["uid"] not in unseen
    ]
    offers = [allocatable_of(node) for node in versions]
    most = {
        name: max(offer[name] for offer in offers if name in offer) for name in set().union(*offers)
    }
    for lack in missing(requests_of(pod), total(others), most):
        text = f"bound by `{binding.by}` to `{binding.node}`, which had not enough: {lack}"
        yield Violation("overcommitted", binding.pod, text)


def late(objects: Objects) -> Iterator[Violation]:
    """Pods that are pending at rest although a node has enough left, or would after preemption.

    Says nothing of pods that ask for more than amounts, see `asks_for_amounts_alone`, and claims
    that are understood, see `is_reachable`; with claims, preemption is not thought of.
    """
    for pod in objects.pending():
        if _asks_for_more(pod) or pod["spec"].get("schedulingGroup"):
            continue
        for node in objects.nodes:
            if is_open(node) and (how := _fits(pod, node, objects)):
                text = f"pending, and `{key_of(node)}` {how}"
                yield Violation("late", key_of(pod), text)
                break


def late_groups(groups: Iterable[Group], objects: Objects) -> Iterator[Violation]:
    """Groups that are pending at rest although there is capacity for all that they need.

    Only of groups whose pods are all pending, ask for amounts alone, and are alike. Whatever is
    nominated to a node counts there; preemption is not thought of.
    """
    by_uid = {pod["metadata"]["uid"]: pod for pod in objects.pending()}
    for group in groups:
        pods = [by_uid[uid] for uid in group.pods if uid in by_uid]
        if len(pods) < max(len(group.pods), 1) or not all(map(_asks_for_amounts, pods)):
            continue
        wanted = requests_of(pods[0])
        if any(requests_of(pod) != wanted for pod in pods):
            continue
        count = sum(
            _copies(wanted, node, objects, group.pods) for node in objects.nodes if is_open(node)
        )
        if count >= group.min_count:
            text = f"pending, and there is capacity for {count} pods, it needs {group.min_count}"
            yield Violation("late_groups", group.name, text)


def asks_for_amounts_alone(pod: Manifest) -> bool:
    """True if only amounts, taints and readiness decide where a pod can run."""
    return _asks_for_amounts(pod) and not pod["spec"].get("schedulingGroup")


def _asks_for_amounts(pod: Manifest) -> bool:
    """The same, of a pod that may be in a group."""
    spec = pod["spec"]
    return (
        not _asks_for_more(pod)
        and not spec.get("resourceClaims")
        and not any(_CLAIMING & volume.keys() for volume in spec.get("volumes") or ())
    )


def _asks_for_more(pod: Manifest) -> bool:
    """True if more than amounts, claims and its group decides where a pod can run."""
    spec = pod["spec"]
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(spec.get(field) for field in _MORE) or any(
        "hostPort" in port for one in containers for port in one.get("ports") or ()
    )


def is_open(node: Manifest) -> bool:
    """True for a node that takes any pod: neither cordoned nor tainted."""
    spec = node.get("spec") or {}
    taints = spec.get("taints") or ()
    return not spec.get("unschedulable") and all(
        taint.get("effect") == "PreferNoSchedule" for taint in taints
    )


def left_after(
    pod: Manifest, node: Manifest, objects: Objects, evicted: Container[str] = ()
) -> list[str]:
    """What *node* lacks for *pod* without the *evicted* pods (keys); nothing if it fits.

    Pods that are nominated to the node and come before *pod* count as if they were there.
    """
    name = key_of(node)
    used: list[Amounts] = [
        requests_of(other) for other in objects.pods_on(name) if key_of(other) not in evicted
    ]
    used += [
        requests_of(other)
        for other in objects.pending()
        if nominated_node(other) == name
        and key_of(other) != key_of(pod)
        and priority_of(other) >= priority_of(pod)
    ]
    return missing(requests_of(pod), total(used), allocatable_of(node))


def victims_for(pod: Manifest, node: Manifest, objects: Objects) -> list[Manifest]:
    """The pods on *node* that *pod* may preempt."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return []
    mine = priority_of(pod)
    return [other for other in objects.pods_on(key_of(node)) if priority_of(other) < mine]


def _copies(wanted: Amounts, node: Manifest, objects: Objects, leave_out: Container[str]) -> int:
    """How many pods that request *wanted* fit on *node*; the uids in *leave_out* do not count."""
    name = key_of(node)
    used = [requests_of(pod) for pod in objects.pods_on(name)]
    used += [
        requests_of(pod)
        for pod in objects.pending()
        if nominated_node(pod) == name and pod["metadata"]["uid"] not in leave_out
    ]
    count = 0
    while not missing(wanted, total(used), allocatable_of(node)):
        used.append(wanted)
        count += 1
    return count


def _fits(pod: Manifest, node: Manifest, objects: Objects) -> str:
    if not is_reachable(pod, node, objects):
        return ""
    if not left_after(pod, node, objects):
        return "has enough left"
    if not asks_for_amounts_alone(pod):
        return ""
    victims = {key_of(other) for other in victims_for(pod, node, objects)}
    if victims and not left_after(pod, node, objects, victims):
        return "has enough left once pods of lower priority are preempted"
    return ""


def _find(pods: Sequence[Manifest], uid: str) -> Manifest | None:
    return next((pod for pod in pods if pod["metadata"]["uid"] == uid), None)
