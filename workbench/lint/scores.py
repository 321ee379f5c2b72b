"""The lint about scores: whether `score` can return a value outside 0..100.

Gives the numbers of the inference a range. Where values depend on each other (`used / total`), or
are compared somewhere (`if x > 100`), their range is not known, and nothing is reported.
"""

import ast
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from engine.language.evaluate import Scope
from engine.language.infer import Inference
from engine.language.modules import World
from engine.language.resolve import bound_to, parameters_of
from engine.language.syntax import alternatives, assignments, number_of, own_returns, walk
from engine.language.table import Builtin, builtins
from engine.language.values import NONE, Function, Plain, Value, type_of
from engine.policy.view_fields import RECORDS
from engine.policy.views import SCHEMA, VIEWS
from workbench.lint.counts import index_in_counts
from workbench.lint.finding import Finding, PolicySource

# None: not known.
_Range = tuple[float, float] | None
# A function, and its variables for some arguments.
_Called = tuple[Function, Scope]

_LOWEST, _HIGHEST = 0, 100
_NUMBERS = ("int", "int?")
_RECORD_FIELDS = tuple((n, t) for record in RECORDS.values() for n, (t, _) in record.items())
_VIEW_FIELDS = tuple((n, field) for view in VIEWS.values() for n, field in view.items())
# Dicts of amounts, which are never negative.
_AMOUNTS = frozenset(
    name
    for name, type_ in (*_RECORD_FIELDS, *((n, field.type) for n, field in _VIEW_FIELDS))
    if type_ == "dict[str, int]"
)
_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
# Arguments of a helper that may be there to choose among its answers.
_FLAGS = (ast.Constant, ast.Name, ast.Compare, ast.BoolOp, ast.UnaryOp)
# Of a counter: how many there are, here and in the domains.
_COUNTED = frozenset({"here", "min", "max", "total"})
# Whole numbers that are never negative.
_COUNTS = frozenset(
    [name for name, type_ in _RECORD_FIELDS if type_ in _NUMBERS]
    + [name for name, field in _VIEW_FIELDS if field.type in _NUMBERS]
) - {name for name, field in _VIEW_FIELDS if field.can_be_negative}


def lint_scores(source: PolicySource) -> Iterator[Finding]:
    """Scores that leave the range, in policies that do not normalize them."""
    function = source.hooks.get("score")
    if function is None or "normalize" in source.hooks:
        return
    with contextlib.closing(World({source.file: source.text}, SCHEMA)) as world:
        answers = _Ranges(world, source).answers()
    for value, found in answers:
        if found is None or _LOWEST <= found[0] <= found[1] <= _HIGHEST:
            continue
        is_outside = found[1] < _LOWEST or found[0] > _HIGHEST
        hint = "clamp it, `math.clamp(x, 0, 100)`, or add `normalize(score, over)`"
        text = f"the score can be {_shown(found)}, want 0..100"
        yield source.finding("score-range", value, text, hint, is_error=is_outside)


def _shown(found: tuple[float, float]) -> str:
    low, high = found
    if low == high:
        return f"{low:g}"
    if low < _LOWEST and high > _HIGHEST:
        return "negative or over 100"
    if low < _LOWEST:
        return "negative" if low == -inf else f"{low:g}"
    return "any number over 100" if high == inf else f"{high:g}"


@dataclass(frozen=True, slots=True)
class _Ranged(Plain):
    """A number of which each value from *low* to *high* is taken to be possible."""

    low: float
    high: float


