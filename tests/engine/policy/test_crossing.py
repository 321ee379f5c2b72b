"""How values cross between Starlark and the builtins in Python, interpreted and translated."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest

from engine.language.table import Builtin, builtins
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from engine.policy.sandbox.translation import exports
from tests.engine.policy.programs import per_pod, program_of
from tests.engine.policy.test_group_verdicts import GROUP
from tests.engine.policy.translation.both_ways import BothWays, spelt

_NATIVES: Final = [one for one in builtins().values() if one.python is not None]


class _Value(NamedTuple):
    """A value: as a policy writes it, in Python, and as `carried` writes it."""

    text: str
    python: Any
    carried: Any


def _plain(text: str, value: Any) -> _Value:
    return _Value(text, value, spelt(value))


_VALUES: Final = [
    _plain("None", None),
    _plain("True", True),
    _plain("0", 0),
    _plain("-3", -3),
    _plain("1 << 62", 1 << 62),
    _plain("1 << 70", 1 << 70),
    _plain("1 << 2000", 1 << 2000),
    _plain("0.25", 0.25),
    _plain("-0.0", -0.0),
    _plain("1e300", 1e300),
    _plain("math.inf", math.inf),
    _plain("-math.inf", -math.inf),
    _plain("1e308 * 10", math.inf),
    _plain("math.inf - math.inf", math.nan),
    _plain('""', ""),
    _plain('"nan"', "nan"),
    _plain('"+inf"', "+inf"),
    _plain('"12"', "12"),
    _plain('"1.5"', "1.5"),
    _plain("(1, math.inf)", (1, math.inf)),
    _plain("[1, (2,)]", [1, (2,)]),
    _plain('{"f": "nan"}', {"f": "nan"}),
    _plain("{1: 2}", {1: 2}),
    _Value("struct(a = (1,))", object(), {"s": [["a", {"t": [1]}]]}),
    _Value("len", object(), {"x": "function"}),
    _Value("range(3)", object(), {"x": "range"}),
]
_ORDINARY: Final = {"text": _plain('"x"', "x"), "default": _plain("7", 7)}
_NUMBER: Final = _plain("2.0", 2.0)


def _calls(one: Builtin) -> list[list[_Value]]:
    """Each value in each place, and in each pair of places."""
    ordinary = [_ORDINARY.get(p.name, _NUMBER) for p in one.parameters]
    found: list[list[_Value]] = []
    for place in range(len(ordinary)):
        found += [[*ordinary[:place], value, *ordinary[place + 1 :]] for value in _VALUES]
    if len(ordinary) == 2:
        found += [list(pair) for pair in itertools.product(_VALUES, repeat=2)]
    return found


def _meaning(one: Builtin, given: Sequence[_Value]) -> Any:
    """What the documents say that the call gives, as `carried` writes it; `_REFUSED` if nothing."""
    function: Callable[..., Any] = one.python  # type: ignore[assignment]  # one of those in Python
    if one.default:
        found = function(given[0].python)
        return given[1].carried if found is None else spelt(found)
    for parameter, value in zip(one.parameters, given, strict=True):
        may_be_text = "str" in parameter.kinds and type(value.python) is str
        if not may_be_text and type(value.python) not in (bool, int, float):
            return _REFUSED
    try:
        return spelt(function(*[value.python for value in given]))
    except (ArithmeticError, ValueError):
        return _REFUSED


_REFUSED: Final = object()


@pytest.mark.parametrize("one", _NATIVES, ids=lambda one: one.name)
def test_a_builtin_gives_what_is_documented_for_every_value_or_names_itself(one: Builtin) -> None:
    """Infinity, NaN, tuples and structs crossed as None, None, lists and dicts.

    So `parse_float(x, math.inf)` gave None, and `math.exp(-math.inf)`, which is 0.0, failed with
    `must be real number, not NoneType`.
    """
    calls = _calls(one)
    texts = [f"{one.name}({', '.join(value.text for value in call)})" for call in calls]
    functions = [
        f"def among_{index}(pod, node):\n    return {text}\n" for index, text in enumerate(texts)
    ]
    both, answered, translated = BothWays("\n".join(functions), len(calls)), 0, 0
    for index, (text, call) in enumerate(zip(texts, calls, strict=True)):
        got, want = both.interpret(index, b"{}", b"{}"), _meaning(one, call)
        if want is _REFUSED:
            assert f"{one.name}(" in got.problem, text
        else:
            answered += 1
            assert (got.value, got.problem) == (want, ""), text
        if isinstance(both.translated[index], str):
            continue
        answer = both.run(index, b"{}", b"{}")
        if not answer.problem:  # otherwise the interpreter's is taken
            translated += 1
            assert answer.value == want, text
    assert translated >= min(answered, 2)


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ('parse_float("x", math.inf) == math.inf', "True"),
        ("parse_int(None, -math.inf) == -math.inf", "True"),
        ('str(parse_float("x", math.inf - math.inf))', '"nan"'),
        ('parse_float("x", (1, 2))', "(1, 2)"),
        ('parse_float("x", struct(a = 1)).a', "1"),
        ("math.exp(-math.inf)", "0.0"),
        ("math.sqrt(1e308 * 10) == math.inf", "True"),
        ("math.pow(0.5, math.inf)", "0.0"),
        ("math.log(math.inf) == math.inf", "True"),
        ("math.beta_cdf(math.inf, 1.0, 1.0)", "1.0"),
        ("math.beta_cdf(-math.inf, 1.0, 1.0)", "0.0"),
        ("math.lgamma(math.inf) == math.inf", "True"),
    ],
)
def test_infinity_is_a_number_like_others(expression: str, want: str) -> None:
    text = f"def queue_key(pod): return repr({expression})"
    ((verdict,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("queue_key")])
    assert verdict == [want]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("math.floor(math.inf)", "math.floor(+inf): cannot convert float infinity to integer"),
        ("math.round(math.inf - math.inf)", "math.round(nan): cannot convert float NaN to integer"),
        ('math.exp("a")', 'math.exp() wants a number, got "a"'),
        ("math.sqrt(None)", "math.sqrt() wants a number, got None"),
        ("math.sqrt(1 << 5000)", "math.sqrt(an int of 5001 bits): int too large"),
        ("math.beta_cdf(0.5, math.inf, 1)", "math.beta_cdf(0.5, +inf, 1): want positive, finite"),
        ("math.beta_cdf(math.inf - math.inf, 1, 1)", "math.beta_cdf(nan, 1, 1): want a number"),
    ],
)
def test_a_number_without_an_answer_names_the_builtin_and_the_number(body: str, want: str) -> None:
    text = f"def queue_key(pod):\n    return {body}\n"
    ((failure,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("queue_key")])
    assert isinstance(failure, PolicyFailure)
    assert (failure.file, failure.line) == ("x.star", 2)
    assert want in failure.message


@pytest.mark.parametrize("value", ["math.inf", "-math.inf", "math.inf - math.inf"])
@pytest.mark.parametrize("shape", ["{}", "[{}]", '{{"a": ({},)}}', "struct(a = {})"])
def test_state_takes_finite_numbers_alone(value: str, shape: str) -> None:
    """NaN got in, as it equals itself in the interpreter, and was None in later hooks."""
    text = f"def pre_score(pod): return state(v = {shape.format(value)})\n"
    text += "def score(pod, node): return 1\n"
    ((failure,),) = InProcessEvaluator(program_of(text)).evaluate([per_pod("pre_score")])
    assert isinstance(failure, PolicyFailure)
    assert "state(): want finite numbers, got" in failure.message


def test_no_pod_waits_for_a_time_that_is_not_a_number() -> None:
    """NaN is above zero there, and above 900: the pod waited for as long as one can."""
    text = "def permit(pod, group): return wait(math.inf - math.inf)\n"
    call = per_pod("permit", group=GROUP)
    ((failure,),) = InProcessEvaluator(program_of(text)).evaluate([call])
    assert isinstance(failure, PolicyFailure)
    assert "wait() wants a number of seconds above 0, got nan" in failure.message


@pytest.mark.parametrize(
    "constant", ["math.inf", "math.inf - math.inf", "[math.inf]", "1 << 70", "{1: 1, True: 2}"]
)
def test_a_constant_that_python_has_not_leaves_the_others_translated(constant: str) -> None:
    """One NaN at top level, and every hook of the file was left to the interpreter."""
    text = f"_ODD = {constant}\n_LOW = (1, 2.5)\ndef among_0(pod, node):\n    return _LOW\n"
    both = BothWays(text, 1)
    assert not isinstance(both.translated[0], str), both.translated[0]
    assert both.run(0, b"{}", b"{}") == both.interpret(0, b"{}", b"{}")


def test_what_is_read_of_exports_is_what_python_computes_alike() -> None:
    text = '{"a": {"f": "nan"}, "b": {"f": 1.5}, "c": 99999999999999999999, "d": [{"x": "range"}]}'
    assert exports.read(text) == {"b": 1.5}
