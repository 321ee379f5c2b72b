"""The forms of what hooks return, each written once.

Owns a small algebra: a hook returns one of several forms, such as None, an int in a range, or what
`wait(...)` makes. A form holds the test for it in Starlark with what leaves the sandbox (from which
the drivers' checks are made), the same in Python (for translated hooks), the type of what arrives
on the other side (its decoder), the kinds of values that it is (for lints), and what messages call
it. Which hook returns which forms is `hooks`.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias, Union

import msgspec

from engine.core.sharing.ratios import RATIO_BITS
from engine.language.table import builtins

INT64: Final = -(1 << 63), (1 << 63) - 1
#: The largest score that `normalize` is given; sums of such with their weights fit in 64 bits.
SCORE_BOUND: Final = 1 << 62

_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64[0], le=INT64[1])]


class NoVerdictError(Exception):
    """A value that no form of the hook takes. The driver's check says what is wrong with it."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One form of a verdict.

    Attributes:
        said: What messages call it, as a list of alternatives; empty: they do not mention it.
        kinds: The kinds of values that it is, as in `table.Parameter`; `blank` for a text without
            letters, and `skip()` for what that builtin makes.
        wire: The type of what leaves the sandbox, for a msgspec decoder.
        starlark: Lines that return what leaves the sandbox if `v` is of this form, and an object
            made by `_wrong` if it nearly is. Any other value gets past them. `$hook` stands for
            the hook's name.
        sent: What leaves the sandbox for a value of one of *kinds*, of a translated hook. Raises
            `NoVerdictError`.
        bounds: For an int, the lowest and the highest.
        has_parts: It is a value of *kinds*, or a tuple or list of such.
    """

    said: tuple[str, ...]
    kinds: frozenset[str]
    wire: Any
    starlark: tuple[str, ...]
    sent: Callable[[Any], Any]
    bounds: tuple[int, int] | None = None
    has_parts: bool = False


_TYPES: Final[dict[str, type]] = {
    "none": NoneType,
    "bool": bool,
    "int": int,
    "str": str,
    "list": list,
    "tuple": tuple,
    "dict": dict,
}


def _same(value: Any) -> Any:
    return value


def _refused(value: Any) -> Any:
    raise NoVerdictError


def _in_range(low: int, high: int, value: Any) -> Any:
    if low <= value <= high:
        return value
    raise NoVerdictError


def _wrong(want: str, kind: str, hint: str = "", value: str = "v") -> str:
    suffix = f", {json.dumps(hint)}" if hint else ""
    return f'return _wrong($hook, {value}, "{want}", "{kind}"{suffix})'


NOTHING: Final = Form(
    ("None",), frozenset({"none"}), None, ("if v == None:", "    return None"), _same
)
TRUTH: Final = Form(
    ("True or False",), frozenset({"bool"}), bool, ('if type(v) == "bool":', "    return v"), _same
)


def int_in(low: int, high: int, said: str = "", hint: str = "") -> Form:
    """An int in *low* to *high*, bounds included; *hint* helps with one beyond them."""
    shown = "-2**62..2**62" if high == SCORE_BOUND else f"{low}..{high}"
    lines = (
        'if type(v) == "int":',
        f"    if v < {low} or v > {high}:",
        f"        {_wrong(f'an int in {shown}', 'range', hint)}",
        "    return v",
    )
    sent = functools.partial(_in_range, low, high)
    wire = Annotated[int, msgspec.Meta(ge=low, le=high)]
    said = said or f"an int in {shown}"
    return Form((said,), frozenset({"int"}), wire, lines, sent, (low, high))


# --- reasons and what the builtins make ------------------------------------------------------


def reasons_of(value: Any) -> list[str]:
    """The reasons that a text or a list of texts gives. Raises `NoVerdictError`."""
    reasons = [value] if type(value) is str else value
    if type(reasons) is not list and type(reasons) is not tuple:
        raise NoVerdictError
    for reason in reasons:
        if type(reason) is not str or not reason.strip() or not reason.isprintable():
            raise NoVerdictError
    if not reasons:
        raise NoVerdictError
    return list(reasons)


def reasons(said: Sequence[str], tag: str, wire: Any) -> Form:
    """A reason or a list of reasons, which leave the sandbox behind *tag*."""
    lines = (
        'reasons = [v] if type(v) == "string" else v',
        "if _is_reasons(reasons):",
        f'    return ["{tag}", list(reasons)]',
    )
    kinds = frozenset({"str", "list", "tuple"})
    return Form(tuple(said), kinds, wire, lines, lambda value: [tag, reasons_of(value)])


REASON: Final = Form(
    ("a reason",),
    frozenset({"str"}),
    str,
    ('if type(v) == "string" and v.strip():', "    return v"),
    _refused,
)


def made(
    builtin: str, sent: str, wire: Any = list[Any], *, when: str = "", is_said: bool = True
) -> Form:
    """What *builtin* makes; *sent* is Starlark for what leaves the sandbox of the struct `v`.

    With *when*, only if that holds. Messages do not mention it unless *is_said*.
    """
    test = f'getattr(v, "verdict", None) == "{builtins()[builtin].makes}"'
    lines = (f"if {test}{when and f' and {when}'}:", f"    return {sent}")
    said = (builtins()[builtin].call,) if is_said else ()
    return Form(said, frozenset({f"{builtin}()"}), wire, lines, _refused)


# --- keys, annotations, lists of scores, counters --------------------------------------------


def _key(value: Any) -> list[Any]:
    parts = list(value) if type(value) in (tuple, list) else [value]
    if not parts:
        raise NoVerdictError
    for part in parts:
        if type(part) is not str and not (type(part) is int and INT64[0] <= part <= INT64[1]):
            raise NoVerdictError
    return parts


KEY: Final = Form(
    ("an int", "a string", "a tuple of those"),
    frozenset({"int", "str", "blank", "tuple", "list"}),
    list[str | _Int64],
    (
        'parts = v if type(v) == "tuple" or type(v) == "list" else [v]',
        'if parts and not [p for p in parts if type(p) != "string" and type(p) != "int"]:',
        "    for part in parts:",
        '        if type(part) == "int" and (part < _LOW or part > _HIGH):',
        f"            {_wrong('ints that fit in 64 bits', 'range', value='part')}",
        "    return list(parts)",
    ),
    _key,
    has_parts=True,
)

_RATIO_WANTED: Final = f"ratios of ints of at most {RATIO_BITS} bits"
# Not a tuple of two: beside an int with bounds msgspec 0.23 takes its length for one of these.
_Ratio: TypeAlias = Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)]

TURN_KEY: Final = Form(
    ("an int", "a string", "a ratio", "a tuple of those"),
    KEY.kinds | {"ratio()"},
    list[str | _Int64 | _Ratio],
    (
        'parts = v if type(v) == "tuple" or type(v) == "list" else [v]',
        "if parts and not [p for p in parts if not _is_part(p)]:",
        "    sent = []",
        "    for part in parts:",
        '        if type(part) == "int" and (part < _LOW or part > _HIGH):',
        f"            {_wrong('ints that fit in 64 bits', 'range', value='part')}",
        '        if type(part) == "int" or type(part) == "string":',
        "            sent.append(part)",
        "            continue",
        "        if part.d >= _WIDE or part.n >= _WIDE or part.n <= -_WIDE:",
        f"            {_wrong(_RATIO_WANTED, 'range', value='part')}",
        "        sent.append([part.n, part.d])",
        "    return sent",
    ),
    _refused,
    has_parts=True,
)


def _texts(value: Any) -> list[list[str]]:
    for name, text in value.items():
        if type(name) is not str or type(text) is not str or not name:
            raise NoVerdictError
    return [[name, text] for name, text in value.items()]


ANNOTATIONS: Final = Form(
    ("a dict of annotations",),
    frozenset({"dict"}),
    list[tuple[str, str]],
    (
        'if type(v) == "dict":',
        "    for key, text in v.items():",
        '        if type(key) != "string" or type(text) != "string" or not key:',
        "            "
        + _wrong(
            "None or a dict of annotations", "type", "keys and values are strings: use str(...)"
        ),
        "    return [[key, text] for key, text in v.items()]",
    ),
    _texts,
)


def scores(low: int, high: int) -> Form:
    """A list of `count` ints in *low* to *high*."""
    shown = "-2**62..2**62" if high == SCORE_BOUND else f"{low}..{high}"
    lines = (
        'if type(v) in ("list", "tuple") and len(v) == count:',
        "    for score in v:",
        '        if type(score) != "int":',
        '            return _wrong($hook, score, "a list of ints, one per node (%d)" % count)',
        f"        if score < {low} or score > {high}:",
        f"            {_wrong(f'ints in {shown}', 'range', value='score')}",
        "    return list(v)",
        'return _wrong($hook, v, "a list of ints, one per node (%d)" % count)',
    )
    kinds = frozenset({"list", "tuple"})
    return Form(
        ("a list of ints, one per node",), kinds, list[_Int64], lines, _refused, (low, high)
    )


COUNTERS_WANTED: Final = "a list of counters, such as count_pods(...), or a dict of such lists"
COUNTERS: Final = Form(
    (COUNTERS_WANTED,),
    frozenset({"list", "tuple", "dict"}),
    dict[str, list[Any]],
    ("return _check_counters(v, functions)",),
    _refused,
)


# --- of queues -------------------------------------------------------------------------------

PATH: Final = Form(
    ("the name of a queue",),
    frozenset({"str"}),
    str,
    ('if type(v) == "string" and v.strip():', "    return v"),
    _refused,
)

QUEUES: Final = Form(
    ("queue(...), alias(...)", "a list of those"),
    frozenset({"list", "tuple", "queue()", "alias()"}),
    list[Any],
    (
        "found = []",
        'for one in v if type(v) in ("list", "tuple") else [v]:',
        '    if getattr(one, "verdict", None) == "queue":',
        "        values = pack(one.attributes)",
        '        found.append(["queue", one.name, one.parent, values, one.is_implied])',
        '    elif getattr(one, "verdict", None) == "alias":',
        '        found.append(["alias", one.name, one.of])',
        "    else:",
        "        " + _wrong("queue(...), alias(...) or a list of those", "type", value="one"),
        "return found",
    ),
    _refused,
)

_AMOUNT: Final = "amounts that are ints of 64 bits"

VECTORS: Final = Form(
    ("a dict of vectors",),
    frozenset({"dict"}),
    list[tuple[str, dict[str, _Int64]]],
    (
        'if type(v) == "dict":',
        "    for name, vector in v.items():",
        '        if type(name) != "string" or type(vector) != "dict":',
        "            "
        + _wrong("a dict of vectors, which are dicts of amounts by resource", "type"),
        "        for resource, amount in vector.items():",
        '            if type(resource) != "string" or type(amount) != "int":',
        "                " + _wrong(_AMOUNT, "type", "`//` divides to an int", "amount"),
        "            if amount < _LOW or amount > _HIGH:",
        "                " + _wrong(_AMOUNT, "range", value="amount"),
        "    return [[name, vector] for name, vector in v.items()]",
    ),
    _refused,
)

# --- several forms ----------------------------------------------------------------------------


def wanted(forms: Sequence[Form]) -> str:
    """What a message says is wanted: `None, skip() or state(...)`."""
    said = [one for form in forms for one in form.said]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"


def wire_of(forms: Sequence[Form]) -> Any:
    """The type of a verdict that left the sandbox; None also stands for one that failed."""
    return Union[(None, *(form.wire for form in forms))]  # made of a tuple


def checker(forms: Sequence[Form]) -> Callable[[Any], Any]:
    """A function that gives what leaves the sandbox for a value of a translated hook.

    It raises `NoVerdictError` for a value that has none of *forms*.
    """
    by_type = {_TYPES[kind]: form.sent for form in forms for kind in form.kinds if kind in _TYPES}

    def check(value: Any) -> Any:
        return by_type.get(type(value), _refused)(value)

    return check


def check_text(
    name: str, hook: str, forms: Sequence[Form], hints: Mapping[str, str], more: str = ""
) -> str:
    """The Starlark function `check_NAME(v)` that gives what leaves the sandbox for `v`.

    *hook* is Starlark for the hook's name, *more* are further parameters. *hints* are by the type
    of a value that is none of *forms*, `[]` for an empty list; `{v}` stands for the value.
    """
    want = json.dumps(wanted(forms))
    lines = [f"def check_{name}(v{more}):"]
    for form in forms:
        lines += ["    " + line.replace("$hook", hook) for line in form.starlark]
    for kind, hint in hints.items():
        test = "v == []" if kind == "[]" else f'type(v) == "{kind}"'
        text = json.dumps(hint).replace("{v}", '" + _show(v) + "')
        lines += [f"    if {test}:", f'        return _wrong({hook}, v, {want}, "type", {text})']
    if not lines[-1].startswith("    return "):
        lines.append(f"    return _wrong({hook}, v, {want})")
    return "\n".join([*lines, ""])


def shared_text() -> str:
    """The Starlark that the checks of all hooks share."""
    made_by = [f'    "{one.makes}": "{one.call}",' for one in builtins().values() if one.makes]
    verdicts = "\n".join(["_VERDICTS = {", *made_by, "}"])
    wanted = f"_COUNTERS_WANTED = {json.dumps(COUNTERS_WANTED)}"
    return f"{verdicts}\n{wanted}\n_WIDE = 1 << {RATIO_BITS}\n{_SHARED}"


_SHARED: Final = """
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1

