"""Starlark source as Python's syntax trees: parsing it safely, and what the tree shows directly.

Starlark parses with Python's `ast`. Owns the bounds within which text is parsed in this process,
and the facts that need no data flow: loads, names, returns.
"""

import ast
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.lib.syntax_tree import syntax_tree

# Deeper text could exhaust the interpreter's native stack while it is parsed.
MAX_DEPTH: Final = 500
_MAX_LOGICAL_LINE: Final = 2_000
_MAX_BRACKETS: Final = 100


# More than a bundle and the shipped files are: what looks at each of them for each of them, in
# turn, would find none of them in a cache that holds one less.
@lru_cache(maxsize=1024)
def parse(text: str) -> ast.Module | None:
    """Python's syntax tree of Starlark *text*; None where the languages differ."""
    try:
        tree = syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if depth_of(tree) <= MAX_DEPTH else None


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The statements and expressions directly under *node*.

    As `ast.iter_child_nodes`, several times as fast: operators and contexts are left out.
    """
    for name in _HOLDING[type(node)]:
        value = getattr(node, name, None)
        if type(value) is list:
            for item in value:
                if isinstance(item, ast.AST):
                    yield item
        elif isinstance(value, ast.AST):
            yield value


# Fields that hold text, numbers, operators or contexts, whatever node they are of.
_PLAIN: Final = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "level", "module"}
    | {"op", "simple", "type_comment"}
)
#: The other fields, by the type of node. All nodes are walked often, and most of them are leaves.
_HOLDING: Final = {
    kind: tuple(name for name in kind._fields if name not in _PLAIN and kind is not ast.Constant)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """Every statement and expression under *root*, itself included."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def depth_of(tree: ast.AST) -> int:
    """How deep *tree* nests, chains of `and` and `or` included."""
    deepest = 0
    stack: list[tuple[ast.AST, int]] = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, ast.BoolOp):
            depth += len(node.values)  # one node here, a chain of nodes in Starlark
        deepest = max(deepest, depth)
        depth += 1
        stack.extend([(child, depth) for child in children(node)])
    return deepest


def is_safe_to_parse(text: str) -> bool:
    """True if the interpreter's parser cannot exhaust its stack on *text*.

    What Python accepts is bounded by its tree; of the rest only text whose logical lines are
    short is let through.
    """
    if parse(text) is not None:
        return True
    try:
        syntax_tree(text)
    except (SyntaxError, ValueError):
        pass
    except (RecursionError, MemoryError):
        return False
    else:
        return False  # Python's, but too deep
    open_brackets = length = 0
    for line in text.split("\n"):
        open_brackets += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        length += len(line)
        if length > _MAX_LOGICAL_LINE or sum(line.count(c) for c in "([{") > _MAX_BRACKETS:
            return False
        if open_brackets <= 0 and not line.endswith("\\"):
            open_brackets = length = 0
    return True


def docstring(text: str) -> str:
    """The docstring of a file, or ""."""
    tree = parse(text)
    return "" if tree is None else ast.get_docstring(tree) or ""


@dataclass(frozen=True, slots=True)
class Load:
    """One name that a file loads: `local` here, `name` in `module`."""

    module: str
    local: str
    name: str
    node: ast.expr
    call: ast.Call


def loads_of(tree: ast.Module) -> Iterator[Load]:
    """The loads of a file, one per name."""
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not (isinstance(call, ast.Call) and is_load(call) and call.args):
            continue
        module = text_of(call.args[0])
        if module is None:
            continue
        for argument in call.args[1:]:
            name = text_of(argument)
            if name is not None:
                yield Load(module, name, name, argument, call)
        for keyword in call.keywords:
            name = text_of(keyword.value)
            if keyword.arg is not None and name is not None:
                yield Load(module, keyword.arg, name, keyword.value, call)


def with_loaded(files: Mapping[str, str], first: Iterable[str]) -> list[str]:
    """*first* and all that they load, directly or not, as far as *files* has it; each once.

    Starlark that Python does not know may load any file.
    """
    found: dict[str, None] = {}
    waiting = deque(first)
    while waiting:
        file = waiting.popleft()
        if file in found or file not in files:
            continue
        found[file] = None
        tree = parse(files[file])
        waiting.extend(files if tree is None else (load.module for load in loads_of(tree)))
    return list(found)


