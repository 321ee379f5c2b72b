"""What lints do beyond single rules: fixes, depth, cost, and agreement with the interpreter."""

import ast
from typing import Any

import pytest
import starlark
from hypothesis import given
from hypothesis import strategies as st

from engine.language.starlark import TEXT_METHODS
from engine.policy.arguments import ARGUMENTS, declarations_in
from engine.policy.check import check_files
from workbench.lint import names
from workbench.lint.fixes import without_unused_loads
from workbench.lint.linter import lint_files

PLAIN_FILTER = "def filter(pod, node):\n    return None\n"


def found(text: str, **others: str) -> list[str]:
    """`line: name` of each finding in x.star."""
    files = {"x.star": text} | {f"{stem}.star": other for stem, other in others.items()}
    assert not [p for p in check_files(files) if p.severity == "error"]
    return [f"{f.problem.line}: {f.lint}" for f in lint_files(files) if f.problem.file == "x.star"]


def in_filter(*lines: str) -> str:
    return "def filter(pod, node):\n" + "".join(f"    {line}\n" for line in lines)


@given(st.integers(-(2**33), 2**33), st.integers(0, 40))
def test_a_shift_is_reported_if_and_only_if_the_interpreter_gets_it_wrong(
    value: int, by: int
) -> None:
    expression = f"({value}) << {by}"
    module = starlark.Module()
    got = starlark.eval(module, starlark.parse("x.star", expression), starlark.Globals.standard())
    lints = [f.lint for f in lint_files({"x.star": f"A = {expression}\n"})]
    assert lints == ([] if got == value << by else ["wrong-shift"])


@pytest.mark.parametrize(
    ("load", "want"),
    [
        pytest.param('load("@std/numbers.star", "go_div")\n', "", id="all of it"),
        pytest.param(
            'load("@std/numbers.star", "go_div", "round_div")\n_X = round_div(1, 2)\n',
            'load("@std/numbers.star", "round_div")\n_X = round_div(1, 2)\n',
            id="the first",
        ),
        pytest.param(
            'load("@std/numbers.star", "go_div", r = "round_div")\n_X = go_div(1, 2)\n',
            'load("@std/numbers.star", "go_div")\n_X = go_div(1, 2)\n',
            id="a renamed one, at the end",
        ),
        pytest.param(
            'load(\n    "@std/numbers.star",\n    "go_div",\n    "round_div",\n)\n'
            "_X = go_div(1, 2)\n",
            'load(\n    "@std/numbers.star",\n    "go_div",\n)\n_X = go_div(1, 2)\n',
            id="on lines of their own",
        ),
        pytest.param(
            'load("@std/numbers.star", "go_div")  # why\n',
            'load("@std/numbers.star", "go_div")  # why\n',
            id="a comment is kept, and so its load",
        ),
        pytest.param(
            'load("@std/numbers.star", "go_div"); A = 1\n',
            'load("@std/numbers.star", "go_div"); A = 1\n',
            id="a statement after it is kept",
        ),
        pytest.param(
            'A = 1; load("@std/numbers.star", "go_div")\nB = 2\n',
            'A = 1; load("@std/numbers.star", "go_div")\nB = 2\n',
            id="a statement before it is kept, and its line",
        ),
    ],
)
def test_unused_loads_are_removed(load: str, want: str) -> None:
    text = '"""ä"""\n' + load
    findings = lint_files({"x.star": text})
    got = without_unused_loads(text, findings)
    assert got == '"""ä"""\n' + want
    ast.parse(got)


@given(
    st.text("{}01ab!rs:.[ ]", max_size=8),
    st.sampled_from(["", "1", "1, 2", "a = 1", "1, a = 1"]),
)
def test_formats_are_reported_where_the_interpreter_cannot_fill_them(
    text: str, arguments: str
) -> None:
    filled = f'"{text}".format({arguments})'
    try:
        starlark.eval(starlark.Module(), starlark.parse("x", filled), starlark.Globals.standard())
        is_filled = True
    except starlark.StarlarkError:
        is_filled = False
    reported = [
        f for f in lint_files({"x.star": in_filter(f"return {filled}")}) if f.lint == "wrong-type"
    ]
    assert bool(reported) is not is_filled, filled


def test_a_file_is_not_walked_for_each_of_its_constants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was walked twice for each: 20 seconds for 2,000 constants."""
    walked = 0

    def counted(tree: ast.Module, declares: str = ARGUMENTS) -> list[ast.Call]:
        nonlocal walked
        walked += 1
        return declarations_in(tree, declares)

    monkeypatch.setattr(names, "declarations_in", counted)
    text = "".join(f"A{n} = {n}\n" for n in range(50)) + PLAIN_FILTER
    lib = 'load("x.star", "A7")\ndef f():\n    return A7\n'
    assert found(text, lib=lib) == [f"{n + 1}: unused-variable" for n in range(50) if n != 7]
    assert walked <= 6  # three for each file


def test_helpers_that_call_each_other_twice_are_followed_a_bounded_number_of_times() -> None:
    text = (
        "def score(pod, node):\n    return _f0(node)\ndef _f40(node):\n    return node.pod_count\n"
    )
    for n in range(40):
        text += f"def _f{n}(node):\n    return 1 + (_f{n + 1}(node) if node.name else "
        text += f"_f{n + 1}(node))\n"
    assert found(text) == []


def test_the_methods_of_strings_are_those_of_the_interpreter() -> None:
    module, text = starlark.Module(), 'dir("")'
    got: Any = starlark.eval(module, starlark.parse("x.star", text), starlark.Globals.standard())
    assert set(got) == set(TEXT_METHODS)


@pytest.mark.parametrize("answer", ["{}", "1 + {}", "100 - {} // 2"])
def test_a_long_chain_of_helpers_is_followed_as_far_as_the_stack_allows(answer: str) -> None:
    text = "def score(pod, node):\n    return _f0(node)\ndef _f900(node):\n    return 1000\n"
    for n in range(900):
        text += f"def _f{n}(node):\n    return {answer.format(f'_f{n + 1}(node)')}\n"
    assert found(text) == []


@pytest.mark.parametrize(
    "deep",
    ["node" + ".x" * 400 + "(3)", "node.labels" + ".get('a')" * 200, "wait(1" + " + 1" * 400 + ")"],
)
def test_what_nests_too_deep_for_a_lint_ends_none_of_the_others(deep: str) -> None:
    """It ended `check` with `RecursionError`."""
    text = f"_A = 1\ndef score(pod, node):\n    return {deep}\n"
    assert "unused-variable" in {one.lint for one in lint_files({"x.star": text})}
