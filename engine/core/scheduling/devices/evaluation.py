"""Evaluates expressions over a device, within a cost limit.

Owns the meaning of the operators, of selecting and of comprehensions. A tree is turned into nested
functions once; each of them counts what it does, so that no expression, however it was written,
takes more steps or memory than its cost allows.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from engine.core.scheduling.devices.expressions import (
    Call,
    Comprehension,
    Constant,
    Ident,
    ListNode,
    MapNode,
    Node,
    Select,
)
from engine.core.scheduling.devices.functions import (
    FUNCTIONS,
    NEWER_FUNCTIONS,
    includes,
    is_equal,
)
from engine.core.scheduling.devices.values import (
    INT64_MAX,
    INT64_MIN,
    NOTHING,
    UINT64_MAX,
    CelCostExceeded,
    CelError,
    Failure,
    OptionalValue,
    StrictMap,
    TypeValue,
    Uint,
    compare,
    equal,
    is_number,
    no_overload,
    size_of,
    type_name,
)

MOST_COST: Final = 1_000_000
"""Kubernetes' limit for one expression on one device."""
_SIZE_PER_COST: Final = 10

_TYPES: Final = frozenset(
    {"bool", "bytes", "double", "int", "list", "map", "null_type", "optional_type", "string"}
    | {"type", "uint"}
)


class Domains(dict[str, Any]):
    """A map in which every domain is present: one that a device lacks is empty, not an error."""

    absent: ClassVar[dict[str, Any]] = {}
    """The one that is absent; nothing changes it."""


class StrictDomains(StrictMap, Domains):
    """Both."""

    absent: ClassVar[dict[str, Any]] = StrictMap()


class Scope:
    """The variables of one evaluation and what it has cost so far.

    `is_newer`: what functions and operators do at the edges is as since 1.38.
    """

    __slots__ = ("cost", "is_newer", "limit", "variables")

    def __init__(
        self, variables: Mapping[str, Any], limit: int = MOST_COST, *, is_newer: bool = False
    ) -> None:
        self.variables: dict[str, Any] = dict(variables)
        self.is_newer = is_newer
        self.cost = 0
        self.limit = limit

    def spend(self, cost: int) -> None:
        """Count *cost*. Raises `CelCostExceeded` once it is too much."""
        self.cost += cost
        if self.cost > self.limit:
            raise CelCostExceeded("operation cancelled: actual cost limit exceeded")


Evaluator = Callable[[Scope], Any]


def _value_or_failure(part: Evaluator, scope: Scope) -> Any:
    try:
        return part(scope)
    except CelCostExceeded:
        raise
    except CelError as error:
        return Failure(error)


def evaluator_of(node: Node) -> Evaluator:
    """A function that gives the value of *node* in a scope, or raises `CelError`."""
    match node:
        case Constant(value):
            return lambda _: value
        case Ident(name):
            return _ident(name)
        case Select():
            return _select(node)
        case Call():
            return _call(node)
        case ListNode():
            return _list(node)
        case MapNode():
            return _map(node)
        case Comprehension():
            return _comprehension(node)


def _ident(name: str) -> Evaluator:
    as_type = TypeValue(name) if name in _TYPES else None

    def evaluate(scope: Scope) -> Any:
        scope.spend(1)
        try:
            value = scope.variables[name]
        except KeyError:
            if as_type is not None:
                return as_type
            raise CelError(f"no such attribute(s): {name}") from None
        if type(value) is Failure:
            raise value.error
        return value

    return evaluate


# --- maps ------------------------------------------------------------------------------------


def _key(key: Any) -> Any:
    """A map key as Python keeps it, so that `1`, `1u` and `1.0` are one and `true` is another."""
    if isinstance(key, bool):
        return ("bool", key)
    if isinstance(key, float) and key.is_integer():
        return int(key)
    if isinstance(key, int):
        return int(key)
    if isinstance(key, str | float):
        return key
    raise CelError(f"unsupported key type: {type_name(key)}")


def _text_of(key: Any) -> str:
    """*key* as a text, as which the maps of a device take it. Raises `CelError` if it is none."""
    if isinstance(key, str):
        return key
    if key is None:
        return "null"
    return key.name if isinstance(key, TypeValue) else str(FUNCTIONS["string"](key))


def _found(container: Any, key: Any) -> OptionalValue:
    """What *container* has at *key*. Raises `CelError` if it cannot have such a key."""
    if isinstance(container, dict):
        name = key
        if type(key) is not str:
            name = _text_of(key) if isinstance(container, StrictMap) else _key(key)
        if name in container:
            value = container[name]
            if type(value) is Failure:
                raise value.error
            return OptionalValue(True, value)
        return OptionalValue(True, container.absent) if isinstance(container, Domains) else NOTHING
    if isinstance(container, list):
        if not is_number(key) or key != int(key):
            raise CelError(f"unsupported index type '{type_name(key)}' in list")
        if 0 <= key < len(container):
            return OptionalValue(True, container[int(key)])
        return NOTHING
    raise no_overload()


