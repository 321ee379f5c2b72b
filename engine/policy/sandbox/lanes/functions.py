"""The functions that translated hooks call, for lanes.

Owns which of `operations` and of Python's own have an array's way, and makes the others safe: one
that is given lanes and has no such way is called for each lane alone.
"""

import ast
import copy
import math
from collections.abc import Callable
from typing import Any

from engine.policy.sandbox.lanes.objects import ObjectLanes, numbers
from engine.policy.sandbox.lanes.plans import Result
from engine.policy.sandbox.lanes.values import BoolLanes, FloatLanes, IntLanes, Lanes, Numbers
from engine.policy.sandbox.translation import operations
from engine.policy.sandbox.translation.operations import Refused
from engine.policy.sandbox.translation.state import NAMESPACE, call


def _is_lanes(value: Any) -> bool:
    return isinstance(value, Lanes)


def _numbers(*given: Any) -> list[Any]:
    """*given*, objects as the numbers that they are."""
    return [one.number() if type(one) is ObjectLanes else one for one in given]


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    """Two numbers, the int as a float beside a float; at least one of them lanes."""
    a, b = _numbers(a, b)
    kinds = [float if type(x) in (float, FloatLanes) else int for x in (a, b)]
    if kinds[0] is kinds[1]:
        return a, b
    return (_floats(a), b) if kinds[0] is int else (a, _floats(b))


def _floats(a: Any) -> Any:
    if type(a) is int:
        return float(a)
    if type(a) is IntLanes:
        return a.as_floats()
    raise Refused


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """*function*, called for every lane that counts where it is given lanes."""

    def of_lanes(*given: Any) -> Any:
        lanes = [one for one in given if isinstance(one, Lanes)]
        if not lanes:
            return function(*given)
        run = lanes[0]._run
        columns = [
            one._values() if type(one) is ObjectLanes
            else one._v.array.tolist() if isinstance(one, Numbers | BoolLanes)
            else [one] * run.count
            for one in given
        ]  # fmt: skip
        alive = [True] * run.count if run.alive is None else run.alive.tolist()
        rows = zip(*columns, strict=True)
        found = [function(*row) if ok else None for row, ok in zip(rows, alive, strict=True)]
        return numbers(run, found)

    return of_lanes


def _spend(items: Any, cost: int) -> Any:
    return operations.spend(list(items) if type(items) is ObjectLanes else items, cost)


def _length(items: Any) -> Any:
    return items.length() if type(items) is ObjectLanes else len(items)


def _is_none(value: Any) -> Any:
    return value.is_none() if type(value) is ObjectLanes else value is None


def _less(a: Any, b: Any) -> Any:
    if not (_is_lanes(a) or _is_lanes(b)):
        return operations.less(a, b)
    a, b = _alike(a, b)
    return a < b


def _less_or_equal(a: Any, b: Any) -> Any:
    if not (_is_lanes(a) or _is_lanes(b)):
        return operations.less_or_equal(a, b)
    a, b = _alike(a, b)
    return a <= b


def _equal(a: Any, b: Any) -> Any:
    if not (_is_lanes(a) or _is_lanes(b)):
        return operations.equal(a, b)
    a, b = _alike(a, b)
    return a == b


def _lesser(a: Any, b: Any) -> Any:
    if not (_is_lanes(a) or _is_lanes(b)):
        return operations.lesser(a, b)
    a, b = _numbers(a, b)
    return _chosen(b < a, a, b, "minimum", min)


def _larger(a: Any, b: Any) -> Any:
    if not (_is_lanes(a) or _is_lanes(b)):
        return operations.larger(a, b)
    a, b = _numbers(a, b)
    return _chosen(b > a, a, b, "maximum", max)


def _chosen(
    second: Any, a: Any, b: Any, operation: str, of_bounds: Callable[[Any, Any], Any]
) -> Any:
    """*b* where *second*, else *a*: two numbers of one kind, as the comparison has seen to."""
    if type(second) is bool:
        return b if second else a
    one: Any = a if isinstance(a, Numbers) else b
    x, low_a, high_a = one._same(a)
    y, low_b, high_b = one._same(b)
    if type(one) is IntLanes or (type(a) is float and a != 0) or (type(b) is float and b != 0):
        found = one._run.do(operation, x, y)
    else:
        # Of two zeros it is the first one, whatever their signs.
        found = one._run.do("where", second._v, y, x)
    return type(one)(one._run, found, of_bounds(low_a, low_b), of_bounds(high_a, high_b))


