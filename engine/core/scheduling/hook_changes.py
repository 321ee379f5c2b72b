"""Which hooks of a pod class see a node differently than they did.

Owns how far the columns that the hooks look at were followed. Columns log the slots whose
projection changed; which hooks look at which columns does not change.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from engine.core.scheduling.hook_use import HookUse
from engine.lib.change_log import ChangeLog
from engine.policy.projections import NodeColumn

#: The mask of a slot that every hook is to look at.
EVERY_HOOK: Final = -1

#: Up to this many changed slots a class is updated slot by slot, with more by arrays. Arrays alone
#: take a quarter more CPU on a mix of classes (openb: 1.04 instead of 0.83 ms per pod), as after a
#: placement one slot has changed, and some fifty numpy calls cost more than what they replace.
FEW: Final = 16


class HookChanges:
    """The columns of a class's filters and scores.

    Hooks are numbered by their place: first the filters in their order, then the scores. A mask
    has a bit for each distinct column.
    """

    __slots__ = ("_affected", "_columns", "_first_score", "_logs", "_versions", "column_of")

    def __init__(self) -> None:
        self.column_of: list[NodeColumn] = []  # by hook
        self._columns: list[NodeColumn] = []  # each once
        self._logs: list[ChangeLog[int]] = []  # theirs
        self._versions: list[int] = []
        self._first_score = 0
        self._affected: dict[int, tuple[list[int], list[int]]] = {}

    def begin(self, filters: Sequence[HookUse], scores: Sequence[HookUse]) -> None:
        """Follow the columns of these hooks from now on."""
        self.column_of = [use.column for use in (*filters, *scores)]
        self._columns = list(dict.fromkeys(self.column_of))
        self._logs = [column.changes for column in self._columns]
        self._first_score = len(filters)
        self._affected.clear()
        self.catch_up()

    def catch_up(self) -> None:
        """Everything that changed so far was looked at."""
        self._versions = [log.end for log in self._logs]

    def touched(self) -> dict[int, int] | None:
        """By slot that changed in some column, the mask of those columns.

        Many slots all get the mask of all columns that changed: with arrays, they are looked at
        together.
        None if that is not known any more: any slot may have changed.
        """
        # What a placement changes, it changes in several columns: most logs are the same.
        logs: list[tuple[list[int], int]] = []
        bit = 1
        for log, version in zip(self._logs, self._versions, strict=True):
            if log.end != version:
                slots = log.since(version)
                if slots is None:
                    return None
                if logs and logs[-1][0] == slots:
                    logs[-1] = slots, logs[-1][1] | bit
                else:
                    logs.append((slots, bit))
            bit <<= 1
        if not logs:
            return {}
        if len(logs) > 1 and any(len(slots) > FEW for slots, _ in logs):
            every = sum(mask for _, mask in logs)  # no two have a bit in common
            return dict.fromkeys(itertools.chain.from_iterable([slots for slots, _ in logs]), every)
        touched = dict.fromkeys(*logs[0])
        for slots, mask in logs[1:]:
            for slot in dict.fromkeys(slots):
                touched[slot] = touched.get(slot, 0) | mask
        return touched

    def hooks(self, mask: int) -> tuple[list[int], list[int]]:
        """The filters and the scores that look at some column of *mask*."""
        known = self._affected.get(mask)
        if known is None:
            bits = {id(column): 1 << place for place, column in enumerate(self._columns)}
            hooks = [k for k, column in enumerate(self.column_of) if mask & bits[id(column)]]
            first = self._first_score
            known = [k for k in hooks if k < first], [k for k in hooks if k >= first]
            self._affected[mask] = known
        return known
