"""Which fields of the views a hook can reach, found from the source without running it.

Starlark parses with Python's `ast`. A hook's parameters are followed as abstract values through
assignments, loops, helpers, loads, closures and containers; reading a field of one is a read, and
a view that goes where it cannot be followed has *escaped*, which counts as reading all of it.

The result is sound by over-approximation: a variable stands for everything that it may ever hold
(no order of statements), a call for every call with the same arguments. Nothing depends on the
result being exact. A hook is given only what is listed here, so a read that was missed is a loud
missing attribute; only a dict that is narrowed to some keys could answer wrongly in silence, and
so a key narrows only if all its possible values are known strings.

Owns no judgement: what is wrong with a policy is the business of `check`, which uses the notes
(unknown fields, changed parameters) that the walk leaves.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from engine.framework.extension_points import HOOKS
from engine.policy.sandbox.protocol import Files, HookSignature
from engine.policy.views import RECORDS, VIEWS

ALL: Final = "*"

# Deeper text could exhaust the interpreter's native stack while it is parsed.
MAX_DEPTH: Final = 500
_MAX_LOGICAL_LINE: Final = 2_000
_MAX_BRACKETS: Final = 100

# Bounds of the walk; a policy beyond them reads everything.
_MAX_PASSES: Final = 40
_MAX_CONTEXTS: Final = 3_000
_MAX_NESTING: Final = 4
_MAX_ATOMS: Final = 64
_MAX_TUPLE: Final = 16
_MAX_TEXT: Final = 400
_MAX_CALLS: Final = 50

MUTATORS: Final = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "popitem"}
)


# --- sources ---------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def parse(text: str) -> ast.Module | None:
    """Python's syntax tree of Starlark *text*; None where the languages differ."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if depth_of(tree) <= MAX_DEPTH else None


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The statements and expressions directly under *node*.

    As `ast.iter_child_nodes`, several times as fast: operators and contexts are left out.
    """
    for name in node._fields:
        value = getattr(node, name, None)
        if type(value) is list:
            for item in value:
                if isinstance(item, ast.AST):
                    yield item
        elif isinstance(value, ast.AST) and not isinstance(value, _MARKS):
            yield value


_MARKS: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop)


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
        ast.parse(text)
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


# Functions that a counter names with `among = "..."`: which nodes count. Asked like hooks.
AMONG_PREFIX: Final = "among_"


def is_hook(name: str) -> bool:
    """True if a top-level function of this name is asked by the runtime."""
    return name in HOOKS or name.startswith(AMONG_PREFIX)


_DEF: Final = re.compile(r"^def[ \t]+([A-Za-z_]\w*)[ \t]*\(([^()]*)\)", re.MULTILINE)


def hook_signatures(text: str) -> dict[str, HookSignature]:
    """The hooks that *text* defines at top level, with the parameters that each names."""
    tree = parse(text)
    found: dict[str, HookSignature] = {}
    if tree is None:
        for match in _DEF.finditer(text):
            if is_hook(match[1]):
                names = [p.split("=")[0].split(":")[0].strip() for p in match[2].split(",")]
                line = text.count("\n", 0, match.start()) + 1
                found[match[1]] = HookSignature(tuple(n for n in names if n), line, 5)
        return found
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and is_hook(statement.name):
            names = [a.arg for a in [*statement.args.posonlyargs, *statement.args.args]]
            place = HookSignature(tuple(names), statement.lineno, statement.col_offset + 5)
            found[statement.name] = place
    return found


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
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "load"
            and call.args
        ):
            continue
        module = _text_of(call.args[0])
        if module is None:
            continue
        for argument in call.args[1:]:
            name = _text_of(argument)
            if name is not None:
                yield Load(module, name, name, argument, call)
        for keyword in call.keywords:
            name = _text_of(keyword.value)
            if keyword.arg is not None and name is not None:
                yield Load(module, keyword.arg, name, keyword.value, call)


def _text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# --- results ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reads:
    """What a hook reads of each view, and the parameters that it names.

    A path is a field (`taints`), one key of a dict field (`labels[disk]`), or `*`: every field
    but `manifest`.
    """

    pod: frozenset[str] = frozenset()
    node: frozenset[str] = frozenset()
    cluster: frozenset[str] = frozenset()
    params: tuple[str, ...] = ()

    def of(self, view: str) -> frozenset[str]:
        """The paths read of *view* (pod, node or cluster)."""
        paths: frozenset[str] = getattr(self, view)
        return paths


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """Something seen on the way that is wrong: an unknown field, or a changed parameter."""

    module: str
    line: int
    column: int
    kind: str  # "field" or "change"
    owner: str  # a view or record name; for changes what is changed
    name: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """Reads by hook, and the notes of all hooks together."""

    reads: Mapping[str, Reads]
    notes: tuple[Note, ...]


def analyse(files: Files, module: str) -> dict[str, Reads]:
    """What each hook of *module* reads, helpers and loads included. Never raises."""
    return dict(examine(files, module).reads)


def examine(files: Files, module: str) -> Analysis:
    """The reads and the notes of *module*'s hooks. Never raises."""
    signatures = hook_signatures(files.get(module, ""))
    reads: dict[str, Reads] = {}
    notes: set[Note] = set()
    world = _World(files)
    for hook, signature in signatures.items():
        walk = _Walk(world)
        try:
            found = walk.hook(module, hook, signature.params)
        except (RecursionError, _TooMuchError):
            found = None
        if found is None:
            found = {view: {ALL} for view in VIEWS}
        else:
            notes |= walk.notes
        reads[hook] = _as_reads(found, signature.params)
    return Analysis(reads, tuple(sorted(notes)))