def _is_part(v):
    kind = type(v)
    return kind == "int" or kind == "string" or getattr(v, "verdict", None) == "ratio"

def _show(v):
    if type(v) == "struct" and getattr(v, "verdict", None) in _VERDICTS:
        return _VERDICTS[v.verdict]
    text = repr(v)
    return text if len(text) <= 80 else text[:77] + "..."

def _wrong(hook, v, want, kind = "type", hint = ""):
    return {"k": kind, "m": hook + "() returned " + _show(v) + ", want " + want, "h": hint}

def _is_reasons(v):
    if type(v) not in ("list", "tuple") or not v:
        return False
    for reason in v:
        if type(reason) != "string" or not reason.strip():
            return False
    return True

def _check_counters(v, functions):
    want = _COUNTERS_WANTED
    if _are_counters([v]) and type(v) == "dict":
        text = "counters() returned a counter, want " + want
        return {"k": "type", "m": text, "h": "a list of one will do: `[count_pods(...)]`"}
    # Counters of one pod mostly ask for the same label keys, as many as the pod has: a list of them
    # is in the answer once, and its place in the counters.
    found, keys = {}, []
    for hook, counters in (v if type(v) == "dict" else {"filter": v, "score": v}).items():
        if hook not in ("filter", "score"):
            return _wrong("counters", v, 'a dict with the keys "filter" and "score"')
        if not _are_counters(counters):
            return _wrong("counters", v, want)
        found[hook] = []
        for counter in counters:
            parts = []
            for part in counter if type(counter) == "list" else [counter]:
                name = part["among"]
                if name != None and name not in functions:
                    known = ", ".join(functions) or "a function among_x(pod, node) of this file"
                    text = "counters() returned a counter with `among = %s`, want %s"
                    return {"k": "type", "m": text % (repr(name), known), "h": ""}
                if not keys or keys[-1] != part["keys"]:
                    keys.append(part["keys"])
                parts.append(part | {"keys": len(keys) - 1})
            found[hook].append(parts)
    return {"by_hook": found | {"keys": keys}}

