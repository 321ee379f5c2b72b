"""Faults of the queue: pods that are lost in it, or tried too late or too often."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault

QUEUEING: Final = (
    PlantedFault(
        "nomination is not taken over",
        "engine/core/queueing/scheduling_queue.py",
        "        self.nominator.nominate(pod)\n        tried",
        "        tried",
        "After a restart, capacity that preemption freed is given to others.",
    ),
    PlantedFault(
        "queue keeps the old version of a pod",
        "engine/core/queueing/scheduling_queue.py",
        "        queued.pod = new\n",
        "",
        "A pod is tried as it was created, whatever has changed about it.",
    ),
    PlantedFault(
        "nomination is never cleared",
        "engine/core/queueing/scheduling_queue.py",
        "        self.nominator.remove(pod.uid, placed_on=pod.node_name)\n",
        "",
        "Capacity is kept for pods that are bound or deleted.",
    ),
    PlantedFault(
        "deleted pod stays in the queue",
        "engine/core/queueing/scheduling_queue.py",
        "            self._places.dismiss(queued)\n",
        "            pass\n",
        "Pods that are bound or deleted are tried again.",
    ),
    PlantedFault(
        "backoff begins when the pod was created",
        "engine/core/queueing/scheduling_queue.py",
        "        queued.timestamp = self._clock.monotonic()\n",
        "",
        "A pod whose attempts fail is tried again at once, over and over.",
    ),
    PlantedFault(
        "events move no pod",
        "engine/core/queueing/scheduling_queue.py",
        "moved += self._places.move(queued, Trigger.EVENT, cause) not in SET_ASIDE",
        "moved += 1",
        "A rejected pod is tried again after minutes, whatever happens.",
    ),
    PlantedFault(
        "event moves one of many alike",
        "engine/core/queueing/scheduling_queue.py",
        "helped += [(queued, is_gated, hint) for queued in pods]",
        "helped += [(queued, is_gated, hint) for queued in pods[:1]]",
        "Of many pods of a workload, one is tried after a node was added.",
    ),
    PlantedFault(
        "pod is lost at the end of its backoff",
        "engine/core/queueing/scheduling_queue.py",
        "            self._places.move(queued, Trigger.BACKOFF_ENDED)\n",
        "            pass\n",
        "A pod whose attempt failed is never tried again.",
    ),
    PlantedFault(
        "gates are not checked again",
        "engine/core/queueing/scheduling_queue.py",
        "        return self._places.move(queued, trigger) is not came_from\n",
        "        return False\n",
        "A pod waits for minutes after the victims of its preemption are gone.",
    ),
    PlantedFault(
        "dismissed pod stays known",
        "engine/core/queueing/places.py",
        "        del self._known[queued.uid]\n",
        "",
        "Every pod that there ever was takes memory.",
    ),
    PlantedFault(
        "failed pods stay in backoff",
        "engine/core/queueing/backoff_queue.py",
        "        expired = []\n        for heap in (self._rejected, self._failed):\n",
        "        expired = []\n        for heap in (self._rejected,):\n",
        "A pod whose attempt met an error is never tried again.",
    ),
    PlantedFault(
        "nominated to two nodes",
        "engine/core/queueing/nominator.py",
        "        self.remove(pod.uid, placed_on=pod.node_name or node)\n",
        "",
        "Capacity is kept on each node that a pod was ever nominated to.",
    ),
    PlantedFault(
        "long wait ends too early",
        "engine/core/queueing/unschedulable_pods.py",
        "            if queued.moved_at > moment:\n",
        "            if queued.moved_at < moment:\n",
        "Pods that fit nowhere are tried every second, and those that wait long are not.",
    ),
    PlantedFault(
        "cordoning wakes pods instead of uncordoning",
        "engine/core/queueing/events.py",
        "    if old.unschedulable and not new.unschedulable:\n",
        "    if new.unschedulable and not old.unschedulable:\n",
        "A pod stays pending for minutes after a node was uncordoned.",
    ),
    PlantedFault(
        "event helps only pods in backoff",
        "engine/core/queueing/transitions.py",
        "((p.UNSCHEDULABLE, p.GATED),     (t.EVENT, t.TIMED_OUT),               _RETRY),",
        "((p.UNSCHEDULABLE, p.GATED),     (t.EVENT, t.TIMED_OUT),               _NOT_NOW),",
        "A pod that was rejected long ago is never tried again.",
    ),
)
