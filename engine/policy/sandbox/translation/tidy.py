"""Rewrites of translated Python that save time at each node and change nothing else.

Owns three of them: a loop of one trip becomes nested conditions, a constant that no name reads is
not stored, and a call of a function that is one expression becomes that expression. What fails in
Python is left to the interpreter, so what fails first does not matter.
"""

import ast
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

# A larger expression stays a function: what calls it in many places would grow too much.
_MAX_INLINED: Final = 40
_ENDS: Final = (ast.Return, ast.Continue)
_SIMPLE: Final = (ast.Name, ast.Constant)
_SCOPES: Final = (ast.ListComp, ast.DictComp, ast.Lambda)


def once(body: list[ast.stmt]) -> list[ast.stmt]:
    """Python that runs *body* once, where `continue` skips the rest of it."""
    nested = _nested(body)
    if nested is None:
        return [
            ast.For(
                ast.Name("t_once", ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), body, []
            )
        ]
    return nested


def _nested(body: list[ast.stmt]) -> list[ast.stmt] | None:
    """*body* without `continue`; None where one is not at the end of a branch."""
    for place, node in enumerate(body):
        if isinstance(node, ast.Continue):
            return body[:place]
        if not isinstance(node, ast.If) or not _skips(node):
            continue
        rest = body[place + 1 :]
        if isinstance(node.body[-1], _ENDS):
            then, other = _nested(node.body), _nested([*node.orelse, *rest])
        elif node.orelse and isinstance(node.orelse[-1], _ENDS):
            then, other = _nested([*node.body, *rest]), _nested(node.orelse)
        else:
            return None
        if then is None or other is None:
            return None
        return [*body[:place], ast.If(node.test, then or [ast.Pass()], other)]
    return body


def _skips(node: ast.stmt) -> bool:
    """True if *node* has a `continue` of the loop that it is in."""
    if isinstance(node, ast.If):
        return any(map(_skips, [*node.body, *node.orelse]))
    return isinstance(node, ast.Continue)


def without_dead_stores(body: list[ast.stmt]) -> list[ast.stmt]:
    """The body of a function without assignments of constants to names that it never reads."""
    read = {name.id for name in _names(body) if isinstance(name.ctx, ast.Load)}

    def kept(part: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in part:
            if isinstance(node, ast.Assign):
                found += [one for one in _each(node) if not _is_dead(one, read)]
                continue
            if isinstance(node, ast.If | ast.For):
                node.body = kept(node.body) or [ast.Pass()]
                node.orelse = kept(node.orelse)
            if not isinstance(node, ast.Pass):
                found.append(node)
        return found

    return kept(body) or [ast.Pass()]


def _is_dead(node: ast.Assign, read: set[str]) -> bool:
    target = node.targets[0]
    return (
        isinstance(target, ast.Name) and target.id not in read and isinstance(node.value, _SIMPLE)
    )


def _each(node: ast.Assign) -> list[ast.Assign]:
    """`a, b = x, y` as two assignments, if no value reads a name that one before it is given to."""
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return [node]
    given: set[str] = set()
    for one, held in zip(target.elts, value.elts, strict=True):
        if not isinstance(one, ast.Name) or not given.isdisjoint(n.id for n in _names([held])):
            return [node]
        given.add(one.id)
    return [ast.Assign([one], held) for one, held in zip(target.elts, value.elts, strict=True)]


def _names(nodes: Iterable[ast.AST]) -> list[ast.Name]:
    return [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)]


# --- calls ---------------------------------------------------------------------------------------


def can_inline(body: ast.expr, given: Mapping[str, ast.expr]) -> bool:
    """True if *body* with *given* in place of its names is what a call with them gives.

    What is more than a name must be there once, and surely be evaluated: what fails as an argument
    must fail.
    """
    parts = list(ast.walk(body))
    if len(parts) > _MAX_INLINED or any(isinstance(part, _SCOPES) for part in parts):
        return False
    used = [part.id for part in parts if isinstance(part, ast.Name)]
    certain = {name.id for name in _certain(body)}
    return all(
        isinstance(value, _SIMPLE) or (used.count(name) == 1 and name in certain)
        for name, value in given.items()
    )


def _certain(node: ast.expr) -> list[ast.Name]:
    """The names that are read whenever *node* is evaluated."""
    if isinstance(node, ast.Name):
        return [node]
    parts: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.IfExp):
        parts = [node.test]
    elif isinstance(node, ast.BoolOp):
        parts = node.values[:1]
    return [name for part in parts if isinstance(part, ast.expr) for name in _certain(part)]


def binds_names(node: ast.expr) -> bool:
    """True if *node* has `:=` in it."""
    return any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))


def inlined(
    body: ast.expr,
    given: Mapping[str, ast.expr],
    fresh: Callable[[], str],
    made: Callable[[ast.expr, ast.expr], None],
) -> ast.expr:
    """*body* with *given* in place of its names, and other names for what `:=` binds in it.

    *made* is called with each expression of *body* and what it became.
    """
    renamed: dict[str, str] = {}
    for part in ast.walk(body):
        if isinstance(part, ast.NamedExpr):
            renamed[part.target.id] = fresh()

    def copied(node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name):
            value = given.get(node.id)
            return ast.Name(renamed.get(node.id, node.id), node.ctx) if value is None else value
        found = copy.copy(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(found, field, [copied(one) for one in value])
            elif isinstance(value, ast.AST):
                setattr(found, field, copied(value))
        if isinstance(node, ast.expr):
            assert isinstance(found, ast.expr)
            made(node, found)
        return found

    result = copied(body)
    assert isinstance(result, ast.expr)
    return result
