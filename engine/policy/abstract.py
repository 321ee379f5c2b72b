"""Abstract values: what an expression of a policy may be at run time, as far as it matters.

A value is a set of atoms. `OTHER` stands for anything that holds no view and that nothing is known
of. Owns the atoms, the scopes of functions, and the constants of a file's top level; following
values through statements and calls is `dataflow`.
"""

import ast
import re
from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from engine.policy.sandbox.protocol import Files
from engine.policy.syntax import Load, has_star, is_load, loads_of, parse, stored_names, walk
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

# What is larger is not followed.
MAX_NESTING: Final = 4
MAX_TUPLE: Final = 16
_MAX_TEXT: Final = 400
_MAX_SUMS: Final = 256


@dataclass(frozen=True, slots=True)
class Other:
    """A value that holds no view, and that nothing is known of."""


@dataclass(frozen=True, slots=True)
class View:
    """A whole view: `pod`, `node` or `cluster`."""

    view: str


@dataclass(frozen=True, slots=True)
class Lazy:
    """A dict field of a view that is not read yet: that depends on what happens to it."""

    view: str
    field: str


@dataclass(frozen=True, slots=True)
class Loose:
    """A field of that name of what is not known: of a view that has escaped, perhaps."""

    field: str


@dataclass(frozen=True, slots=True)
class Figures:
    """A struct of numbers that a hook is given in a parameter: a counter, or a range of scores."""

    parameter: str


@dataclass(frozen=True, slots=True)
class Typed:
    """Part of a field that is counted as read; the type serves to find misspelt names."""

    type: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string that is known: it may be a key."""

    value: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list, or anything else that gives any of `items` when looped over or indexed."""

    items: "Value"


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of which every element is known by its place."""

    items: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Map:
    """A dict constant of a module."""

    keys: "Value"
    values: "Value"


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A function or lambda, with the scope that it closes over; compared by identity."""

    module: "Module"
    node: ast.FunctionDef | ast.Lambda
    scope: "Scope | None"


@dataclass(frozen=True, slots=True)
class Made:
    """What a file's top level made with these functions: who gets it may call them, or theirs."""

    functions: frozenset[Function]


@dataclass(frozen=True, slots=True)
class Builtin:
    """A name that the file does not define: Starlark's own, or the runtime's."""

    name: str


Atom: TypeAlias = (
    Other
    | View
    | Lazy
    | Loose
    | Figures
    | Typed
    | Text
    | Items
    | Tuple
    | Map
    | Function
    | Made
    | Builtin
)
Value: TypeAlias = frozenset[Atom]

NOTHING: Final[Value] = frozenset()
OTHER: Final[Value] = frozenset({Other()})


@dataclass(eq=False)
class Scope:
    """The variables of one function in one context, or of one comprehension in it."""

    parent: "Scope | None"
    names: frozenset[str]
    values: dict[str, Value] = field(default_factory=dict)
    inner: dict[ast.AST, "Scope"] = field(default_factory=dict)
    functions: dict[ast.AST, Function] = field(default_factory=dict)
    # By variable: in how many passes it got more to hold, and the last of them.
    grown: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(eq=False)
class Context:
    """One function with one set of arguments."""

    scope: Scope
    result: Value = NOTHING
    walked_in: int = 0


