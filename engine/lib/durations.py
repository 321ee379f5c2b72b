"""Durations as Go reads and prints them, for flags, configurations and kube-scheduler's texts."""

import re
from typing import Final

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


def seconds_of(text: str) -> float:
    """Seconds of a duration such as `1m30s` or `250ms`; `0` needs no unit.

    Raises `ValueError` if *text* is not one.
    """
    if text == "0":
        return 0.0
    total, end = 0.0, 0
    for match in _PART.finditer(text):
        if match.start() != end:
            break
        total += float(match[1]) * _UNITS[match[2]]
        end = match.end()
    if not text or end != len(text):
        raise ValueError(f"want a duration such as `1m30s` or `250ms`, got `{text}`")
    return total


def go_duration(seconds: float) -> str:
    """What Go's `%v` makes of a duration: `5m0s`, `1.5s`, `250ms`, `1h0m0s`, `0s`."""
    nanos = round(seconds * 1e9)
    if nanos == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if abs(nanos) < 1_000 * size:
            return f"{_decimal(nanos, size)}{unit}"
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    minutes, rest = divmod(nanos, 60_000_000_000)
    text = f"{_decimal(rest, 1_000_000_000)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return sign + text


def _decimal(amount: int, size: int) -> str:
    """*amount* / *size* exactly, without zeros at the end."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    whole, rest = divmod(amount, size)
    if not rest:
        return f"{sign}{whole}"
    digits = str(rest).zfill(len(str(size)) - 1).rstrip("0")
    return f"{sign}{whole}.{digits}"
