"""Faults of binding: what is written, what an answer means, and what is reported."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault

BINDING: Final = (
    PlantedFault(
        "conflict counts as bound",
        "engine/io/binding/binder.py",
        "                if await self.is_bound(pod, node_name):\n"
        "                    return\n"
        "                raise BindingRefused(str(error)) from error\n",
        "                return\n",
        "A pod stays pending for ever, and its event says that it was assigned.",
    ),
    PlantedFault(
        "lost answer counts as bound",
        "engine/io/binding/binder.py",
        "if error.may_have_taken_effect and await self.is_bound(pod, node_name):",
        "if error.may_have_taken_effect:",
        "A pod stays pending for ever when the answer to its binding was lost.",
    ),
    PlantedFault(
        "refused binding is dropped",
        "engine/io/binding/binding_cycle.py",
        "            self._start_task(placement, sent, sent_at)\n            self._ended(sent)\n",
        "            self._ended(sent)\n",
        "A pod stays pending for ever after one binding failed.",
    ),
    PlantedFault(
        "failed cycle is not reported",
        "engine/io/binding/binding_cycle.py",
        "        if failure is not None:\n            self._report(failure)\n",
        "",
        "A pod stays pending for ever after its binding was given up.",
    ),
    PlantedFault(
        "cycles never end",
        "engine/io/binding/binding_cycle.py",
        "        self._tasks.discard(task)\n",
        "",
        "After a hundred bindings none is begun.",
    ),
    PlantedFault(
        "condition arrives after the binding",
        "engine/io/binding/binding_cycle.py",
        "        await self._reports.silenced(placement)\n",
        "",
        "A pod runs, and its condition says that it is not scheduled.",
    ),
    PlantedFault(
        "queued condition is not withdrawn",
        "engine/io/binding/binding_cycle.py",
        "if self._sender is None or placement.reserves or not self._reports.silence(placement):",
        "if self._sender is None or placement.reserves:",
        "A pod runs, and its condition says that it is not scheduled.",
    ),
    PlantedFault(
        "deferred writes never end",
        "engine/io/binding/deferred_writer.py",
        "        self._in_flight.discard(task)\n",
        "",
        "After sixteen events and conditions none is written.",
    ),
    PlantedFault(
        "assignment has no event",
        "engine/io/binding/event_recorder.py",
        "            self._enqueue(self._new(regarding, what, now, related, name))\n"
        "            return\n",
        "            return\n",
        "`kubectl describe` does not say which node a pod was assigned to.",
    ),
    PlantedFault(
        "condition keeps its first message",
        "engine/io/binding/pod_status.py",
        "            return (written.reason, written.message, written.generation) == (\n",
        "            return (written.reason, state.message, written.generation) == (\n",
        "A pending pod says what kept it from being scheduled once, not what does now.",
    ),
    PlantedFault(
        "written condition blocks later ones",
        "engine/io/binding/pod_status.py",
        "            if now_waiting[1] == state:\n                del self._waiting[uid]\n",
        "            if now_waiting[1] == state:\n",
        "A pending pod says what kept it from being scheduled once, not what does now.",
    ),
    PlantedFault(
        "evictions are never forgotten",
        "engine/io/binding/eviction.py",
        "        self._evictions.pop(uid, None)\n",
        "        pass\n",
        "Every pod that was ever evicted takes memory.",
    ),
    PlantedFault(
        "end of a preemption is not reported",
        "engine/io/binding/preemptor.py",
        "        self._report(PreemptionEnded(preemptor, node, end))\n",
        "",
        "A pod for which others were evicted is never tried again.",
    ),
    PlantedFault(
        "last victim is spared",
        "engine/io/binding/preemptor.py",
        "        how = await evict(last, self._last_victims)\n",
        "        how = Evicted.BY_OTHERS\n",
        "A more important pod stays pending, though a less important one could go.",
    ),
    PlantedFault(
        "volume is not waited for",
        "engine/io/binding/volume_binder.py",
        "            if not claim.is_bound:\n                return False\n        return True\n",
        "        return True\n",
        "A pod is bound before its volume exists, and cannot start if provisioning fails.",
    ),
)