class Module:
    """The top level of one file: constants, functions, loads."""

    def __init__(self, world: "World", path: str, tree: ast.Module) -> None:
        self.path = path
        self.world = world
        self.assigned: dict[str, list[ast.expr]] = {}
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.loads: dict[str, Load] = {load.local: load for load in loads_of(tree)}
        self.unknown: set[str] = set()
        self.is_quiet = _is_quiet(tree)
        self.hands_reflection_on = hands_on(tree, REFLECTING)
        self.function_atoms: dict[ast.AST, Function] = {}
        self._values: dict[str, Value] = {}
        self._evaluating: set[str] = set()
        self._top = list(_top_level(tree))
        self._held: frozenset[Function] | None = None
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
                    self.unknown |= set(stored_names(target))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.value is not None:
                self.assigned.setdefault(statement.target.id, []).append(statement.value)
        else:
            self.unknown |= set(stored_names(statement))

    def value(self, name: str) -> Value | None:
        """What the global *name* may be; None if the file does not define it."""
        if name in self._values:
            return self._values[name]
        if name in self._evaluating:
            return OTHER
        found: set[Atom] = set()
        is_known = name in self.unknown
        self._evaluating.add(name)
        try:
            if is_known:
                found |= self._made()
            for node in self.functions.get(name, ()):
                is_known = True
                found.add(self.function(node))
            for expression in self.assigned.get(name, ()):
                is_known = True
                found |= self.constant(expression)
            if name in self.loads:
                is_known = True
                load = self.loads[name]
                module = self.world.module(load.module)
                loaded = module.value(load.name) if module is not None else None
                found |= OTHER if loaded is None else loaded
        finally:
            self._evaluating.discard(name)
        if not is_known:
            return None
        # Constants made of constants: what each nests is small, what they nest together is not.
        value = frozenset(found)
        if len(found) > _MAX_SUMS or any(nesting(a) > MAX_NESTING for a in found):
            value = OTHER | {Made(functions_in(value))}
        self._values[name] = value
        return value

    def function(self, node: ast.FunctionDef | ast.Lambda) -> Function:
        """The value of a function of the top level."""
        atom = self.function_atoms.get(node)
        if atom is None:
            atom = self.function_atoms[node] = Function(self, node, None)
        return atom

    def _made(self, *expressions: ast.expr) -> Value:
        """What is made of *expressions* of the top level, in a way that is not followed."""
        held = functions_in(union(self._named(node) for e in expressions for node in walk(e)))
        if not self.is_quiet:
            held |= self._held_anywhere()
        return OTHER | {Made(held)} if held else OTHER

    def _named(self, node: ast.AST) -> Value:
        if isinstance(node, ast.Lambda):
            return frozenset({self.function(node)})
        return (self.value(node.id) if isinstance(node, ast.Name) else None) or NOTHING

    def _held_anywhere(self) -> frozenset[Function]:
        """Where anything can be put anywhere, all that is named may be in all that is made."""
        if self._held is None:
            self._held = frozenset()  # for files that load each other
            # Of its own names the functions: what the others are made of is at the top level, too.
            plain = self.functions.keys() | self.loads.keys()
            named = (n for n in self._top if not isinstance(n, ast.Name) or n.id in plain)
            self._held = functions_in(union(map(self._named, named)))
        return self._held

    def constant(self, node: ast.expr, depth: int = 0) -> Value:
        """The value of a top-level expression, as far as it is a constant."""
        if depth > MAX_NESTING:
            return self._made(node)
        if isinstance(node, ast.Constant):
            return frozenset({Text(node.value)}) if isinstance(node.value, str) else OTHER
        if isinstance(node, ast.Name):
            value = self.value(node.id)
            return OTHER if value is None else value
        if isinstance(node, ast.Tuple):
            items = [self.constant(e, depth + 1) for e in node.elts]
            is_long = len(items) > MAX_TUPLE
            return frozenset({Items(union(items)) if is_long else Tuple(tuple(items))})
        if isinstance(node, ast.Lambda):
            return frozenset({self.function(node)})
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            summed = added(self.constant(node.left, depth), self.constant(node.right, depth))
            return summed | self._made(node) if Other() in summed else summed
        if isinstance(node, ast.IfExp):
            return self.constant(node.body, depth) | self.constant(node.orelse, depth)
        if not self.is_quiet:
            return self._made(node)  # a list could have been changed before it was frozen
        if isinstance(node, ast.List):
            items = [self.constant(e, depth + 1) for e in node.elts]
            return frozenset({Items(union(items))})
        if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
            keys = union(self.constant(k, depth + 1) for k in node.keys if k is not None)
            return frozenset({Map(keys, union(self.constant(v, depth + 1) for v in node.values))})
        return self._made(node)


