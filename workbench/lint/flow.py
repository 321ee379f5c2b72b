"""Lints about control flow: unreachable code, the order of maps, varying reasons."""

import ast
import itertools
from collections.abc import Iterator

from engine.language.syntax import ends, local_names, set_once, stored_names, text_of, walk
from engine.policy.views import VIEWS
from workbench.lint.finding import Finding, PolicySource, blocks

# The hook whose reasons are counted over nodes.
_COUNTED = "filter"
_CONSTANT = "return a constant; details belong into an annotation or a log"


def lint_flow(source: PolicySource) -> Iterator[Finding]:
    """Unreachable statements, results that follow the order of a map, varying reasons."""
    for block in blocks(source.tree):
        for before, statement in itertools.pairwise(block):
            if ends(before):
                yield source.finding("unreachable", statement, "never reached")
                break
    for function in source.functions.values():
        yield from _orders(source, function)
    if _COUNTED in source.hooks:
        yield from _reasons(source, _COUNTED, source.hooks[_COUNTED])


# --- order ---------------------------------------------------------------------------------------


def _orders(source: PolicySource, function: ast.FunctionDef) -> Iterator[Finding]:
    hint = "sort it: `sorted(...)`; the API promises no order"
    once = set_once(function)
    for node in walk(function):
        if isinstance(node, ast.For):
            shown = _map(source, node.iter)
            if shown and _decides(node):
                text = f"the first of `{shown}` decides, and its order means nothing"
                yield source.finding("map-order", node, text, hint)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if isinstance(node.value, ast.Attribute):
                continue  # a key of a map
            shown = _map(source, _listed(once, node.value))
            if shown and type(node.slice.value) is int:
                text = f"takes one of `{shown}` by its place, and its order means nothing"
                yield source.finding("map-order", node, text, hint)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_join = node.func.attr == "join" and text_of(node.func.value) is not None
            shown = _map(source, _listed(once, node.args[0])) if is_join and node.args else ""
            if shown:
                text = f"joins `{shown}` as they come, and their order means nothing"
                yield source.finding("map-order", node, text, hint)


def _listed(once: dict[str, ast.expr], node: ast.expr) -> ast.expr:
    """What *node* has the elements of, in the order in which they come."""
    if isinstance(node, ast.Name):
        node = once.get(node.id, node)
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in ("list", "tuple"):
        return node.args[0]
    return node


def _map(source: PolicySource, node: ast.expr) -> str:
    """The map of a view that *node* goes through, as it is written, else ""."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("items", "keys", "values")
        and not node.args
    ):
        node = node.func.value
    if not isinstance(node, ast.Attribute | ast.Name):
        return ""
    return ast.unparse(node) if source.types.of(node).startswith("dict[") else ""


def _decides(loop: ast.For) -> bool:
    """True if what the loop gives first is returned, or kept when it breaks off."""
    names = set(stored_names(loop.target))
    for_one = _for_one_key(loop, names)
    for node in _own(loop):
        if not isinstance(node, ast.Return) or id(node) in for_one:
            continue
        if node.value is not None and _uses(node.value, names):
            return True
    for block in blocks(loop):
        if isinstance(block[-1], ast.Break) and id(block[-1]) not in for_one:
            kept = [statement for statement in block if isinstance(statement, ast.Assign)]
            if any(_uses(statement.value, names) for statement in kept):
                return True
    return False


def _for_one_key(loop: ast.For, names: set[str]) -> set[int]:
    """What is done for one key alone, as in `if key == "disk":`: a map has it once at most."""
    target: ast.expr | None = loop.target
    method = loop.iter.func if isinstance(loop.iter, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr == "values":
        return set()
    if isinstance(target, ast.Tuple | ast.List):
        target = target.elts[0] if target.elts else None
    found: set[int] = set()
    for node in _own(loop):
        if isinstance(node, ast.If) and isinstance(target, ast.Name):
            tests = [node.test]
            if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
                tests = node.test.values
            if any(_is_one(test, target.id, names) for test in tests):
                found |= {id(part) for statement in node.body for part in walk(statement)}
    return found


def _is_one(test: ast.expr, key: str, names: set[str]) -> bool:
    """Whether *test* says that *key* equals what is the same in every round."""
    if not isinstance(test, ast.Compare) or [type(one) for one in test.ops] != [ast.Eq]:
        return False
    sides = [test.left, test.comparators[0]]
    return any(
        isinstance(one, ast.Name) and one.id == key and not _uses(other, names)
        for one, other in (sides, sides[::-1])
    )


def _own(loop: ast.For) -> Iterator[ast.AST]:
    for statement in loop.body:
        yield from walk(statement)


def _uses(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in walk(node))


# --- reasons -------------------------------------------------------------------------------------


def _reasons(source: PolicySource, hook: str, function: ast.FunctionDef) -> Iterator[Finding]:
    own = set(local_names(function))
    for node in walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from _reason(source, hook, node.value, own)


def _reason(source: PolicySource, hook: str, node: ast.expr, own: set[str]) -> Iterator[Finding]:
    if isinstance(node, ast.IfExp):
        yield from _reason(source, hook, node.body, own)
        yield from _reason(source, hook, node.orelse, own)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("unresolvable", "reject"):
            for argument in [*node.args, *(k.value for k in node.keywords)]:
                yield from _reason(source, hook, argument, own)
    elif isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _reason(source, hook, element, own)
    elif _is_built(node) and _uses(node, own):
        # (What is made of arguments and constants alone is the same for every pod and node.)
        text = f"{hook}() puts a reason together: reasons are counted over nodes"
        yield source.finding("varying-reason", node, text, _CONSTANT)
    elif _is_name(node):
        text = f"{hook}() returns a name as the reason: reasons are counted over nodes"
        yield source.finding("varying-reason", node, text, _CONSTANT)


def _is_name(node: ast.expr) -> bool:
    """Whether it is the name of the pod or of the node, or another text that only it has."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
        return False
    field = VIEWS.get(node.value.id, {}).get(node.attr)
    return field is not None and field.type == "str" and bool(field.instead)


def _is_built(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(value, ast.FormattedValue) for value in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "format" and text_of(node.func.value) is not None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        sides = (text_of(node.left), text_of(node.right))
        is_mod = isinstance(node.op, ast.Mod)
        if is_mod:
            return sides[0] is not None
        return (sides[0] is None) != (sides[1] is None)
    return False
