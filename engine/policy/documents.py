"""Strict reading of YAML documents: all mistakes together, each with its path and line.

Owns the reading of records by tables, and what a wrong value is answered with. Which fields there
are is `config`'s: a record says with `entry` how each of its fields is read, and is read and
written by that. Works on YAML nodes rather than on plain data, because only nodes know their lines
and their duplicate keys; and not with msgspec, which stops at the first mistake.
"""

import base64
import contextlib
import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import yaml

from engine.lib.durations import go_duration, seconds_of
from engine.policy.errors import Problem

# Aliases can make a small text large; documents written by hand are far below this.
_MAX_NODES: Final = 100_000
_MAX_CHARACTERS: Final = 256 * 1024
_MAX_DEPTH: Final = 60
# A number or a name written by hand is far shorter; YAML's numbers to the base of 60 take their
# time.
_MAX_PLAIN: Final = 1_000
_MOST_SHOWN: Final = 100

_INT64: Final = 1 << 63

_HALF: Final = re.compile("[\ud800-\udfff]")


# As JSON and Kubernetes write numbers; to YAML 1.1 they are text without a point and a sign.
_EXPONENTIAL: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+\Z")


class _Loader(yaml.SafeLoader):
    """YAML's plain types as Kubernetes reads them: dates are text, and `1e-6` is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENTIAL, list("-+.0123456789"))


class _Dumper(yaml.SafeDumper):
    """Quotes a text exactly where `_Loader` would read something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """True: a document that people read repeats what it has twice."""
        return True


_Dumper.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the name of *known* that is closest to *name*, or ""."""
    names = sorted(known)
    by_lower = {n.lower(): n for n in names}
    if name.lower() in by_lower:
        return f"did you mean `{by_lower[name.lower()]}`?"
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean `{close[0]}`?" if close else ""


class Report:
    """The problems of one file, as they are found."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add(
        self,
        node: yaml.Node | None,
        path: str,
        message: str,
        hint: str = "",
        severity: str = "error",
    ) -> None:
        """Note a problem at *node*, which is at *path* of the document."""
        line = column = 0
        if node is not None and node.start_mark is not None:
            line, column = node.start_mark.line + 1, node.start_mark.column + 1
        text = f"{path}: {message}" if path else message
        self.problems.append(Problem(self.file, line, column, text, hint, severity))


