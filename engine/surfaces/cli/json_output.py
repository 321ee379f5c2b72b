"""The JSON output of commands, one document, and the option `--output` that asks for it.

Owns how file names that are not UTF-8 are written; the content is each command's.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(text: str, *others: str) -> Callable[[Command], Command]:
    """Add `--output`, text, JSON or one of *others*, to a command; *text* is its help."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json", *others]),
        default="text",
        show_default=True,
        help=text,
    )


def print_json(value: Any) -> None:
    """Print *value* as JSON."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_readable(msgspec.to_builtins(value)))
    click.echo(msgspec.json.format(text).decode())


def _readable(plain: Any) -> Any:
    """*plain* with undecodable bytes of file names as `U+FFFD`, as in the text output."""
    match plain:
        case str():
            return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_readable(key): _readable(value) for key, value in plain.items()}
        case list() | tuple():
            return [_readable(one) for one in plain]
    return plain
