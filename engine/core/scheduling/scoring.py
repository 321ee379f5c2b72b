"""From raw scores to totals: normalisation, weights and sums over all feasible nodes.

Owns the arithmetic that kube-scheduler's framework does after the score plugins. What a score
means is the policies'.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.scheduling.pod_fields import MOST_ANSWERS
from engine.core.scheduling.read_ahead import ReadAhead
from engine.policy.evaluator import Call, PolicyFailure, first_reported
from engine.policy.memo_reuse import reusable_entries
from engine.policy.verdicts import SCORE_NONE, VerdictMemo

# Answers for a range of fewer scores than this are a table indexed by score, of 32 KiB at most. For
# 5,000 nodes that takes 25 us; finding the distinct scores, as wider ranges need, takes 300.
_TABLE_SPAN: Final = 1 << 14
_UNKNOWN: Final = -1
# A range as small as this one is asked for as a whole when it comes a second time with new scores:
# it saves most round trips of scores over counters, and an evaluation takes a fiftieth of one.
_WHOLE: Final = 128

_Range: TypeAlias = tuple[int, int, int, int]
"""The policy's instance, the least and greatest score, and how many there are if that counts."""


class Normalizer:
    """Normalises the raw scores of policies, remembering each distinct score's answer.

    `normalize(score, over)` is a function of the score and of the range over all feasible nodes,
    so one table per (policy, range) serves every pod that sees that range.
    """

    def __init__(self, memo: VerdictMemo, capacity: int = 1024) -> None:
        self._memo = memo
        self._capacity = capacity
        # Answers by range: of narrow ones by score less the least one, of wide ones by score.
        self._narrow: OrderedDict[_Range, NDArray[np.int16]] = OrderedDict()
        self._wide: OrderedDict[_Range, dict[int, int]] = OrderedDict()
        # By policy, `over.count` and how many scores were asked.
        self._ahead: dict[tuple[int, int, int], ReadAhead] = {}

    def reuse_from(self, other: "Normalizer", instances: Mapping[int, int]) -> None:
        """Begin with what *other* knows of policies, given the index here by that in *other*."""
        for key, table in reusable_entries(other._narrow, instances):
            self._narrow[key] = table.copy()
        for key, known in reusable_entries(other._wide, instances):
            self._wide[key] = known.copy()

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
        is_scored = raw != SCORE_NONE
        values = raw[is_scored]
        if not len(values):
            return np.zeros(len(raw), np.int64)
        low, high = int(values.min()), int(values.max())
        key = (instance, low, high, (count or len(values)) if reads_count else 0)
        is_narrow = _is_narrow(key)
        normal = self._in_narrow(key, values) if is_narrow else self._in_wide(key, values)
        if isinstance(normal, PolicyFailure):
            return normal
        result = np.zeros(len(raw), np.int64)
        result[is_scored] = normal
        return result

    def _in_narrow(
        self, key: _Range, values: NDArray[np.int64]
    ) -> NDArray[np.int16] | PolicyFailure:
        low = key[1]
        is_new = key not in self._narrow
        table = self._table(key)
        places = values - low
        normal = table[places]
        if normal.min() != _UNKNOWN:
            return normal
        is_wanted = np.zeros(len(table), np.bool_)
        is_wanted[places] = True
        wanted = is_wanted | (not is_new and len(table) <= _WHOLE)
        missing = np.flatnonzero(wanted & (table == _UNKNOWN))
        failures = self._ask(key, (missing + low).tolist())
        failed = [failure for score, failure in failures.items() if is_wanted[score - low]]
        return first_reported(failed) if failed else table[places]

    def _in_wide(self, key: _Range, values: NDArray[np.int64]) -> NDArray[np.int64] | PolicyFailure:
        known = self._known(key)
        distinct, places = np.unique(values, return_inverse=True)
        scores: list[int] = distinct.tolist()
        missing = [score for score in scores if score not in known]
        if missing:
            failures = self._ask(key, missing)
            if failures:
                return first_reported(failures.values())
        normal = np.array([known[score] for score in scores], np.int64)[places]
        # A range with more distinct scores than this will not come again.
        if len(known) > MOST_ANSWERS:
            known.clear()
        return normal

    def _table(self, key: _Range) -> NDArray[np.int16]:
        """The answers for a narrow range."""
        table = self._narrow.get(key)
        if table is None:
            table = self._narrow[key] = np.full(key[2] - key[1] + 1, _UNKNOWN, np.int16)
            if len(self._narrow) > self._capacity:
                self._narrow.popitem(last=False)
        else:
            self._narrow.move_to_end(key)
        return table

    def _known(self, key: _Range) -> dict[int, int]:
        """The answers for a wide range."""
        known = self._wide.get(key)
        if known is None:
            known = self._wide[key] = {}
            if len(self._wide) > self._capacity:
                self._wide.popitem(last=False)
        else:
            self._wide.move_to_end(key)
        return known

    def _ask(self, key: _Range, scores: Sequence[int]) -> dict[int, PolicyFailure]:
        """Learn the answers to *scores*; returns the failures of those without one."""
        later = self._later(key, scores)
        verdicts = self._memo.evaluate([_call(*each) for each in [(key, scores), *later]])
        for (over, of), answered in zip(later, verdicts[1:], strict=True):
            self._learn(over, of, answered)
        return self._learn(key, scores, verdicts[0])

    def _learn(
        self, key: _Range, scores: Sequence[int], answers: Sequence[int | PolicyFailure]
    ) -> dict[int, PolicyFailure]:
        """Keep the *answers* to *scores*; returns the failures by score, which are not kept."""
        failures: dict[int, PolicyFailure] = {}
        table = self._table(key) if _is_narrow(key) else None
        known = self._known(key) if table is None else {}
        for score, answer in zip(scores, answers, strict=True):
            if isinstance(answer, PolicyFailure):
                failures[score] = answer
            elif table is None:
                known[score] = answer
            else:
                table[score - key[1]] = answer
        return failures

    def _later(self, key: _Range, scores: Sequence[int]) -> list[tuple[_Range, Sequence[int]]]:
        """The ranges and scores that will probably be asked next."""
        instance, low, high, count = key
        if len(self._ahead) > self._capacity:
            self._ahead.clear()
        ahead = self._ahead.setdefault((instance, count, len(scores)), ReadAhead())
        return [
            ((instance, low, high, count), scores)
            for low, high, *scores in ahead.after((low, high, *scores))
            if low <= min(scores) and max(scores) <= high
        ]


def _is_narrow(key: _Range) -> bool:
    return key[2] - key[1] < _TABLE_SPAN


def _call(key: _Range, scores: Sequence[int]) -> Call:
    instance, low, high, count = key
    over = {"min": low, "max": high}
    if count:
        over["count"] = count
    extra = msgspec.json.encode({"over": over})
    return Call(instance, "normalize", b"{}", [str(score).encode() for score in scores], extra)
