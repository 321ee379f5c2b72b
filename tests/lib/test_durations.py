"""Durations look as Go prints them."""

import pytest

from engine.lib.durations import go_duration


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