class Field:
    """A value in a document: a YAML node, where it is, and the report for what is wrong."""

    def __init__(self, node: yaml.Node, path: str, report: Report) -> None:
        self.node = node
        self.path = path
        self.report = report

    def reporting_to(self, report: Report) -> "Field":
        """The same value with its problems passed to *report*."""
        return Field(self.node, self.path, report)

    def wrong(self, message: str, hint: str = "") -> None:
        """Report that the value is not as it must be."""
        self.report.add(self.node, self.path, message, hint)

    def refuse(self, want: str) -> None:
        """Report what is wanted in place of the value that came."""
        self.wrong(f"{want}, got {self.shown()}")

    def warn(self, message: str, hint: str = "") -> None:
        """Report something that is not an error but does not do what it says."""
        self.report.add(self.node, self.path, message, hint, "warning")

    @property
    def is_null(self) -> bool:
        """True for `null`, `~` or nothing."""
        return self.node.tag == "tag:yaml.org,2002:null"

    def shown(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.node, yaml.ScalarNode):
            text = str(self.node.value)
            if len(text) > _MOST_SHOWN:
                text = f"{text[: _MOST_SHOWN - 3]}..."
            return f'"{text}"' if self.node.tag == "tag:yaml.org,2002:str" else text or "null"
        return "a list" if isinstance(self.node, yaml.SequenceNode) else "an object"

    def text(self) -> str:
        """A string; "" after a report if it is not one."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:str":
            return str(self.node.value)
        self.wrong(f"want a string, got {self.shown()}")
        return ""

    def boolean(self) -> bool | None:
        """True or False; None after a report if it is neither."""
        value = self.scalar() if self.node.tag == "tag:yaml.org,2002:bool" else None
        if not isinstance(value, bool):
            self.wrong(f"want true or false, got {self.shown()}")
            return None
        return value

    def number(self) -> float | None:
        """A finite number; None after a report if it is not one."""
        value = self.scalar()
        with contextlib.suppress(OverflowError):  # an int beyond the floats
            if not isinstance(value, bool) and isinstance(value, int | float):
                number = float(value)
                if math.isfinite(number):
                    return number
        self.wrong(f"want a number, got {self.shown()}")
        return None

    def duration(self) -> timedelta | None:
        """A duration as Go writes it (`1m30s`); None after a report if it is not one."""
        value = self.scalar()
        if isinstance(value, int) and value == 0 and not isinstance(value, bool):
            return timedelta(0)
        if isinstance(value, str):
            sign, rest = (value[0], value[1:]) if value[:1] in ("+", "-") else ("", value)
            with contextlib.suppress(ValueError):
                seconds = seconds_of(rest)
                if seconds < 1e9:
                    return timedelta(seconds=-seconds if sign == "-" else seconds)
        self.wrong(f"want a duration such as `15s`, got {self.shown()}")
        return None

    def items(self) -> list["Field"]:
        """The elements of a list; none after a report if it is not a list. Null is empty."""
        if self.is_null:
            return []
        if not isinstance(self.node, yaml.SequenceNode):
            self.wrong(f"want a list, got {self.shown()}")
            return []
        return [
            Field(node, f"{self.path}[{index}]", self.report)
            for index, node in enumerate(self.node.value)
        ]

    def object(self) -> "Object":
        """The fields of an object; none after a report if it is not an object. Null is empty."""
        if not isinstance(self.node, yaml.MappingNode) and not self.is_null:
            self.wrong(f"want an object, got {self.shown()}")
            return Object(self, {})
        members: dict[str, Field] = {}
        for key_node, node in self.node.value if isinstance(self.node, yaml.MappingNode) else ():
            if not isinstance(key_node, yaml.ScalarNode):
                self.report.add(key_node, self.path, "want a name, got a list or an object")
                continue
            key = str(key_node.value)
            path = f"{self.path}.{key}" if self.path else key
            if key in members:
                self.report.add(key_node, path, "duplicate field")
                continue
            members[key] = Field(node, path, self.report)
        return Object(self, members)

    def at(self, *names: str) -> "Field | None":
        """The field below the fields *names*, or None; nothing on the way is reported."""
        found: Field | None = self.reporting_to(Report(self.report.file))
        for name in names:
            found = None if found is None else found.object().get(name)
        return None if found is None else found.reporting_to(self.report)

    def plain(self) -> Any:
        """The value as plain data. What JSON cannot say is reported and read as None."""
        if isinstance(self.node, yaml.MappingNode):
            members = self.object()
            return {name: members[name].plain() for name in members.names}
        if isinstance(self.node, yaml.SequenceNode):
            return [item.plain() for item in self.items()]
        value = self.scalar()
        if isinstance(value, bool | str) or value is None:
            return value
        if isinstance(value, int) and -_INT64 <= value < _INT64:
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        self.wrong(f"want plain data, got {self.shown()}")
        return None

    def scalar(self) -> Any:
        """The value of YAML's plain types; the node if it is of none, or too long to be one."""
        if not isinstance(self.node, yaml.ScalarNode):
            return self.node
        if self.node.tag == "tag:yaml.org,2002:str":
            return str(self.node.value)
        if len(self.node.value) > _MAX_PLAIN:
            return self.node
        loader = _Loader("")
        try:
            return loader.construct_object(self.node, deep=True)
        except (yaml.YAMLError, ValueError, LookupError, ArithmeticError, AttributeError):
            # A tag may be written out (`!!bool x`); its constructor does not expect another text.
            return self.node
        finally:
            loader.dispose()


# --- records ---------------------------------------------------------------------------------

T = TypeVar("T")

