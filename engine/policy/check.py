"""Finds every problem of policy files without running them, each with its place.

Owns the rules of the language that the interpreter does not enforce, or enforces only when the
line is reached: names, hooks and their parameters, loads, recursion, changed parameters, fields.
Configuration is `config`'s, argument values are `arguments`'.
"""

import ast
import contextlib
import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import starlark

from engine.language import prelude
from engine.language.effects import Note
from engine.language.hooks import AMONG_PREFIX, HOOKS, hook_of, is_hook
from engine.language.resolve import (
    annotations_of,
    bound_to,
    definitions,
    free_names,
    functions_of,
    own_definitions,
    parameters_of,
)
from engine.language.starlark import VALUES
from engine.language.summaries import COUNT, counter_fields
from engine.language.syntax import is_safe_to_parse, loads_of, parse, walk
from engine.language.tree_hooks import QUEUE_FIELDS
from engine.lib.syntax_tree import syntax_tree
from engine.policy import python_habits
from engine.policy.analysis import Analyses
from engine.policy.arguments import (
    ARGUMENTS,
    ATTRIBUTES,
    assigned_declarations,
    declarations_in,
)
from engine.policy.circles import circles, load_circles
from engine.policy.documents import did_you_mean
from engine.policy.errors import Problem
from engine.policy.file_names import MAX_BYTES, MAX_FILES, STARLARK_SUFFIX, TEST_SUFFIX
from engine.policy.sandbox import messages
from engine.policy.sandbox.modules import DIALECT, load_refusal
from engine.policy.shipped import shipped_files
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

_STD: Final = "@std/"
_TESTING: Final = "@std/testing.star"
_FOR_TESTS: Final = frozenset({_TESTING, "@std/generators.star"})
# What the test runner adds to the former.
_TESTING_NAMES: Final = frozenset(
    {"testing_data", "testing_draw", "testing_engine", "testing_manifests", "testing_report"}
    | {"testing_trial"}
)

# How alike (0..1) a function's name and a hook's are when one is taken for the other.
_MISSPELT: Final = 0.8

# Objects whose fields are listed for the hints.
_LIBRARIES: Final = frozenset({"json", "math"})

# Names that authors look for in a view that lacks them, and where to find the value.
_MANIFEST: Final = "what decisions go by is a field of its own; `manifest` is the whole object"
_CLOCK: Final = "there is no clock: `created_at` can be compared; the hour is in `cluster.facts`"
_AMOUNT: Final = 'amounts are in dicts: `requests.get("cpu", 0)`, `allocatable.get("cpu", 0)`'
_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("metadata", "spec", "status"), _MANIFEST),
    **dict.fromkeys(("age", "age_seconds", "now", "time"), _CLOCK),
    **dict.fromkeys(("cpu", "memory"), _AMOUNT),
    **dict.fromkeys(("image", "images"), "`containers` have one each: `[c.image for c in ...]`"),
    "ready": 'it is a condition: `conditions.get("Ready")`, which is "True", "False" or "Unknown"',
    "pods": "`counters` says what is counted among placed pods, for a node or for all",
    "nodes": "`score_all` is given all nodes that fit; `counters` count nodes, and pods on them",
    "zone": 'it is a label: `labels.get("topology.kubernetes.io/zone")`',
}

_TYPES: Final = "types are `int`, `str`, `list[str]`, `str | None`, `typing.Any` and the like"
_NO_TYPE_OF_VIEWS: Final = (
    "what hooks see of the API has no type to write: leave the annotation out; editors know "
    "`pod` and `node` by their names"
)

# To look for a near name takes time for each known name, and thousands of hints are of no use.
_MOST_HINTS: Final = 100
_MOST_SHOWN: Final = 200

# What declares something at top level: how it is written, and what it declares.
_DECLARING: Final = (
    (ARGUMENTS, "args = plugin_args(...)", "argument"),
    (ATTRIBUTES, "tree = queue_attributes(...)", "attribute"),
)

_PARAMETERS: Final = frozenset(name for hook in HOOKS.values() for name in hook.parameters)


def check_files(files: Mapping[str, str], analyses: Analyses | None = None) -> list[Problem]:
    """Every problem of the user's *files* (`*.star`; others are not looked at), in their order.

    *analyses* are those of these files and the shipped ones, if they are used elsewhere, too.
    """
    problems = check_sizes(files)
    if problems:
        return problems
    starlark_files = {f: t for f, t in files.items() if f.endswith(STARLARK_SUFFIX)}
    everything = {**shipped_files(), **starlark_files}
    with contextlib.closing(Analyses(everything)) as own:
        for file in sorted(starlark_files):
            problems += _check_file(everything, file, analyses or own)
    problems += load_circles(starlark_files)
    return sorted(set(problems))


