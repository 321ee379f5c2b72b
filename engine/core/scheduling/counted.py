"""Hooks over counters: what they are given, and their verdicts for many nodes at once.

Owns the distinct inputs. A hook over counters sees its projections and a few numbers about the
node's domain; five thousand nodes in ten zones are ten inputs, and each is asked once. Verdicts are
kept by input, like all others.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.caching.counter_answers import OUTSIDE, CounterColumn, CounterRow
from engine.core.caching.counters import Counters, PodChanges
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.node_info import NodeInfo
from engine.core.scheduling.node_groups import Groups, Key
from engine.policy.evaluator import Call, PolicyFailure, first_reported
from engine.policy.memo_reuse import reusable_entries
from engine.policy.projections import NodeColumn
from engine.policy.verdicts import FAILED, FITS, SCORE_FAILED, SCORE_NONE, VerdictMemo

_SHARED_FIELDS: Final = ("min", "max", "total", "domains", "is_empty")
_FEASIBLE_FIELDS: Final = frozenset({"feasible_domains", "feasible_nodes", "feasible_outside"})

# How many answers about which nodes count are kept.
_MOST_MASKS: Final = 256

_encode = msgspec.json.encode


@dataclass(slots=True)
class _Mask:
    """Which nodes count, and what the answer was made of."""

    made_of: tuple[object, ...] = ()
    nodes: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class EligibleNodes:
    """A policy's function that says which nodes a counter counts, as one pod class asks it."""

    enabled: EnabledPolicy
    hook: str
    column: NodeColumn
    pod: bytes
    extra: bytes

    def mask(self, slots: int, memo: VerdictMemo, known: _Mask) -> PolicyFailure | None:
        """Bring *known* up to date; the same array as long as the answer is the same."""
        made_of = (slots, self.column.version, self.column.epoch)
        if known.made_of == made_of:
            return None
        table = memo.table(self.column, self.enabled.instance, self.hook, self.pod, self.extra)
        ids = self.column.ids[:slots]
        there = ids >= 0
        memo.fill([(table, self.column, ids[there])])
        codes = table.codes[ids[there]]
        if table.failures:
            # It also knows of nodes that are gone, or were others.
            failed = set(ids[there][codes == FAILED].tolist())
            if failed:
                failure = first_reported(table.failures[i] for i in failed)
                memo.forget_transient(table)
                return failure
        result = np.zeros(slots, np.bool_)
        result[there] = codes == FITS
        known.made_of = made_of
        if known.nodes is None or not np.array_equal(known.nodes, result):
            known.nodes = result
        return None


