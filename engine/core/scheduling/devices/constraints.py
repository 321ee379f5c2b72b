"""Constraints over the devices of a claim: the same value of an attribute, or all different.

Where lists are compared (`Behaviors.compares_lists`), a value is a set of elements: all devices
have one in common, or no two of them do.
"""

from functools import lru_cache
from typing import Any, Final, TypeVar

from engine.core.model.devices import DeviceAttribute, DeviceConstraint
from engine.core.scheduling.devices.pools import PoolDevice
from engine.core.scheduling.devices.values import CelError, Semver

T = TypeVar("T")

#: An attribute of a type that cannot be compared: it goes with no other device.
_INCOMPARABLE: Final = ("", None)


class IncomparableAttribute(Exception):
    """A constraint is on an attribute that cannot be compared; the text names device and it."""


class Constraint:
    """What must hold over the devices of some requests; devices come and go while searching.

    Once it refuses a device in addition to those that it has, adding others does not change that.
    """

    def __init__(self, record: DeviceConstraint) -> None:
        self._requests = frozenset(record.requests)
        self._is_distinct = record.match_attribute is None
        self._attribute = record.match_attribute or record.distinct_attribute or ""
        self._values: list[Any] = []

    def _applies(self, request: str, sub_request: str) -> bool:
        if not self._requests:
            return True
        return request in self._requests or (
            bool(sub_request) and f"{request}/{sub_request}" in self._requests
        )

    def add(self, request: str, sub_request: str, device: PoolDevice) -> bool:
        """Add *device* if the constraint then still holds; False if it does not.

        Raises `IncomparableAttribute` where kube-scheduler gives up then.
        """
        if not self._applies(request, sub_request):
            return True
        compares_lists = device.behaves.compares_lists
        value = _attribute(device, self._attribute, as_list=compares_lists)
        if value is None:
            return False
        if value is _INCOMPARABLE and device.behaves.incomparable_attributes_fail:
            raise IncomparableAttribute(
                f"device {device.text}: unsupported attribute value for {self._attribute}"
            )
        if compares_lists:
            value = self._narrowed(*value)
            if value is None:
                return False
        elif self._values:
            if value is _INCOMPARABLE:
                return False
            if (value in self._values) if self._is_distinct else (value != self._values[0]):
                return False
        self._values.append(value)
        return True

    def _narrowed(self, kind: str, elements: Any) -> tuple[str, frozenset[Any]] | None:
        """What a device with these *elements* leaves to the next one; None if it may not be added.

        Of distinct attributes these are its own elements, else those that all devices have.
        """
        if elements is None:
            return None
        if self._is_distinct:
            has_any = any(kind == of and not elements.isdisjoint(own) for of, own in self._values)
            return None if has_any else (kind, elements)
        if self._values:
            of, known = self._values[-1]
            elements = elements & known if kind == of else None
        return (kind, elements) if elements else None

    def remove(self, request: str, sub_request: str) -> None:
        """Remove the device that was added last."""
        if self._applies(request, sub_request):
            self._values.pop()


def _attribute(device: PoolDevice, name: str, *, as_list: bool) -> tuple[str, Any] | None:
    """The value of an attribute with its type; None if *device* has none of that name.

    *as_list*: the set of its elements.
    """
    attribute = device.attributes.get(name)
    if attribute is None:
        domain, slash, identifier = name.partition("/")
        if not slash or domain != device.driver:
            return None
        attribute = device.attributes.get(identifier)
    if attribute is None:
        return None
    if as_list:
        return _elements(attribute, is_semantic=device.behaves.semantic_versions)
    if attribute.string_value is not None:
        return ("string", attribute.string_value)
    if attribute.int_value is not None:
        return ("int", attribute.int_value)
    if attribute.bool_value is not None:
        return ("bool", attribute.bool_value)
    if attribute.version_value is not None:
        if not device.behaves.semantic_versions:
            return ("version", attribute.version_value)
        version = _version(attribute.version_value)
        return _INCOMPARABLE if version is None else ("version", version)
    return _INCOMPARABLE


def _elements(attribute: DeviceAttribute, *, is_semantic: bool) -> tuple[str, Any]:
    """The elements of a list, or the one of a value, as a set; with their type."""
    if (versions := attribute.version_values or _one(attribute.version_value)) and is_semantic:
        parsed = frozenset(map(_version, versions))
        return _INCOMPARABLE if None in parsed else ("version", parsed)
    for kind, elements in (
        ("int", attribute.int_values or _one(attribute.int_value)),
        ("bool", attribute.bool_values or _one(attribute.bool_value)),
        ("string", attribute.string_values or _one(attribute.string_value)),
        ("version", versions),
    ):
        if elements:
            return kind, frozenset(elements)
    return _INCOMPARABLE


def _one(value: T | None) -> list[T]:
    return [] if value is None else [value]


@lru_cache(maxsize=4096)
def _version(text: str) -> Semver | None:
    try:
        return Semver.parse(text)
    except CelError:
        return None
