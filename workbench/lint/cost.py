"""Estimates what a hook costs: the loops of one call, and what they go through.

Owns an estimate, not a proof: loops are found in the text, those of called functions included, and
named after what they go through. What the interpreter itself loops over (`sorted`, `in` a list) is
not counted.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.language.hooks import hook_of
from engine.language.resolve import bound_to, parameters_of
from engine.language.syntax import assignments, children, loads_of, number_of, parse, shown, walk
from engine.language.table import Effect, builtins
from engine.policy.sandbox.protocol import Files, Limits
from workbench.lint.finding import Finding, PolicySource

# What `score_all` is given; not to be confused with a variable of that name.
_ALL_NODES: Final = "all nodes"

# Loops inside each other, by what they go through.
Product = tuple[str, ...]

_MAX_DEPTH: Final = 12
_MAX_PRODUCTS: Final = 64
# Calls whose result is named after their first argument, as it has the same elements.
_SAME: Final = frozenset(
    name for name, entry in builtins().items() if entry.effect in (Effect.ELEMENTS, Effect.PAIRS)
)


@dataclass(frozen=True, slots=True)
class HookCost:
    """When a hook is called, and what a call goes through: nested loops, the deepest first."""

    policy: str
    hook: str
    called: str
    loops: tuple[Product, ...]

    def __str__(self) -> str:
        return "; ".join(" x ".join(product) for product in self.loops) or "no loop"


def hook_cost(policy: str, files: Files, module: str, hook: str) -> HookCost:
    """The cost of one hook of *module*. A hook that cannot be read has no loops."""
    walker = _Walker(files)
    found = walker.function(module, hook, {"nodes": _ALL_NODES} if hook == "score_all" else {}, 0)
    maximal = [p for p in found if not any(p != q and _within(p, q) for q in found)]
    order = sorted(maximal, key=lambda p: (-len(p), p))
    return HookCost(policy, hook, hook_of(hook).called, tuple(order))


def lint_cost(source: PolicySource) -> Iterator[Finding]:
    """Loops over nodes where a hook is called for each node, or inside each other."""
    for hook, function in source.hooks.items():
        is_per_node = hook_of(hook).is_per_node
        for product in hook_cost("", source.files, source.file, hook).loops:
            over = [name for name in product if _is_nodes(name)]
            if (is_per_node and over) or len(over) > 1:
                text = f"{hook}() loops over nodes (`{over[0]}`) for each node"
                hint = "ask for counters, or work it out once in `pre_filter` or `pre_score`"
                yield source.finding("node-loop", function, text, hint)
                break


def lint_long_loops(source: PolicySource) -> Iterator[Finding]:
    """Loops that run out of steps, whatever is in them."""
    steps = Limits().steps
    for node in walk(source.tree):
        if isinstance(node, ast.For):
            ways_out = (ast.Break, ast.Return)
            if any(isinstance(part, ways_out) or _fails(part) for part in walk(node)):
                continue
        elif not isinstance(node, ast.comprehension):
            continue
        rounds = _rounds(source, node.iter)
        if rounds > steps:
            text = f"{rounds:,} rounds take more than the {steps:,} steps that a hook has"
            yield source.finding("long-loop", node.iter, text)


def _rounds(source: PolicySource, node: ast.expr) -> int:
    """The length of a `range` of constants, 0 if *node* is no such range."""
    if not isinstance(node, ast.Call) or _called(node) != "range" or node.keywords:
        return 0
    ends = [number_of(source.constants.get(_named(end), end)) for end in node.args]
    whole = [end for end in ends if isinstance(end, int)]
    if not 1 <= len(whole) == len(ends) <= 3 or (len(whole) == 3 and not whole[2]):
        return 0
    numbers = range(*whole)
    # (The length of a range may be more than `len` can say.)
    return max(0, -((numbers.start - numbers.stop) // numbers.step))


def _fails(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _called(node) == "fail"


def _called(node: ast.Call) -> str:
    return _named(node.func)


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_nodes(name: str) -> bool:
    return name == _ALL_NODES or "cluster.node_count" in name


def _within(small: Product, large: Product) -> bool:
    rest = iter(large)
    return all(any(name == other for other in rest) for name in small)


class _Walker:
    """Follows a hook through the functions that it calls."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._homes: dict[str, tuple[Mapping[str, ast.FunctionDef], Mapping[str, tuple[str, str]]]]
        self._homes = {}
        # Helpers that call others several times would be visited once for each way to them.
        self._found: dict[tuple[object, ...], set[Product]] = {}

    def function(
        self, module: str, name: str, given: Mapping[str, str], depth: int
    ) -> set[Product]:
        functions, loads = self._home(module)
        if name in loads:
            return self.function(*loads[name], given, depth + 1) if depth < _MAX_DEPTH else set()
        node = functions.get(name)
        if node is None or depth > _MAX_DEPTH:
            return set()
        key = (module, name, tuple(sorted(given.items())))
        if key in self._found:
            return self._found[key]
        self._found[key] = set()  # what a function that calls itself would add
        names = dict(given)
        for assigned, value in assignments(node):
            names.setdefault(assigned, _name(value, names))
        found: set[Product] = set()
        for statement in node.body:
            found |= self._visit(module, statement, names, depth)
        self._found[key] = found
        return found

    def _home(
        self, module: str
    ) -> tuple[Mapping[str, ast.FunctionDef], Mapping[str, tuple[str, str]]]:
        if module not in self._homes:
            tree = parse(self._files.get(module, "")) or ast.Module([], [])
            functions = {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef)}
            loads = {load.local: (load.module, load.name) for load in loads_of(tree)}
            self._homes[module] = functions, loads
        return self._homes[module]

    def _visit(
        self, module: str, node: ast.AST, names: Mapping[str, str], depth: int
    ) -> set[Product]:
        if isinstance(node, ast.For):
            inner: set[Product] = {()}
            for statement in [*node.body, *node.orelse]:
                inner |= self._visit(module, statement, names, depth)
            found = self._visit(module, node.iter, names, depth)
            return found | self._times(node.iter, inner, names)
        if isinstance(node, ast.ListComp | ast.DictComp):
            parts = [node.elt] if isinstance(node, ast.ListComp) else [node.key, node.value]
            inner = {()}
            for part in [*parts, *(test for g in node.generators for test in g.ifs)]:
                inner |= self._visit(module, part, names, depth)
            found = set()
            for generator in reversed(node.generators):
                inner = self._times(generator.iter, inner, names)
                found |= self._visit(module, generator.iter, names, depth)
            return found | inner
        found = set()
        for child in children(node):
            found |= self._visit(module, child, names, depth)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= self._call(module, node, node.func.id, names, depth)
        return set(list(found)[:_MAX_PRODUCTS])

    def _call(
        self, module: str, node: ast.Call, name: str, names: Mapping[str, str], depth: int
    ) -> set[Product]:
        home, called = module, name
        functions, loads = self._home(module)
        if name in loads:
            home, called = loads[name]
            functions, _ = self._home(home)
        function = functions.get(called)
        if function is None:
            return set()
        arguments = bound_to(parameters_of(function.args), node)
        given = {name: _name(value, names) for name, value in arguments.given.items()}
        return self.function(home, called, given, depth + 1)

    def _times(self, over: ast.expr, inner: set[Product], names: Mapping[str, str]) -> set[Product]:
        if isinstance(over, ast.List | ast.Tuple):
            return inner - {()}  # a fixed number of times
        name = _name(over, names)
        return {(name, *product) for product in inner}


def _name(node: ast.expr, names: Mapping[str, str]) -> str:
    """What to call the values that *node* gives, in the words of the hook's parameters."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, names)}.{node.attr}"
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "keys", "values"):
            return _name(node.func.value, names)
        if isinstance(node.func, ast.Name) and node.func.id in _SAME and node.args:
            return _name(node.args[0], names)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return _name(node.value, names)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return _name(node.values[0], names)
    if isinstance(node, ast.IfExp):
        is_none = isinstance(node.body, ast.Constant) or not ast.unparse(node.body).strip("[]()")
        return _name(node.orelse if is_none else node.body, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_name(node.left, names)} + {_name(node.right, names)}"
    if isinstance(node, ast.ListComp):
        return _name(node.generators[0].iter, names)
    return shown(node)
