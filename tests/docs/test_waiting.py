"""No test waits for a length of time, so that none fails on a machine that is busy."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]
#: It has the helpers that wait for a condition.
_HELPERS: Final = _TESTS / "waiting.py"


def _sleeps(path: Path) -> Iterator[int]:
    """The lines of *path* that sleep; `sleep(0)` only lets others run."""
    text = path.read_text(encoding="utf-8")
    if "sleep(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "sleep"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("asyncio", "time")
            and not (isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
        ):
            yield node.lineno


def test_tests_wait_for_conditions_and_not_for_time() -> None:
    """`eventually`, `wait_until` and `idle` of tests/waiting.py wait; code takes a `sleep`."""
    files = [path for path in sorted(_TESTS.rglob("*.py")) if path != _HELPERS]
    assert [f"{path}:{line}" for path in files for line in _sleeps(path)] == []
