"""Translation of a hook into Python: operators, by the types of their operands.

Owns which operators Python and Starlark agree on for which types. A bool is a number to Python and
not to Starlark; floats and ints compare as floats in Starlark and exactly in Python; not-a-number
is the largest float in Starlark and nothing in Python. Where both languages fail, nothing needs to
be known: the interpreter answers.
"""

import ast
import operator
from typing import TYPE_CHECKING, Final

from engine.language.values import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    STR,
    Atom,
    Items,
    Map,
    Tuple,
    Value,
    computed,
)
from engine.policy.sandbox.translation.kinds import NUMBER, Untranslatable, join, names, only, parts
from engine.policy.sandbox.translation.state import Code, call

if TYPE_CHECKING:
    from engine.policy.sandbox.translation.expressions import Expressions

_NUMBERS: Final = frozenset({"int", "float"})
_SCALARS: Final = (str, int, bool, type(None))
_FOLDED: Final = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
# Products with a literal up to this one cannot grow fast.
_SMALL: Final = 1 << 16


def unary(here: "Expressions", op: ast.unaryop, code: Code) -> Code:
    """`not x`, `-x`."""
    if isinstance(op, ast.Not):
        if "any" in names(code.type):
            raise Untranslatable("a value of any type")
        if code.is_known:
            return here.known(not code.value)
        return Code(ast.UnaryOp(ast.Not(), code.node), BOOL)
    kinds = names(code.type)
    if isinstance(op, ast.USub) and not kinds & {"bool", "any"}:
        if type(code.value) is int:
            return here.known(-code.value)
        return Code(ast.UnaryOp(ast.USub(), code.node), code.type & NUMBER)
    raise Untranslatable("an operator of one operand")


def binary(here: "Expressions", node: ast.expr, op: ast.operator, left: Code, right: Code) -> Code:
    """`a + b` and the like."""
    kinds = names(left.type), names(right.type)
    if kinds[0] & {"any", "bool"} or kinds[1] & {"any", "bool"}:
        raise Untranslatable("arithmetic with something that may be no number")
    if left.type <= NONE or right.type <= NONE:
        return here.never()
    a, b = kinds[0] - {"none"}, kinds[1] - {"none"}
    if _is_small(left) and _is_small(right) and isinstance(op, ast.Add | ast.Sub | ast.Mult):
        return here.known(_FOLDED[type(op)](left.value, right.value))
    if a <= _NUMBERS and b <= _NUMBERS:
        return _arithmetic(op, left, right)
    if isinstance(op, ast.Add):
        if a == b == {"str"}:
            return Code(call("h_concatenated", left.node, right.node), STR)
        if a == b == {"list"}:
            item = join(here.items(left.type)[0], here.items(right.type)[0])
            type_ = here.block.new_list(node, item)
            return Code(call("h_concatenated", left.node, right.node), type_)
    if isinstance(op, ast.Mult) and "int" in (*a, *b) and (a == {"int"} or b == {"int"}):
        other, held = (b, right) if a == {"int"} else (a, left)
        if other == {"list"}:
            type_ = here.block.new_list(node, here.items(held.type)[0])
            return Code(call("h_repeated", left.node, right.node), type_)
        if other == {"str"}:
            return Code(call("h_repeated", left.node, right.node), STR)
    raise Untranslatable("an operator that is not known for these types")


def _arithmetic(op: ast.operator, left: Code, right: Code) -> Code:
    result = computed(left.type, right.type, is_division=isinstance(op, ast.Div))
    if right.type == INT and _is_neutral(left, op) and not isinstance(op, ast.Sub):
        return right
    if left.type == INT and _is_neutral(right, op):
        return left
    plain = ast.BinOp(left.node, op, right.node)
    match op:
        case ast.Add() | ast.Sub():
            return Code(plain, result)
        case ast.Mult():
            if result == FLOAT or _is_small(left) or _is_small(right):
                return Code(plain, result)
            return Code(
                call("h_bounded" if result == INT else "h_product", *_given(plain, result)), result
            )
        case ast.Div():
            if FLOAT not in (left.type - NONE, right.type - NONE):
                # As floats: Python divides large ints more exactly.
                dividend = ast.BinOp(left.node, ast.Mult(), ast.Constant(1.0))
                plain = ast.BinOp(dividend, ast.Div(), right.node)
            return Code(plain, result)
        case ast.FloorDiv() | ast.Mod() if result == INT:
            return Code(plain, INT)
    raise Untranslatable("an operator that is not known for these types")


def _is_neutral(code: Code, op: ast.operator) -> bool:
    """True if *op* with *code* changes no int: `x + 0`, `x - 0`, `x * 1`."""
    wanted = 1 if isinstance(op, ast.Mult) else 0 if isinstance(op, ast.Add | ast.Sub) else None
    return type(code.value) is int and code.value == wanted


def _given(product: ast.BinOp, result: Value) -> list[ast.expr]:
    return [product] if result == INT else [product.left, product.right]


def _is_small(code: Code) -> bool:
    return type(code.value) is int and abs(code.value) <= _SMALL


# --- comparisons ---------------------------------------------------------------------------------


def compare(here: "Expressions", op: ast.cmpop, left: Code, right: Code) -> Code:
    """`a < b`, `a == b`, `a in b` and the like."""
    if "any" in names(left.type) | names(right.type):
        raise Untranslatable("a comparison of a value of any type")
    match op:
        case ast.Eq():
            return _equal(here, left, right)
        case ast.NotEq():
            return unary(here, ast.Not(), _equal(here, left, right))
        case ast.In():
            return _contains(here, left, right)
        case ast.NotIn():
            return unary(here, ast.Not(), _contains(here, left, right))
        case ast.Lt():
            return _less(left, right, ast.Lt(), ast.GtE())
        case ast.GtE():
            return unary(here, ast.Not(), _less(left, right, ast.Lt(), ast.GtE()))
        case ast.LtE():
            return _less(left, right, ast.LtE(), ast.Gt())
        case ast.Gt():
            return unary(here, ast.Not(), _less(left, right, ast.LtE(), ast.Gt()))
    raise Untranslatable("another comparison")


