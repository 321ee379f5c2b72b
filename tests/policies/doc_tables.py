"""The tables of the reference pages in docs, made from the schema and the shipped files.

`python -m tests.policies.doc_tables` writes them; `test_docs.py` keeps them true.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.core.framework.behaviors import CHANGES, GATES
from engine.core.framework.reason_kinds import REASONS
from engine.core.model.clock_facts import CLOCK_FACTS
from engine.language.hook import Hook
from engine.language.hooks import HOOKS, PARAMETERS
from engine.language.numbers import CONSTANTS
from engine.language.starlark import LIBRARIES
from engine.language.summaries import COUNT
from engine.language.table import builtins
from engine.language.tree_hooks import QUEUE_FIELDS, REQUEST_FIELDS
from engine.policy.analysis import analyse
from engine.policy.bundle import Policy, build_bundle
from engine.policy.shipped import KUBERNETES, PACKS, QUEUE_PACKS, shipped_files
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENTS = [
    DOCS / name
    for name in (
        *("language.md", "views.md", "builtin-policies.md", "reasons.md", "reliability.md"),
        *("facts.md", "compatibility.md", "queues.md"),
    )
]
_MARK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> dict[str, str]:
    """Every table by its name in the documents."""
    return {
        "hooks": _hooks(),
        **{view: _view(view) for view in VIEWS},
        "records": _records(),
        "verdicts": _verdicts(),
        "builtins": _builtins(),
        "counters": _counters(),
        "count_fields": _count_fields(),
        "std": _std(),
        "asserts": _asserts(),
        "shipped": _shipped(),
        "packs": _packs(),
        "arguments": _arguments(),
        "reasons": _reasons(),
        "failures": _failures(),
        "clock": _clock(),
        "behaviors": _behaviors(),
        "gates": _gates(),
        "queue_fields": _fields("queue", QUEUE_FIELDS),
        "request_fields": _fields("request", REQUEST_FIELDS),
    }


def hook_pages() -> dict[Path, dict[str, str]]:
    """The page of each hook, with its tables."""
    return {
        DOCS / "hooks" / f"{hook.name}.md": {"parameters": _parameters(hook)}
        for hook in HOOKS.values()
    }


def rendered(document: str, known: Mapping[str, str]) -> str:
    """*document* with every table replaced by what is *known* of it."""
    return _MARK.sub(lambda m: f"{m[1]}\n{known[m[2]]}\n\n{m[3]}", document)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *[list(row) for row in rows]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _reasons() -> str:
    rows = []
    for kind in REASONS.values():
        helps, given = ("yes" if one else "no" for one in (kind.node_helps, kind.is_for_policies))
        rows.append([f"`{kind.token}`", kind.meaning, helps, kind.next_step, given])
    return _table(["token", "cause", "a node helps", "next step", "policies may give it"], rows)


def _failures() -> str:
    rows = [
        [kind.meaning, kind.owner.value, kind.costs, f"`{kind.token}`"]
        for kind in REASONS.values()
        if kind.owner is not None
    ]
    return _table(["failure", "owner", "what it costs, and whom", "token"], rows)


def _behaviors() -> str:
    rows = []
    for name, change in CHANGES.items():
        rows.append([f"1.{change.since}", change.what, change.before, change.then, f"`{name}`"])
    return _table(["since", "what", "before", "from then on", "name"], rows)


def _gates() -> str:
    rows = [[f"`{name}`", f"1.{gate.since}", gate.what] for name, gate in GATES.items()]
    return _table(["gate", "since", "when it is on"], rows)


def _hooks() -> str:
    rows = []
    for hook in HOOKS.values():
        shown = ", ".join(hook.shown_parameters)
        rows.append([f"`{hook.name}({shown})`", hook.called, hook.returns])
    return _table(["hook (`?`: may be left out)", "called", "returns"], rows)


def _parameters(hook: Hook) -> str:
    rows = []
    for name, shown in zip(hook.parameters, hook.shown_parameters, strict=True):
        parameter = PARAMETERS[name]
        rows.append(
            [
                f"`{shown}`",
                _SEEN.get(parameter.type, _SEEN.get(name, "")),
                hook.given.get(name, parameter.doc),
            ]
        )
    return _table(["parameter", "sees", "what it is"], rows)


# Where the documents say what a parameter of this type, or of this name, has.
_SEEN = {
    **dict.fromkeys(("queue", "parent"), "[queue](../queues.md#what-a-hook-sees-of-a-queue)"),
    **dict.fromkeys(("children", "path"), "[queues](../queues.md#what-a-hook-sees-of-a-queue)"),
    **dict.fromkeys(("head", "request"), "[request](../queues.md#what-a-hook-sees-of-a-request)"),
    **{f"view:{view}": f"[{view}](../views.md#{view})" for view in VIEWS},
    "view:group?": "[group](../views.md#group)",
    "list[view:node]": "[nodes](../views.md#node)",
    "list[view:pod]": "[pods](../views.md#pod)",
    "list[Count]": "[counters](../language.md#counters)",
}


def _view(view: str) -> str:
    rows = [[f"`{name}`", f"`{field.type}`", field.doc] for name, field in VIEWS[view].items()]
    return _table(["field", "type", "what it is"], rows)


def _fields(of: str, fields: Mapping[str, tuple[str, str]]) -> str:
    rows = [[f"`{name}`", f"`{type_text}`", doc] for name, (type_text, doc) in fields.items()]
    return _table([f"field of a {of}", "type", "what it is"], rows)


def _records() -> str:
    rows = [
        [f"`{record}`" if i == 0 else "", f"`{name}`", f"`{type_text}`", doc]
        for record, fields in RECORDS.items()
        for i, (name, (type_text, doc)) in enumerate(fields.items())
    ]
    return _table(["record", "field", "type", "what it is"], rows)


def _clock() -> str:
    rows = [
        [f'`cluster.facts["{name}"]`', fact.value_doc, fact.text_doc]
        for name, fact in CLOCK_FACTS.items()
    ]
    return _table(["field", "`value`", "`text`"], rows)


def _counters() -> str:
    counting = [one for one in builtins().values() if one.result in ("counter", "selector")]
    rows = [[f"`{one.name}({one.signature})`", _doc(one.doc)] for one in counting]
    return _table(["built-in", "counts"], rows)


def _verdicts() -> str:
    rows = []
    for one in builtins().values():
        if one.makes:
            hooks = [
                hook.name
                for hook in HOOKS.values()
                if any(f"{one.name}()" in form.kinds for form in hook.forms)
            ]
            rows.append([f"`{one.name}({one.signature})`", ", ".join(hooks), _doc(one.doc)])
    return _table(["builtin", "in", "means"], rows)


def _builtins() -> str:
    shown = [
        one
        for one in builtins().values()
        if one.doc and one.result not in ("verdict", "counter", "selector")
    ]
    rows = [[f"`{one.name}({one.signature})`", _doc(one.doc)] for one in shown]
    constants = ", ".join(f"`math.{name}`" for name in CONSTANTS)
    rows.append([constants, "numbers"])
    rows += [[f"`{name}`", _doc(doc)] for name, doc in LIBRARIES.items()]
    return _table(["name", "what it is"], rows)


def _count_fields() -> str:
    rows = [[f"`{name}`", ", ".join(field.hooks), field.doc] for name, field in COUNT.items()]
    return _table(["field of a counter", "in", "what it is"], rows)


def _doc(text: str) -> str:
    """A line of documentation as the documents write it: names in backquotes, no full stop."""
    first = text[0] if text.startswith("True ") else text[0].lower()
    return re.sub(r"\*(\w+)\*", r"`\1`", first + text[1:].removesuffix("."))


def _std() -> str:
    rows = []
    for path, text in sorted(shipped_files().items()):
        if not path.startswith("@std/") or path.endswith(("_test.star", "/testing.star")):
            continue
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.FunctionDef) and not statement.name.startswith("_"):
                doc = (ast.get_docstring(statement) or "").splitlines()[0].replace("*", "`")
                rows.append(
                    [f"`{path}`", f"`{statement.name}({ast.unparse(statement.args)})`", doc]
                )
    return _table(["file", "function", "what it gives"], rows)


def _asserts() -> str:
    tree = ast.parse(shipped_files()["@std/testing.star"])
    functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    rows = []
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or ast.unparse(statement.targets[0]) != "asserts":
            continue
        assert isinstance(statement.value, ast.Call)
        for keyword in statement.value.keywords:
            function = functions[ast.unparse(keyword.value)]
            signature = ast.unparse(function.args).replace(", args=None, profile=None", "")
            doc = (ast.get_docstring(function) or "").split("\n\n")[0].replace("\n", " ")
            rows.append(
                [f"`asserts.{keyword.arg}({signature})`", re.sub(r"\*(\w+)\*", r"`\1`", doc)]
            )
    return _table(["assertion", "holds if"], rows)


def _of_kubernetes() -> list[Policy]:
    """The policies that are kube-scheduler's plugins; packs have documents of their own."""
    policies = build_bundle({}, None).policies.values()
    return [policy for policy in policies if policy.module.startswith(KUBERNETES)]


