"""The policies that an editor has open: what `check` finds in them, and their own arguments.

Owns the texts as the editor has them, saved or not, and their form in the language server protocol.
A directory is one set of files, as for `check`; what is not open is read from the disk.
"""

import ast
import contextlib
import re
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from engine.files.policy_files import PolicyFiles, PolicyFilesError, read_bundle_files
from engine.language.syntax import assignments, parse, written
from engine.policy.arguments import declarations_in
from engine.policy.errors import Problem
from engine.policy.file_names import STARLARK_SUFFIX
from workbench.cli.check_command import CheckReport, check_set

Message = dict[str, Any]

_SEVERITIES: Final = {"error": 1, "warning": 2}
_FIELD: Final = 5  # a kind of completion
_BEFORE_DOT: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\.\w*\Z")
_WORD: Final = re.compile(r"\w*")


class Documents:
    """The open policies. *publish* is called with the diagnostics of each, from another thread."""

    def __init__(self, publish: Callable[[Message], None]) -> None:
        self._publish = publish
        # Text by path; a path by the name that the editor has for it.
        self._texts: dict[Path, str] = {}
        self._uris: dict[Path, str] = {}
        self._changed = threading.Condition()
        self._waiting: set[Path] = set()
        # A daemon: it may be in a check when the editor exits.
        threading.Thread(target=self._run, name="check", daemon=True).start()

    def put(self, uri: str, text: str) -> None:
        """Take *text* as that of the document *uri*, and have its directory checked."""
        path = _path(uri)
        if path.name.endswith(STARLARK_SUFFIX):
            with self._changed:
                self._texts[path], self._uris[path] = text, uri
                self._waiting.add(path.parent)
                self._changed.notify()

    def close(self, uri: str) -> None:
        """Forget a document; the editor then shows nothing of it."""
        with self._changed:
            if self._texts.pop(_path(uri), None) is not None:
                self._publish(_published(uri, []))

    def arguments_at(self, uri: str, line: int, character: int) -> list[Message] | None:
        """Completions of `args.`, if that is what stands before the place; else None."""
        lines = self._texts.get(_path(uri), "").split("\n")
        if line >= len(lines):
            return None
        # The protocol counts in UTF-16.
        before = lines[line].encode("utf-16-le")[: 2 * character].decode("utf-16-le", "replace")
        found = _BEFORE_DOT.search(before)
        if found is None:
            return None
        # A line that is being written does not parse.
        lines[line] = before[: len(before) - len(before.lstrip())] + "pass"
        tree = parse("\n".join(lines))
        return None if tree is None else _arguments(tree, found[1])

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                directory = self._waiting.pop()
                texts = {p: t for p, t in self._texts.items() if p.parent == directory}
            try:
                found = _checked(directory, {path.name: text for path, text in texts.items()})
            except Exception:
                traceback.print_exc()  # to the editor's log; the next text is another one
                continue
            with self._changed:
                for path, text in texts.items():
                    if self._texts.get(path) == text:  # otherwise it is checked again
                        of_file = found.get(str(path), [])
                        shown = [_diagnostic(text, problem, lint) for problem, lint in of_file]
                        self._publish(_published(self._uris[path], shown))


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _checked(directory: Path, texts: dict[str, str]) -> dict[str, list[tuple[Problem, str | None]]]:
    """What `check` says of the files of *directory*, by path, if they had these *texts*."""
    on_disk: Mapping[str, str] = {}
    with contextlib.suppress(PolicyFilesError):  # then what is open is checked by itself
        on_disk = read_bundle_files(directory).texts
    report = CheckReport()
    check_set(PolicyFiles(directory, {**on_disk, **texts}, frozenset(texts)), None, report)
    found: dict[str, list[tuple[Problem, str | None]]] = {}
    for problem in dict.fromkeys(report.problems):
        found.setdefault(problem.file, []).append((problem, report.lints.get(problem)))
    return found


def _published(uri: str, diagnostics: list[Message]) -> Message:
    params = {"uri": uri, "diagnostics": diagnostics}
    return {"jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": params}


def _diagnostic(text: str, problem: Problem, lint: str | None) -> Message:
    """*problem* at the word that it is about, or at its line; with the remedy as a second line."""
    line = max(0, problem.line - 1)
    row = text.split("\n")[line] if line <= text.count("\n") else ""
    start = min(max(0, problem.column - 1), len(row))
    word = _WORD.match(row, start) if problem.column else None
    end = word.end() if word is not None and word[0] else len(row)
    hint = f"\nhint: {problem.hint}" if problem.hint else ""
    return {
        "range": {
            "start": {"line": line, "character": _utf16(row[:start])},
            "end": {"line": line, "character": _utf16(row[:end])},
        },
        "severity": _SEVERITIES.get(problem.severity, 1),
        "source": "starsched",
        **({"code": lint} if lint else {}),
        "message": f"{problem.message}{hint}",
    }


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _arguments(tree: ast.Module, name: str) -> list[Message] | None:
    """The arguments that *tree* declares under *name*; None if it declares none there."""
    declared = set(declarations_in(tree))
    for target, value in assignments(tree):
        if target == name and isinstance(value, ast.Call) and value in declared:
            return [
                {"label": one.arg, "kind": _FIELD, "detail": f"default: {written(one.value)}"}
                for one in value.keywords
                if one.arg is not None
            ]
    return None
