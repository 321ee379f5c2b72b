"""What commands print for programs: one JSON document.

Owns how names of files that are not UTF-8 stand in it; what is in it is each command's.
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
    """*plain* with what no text can hold of names of files as `U+FFFD`, as in what people read."""
    match plain:
        case str():
            return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_readable(key): _readable(value) for key, value in plain.items()}
        case list() | tuple():
            return [_readable(one) for one in plain]
    return plain
