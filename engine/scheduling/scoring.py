"""From raw scores to totals: normalisation, weights and sums over all feasible nodes.

Owns the arithmetic that kube-scheduler's framework does after the score plugins. What a score
means is the policies'.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.policy.evaluator import Call, PolicyFailure, first_told
from engine.policy.memo_reuse import reusable_entries
from engine.policy.verdicts import SCORE_NONE, VerdictMemo

# Raw scores this close together are normalised through a table indexed by score.
_TABLE_SPAN: Final = 1 << 16
_UNKNOWN: Final = -1
# Up to so many scores are normalised without arrays.
_SHORT: Final = 64
# A range as small as this one is asked for as a whole when it comes a second time.
_WHOLE: Final = 128


class Normalizer:
    """Normalises the raw scores of policies, remembering each distinct score's answer.

    `normalize(score, over)` is a function of the score and of the range over all feasible nodes,
    so one table per (policy, range) serves every pod that sees that range.
    """

    def __init__(self, memo: VerdictMemo, capacity: int = 1024) -> None:
        self._memo = memo
        self._capacity = capacity
        self._tables: OrderedDict[tuple[int, int, int, int], dict[int, int]] = OrderedDict()
        self._arrays: OrderedDict[tuple[int, int, int, int], NDArray[np.int16]] = OrderedDict()

    def reuse_from(self, other: "Normalizer", instances: Mapping[int, int]) -> None:
        """Begin with what *other* knows of policies, given the index here by that in *other*."""
        for over, known in reusable_entries(other._tables, instances):
            self._tables[over] = known.copy()
        for over, table in reusable_entries(other._arrays, instances):
            self._arrays[over] = table.copy()

    def normalize(
        self,
        instance: int,
        raw: NDArray[np.int64],
        *,
        reads_count: bool = True,
        count: int | None = None,
    ) -> NDArray[np.int64] | PolicyFailure:
        """Scores in 0..100, one per entry of *raw*; entries without a score become 0.

        *reads_count* says that the hook looks at `over.count`, which then is part of the range:
        *count*, or how many entries have a score.
        """
        if len(raw) <= _SHORT:
            few = self._of_few(instance, raw.tolist(), reads_count=reads_count, count=count)
            return few if isinstance(few, PolicyFailure) else np.array(few, np.int64)
        low = int(raw.min())
        everything = low > SCORE_NONE  # which is below every score
        scored = None if everything else raw != SCORE_NONE
        values = raw if scored is None else raw[scored]
        if not len(values):
            return np.zeros(len(raw), np.int64)
        low, high = low if everything else int(values.min()), int(values.max())
        key = (instance, low, high, (count or len(values)) if reads_count else 0)
        if low == high:
            answer = self._ask(key, [low])
            if isinstance(answer, PolicyFailure):
                return answer
            normal = np.full(len(values), answer[low], np.int64)
        elif high - low < _TABLE_SPAN:
            table = self._array(key, high - low + 1)
            index = values - low
            normal = table[index].astype(np.int64)
            if normal.min() == _UNKNOWN:
                seen = np.zeros(len(table), np.bool_)
                seen[index] = True
                missing = np.flatnonzero(seen & (table == _UNKNOWN)) + low
                answer = self._ask(key, missing.tolist())
                if isinstance(answer, PolicyFailure):
                    return answer
                for score, value in answer.items():
                    table[score - low] = value
                normal = table[index].astype(np.int64)
        else:
            distinct, inverse = np.unique(values, return_inverse=True)
            answer = self._ask(key, distinct.tolist())
            if isinstance(answer, PolicyFailure):
                return answer
            normal = np.array([answer[v] for v in distinct.tolist()], np.int64)[inverse]
        if scored is None:
            return normal
        result = np.zeros(len(raw), np.int64)
        result[scored] = normal
        return result

    def _of_few(
        self, instance: int, raw: Sequence[int], *, reads_count: bool, count: int | None
    ) -> list[int] | PolicyFailure:
        """As `normalize`; for so few scores plain Python is faster than arrays."""
        scores = [score for score in raw if score != SCORE_NONE]
        if not scores:
            return [0] * len(raw)
        low, high = min(scores), max(scores)
        key = (instance, low, high, (count or len(scores)) if reads_count else 0)
        answer = self._ask(key, list(dict.fromkeys(scores)))
        if isinstance(answer, PolicyFailure):
            return answer
        return [0 if score == SCORE_NONE else answer[score] for score in raw]

    def _array(self, key: tuple[int, int, int, int], span: int) -> NDArray[np.int16]:
        table = self._arrays.get(key)
        if table is None:
            table = self._arrays[key] = np.full(span, _UNKNOWN, np.int16)
            if len(self._arrays) > self._capacity // 4:
                self._arrays.popitem(last=False)
        else:
            self._arrays.move_to_end(key)
        return table

    def _ask(
        self, key: tuple[int, int, int, int], scores: Sequence[int]
    ) -> dict[int, int] | PolicyFailure:
        known = self._table(key)
        missing = [score for score in scores if score not in known]
        if missing:
            _, low, high, _ = key
            if known and high - low < _WHOLE:
                missing = [score for score in range(low, high + 1) if score not in known]
            (answered,) = self._memo.evaluate([_call(key, missing)])
            asked, failed = set(scores), []
            for score, verdict in zip(missing, answered, strict=True):
                if not isinstance(verdict, PolicyFailure):
                    known[score] = verdict
                elif score in asked:
                    failed.append(verdict)
            if failed:
                return first_told(failed)
        if len(known) > _TABLE_SPAN:
            # A range this rich in distinct scores will not repeat: answer and forget.
            answer = {score: known[score] for score in scores}
            known.clear()
            return answer
        return known

    def _table(self, key: tuple[int, int, int, int]) -> dict[int, int]:
        known = self._tables.get(key)
        if known is None:
            known = self._tables[key] = {}
            if len(self._tables) > self._capacity:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(key)
        return known


def _call(key: tuple[int, int, int, int], scores: Sequence[int]) -> Call:
    instance, low, high, count = key
    over = {"min": low, "max": high}
    if count:
        over["count"] = count
    extra = msgspec.json.encode({"over": over})
    return Call(instance, "normalize", b"{}", [str(score).encode() for score in scores], extra)
