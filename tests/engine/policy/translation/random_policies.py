"""Random policies in the subset that is translated, and around its edges.

Expressions are mostly of the type that is wanted and sometimes not, so that most programs come to
an end and every operator meets every type.
"""

import random

from engine.language.table import Builtin, Parameter, builtins

_HEAD = """
_NUMBERS = [3, 0, -2, 10]
_MIXED = [1, 2.5, 4]
_WORDS = ("cpu", "a", "zone")
_TABLE = {"cpu": 2, "a": 3}
_KINDS = [{"name": "cpu", "weight": 2, "share": 0.5}, {"name": "b", "weight": 0, "share": 1.5}]
_BOX = struct(size = 4, name = "box", items = [1, 2])
_FLAG = True
_NOTHING = None
args = plugin_args(limit = 5, ratio = 0.25, words = ["a", "b"], table = {"x": 1})

def twice(x):
    return x + x

def pick(x, y = 1, z = "z"):
    if x:
        return y
    return z

def total(numbers):
    found = 0
    for number in numbers:
        if number == None:
            continue
        found += number
    return found

def grown(items, more):
    found = list(items)
    found.append(more)
    return found

def number(fact):
    return None if fact == None else fact.value

def boxed(x):
    return struct(size = x, name = "made")
"""

_PLAIN = ("int", "float", "str", "bool")
_HELD = ("ints", "strs", "floats", "table", "labels")
_TYPES = (*_PLAIN, *_PLAIN, *_HELD, "none", "list", "dict", "tuple", "struct")


