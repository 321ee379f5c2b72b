"""Reads YAML and JSON, and finds the line of a value in the text.

Owns reading texts so that errors have a line. Interpreting the values is the caller's.
"""

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from engine.core.manifests.yaml_text import DatelessLoader
from engine.lib import utf8
from engine.lib.deep_json import UNREADABLE
from engine.lib.json_keys import repeated_key

_MERGE: Final = "tag:yaml.org,2002:merge"
# Deeper JSON is not decoded either.
_MOST_LEVELS: Final = 1_000
# Aliases can make a small text large; without them, a text has no more values than characters.
_MOST_EXPANDED: Final = 1_000_000
_NOT_SPACE: Final = re.compile(r"\S")
_AT_BYTE: Final = re.compile(r" \(byte (\d+)\)$")


class FileError(ValueError):
    """A file that cannot be used; the message is one line that starts with the place."""


class TextError(ValueError):
    """A text that cannot be read; the message starts with its name and, if known, the line."""


class Loader(DatelessLoader):
    """YAML in which a key counts once, or not at all.

    YAML requires that; PyYAML silently takes the last one, which in a ConfigMap would lose a
    policy.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        # Merging (`<<`) adds keys to a mapping, which may be met again: one with more says less.
        self._merged: set[yaml.Node] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Resolve the merge keys (`<<`) of *node*. Raises `ConstructorError` for a second key."""
        if node not in self._merged:
            self._refuse_repeated(node)
        super().flatten_mapping(node)

    def _refuse_repeated(self, node: yaml.MappingNode) -> None:
        first: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.tag == _MERGE:
                self._merged.add(node)
            elif (known := first.setdefault((key.tag, key.value), key)) is not key:
                line = known.start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"the key `{key.value}` is already used in line {line}",
                    key.start_mark,
                )


def read_text(path: Path) -> str:
    """The text of a file. Raises `TextError` if it cannot be read or is not UTF-8."""
    try:
        return decoded(str(path), path.read_bytes())
    except OSError as error:
        raise TextError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def decoded(name: str, raw: bytes) -> str:
    """*raw* as text. Raises `TextError`."""
    try:
        # (Not "utf-8-sig": where tests are confined a codec cannot be loaded any more.)
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise TextError(not_utf8(name, error)) from error


def not_utf8(name: str, error: UnicodeDecodeError) -> str:
    """The error message for the file *name* whose bytes are not UTF-8, with line and offset."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"{name}:{line}: {utf8.describe_error(error)}"


def parsed_json(name: str, raw: bytes) -> Any:
    """The value of a JSON text. Raises `TextError`, also for an object that has a key twice."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = _AT_BYTE.search(str(error))
        at = int(found[1]) if found else len(raw)
        line, column = raw.count(b"\n", 0, at) + 1, at - raw.rfind(b"\n", 0, at)
        what = _AT_BYTE.sub("", str(error))
        raise TextError(f"{name}:{line}:{column}: want JSON: {what}") from error
    except RecursionError as error:
        raise TextError(f"{name}: want JSON: {error}") from error
    if (key := repeated_key(raw)) is not None:
        raise _repeated(name, raw, key)
    return value


def parsed_json_values(name: str, raw: bytes) -> list[Any]:
    """The values of a JSON text: one, or several after one another, as `jq .items[]` prints them.

    Raises `TextError`.
    """
    with contextlib.suppress(TextError):
        return [parsed_json(name, raw)]
    text, decoder, found, end = decoded(name, raw), json.JSONDecoder(), list[Any](), 0
    while next_value := _NOT_SPACE.search(text, end):
        begin = next_value.start()
        try:
            _, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            end = len(text)
        value = text[begin:end]
        with contextlib.suppress(TextError):
            found.append(parsed_json(name, value.encode()))
            continue
        # Again, so that the error has the line in the whole text.
        parsed_json(name, ("\n" * text.count("\n", 0, begin) + value).encode())
    return found


