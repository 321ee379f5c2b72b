"""Translation of a hook into Python: builtin functions, methods, indices.

Owns which of them the languages agree on and for which types. Those that they only sometimes agree
on go through `operations`, which refuses the other cases at run time.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from engine.core.framework.reasons import legal_token
from engine.language.flow import UNKNOWN
from engine.language.starlark import TEXT_METHODS
from engine.language.table import Builtin, builtins
from engine.language.values import (
    FLOAT,
    INT,
    NONE,
    NOTHING,
    STR,
    Items,
    Map,
    Struct,
    Tuple,
    Value,
    of_result,
)
from engine.language.verdicts import NoVerdictError
from engine.policy.sandbox.translation import operations
from engine.policy.sandbox.translation.kinds import (
    NO_SITES,
    Sites,
    Untranslatable,
    join,
    names,
    only,
)
from engine.policy.sandbox.translation.operators import check_key, has_order
from engine.policy.sandbox.translation.state import Code, call, load

if TYPE_CHECKING:
    from engine.policy.sandbox.translation.expressions import Expressions, Paid

VERDICT: Final = Struct((("verdict", STR), ("reasons", frozenset({Items(STR, "list")}))))


def in_order(code: Code) -> Code:
    """*code*, to be looped over; a dict that came as JSON sorted as the interpreter has it."""
    if not _is_unsorted(code):
        return code
    if not only(code.type, "dict", "none"):
        raise Untranslatable("a loop over a dict or something else")
    return Code(call("b_sorted", code.node), code.type)


# --- indices -------------------------------------------------------------------------------------


def subscript(here: "Expressions", node: ast.expr, held: Code, index: ast.expr) -> Code:
    """`x[i]`, `x[a:b]`."""
    kinds = names(held.type) - {"none"}
    if isinstance(index, ast.Slice):
        return _slice(here, node, held, index)
    at = here.value(index)
    if type(held.value) is dict and type(at.value) is str and at.value in held.value:
        return here.known(held.value[at.value])
    found = NOTHING
    if kinds == {"dict"}:
        check_key(at)
        found = join(*(_held(here, one, at) for one in held.type if isinstance(one, Map)))
    elif kinds <= {"list", "tuple", "str"}:
        if names(at.type) & {"bool", "any"}:
            raise Untranslatable("an index that may be no int")
        for one in held.type:
            if isinstance(one, Items):
                found = join(found, here.shared.item_of(one))
            elif isinstance(one, Tuple):
                i = at.value
                is_in = type(i) is int and -len(one.items) <= i < len(one.items)
                found = join(found, *([one.items[i]] if is_in else one.items))
            elif one in STR:
                found = join(found, STR)
    else:
        raise Untranslatable("an index into something else")
    return Code(ast.Subscript(held.node, at.node, ast.Load()), found)


def _held(here: "Expressions", one: Map, key: Code) -> Value:
    """What a dict holds under *key*."""
    if type(key.value) is str and one.known is not None and not one.sites:
        return dict(one.known).get(key.value, NOTHING)
    return here.shared.pair_of(one)[1]


def _slice(here: "Expressions", node: ast.expr, held: Code, index: ast.Slice) -> Code:
    if index.step is not None:
        raise Untranslatable("a slice with a step")
    bounds: list[ast.expr | None] = []
    for bound in (index.lower, index.upper):
        code = None if bound is None else here.value(bound)
        if code is not None and not only(code.type, "int"):
            raise Untranslatable("a slice whose bounds may be no ints")
        bounds.append(None if code is None else _small(code))
    made = ast.Subscript(held.node, ast.Slice(bounds[0], bounds[1], None), ast.Load())
    kinds = names(held.type) - {"none"}
    if kinds == {"list"}:
        return Code(made, here.block.new_list(node, here.items(held.type)[0]))
    if kinds == {"str"}:
        return Code(made, STR)
    raise Untranslatable("a slice of something else")


def _small(code: Code) -> ast.expr:
    """An int that the interpreter takes for a place in a list."""
    if type(code.value) is int and abs(code.value) < 1 << 31:
        return code.node
    return call("h_small", code.node)


# --- loops over calls ----------------------------------------------------------------------------


def special_iterable(here: "Expressions", node: ast.expr) -> tuple["Paid", Value, Sites] | None:
    """What a loop over `zip(...)`, `d.items()` and the like runs over, without a list of it."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    func = node.func
    if isinstance(func, ast.Name):
        name = func.id
        if name not in ("zip", "enumerate", "range") or here.is_variable(name):
            return None
        here.check_builtin(name)
        codes = [in_order(code) for code in here.values(node.args)]
        if name == "range":
            return here.paid(_range(codes).node), INT, NO_SITES
        if not codes or (name == "enumerate" and len(codes) != 1):
            raise Untranslatable("arguments of another number")
        held = [here.items(code.type) for code in codes]
        sites = NO_SITES.union(*(each for _, each in held))
        types = tuple(item for item, _ in held)
        item: Value = frozenset({Tuple(types if name == "zip" else (INT, *types))})
        first, rest = codes[0].node, [code.node for code in codes[1:]]

        def paid(cost: int) -> ast.expr:
            return call(f"b_{name}", call("h_spend", first, ast.Constant(cost)), *rest)

        return paid, item, sites
    if isinstance(func, ast.Attribute) and not node.args and func.attr in ("items", "keys"):
        held_code = here.value(func.value)
        if names(held_code.type) - {"none"} != {"dict"}:
            return None
        found, sites = _pairs(here, held_code)
        viewed: ast.expr = ast.Call(ast.Attribute(held_code.node, func.attr, ast.Load()), [], [])
        if _is_unsorted(held_code):
            viewed = call("b_sorted", viewed)
        item = frozenset({Tuple(found)}) if func.attr == "items" else found[0]
        return here.paid(viewed), item, sites
    return None


