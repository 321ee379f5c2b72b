"""Starlark that stands between the runtime and a hook: views in, verdicts out.

Owns the text of those modules. One module turns JSON into structs by the schema's types; one
checks what hooks return; and for every hook of every instance there is a small `run` that loops
over the entries. Doing this in Starlark is what makes a batch cheap: one JSON text goes in and
one comes out, whatever the number of nodes.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from engine.policy.sandbox.protocol import MAX_REASONS, POD_OF_REASON, HookSignature, Schema

VIEWS_MODULE: Final = "@starsched/views.star"
VERDICTS_MODULE: Final = "@starsched/verdicts.star"
HOOK_MODULE: Final = "@starsched/hook.star"
RUN_MODULE: Final = "@starsched/run.star"
NODES_MODULE: Final = "@starsched/nodes"

# Between the answers of a filter and the distinct reasons in them.
REASONS_MARK: Final = "\\n"

# Scores without `normalize`; with it, any int in a range that sums cannot leave.
SCORE_BOUND: Final = 1 << 62

_KEY_HOOKS: Final = frozenset({"queue_key", "victim_key", "candidate_key", "tie_key"})
_NODE_LOOP_HOOKS: Final = frozenset({"filter", "score", "tie_key", "annotate"})

_LIST: Final = re.compile(r"list\[(.+)\]")
_DICT: Final = re.compile(r"dict\[str,\s*(.+)\]")


def convert_expression(schema: Schema, type_text: str, value: str, depth: int = 0) -> str | None:
    """Starlark that turns plain *value* into what *type_text* says; None if it is that already."""
    if type_text.endswith("?"):
        inner = convert_expression(schema, type_text[:-1], value, depth)
        return None if inner is None else f"(None if {value} == None else {inner})"
    if type_text in schema.records:
        return f"make_{type_text}({value})"
    item = f"x{depth}"
    if match := _LIST.fullmatch(type_text):
        inner = convert_expression(schema, match[1], item, depth + 1)
        return None if inner is None else f"[{inner} for {item} in {value}]"
    if match := _DICT.fullmatch(type_text):
        inner = convert_expression(schema, match[1], item, depth + 1)
        return (
            None
            if inner is None
            else f"{{k{depth}: {inner} for k{depth}, {item} in {value}.items()}}"
        )
    return None


def views_text(schema: Schema) -> str:
    """The module that makes structs of JSON objects: `make_X` per record, `view_x` per view."""
    parts: list[str] = []
    for record, fields in schema.records.items():
        inner = {name: convert_expression(schema, t, f'v["{name}"]') for name, t in fields.items()}
        if any(inner.values()):
            pairs = ", ".join(f'{name} = {inner[name] or f"""v["{name}"]"""}' for name in fields)
        else:
            pairs = "**v"
        parts.append(f"def make_{record}(v):\n    return struct({pairs})\n")
    for view, fields in schema.views.items():
        lines = [f"def view_{view}(v):"]
        for name, type_text in fields.items():
            expression = convert_expression(schema, type_text, f'v["{name}"]')
            if expression is not None:
                lines.append(f'    if "{name}" in v:\n        v["{name}"] = {expression}')
        lines.append("    return struct(**v)\n")
        parts.append("\n".join(lines))
    return "\n".join([*parts, _STATE_TEXT])


def converter_text(schema: Schema, types: dict[str, str]) -> str:
    """The text of `_convert(name, value)` for arguments with a record type; empty if none has."""
    lines = []
    for name, type_text in types.items():
        expression = convert_expression(schema, type_text, "value")
        if expression is not None:
            lines.append(f'    if name == "{name}":\n        return {expression}')
    if not lines:
        return ""
    loads = ", ".join(f'"make_{record}"' for record in schema.records)
    body = "\n".join(lines)
    return f'load("{VIEWS_MODULE}", {loads})\ndef _convert(name, value):\n{body}\n    return value'


# State crosses the border as JSON. Structs in it (records of the views) are marked, so that the
# hooks that are given the state find structs again.
_STATE_TEXT: Final = """
def unpack(v):
    kind = type(v)
    if kind == "list":
        return [unpack(x) for x in v]
    if kind == "dict":
        if "$struct" in v:
            return struct(**{k: unpack(x) for k, x in v["$struct"].items()})
        return {k: unpack(x) for k, x in v.items()}
    return v