_COUNTERS = {
    "pods": {
        "topology": ["string", "NoneType"],
        "resource": ["string", "NoneType"],
        "terms": ["list"],
        "among": ["string", "NoneType"],
        "keys": ["list"],
        "weight": ["int"],
        "terminating": ["bool"],
        "up_to": ["int", "NoneType"],
    },
    "nodes": {
        "topology": ["string", "NoneType"],
        "selector": ["dict", "NoneType"],
        "free": ["dict"],
        "among": ["string", "NoneType"],
        "keys": ["list"],
        "weight": ["int"],
        "up_to": ["int", "NoneType"],
    },
    "terms": {
        "of": ["string"],
        "among": ["NoneType"],
        "keys": ["list"],
        "weight": ["int"],
        "up_to": ["int", "NoneType"],
    },
    "matches": {
        "of": ["string"],
        "topology": ["string", "NoneType"],
        "among": ["NoneType"],
        "keys": ["list"],
        "weight": ["int"],
        "up_to": ["int", "NoneType"],
    },
}

def _are_counters(v):
    if type(v) not in ("list", "tuple"):
        return False
    for counter in v:
        # A list inside the list is one counter: the sum of its parts.
        for part in counter if type(counter) == "list" else [counter]:
            if type(part) != "dict" or part.get("kind") not in _COUNTERS:
                return False
            for name, kinds in _COUNTERS[part["kind"]].items():
                if name not in part or type(part[name]) not in kinds:
                    return False
    return True

def pack(v):
    kind = type(v)
    if kind == "string" or kind == "bool" or kind == "NoneType":
        return v
    if kind == "int":
        if v < _LOW or v > _HIGH:
            fail("state(): want ints that fit in 64 bits, got " + _show(v))
        return v
    if kind == "float":
        if v - v != 0.0:  # NaN equals itself here
            fail("state(): want finite numbers, got " + _show(v))
        return v
    if kind == "list" or kind == "tuple":
        return [pack(x) for x in v]
    if kind == "dict":
        for key in v:
            if type(key) != "string" or key == "$struct":
                fail("state(): want keys that are strings, got " + _show(key))
        return {k: pack(x) for k, x in v.items()}
    if kind == "struct" or kind == "record":
        return {"$struct": {name: pack(getattr(v, name)) for name in dir(v)}}
    want = "None, bool, int, float, str, list, dict or struct"
    fail("state(): want plain data (" + want + "), got " + _show(v))
"""
