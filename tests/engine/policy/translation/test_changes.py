"""Lists and dicts that a hook changes: whose they are, and what is done first."""

import random
from typing import Final

import msgspec
import pytest

from tests.engine.policy.translation.both_ways import BothWays

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


_HEAD: Final = """
_nothing = []
_no_pairs = {}
_some = [1, 2]

def grow(items):
    items.append(len(items))
    return len(items)

def put(pairs, key, value):
    pairs[key] = value
    return pairs

def pair(first, second = 0):
    return (first, second)
"""
_NAMES: Final = ("a", "b", "c")
_LISTS: Final = (
    "[]", "a", "[node.pod_count]", "[I, I]", "_nothing", "_some", "b", "c", "(L if I > 3 else L)",
    "L + L", "[x for x in L]", "[L, L][0]", "(L or L)", "struct(held = L).held", "list(d)",
)  # fmt: skip
_DICTS: Final = (
    "{}", '{"x": I}', "_no_pairs", "d", "(D if I else D)", 'put(D, "y", I)',
    "{str(x): x for x in L}",
)  # fmt: skip
_INTS: Final = (
    "1", "node.pod_count", "len(L)", "grow(L)", "len(D)", "I + I", "pair(I, I)[0]",
    "pair(second = I, first = I)[1]", 'D.get("x", I)', "(I if I > I else I)", "max([I, I])",
)  # fmt: skip
_STATEMENTS: Final = (
    "N = L", "N = L", "d = D", "N.append(I)", "N += L[:3]", "N.extend(L[:3])", "N[I % 3] = I",
    "N[I % 3] += I", "N[len(N) - 1] += I", 'd["x"] = I', 'd["x"] += I',
    "n += I", "n, m = I, I", "for x in L:\n        n += I", "for x in L[:3]:\n        N.append(I)",
    "if I > 2:\n        N = L", "if I > 3:\n        d = D",
)  # fmt: skip


def _filled(chance: random.Random, form: str, depth: int) -> str:
    """*form* with a list for each L, a dict for each D, an int for each I, a name for each N."""
    name = chance.choice(_NAMES)
    made = ""
    for letter in form:
        options = {"L": _LISTS, "D": _DICTS, "I": _INTS}.get(letter)
        if letter == "N":
            made += name
        elif options is None:
            made += letter
        else:
            made += _filled(
                chance, chance.choice(options if depth else options[:2]), max(0, depth - 1)
            )
    return made


@pytest.mark.slow("compares much")
def test_random_changes_leave_the_same_twice() -> None:
    same = 0
    for seed in range(200):
        chance = random.Random(seed)
        lines = [_filled(chance, chance.choice(_STATEMENTS), 2) for _ in range(6)]
        start = ["a, b, c, d = [1], [2, 3], [], {'x': 1}", "n, m = 0, 0"]
        body = "".join(f"    {line}\n" for line in (*start, *lines))
        text = f"{_HEAD}\ndef among_0(pod, node):\n{body}    return (a, b, c, d, n, m)\n"
        both = BothWays(text, 1)
        if isinstance(both.translated[0], str):
            continue
        want = both.interpret(0, _POD, _NODE)
        for _ in range(2):
            got = both.run(0, _POD, _NODE)
            assert got.problem or got == want, f"seed {seed}: {text}"
        same += not got.problem
    assert same > 20
