"""`check` knows which fields of counters a hook is given."""

import pytest

from engine.policy.check import check_files

HEAD = '''"""Counts."""

def counters(pod):
    return [count_pods(None, labels = {"a": "b"}, namespaces = ["x"])]

'''
NUMBERS = "`here`, `min`, `max`, `total`, `domains` or `is_empty`"


def _found(hook: str, body: str) -> list[str]:
    text = f"{HEAD}def {hook}(pod, node, counts):\n    {body}\n    return None\n"
    if hook.startswith("pre_"):
        text = text.replace("pod, node, counts", "pod, counts")
    return [str(problem) for problem in check_files({"x.star": text})]


@pytest.mark.parametrize("hook", ["pre_filter", "pre_score"])
def test_nothing_is_counted_before_nodes_are_looked_at(hook: str) -> None:
    """The policy was in force, and failed for every pod with no word of why."""
    assert _found(hook, "x = counts[0].total") == [
        f"x.star:7:19: `counts` of {hook}() have no field `total`, want `is_empty`\n"
        f"hint: the numbers are given to `{hook.removeprefix('pre_')}`"
    ]
    assert _found(hook, "x = counts[0].is_empty") == []


@pytest.mark.parametrize(
    ("body", "column"),
    [
        pytest.param("x = counts[0].heer", 19, id="an element"),
        pytest.param("x = [c.heer for c in counts]", 12, id="each, in a list"),
        pytest.param("first = counts[0]; x = first.heer", 34, id="a variable"),
        pytest.param('x = "é" + str(counts[0].heer)', 29, id="after other letters"),
    ],
)
def test_a_misspelt_field_of_a_counter_is_found(body: str, column: int) -> None:
    assert _found("filter", body) == [
        f"x.star:7:{column}: `counts` of filter() have no field `heer`\nhint: did you mean `here`?"
    ]


def test_what_is_known_of_feasible_nodes_is_for_scores() -> None:
    """It was let through, and failed on every node."""
    assert _found("filter", "x = counts[0].feasible_nodes") == [
        "x.star:7:19: `counts` of filter() have no field `feasible_nodes`\n"
        "hint: only `score` is given it: when all filters were asked"
    ]
    assert _found("score", "x = counts[0].feasible_nodes") == []


def test_an_unknown_field_is_reported_with_the_known_ones() -> None:
    (problem,) = _found("filter", "x = counts[0].number")
    assert problem.endswith(f"no field `number`\nhint: want {NUMBERS}")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("x = node.labels.get(str(counts[0].total))", id="fields of others"),
        pytest.param("x = [t.key for t in node.taints]", id="elements of others"),
        pytest.param("c = counts[0]; c = node; x = c.name", id="a variable of two kinds"),
        pytest.param("c = counts[0]; x = [(lambda c: c.key)(t) for t in node.taints]", id="inner"),
        pytest.param("counts = node.taints; x = counts[0].key", id="another value of the name"),
    ],
)
def test_what_is_no_counter_is_left_alone(body: str) -> None:
    assert [p for p in _found("filter", body) if "`counts` of" in p] == []