def check_sizes(files: Mapping[str, str]) -> list[Problem]:
    """The problem of a bundle that is too large to be looked at, if it is."""
    if len(files) > MAX_FILES:
        return [Problem("", 0, 0, f"want at most {MAX_FILES} files, got {len(files):,}")]
    sizes = {file: len(text.encode(errors="surrogatepass")) for file, text in files.items()}
    total = sum(sizes.values())
    if total > MAX_BYTES:
        largest = max(sizes, key=lambda file: sizes[file])
        message = f"want at most {MAX_BYTES:,} bytes of policies, got {total:,}"
        return [Problem("", 0, 0, message, f"the largest file is `{largest}`: {sizes[largest]:,}")]
    return []


def _check_file(files: Mapping[str, str], file: str, analyses: Analyses) -> list[Problem]:
    text = files[file]
    found = _syntax(file, text)
    if found:
        return found
    tree = parse(text)
    if tree is None:
        return _renamed_value(file, text)
    checker = _Checker(files, file, tree, analyses)
    return checker.run()


def _renamed_value(file: str, text: str) -> list[Problem]:
    """The problem of a file that gives `None`, `True` or `False` another meaning.

    The interpreter takes them for names like any others; Python's parser, and a reader, do not. Of
    other Starlark that Python does not know the sandbox has the last word.
    """
    try:
        syntax_tree(text)
    except SyntaxError as error:
        line, column = error.lineno or 0, error.offset or 0
        rest = text.split("\n")[line - 1][column - 1 :] if line and column else ""
        word = re.match(r"\w*", rest)
        if word and word[0] in VALUES:
            message = f"`{word[0]}` is a value, and cannot be the name of another"
            return [Problem(file, line, column, message)]
    except (ValueError, RecursionError, MemoryError):
        pass
    return []


def _syntax(file: str, text: str) -> list[Problem]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        return [Problem(file, line, 0, "want text, got half a character (a lone surrogate)")]
    if not is_safe_to_parse(text):
        line, message = 0, "nested too deep, or lines too long, to be parsed safely"
        try:
            syntax_tree(text)
        except SyntaxError as error:
            line, message = error.lineno or 0, str(error.msg)
        except (ValueError, RecursionError, MemoryError):
            pass
        return [Problem(file, line, 0, message)]
    try:
        starlark.parse(file, text, DIALECT)
    except starlark.StarlarkError as error:
        return python_habits.explained(file, text, messages.read(error, file))
    return []


