"""Options and error handling that the commands share."""

from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

import click
import uvloop

from devkit.benchmarks.subjects import SubjectError
from devkit.benchmarks.wire import WireError
from tests.controlplane import ControlPlaneError

T = TypeVar("T")

_EXPECTED = (SubjectError, WireError, ControlPlaneError)


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* `--output text|json [FILE]`, as the parameters `output` and `file`."""
    option = click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="json: also write the results to FILE; without FILE, or with `-`, to the standard "
        "output instead of the table.",
    )
    return click.argument("file", required=False)(option(command))


def named(text: str, known: Collection[str]) -> list[str]:
    """The names in *text*, comma-separated. Raises `click.BadParameter` for one not *known*."""
    names = text.split(",")
    for name in names:
        if name not in known:
            raise click.BadParameter(f"want one of {', '.join(known)}, got `{name}`")
    return names


def json_path(output: str, file: str | None) -> str | None:
    """Where the JSON goes: a path, `-` for the standard output, or None for nowhere.

    Raises `click.UsageError` for a FILE without `--output json`.
    """
    if output == "json":
        return file or "-"
    if file is not None:
        raise click.UsageError(f"FILE goes with `--output json`, got `{file}`")
    return None


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