def _is_unsorted(code: Code) -> bool:
    dicts = [one for one in code.type if isinstance(one, Map)]
    if any(one.is_mixed for one in dicts):
        raise Untranslatable("the order of a dict that may have come as JSON")
    return any(one.is_unsorted for one in dicts)


def _pairs(here: "Expressions", code: Code) -> tuple[tuple[Value, Value], Sites]:
    dicts = [one for one in code.type if isinstance(one, Map)]
    held = [here.shared.pair_of(one) for one in dicts]
    sites = NO_SITES.union(*(one.sites for one in dicts))
    return (join(*(k for k, _ in held)), join(*(v for _, v in held))), sites


def _range(codes: Sequence[Code]) -> Code:
    if not 1 <= len(codes) <= 3 or not all(only(code.type, "int") for code in codes):
        raise Untranslatable("a range of something else than ints")
    return Code(call("b_range", *(_small(code) for code in codes)), frozenset({Items(INT, "list")}))


# --- methods -------------------------------------------------------------------------------------


def method(here: "Expressions", node: ast.Call, held: Code, name: str) -> Code:
    """`x.name(...)`."""
    if node.keywords:
        raise Untranslatable("a method with named arguments")
    kinds = names(held.type) - {"none"}
    arguments = here.values(node.args)
    if not kinds:
        return here.never()
    if kinds == {"dict"}:
        return _dict_method(here, node, held, name, arguments)
    if kinds == {"str"}:
        return _text_method(here, node, held, name, arguments)
    raise Untranslatable(f"method `{name}` of something else")


def _invoke(held: ast.expr, name: str, arguments: Sequence[Code]) -> ast.expr:
    return ast.Call(ast.Attribute(held, name, ast.Load()), [code.node for code in arguments], [])


def _dict_method(
    here: "Expressions", node: ast.Call, held: Code, name: str, arguments: Sequence[Code]
) -> Code:
    count = len(arguments)
    if name == "get" and 1 <= count <= 2:
        key = arguments[0]
        check_key(key)
        if held.is_known and type(key.value) is str:
            if key.value not in held.value:
                return arguments[1] if count == 2 else here.known(None)
            if count == 1 or isinstance(arguments[1].node, ast.Name | ast.Constant):
                return here.known(held.value[key.value])
        default = arguments[1].type if count == 2 else NONE
        found = join(*(_held(here, one, key) for one in held.type if isinstance(one, Map)))
        return Code(_invoke(held.node, "get", arguments), join(found, default))
    if name in ("keys", "values", "items") and not count:
        (key_type, value), _ = _pairs(here, held)
        if name == "values":
            if _is_unsorted(held):
                raise Untranslatable("the values of a dict that came as JSON")
            made: ast.expr = call("b_list", _invoke(held.node, name, []))
            return Code(made, here.block.new_list(node, value))
        item = key_type if name == "keys" else frozenset({Tuple((key_type, value))})
        order = "b_sorted" if _is_unsorted(held) else "b_list"
        made = call(order, _invoke(held.node, name, []))
        return Code(made, here.block.new_list(node, item))
    raise Untranslatable(f"method `{name}` of a dict")


