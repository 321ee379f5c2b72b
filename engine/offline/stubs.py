"""What policies can use, written as a Python stub, so that an editor completes it.

Owns the rendering. Fields, types and documentation are those of the views (`policy.views`), the
built-ins' parameters those of their Starlark text, and the shipped functions' those of their files;
what no table holds, documentation of built-ins and what they return, is here.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from engine.language.syntax import parse, struct_fields
from engine.policy.builtin import builtin_files
from engine.policy.counter_fields import COUNT_FIELDS
from engine.policy.file_names import TEST_SUFFIX
from engine.policy.sandbox import builtins
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

#: A hook's parameters have these types, whatever the hook.
PARAMETERS: Final[Mapping[str, str]] = {
    **{view: view.capitalize() for view in VIEWS},
    "group": "Group | None",
    "nodes": "list[Node]",
    "victims": "list[Pod]",
    "counts": "list[Count]",
    "over": "Over",
    "state": "Any",
    "score": "int",
    "violations": "int",
}

_STD: Final = "@std/"
_HEAD: Final = '''\
"""What starsched policies can use. Written by `starsched stubs`: write it anew, do not edit it."""

from collections.abc import Callable
from typing import Any as Any, NoReturn
'''

_COUNTS: Final[Mapping[str, tuple[str, str]]] = {
    "here": ("int | None", "the count in this node's domain; None if the node is in none"),
    "min": ("int", "the lowest count of any domain"),
    "max": ("int", "the highest count of any domain"),
    "total": ("int", "the sum over all domains"),
    "domains": ("int", "how many domains there are"),
    "is_empty": ("bool", "nothing was counted anywhere"),
    "feasible_domains": ("int", "in `score`: how many domains the nodes that fit are in"),
    "feasible_nodes": ("int", "in `score`: how many nodes that fit are in a domain"),
    "feasible_outside": ("int", "in `score`: how many nodes that fit are in none"),
}
_OVER: Final[Mapping[str, tuple[str, str]]] = {
    "min": ("int", "the lowest score of this policy for this pod"),
    "max": ("int", "the highest score of this policy for this pod"),
    "count": ("int", "how many nodes have a score"),
}
# Of each built-in: what it returns, and what it is for.
_BUILTINS: Final[Mapping[str, tuple[str, str]]] = {
    "unresolvable": ("Verdict", "Rejected, and removing pods could not help: filter, pre_filter."),
    "reject": ("Verdict", "Rejected, and removing pods could help: pre_filter, filter."),
    "skip": ("Verdict", "This policy's filter, or score, does not run for this pod."),
    "only_nodes": ("Verdict", "No other node is looked at; takes `state = state(...)` too."),
    "state": ("Verdict", "Plain data for this policy's later hooks, as `state.name`."),
    "wait": ("Verdict", "The pod keeps its node and is not bound yet: permit."),
    "gang": ("Verdict", "The pod is in this group: group_of."),
    "parse_int": ("int | Any", "The int that *text* spells in base 10, else *default*."),
    "parse_float": ("float | Any", "The finite float that *text* spells, else *default*."),
    "matches": ("bool", "True if a Selector, or a dict of labels, matches *labels*."),
    "count_pods": ("Counter", "A counter of placed pods, for each value of the label *topology*."),
    "count_terms": ("Counter", "A counter of placed pods' affinity terms that mean the pod."),
    "pods_in": ("Any", "Pods of *namespaces* that *selector* means, for `count_pods`."),
}
# Of what says nothing itself, or something else in Python.
_MATH: Final[Mapping[str, str]] = {
    "log": "The natural logarithm of *x*.",
    "abs": "*x* without its sign.",
    "floor": "The largest int that is at most *x*.",
    "ceil": "The smallest int that is at least *x*.",
    "clamp": "*x*, or the one of *low* and *high* that it is beyond.",
}
# What Starlark brings that Python has not, or not so.
_STARLARK: Final = '''
class Verdict:
    """What a hook returns; only the runtime looks inside."""

class Counter:
    """Made by count_pods and count_terms, for the hook `counters`."""

def plugin_args(**defaults: Any) -> Any:
    """The policy's arguments: these defaults, or what a profile's pluginConfig gives instead."""

def load(module: str, *names: str, **renamed: str) -> None:
    """Take names from another file: a file beside it, `@std/x.star` or `@kubernetes/x.star`."""

def fail(*words: Any) -> NoReturn:
    """Stop: a contract is broken. The pod's attempt fails with these words."""

def struct(**fields: Any) -> Any:
    """A value with these fields."""

def record(**fields: Any) -> Any:
    """A type of values with fields of these types."""

def field(type: Any, default: Any = ...) -> Any:
    """A field of a record, with a default."""

def enum(*values: str) -> Any:
    """A type of a few named values."""

class typing:
    """Names of types, for annotations."""

class json:
    """JSON as text."""

    @staticmethod
    def encode(value: Any) -> str:
        """The JSON text of *value*."""

    @staticmethod
    def decode(text: str) -> Any:
        """The value that *text* spells."""
