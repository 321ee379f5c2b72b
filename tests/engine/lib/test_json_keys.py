"""Keys that a JSON text has twice are found, wherever they are."""

import pytest

from engine.lib.json_keys import repeated_key


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param('{"a": 1, "b": 2, "a": 3}', "a", id="outermost"),
        pytest.param('[{"a": [{"b": 1, "b": 1}]}]', "b", id="further in"),
        pytest.param(b'{"a": {"a": 1}, "b": {"a": 1}}', None, id="the same in other objects"),
        pytest.param(r'{"a": 1, "\u0061": 2}', "a", id="spelt otherwise"),
        pytest.param('{"": 1, "": 2}', "", id="no name"),
        pytest.param("{", None, id="no JSON"),
        pytest.param(b'{"\xff": 1}', None, id="no text"),
        pytest.param("[" * 100_000, None, id="too deep to look"),
    ],
)
def test_a_repeated_key_is_found(text: bytes | str, want: str | None) -> None:
    assert repeated_key(text) == want