class _Ranges(Inference):
    """The ranges of the expressions that `score` comes to, by function and its arguments."""

    def __init__(self, world: World, source: PolicySource) -> None:
        super().__init__(world)
        self._source = source
        self._found: dict[tuple[Scope, ast.expr], _Range] = {}
        # By call what is called; and what was walked last.
        self._called: dict[tuple[Scope, ast.expr], _Called] = {}
        self._last: _Called | None = None
        functions = source.functions.values()
        # What any function compares by size may be bounded in the others: a filter may have left
        # the node out, and a helper is given what its caller has asked for.
        paths = {
            path
            for function in functions
            for part in itertools.chain(_compared(function), _behind(function))
            if (path := _path(part))
        }
        self._open: Final = {
            node
            for function in functions
            for texts in [{ast.dump(part) for part in _compared(function)}]
            for node in walk(function)
            if isinstance(node, ast.expr) and (_path(node) in paths or ast.dump(node) in texts)
        }
        # What a counter counts is 0 or any number above.
        self._counts_are_plain: Final = _counts_plainly(source.tree)

    def answers(self) -> list[tuple[ast.expr, _Range]]:
        """Each value that `score` returns, and what it may be; helpers are followed."""
        hook = self._source.hooks["score"]
        self.enter_hook(self._source.file, "score", parameters_of(hook.args).named)
        if self.is_too_much or self._last is None or self._last[0].node is not hook:
            return []
        return [*self._answers(*self._last)]

    def _answers(self, function: Function, scope: Scope) -> Iterator[tuple[ast.expr, _Range]]:
        assert isinstance(function.node, ast.FunctionDef)
        for node in own_returns(function.node):
            for value in alternatives(node.value) if node.value is not None else ():
                inner = self._called.get((scope, value))
                if inner is None:
                    yield value, self._found.get((scope, value))
                else:
                    yield from self._answers(*inner)

    def evaluate(self, scope: Scope, node: ast.expr) -> Value:
        """What *node* may give."""
        value = super().evaluate(scope, node)
        found = None if node in self._open else self._range(scope, node, value)
        self._found[scope, node] = found
        return _with(value, found)

    def _key(self, function: Function, bound: Mapping[str, Value]) -> object:
        return (function, *bound.values())

    def _walk_function(self, function: Function, bound: Mapping[str, Value]) -> Value:
        value = super()._walk_function(function, bound)
        context = self._contexts.get(self._key(function, bound))
        self._last = None if context is None else (function, context.scope)
        return value

    def _kept(self, scope: Scope, name: str, value: Value) -> Value:
        last = scope.grown.get(name, (0, self._pass))[1]
        if last != self._pass and not value <= scope.values[name]:
            value = _with(value, None)  # it grows in a loop
        return super()._kept(scope, name, value)

    def _range(self, scope: Scope, node: ast.expr, value: Value) -> _Range:
        match node:
            case ast.Constant():
                number = number_of(node)
                return None if number is None else (number, number)
            case ast.Name(id=name) if self._lookup(scope, name) is scope.module.value(name):
                # Of the top level.
                (number, *others) = map(number_of, scope.module.assigned.get(name, [node]))
                return None if number is None or others else (number, number)
            case ast.Attribute(value=owner, attr=name):
                if name in _COUNTED and index_in_counts(owner) is not None:
                    return (0, inf) if self._counts_are_plain else None
                if type_of(value, SCHEMA) in _NUMBERS:
                    return (0, inf) if name in _COUNTS else (-inf, inf)
                return None
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = self._found[scope, operand]
                return None if found is None else (-found[1], -found[0])
            case ast.BoolOp(op=ast.And(), values=[*_, last]):
                return _either((0, 0), self._found.get((scope, last)))
            case ast.BinOp(left=left, op=op, right=right):
                return _arithmetic(op, self._found[scope, left], self._found[scope, right])
            case ast.Call():
                return self._call_range(scope, node, value)
        return _hull(value)

    def _call_range(self, scope: Scope, node: ast.Call, value: Value) -> _Range:
        known = self._source.types.builtin(node)
        if known is not None:
            return self._builtin(scope, node, known)
        if isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).rpartition(".")[2]
            is_amount = node.func.attr == "get" and owner in _AMOUNTS
            return (0, inf) if is_amount and type_of(value, SCHEMA) == "int" else None
        if self._last is None or super().evaluate(scope, node.func) != {self._last[0]}:
            return None
        if not _is_followed(node, self._last[0]):
            return None
        self._called[scope, node] = self._last
        return None if value >= NONE else _hull(value)

    def _builtin(self, scope: Scope, node: ast.Call, known: Builtin) -> _Range:
        ranges = [self._found.get((scope, one)) for one in node.args]
        if known.name not in ("min", "max", "math.clamp") or len(ranges) < 2:
            return known.bounds
        if known.name == "math.clamp":
            least, most = ranges[1], ranges[-1]
            return None if least is None or most is None else (least[0], most[1])
        certain = [one for one in ranges if one is not None]
        if not certain:
            return None
        # One side is bounded by a known argument, also where the others are not known.
        of: Callable[..., float] = min if known.name == "min" else max
        low, high = of(one[0] for one in certain), of(one[1] for one in certain)
        if len(certain) == len(ranges):
            return (low, high)
        if of is min:
            return (-inf, high) if high < _LOWEST else None
        return (low, inf) if low > _HIGHEST else None


