"""Writes what policies can use as a Python stub, so that an editor completes it.

Owns the rendering. Fields and builtins, with their types and documentation, are those of
`policy.views` and the table of the language; shipped functions are those of their files.
"""

import ast
import textwrap
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from engine.language.hooks import PARAMETERS as HOOK_PARAMETERS
from engine.language.numbers import CONSTANTS
from engine.language.summaries import COUNT, OVER, SummaryField
from engine.language.syntax import parse, struct_fields
from engine.language.table import Builtin, builtins
from engine.policy.file_names import TEST_SUFFIX
from engine.policy.shipped import shipped_files
from engine.policy.view_fields import RECORDS, ViewField
from engine.policy.views import VIEWS

_STD: Final = "@std/"
#: Field to its type and its documentation.
_Fields: TypeAlias = Mapping[str, tuple[str, str]]
# Types with another name in Python.
_NAMES: Final = {"any": "Any", "verdict": "Verdict", "counter": "Counter", "selector": "Any"}
_HEAD: Final = '''\
"""What starsched policies can use. Written by `starsched stubs`; do not edit it."""

from collections.abc import Callable
from typing import Any as Any, Literal, NoReturn, overload
'''

# Builtins of Starlark that Python lacks or defines otherwise.
_STARLARK: Final = '''
class Verdict:
    """What a hook returns; only the runtime looks inside."""

class Counter:
    """Made by count_pods and the like, for the hook `counters`."""

def plugin_args(**defaults: Any) -> Any:
    """The policy's arguments: these defaults, or what a profile's pluginConfig gives instead."""

def load(module: str, *names: str, **renamed: str) -> None:
    """Take names from a file in the same folder, `@std/x.star` or `@kubernetes/x.star`."""

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
        """The value of the JSON text *text*."""
'''


def stub_text() -> str:
    """The text of a `__builtins__.pyi` with everything that policies and their tests can use."""
    parts = [_HEAD]
    for record, fields in RECORDS.items():
        parts.append(_class(record, {name: (type_of(t), doc) for name, (t, doc) in fields.items()}))
    for view, described in VIEWS.items():
        for name, field in described.items():
            if field.if_named:
                parts.append(_always_there(_facts_class(view, name), field))
        fields = {
            name: (_facts_class(view, name), field.doc) if field.if_named else typed
            for (name, typed), field in zip(
                _typed(described).items(), described.values(), strict=True
            )
        }
        parts.append(_class(view.capitalize(), fields, f"What a hook sees as `{view}`."))
    parts.append(_class("Count", _typed(COUNT), "A counter's value, at one node."))
    parts.append(_class("Over", _typed(OVER), "What `normalize` sees of all scores."))
    parts.append(_STARLARK)
    parts += _builtins()
    for path, text in sorted(shipped_files().items()):
        if path.startswith(_STD) and not path.endswith(TEST_SUFFIX):
            parts += _shipped(path, text)
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _typed(fields: Mapping[str, ViewField] | Mapping[str, SummaryField]) -> _Fields:
    return {name: (type_of(field.type), field.doc) for name, field in fields.items()}


def type_of(text: str) -> str:
    """A type text of the documents as Python writes it: `Taint?` is `Taint | None`."""
    if text.endswith("?"):
        return f"{type_of(text[:-1])} | None"
    if text.startswith("view:"):
        return text.removeprefix("view:").capitalize()
    kind, bracket, inner = text.partition("[")
    if not bracket:
        return _NAMES.get(kind, kind)
    if kind == "dict":
        key, _, value = inner[:-1].partition(", ")
        return f"dict[{type_of(key)}, {type_of(value)}]"
    return f"{kind}[{type_of(inner[:-1])}]"


def _class(name: str, fields: _Fields, doc: str = "") -> str:
    lines = [f"class {name}:"]
    if doc:
        lines.append(f"    {_quoted(doc)}")
    for field, (type_text, about) in fields.items():
        lines += [f"    {field}: {type_text}", f"    {_quoted(about)}"]
    return "\n".join(lines)


def _facts_class(view: str, field: str) -> str:
    return f"{view.capitalize()}{field.capitalize()}"


