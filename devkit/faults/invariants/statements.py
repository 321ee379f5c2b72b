"""Rules about what the scheduler says: conditions, nominations and events, at rest.

Owns the comparison of these with the pods that they are about.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from devkit.faults.invariants.facts import (
    Binding,
    Manifest,
    Objects,
    Violation,
    condition_of,
    is_over,
    key_of,
    node_of,
    nominated_node,
)

GATED: Final = "SchedulingGated"
#: What a pod that waits may say; a pod with gates says `GATED`.
REASONS: Final = frozenset({"Unschedulable", "SchedulerError", "WaitingOnPermit", GATED})
_ASSIGNED: Final = "Successfully assigned "
_AVAILABLE: Final = re.compile(r"0/(\d+) nodes are available: ")


def untrue_conditions(objects: Objects) -> Iterator[Violation]:
    """Conditions and nominations that are wrong or missing once nothing moves."""
    names = {key_of(node) for node in objects.nodes}
    for pod in objects.pods:
        if node_of(pod) and not is_over(pod):
            scheduled = condition_of(pod, "PodScheduled")
            if scheduled is not None and scheduled.get("status") != "True":
                text = f"bound to `{node_of(pod)}`, and PodScheduled is {scheduled.get('status')}"
                yield _untrue(pod, text)
    for pod in objects.pending():
        scheduled = condition_of(pod, "PodScheduled")
        wanted = {GATED} if pod["spec"].get("schedulingGates") else REASONS
        if scheduled is None:
            yield _untrue(pod, "pending, and has no condition PodScheduled")
        elif scheduled.get("status") != "False":
            yield _untrue(pod, f"pending, and PodScheduled is {scheduled.get('status')}")
        elif scheduled.get("reason") not in wanted or not scheduled.get("message"):
            reason, message = scheduled.get("reason"), scheduled.get("message")
            yield _untrue(pod, f"pending for the reason `{reason}`, with message `{message}`")
        if nominated_node(pod) and nominated_node(pod) not in names:
            yield _untrue(pod, f"nominated to `{nominated_node(pod)}`, which does not exist")


def untrue_events(objects: Objects) -> Iterator[Violation]:
    """Events `Scheduled` of pods that are pending, or on another node."""
    pods = {pod["metadata"]["uid"]: pod for pod in objects.pods}
    for event in objects.events:
        pod = pods.get((event.get("regarding") or event.get("involvedObject") or {}).get("uid", ""))
        text = event.get("note") or event.get("message") or ""
        if pod is None or event.get("reason") != "Scheduled" or not text.startswith(_ASSIGNED):
            continue
        said = text.removeprefix(_ASSIGNED).rpartition(" to ")[2]
        if said != node_of(pod):
            where = f"on `{node_of(pod)}`" if node_of(pod) else "pending"
            yield Violation("untrue_events", key_of(pod), f"{where}, and its event: {text}")


def outdated_conditions(objects: Objects) -> Iterator[Violation]:
    """Conditions that speak of another number of nodes than there are.

    For pods that were tried since nodes came or went. The message of a pod that had a node
    is about that node alone.
    """
    count = len(objects.nodes)
    for pod in objects.pending():
        message = (condition_of(pod, "PodScheduled") or {}).get("message") or ""
        found = _AVAILABLE.match(message)
        if found is not None and int(found.group(1)) not in (1, count):
            yield _untrue(pod, f"there are {count} nodes, and its condition says: {message}")


def unreported_bindings(bindings: Iterable[Binding], objects: Objects) -> Iterator[Violation]:
    """Bindings without an event, of pods that are still there; for times without faults."""
    reported = {
        (event.get("regarding") or event.get("involvedObject") or {}).get("uid")
        for event in objects.events
        if event.get("reason") == "Scheduled"
    }
    there = {pod["metadata"]["uid"] for pod in objects.pods}
    for binding in bindings:
        if binding.pod_uid in there - reported:
            text = f"bound to `{binding.node}` at {binding.at:.3f}, and no event says so"
            yield Violation("unreported_bindings", binding.pod, text)


def _untrue(pod: Manifest, text: str) -> Violation:
    return Violation("untrue_conditions", key_of(pod), text)