'''


def stub_text() -> str:
    """The text of a `__builtins__.pyi` with everything that policies and their tests can use."""
    parts = [_HEAD]
    for record, fields in RECORDS.items():
        parts.append(_class(record, {name: (type_of(t), doc) for name, (t, doc) in fields.items()}))
    for view, described in VIEWS.items():
        own = {name: (type_of(field.type), field.doc) for name, field in described.items()}
        parts.append(_class(view.capitalize(), own, f"What a hook sees as `{view}`."))
    counts = {name: _COUNTS[name] for name in COUNT_FIELDS}
    parts.append(_class("Count", counts, "A counter's value, at one node."))
    parts.append(_class("Over", _OVER, "What `normalize` sees of all scores."))
    parts.append(_STARLARK)
    parts += _builtins()
    for path, text in sorted(builtin_files().items()):
        if path.startswith(_STD) and not path.endswith(TEST_SUFFIX):
            parts += _shipped(path, text)
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def type_of(text: str) -> str:
    """A type text of the documents as Python writes it: `Taint?` is `Taint | None`."""
    if text.endswith("?"):
        return f"{type_of(text[:-1])} | None"
    kind, bracket, inner = text.partition("[")
    if not bracket:
        return "Any" if kind == "any" else kind
    if kind == "dict":
        key, _, value = inner[:-1].partition(", ")
        return f"dict[{type_of(key)}, {type_of(value)}]"
    return f"{kind}[{type_of(inner[:-1])}]"


def _class(name: str, fields: Mapping[str, tuple[str, str]], doc: str = "") -> str:
    lines = [f"class {name}:"]
    if doc:
        lines.append(f"    {_quoted(doc)}")
    for field, (type_text, about) in fields.items():
        lines += [f"    {field}: {type_text}", f"    {_quoted(about)}"]
    return "\n".join(lines)


def _quoted(doc: str, indent: str = "    ") -> str:
    """*doc* as a docstring; for one of several lines *indent* is what stands before it."""
    escaped = doc.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    if "\n" in escaped:
        return f'"""{textwrap.indent(escaped, indent).lstrip()}\n{indent}"""'
    return f'"""{escaped} """' if escaped.endswith('"') else f'"""{escaped}"""'


# --- functions -------------------------------------------------------------------------------


def _builtins() -> Iterator[str]:
    tree = parse(builtins.TEXT)
    assert tree is not None
    functions = _functions(tree)
    for name in builtins.NAMES:
        if name in _BUILTINS:
            returned, doc = _BUILTINS[name]
            yield _function(functions[name], name, doc, returned)
    yield _members("math", "Numbers.", struct_fields(tree, "math"), functions)


def _shipped(path: str, text: str) -> Iterator[str]:
    """The public functions and structs of a shipped file, as if they were loaded."""
    tree = parse(text)
    assert tree is not None
    functions = _functions(tree)
    is_of_tests = "make_pod" in text  # its pods are manifests there
    for name, function in functions.items():
        if not name.startswith("_"):
            doc = f"{ast.get_docstring(function) or ''}\n\nOf {path}.".strip()
            yield _function(function, name, doc, "Any", typed=not is_of_tests)
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name) and not target.id.startswith("_"):
            members = struct_fields(tree, target.id)
            if members:
                yield _members(target.id, f"Of {path}.", members, functions)


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}


def _members(
    name: str, doc: str, members: Mapping[str, ast.expr], functions: Mapping[str, ast.FunctionDef]
) -> str:
    """A struct of functions and numbers as a class, which is its only value."""
    lines = [f"class {name}:", f"    {_quoted(doc)}", ""]
    for member, value in members.items():
        known = functions.get(value.id) if isinstance(value, ast.Name) else None
        if known is not None:
            about = ast.get_docstring(known) or _MATH.get(member, "")
            text = _function(known, member, about, "Any", typed=False)
        elif isinstance(value, ast.Name):
            text = _native(member, value.id)
        else:
            lines.append(f"    {member}: float")
            continue
        lines += ["    @staticmethod", textwrap.indent(text, "    ")]
    return "\n".join(lines)


def _native(member: str, name: str) -> str:
    """A function that Starlark cannot express, or one of its own."""
    native = builtins.NATIVES.get(name, abs)
    try:
        names = [one.name for one in inspect.signature(native).parameters.values()]
    except ValueError:  # some functions written in C do not say
        names = ["x"]
    doc = _MATH.get(member) or (inspect.getdoc(native) or "").split("\n\n")[0].replace("\n", " ")
    parameters = ", ".join(f"{one}: float" for one in names)
    returned = "int" if member in ("floor", "ceil", "round") else "float"
    return f"def {member}({parameters}) -> {returned}:\n    {_quoted(doc)}\n"


def _function(
    function: ast.FunctionDef, name: str, doc: str, returned: str, *, typed: bool = True
) -> str:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    first_default = len(positional) - len(given.defaults)
    parameters = []
    for place, one in enumerate(positional):
        default = given.defaults[place - first_default] if place >= first_default else None
        parameters.append(_parameter(one.arg, default, typed))
    if given.vararg is not None:
        parameters.append(f"*{given.vararg.arg}: Any")
    elif given.kwonlyargs:
        parameters.append("*")
    for one, keyword in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        parameters.append(_parameter(one.arg, keyword, typed))
    if given.kwarg is not None:
        parameters.append(f"**{given.kwarg.arg}: Any")
    body = _quoted(doc) if doc else "..."
    return f"def {name}({', '.join(parameters)}) -> {returned}:\n    {body}\n"


def _parameter(name: str, default: ast.expr | None, typed: bool) -> str:
    type_text = PARAMETERS.get(name, "Any") if typed else "Any"
    return f"{name}: {type_text}" + ("" if default is None else f" = {ast.unparse(default)}")
