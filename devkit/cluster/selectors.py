"""Label and field selectors in the text form of query parameters.

Owns the grammar, the refusals (worded as the API server words them) and matching. Selectors inside
objects (`matchLabels`, ...) are not its business.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.core.manifests.errors import bad_request
from engine.core.manifests.kinds import FieldReader, Kind

Json = dict[str, Any]
Predicate = Callable[[Json], bool]

_TOKENS = re.compile(r"\s*(==|!=|[=!,()<>]|[^\s=!,()<>]+)")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SYMBOLS = frozenset({"=", "==", "!=", "!", ",", "(", ")", "<", ">"})
_KEY_RULE = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "
    "used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS "
    "subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One comma-separated term of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if *labels* satisfy the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        (bound,) = self.values
        if value is None or not _is_int(value):
            return False
        return int(value) > int(bound) if self.operator == "gt" else int(value) < int(bound)


def _is_int(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKENS.findall(text)
        self._next = 0

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def parse(self) -> Iterator[Requirement]:
        if not self._peek():
            return
        while True:
            token = self._peek()
            if token in _SYMBOLS and token != "!":
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            token = self._take()
            if not token:
                return
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
            following = self._peek()
            if not following or (following in _SYMBOLS and following != "!"):
                raise bad_request(f"found '{following}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._take()
        key = self._take()
        if not key or key in _SYMBOLS:
            raise _unparsable(f"found '{key}', expected: identifier")
        _check_key(key)
        if absent:
            return Requirement(key, "absent")
        operator = self._peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self._take()
        match operator:
            case "in" | "notin":
                return Requirement(key, operator, self._values(key))
            case "=" | "==":
                return Requirement(key, "in", frozenset({self._value(key)}))
            case "!=":
                return Requirement(key, "notin", frozenset({self._value(key)}))
            case ">" | "<":
                bound = self._value(key)
                if not _is_int(bound):
                    raise _unparsable(
                        f'values[0][{key}]: Invalid value: "{bound}": '
                        "for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                name = "gt" if operator == ">" else "lt"
                return Requirement(key, name, frozenset({bound}))
        raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _value(self, key: str) -> str:
        token = self._peek()
        if token in ("", ","):
            return ""
        if token in _SYMBOLS:
            raise _unparsable(f"found '{token}', expected: identifier")
        self._take()
        _check_value(key, token)
        return token

    def _values(self, key: str) -> frozenset[str]:
        token = self._take()
        if token != "(":
            raise _unparsable(f"found '{token}' expected: '('")
        values: set[str] = set()
        while True:
            token = self._peek()
            if token in (",", ")"):
                values.add("")  # `(a,)` and `()` name the empty value, as the real grammar has it
            else:
                if not token or token in _SYMBOLS:
                    raise _unparsable(f"found '{token}', expected: ',', ')' or identifier")
                self._take()
                _check_value(key, token)
                values.add(token)
            token = self._take()
            if token == ")":
                return frozenset(values)
            if token != ",":
                raise _unparsable(f"found '{token}', expected: ',' or ')'")


def _unparsable(why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}")


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    well_formed = len(name) <= 63 and _NAME.fullmatch(name)
    if not well_formed or (slash and (len(prefix) > 253 or not _DOMAIN.fullmatch(prefix))):
        raise _unparsable(f'<nil>: Invalid value: "{key}": {_KEY_RULE}')


def _check_value(key: str, value: str) -> None:
    if len(value) > 63 or (value and not _NAME.fullmatch(value)):
        raise _unparsable(f'values[0][{key}]: Invalid value: "{value}": {_VALUE_RULE}')


@lru_cache(maxsize=256)
def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """The requirements of `a=b,c in (d,e),!f`; none for the empty text. Refuses with 400."""
    return tuple(_Parser(text).parse())


def parse_field_selector(text: str, kind: Kind) -> list[tuple[FieldReader, bool, str]]:
    """The terms of `a=b,c!=d` as (reader, wanted equal, value). Refuses with 400."""
    terms = []
    for term in filter(None, _split(text)):
        match = re.fullmatch(r"(?s)(.*?)(!=|==|=)(.*)", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match.groups()
        reader = kind.fields.get(path)
        if reader is None:
            raise bad_request(kind.no_field.format(path))
        terms.append((reader, operator != "!=", re.sub(r"\\([\\,=])", r"\1", value)))
    return terms


def _split(text: str) -> list[str]:
    """*text* split at commas that no backslash escapes."""
    return re.findall(r"(?:\\.|[^,\\])+", text)


def selector(kind: Kind, labels: str, fields: str) -> Predicate | None:
    """A test of manifests for both selectors, or None if everything matches. Refuses with 400."""
    requirements = parse_label_selector(labels)
    terms = parse_field_selector(fields, kind) if fields else []
    if not requirements and not terms:
        return None

    def matches(manifest: Json) -> bool:
        for reader, wanted_equal, value in terms:
            if (reader(manifest) == value) is not wanted_equal:
                return False
        if requirements:
            own = manifest["metadata"].get("labels") or {}
            return all(requirement.matches(own) for requirement in requirements)
        return True

    return matches
