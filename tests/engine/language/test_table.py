"""The table of builtins: what an entry says is so, and all that is made of an entry."""

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

from engine.language import prelude
from engine.language.hooks import AMONG, ENTRIES, PARAMETERS
from engine.language.table import Builtin, builtins

_OWN = [one for one in builtins().values() if not one.is_starlark]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What each part makes of three builtins that one entry each was added for."""
    command = [sys.executable, "-m", "tests.engine.language.new_builtins"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    known: dict[str, Any] = json.loads(done.stdout)
    return known


def test_a_new_builtin_passes_check_and_lint(found: dict[str, Any]) -> None:
    assert found["check"] == found["lint"] == []


def test_wrong_calls_of_a_new_builtin_are_found(found: dict[str, Any]) -> None:
    assert found["check of wrong calls"] == [
        "wrong.star:8:27: parse_hex() has no parameter `radix`\nhint: want `text` or `default`"
    ]
    wrong = "\n".join(found["lint of wrong calls"])
    assert "parse_hex() wants `text` to be a text, got an int: `3`" in wrong
    assert 'math.hypot() wants a number, got a text: `"a"`' in wrong
    assert "shares_key() wants `a` to be a dict, got a list: `[]`" in wrong


def test_a_new_builtin_is_translated_and_gives_what_the_interpreter_gives(
    found: dict[str, Any],
) -> None:
    assert found["obstacles"] == ["", ""]
    rejections, interpreted, scores, interpreted_scores = found["answers"]
    assert rejections == interpreted == [["r", ["node(s) were too narrow"]], None]
    assert scores == interpreted_scores == [1, 1, 31]


def test_reads_are_followed_through_a_new_builtin(found: dict[str, Any]) -> None:
    assert found["reads"] == ["labels[width]"]


@pytest.mark.parametrize("name", ["parse_hex", "hypot", "shares_key"])
def test_a_new_builtin_is_in_stubs_documents_and_random_policies(
    found: dict[str, Any], name: str
) -> None:
    assert f"def {name}(" in found["stubs"]
    assert f"{name}(" in found["documents"]
    assert f"{name}(" in found["random policies"]


@pytest.mark.parametrize("one", _OWN, ids=lambda one: one.name)
def test_parameters_are_those_of_the_starlark_text(one: Builtin) -> None:
    functions = {
        f.name: f for f in ast.parse(prelude.text()).body if isinstance(f, ast.FunctionDef)
    }
    name = one.starlark or one.name
    if name in functions:
        assert ast.unparse(functions[name].args) == ast.unparse(
            ast.parse(f"def f({one.signature}): pass").body[0].args  # type: ignore[attr-defined]  # a function
        )
    else:
        assert one.python is not None or one.starlark == "abs"


def test_every_parameter_of_a_hook_is_described() -> None:
    assert {name for hook in (*ENTRIES, AMONG) for name in hook.parameters} == PARAMETERS.keys()
