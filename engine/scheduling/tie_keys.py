"""The answers of `tie_key`: which of the nodes with the highest total goes first for a policy.

Owns remembering them by what the hook was given, like all verdicts; keys are no numbers, so they
are not in the verdict tables.
"""

from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.verdicts import VerdictMemo
from engine.scheduling.hook_use import HookUse
from engine.scheduling.select_host import SortKey, sort_key

_CAPACITY: Final = 65_536


class TieKeys:
    """Keys by policy, pod projection and node projection; bounded, the oldest go first."""

    def __init__(self, memo: VerdictMemo, capacity: int = _CAPACITY) -> None:
        self._memo = memo
        self._capacity = capacity
        self._keys: OrderedDict[tuple[int, bytes, bytes, bytes], SortKey] = OrderedDict()

    def of(self, use: HookUse, ids: NDArray[np.int32]) -> list[SortKey] | PolicyFailure:
        """The key of each of the node projections *ids* of the hook's column."""
        values = [use.column.values[i] for i in ids.tolist()]
        head = (use.enabled.instance, use.pod, use.extra)
        missing = [v for v in dict.fromkeys(values) if (*head, v) not in self._keys]
        if missing:
            call = Call(use.enabled.instance, use.hook, use.pod, missing, use.extra)
            verdicts = self._memo.evaluate([call])[0]
            for verdict in verdicts:
                if isinstance(verdict, PolicyFailure):
                    return verdict
            for value, verdict in zip(missing, verdicts, strict=True):
                self._keys[(*head, value)] = sort_key(verdict)
        keys = [self._keys[(*head, value)] for value in values]
        while len(self._keys) > self._capacity:
            self._keys.popitem(last=False)
        return keys
