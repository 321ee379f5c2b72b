"""Names of capacities and attributes: with a domain, or without, which then is the driver's.

Owns which names are one. They are two where `Behaviors.names_in_full` is not set.
"""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def full_name(name: str, driver: str) -> str:
    """*name* with its domain, which is *driver* where it says none."""
    return name if "/" in name else f"{driver}/{name}"


def by_full_name(values: Mapping[str, T], driver: str) -> dict[str, T]:
    """*values* by full name; of two of one name, the one that says its domain counts."""
    found = {full_name(name, driver): value for name, value in values.items()}
    if len(found) < len(values):
        found.update((name, value) for name, value in values.items() if "/" in name)
    return found
