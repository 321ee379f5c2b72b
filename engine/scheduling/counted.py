"""Hooks over counters: what they are given, and their verdicts for many nodes at once.

Owns the distinct inputs. A hook over counters sees, beside its projections, a few numbers about the
node's domain; five thousand nodes in ten zones are ten inputs, and each is asked once. Verdicts are
kept by input, like all others.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.caching.counters import (
    OUTSIDE,
    CounterColumn,
    CounterRow,
    Counters,
    Places,
    PodChanges,
)
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
from engine.scheduling.foresight import Steps, flat, unflat

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

# Up to this many inputs plain Python is faster than looking for equal ones.
_FEW: Final = 4

# Distinct inputs are found by a table where the combinations are this few, else by sorting.
_TABLE_SPAN: Final = 1 << 20

_encode = msgspec.json.encode


@dataclass(slots=True)
class _Mask:
    """Which nodes count, and what the answer was made of."""

    made_of: tuple[object, ...] = ()
    nodes: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class AmongUse:
    """A function of a policy that says which nodes count, as one pod class asks it."""

    enabled: EnabledPolicy
    hook: str
    column: NodeColumn
    pod: bytes
    extra: bytes
    known: _Mask = field(default_factory=_Mask, compare=False)

    def mask(self, slots: int, memo: VerdictMemo) -> NDArray[np.bool_] | PolicyFailure:
        """By slot: does the node count? The same array as long as the answer is the same."""
        made_of = (slots, self.column.version, self.column.epoch)
        if self.known.made_of == made_of and self.known.nodes is not None:
            return self.known.nodes
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
        self.known.made_of, self.known.nodes = made_of, result
        return result


@dataclass(frozen=True, slots=True)
class CounterUse:
    """A counter as one pod class asks for it. `key` identifies the parts and their pod."""

    key: bytes
    parts: Sequence[Mapping[str, Any]]
    among: AmongUse | None


@dataclass(frozen=True, slots=True)
class Gate:
    """A `pre_filter` or `pre_score` that is told which counters are empty.

    `answers` keeps, by which counters are empty, if it skips the hook.
    """

    hook: str
    pod: bytes
    state: bytes | None
    answers: dict[tuple[bool, ...], bool] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class Groups:
    """The nodes that a hook over counters cannot tell apart, and what it said about them.

    Two nodes are in one group while they have the same projection and are in the same domains.

    Attributes:
        made_of: What the groups depend on; others are made if it changes.
        of_slot: The group of each slot.
        example: A slot of each group.
        places: By counter, where the counts of the examples are.
        here: By counter, the count that each group was judged with.
        shared: By counter, what all groups were told beside that.
        codes: The answer for each group.
        is_known: By group, `codes` is the answer for `here` and `shared`.
        by_slot: `codes` of each slot's group, and `rejects` where they reject, until one changes.
        steps: By how much the inputs changed lately.
    """

    made_of: tuple[object, ...] = ()
    of_slot: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    example: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    places: list[Places] = field(default_factory=list)
    here: list[NDArray[np.int64]] = field(default_factory=list)
    shared: list[dict[str, Any]] = field(default_factory=list)
    codes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    is_known: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    by_slot: NDArray[np.int64] | None = None
    rejects: NDArray[np.bool_] | None = None
    steps: Steps = field(default_factory=Steps)

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.is_known)


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
    groups: Groups = field(default_factory=Groups, compare=False)

    @property
    def nbytes(self) -> int:
        """Memory of what is kept for the class."""
        groups = self.groups
        by_group = groups.example.nbytes + groups.codes.nbytes + groups.is_known.nbytes
        return groups.of_slot.nbytes + by_group + sum(counts.nbytes for counts in groups.here)


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
        rows = [
            self.counters.row(counter.key, counter.parts, column, changes)
            for counter, column in zip(use.counters, columns, strict=True)
        ]
        here = [row.here for row in rows] if "here" in use.fields else ()
        members = [_members(_values(row, use.fields)) for row in rows]
        answer = self._ask(use, [_entry(use.column.values[projection], here, members)])[0]
        return answer if isinstance(answer, PolicyFailure) else int(answer)

    def is_skipped(self, use: CountedHook) -> bool | PolicyFailure:
        """True if the hook's gate, told which counters are empty, skips it for this pod."""
        gate = use.gate
        if gate is None:
            return False
        is_empty = self.counters.is_empty
        empty = tuple([is_empty(counter.key, counter.parts) for counter in use.counters])
        known = gate.answers.get(empty)
        if known is not None:
            return known
        counts = [{"is_empty": each} for each in empty]
        extra = b'{"counts":' + _encode(counts) + b',"state":' + (gate.state or b"null") + b"}"
        verdict = self._memo.single(use.enabled.instance, gate.hook, gate.pod, extra)
        if isinstance(verdict, PolicyFailure):
            return verdict
        skips = gate.answers[empty] = verdict is not None and verdict[0] == "skip"
        return skips

    def reject(
        self,
        use: CountedHook,
        columns: Sequence[CounterColumn],
        codes: NDArray[np.int32],
        is_open: NDArray[np.bool_],
    ) -> dict[int, PolicyFailure]:
        """Write what a filter rejects into *codes*, where *is_open*; the failures by slot.

        Cost in the steady state: a comparison per group, and two passes over the slots if the
        filter rejects anything.
        """
        groups = self._follow(use, columns, ())
        failures: dict[int, PolicyFailure] = {}
        if not groups.is_known.all():
            slots = np.flatnonzero(is_open)
            failures = self._fill(use, groups, slots)
        if groups.by_slot is None or groups.rejects is None:
            groups.by_slot = groups.codes[groups.of_slot]
            groups.rejects = groups.by_slot != FITS
        if groups.codes.any():  # FITS is 0: something may be rejected
            against = groups.rejects & is_open
            codes[against] = groups.by_slot[against]
        return failures

    def raw_scores(
        self, use: CountedHook, columns: Sequence[CounterColumn], slots: NDArray[np.int64]
    ) -> tuple[Groups, NDArray[np.int64], dict[int, PolicyFailure]]:
        """The groups with their raw scores, the group of each of *slots*, and failures by slot."""
        groups = self._follow(use, columns, slots)
        failures = {} if groups.is_known.all() else self._fill(use, groups, slots)
        mine = groups.of_slot
        if len(slots) != len(mine):
            mine = mine[slots]
        return groups, mine, failures

    def _follow(
        self,
        use: CountedHook,
        columns: Sequence[CounterColumn],
        slots: Sequence[int] | NDArray[np.int64],
    ) -> Groups:
        """The groups of *use* with the counts as of now; answers for other counts are unknown."""
        groups = self._grouped(use, columns)
        here: list[NDArray[np.int64]] = []
        if "here" in use.fields:
            pairs = zip(columns, groups.places, strict=True)
            here = [column.here_at(places) for column, places in pairs]
        shared = [self._shared(use, column, slots) for column in columns]
        moved = -1
        for now, before in zip(here, groups.here, strict=False):  # none before the first time
            is_same = now == before
            if not is_same.all():
                moved = int(is_same.argmin()) if moved < 0 else moved
                groups.is_known &= is_same
        is_first = len(groups.shared) != len(shared)
        if shared != groups.shared:
            groups.is_known[:] = False
        if not is_first and (moved >= 0 or shared != groups.shared):
            then = [int(counts[moved]) for counts in groups.here]
            now_at = [int(counts[moved]) for counts in here]
            groups.steps.note(flat(then, groups.shared), flat(now_at, shared))
        groups.here, groups.shared = here, shared
        return groups

    def _fill(
        self, use: CountedHook, groups: Groups, slots: NDArray[np.int64]
    ) -> dict[int, PolicyFailure]:
        """Ask about the groups of *slots* that are not known; the failures by slot."""
        if not len(slots):
            return {}
        mine = groups.of_slot[slots]
        missing = self._missing(groups, mine)
        if not len(missing):
            return {}
        failed = self._judge(use, groups, missing)
        groups.by_slot = groups.rejects = None
        if not failed:
            return {}
        return {
            slot: failed[group]
            for slot, group in zip(slots.tolist(), mine.tolist(), strict=True)
            if group in failed
        }

    def _grouped(self, use: CountedHook, columns: Sequence[CounterColumn]) -> Groups:
        """The groups of *use*, made anew if a node changed its domain or its projection."""
        groups = use.groups
        sees_nodes = bool(use.column.projector.paths)
        made_of = (
            *(column.layout for column in columns),
            (use.column.version, use.column.epoch) if sees_nodes else None,
        )
        if made_of == groups.made_of:
            return groups
        size = len(columns[0].present) if columns else len(use.column.ids)
        varying = [np.zeros(size, np.int64)]
        if sees_nodes:
            varying.append(use.column.ids[:size].astype(np.int64))
        if "here" in use.fields:
            for layout in (column.layout for column in columns):
                varying += [index.astype(np.int64) for index in layout.indexes]
                if layout.inside is not None and layout.domain_ids is None:
                    varying.append(layout.inside.astype(np.int64))
        of_slot = _combine(varying)
        count = int(of_slot.max()) + 1 if size else 0
        groups.example = np.zeros(count, np.int64)
        groups.example[of_slot[::-1]] = np.arange(size)[::-1]
        groups.of_slot, groups.made_of = of_slot, made_of
        groups.places = [column.layout.places(groups.example) for column in columns]
        groups.here = []
        groups.shared = []
        groups.codes = np.zeros(count, np.int64)
        groups.is_known = np.zeros(count, np.bool_)
        groups.by_slot = groups.rejects = None
        return groups

    @staticmethod
    def _missing(groups: Groups, mine: NDArray[np.int64]) -> NDArray[np.int64]:
        """The groups among *mine* that have no answer."""
        needed = np.zeros(len(groups.is_known), np.bool_)
        needed[mine] = True
        return np.flatnonzero(needed & ~groups.is_known)

    def _judge(
        self, use: CountedHook, groups: Groups, missing: NDArray[np.int64]
    ) -> dict[int, PolicyFailure]:
        """Fill the codes of the groups *missing*; the failures by group, which stay unknown."""
        sees_nodes = bool(use.column.projector.paths)
        vectors = [counts[missing] for counts in groups.here]
        if sees_nodes:
            vectors.append(use.column.ids[groups.example[missing]].astype(np.int64))
        if len(missing) > _FEW and vectors:
            of_missing = _combine(vectors)
            chosen = np.zeros(int(of_missing.max()) + 1, np.int64)
            chosen[of_missing[::-1]] = np.arange(len(missing))[::-1]
        elif vectors:
            chosen = of_missing = np.arange(len(missing))
        else:
            chosen, of_missing = np.zeros(1, np.int64), np.zeros(len(missing), np.int64)
        members = [_members(values) for values in groups.shared]
        asked = []
        for k in chosen.tolist():
            group = int(missing[k])
            node = use.column.values[int(use.column.ids[groups.example[group]])]
            asked.append((node, [int(counts[group]) for counts in groups.here]))

        def likely() -> list[bytes]:
            return _likely(groups, asked) if len(asked) <= _FEW else []

        answers = self._ask(use, [_entry(node, here, members) for node, here in asked], likely)
        codes = np.empty(len(chosen), np.int64)
        failed: dict[int, PolicyFailure] = {}
        for k, answer in enumerate(answers):
            if isinstance(answer, PolicyFailure):
                codes[k] = SCORE_FAILED if use.hook == "score" else FAILED
                failed[k] = answer
            else:
                codes[k] = answer
        groups.codes[missing] = codes[of_missing]
        if not failed:
            groups.is_known[missing] = True
            return {}
        has_failed = np.isin(of_missing, list(failed))
        groups.is_known[missing[~has_failed]] = True
        return {
            int(group): failed[int(k)]
            for group, k in zip(missing[has_failed], of_missing[has_failed], strict=True)
        }

    def _shared(
        self,
        use: CountedHook,
        column: CounterColumn,
        slots: Sequence[int] | NDArray[np.int64],
    ) -> dict[str, Any]:
        """The fields of a counter that are the same for every node."""
        fields = use.fields
        values = _values(column, fields)
        if use.hook == "score" and fields & {
            "feasible_domains",
            "feasible_nodes",
            "feasible_outside",
        }:
            inside = column.inside[slots]
            ids = column.layout.domain_ids
            if "feasible_nodes" in fields:
                values["feasible_nodes"] = int(inside.sum())
            if "feasible_outside" in fields:
                values["feasible_outside"] = int(len(slots) - inside.sum())
            if "feasible_domains" in fields:
                values["feasible_domains"] = (
                    0
                    if ids is None
                    else int((np.bincount(ids[np.asarray(slots)[inside]]) > 0).sum())
                )
        return values

    def _ask(
        self,
        use: CountedHook,
        entries: Sequence[bytes],
        likely: Callable[[], Sequence[bytes]] = tuple,
    ) -> list[Any]:
        """The codes or scores of *entries*, failures as they are.

        If something is asked at all, *likely* is asked in the same round trip, for later; apart
        from the others, so that what goes wrong with it costs nobody an answer.
        """
        known = self._verdicts
        head = (use.enabled.instance, use.hook, use.pod, use.extra)
        missing = [entry for entry in entries if (*head, entry) not in known]
        fresh: dict[bytes, Any] = {}
        if missing:
            call = Call(use.enabled.instance, use.hook, use.pod, missing, use.extra)
            more = [e for e in likely() if e not in missing and (*head, e) not in known]
            calls = [call, call._replace(nodes=more)] if more else [call]
            answered, *foreseen = self._memo.evaluate(calls)
            for entry, verdict in zip(missing, answered, strict=True):
                if isinstance(verdict, PolicyFailure):
                    fresh[entry] = verdict  # not kept: the next pod asks again
                else:
                    known[(*head, entry)] = self._code(use, verdict)
            for entry, verdict in zip(more, foreseen[0] if foreseen else (), strict=True):
                if not isinstance(verdict, PolicyFailure):
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