def _least(values: Any) -> Any:
    found, *others = values
    if not any(map(_is_lanes, (found, *others))):
        return operations.least((found, *others))
    for value in others:
        found = _lesser(found, value)
    return found


def _greatest(values: Any) -> Any:
    found, *others = values
    if not any(map(_is_lanes, (found, *others))):
        return operations.greatest((found, *others))
    for value in others:
        found = _larger(found, value)
    return found


def _clamped(x: Any, low: Any, high: Any) -> Any:
    return _greatest((low, _least((x, high))))


def _ordered(values: Any) -> Any:
    items = list(values)
    if not any(map(_is_lanes, items)):
        return operations.ordered(items)
    items = _numbers(*items)
    if not {type(item) for item in items} <= {int, IntLanes}:
        raise Refused
    return sorted(items)


def _bounded(number: Any) -> Any:
    return number if type(number) is IntLanes else operations.bounded(number)


def _small(number: Any) -> Any:
    if type(number) is IntLanes:
        operations.small(number._low)
        operations.small(number._high)
        return number
    return operations.small(number)


def _number(given: Any) -> Any:
    return given if isinstance(given, Numbers) else operations.number(given)


def _product(a: Any, b: Any) -> Any:
    return a * b if _is_lanes(a) or _is_lanes(b) else operations.product(a, b)


def _sqrt(given: Any) -> Any:
    if not isinstance(given, Numbers):
        return operations.sqrt(given)
    floats = given.as_floats() if isinstance(given, IntLanes) else given
    if floats._low < 0:
        raise Refused
    found = floats._run.do("sqrt", floats._v)
    return FloatLanes(floats._run, found, math.sqrt(floats._low), math.sqrt(floats._high))


def _whole(number: Any, *others: Any) -> Any:
    if others or not _is_lanes(number):
        return int(number, *others)
    if type(number) is FloatLanes:
        return number.truncated()
    return number if type(number) is IntLanes else _each(int)(number)


def _h_whole(number: Any) -> Any:
    return _whole(number) if _is_lanes(number) else operations.whole(number)


def _float(*given: Any) -> Any:
    if len(given) == 1 and type(given[0]) is IntLanes:
        return given[0].as_floats()
    return given[0] if len(given) == 1 and type(given[0]) is FloatLanes else _each(float)(*given)


# What Python's own functions do with values that compare and iterate as lanes do is right.
_UNCHANGED = ("sorted", "min", "max", "any", "all", "bool", "list", "zip", "enumerate", "range",
              "abs")  # fmt: skip

LANE_NAMESPACE = {
    **{
        name: function if name.removeprefix("b_") in _UNCHANGED else _each(function)
        for name, function in NAMESPACE.items()
    },
    "h_refuse": operations.refuse,
    "h_spend": _spend,
    "h_bounded": _bounded,
    "h_small": _small,
    "h_less": _less,
    "h_less_or_equal": _less_or_equal,
    "h_float_less": _less,
    "h_float_less_or_equal": _less_or_equal,
    "h_equal": _equal,
    "h_lesser": _lesser,
    "h_larger": _larger,
    "h_least": _least,
    "h_greatest": _greatest,
    "h_clamped": _clamped,
    "h_ordered": _ordered,
    "h_number": _number,
    "h_product": _product,
    "h_sqrt": _sqrt,
    "h_whole": _h_whole,
    "h_is_none": _is_none,
    "b_len": _length,
    "b_int": _whole,
    "b_float": _float,
}


def for_lanes(tree: ast.Module) -> ast.Module:
    """*tree* with calls where Python would not ask lanes: whether something is None.

    It is *tree* itself if there are none.
    """
    if not any(map(_asks_for_none, ast.walk(tree))):
        return tree
    changed: ast.Module = _ForLanes().visit(copy.deepcopy(tree))
    return changed


def _asks_for_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is)


class _ForLanes(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return call("h_is_none", node.left) if _asks_for_none(node) else node


def result_of(given: Any) -> Result:
    """What a hook returned, as numbers of lanes or one value for all."""
    if type(given) is IntLanes:
        return Result(given._v, None, given._low, given._high)
    if type(given) is BoolLanes:
        return Result(given._v)
    if type(given) is ObjectLanes:
        return result_of(given.number())
    if isinstance(given, Lanes):
        raise Refused
    return Result(None, given)
