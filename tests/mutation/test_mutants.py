"""The mutants: each is one change of one function, and compiles."""

import textwrap
from pathlib import Path

import pytest

from tests.mutation.__main__ import GROUPS, files_of
from tests.mutation.mutants import code_of, mutants_of, mutated

ROOT = Path(__file__).resolve().parents[2]


def changes(body: str) -> set[tuple[str, str]]:
    source = "def f(self, a, b):\n" + textwrap.indent(body, "    ")
    return {(one.before, one.after) for one in mutants_of(source, "f.py")}


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("return a < b", {("a < b", "a <= b")}, id="an equal is taken along"),
        pytest.param("return a in b", {("a in b", "a not in b")}, id="membership"),
        pytest.param("return a or b", {("a or b", "a and b")}, id="one condition in place of two"),
        pytest.param("return not a", {("not a", "not not a")}, id="a condition the other way"),
        pytest.param("return a + b", {("a + b", "a - b")}, id="a sum"),
        pytest.param("return a[-1]", {("-1", "-0")}, id="a number that is one larger"),
        pytest.param("return True", {("True", "False")}, id="a truth"),
        pytest.param("a.x()", {("a.x()", "")}, id="an undo that is missing"),
        pytest.param("self.x = a", {("self.x = a", "")}, id="a fact that is not noted"),
        pytest.param("x = a", set(), id="a local name is what another line is about"),
        pytest.param("log.info('x', n=1)", set(), id="logs are for people"),
        pytest.param("raise ValueError(a + b)", set(), id="texts of errors are for people"),
        pytest.param(
            "return a if b else self", {("a if b else self", "self if b else a")}, id="if"
        ),
    ],
)
def test_each_kind_of_change(body: str, want: set[tuple[str, str]]) -> None:
    assert changes(body) == want


def test_a_mutant_differs_in_its_function_alone() -> None:
    method = "    def {}(self, a):\n        return a < 1\n"
    source = "class A:\n" + method.format("f") + method.format("g")
    (first, *_) = mutants_of(source, "a.py")
    before, after = compile(source, "a.py", "exec"), mutated(source, first)
    assert first.key == "a.py:A.f: a < 1 -> a <= 1"
    assert code_of(after, "A.f") != code_of(before, "A.f")
    assert code_of(after, "A.g") == code_of(before, "A.g")


@pytest.mark.parametrize("group", GROUPS)
def test_every_mutant_of_the_groups_compiles_to_something_else(group: str) -> None:
    for path in files_of(group):
        source = (ROOT / path).read_text()
        mutants = mutants_of(source, path)
        assert len({(one.node, one.field) for one in mutants}) == len(mutants)
        for one in mutants[::50]:
            before = code_of(compile(source, path, "exec"), one.function)
            assert code_of(mutated(source, one), one.function) != before, one.key
