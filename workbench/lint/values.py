"""Lints about values: wrong types, comparisons with impossible texts, wrong shifts."""

import ast
import difflib
from collections.abc import Iterator
from typing import Final

from engine.language.numbers import parse_int
from engine.language.starlark import TEXT_METHODS
from engine.language.syntax import assignments, number_of, shown, text_of, walk, written
from engine.language.values import NONE_TYPE, element_type
from engine.policy.view_fields import RECORDS
from engine.policy.views import SCHEMA
from workbench.lint.absent import Needs, lint_absent, lint_elements
from workbench.lint.counts import counts_that_may_be_none
from workbench.lint.finding import Finding, PolicySource
from workbench.stubs.typing import kind_of

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICIES: Final = ("Honor", "Ignore")

# The texts that a field can have, by the type that it belongs to. For a dict: its values.
ENUMS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("Taint", "effect"): _EFFECTS,
    ("Toleration", "effect"): ("", *_EFFECTS),
    ("Toleration", "operator"): ("", "Equal", "Exists", "Lt", "Gt"),
    ("Requirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    ("SpreadConstraint", "when_unsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    ("SpreadConstraint", "node_affinity_policy"): _POLICIES,
    ("SpreadConstraint", "node_taints_policy"): _POLICIES,
    ("HostPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("Claim", "phase"): ("", "Pending", "Bound", "Lost"),
    ("StorageClass", "binding_mode"): ("Immediate", "WaitForFirstConsumer"),
    ("@pod", "preemption_policy"): ("PreemptLowerPriority", "Never"),
    ("@pod", "qos_class"): ("Guaranteed", "Burstable", "BestEffort"),
    ("@node", "conditions"): ("True", "False", "Unknown"),
}

_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ASKS: Final = (ast.Eq, ast.In)
_DIVIDES: Final = (ast.Div, ast.FloorDiv, ast.Mod)
_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
# Fields of a fact that may be None though there is a fact, and that of a counter; and when.
_NUMBERS_OF_FACTS: Final = {
    "value": "what came is no finite number",
    "age_seconds": "the time of measurement is unknown",
}
_NONE_WHERE: Final = {**_NUMBERS_OF_FACTS, "here": "a node lacks the label"}
_AMOUNT: Final = "amounts are ints: millicores, bytes; parse_int(...) makes an int of a text"
_PLACES: Final = (ast.Name, ast.Attribute, ast.Subscript)
_DICT_METHODS: Final = frozenset(
    {"get", "items", "keys", "values", "pop", "popitem", "setdefault", "update", "clear"}
)
_LIST_METHODS: Final = frozenset({"append", "clear", "extend", "index", "insert", "pop", "remove"})
_METHODS: Final = {
    "dict": _DICT_METHODS,
    "list": _LIST_METHODS,
    "text": frozenset(TEXT_METHODS),
    **dict.fromkeys(("number", "bool"), frozenset[str]()),
}
_CONTAINS: Final = frozenset({"contains", "containskey", "has", "haskey", "includes", "exists"})
_LENGTHS: Final = frozenset({"len", "length", "size"})
_INT32: Final = 1 << 31


def lint_values(source: PolicySource) -> Iterator[Finding]:
    """Wrong types, texts that a field never has, and shifts that go wrong."""
    for node in walk(source.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
            yield from _shift(source, node)
    needs = Needs(source)
    for function in source.functions.values():
        called = {id(node.func) for node in walk(function) if isinstance(node, ast.Call)}
        for node in walk(function):
            if isinstance(node, ast.Compare):
                yield from _compare(source, node)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
                yield from _arithmetic(source, node)
            elif isinstance(node, ast.Attribute):
                yield from _attribute(source, node, called)
            elif isinstance(node, ast.Subscript):
                yield from _subscript(source, node)
            elif isinstance(node, ast.Call):
                yield from _default(source, node)
                yield from _call(source, node)
            elif isinstance(node, ast.For | ast.comprehension):
                kind = _kind(source.types.of(node.iter))
                if kind in ("number", "bool", "text", "struct"):
                    text = f"`{shown(node.iter)}` is {_a(kind)}: there is nothing to loop over"
                    yield source.finding("wrong-type", node.iter, text, is_error=True)
            for test in _tests(node):
                yield from _always_true(source, test)
        yield from _nothing_known(source, needs, function)
        yield from lint_absent(source, needs, function)
        yield from lint_elements(source, needs, function)
        yield from _unasked(source, needs, function)
        yield from _zero(source, function)


# --- types ---------------------------------------------------------------------------------------


def _kind(type_text: str | None) -> str:
    kind = kind_of(type_text or "", SCHEMA)
    return _WORDS.get(kind, kind)


# Kinds as messages have them; lints of values say nothing of the last ones.
_WORDS: Final = {
    "int": "number",
    "float": "number",
    "str": "text",
    **dict.fromkeys(("tuple", "function", "verdict"), ""),
}


def _a(kind: str) -> str:
    return {"number": "a number", "text": "a text", "bool": "True or False"}.get(kind, f"a {kind}")


def _compare(source: PolicySource, node: ast.Compare) -> Iterator[Finding]:
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        a, b = _kind(source.types.of(left)), _kind(source.types.of(right))
        differs = a and b and a != b and NONE_TYPE not in (a, b)
        if isinstance(operator, _ORDERED) and (differs or (a == b and a in ("dict", "struct"))):
            text = f"`{shown(left)}` is {_a(a)}, `{shown(right)}` is {_a(b)}: they have no order"
            if a == "dict" and b == "number":
                hint = f'a key of it is meant: `{shown(left)}.get("cpu", 0)`'
            else:
                hint = _AMOUNT if {a, b} == {"number", "text"} else ""
            yield source.finding("wrong-type", node, text, hint, is_error=True)
        elif isinstance(operator, ast.Eq | ast.NotEq):
            if differs:
                text = f"`{shown(left)}` is {_a(a)}, `{shown(right)}` is {_a(b)}: never equal"
                hint = _AMOUNT if {a, b} == {"number", "text"} else ""
                yield source.finding("wrong-type", node, text, hint)
            yield from _enum(source, left, [right])
            yield from _enum(source, right, [left])
        elif isinstance(operator, ast.In | ast.NotIn):
            if b in ("number", "bool", "struct"):
                text = f"`{shown(right)}` is {_a(b)}: nothing is in it"
                yield source.finding("wrong-type", node, text, is_error=True)
            element = _kind(element_type(source.types.of(right).rstrip("?") or "-"))
            if b == "list" and a and element and element not in (a, "dict") and a != NONE_TYPE:
                text = f"`{shown(left)}` is {_a(a)}, but `{shown(right)}` holds {element}s"
                yield source.finding("wrong-type", node, text)
            if isinstance(right, ast.List | ast.Tuple):
                yield from _enum(source, left, right.elts)
        left = right


def _always_true(source: PolicySource, test: ast.expr) -> Iterator[Finding]:
    """`x == "a" or "b"` as a condition: a text that nothing is compared with.

    Or `"a" in x or "b"`.
    """
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.Or):
        return
    equal = [one for one in test.values if isinstance(one, ast.Compare)]
    equal = [one for one in equal if len(one.ops) == 1 and isinstance(one.ops[0], _ASKS)]
    for value in test.values:
        if equal and text_of(value):
            text = f"`{shown(value)}` is a text, so the condition always holds"
            left, right = equal[0].left, equal[0].comparators[0]
            hint = f"compare with it too: `{shown(left)} in ({shown(right)}, {shown(value)})`"
            if isinstance(equal[0].ops[0], ast.In):
                hint = f"ask for it too: `{shown(value)} in {shown(right)}`"
            yield source.finding("wrong-type", value, text, hint)


def _arithmetic(source: PolicySource, node: ast.BinOp) -> Iterator[Finding]:
    a, b = _kind(source.types.of(node.left)), _kind(source.types.of(node.right))
    if not a or not b:
        return
    if a == "text" and isinstance(node.op, ast.Mod):
        return
    if isinstance(node.op, ast.Add):
        is_sound = a == b and a in ("number", "text", "list")
    elif isinstance(node.op, ast.Mult):
        is_sound = {a, b} <= {"number", "text", "list"} and "number" in (a, b)
    else:
        is_sound = a == b == "number"
    if not is_sound:
        text = f"`{shown(node)}`: one is {_a(a)}, the other {_a(b)}"
        yield source.finding("wrong-type", node, text.replace("one is None", ""), is_error=True)


def _attribute(source: PolicySource, node: ast.Attribute, called: set[int]) -> Iterator[Finding]:
    kind = _kind(source.types.of(node.value))
    owner = shown(node.value)
    methods = _METHODS.get(kind)
    if methods is None or node.attr in methods:
        return
    is_key = kind == "dict" and id(node) not in called
    hint = _near_method(owner, node.attr, methods) if methods and not is_key else ""
    if is_key:
        hint = f'a key of it is read with `{owner}.get("{node.attr}")`'
    elif not hint and kind == "list" and id(node) not in called:
        element = element_type(source.types.of(node.value).rstrip("?"))
        field = f".{node.attr}" if _kind(element) == "struct" else ""
        hint = f"an element of it is read with `{owner}[0]{field}`"
    text = f"`{owner}` is {_a(kind)} and has no `{node.attr}`"
    yield source.finding("wrong-type", node, text, hint, is_error=True)


def _near_method(owner: str, name: str, methods: frozenset[str]) -> str:
    """What is written in Starlark for the method *name* of another language."""
    plain = name.lower().replace("_", "")
    if plain in _CONTAINS:
        return f'whether it is there is `"x" in {owner}`'
    if plain in _LENGTHS:
        return f"how long it is: `len({owner})`"
    if plain == "add" and "append" in methods:
        return "did you mean `append`?"
    same = [one for one in methods if one == plain]
    close = same or difflib.get_close_matches(plain, sorted(methods), 1, 0.75)
    return f"did you mean `{close[0]}`?" if close else ""


def _subscript(source: PolicySource, node: ast.Subscript) -> Iterator[Finding]:
    """A list is asked for a key, or what has fields or is called for an element."""
    owner = shown(node.value)
    kind = _kind(source.types.of(node.value))
    is_text = _kind(source.types.of(node.slice)) == "text"
    key = text_of(node.slice)
    if kind == "struct":
        text = f"`{owner}` is a struct: its fields are read by their names"
        hint = f"write `{owner}.{key}`" if key is not None and key.isidentifier() else ""
        yield source.finding("wrong-type", node, text, hint, is_error=True)
    elif isinstance(node.value, ast.Attribute):
        of = _kind(source.types.of(node.value.value))
        if node.value.attr in _METHODS.get(of, ()):
            text = f"`{owner}` is a function and has no elements"
            hint = f"call it: `{owner}({shown(node.slice)})`"
            yield source.finding("wrong-type", node, text, hint, is_error=True)
    if isinstance(node.slice, ast.Slice) or kind != "list" or not is_text:
        return
    text = f"`{owner}` is a list, `{shown(node.slice)}` is a text: want a place, an int"
    element = element_type(source.types.of(node.value).rstrip("?")) or ""
    has_key = "key" in RECORDS.get(element, {})
    hint = f"go through it: `[x for x in {owner} if x.key == {shown(node.slice)}]`"
    yield source.finding("wrong-type", node, text, hint if has_key else "", is_error=True)


def _call(source: PolicySource, node: ast.Call) -> Iterator[Finding]:
    """A value is called."""
    kind = _kind(source.types.of(node.func))
    if kind in ("", NONE_TYPE):
        return
    called = shown(node.func)
    hint = f"write `{called}`" if not node.args else ""
    if kind == "dict" and len(node.args) == 1:
        hint = f"a key of it is read with `{called}.get({shown(node.args[0])})`"
    text = f"`{called}` is {_a(kind)} and no function"
    yield source.finding("wrong-type", node, text, hint, is_error=True)


def _default(source: PolicySource, node: ast.Call) -> Iterator[Finding]:
    """`labels.get("x", 0)`: a text where there is the key, and else a number."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "get" or len(node.args) < 2:
        return
    owner = source.types.of(node.func.value).rstrip("?")
    value = element_type(owner) if owner.startswith("dict[") else None
    a, b = _kind(value), _kind(source.types.of(node.args[1]))
    if {a, b} != {"text", "number"}:
        return
    text = f"`{shown(node.func.value)}` holds {a}s, but the default is {_a(b)}"
    key = f"{written(node.func.value)}.get({written(node.args[0])}"
    hint = f"write a number: `{key}, {_number_in(node.args[1])})`"
    if a == "text":
        hint = f"make a number of it: `parse_int({key}), {shown(node.args[1])})`"
    yield source.finding("wrong-type", node, text, hint)


def _number_in(node: ast.expr) -> int:
    """The number that a text is meant to be, 0 if it is none."""
    number: int = parse_int(text_of(node) or "", 0)
    return number


def _unasked(source: PolicySource, needs: Needs, function: ast.FunctionDef) -> Iterator[Finding]:
    """Fields of what may be None, such as `pod.owner.kind`, in a function that never asks.

    Says nothing of what a function is given, which may have been asked for before.
    """
    given = {argument.arg for argument in function.args.args}
    if function.name in source.hooks:
        given.discard("group")
    uses: dict[str, list[ast.expr]] = {}
    owners: set[int] = set()
    for node in walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, _PLACES):
            owners.add(id(node.value))
        is_given = isinstance(node, ast.Name) and node.id in given
        if isinstance(node, _PLACES) and isinstance(node.ctx, ast.Load) and not is_given:
            known = source.types.of(node)
            if known.endswith("?") and (known[:-1] in RECORDS or known == "@group?"):
                uses.setdefault(ast.dump(node), []).append(node)
    for found in uses.values():
        are_owners = all(id(node) in owners for node in found)
        if are_owners and needs.is_only_needed(function.name, found):
            first = min(found, key=lambda one: (one.lineno, one.col_offset))
            text = f"`{shown(first)}` is None for some, which has no fields"
            hint = f"ask for that before: `{shown(first)} == None`"
            yield source.finding("wrong-type", first, text, hint)


def _zero(source: PolicySource, function: ast.FunctionDef) -> Iterator[Finding]:
    """Divisions by what is 0 for some nodes or pods, where the function never asks for that."""
    asked = {
        ast.dump(part)
        for node in walk(function)
        for test in _tests(node)
        for part in walk(test)
        if isinstance(part, ast.expr)
    }
    values = dict(assignments(function))
    for node in walk(function):
        if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, _DIVIDES):
            continue
        if isinstance(node, ast.BinOp) and _kind(source.types.of(node.left)) == "text":
            continue  # `"%s" % x`
        divisor = node.right if isinstance(node, ast.BinOp) else node.value
        given = values.get(divisor.id) if isinstance(divisor, ast.Name) else None
        when = _zero_when(source, given or divisor)
        parts = [one for one in (divisor, given) if one is not None]
        inner = {ast.dump(part) for one in parts for part in walk(one) if _is_place(part)}
        if not when or inner & asked:
            continue
        text = f"`{shown(divisor)}` is 0 where {when}, and nothing divides by that"
        hint = f"ask before, or divide by `max(1, {shown(divisor)})`"
        yield source.finding("zero-division", divisor, text, hint)


def _is_place(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Call)


def _tests(node: ast.AST) -> list[ast.expr]:
    """The conditions that *node* holds."""
    if isinstance(node, ast.If | ast.IfExp):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return node.ifs
    return node.values if isinstance(node, ast.BoolOp) else []


def _zero_when(source: PolicySource, node: ast.expr) -> str:
    """When *node* is 0, if it plainly can be."""
    if isinstance(node, ast.Constant):
        return "it always is" if node.value == 0 and type(node.value) in (int, float) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        default = node.args[1] if node.func.attr == "get" and len(node.args) > 1 else None
        is_zero = isinstance(default, ast.Constant) and default.value == 0
        is_number = source.types.of(node) in ("int", "float")
        return "there is no such key" if is_zero and is_number else ""
    text = ast.unparse(node)
    if text == "over.max":
        return "all scores are 0"
    if text == "over.max - over.min":
        return "all scores are equal"
    return "no pod is there" if text == "node.pod_count" else ""


def _nothing_known(
    source: PolicySource, needs: Needs, function: ast.FunctionDef
) -> Iterator[Finding]:
    """Numbers of views, facts and counters that may be None and are only ever used in arithmetic.

    Says nothing of one that another function gets to see, which may be there to ask.
    """
    uses: dict[str, list[ast.Attribute]] = {}
    for node in walk(function):
        if not isinstance(node, ast.Attribute):
            continue
        if node.attr not in _NUMBERS_OF_FACTS:
            is_counter = source.types.of(node.value) == "@counts"
            is_such = not is_counter and source.types.of(node) in ("int?", "float?")
        else:
            is_such = source.types.of(node.value).rstrip("?") == "Fact"
        if is_such:
            uses.setdefault(ast.dump(node), []).append(node)
    for node in counts_that_may_be_none(source, function):
        uses.setdefault(ast.dump(node), []).append(node)
    if not uses:
        return
    handed_on: set[str] = set()
    for node in walk(function):
        if isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            handed_on |= {ast.dump(one) for one in given if isinstance(one, _PLACES)}
    for found in uses.values():
        if ast.dump(found[0].value) in handed_on or not needs.is_only_needed(function.name, found):
            continue
        first = min(found, key=lambda one: (one.lineno, one.col_offset))
        where = _NONE_WHERE.get(first.attr)
        text = f"`{shown(first)}` is None " + (f"where {where}" if where else "for some")
        hint = f"ask for that before: `{shown(first)} == None`"
        yield source.finding("wrong-type", first, text, hint)


# --- texts ---------------------------------------------------------------------------------------


def _enum(source: PolicySource, field: ast.expr, others: list[ast.expr]) -> Iterator[Finding]:
    allowed, name = _allowed(source, field)
    if not allowed:
        return
    for other in others:
        text = text_of(other)
        if text is None or text in allowed:
            continue
        close = difflib.get_close_matches(text, allowed, 1)
        # Letters of another case are as near as can be, and get_close_matches does not see that.
        close = close or [known for known in allowed if known.lower() == text.lower()]
        hint = f"did you mean `{close[0]}`?" if close else ""
        shown = ", ".join(f'"{value}"' for value in allowed)
        message = f'{name} is never "{text}", only {shown}'
        yield source.finding("enum-text", other, message, hint, is_error=bool(close))


def _allowed(source: PolicySource, node: ast.expr) -> tuple[tuple[str, ...], str]:
    """The texts that *node* can have, if it is such a field, and what to call it."""
    field = node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr != "get":
            return (), ""
        field = node.func.value
    elif isinstance(node, ast.Subscript):
        field = node.value
    if not isinstance(field, ast.Attribute):
        return (), ""
    owner = source.types.of(field.value).rstrip("?")
    allowed = ENUMS.get((owner, field.attr), ())
    if field is not node:
        is_map = _kind(source.types.of(field)) == "dict"
        allowed = allowed if is_map else ()
        if allowed and isinstance(node, ast.Call) and len(node.args) > 1:
            default = text_of(node.args[1])
            allowed = (*allowed, default) if default is not None else ()
    return allowed, f"`{shown(node)}`"


# --- shifts --------------------------------------------------------------------------------------


def _shift(source: PolicySource, node: ast.BinOp) -> Iterator[Finding]:
    amount, value = _int(node.right), _int(node.left)
    if amount is not None and not 0 <= amount < 32:
        return  # what is shifted further is computed with all its digits
    if value is not None and not -_INT32 <= value < _INT32:
        return
    if amount is None or value is None:
        if amount == 0 or value == 0:
            return
        text = f"`{shown(node)}` is wrong where the result does not fit 32 bits"
        hint = f"multiply: `{shown(node.left)} * {2**amount}`" if amount is not None else ""
        yield source.finding("wrong-shift", node, text, hint or "multiply by a power of two")
        return
    want = value << amount
    if -_INT32 <= want < _INT32:
        return
    got = (want + _INT32) % (2 * _INT32) - _INT32
    text = f"`{shown(node)}` gives {got} here, want {want}: the result does not fit 32 bits"
    yield source.finding("wrong-shift", node, text, f"write `{want}`", is_error=True)


def _int(node: ast.expr) -> int | None:
    number = number_of(node)
    return number if isinstance(number, int) else None
