"""Values of many nodes at once: what a translated hook computes with when it runs for all of them.

Owns the numbers. A lane is one node's place in every array of a run. A hook is run once with lanes
in place of a node's fields, and each operation on them is one of numpy's over all nodes. Where the
nodes would go different ways, at an `if` or the like, the run goes on with those of the majority
and the others are left to a run of their own: see `Run.decide`. So no lane ever takes a way that
its node would not have taken, and a result is the one that the hook gives for the node alone.

Ints carry bounds, worked out before each operation, so that none leaves 64 bits; floats carry them
so that all are finite, where numpy's arithmetic is Python's. Whatever is not surely the same raises
`Refused`, and the nodes are then asked one by one. Texts, lists and dicts are `objects`.
"""

import math
from typing import Any, Final

from engine.policy.sandbox.lanes.plans import Register, Run
from engine.policy.sandbox.translation.operations import Refused

_BOUND: Final = 1 << 63
# Floats hold every int up to this one.
_EXACT: Final = 1 << 53


class Lanes:
    """A value for each lane. What is not defined for its kind is refused."""

    __slots__ = ("_run",)
    __hash__ = None  # type: ignore[assignment]  # no key and no constant is found by lanes

    def __init__(self, run: Run) -> None:
        self._run = run


def _refuse(*_: object) -> Any:
    raise Refused


for _name in (
    "str", "repr", "format", "len", "index", "int", "float", "bool", "contains", "iter", "getitem",
    "call", "eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul",
    "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "neg", "abs",
):  # fmt: skip
    setattr(Lanes, f"__{_name}__", _refuse)


class BoolLanes(Lanes):
    """A bool for each lane."""

    __slots__ = ("_v",)

    def __init__(self, run: Run, v: Register) -> None:
        self._run = run
        self._v = v

    def __bool__(self) -> bool:
        return self._run.decide(self._v)

    def __eq__(self, other: object) -> Any:
        if type(other) is bool:
            return self if other else BoolLanes(self._run, self._run.do("invert", self._v))
        if type(other) is BoolLanes:
            return BoolLanes(self._run, self._run.do("equal", self._v, other._v))
        raise Refused

    __hash__ = None


class Numbers(Lanes):
    """A number for each lane, none of them below `low` or above `high`."""

    __slots__ = ("_high", "_low", "_v")
    _v: Register
    _low: Any
    _high: Any

    def __bool__(self) -> bool:
        return self._run.decide(self._run.do("not_equal", self._v, 0))

    # A comparison that the bounds decide needs no array.

    def __lt__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        if self._high < low or self._low >= high:
            return bool(self._high < low)
        return BoolLanes(self._run, self._run.do("less", self._v, b))

    def __le__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        if self._high <= low or self._low > high:
            return bool(self._high <= low)
        return BoolLanes(self._run, self._run.do("less_equal", self._v, b))

    def __gt__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        if self._low > high or self._high <= low:
            return bool(self._low > high)
        return BoolLanes(self._run, self._run.do("greater", self._v, b))

    def __ge__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        if self._low >= high or self._high < low:
            return bool(self._low >= high)
        return BoolLanes(self._run, self._run.do("greater_equal", self._v, b))

    def __eq__(self, other: object) -> Any:
        b, low, high = self._same(other)
        if self._low > high or self._high < low:
            return False
        return BoolLanes(self._run, self._run.do("equal", self._v, b))

    def __ne__(self, other: object) -> Any:
        found = self == other
        if type(found) is bool:
            return not found
        return BoolLanes(self._run, self._run.do("invert", found._v))

    __hash__ = None

    def _same(self, other: Any) -> tuple[Any, Any, Any]:
        """The values and bounds of *other*, a number of the same kind."""
        raise Refused


