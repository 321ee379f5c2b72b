"""The JSON output of commands: one document.

Owns how file names that are not UTF-8 are written; the content is each command's.
"""

from typing import Any

import click
import msgspec


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
