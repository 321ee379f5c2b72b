"""Hooks over counters: what they are given, and their verdicts for many nodes at once.

Owns the distinct inputs. A hook over counters sees, beside its projections, a few numbers about the
node's domain; five thousand nodes in ten zones are ten inputs, and each is asked once. Verdicts are
kept by input, like all others.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.caching.counters import OUTSIDE, CounterColumn, CounterRow, Counters, PodChanges
from engine.framework.profile import EnabledPolicy
from engine.framework.status import Code, Status
from engine.policy.evaluator import Call, PolicyFailure
from engine.policy.projections import NodeColumn
from engine.policy.verdicts import (
    FAILED,
    FITS,
    SCORE_FAILED,
    SCORE_NONE,
    VerdictMemo,
)

# What a hook may read of a counter, and which of it is about the node's own domain.
COUNT_FIELDS: Final = (
    "here",
    "min",
    "max",
    "total",
    "domains",
    "is_empty",
    "feasible_domains",
    "feasible_nodes",
    "feasible_outside",
)

_SHARED_FIELDS: Final = ("min", "max", "total", "domains", "is_empty")

# Distinct inputs are found by a table where the combinations are this few, else by sorting.
_TABLE_SPAN: Final = 1 << 20

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class AmongUse:
    """A function of a policy that says which nodes count, as one pod class asks it."""

    enabled: EnabledPolicy
    hook: str
    column: NodeColumn
    pod: bytes
    extra: bytes

    def mask(self, slots: int, memo: VerdictMemo) -> NDArray[np.bool_] | PolicyFailure:
        """By slot: does the node count?"""
        table = memo.table(self.column, self.enabled.instance, self.hook, self.pod, self.extra)
        ids = self.column.ids[:slots]
        there = ids >= 0
        memo.fill([(table, self.column, ids[there])])
        if table.failures:
            failure = next(iter(table.failures.values()))
            memo.forget_transient(table)
            return failure
        result = np.zeros(slots, np.bool_)
        result[there] = table.codes[ids[there]] == FITS
        return result


@dataclass(frozen=True, slots=True)
class CounterUse:
    """A counter as one pod class asks for it. `key` identifies the parts and their pod."""

    key: bytes
    parts: Sequence[Mapping[str, Any]]
    among: AmongUse | None


@dataclass(frozen=True, slots=True)
class Gate:
    """A `pre_filter` or `pre_score` that is told which counters are empty."""

    hook: str
    pod: bytes
    state: bytes | None


@dataclass(frozen=True, slots=True)
class CountedHook:
    """A `filter` or `score` over counters as one pod class asks it.

    `fields` are the fields of a counter that the policy reads anywhere: it is given no others.
    `gate` is asked first, and may skip the hook.
    """

    enabled: EnabledPolicy
    hook: str
    column: NodeColumn
    pod: bytes
    extra: bytes
    counters: Sequence[CounterUse]
    fields: frozenset[str]
    position: int = 0
    normalizes: bool = False
    reads_count: bool = True
    gate: Gate | None = None


class CountedHooks:
    """Evaluates hooks over counters, with a bounded memory of their inputs."""

    def __init__(self, memo: VerdictMemo, capacity: int = 65_536) -> None:
        self.counters = Counters()
        self._memo = memo
        self._capacity = capacity
        self._verdicts: OrderedDict[tuple[int, str, bytes, bytes, bytes], Any] = OrderedDict()

    def columns(
        self, use: CountedHook, present: NDArray[np.bool_]
    ) -> list[CounterColumn] | PolicyFailure:
        """The counters of *use* for every slot."""
        result = []
        for counter in use.counters:
            eligible = self._eligible(counter, len(present))
            if isinstance(eligible, PolicyFailure):
                return eligible
            result.append(self.counters.column(counter.key, counter.parts, present, eligible))
        return result

    def _eligible(
        self, counter: CounterUse, slots: int
    ) -> NDArray[np.bool_] | PolicyFailure | None:
        return None if counter.among is None else counter.among.mask(slots, self._memo)

    def verdict_at(
        self,
        use: CountedHook,
        columns: Sequence[CounterColumn],
        changes: PodChanges,
        projection: int,
    ) -> int | PolicyFailure:
        """The code of a filter on one node, had the pods of *changes* come and gone.

        *columns* is what `columns` gave for this snapshot, *projection* the node's id in the
        hook's column.
        """
        rows = []
        for counter, column in zip(use.counters, columns, strict=True):
            eligible = self._eligible(counter, len(column.here))
            if isinstance(eligible, PolicyFailure):
                return eligible
            rows.append(self.counters.row(counter.key, counter.parts, column, changes, eligible))
        here = [row.here for row in rows] if "here" in use.fields else ()
        shared = [_members(row, use.fields) for row in rows]
        answer = self._ask(use, [self._entry(use, projection, here, shared)])[0]
        return answer if isinstance(answer, PolicyFailure) else int(answer)

    def is_skipped(self, use: CountedHook) -> bool | PolicyFailure:
        """True if the hook's gate, told which counters are empty, skips it for this pod."""
        if use.gate is None:
            return False
        empty = self.counters.is_empty
        counts = [{"is_empty": empty(counter.key, counter.parts)} for counter in use.counters]
        state = use.gate.state or b"null"
        extra = b'{"counts":' + _encode(counts) + b',"state":' + state + b"}"
        verdict = self._memo.single(use.enabled.instance, use.gate.hook, use.gate.pod, extra)
        if isinstance(verdict, PolicyFailure):
            return verdict
        return verdict is not None and verdict[0] == "skip"

    def verdicts(
        self,
        use: CountedHook,
        columns: Sequence[CounterColumn],
        slots: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], dict[int, PolicyFailure]]:
        """Codes (filter) or raw scores (score), one per entry of *slots*; failures by slot."""
        is_score = use.hook == "score"
        if not len(slots):
            return np.empty(0, np.int64), {}
        # 1. Each node's input as one number; equal numbers, equal inputs.
        if use.column.projector.paths:
            varying = [use.column.ids[slots].astype(np.int64)]
        else:
            varying = [np.zeros(1, np.int64)]  # every node is the same to the hook
        if "here" in use.fields:
            varying += [column.here[slots] for column in columns]
        combined, decode = _combine(varying)
        distinct, inverse = _distinct(np.broadcast_to(combined, slots.shape))
        # 2. The distinct inputs as the hook is given them.
        shared = [self._shared(use, column, slots) for column in columns]
        entries = []
        for number in distinct.tolist():
            projection, *here = decode(number)
            entries.append(self._entry(use, projection, here, shared))
        # 3. Their verdicts, those not known in one round trip.
        answers = self._ask(use, entries)
        codes = np.empty(len(distinct), np.int64)
        failed: dict[int, PolicyFailure] = {}
        for k, answer in enumerate(answers):
            if isinstance(answer, PolicyFailure):
                codes[k] = SCORE_FAILED if is_score else FAILED
                failed[k] = answer
            else:
                codes[k] = answer
        result = codes[inverse]
        if not failed:
            return result, {}
        failures = {
            slot: failed[k]
            for slot, k in zip(slots.tolist(), inverse.tolist(), strict=True)
            if k in failed
        }
        return result, failures

    def _shared(self, use: CountedHook, column: CounterColumn, slots: NDArray[np.int64]) -> bytes:
        """The fields of a counter that are the same for every node, as JSON members."""
        fields = use.fields
        values = _values(column, fields)
        if use.hook == "score" and fields & {
            "feasible_domains",
            "feasible_nodes",
            "feasible_outside",
        }:
            inside = column.inside[slots]
            if "feasible_nodes" in fields:
                values["feasible_nodes"] = int(inside.sum())
            if "feasible_outside" in fields:
                values["feasible_outside"] = int(len(slots) - inside.sum())
            if "feasible_domains" in fields:
                ids = column.domain_ids
                values["feasible_domains"] = (
                    0 if ids is None else int((np.bincount(ids[slots[inside]]) > 0).sum())
                )
        return bytes(_encode(values)[1:-1])

    def _entry(
        self, use: CountedHook, projection: int, here: Sequence[int], shared: Sequence[bytes]
    ) -> bytes:
        counts = []
        for k, members in enumerate(shared):
            if here:
                value = b"null" if here[k] == OUTSIDE else str(here[k]).encode()
                members = b'"here":' + value + (b"," + members if members else b"")
            counts.append(b"{" + members + b"}")
        node = use.column.values[projection]
        return b'{"node":' + node + b',"counts":[' + b",".join(counts) + b"]}"

    def _ask(self, use: CountedHook, entries: Sequence[bytes]) -> list[Any]:
        """The codes or scores of *entries*, failures as they are."""
        known = self._verdicts
        head = (use.enabled.instance, use.hook, use.pod, use.extra)
        missing = [entry for entry in entries if (*head, entry) not in known]
        fresh: dict[bytes, Any] = {}
        if missing:
            call = Call(use.enabled.instance, use.hook, use.pod, missing, use.extra)
            for entry, verdict in zip(missing, self._memo.evaluate([call])[0], strict=True):
                if isinstance(verdict, PolicyFailure):
                    fresh[entry] = verdict  # not kept: the next pod asks again
                else:
                    known[(*head, entry)] = self._code(use, verdict)
        answers = []
        for entry in entries:
            key = (*head, entry)
            if key in known:
                known.move_to_end(key)
                answers.append(known[key])
            else:
                answers.append(fresh[entry])
        while len(known) > self._capacity:
            known.popitem(last=False)
        return answers

    def _code(self, use: CountedHook, verdict: Any) -> int:
        if use.hook == "score":
            return SCORE_NONE if verdict is None else int(verdict)
        if verdict is None:
            return FITS
        kind, reasons = verdict
        code = Code.UNRESOLVABLE if kind == "u" else Code.UNSCHEDULABLE
        return self._memo.reasons.intern(Status(code, tuple(reasons), use.enabled.policy))