_GIVES: Final = {
    "pod": "pod",
    "node": "node",
    "cluster": "cluster",
    "victims": "pod",
    "nodes": "node",
}


def _as_reads(found: Mapping[str, set[str]], params: tuple[str, ...]) -> Reads:
    given = {_GIVES[p] for p in params if p in _GIVES}
    paths = {view: frozenset(_tidy(found[view])) for view in VIEWS if view in given}
    return Reads(
        paths.get("pod", frozenset()),
        paths.get("node", frozenset()),
        paths.get("cluster", frozenset()),
        params,
    )


def _tidy(paths: Iterable[str]) -> set[str]:
    """*paths* without those that others include."""
    kept = set(paths)
    if ALL in kept:
        return {ALL} | (kept & {"manifest"})
    return {p for p in kept if "[" not in p or p.partition("[")[0] not in kept}


# --- abstract values -------------------------------------------------------------------------
#
# A value is a set of atoms: everything that an expression may be at run time. OTHER is a value
# that holds no view and that nothing is known of.


@dataclass(frozen=True, slots=True)
class _Other:
    pass


@dataclass(frozen=True, slots=True)
class _View:
    view: str


@dataclass(frozen=True, slots=True)
class _Lazy:
    """A dict field of a view that is not read yet: that depends on what happens to it."""

    view: str
    field: str


@dataclass(frozen=True, slots=True)
class _Typed:
    """Part of a field that is counted as read; the type serves to find misspelt names."""

    type: str


@dataclass(frozen=True, slots=True)
class _Text:
    value: str


@dataclass(frozen=True, slots=True)
class _Items:
    """A list, or anything else that gives any of `items` when looped over or indexed."""

    items: "Value"


@dataclass(frozen=True, slots=True)
class _Tuple:
    items: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class _Map:
    """A dict constant of a module."""

    keys: "Value"
    values: "Value"


@dataclass(frozen=True, eq=False, slots=True)
class _Function:
    """A function or lambda, with the scope that it closes over; compared by identity."""

    module: "_Module"
    node: ast.FunctionDef | ast.Lambda
    scope: "_Scope | None"


@dataclass(frozen=True, slots=True)
class _Builtin:
    name: str


Atom: TypeAlias = (
    _Other | _View | _Lazy | _Typed | _Text | _Items | _Tuple | _Map | _Function | _Builtin
)
Value: TypeAlias = frozenset[Atom]

_NOTHING: Final[Value] = frozenset()
_OTHER: Final[Value] = frozenset({_Other()})


class _TooMuchError(Exception):
    """The walk is beyond its bounds."""


@dataclass(eq=False)
class _Scope:
    """The variables of one function in one context, or of one comprehension in it."""

    parent: "_Scope | None"
    names: frozenset[str]
    values: dict[str, Value] = field(default_factory=dict)
    inner: dict[ast.AST, "_Scope"] = field(default_factory=dict)
    functions: dict[ast.AST, _Function] = field(default_factory=dict)


@dataclass(eq=False)
class _Context:
    """One function with one set of arguments."""

    scope: _Scope
    result: Value = _NOTHING
    walked_in: int = 0


