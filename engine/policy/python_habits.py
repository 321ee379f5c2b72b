"""Explains the interpreter's syntax errors to authors who know Python.

The parser names a token, and up to thirty others that could stand there. Owns better messages:
Python's own for text that is not Python either, and for every construct and name that only Python
has, what policies write in its place.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from engine.language.syntax import children, has_star
from engine.lib.syntax_tree import syntax_tree
from engine.policy.errors import Problem
from engine.policy.sandbox.messages import StarlarkProblem

_NO_TABS: Final = "tabs are not allowed"
_TAB: Final = re.compile(r"^ *\t", re.MULTILINE)
# A few alternatives help; the list of all operators does not.
_ALTERNATIVES: Final = re.compile(r", expected one of ((?:\"[^\"]*\"(?:, | or )?)+|.*)$")
_FEW: Final = 4
# Python's words where it knows no better than the interpreter.
_VAGUE: Final = "invalid syntax"
_WANTS_COLON: Final = "expected ':'"
_TOP_LEVEL: Final = "cannot be used outside `def`"
_TWO_TEXTS: Final = "unexpected string literal"
_LOAD_AS_NAME: Final = re.compile(r"\bload *$")

_TRY: Final = "ask before: `.get(key)`, `parse_int(text, default)`, `x != None`"
_KEPT: Final = "nothing is kept between calls: pass values on, as arguments or with `state(...)`"
_BLOCKS: Final = "a block begins with `:` at the end of the line, and is indented"
_FUNCTIONS: Final = "a hook is a plain function: it returns its answer"

# What stands for a node of Python's syntax tree, and what to write instead.
_FOREIGN: Final[Mapping[type[ast.AST], tuple[str, str]]] = {
    ast.ClassDef: ("`class`", "`struct(name = value)` holds values; functions stand by themselves"),
    ast.While: ("`while`", "write `for _ in range(1000):` with a `break`"),
    ast.Try: ("`try`", _TRY),
    ast.Raise: ("`raise`", '`fail("why")` ends the hook; a filter returns its reason'),
    ast.Import: ("`import`", '`math` and `json` are there; `load("x.star", "f")` loads functions'),
    ast.ImportFrom: ("`from`", '`load("x.star", "f")` loads functions; `math`, `json` are there'),
    ast.Global: ("`global`", _KEPT),
    ast.Nonlocal: ("`nonlocal`", _KEPT),
    ast.Assert: ("`assert`", "write `if not x: fail(...)`; tests have `asserts`"),
    ast.With: ("`with`", "there is nothing to open or to close"),
    ast.Delete: ("`del`", "`values.pop(key)` takes an entry out"),
    ast.Match: ("`match`", "write `if`, `elif` and `else`"),
    ast.AsyncFunctionDef: ("`async`", _FUNCTIONS),
    ast.Await: ("`await`", _FUNCTIONS),
    ast.Yield: ("`yield`", _FUNCTIONS),
    ast.YieldFrom: ("`yield`", _FUNCTIONS),
    ast.NamedExpr: ("`:=`", "assign on a line of its own"),
    ast.Set: ("sets", "a dict with values of True is one: `{x: True}`"),
    ast.SetComp: ("sets", "a dict with values of True is one: `{x: True for x in ...}`"),
    ast.GeneratorExp: ("generators", "write a list: `[x for x in ...]`"),
    ast.Pow: ("`**`", "write `math.pow(x, y)`, or multiply"),
    ast.MatMult: ("`@`", "write a loop"),
    ast.Is: ("`is`", "write `==`, as in `x == None`"),
    ast.IsNot: ("`is not`", "write `!=`, as in `x != None`"),
}

# What Go, C and JavaScript write, in a line without its texts, and what to write instead.
_TEXT: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|#.*""")
_OTHERS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(found), hint)
    for found, hint in (
        (r"[\u201c\u201d\u2018\u2019]", 'texts are in straight quotes: `"`'),
        (r"\s//\s|^//", "a comment begins with `#`"),
        (r"&&", "write `and`"),
        (r"\|\|", "write `or`"),
        (r"!(?!=)", "write `not`"),
        (r"\?.*:", "write `a if condition else b`"),
        (r"(\+\+|--)\s*;?$", "write `x += 1`, or `x -= 1`"),
        (r"^\s*func\b|^\s*function\b", "write `def name(parameters):`"),
        (r"^\s*switch\b", "write `if`, `elif` and `else`"),
        (r"^\s*(if|for|else|elif|while|def)\b.*\{|^\s*\}", _BLOCKS),
        (r":=|^\s*(var|let|const)\s", "a variable is set by `x = value`"),
        (r"`", 'texts are in straight quotes: `"`'),
        (r"^\s*if\b[^=!<>]*[^=!<>]=[^=]", "`=` sets a variable; `==` compares"),
        (r"^\s*(if|for|else|elif|def)\b[^:]*$", _BLOCKS),
    )
)