class Policy:
    """One random file with *count* functions `among_0(pod, node)`, `among_1`, ..."""

    def __init__(self, chance: random.Random, count: int) -> None:
        self._chance = chance
        self._variables: dict[str, str] = {}
        self._names = 0
        self._wrong = 0.0
        self.text = _HEAD + "".join(self._function(index) for index in range(count))

    def _function(self, index: int) -> str:
        chance = self._chance
        self._variables = {}
        self._wrong = chance.choice((0.0, 0.0, 0.01, 0.05))
        body = self._block(1, chance.randrange(0, 5))
        result = ", ".join(
            self._any(chance.choice((1, 2, 3))) for _ in range(chance.randrange(1, 4))
        )
        return f"\ndef among_{index}(pod, node):\n{body}    return ({result},)\n"

    # --- statements ---------------------------------------------------------------------------

    def _block(self, depth: int, count: int) -> str:
        return "".join(self._statement(depth) for _ in range(count))

    def _statement(self, depth: int) -> str:
        chance, pad = self._chance, "    " * depth
        kinds = ["set"] * 5 + ["pair", "update", "append", "store"]
        if depth < 4:
            kinds += ["if", "if", "for", "for", "each"]
        kind = chance.choice(kinds)
        if kind == "if":
            before = dict(self._variables)
            test = self._kind_test() if before and chance.random() < 0.2 else self._of("bool", 2)
            text = f"{pad}if {test}:\n{self._block(depth + 1, 2)}"
            inner, self._variables = self._variables, before
            if chance.random() < 0.5:
                text += f"{pad}else:\n{self._block(depth + 1, 1)}"
                if chance.random() < 0.5:
                    self._variables = inner
            return text
        if kind in ("for", "each"):
            return self._loop(depth, pad)
        if kind == "pair":
            a, b = self._new("int"), self._new("str")
            return f"{pad}{a}, {b} = {self._of('int', 2)}, {self._of('str', 2)}\n"
        if kind == "update":
            name = self._variable(chance.choice(("int", "float", "str", "ints", "strs")))
            if name:
                op = chance.choice(("+=", "+=", "-=", "*="))
                return f"{pad}{name} {op} {self._of(self._variables[name], 2)}\n"
        if kind == "append":
            name = self._variable(chance.choice(("ints", "strs", "floats", "list")))
            if name:
                call = "append" if chance.random() < 0.7 else "extend"
                kind = self._variables[name]
                kind = _ITEMS.get(kind, "int") if call == "append" else kind
                return f"{pad}{name}.{call}({self._of(kind, 2)})\n"
        if kind == "store":
            name = self._variable(chance.choice(("ints", "table")))
            if name:
                key = self._of("int" if self._variables[name] == "ints" else "str", 1)
                return f"{pad}{name}[{key}] {chance.choice(('=', '+='))} {self._of('int', 2)}\n"
        type_ = chance.choice(_TYPES)
        value = self._of(type_, 3)
        old = self._variable(type_)
        name = old if old and chance.random() < 0.3 else self._new(type_)
        return f"{pad}{name} = {value}\n"

    def _kind_test(self) -> str:
        """A condition on the kind of a variable, which then counts as of that kind."""
        name = self._chance.choice(sorted(self._variables))
        kind, type_ = self._chance.choice((("int", "int"), ("string", "str"), ("float", "float")))
        self._variables[name] = type_
        return f"type({name}) == {kind!r}"

    def _loop(self, depth: int, pad: str) -> str:
        chance = self._chance
        before = dict(self._variables)
        head, names = self._head()
        body = self._block(depth + 1, chance.randrange(1, 3))
        if chance.random() < 0.3:
            leave = chance.choice(("break", "continue"))
            body += f"{pad}    if {self._of('bool', 1)}:\n{pad}        {leave}\n"
            body += self._statement(depth + 1)
        if chance.random() < 0.9:
            self._variables = before
        for name in names:
            self._variables.pop(name, None)
        return f"{pad}for {head}:\n{body}"

    def _head(self) -> tuple[str, list[str]]:
        chance = self._chance
        kind = chance.choice((*_ITEMS, *_ITEMS, "items", "range", "enumerate", "zip", "tuple"))
        if kind == "items":
            held = self._of("table", 1)
            a, b = self._new("str"), self._new("int")
            return f"{a}, {b} in {held}.items()", [a, b]
        if kind in ("enumerate", "zip"):
            held, other = self._of("strs", 1), self._of("ints", 1)
            a, b = self._new("int"), self._new("str")
            if kind == "zip":
                a, b = b, a
            inner = f"enumerate({held})" if kind == "enumerate" else f"zip({held}, {other})"
            return f"{a}, {b} in {inner}", [a, b]
        held = f"range({self._of('int', 1)} % 7)" if kind == "range" else self._of(kind, 1)
        name = self._new(_ITEMS.get(kind, "int"))
        return f"{name} in {held}", [name]

    # --- names --------------------------------------------------------------------------------

    def _new(self, type_: str) -> str:
        self._names += 1
        name = f"v{self._names}"
        self._variables[name] = type_
        return name

    def _variable(self, type_: str) -> str | None:
        found = [name for name, held in self._variables.items() if held == type_]
        return self._chance.choice(found) if found else None

    # --- expressions --------------------------------------------------------------------------

    def _any(self, depth: int) -> str:
        return self._of(self._chance.choice(_TYPES), depth)

    def _of(self, type_: str, depth: int) -> str:
        chance = self._chance
        if chance.random() < self._wrong:
            type_ = chance.choice(_TYPES)
        name = self._variable(type_)
        if name and chance.random() < 0.35:
            return name
        if depth <= 0:
            return chance.choice(_LEAVES[type_])
        if chance.random() < 0.12:
            return f"({self._of(type_, depth - 1)} if {self._of('bool', depth - 1)} " + (
                f"else {self._of(type_, depth - 1)})"
            )
        if chance.random() < 0.08:
            op = chance.choice(("and", "or"))
            return f"({self._of(type_, depth - 1)} {op} {self._of(type_, depth - 1)})"
        if chance.random() < 0.2:
            return chance.choice(_LEAVES[type_])
        made = self._filled(chance.choice(_FORMS[type_]), depth - 1)
        # Comparisons cannot be chained in Starlark.
        return f"({made})" if type_ == "bool" else made

    def _filled(self, form: str, depth: int) -> str:
        """*form* with `{type}` replaced by expressions; `<` and `>` around a whole are a dict's."""
        if form.startswith("<"):
            return "{" + self._filled(form[1:-1], depth) + "}"
        made = ""
        rest = form
        while "{" in rest:
            text, _, rest = rest.partition("{")
            type_, _, rest = rest.partition("}")
            made += text
            if type_ == "any":
                made += self._any(depth)
            elif type_ == "cmp":
                made += self._chance.choice(("<", "<=", ">", ">="))
            elif type_ == "num":
                made += self._of(self._chance.choice(("int", "float")), depth)
            else:
                made += self._of(type_, depth)
        return made + rest


