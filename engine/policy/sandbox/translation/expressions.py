"""Translation of a hook into Python: expressions.

Owns the forms of expressions, names, calls and comprehensions, and what is worked out beforehand
because it depends on constants alone. What operators and methods do with which types is
`operators` and `methods`.
"""

import ast
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from engine.language import crossing
from engine.language.flow import UNKNOWN
from engine.language.resolve import bound_to, parameters_of
from engine.language.values import (
    INT,
    NONE,
    NOTHING,
    OPAQUE,
    STR,
    Builtin,
    Function,
    Items,
    Map,
    Struct,
    Tuple,
    Value,
    left_by,
    of_kinds,
)
from engine.policy.sandbox.translation import methods, operators
from engine.policy.sandbox.translation.kinds import (
    NO_SITES,
    Given,
    Sites,
    Untranslatable,
    join,
    names,
)
from engine.policy.sandbox.translation.state import Code, call, load
from engine.policy.sandbox.translation.texts import Constant, Meaning

if TYPE_CHECKING:
    from engine.policy.sandbox.translation.translate import Block

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_MAX_NESTING: Final = 60
_SCALARS: Final = (str, int, bool, type(None))

# Loops over what this gives are paid for by a cost per item.
Paid = Callable[[int], ast.expr]


class Expressions:
    """Translates the expressions of one block."""

    def __init__(self, block: "Block") -> None:
        self.block = block
        self.shared = block.shared
        self.flow = block.flow
        self._nesting = 0
        # Within what comprehensions loop over Python has no `:=`.
        self._loops_over = 0

    def value(self, node: ast.expr) -> Code:
        """Python for *node*."""
        self.shared.nodes += 1
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise Untranslatable("an expression that nests too deep")
        try:
            code = self._value(node)
        finally:
            self._nesting -= 1
        self.shared.types[code.node] = code.type
        return code

    @property
    def can_bind(self) -> bool:
        """True where an expression may hold `name := value`."""
        return not self._loops_over

    def known(self, value: Any) -> Code:
        """A constant."""
        return Code(self.shared.constant(value), self.shared.type_of(value), value)

    def _value(self, node: ast.expr) -> Code:
        match node:
            case ast.Constant(value=value):
                if type(value) is float and math.isfinite(value):
                    return self.known(value)
                if type(value) not in _SCALARS or (type(value) is int and abs(value) >= 1 << 63):
                    raise Untranslatable("a literal of another kind")
                return self.known(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=base, attr=attribute):
                return self._attribute(node, base, attribute)
            case ast.Subscript(value=base, slice=index):
                return methods.subscript(self, node, self.value(base), index)
            case ast.Call(func=func):
                return self._call(node, func)
            case ast.BoolOp(op=op, values=values):
                return self._bool_op(op, values)
            case ast.UnaryOp(op=op, operand=operand):
                return operators.unary(self, op, self.value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return operators.binary(self, node, op, self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._kind_test(node) or operators.compare(
                    self, op, self.value(left), self.value(right)
                )
            case ast.IfExp():
                return self._if_else(node)
            case ast.List(elts=items):
                codes = self.values(items)
                type_ = self.block.new_list(node, join(*(c.type for c in codes)))
                return Code(ast.List([c.node for c in codes], ast.Load()), type_)
            case ast.Tuple(elts=items):
                return self.tuple_of(self.values(items))
            case ast.Dict(keys=keys, values=values):
                return self._dict(node, keys, values)
            case ast.ListComp(elt=item, generators=generators):
                return self._list_comprehension(node, item, generators)
            case ast.DictComp():
                return self._dict_comprehension(node)
        raise Untranslatable(f"expression {type(node).__name__}")

    def values(self, nodes: Sequence[ast.expr]) -> list[Code]:
        """Python for each of *nodes*; stars are refused by their class."""
        return [self.value(node) for node in nodes]

    def tuple_of(self, codes: Sequence[Code]) -> Code:
        """A tuple display."""
        if codes and all(code.is_known and type(code.value) in _SCALARS for code in codes):
            return self.known(self._interned(tuple(code.value for code in codes)))
        type_: Value = frozenset({Tuple(tuple(code.type for code in codes))})
        return Code(ast.Tuple([code.node for code in codes], ast.Load()), type_)

    def _interned(self, value: tuple[Any, ...]) -> Any:
        for held in self.shared.constants.values():
            if type(held) is tuple and len(held) == len(value):
                pairs = zip(held, value, strict=True)
                if all(type(a) is type(b) and type(a) in _SCALARS and a == b for a, b in pairs):
                    return held
        return value

    # --- names --------------------------------------------------------------------------------

    def _name(self, name: str) -> Code:
        variable = (self.flow.variables or {}).get(name)
        if variable is not None:
            if not variable.is_bound:
                raise Untranslatable(f"`{name}` that may have no value")
            if variable.constant is not UNKNOWN:
                made = self.shared.constant(variable.constant)
                return Code(made, variable.value, variable.constant)
            return Code(load(f"v_{name}"), variable.value)
        meaning = self.meaning(name)
        if isinstance(meaning, Constant):
            return self.known(meaning.value)
        raise Untranslatable(f"`{name}` as a value")

    def meaning(self, name: str) -> Meaning:
        """What a name means that is no variable here."""
        if name in self.block.locals:
            raise Untranslatable(f"`{name}` before it has a value")
        return self.shared.texts.meaning(self.block.path, name)

    def check_builtin(self, name: str) -> None:
        """Raises unless *name* is the builtin."""
        if self.meaning(name) != Builtin(name):
            raise Untranslatable(f"`{name}` that is not the builtin")

    def is_variable(self, name: str) -> bool:
        """True if *name* is local here."""
        return name in self.block.locals or name in (self.flow.variables or {})

    def _attribute(self, node: ast.expr, base: ast.expr, attribute: str) -> Code:
        if self._is_math(base):
            if attribute in ("pi", "e"):
                return self.known({"pi": math.pi, "e": math.e}[attribute])
            raise Untranslatable(f"`math.{attribute}` as a value")
        held = self.value(base)
        if not _NAME.fullmatch(attribute):
            raise Untranslatable("an odd attribute")
        if held.is_known and attribute in getattr(type(held.value), "__struct_fields__", ()):
            return self.known(getattr(held.value, attribute))
        found = NOTHING
        for one in held.type:
            if isinstance(one, Struct):
                found = join(found, dict(one.fields).get(attribute, NOTHING))
            elif isinstance(one, Given):
                text = self.shared.schema.fields(one).get(attribute)
                if text is not None:
                    self.shared.reads.setdefault(one, set()).add(attribute)
                    found = join(found, self.shared.schema.of(text))
            elif one not in NONE:
                raise Untranslatable("an attribute of something else than a struct")
        if found == NOTHING:
            return self.never()
        return Code(ast.Attribute(held.node, attribute, ast.Load()), found)

    def never(self) -> Code:
        """What has no value: the interpreter answers."""
        return Code(call("h_refuse"), NOTHING)

    def _is_math(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name) or self.is_variable(node.id):
            return False
        return self.meaning(node.id) == Builtin("math")

    # --- choices ------------------------------------------------------------------------------

    def _bool_op(self, op: ast.boolop, values: Sequence[ast.expr]) -> Code:
        is_and = isinstance(op, ast.And)
        found: list[Code] = []
        with self.flow.apart():
            for index, node in enumerate(values):
                code = self.value(node)
                is_last = index == len(values) - 1
                if code.is_known and not is_last and bool(code.value) is is_and:
                    continue  # `True and x` is x
                found.append(code)
                if code.is_known and bool(code.value) is not is_and:
                    break
                if not is_last:
                    self.flow.assume(node, is_and)
        if len(found) == 1:
            return found[0]
        if found[-1].is_known and all(self._is_plain_bool(code) for code in found[:-1]):
            if bool(found[-1].value) is not is_and:
                if type(found[-1].value) is bool:
                    return found[-1]  # `x or True`: nothing in x can fail
            elif type(found[-1].value) is bool and len(found) == 2:
                return found[0]  # `x or False`
        types = [left_by(code.type, not is_and) for code in found[:-1]]
        node = ast.BoolOp(ast.And() if is_and else ast.Or(), [code.node for code in found])
        return Code(node, join(*types, found[-1].type))

    def _is_plain_bool(self, code: Code) -> bool:
        """True for a comparison of ints that cannot fail: names and literals, and surely ints."""
        node = code.node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node = node.operand
        if not isinstance(node, ast.Compare) or isinstance(node.ops[0], ast.In | ast.Is):
            return False
        return all(
            isinstance(side, ast.Name | ast.Constant) and self.shared.types.get(side) == INT
            for side in (node.left, node.comparators[0])
        )

    def _if_else(self, node: ast.IfExp) -> Code:
        test = self.value(node.test)
        if test.is_known:
            return self.value(node.body if test.value else node.orelse)
        body, orelse = self.flow.choose(
            node.test, lambda: self.value(node.body), lambda: self.value(node.orelse)
        )
        return Code(ast.IfExp(test.node, body.node, orelse.node), join(body.type, orelse.type))

    def _kind_test(self, node: ast.Compare) -> Code | None:
        """`type(x) == "dict"` where the types of *x* decide it."""
        asked = self.flow.kind_test(node)
        if asked is None:
            return None
        name, kinds, is_one = asked
        possible = self._name(name).type
        for outcome in (True, False):
            if possible and not of_kinds(possible, kinds, is_one is not outcome):
                self.shared.nodes += 2  # the interpreter looks at both sides
                return self.known(outcome)
        return None

    # --- displays and comprehensions ----------------------------------------------------------

    def _dict(
        self, node: ast.Dict, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]
    ) -> Code:
        found: list[tuple[Code, Code]] = []
        seen = set()
        for key_node, value_node in zip(keys, values, strict=True):
            if key_node is None:
                raise Untranslatable("a dict in a dict display")
            key = self.value(key_node)
            if type(key.value) is not str or key.value in seen:
                raise Untranslatable("a dict display whose keys are not surely different texts")
            seen.add(key.value)
            found.append((key, self.value(value_node)))
        type_ = self.new_dict(node, join(*(k.type for k, _ in found)), [v.type for _, v in found])
        pairs = [k.node for k, _ in found], [v.node for _, v in found]
        return Code(ast.Dict([*pairs[0]], pairs[1]), type_)

    def new_dict(self, node: ast.AST, key: Value, values: Sequence[Value]) -> Value:
        """The type of a dict that *node* makes."""
        site = self.block.site(node)
        self.shared.dicts.setdefault(site, (NOTHING, NOTHING))
        self.shared.put_pair(frozenset({site}), key, join(*values))
        return frozenset({Map(NOTHING, NOTHING, None, frozenset({site}))})

    def _list_comprehension(
        self, node: ast.expr, item: ast.expr, generators: Sequence[ast.comprehension]
    ) -> Code:
        def finish() -> Callable[[list[ast.comprehension]], Code]:
            code = self.value(item)
            type_ = self.block.new_list(node, code.type)
            return lambda made: Code(ast.ListComp(code.node, made), type_)

        return self._comprehension(generators, finish)

    def _dict_comprehension(self, node: ast.DictComp) -> Code:
        def finish() -> Callable[[list[ast.comprehension]], Code]:
            key, value = self.value(node.key), self.value(node.value)
            if names(key.type) not in ({"str"}, {"int"}):
                raise Untranslatable("keys that are no texts")
            type_ = self.new_dict(node, key.type, [value.type])
            return lambda made: Code(ast.DictComp(key.node, value.node, made), type_)

        return self._comprehension(node.generators, finish)

    def _comprehension(
        self,
        generators: Sequence[ast.comprehension],
        finish: Callable[[], Callable[[list[ast.comprehension]], Code]],
    ) -> Code:
        start = self.shared.nodes
        made: list[tuple[ast.expr, Paid, list[ast.expr]]] = []
        sites: Sites = NO_SITES
        with self.block.noting() as changes, self.flow.apart():
            for generator in generators:
                if generator.is_async:
                    raise Untranslatable("an async comprehension")
                self._loops_over += 1
                paid, item, own = self.iterable(generator.iter)
                self._loops_over -= 1
                sites |= own
                target = self.block.target(generator.target, Code(ast.Constant(None), item))
                tests = []
                for test_node in generator.ifs:
                    tests.append(self.value(test_node).node)
                    self.flow.assume(test_node, True)
                made.append((target, paid, tests))
            build = finish()
        if changes & sites:
            raise Untranslatable("a comprehension that changes what it loops over")
        cost = 10 + 8 * (self.shared.nodes - start)
        return build([ast.comprehension(t, paid(cost), tests, 0) for t, paid, tests in made])

    def iterable(self, node: ast.expr) -> tuple[Paid, Value, Sites]:
        """What a loop over *node* runs over, the type of its items, and the sites of those."""
        special = methods.special_iterable(self, node)
        if special is not None:
            return special
        code = self.value(node)
        item, sites = self.items(code.type)
        return self.paid(methods.in_order(code).node), item, sites

    def paid(self, node: ast.expr) -> Paid:
        """*node*, paid for by its length."""
        return lambda cost: call("h_spend", node, ast.Constant(cost))

    def items(self, type_: Value) -> tuple[Value, Sites]:
        """The items of what can be looped over in both languages, and its sites."""
        found, sites = NOTHING, NO_SITES
        for one in type_:
            if isinstance(one, Items):
                found, sites = join(found, self.shared.item_of(one)), sites | one.sites
            elif isinstance(one, Map):
                found, sites = join(found, self.shared.pair_of(one)[0]), sites | one.sites
            elif isinstance(one, Tuple):
                found = join(found, *one.items)
            elif one in STR | OPAQUE:
                raise Untranslatable("a loop over a text")
        return found, sites

    # --- calls --------------------------------------------------------------------------------

    def _call(self, node: ast.Call, func: ast.expr) -> Code:
        if isinstance(func, ast.Attribute):
            base = func.value
            if self._is_math(base):
                return methods.math_call(self, node, func.attr)
            return methods.method(self, node, self.value(base), func.attr)
        if not isinstance(func, ast.Name) or self.is_variable(func.id):
            raise Untranslatable("a call of something else than a named function")
        meaning = self.meaning(func.id)
        if isinstance(meaning, Function):
            return self.block.call_function(meaning, self._bound(node, meaning))
        if isinstance(meaning, Builtin):
            if meaning.name == "struct":
                return self._struct(node)
            return methods.builtin(self, node, meaning.name)
        raise Untranslatable("a call of a constant")

    def _bound(self, node: ast.Call, function: Function) -> list[Code]:
        """The arguments of a call, one for each parameter."""
        parameters = parameters_of(function.node.args)
        arguments = bound_to(parameters, node)
        if parameters.keyword_only or parameters.rest or parameters.keywords:
            raise Untranslatable("parameters of another kind")
        if arguments.surplus:
            raise Untranslatable("too many arguments")
        if arguments.is_open or arguments.unknown or arguments.repeated:
            raise Untranslatable("arguments that are not written out")
        if arguments.missing:
            raise Untranslatable("too few arguments")
        order = parameters.positional
        by_name = {keyword.arg for keyword in node.keywords}
        given: dict[str, Code] = {}
        for name, argument in arguments.given.items():
            if name not in by_name:
                given[name] = self.value(argument)
        with self.block.noting() as changes:
            for name, argument in arguments.given.items():
                if name in by_name:
                    given[name] = self.value(argument)
        places = [order.index(name) for name in given]
        if changes and places != sorted(places):
            # Here they are worked out in the order of the parameters.
            raise Untranslatable("arguments in another order, one of which changes something")
        for name, default in parameters.defaults.items():
            if name not in given:
                given[name] = self._default(default)
        return [given[name] for name in order]

    def _default(self, node: ast.expr) -> Code:
        if isinstance(node, ast.Constant):
            return self.value(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            return self.value(node)
        raise Untranslatable("a default that is no literal")

    def _struct(self, node: ast.Call) -> Code:
        if node.args or any(keyword.arg is None for keyword in node.keywords):
            raise Untranslatable("a struct whose fields are not written out")
        fields = [(str(k.arg), self.value(k.value)) for k in node.keywords]
        if len({name for name, _ in fields}) != len(fields):
            raise Untranslatable("a field that is named twice")
        try:
            made = crossing.struct_class(tuple(name for name, _ in fields))
        except ValueError as error:
            raise Untranslatable(str(error)) from None
        type_: Value = frozenset({Struct(tuple((name, c.type) for name, c in fields))})
        maker = self.shared.constant(made)
        return Code(ast.Call(maker, [c.node for _, c in fields], []), type_)

    def key_function(self, node: ast.expr, item: Value) -> tuple[ast.expr, Value]:
        """A lambda of one parameter, for items of this type."""
        match node:
            case ast.Lambda(
                args=ast.arguments(
                    posonlyargs=[],
                    args=[param],
                    vararg=None,
                    kwonlyargs=[],
                    kwarg=None,
                    defaults=[],
                )
            ):
                pass
            case _:
                raise Untranslatable("a key that is no lambda of one parameter")
        with self.block.noting() as changes, self.flow.apart():
            self.flow.bind(param.arg, item)
            code = self.value(node.body)
        if changes:
            raise Untranslatable("a key that changes something")
        arguments = ast.arguments([], [ast.arg(f"v_{param.arg}")], None, [], [], None, [])
        return ast.Lambda(arguments, code.node), code.type
