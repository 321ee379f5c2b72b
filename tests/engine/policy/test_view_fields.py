"""The table of views is the one place that says what a field of a view is."""

import ast
from collections.abc import Iterator
from typing import Final

from engine.core.model.event_kinds import ASSIGNED_POD
from engine.language.summaries import COUNT
from engine.policy.view_fields import RECORDS
from engine.policy.views import FACT_FIELDS, VIEWS
from tests.scripts import ROOT, sources
from workbench.lint import scores

# Where the fields are defined.
_TABLES: Final = {"pod_views.py", "node_views.py", "views.py"}
# What makes and reads the API's own objects, whose fields have some of the same names.
_OF_MANIFESTS: Final = ("engine/core/manifests/", "devkit/")
# The same in files that also work on views.
_FIELDS_OF_MANIFESTS: Final = {
    (
        "workbench/cli/simulate_command.py",
        frozenset({"requested", "allocatable"}),
    ),  # columns of a table
    ("engine/io/endpoints/health.py", frozenset({"name", "type"})),
    ("engine/files/cluster_file.py", frozenset({"annotations", "labels"})),
    ("engine/surfaces/page/queue_view.py", frozenset({"namespace", "owner"})),  # filters
    ("engine/testing/fixtures.py", frozenset({"name", "namespace"})),
    ("engine/testing/properties.py", frozenset({"labels", "annotations"})),
}
_FIELDS: Final = frozenset(name for fields in VIEWS.values() for name in fields)


def _texts(items: list[ast.expr] | list[ast.expr | None]) -> list[str]:
    return [i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)]


def _lists(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Texts that stand together: in a set, tuple or list, and the keys of a constant's dict."""
    top = {id(node) for statement in tree.body for node in _value(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Tuple | ast.List):
            yield node.lineno, _texts(node.elts)
        elif isinstance(node, ast.Dict) and id(node) in top:
            yield node.lineno, _texts(node.keys)


def _value(statement: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        value: ast.AST = statement.value
        yield value
        if isinstance(value, ast.Call):
            yield from value.args


def test_no_list_of_view_fields_stands_next_to_the_table_of_views() -> None:
    """A pod that a policy says is never evicted was evicted.

    A set of the fields that other objects change was kept by hand in another file, and was not
    extended when two such fields were added. What is to be known of a field is an attribute of its
    `ViewField`; sets of fields are made from these.
    """
    found = []
    for path in sorted(sources("engine", "workbench", "devkit")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(_OF_MANIFESTS) or (path.parent.name, path.name) in {
            ("policy", one) for one in _TABLES
        }:
            continue
        for line, texts in _lists(ast.parse(path.read_text())):
            fields = frozenset(texts)
            if len(fields) > 1 and fields <= _FIELDS and (name, fields) not in _FIELDS_OF_MANIFESTS:
                found.append(f"{name}:{line}: {sorted(fields)}")
    assert not found


def test_the_search_finds_sets_tuples_lists_and_keys() -> None:
    text = """
A = frozenset({"requested", "pod_count", OTHER})
def f():
    for name in ("labels", "manifest"):
        yield ["facts", "type"]
B: Final = {"uid": "why", "name": "why"}
"""
    got = [set(texts) for _, texts in _lists(ast.parse(text)) if len(texts) > 1]
    for want in (
        {"requested", "pod_count"},
        {"labels", "manifest"},
        {"facts", "type"},
        {"uid", "name"},
    ):
        assert want in got


def test_facts_are_the_fields_that_hold_facts() -> None:
    want = {
        name
        for fields in VIEWS.values()
        for name, field in fields.items()
        if field.type in ("dict[str, Fact?]", "dict[str, dict[str, Fact]]")
    }
    assert want == FACT_FIELDS


def test_amounts_and_counts_are_of_every_view_and_record() -> None:
    """A new field of whole numbers has a range for `check` without being named anywhere."""
    assert {"requests", "allocatable", "wanted_requested", "volume_counts"} <= scores._AMOUNTS
    assert {"pod_count", "waiting", "min_domains", "port"} <= scores._COUNTS
    assert "priority" not in scores._COUNTS
    assert _FIELDS | {name for record in RECORDS.values() for name in record} >= scores._COUNTS


def test_sums_depend_on_the_pods_of_the_node_alone() -> None:
    for name, field in VIEWS["node"].items():
        if field.is_sum:
            assert field.parts, name
            assert field.changed_by == (ASSIGNED_POD,), name


def test_what_no_further_node_changes_of_a_counter() -> None:
    assert {name for name, count in COUNT.items() if not count.is_of_nodes} == {"total", "is_empty"}