def view_state(v):
    return None if v == None else struct(**{k: unpack(x) for k, x in v.items()})

def view_counts(v):
    return None if v == None else [None if x == None else struct(**x) for x in v]

def view_over(v):
    return None if v == None else struct(**v)
"""

VERDICTS_TEXT: Final = f"""
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
_BOUND = {SCORE_BOUND}

_VERDICTS = {{
    "r": "reject(...)",
    "u": "unresolvable(...)",
    "skip": "skip()",
    "only": "only_nodes(...)",
    "state": "state(...)",
    "wait": "wait(...)",
    "gang": "gang(...)",
}}

def _show(v):
    if type(v) == "struct" and getattr(v, "verdict", None) in _VERDICTS:
        return _VERDICTS[v.verdict]
    text = repr(v)
    return text if len(text) <= 80 else text[:77] + "..."

def _wrong(hook, v, want, kind = "type", hint = ""):
    return {{"k": kind, "m": hook + "() returned " + _show(v) + ", want " + want, "h": hint}}

def _is_reasons(v):
    if type(v) not in ("list", "tuple") or not v:
        return False
    for reason in v:
        if type(reason) != "string" or not reason.strip():
            return False
    return True

def check_filter(v, seen, most):
    kind = type(v)
    if kind == "string":
        code, reasons = "r", [v]
    elif kind == "list" or kind == "tuple":
        code, reasons = "r", list(v)
    else:
        code = getattr(v, "verdict", None)
        reasons = v.reasons if code == "r" or code == "u" else None
    if not _is_reasons(reasons):
        hint = "None lets the pod pass: `return reasons or None`" if v == [] else ""
        want = "None, a reason, a list of reasons or unresolvable(...)"
        return _wrong("filter", v, want, hint = hint)
    for reason in reasons:
        seen[reason] = None
    if len(seen) > most:
        return {{
            "k": "type",
            "m": "filter() returned more than %d different reasons, the last " % most +
                 _show(reasons[-1]) + ", want reasons that are constants",
            "h": "reasons are counted over nodes: leave out names, numbers and keys",
        }}
    return [code, reasons]

def check_score(v, bounded):
    if v == None:
        return None
    if type(v) != "int":
        hint = "int(...) or math.round(...) makes an int of a float" if type(v) == "float" else ""
        return _wrong("score", v, "an int or None", hint = hint)
    if bounded:
        if v < 0 or v > 100:
            hint = "define normalize(score, over), scale by the largest raw score, or clamp to 100"
            return _wrong("score", v, "an int in 0..100", "range", hint)
    elif v < -_BOUND or v > _BOUND:
        return _wrong("score", v, "an int in -2**62..2**62", "range")
    return v

def check_normalize(v):
    if type(v) != "int":
        hint = "use // for whole division" if type(v) == "float" else ""
        return _wrong("normalize", v, "an int in 0..100", hint = hint)
    if v < 0 or v > 100:
        hint = "scale by over.max, or clamp to 100"
        return _wrong("normalize", v, "an int in 0..100", "range", hint)
    return v

def check_score_all(v, count, bounded):
    want = "a list of ints, one per node (%d)" % count
    if type(v) not in ("list", "tuple") or len(v) != count:
        return _wrong("score_all", v, want)
    for score in v:
        if type(score) != "int":
            return _wrong("score_all", score, want)
        if bounded and (score < 0 or score > 100):
            return _wrong("score_all", score, "ints in 0..100", "range")
        if score < -_BOUND or score > _BOUND:
            return _wrong("score_all", score, "ints in -2**62..2**62", "range")
    return list(v)

def check_key(v, hook):
    want = "an int, a string or a tuple of those"
    if hook == "victim_key":
        if v == None:
            return None
        want = "None, " + want
    parts = v if type(v) == "tuple" or type(v) == "list" else [v]
    if not parts:
        return _wrong(hook, v, want)
    for part in parts:
        if type(part) != "string" and type(part) != "int":
            return _wrong(hook, v, want)
        if type(part) == "int" and (part < _LOW or part > _HIGH):
            return _wrong(hook, part, "ints that fit in 64 bits", "range")
    return list(parts)