#: Gives the value of a field; None after a report, and for what counts as not given.
Reader = Callable[[Field], Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """How one attribute of a record is read.

    Attributes:
        read: Gives its value.
        name: The field that it is in; "": the attribute's name in camelCase.
        is_required: An absent or empty one is reported.
    """

    read: Reader
    name: str = ""
    is_required: bool = False


#: Attributes of a record, in the order in which they are read and written.
Table = Mapping[str, Entry]


def entry(
    read: Reader,
    default: Any = MISSING,
    *,
    name: str = "",
    factory: Any = MISSING,
    is_required: bool = False,
) -> Any:
    """A field of a dataclass that `record` reads with *read*; see `Entry`."""
    how = Entry(read, name, is_required)
    return dataclasses.field(default=default, default_factory=factory, metadata={Entry: how})


def table_of(kind: Any) -> Table:
    """The table of a record that says with `entry` how its attributes are read."""
    return {
        one.name: one.metadata[Entry] for one in dataclasses.fields(kind) if Entry in one.metadata
    }


def camel_case(name: str) -> str:
    """*name*, which is in snake_case, as documents have it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def record(
    kind: Callable[..., T],
    table: Table | None = None,
    check: Callable[[T, "Object"], None] = lambda made, members: None,
) -> Callable[[Field], T]:
    """Reads a *kind* by its table; *check* reports what is wrong with values that are right alone.

    The table is that of *kind*'s own entries if none is given.
    """
    columns = table_of(kind) if table is None else table

    def read(found: Field) -> T:
        members = found.object()
        made = kind(**members.values(columns))
        check(made, members)
        return made

    return read


def listed(read: Reader) -> Callable[[Field], tuple[Any, ...]]:
    """Reads a list with *read*; elements for which it gives None are left out."""
    return lambda found: tuple(one for item in found.items() if (one := read(item)) is not None)


def integer(low: int = -_INT64, high: int = _INT64 - 1) -> Reader:
    """Reads an int in *low*..*high*."""
    want = "an int"
    if low > -_INT64:
        want += f" of at least {low}" if high == _INT64 - 1 else f" in {low}..{high}"

    def read(found: Field) -> int | None:
        value = found.scalar() if found.node.tag == "tag:yaml.org,2002:int" else None
        if isinstance(value, int) and low <= value <= high:
            return value
        found.refuse(f"want {want}")
        return None

    return read


def choice(*values: str) -> Reader:
    """Reads one of *values*."""
    known = ", ".join(f"`{v}`" for v in values)

    def read(found: Field) -> str | None:
        value = found.text()
        if value and value not in values:
            found.wrong(f'want one of {known}, got "{value}"', did_you_mean(value, values))
            return None
        return value or None

    return read


def unless_empty(read: Reader) -> Reader:
    """Reads with *read*; what is zero or empty counts as not given, as it does for Kubernetes."""
    return lambda found: read(found) or None


def checked(
    read: Reader, holds: Callable[[Any], bool], *, want: str = "", wrong: str = ""
) -> Reader:
    """Reads with *read* and gives a value only if it *holds*.

    Another one is answered with *want* and what came, or with *wrong* as it is.
    """

    def checking(found: Field) -> Any:
        value = read(found)
        if value is None or holds(value):
            return value
        found.wrong(wrong or f"{want}, got {found.shown()}")
        return None

    return checking


def plain(value: Any) -> Any:
    """*value*, a record or a part of one, as the plain data that it is read from."""
    if dataclasses.is_dataclass(value):
        return plain_record(value, table_of(value))
    if isinstance(value, timedelta):
        return go_duration(value.total_seconds())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [plain(one) for one in value] if isinstance(value, tuple) else value


def plain_record(made: Any, table: Table) -> dict[str, Any]:
    """The fields of *made* by *table*, as `record` reads them; None for those that it lacks."""
    return {
        how.name or camel_case(name): plain(getattr(made, name, None))
        for name, how in table.items()
    }


class Object:
    """The fields of an object. Each field is read once; `finish` reports the others."""

    def __init__(self, owner: Field, members: dict[str, Field]) -> None:
        self.owner = owner
        self._members = members
        self._asked: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The names of the fields that are there, in order."""
        return list(self._members)

    def __getitem__(self, name: str) -> Field:
        return self._members[name]

    def get(self, name: str) -> Field | None:
        """The field *name*, or None if it is absent or null."""
        self._asked.add(name)
        found = self._members.get(name)
        return None if found is None or found.is_null else found

    def read(self, name: str, reader: "Reader", default: Any = None) -> Any:
        """What *reader* makes of the field *name*; the default if it is absent or wrong."""
        found = self.get(name)
        value = None if found is None else reader(found)
        return default if value is None else value

    def text(self, name: str) -> str:
        """A string field; "" if it is absent or wrong."""
        return str(self.read(name, Field.text, ""))

    def values(self, table: "Table") -> dict[str, Any]:
        """The values of *table*'s fields that are there and right, by attribute.

        Fields that the table lacks are reported, unless they were read before.
        """
        values: dict[str, Any] = {}
        for attribute, how in table.items():
            name = how.name or camel_case(attribute)
            value = self.read(name, how.read)
            if how.is_required and not value:
                self.place(name).wrong(f"{name}: required value")
            if value is not None:
                values[attribute] = value
        self.finish()
        return values

    def place(self, name: str) -> Field:
        """Where the field *name* is, or else the object: for a problem with either."""
        return self.get(name) or self.owner

    def finish(self) -> None:
        """Report every field that was not asked for."""
        for name, member in self._members.items():
            if name not in self._asked:
                member.wrong("unknown field", did_you_mean(name, list(self._asked)))


def is_plain(value: Any) -> bool:
    """True if `Field.plain` reads *value* again from the text that `write_documents` makes."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and is_plain(one) for name, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, bool | str) or value is None:
        return True
    if isinstance(value, int):
        return -_INT64 <= value < _INT64
    return isinstance(value, float) and math.isfinite(value)


def write_documents(documents: Iterable[Any]) -> str:
    """YAML that `read_documents` reads as *documents*, which are plain data."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, explicit_start=False
    )