class _Checker:
    """The checks of one file that parses."""

    def __init__(
        self, files: Mapping[str, str], file: str, tree: ast.Module, analyses: Analyses
    ) -> None:
        self._analyses = analyses
        self._files = files
        self._file = file
        self._tree = tree
        self._is_test = file.endswith(TEST_SUFFIX)
        self._problems: list[Problem] = []
        self._lines = files[file].split("\n")
        self._hints = 0

    def run(self) -> list[Problem]:
        """All problems of the file."""
        self._top_level_names()
        self._loads()
        if not self._is_test:
            self._hooks()
            self._misspelt_hooks()
            self._declarations()
        self._names()
        self._recursion()
        if not self._is_test:
            self._notes()
        return self._problems

    def _add(self, node: ast.AST | None, message: str, hint: str = "") -> None:
        line = getattr(node, "lineno", 0)
        column = self._column(line, getattr(node, "col_offset", -1))
        self._problems.append(Problem(self._file, line, column, message, hint))

    def _near(self, name: str, known: Iterable[str]) -> str:
        """The hint for a name that is not among those *known*, if there are not too many."""
        self._hints += 1
        return did_you_mean(name, known) if self._hints <= _MOST_HINTS else ""

    def _column(self, line: int, offset: int) -> int:
        """The column, in characters from 1, of a byte offset from 0."""
        if not 1 <= line <= len(self._lines) or offset < 0:
            return 0
        return len(self._lines[line - 1].encode()[:offset].decode(errors="replace")) + 1

    # --- names of the top level --------------------------------------------------------------

    def _top_level_names(self) -> None:
        first: dict[str, int] = {}
        for name, node in sorted(
            definitions(self._tree), key=lambda pair: getattr(pair[1], "lineno", 0)
        ):
            line = getattr(node, "lineno", 0)
            if name in first:
                self._add(
                    node,
                    f"`{name}` is defined twice, at line {first[name]} before",
                    "the interpreter would keep the last one in silence",
                )
            first.setdefault(name, line)
            if isinstance(node, ast.FunctionDef) or not is_hook(name) or self._is_test:
                continue
            if name in HOOKS:
                self._add(
                    node,
                    f"`{name}` is the name of a hook, want a function: `{_shape(name)}`",
                    f'load it under another name: `load("...", my_{name} = "{name}")`'
                    if isinstance(node, ast.Constant)
                    else "",
                )

    def _near_file(self, wanted: str, files: list[str]) -> str:
        """The hint for a file that is not there: another folder's, or one without its suffix."""
        stems = {_stem(file): file for file in sorted(files)}  # one's own after the shipped ones
        found = stems.get(_stem(wanted))
        if found is not None:
            return f"did you mean `{found}`?"
        hint = self._near(wanted, files)
        if hint or self._hints > _MOST_HINTS:
            return hint
        close = difflib.get_close_matches(_stem(wanted), stems, 1)
        return f"did you mean `{stems[close[0]]}`?" if close else ""

    # --- loads -----------------------------------------------------------------------------

    def _loads(self) -> None:
        exports: dict[str, set[str] | None] = {}
        for load in loads_of(self._tree):
            refusal = load_refusal(self._files, self._file, load.module)
            if refusal is not None:
                near = [
                    file
                    for file in self._files
                    if not file.endswith(TEST_SUFFIX) and file != self._file
                ]
                self._add(load.call.args[0], refusal, self._near_file(load.module, near))
                continue
            if load.module in _FOR_TESTS and not self._is_test:
                hint = f"tests are in files that end in `{TEST_SUFFIX}`"
                self._add(load.call.args[0], f"only tests can load `{load.module}`", hint)
                continue
            if load.name.startswith("_"):
                self._add(load.node, f"`{load.name}` is private to `{load.module}`")
                continue
            if load.module not in exports:
                exports[load.module] = _exports(self._files[load.module])
            exported = exports[load.module]
            if exported is not None and load.name not in exported:
                self._add(
                    load.node,
                    f"`{load.module}` has no `{load.name}` to load",
                    self._near(load.name, exported),
                )

    # --- hooks -----------------------------------------------------------------------------

    def _functions(self) -> Iterator[ast.FunctionDef]:
        for statement in self._tree.body:
            if isinstance(statement, ast.FunctionDef):
                yield statement

    def _hooks(self) -> None:
        for function in self._functions():
            if not is_hook(function.name):
                continue
            is_among = function.name.startswith(AMONG_PREFIX)
            hook = hook_of(function.name)
            known = hook.parameters
            arguments = function.args
            for rest in (arguments.vararg, arguments.kwarg):
                if rest is not None:
                    self._add(rest, f"{function.name}() cannot take `*` or `**` parameters")
            for parameter in arguments.kwonlyargs:
                self._add(parameter, f"{function.name}() cannot take keyword-only parameters")
            for default in arguments.defaults:
                self._add(default, f"parameters of {function.name}() cannot have defaults")
            named = [*arguments.posonlyargs, *arguments.args]
            for parameter in named:
                if parameter.arg not in known:
                    hint = did_you_mean(parameter.arg, known)
                    self._add(
                        parameter,
                        f"{function.name}() has no parameter `{parameter.arg}`, "
                        f"want {_listed(known)}",
                        hint,
                    )
            missing = [
                name for name in known[: hook.required] if name not in {a.arg for a in named}
            ]
            if missing and not is_among:
                self._add(
                    function,
                    f"{function.name}() lacks the parameter {_listed(missing)}, "
                    f"want `{_shape(function.name)}`",
                )

        hooks = {function.name: function for function in self._functions()}
        if "score" in hooks and "score_all" in hooks:
            # Both would be added up, under one weight and one name.
            message = "a policy has `score` or `score_all`, and this one has both"
            self._add(hooks["score_all"], message, "move one of them to a policy of its own")

    def _misspelt_hooks(self) -> None:
        """An unused function with a name close to that of a hook is probably meant as one."""
        used: set[str] | None = None
        for function in self._functions():
            name = function.name
            if is_hook(name) or name.startswith("_"):
                continue
            close = difflib.get_close_matches(name, HOOKS, 1, _MISSPELT)
            if not close:
                continue
            if used is None:
                used = {node.id for node in walk(self._tree) if isinstance(node, ast.Name)}
                used |= self._loaded_by_others()
            if name not in used:
                message = f"`{name}` is no hook, and nothing calls it"
                self._add(function, message, f"did you mean `{close[0]}`?")

    def _loaded_by_others(self) -> set[str]:
        return {
            load.name
            for file, text in self._files.items()
            if not file.startswith("@") and (tree := parse(text)) is not None
            for load in loads_of(tree)
            if load.module == self._file
        }

    # --- arguments ---------------------------------------------------------------------------

    def _declarations(self) -> None:
        """The calls that declare arguments, and what queues have: once each, at top level."""
        for declares, example, what in _DECLARING:
            if declares in self._files[self._file]:
                self._declared_by(declares, example, what)

    def _declared_by(self, declares: str, example: str, what: str) -> None:
        top_level = {
            id(statement.value)
            for statement in self._tree.body
            if isinstance(statement, ast.Assign)
        }
        for index, call in enumerate(declarations_in(self._tree, declares)):
            if id(call) not in top_level:
                message = f"{declares}() must be assigned at top level: `{example}`"
                self._add(call, message)
            elif index:
                self._add(call, f"{declares}() may be called once: it declares all {what}s")
            if call.args or any(keyword.arg is None for keyword in call.keywords):
                bare = [one.id for one in call.args if isinstance(one, ast.Name)]
                hint = (
                    f"a default holds where nothing is configured: `{bare[0]} = 0`" if bare else ""
                )
                self._add(call, f"{declares}() takes `name = default` pairs only", hint)
            for keyword in call.keywords:
                if keyword.arg and keyword.arg != keyword.arg.lower():
                    hint = "a configuration may still write it in camelCase"
                    self._add(keyword, f"{what} `{keyword.arg}`: want a name in snake_case", hint)
                elif declares == ATTRIBUTES and keyword.arg in QUEUE_FIELDS:
                    message = f"attribute `{keyword.arg}`: every queue has a field of this name"
                    self._add(keyword, message, "want another name")

    # --- names in use ------------------------------------------------------------------------

    def _names(self) -> None:
        own = {name for name, _ in definitions(self._tree)}
        known = prelude.known_names() | own | {"load"}
        if self._file == _TESTING.rpartition("/")[2]:
            known |= _TESTING_NAMES
        used = list(free_names(self._tree))
        fields = {name: _library_fields(name) for name in _LIBRARIES - own}
        for name, known_fields in (fields | self._declared_arguments()).items():
            self._fields_of(name, known_fields, {id(node) for one, node in used if one == name})
        self._calls({id(node) for _, node in used}, own)
        self._too_early()
        bare = {id(one) for call in declarations_in(self._tree) for one in call.args}
        free = [(name, node) for name, node in used if name not in known and id(node) not in bare]
        functions = [node for node in walk(self._tree) if isinstance(node, ast.FunctionDef)]
        annotations = [one for function in functions for one in annotations_of(function)]
        types = {id(part) for one in annotations for part in walk(one)}
        for name, node in sorted(free, key=lambda one: (one[1].lineno, one[1].col_offset)):
            if name == "print":
                hint = "in a test, a failing assertion shows both sides; or use fail()"
                self._add(node, "policies cannot print", hint)
            elif id(node) in types:
                is_view = name.lower() in VIEWS or name in RECORDS
                hint = _NO_TYPE_OF_VIEWS if is_view else _TYPES
                self._add(node, f"no type `{name}` is defined", hint)
            else:
                self._add(node, f"no `{name}` is defined", self._instead_of(name, known))

    def _too_early(self) -> None:
        """Names that the top level uses above the line that defines them."""
        defined: dict[str, int] = {}
        for name, node in definitions(self._tree):
            line = getattr(node, "lineno", 0)
            defined[name] = min(defined.get(name, line), line)
        for statement in self._tree.body:
            parts: list[ast.AST] = [statement]
            if isinstance(statement, ast.FunctionDef):
                parts = [*statement.args.defaults]
            late = {
                id(inner)
                for part in parts
                for node in walk(part)
                if isinstance(node, ast.Lambda)
                for inner in walk(node.body)
            }
            for name, node in (one for part in parts for one in free_names(part)):
                if id(node) not in late and defined.get(name, 0) > (
                    statement.end_lineno or statement.lineno
                ):
                    message = f"`{name}` is used here, and defined further down"
                    self._add(node, message, f"line {defined[name]} has to come first")

    def _declared_arguments(self) -> dict[str, list[str]]:
        """The names of the policy's arguments, by what `plugin_args(...)` is assigned to."""
        return {
            name: [word.arg for word in call.keywords if word.arg]
            for name, call in assigned_declarations(self._tree).items()
        }

    def _fields_of(self, name: str, fields: list[str], uses: set[int]) -> None:
        """Fields that *name* has not, of these *fields*; *uses* are the ids of its nodes."""
        for node in walk(self._tree) if uses else ():
            if isinstance(node, ast.Subscript) and id(node.value) in uses:
                hint = f"write `{name}.{fields[0]}`" if fields else ""
                self._add(node, f"`{name}` is a struct: its fields are read by their names", hint)
            if not isinstance(node, ast.Attribute) or id(node.value) not in uses:
                continue
            if node.attr not in fields:
                there = ", ".join(f"`{field}`" for field in fields) or "none"
                hint = self._near(node.attr, fields) or f"there are {there}"
                self._add(node, f"`{name}` has no field `{node.attr}`", hint)

    def _calls(self, uses: set[int], own: set[str]) -> None:
        """Calls that no function takes; *uses* are the ids of the names of the top level.

        Of built-ins, of the functions of the file and of those that it loads; *own* are the names
        that the file defines or loads.
        """
        known = {name: one for name, one in _built_in_arguments().items() if name not in own}
        known |= _defined_arguments(self._tree)
        loaded: dict[str, dict[str, ast.arguments]] = {}
        for load in loads_of(self._tree):
            if load.module not in loaded:
                tree = parse(self._files.get(load.module, ""))
                loaded[load.module] = {} if tree is None else _defined_arguments(tree)
            known.pop(load.local, None)
            if load.name in loaded[load.module]:
                known[load.local] = loaded[load.module][load.name]
        for call in walk(self._tree):
            if isinstance(call, ast.Call) and id(call.func) in uses:
                arguments = known.get(getattr(call.func, "id", ""))
                if arguments is not None:
                    self._call(call, getattr(call.func, "id", ""), arguments)

    def _call(self, call: ast.Call, name: str, takes: ast.arguments) -> None:
        """What is wrong with *call* of the function *name*, which takes *takes*."""
        parameters = parameters_of(takes)
        arguments = bound_to(parameters, call)
        known, plain = parameters.named, parameters.positional
        if arguments.unknown and parameters.keywords is None:
            keyword = arguments.unknown[0]
            hint = self._near(keyword.arg or "", known)
            hint = hint or (f"want {_listed(known)}" if known else _called(name, takes))
            self._add(keyword, f"{name}() has no parameter `{keyword.arg}`", hint)
            return
        if arguments.surplus and parameters.rest is None:
            most = f"{len(plain) or 'no'} argument{'s' * (len(plain) != 1)}"
            if parameters.keywords is not None and not plain:
                most = "named arguments alone"
            message = f"{name}() takes {most}, got {len(call.args)}"
            self._add(arguments.surplus[0], message, _called(name, takes))
            return
        if arguments.repeated:
            message = f"{name}() is given `{arguments.repeated[0]}` twice"
            self._add(call, message, _called(name, takes))
        if arguments.missing:
            self._add(call, f"{name}() lacks {_listed(arguments.missing)}", _called(name, takes))

    def _instead_of(self, name: str, known: Iterable[str]) -> str:
        """The hint for *name*, which is none of those *known*."""
        module = _shared_functions().get(name)
        if module is not None and (self._is_test or module not in _FOR_TESTS):
            return f'it is loaded: `load("{module}", "{name}")`'
        if name in _PARAMETERS and not self._is_test:
            return f"a hook that has the parameter `{name}` is given it; functions pass it on"
        if name == "args" and not self._is_test:
            return "`args = plugin_args(name = default)` declares arguments"
        return python_habits.NAMES.get(name) or self._near(name, known)

    def _recursion(self) -> None:
        """Functions that call themselves, directly or through each other."""
        functions = {function.name: function for function in self._functions()}
        calls = {
            name: {n for n, _ in free_names(function) if n in functions}
            for name, function in functions.items()
        }
        for path in circles(calls):
            how = (
                "calls itself" if len(path) == 1 else f"calls itself by way of {_listed(path[1:])}"
            )
            message = f"{path[0]}() {how}"
            self._add(functions[path[0]], message, "write a loop: recursion is not allowed")
        inner = [
            node
            for node in walk(self._tree)
            if isinstance(node, ast.FunctionDef) and functions.get(node.name) is not node
        ]
        for function in inner:
            if function.name in {name for name, _ in free_names(function)}:
                hint = "write a loop: recursion is not allowed"
                self._add(function, f"{function.name}() calls itself", hint)

    # --- fields and changes ------------------------------------------------------------------

    def _notes(self) -> None:
        for note in self._analyses.of(self._file).notes:
            # What is wrong in a loaded file of the user is found when that file is checked too,
            # if it has hooks of its own; if it has none, this is where it shows.
            if not note.module.startswith("@"):
                self._problems.append(self._problem_of(note))

    def _problem_of(self, note: Note) -> Problem:
        is_own = note.module == self._file
        lines = self._lines if is_own else self._files[note.module].split("\n")
        column = note.column
        if 1 <= note.line <= len(lines):
            before = lines[note.line - 1].encode()[: note.column - 1]
            column = len(before.decode(errors="replace")) + 1
        if note.kind == "field":
            fields = VIEWS[note.owner] if note.owner in VIEWS else RECORDS[note.owner]
            message = f"`{note.owner}` has no field `{note.name}`"
            hint = _ELSEWHERE.get(note.name, "") if note.owner in VIEWS else ""
            hint = hint or self._near(note.name, list(fields))
            if not hint and self._hints <= _MOST_HINTS:
                hint = f"want {_listed(fields)}"
            return Problem(note.module, note.line, column, message, hint)
        if note.kind == "counter":
            fields_given = counter_fields(note.owner)
            message = f"`counts` of {note.owner}() have no field `{note.name}`"
            hint = self._near(note.name, fields_given) or f"want {_listed(fields_given)}"
            if note.name in COUNT and len(fields_given) > 1:
                hint = "only `score` is given it: when all filters were asked"
            if len(fields_given) == 1:
                message += f", want {_listed(fields_given)}"
                hint = f"the numbers are given to `{note.owner.removeprefix('pre_')}`"
            return Problem(note.module, note.line, column, message, hint)
        if note.kind == "presence":
            message = f"`{note.owner}.{note.name}` has an entry for every name that is written here"
            hint = "a fact that is missing is None: compare it with None"
            return Problem(note.module, note.line, column, message, hint)
        if note.kind == "unnamed":
            message = (
                f"`{note.owner}.{note.name}` has entries for names that are written here alone"
            )
            hint = "ask with a literal or a constant of the file, not with an argument"
            return Problem(note.module, note.line, column, message, hint)
        message = f"{note.owner} is changed: what a hook is given cannot be changed"
        hint = "copy it first: `dict(...)` or `list(...)`"
        return Problem(note.module, note.line, column, message, hint)