def _less(left: Code, right: Code, op: ast.cmpop, opposite: ast.cmpop) -> Code:
    a, b = names(left.type) - {"none"}, names(right.type) - {"none"}
    if (a == b == {"int"}) or (a == b == {"str"}):
        return Code(ast.Compare(left.node, [op], [right.node]), BOOL)
    if a <= _NUMBERS and b <= _NUMBERS:
        left, right = _as_float(left, right), _as_float(right, left)
        if left.type == FLOAT and right.type == FLOAT and _is_simple(left) and _is_simple(right):
            # Neither is true of NaN.
            no = ast.IfExp(
                ast.Compare(left.node, [opposite], [right.node]),
                ast.Constant(False),
                call("h_refuse"),
            )
            test = ast.Compare(left.node, [op], [right.node])
            return Code(ast.IfExp(test, ast.Constant(True), no), BOOL)
        is_floats = left.type == right.type == FLOAT
        name = "float_less" if is_floats else "less"
        name = f"h_{name}" if isinstance(op, ast.Lt) else f"h_{name}_or_equal"
        return Code(call(name, left.node, right.node), BOOL)
    raise Untranslatable("an order that is not known for these types")


def _as_float(code: Code, other: Code) -> Code:
    """A small literal int next to a float operand is that float."""
    if other.type == FLOAT and _is_small(code):
        return Code(ast.Constant(float(code.value)), FLOAT)
    return code


def _is_simple(code: Code) -> bool:
    return isinstance(code.node, ast.Name | ast.Constant)


def _equal(here: "Expressions", left: Code, right: Code) -> Code:
    if right.is_known and right.value is None:
        return _is_none(here, left)
    if left.is_known and left.value is None:
        return _is_none(here, right)
    if type(left.value) in _SCALARS and type(right.value) in _SCALARS:
        return here.known(type(left.value) is type(right.value) and left.value == right.value)
    kinds = leaves(here, left.type), leaves(here, right.type)
    check_equality(*kinds)
    if "float" in kinds[0] | kinds[1] and kinds[0] & _NUMBERS and kinds[1] & _NUMBERS:
        return Code(call("h_equal", left.node, right.node), BOOL)
    return Code(ast.Compare(left.node, [ast.Eq()], [right.node]), BOOL)


def _is_none(here: "Expressions", code: Code) -> Code:
    if code.is_known:
        return here.known(code.value is None)
    return Code(ast.Compare(code.node, [ast.Is()], [ast.Constant(None)]), BOOL)


def check_equality(a: set[str], b: set[str]) -> None:
    """Raises unless Python's `==` is Starlark's for values of these kinds, `leaves` of both."""
    if "any" in a | b or ("struct" in a and "struct" in b):
        raise Untranslatable("a comparison of structs")
    if ("bool" in a and b & _NUMBERS) or ("bool" in b and a & _NUMBERS):
        raise Untranslatable("a comparison of a bool with a number")
    if "float" in a | b and a & _NUMBERS and b & _NUMBERS and (a | b) & {"list", "tuple", "dict"}:
        raise Untranslatable("a comparison of lists of floats")


def leaves(here: "Expressions", type_: Value) -> set[str]:
    """The kinds of *type_* and of everything in it; structs are not looked into."""
    found: set[str] = set()
    seen: set[Atom] = set()
    stack = list(type_)
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        found |= names(frozenset({one}))
        if isinstance(one, Items):
            stack.extend(here.shared.item_of(one))
        elif isinstance(one, Map):
            for held in here.shared.pair_of(one):
                stack.extend(held)
        elif isinstance(one, Tuple):
            for held in parts(one):
                stack.extend(held)
    return found


def _contains(here: "Expressions", left: Code, right: Code) -> Code:
    kinds = names(right.type) - {"none"}
    plain = Code(ast.Compare(left.node, [ast.In()], [right.node]), BOOL)
    if right.is_known and left.is_known and type(left.value) is str:
        held = right.value
        if type(held) in (list, tuple) and all(type(item) is str for item in held):
            return here.known(left.value in held)
        if type(held) in (str, dict):
            return here.known(left.value in held)
    if kinds == {"str"}:
        return plain  # anything but a text fails in both
    if kinds == {"dict"}:
        check_key(left)
        return plain
    if kinds and kinds <= {"list", "tuple"}:
        items = here.items(right.type)[0]
        a, b = leaves(here, left.type), leaves(here, items)
        check_equality(a, b)
        if "float" in a | b and a & _NUMBERS and b & _NUMBERS:
            raise Untranslatable("a search among floats")
        return plain
    if not kinds:
        return here.never()
    raise Untranslatable("a search in something else")


def check_key(code: Code) -> None:
    """Raises unless *code* finds the same in a dict in both languages."""
    if not only(code.type, "str", "int", "none"):
        raise Untranslatable("a key that is no text or int")


def has_order(type_: Value) -> bool:
    """True if Python orders values of this type as Starlark does."""
    kinds = names(type_) - {"none"}
    if kinds <= {"int"} or kinds <= {"str"}:
        return True
    if len(type_) == 1:
        (one,) = type_
        return isinstance(one, Tuple) and all(
            has_order(item) and not item >= NONE for item in one.items
        )
    return False