_NO_CLOCK: Final = "there is no clock: the hour and the date are in `cluster.facts`"
_NO_CHANCE: Final = "there is no chance: equal nodes are told apart by the runtime"
_NONE: Final = "nothing is `None`"
_ASK_TEXT: Final = "ask the text: `x.startswith(...)`, `x.split(...)`, `y in x`"
_SET: Final = "a dict with values of True is one: `{x: True for x in ...}`"
_JSON: Final = "`true`, `false` and `null` are `True`, `False` and `None`"

#: Names that Python or JSON has and Starlark has not, with what to write instead.
NAMES: Final[Mapping[str, str]] = {
    "sum": "add in a loop: `for x in values: total += x`",
    "map": "write a list: `[f(x) for x in ...]`",
    "set": _SET,
    "frozenset": _SET,
    "round": "write `math.round(x)`",
    "pow": "write `math.pow(x, y)`, or multiply",
    "divmod": "write `x // y` and `x % y`",
    "next": "write `values[0]`, or a loop with a `break`",
    "re": _ASK_TEXT,
    "os": "there is no I/O: facts hold what comes from elsewhere",
    "open": "there is no I/O: facts hold what comes from elsewhere",
    "unschedulable": 'a filter returns its reason alone, `return "why"`; others `reject("why")`',
    "time": _NO_CLOCK,
    "datetime": _NO_CLOCK,
    "random": _NO_CHANCE,
    "true": _JSON,
    "false": _JSON,
    "null": _JSON,
    "self": _FUNCTIONS,
    "nil": _NONE,
    "undefined": _NONE,
    "append": "write `values.append(x)`",
    "make": "write `[]` for a list, `{}` for a dict",
    "strings": _ASK_TEXT,
    "strconv": "`parse_int(text, default)` reads a number, `str(x)` writes one",
    "fmt": '`"%s of %d" % (x, y)` puts texts together',
}


def explained(file: str, text: str, error: StarlarkProblem) -> list[Problem]:
    """What is wrong with *text*, which the interpreter refused with *error*; at least one."""
    if error.message.endswith(_NO_TABS) and (tab := _TAB.search(text)):
        # The interpreter's place is the end of the line before.
        line, column = text.count("\n", 0, tab.end()) + 1, tab.end() - tab.start()
        return [Problem(file, line, column, _NO_TABS, "indent by four spaces")]
    try:
        tree = syntax_tree(text)
    except SyntaxError as other:
        return [_unreadable(file, text, error, other)]
    except ValueError:
        return [Problem(file, error.line, error.column, _shortened(error.message))]
    lines = _lines(text)
    found = [
        Problem(file, node.lineno, _column(lines, node), f"Starlark has no {what}", hint)
        for node, what, hint in _foreign(tree)
    ]
    if not any(problem.line == error.line for problem in found):
        hint = _hint(lines[error.line - 1][: error.column - 1], error.message)
        found.append(Problem(file, error.line, error.column, _shortened(error.message), hint))
    return sorted(set(found))


