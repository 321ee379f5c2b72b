"""Hints of what keeps pods waiting: gates, gangs, preemption under way, the throttle.

Source: `EventsToRegister` of kube-scheduler's plugins of these names; groups and the throttle are
our own.
"""

from typing import Final

from engine.queueing.hints.interest import OWN_POD, Table, on
from engine.queueing.throttle import THROTTLE

HINTS: Final[Table] = {
    "SchedulingGates": (on(OWN_POD, "UpdatePodSchedulingGatesEliminated"),),
    # Whoever counts groups has their pods reconsidered when one changes: once for a hundred pods
    # that come together, where events would ask each of them again for each.
    "GangScheduling": (),
    # The rejector of pods whose group could not be whole. One of the group was rejected by a
    # filter; what wakes that one lets the others be tried again with it.
    "PodGroup": (),
    # Preemption only ever helps because a victim goes, and then the plugin that rejected is asked.
    # A pod that waits for its own preemption is let in by whoever carries that out.
    "DefaultPreemption": (),
    # Only time releases the pods that are throttled.
    THROTTLE: (),
}
