"""The standing shadow: policies that are counted and not obeyed, while no edit is on its way.

Owns when it runs. What is left out of the policies in force is `shadowed_policies`'.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from engine.policy.bundle import Bundle
from engine.policy.rollout_config import ShadowStage
from engine.rollout.comparing import Comparing
from engine.rollout.measures import ShadowMeasures
from engine.rollout.status import RolloutStatus
from engine.rollout.trial import BuiltRevision, LoadedRevision

# The revision in force, the one before it, and one on its way.
_MOST_KNOWN: Final = 4


class Standing:
    """Compares the policies in force with the same ones and those that they leave out.

    Args:
        comparing: Compares; used by the stages of an edit from `end` to `begin`.
        is_leader: Only a process that decides can compare.
    """

    def __init__(self, comparing: Comparing, is_leader: Callable[[], bool]) -> None:
        self._comparing = comparing
        self._is_leader = is_leader
        self._full: OrderedDict[str, BuiltRevision] = OrderedDict()
        self._measures: Callable[[], ShadowMeasures] | None = None

    def note(self, obeyed: Bundle, full: BuiltRevision) -> None:
        """Remember of what *obeyed* is a part."""
        self._full[obeyed.revision] = full
        self._full.move_to_end(obeyed.revision)
        while len(self._full) > _MOST_KNOWN:
            self._full.popitem(last=False)

    def begin(self, active: LoadedRevision) -> None:
        """*active* is in force and alone: compare it, if it leaves something out."""
        self.end()
        full = self._full.get(active.bundle.revision)
        if full is None or full.bundle.revision == active.bundle.revision:
            return
        if self._is_leader():
            stage = active.bundle.runtime.rollout.shadow or ShadowStage()
            self._measures = self._comparing.begin_standing(full, active, stage)

    def end(self) -> None:
        """Compare no more."""
        if self._measures is not None:
            self._measures = None
            self._comparing.end()

    def shown_in(self, status: RolloutStatus) -> RolloutStatus:
        """*status* with what was counted."""
        if self._measures is None:
            return status
        return msgspec.structs.replace(status, standing=self._measures())
