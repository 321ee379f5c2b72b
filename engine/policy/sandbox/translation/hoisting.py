"""Hoists what depends on the pod alone out of a translated hook's loop over nodes.

Owns that transformation. An expression moves if it names nothing but what all entries share, under
names that the hook gives to nothing else, and its value is not changed afterwards. Nothing has
effects, so it may be evaluated early and once; if that fails, the caller falls back to the hook as
it was. What each entry would pay for a loop over such a value is paid beforehand, for all of them.
"""

import ast
import copy
from collections.abc import Sequence
from typing import Any

from engine.language.resolve import free_names
from engine.language.values import NONE, Atom, Items, Map, Site, Value
from engine.policy.sandbox.translation.kinds import parts
from engine.policy.sandbox.translation.state import Translation

_TRIVIAL = (ast.Name, ast.Constant)
_MAX_HOISTED = 64


def hoisted(
    body: Sequence[ast.stmt], shared: frozenset[str], translation: Translation
) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The assignments to make beforehand, and *body* with their names in it.

    *shared* are the names of what all entries share.
    """
    mover = _Mover(shared.difference(*map(_bound, body)), translation)
    return mover.before, [mover.statement(statement) for statement in body]


class _Mover:
    def __init__(self, shared: frozenset[str], translation: Translation) -> None:
        self.before: list[ast.stmt] = []
        self._shared = shared
        self._translation = translation
        self._names: dict[str, str] = {}
        self._depth = 0
        self._prepaid = 0

    def statement(self, node: ast.stmt) -> ast.stmt:
        moved: ast.stmt = self._any(node)
        return moved

    def _fields(self, node: Any) -> Any:
        made = copy.copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(made, name, [self._any(item) for item in value])
            else:
                setattr(made, name, self._any(value))
        return made

    def _any(self, node: Any) -> Any:
        if isinstance(node, ast.For):
            return self._loop(node)
        is_whole = isinstance(node, ast.expr) and not isinstance(node, _TRIVIAL)
        if is_whole and node in self._translation.types and self._can_move(node):
            return ast.Name(self._moved(node), ast.Load())
        return self._fields(node) if isinstance(node, ast.AST) else node

    def _loop(self, node: ast.For) -> ast.For:
        """A loop; one that runs once over what is known beforehand is paid for beforehand."""
        items = self._any(node.iter)
        if not self._depth and self._is_known(node.iter, items):
            name = f"p{self._prepaid}"
            self._prepaid += 1
            self.before.append(ast.Assign([ast.Name(name, ast.Store())], items))
            items = ast.Name(name, ast.Load())
        self._depth += 1
        body = [self._any(statement) for statement in node.body]
        self._depth -= 1
        return ast.For(node.target, items, body, [])

    def _is_known(self, before: ast.expr, after: ast.expr) -> bool:
        match before, after:
            case (
                ast.Call(func=ast.Name(id="h_spend"), args=[items, _]),
                ast.Call(args=[ast.Name(id=name), _]),
            ):
                type_ = self._translation.types.get(items)
                return name[0] in "ck" and type_ is not None and not type_ >= NONE
        return False

    def _can_move(self, node: ast.expr) -> bool:
        if len(self._names) >= _MAX_HOISTED:
            return False
        # Variables, and what `:=` binds: in the node itself it is moved with it.
        free = {name for name, _ in free_names(node) if name[0] in "vt"} - _named_in(node)
        if not free <= self._shared:
            return False
        held = _sites(self._translation, self._translation.types[node])
        return not held & self._translation.changed

    def _moved(self, node: ast.expr) -> str:
        text = ast.dump(node)
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"c{len(self._names)}"
            self.before.append(ast.Assign([ast.Name(name, ast.Store())], node))
        return name


def _bound(node: ast.AST) -> set[str]:
    """The names that *node* gives to something, those of comprehensions and lambdas included."""
    return {
        part.arg if isinstance(part, ast.arg) else part.id
        for part in ast.walk(node)
        if isinstance(part, ast.arg) or (isinstance(part, ast.Name) and _is_store(part))
    }


def _named_in(node: ast.AST) -> set[str]:
    """The names that `:=` binds in *node*."""
    return {part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr)}


def _is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _sites(translation: Translation, type_: Value) -> set[Site]:
    """The sites of a value and of all that it holds."""
    found: set[Site] = set()
    seen: set[Atom] = set()
    stack = list(type_)
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        held = [*parts(one)]
        if isinstance(one, Items):
            found |= one.sites
            held.append(translation.item_of(one))
        elif isinstance(one, Map):
            found |= one.sites
            held += translation.pair_of(one)
        for inner in held:
            stack.extend(inner)
    return found