def check_pre_enqueue(v):
    if v == None:
        return None
    if getattr(v, "verdict", None) in ("r", "u") and len(v.reasons) == 1:
        return v.reasons[0]
    if type(v) != "string" or not v.strip():
        return _wrong("pre_enqueue", v, "None or a reason")
    return v

def check_pre_filter(v):
    if v == None:
        return None
    verdict = getattr(v, "verdict", None)
    if verdict == "r" or verdict == "u":
        return ["reject", verdict, v.reasons]
    if verdict == "skip":
        return ["skip"]
    if verdict == "only":
        return ["only", v.names] if v.state == None else ["only", v.names, pack(v.state)]
    if verdict == "state":
        return ["state", pack(v.state)]
    hint = "reject(%s) rejects the pod" % _show(v) if type(v) == "string" else ""
    want = "None, reject(...), unresolvable(...), skip(), only_nodes(...) or state(...)"
    return _wrong("pre_filter", v, want, hint = hint)

def check_pre_score(v):
    if v == None:
        return None
    verdict = getattr(v, "verdict", None)
    if verdict == "skip":
        return ["skip"]
    if verdict == "state":
        return ["state", pack(v.state)]
    return _wrong("pre_score", v, "None, skip() or state(...)")

def check_group_of(v):
    if v == None:
        return None
    if getattr(v, "verdict", None) == "gang":
        return [v.name, v.min_count]
    hint = "gang(%s) names it" % _show(v) if type(v) == "string" else ""
    return _wrong("group_of", v, "None or gang(...)", hint = hint)

def check_permit(v):
    if v == None:
        return None
    verdict = getattr(v, "verdict", None)
    if verdict == "wait":
        return ["wait", v.seconds, v.reasons[0]]
    if verdict == "r" or verdict == "u":
        return ["reject", v.reasons]
    reasons = [v] if type(v) == "string" else v
    if _is_reasons(reasons):
        return ["reject", list(reasons)]
    return _wrong("permit", v, "None, wait(...) or a reason")

def check_annotate(v):
    if v == None:
        return None
    want = "None or a dict of annotations"
    if type(v) != "dict":
        return _wrong("annotate", v, want)
    for key, text in v.items():
        if type(key) != "string" or type(text) != "string" or not key:
            return _wrong("annotate", v, want, hint = "keys and values are strings: use str(...)")
    return [[key, text] for key, text in v.items()]

def check_among(v, hook):
    return v if type(v) == "bool" else _wrong(hook, v, "True or False")

def check_counters(v, functions):
    want = "a list of count_pods(...) and count_terms(...), or a dict of such lists"
    if _are_counters([v]) and type(v) == "dict":
        text = "counters() returned a counter, want " + want
        return {{"k": "type", "m": text, "h": "a list of one will do: `[count_pods(...)]`"}}
    by_hook = v if type(v) == "dict" else {{"filter": v, "score": v}}
    for hook, counters in by_hook.items():
        if hook not in ("filter", "score"):
            return _wrong("counters", v, 'a dict with the keys "filter" and "score"')
        if not _are_counters(counters):
            return _wrong("counters", v, want)
        for counter in counters:
            for part in counter if type(counter) == "list" else [counter]:
                name = part["among"]
                if name == None or name in functions:
                    continue
                known = ", ".join(functions) or "a function among_x(pod, node) of this file"
                text = "counters() returned a counter with `among = %s`, want %s"
                return {{"k": "type", "m": text % (repr(name), known), "h": ""}}
    return {{"by_hook": by_hook}}

_COUNTERS = {{
    "pods": {{
        "topology": ["string", "NoneType"],
        "terms": ["list"],
        "among": ["string", "NoneType"],
        "keys": ["list"],
        "weight": ["int"],
        "terminating": ["bool"],
        "up_to": ["int", "NoneType"],
    }},
    "terms": {{
        "of": ["string"],
        "among": ["NoneType"],
        "keys": ["list"],
        "weight": ["int"],
        "up_to": ["int", "NoneType"],
    }},
}}

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
        if v != v or v == float("inf") or v == float("-inf"):
            fail("state(): want finite numbers, got " + _show(v))
        return v
    if kind == "list" or kind == "tuple":
        return [pack(x) for x in v]
    if kind == "dict":
        for key in v:
            if type(key) != "string" or key == "$struct":
                fail("state(): want keys that are strings, got " + _show(key))
        return {{k: pack(x) for k, x in v.items()}}
    if kind == "struct" or kind == "record":
        return {{"$struct": {{name: pack(getattr(v, name)) for name in dir(v)}}}}
    want = "None, bool, int, float, str, list, dict or struct"
    fail("state(): want plain data (" + want + "), got " + _show(v))
