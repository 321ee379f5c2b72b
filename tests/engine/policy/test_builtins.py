"""The names that every policy can use."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language import json_numbers, prelude
from engine.language.json_numbers import refusal
from engine.language.numbers import beta_cdf, parse_float, parse_int, round_half_away
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from tests.engine.policy.programs import per_node, per_pod, program_of


def _value(expression: str, pod: dict[str, Any] | None = None) -> Any:
    text = f"def queue_key(pod): return repr({expression})"
    ((verdict,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("queue_key", pod)])
    assert not isinstance(verdict, PolicyFailure), verdict
    return verdict[0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("42", 42),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("", None),
        (" 1", None),
        ("1 ", None),
        ("1_000", None),
        ("0x10", None),
        ("1.0", None),
        ("٣", None),
        ("9" * 10_000, None),
    ],
)
def test_parse_int_reads_what_go_reads(text: str, want: int | None) -> None:
    assert parse_int(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("nan", None), ("inf", None), ("1e999", None)],
)
def test_parse_float_gives_finite_numbers_only(text: str, want: float | None) -> None:
    assert parse_float(text) == want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ('parse_int("12", 0)', "12"),
        ('parse_int("x", 7)', "7"),
        ('parse_int("x")', "None"),
        ('parse_float("x", 1.5)', "1.5"),
        ("math.sqrt(16)", "4.0"),
        ("math.floor(-1.5)", "-2"),
        ("math.ceil(1.2)", "2"),
        ("math.round(2.5)", "3"),
        ("math.round(-2.5)", "-3"),
        ("math.pow(2, 10)", "1024.0"),
        ("math.clamp(140, 0, 100)", "100"),
        ("math.log(math.exp(3.0))", "3.0"),
        ("math.beta_cdf(0.5, 2.0, 2.0)", "0.5"),
        ('json.decode(json.encode({"a": [1, None]}))', '{"a": [1, None]}'),
    ],
)
def test_functions_in_starlark(expression: str, want: str) -> None:
    assert _value(expression) == want


@pytest.mark.parametrize(
    "body", ["math.sqrt(-1.0)", "math.log(0)", "math.beta_cdf(0.5, 0, 1)", 'math.exp("a")']
)
def test_a_number_without_an_answer_is_the_policys_failure(body: str) -> None:
    text = f"def queue_key(pod):\n    return {body}\n"
    ((failure,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("queue_key")])
    assert isinstance(failure, PolicyFailure)
    assert failure.line == 2


@pytest.fixture
def at_most_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that refuses what the library would take: what it would not is kept from it."""
    monkeypatch.setattr(json_numbers, "LARGEST", 100.0)


@pytest.mark.usefixtures("at_most_a_hundred")
@pytest.mark.parametrize("shape", ["{}", "-{}", '{{"a": [1, {}]}}'])
def test_a_number_that_no_float_holds_is_refused_before_the_library_sees_it(shape: str) -> None:
    """The library wrote a report to standard error each time, and named column 0."""
    text = f"def queue_key(pod):\n    return [len(json.decode('{shape.format('100.5')}'))]\n"
    ((failure,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("queue_key")])
    assert isinstance(failure, PolicyFailure)
    assert "json.decode(): the number " in failure.message
    assert "is larger than any float" in failure.message
    assert failure.line == 2


@pytest.mark.usefixtures("at_most_a_hundred")
@pytest.mark.parametrize(
    ("document", "want"),
    [
        ('"text of 100.5"', False),
        ('"a quote \\" and 100.5"', False),
        ("1000", False),
        ("0.0001", False),
        ("1.5", False),
        ("[true, 100.5]", True),
        ('{"a": "x", "b": -100.5}', True),
    ],
)
def test_only_numbers_outside_of_texts_are_too_large(document: str, *, want: bool) -> None:
    assert (refusal(document) is not None) is want


@pytest.mark.parametrize(
    ("number", "is_taken"),
    [
        ("18446744073709551615", True),
        ("18446744073709551616", False),
        ("-9223372036854775808", True),
        ("-9223372036854775809", False),
        ("1" * 400, False),
    ],
)
def test_an_int_that_would_become_a_float_is_refused(number: str, *, is_taken: bool) -> None:
    """The interpreter of starlark-pyo3 2026.1.3 reads ints beyond 64 bits as floats, silently.

    It writes them as they are, so what went through JSON was another value of another type.
    """
    text = f"def queue_key(pod):\n    return [str(json.decode('[{number}]')[0])]\n"
    ((answer,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("queue_key")])
    if is_taken:
        assert answer == [number]
    else:
        assert isinstance(answer, PolicyFailure)
        assert "does not fit in 64 bits" in answer.message
        assert answer.line == 2


def test_looking_for_numbers_takes_time_in_proportion_to_the_text() -> None:
    assert refusal('"\\"' * 200_000) is None
    assert "does not fit in 64 bits" in str(refusal("9" * 1_000_000))


