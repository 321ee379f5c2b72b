"""The hooks that a policy file defines, with their parameters and places."""

import ast
import re
from typing import Final

from engine.language.hooks import is_hook
from engine.language.syntax import parse
from engine.policy.sandbox.protocol import HookSignature

_DEF: Final = re.compile(r"^def[ \t]+([A-Za-z_]\w*)[ \t]*\(([^()]*)\)", re.MULTILINE)


def hook_signatures(text: str) -> dict[str, HookSignature]:
    """The hooks that *text* defines at top level, with the parameters that each names."""
    tree = parse(text)
    if tree is None:
        return shipped_signatures(text)
    found: dict[str, HookSignature] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and is_hook(statement.name):
            names = [a.arg for a in [*statement.args.posonlyargs, *statement.args.args]]
            place = HookSignature(tuple(names), statement.lineno, statement.col_offset + 5)
            found[statement.name] = place
    return found


def shipped_signatures(text: str) -> dict[str, HookSignature]:
    """The same of a file that ships, without parsing it: their definitions are written plainly."""
    found: dict[str, HookSignature] = {}
    for match in _DEF.finditer(text):
        if is_hook(match[1]):
            names = [p.split("=")[0].split(":")[0].strip() for p in match[2].split(",")]
            line = text.count("\n", 0, match.start()) + 1
            found[match[1]] = HookSignature(tuple(n for n in names if n), line, 5)
    return found