def _repeated(name: str, raw: bytes, key: str) -> TextError:
    """The error that *key* is repeated, with its place if the JSON is valid YAML too."""
    try:
        for _ in yaml.load_all(raw, Loader):
            pass
    except yaml.constructor.ConstructorError as error:
        if (mark := error.problem_mark) is not None:
            place = f"{name}:{mark.line + 1}:{mark.column + 1}"
            return TextError(f"{place}: want JSON: {error.problem}")
    except (yaml.YAMLError, ValueError, RecursionError):
        pass
    return TextError(f"{name}: want JSON: the key `{key}` occurs twice in an object")


def _is_tab(text: str, line: int, column: int) -> bool:
    """Whether the line of that number, from 0, is indented with a tab there."""
    lines = text.splitlines()
    begin = lines[line][: column + 1] if line < len(lines) else ""
    return begin.endswith("\t") and not begin.strip()


def parsed_yaml(name: str, text: str) -> list[Any]:
    """The documents of a YAML text as JSON has them, None for empty ones. Raises `TextError`."""
    try:
        if _is_too_deep(text):
            raise TextError(f"{name}: want YAML of at most {_MOST_LEVELS:,} levels")
        documents = list(yaml.load_all(text, Loader))  # a safe loader, but for its name
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        if mark and _is_tab(text, mark.line, mark.column):
            what = "tabs cannot indent: want spaces"
        raise TextError(f"{place}: want YAML: {what}") from error
    except TextError:
        raise
    except (ValueError, RecursionError) as error:
        raise TextError(f"{name}: want YAML: {error}") from error
    if "&" in text:
        size = sum(map(_expanded_size, documents))
        if size == math.inf:
            raise TextError(f"{name}: want finite YAML: an alias refers to a node that contains it")
        if size > max(_MOST_EXPANDED, len(text)):
            raise TextError(f"{name}: want a smaller YAML: its aliases stand for {size:,} values")
    try:
        return [msgspec.json.decode(msgspec.json.encode(document)) for document in documents]
    except (TypeError, ValueError, *UNREADABLE) as error:
        raise TextError(f"{name}: want YAML that can be written as JSON: {error}") from error


def _is_too_deep(text: str) -> bool:
    """True if *text* nests so deep that composing it might exhaust the stack, which is C's.

    Reading it twice takes half as long again, so this is for texts that might be deep alone: in
    blocks two levels take a column, in flow each takes a bracket.
    """
    columns = max(map(len, text.splitlines()), default=0)
    if 2 * columns + text.count("[") + text.count("{") < _MOST_LEVELS:
        return False
    level = 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
            if level > _MOST_LEVELS:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
    return False


def _expanded_size(value: Any) -> float:
    """How many values *value* has with its aliases expanded; infinite if it contains itself."""
    sizes: dict[int, float] = {}
    # What is still to be looked at, and what was: then the sizes of what is in it are known. What
    # has no size by then contains itself.
    stack = [(value, False)]
    while stack:
        one, is_left = stack.pop()
        if not isinstance(one, dict | list):
            continue
        inner = one.values() if isinstance(one, dict) else one
        if is_left:
            sizes[id(one)] = 1 + sum(
                sizes[id(below)] if isinstance(below, dict | list) else 1 for below in inner
            )
        elif id(one) not in sizes:
            sizes[id(one)] = math.inf
            stack.append((one, True))
            stack.extend((below, False) for below in inner)
    return sizes.get(id(value), 1)


def line_at(text: str, number: int, path: tuple[str | int, ...]) -> int:
    """The line of the value at *path* in the document *number*; 0 if unknown.

    If the path ends early, the line of its last step that exists. Parses the text again, so call it
    only for error messages.
    """
    try:
        nodes = [node for node in yaml.compose_all(text, Loader) if node is not None]
    except yaml.YAMLError:
        return 0  # JSON that is no YAML, as with tabs
    if not nodes:
        return 0
    node: yaml.Node = nodes[min(number, len(nodes)) - 1]
    line = node.start_mark.line
    for step in path:
        below = _below(node, step)
        if below is None:
            break
        line, node = below
    return int(line) + 1


def _below(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        value = node.value[step]
        return value.start_mark.line, value
    return None
