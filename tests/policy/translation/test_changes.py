"""Lists and dicts that a hook changes: whose they are, and what is done first."""

import msgspec
import pytest

from tests.policy.translation.both_ways import BothWays

_POD = b"{}"
_NODE = msgspec.json.encode({"pod_count": 3})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "found = _NOTHING if node.pod_count else [1]\n    found.append(2)\n    return found",
            id="a choice",
        ),
        pytest.param(
            "found = _NOTHING\n    if not node.pod_count:\n        found = []\n"
            "    found += ['b']\n    return found",
            id="a variable",
        ),
        pytest.param(
            "found = _KEPT.get('x' if node.pod_count else 'y', [])\n"
            "    found.extend(['b'])\n    return found",
            id="a list out of a dict",
        ),
        pytest.param(
            "found = _NO_PAIRS if node.pod_count else {}\n    found['a'] = 1\n    return found",
            id="a dict",
        ),
        pytest.param(
            "found = [_NOTHING, []]\n    found[0].append('b')\n    return found",
            id="a list in a list",
        ),
        pytest.param(
            "found = args.reasons if node.pod_count else []\n    found.append(2)\n    return found",
            id="an argument",
        ),
    ],
)
def test_a_constant_that_is_empty_is_not_changed(body: str) -> None:
    """Each call put one more into it; to the interpreter it is frozen."""
    text = (
        "_NOTHING = []\n_NO_PAIRS = {}\n_KEPT = {'x': []}\nargs = plugin_args(reasons = [])\n\n"
        f"def among_0(pod, node):\n    {body}\n"
    )
    both = BothWays(text, 1)
    assert isinstance(both.translated[0], str)
    assert "Immutable" in both.interpret(0, _POD, _NODE).problem


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "made = [1]\n    return pair(b = grow(made), a = len(made))",
            id="arguments by name",
        ),
        pytest.param(
            "made, counts = [1], [0, 0, 0, 0]\n    counts[grow(made)] += 1\n    return counts",
            id="a place that is worked out by a change",
        ),
        pytest.param(
            "made = [1]\n    made[len(made) - 1] += grow(made)\n    return made",
            id="a value that moves the place",
        ),
    ],
)
def test_what_changes_something_is_done_once_and_in_the_order_of_the_text(body: str) -> None:
    """The place of an update was worked out twice, and named arguments in another order."""
    text = f"""
def grow(items):
    items.append(len(items))
    return len(items)

def pair(a, b):
    return (a, b)

def among_0(pod, node):
    {body}
"""
    both = BothWays(text, 1)
    assert isinstance(both.translated[0], str) or (
        both.run(0, _POD, _NODE) == both.interpret(0, _POD, _NODE)
    )


def test_updates_and_named_arguments_without_other_changes_run_as_python() -> None:
    text = """
def pair(a, b):
    return (a, b)

def among_0(pod, node):
    counts = {"a": 1}
    for place, name in enumerate(["a", "a"]):
        counts[name] += place + node.pod_count
    return pair(b = len(counts), a = counts["a"])
"""
    both = BothWays(text, 1)
    assert both.run(0, _POD, _NODE) == both.interpret(0, _POD, _NODE)