class _Module:
    """The top level of one file: constants, functions, loads."""

    def __init__(self, world: "_World", path: str, tree: ast.Module) -> None:
        self.path = path
        self.world = world
        self.assigned: dict[str, list[ast.expr]] = {}
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.loads: dict[str, Load] = {load.local: load for load in loads_of(tree)}
        self.unknown: set[str] = set()
        self.is_quiet = _is_quiet(tree)
        self.function_atoms: dict[ast.AST, _Function] = {}
        self._values: dict[str, Value] = {}
        self._evaluating: set[str] = set()
        for statement in tree.body:
            self._collect(statement)

    def _collect(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.FunctionDef):
            self.functions.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    self.assigned.setdefault(target.id, []).append(statement.value)
                else:
                    self.unknown |= set(_stored_names(target))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.value is not None:
                self.assigned.setdefault(statement.target.id, []).append(statement.value)
        else:
            self.unknown |= set(_stored_names(statement))

    def value(self, name: str) -> Value | None:
        """What the global *name* may be; None if the file does not define it."""
        if name in self._values:
            return self._values[name]
        if name in self._evaluating:
            return _OTHER
        found: set[Atom] = set()
        is_known = name in self.unknown
        if is_known:
            found |= _OTHER
        self._evaluating.add(name)
        try:
            for node in self.functions.get(name, ()):
                is_known = True
                found.add(self.function(node))
            for expression in self.assigned.get(name, ()):
                is_known = True
                found |= self._constant(expression)
            if name in self.loads:
                is_known = True
                load = self.loads[name]
                module = self.world.module(load.module)
                loaded = module.value(load.name) if module is not None else None
                found |= _OTHER if loaded is None else loaded
        finally:
            self._evaluating.discard(name)
        if not is_known:
            return None
        self._values[name] = frozenset(found)
        return self._values[name]

    def function(self, node: ast.FunctionDef | ast.Lambda) -> _Function:
        """The value of a function of the top level."""
        atom = self.function_atoms.get(node)
        if atom is None:
            atom = self.function_atoms[node] = _Function(self, node, None)
        return atom

    def _constant(self, node: ast.expr, depth: int = 0) -> Value:
        """The value of a top-level expression, as far as it is a constant."""
        if depth > _MAX_NESTING:
            return _OTHER
        if isinstance(node, ast.Constant):
            return frozenset({_Text(node.value)}) if isinstance(node.value, str) else _OTHER
        if isinstance(node, ast.Name):
            value = self.value(node.id)
            return _OTHER if value is None else value
        if isinstance(node, ast.Tuple):
            return frozenset({_Tuple(tuple(self._constant(e, depth + 1) for e in node.elts))})
        if isinstance(node, ast.Lambda):
            return frozenset({self.function(node)})
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _sum(self._constant(node.left, depth), self._constant(node.right, depth))
        if isinstance(node, ast.IfExp):
            return self._constant(node.body, depth) | self._constant(node.orelse, depth)
        if not self.is_quiet:
            return _OTHER  # a list could have been changed before it was frozen
        if isinstance(node, ast.List):
            items = [self._constant(e, depth + 1) for e in node.elts]
            return frozenset({_Items(_union(items))})
        if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
            keys = _union(self._constant(k, depth + 1) for k in node.keys if k is not None)
            return frozenset(
                {_Map(keys, _union(self._constant(v, depth + 1) for v in node.values))}
            )
        return _OTHER


def _is_quiet(tree: ast.Module) -> bool:
    """True if nothing at top level can change a list or dict after it was made."""
    harmless = _HARMLESS - {load.local for load in loads_of(tree)}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            harmless -= {statement.name}
        else:
            harmless -= set(_stored_names(statement))
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            parts: list[ast.AST] = [*statement.args.defaults, *statement.args.kw_defaults]  # type: ignore[list-item]  # kw_defaults holds None for required ones
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if not all(isinstance(t, ast.Name) for t in targets):
                return False
            parts = [statement.value] if statement.value is not None else []
        elif isinstance(statement, ast.Expr):
            if isinstance(statement.value, ast.Constant) or _is_load(statement.value):
                continue
            return False
        else:
            return False
        for part in parts:
            for node in walk(part) if part is not None else ():
                if isinstance(node, ast.Call) and not (
                    isinstance(node.func, ast.Name) and node.func.id in harmless
                ):
                    return False
    return True


_HARMLESS: Final = frozenset(
    {"plugin_args", "struct", "record", "field", "enum", "dict", "list", "tuple", "sorted", "len"}
    | {"range", "str", "int", "float", "min", "max", "abs", "parse_int", "parse_float"}
)