def nowhere(path: str, report: Report, node: yaml.Node | None = None) -> Field:
    """A null value that no document has, for problems at *path*; they show where *node* is."""
    mark = None if node is None else node.start_mark
    return Field(yaml.ScalarNode("tag:yaml.org,2002:null", "", mark), path, report)


def read_documents(file: str, text: str) -> tuple[list[Field], list[Problem]]:
    """The documents of a YAML (or JSON) text that hold anything; or what makes it none."""
    report = Report(file)
    if len(text) > _MAX_CHARACTERS:
        message = f"want at most {_MAX_CHARACTERS:,} characters, got {len(text):,}"
        return [], [Problem(file, 1, 1, message)]
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
        count = sum(_count(node) for node in nodes)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        what = error.problem or error.context or "not YAML"
        hint = "indent with spaces: YAML takes no tabs" if "'\\t'" in what else ""
        return [], [Problem(file, line, column, f"not YAML: {what}", hint)]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = " ".join(str(error).split()) or "nested too deep"
        return [], [Problem(file, 0, 0, f"not YAML: {what[:200]}")]
    if count > _MAX_NODES:
        return [], [Problem(file, 1, 1, "want a smaller document: its aliases repeat too much")]
    documents = [Field(node, "", report) for node in nodes]
    return [document for document in documents if not document.is_null], report.problems


def _count(node: yaml.Node) -> int:
    """How many values a document has with its aliases expanded; counting stops at the bound."""
    count = 0
    stack = [(node, 0)]
    while stack and count <= _MAX_NODES:
        current, depth = stack.pop()
        count += 1
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        if isinstance(current, yaml.MappingNode):
            stack.extend((part, depth + 1) for pair in current.value for part in pair)
        elif isinstance(current, yaml.SequenceNode):
            stack.extend((part, depth + 1) for part in current.value)
        elif _HALF.search(current.value):  # made by an escape
            raise ValueError("half a character (a lone surrogate)")
    return count
