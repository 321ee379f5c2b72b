"""Faults of the cache: nodes, pods and objects that are not as the API server has them."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault

CACHING: Final = (
    PlantedFault(
        "assumed pod is never confirmed",
        "engine/core/caching/cache.py",
        "        self._assumed.discard(pod.uid)\n        if pod.manifest.status.phase",
        "        if pod.manifest.status.phase",
        "A pod that is bound counts as if it were still being bound.",
    ),
    PlantedFault(
        "removed pod still counts",
        "engine/core/caching/cache.py",
        "        self._assumed.discard(pod.uid)\n        self._drop(pod.uid)\n",
        "        self._assumed.discard(pod.uid)\n",
        "The capacity of pods that were deleted is lost until a restart.",
    ),
    PlantedFault(
        "forgotten pod still counts",
        "engine/core/caching/cache.py",
        "        name = self._pods[uid].node_name\n        self._drop(uid)\n",
        "        name = self._pods[uid].node_name\n",
        "A pod whose binding failed counts on its node for ever, and is never tried again.",
    ),
    PlantedFault(
        "confirmed pod can be forgotten",
        "engine/core/caching/cache.py",
        "        if uid not in self._assumed:\n            return False\n",
        "        if uid not in self._pods:\n            return False\n",
        "A node is filled beyond its capacity: a pod that runs there is not counted.",
    ),
    PlantedFault(
        "pod counts on two nodes",
        "engine/core/caching/cache.py",
        "if known is not None and (known.node_name, known.key) != (pod.node_name, pod.key):",
        "if known is not None and known.key != pod.key:",
        "A pod that was bound elsewhere than assumed takes capacity of both nodes.",
    ),
    PlantedFault(
        "deleted node stays in the snapshot",
        "engine/core/caching/cache.py",
        "            self._infos.pop(info.name, None)\n        else:\n",
        "            self._infos.pop(info.name, None)\n            return\n        else:\n",
        "Pods are bound to nodes that do not exist any more.",
    ),
    PlantedFault(
        "old version of a node is kept",
        "engine/core/caching/cache.py",
        "if info is None else info).with_node(node))",
        "if info is None else info).with_node(\n"
        "            node if info is None or info.node is None else info.node))",
        "Pods are bound to cordoned nodes, and to nodes that have shrunk.",
    ),
    PlantedFault(
        "old version of a pod is kept",
        "engine/core/caching/cache.py",
        "        self._put(info.with_pod(pod))\n",
        "        self._put(info.with_pod(pod if known is None else known))\n",
        "Policies see the labels that a pod had, and that it is not being deleted.",
    ),
    PlantedFault(
        "trial of a preemption stays visible",
        "engine/core/caching/cache.py",
        "            self._stale.update(dict.fromkeys(changed))\n",
        "",
        "Nodes look emptier than they are after a job has looked for pods to evict.",
    ),
    PlantedFault(
        "gone node leaves no trace in the log",
        "engine/core/caching/snapshot.py",
        "        self._changes.note(slot)\n",
        "        if info is not None:\n            self._changes.note(slot)\n",
        "What was known of a deleted node is taken for the next one in its slot.",
    ),
    PlantedFault(
        "two nodes share a slot",
        "engine/core/caching/snapshot.py",
        "slot = heapq.heappop(self._free_slots)",
        "slot = self._free_slots[0]",
        "Of two nodes that are added after a deletion, one is never used.",
    ),
    PlantedFault(
        "index keeps deleted objects",
        "engine/core/caching/objects.py",
        "    if old is not None and old != new:\n",
        "    if old is not None and old != new and new is not None:\n",
        "Deleted volumes are offered to pods, and their claims are bound to nothing.",
    ),
    PlantedFault(
        "assumption outlives its object",
        "engine/core/caching/assumed_objects.py",
        "            self.restore(object_key(one))\n",
        "            pass\n",
        "Every claim that there ever was takes memory.",
    ),
    PlantedFault(
        "kinds keep pods that left",
        "engine/core/caching/pod_kinds.py",
        "                    del known[uid]\n                    self._add(before[1], slot, -1)\n",
        "                    del known[uid]\n",
        "Pods are spread as if those that were deleted were still there.",
    ),
    PlantedFault(
        "counter forgets what it counted",
        "engine/core/caching/counters.py",
        "        topology.by_slot[slot] = topology.by_slot.item(slot) + amount\n",
        "        topology.by_slot[slot] = amount\n",
        "Pods of one app are put into the zone that has most of them.",
    ),
)