def _text_method(
    here: "Expressions", node: ast.Call, held: Code, name: str, arguments: Sequence[Code]
) -> Code:
    count = len(arguments)
    texts = all(only(code.type, "str") for code in arguments)
    made = _invoke(held.node, name, arguments)
    if texts and count == 1 and name in _WITH_A_TEXT:
        is_list = name == "split"
        result = here.block.new_list(node, STR) if is_list else of_result(TEXT_METHODS[name])
        return Code(made, result)
    if name in ("strip", "lower", "upper") and not count:
        return Code(_invoke(call("h_texts", held.node), name, []), STR)
    if name == "join" and count == 1 and only(arguments[0].type, "list", "tuple"):
        if not only(here.items(arguments[0].type)[0], "str"):
            raise Untranslatable("a join of something else than texts")
        return Code(call("h_joined", held.node, arguments[0].node), STR)
    raise Untranslatable(f"method `{name}` of a text")


# Methods of texts that Python has too, with a text as argument.
_WITH_A_TEXT: Final = frozenset(
    {"startswith", "endswith", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix"}
    | {"partition", "rpartition", "find", "rfind", "split"}
)


# --- builtin functions ---------------------------------------------------------------------------


def math_call(here: "Expressions", node: ast.Call, name: str) -> Code:
    """`math.name(...)`."""
    codes = here.values(node.args)
    if node.keywords or any("any" in names(code.type) for code in codes):
        raise Untranslatable("arguments that are not written out")
    known = builtins().get(f"math.{name}")
    if known is not None and known.python is not None:
        return _native_call(known, codes)
    if any(not only(code.type, "int", "float", "none") for code in codes):
        raise Untranslatable("a number that may be none")
    if name == "abs" and len(codes) == 1:
        return _abs(here, node, codes)
    if name == "clamp" and len(codes) == 3:
        type_ = join(*(code.type for code in codes)) - NONE
        return Code(call("h_clamped", *(code.node for code in codes)), type_)
    raise Untranslatable(f"`math.{name}`")


def builtin(here: "Expressions", node: ast.Call, name: str) -> Code:
    """A builtin function that takes no function as argument, or one that does."""
    if name == "fail":
        return here.never()
    if name == "sorted":
        return _sorted(here, node)
    named = [] if name in _WITH_TOKEN else _in_order(builtins().get(name), node)
    codes = here.values([*node.args, *named])
    if any("any" in names(code.type) for code in codes):
        raise Untranslatable("a value of any type")
    found = _BUILTINS.get(name)
    if found is None:
        known = builtins().get(name)
        if known is not None and name in _CALLS:
            return _plain_call(known, codes)
        if known is None or known.python is None:
            raise Untranslatable(f"`{name}`")
        return _native_call(known, codes)
    least, most, make = found
    if not least <= len(codes) <= most:
        raise Untranslatable("arguments of another number")
    return make(here, node, codes)


def _in_order(known: Builtin | None, node: ast.Call) -> list[ast.expr]:
    """The arguments that are given by name, as if they were given by their places."""
    if not node.keywords:
        return []
    given = {one.arg: one.value for one in node.keywords}
    # Those of Starlark itself take most by place alone, or mean something else by it.
    wanted = [] if known is None or known.is_starlark else known.parameters[len(node.args) :]
    names = [one.name for one in wanted if not one.is_positional][: len(given)]
    if names != [one.name for one in wanted][: len(given)] or set(names) != set(given):
        raise Untranslatable("a builtin with named arguments")
    return [given[name] for name in names]


def _sorted(here: "Expressions", node: ast.Call) -> Code:
    if len(node.args) != 1:
        raise Untranslatable("arguments of another number")
    given = here.value(node.args[0])
    item, _ = here.items(given.type)
    type_ = here.block.new_list(node, item)
    extra: list[ast.keyword] = []
    order = item
    for keyword in node.keywords:
        if keyword.arg == "key":
            key, order = here.key_function(keyword.value, item)
            extra.append(ast.keyword("key", key))
        elif keyword.arg == "reverse":
            flag = here.value(keyword.value)
            if type(flag.value) is not bool:
                raise Untranslatable("an order that is not written out")
            extra.append(ast.keyword("reverse", flag.node))
        else:
            raise Untranslatable("arguments that are not written out")
    if has_order(order):
        # Equal keys keep their order, so that of a dict matters.
        source = in_order(given) if extra else given
        return Code(ast.Call(load("b_sorted"), [source.node], extra), type_)
    if not extra and only(item, "int", "float"):
        return Code(call("h_ordered", given.node), type_)
    raise Untranslatable("an order that is not known for these types")


Make = Callable[["Expressions", ast.Call, Sequence[Code]], Code]


def _extreme(name: str) -> Make:
    def make(here: "Expressions", node: ast.Call, codes: Sequence[Code]) -> Code:
        if len(codes) == 1:
            item, _ = here.items(codes[0].type)
        else:
            item = join(*(code.type for code in codes))
        kinds = names(item) - {"none"}
        is_plain = kinds in ({"int"}, {"str"})
        nodes = [code.node for code in codes]
        if len(codes) == 2 and (is_plain or codes[0].type == codes[1].type == FLOAT):
            if here.can_bind or all(map(_is_simple, nodes)):
                return Code(_inline_extreme(here, name, *nodes, is_plain=is_plain), item - NONE)
            return Code(call("h_lesser" if name == "min" else "h_larger", *nodes), item - NONE)
        if is_plain:
            return Code(call(f"b_{name}", *nodes), item)
        if kinds and kinds <= {"int", "float"}:
            given = nodes[0] if len(nodes) == 1 else ast.Tuple(nodes, ast.Load())
            return Code(call("h_least" if name == "min" else "h_greatest", given), item - NONE)
        raise Untranslatable("an order that is not known for these types")

    return make


def _is_simple(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Constant)


def _inline_extreme(
    here: "Expressions", name: str, first: ast.expr, second: ast.expr, *, is_plain: bool
) -> ast.expr:
    """Of two values, without a call: the second only if it is the smaller (or larger) one."""
    (a, bound_a), (b, bound_b) = _bound(here, first), _bound(here, second)
    op: ast.cmpop = ast.Lt() if name == "min" else ast.Gt()
    other: ast.cmpop = ast.LtE() if name == "min" else ast.GtE()
    is_second = ast.Compare(bound_b, [op], [bound_a])
    if is_plain:
        return ast.IfExp(is_second, b, a)
    # Neither is true of NaN.
    rest = ast.IfExp(ast.Compare(a, [other], [b]), a, call("h_refuse"))
    return ast.IfExp(is_second, b, rest)


def _bound(here: "Expressions", node: ast.expr) -> tuple[ast.expr, ast.expr]:
    """What stands for *node*, and what it must be at its first place for that."""
    if _is_simple(node):
        return node, node
    name = here.shared.fresh()
    return load(name), ast.NamedExpr(ast.Name(name, ast.Store()), node)


def _abs(here: "Expressions", node: ast.Call, codes: Sequence[Code]) -> Code:
    if not only(codes[0].type, "int", "float", "none"):
        raise Untranslatable("the size of something else than a number")
    return Code(call("b_abs", codes[0].node), codes[0].type - NONE)


def _list(here: "Expressions", node: ast.Call, codes: Sequence[Code]) -> Code:
    if not codes:
        return Code(ast.List([], ast.Load()), here.block.new_list(node, NOTHING))
    paid, item, _ = here.iterable(node.args[0])
    return Code(call("b_list", paid(8)), here.block.new_list(node, item))


def _loop_list(here: "Expressions", node: ast.Call, codes: Sequence[Code]) -> Code:
    """`zip(...)` and `enumerate(...)` are lists in Starlark."""
    special = special_iterable(here, node)
    if special is None:
        raise Untranslatable("arguments that are not written out")
    paid, item, _ = special
    return Code(call("b_list", paid(8)), here.block.new_list(node, item))


def _native(code: Code) -> ast.expr:
    """An argument of a function of Python's."""
    return code.node if isinstance(code.node, ast.Constant) else call("h_number", code.node)


def _native_call(known: Builtin, codes: Sequence[Code]) -> Code:
    """A call of a builtin that is written in Python."""
    if not known.required <= len(codes) <= len(known.parameters):
        raise Untranslatable("arguments of another number")
    result, nodes = of_result(known.result), []
    for parameter, code in zip(known.parameters, codes, strict=False):
        if parameter.name == known.default:
            if not only(code.type, "none", "bool", "int", "float", "str"):
                raise Untranslatable("a default that does not come back as it was")
            nodes.append(_native(code))
            result = join(result, code.type)
        elif not only(code.type, *parameter.kinds, "none"):
            raise Untranslatable("an argument of another kind")
        else:
            nodes.append(_native(code) if "int" in parameter.kinds else code.node)
    if known.default and len(codes) < len(known.parameters):
        result = join(result, NONE)
    return Code(call(f"h{known.native}", *nodes), result)


def _verdict(name: str) -> Make:
    def make(here: "Expressions", node: ast.Call, codes: Sequence[Code]) -> Code:
        type_: Value = frozenset({VERDICT})
        given, token = codes[0].value, _token(here, node, codes)
        if given is not UNKNOWN and type(given) is str:
            try:
                made = getattr(operations, name)(given, token)
            except NoVerdictError:
                return here.never()
            return Code(here.shared.verdict(made), type_)
        return Code(call(f"h_{name}", codes[0].node, *([ast.Constant(token)] * bool(token))), type_)

    return make


def _token(here: "Expressions", node: ast.Call, codes: Sequence[Code]) -> str:
    """The reason token of a verdict; one that is not written out, or none, is not translated."""
    given = [*codes[1:], *(here.value(one.value) for one in node.keywords if one.arg == "token")]
    if not given and not node.keywords:
        return ""
    if len(given) != 1 or len(node.keywords) + len(codes) != 2:
        raise Untranslatable("a builtin with named arguments")
    token = given[0].value
    if type(token) is not str or (token and legal_token(token) != token):
        raise Untranslatable("a token that is not written out")
    return token


# Builtins of one argument that are a call in Python, too: of what, and for which kinds of it both
# languages agree. What they give is in the table.
_NUMBERS: Final = ("int", "float", "bool", "none")
_HOLDERS: Final = ("list", "tuple", "dict", "none")
_CALLS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "len": ("b_len", ()),
    "any": ("b_any", _HOLDERS),
    "all": ("b_all", _HOLDERS),
    "bool": ("b_bool", ()),
    "int": ("b_int", _NUMBERS),
    "float": ("b_float", _NUMBERS),
    "str": ("h_as_text", ("str", "int", "bool", "none")),
    "hash": ("h_hashed", ("str", "none")),
    "type": ("h_kind_of", ()),
}


def _plain_call(known: Builtin, codes: Sequence[Code]) -> Code:
    function, kinds = _CALLS[known.name]
    if len(codes) != 1:
        raise Untranslatable("arguments of another number")
    if kinds and not only(codes[0].type, *kinds):
        raise Untranslatable(f"`{known.name}` of something else")
    return Code(call(function, codes[0].node), of_result(known.result))


_MANY: Final = 16
_BUILTINS: Final[dict[str, tuple[int, int, Make]]] = {
    "min": (1, _MANY, _extreme("min")),
    "max": (1, _MANY, _extreme("max")),
    "abs": (1, 1, _abs),
    "list": (0, 1, _list),
    "zip": (1, _MANY, _loop_list),
    "enumerate": (1, 1, _loop_list),
    "unresolvable": (1, 2, _verdict("unresolvable")),
    "reject": (1, 2, _verdict("reject")),
}
_WITH_TOKEN: Final = frozenset({"unresolvable", "reject"})
