"""The forms in which inputs are mutated: bytes to a tree of plain data, and back.

Owns the forms; what is changed in a tree is `mutation`'s.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml


@dataclass(frozen=True)
class Form:
    """A way to read an input as a tree; `read` raises for an input of another form."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


def _read_line(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return line


def _line(value: Any) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def _read_yaml(data: bytes) -> Any:
    if b"&" in data:
        raise ValueError("a tree with aliases may be too large to be walked")
    return list(yaml.load_all(data.decode(), yaml.CSafeLoader))


def _yaml(tree: Any) -> bytes:
    documents = tree if isinstance(tree, list) else [tree]
    return yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=False).encode()


def _token(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


_LENGTH: Final = 4


def _read_frames(data: bytes) -> Any:
    frames = []
    while data:
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
        frames.append(msgspec.msgpack.decode(data[_LENGTH:end]))
        data = data[end:]
    return frames


def _frame(value: Any) -> bytes:
    text = msgspec.msgpack.encode(value)
    return len(text).to_bytes(_LENGTH, "big") + text


JSON: Final = Form(msgspec.json.decode, msgspec.json.encode)
JSON_LINES: Final = Form(
    lambda data: [_read_line(line) for line in data.split(b"\n")],
    lambda tree: b"\n".join(map(_line, tree if isinstance(tree, list) else [tree])),
)
YAML: Final = Form(_read_yaml, _yaml)
TOKENS: Final = Form(
    lambda data: re.findall(rb"\w+|\s+|[^\w\s]", data),
    lambda tree: b"".join(map(_token, tree if isinstance(tree, list) else [tree])),
)
FRAMES: Final = Form(
    _read_frames, lambda tree: b"".join(map(_frame, tree if isinstance(tree, list) else [tree]))
)
