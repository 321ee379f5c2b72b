"""What the top level of policy files defines: functions, constants, loads.

Owns the constants of a file, as far as they are sure to stay what they are, and the set of files
that are looked at together. What happens when functions run is `infer`'s.
"""

import ast
from collections import deque
from collections.abc import Container, Iterator, Mapping
from typing import Final

from engine.language.syntax import (
    Load,
    has_star,
    is_load,
    loads_of,
    local_names,
    number_of,
    parse,
    stored_names,
    walk,
)
from engine.language.table import Effect, builtins
from engine.language.values import (
    MAX_NESTING,
    MAX_SUMS,
    MAX_TUPLE,
    NOTHING,
    OPAQUE,
    Atom,
    Constructed,
    Function,
    Items,
    Map,
    Opaque,
    Schema,
    Tuple,
    Value,
    added,
    computed,
    functions_in,
    nesting,
    of_constant,
    union,
)


class Module:
    """The top level of one file: constants, functions, loads."""

    def __init__(self, world: "World", path: str, tree: ast.Module) -> None:
        self.path = path
        self.world = world
        self.tree = tree
        self.assigned: dict[str, list[ast.expr]] = {}
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.loads: dict[str, Load] = {load.local: load for load in loads_of(tree)}
        self.unknown: set[str] = set()
        self.is_quiet = _is_quiet(tree)
        self.passes_reflection_on = passes_on(tree, REFLECTION)
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
            return OPAQUE
        found: set[Atom] = set()
        is_known = name in self.unknown
        self._evaluating.add(name)
        try:
            if is_known:
                found |= self._constructed()
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
                found |= OPAQUE if loaded is None else loaded
        finally:
            self._evaluating.discard(name)
        if not is_known:
            return None
        # Constants made of constants: what each nests is small, what they nest together is not.
        value = frozenset(found)
        if len(found) > MAX_SUMS or any(nesting(a) > MAX_NESTING for a in found):
            value = OPAQUE | {Constructed(functions_in(value))}
        self._values[name] = value
        return value

    def function(self, node: ast.FunctionDef | ast.Lambda) -> Function:
        """The value of a function of the top level."""
        atom = self.function_atoms.get(node)
        if atom is None:
            atom = self.function_atoms[node] = Function(self, node, None)
        return atom

    def _constructed(self, *expressions: ast.expr) -> Value:
        """What is built of *expressions* of the top level, in a way that is not followed."""
        held = functions_in(union(self._named(node) for e in expressions for node in walk(e)))
        if not self.is_quiet:
            held |= self._held_anywhere()
        return OPAQUE | {Constructed(held)} if held else OPAQUE

    def _named(self, node: ast.AST) -> Value:
        if isinstance(node, ast.Lambda):
            return frozenset({self.function(node)})
        return (self.value(node.id) if isinstance(node, ast.Name) else None) or NOTHING

    def _held_anywhere(self) -> frozenset[Function]:
        """Where anything can be put anywhere, all that is named may be in all that is built."""
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
            return self._constructed(node)
        if isinstance(node, ast.Constant):
            return of_constant(node.value)
        if isinstance(node, ast.Name):
            value = self.value(node.id)
            return OPAQUE if value is None else value
        if isinstance(node, ast.Tuple):
            items = [self.constant(e, depth + 1) for e in node.elts]
            is_long = len(items) > MAX_TUPLE
            whole = Items(union(items), "tuple") if is_long else Tuple(tuple(items))
            return frozenset({whole})
        if isinstance(node, ast.Lambda):
            return frozenset({self.function(node)})
        if isinstance(node, ast.UnaryOp) and (number := number_of(node)) is not None:
            return of_constant(number)
        if isinstance(node, ast.BinOp):
            left, right = self.constant(node.left, depth), self.constant(node.right, depth)
            if isinstance(node.op, ast.Add):
                found = added(left, right)
            else:
                found = computed(left, right, is_division=isinstance(node.op, ast.Div))
            return found | self._constructed(node) if Opaque() in found else found
        if isinstance(node, ast.IfExp):
            return self.constant(node.body, depth) | self.constant(node.orelse, depth)
        if not self.is_quiet:
            return self._constructed(node)  # a list could have been changed before it was frozen
        if isinstance(node, ast.List):
            items = [self.constant(e, depth + 1) for e in node.elts]
            return frozenset({Items(union(items), "list")})
        if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
            keys = union(self.constant(k, depth + 1) for k in node.keys if k is not None)
            return frozenset({Map(keys, union(self.constant(v, depth + 1) for v in node.values))})
        return self._constructed(node)


def _top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """All that runs while a file is loaded."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            for default in statement.args.defaults:
                yield from walk(default)
        else:
            yield from walk(statement)


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


_HARMLESS: Final = frozenset(name for name, entry in builtins().items() if entry.is_pure)
_CALLING: Final = frozenset(name for name, entry in builtins().items() if entry.parameter("key"))

#: What finds a field of a value without its being written `x.field`.
REFLECTION: Final = frozenset(
    {"dir"} | {name for name, entry in builtins().items() if entry.effect is Effect.REFLECTS}
)


def passes_on(tree: ast.AST, names: Container[str]) -> bool:
    """True if a function of *names* is used in another way than by a plain call."""
    nodes = list(walk(tree))
    called = {
        id(node.func) for node in nodes if isinstance(node, ast.Call) and not has_star(node.args)
    }
    return any(isinstance(n, ast.Name) and n.id in names and id(n) not in called for n in nodes)


class World:
    """The files of a bundle, parsed on demand, each once for all that is asked about them."""

    def __init__(self, files: Mapping[str, str], schema: Schema) -> None:
        self.files: Final = files
        self.schema: Final = schema
        #: The dict fields of which an entry may be there only because it is named.
        self.named_fields: Final = frozenset(
            name
            for fields in schema.views.values()
            for name, field in fields.items()
            if field.fills or field.is_asked
        )
        self._modules: dict[str, Module | None] = {}
        self._passes_reflection_on: dict[str, bool] = {}
        self._locals: dict[ast.AST, frozenset[str]] = {}

    def module(self, path: str) -> Module | None:
        """The module at *path*; None if it is missing or Python cannot parse it."""
        if path not in self._modules:
            tree = parse(self.files[path]) if path in self.files else None
            self._modules[path] = None if tree is None else Module(self, path, tree)
        return self._modules[path]

    def locals_of(self, node: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
        """The names that are local to a function: its parameters and what it assigns."""
        found = self._locals.get(node)
        if found is None:
            found = self._locals[node] = frozenset(local_names(node))
        return found

    def close(self) -> None:
        """Drop the modules, to be called when nothing more is asked about them.

        Modules refer to each other and to themselves, with syntax trees a hundred times their text:
        in a process that rarely looks for cyclic garbage they would stay for many bundles.
        """
        for module in self._modules.values():
            if module is not None:
                vars(module).clear()
        self._modules.clear()
        self._locals.clear()

    def passes_reflection_on(self, path: str) -> bool:
        """True if `getattr` or the like may be called by *path* without being named there.

        That is where it, or a file that it loads, gives it another name or passes it on.
        """
        known = self._passes_reflection_on
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
            if file in known or module is None or module.passes_reflection_on:
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
