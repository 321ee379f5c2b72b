"""Verdict tables: what hooks answered, kept by what they were given.

Owns the memo. A hook is a function of its projections (see `projections`), so an answer is found
by the pod's projection (which picks a table) and the node's (which picks an entry). Tables are
numpy arrays, so the verdicts of all nodes are one gather. Everything here is bounded: old tables
are dropped first, and dead node projections are compacted away.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.framework.reasons import legal_token
from engine.core.framework.status import Code, Status
from engine.policy.evaluator import Call, Evaluator, PolicyFailure
from engine.policy.memo_reuse import reusable_entries
from engine.policy.projections import NodeColumn
from engine.policy.sandbox.projected import Projected
from engine.policy.sandbox.protocol import NO_SCORE, Packed

# Codes in a filter's table. Positive ones index `Reasons`.
FITS: Final = 0
UNKNOWN: Final = -1
FAILED: Final = -2
NOT_AMONG: Final = -4  # what an `among_*` function answers for a node that does not count

# Sentinels in a score's table, below every score that a hook may return.
_INT64_MIN: Final = -(2**63)
SCORE_UNKNOWN: Final = _INT64_MIN
SCORE_FAILED: Final = _INT64_MIN + 1
SCORE_NONE: Final = NO_SCORE

# Of the memory for tables, what is filled with those of the policies before at most.
_INHERITED_PART: Final = 4


#: Bytes of a question and its answer, or of what is kept of a pod, that are too many to be kept for
#: others: few pods are as large, and they would leave nothing to the others. Creators of pods
#: decide about it.
LARGE: Final = 256 << 10
# Of such questions, by kind: a decision needs some of them more than once.
_MOST_LARGE_BYTES: Final = 2 << 20

# Bytes of all tables together.
_CAPACITY_BYTES: Final = 64 << 20
# Questions whose answers are kept of those about a pod alone, and their bytes; the same of those
# about a pod and one node.
_MOST_SINGLES: Final = 16_384
_MOST_SINGLE_BYTES: Final = 8 << 20
# A decoded answer takes up to so many times the bytes of its text.
_DECODED: Final = 16

Question = TypeVar("Question", bound=tuple[object, ...])

_encode = msgspec.json.encode


class Reasons:
    """Rejections interned as small positive integers: (policy, code, reasons) to int and back.

    `characters`: how long all reasons are together.
    """

    def __init__(self) -> None:
        self._ids: dict[Status, int] = {}
        self._statuses: list[Status] = [Status(Code.SUCCESS)]
        self.characters = 0

    def copy(self) -> "Reasons":
        """Codes of its own that go on from these."""
        made = Reasons()
        made._ids, made._statuses = self._ids.copy(), self._statuses.copy()
        made.characters = self.characters
        return made

    def intern(self, status: Status) -> int:
        """The code of *status*, at least 1."""
        known = self._ids.get(status)
        if known is None:
            known = self._ids[status] = len(self._statuses)
            self._statuses.append(status)
            self.characters += sum(map(len, status.reasons))
        return known

    def status(self, code: int) -> Status:
        """The rejection that *code* stands for."""
        return self._statuses[code]

    def __len__(self) -> int:
        return len(self._statuses)


class Table:
    """Verdicts of one hook for one pod projection, by node projection id.

    `codes` has the dtype and the unknown value of its kind; `failures` holds the failure of each
    entry whose code says that it failed.
    """

    __slots__ = ("codes", "epoch", "extra", "failures", "hook", "instance", "is_score", "pod")

    def __init__(self, instance: int, hook: str, pod: bytes, extra: bytes) -> None:
        self.instance = instance
        self.hook = hook
        self.pod = pod
        self.extra = extra
        self.is_score = hook == "score"
        self.codes: NDArray[Any] = self._blank(64)
        self.failures: dict[int, PolicyFailure] = {}
        self.epoch = 0

    def _blank(self, size: int) -> NDArray[Any]:
        if self.is_score:
            return np.full(size, SCORE_UNKNOWN, np.int64)
        return np.full(size, UNKNOWN, np.int32)

    def reserve(self, size: int) -> None:
        """Extend the table to ids below *size*; new entries are unknown."""
        if size > len(self.codes):
            grown = self._blank(max(size, 2 * len(self.codes)))
            grown[: len(self.codes)] = self.codes
            self.codes = grown

    def copy(self, instance: int, epoch: int) -> "Table":
        """The same for the policy of another index; what failed is unknown to it."""
        made = Table(instance, self.hook, self.pod, self.extra)
        made.codes, made.epoch = self.codes.copy(), epoch
        for failed in self.failures:
            made.codes[failed] = SCORE_UNKNOWN if self.is_score else UNKNOWN
        return made

    def follow(self, living: NDArray[np.int64], epoch: int) -> None:
        """Renumber after a compaction of the column."""
        self.reserve(int(living[-1]) + 1 if len(living) else 0)
        # A copy of its own: a view would keep the old array, and free nothing.
        self.codes = self.codes[living].copy() if len(living) else self._blank(64)
        if self.failures:
            new_id = {int(old): new for new, old in enumerate(living)}
            self.failures = {new_id[i]: f for i, f in self.failures.items() if i in new_id}
        self.epoch = epoch


class _Answers(Generic[Question]):
    """Answers by question, those used last; of those to large questions, or large, only some.

    `bytes`: what the questions and their answers take.
    """

    def __init__(self) -> None:
        self.known: OrderedDict[Question, Any] = OrderedDict()
        self.bytes = 0
        self._sizes: dict[Question, int] = {}
        self._large: dict[Question, None] = {}
        self._large_bytes = 0

    def put(self, question: Question, answer: Any) -> None:
        """Keep the *answer* to a question that has none."""
        self.known[question] = answer
        size = self._sizes[question] = _size_of(question, answer)
        self.bytes += size
        if size > LARGE:
            self._large[question] = None
            self._large_bytes += size

    def evict(self) -> None:
        """Forget what is too much; the newest stays."""
        while self._large_bytes > _MOST_LARGE_BYTES and len(self._large) > 1:
            self._forget(next(iter(self._large)))
        known = self.known
        while len(known) > _MOST_SINGLES or (self.bytes > _MOST_SINGLE_BYTES and len(known) > 1):
            self._forget(next(iter(known)))

    def _forget(self, question: Question) -> None:
        del self.known[question]
        size = self._sizes.pop(question)
        self.bytes -= size
        if size > LARGE:
            del self._large[question]
            self._large_bytes -= size


class VerdictMemo:
    """All tables of one bundle revision, with the batch that fills what they miss.

    Args:
        evaluator: Where unanswered questions go.
        policy_names: By instance, for the statuses.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        policy_names: Sequence[str],
    ) -> None:
        self.reasons = Reasons()
        self._evaluator = evaluator
        self._policy_names = policy_names
        self._tables: OrderedDict[tuple[int, str, bytes, bytes, int], Table] = OrderedDict()
        self._large: dict[tuple[int, str, bytes, bytes, int], Table] = {}  # of large questions
        self._bytes = 0
        self._singles = _Answers[tuple[int, str, bytes, bytes]]()
        self._node_singles = _Answers[tuple[int, str, bytes, bytes, bytes]]()
        self._codes: dict[tuple[str, ...], int] = {}
        self.asked = 0  # entries evaluated
        self.round_trips = 0
        self.answered = 0  # verdicts given out, evaluated or not

    # --- life ------------------------------------------------------------------------------

    def reuse_from(
        self, other: "VerdictMemo", instances: Mapping[int, int], columns: Mapping[int, NodeColumn]
    ) -> None:
        """Begin with what *other* knows of some policies; only for a memo that was never asked.

        Failures are left out: they are evaluated again, and reported.

        Args:
            other: Keeps what it has.
            instances: The index here of each of the policies, by that in *other*.
            columns: The column here by the identity of *other*'s, with the same ids.
        """
        self.reasons = other.reasons.copy()
        self._codes = other._codes.copy()
        for question, verdict in reusable_entries(other._singles.known, instances):
            if not isinstance(verdict, PolicyFailure):
                self._singles.put(question, verdict)
        for asked, verdict in reusable_entries(other._node_singles.known, instances):
            if not isinstance(verdict, PolicyFailure):
                self._node_singles.put(asked, verdict)
        # The tables that were used last, up to a part of what there may be.
        kept: list[tuple[tuple[int, str, bytes, bytes, int], Table]] = []
        # The latest first, as they are likely to be asked for again; put in their order in the end,
        # so that the oldest is the first to go.
        for (instance, hook, pod, extra, place), table in reversed(other._tables.items()):
            column = columns.get(place)
            if instance not in instances or column is None:
                continue
            copy = table.copy(instances[instance], column.epoch)
            self._bytes += copy.codes.nbytes + len(pod) + len(extra)
            kept.append(((copy.instance, hook, pod, extra, id(column)), copy))
            if self._bytes > _CAPACITY_BYTES // _INHERITED_PART:
                break
        self._tables.update(reversed(kept))

    # --- per pod ---------------------------------------------------------------------------

    def continue_counts(self, other: "VerdictMemo") -> None:
        """Continue the counts of *other*, which this memo replaces."""
        self.asked, self.round_trips = other.asked, other.round_trips
        self.answered = other.answered

    def single(self, instance: int, hook: str, pod: bytes, extra: bytes = b"{}") -> Any:
        """The verdict of a per-pod hook, or a `PolicyFailure`."""
        question = (instance, hook, pod, extra)
        known = self._singles.known
        if question not in known:
            return self.singles([question])[0]
        known.move_to_end(question)
        self.answered += 1
        return known[question]

    def singles(self, questions: Sequence[tuple[int, str, bytes, bytes]]) -> list[Any]:
        """The verdicts of per-pod hooks, those not known in one round trip."""
        return self._asked_singles(
            self._singles, questions, lambda q: Call(q[0], q[1], q[2], None, q[3])
        )

    def node_singles(self, questions: Sequence[tuple[int, str, bytes, bytes, bytes]]) -> list[Any]:
        """The same of hooks that are asked about one node: the last part of each question."""
        return self._asked_singles(
            self._node_singles, questions, lambda q: Call(q[0], q[1], q[2], [q[4]], q[3])
        )

    def _asked_singles(
        self,
        kept: _Answers[Question],
        questions: Sequence[Question],
        call_of: Callable[[Question], Call],
    ) -> list[Any]:
        known = kept.known
        missing = [q for q in dict.fromkeys(questions) if q not in known]
        fresh: dict[Question, Any] = {}
        if missing:
            answers = self.evaluate([call_of(question) for question in missing])
            for question, answer in zip(missing, answers, strict=True):
                verdict = fresh[question] = answer[0]
                # A deadline or a killed child may not recur; an error of the text will.
                if not (isinstance(verdict, PolicyFailure) and verdict.is_transient):
                    kept.put(question, verdict)
        result = []
        for question in questions:
            if question in fresh:
                result.append(fresh[question])
            else:
                known.move_to_end(question)
                result.append(known[question])
        if fresh:
            kept.evict()
        self.answered += len(questions)
        return result

    # --- per node --------------------------------------------------------------------------

    def table(
        self, column: NodeColumn, instance: int, hook: str, pod: bytes, extra: bytes = b"{}"
    ) -> Table:
        """The table of *hook* for this pod projection over *column*, made if it is new."""
        # By the texts, not by the pod: whatever two pods differ in besides, the hook cannot see.
        # The column by identity, which holds as the owner of the memo keeps both.
        key = (instance, hook, pod, extra, id(column.store))
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = Table(instance, hook, pod, extra)
            table.epoch = column.epoch
            self._bytes += table.codes.nbytes + len(pod) + len(extra)
            if len(pod) + len(extra) > LARGE:
                self._large[key] = table
            self._evict()
        else:
            self._tables.move_to_end(key)
        # Here and not at each new id: it doubles, so that ids which come one by one cost little.
        before = table.codes.nbytes
        table.reserve(len(column.values))
        self._bytes += table.codes.nbytes - before
        return table

    def fill(self, wants: Sequence[tuple[Table, NodeColumn, NDArray[np.intp]]]) -> None:
        """Evaluate what the tables miss for the given node projection ids, in one round trip."""
        calls: list[Call] = []
        targets: list[tuple[Table, NDArray[Any]]] = []
        for table, column, ids in wants:
            unknown = table.codes[ids] == (SCORE_UNKNOWN if table.is_score else UNKNOWN)
            if np.count_nonzero(unknown):
                # Many nodes share a projection: each is evaluated once, and the gather gives it to
                # all.
                missing = _each_once(ids[unknown], len(table.codes))
                # Numbers of a list that the child knows already: texts of nodes cross the border
                # once.
                nodes = Projected(column.number, column.values, as_ids(missing))
                calls.append(Call(table.instance, table.hook, table.pod, nodes, table.extra))
                targets.append((table, missing))
        # All hooks in one trip: a trip costs as much as forty evaluations.
        if calls:
            for (table, missing), answer in zip(targets, self.evaluate(calls), strict=True):
                self._store(table, missing, answer)

    def _store(self, table: Table, ids: NDArray[Any], answer: Sequence[Any]) -> None:
        policy = self._policy_names[table.instance]
        if type(answer) is Packed:
            if table.is_score:
                table.codes[ids] = np.asarray(answer.numbers)  # of which `NO_SCORE` is `SCORE_NONE`
            else:
                kinds = [self.code(kind, policy) for kind in answer.kinds]
                table.codes[ids] = np.array(kinds, np.int32)[np.asarray(answer.numbers)]
            return
        # Most answers are plain: ints, or nothing against any node.
        if table.is_score:
            if set(map(type, answer)) == {int}:
                table.codes[ids] = answer
                return
        elif answer.count(None) == len(answer):
            table.codes[ids] = FITS
            return
        for i, verdict in zip(ids.tolist(), answer, strict=True):
            if isinstance(verdict, PolicyFailure):
                table.codes[i] = SCORE_FAILED if table.is_score else FAILED
                table.failures[i] = verdict
            elif table.is_score:
                table.codes[i] = SCORE_NONE if verdict is None else verdict
            else:
                table.codes[i] = self.code(verdict, policy)

    def code(self, verdict: Any, policy: str) -> int:
        """The code of what a filter or an `among_*` function said."""
        if verdict is None or verdict is True:
            return FITS
        if verdict is False:
            return NOT_AMONG
        kind, reasons, *given = verdict
        # The empty text keeps a token from being taken for a reason.
        key = (policy, kind, *given, "", *reasons)
        known = self._codes.get(key)
        if known is None:
            code = Code.UNRESOLVABLE if kind == "u" else Code.UNSCHEDULABLE
            token = legal_token(given[0]) if given else ""
            known = self.reasons.intern(Status(code, tuple(reasons), policy, token))
            self._codes[key] = known
        return known

    def forget_transient(self, table: Table) -> None:
        """Make the failures that may not happen again unknown, once they have been reported."""
        gone = [i for i, failure in table.failures.items() if failure.is_transient]
        for i in gone:
            del table.failures[i]
            table.codes[i] = SCORE_UNKNOWN if table.is_score else UNKNOWN

    def evaluate(self, calls: Sequence[Call]) -> list[Any]:
        """Ask the evaluator, past the memo: one list of verdicts per call."""
        self.round_trips += 1
        for call in calls:
            self.asked += 1 if call.nodes is None else len(call.nodes)
        return list(self._evaluator.evaluate(calls))

    # --- bounds ----------------------------------------------------------------------------

    def compact(self, column: NodeColumn) -> bool:
        """Compact *column* and let its tables follow. True if ids were renumbered."""
        living = column.compact()
        if living is None:
            return False
        for key, table in self._tables.items():
            if key[4] == id(column):
                self._bytes -= table.codes.nbytes
                table.follow(living, column.epoch)
                self._bytes += table.codes.nbytes
        return True

    def _evict(self) -> None:
        while sum(map(_text_size, self._large.values())) > _MOST_LARGE_BYTES:
            if len(self._large) == 1:
                break
            self._forget(next(iter(self._large)))
        while self._bytes > _CAPACITY_BYTES and len(self._tables) > 1:
            self._forget(next(iter(self._tables)))

    def _forget(self, key: tuple[int, str, bytes, bytes, int]) -> None:
        table = self._tables.pop(key)
        self._large.pop(key, None)
        self._bytes -= table.codes.nbytes + _text_size(table)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all tables together, with what they answer."""
        return self._bytes

    @property
    def single_bytes(self) -> int:
        """Bytes of what is kept besides tables: questions and their answers."""
        return self._singles.bytes + self._node_singles.bytes


def _text_size(table: Table) -> int:
    return len(table.pod) + len(table.extra)


def as_ids(numbers: NDArray[np.intp]) -> "array[int]":
    """*numbers* as `Projected` has them."""
    return array("i", numbers.astype(np.int32).tobytes())


def _each_once(ids: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """*ids*, all below *size*, each once."""
    are_there = np.zeros(size, np.bool_)
    are_there[ids] = True
    if np.count_nonzero(are_there) < len(ids):
        return np.flatnonzero(are_there)
    return ids


def _size_of(question: tuple[object, ...], answer: Any) -> int:
    asked = sum(len(part) for part in question if type(part) is bytes)
    return asked + _DECODED * len(_encode(answer))
