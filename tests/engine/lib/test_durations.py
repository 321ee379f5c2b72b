"""Durations look as Go prints them."""

import pytest

from engine.lib.durations import go_duration, seconds_of


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0s"),
        (1e-9, "1ns"),
        (1.5e-6, "1.5µs"),
        (0.25, "250ms"),
        (0.2505, "250.5ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.999, "59.999s"),
        (60, "1m0s"),
        (300, "5m0s"),
        (900, "15m0s"),
        (3661.5, "1h1m1.5s"),
        (7200, "2h0m0s"),
        (-90, "-1m30s"),
        (-0.002, "-2ms"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(seconds: float, want: str) -> None:
    assert go_duration(seconds) == want


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
