"""The tables of docs/policies.md, made from the schema and the shipped files.

`python -m tests.policies.doc_tables` writes them; `test_docs.py` keeps them true.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from engine.framework.extension_points import HOOK_PARAMETERS
from engine.policy.analysis import analyse
from engine.policy.builtin import KUBERNETES, builtin_files
from engine.policy.bundle import Policy, build_bundle
from engine.policy.sandbox.builtins import TEXT
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

DOCUMENT = Path(__file__).parents[2] / "docs" / "policies.md"
_MARK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# When each hook is called and what it returns, in the order of a scheduling attempt.
HOOK_TEXTS = {
    "group_of": (
        "once per pod",
        "`None`: in no group; or `gang(...)`. Without this hook: the group that the pod's "
        "`spec.schedulingGroup` names",
    ),
    "queue_key": (
        "when a pod enters the queue",
        "int, string or tuple of those: smaller goes first, equals by arrival",
    ),
    "pre_enqueue": (
        "before a pod may be tried",
        "`None`, or a reason: the pod is gated until it changes",
    ),
    "counters": (
        "once per pod",
        "list of counters (below), or a dict of such lists for `filter` and `score`",
    ),
    "pre_filter": (
        "once per pod",
        "`None`, `reject(...)`, `unresolvable(...)`, `skip()`, `only_nodes(...)` or `state(...)`",
    ),
    "filter": (
        "per node",
        "`None`: fits; a reason, a list of reasons or `unresolvable(...)`: does not",
    ),
    "pre_score": ("once per pod that fits somewhere", "`None`, `skip()` or `state(...)`"),
    "score": (
        "per node that fits",
        "int (0..100, or any with `normalize`); `None`: no score here, which counts as 0",
    ),
    "normalize": ("per distinct score", "int in 0..100"),
    "score_all": (
        "once per pod, over all nodes that fit",
        "list of ints, one per node; costs a full pass, nothing is reused",
    ),
    "tie_key": (
        "per node with the highest total, if several have it",
        "int, string or tuple of those: the smallest wins",
    ),
    "annotate": (
        "once, for the node that was chosen",
        "`None`, or a dict of annotations that the pod gets with its binding",
    ),
    "permit": (
        "once a node is chosen, and again when the group changes",
        "`None`: may be bound; `wait(...)`; or a reason, a list of reasons: may not",
    ),
    "victim_key": (
        "per pod that could be evicted for a more urgent one",
        "`None`: is never evicted; int, string or tuple of those: the smallest is spared first",
    ),
    "candidate_key": (
        "per node where evicting pods makes room, if there are several",
        "int, string or tuple of those: the smallest wins",
    ),
}


COUNTER_TEXTS = {
    "count_pods": (
        "placed pods that all of `selectors` (made by `pods_in`) mean, or those with `labels` in "
        "`namespaces`, for each value of the node label `topology` (None: each node)"
    ),
    "count_terms": (
        "the placed pods' own affinity terms that mean this pod; `kind` is `required_affinity`, "
        "`required_anti_affinity`, `preferred_affinity` or `preferred_anti_affinity`, the latter "
        "two weighed"
    ),
    "pods_in": (
        "for `selectors`: the pods that `selector` matches in these namespaces, and in those whose "
        'labels `namespace_selector` matches; `pods_in([], {"app": "web"}, {})` is in all '
        "namespaces"
    ),
}


def tables() -> dict[str, str]:
    """Every table by its name in the document."""
    return {
        "hooks": _hooks(),
        **{view: _view(view) for view in VIEWS},
        "records": _records(),
        "counters": _counters(),
        "std": _std(),
        "asserts": _asserts(),
        "shipped": _shipped(),
        "arguments": _arguments(),
    }


def rendered(document: str) -> str:
    """*document* with every table replaced by what it should be."""
    known = tables()
    return _MARK.sub(lambda m: f"{m[1]}\n{known[m[2]]}\n\n{m[3]}", document)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *[list(row) for row in rows]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _hooks() -> str:
    rows = []
    for hook, (called, returns) in HOOK_TEXTS.items():
        names, required = HOOK_PARAMETERS[hook]
        shown = list(names[:required]) + [f"{name}?" for name in names[required:]]
        rows.append([f"`{hook}({', '.join(shown)})`", called, returns])
    return _table(["hook (`?`: may be left out)", "called", "returns"], rows)


def _view(view: str) -> str:
    rows = [[f"`{name}`", f"`{field.type}`", field.doc] for name, field in VIEWS[view].items()]
    return _table(["field", "type", "what it is"], rows)


def _records() -> str:
    rows = [
        [f"`{record}`" if i == 0 else "", f"`{name}`", f"`{type_text}`", doc]
        for record, fields in RECORDS.items()
        for i, (name, (type_text, doc)) in enumerate(fields.items())
    ]
    return _table(["record", "field", "type", "what it is"], rows)


def _counters() -> str:
    functions = {f.name: f for f in ast.parse(TEXT).body if isinstance(f, ast.FunctionDef)}
    rows = [
        [f"`{name}({ast.unparse(functions[name].args)})`", text]
        for name, text in COUNTER_TEXTS.items()
    ]
    return _table(["built-in", "counts"], rows)


def _std() -> str:
    rows = []
    for path, text in sorted(builtin_files().items()):
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
    tree = ast.parse(builtin_files()["@std/testing.star"])
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
    files = builtin_files()
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
                ", ".join(f"`{hook}`" for hook in HOOK_TEXTS if hook in policy.hooks),
                ", ".join(shown),
            ]
        )
    return _table(["policy", "what it does", "hooks", "reads"], rows)


def _arguments() -> str:
    rows = [
        [f"`{policy.name}`", f"`{name}`", f"`{default}`"]
        for policy in _of_kubernetes()
        for name, default in policy.defaults.items()
    ]
    return _table(["policy", "argument", "default"], rows)


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
