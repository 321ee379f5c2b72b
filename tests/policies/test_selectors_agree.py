"""`@std/selectors.star` and the runtime's own matching say the same of every selector."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.model.objects import (
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from engine.core.model.selectors import matches_node_selector
from engine.policy.sandbox.modules import Modules
from engine.policy.sandbox.protocol import Limits
from engine.policy.shipped import shipped_files
from engine.policy.term_views import node_affinity_view
from tests.searching import examples

_PROBE = """
load("@std/selectors.star", "matches_any_term")

def _requirements(given):
    return [struct(**r) for r in given]

def probe(text):
    given = json.decode(text)
    terms = [
        struct(expressions = _requirements(t["expressions"]), fields = _requirements(t["fields"]))
        for t in given["terms"]
    ]
    return matches_any_term(terms, struct(labels = given["labels"], name = given["name"]))
"""

# Few and awkward: what is likely to meet, and what the API would not accept.
_KEYS = ["a", "b", "example.com/a", "metadata.name", "-bad", "Bad.example/a", "/a", "a/", ""]
_VALUES = ["", "1", "2", "-3", "+4", "x", "node-1", "not valid", "x" * 64, str(1 << 63), "1.5", "_"]
_OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like", ""]

_requirements = st.lists(
    st.builds(
        NodeSelectorRequirement,
        key=st.sampled_from(_KEYS),
        operator=st.sampled_from(_OPERATORS),
        values=st.lists(st.sampled_from(_VALUES), max_size=2),
    ),
    max_size=2,
)
_terms = st.lists(
    st.builds(NodeSelectorTerm, match_expressions=_requirements, match_fields=_requirements),
    max_size=3,
)
_labels = st.dictionaries(st.sampled_from(_KEYS), st.sampled_from(_VALUES), max_size=3)

_module = Modules({**shipped_files(), "probe.star": _PROBE}, Limits()).load("probe.star")


@settings(max_examples=examples(500), deadline=None)
@given(terms=_terms, labels=_labels, name=st.sampled_from(["node-1", "x"]))
def test_the_shipped_selectors_agree_with_the_runtime(
    terms: list[NodeSelectorTerm], labels: dict[str, str], name: str
) -> None:
    selector = NodeSelector(node_selector_terms=tuple(terms))
    view = node_affinity_view(NodeAffinity(required=selector))
    assert view is not None
    question = {"terms": view["required"], "labels": labels, "name": name}
    got = _module.call("probe", json.dumps(question))
    assert got == matches_node_selector(selector, labels, name)
