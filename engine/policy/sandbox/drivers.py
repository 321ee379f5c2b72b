"""The Starlark modules between the runtime and a hook: views in, verdicts out.

Owns the text of those modules. One module turns JSON into structs by the schema's types; one
checks what hooks return, made of the forms of `language.hooks`; and for every hook of every
instance there is a small `run` that loops over the entries. Doing this in Starlark makes a batch
cheap: one JSON text goes in and one comes out, whatever the number of nodes.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from engine.language import tree_hooks
from engine.language.hooks import AMONG_PREFIX, checks_text, hook_of
from engine.policy.sandbox.protocol import MAX_REASONS, POD_OF_REASON, HookSignature, Schema

VIEWS_MODULE: Final = "@starsched/views.star"
VERDICTS_MODULE: Final = "@starsched/verdicts.star"
HOOK_MODULE: Final = "@starsched/hook.star"
RUN_MODULE: Final = "@starsched/run.star"
NODES_MODULE: Final = "@starsched/nodes"

# Separates the answers of a filter from the distinct reasons in them.
REASONS_MARK: Final = "\\n"

_LIST: Final = re.compile(r"list\[(.+)\]")
_DICT: Final = re.compile(r"dict\[str,\s*(.+)\]")


def convert_expression(schema: Schema, type_text: str, value: str, depth: int = 0) -> str | None:
    """Starlark that converts plain *value* to *type_text*; None if nothing is to be converted."""
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
    names = {
        name: list(getattr(tree_hooks, name)) for name in ("QUEUE", "LIST_OF_QUEUES", "STRUCTS")
    }
    tables = [f"{name} = {json.dumps(value)}" for name, value in names.items()]
    return "\n".join([*parts, *tables, _STATE_TEXT])


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


# State leaves the sandbox as JSON. Structs in it (records of the views) are marked, so that they
# are structs again for the hooks that get the state.
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

def view_queues(views):
    made = []
    for v in views or []:
        if "above" in v:
            v["above"] = [made[place] for place in v["above"]]
        made.append(struct(**v))
    return made

def view_of_tree(name, v, queues):
    if v == None:
        return None
    if name in QUEUE:
        return queues[v]
    if name in LIST_OF_QUEUES:
        return [queues[place] for place in v]
    if name in STRUCTS:
        return struct(**{k: view_of_tree(k, x, queues) for k, x in v.items()})
    return v

def view_state(v):
    return None if v == None else struct(**{k: unpack(x) for k, x in v.items()})

def view_counts(v):
    return None if v == None else [None if x == None else struct(**x) for x in v]

def view_over(v):
    return None if v == None else struct(**v)
"""

# Reasons are counted over nodes, so a filter that returns many different ones is a mistake.
_COUNT_TEXT: Final = """
def count_reasons(rejection, seen, most):
    for reason in rejection[1]:
        seen[reason] = None
    if len(seen) <= most:
        return rejection
    return {
        "k": "type",
        "m": "filter() returned more than %d different reasons, the last " % most +
             _show(rejection[1][-1]) + ", want reasons that are constants",
        "h": "reasons are counted over nodes: leave out names, numbers and keys",
    }
"""


def verdicts_text() -> str:
    """The module that checks what hooks return."""
    return checks_text() + _COUNT_TEXT


_SHARED_VIEWS: Final = (
    *("pod", "cluster", "state", "counts", "over", "group"),
    *tree_hooks.PARAMETERS,
)


