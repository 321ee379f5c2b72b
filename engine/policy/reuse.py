"""How far the answers of a policy's hooks can be reused, derived from what the hooks read.

Owns the text of `starsched check --reads`: for each hook what it reads, how long an answer
holds, and what in it defeats reuse, with what to do instead. The reuse itself is `verdicts`' and
needs none of this.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from engine.language.effects import AGES
from engine.language.hooks import ENTRIES
from engine.language.syntax import parse, walk
from engine.policy.analysis import Reads
from engine.policy.errors import Problem
from engine.policy.evaluator import Files
from engine.policy.node_views import NODE_FIELDS
from engine.policy.pod_views import POD_FIELDS
from engine.policy.projections import EVERYTHING
from engine.policy.views import FACT_FIELDS

# `annotate` is asked once per placed pod: nothing is reused.
_NODE_HOOKS: Final = frozenset(
    hook.name for hook in ENTRIES if "node" in hook.parameters and hook.name != "annotate"
)
# They choose between nodes that are otherwise equal: the name is one way to.
_CHOOSING: Final = frozenset({"tie_key", "candidate_key"})
_SCORE_ALL: Final = "score_all"

# Fields that differ from object to object, with what to read instead.
_UNIQUE_OF_POD, _UNIQUE_OF_NODE = (
    {name: field.instead for name, field in fields.items() if field.instead}
    for fields in (POD_FIELDS, NODE_FIELDS)
)
# Dicts of a pod that differ as a whole, with the reason.
_WHOLE: Final = {name: field.whole for name, field in POD_FIELDS.items() if field.whole}


@dataclass(frozen=True, slots=True)
class HookReuse:
    """One hook: the paths that it reads, and what that makes reusable, in words.

    `warnings` say what defeats reuse; the second text of each is what to do instead.
    """

    policy: str
    hook: str
    pod: tuple[str, ...]
    node: tuple[str, ...]
    cluster: tuple[str, ...]
    group: tuple[str, ...]
    counts: bool
    reuse: str
    warnings: tuple[tuple[str, str], ...] = ()


def hook_reuse(policy: str, hook: str, reads: Reads) -> HookReuse:
    """What the answers of *hook* may be reused for."""
    warnings: list[tuple[str, str]] = []
    if hook not in ("queue_key", "victim_key"):  # asked once per pod in any case
        warnings += _pod_warnings(reads.pod)
    warnings += _node_warnings(reads.node, hook)
    return HookReuse(
        policy,
        hook,
        tuple(sorted(reads.pod)),
        tuple(sorted(reads.node)),
        tuple(sorted(reads.cluster)),
        tuple(sorted(reads.group)),
        "counts" in reads.params,
        _in_words(hook, reads),
        tuple(warnings),
    )


def reuse_problems(
    hooks: Iterable[HookReuse], modules: Mapping[str, str], files: Files
) -> list[Problem]:
    """The warnings of *hooks* with their places; *modules* gives each policy's file."""
    found: dict[Problem, None] = {}
    for one in hooks:
        file = modules[one.policy]
        for message, hint in one.warnings:
            field = message.split("`")[1]
            line, column = _place(files.get(file, ""), one.hook, field)
            text = f"{one.hook}() {message}"
            found[Problem(file, line, column, text, hint, "warning")] = None
    return list(found)


def _pod_warnings(paths: frozenset[str]) -> list[tuple[str, str]]:
    warnings = []
    for field, instead in _UNIQUE_OF_POD.items():
        if field in paths or (EVERYTHING in paths and field == "uid"):
            shown = "pod" if EVERYTHING in paths and field not in paths else f"pod.{field}"
            what = "as a whole: it" if shown == "pod" else "which"
            message = f"reads `{shown}`, {what} differs from pod to pod: no answer is reused"
            warnings.append((message, instead))
    for field, why in _WHOLE.items():
        if field in paths:
            message = f"reads all of `pod.{field}`: {why}, and such pods share no answers"
            hint = f'read the keys that matter: pod.{field}.get("app"), not a loop over all'
            if field == "labels":
                hint += "; `pod.selector_labels` are those that the pod's own selectors name"
            warnings.append((message, hint))
    return warnings


def _node_warnings(paths: frozenset[str], hook: str) -> list[tuple[str, str]]:
    if hook not in _NODE_HOOKS:
        return []
    warnings = []
    for field, instead in _UNIQUE_OF_NODE.items():
        if field == "name" and hook in _CHOOSING and EVERYTHING not in paths:
            continue
        if field in paths or (EVERYTHING in paths and field == "name"):
            shown = "node" if EVERYTHING in paths and field not in paths else f"node.{field}"
            message = f"reads `{shown}`, which differs from node to node: each node is asked about"
            warnings.append((message, instead))
    return warnings


def _in_words(hook: str, reads: Reads) -> str:
    if hook == _SCORE_ALL:
        return "never: it sees all nodes at once"
    if hook == "counters":
        return "once for pods alike in what it reads"
    parts = []
    if EVERYTHING in reads.pod or _UNIQUE_OF_POD.keys() & reads.pod:
        parts.append("for the same pod only")
    elif reads.pod:
        parts.append("for pods alike in what it reads")
    else:
        parts.append("for every pod")
    if "state" in reads.params:
        parts[0] += " with an equal `state`"
    if hook in _NODE_HOOKS or hook.startswith("among_"):
        parts.append(_over_nodes(reads.node))
    if "counts" in reads.params:
        if hook in _NODE_HOOKS:
            parts.append("while the counts of the node's domains are the same")
        else:
            parts.append("while the same counters are empty")
    if reads.group:
        parts.append("while the group is the same in what it reads")
    if reads.cluster:
        parts.append("until the cluster changes in what it reads")
    if AGES in reads.node | reads.pod | reads.cluster:
        parts.append("until a fact that it reads is a step older")
    return ", ".join(parts)


def _over_nodes(paths: frozenset[str]) -> str:
    if not paths:
        return "on every node"
    names = {path.partition("[")[0] for path in paths} - {AGES}
    placed = [n for n in sorted(names) if n in NODE_FIELDS and NODE_FIELDS[n].parts]
    alike = "on nodes alike in what it reads"
    if EVERYTHING in paths:
        return f"{alike}; asked again when a node changes in anything"
    again = []
    if placed := [name for name in placed if name not in FACT_FIELDS]:
        again.append(f"a placement changes {', '.join(placed)}")
    if names & FACT_FIELDS:
        again.append("facts change")
    return f"{alike}; asked again when {' or '.join(again)}" if again else alike


def _place(text: str, hook: str, field: str) -> tuple[int, int]:
    """Where *hook* or what it calls in the file reads *field* (`pod.uid`), else where it is."""
    tree = parse(text)
    if tree is None:
        return 0, 0
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if hook not in functions:
        return 0, 0
    parameter, _, name = field.partition(".")
    reads = []
    used = [hook]
    for function in used:  # which grows meanwhile
        for node in walk(functions[function]):
            match node:
                case ast.Name(called) if called in functions and called not in used:
                    used.append(called)
                case ast.Attribute(ast.Name(owner), read) if (owner, read) == (parameter, name):
                    reads.append((node.lineno, node.col_offset + 1))
    return min(reads, default=(functions[hook].lineno, functions[hook].col_offset + 1))
