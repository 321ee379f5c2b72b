"""Which fields of its counters, and of the range of scores, a hook can come upon."""

import pytest

from engine.policy.analysis import analyse

SCORE = "def score(pod, node, counts):\n    return counts[0].here\n"
EVERY = frozenset({"*"})


def read(text: str, hook: str = "score", **more: str) -> frozenset[str]:
    files = {"p.star": text, **{f"{name}.star": other for name, other in more.items()}}
    return analyse(files, "p.star")[hook].counts


def _body(body: str) -> str:
    return "def score(pod, node, counts):\n" + "".join(f"    {x}\n" for x in body.split("\n"))


@pytest.mark.parametrize(
    "other",
    [
        "def normalize(score, over):\n    return score - over.min\n",
        "def filter(pod, node, counts):\n    return str(counts[0].max)\n",
        "def unused(x):\n    return x.total\n",
        "[1].append(lambda count: count.total)\n",
    ],
)
def test_what_other_hooks_read_is_not_read(other: str) -> None:
    assert read(SCORE + other) == frozenset({"here"})


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("return len(counts)", set(), id="how many there are"),
        pytest.param("return [c.min for c in counts]", {"min"}, id="of each"),
        pytest.param("return [c.max + x for c, x in zip(counts, [1])]", {"max"}, id="zipped"),
        pytest.param("c = counts[0]\nreturn c.here or c.total", {"here", "total"}, id="a variable"),
        pytest.param("return 1 if counts[0] == None else 2", set(), id="compared with None"),
        pytest.param(
            "return counts[0].min if hasattr(counts[0], 'max') else 0", {"min", "max"}, id="hasattr"
        ),
    ],
)
def test_fields_that_are_written_are_read(body: str, want: set[str]) -> None:
    assert read(_body(body)) == want


@pytest.mark.parametrize(
    "body",
    [
        "return len(str(counts[0]))",
        "return len(dir(counts[0]))",
        "return len('%s' % counts)",
        "return json.encode(counts)",
        "return 1 if counts[0] == counts[1] else 2",
        "return [1 for c in counts if c in [struct()]]",
        "g = getattr\nreturn g(counts[0], 'm' + 'in', 0)",
        "return (lambda *xs: xs[0])(counts[0]).here",
    ],
)
def test_counters_that_go_where_they_cannot_be_followed_are_read_as_a_whole(body: str) -> None:
    """Such a hook was given counters without the fields that it names nowhere."""
    assert read(_body(body)) == EVERY


@pytest.mark.parametrize(
    ("call", "want"),
    [("getattr(c, ARGS.field)", EVERY), ('hasattr(c, "m" + "in")', frozenset({"min"}))],
)
def test_a_name_that_is_computed_may_be_any(call: str, want: frozenset[str]) -> None:
    """A field that an argument of the profile names was missing, and the hook failed."""
    text = (
        'ARGS = plugin_args(field = "max")\n'
        "def score(pod, node, counts):\n    return _of(counts[0])\n"
        f"def _of(c):\n    return {call}\n"
    )
    assert read(text) == want
    other = "def filter(pod, node, counts):\n    return counts[0].max\n"
    assert read(text + other, "filter") == frozenset({"max"})


def test_a_parameter_may_have_the_name_of_a_text() -> None:
    text = (
        'FIELD = "here"\nARGS = plugin_args(field = "max")\n'
        "def score(pod, node, counts):\n    return _of(counts[0], ARGS.field)\n"
        "def _of(c, FIELD):\n    return getattr(c, FIELD, 0)\n"
    )
    assert read(text) == EVERY


def test_helpers_of_helpers_count() -> None:
    text = """
def score(pod, node, counts):
    return one(counts)

def one(counts):
    return [two(c) for c in counts][0]

def two(count):
    return count.max
"""
    assert read(text) == frozenset({"max"})


def test_functions_in_tables_count() -> None:
    text = """
def score(pod, node, counts):
    return _TABLE[pod.namespace](counts[0])

def smallest(count):
    return count.min

def largest(count):
    return count.max

_TABLE = {}
_TABLE["a"] = smallest
_TABLE |= {"b": largest}
"""
    assert read(text) == EVERY
    constant = text.replace('{}\n_TABLE["a"] = smallest\n_TABLE |= ', '{"a": smallest} | ')
    assert read(constant) == EVERY
    assert read(constant.replace("} | {", ", ")) == frozenset({"min", "max"})


def test_names_given_as_text_count() -> None:
    text = (
        "def score(pod, node, counts):\n    return getattr(counts[0], _NAME)\n_NAME = 'domains'\n"
    )
    assert read(text) == frozenset({"domains"})


def test_loaded_files_count_under_their_own_names() -> None:
    text = 'load("q.star", mine = "f")\ndef score(pod, node, counts):\n    return mine(counts[0])\n'
    other = """
def f(x):
    return g(x)

def g(x):
    return x.total

def mine(x):
    return x.max
"""
    assert read(text, q=other) == frozenset({"total"})


def test_a_file_that_does_not_parse_hides_nothing() -> None:
    text = 'load("q.star", "f")\ndef score(pod, node, counts):\n    return f(counts)\n'
    assert read(text, q="def f(x:\n") == EVERY


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("return score - over.min", {"min"}, id="one attribute"),
        pytest.param("return over.max if over.count else 0", {"max", "count"}, id="two"),
        pytest.param("return score", set(), id="none"),
        pytest.param("return _helper(score, over)", {"max"}, id="handed on"),
        pytest.param("return getattr(over, 'count')", {"count"}, id="by name"),
        pytest.param("x = over\n    return x.count", {"count"}, id="under another name"),
        pytest.param("return want.count + over.min", {"min"}, id="of something else"),
        pytest.param("return len(str(over))", {"*"}, id="as a text"),
        pytest.param("return 1 if over == struct(min = 1) else 2", {"*"}, id="compared"),
    ],
)
def test_what_is_read_of_a_range(text: str, want: set[str]) -> None:
    helper = "def _helper(score, x):\n    return x.max - score\n"
    files = {"p.star": f"{helper}def normalize(score, over):\n    {text}\n"}
    assert analyse(files, "p.star")["normalize"].over == want


def test_of_two_hooks_of_one_name_both_count() -> None:
    hook = "def normalize(score, over):\n    return over."
    files = {"p.star": f"{hook}min\n{hook}count\n"}
    assert analyse(files, "p.star")["normalize"].over == {"min", "count"}
