"""One way through a hook for many nodes, and the same way again without the hook.

Owns the runs and what they leave. A run notes each of numpy's operations and each decision, which
makes a plan: the way as straight Python over arrays. For the same pod and other nodes the plan
gives what the hook would, and says which nodes go that way at all; it costs a fifth of the run. A
plan holds as long as the bounds hold that the run reckoned with.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.policy.sandbox.translation.operations import Refused

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]

# Operations of one run, which a loop over long lists would exceed.
_MAX_LINES: Final = 400


class NobodyError(Exception):
    """None of the nodes goes this way."""


class Register(NamedTuple):
    """The values of all lanes, and their name in the plan."""

    array: Array
    name: str


def kept(alive: Bools | None, truth: Bools) -> Bools | None:
    """The lanes that count, None for all, once those count only for which *truth* holds."""
    if alive is not None:
        truth = truth & alive
        if not truth.any():
            raise NobodyError
        return truth
    number = np.count_nonzero(truth)
    if not number:
        raise NobodyError
    return None if number == len(truth) else truth


def lost(alive: Bools | None, truth: Bools) -> Bools | None:
    """The same for which *truth* does not hold."""
    return None if alive is None and not np.count_nonzero(truth) else kept(alive, ~truth)


def divisor(alive: Bools | None, values: Array) -> Array:
    """*values* to divide by: with no zero where it counts, and then none at all."""
    zero = values == 0
    if not np.count_nonzero(zero):
        return values
    if (zero if alive is None else zero & alive).any():
        raise ZeroDivisionError
    return np.where(zero, values.dtype.type(1), values)


def _as_floats(values: Array) -> Array:
    return values.astype(np.float64)


def _as_ints(values: Array) -> Array:
    return values.astype(np.int64)


_OPERATIONS: Final[dict[str, Callable[..., Array]]] = {
    **{
        name: getattr(np, name)
        for name in (
            "absolute", "add", "divide", "equal", "floor_divide", "greater", "greater_equal",
            "invert", "less", "less_equal", "maximum", "minimum", "multiply", "negative",
            "not_equal", "remainder",
            "sqrt", "subtract", "where",
        )
    },
    "as_floats": _as_floats,
    "as_ints": _as_ints,
}  # fmt: skip


class _Line(NamedTuple):
    """One line of a plan: *text* with a place for each operand. One that `stays` decides."""

    name: str
    text: str
    operands: tuple[Any, ...]
    stays: bool

    def spelt(self, inputs: list[Any]) -> str:
        """Python for it; what is no register becomes one of *inputs*."""
        names = []
        for one in self.operands:
            if type(one) is Register:
                names.append(one.name)
            else:
                names.append(f"p{len(inputs)}")
                # As an array of no dimension, which numpy takes faster than Python's numbers.
                inputs.append(np.array(one) if type(one) in (int, float) else one)
        return f"{self.name}={self.text.format(*names)}"


def _key(number: Any) -> tuple[Any, ...]:
    """What tells two numbers apart, also zeros of different signs."""
    return (type(number), math.copysign(1.0, number), number)


class Run:
    """One way through a hook. `index`: the places of its nodes in the store; one lane for each.

    `alive`: the lanes that go this way; None for all. What the others hold means nothing.
    `is_plan` is false once something was done that only holds for these nodes.
    """

    def __init__(self, index: NDArray[np.intp], places: list[int]) -> None:
        self.index = index
        self.places = places
        self.count = self.living = len(places)
        self.alive: Bools | None = None
        self.is_plan = True
        self.columns: dict[int, Any] = {}  # all that were looked at, by id
        self._lines: list[_Line] = []
        self._inputs: list[Any] = []
        self._known: dict[Any, Register] = {}
        self._given = 0

    def give(self, array: Array) -> Register:
        """Lanes of *array*, which was worked out lane by lane: no plan can do that again."""
        # A name of its own: operations of a run are told apart by the names of their operands.
        self.is_plan = False
        self._given += 1
        return Register(array, f"v{self._given}")

    def take(self, column: Any, array: Array) -> Register:
        """The lanes of a column, which has them in *array*."""
        return self._noted(
            ("take", id(column)), "{}.array[i]", (column,), lambda: array[self.index]
        )

    def do(self, operation: str, *operands: Any) -> Register:
        """What an operation makes of lanes and numbers."""
        key = (operation, *((one[1] if type(one) is Register else _key(one)) for one in operands))
        if operation == "filled":
            (value,) = operands
            return self._noted(key, "full(len(i),{})", operands, lambda: np.full(self.count, value))
        given = [one.array if type(one) is Register else one for one in operands]
        text = f"{operation}({','.join(['{}'] * len(operands))})"
        return self._noted(key, text, operands, lambda: _OPERATIONS[operation](*given))

    def divisor(self, given: Any) -> Any:
        """*given* to divide by: lanes or a number."""
        if type(given) is not Register:
            raise ZeroDivisionError
        # It may fail, so it stays, and it depends on who counts here.
        key = ("divisor", len(self._lines))
        return self._noted(
            key, "divisor(w,{})", (given,), lambda: divisor(self.alive, given.array), stays=True
        )

    def _noted(
        self,
        key: Any,
        text: str,
        operands: Sequence[Any],
        make: Callable[[], Array],
        *,
        stays: bool = False,
    ) -> Register:
        """The register of what *make* gives, and a line of the plan that gives the same."""
        found = self._known.get(key)
        if found is None:
            name = f"t{len(self._lines)}"
            found = self._known[key] = Register(make(), name)
            self._note(name, text, operands, stays=stays)
        return found

    def _note(self, name: str, text: str, operands: Sequence[Any], *, stays: bool) -> None:
        if len(self._lines) >= _MAX_LINES:
            raise Refused
        self._lines.append(_Line(name, text, tuple(operands), stays))

    def decide(self, truth: Register) -> bool:
        """The way of most lanes; those of the other way do not count any more."""
        lanes = truth.array if self.alive is None else truth.array & self.alive
        yes = int(np.count_nonzero(lanes))
        taken = 2 * yes >= self.living
        self._note("w", "kept(w,{})" if taken else "lost(w,{})", (truth,), stays=True)
        if 0 < yes < self.living:
            self.alive = (kept if taken else lost)(self.alive, truth.array)
            self.living = yes if taken else self.living - yes
        return taken

    def plan(self, result: "Result") -> "Plan | None":
        """The plan of this way to *result*."""
        if not self.is_plan:
            return None
        needed = set() if result.register is None else {result.register.name}
        lines: list[_Line] = []
        for line in reversed(self._lines):
            if line.stays or line.name in needed:
                lines.append(line)
                needed.update(one.name for one in line.operands if type(one) is Register)
        inputs: list[Any] = []
        texts = [line.spelt(inputs) for line in reversed(lines)]
        texts.append(f"return w,{None if result.register is None else result.register.name}")
        params = "".join(f",p{number}" for number in range(len(inputs)))
        body = "\n ".join(texts)
        return Plan(
            _compiled(f"def way(i{params}):\n w=None\n {body}"),
            inputs,
            result,
            list(self.columns.values()),
        )


class Result(NamedTuple):
    """What a hook returned: lanes in a register, an int between bounds or a bool, or one value."""

    register: Register | None
    value: Any = None
    low: Any = None
    high: Any = None


class Plan:
    """A way without the hook: *function* of the places and *inputs*, and what it leads to."""

    __slots__ = ("_columns", "_function", "_inputs", "_seen", "_versions", "result")

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        result: Result,
        columns: Sequence[Any],
    ) -> None:
        self._function = function
        self._inputs = tuple(inputs)
        # Also those that only decided something by their bounds.
        self._columns = columns
        self._versions = [column.version for column in self._columns]
        self._seen = -1
        self.result = result

    def holds(self, version: int) -> bool:
        """True if it still does; *version* is that of all columns."""
        if version != self._seen:
            if [column.version for column in self._columns] != self._versions:
                return False
            self._seen = version
        return True

    def go(self, index: NDArray[np.intp]) -> tuple[Bools | None, Array | None]:
        """The lanes that go this way, None for all, and the values. Raises `NobodyError`."""
        found: tuple[Bools | None, Array | None] = self._function(index, *self._inputs)
        return found


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> Callable[..., Any]:
    """The function of a plan; those of other pods mostly have the same text."""
    namespace: dict[str, Any] = {
        "__builtins__": {},
        "len": len,
        "kept": kept,
        "lost": lost,
        "divisor": divisor,
        "full": np.full,
        **_OPERATIONS,
    }
    exec(compile(text, "<plan>", "exec"), namespace)
    function: Callable[..., Any] = namespace["way"]
    return function
