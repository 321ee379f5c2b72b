"""The lint about scores: whether `score` can return a value outside 0..100.

Reasons with intervals over single expressions, and follows functions of the file. Where values
depend on each other (`used / total`), or are compared somewhere (`if x > 100`), their range is not
known, and nothing is reported.
"""

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from engine.language.resolve import bound_to, parameters_of
from engine.language.syntax import (
    alternatives,
    assignments,
    local_names,
    may_fall_through,
    number_of,
    own_returns,
    set_once,
    stored_names,
    walk,
)
from engine.policy.lint.counts import index_in_counts
from engine.policy.lint.finding import Finding, PolicySource

# None: not known.
_Interval = tuple[float, float] | None

_LOWEST, _HIGHEST = 0, 100
_MAX_DEPTH = 12
_MAX_CALLS = 1000
_MAX_CALLERS = 20  # each takes some frames of this process's stack
# Dicts of amounts, and whole numbers of the views, that are never negative; `priority` can be.
_AMOUNTS = frozenset(
    {"requests", "limits", "nonzero_requests", "scoring_requests", "allocatable", "capacity"}
    | {"requested", "nonzero_requested"}
)
_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
# Arguments of a helper that may be there to choose among its answers.
_FLAGS = (ast.Constant, ast.Name, ast.Compare, ast.BoolOp, ast.UnaryOp)
# Of a counter: how many there are, here and in the domains.
_COUNTED = frozenset({"here", "min", "max", "total"})
_COUNTS = frozenset({"pod_count", "created_at", "start_time", "size_bytes", "node_count", "port"})


def lint_scores(source: PolicySource) -> Iterator[Finding]:
    """Scores that leave the range, in policies that do not normalize them."""
    function = source.hooks.get("score")
    if function is None or "normalize" in source.hooks:
        return
    file = _File(source)
    for value, found in _Reader(file, function, {}).answers():
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


class _File:
    """What the functions of one file have in common."""

    def __init__(self, source: PolicySource) -> None:
        self.functions: Final = source.functions
        self.types: Final = source.types
        #: How often a helper is looked into yet: each call of one is, in each of its callers.
        self.calls_left = _MAX_CALLS
        # What any function compares by size may be bounded in the others: a filter may have left
        # the node out, and a helper is given what its caller has asked for.
        self.compared: Final = {
            path
            for function in source.functions.values()
            for part in itertools.chain(_compared(function), _behind(function))
            if (path := _path(part))
        }
        #: What a counter counts is 0 or any number above.
        self.counts_are_plain: Final = _counts_plainly(source.tree)
        values: dict[str, list[ast.expr]] = {}
        for statement in source.tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                values.setdefault(statement.targets[0].id, []).append(statement.value)
        #: The numbers of the top level.
        self.constants: Final = {
            name: number
            for name, found in values.items()
            if len(found) == 1 and (number := number_of(found[0])) is not None
        }