def _exports(text: str) -> set[str] | None:
    """The names that a file defines and others may load; None if Python cannot parse it."""
    tree = parse(text)
    if tree is None:
        return None
    return {name for name, _ in own_definitions(tree) if not name.startswith("_")}


@functools.cache
def _library_fields(library: str) -> list[str]:
    return sorted(prelude.members(library))


def _defined_arguments(tree: ast.Module) -> dict[str, ast.arguments]:
    """The parameters of the functions that a file defines, without those that it assigns again."""
    return {name: function.args for name, function in functions_of(tree).items()}


@functools.cache
def _built_in_arguments() -> Mapping[str, ast.arguments]:
    """The parameters of each built-in function."""
    tree = parse(prelude.text())
    assert tree is not None
    known = _defined_arguments(tree)
    return {name: known[name] for name in prelude.names() if name in known}


@functools.cache
def _shared_functions() -> Mapping[str, str]:
    """The shipped file of every function that policies or tests may load from `@std`."""
    shared = ((m, t) for m, t in shipped_files().items() if m.startswith(_STD))
    return {name: module for module, text in shared for name in _exports(text) or ()}


def _stem(file: str) -> str:
    """The name of a file without its folder and suffix."""
    return file.replace(":", "/").rpartition("/")[2].lower().removesuffix(STARLARK_SUFFIX)


def _shape(hook: str) -> str:
    entry = HOOKS[hook]
    return f"def {hook}({', '.join(entry.parameters[: entry.required])})"


def _called(name: str, takes: ast.arguments) -> str:
    """The hint how the function *name* is called, unless its defaults are too long to be shown."""
    try:
        shown = ast.unparse(takes)
    except RecursionError:
        return ""
    return f"want `{name}({shown})`" if len(shown) <= _MOST_SHOWN else ""


def _listed(names: Iterable[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
