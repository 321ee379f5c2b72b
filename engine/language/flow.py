"""What variables may be at each place of a function: branches, loops, exits and conditions.

Whoever walks a function binds its variables here as the walk comes to them, and asks here what is
left of that where two ways meet, behind a `return`, in the next round of a loop and where a
condition holds. Inference and translation walk statements with it; what they make of expressions
is their own.
"""

import ast
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from engine.language.syntax import text_of
from engine.language.values import Value, left_by, of_kinds

First = TypeVar("First")
Second = TypeVar("Second")


class _Unknown:
    """No value is known before the function runs."""


UNKNOWN: Final = _Unknown()


class Variable(NamedTuple):
    """What a variable may be at one place, and its value where that is a constant.

    Without `is_bound` it may have none there.
    """

    value: Value
    constant: Any = UNKNOWN
    is_bound: bool = True


Variables: TypeAlias = dict[str, Variable]


@dataclass(slots=True)
class Exits:
    """What variables are where a `continue` or a `break` leaves the body of a loop."""

    continued: Variables | None = None
    broken: Variables | None = None


class Flow:
    """The variables of one function at the place that a walk through it has come to.

    Attributes:
        variables: By name; None where nothing comes to.
        is_exact: False where too much meets: then `variables` does not say what they may be.
        has_type: False if `type` is not the builtin.

    Args:
        join: What is any of two values.
        limit: How many variables are looked at where ways meet.
    """

    def __init__(
        self, join: Callable[[Value, Value], Value] = frozenset.union, limit: float = math.inf
    ) -> None:
        self.variables: Variables | None = {}
        self.is_exact = True
        self._left = limit
        self.has_type = True
        self._join = join
        self._loops: list[Exits] = []

    def bind(self, name: str, value: Value, constant: Any = UNKNOWN) -> None:
        """*name* is set here."""
        if self.variables is not None:
            self.variables = {**self.variables, name: Variable(value, constant)}

    def merged(self, a: Variables | None, b: Variables | None) -> Variables | None:
        """What variables may be where two ways meet."""
        if a is None or b is None:
            return b if a is None else a
        if a is b or not self.is_exact:
            return a
        self._left -= len(a)
        self.is_exact = self._left > 0
        found = {**b, **a}
        for name in [name for name, one in found.items() if b.get(name) is not one]:
            found[name] = self._either(a.get(name), b.get(name))
        for name in b.keys() - a.keys():
            found[name] = self._either(None, b[name])
        return found

    def _either(self, a: Variable | None, b: Variable | None) -> Variable:
        if a is None or b is None:
            one = a or b
            assert one is not None
            return Variable(one.value, UNKNOWN, False)
        is_same = a.constant is not UNKNOWN and same_constant(a.constant, b.constant)
        constant = a.constant if is_same else UNKNOWN
        return Variable(self._join(a.value, b.value), constant, a.is_bound and b.is_bound)

    # --- ways ---------------------------------------------------------------------------------

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is bound or assumed within does not count afterwards."""
        before = self.variables
        try:
            yield
        finally:
            self.variables = before

    def choose(
        self, test: ast.expr, body: Callable[[], First], orelse: Callable[[], Second]
    ) -> tuple[First, Second]:
        """Walk *body* where *test* is true and *orelse* where it is not; what the two give."""
        before = self.variables
        self.assume(test, True)
        first = body()
        after = self.variables
        self.variables = before
        self.assume(test, False)
        second = orelse()
        self.variables = self.merged(after, self.variables)
        return first, second

    def loop(self, head: Variables, body: Callable[[], First]) -> tuple[First, Variables]:
        """Walk the *body* of a loop, whose rounds begin with *head*, and go on behind the loop.

        Returns what *body* gives, and what the next round may begin with: if that is not *head*,
        the loop has to be walked again.
        """
        self.variables = head
        result, exits = self.once(body)
        again = self.merged(head, self.variables)
        assert again is not None
        self.variables = self.merged(again, exits.broken)
        return result, again

    def once(self, body: Callable[[], First]) -> tuple[First, "Exits"]:
        """Walk the *body* of a loop for one round, and go on where the next one would begin."""
        exits = Exits()
        self._loops.append(exits)
        result = body()
        self._loops.pop()
        self.variables = self.merged(exits.continued, self.variables)
        return result, exits

    def end(self) -> None:
        """Nothing comes after this place: a `return`, or what always fails."""
        self.variables = None

    def leave(self, node: ast.Break | ast.Continue) -> bool:
        """A loop, or a round of one, ends here; False outside of a loop."""
        if self._loops:
            loop = self._loops[-1]
            if isinstance(node, ast.Break):
                loop.broken = self.merged(loop.broken, self.variables)
            else:
                loop.continued = self.merged(loop.continued, self.variables)
        self.variables = None
        return bool(self._loops)

    # --- conditions ---------------------------------------------------------------------------

    def assume(self, test: ast.expr, outcome: bool) -> None:
        """From here on *test* was true, or false.

        Follows `x`, `x == None`, `type(x) == "int"`, and `not`, `and`, `or` of these.
        """
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.assume(operand, not outcome)
            case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is outcome:
                for value in values:
                    self.assume(value, outcome)
            case ast.Name(id=name):
                self._narrow(name, lambda value: left_by(value, outcome))
            case ast.Compare() if asked := self.kind_test(test):
                name, kinds, is_one = asked
                self._narrow(name, lambda value: of_kinds(value, kinds, is_one is outcome))

    def kind_test(self, test: ast.Compare) -> tuple[str, frozenset[str], bool] | None:
        """The variable whose kind *test* asks for, the kinds, and False for `!=` and `not in`."""
        match test:
            case ast.Compare(
                left=ast.Name(id=name),
                ops=[ast.Eq() | ast.NotEq() as op],
                comparators=[ast.Constant(value=None)],
            ):
                return name, frozenset({"NoneType"}), isinstance(op, ast.Eq)
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)], keywords=[]),
                ops=[op],
                comparators=[wanted],
            ) if self.has_type and "type" not in (self.variables or {}):
                match op, wanted:
                    case ast.Eq() | ast.NotEq(), ast.Constant(value=str(text)):
                        return name, frozenset({text}), isinstance(op, ast.Eq)
                    case ast.In() | ast.NotIn(), ast.Tuple(elts=items) | ast.List(elts=items):
                        texts = frozenset(t for one in items if (t := text_of(one)) is not None)
                        if len(texts) == len(items):
                            return name, texts, isinstance(op, ast.In)
        return None

    def _narrow(self, name: str, left: Callable[[Value], Value]) -> None:
        known = (self.variables or {}).get(name)
        if self.variables is not None and known is not None and known.constant is UNKNOWN:
            self.variables = {**self.variables, name: known._replace(value=left(known.value))}


def same_constant(a: Any, b: Any) -> bool:
    """True if two constants are surely one."""
    return a is b or (type(a) is type(b) and type(a) in (str, int, bool) and a == b)
