"""`@std/amounts.star` and `divide` as policies call them, beside slow definitions in Python."""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.sharing.amounts import LARGEST
from engine.core.sharing.divide import Entry, divide
from engine.policy.evaluator import Call, InProcessEvaluator, Instance, PolicyFailure, Program
from engine.policy.shipped import shipped_files

_NAMES = (
    "sum_of",
    *("quantities", "plus", "minus", "at_most", "at_least", "over"),
    *("less", "larger", "dominant", "entry"),
)
_LOADED = ", ".join(f'"{name}"' for name in _NAMES)
# A hook that calls the function that a label names with what another has, and gives JSON.
_POLICY = f"""
load("@std/amounts.star", {_LOADED})

def queue_key(pod):
    name, given = pod.labels["call"], json.decode(pod.labels["with"])
    if name == "divide":
        entries = [entry(**one) for one in given["entries"]]
        return json.encode(divide(given["total"], entries, given["rounding"], given["past"]))
    calls = {{{", ".join(f'"{name}": {name}' for name in _NAMES)}}}
    if name in ("less", "larger"):
        given = [ratio(*one) for one in given]
    found = calls[name](*given)
    return json.encode([found.n, found.d] if getattr(found, "verdict", "") == "ratio" else found)
"""


@pytest.fixture(scope="module")
def call() -> Callable[..., Any]:
    """Calls a function of the library, by name."""
    files = {**shipped_files(), "amounts_test_policy.star": _POLICY}
    evaluator = InProcessEvaluator(Program(files, (Instance("a", "amounts_test_policy.star"),)))

    def ask(name: str, given: Any) -> Any:
        pod = {"labels": {"call": name, "with": json.dumps(given)}}
        ((answer,),) = evaluator.evaluate([Call(0, "queue_key", json.dumps(pod).encode())])
        assert not isinstance(answer, PolicyFailure), str(answer)
        return json.loads(answer[0])

    return ask


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 9))
RATIOS = st.tuples(st.integers(-6, 6), st.integers(0, 6))
Amounts = dict[str, int]


def _over(used: Amounts, limit: Amounts, of: Amounts | None) -> Any:
    for r in sorted(used):
        if r in limit and used[r] > limit[r] and (of is None or of.get(r, 0) > 0):
            return {"resource": r, "by": used[r] - limit[r]}
    return None


@settings(deadline=None)
@given(first=AMOUNTS, second=AMOUNTS, of=st.none() | AMOUNTS)
def test_vectors(call: Any, first: Amounts, second: Amounts, of: Amounts | None) -> None:
    names = first.keys() | second.keys()
    assert call("plus", [first, second]) == {r: first.get(r, 0) + second.get(r, 0) for r in names}
    assert call("minus", [first, second]) == {r: first.get(r, 0) - second.get(r, 0) for r in names}
    assert call("at_most", [first, second]) == {
        r: min(first[r], second.get(r, first[r])) for r in first
    }
    assert call("at_least", [first, second]) == {
        r: max(first.get(r, second.get(r, 0)), second.get(r, 0)) for r in names
    }
    assert call("over", [first, second, of]) == _over(first, second, of)
    assert call("sum_of", [list(first.values())]) == sum(first.values())
    every = {r: second.get(r, 1) for r in first}
    assert call("over", [first, second, of, 1]) == _over(first, every, of)


def test_quantities_are_read_as_objects_write_them(call: Any) -> None:
    given = {"cpu": "500m", "memory": "1Ki", "gpu": 2}
    assert call("quantities", [given]) == {"cpu": 500, "memory": 1024, "gpu": 2}
    assert call("quantities", [None]) == {}


def _exact(ratio: tuple[int, int]) -> Fraction | float:
    if ratio[1] == 0:
        return math.copysign(math.inf, ratio[0]) if ratio[0] else Fraction(0)
    return Fraction(*ratio)


@settings(deadline=None)
@given(first=RATIOS, second=RATIOS)
def test_ratios(call: Any, first: tuple[int, int], second: tuple[int, int]) -> None:
    is_less = _exact(first) < _exact(second)
    assert call("less", [first, second]) == is_less
    assert tuple(call("larger", [first, second])) == (second if is_less else first)


def test_ratios_that_are_equal_as_floats_are_not(call: Any) -> None:
    assert call("less", [[LARGEST - 1, LARGEST], [LARGEST, LARGEST]])


def test_a_dominant_part_is_of_what_the_base_names(call: Any) -> None:
    used = {"cpu": 3, "gpu": 8}
    assert call("dominant", [used, {"cpu": 4}]) == [3, 4]
    assert call("dominant", [used, {"cpu": 4, "gpu": 8}]) == [8, 8]
    assert call("dominant", [used, {"cpu": 4}, 2]) == [3, 8]
    assert call("dominant", [used, {"gpu": 0}]) == [8, 0]
    assert call("dominant", [{"gpu": 0}, {"gpu": 0}]) == [0, 1]


@settings(deadline=None)
@given(
    total=st.integers(0, 40),
    entries=st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from("abcd")},
            optional={
                "start": st.integers(0, 9),
                "most": st.none() | st.integers(0, 20),
                "weight": st.integers(0, 5),
                "rank": st.integers(0, 2),
                "used": st.integers(0, 1000),
            },
        ),
        max_size=4,
        unique_by=lambda one: one["name"],
    ),
    rounding=st.sampled_from(["largest_remainder", "nearest", "whole"]),
    past=st.sampled_from([0, 1000]),
)
def test_divide(call: Any, total: int, entries: list[Any], rounding: Any, past: int) -> None:
    given_words = {"total": total, "entries": entries, "rounding": rounding, "past": past}
    expected = divide(total, [Entry(**one) for one in entries], rounding, past)
    assert call("divide", given_words) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("divide(1, [3])", "entries[0] is not what `entry(name)` of @std/amounts.star makes"),
        ('divide(1, [entry("a"), entry("a")])', "two entries have the same name"),
        ('divide(1, [entry("a", weight = -1)])', "weight of `a`: want at least 0, got -1"),
        ('divide(1, [entry("a", most = 1.5)])', "most of `a`: want an int"),
        ("divide(1, [entry(1)])", "entries[0]: want a text as name"),
    ],
)
def test_what_cannot_be_divided_is_said(expression: str, message: str) -> None:
    text = f'load("@std/amounts.star", "entry")\ndef queue_key(pod): return str({expression})\n'
    files = {**shipped_files(), "mine.star": text}
    evaluator = InProcessEvaluator(Program(files, (Instance("mine", "mine.star"),)))
    ((answer,),) = evaluator.evaluate([Call(0, "queue_key")])
    assert isinstance(answer, PolicyFailure)
    assert message in answer.message


def test_amounts_have_no_end() -> None:
    """Bytes of a large cluster times a weight in thousandths are more than 64 bits."""
    text = """
load("@std/amounts.star", "entry", "less")

def queue_key(pod):
    total, weight = (1 << 70) + 1, 1 << 65
    parts = divide(total, [entry("a", weight = weight), entry("b", weight = weight)])
    same = parts == {"a": (1 << 69) + 1, "b": 1 << 69}
    return [int(same), int(less(ratio(total - 1, total), ratio(total, total)))]
"""
    files = {**shipped_files(), "mine.star": text}
    evaluator = InProcessEvaluator(Program(files, (Instance("mine", "mine.star"),)))
    assert evaluator.evaluate([Call(0, "queue_key")]) == [[[1, 1]]]
