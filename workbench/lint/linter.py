"""Runs all lints on a set of files, without the findings that a comment silences.

Owns `# lint: ignore=name, name`: it silences these lints on its line, or on the next one if it
stands alone. Text after a blank is the reason.
"""

import contextlib
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.language.syntax import parse
from engine.policy.documents import did_you_mean
from engine.policy.errors import Problem
from engine.policy.shipped import shipped_files
from workbench.lint.calls import lint_calls
from workbench.lint.cost import lint_cost, lint_long_loops
from workbench.lint.finding import LINTS, Finding, PolicySource
from workbench.lint.flow import lint_flow
from workbench.lint.formats import lint_formats
from workbench.lint.given import lint_given
from workbench.lint.inner_hooks import lint_inner_hooks
from workbench.lint.kept import lint_kept
from workbench.lint.names import lint_names
from workbench.lint.returns import lint_hooks, lint_returns
from workbench.lint.scores import lint_scores
from workbench.lint.values import lint_values

_IGNORE: Final = re.compile(r"#\s*lint:\s*ignore=([\w-]+(?:\s*,\s*[\w-]+)*)")


@dataclass(frozen=True, slots=True)
class _Silence:
    """One name in a comment: where it is written, and the line that it is about."""

    name: str
    line: int
    column: int
    about: int


def lint_files(files: Mapping[str, str], selected: Iterable[str] | None = None) -> list[Finding]:
    """What the lints say of *files* (`*.star`), in order; what does not parse is left out.

    With *selected* they look at these alone; the others are there to be loaded.
    """
    everything = {**shipped_files(), **files}
    found: list[Finding] = []
    for file in sorted(files if selected is None else selected):
        tree = parse(files[file]) if file.endswith(".star") else None
        if tree is None:
            continue
        source = PolicySource(everything, file, tree)
        silences = list(_silences(files[file]))
        about: dict[tuple[str, int], list[_Silence]] = {}
        for silence in silences:
            about.setdefault((silence.name, silence.about), []).append(silence)
        used: set[_Silence] = set()
        for finding in dict.fromkeys(_all(source)):
            by = about.get((finding.lint, finding.problem.line), [])
            used.update(by)
            if not by:
                found.append(finding)
        found += [_idle(file, silence) for silence in silences if silence not in used]
    return sorted(found)


def _all(source: PolicySource) -> Iterator[Finding]:
    """What each lint finds. One says nothing of what nests too deep for it."""
    for lint in _RULES:
        with contextlib.suppress(RecursionError):
            yield from list(lint(source))


def _silences(text: str) -> Iterator[_Silence]:
    if "lint:" not in text:
        return
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    for token in tokens:
        match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        line, column = token.start
        about = line + 1 if not token.line[:column].strip() else line
        for name in match[1].split(","):
            yield _Silence(name.strip(), line, column + 1, about)


def _idle(file: str, silence: _Silence) -> Finding:
    if silence.name in LINTS:
        message, hint = f"`{silence.name}` says nothing here: the comment can go", ""
    else:
        message, hint = f"no lint `{silence.name}`", did_you_mean(silence.name, LINTS)
    problem = Problem(file, silence.line, silence.column, message, hint, "warning")
    return Finding(problem, "unknown-lint")


_RULES: Final[tuple[Callable[[PolicySource], Iterator[Finding]], ...]] = (
    *(lint_flow, lint_values, lint_formats, lint_calls, lint_scores, lint_returns),
    *(lint_names, lint_given, lint_hooks, lint_inner_hooks, lint_kept, lint_cost),
    lint_long_loops,
)