def _top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """All that runs while a file is loaded."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            for default in statement.args.defaults:
                yield from walk(default)
        else:
            yield from walk(statement)


def functions_in(value: Value) -> frozenset[Function]:
    """The functions that *value* is, or holds."""
    found: set[Function] = set()
    for atom in value:
        if isinstance(atom, Function):
            found.add(atom)
        elif isinstance(atom, Made):
            found |= atom.functions
        elif isinstance(atom, Items):
            found |= functions_in(atom.items)
        elif isinstance(atom, Tuple):
            found |= functions_in(union(atom.items))
        elif isinstance(atom, Map):
            found |= functions_in(atom.values)
    return frozenset(found)


def _is_quiet(tree: ast.Module) -> bool:
    """True if nothing at top level can change a list or dict after it was made."""
    harmless = _HARMLESS - {load.local for load in loads_of(tree)}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            harmless -= {statement.name}
        else:
            harmless -= set(stored_names(statement))
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            parts: list[ast.AST] = [*statement.args.defaults, *statement.args.kw_defaults]  # type: ignore[list-item]  # kw_defaults holds None for required ones
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if not all(isinstance(t, ast.Name) for t in targets):
                return False
            parts = [statement.value] if statement.value is not None else []
        elif isinstance(statement, ast.Expr):
            if isinstance(statement.value, ast.Constant) or is_load(statement.value):
                continue
            return False
        else:
            return False
        for part in parts:
            for node in walk(part) if part is not None else ():
                if isinstance(node, ast.Call) and not (
                    isinstance(node.func, ast.Name)
                    and node.func.id in harmless
                    and not (node.func.id in _CALLING and _has_key(node))
                ):
                    return False
    return True


def _has_key(call: ast.Call) -> bool:
    """True if *call* may be given a `key` function, which it calls."""
    return any(keyword.arg in (None, "key") for keyword in call.keywords)


_HARMLESS: Final = frozenset(
    {"plugin_args", "struct", "record", "field", "enum", "dict", "list", "tuple", "sorted", "len"}
    | {"range", "str", "int", "float", "min", "max", "abs", "parse_int", "parse_float"}
)
_CALLING: Final = frozenset({"sorted", "min", "max"})


#: What finds a field of a value without its being written `x.field`.
REFLECTING: Final = frozenset({"getattr", "hasattr", "dir"})


def hands_on(tree: ast.AST, names: Container[str]) -> bool:
    """True if a function of *names* is used in another way than by a plain call."""
    nodes = list(walk(tree))
    called = {
        id(node.func) for node in nodes if isinstance(node, ast.Call) and not has_star(node.args)
    }
    return any(isinstance(n, ast.Name) and n.id in names and id(n) not in called for n in nodes)


class World:
    """The modules of a bundle, parsed on demand, each once for all that is asked about them."""

    def __init__(self, files: Files) -> None:
        self.files: Final = files
        self._modules: dict[str, Module | None] = {}
        self._hands_reflection_on: dict[str, bool] = {}

    def module(self, path: str) -> Module | None:
        """The module at *path*; None if it is missing or Python cannot parse it."""
        if path not in self._modules:
            tree = parse(self.files[path]) if path in self.files else None
            self._modules[path] = None if tree is None else Module(self, path, tree)
        return self._modules[path]

    def hands_reflection_on(self, path: str) -> bool:
        """True if `getattr` or the like may be called by *path* without being named there.

        That is where it, or a file that it loads, gives it another name or passes it on.
        """
        known = self._hands_reflection_on
        if path in known:
            return known[path]
        # Each file that is come upon, with the one that loads it.
        loaded_by: dict[str, str | None] = {path: None}
        waiting = deque([path])
        while waiting:
            file = waiting.popleft()
            if known.get(file) is False:
                continue
            module = self.module(file)
            # One that does, or that Python cannot parse: then so do those on the way to it.
            if file in known or module is None or module.hands_reflection_on:
                on_the_way: str | None = file
                while on_the_way is not None:
                    known[on_the_way] = True
                    on_the_way = loaded_by[on_the_way]
                return True
            for load in module.loads.values():
                if load.module in self.files and load.module not in loaded_by:
                    loaded_by[load.module] = file
                    waiting.append(load.module)
        known.update(dict.fromkeys(loaded_by, False))
        return False


def union(values: Iterable[Value]) -> Value:
    """All that any of *values* may be."""
    found: set[Atom] = set()
    for value in values:
        found |= value
    return frozenset(found)


def added(left: Value, right: Value) -> Value:
    """What `left + right` may be."""
    if len(left) * len(right) > _MAX_SUMS:
        return OTHER
    found: set[Atom] = set()
    for a in left:
        for b in right:
            if isinstance(a, Text) and isinstance(b, Text):
                text = a.value + b.value
                found.add(Text(text) if len(text) <= _MAX_TEXT else Other())
            elif isinstance(a, Tuple) and isinstance(b, Tuple):
                items = a.items + b.items
                is_long = len(items) > MAX_TUPLE
                found.add(Items(union(items)) if is_long else Tuple(items))
            elif isinstance(a, Items) and isinstance(b, Items):
                found.add(Items(a.items | b.items))
            else:
                found.add(Other())
    return frozenset(found)


def parameter_value(name: str) -> Value:
    """What a hook is given for the parameter *name*."""
    if name in VIEWS:
        return frozenset({View(name)})
    if name == "nodes":
        return frozenset({Items(frozenset({View("node")}))})
    if name == "victims":
        return frozenset({Items(frozenset({View("pod")}))})
    if name == "counts":
        return frozenset({Items(frozenset({Figures(name)}))})
    if name == "over":
        return frozenset({Figures(name)})
    return OTHER


def typed(type_text: str | None) -> Value:
    """A value of which only the type is known."""
    if type_text is None:
        return OTHER
    base = type_text.removesuffix("?")
    if base in RECORDS or base.startswith(("list[", "dict[")):
        return frozenset({Typed(base)})
    return OTHER


_LIST_TYPE: Final = re.compile(r"list\[(.+)\]")
_DICT_TYPE: Final = re.compile(r"dict\[str, ?(.+)\]")


def element_type(type_text: str) -> str | None:
    """The type of an element of a list, or of a value of a dict."""
    match = _LIST_TYPE.fullmatch(type_text) or _DICT_TYPE.fullmatch(type_text)
    return match[1] if match else None


def nesting(atom: Atom) -> int:
    """How deep *atom* holds other atoms."""
    if isinstance(atom, Items):
        return 1 + max((nesting(a) for a in atom.items), default=0)
    if isinstance(atom, Tuple):
        return 1 + max((nesting(a) for item in set(atom.items) for a in item), default=0)
    if isinstance(atom, Map):
        return 1 + max((nesting(a) for a in atom.keys | atom.values), default=0)
    return 0