def _with(value: Value, found: _Range) -> Value:
    """*value* with this range."""
    if found is None:
        return frozenset(Plain(a.type) if isinstance(a, _Ranged) else a for a in value)
    types = {a.type for a in value - NONE if isinstance(a, Plain)} or {"number"}
    return value & NONE | {_Ranged(one, *found) for one in types}


def _hull(value: Value) -> _Range:
    found = [(a.low, a.high) if isinstance(a, _Ranged) else None for a in value - NONE]
    return functools.reduce(_either, found) if found else None


def _either(a: _Range, b: _Range) -> _Range:
    """What may be either; None if one is not known."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _arithmetic(op: ast.operator, a: _Range, b: _Range) -> _Range:
    if b is None:
        return None
    is_constant = b[0] == b[1]
    if isinstance(op, ast.Mod) and is_constant and b[0] > 0:
        return (0, b[0] - 1)
    if a is None or not (is_constant or a[0] == a[1]):
        return None  # the two may depend on each other
    match op:
        case ast.Add():
            return (a[0] + b[0], a[1] + b[1])
        case ast.Sub():
            return (a[0] - b[1], a[1] - b[0])
        case ast.Mult():
            corners = [0 if 0 in (x, y) else x * y for x in a for y in b]
            return (min(corners), max(corners))
        case ast.FloorDiv() if is_constant and b[0] > 0:
            low, high = (x if x in (inf, -inf) else x // b[0] for x in a)
            return (low, high)
    return None


_COUNTER_MAKERS: Final = frozenset(
    name for name, one in builtins().items() if one.result == "counter"
)


def _counts_plainly(tree: ast.AST) -> bool:
    """Whether the file has counters of pods, none of them weighed or bounded, and no others."""
    calls = [
        node
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _COUNTER_MAKERS
    ]
    names = {keyword.arg for call in calls for keyword in call.keywords}
    return (
        bool(calls)
        and all(ast.unparse(call.func) == "count_pods" and len(call.args) <= 4 for call in calls)
        and not names & {"weight", "up_to", None}
    )


def _compared(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What *function* compares by size, and the parts of it, where there is a name in it."""
    for node in walk(function):
        if isinstance(node, ast.Compare) and any(isinstance(o, _BOUNDS) for o in node.ops):
            for part in walk(node):
                if isinstance(part, ast.expr) and any(isinstance(n, ast.Name) for n in walk(part)):
                    yield part


def _behind(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What the names are set to that *function* compares by size, and the parts of that."""
    names = {part.id for part in _compared(function) if isinstance(part, ast.Name)}
    for name, value in assignments(function):
        if name in names:
            yield from (part for part in walk(value) if isinstance(part, ast.expr))


def _path(node: ast.expr) -> str:
    """The field or entry that *node* is, by whatever name its owner goes; else ""."""
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript):
        return f"{_path(node.value)}[{ast.unparse(node.slice)}]"
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return f"{_path(node.func.value)}[{ast.unparse(node.args[0])}]"
    inner = _path(node.args[0]) if ast.unparse(node.func) == "len" else ""
    return f"len({inner})" if inner else ""


def _is_followed(node: ast.Call, function: Function) -> bool:
    """Whether it is known which of its answers this call of *function* can get."""
    if not isinstance(function.node, ast.FunctionDef):
        return False
    parameters = parameters_of(function.node.args)
    arguments = bound_to(parameters, node)
    given = {**parameters.defaults, **arguments.given}
    flags = {name for name, value in given.items() if isinstance(value, _FLAGS)}
    return not arguments.is_open and not _asks_for(function.node, flags)


def _asks_for(function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether *function* has a condition on one of *names* itself, not on a field of it."""
    tests = [n.test for n in walk(function) if isinstance(n, ast.If | ast.IfExp)]
    return any(
        isinstance(part, ast.Name) and part.id in names for test in tests for part in walk(test)
    )
