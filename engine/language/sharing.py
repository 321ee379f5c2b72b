"""The builtins for shares: `divide`, and `quantity`, which reads amounts as objects write them.

Owns their form in the language. What `divide` gives is `core.sharing.divide`'s; vectors and ratios,
which Starlark can express, are in `@std/amounts.star`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from engine.core.model.quantity import QuantityError, resource_amount
from engine.core.sharing.amounts import LARGEST
from engine.core.sharing.divide import ROUNDINGS, Entry, Rounding
from engine.core.sharing.divide import divide as divided
from engine.language.table import Builtin, Parameter, kinds

_FIELDS: Final = tuple(one.name for one in dataclasses.fields(Entry))


def divide(
    total: int, entries: Sequence[Any], rounding: Rounding = "largest_remainder", past: int = 0
) -> dict[str, int]:
    """What each of *entries* gets of *total*, by name.

    Raises ValueError for an entry that is none, and for two of one name.
    """
    if not isinstance(entries, list | tuple):
        raise ValueError("entries: want a list")
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding: want one of {', '.join(ROUNDINGS)}")
    made = [_entry(place, one) for place, one in enumerate(entries)]
    names = {one.name for one in made}
    if len(names) < len(made):
        raise ValueError("two entries have the same name")
    return divided(_amount("total", total), made, rounding, _amount("past", past))


def _entry(place: int, given: Any) -> Entry:
    try:
        values = {name: getattr(given, name) for name in _FIELDS}
    except AttributeError:
        raise ValueError(
            f"entries[{place}] is not what `entry(name)` of @std/amounts.star makes"
        ) from None
    if type(values["name"]) is not str:
        raise ValueError(f"entries[{place}]: want a text as name")
    for name, value in values.items():
        if name != "name" and not (name == "most" and value is None):
            _amount(f"{name} of `{values['name']}`", value)
    if values["weight"] < 0:
        raise ValueError(f"weight of `{values['name']}`: want at least 0, got {values['weight']}")
    return Entry(**values)


def _amount(name: str, value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{name}: want an int")
    return value


def quantity(given: str | int | float, resource: str = "") -> int:
    """What *given*, a Kubernetes quantity such as `1500m` or `2Gi`, is of *resource*.

    Millicores of `cpu`; of others whole units, rounded up. Raises ValueError for what is none.
    """
    if type(resource) is not str:
        raise ValueError("resource: want a text")
    try:
        found = resource_amount(resource, given)
    except QuantityError as error:
        raise ValueError(str(error)) from None
    return max(-LARGEST, min(found, LARGEST))


ENTRIES: Final[tuple[Builtin, ...]] = (
    Builtin(
        name="quantity",
        parameters=(
            Parameter("given", kinds("str int float"), "a quantity such as `2Gi`"),
            Parameter("resource", kinds("str"), "the name of a resource", '""'),
        ),
        result="int",
        bounds=(-LARGEST, LARGEST),
        python=quantity,
        doc="A Kubernetes quantity as an int: millicores for the resource `cpu`, else whole units "
        "rounded up.",
    ),
    Builtin(
        name="divide",
        parameters=(
            Parameter("total", kinds("int"), "an int"),
            Parameter("entries", kinds("list tuple"), "a list of entries"),
            Parameter(
                "rounding", kinds("str"), "a rounding", f'"{ROUNDINGS[0]}"', choices=ROUNDINGS
            ),
            Parameter("past", kinds("int"), "an int", "0"),
        ),
        result="dict[str, int]",
        python=divide,
        doc="What each of *entries* (`entry(name)` of `@std/amounts.star`) gets of *total*, "
        "by name; *past*: the weight of what was used before, in thousandths.",
    ),
)