"""

_SHARED_VIEWS: Final = ("pod", "cluster", "state", "counts", "over", "group")


def driver_text(
    hook: str,
    signature: HookSignature,
    bounded: bool,
    schema: Schema,
    functions: Iterable[str] = (),
) -> str:
    """The module whose `run(pod, nodes, extra)` asks *hook* about every entry.

    *functions* are the names that a counter may have as `among`.

    All three parameters are JSON texts. The answer is JSON too, behind one character: `=` all
    verdicts are good, `!` some are objects that tell what is wrong, `?` the same and some reasons
    hold the node's name; or `M` and the name of a parameter that the hook changed.
    """
    params = signature.params
    by_entry = hook in ("filter", "score")  # counters speak of the node's domain there
    shared = [
        p
        for p in params
        if p in _SHARED_VIEWS and not (p == "counts" and by_entry) and hook != "candidate_key"
    ]
    lines = _run_lines("run", hook, params, shared, bounded, made=False)
    if hook == "counters":
        lines = [f"_AMONG = {json.dumps(sorted(functions))}", "", *lines]
    if takes_views(hook, signature):
        lines += ["", *_run_lines("run_views", hook, params, shared, bounded, made=True)]
    loads = [f'load("{HOOK_MODULE}", hook = "{hook}")', _load_views(schema), _LOAD_VERDICTS]
    return "\n".join([*loads, *lines, ""])


def takes_views(hook: str, signature: HookSignature) -> bool:
    """True if the driver has a `run_views` too, whose nodes are views that were made before."""
    params = signature.params
    if hook in ("filter", "score"):
        return "node" in params and "counts" not in params
    return hook == "score_all" or (hook.startswith("among_") and "node" in params)


def bound_text(count: int) -> str:
    """The module whose `go(pod, extra)` runs a hook over the nodes of *count* modules."""
    names = [f"nodes_{k}" for k in range(count)]
    loads = [f'load("{NODES_MODULE}/{k}", {name} = "NODES")' for k, name in enumerate(names)]
    run = f'load("{RUN_MODULE}", "run_views")'
    nodes = " + ".join(names)
    return "\n".join(
        [run, *loads, f"def go(pod, extra): return run_views(pod, {nodes}, extra)", ""]
    )


def nodes_text() -> str:
    """The module whose `NODES` are the views of the JSON list `TEXT`, which it is given."""
    return (
        f'load("{VIEWS_MODULE}", "view_node")\nNODES = [view_node(v) for v in json.decode(TEXT)]\n'
    )


def _run_lines(
    name: str,
    hook: str,
    params: Sequence[str],
    shared: Sequence[str],
    bounded: bool,
    *,
    made: bool,
) -> list[str]:
    lines = [f"def {name}(pod, nodes, extra):"]
    if hook == "filter":
        lines.append(f"    most = max({MAX_REASONS}, len(pod) // {POD_OF_REASON})")
    if any(p != "pod" for p in shared):
        lines.append("    extra = json.decode(extra)")
    for param in shared:
        source = "json.decode(pod)" if param == "pod" else f'extra.get("{param}")'
        if param in ("pod", "cluster"):
            source = source if param == "pod" else 'extra.get("cluster") or {}'
        view = f"view_{param}({source})"
        if param == "group":
            view = f"None if {source} == None else {view}"
        lines.append(f"    {param} = {view}")
    changeable = [p for p in shared if p != "over"]  # which holds numbers alone
    lines += [f"    before_{param} = json.encode({param})" for param in changeable]
    lines += _loop(hook, params, bounded, made=made)
    for param in changeable:
        lines.append(f'    if json.encode({param}) != before_{param}:\n        return "M{param}"')
    if hook == "filter":
        # A line of its own: JSON has no line breaks in it.
        reasons = f'"{REASONS_MARK}" + json.encode(list(seen))'
        lines.append("    if seen:")
        lines.append(f"        return flag + json.encode(answers) + {reasons}")
    lines.append("    return flag + json.encode(answers)")
    return lines


def _loop(hook: str, params: Sequence[str], bounded: bool, *, made: bool) -> list[str]:
    call = f"hook({', '.join(params)})"
    if hook == "normalize":
        return [
            '    answers, flag = [], "="',
            "    for score in json.decode(nodes):",
            f"        answer = {call}",
            '        if type(answer) != "int" or answer < 0 or answer > 100:',
            "            answer = check_normalize(answer)",
            '            flag = "!"',
            "        answers.append(answer)",
        ]
    is_among = hook.startswith("among_")
    if hook in _NODE_LOOP_HOOKS or hook == "candidate_key" or is_among:
        lines = [
            '    answers, flag, seen = [], "=", {}',
            "    for node in nodes:" if made else "    for raw in json.decode(nodes):",
        ]
        if "counts" in params:
            lines.append('        counts, raw = view_counts(raw["counts"]), raw["node"]')
        if hook == "candidate_key":
            lines += [
                '        victims = [view_pod(pod) for pod in raw["victims"]]',
                '        violations, raw = raw["violations"], raw["node"]',
            ]
        if "node" in params and not made:
            lines.append("        node = view_node(raw)")
        lines.append(f"        answer = {call}")
        if hook == "filter":
            named, name = (
                ('hasattr(node, "name")', "node.name") if made else ('"name" in raw', 'raw["name"]')
            )
            lines += [
                "        if answer != None:",
                "            answer = check_filter(answer, seen, most)",
                '            if type(answer) == "dict":',
                '                flag = "!" if flag == "=" else flag',
                f"            elif {named} and [r for r in answer[1] if {name} in r]:",
                '                answer, flag = {"n": answer}, "?"',
            ]
        elif hook == "score":
            lines += [
                f"        answer = check_score(answer, {bounded})",
                '        if type(answer) == "dict":',
                '            flag = "!"',
            ]
        elif is_among:
            lines += _checked(f'check_among(answer, "{hook}")', 8)
        elif hook == "annotate":
            lines += _checked("check_annotate(answer)", 8)
        else:
            lines += _checked(f'check_key(answer, "{hook}")', 8)
        lines.append("        answers.append(answer)")
        return lines
    lines = ['    flag = "="']
    if "nodes" in params and not made:
        lines.append("    nodes = [view_node(raw) for raw in json.decode(nodes)]")
    lines.append(f"    answer = {call}")
    if hook == "score_all":
        lines += _checked(f"check_score_all(answer, len(nodes), {bounded})", 4)
    elif hook in _KEY_HOOKS:
        lines += _checked(f'check_key(answer, "{hook}")', 4)
    elif hook == "counters":
        # A good answer is a dict too, so it travels under a name of its own.
        lines += [
            "    answer = check_counters(answer, _AMONG)",
            '    if "by_hook" in answer:',
            '        answer = answer["by_hook"]',
            "    else:",
            '        flag = "!"',
        ]
    else:
        lines += _checked(f"check_{hook}(answer)", 4)
    lines.append("    answers = [answer]")
    return lines


def _checked(expression: str, indent: int) -> list[str]:
    pad = " " * indent
    return [
        f"{pad}answer = {expression}",
        f'{pad}if type(answer) == "dict":',
        f'{pad}    flag = "!"',
    ]


def _load_views(schema: Schema) -> str:
    names = [f"view_{view}" for view in schema.views]
    names += ["view_state", "view_counts", "view_over"]
    return f'load("{VIEWS_MODULE}", {", ".join(f"{chr(34)}{n}{chr(34)}" for n in names)})'


_CHECKS: Final = (
    "check_filter",
    "check_score",
    "check_normalize",
    "check_score_all",
    "check_key",
    "check_pre_enqueue",
    "check_pre_filter",
    "check_pre_score",
    "check_counters",
    "check_among",
    "check_annotate",
    "check_group_of",
    "check_permit",
)
_LOAD_VERDICTS: Final = (
    f'load("{VERDICTS_MODULE}", {", ".join(f"{chr(34)}{name}{chr(34)}" for name in _CHECKS)})'
)
