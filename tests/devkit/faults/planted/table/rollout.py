"""Faults of the roll-out of policies: the wrong ones are in force, or are found after a restart."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault

ROLLOUT: Final = (
    PlantedFault(
        "saved policies keep files that are gone",
        "engine/rollout/last_good.py",
        "            data: dict[str, str | None] = dict.fromkeys(found.data)\n",
        "            data: dict[str, str | None] = {}\n",
        "After a restart, files that were deleted are in force again.",
    ),
    PlantedFault(
        "standby overwrites what is saved",
        "engine/rollout/saved_policies.py",
        "return self._is_leader() and not (self.is_unread or self._is_loading)",
        "return not (self.is_unread or self._is_loading)",
        "What the leader has rolled back is in force again after a restart.",
    ),
    PlantedFault(
        "store is overwritten before it was read",
        "engine/rollout/saved_policies.py",
        "return self._is_leader() and not (self.is_unread or self._is_loading)",
        "return self._is_leader()",
        "What earlier leaders rolled back is forgotten, and may come into force again.",
    ),
    PlantedFault(
        "roll-back is not remembered",
        "engine/rollout/saved_policies.py",
        "self._set(self._with(back_to, (self.last_good or LastGood()).without(revision)))",
        "self._set(self._with(back_to, self.rolled_back))",
        "Policies that were rolled back are in force again after a restart.",
    ),
    PlantedFault(
        "roll-back changes no decision",
        "engine/rollout/rollout.py",
        "        self._on_switch(previous, bad)\n",
        "",
        "Policies that were rolled back decide on, while the page says otherwise.",
    ),
    PlantedFault(
        "candidates are not tried",
        "engine/rollout/rollout.py",
        "        await self._stages.try_out(candidate, self._world, base)\n",
        "",
        "Policies that fail for the pods of this cluster come into force.",
    ),
    PlantedFault(
        "accepted policies are not saved",
        "engine/rollout/rollout.py",
        "saved.remember(edit.own)",
        "pass",
        "After a restart with a bad edit, old policies are in force.",
    ),
    PlantedFault(
        "offer is not repeated",
        "engine/rollout/inbox.py",
        "            self.add(self.latest)\n",
        "            pass\n",
        "An edit that was interrupted by a change of the leader never comes into force.",
    ),
    PlantedFault(
        "edits are not noticed",
        "engine/rollout/sources.py",
        "            on_update=lambda _old, new: on_change(new),\n",
        "",
        "Policies are in force as the process found them at its start.",
    ),
    PlantedFault(
        "mode at-once is ignored",
        "engine/rollout/staging.py",
        "if control.promotes(revision) or control.mode == AT_ONCE:",
        "if control.promotes(revision):",
        "A repair waits for its stages, though the operator has said that it must not.",
    ),
    PlantedFault(
        "replaced sandboxes go on",
        "engine/rollout/rollout.py",
        "        self._close(unneeded)\n        if",
        "        if",
        "Every edit leaves a sandbox process behind.",
    ),
    PlantedFault(
        "take-over never ends",
        "engine/rollout/rollout.py",
        "            self._is_taking_over = False\n\n",
        "            pass\n\n",
        "A new leader lets no edit through its stages.",
    ),
)
