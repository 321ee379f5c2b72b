"""Hints of the policies that keep pods waiting: gates, gangs, preemption under way.

Source: `EventsToRegister` of kube-scheduler's plugins of these names.
"""

from typing import Any, Final

from engine.model.pod import Pod
from engine.queueing.events import ADD, ASSIGNED_POD, POD, UPDATE
from engine.queueing.hints.interest import OWN_POD, Around, Table, on


def group_name(pod: Pod) -> str:
    """The name of the pod's PodGroup in its namespace, or empty."""
    group = pod.manifest.spec.scheduling_group
    return "" if group is None else group.pod_group_name or ""


def _same_group(around: Around, pod: Pod, old: Pod | None, new: Pod) -> bool:
    name = group_name(pod)
    return bool(name) and name == group_name(new) and pod.namespace == new.namespace


def _own_group(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    meta = new.metadata
    return bool(meta.namespace == pod.namespace and meta.name == group_name(pod))


HINTS: Final[Table] = {
    "SchedulingGates": (on(OWN_POD, "UpdatePodSchedulingGatesEliminated"),),
    "GangScheduling": (
        on(POD, ADD, check=_same_group),
        on(ASSIGNED_POD, ADD, check=_same_group),
        on("PodGroup", ADD, UPDATE, check=_own_group),
    ),
    # The rejector of pods whose group could not be whole. One of the group was rejected by a
    # filter; what wakes that one lets the others be tried again with it.
    "PodGroup": (),
    # Preemption only ever helps because a victim goes, and then the plugin that rejected is asked.
    # A pod that waits for its own preemption is let in by whoever carries that out.
    "DefaultPreemption": (),
}
