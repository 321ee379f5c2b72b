"""From raw scores to totals: normalisation, weights and sums over all feasible nodes.

Owns the arithmetic that kube-scheduler's framework does after the score plugins. What a score
means is the policies'.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.verdicts import SCORE_NONE, VerdictMemo

# Raw scores this close together are normalised through a table indexed by score.
_TABLE_SPAN: Final = 1 << 16
_UNKNOWN: Final = -1


class Normalizer:
    """Normalises the raw scores of policies, remembering each distinct score's answer.

    `normalize(score, over)` is a function of the score and of the range over all feasible nodes,
    so one table per (policy, range) serves every pod that sees that range.
    """

    def __init__(self, memo: VerdictMemo, capacity: int = 1024) -> None:
        self._memo = memo
        self._capacity = capacity
        self._tables: OrderedDict[tuple[int, int, int, int], dict[int, int]] = OrderedDict()
        self._arrays: OrderedDict[tuple[int, int, int, int], NDArray[np.int64]] = OrderedDict()

    def normalize(
        self, instance: int, raw: NDArray[np.int64], *, reads_count: bool = True
    ) -> NDArray[np.int64] | PolicyFailure:
        """Scores in 0..100, one per entry of *raw*; entries without a score become 0.

        *reads_count* says that the hook looks at `over.count`, which then is part of the range.
        """
        scored = raw != SCORE_NONE
        everything = bool(scored.all())
        values = raw if everything else raw[scored]
        if not len(values):
            return np.zeros(len(raw), np.int64)
        low, high = int(values.min()), int(values.max())
        key = (instance, low, high, len(values) if reads_count else 0)
        over = {"min": low, "max": high}
        if reads_count:
            over["count"] = len(values)
        extra = msgspec.json.encode({"over": over})
        if low == high:
            answer = self._ask(key, extra, [low])
            if isinstance(answer, PolicyFailure):
                return answer
            normal = np.full(len(values), answer[low], np.int64)
        elif high - low < _TABLE_SPAN:
            table = self._array(key, high - low + 1)
            index = values - low
            normal = table[index]
            if normal.min() == _UNKNOWN:
                missing = np.unique(values[normal == _UNKNOWN]).tolist()
                answer = self._ask(key, extra, missing)
                if isinstance(answer, PolicyFailure):
                    return answer
                for score, value in answer.items():
                    table[score - low] = value
                normal = table[index]
        else:
            distinct, inverse = np.unique(values, return_inverse=True)
            answer = self._ask(key, extra, distinct.tolist())
            if isinstance(answer, PolicyFailure):
                return answer
            normal = np.array([answer[v] for v in distinct.tolist()], np.int64)[inverse]
        if everything:
            return normal
        result = np.zeros(len(raw), np.int64)
        result[scored] = normal
        return result

    def _array(self, key: tuple[int, int, int, int], span: int) -> NDArray[np.int64]:
        table = self._arrays.get(key)
        if table is None:
            table = self._arrays[key] = np.full(span, _UNKNOWN, np.int64)
            if len(self._arrays) > self._capacity:
                self._arrays.popitem(last=False)
        else:
            self._arrays.move_to_end(key)
        return table

    def _ask(
        self, key: tuple[int, int, int, int], extra: bytes, scores: Sequence[int]
    ) -> dict[int, int] | PolicyFailure:
        known = self._tables.get(key)
        if known is None:
            known = self._tables[key] = {}
            if len(self._tables) > self._capacity:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(key)
        missing = [score for score in scores if score not in known]
        if missing:
            nodes = [str(score).encode() for score in missing]
            call = Call(key[0], "normalize", b"{}", nodes, extra)
            for score, verdict in zip(missing, self._memo.evaluate([call])[0], strict=True):
                if isinstance(verdict, PolicyFailure):
                    return verdict
                known[score] = verdict
        if len(known) > _TABLE_SPAN:
            # A range this rich in distinct scores will not repeat: answer and forget.
            answer = {score: known[score] for score in scores}
            known.clear()
            return answer
        return known
