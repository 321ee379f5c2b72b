"""The lint about scores: can `score` return what is not in 0..100?

Reasons with intervals over single expressions. Where values depend on each other (`used / total`),
or on what the function asks (`if x > 100`), nothing can be told this way, and nothing is said.
"""

import ast
from collections.abc import Iterator
from math import inf

from engine.policy.lint.finding import Finding, PolicySource
from engine.policy.lint.types import Scope, Types
from engine.policy.syntax import alternatives, walk

# None: not known.
_Interval = tuple[float, float] | None

_LOWEST, _HIGHEST = 0, 100
_MAX_DEPTH = 12
# Dicts of amounts, and whole numbers of the views, that are never negative; `priority` can be.
_AMOUNTS = frozenset(
    {"requests", "limits", "nonzero_requests", "scoring_requests", "allocatable", "capacity"}
    | {"requested", "nonzero_requested"}
)
_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_COUNTS = frozenset({"pod_count", "created_at", "start_time", "size_bytes", "node_count", "port"})


def lint_scores(source: PolicySource, types: Types) -> Iterator[Finding]:
    """Scores that leave the range, in policies that do not normalize them."""
    function = source.hooks.get("score")
    if function is None or "normalize" in source.hooks:
        return
    reader = _Reader(function, types, types.scope("score"))
    for node in walk(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        for value in alternatives(node.value):
            found = reader.interval(value)
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


class _Reader:
    """The intervals of the expressions of one function."""

    def __init__(self, function: ast.FunctionDef, types: Types, scope: Scope) -> None:
        self._types = types
        self._scope = scope
        # Names that are set exactly once stand for what they are set to.
        stores: dict[str, list[ast.expr | None]] = {}
        for node in walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stores.setdefault(node.id, []).append(None)
        for node in walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if len(stores[name]) == 1:
                    stores[name] = [node.value]
        self._values = {name: v[0] for name, v in stores.items() if len(v) == 1}
        # What is compared by size may be bounded where it is used.
        self._compared = {
            ast.dump(part)
            for node in walk(function)
            if isinstance(node, ast.Compare) and any(isinstance(o, _BOUNDS) for o in node.ops)
            for part in walk(node)
            if isinstance(part, ast.expr) and any(isinstance(n, ast.Name) for n in walk(part))
        }

    def interval(self, node: ast.expr, depth: int = 0) -> _Interval:
        """What *node* may be; None if that cannot be told."""
        if depth > _MAX_DEPTH:
            return None
        deeper = depth + 1
        if isinstance(node, ast.Constant):
            is_number = type(node.value) in (int, float)
            return (node.value, node.value) if is_number else None  # type: ignore[return-value]  # told above
        if ast.dump(node) in self._compared:
            return None
        if isinstance(node, ast.Name):
            value = self._values.get(node.id)
            return None if value is None else self.interval(value, deeper)
        if isinstance(node, ast.Attribute):
            is_int = self._types.of(node, self._scope) in ("int", "int?")
            if not is_int:
                return None
            return (0, inf) if node.attr in _COUNTS else (-inf, inf)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            found = self.interval(node.operand, deeper)
            return None if found is None else (-found[1], -found[0])
        if isinstance(node, ast.IfExp):
            a, b = self.interval(node.body, deeper), self.interval(node.orelse, deeper)
            return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
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
        name = ast.unparse(node.func)
        if name == "len":
            return (0, inf)
        if name == "math.clamp" and len(node.args) == 3:
            bounds = [self.interval(a, depth) for a in node.args[1:]]
            if bounds[0] is None or bounds[1] is None:
                return None
            return (bounds[0][0], bounds[1][1])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            is_amount = ast.unparse(node.func.value).rpartition(".")[2] in _AMOUNTS
            is_int = self._types.of(node, self._scope) == "int"
            return (0, inf) if is_amount and is_int else None
        if name not in ("min", "max") or len(node.args) < 2:
            return None
        found = [self.interval(argument, depth) for argument in node.args]
        known = [interval for interval in found if interval is not None]
        # One side is bounded by a known argument, also where the others are not known.
        if name == "min":
            high = min((k[1] for k in known), default=inf)
            low = min((k[0] for k in known), default=-inf)
            return (low, high) if len(known) == len(found) else self._partly(None, high)
        low = max((k[0] for k in known), default=-inf)
        high = max((k[1] for k in known), default=inf)
        return (low, high) if len(known) == len(found) else self._partly(low, None)

    def _partly(self, low: float | None, high: float | None) -> _Interval:
        """Bounded on one side: the other side is not known, and nothing is said of it."""
        if low is not None and low > _HIGHEST:
            return (low, inf)
        if high is not None and high < _LOWEST:
            return (-inf, high)
        return None