def _at(container: Any, key: Any) -> Any:
    if isinstance(container, OptionalValue):
        return _optional_at(container, key)
    found = _found(container, key)
    if not found.has_value:
        if isinstance(container, list):
            raise CelError(f"index out of bounds: {key}")
        raise CelError(f"no such key: {key}")
    return found.value


def _optional_at(container: Any, key: Any) -> OptionalValue:
    if isinstance(container, OptionalValue):
        return _found(container.value, key) if container.has_value else NOTHING
    return _found(container, key)


def _select(node: Select) -> Evaluator:
    operand, field = evaluator_of(node.operand), node.field
    if node.is_test:

        def test(scope: Scope) -> bool:
            value = operand(scope)
            if isinstance(value, OptionalValue):
                return _optional_at(value, field).has_value
            if not isinstance(value, dict):
                raise no_overload()
            return _found(value, field).has_value

        return test

    def select(scope: Scope) -> Any:
        scope.spend(1)
        value = operand(scope)
        if not isinstance(value, dict | OptionalValue):
            raise no_overload()
        return _at(value, field)

    return select


def _list(node: ListNode) -> Evaluator:
    parts = [(evaluator_of(e), i in node.optionals) for i, e in enumerate(node.elements)]

    def evaluate(scope: Scope) -> list[Any]:
        scope.spend(10)
        values = []
        for part, is_optional in parts:
            value = part(scope)
            if is_optional:
                if not isinstance(value, OptionalValue):
                    raise no_overload()
                if not value.has_value:
                    continue
                value = value.value
            values.append(value)
        return values

    return evaluate


def _map(node: MapNode) -> Evaluator:
    parts = [(evaluator_of(k), evaluator_of(v), o) for k, v, o in node.entries]

    def evaluate(scope: Scope) -> dict[Any, Any]:
        scope.spend(30)
        values: dict[Any, Any] = {}
        for key_of, value_of, is_optional in parts:
            key, value = _key(key_of(scope)), value_of(scope)
            if is_optional:
                if not isinstance(value, OptionalValue):
                    raise no_overload()
                if not value.has_value:
                    continue
                value = value.value
            values[key] = value  # the last one of a key counts
        return values

    return evaluate


def _comprehension(node: Comprehension) -> Evaluator:
    over, start = evaluator_of(node.range), evaluator_of(node.start)
    condition, step = evaluator_of(node.condition), evaluator_of(node.step)
    result = evaluator_of(node.result)
    variable, accumulator = node.variable, node.accumulator

    def evaluate(scope: Scope) -> Any:
        items = over(scope)
        if isinstance(items, dict):
            items = [key[1] if isinstance(key, tuple) else key for key in items]
        elif not isinstance(items, list):
            kind = type_name(items).removeprefix("kubernetes.").capitalize()
            raise CelError(f"got 'types.{kind}', expected iterable type")
        outer = scope.variables
        scope.variables = inner = dict(outer)
        try:
            inner[accumulator] = _value_or_failure(start, scope)
            for item in items:
                scope.spend(1)
                inner[variable] = item
                if condition(scope) is not True:
                    break
                inner[accumulator] = _value_or_failure(step, scope)
            inner.pop(variable, None)
            return result(scope)
        finally:
            scope.variables = outer

    return evaluate


# --- operators -------------------------------------------------------------------------------