def text_of(node: ast.expr) -> str | None:
    """The value of *node* if it is a string literal, or None."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def number_of(node: ast.expr) -> int | float | None:
    """The value of *node* if it is a number literal, with its sign, or None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number_of(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return None if isinstance(node.value, bool) else node.value
    return None


def is_load(node: ast.expr) -> bool:
    """True for `load(...)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load"


def statements_of(tree: ast.Module) -> Iterator[ast.stmt]:
    """Everything that runs, definitions included: no loads, and no texts that only document."""
    stack: list[ast.stmt] = list(tree.body)
    while stack:
        statement = stack.pop()
        value = statement.value if isinstance(statement, ast.Expr) else None
        if value is not None and (is_load(value) or isinstance(value, ast.Constant)):
            continue
        yield statement
        for name in ("body", "orelse"):
            stack += getattr(statement, name, [])


def stored_names(node: ast.AST) -> Iterator[str]:
    """The names that are assigned anywhere under *node*."""
    for part in walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


def assignments(root: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Each `name = value` under *root*: the name and the value."""
    for node in walk(root):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def set_once(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The names that *function* assigns to in exactly one place, each with the value there."""
    times = Counter(stored_names(function))
    return {name: value for name, value in assignments(function) if times[name] == 1}


def has_star(nodes: Iterable[ast.expr]) -> bool:
    """True if one of *nodes* is `*x`."""
    return any(isinstance(node, ast.Starred) for node in nodes)


def local_names(node: ast.FunctionDef | ast.Lambda) -> Iterator[str]:
    """The names that are local to a function: parameters and whatever it assigns."""
    arguments = node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        yield argument.arg
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield rest.arg
    if isinstance(node, ast.FunctionDef):
        yield from assigned_names(node.body)


def assigned_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that *body* binds: not those within functions, lambdas and comprehensions."""
    waiting: deque[ast.AST] = deque(body)
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.id
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.DictComp):
            waiting.extendleft(reversed([*children(node)]))


def own_returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """Its returns, without those of functions inside."""
    stack: list[ast.stmt] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return):
            yield node
        elif isinstance(node, ast.If | ast.For):
            stack += [*node.body, *node.orelse]


def alternatives(node: ast.expr) -> Iterator[ast.expr]:
    """What *node* may be: itself, or of `a if b else c` what either may be."""
    if isinstance(node, ast.IfExp):
        yield from alternatives(node.body)
        yield from alternatives(node.orelse)
    else:
        yield node


def may_fall_through(body: list[ast.stmt]) -> bool:
    """True unless every way through *body* plainly ends in a `return` or `fail(...)`."""
    return not _is_left(body)


def _is_left(body: list[ast.stmt]) -> bool:
    """True if the end of *body* is never reached, as is plain to see."""
    return any(map(ends, body))


def ends(statement: ast.stmt) -> bool:
    """True if nothing after *statement* in its block is reached, as is plain to see."""
    if isinstance(statement, ast.Return | ast.Break | ast.Continue):
        return True
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and _is_left(statement.body) and _is_left(statement.orelse)
    if isinstance(statement, ast.For):
        jumps = any(isinstance(node, ast.Break | ast.Continue) for node in walk(statement))
        return _has_elements(statement.iter) and _is_left(statement.body) and not jumps
    called = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(called, ast.Call) or not isinstance(called.func, ast.Name):
        return False
    return called.func.id == "fail"


def _has_elements(node: ast.expr) -> bool:
    """True if *node* is written with an element: `[1, 2]`, `range(3)`."""
    if isinstance(node, ast.List | ast.Tuple):
        return any(not isinstance(element, ast.Starred) for element in node.elts)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    is_range = node.func.id == "range" and len(node.args) == 1
    return is_range and (number_of(node.args[0]) or 0) > 0


def struct_fields(tree: ast.Module, name: str) -> dict[str, ast.expr]:
    """The fields of the top-level `name = struct(...)` of *tree*; empty if it is none."""
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        target, call = statement.targets[0], statement.value
        is_struct = isinstance(call.func, ast.Name) and call.func.id == "struct"
        if isinstance(target, ast.Name) and target.id == name and is_struct:
            return {one.arg: one.value for one in call.keywords if one.arg is not None}
    return {}


# A text in quotes; what is in single ones, where double ones can stand for them.
_QUOTED: Final = re.compile(
    r"""'(?P<plain>(?:[^'"\\]|\\[^'"])*)'|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
)


def written(node: ast.expr) -> str:
    """*node* on one line, with texts in double quotes, as policies have them."""

    def doubled(match: re.Match[str]) -> str:
        return match[0] if match["plain"] is None else f'"{match["plain"]}"'

    return _QUOTED.sub(doubled, ast.unparse(node))


def shown(node: ast.expr) -> str:
    """*node* as it is written, cut short."""
    return short(written(node))


def short(text: str) -> str:
    """*text*, cut to the length that a message may have."""
    return text if len(text) <= 40 else f"{text[:37]}..."
