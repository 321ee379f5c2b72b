"""Which argument of a call meets which parameter, and which names are not a part's own."""

import ast

import pytest

from engine.language.resolve import Arguments, bound_to, free_names, parameters_of


def _bound(parameters: str, call: str) -> Arguments:
    function = ast.parse(f"def f({parameters}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    return bound_to(parameters_of(function.args), node)


def _given(arguments: Arguments) -> dict[str, str]:
    return {name: ast.unparse(value) for name, value in arguments.given.items()}


@pytest.mark.parametrize(
    ("parameters", "call", "want"),
    [
        pytest.param("a, b", "f(1, 2)", {"a": "1", "b": "2"}, id="by place"),
        pytest.param("a, b", "f(b = 1, a = 2)", {"a": "2", "b": "1"}, id="by name"),
        pytest.param("a, b = 3", "f(1)", {"a": "1"}, id="a default is not given"),
        pytest.param("a, *, b", "f(1, b = 2)", {"a": "1", "b": "2"}, id="behind a star"),
    ],
)
def test_arguments_meet_parameters(parameters: str, call: str, want: dict[str, str]) -> None:
    got = _bound(parameters, call)
    assert _given(got) == want
    assert got == Arguments(got.given, (), (), (), (), is_open=False)


def test_what_does_not_fit_is_reported_separately() -> None:
    got = _bound("a, b, c", "f(1, 2, a = 3, d = 4)")
    assert got.repeated == ("a",)
    assert got.missing == ("c",)
    assert [keyword.arg for keyword in got.unknown] == ["d"]
    assert [ast.unparse(one) for one in _bound("a", "f(1, 2, 3)").surplus] == ["2", "3"]


@pytest.mark.parametrize("call", ["f(*x)", "f(**x)"])
def test_a_list_of_arguments_may_give_any_parameter(call: str) -> None:
    got = _bound("a, b", call)
    assert got.is_open
    assert not got.missing


def test_keyword_only_parameters_without_a_default_are_required() -> None:
    function = ast.parse("def f(a, b = 1, *rest, c, d = 2, **named): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    got = parameters_of(function.args)
    assert got.required == ["a", "c"]
    assert (got.rest, got.keywords) == ("rest", "named")


def test_names_that_a_function_or_comprehension_binds_are_not_free() -> None:
    text = "def f(x, y = d):\n    z = x + g\n    return [i + h for i in z if i != k]\n"
    found = {name for name, _ in free_names(ast.parse(text))}
    assert found == {"d", "g", "h", "k"}