def _always_there(name: str, field: ViewField) -> str:
    """The class of a dict of facts, some of which are always there: they need no test for None."""
    of_type: dict[str, list[str]] = {}
    for one, record in field.if_named.items():
        of_type.setdefault(record, []).append(f'"{one}"')
    other = type_of(field.type).removeprefix("dict[str, ").removesuffix("]")
    lines = [f"class {name}({type_of(field.type)}):", f"    {_quoted(field.doc)}"]
    for method, default in (("__getitem__", ""), ("get", ", default: Any = None")):
        for record, names in of_type.items():
            lines += [
                "    @overload",
                f"    def {method}(  # pyright: ignore[reportOverlappingOverload]",
                f"        self, name: Literal[{', '.join(names)}]{default}, /",
                f"    ) -> {record}: ...",
            ]
        lines += ["    @overload", f"    def {method}(self, name: str, /) -> {other}: ..."]
    lines += [
        "    @overload",
        "    def get(  # pyright: ignore[reportIncompatibleMethodOverride]",
        "        self, name: str, default: Any, /",
        "    ) -> Any: ...",
    ]
    return "\n".join(lines)


def _quoted(doc: str) -> str:
    """*doc* as a docstring of something that is indented by four spaces."""
    escaped = doc.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    if "\n" in escaped:
        return f'"""{textwrap.indent(escaped, "    ").lstrip()}\n    """'
    return f'"""{escaped} """' if escaped.endswith('"') else f'"""{escaped}"""'


#: The types of hooks' parameters, as Python writes them.
PARAMETERS: Final[Mapping[str, str]] = {
    name: type_of(parameter.type) for name, parameter in HOOK_PARAMETERS.items()
}


# --- functions -------------------------------------------------------------------------------


def _builtins() -> Iterator[str]:
    own = [one for one in builtins().values() if not one.is_starlark]
    for one in own:
        if "." not in one.name:
            yield _builtin(one, one.name)
    lines = ["class math:", '    """Numbers."""', ""]
    lines += [f"    {name}: float" for name in CONSTANTS]
    for one in own:
        if one.name.startswith("math."):
            text = _builtin(one, one.name.removeprefix("math."))
            lines += ["    @staticmethod", textwrap.indent(text, "    ")]
    yield "\n".join(lines)


def _builtin(one: Builtin, name: str) -> str:
    parameters = []
    for parameter in one.parameters:
        if parameter.is_rest:
            parameters.append(f"**{parameter.name}: Any")
            continue
        type_text = "float" if parameter.wants == "a number" else "Any"
        default = "" if parameter.default is None else f" = {parameter.default}"
        parameters.append(f"{parameter.name}: {type_text}{default}")
    returned = type_of(one.result or "any") + (" | Any" if one.default else "")
    return f"def {name}({', '.join(parameters)}) -> {returned}:\n    {_quoted(one.doc)}\n"


def _shipped(path: str, text: str) -> Iterator[str]:
    """The public functions and structs of a shipped file, as if they were loaded."""
    tree = parse(text)
    assert tree is not None
    functions = _functions(tree)
    is_of_tests = "make_pod" in text  # its pods are manifests there
    for name, function in functions.items():
        if not name.startswith("_"):
            doc = f"{ast.get_docstring(function) or ''}\n\nOf {path}.".strip()
            yield _function(function, name, doc, typed=not is_of_tests)
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
    """A struct of functions as a class, which is its only value."""
    lines = [f"class {name}:", f"    {_quoted(doc)}", ""]
    for member, value in members.items():
        function = functions[value.id] if isinstance(value, ast.Name) else None
        if function is not None:
            text = _function(function, member, ast.get_docstring(function) or "", typed=False)
            lines += ["    @staticmethod", textwrap.indent(text, "    ")]
    return "\n".join(lines)


def _function(function: ast.FunctionDef, name: str, doc: str, *, typed: bool = True) -> str:
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
    return f"def {name}({', '.join(parameters)}) -> Any:\n    {body}\n"


def _parameter(name: str, default: ast.expr | None, typed: bool) -> str:
    type_text = PARAMETERS.get(name, "Any") if typed else "Any"
    return f"{name}: {type_text}" + ("" if default is None else f" = {ast.unparse(default)}")
