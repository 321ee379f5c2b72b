"""Hints for what keeps pods waiting: gates, gangs, preemption under way, the throttle.

Source: `EventsToRegister` of kube-scheduler's plugins of these names; groups and the throttle are
our own.
"""

from typing import Final

from engine.core.framework.reasons import CLUSTER_READS
from engine.core.model.event_kinds import TARGET_POD
from engine.core.queueing.hints.interest import Table, on
from engine.core.queueing.throttle import THROTTLE

HINTS: Final[Table] = {
    "SchedulingGates": (on(TARGET_POD, "UpdatePodSchedulingGatesEliminated"),),
    # The pods of a group are rechecked when it changes: once for a hundred pods that arrive
    # together, where events would retry each of them for each of them.
    "GangScheduling": (),
    # Rejects the pods of a group that cannot be placed whole. One of them was rejected by a
    # filter; an event that helps that one has the others tried again with it.
    "PodGroup": (),
    # Preemption only helps by deleting a victim, and then the hint of the rejecting plugin is used.
    # The preemptor rechecks a pod when its own preemption is done.
    "DefaultPreemption": (),
    # Rejects pods that depend on what cannot be read; an event for all releases them.
    CLUSTER_READS: (),
    # Only time releases the pods that are throttled.
    THROTTLE: (),
}
