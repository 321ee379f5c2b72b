"""Durations on the command line, in Go's syntax, as Kubernetes components accept them."""

import re
from typing import Any, Final

import click

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


def duration_text(seconds: float) -> str:
    """A duration as Go prints it, without zero components: `15s`, `5m`, `1m30s`."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms" if seconds else "0s"
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = (f"{hours:g}h" if hours else "", f"{minutes:g}m" if minutes else "")
    return "".join(parts) + (f"{left:g}s" if left else "")


class DurationType(click.ParamType[float]):
    """A click type: text such as `15s`, converted to seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The duration in seconds; an invalid text ends the command."""
        if isinstance(value, float | int):
            return float(value)
        try:
            return seconds_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = DurationType()