def _shipped() -> str:
    files = shipped_files()
    rows = []
    for policy in _of_kubernetes():
        doc = (ast.get_docstring(ast.parse(files[policy.module])) or "").split("\n\n")[0]
        reads: dict[str, set[str]] = {"pod": set(), "node": set(), "cluster": set(), "group": set()}
        for read in analyse(files, policy.module).values():
            reads["pod"] |= read.pod
            reads["node"] |= read.node
            reads["cluster"] |= read.cluster
            reads["group"] |= read.group
        shown = [f"`{view}.{name}`" for view, names in reads.items() for name in sorted(names)]
        rows.append(
            [
                f"`{policy.name}`",
                doc.replace("\n", " "),
                ", ".join(f"`{hook}`" for hook in HOOKS if hook in policy.hooks),
                ", ".join(shown),
            ]
        )
    return _table(["policy", "what it does", "hooks", "reads"], rows)


def _packs() -> str:
    rows = []
    for pack in sorted((*PACKS, *QUEUE_PACKS)):
        title, _, _ = (DOCS / "packs" / f"{pack}.md").read_text(encoding="utf-8").partition("\n")
        rows.append([f"[{pack}](packs/{pack}.md)", title.removeprefix(f"# {pack}: ")])
    return _table(["pack", "policies"], rows)


def _arguments() -> str:
    rows = [
        [f"`{policy.name}`", f"`{name}`", f"`{default}`"]
        for policy in _of_kubernetes()
        for name, default in policy.defaults.items()
    ]
    return _table(["policy", "argument", "default"], rows)


if __name__ == "__main__":
    shared = tables()
    for path, known in {**dict.fromkeys(DOCUMENTS, shared), **hook_pages()}.items():
        path.write_text(rendered(path.read_text(encoding="utf-8"), known), encoding="utf-8")