class IntLanes(Numbers):
    """An int for each lane. Raises `Refused` if one could leave 64 bits."""

    __slots__ = ()

    def __init__(self, run: Run, v: Register, low: int, high: int) -> None:
        self._run = run
        self._v = v
        self._low = low
        self._high = high

    def _same(self, other: Any) -> tuple[Any, int, int]:
        if type(other) is int and -_BOUND <= other < _BOUND:
            return other, other, other
        if type(other) is IntLanes:
            return other._v, other._low, other._high
        raise Refused

    def as_floats(self) -> "FloatLanes":
        """The same numbers, rounded as Python rounds them."""
        made = self._run.do("as_floats", self._v)
        return FloatLanes(self._run, made, float(self._low), float(self._high))

    def __add__(self, other: Any) -> Any:
        if type(other) is float or type(other) is FloatLanes:
            return self.as_floats() + other
        b, low, high = self._same(other)
        low, high = _in_bounds(self._low + low, self._high + high)
        return IntLanes(self._run, self._run.do("add", self._v, b), low, high)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is float or type(other) is FloatLanes:
            return self.as_floats() - other
        b, low, high = self._same(other)
        low, high = _in_bounds(self._low - high, self._high - low)
        return IntLanes(self._run, self._run.do("subtract", self._v, b), low, high)

    def __rsub__(self, other: Any) -> Any:
        if type(other) is float:
            return other - self.as_floats()
        b, low, high = self._same(other)
        low, high = _in_bounds(low - self._high, high - self._low)
        return IntLanes(self._run, self._run.do("subtract", b, self._v), low, high)

    def __mul__(self, other: Any) -> Any:
        if type(other) is float or type(other) is FloatLanes:
            return self.as_floats() * other
        if type(other) is int and other == 1:
            return self
        b, low, high = self._same(other)
        low, high = _in_bounds(*_corners_of_product(self, low, high))
        return IntLanes(self._run, self._run.do("multiply", self._v, b), low, high)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if type(other) is float or type(other) is FloatLanes:
            return self.as_floats() / other
        raise Refused  # two ints are divided more exactly than as floats

    def __rtruediv__(self, other: Any) -> Any:
        if type(other) is float:
            return other / self.as_floats()
        raise Refused

    def __floordiv__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        if low <= 0 <= high:
            b = self._run.divisor(b)
            most = max(abs(self._low), abs(self._high))
            low, high = -most - 1, most
        else:
            ends = [x // y for x in (self._low, self._high) for y in (low, high)]
            low, high = min(ends), max(ends)
        _in_bounds(low, high)
        return IntLanes(self._run, self._run.do("floor_divide", self._v, b), low, high)

    def __rfloordiv__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        return IntLanes(self._run, self._run.do("filled", b), low, high) // self

    def __mod__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        if low <= 0 <= high:
            b = self._run.divisor(b)
        most = max(abs(low), abs(high), 1)
        return IntLanes(self._run, self._run.do("remainder", self._v, b), *_in_bounds(-most, most))

    def __rmod__(self, other: Any) -> Any:
        b, low, high = self._same(other)
        return IntLanes(self._run, self._run.do("filled", b), low, high) % self

    def __neg__(self) -> Any:
        low, high = _in_bounds(-self._high, -self._low)
        return IntLanes(self._run, self._run.do("negative", self._v), low, high)

    def __abs__(self) -> Any:
        if self._low >= 0:
            return self
        _, high = _in_bounds(0, max(-self._low, self._high))
        return IntLanes(self._run, self._run.do("absolute", self._v), 0, high)


class FloatLanes(Numbers):
    """A finite float for each lane. Raises `Refused` if one could be another."""

    __slots__ = ()

    def __init__(self, run: Run, v: Register, low: float, high: float) -> None:
        if not (math.isfinite(low) and math.isfinite(high)):
            raise Refused
        self._run = run
        self._v = v
        self._low = low
        self._high = high

    def _same(self, other: Any) -> tuple[Any, float, float]:
        if type(other) is float and math.isfinite(other):
            return other, other, other
        if type(other) is FloatLanes:
            return other._v, other._low, other._high
        raise Refused

    def _as_float(self, other: Any) -> tuple[Any, float, float]:
        """The same of a number of any kind, which an operation makes a float."""
        if type(other) is int:
            other = float(other)
        elif type(other) is IntLanes:
            other = other.as_floats()
        return self._same(other)

    def __add__(self, other: Any) -> Any:
        b, low, high = self._as_float(other)
        return FloatLanes(
            self._run, self._run.do("add", self._v, b), self._low + low, self._high + high
        )

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        b, low, high = self._as_float(other)
        return FloatLanes(
            self._run, self._run.do("subtract", self._v, b), self._low - high, self._high - low
        )

    def __rsub__(self, other: Any) -> Any:
        b, low, high = self._as_float(other)
        return FloatLanes(
            self._run, self._run.do("subtract", b, self._v), low - self._high, high - self._low
        )

    def __mul__(self, other: Any) -> Any:
        b, low, high = self._as_float(other)
        if type(b) is float and b == 1.0:
            return self
        low, high = _corners_of_product(self, low, high)
        return FloatLanes(self._run, self._run.do("multiply", self._v, b), low, high)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        b, low, high = self._as_float(other)
        if not low <= 0.0 <= high:
            ends = [x / y for x in (self._low, self._high) for y in (low, high)]
            return FloatLanes(self._run, self._run.do("divide", self._v, b), min(ends), max(ends))
        found = self._run.do("divide", self._v, self._run.divisor(b))
        self._run.is_plan = False  # its bounds hold for these nodes only
        return FloatLanes(self._run, found, float(found.array.min()), float(found.array.max()))

    def __rtruediv__(self, other: Any) -> Any:
        b, low, high = self._as_float(other)
        return FloatLanes(self._run, self._run.do("filled", b), low, high) / self

    def __neg__(self) -> Any:
        return FloatLanes(self._run, self._run.do("negative", self._v), -self._high, -self._low)

    def __abs__(self) -> Any:
        low = 0.0 if self._low <= 0.0 <= self._high else min(abs(self._low), abs(self._high))
        return FloatLanes(
            self._run, self._run.do("absolute", self._v), low, max(abs(self._low), abs(self._high))
        )

    def truncated(self) -> IntLanes:
        """`int()` of each."""
        if max(abs(self._low), abs(self._high)) >= _EXACT:
            raise Refused
        return IntLanes(
            self._run, self._run.do("as_ints", self._v), int(self._low), int(self._high)
        )


def _in_bounds(low: int, high: int) -> tuple[int, int]:
    if low >= -_BOUND and high < _BOUND:
        return low, high
    raise Refused


def _corners_of_product(a: Numbers, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds of a product: those of the factors multiplied, which rounding keeps in order."""
    ends = (a._low * low, a._low * high, a._high * low, a._high * high)
    return min(ends), max(ends)
