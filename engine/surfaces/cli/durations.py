"""Durations on the command line, in Go's syntax, as Kubernetes components accept them."""

import math
from typing import Any, Final

import click

from engine.lib.durations import seconds_of


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


class LimitType(DurationType):
    """As `DurationType`, or `never`: infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The duration in seconds; an invalid text ends the command."""
        return math.inf if value == NEVER else super().convert(value, param, ctx)


#: A limit that is never reached.
NEVER: Final = "never"
DURATION: Final = DurationType()
LIMIT: Final = LimitType()