def _call(node: Call) -> Evaluator:
    special = _SPECIAL.get(node.function)
    arguments = [*([node.target] if node.target is not None else []), *node.args]
    parts = [evaluator_of(argument) for argument in arguments]
    if special is not None:
        return special(parts)
    function = _OPERATORS.get(node.function) or FUNCTIONS.get(node.function)
    if function is None:
        raise CelError(f"function `{node.function}` is not supported")
    newer = _NEWER_OPERATORS.get(node.function) or NEWER_FUNCTIONS.get(node.function) or function

    def evaluate(scope: Scope) -> Any:
        values = [part(scope) for part in parts]
        # Copying, comparing and creating values costs by their size.
        scope.spend(1 + sum(map(size_of, values)) // _SIZE_PER_COST)
        try:
            value = newer(*values) if scope.is_newer else function(*values)
        except (TypeError, AttributeError, KeyError) as error:
            raise no_overload() from error
        except (ArithmeticError, ValueError, IndexError) as error:
            raise CelError(str(error)) from error
        scope.spend(size_of(value) // _SIZE_PER_COST)
        return value

    return evaluate


def _logic(parts: list[Evaluator], decides: bool) -> Evaluator:
    """`&&` and `||`: the side that decides wins, even over an error of the other."""

    def evaluate(scope: Scope) -> bool:
        problem: CelError | None = None
        for part in parts:
            try:
                value: object = part(scope)
            except CelCostExceeded:
                raise
            except CelError as error:
                problem = problem or error
                continue
            if value is decides:
                return decides
            if not isinstance(value, bool):
                problem = problem or no_overload()
        if problem is not None:
            raise problem
        return not decides

    return evaluate


def _conditional(parts: list[Evaluator]) -> Evaluator:
    condition, then, otherwise = parts

    def evaluate(scope: Scope) -> Any:
        chosen = condition(scope)
        if not isinstance(chosen, bool):
            raise no_overload()
        return then(scope) if chosen else otherwise(scope)

    return evaluate


def _not_strictly_false(parts: list[Evaluator]) -> Evaluator:
    """Whether a loop continues: after everything but a plain false, errors included."""
    (part,) = parts

    def evaluate(scope: Scope) -> bool:
        try:
            value: object = part(scope)
        except CelCostExceeded:
            raise
        except CelError:
            return True
        return value is not False

    return evaluate


def _or_value(parts: list[Evaluator]) -> Evaluator:
    optional, default = parts

    def evaluate(scope: Scope) -> Any:
        value = optional(scope)
        if not isinstance(value, OptionalValue):
            raise no_overload()
        return value.value if value.has_value else default(scope)

    return evaluate


def _or_optional(parts: list[Evaluator]) -> Evaluator:
    optional, default = parts

    def evaluate(scope: Scope) -> Any:
        value = optional(scope)
        if not isinstance(value, OptionalValue):
            raise no_overload()
        return value if value.has_value else default(scope)

    return evaluate


_SPECIAL: Final[Mapping[str, Callable[[list[Evaluator]], Evaluator]]] = {
    "_&&_": lambda parts: _logic(parts, False),
    "_||_": lambda parts: _logic(parts, True),
    "_?_:_": _conditional,
    "@not_strictly_false": _not_strictly_false,
    "orValue": _or_value,
    "or": _or_optional,
}


def _within(value: int, like: Any) -> int:
    if isinstance(like, Uint):
        if not 0 <= value <= UINT64_MAX:
            raise CelError("unsigned integer overflow")
        return Uint(value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise CelError("integer overflow")
    return value


def _arithmetic(
    of_ints: Callable[[int, int], int], of_floats: Callable[[float, float], float] | None
) -> Callable[[Any, Any], Any]:
    def evaluate(one: Any, two: Any) -> Any:
        if not is_number(one) or type(one) is not type(two):
            raise no_overload()
        if isinstance(one, float):
            if of_floats is None:
                raise no_overload()
            return of_floats(one, two)
        return _within(of_ints(int(one), int(two)), one)

    return evaluate


_add_numbers = _arithmetic(lambda a, b: a + b, lambda a, b: a + b)


def _add(one: Any, two: Any) -> Any:
    for kind in (str, bytes, list):
        if isinstance(one, kind) and isinstance(two, kind):
            return operator.add(one, two)
    return _add_numbers(one, two)


def _divide_ints(one: int, two: int) -> int:
    if two == 0:
        raise CelError("division by zero")
    quotient = abs(one) // abs(two)
    return quotient if (one < 0) == (two < 0) else -quotient


def _divide_floats(one: float, two: float) -> float:
    if two == 0:
        if one == 0 or one != one:
            return float("nan")
        return float("inf") if (one > 0) == (str(two)[0] != "-") else float("-inf")
    return one / two


def _remainder(one: int, two: int) -> int:
    if two == 0:
        raise CelError("modulus by zero")
    if two == -1 and one == INT64_MIN:
        raise CelError("integer overflow")  # of the quotient
    return one - two * _divide_ints(one, two)


def _negate(value: Any) -> Any:
    if isinstance(value, Uint) or not is_number(value):
        raise no_overload()
    return -value if isinstance(value, float) else _within(-value, value)


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise no_overload()
    return not value


def _in(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return includes(container, value)
    if isinstance(container, StrictMap):
        try:
            name = _text_of(value)
        except CelError:
            return False
        return name in container and type(container[name]) is not Failure
    if isinstance(container, dict):
        return _key(value) in container
    raise no_overload()


_OPERATORS: Final[Mapping[str, Callable[..., Any]]] = {
    "_==_": equal,
    "_!=_": lambda a, b: not is_equal(a, b),
    "_<_": lambda a, b: compare(a, b) < 0,
    "_<=_": lambda a, b: compare(a, b) <= 0,
    "_>_": lambda a, b: compare(a, b) > 0,
    "_>=_": lambda a, b: compare(a, b) >= 0,
    "_+_": _add,
    "_-_": _arithmetic(lambda a, b: a - b, lambda a, b: a - b),
    "_*_": _arithmetic(lambda a, b: a * b, lambda a, b: a * b),
    "_/_": _arithmetic(_divide_ints, _divide_floats),
    "_%_": _arithmetic(_remainder, None),
    "-_": _negate,
    "!_": _not,
    "@in": _in,
    "_[_]": _at,
    "_[?_]": _optional_at,
    "_?._": _optional_at,
}


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _ordered(holds: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    """A comparison that is False for NaN, whatever stands on the other side."""
    return lambda a, b: not (_is_nan(a) or _is_nan(b)) and holds(compare(a, b))


#: Those that 1.38 has in place of others.
_NEWER_OPERATORS: Final[Mapping[str, Callable[..., Any]]] = {
    "_<_": _ordered(lambda order: order < 0),
    "_<=_": _ordered(lambda order: order <= 0),
    "_>_": _ordered(lambda order: order > 0),
    "_>=_": _ordered(lambda order: order >= 0),
}