@dataclass(frozen=True, slots=True)
class CounterUse:
    """A counter as one pod class asks for it. `key` identifies the parts and their pod."""

    key: bytes
    parts: Sequence[Mapping[str, Any]]
    eligible: EligibleNodes | None

    @property
    def counts_nodes(self) -> bool:
        """True if it counts nodes, which a pod may make one less."""
        return any(part["kind"] == "nodes" for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Memory of the terms of its pod."""
        return sum(part["own"].nbytes for part in self.parts if "own" in part)


@dataclass(frozen=True, slots=True)
class CountedHook:
    """A `filter` or `score` over counters as one pod class asks it.

    `fields` are the fields of a counter that the hook reads: it is given no others.
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
    groups: Groups = field(default_factory=Groups, compare=False)

    @property
    def nbytes(self) -> int:
        """Memory of what is kept for the class."""
        return self.groups.nbytes


class CountedHooks:
    """Evaluates hooks over counters, with a bounded memory of their inputs."""

    def __init__(self, memo: VerdictMemo, capacity: int = 65_536) -> None:
        self.counters = Counters()
        self._memo = memo
        self._capacity = capacity
        self._verdicts: OrderedDict[tuple[int, str, bytes, bytes, bytes], Any] = OrderedDict()
        # Which nodes count, by the question: classes with the same question share one array, whose
        # identity is part of the identity of their counters.
        self._masks: dict[tuple[int, str, bytes, bytes], _Mask] = {}

    def reuse_from(self, other: "CountedHooks", instances: Mapping[int, int]) -> None:
        """Begin with what *other* knows of policies, given the index here by that in *other*.

        The codes are those of a memo that has inherited from the other's.
        """
        self._verdicts.update(reusable_entries(other._verdicts, instances))

    def columns(
        self, use: CountedHook, present: NDArray[np.bool_]
    ) -> list[CounterColumn] | PolicyFailure:
        """The counters of *use* for every slot."""
        result = []
        for counter in use.counters:
            asked = counter.eligible
            nodes = None if asked is None else self._eligible(asked, len(present))
            if isinstance(nodes, PolicyFailure):
                return nodes
            result.append(self.counters.column(counter.key, counter.parts, present, nodes))
        return result

    def _eligible(
        self, asked: EligibleNodes, slots: int
    ) -> NDArray[np.bool_] | PolicyFailure | None:
        key = (asked.enabled.instance, asked.hook, asked.pod, asked.extra)
        known = self._masks.get(key)
        if known is None:
            if len(self._masks) >= _MOST_MASKS:
                self._masks.clear()
            known = self._masks[key] = _Mask()
        failure = asked.mask(slots, self._memo, known)
        return known.nodes if failure is None else failure

    def verdict_at(
        self,
        use: CountedHook,
        columns: Sequence[CounterColumn],
        changes: PodChanges,
        info: NodeInfo,
        projection: int,
    ) -> int | PolicyFailure:
        """The code of a filter on one node, had the pods of *changes* come and gone.

        *columns* is what `columns` gave for this snapshot, *info* the node after the changes,
        *projection* its id in the hook's column.
        """
        rows = [
            self.counters.row(counter.key, counter.parts, column, changes, info)
            for counter, column in zip(use.counters, columns, strict=True)
        ]
        here = [row.here for row in rows] if "here" in use.fields else ()
        members = [_members(_values(row, use.fields)) for row in rows]
        answer = self._ask(use, [_entry(use.column.values[projection], here, members)])[0]
        return answer if isinstance(answer, PolicyFailure) else int(answer)

    def are_empty(self, uses: Sequence[CounterUse]) -> tuple[bool, ...]:
        """By counter: it counts nothing anywhere. Cheaper than `columns`."""
        return tuple([self.counters.is_empty(use.key, use.parts) for use in uses])

    def reject(
        self,
        use: CountedHook,
        columns: Sequence[CounterColumn],
        codes: NDArray[np.int32],
        is_open: NDArray[np.bool_],
    ) -> dict[int, PolicyFailure]:
        """Write what a filter rejects into *codes*, where *is_open*; the failures by slot.

        Cost in the steady state: a few operations for each domain whose count changed, and two
        passes over the slots if the filter rejects anything.
        """
        groups, failures = self.raw_scores(use, columns, is_open)
        groups.reject(codes, is_open)
        return failures

    def raw_scores(
        self, use: CountedHook, columns: Sequence[CounterColumn], is_feasible: NDArray[np.bool_]
    ) -> tuple[Groups, dict[int, PolicyFailure]]:
        """The groups, with answers where some node is feasible, and the failures by slot."""
        groups = use.groups
        sees_nodes = bool(use.column.projector.paths)
        size = len(is_feasible)
        made_of = (
            use.column.number,
            use.column.version if sees_nodes else None,
            size,
            *[column.layout for column in columns],
        )
        nodes = use.column.ids if sees_nodes else None
        groups.follow(made_of, size, nodes, columns if "here" in use.fields else ())
        groups.share(self._shared(use, groups, columns, is_feasible))
        unknown = groups.wanted(is_feasible) if groups.unknown else []
        failed = self._fill(use, groups, columns, is_feasible, unknown) if unknown else {}
        return groups, failed

    def _fill(
        self,
        use: CountedHook,
        groups: Groups,
        columns: Sequence[CounterColumn],
        is_open: NDArray[np.bool_],
        unknown: Sequence[int],
    ) -> dict[int, PolicyFailure]:
        """Answers for the groups *unknown*: what is remembered, and the rest is asked.

        Returns the failures by slot; their groups stay unknown.
        """
        members = [_members(each) for each in groups.shared]
        keys = [groups.keys[group] for group in unknown]
        entries = [_entry_of(use, columns, key, members) for key in keys]
        later = _foreseen(use, columns, keys, members)  # worked out if there is something to ask
        failed: dict[int, PolicyFailure] = {}
        for group, answer in zip(unknown, self._ask(use, entries, later), strict=True):
            if isinstance(answer, PolicyFailure):
                failed[group] = answer
                groups.fail(group, SCORE_FAILED if use.hook == "score" else FAILED)
            else:
                groups.learn(group, answer)
        if not failed:
            return {}
        slots = np.flatnonzero(is_open)
        pairs = zip(slots.tolist(), groups.of_slot[slots].tolist(), strict=True)
        return {slot: failed[group] for slot, group in pairs if group in failed}

    @staticmethod
    def _shared(
        use: CountedHook,
        groups: Groups,
        columns: Sequence[CounterColumn],
        is_feasible: NDArray[np.bool_],
    ) -> list[dict[str, Any]]:
        """By counter, the fields that are the same for every node."""
        shared = [_values(column, use.fields) for column in columns]
        if use.hook != "score" or use.fields.isdisjoint(_FEASIBLE_FIELDS):
            return shared
        wanted = use.fields & _FEASIBLE_FIELDS
        text = is_feasible.tobytes()
        if groups.feasible[0] != text:
            groups.feasible = text, [_of_feasible(c, wanted, is_feasible) for c in columns]
        for values, more in zip(shared, groups.feasible[1], strict=True):
            values.update(more)
        return shared

    def _ask(
        self, use: CountedHook, entries: Sequence[bytes], later: Iterable[bytes] = ()
    ) -> list[Any]:
        """The codes or scores of *entries*, failures as they are.

        If any has to be asked, so are those of *later*, which will probably be.
        """
        known = self._verdicts
        # What all inputs of the hook have in common.
        head = use.enabled.instance, use.hook, use.pod, use.extra
        missing = [entry for entry in dict.fromkeys(entries) if (*head, entry) not in known]
        fresh: dict[bytes, Any] = {}
        if missing:
            # A call of its own: what fails or takes too long in it is not held against the others.
            ahead = [entry for entry in later if (*head, entry) not in known]
            calls = [
                Call(use.enabled.instance, use.hook, use.pod, each, use.extra)
                for each in (missing, ahead)
                if each
            ]
            answered, *more = self._memo.evaluate(calls)
            for entry, verdict in zip(ahead, *more, strict=False):
                if not isinstance(verdict, PolicyFailure):
                    known[(*head, entry)] = self._code(use, verdict)
            for entry, verdict in zip(missing, answered, strict=True):
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
        return self._memo.code(verdict, use.enabled.policy)


def given_to_group(use: CountedHook, columns: Sequence[CounterColumn], group: int) -> bytes:
    """What *use* was given last of the nodes of one of its groups."""
    return _entry_of(use, columns, use.groups.keys[group], [_members(g) for g in use.groups.shared])


def _foreseen(
    use: CountedHook,
    columns: Sequence[CounterColumn],
    keys: Sequence[Key],
    members: Sequence[bytes],
) -> Iterator[bytes]:
    """What *use* will probably be given next, now that it has to be asked about *keys*."""
    groups = use.groups
    for key in groups.likely_after(keys):
        yield _entry_of(use, columns, key, members)
    for more in groups.growth_after(keys):
        grown = [_members({**each, "min": each["min"] + more}) for each in groups.shared]
        for key in keys:
            yield _entry_of(use, columns, (key[0], key[1] + more), grown)


def _of_feasible(
    column: CounterColumn, fields: Collection[str], is_feasible: NDArray[np.bool_]
) -> dict[str, int]:
    """The figures of the feasible nodes that a score is given."""
    inside = column.inside & is_feasible
    ids = column.layout.domain_ids
    there = int(np.count_nonzero(inside))
    values = {}
    if "feasible_nodes" in fields:
        values["feasible_nodes"] = there
    if "feasible_outside" in fields:
        values["feasible_outside"] = int(np.count_nonzero(is_feasible)) - there
    if "feasible_domains" in fields:
        found = 0 if ids is None else np.count_nonzero(np.bincount(ids[inside]))
        values["feasible_domains"] = int(found)
    return values


def _values(counter: CounterColumn | CounterRow, fields: frozenset[str]) -> dict[str, Any]:
    """The figures of a counter over all domains that a hook is given."""
    return {name: getattr(counter, name) for name in _SHARED_FIELDS if name in fields}


def _members(values: Mapping[str, Any]) -> bytes:
    """The members of a JSON object, without its braces."""
    return bytes(_encode(values)[1:-1])


def _entry_of(
    use: CountedHook, columns: Sequence[CounterColumn], key: Key, members: Sequence[bytes]
) -> bytes:
    """What a hook is given of the nodes of a group."""
    node, *counts = key
    here = [column.shown(n) for column, n in zip(columns, counts, strict=False)]
    return _entry(use.column.values[node], here, members)


def _entry(node: bytes, here: Sequence[int], members: Sequence[bytes]) -> bytes:
    """What a hook over counters is given of one node."""
    counts = []
    for k, text in enumerate(members):
        if here:
            value = b"null" if here[k] == OUTSIDE else str(here[k]).encode()
            text = b'"here":' + value + (b"," + text if text else b"")
        counts.append(b"{" + text + b"}")
    return b'{"node":' + node + b',"counts":[' + b",".join(counts) + b"]}"