@pytest.mark.parametrize("document", ["{", "[1,]", "NaN", ""])
def test_a_document_that_is_none_fails_at_its_place(document: str) -> None:
    text = f"def queue_key(pod):\n    return [json.decode('{document}')]\n"
    ((failure,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("queue_key")])
    assert isinstance(failure, PolicyFailure)
    assert failure.line == 2


@given(st.floats(min_value=-1e15, max_value=1e15))
def test_round_goes_to_the_nearest_and_halves_away_from_zero(x: float) -> None:
    got = round_half_away(x)
    assert abs(got - x) <= 0.5
    if abs(x - math.trunc(x)) == 0.5:
        assert abs(got) > abs(x)


@given(
    st.floats(min_value=0.01, max_value=0.99),
    st.floats(min_value=0.05, max_value=200.0),
    st.floats(min_value=0.05, max_value=200.0),
)
def test_beta_cdf_is_a_distribution(x: float, a: float, b: float) -> None:
    value = beta_cdf(x, a, b)
    assert -1e-9 <= value <= 1 + 1e-9
    assert value + beta_cdf(1 - x, b, a) == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize(
    ("x", "a", "b", "want"),
    [
        (0.3, 1.0, 1.0, 0.3),
        (0.3, 2.0, 1.0, 0.09),
        (0.3, 1.0, 3.0, 1 - 0.7**3),
        (0.2, 3.0, 4.0, 0.09888),
        (0.0, 0.5, 0.5, 0.0),
        (1.0, 0.5, 0.5, 1.0),
        (0.5, 0.5, 0.5, 0.5),
    ],
)
def test_beta_cdf_at_known_points(x: float, a: float, b: float, want: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(want, rel=1e-10)


@given(st.floats(0.001, 0.999), st.floats(1.0, 20.0), st.floats(0.0, 1.0))
def test_beta_cdf_is_a_chance_for_huge_parameters_too(mean: float, size: float, x: float) -> None:
    """Close to the mean of a narrow variable it was far off, or failed with a range error."""
    a, b = 10**size * mean, 10**size * (1 - mean)
    deviation = math.sqrt(mean * (1 - mean) / (a + b))
    assert 0 <= beta_cdf(x, a, b) <= 1
    if min(a, b) > 1e3:
        assert beta_cdf(mean, a, b) == pytest.approx(0.5, abs=0.01)
        assert beta_cdf(mean - 20 * deviation, a, b) == pytest.approx(0.0, abs=1e-6)
        assert beta_cdf(mean + 20 * deviation, a, b) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("z", [-3.0, -1.0, 0.0, 0.5, 3.0])
def test_beta_cdf_is_the_same_where_its_ways_of_counting_meet(z: float) -> None:
    x = 0.8 + z * math.sqrt(0.8 * 0.2 / 5e5)
    got, want = beta_cdf(x, 400_000.4, 100_000.1), beta_cdf(x, 400_000.0, 100_000.0)
    assert got == pytest.approx(want, abs=2e-6)


def _requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, False, id="no selector matches nothing"),
        pytest.param({"labels": {}, "expressions": []}, True, id="an empty one matches everything"),
        pytest.param({"labels": {"app": "web"}, "expressions": []}, True, id="equal"),
        pytest.param({"labels": {"app": "db"}, "expressions": []}, False, id="different"),
        pytest.param({"labels": {"no": "x"}, "expressions": []}, False, id="missing"),
        *(
            pytest.param({"labels": {}, "expressions": [_requirement(*r)]}, want, id=" ".join(r))
            for r, want in [
                (("app", "In", "web", "db"), True),
                (("app", "In", "db"), False),
                (("no", "In", "web"), False),
                (("app", "NotIn", "db"), True),
                (("no", "NotIn", "db"), True),
                (("app", "Exists"), True),
                (("no", "Exists"), False),
                (("no", "DoesNotExist"), True),
                (("app", "Like", "web"), False),
            ]
        ),
    ],
)
def test_matches(selector: dict[str, Any] | None, want: bool) -> None:
    text = (
        "def filter(pod, node):\n"
        "    selector = pod.topology_spread_constraints[0].selector\n"
        '    return None if matches(selector, {"app": "web"}) else "no"\n'
    )
    constraint = {
        "max_skew": 1,
        "topology_key": "z",
        "when_unsatisfiable": "DoNotSchedule",
        "selector": selector,
        "min_domains": None,
        "node_affinity_policy": None,
        "node_taints_policy": None,
        "match_label_keys": [],
    }
    pod = {"topology_spread_constraints": [constraint]}
    ((verdict,),) = InProcessEvaluator(program_of(text)).evaluate([per_node("filter", {}, pod=pod)])
    assert (verdict is None) is want, verdict