def _hint(before: str, message: str) -> str:
    """A hint for what both write alike and only Python means; *before* is the line up to there."""
    if _TOP_LEVEL in message:
        return "choose inside a function, or with `x = a if b else c`"
    if _TWO_TEXTS in message:
        return "texts are joined by `+`"
    if "keyword 'load'" in message or _LOAD_AS_NAME.search(before):
        return "`load` is the word for loading files: take another name"
    return ""


def _unreadable(file: str, text: str, error: StarlarkProblem, other: SyntaxError) -> Problem:
    """The problem of what is not Python either."""
    if not other.lineno or other.msg == _VAGUE:
        hint = _of_others(_lines(text)[error.line - 1]) if error.line else ""
        return Problem(file, error.line, error.column, _shortened(error.message), hint)
    line = _lines(text)[other.lineno - 1]
    begin = line.lstrip()
    column = other.offset or 0
    if isinstance(other, IndentationError):
        column = len(line) - len(begin) + 1
    hint = "" if other.msg == _WANTS_COLON else _of_others(line)
    if begin.startswith("else if "):
        hint = "write `elif`"
    return Problem(file, other.lineno, column, f"Parse error: {other.msg}", hint)


def _of_others(line: str) -> str:
    """A hint for *line*, which is neither Python nor Starlark, if other languages write so."""
    plain = _TEXT.sub('""', line)
    return next((hint for found, hint in _OTHERS if found.search(plain)), "")


def _foreign(tree: ast.Module) -> Iterator[tuple[ast.stmt | ast.expr, str, str]]:
    """What only Python has: where, its name, and what to write instead."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        inner = list(children(node))
        if isinstance(node, ast.JoinedStr):
            # Before Python 3.12 what is inside is not where it says.
            inner = []
            if not all(_is_plain(part) for part in node.values):
                yield node, "expressions in f-strings", 'names alone; else `"%s" % x`'
        if isinstance(node, ast.stmt | ast.expr):
            yield from ((node, *_FOREIGN[kind]) for kind in _kinds(node) if kind in _FOREIGN)
            if isinstance(node, ast.Compare) and len(node.ops) > 1:
                yield node, "chains of comparisons", "write `a < b and b < c`"
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                yield node.decorator_list[0], "decorators", "call the function where it is used"
            if isinstance(node, ast.For) and node.orelse:
                yield node.orelse[0], "`else` of a loop", "keep in a variable how it ended"
            if isinstance(node, ast.Assign) and len(node.targets) > 1:
                yield node, "`a = b = c`", "assign on two lines"
            if isinstance(node, ast.List | ast.Tuple) and has_star(node.elts):
                yield node, "`*` in lists", "write `a + b`"
            if isinstance(node, ast.Dict) and None in node.keys:
                yield node, "`**` in dicts", "write `a | b`"
        stack.extend(inner)


def _kinds(node: ast.stmt | ast.expr) -> Iterator[type[ast.AST]]:
    yield type(node)
    if isinstance(node, ast.BinOp | ast.AugAssign):
        yield type(node.op)
    elif isinstance(node, ast.Compare):
        yield from map(type, node.ops)


def _is_plain(part: ast.expr) -> bool:
    """True for a piece of an f-string that Starlark has, too: text, or a bare name."""
    if not isinstance(part, ast.FormattedValue):
        return True
    return isinstance(part.value, ast.Name) and part.conversion == -1 and part.format_spec is None


def _lines(text: str) -> list[str]:
    """The lines as Python counts them, and one that begins at the end of the text."""
    return [*re.split(r"\r\n|\r|\n", text), ""]


def _column(lines: list[str], node: ast.stmt | ast.expr) -> int:
    before = lines[node.lineno - 1].encode()[: node.col_offset]
    return len(before.decode(errors="replace")) + 1


def _shortened(message: str) -> str:
    """The interpreter's sentence, with a few alternatives at most."""
    found = _ALTERNATIVES.search(message)
    if found is None or found[1].count('", "') < _FEW:
        return message
    return message[: found.start()]