def driver_text(
    hook: str,
    signature: HookSignature,
    bounded: bool,
    schema: Schema,
    functions: Iterable[str] = (),
) -> str:
    """The module whose `run(pod, nodes, extra)` calls *hook* for every entry.

    *bounded*: the policy has no `normalize`. *functions* are the names that a counter may have as
    `among`.

    All three parameters are JSON texts. The answer is JSON after one character: `=` if all verdicts
    are good; `!` if some are objects that describe what is wrong; `?` if, in addition, some reasons
    contain the node's name; or it is `M` and the name of a parameter that the hook changed.
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
    checks = [_check_of(hook, bounded), *(["count_reasons"] if hook == "filter" else [])]
    loads = [
        f'load("{HOOK_MODULE}", hook = "{hook}")',
        _load_views(schema),
        f'load("{VERDICTS_MODULE}", {_quoted(checks)})',
    ]
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
    if any(p in tree_hooks.PARAMETERS for p in shared):
        lines.append(f'    queues = view_queues(extra.get("{tree_hooks.ALL_QUEUES}"))')
    for param in shared:
        source = "json.decode(pod)" if param == "pod" else f'extra.get("{param}")'
        if param in ("pod", "cluster"):
            source = source if param == "pod" else 'extra.get("cluster") or {}'
        view = f"view_{param}({source})"
        if param in tree_hooks.PARAMETERS:
            view = f'view_of_tree("{param}", {source}, queues)'
        if param == "group":
            view = f"None if {source} == None else {view}"
        lines.append(f"    {param} = {view}")
    # `over` holds numbers alone, and queues are made for each question.
    changeable = [p for p in shared if p != "over" and p not in tree_hooks.PARAMETERS]
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
    answer = f"        answer = hook({', '.join(params)})"
    check = f"{_check_of(hook, bounded)}(answer)"
    if hook == "normalize":
        return [
            '    answers, flag = [], "="',
            "    for score in json.decode(nodes):",
            *(answer, *_checked(check, 8)),
            "        answers.append(answer)",
        ]
    if hook == "candidate_key" or hook_of(hook).is_per_node:
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
        lines.append(answer)
        if hook == "filter":
            named, name = (
                ('hasattr(node, "name")', "node.name") if made else ('"name" in raw', 'raw["name"]')
            )
            lines += [
                "        if answer != None:",
                f"            answer = {check}",
                '            if type(answer) != "dict":',
                "                answer = count_reasons(answer, seen, most)",
                '            if type(answer) == "dict":',
                '                flag = "!" if flag == "=" else flag',
                f"            elif {named} and [r for r in answer[1] if {name} in r]:",
                '                answer, flag = {"n": answer}, "?"',
            ]
        elif hook.startswith(AMONG_PREFIX):
            lines += _checked(f'check_among(answer, "{hook}")', 8)
        else:
            lines += _checked(check, 8)
        lines.append("        answers.append(answer)")
        return lines
    lines = ['    flag = "="']
    if "nodes" in params and not made:
        lines.append("    nodes = [view_node(raw) for raw in json.decode(nodes)]")
    lines.append(answer[4:])
    if hook == "score_all":
        lines += _checked(f"{_check_of(hook, bounded)}(answer, len(nodes))", 4)
    elif hook == "counters":
        # A good answer is a dict too, so it is wrapped.
        lines += [
            "    answer = check_counters(answer, _AMONG)",
            '    if "by_hook" in answer:',
            '        answer = answer["by_hook"]',
            "    else:",
            '        flag = "!"',
        ]
    else:
        lines += _checked(check, 4)
    lines.append("    answers = [answer]")
    return lines


def _checked(expression: str, indent: int) -> list[str]:
    pad = " " * indent
    return [
        f"{pad}answer = {expression}",
        f'{pad}if type(answer) == "dict":',
        f'{pad}    flag = "!"',
    ]


def _check_of(hook: str, bounded: bool) -> str:
    """The name of the check of *hook*; *bounded*: the policy has no `normalize`."""
    if hook.startswith(AMONG_PREFIX):
        return "check_among"
    return f"check_{'' if bounded or not hook_of(hook).raw_forms else 'raw_'}{hook}"


def _load_views(schema: Schema) -> str:
    names = [f"view_{view}" for view in schema.views]
    own = ("view_state", "view_counts", "view_over", "view_queues", "view_of_tree")
    return f'load("{VIEWS_MODULE}", {_quoted([*names, *own])})'


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