def _is_load(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load"


def _stored_names(node: ast.AST) -> Iterator[str]:
    for part in walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


class _World:
    """The modules of a bundle, parsed on demand."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._modules: dict[str, _Module | None] = {}

    def module(self, path: str) -> _Module | None:
        """The module at *path*; None if it is missing or Python cannot parse it."""
        if path not in self._modules:
            tree = parse(self._files[path]) if path in self._files else None
            self._modules[path] = None if tree is None else _Module(self, path, tree)
        return self._modules[path]


def _union(values: Iterable[Value]) -> Value:
    found: set[Atom] = set()
    for value in values:
        found |= value
    return frozenset(found)


def _sum(left: Value, right: Value) -> Value:
    """What `left + right` may be."""
    found: set[Atom] = set()
    for a in left:
        for b in right:
            if isinstance(a, _Text) and isinstance(b, _Text):
                text = a.value + b.value
                found.add(_Text(text) if len(text) <= _MAX_TEXT else _Other())
            elif isinstance(a, _Tuple) and isinstance(b, _Tuple):
                items = a.items + b.items
                is_long = len(items) > _MAX_TUPLE
                found.add(_Items(_union(items)) if is_long else _Tuple(items))
            elif isinstance(a, _Items) and isinstance(b, _Items):
                found.add(_Items(a.items | b.items))
            else:
                found.add(_Other())
    return frozenset(found)


# --- the walk --------------------------------------------------------------------------------


class _Walk:
    """One hook's walk: passes over all reachable code until nothing new is found."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self.reads: dict[str, set[str]] = {view: set() for view in VIEWS}
        self.notes: set[Note] = set()
        self._touched: set[tuple[str, str]] = set()
        self._contexts: dict[tuple[object, ...], _Context] = {}
        self._changed = True
        self._pass = 0
        self._calls = 0
        self._escaped: dict[_Function, int] = {}

    def hook(self, module: str, name: str, params: tuple[str, ...]) -> dict[str, set[str]] | None:
        """The reads of a hook; None if they cannot be found."""
        home = self._world.module(module)
        if home is None or name not in home.functions:
            return None
        given = {p: _parameter(p) for p in params}
        while self._changed:
            self._changed = False
            self._pass += 1
            if self._pass > _MAX_PASSES:
                raise _TooMuchError
            self.notes.clear()
            for node in home.functions[name]:
                self._escape(self._call_function(home.function(node), [], given, is_open=True))
        # A dict field that is only named (`x = pod.labels`, never looked at) must be there too.
        for view, name in self._touched:
            if not any(path.partition("[")[0] in (name, ALL) for path in self.reads[view]):
                self.reads[view].add(name)
        return self.reads

    # --- effects ---------------------------------------------------------------------------

    def _read(self, view: str, path: str) -> None:
        if path not in self.reads[view]:
            self.reads[view].add(path)
            self._changed = True

    def _escape(self, value: Value) -> None:
        """*value* goes where it cannot be followed: all that it holds counts as read."""
        for atom in value:
            if isinstance(atom, _View):
                self._read(atom.view, ALL)
            elif isinstance(atom, _Lazy):
                self._read(atom.view, atom.field)
            elif isinstance(atom, _Items):
                self._escape(atom.items)
            elif isinstance(atom, _Tuple):
                for item in atom.items:
                    self._escape(item)
            elif isinstance(atom, _Map):
                self._escape(atom.values)
            elif isinstance(atom, _Function) and self._escaped.get(atom) != self._pass:
                # Somebody may call it with anything that has escaped itself.
                self._escaped[atom] = self._pass
                self._escape(self._call_function(atom, [], {}, is_open=True))

    def _note(self, module: _Module, node: ast.expr, kind: str, owner: str, name: str) -> None:
        # Of `a.b` the name that is wrong is at the end.
        line, offset = node.lineno, node.col_offset
        if isinstance(node, ast.Attribute) and node.end_col_offset is not None:
            line, offset = node.end_lineno or line, node.end_col_offset - len(node.attr.encode())
        self.notes.add(Note(module.path, line, offset + 1, kind, owner, name))

    # --- calls -----------------------------------------------------------------------------

    def _call_function(
        self,
        function: _Function,
        positional: list[Value],
        named: Mapping[str, Value],
        *,
        is_open: bool = False,
    ) -> Value:
        """What a call may return. With `is_open`, parameters without an argument are unknown."""
        arguments = function.node.args
        names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
        bound: dict[str, Value] = dict(zip(names, positional, strict=False))
        extra = positional[len(names) :]
        keyword_only = {a.arg for a in arguments.kwonlyargs}
        for name, value in named.items():
            if name in names or name in keyword_only:
                bound[name] = bound.get(name, _NOTHING) | value
            else:
                self._escape(value)
        for value in extra:
            self._escape(value)
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                defaults[parameter.arg] = default
        for name in [*names, *keyword_only]:
            if name in bound:
                continue
            bound[name] = _OTHER
            if name in defaults:
                bound[name] = self._default(function, defaults[name])
                if is_open:
                    bound[name] |= _OTHER
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                bound[rest.arg] = _OTHER
        return self._walk_function(function, bound)

    def _default(self, function: _Function, node: ast.expr) -> Value:
        if function.scope is None:
            return function.module._constant(node)
        return self._eval(function.module, function.scope, node)

    def _walk_function(self, function: _Function, bound: dict[str, Value]) -> Value:
        key = (function, tuple(sorted(bound.items(), key=lambda item: item[0])))
        context = self._contexts.get(key)
        if context is None:
            if len(self._contexts) >= _MAX_CONTEXTS:
                raise _TooMuchError
            scope = _Scope(function.scope, frozenset(_local_names(function.node)))
            context = self._contexts[key] = _Context(scope)
            self._changed = True
        if context.walked_in == self._pass:
            return context.result  # done, or under way: the next pass sees the rest
        context.walked_in = self._pass
        for name, value in bound.items():
            self._bind(context.scope, name, value)
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise _TooMuchError
        if isinstance(function.node, ast.Lambda):
            result = self._eval(function.module, context.scope, function.node.body)
        else:
            result = self._block(function.module, context.scope, function.node.body)
        self._calls -= 1
        if not result <= context.result:
            context.result |= result
            self._changed = True
        return context.result

    def _bind(self, scope: _Scope, name: str, value: Value) -> None:
        known = scope.values.get(name, _NOTHING)
        if value <= known:
            return
        if len(known | value) > _MAX_ATOMS:
            self._escape(value)
            value = _OTHER
        if not value <= known:
            scope.values[name] = known | value
            self._changed = True

    # --- statements ------------------------------------------------------------------------

    def _block(self, module: _Module, scope: _Scope, body: Iterable[ast.stmt]) -> Value:
        """Walk *body*; what its `return`s may give."""
        result: set[Atom] = set()
        for statement in body:
            result |= self._statement(module, scope, statement)
        return frozenset(result)

    def _statement(self, module: _Module, scope: _Scope, node: ast.stmt) -> Value:
        if isinstance(node, ast.Return):
            return _OTHER if node.value is None else self._eval(module, scope, node.value)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign_expression(module, scope, target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign_expression(module, scope, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            value = self._eval(module, scope, node.value)
            self._escape(value)
            if isinstance(node.target, ast.Name):
                current = self._lookup(module, scope, node.target.id)
                if any(isinstance(atom, _Lazy | _Typed) for atom in current):
                    self._escape(current)
                self._bind(scope, node.target.id, _OTHER)
            else:
                self._assign(module, scope, node.target, _OTHER)
        elif isinstance(node, ast.For):
            self._assign(module, scope, node.target, self._items_of(module, scope, node.iter))
            return self._block(module, scope, [*node.body, *node.orelse])
        elif isinstance(node, ast.If):
            self._test(module, scope, node.test)
            return self._block(module, scope, [*node.body, *node.orelse])
        elif isinstance(node, ast.Expr):
            self._eval(module, scope, node.value)
        elif isinstance(node, ast.FunctionDef):
            atom = scope.functions.get(node)
            if atom is None:
                atom = scope.functions[node] = _Function(module, node, scope)
            self._bind(scope, node.name, frozenset({atom}))
        elif not isinstance(node, ast.Pass | ast.Break | ast.Continue):
            raise _TooMuchError  # not Starlark
        return _NOTHING

    def _assign_expression(
        self, module: _Module, scope: _Scope, target: ast.expr, node: ast.expr
    ) -> None:
        if (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(node, ast.Tuple | ast.List)
            and len(target.elts) == len(node.elts)
        ):
            for part, value in zip(target.elts, node.elts, strict=True):
                self._assign_expression(module, scope, part, value)
            return
        self._assign(module, scope, target, self._eval(module, scope, node))

    def _assign(self, module: _Module, scope: _Scope, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._bind(scope, target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self._assign(module, scope, part, self._part(value, index, len(target.elts)))
        elif isinstance(target, ast.Subscript | ast.Attribute):
            owner = self._eval(module, scope, target.value)
            if isinstance(target, ast.Subscript):
                self._escape(self._eval(module, scope, target.slice))
            self._note_change(module, target, owner)
            self._escape(owner)
            self._escape(value)
        else:
            raise _TooMuchError

    def _note_change(self, module: _Module, node: ast.expr, owner: Value) -> None:
        """Note a change of what the hook was given, if it cannot be anything else."""
        if owner and all(isinstance(atom, _View | _Lazy | _Typed) for atom in owner):
            names = {
                f"{a.view}.{a.field}" if isinstance(a, _Lazy) else "the view"
                for a in owner
                if isinstance(a, _Lazy | _View)
            }
            self._note(module, node, "change", min(names, default="a part of a view"), "")

    def _part(self, value: Value, index: int, count: int) -> Value:
        """Element *index* of *value* unpacked into *count* variables."""
        found: set[Atom] = set()
        for atom in value:
            if isinstance(atom, _Tuple) and len(atom.items) == count:
                found |= atom.items[index]
            else:
                found |= self._elements(frozenset({atom}))
        return frozenset(found)

    def _elements(self, value: Value) -> Value:
        """What looping over *value* gives."""
        found: set[Atom] = set()
        for atom in value:
            if isinstance(atom, _Items):
                found |= atom.items
            elif isinstance(atom, _Tuple):
                found |= _union(atom.items)
            elif isinstance(atom, _Map):
                found |= atom.keys
            elif isinstance(atom, _Lazy):
                self._escape(frozenset({atom}))
                found |= _OTHER
            elif isinstance(atom, _Typed):
                found |= _typed(_element_type(atom.type))
            else:
                self._escape(frozenset({atom}))
                found |= _OTHER
        return frozenset(found)

    def _items_of(self, module: _Module, scope: _Scope, node: ast.expr) -> Value:
        """What looping over the expression gives. A list that nobody else sees stays exact."""
        if isinstance(node, ast.List | ast.Tuple) and not _has_star(node.elts):
            return _union(self._eval(module, scope, e) for e in node.elts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._items_of(module, scope, node.left) | self._items_of(
                module, scope, node.right
            )
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and len(node.args) == 1
            and not _has_star(node.args)
            and node.func.id in ("sorted", "list", "tuple", "reversed")
            and self._lookup(module, scope, node.func.id) == {_Builtin(node.func.id)}
        ):
            items = self._items_of(module, scope, node.args[0])
            self._call_keys(module, scope, node, items)
            return items
        if isinstance(node, ast.ListComp):
            return self._comprehension(module, scope, node, [node.elt])[0]
        return self._elements(self._eval(module, scope, node))

    def _test(self, module: _Module, scope: _Scope, node: ast.expr) -> None:
        """*node* is asked whether it is true: an empty dict is not, so that reads the dict."""
        for atom in self._eval(module, scope, node):
            if isinstance(atom, _Lazy):
                self._escape(frozenset({atom}))

    # --- expressions -----------------------------------------------------------------------

    def _lookup(self, module: _Module, scope: _Scope | None, name: str) -> Value:
        while scope is not None:
            if name in scope.names:
                return scope.values.get(name, _NOTHING)
            scope = scope.parent
        value = module.value(name)
        if value is not None:
            return value
        return frozenset({_Builtin(name)})

    def _eval(self, module: _Module, scope: _Scope, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant):
            return frozenset({_Text(node.value)}) if isinstance(node.value, str) else _OTHER
        if isinstance(node, ast.Name):
            return self._lookup(module, scope, node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(module, scope, node)
        if isinstance(node, ast.Subscript):
            return self._subscript(module, scope, node)
        if isinstance(node, ast.Call):
            return self._call(module, scope, node)
        if isinstance(node, ast.IfExp):
            self._test(module, scope, node.test)
            return self._eval(module, scope, node.body) | self._eval(module, scope, node.orelse)
        if isinstance(node, ast.BoolOp):
            for part in node.values[:-1]:
                self._test(module, scope, part)
            return _union(self._eval(module, scope, part) for part in node.values)
        if isinstance(node, ast.Compare):
            return self._compare(module, scope, node)
        if isinstance(node, ast.BinOp):
            return self._binary(module, scope, node)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                self._test(module, scope, node.operand)
            else:
                self._escape(self._eval(module, scope, node.operand))
            return _OTHER
        if isinstance(node, ast.Lambda):
            atom = scope.functions.get(node)
            if atom is None:
                atom = scope.functions[node] = _Function(module, node, scope)
            return frozenset({atom})
        return self._container(module, scope, node)

    def _container(self, module: _Module, scope: _Scope, node: ast.expr) -> Value:
        if isinstance(node, ast.Tuple) and not _has_star(node.elts):
            items = tuple(self._eval(module, scope, e) for e in node.elts)
            return self._bounded(_Tuple(items))
        if isinstance(node, ast.List) and not _has_star(node.elts):
            # It may be appended to, so it may hold other texts too. Views that are put into it
            # later escape where that happens.
            items_value = _union(self._eval(module, scope, e) for e in node.elts)
            return self._bounded(_Items(items_value | _OTHER))
        if isinstance(node, ast.ListComp):
            (items_value,) = self._comprehension(module, scope, node, [node.elt])
            return self._bounded(_Items(items_value | _OTHER))
        if isinstance(node, ast.DictComp):
            for value in self._comprehension(module, scope, node, [node.key, node.value]):
                self._escape(value)
            return _OTHER
        for child in ast.iter_child_nodes(node):
            # Dict displays, f-strings, starred arguments, slices: all of it escapes.
            if isinstance(child, ast.expr):
                self._escape(self._eval(module, scope, child))
        return _OTHER

    def _bounded(self, atom: _Items | _Tuple) -> Value:
        """*atom*, or what is left when it nests too deep or is too large to be followed."""
        if _nesting(atom) > _MAX_NESTING or (
            isinstance(atom, _Tuple) and len(atom.items) > _MAX_TUPLE
        ):
            self._escape(frozenset({atom}))
            return _OTHER
        return frozenset({atom})

    def _comprehension(
        self,
        module: _Module,
        scope: _Scope,
        node: ast.ListComp | ast.DictComp,
        results: list[ast.expr],
    ) -> list[Value]:
        inner = scope.inner.get(node)
        if inner is None:
            names = {n for g in node.generators for n in _stored_names(g.target)}
            inner = scope.inner[node] = _Scope(scope, frozenset(names))
        for index, generator in enumerate(node.generators):
            # The first is evaluated outside, where a variable of the same name is another one.
            items = self._items_of(module, scope if index == 0 else inner, generator.iter)
            self._assign(module, inner, generator.target, items)
            for condition in generator.ifs:
                self._test(module, inner, condition)
        return [self._eval(module, inner, result) for result in results]

    def _attribute(self, module: _Module, scope: _Scope, node: ast.Attribute) -> Value:
        owner = self._eval(module, scope, node.value)
        found: set[Atom] = set()
        unknown: set[str] = set()
        for atom in owner:
            got, missing = self._field(atom, node.attr)
            found |= got
            unknown |= missing
        if owner and len(unknown) == len(owner):
            self._note(module, node, "field", min(unknown), node.attr)
        return frozenset(found)

    def _field(self, atom: Atom, name: str) -> tuple[Value, set[str]]:
        """The value of field *name* of *atom*; and the record's name if it has no such field."""
        if isinstance(atom, _View):
            known = VIEWS[atom.view].get(name)
            if known is None:
                return _OTHER, {atom.view}
            if known.type.startswith("dict[") and name != "manifest":
                self._touched.add((atom.view, name))
                return frozenset({_Lazy(atom.view, name)}), set()
            self._read(atom.view, name)
            return _typed(known.type), set()
        if isinstance(atom, _Typed):
            record = RECORDS.get(atom.type)
            if record is not None:
                if name not in record:
                    return _OTHER, {atom.type}
                return _typed(record[name][0]), set()
            return _OTHER, set()
        self._escape(frozenset({atom}))
        return _OTHER, set()

    def _subscript(self, module: _Module, scope: _Scope, node: ast.Subscript) -> Value:
        owner = self._eval(module, scope, node.value)
        if isinstance(node.slice, ast.Slice):
            self._container(module, scope, node.slice)
            # Part of a list, tuple or text.
            items = self._elements(owner)
            return self._bounded(_Items(items | _OTHER)) if owner - _OTHER else _OTHER
        key = self._eval(module, scope, node.slice)
        return self._entry(owner, key)

    def _entry(self, owner: Value, key: Value) -> Value:
        """What `owner[key]` or `owner.get(key)` may give."""
        self._escape(frozenset(a for a in key if not isinstance(a, _Text)))
        found: set[Atom] = set()
        for atom in owner:
            if isinstance(atom, _Lazy):
                self._read_keys(atom, key)
                found |= _typed(_element_type(VIEWS[atom.view][atom.field].type))
            elif isinstance(atom, _Map):
                found |= atom.values
            else:
                found |= self._elements(frozenset({atom}))
        return frozenset(found)

    def _read_keys(self, atom: _Lazy, key: Value) -> None:
        """Read the entries of a dict field that *key* may name."""
        if key and all(isinstance(a, _Text) for a in key):
            for a in key:
                if isinstance(a, _Text):
                    self._read(atom.view, f"{atom.field}[{a.value}]")
        else:
            self._read(atom.view, atom.field)

    def _compare(self, module: _Module, scope: _Scope, node: ast.Compare) -> Value:
        parts = [node.left, *node.comparators]
        values = [self._eval(module, scope, part) for part in parts]
        is_identity = any(isinstance(p, ast.Name) and p.id == "None" for p in parts) or any(
            isinstance(p, ast.Constant) and p.value is None for p in parts
        )
        for index, operator in enumerate(node.ops):
            left, right = values[index], values[index + 1]
            if isinstance(operator, ast.In | ast.NotIn):
                lazy = frozenset(a for a in right if isinstance(a, _Lazy))
                if lazy:
                    self._entry(lazy, left)
                self._escape(frozenset(a for a in left if not isinstance(a, _Text)))
                self._escape(right - lazy)
            elif not is_identity:
                # Comparing with None looks at no field: a view or a dict is never None.
                self._escape(left)
                self._escape(right)
        return _OTHER

    def _binary(self, module: _Module, scope: _Scope, node: ast.BinOp) -> Value:
        left = self._eval(module, scope, node.left)
        right = self._eval(module, scope, node.right)
        if isinstance(node.op, ast.Add):
            added = _sum(left, right)
            if _Other() in added:
                self._escape(left)
                self._escape(right)
            # A list made by adding is as open to changes as any other.
            return frozenset(
                _Items(a.items | _OTHER) if isinstance(a, _Items) else a for a in added
            )
        self._escape(left)
        self._escape(right)
        return _OTHER

    # --- call expressions --------------------------------------------------------------------

    def _call(self, module: _Module, scope: _Scope, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            return self._method(module, scope, node, node.func)
        callees = self._eval(module, scope, node.func)
        if _has_star(node.args) or any(k.arg is None for k in node.keywords):
            # Which argument meets which parameter is not known: all of them escape.
            for argument in [*node.args, *[k.value for k in node.keywords]]:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                self._escape(self._eval(module, scope, inner))
            return _union(self._call_unknown(callee) for callee in callees) | _OTHER
        if callees == {_Builtin(getattr(node.func, "id", ""))}:
            return self._call_builtin(module, scope, node, getattr(node.func, "id", ""))
        positional = [self._eval(module, scope, a) for a in node.args]
        named = {k.arg: self._eval(module, scope, k.value) for k in node.keywords if k.arg}
        found: set[Atom] = set()
        for callee in callees:
            if isinstance(callee, _Function):
                found |= self._call_function(callee, positional, named)
            else:
                for value in [*positional, *named.values()]:
                    self._escape(value)
                self._escape(frozenset({callee}))
                found |= _OTHER
        return frozenset(found)

    def _call_unknown(self, callee: Atom) -> Value:
        if isinstance(callee, _Function):
            return self._call_function(callee, [], {}, is_open=True)
        self._escape(frozenset({callee}))
        return _OTHER

    def _method(self, module: _Module, scope: _Scope, node: ast.Call, func: ast.Attribute) -> Value:
        owner = self._eval(module, scope, func.value)
        is_plain = not _has_star(node.args) and not node.keywords
        lazy = frozenset(a for a in owner if isinstance(a, _Lazy))
        maps = frozenset(a for a in owner if isinstance(a, _Map))
        if func.attr in MUTATORS:
            self._note_change(module, func, owner)
        if func.attr == "get" and is_plain and 1 <= len(node.args) <= 2 and (lazy or maps):
            key = self._eval(module, scope, node.args[0])
            fallback = self._eval(module, scope, node.args[1]) if len(node.args) == 2 else _OTHER
            found = self._entry(lazy | maps, key) | fallback
            if rest := owner - lazy - maps:
                self._escape(rest)
                self._escape(key | fallback)
                found |= _OTHER
            return found
        if maps and maps == owner and is_plain and not node.args:
            keys, values = _union(m.keys for m in maps), _union(m.values for m in maps)
            if func.attr == "keys":
                return frozenset({_Items(keys | _OTHER)})
            if func.attr == "values":
                return frozenset({_Items(values | _OTHER)})
            if func.attr == "items":
                return frozenset({_Items(frozenset({_Tuple((keys, values))}))})
        if func.attr in ("items", "keys", "values") and lazy and lazy == owner and not node.args:
            self._escape(lazy)
            return _OTHER
        # `x.f(...)` where `f` is a field: a function kept in a struct, which has escaped before.
        for atom in owner:
            if isinstance(atom, _View | _Typed):
                got, missing = self._field(atom, func.attr)
                self._escape(got)
                if missing and len(owner) == 1:
                    self._note(module, func, "field", min(missing), func.attr)
            else:
                self._escape(frozenset({atom}))
        for argument in [*node.args, *[k.value for k in node.keywords]]:
            self._escape(self._eval(module, scope, argument))
        return _OTHER

    def _call_builtin(self, module: _Module, scope: _Scope, node: ast.Call, name: str) -> Value:
        args = [self._eval(module, scope, a) for a in node.args]
        keywords = {k.arg: self._eval(module, scope, k.value) for k in node.keywords if k.arg}
        if name == "type" and len(args) == 1:
            return _OTHER
        if name in ("getattr", "hasattr") and len(args) >= 2:
            return self._reflect(name, args)
        if name in ("list", "tuple", "reversed", "sorted") and len(args) == 1:
            items = self._elements(args[0])
            self._call_keys(module, scope, node, items)
            return self._bounded(_Items(items | _OTHER))
        if name == "enumerate" and args:
            for extra in args[1:]:
                self._escape(extra)
            return self._bounded(_Items(frozenset({_Tuple((_OTHER, self._elements(args[0])))})))
        if name == "zip":
            return self._bounded(
                _Items(frozenset({_Tuple(tuple(self._elements(a) for a in args))}))
            )
        if name in ("min", "max") and args:
            items = self._elements(args[0]) if len(args) == 1 else _union(args)
            if "key" in keywords:
                self._call_keys(module, scope, node, items)
                return items
            self._escape(items)
            return items
        if name in ("any", "all") and len(args) == 1:
            items = self._items_of(module, scope, node.args[0])
            self._escape(frozenset(a for a in items if isinstance(a, _Lazy)))
            return _OTHER
        for value in [*args, *keywords.values()]:
            self._escape(value)
        return _OTHER

    def _call_keys(self, module: _Module, scope: _Scope, node: ast.Call, items: Value) -> None:
        """`key = f` of sorted, min and max: f meets every item. Without it items are compared."""
        has_key = False
        for keyword in node.keywords:
            value = self._eval(module, scope, keyword.value)
            if keyword.arg != "key":
                self._escape(value)
                continue
            has_key = True
            for callee in value:
                if isinstance(callee, _Function):
                    self._escape(self._call_function(callee, [items], {}))
                else:
                    self._escape(items)
                    self._escape(frozenset({callee}))
        if not has_key and isinstance(node.func, ast.Name) and node.func.id == "sorted":
            self._escape(items)

    def _reflect(self, name: str, args: list[Value]) -> Value:
        """`getattr` and `hasattr`: a field under a name that may be computed."""
        found: set[Atom] = set()
        for extra in args[2:]:
            found |= extra
        names = [a.value for a in args[1] if isinstance(a, _Text)]
        is_known = bool(names) and len(names) == len(args[1])
        for atom in args[0]:
            if not is_known or not isinstance(atom, _View | _Typed):
                self._escape(frozenset({atom}))
                found |= _OTHER
                continue
            for field_name in names:
                got, _ = self._field(atom, field_name)
                if name == "hasattr":
                    # Whether it is there depends on its being sent.
                    self._escape(got)
                else:
                    found |= got
        return _OTHER if name == "hasattr" else frozenset(found)


def _parameter(name: str) -> Value:
    """What a hook is given for the parameter *name*."""
    if name in VIEWS:
        return frozenset({_View(name)})
    if name == "nodes":
        return frozenset({_Items(frozenset({_View("node")}))})
    if name == "victims":
        return frozenset({_Items(frozenset({_View("pod")}))})
    return _OTHER


def _typed(type_text: str | None) -> Value:
    """A value of which only the type is known."""
    if type_text is None:
        return _OTHER
    base = type_text.removesuffix("?")
    if base in RECORDS or base.startswith(("list[", "dict[")):
        return frozenset({_Typed(base)})
    return _OTHER


_LIST_TYPE: Final = re.compile(r"list\[(.+)\]")
_DICT_TYPE: Final = re.compile(r"dict\[str, ?(.+)\]")


def _element_type(type_text: str) -> str | None:
    """The type of an element of a list, or of a value of a dict."""
    match = _LIST_TYPE.fullmatch(type_text) or _DICT_TYPE.fullmatch(type_text)
    return match[1] if match else None


def _nesting(atom: Atom) -> int:
    if isinstance(atom, _Items):
        return 1 + max((_nesting(a) for a in atom.items), default=0)
    if isinstance(atom, _Tuple):
        return 1 + max((_nesting(a) for item in atom.items for a in item), default=0)
    if isinstance(atom, _Map):
        return 1 + max((_nesting(a) for a in atom.keys | atom.values), default=0)
    return 0


def _has_star(nodes: Iterable[ast.expr]) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)


def _local_names(node: ast.FunctionDef | ast.Lambda) -> Iterator[str]:
    """The names that are local to a function: parameters and whatever it assigns."""
    arguments = node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        yield argument.arg
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield rest.arg
    if isinstance(node, ast.FunctionDef):
        yield from _assigned_names(node.body)


def _assigned_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    # Not those of nested functions and comprehensions, which have scopes of their own.
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _stored_names(target)
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            yield from _stored_names(statement.target)
        elif isinstance(statement, ast.For):
            yield from _stored_names(statement.target)
            yield from _assigned_names([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.If):
            yield from _assigned_names([*statement.body, *statement.orelse])
