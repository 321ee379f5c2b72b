"""Faults of the kernel: what an event means, and what holds capacity for whom."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault

KERNEL: Final = (
    PlantedFault(
        "release keeps what plugins reserved",
        "engine/core/kernel/attempts.py",
        "        self.unreserve(placement.reserves, placement.pod, placement.node)\n",
        "",
        "A device or volume of a binding that failed is held for that pod, and given to no other.",
    ),
    PlantedFault(
        "bound pod stays known as pending",
        "engine/core/kernel/cluster.py",
        "            del self._pending[pod.key]\n",
        "            pass\n",
        "Every pod that was ever bound takes memory, and is tried with each edit of the policies.",
    ),
    PlantedFault(
        "node gone under pods in permit",
        "engine/core/kernel/cluster.py",
        "            self._permits.node_gone(old.name)\n",
        "",
        "Pods of a job are bound to a node that was deleted while they waited for each other.",
    ),
    PlantedFault(
        "new node wakes no pod",
        "engine/core/kernel/cluster.py",
        "            self._queue.move(NODE_ADD, None, new)\n",
        "",
        "A pod stays pending for minutes after a node was added for it.",
    ),
    PlantedFault(
        "changed node wakes no pod",
        "engine/core/kernel/cluster.py",
        "        for event in node_update_events(old, new):\n"
        "            self._queue.move(event, old, new)\n",
        "",
        "A pod stays pending for minutes after a node was uncordoned or has grown.",
    ),
    PlantedFault(
        "deleted object stays in the cache",
        "engine/core/kernel/cluster.py",
        "            self._cache.objects.delete(plural, object_key(old))\n",
        "",
        "Claims, budgets and slices that were deleted count for decisions.",
    ),
    PlantedFault(
        "deleted pod stays in permit",
        "engine/core/kernel/cluster.py",
        "            self._gone(old)\n"
        "            self._permits.gone(old.uid)\n"
        "            return\n",
        "            self._gone(old)\n            return\n",
        "A job waits for a pod that was deleted, and the others hold their nodes meanwhile.",
    ),
    PlantedFault(
        "pod that ended wakes no pod",
        "engine/core/kernel/cluster.py",
        "        self._queue.move(ASSIGNED_POD_DELETE, pod, None)\n",
        "",
        "A pod stays pending for minutes although another one made place for it.",
    ),
    PlantedFault(
        "pod that ended counts on its node",
        "engine/core/kernel/cluster.py",
        "            return\n        self._uncount(pod)\n",
        "            return\n",
        "The capacity of pods that were deleted is lost until a restart.",
    ),
    PlantedFault(
        "bound pod stays in the queue",
        "engine/core/kernel/cluster.py",
        "    def _placed(self, pod: Pod) -> None:\n        self._unpend(pod)\n",
        "    def _placed(self, pod: Pod) -> None:\n",
        "Pods that another replica has bound are tried again by the next leader.",
    ),
    PlantedFault(
        "failed binding keeps its capacity",
        "engine/core/kernel/kernel.py",
        "        self.attempts.release(placement)\n        # The capacity",
        "        # The capacity",
        "A pod whose binding failed counts on its node for ever, and is never tried again.",
    ),
    PlantedFault(
        "preemption never ends",
        "engine/core/kernel/kernel.py",
        "released = self.preemptions.end(uid)",
        "released: list[str] = []",
        "A pod for which others were evicted is never tried again.",
    ),
    PlantedFault(
        "backoff is never over",
        "engine/core/kernel/kernel.py",
        "        self.queue.flush()\n",
        "",
        "A pod whose attempt failed once stays pending.",
    ),
    PlantedFault(
        "permit never times out",
        "engine/core/kernel/kernel.py",
        "        self.permits.pass_time()\n",
        "",
        "Pods of a job that does not fit hold their nodes for ever.",
    ),
    PlantedFault(
        "preemption that ended still counts",
        "engine/core/kernel/preemptions.py",
        "        self._by_node[node] -= 1\n",
        "",
        "A node where pods were evicted once takes no pod that is nominated to it any more.",
    ),
    PlantedFault(
        "waiting pod is not sent back",
        "engine/core/kernel/kernel.py",
        "        self.permits.preempt(event.uid)\n",
        "        pass\n",
        "A more important pod evicts one that waits in permit over and over, and stays pending.",
    ),
    PlantedFault(
        "refused permit keeps its node",
        "engine/core/kernel/permits.py",
        "        self._attempts.release(placement)\n"
        "        self._attempts.fail_placement(placement, answer.rejection())\n",
        "        self._attempts.fail_placement(placement, answer.rejection())\n",
        "A pod that was refused after it had a node counts there, and is never tried again.",
    ),
    PlantedFault(
        "group of exact size is hopeless",
        "engine/core/kernel/group_attempts.py",
        "return self.scheduled + self.remaining < self.min_count",
        "return self.scheduled + self.remaining <= self.min_count",
        "A job whose pods are as many as it needs is never started.",
    ),
    PlantedFault(
        "failed group keeps its nodes",
        "engine/core/kernel/group_attempts.py",
        "                self._attempts.release(placement)\n"
        "                self._restore_nomination(attempt, placement.queued)\n",
        "                self._restore_nomination(attempt, placement.queued)\n",
        "The nodes of half a job stay taken, though none of its pods runs.",
    ),
    PlantedFault(
        "group keeps pods that are gone",
        "engine/core/kernel/pod_groups.py",
        "        for key in keys:\n            self._leave(uid, key)\n        self._unsaid",
        "        self._unsaid",
        "Jobs that have ended fill the memory, and count pods that are gone.",
    ),
)
