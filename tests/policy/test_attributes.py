"""Which attribute names a hook can come upon."""

import pytest

from engine.policy.attributes import attributes_read, range_reads

SCORE = "def score(pod, node, counts):\n    return counts[0].here\n"


def read(text: str, hook: str = "score", **more: str) -> frozenset[str] | None:
    files = {"p.star": text, **{f"{name}.star": other for name, other in more.items()}}
    return attributes_read(files, "p.star", hook)


@pytest.mark.parametrize(
    "other",
    [
        "def normalize(score, over):\n    return score - over.min\n",
        "def filter(pod, node, counts):\n    return str(counts[0].max)\n",
        "def unused(x):\n    return x.total\n",
    ],
)
def test_what_other_hooks_read_is_not_read(other: str) -> None:
    assert read(SCORE + other) == frozenset({"here"})


@pytest.mark.parametrize("call", ["getattr(c, ARGS.field)", 'hasattr(c, "m" + "in")'])
def test_a_name_that_is_computed_may_be_any(call: str) -> None:
    """A field that an argument of the profile names was missing, and the hook failed."""
    text = (
        'ARGS = plugin_args(field = "max")\n'
        "def score(pod, node, counts):\n    return _of(counts[0])\n"
        f"def _of(c):\n    return {call}\n"
    )
    assert read(text) is None
    other = "def filter(pod, node, counts):\n    return counts[0].max\n"
    assert read(text + other, "filter") == frozenset({"max"})


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
    found = read(text)
    assert found is not None
    assert {"min", "max", "namespace"} <= found


def test_names_given_as_text_count() -> None:
    text = (
        "def score(pod, node, counts):\n    return getattr(counts[0], _NAME)\n_NAME = 'domains'\n"
    )
    assert read(text) == frozenset({"domains"})


def test_statements_that_define_nothing_count() -> None:
    text = "def score(pod, node, counts):\n    return 0\n[1].append(lambda count: count.total)\n"
    assert read(text) == frozenset({"append", "total"})


def test_loaded_files_count_under_their_own_names() -> None:
    text = 'load("q.star", mine = "f")\ndef score(pod, node, counts):\n    return mine(counts)\n'
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
    assert read(text, q="def f(x:\n") is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("return score - over.min", {"min"}, id="one attribute"),
        pytest.param("return over.max if over.count else 0", {"max", "count"}, id="two"),
        pytest.param("return score", set(), id="none"),
        pytest.param("return helper(score, over)", None, id="handed on"),
        pytest.param("return getattr(over, 'count')", None, id="by name"),
        pytest.param("x = over\n    return x.count", None, id="under another name"),
        pytest.param("return want.count + over.min", {"min"}, id="of something else"),
    ],
)
def test_what_is_read_of_a_range_is_known_where_it_goes_nowhere(
    text: str, want: set[str] | None
) -> None:
    got = range_reads(f"def normalize(score, over):\n    {text}\n")
    assert got == (None if want is None else frozenset(want))


def test_two_hooks_of_one_name_tell_nothing() -> None:
    hook = "def normalize(score, over):\n    return over.min\n"
    assert range_reads(hook + hook) is None
