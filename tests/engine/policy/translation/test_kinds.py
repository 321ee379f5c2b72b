"""Hooks that ask for the kind of a value: the same values, and no more types than are left."""

import pytest

from tests.engine.policy.translation.both_ways import BothWays

_POD = b'{"namespace": "a"}'
_NODE = b'{"name": "n", "pod_count": %d}'


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(
            "if type(x) == 'string':\n        return len(x)\n    return x + 1", [1, 8], id="a text"
        ),
        pytest.param(
            "if type(x) not in ['int', 'float']:\n        return x.upper()\n    return -x",
            ["A", -7],
            id="no number",
        ),
        pytest.param("return x + 'b' if type(x) == 'string' else x", ["ab", 7], id="an expression"),
        pytest.param("return type(x) == 'int' and x > 6", [False, True], id="and"),
        pytest.param("return [y + 1 for y in [x] if type(y) == 'int']", [[], [8]], id="a list"),
    ],
)
def test_what_is_of_one_kind_is_used_as_that(body: str, want: list[object]) -> None:
    text = (
        f"def among_0(pod, node):\n    x = node.pod_count if node.pod_count else 'a'\n    {body}\n"
    )
    both = BothWays(text, 1)
    for count, value in zip((0, 7), want, strict=True):
        assert both.run(0, _POD, _NODE % count).value == value
        assert both.interpret(0, _POD, _NODE % count).value == value


def test_a_type_that_is_not_the_builtin_decides_nothing() -> None:
    text = (
        "def type(x):\n    return 'string'\n\ndef among_0(pod, node):\n"
        "    x = node.pod_count\n    return 1 if type(x) == 'string' else 2\n"
    )
    both = BothWays(text, 1)
    assert both.interpret(0, _POD, _NODE % 1).value == both.run(0, _POD, _NODE % 1).value == 1
