"""Facts: what was measured or learned about a node, a kind of pod, or a pair of them.

Owns one value with its age, and the values that belong to one node. Where facts come from is
`engine.io.facts`'; what they mean is the policies'.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_INT64: Final = 1 << 63
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


class Fact(msgspec.Struct, frozen=True):
    """A value with its age.

    Attributes:
        value: The number; None if what came is not a finite number.
        text: What came, as it was written.
        age_seconds: How old it was when it was last looked at, in whole steps of the
            configuration; None if that is unknown.
    """

    value: int | float | None
    text: str
    age_seconds: int | None = None

    def plain(self, *, with_age: bool) -> dict[str, Any]:
        """The fact as a policy gets it."""
        plain: dict[str, Any] = {"value": self.value, "text": self.text}
        if with_age:
            plain["age_seconds"] = self.age_seconds
        return plain


Facts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of one node.

    Attributes:
        own: About the node, by name.
        of_pods: About kinds of pods on this node: by name, then by the pods' type.
    """

    own: Facts
    of_pods: Mapping[str, Facts]


NO_FACTS: Final = NodeFacts({}, {})

#: The labels that name a pod's type, if the configuration names no others.
DEFAULT_TYPE_LABELS: Final = ("app.kubernetes.io/name", "app")


def pod_type(labels: Mapping[str, str], name: str, type_labels: Sequence[str]) -> str:
    """The type of a pod: the first of *type_labels* that it has, else its name."""
    return next((labels[key] for key in type_labels if labels.get(key)), name)


def number_of(given: Any) -> int | float | None:
    """The finite number that *given* (a text or a JSON value) is, or None."""
    if isinstance(given, bool):
        return None
    if isinstance(given, int):
        return given if -_INT64 <= given < _INT64 else None
    if isinstance(given, float):
        return given if math.isfinite(given) else None
    if isinstance(given, str):
        text = given.strip()
        if _INTEGER.fullmatch(text):
            return number_of(int(text))
        if _NUMBER.fullmatch(text):
            return number_of(float(text))
    return None


def text_of(given: Any) -> str:
    """How *given* (a text or a JSON value) is written."""
    if isinstance(given, str):
        return given
    try:
        return msgspec.json.encode(given).decode() if given is not None else ""
    except RecursionError:
        return ""  # lists of lists, of hundreds of levels
