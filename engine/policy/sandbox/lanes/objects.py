"""What many nodes hold that is no number: structs, dicts, lists and texts, lane by lane.

Owns reading numbers out of them, which is where a run over lanes begins. What is read of an entry
(`node.requested["cpu"]`) is read once in the entry's life: a `Column` keeps it for every entry of
the store, as an array where all are ints, bools or floats. A run then takes its lanes from it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.policy.sandbox.lanes.plans import Run
from engine.policy.sandbox.lanes.values import BoolLanes, FloatLanes, IntLanes, Lanes
from engine.policy.sandbox.translation.operations import Refused

# Columns of one store. A hook reads a few, unless it makes up names.
_MAX_COLUMNS: Final = 64
_BOUND: Final = 1 << 63
_DTYPES: Final[dict[type, Any]] = {int: np.int64, bool: np.bool_, float: np.float64}


class _Missing:
    """What could not be read of an entry; the interpreter knows why."""


_MISSING: Final = _Missing()


class Columns:
    """All that is read of the entries of one store; `root` are the entries themselves.

    `version` grows with that of any column.
    """

    def __init__(self, entries: list[Any]) -> None:
        self.version = 0
        self._columns: list[Column] = []
        self.root = Column(self, None, lambda one: one)
        self.root.objects = entries

    def follow(self) -> None:
        """Read what has come to the entries since."""
        for column in self._columns:  # each after the one that it reads from
            column.follow()

    def add(self, column: "Column") -> None:
        """From now on it follows. Raises `Refused` if that gets too much."""
        if len(self._columns) >= _MAX_COLUMNS:
            raise Refused
        column.follow()
        self._columns.append(column)


class Column:
    """One thing that is read of every entry of a store.

    `objects` are aligned with the store's entries; `array` has them too if they are numbers of one
    kind, and its end is not used yet. `version` grows with the bounds, and when there is no array
    any more.
    """

    __slots__ = (
        "_all", "_by_key", "_has_missing", "_high", "_kind", "_low", "_read", "_source", "array",
        "objects", "version",
    )  # fmt: skip

    def __init__(self, all_: Columns, source: "Column | None", read: Callable[[Any], Any]) -> None:
        self.objects: list[Any] = []
        self.array: NDArray[Any] | None = None
        self.version = 0
        self._all = all_
        self._source = source
        self._read = read
        self._by_key: dict[Any, Column] = {}
        self._has_missing = False
        self._kind: type | None = None  # of all objects; `object` if they are of several
        self._low: Any = 0
        self._high: Any = 0

    def column(self, key: Any, read: Callable[[Any], Any]) -> "Column":
        """What *read* gives of each object, known by *key*."""
        found = self._by_key.get(key)
        if found is None:
            found = Column(self._all, self, read)
            self._all.add(found)
            self._by_key[key] = found
        return found

    def lanes(self, run: Run) -> Any:
        """The lanes of *run*."""
        array = self.array
        run.columns[id(self)] = self
        if array is None:
            if self._has_missing:
                run.is_plan = False  # it would not look for them
                alive = range(run.count) if run.alive is None else np.flatnonzero(run.alive)
                if any(self.objects[run.places[lane]] is _MISSING for lane in alive):
                    raise Refused
            return ObjectLanes(run, self)
        taken = run.take(self, array)
        if self._kind is int:
            return IntLanes(run, taken, self._low, self._high)
        if self._kind is float:
            return FloatLanes(run, taken, self._low, self._high)
        return BoolLanes(run, taken)

    def follow(self) -> None:
        """Read what has come to the source since."""
        assert self._source is not None
        theirs, objects, read = self._source.objects, self.objects, self._read
        for place in range(len(objects), len(theirs)):
            given = theirs[place]
            try:
                value = read(given)
            except Exception:  # a key that is not there, or nothing to read of
                value = _MISSING
            if value is _MISSING and not self._has_missing:
                self._has_missing = True
                self._changed()
            objects.append(value)
            kind = type(value)
            if kind is not self._kind:
                self._change_kind(kind, place)
            array = self.array
            if array is not None:
                if place >= len(array):
                    array = self.array = np.resize(array, 2 * place + 64)
                array[place] = value
                if not self._low <= value <= self._high:
                    self._widen(value)

    def _change_kind(self, kind: type, place: int) -> None:
        """An object of another kind came: the first one says what it is, others that it varies."""
        is_number = not place and kind in _DTYPES
        self._kind = object if place else kind
        self.array = np.zeros(64, _DTYPES[kind]) if is_number else None
        self._low, self._high = (math.inf, -math.inf) if is_number else (0, 0)
        self._changed()

    def _widen(self, value: Any) -> None:
        """Take *value* into the bounds, with room to grow: plans hold until they change."""
        if self._kind is float and not math.isfinite(value):
            self._kind, self.array = object, None
        elif self._kind is int:
            is_first = self._low > self._high
            low, high = (value, value) if is_first else (self._low, self._high)
            self._low, self._high = _rounded(min(low, value), max(high, value))
        else:
            self._low, self._high = min(self._low, value), max(self._high, value)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._all.version += 1

    @property
    def is_of_lists(self) -> bool:
        """True if every object is a list."""
        return self._kind is list


def _rounded(low: int, high: int) -> tuple[int, int]:
    """Bounds around *low* and *high* at powers of two."""
    below = -(1 << (-low).bit_length()) if low < 0 else (1 << low.bit_length()) >> 1
    above = -((1 << (-high).bit_length()) >> 1) if high < 0 else 1 << high.bit_length()
    return max(below, -_BOUND), min(above, _BOUND - 1)


class ObjectLanes(Lanes):
    """An object for each lane, out of a column. Attributes of the policy begin with a letter."""

    __slots__ = ("_column",)

    def __init__(self, run: Run, column: Column) -> None:
        self._run = run
        self._column = column

    def _of(self, key: Any, read: Callable[[Any], Any]) -> Any:
        return self._column.column(key, read).lanes(self._run)

    def _values(self) -> list[Any]:
        objects = self._column.objects
        return [objects[place] for place in self._run.places]

    def __getattr__(self, name: str) -> Any:
        def read(one: Any) -> Any:
            return getattr(one, name) if name in type(one).__struct_fields__ else _MISSING

        if name.startswith("_"):
            raise AttributeError(name)
        return self._of(name, read)

    def get(self, key: Any, default: Any = None) -> Any:
        """`x.get(key, default)` of a dict."""
        if type(key) not in (str, int) or type(default) not in _PLAIN:
            raise Refused
        if type(default) is int and not -_BOUND <= default < _BOUND:
            raise Refused  # a column could not hold it beside the others

        def read(one: dict[Any, Any]) -> Any:
            return one.get(key, default) if type(one) is dict else _MISSING

        return self._of(("get", key, type(key), default, type(default)), read)

    def __getitem__(self, key: Any) -> Any:
        if type(key) not in (str, int):
            raise Refused
        return self._of(("[]", key, type(key)), lambda one: one[key])

    def __contains__(self, key: Any) -> bool:
        if type(key) not in (str, int):
            raise Refused
        return bool(self._of(("in", key, type(key)), lambda one: key in one))

    def length(self) -> Any:
        """`len(x)`."""
        return self._of("()len", len)

    def __iter__(self) -> Iterator[Any]:
        """The items of lists, as many as most lanes have."""
        if not self._column.is_of_lists:
            raise Refused
        lengths, alive = self.length(), self._run.alive
        found = lengths._v.array
        most = int(np.bincount(found if alive is None else found[alive]).argmax())
        self._run.decide(self._run.do("equal", lengths._v, most))
        return iter([self[place] for place in range(most)])

    def __bool__(self) -> bool:
        return bool(self._of("()bool", bool))

    def __eq__(self, other: object) -> Any:
        if type(other) in _PLAIN:
            return self._of(("==", other, type(other)), lambda one: one == other)
        raise Refused

    def __ne__(self, other: object) -> Any:
        found = self == other
        return found if type(found) is not BoolLanes else found == False  # noqa: E712  # lanes

    __hash__ = None  # no key and no constant is found by lanes

    def is_none(self) -> Any:
        """`x == None`."""
        return self._of("()none", lambda one: one is None)

    # Numbers of which some nodes have none: those that count have one, or it is refused.

    def number(self) -> Any:
        """The same as lanes of numbers."""
        return numbers(self._run, self._values())

    def __add__(self, other: Any) -> Any:
        return self.number() + _number(other)

    def __radd__(self, other: Any) -> Any:
        return _number(other) + self.number()

    def __sub__(self, other: Any) -> Any:
        return self.number() - _number(other)

    def __rsub__(self, other: Any) -> Any:
        return _number(other) - self.number()

    def __mul__(self, other: Any) -> Any:
        return self.number() * _number(other)

    def __rmul__(self, other: Any) -> Any:
        return _number(other) * self.number()

    def __lt__(self, other: Any) -> Any:
        return self.number() < _number(other)

    def __le__(self, other: Any) -> Any:
        return self.number() <= _number(other)

    def __gt__(self, other: Any) -> Any:
        return self.number() > _number(other)

    def __ge__(self, other: Any) -> Any:
        return self.number() >= _number(other)


_PLAIN: Final = (str, int, bool, type(None))


def _number(given: Any) -> Any:
    return given.number() if type(given) is ObjectLanes else given


def numbers(run: Run, values: Sequence[Any]) -> Any:
    """Lanes of *values*, one for each lane; those that do not count may be anything."""
    alive = [True] * run.count if run.alive is None else run.alive.tolist()
    held = [value for value, counts in zip(values, alive, strict=True) if counts]
    kinds = set(map(type, held))
    if len(kinds) != 1:
        raise Refused
    (kind,) = kinds
    if kind not in _DTYPES:
        raise Refused
    filled = [value if ok else held[0] for value, ok in zip(values, alive, strict=True)]
    array = run.give(np.array(filled, _DTYPES[kind]))
    if kind is bool:
        return BoolLanes(run, array)
    if kind is int:
        return IntLanes(run, array, min(held), max(held))
    if not all(map(math.isfinite, held)):
        raise Refused
    return FloatLanes(run, array, min(held), max(held))