_LEAVES: dict[str, tuple[str, ...]] = {
    "int": (
        "0", "1", "2", "7", "-3", "100", "node.pod_count", "pod.priority", "_BOX.size",
        "args.limit", "4611686018427387904", "9007199254740993", 'node.allocatable.get("cpu", 0)',
        'node.allocatable.get("cpu")', '_TABLE["a"]', "len(node.taints)",
    ),
    "float": (
        "0.0", "1.0", "-1.5", "0.1", "1e300", "2.5", "args.ratio", 'node.facts["x"].value',
        'number(node.facts["x"])', "math.pi",
    ),
    "str": (
        '""', '"a"', '"cpu"', '"a,b,,c"', '" x "', '"é"', '"AbC"', '"12"', "node.name",
        "pod.namespace", 'node.labels.get("zone", "")', 'node.labels.get("zone")', "_BOX.name",
        "_WORDS[0]",
    ),
    "bool": ("True", "False", "node.unschedulable", "_FLAG", "pod.host_network"),
    "none": ("None", "_NOTHING", 'node.labels.get("nothing")', "pod.node_affinity"),
    "ints": (
        "[]", "[1]", "[3, 1, 2]", "_NUMBERS", "node.device_shares.get(\"x\", [])", "[0] * 3",
        "_BOX.items",
    ),
    "strs": (
        "[]", '["b", "a"]', "args.words", "pod.scheduling_gates", '"a,b".split(",")', '["cpu"]',
    ),
    "floats": ("[1.5, 0.5]", "[]", "[0.0]", '[node.facts["x"].value]'),
    "list": ("[]", "_MIXED", "_KINDS", "[None, 1]", "[True]", "[[1], [2, 3]]", "node.taints"),
    "table": ("{}", '{"a": 1}', "node.allocatable", "_TABLE", "args.table", '{"b": 2, "a": 1}'),
    "labels": ("node.labels", '{"a": "b"}', '{"zone": "cpu", "b": ""}'),
    "dict": ("{}", "_KINDS[0]", "node.labels", '{"a": None}'),
    "tuple": ("(1, 2)", '("a",)', "_WORDS", '(1, "a")', "(2.5, 1)"),
    "struct": ("_BOX", "boxed(1)", "args", 'struct(size = 0, name = "s", items = [])'),
}  # fmt: skip

_ITEMS = {"ints": "int", "strs": "str", "floats": "float", "list": "int", "table": "str"}


def _builtin_calls(result: str) -> list[str]:
    """Calls of each builtin of the runtime that gives a *result*, whatever its arguments are."""
    return [
        f"{one.name}({', '.join(_argument(one, p) for p in one.parameters[:count])})"
        for one in builtins().values()
        if one.result == result and not one.is_starlark
        for count in range(one.required, len(one.parameters) + 1)
    ]


def _argument(one: Builtin, parameter: Parameter) -> str:
    if parameter.name == one.default:
        return f"{{{one.result}}}"
    known = {"int": "{num}", "str": "{str}", "dict": "{labels}", "list": "{ints}"}
    return next(form for kind, form in known.items() if kind in parameter.kinds)


