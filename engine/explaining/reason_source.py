"""Finds the place in a policy's text that a rejection comes from.

Owns the search: the literal of the reason in the policy's file, then in what that loads, then the
line of the hook. A reason is a constant or is put together from one, so the text itself is enough.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from engine.language.syntax import parse, with_loaded
from engine.policy.bundle import Bundle, Policy

# A literal shorter than this is found in every other sentence.
_SHORTEST: Final = 6
_PLACEHOLDER: Final = re.compile(r"%[sdr]|\{\w*\}")


def reason_source(
    bundle: Bundle, policy: str, reason: str, hooks: Sequence[str] = ("filter", "pre_filter")
) -> str:
    """`file:line` of what *policy* says *reason* with, in one of *hooks*.

    "" for a part of the runtime.
    """
    found = bundle.policies.get(policy)
    if found is None:
        return ""
    best: tuple[int, str] = (0, "")
    for module in with_loaded(bundle.files, [found.module]):
        for line, literal in _literals(bundle.files[module]):
            weight = _weight(literal, reason)
            if weight > best[0]:
                best = (weight, f"{module}:{line}")
    return best[1] or hook_source(bundle, found, *hooks)


def hook_source(bundle: Bundle, policy: Policy, *hooks: str) -> str:
    """`file:line` of the first of *hooks* that the policy defines, else of its file."""
    tree = parse(bundle.files[policy.module])
    lines = {
        node.name: node.lineno
        for node in (tree.body if tree is not None else ())
        if isinstance(node, ast.FunctionDef)
    }
    for hook in hooks:
        if hook in lines:
            return f"{policy.module}:{lines[hook]}"
    return f"{policy.module}:1"


def _literals(text: str) -> Iterator[tuple[int, str]]:
    tree = parse(text)
    if tree is None:
        return
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str):
            yield node.lineno, node.value


def _weight(literal: str, reason: str) -> int:
    """How much of *reason* the literal explains, in characters; 0 for nothing."""
    if literal == reason:
        return 2 * len(reason) + 1
    fixed = _PLACEHOLDER.split(literal)
    length = sum(map(len, fixed))
    if length < _SHORTEST:
        return 0
    if len(fixed) > 1:
        pattern = ".*".join(map(re.escape, fixed))
        return length if re.fullmatch(pattern, reason, re.DOTALL) else 0
    return length if literal in reason else 0
