"""Which attribute names a hook can come upon at all.

Owns coarse questions that need no data flow: a field whose name is written nowhere in what a hook
can run is not read by it. Used for the fields of counters, and of ranges of scores.
"""

import ast
import functools
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

from engine.policy.evaluator import Files
from engine.policy.syntax import is_load, loads_of, parse, text_of


def attributes_read(files: Files, module: str, hook: str) -> frozenset[str] | None:
    """Every attribute name that *hook* of *module* can come upon; None if that cannot be told.

    A file may not parse, or take an attribute by a name that is no constant.
    That is what is written in the function, in what it names, in what that names, and so on, in
    *module* and the files that it loads: nothing else can run when the hook is called.
    """
    attributes: set[str] = set()
    seen: set[tuple[str, str]] = set()
    todo = [(module, hook)]
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        path, name = place
        definitions = _definitions(files.get(path, ""))
        if definitions is None:
            return None
        for found in (definitions.get(name), definitions.get(_ALWAYS)):
            if found is None:
                continue
            if _ANY in found.attributes:
                return None
            attributes |= found.attributes
            todo += [(path, other) for other in found.names if other in definitions]
            todo += [(load, original) for load, original in found.loads]
    return frozenset(attributes)


@functools.lru_cache(maxsize=512)
def range_reads(text: str) -> frozenset[str] | None:
    """The attributes that `normalize` in *text* reads of `over`; None if that is not plain.

    It is plain where every mention of `over` is `over.something`: the range goes nowhere else.
    """
    tree = parse(text)
    if tree is None:
        return None
    hooks = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef) and statement.name == "normalize"
    ]
    if len(hooks) != 1:
        return None
    inside = list(ast.walk(hooks[0]))
    mentions = {n for n in inside if isinstance(n, ast.Name) and n.id == "over"}
    read = [n for n in inside if isinstance(n, ast.Attribute) and n.value in mentions]
    if len(read) != len(mentions) or any(not isinstance(n.ctx, ast.Load) for n in read):
        return None
    return frozenset(n.attr for n in read)


# Among attributes: the name of one is computed, so it may be any.
_ANY: Final = "\0"

# The name of the statements of a file that define nothing.
_ALWAYS: Final = ""


class _Definition(NamedTuple):
    """What is written in the definitions of a name: attributes, names, and names of other files."""

    attributes: frozenset[str]
    names: frozenset[str]
    loads: frozenset[tuple[str, str]]


# Kept by text: the files that a new revision has in common with the last one are not read again.
@functools.lru_cache(maxsize=512)
def _definitions(text: str) -> Mapping[str, _Definition] | None:
    """The definitions in one file by name; None if it does not parse."""
    tree = parse(text)
    if tree is None:
        return None
    written: dict[str, list[ast.AST]] = {}
    for statement in tree.body:
        for name in _defined(statement):
            written.setdefault(name, []).append(statement)
    texts = _texts(tree)
    found = {name: _definition(statements, texts) for name, statements in written.items()}
    for load in loads_of(tree):
        known = found.get(load.local, _Definition(frozenset(), frozenset(), frozenset()))
        found[load.local] = known._replace(loads=known.loads | {(load.module, load.name)})
    return found


def _defined(statement: ast.stmt) -> Iterable[str]:
    """The names that a statement of a file gives a value to, or adds something to."""
    if isinstance(statement, ast.FunctionDef):
        return (statement.name,)
    if isinstance(statement, ast.Expr) and is_load(statement.value):
        return ()
    if isinstance(statement, ast.Assign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        return names or (_ALWAYS,)
    return (_ALWAYS,)


def _definition(statements: Iterable[ast.AST], texts: Container[str]) -> _Definition:
    attributes: set[str] = set()
    names: set[str] = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.Name):
                names.add(node.id)
            elif _takes_any(node, texts):
                attributes.add(_ANY)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                attributes.add(node.value)  # getattr(count, "min") and the like
    return _Definition(frozenset(attributes), frozenset(names), frozenset())


def _takes_any(node: ast.AST, texts: Container[str]) -> bool:
    """True for `getattr(x, name)` where the name is neither written there nor one of *texts*."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and not all(
            isinstance(each, ast.Constant) or (isinstance(each, ast.Name) and each.id in texts)
            for each in node.args[1:2]
        )
    )


def _texts(tree: ast.Module) -> frozenset[str]:
    """The names of a file that are given a text, and nothing else."""
    given = [s for s in tree.body if isinstance(s, ast.Assign) and text_of(s.value) is not None]
    named = [target.id for s in given for target in s.targets if isinstance(target, ast.Name)]
    every = Counter(name for statement in tree.body for name in _defined(statement))
    return frozenset(name for name in named if every[name] == 1)