_FORMS: dict[str, tuple[str, ...]] = {
    "int": (
        *_builtin_calls("int"),
        "{int} + {int}", "({int} - {int})", "{int} * {int}", "{int} // {int}", "{int} % {int}",
        "-{int}", "len({strs})", "len({str})", "len({labels})", "abs({int})", "min({int}, {int})",
        "max({int}, {int})", "min({num}, {num})", "max({ints})", "min({ints})", "int({float})",
        "int({bool})", "{table}.get({str}, {int})",
        "{table}[{str}]", "{ints}[{int}]", "{str}.find({str})", "{str}.rfind({str})",
        "total({ints})",
        "twice({int})", "{tuple}[0]", "{struct}.size", "pick({bool}, {int}, z = {int})",
        "math.clamp({int}, {int}, {int})", "{num} + {num}", "{num} * {num}", "{num} // {num}",
        "{num} % {num}", "({num} - {num})", "max([len(x) for x in {strs}])", "math.abs({num})",
        "len([x for x in {ints} if x {cmp} {int}])", "{list}[{int}]", "{dict}.get({str}, {int})",
        "hash({str})", "len([k for k, v in {table}.items() if v {cmp} {int}])",
        "max([pod.priority for pod in [pod, struct(priority = {int})]])",
    ),
    "float": (
        *_builtin_calls("float"),
        "{int} / {int}", "{num} / {num}", "{float} + {num}", "{float} * {float}", "float({int})",
        "float({bool})", "-{float}", "abs({float})",
        "math.clamp({num}, {float}, {float})",
        "min({float}, {float})", "max({float}, {num})", "{float} - {float}", "twice({float})",
        "total([x * 0.5 for x in {ints}])", "{floats}[{int}]",
        "max({floats})", "min({num}, {num}, {num})", "{float} * {int}", "total({floats})",
    ),
    "str": (
        "{str} + {str}", "{str}[{int}]", "{str}[{int}:]", "{str}[:{int}]", "{str}.strip({str})",
        "{str}.lstrip({str})", "{str}.rstrip({str})", "{str}.strip()", "{str}.upper()",
        "{str}.lower()", "{str}.partition({str})[2]", "{str}.rpartition({str})[0]",
        "{str}.split({str})[0]", '"-".join([str(x) for x in {ints}])', "{str}.join({strs})",
        "str({int})", "str({bool})", "type({any})", "{str} * {int}", "{str}.removeprefix({str})",
        "{str}.removesuffix({str})", "{labels}.get({str}, {str})", "pick({bool}, {str})",
        "{struct}.name", "twice({str})", "min({str}, {str})", "max({strs})", "{strs}[{int}]",
        "{str}[-1]", "{any} + {any}", "({any} or {any})", "{labels}[{str}]", "{list}[{int}]",
        "[pod.namespace for pod in [struct(namespace = {str})]][0]",
        "sorted([struct(namespace = {str}), pod], key = lambda pod: pod.namespace)[0].namespace",
    ),
    "bool": (
        *_builtin_calls("bool"),
        "{int} == {int}", "{int} {cmp} {int}", "{num} {cmp} {num}", "{float} {cmp} {float}",
        "{num} == {num}", "{any} == {any}", "{any} != {any}", "{str} {cmp} {str}", "not {any}",
        "{str} in {str}", "{str} in {table}", "{any} in {strs}", "{int} not in {ints}",
        "{str} in {tuple}", "{any} == None", "{any} != None", "any({ints})", "all({strs})",
        "bool({any})", "{str}.startswith({str})", "{str}.endswith({str})", "{any} {cmp} {any}",
        'type({any}) == "int"', 'type({any}) in ("list", "tuple")', "{bool} and {bool}",
        "{bool} or {bool}", "any([x == {int} for x in {ints}])", "{ints} == {ints}",
        "{table} == {table}", "{tuple} == {tuple}", "{any} in {any}", "{strs} != {strs}",
        "{float} in {floats}", "{tuple} {cmp} {tuple}",
        "{str} not in {labels}", "{bool} == {bool}", "{floats} == {floats}",
    ),
    "none": ("{labels}.get({str})", "pick({bool}, None, None)"),
    "ints": (
        "[{int}, {int}]", "[x for x in {ints}]", "[x + 1 for x in {ints}]", "{ints} + {ints}",
        "[x for x in {ints} if x != {int}]", "{ints}[{int}:]", "{ints}[:{int}]",
        "{ints}[{int}:{int}]", "sorted({ints})", "sorted({ints}, reverse = True)",
        "sorted({ints}, key = lambda x: (-x, x))", "sorted({ints}, key = lambda x: {int})",
        "list({ints})", "[{int}] * {int}", "{int} * [{int}]", "grown({ints}, {int})",
        "[v for k, v in {table}.items()]", "list(range({int} % 9))", "{table}.values()",
        "[i for i, x in enumerate({strs}) if x]", "[x for y in {ints} for x in [y, y]]",
        "[a * b for a, b in zip({ints}, {ints})]", "[d[{str}] for d in _KINDS]",
        "[x for x in {floats}]", "[len(x) for x in {strs}]", "list(range({int} % 5, {int} % 9, 2))",
    ),
    "strs": (
        "[{str}, {str}]", "[k for k in {table}]", "{strs} + {strs}", "{strs}[{int}:]",
        "sorted({strs})", "sorted({table})", "list({labels})",
        "{labels}.keys()", "{str}.split({str})",
        "sorted({strs}, key = lambda x: (len(x), x))", "[t.key for t in node.taints]",
        "[d.get({str}) for d in _KINDS]", "grown({strs}, {str})",
        "[x.strip({str}) for x in {strs}]",
        "[k + v for k, v in {labels}.items()]", "list({strs})", "[t.effect for t in {list}]",
        "sorted({labels}, reverse = True)", "[x for x in {tuple}]",
    ),
    "floats": (
        "[{float}, {float}]", "[x / 2 for x in {ints}]", "sorted({floats})", "{floats} + {floats}",
        "[x for x in {floats} if x {cmp} {float}]", "[d[\"share\"] for d in _KINDS]",
        "[min(x, 1.0) for x in {floats}]", "grown({floats}, {float})",
    ),
    "list": (
        "[{any}, {any}]", "{list} + {list}", "{list}[{int}:]", "sorted({list})", "list({list})",
        "[(a, b) for a, b in zip({list}, {ints})]", "zip({strs}, {ints})", "enumerate({strs})",
        "{labels}.items()", "[[x] for x in {ints}]", "[x for x in {list} if x]", "[{ints}, {ints}]",
        "sorted([(x, len(x)) for x in {strs}])", "[boxed(x) for x in {ints}]",
        "sorted({list}, key = lambda x: {int})", "[{list}]",
    ),
    "table": (
        '<"x": {int}, "y": {int}>', "<x: len(x) for x in {strs}>", "<x: {int} for x in {strs}>",
        "<k: v for k, v in {table}.items()>", "<k: len(v) for k, v in {labels}.items()>",
        "<x: x for x in {ints}>",
    ),
    "labels": (
        '<"x": {str}, "zone": {str}>', "<str(x): str(x) for x in {ints}>", "<x: x for x in {strs}>",
    ),
    "dict": ('<"x": {int}, "y": {any}>', "<x: {any} for x in {strs}>", '<"a": {list}>'),
    "tuple": ("({any}, {any})", "({int}, {str})", "{str}.partition({str})", "({int},)"),
    "struct": (
        "struct(size = {int}, name = {str})", "boxed({int})", "node.taints[{int}]",
        "struct(size = {any})", "{list}[{int}]",
    ),
}  # fmt: skip
