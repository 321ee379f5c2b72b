"""Runs a benchmark from a command: expected failures become messages, not tracebacks."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import click
import uvloop

from benchmarks.subjects import SubjectError
from benchmarks.wire import WireError
from tests.controlplane import ControlPlaneError

T = TypeVar("T")

_EXPECTED = (SubjectError, WireError, ControlPlaneError)


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of *work*. Raises `click.ClickException` if a server or a scheduler failed."""
    try:
        return uvloop.run(work)
    except _EXPECTED as error:
        raise click.ClickException(str(error)) from error
    except BaseExceptionGroup as group:
        expected, others = group.split(_EXPECTED)
        if expected is None or others is not None:
            raise
        raise click.ClickException(str(_first(expected))) from group


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