def test_matches_takes_a_dict_of_labels_too() -> None:
    assert _value('matches({"a": "b"}, {"a": "b", "c": "d"})') == "True"
    assert _value('matches({"a": "b"}, {"a": "c"})') == "False"


@pytest.mark.parametrize("name", sorted(prelude.known_names()))
def test_every_name_that_check_knows_is_there(name: str) -> None:
    assert _value(f"type({name})")


@pytest.mark.parametrize(
    ("counter", "want"),
    [
        ('count_pods(None, labels = {"app": None})', 'labels that are strings, got {"app": None}'),
        ("count_pods(None, labels = {}, namespaces = [None])", "namespaces that are strings"),
        ('count_pods(None, labels = {"app": "web"})', "namespaces with labels, such as [pod.n"),
        ('count_pods(None, namespaces = ["web"])', "labels with namespaces, {} for all of"),
        ("count_pods(None)", "labels and namespaces, or selectors made by pods_in(...)"),
        ("count_pods(None, selectors = [pods_in([], 3)])", "pods_in() wants a selector or a dict"),
        ('count_pods(None, selectors = [{"selector": None}])', "selectors made by pods_in(...)"),
        ("count_pods(None, keys = [1])", "keys that are strings, got 1"),
        ('count_pods(None, up_to = "1")', 'an up_to that is an int of at least 0, got "1"'),
        ("count_pods(None, up_to = 1.5)", "an up_to that is an int of at least 0, got 1.5"),
        ("count_pods(None, weight = 5000000000)", "a weight that is an int in -2**31..2**31"),
        ("count_pods(None, terminating = 1)", "a terminating that is a bool, got 1"),
        ("count_pods(None, among = among_all)", 'the name of a function as among, such as "among_'),
        ('count_pods(None, [], among = "among_al")', '`among = "among_al"`, want among_all'),
        ("sum_requests(None, [])", "sum_requests() wants the name of a resource as resource, got"),
        ('sum_requests(None, resource = "cpu")', "sum_requests() wants labels and namespaces, or"),
        ('sum_requests(1, [], "cpu")', "sum_requests() wants a label key or None as topology, got"),
        ('sum_requests(None, [], "cpu", among = 1)', "sum_requests() wants the name of a function"),
        ('count_nodes(None, free = ["cpu"])', "count_nodes() wants a dict of amounts by resource"),
        ('count_nodes(None, free = {"cpu": "8"})', "free amounts that are ints of at least 0, got"),
        ("count_nodes(None, labels = 3)", "count_nodes() wants a selector or a dict of labels"),
        ("count_nodes(3)", "count_nodes() wants a label key or None as topology, got 3"),
        ('count_terms("required_affinity", up_to = "1")', "count_terms() wants an up_to"),
        ('{"kind": "pods"}', "counters() returned [{"),
        ('count_pods(None, []) | {"weight": "1"}', "counters() returned [{"),
    ],
)
def test_a_counter_that_cannot_be_counted_fails_its_hook(counter: str, want: str) -> None:
    """Some of these ended the attempt with a traceback of the runtime that named no policy.

    The commonest was `labels = {"app": pod.labels.get("app")}`, for a pod without that label.
    """
    text = f"def among_all(pod, node): return True\ndef counters(pod): return [{counter}]\n"
    ((verdict,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("counters")])
    assert isinstance(verdict, PolicyFailure)
    assert want in verdict.message
    assert (verdict.file, verdict.line > 0) == ("x.star", True)


def test_a_counter_without_a_list_around_it_is_reported() -> None:
    """It was taken for a dict by hook: `want a dict with the keys "filter" and "score"`."""
    text = "def counters(pod): return count_pods(None, labels = {}, namespaces = [])\n"
    ((verdict,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("counters")])
    assert isinstance(verdict, PolicyFailure)
    assert verdict.message.startswith(
        "counters() returned a counter, want a list of counters, such"
    )
    assert verdict.hint == "a list of one will do: `[count_pods(...)]`"


@pytest.mark.parametrize("translates", [True, False])
def test_texts_name_variables_and_types_are_checked_when_a_function_is_called(
    translates: bool,
) -> None:
    """As the reference says of f-strings and annotations."""
    text = """
def _share(part: int, whole: int | None) -> int:
    return part * 100 // (whole or 1)

def filter(pod, node) -> str | None:
    share: typing.Any = _share(node.pod_count, node.labels.get("whole"))
    return f"{share} percent" if share > 100 else None
"""
    nodes = {"pod_count": 1, "labels": {}}, {"pod_count": 3, "labels": {}}
    wrong = {"pod_count": 1, "labels": {"whole": "4"}}
    evaluator = InProcessEvaluator(program_of(text), translates=translates)
    ((none, percent, failure),) = evaluator.evaluate([per_node("filter", *nodes, wrong)])
    assert (none, percent) == (None, ["r", ["300 percent"]])
    assert isinstance(failure, PolicyFailure)
    assert "does not match the type annotation `" in failure.message