def _values(counter: CounterColumn | CounterRow, fields: frozenset[str]) -> dict[str, Any]:
    """What a hook is told of a counter beside `here`."""
    return {name: getattr(counter, name) for name in _SHARED_FIELDS if name in fields}


def _members(row: CounterRow, fields: frozenset[str]) -> bytes:
    return bytes(_encode(_values(row, fields))[1:-1])


def _combine(
    vectors: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], Any]:
    """The vectors as one (equal numbers exactly where all are equal), and the way back.

    The way back takes a number and gives the entries of all vectors.
    """
    lows: list[int | NDArray[np.int64]] = []
    spans: list[int] = []
    shifted: list[NDArray[np.int64]] = []
    for vector in vectors:
        outside = vector == OUTSIDE
        has_outside = bool(outside.any())
        inside = vector[~outside] if has_outside else vector
        low = int(inside.min()) if len(inside) else 0
        high = int(inside.max()) if len(inside) else 0
        if high - low > 1 << 40:  # far apart: number the values instead
            values, numbers = np.unique(vector, return_inverse=True)
            lows.append(values)
            spans.append(len(values))
            shifted.append(numbers.astype(np.int64))
            continue
        # 0 stands for "outside", so that every number is small.
        shifted.append(np.where(outside, 0, vector - low + 1) if has_outside else vector - low + 1)
        lows.append(low)
        spans.append(high - low + 2)
    combined = shifted[0]
    total = spans[0]
    for vector, span in zip(shifted[1:], spans[1:], strict=True):
        if total * span >= 1 << 62:
            return _combine_rows(vectors)
        combined = combined * span + vector
        total *= span

    def decode(number: int) -> list[int]:
        parts = []
        for low, span in zip(reversed(lows), reversed(spans), strict=True):
            number, digit = divmod(number, span)
            if isinstance(low, int):
                parts.append(OUTSIDE if digit == 0 else low + digit - 1)
            else:
                parts.append(int(low[digit]))
        return parts[::-1]

    return combined, decode


def _combine_rows(vectors: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], Any]:
    """As `_combine`, for ranges whose product does not fit: rows are numbered by sorting."""
    rows, numbers = np.unique(np.stack(vectors, axis=1), axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64), lambda number: rows[number].tolist()


def _distinct(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct numbers, and for each entry the index of its number among them."""
    low, high = int(numbers.min()), int(numbers.max())
    span = high - low + 1
    if span > _TABLE_SPAN:
        distinct, inverse = np.unique(numbers, return_inverse=True)
        return distinct, inverse.reshape(-1)
    offset = numbers - low
    seen = np.zeros(span, np.bool_)
    seen[offset] = True
    found = np.flatnonzero(seen)
    index = np.empty(span, np.int64)
    index[found] = np.arange(len(found))
    return found + low, index[offset]
