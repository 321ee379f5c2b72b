"""Readings: values as a source gave them, before they have an age.

Owns the forms in which a value may be written (a plain one, or an object with the time when it was
measured) and the document in which a file or a ConfigMap gives many of them. Bad data are readings
too: what they mean is the policies' to judge. Pure.
"""

import codecs
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from engine.core.model.fact import Fact, number_of, text_of
from engine.core.model.times import epoch_seconds
from engine.lib.deep_json import UNREADABLE
from engine.lib.json_keys import repeated_key

#: Bytes of a document of readings: some hundred thousand nodes or series take so much.
MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """A value as it came.

    Attributes:
        value, text: As in a `Fact`.
        measured_at: Seconds since the epoch; None if unknown.
    """

    value: int | float | None
    text: str
    measured_at: float | None = None

    def fact(self, now: float, step_seconds: float) -> Fact:
        """What policies see of it at *now*, its age rounded down to whole steps.

        A time in the future is no age: clocks differ, and it counts as measured now.
        """
        age = None
        if self.measured_at is not None:
            elapsed = max(0.0, now - self.measured_at)
            age = int(math.floor(elapsed / step_seconds) * step_seconds)
        return Fact(self.value, self.text, age)


Readings = Mapping[str, Reading]

CLUSTER: Final = ("cluster",)
#: What a reading is about: `("node", name)`, `("pod", key)`, `("type", type)`,
#: `("pair", type, node)` or `("cluster",)`.
Subject = tuple[str, ...]


def reading_of(given: Any, measured_at: float | None = None, now: float | None = None) -> Reading:
    """The reading of a value: a number or text, or an object with `value` and `time`.

    `time` is in seconds since the epoch or RFC 3339; in its place `age_seconds` may be given if
    *now* is. *measured_at* is for values that say neither.
    """
    if isinstance(given, Mapping):
        at = time_of(given.get("time"))
        age = number_of(given.get("age_seconds"))
        if at is None and now is not None and age is not None:
            at = time_of(now - age)
        inner = given.get("value")
        if isinstance(inner, Mapping):
            inner = None
        text = given.get("text")
        shown = text if isinstance(text, str) else text_of(inner)
        return Reading(number_of(inner), shown, measured_at if at is None else at)
    return Reading(number_of(given), text_of(given), measured_at)


def reading_of_text(text: str) -> Reading:
    """The reading of an annotation: a number as text, or a JSON object."""
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            return reading_of(msgspec.json.decode(stripped))
        except UNREADABLE:
            return Reading(None, text)
    return Reading(number_of(text), text)


# The years 1 to 9999, as in RFC 3339. Numbers beyond it are milliseconds, or no time at all.
_EARLIEST: Final = -62_135_596_800
_LATEST: Final = 253_402_300_799


def time_of(given: Any) -> float | None:
    """Seconds since the epoch of an RFC 3339 text or a number of seconds; None if it is neither."""
    if isinstance(given, str):
        return epoch_seconds(given)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given) if _EARLIEST <= given <= _LATEST else None
    return None


# --- documents -------------------------------------------------------------------------------


@dataclass(slots=True)
class Document:
    """The readings of a facts document, and its malformed parts."""

    readings: dict[Subject, dict[str, Reading]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


# Section of a document to the word of its subjects.
_SECTIONS: Final = {"nodes": "node", "pods": "pod", "types": "type"}
_SHOWN_PROBLEMS: Final = 10


def read_document(
    text: str | bytes, *, measured_at: float | None = None, now: float | None = None
) -> Document:
    """The readings of a JSON document; see `docs/facts.md` for its form.

    A part of the wrong shape is left out and reported; the rest counts. Never raises.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        given = msgspec.json.decode(raw)
    except UNREADABLE as error:
        return Document(problems=[f"not JSON: {error}"])
    document = read_plain(given, measured_at=measured_at, now=now)
    if (key := repeated_key(raw)) is not None:
        problem = f"the key `{key}` is there twice in an object: the last one counts"
        document.problems.insert(0, problem)
    return document


def read_plain(
    given: Any, *, measured_at: float | None = None, now: float | None = None
) -> Document:
    """As `read_document`, of data that are decoded already."""
    document = Document()
    if not isinstance(given, Mapping):
        document.problems.append(f"want an object, got {_shown(given)}")
        return document
    at = time_of(given.get("time"))
    at = measured_at if at is None else at
    for section, values in given.items():
        if section == "time":
            if time_of(values) is None:
                document.problems.append(f"time: want a time, got {_shown(values)}")
            continue
        if section == "cluster":
            _take(document, CLUSTER, "cluster", values, at, now)
        elif section in _SECTIONS:
            for name, inner in _objects(document, section, values):
                _take(document, (_SECTIONS[section], name), f"{section}.{name}", inner, at, now)
        elif section == "pairs":
            for type_, nodes in _objects(document, section, values):
                for node, inner in _objects(document, f"pairs.{type_}", nodes):
                    subject = ("pair", type_, node)
                    _take(document, subject, f"pairs.{type_}.{node}", inner, at, now)
        else:
            want = ", ".join(f"`{s}`" for s in ("time", "cluster", *_SECTIONS, "pairs"))
            document.problems.append(f"{section}: unknown section, want one of {want}")
    more = len(document.problems) - _SHOWN_PROBLEMS
    if more > 0:
        document.problems[_SHOWN_PROBLEMS:] = [f"and {more} more"]
    return document


def _objects(document: Document, path: str, given: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        document.problems.append(f"{path}: want an object, got {_shown(given)}")
        return
    yield from given.items()


def _take(
    document: Document,
    subject: Subject,
    path: str,
    given: Any,
    measured_at: float | None,
    now: float | None,
) -> None:
    readings = {
        str(name): reading_of(value, measured_at, now)
        for name, value in _objects(document, path, given)
    }
    if readings:
        document.readings.setdefault(subject, {}).update(readings)


def _shown(given: Any) -> str:
    text = text_of(given) or "null"
    return text if len(text) <= 60 else text[:57] + "..."
