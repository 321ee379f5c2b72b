"""Durations are written as Go writes them."""

import pytest

from engine.cli.durations import duration_text, seconds_of


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("15s", 15.0, id="seconds"),
        pytest.param("1m30s", 90.0, id="mixed"),
        pytest.param("250ms", 0.25, id="less than a second"),
        pytest.param("1.5h", 5400.0, id="fraction"),
        pytest.param("0", 0.0, id="zero needs no unit"),
    ],
)
def test_a_duration_is_understood(text: str, want: float) -> None:
    assert seconds_of(text) == pytest.approx(want)


@pytest.mark.parametrize("text", ["", "15", "s", "1m 30s", "-5s", "5x", "1e3s", "５s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="want a duration such as"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(15.0, "15s"), (90.0, "1m30s"), (3600.0, "1h"), (0.5, "500ms"), (0.0, "0s"), (300.0, "5m")],
)
def test_a_duration_is_shown_the_same_way(seconds: float, want: str) -> None:
    assert duration_text(seconds) == want
    assert seconds_of(want) == pytest.approx(seconds)
