"""Rewrites of translated Python that save time at each node and change nothing else.

Owns two of them: a loop of one trip becomes nested conditions, and a constant is not stored under a
name that is never read. What fails in Python is left to the interpreter, so what fails first does
not matter.
"""

import ast
from collections.abc import Iterable
from typing import Final

_ENDS: Final = (ast.Return, ast.Continue)
_SIMPLE: Final = (ast.Name, ast.Constant)


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
    """*body* without `continue`; None if one is somewhere else than at the end of a branch."""
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
    """`a, b = x, y` as two assignments, unless `y` reads `a`."""
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