def _members(values: Mapping[str, Any]) -> bytes:
    """The members of a JSON object, without its braces."""
    return bytes(_encode(values)[1:-1])


def _entry(node: bytes, here: Sequence[int], members: Sequence[bytes]) -> bytes:
    """What a hook over counters is given of one node."""
    counts = []
    for k, text in enumerate(members):
        if here:
            value = b"null" if here[k] == OUTSIDE else str(here[k]).encode()
            text = b'"here":' + value + (b"," + text if text else b"")
        counts.append(b"{" + text + b"}")
    return b'{"node":' + node + b',"counts":[' + b",".join(counts) + b"]}"


def _likely(groups: Groups, asked: Sequence[tuple[bytes, list[int]]]) -> list[bytes]:
    """The inputs that may follow those that are *asked*, each a node and its counts."""
    likely: dict[bytes, None] = {}
    for node, here in asked:
        for numbers in groups.steps.from_here(flat(here, groups.shared)):
            then, values = unflat(numbers, len(here), groups.shared)
            likely[_entry(node, then, [_members(each) for each in values])] = None
    return list(likely)


def _combine(vectors: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The vectors as one: equal numbers exactly where all are equal."""
    combined = np.zeros(len(vectors[0]), np.int64)
    for vector in vectors:
        values, numbers = np.unique(vector, return_inverse=True)
        _, combined = _distinct(combined * len(values) + numbers.reshape(-1))
    return combined


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