def _counts_plainly(tree: ast.AST) -> bool:
    """Whether the file has counters of pods, none of them weighed or bounded, and no others."""
    calls = [
        node
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("count_pods", "count_terms")
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


class _Reader:
    """The intervals of the expressions of one function.

    Args:
        file: Where it is.
        function: One that `score` comes to.
        given: What its parameters may be, as far as that is known.
        callers: The functions on the way to it.
    """

    def __init__(
        self,
        file: _File,
        function: ast.FunctionDef,
        given: Mapping[str, _Interval],
        callers: frozenset[str] = frozenset(),
    ) -> None:
        self._file = file
        self.function = function
        self._types = file.types
        self._callers = callers | {function.name}
        self._locals = set(local_names(function))
        stores = set(stored_names(function))
        self._given = {name: found for name, found in given.items() if name not in stores}
        # Names that are set exactly once stand for what they are set to.
        self._values = set_once(function)
        # What is compared by size may be bounded where it is used.
        self._compared = {ast.dump(part) for part in _compared(function)}

    def answers(self) -> Iterator[tuple[ast.expr, _Interval]]:
        """Each value that the function returns, and what it may be; helpers are followed."""
        for node in own_returns(self.function):
            for value in alternatives(node.value) if node.value is not None else ():
                inner = self._inner(value, 0)
                if inner is None:
                    yield value, self.interval(value)
                else:
                    yield from inner.answers()

    def _inner(self, node: ast.expr, depth: int) -> "_Reader | None":
        """The reader of the function of the file that *node* calls; None if it calls none."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        name = node.func.id
        function = self._file.functions.get(name)
        if function is None or name in self._locals or name in self._callers:
            return None
        if not self._file.calls_left or len(self._callers) > _MAX_CALLERS:
            return None
        self._file.calls_left -= 1
        parameters = parameters_of(function.args)
        arguments = bound_to(parameters, node)
        if arguments.is_open:
            return None
        given = {**parameters.defaults, **arguments.given}
        if _asks_for(function, {n for n, value in given.items() if isinstance(value, _FLAGS)}):
            return None  # which of its answers this call can get is not known
        known = {one: self.interval(value, depth + 1) for one, value in arguments.given.items()}
        return _Reader(self._file, function, known, self._callers)

    def interval(self, node: ast.expr, depth: int = 0) -> _Interval:
        """What *node* may be; None if that is not known."""
        if depth > _MAX_DEPTH:
            return None
        deeper = depth + 1
        if isinstance(node, ast.Constant):
            is_number = type(node.value) in (int, float)
            return (node.value, node.value) if is_number else None  # type: ignore[return-value]  # checked above
        if ast.dump(node) in self._compared or _path(node) in self._file.compared:
            return None
        if isinstance(node, ast.Name):
            value = self._values.get(node.id)
            if value is not None:
                return self.interval(value, deeper)
            number = self._file.constants.get(node.id) if node.id not in self._locals else None
            return self._given.get(node.id) if number is None else (number, number)
        if isinstance(node, ast.Attribute):
            if node.attr in _COUNTED and index_in_counts(node.value) is not None:
                return (0, inf) if self._file.counts_are_plain else None
            is_int = self._types.of(node) in ("int", "int?")
            if not is_int:
                return None
            return (0, inf) if node.attr in _COUNTS else (-inf, inf)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            found = self.interval(node.operand, deeper)
            return None if found is None else (-found[1], -found[0])
        if isinstance(node, ast.IfExp):
            return _either(self.interval(node.body, deeper), self.interval(node.orelse, deeper))
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            return _either((0, 0), self.interval(node.values[-1], deeper))
        if isinstance(node, ast.BoolOp):
            return functools.reduce(_either, [self.interval(v, deeper) for v in node.values])
        if isinstance(node, ast.BinOp):
            return self._operation(node, deeper)
        return self._call(node, deeper) if isinstance(node, ast.Call) else None

    def _operation(self, node: ast.BinOp, depth: int) -> _Interval:
        a, b = self.interval(node.left, depth), self.interval(node.right, depth)
        if b is None:
            return None
        is_constant = b[0] == b[1]
        if isinstance(node.op, ast.Mod) and is_constant and b[0] > 0:
            return (0, b[0] - 1)
        if a is None or not (is_constant or a[0] == a[1]):
            return None  # the two may depend on each other
        if isinstance(node.op, ast.Add):
            return (a[0] + b[0], a[1] + b[1])
        if isinstance(node.op, ast.Sub):
            return (a[0] - b[1], a[1] - b[0])
        if isinstance(node.op, ast.Mult):
            corners = [0 if 0 in (x, y) else x * y for x in a for y in b]
            return (min(corners), max(corners))
        if isinstance(node.op, ast.FloorDiv) and is_constant and b[0] > 0:
            return tuple(x if x in (inf, -inf) else x // b[0] for x in a)  # type: ignore[return-value]  # two of them
        return None

    def _call(self, node: ast.Call, depth: int) -> _Interval:
        inner = self._inner(node, depth)
        if inner is not None:
            return _joined(inner)
        known = self._types.builtin(node)
        if known is not None and known.bounds is not None:
            return known.bounds
        name = ast.unparse(node.func)
        if name == "math.clamp" and len(node.args) == 3:
            bounds = [self.interval(a, depth) for a in node.args[1:]]
            if bounds[0] is None or bounds[1] is None:
                return None
            return (bounds[0][0], bounds[1][1])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            is_amount = ast.unparse(node.func.value).rpartition(".")[2] in _AMOUNTS
            is_int = self._types.of(node) == "int"
            return (0, inf) if is_amount and is_int else None
        if name not in ("min", "max") or len(node.args) < 2:
            return None
        found = [self.interval(argument, depth) for argument in node.args]
        certain = [interval for interval in found if interval is not None]
        # One side is bounded by a known argument, also where the others are not known.
        if name == "min":
            high = min((one[1] for one in certain), default=inf)
            low = min((one[0] for one in certain), default=-inf)
            return (low, high) if len(certain) == len(found) else self._partly(None, high)
        low = max((one[0] for one in certain), default=-inf)
        high = max((one[1] for one in certain), default=inf)
        return (low, high) if len(certain) == len(found) else self._partly(low, None)

    def _partly(self, low: float | None, high: float | None) -> _Interval:
        """Bounded on one side: the other side is not known, and nothing is said of it."""
        if low is not None and low > _HIGHEST:
            return (low, inf)
        if high is not None and high < _LOWEST:
            return (-inf, high)
        return None


def _either(a: _Interval, b: _Interval) -> _Interval:
    """What may be either; None if one is not known."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _joined(reader: _Reader) -> _Interval:
    """What a call of a helper may give; None if one of its answers is not known."""
    if may_fall_through(reader.function.body):
        return None
    found = [interval for _, interval in reader.answers()]
    return functools.reduce(_either, found) if found else None


def _asks_for(function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether *function* has a condition on one of *names* itself, not on a field of it."""
    tests = [n.test for n in walk(function) if isinstance(n, ast.If | ast.IfExp)]
    return any(
        isinstance(part, ast.Name) and part.id in names for test in tests for part in walk(test)
    )
