"""Translation of a hook into Python: statements, functions, and the state of one translation.

Starlark's syntax is nearly Python's, but its semantics differ: this builds a new Python tree from
a whitelist of what is surely alike, with types inferred from the views' schema to know it.
Whatever is outside raises `Untranslatable`, and the hook runs in the interpreter only. Two rules
keep the types small: where Python *raises*, anything goes, because the interpreter then answers;
where Python gives a value, it must be the interpreter's value for every alternative.

Owns calls between functions, and what is made and changed where. What control flow means for
variables is `engine.language.flow`'s, expressions are `expressions`.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from engine.language.flow import UNKNOWN, Flow, same_constant
from engine.language.resolve import annotations_of, parameters_of
from engine.language.syntax import assigned_names, local_names
from engine.language.values import (
    NONE,
    NOTHING,
    OPAQUE,
    STR,
    Builtin,
    Function,
    Items,
    Map,
    Site,
    Tuple,
    Value,
)
from engine.policy.sandbox.translation import tidy
from engine.policy.sandbox.translation.expressions import Expressions
from engine.policy.sandbox.translation.kinds import (
    OUTSIDE,
    Sites,
    Untranslatable,
    check_depth,
    join,
    names,
)
from engine.policy.sandbox.translation.state import Code, Spec, Translation, call, constant_key

_MAX_FUNCTIONS: Final = 120
#: After so many, the types of what is translated are taken not to settle.
MAX_PASSES: Final = 12
_MAX_NODES: Final = 20_000
_MAX_CALLS: Final = 24
_MAX_UNROLLED: Final = 8
_MAX_UNROLLED_NODES: Final = 600


class Block:
    """The statements of one function, for one set of argument types."""

    def __init__(self, shared: Translation, path: str, key: Any, locals_: Iterable[str]) -> None:
        self.shared = shared
        self.path = path
        self.key = key
        self.locals = frozenset(locals_)
        self.flow = Flow(join)
        self.flow.has_type = shared.texts.meaning(path, "type") == Builtin("type")
        self.returns: list[Code] = []
        self.changes: set[Site] = set()
        self._noted: list[set[Site]] = []
        self.expressions = Expressions(self)

    # --- values that the hook makes itself ----------------------------------------------------

    def site(self, node: ast.AST, tag: str = "") -> Site:
        """The site that *node* of the policy's text is."""
        place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        end = (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))
        return (self.shared.ids.setdefault(self.key, len(self.shared.ids)), place, end, tag)

    def new_list(self, node: ast.AST, item: Value, tag: str = "") -> Value:
        """The type of a list that *node* makes."""
        site = self.site(node, tag)
        self.shared.lists.setdefault(site, NOTHING)
        self.shared.put(frozenset({site}), item)
        return frozenset({Items(NOTHING, "list", frozenset({site}))})

    def change(self, sites: Sites) -> None:
        """The lists or dicts of *sites* are changed here."""
        self.changes |= sites
        self.shared.changed |= sites
        for noted in self._noted:
            noted |= sites

    @contextmanager
    def noting(self) -> Iterator[set[Site]]:
        """What is changed within, while it is translated."""
        self._noted.append(set())
        try:
            yield self._noted[-1]
        finally:
            self._noted.pop()

    # --- statements ---------------------------------------------------------------------------

    def run(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Translate statements until one that nothing comes after."""
        found: list[ast.stmt] = []
        for statement in body:
            if self.flow.variables is None:
                break
            self.shared.nodes += 1
            if self.shared.nodes > _MAX_NODES:
                raise Untranslatable("too much text")
            found += self._statement(statement)
        return found or [ast.Pass()]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Pass():
                return []
            case ast.Expr(value=ast.Constant()):
                return []
            case ast.Expr(value=ast.Call() as called):
                return self._effect(called)
            case ast.Assign(targets=[target]):
                return self._assign(target, node.value)
            case ast.AugAssign():
                return self._augment(node)
            case ast.If():
                return self._if(node)
            case ast.For(orelse=[]):
                return self._for(node)
            case ast.Return():
                value = node.value
                code = Code(ast.Constant(None), NONE, None) if value is None else self.value(value)
                self.returns.append(code)
                self.flow.end()
                return [ast.Return(code.node)]
            case ast.Break() | ast.Continue():
                if not self.flow.leave(node):
                    raise Untranslatable("outside of a loop")
                return [type(node)()]
        raise Untranslatable(f"statement {type(node).__name__}")

    def value(self, node: ast.expr) -> Code:
        """Translate one expression."""
        return self.expressions.value(node)

    def _assign(self, target: ast.expr, given: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Tuple) and isinstance(given, ast.Tuple):
            return self._assign_each(target, given)
        code = self.value(given)
        if isinstance(target, ast.Subscript):
            return [self._store_item(target, code)]
        return [ast.Assign([self.target(target, code)], code.node)]

    def _assign_each(self, target: ast.Tuple, given: ast.Tuple) -> list[ast.stmt]:
        """`a, b = x, y`: each by itself, so that constants stay known."""
        if len(target.elts) != len(given.elts):
            raise Untranslatable("a tuple of another length")
        codes = [self.value(each) for each in given.elts]
        nodes = [self.target(t, code) for t, code in zip(target.elts, codes, strict=True)]
        if len(nodes) == 1:
            return [ast.Assign(nodes, codes[0].node)]
        values = ast.Tuple([code.node for code in codes], ast.Load())
        return [ast.Assign([ast.Tuple(nodes, ast.Store())], values)]

    def target(self, node: ast.expr, code: Code) -> ast.expr:
        """Bind the names of *node* to *code*."""
        if isinstance(node, ast.Name):
            check_depth(code.type)
            self.flow.bind(node.id, code.type, code.value)
            return ast.Name(f"v_{node.id}", ast.Store())
        if isinstance(node, ast.Tuple | ast.List):
            if any(isinstance(each, ast.Starred) for each in node.elts):
                raise Untranslatable("a star in a target")
            held = self._unpacked(code.type, len(node.elts))
            pairs = zip(node.elts, held, strict=True)
            targets = [self.target(each, Code(ast.Constant(None), t)) for each, t in pairs]
            return ast.Tuple(targets, ast.Store())
        raise Untranslatable("a target that is no name")

    def _unpacked(self, type_: Value, count: int) -> list[Value]:
        held = [NOTHING] * count
        for one in type_:
            if isinstance(one, Tuple):
                if len(one.items) == count:
                    held = [join(a, b) for a, b in zip(held, one.items, strict=True)]
            elif isinstance(one, Items):
                item = self.shared.item_of(one)
                held = [join(a, item) for a in held]
            elif isinstance(one, Map) or one in STR | OPAQUE:
                raise Untranslatable("unpacking of something else than a list or tuple")
        return held

    def _store_item(self, target: ast.Subscript, code: Code) -> ast.stmt:
        """`x[i] = value` of a list or dict that the hook made."""
        held, index = self.value(target.value), self.expressions.value(target.slice)
        sites = self.own_sites(held.type)
        kinds = names(held.type)
        if kinds == {"list"}:
            if names(index.type) - {"int", "none"}:
                raise Untranslatable("a list's index that may be no int")
            self.shared.put(sites, code.type)
        elif kinds == {"dict"}:
            if names(index.type) not in ({"str"}, {"int"}):
                raise Untranslatable("a dict's key that is no text or int")
            (one,) = held.type
            assert isinstance(one, Map)
            self.shared.put_pair(sites, index.type, code.type)
            if len(names(self.shared.pair_of(one)[0])) > 1:
                raise Untranslatable("keys of several types")
        else:
            raise Untranslatable("an item of something else")
        self.change(sites)
        return ast.Assign([ast.Subscript(held.node, index.node, ast.Store())], code.node)

    def own_sites(self, type_: Value) -> Sites:
        """The sites of lists or dicts that were made here. Raises where others are possible."""
        found: Sites = frozenset()
        for one in type_:
            if not isinstance(one, Items | Map) or not one.sites or OUTSIDE in one.sites:
                raise Untranslatable("a change of something that the hook did not make")
            if isinstance(one, Items) and one.items != NOTHING:
                raise Untranslatable("a change of something that the hook did not make")
            if isinstance(one, Map) and (one.keys != NOTHING or one.values != NOTHING):
                raise Untranslatable("a change of something that the hook did not make")
            found |= one.sites
        return found

    def _augment(self, node: ast.AugAssign) -> list[ast.stmt]:
        place: ast.expr
        if isinstance(node.target, ast.Name):
            place = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        elif isinstance(node.target, ast.Subscript):
            target = node.target
            place = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
        else:
            raise Untranslatable("a target that is no name")
        with self.noting() as changes:
            before = self.value(place)
            kinds = names(before.type)
            if "list" in kinds or "dict" in kinds or "any" in kinds:
                more = self.value(node.value)
                if kinds != {"list"} or not isinstance(node.op, ast.Add):
                    raise Untranslatable("an update of a list or dict")
                if not isinstance(node.target, ast.Name):
                    raise Untranslatable("an update of a list in a list")
                return [self._extend(before, more)]
            both = ast.copy_location(ast.BinOp(place, node.op, node.value), node)
            code = self.value(both)
        if isinstance(node.target, ast.Subscript):
            if changes:
                # The place is looked up twice here, the second time after the value.
                raise Untranslatable("an update of a place that a change may move")
            return [self._store_item(node.target, code)]
        return [ast.Assign([self.target(node.target, code)], code.node)]

    def _extend(self, held: Code, more: Code) -> ast.stmt:
        sites = self.own_sites(held.type)
        for one in more.type:
            if not isinstance(one, Items):
                raise Untranslatable("an extension by something else than a list")
            if one.sites & sites:
                raise Untranslatable("a list that is extended by itself")
            self.shared.put(sites, self.shared.item_of(one))
        self.change(sites)
        both = ast.Attribute(held.node, "extend", ast.Load())
        return ast.Expr(ast.Call(both, [self.charged(more, 1)], []))

    def charged(self, code: Code, cost: int) -> ast.expr:
        """*code*, a list that is paid for by its length."""
        return call("h_spend", code.node, ast.Constant(max(1, cost)))

    def _effect(self, node: ast.Call) -> list[ast.stmt]:
        match node:
            case ast.Call(func=ast.Attribute(attr="append"), args=[item], keywords=[]):
                held, code = self._receiver(node), self.value(item)
                sites = self.own_sites(held.type)
                if names(held.type) != {"list"}:
                    raise Untranslatable("append to no list")
                self.shared.put(sites, code.type)
                self.change(sites)
                method = ast.Attribute(held.node, "append", ast.Load())
                return [ast.Expr(ast.Call(method, [code.node], []))]
            case ast.Call(func=ast.Attribute(attr="extend"), args=[more], keywords=[]):
                held = self._receiver(node)
                if names(held.type) != {"list"}:
                    raise Untranslatable("extend of no list")
                return [self._extend(held, self.value(more))]
        code = self.value(node)
        if not code.type:
            self.flow.end()
        return [ast.Expr(code.node)]

    def _receiver(self, node: ast.Call) -> Code:
        assert isinstance(node.func, ast.Attribute)
        return self.value(node.func.value)

    def call_function(self, function: Function, arguments: Sequence[Code]) -> Code:
        """A call of *function*, its text translated for these arguments."""
        return _call_function(self, function, arguments)

    # --- control flow -------------------------------------------------------------------------

    def _if(self, node: ast.If) -> list[ast.stmt]:
        test = self.value(node.test)
        if test.is_known:
            return self.run(node.body if test.value else node.orelse)
        body, orelse = self.flow.choose(
            node.test,
            lambda: self.run(node.body),
            lambda: self.run(node.orelse) if node.orelse else [],
        )
        return [ast.If(test.node, body, orelse)]

    def _for(self, node: ast.For) -> list[ast.stmt]:
        unrolled = self._unrolled(node)
        if unrolled is not None:
            return unrolled
        paid, item, sites = self.expressions.iterable(node.iter)
        start, before_nodes = self.flow.variables, self.shared.nodes

        def one_round() -> tuple[ast.expr, list[ast.stmt]]:
            return self.target(node.target, Code(ast.Constant(None), item)), self.run(node.body)

        for _ in range(MAX_PASSES):
            assert start is not None
            before, before_nodes = start, self.shared.nodes
            with self.noting() as changes:
                (target, body), start = self.flow.loop(before, one_round)
            if start == before:
                break
        else:
            raise Untranslatable("a loop whose types do not settle")
        if changes & sites:
            raise Untranslatable("a loop that changes what it loops over")
        cost = 10 + 8 * (self.shared.nodes - before_nodes)
        return [ast.For(target, paid(cost), body, [])]

    def _unrolled(self, node: ast.For) -> list[ast.stmt] | None:
        """A loop over a short constant, once for each item: what follows from the item is known."""
        if isinstance(node.iter, ast.Call | ast.ListComp):
            return None
        items = self.value(node.iter).value
        if type(items) not in (list, tuple) or not 0 < len(items) <= _MAX_UNROLLED:
            return None
        start, before_nodes = self.flow.variables, self.shared.nodes
        found: list[ast.stmt] = []
        for item in items:
            if self.flow.variables is None:
                break
            code = self.expressions.known(item)
            first = ast.Assign([self.target(node.target, code)], code.node)
            body, exits = self.flow.once(lambda: self.run(node.body))
            body = [first, *body]
            if exits.broken is not None or self.shared.nodes - before_nodes > _MAX_UNROLLED_NODES:
                self.flow.variables = start
                return None
            found += body if exits.continued is None else tidy.once(body)
        return found


def _call_function(block: Block, function: Function, arguments: Sequence[Code]) -> Code:
    shared = block.shared
    assert isinstance(function.node, ast.FunctionDef)
    bound = frozenset(assigned_names(function.node.body))
    params = parameters_of(function.node.args).positional
    # A parameter that is assigned to is a variable: its first value must be there.
    arguments = [
        code._replace(value=UNKNOWN) if param in bound else code
        for param, code in zip(params, arguments, strict=True)
    ]
    constants = tuple(constant_key(code.value) for code in arguments)
    types = tuple(code.type for code in arguments)
    key = (function, types, constants)
    if key in shared.running:
        raise Untranslatable("a function that calls itself")
    spec = shared.specs.get(key)
    if spec is None:
        if len(shared.specs) >= _MAX_FUNCTIONS or len(shared.running) >= _MAX_CALLS:
            raise Untranslatable("too many functions")
        spec = translate_function(shared, function, key, arguments)
        shared.specs[key] = spec
    block.change(frozenset(spec.changes))
    # Its loops and calls count wherever it is called.
    shared.nodes += spec.cost
    plain = all(isinstance(code.node, ast.Name | ast.Constant) for code in arguments)
    if spec.result_value is not UNKNOWN and plain:
        return Code(shared.constant(spec.result_value), spec.result, spec.result_value)
    unknown = [code.node for code in arguments if not code.is_known]
    return Code(call(spec.name, *unknown), spec.result)


def translate_function(
    shared: Translation, function: Function, key: Any, arguments: Sequence[Code]
) -> Spec:
    """Translate a function and put it among those of the hook."""
    node = function.node
    assert isinstance(node, ast.FunctionDef)
    spec = Spec(f"f{len(shared.ids)}_{len(shared.specs) + len(shared.running)}")
    block = Block(shared, function.module.path, key, _own_names(node))
    params = parameters_of(node.args).positional
    for param, code in zip(params, arguments, strict=True):
        block.flow.bind(param, code.type, code.value)
    shared.running.append(key)
    before = shared.nodes
    body = block.run(node.body)
    shared.running.pop()
    if block.flow.variables is not None:
        block.returns.append(Code(ast.Constant(None), NONE, None))
        body.append(ast.Return(ast.Constant(None)))
    spec.result = join(*(code.type for code in block.returns))
    values = [code.value for code in block.returns]
    is_constant = bool(values) and all(same_constant(values[0], value) for value in values)
    if is_constant and values[0] is not UNKNOWN and only_returns(body):
        spec.result_value = values[0]
    body = tidy.without_dead_stores(body)
    spec.changes = block.changes
    spec.cost = shared.nodes - before + 1
    pairs = zip(params, arguments, strict=True)
    given = [f"v_{param}" for param, code in pairs if not code.is_known]
    shared.functions.append(define(spec.name, given, body))
    return spec


def only_returns(body: Sequence[ast.stmt]) -> bool:
    """True if nothing in *body* can fail before it returns."""
    return len(body) == 1 and isinstance(body[0], ast.Return)


def define(name: str, params: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """Python for a function."""
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(param) for param in params],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    return ast.FunctionDef(name, arguments, body, [], None, None)


def _own_names(node: ast.FunctionDef) -> frozenset[str]:
    """The names that a function binds. Raises for what only Python, or only Starlark has."""
    parameters = parameters_of(node.args)
    if parameters.rest or parameters.keywords or parameters.keyword_only or node.args.posonlyargs:
        raise Untranslatable("parameters of another kind")
    if node.decorator_list or annotations_of(node):
        raise Untranslatable("a function with types")
    found = frozenset(local_names(node))
    if not all(name.isascii() for name in found):
        raise Untranslatable("a name that Python may read differently")
    return found
