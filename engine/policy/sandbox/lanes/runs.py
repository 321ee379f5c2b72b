"""Many nodes' verdicts from few runs of a translated hook: which nodes go together.

Owns the entries that a hook was asked about, the runs over them, and when runs are not worth it. A
run costs as much as a dozen nodes alone, whatever its number of lanes; where every node goes a way
of its own there is nothing to gain, and then a hook is not run over lanes any more.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.policy.sandbox.lanes.functions import result_of
from engine.policy.sandbox.lanes.objects import Columns
from engine.policy.sandbox.lanes.plans import NobodyError, Plan, Result, Run
from engine.policy.sandbox.projected import Projected
from engine.policy.sandbox.translation import operations
from engine.policy.sandbox.translation.operations import TooMuchError

#: Fewer nodes than this are asked one by one.
LEAST: Final = 24
# Nodes that are left for another way, and for one that is not known yet: each costs as much as
# that many nodes, and a run of the hook ten times over, which its plan has to bring in again.
_LEAST_MORE: Final = 24
_LEAST_NEW: Final = 48
# Up to this many numbers plain Python is faster than numpy.
_FEW: Final = 48
# Ways that are kept for a pod, pods, and bytes of them.
_MAX_PLANS: Final = 16
_MAX_PODS: Final = 2048
_MAX_POD_BYTES: Final = 1 << 20
# Entries of a store, and how long their texts are together, unless one call has more.
_MAX_ENTRIES: Final = 8192
_MAX_BYTES: Final = 16 << 20
# Columns of nodes that are known by their numbers.
_MAX_COLUMNS: Final = 64
# Runs after which it is clear whether they are worth it, and the nodes that each has to answer.
_TRIED: Final = 64
_WORTH: Final = 14
# Calls that may fail over lanes before that is clear, too.
_MAX_FAILURES: Final = 8


# A few, or many.
Places: TypeAlias = list[int] | NDArray[np.intp]


class Entries:
    """What a hook was asked about lately, decoded, by its text. Bounded.

    `objects[place]` is an entry; places hold until the next call of `places`. `are_named`: some
    entry has what *is_named* tells of it.
    """

    def __init__(
        self,
        decode: Callable[[bytes], Any],
        most_bytes: int,
        is_named: Callable[[Any], bool] = lambda entry: False,
    ) -> None:
        self._decode = decode
        self._is_named = is_named
        self._most_bytes = most_bytes  # of one entry
        self._clear()

    def _clear(self) -> None:
        self._places: dict[bytes, int] = {}
        self._bytes = 0
        self._by_column: dict[int, array[int]] = {}
        self.objects: list[Any] = []
        self.are_named = False
        self.columns = Columns(self.objects)

    def places(self, raws: Sequence[bytes]) -> Places:
        """The place of each entry. Raises `TooMuchError` if one is too large to be translated."""
        if type(raws) is not Projected:
            return self._places_of(raws)
        # The numbers of a column are found without a look at the texts.
        known = self._by_column.get(raws.column)
        if known is None or len(known) < len(raws.values):
            grown = array("q", [-1]) * (2 * len(raws.values) + 64)
            if known is not None:
                grown[: len(known)] = known
            elif len(self._by_column) >= _MAX_COLUMNS:
                self._by_column.clear()
            known = self._by_column[raws.column] = grown
        found: Places
        if len(raws.ids) > _FEW:
            held: NDArray[np.intp] = np.frombuffer(known, np.int64)[raws.ids]
            found, missing = held, raws.ids[held < 0].tolist()
        else:
            ids = raws.ids.tolist()
            found = [known[i] for i in ids]
            missing = [i for i in ids if known[i] < 0] if -1 in found else []
        if missing:
            columns = self.columns
            places = self._places_of([raws.values[i] for i in missing])
            if self.columns is not columns:
                return self.places(raws)  # all was forgotten for them
            for i, place in zip(missing, places, strict=True):
                known[i] = place
            if isinstance(found, list):
                return [known[i] for i in ids]
            found = np.frombuffer(known, np.int64)[raws.ids]
        return found

    def _places_of(self, raws: Sequence[bytes]) -> list[int]:
        known = self._places
        found = [known.get(raw, -1) for raw in raws]
        if -1 not in found:
            return found
        if known and (len(known) + found.count(-1) > _MAX_ENTRIES or self._bytes > _MAX_BYTES):
            self._clear()
            known, found = self._places, [-1] * len(raws)
        objects, decode = self.objects, self._decode
        for position, raw in enumerate(raws):
            if found[position] < 0:
                place = known.get(raw)
                if place is None:
                    if len(raw) > self._most_bytes:
                        raise TooMuchError
                    entry = decode(raw)
                    self.are_named = self.are_named or self._is_named(entry)
                    place = known[raw] = len(objects)
                    objects.append(entry)
                    self._bytes += len(raw)
                found[position] = place
        return found


class Way(NamedTuple):
    """What the entries at *positions* of a call got: `numbers` for each, or one value for all."""

    positions: NDArray[np.intp]
    numbers: NDArray[Any] | None
    result: Result


class LaneRuns:
    """Runs one hook over the lanes of a call's entries, where that is worth it.

    *fields* are what it takes of an entry (`node`, `counts`); None: the entry itself.
    """

    def __init__(self, entries: Entries, fields: Sequence[str] | None) -> None:
        self._entries = entries
        self._fields = fields
        self._columns = entries.columns
        self._plans: dict[tuple[bytes, ...], list[Plan]] = {}
        self._pod_bytes = 0
        self._runs = self._answered = self._failures = self._successes = 0
        # Positions that no way was found for.
        self.rest: NDArray[np.intp] = np.empty(0, np.intp)

    @property
    def is_worth_it(self) -> bool:
        """False once it has shown that it is not."""
        if self._failures > _MAX_FAILURES and self._failures > self._successes:
            return False
        return self._runs < _TRIED or self._answered >= self._runs * _WORTH

    def ways(
        self,
        pod: tuple[bytes, ...],
        hook: Callable[[], Callable[..., Any]],
        left: int,
        places: Places,
    ) -> Iterator[Way]:
        """The ways that the entries at *places* take; `rest` are the positions that are left.

        *hook* gives the hook for the pod that *pod* stands for, with *left* steps to spend.
        """
        index = np.asarray(places, np.intp)
        self.rest = np.arange(len(index))
        self._entries.columns.follow()
        plans = self._plans_of(pod)
        for number, plan in enumerate(plans):
            if len(self.rest) < (_LEAST_MORE if number else LEAST):
                return
            try:
                alive, numbers = plan.go(index[self.rest])
            except NobodyError:
                continue
            except Exception:
                self._failures += 1
                return
            yield self._way(alive, numbers, plan.result)
            if number:
                plans[number - 1], plans[number] = plan, plans[number - 1]
        while len(self.rest) >= (_LEAST_NEW if plans else LEAST) and len(plans) < _MAX_PLANS:
            taken = index[self.rest]
            run = Run(taken, taken.tolist())
            entry = self._columns.root.lanes(run)
            operations.budget[0] = left
            try:
                given = (
                    [entry] if self._fields is None else [getattr(entry, f) for f in self._fields]
                )
                result = result_of(hook()(*given))
                made = run.plan(result)
            except Exception:
                self._failures += 1
                return
            self._runs += 1
            self._answered += run.living
            self._successes += 1
            if made is not None:
                plans.append(made)
            yield self._way(run.alive, result.register and result.register.array, result)

    def _way(
        self, alive: NDArray[np.bool_] | None, numbers: NDArray[Any] | None, result: Result
    ) -> Way:
        """What was found for those of `rest` that are alive; the others stay."""
        if alive is None:
            positions, self.rest = self.rest, self.rest[:0]
            return Way(positions, numbers, result)
        positions, self.rest = self.rest[alive], self.rest[~alive]
        return Way(positions, None if numbers is None else numbers[alive], result)

    def _plans_of(self, pod: tuple[bytes, ...]) -> list[Plan]:
        """The plans for a pod that hold."""
        is_full = len(self._plans) > _MAX_PODS or self._pod_bytes > _MAX_POD_BYTES
        if self._columns is not self._entries.columns or is_full:
            self._columns = self._entries.columns
            self._plans.clear()
            self._pod_bytes = 0
        plans = self._plans.get(pod)
        if plans is None:
            plans = self._plans[pod] = []
            self._pod_bytes += sum(map(len, pod))
        version = self._columns.version
        if not all(plan.holds(version) for plan in plans):
            plans[:] = [plan for plan in plans if plan.holds(version)]
        return plans
