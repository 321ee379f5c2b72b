"""The names of the lints, a finding of a lint, and the file that is checked.

Owns the names: they are what a comment silences and what the documents list.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from engine.language.hooks import is_hook
from engine.language.resolve import definitions
from engine.language.syntax import loads_of, parse
from engine.policy.errors import Problem
from engine.policy.file_names import TEST_SUFFIX
from engine.policy.sandbox.protocol import Files
from engine.policy.views import SCHEMA
from workbench.stubs.typing import FileTypes

#: What each lint looks for; the order is that of the documents.
LINTS: Final[dict[str, str]] = {
    "unused-load": "a loaded name that nothing uses",
    "unused-function": "a function that nothing calls and that is no hook",
    "unused-variable": "a constant or a local variable that is set and never read",
    "unused-argument": "an argument of `plugin_args` that is never read",
    "unused-parameter": "an optional parameter that a hook does not use, or is never given",
    "unused-hook": "a hook that is never asked: `normalize` without `score`",
    "unreachable": "a statement after a `return`, `continue`, `break` or `fail()`",
    "shadowed-name": "a name that hides a built-in, or a hook of the same file",
    "node-loop": "a loop over nodes for each node: the cost grows with their square",
    "long-loop": "a loop with more rounds than a hook has steps",
    "score-range": "a score that can leave 0..100 while there is no `normalize`",
    "map-order": "a result that depends on the order of labels or another map of the API",
    "varying-reason": "a reason that is put together: reasons are counted, so want constants",
    "wrong-shift": "a left shift whose result the interpreter gets wrong (`1 << 31`)",
    "enum-text": "a text that the field never has (`NoScheduel`)",
    "wrong-type": "a field used as what it is not (`pod.requests > 3`)",
    "wrong-return": "an answer that the hook never takes: `return True` in a filter",
    "missing-return": "a hook that can end without the answer that it owes",
    "no-effect": "a value that is made and not taken: `return` is missing before it",
    "never-given": "a counter or a field of `state` that a hook reads and that is never set",
    "zero-division": "a division by what may well be 0",
    "kept-value": "a value of the top level that a function changes, to keep it between calls",
    "unknown-lint": "a `# lint: ignore=` that names no lint, or silences nothing",
}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What one lint reports at one place."""

    problem: Problem
    lint: str


@dataclass(frozen=True)
class PolicySource:
    """One file that parses, with the others that may load it."""

    files: Files
    file: str
    tree: ast.Module

    @property
    def text(self) -> str:
        """Its text."""
        return self.files[self.file]

    @property
    def is_test(self) -> bool:
        """True for a file of tests."""
        return self.file.endswith(TEST_SUFFIX)

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """Its functions at top level, by name."""
        return {s.name: s for s in self.tree.body if isinstance(s, ast.FunctionDef)}

    @cached_property
    def hooks(self) -> dict[str, ast.FunctionDef]:
        """Those of them that the runtime asks; none in a file of tests."""
        if self.is_test:
            return {}
        return {name: function for name, function in self.functions.items() if is_hook(name)}

    @cached_property
    def loaded(self) -> frozenset[str]:
        """The names that it loads, as it calls them."""
        return frozenset(load.local for load in loads_of(self.tree))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its top level: functions, loads and what is set there."""
        return frozenset(name for name, _ in definitions(self.tree))

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """The expressions that its top level sets, by name."""
        return {
            target.id: statement.value
            for statement in self.tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }

    @cached_property
    def types(self) -> FileTypes:
        """The types of its expressions."""
        return FileTypes(self.file, self.text, SCHEMA, self.hooks, is_open=self.is_test)

    @cached_property
    def loaded_by_others(self) -> frozenset[str]:
        """The names that other files load from a file that is called like this one."""
        own = self.file.rpartition("/")[2]
        return frozenset(
            load.name
            for file, text in self.files.items()
            if "load(" in text
            and own in text
            and file != self.file
            and (tree := parse(text)) is not None
            for load in loads_of(tree)
            if load.module.rpartition("/")[2] == own
        )

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    def finding(
        self, lint: str, node: ast.AST, message: str, hint: str = "", *, is_error: bool = False
    ) -> Finding:
        """A finding at the place of *node*."""
        line = getattr(node, "lineno", 0)
        offset = getattr(node, "col_offset", 0)
        column = 0
        if 1 <= line <= len(self._lines):
            before = self._lines[line - 1].encode()[:offset]
            column = len(before.decode(errors="replace")) + 1
        severity = "error" if is_error else "warning"
        return Finding(Problem(self.file, line, column, message, hint, severity), lint)


def blocks(root: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements under *root*."""
    for node in ast.walk(root):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block
