"""What a value and a facts document say, and that bad ones only ever say less."""

import codecs
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.model.fact import Fact
from engine.io.facts.annotations import read_annotations
from engine.io.facts.readings import CLUSTER, Reading, read_document, read_plain, reading_of_text
from engine.policy.fact_config import AnnotationFacts

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


DEEP = '{"value": ' + "[" * 200_000 + "]" * 200_000 + "}"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("12", Reading(12, "12"), id="an int"),
        pytest.param(" 12.50 ", Reading(12.5, " 12.50 "), id="a fraction"),
        pytest.param("-1e3", Reading(-1000.0, "-1e3"), id="an exponent"),
        pytest.param("NaN", Reading(None, "NaN"), id="not a number"),
        pytest.param("Inf", Reading(None, "Inf"), id="infinite"),
        pytest.param("1e999", Reading(None, "1e999"), id="too large"),
        pytest.param("1_000", Reading(None, "1_000"), id="Python's digits"),
        pytest.param("", Reading(None, ""), id="nothing"),
        pytest.param('{"value": 3}', Reading(3, "3"), id="an object"),
        pytest.param(
            '{"value": "4", "time": "1970-01-01T00:01:40Z"}',
            Reading(4, "4", 100.0),
            id="an object with a time",
        ),
        pytest.param('{"value": 5, "time": 100.5}', Reading(5, "5", 100.5), id="in seconds"),
        pytest.param('{"value": 5, "time": "x"}', Reading(5, "5"), id="with a bad time"),
        pytest.param("{broken", Reading(None, "{broken"), id="broken"),
        pytest.param('{"value": {"value": 1}}', Reading(None, ""), id="nested"),
        pytest.param('{"value": true}', Reading(None, "true"), id="a bool"),
        pytest.param('{"value": 1, "time": %s}' % ("9" * 400), Reading(1, "1"), id="no such time"),
        pytest.param('{"value": 1, "time": 1769860800000}', Reading(1, "1"), id="milliseconds"),
        pytest.param(DEEP, Reading(None, DEEP), id="nested without end"),
    ],
)
def test_an_annotation_is_a_number_or_an_object(text: str, want: Reading) -> None:
    assert reading_of_text(text) == want


def test_an_age_is_whole_steps_and_never_negative() -> None:
    reading = Reading(1, "1", 100.0)
    assert [reading.fact(now, 5.0).age_seconds for now in (90.0, 104.9, 105.0, 119.0)] == [
        0,
        0,
        5,
        15,
    ]
    assert Reading(1, "1").fact(90.0, 5.0) == Fact(1, "1", None)


def test_annotations_are_named_by_key_and_by_prefix() -> None:
    rules = AnnotationFacts(keys={"load": "cpu-load", "x": "absent"}, prefix="facts.example.com/")
    found = read_annotations(
        rules, {"cpu-load": "7", "facts.example.com/heat": "60", "facts.example.com/": "1"}
    )
    assert found == {"load": Reading(7, "7"), "heat": Reading(60, "60")}


def test_a_document_says_all_kinds_of_facts() -> None:
    text = """{
      "time": 100,
      "nodes": {"a": {"load": 1, "heat": {"value": 2, "time": 50}}},
      "pods": {"default/p": {"load": "3"}},
      "types": {"web": {"reward": 0.5}},
      "pairs": {"web": {"a": {"reward": 0.25}}},
      "cluster": {"price": 4}
    }"""
    document = read_document(text)
    assert document.problems == []
    assert document.readings == {
        ("node", "a"): {"load": Reading(1, "1", 100.0), "heat": Reading(2, "2", 50.0)},
        ("pod", "default/p"): {"load": Reading(3, "3", 100.0)},
        ("type", "web"): {"reward": Reading(0.5, "0.5", 100.0)},
        ("pair", "web", "a"): {"reward": Reading(0.25, "0.25", 100.0)},
        CLUSTER: {"price": Reading(4, "4", 100.0)},
    }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param({"nodes": []}, "nodes: want an object, got []", id="a list"),
        pytest.param({"nodes": {"a": 1}}, "nodes.a: want an object, got 1", id="a bare value"),
        pytest.param({"time": "soon"}, "time: want a time, got soon", id="a bad time"),
        pytest.param({"node": {}}, "node: unknown section, want one of", id="an unknown section"),
        pytest.param([], "want an object, got []", id="no object"),
    ],
)
def test_a_part_of_the_wrong_shape_is_reported_and_the_rest_counts(
    given: Any, problem: str
) -> None:
    whole = {**given, "cluster": {"x": 1}} if isinstance(given, dict) else given
    document = read_plain(whole)
    assert len(document.problems) == 1
    assert document.problems[0].startswith(problem)
    if isinstance(given, dict):
        assert document.readings == {CLUSTER: {"x": Reading(1, "1")}}


@pytest.mark.parametrize("levels", [100, 900, 980, 990, 1000, 5000])
def test_a_document_may_be_nested_without_end(levels: int) -> None:
    value = "[" * levels + "]" * levels
    document = read_document('{"cluster": {"x": VALUE}, "nodes": VALUE}'.replace("VALUE", value))
    assert document.problems
    assert document.readings.get(CLUSTER, {}).keys() <= {"x"}


@pytest.mark.parametrize("number", ["1e300", "-1e300", "9" * 400, "1e12", "true"])
def test_what_is_no_time_gives_no_age(number: str) -> None:
    """A time of 400 digits ended the source with an OverflowError, one in milliseconds was now."""
    text = '{"cluster": {"x": {"value": 1, "time": T}, "y": {"value": 1, "age_seconds": T}}}'
    document = read_document(text.replace("T", number), now=1000.0)
    assert document.readings == {CLUSTER: {"x": Reading(1, "1"), "y": Reading(1, "1")}}


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, "\ufeff"])
def test_a_byte_order_mark_is_no_part_of_a_document(mark: bytes | str) -> None:
    text = '{"cluster": {"x": 1}}'
    document = read_document(mark + text.encode() if isinstance(mark, bytes) else mark + text)
    assert document.readings == {CLUSTER: {"x": Reading(1, "1")}}


def test_a_key_that_is_there_twice_is_reported() -> None:
    """Of a node that was listed twice the first entry was lost in silence."""
    twice = '{"nodes": {"a": {"x": 1}, "b": {"x": 2}, "a": {"y": 3}}}'
    document = read_document(twice)
    assert document.problems == ["the key `a` is there twice in an object: the last one counts"]
    assert document.readings == {
        ("node", "a"): {"y": Reading(3, "3")},
        ("node", "b"): {"x": Reading(2, "2")},
    }


def test_what_is_not_json_says_nothing() -> None:
    assert read_document(b"\xff").readings == {}
    assert read_document("{").problems[0].startswith("not JSON")


def test_a_token_in_the_place_of_a_document_is_not_quoted() -> None:
    """Who may edit policies may name any file, and problems are logged."""
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2ln"
    document = read_document(token.encode())
    assert document.readings == {}
    assert not any(part in problem for part in token.split(".") for problem in document.problems)


@given(JSON)
def test_no_document_is_too_strange(given_: Any) -> None:
    document = read_document(msgspec.json.encode(given_))
    for readings in document.readings.values():
        for reading in readings.values():
            fact = reading.fact(1000.0, 5.0)
            assert msgspec.json.decode(msgspec.json.encode(fact.plain(with_age=True)))
