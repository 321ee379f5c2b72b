"""Amounts of devices: what a device has, what a request takes of it, and if it still fits.

Owns request policies (defaults, ranges, steps, valid values). All amounts are in exact units of
10^-9, as quantities are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.model.devices import (
    CapacityRequirements,
    Counter,
    DeviceCapacity,
    QuantityText,
)
from engine.model.quantity import NANO, nano_value, whole_from_nano

Nanos = dict[str, int]

_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device, with its policy for requests."""

    value: int
    has_policy: bool = False
    default: int | None = None
    valid_values: tuple[int, ...] = ()
    has_range: bool = False
    minimum: int | None = None
    maximum: int | None = None
    step: int | None = None

    @classmethod
    def of(cls, record: DeviceCapacity) -> "Capacity":
        """The capacity of a record. Raises `QuantityError` for a malformed quantity."""
        policy = record.request_policy
        if policy is None:
            return cls(nano_value(record.value))
        valid = policy.valid_range
        return cls(
            value=nano_value(record.value),
            has_policy=True,
            default=_optional(policy.default),
            valid_values=tuple(nano_value(v) for v in policy.valid_values),
            has_range=valid is not None,
            minimum=_optional(valid.min) if valid else None,
            maximum=_optional(valid.max) if valid else None,
            step=_optional(valid.step) if valid else None,
        )

    def consumed_by(self, requested: int | None) -> int | None:
        """What a request for *requested* (None: it names no amount) takes; None: not allowed."""
        taken = self._rounded(requested)
        return None if self._is_forbidden(taken) else taken

    def _rounded(self, requested: int | None) -> int:
        if requested is None:
            return self.value if self.default is None else self.default
        if self.minimum is not None:
            if requested < self.minimum:
                return self.minimum
            if self.step is None:
                return requested
            low, step = whole_from_nano(self.minimum), whole_from_nano(self.step)
            if step <= 0:
                return requested
            steps = -(-(whole_from_nano(requested) - low) // step)
            return (low + step * steps) * NANO
        return next((valid for valid in self.valid_values if requested <= valid), requested)

    def _is_forbidden(self, taken: int) -> bool:
        if not self.has_policy or taken == self.default:
            return False
        if self.has_range:
            if self.maximum is not None and taken > self.maximum:
                return True
            if self.step is None:
                return False
            low, step = whole_from_nano(self.minimum or 0), whole_from_nano(self.step)
            return step > 0 and (whole_from_nano(taken) - low) % step != 0
        return bool(self.valid_values) and taken not in self.valid_values


def _optional(quantity: QuantityText | None) -> int | None:
    return None if quantity is None else nano_value(quantity)


def capacities(records: Mapping[str, DeviceCapacity]) -> dict[str, Capacity]:
    """Capacities by name. Raises `QuantityError` for a malformed quantity."""
    return {name: Capacity.of(record) for name, record in records.items()}


def counters(records: Mapping[str, Counter]) -> Nanos:
    """Counters by name. Raises `QuantityError` for a malformed quantity."""
    return {name: nano_value(counter.value) for name, counter in records.items()}


def requested_amounts(requirements: CapacityRequirements | None) -> Nanos:
    """What a request asks of capacities. Raises `QuantityError` for a malformed quantity."""
    if requirements is None:
        return {}
    return {name: nano_value(amount) for name, amount in requirements.requests.items()}


def consumption(requested: Mapping[str, int], offered: Mapping[str, Capacity]) -> Nanos | None:
    """What *requested* takes of a device that offers *offered*, for each of its capacities.

    None if the device lacks a capacity that is asked for, or its policy forbids the amount.
    """
    if not requested.keys() <= offered.keys():
        return None
    taken: Nanos = {}
    for name, capacity in offered.items():
        amount = capacity.consumed_by(requested.get(name))
        if amount is None:
            return None
        taken[name] = amount
    return taken


def fits(
    taken: Mapping[str, int],
    offered: Mapping[str, Capacity],
    allocated: Mapping[str, int],
    allocating: Mapping[str, int],
) -> bool:
    """Whether *taken* is left of *offered* next to what is allocated or about to be."""
    return all(
        amount + allocated.get(name, 0) + allocating.get(name, 0) <= offered[name].value
        for name, amount in taken.items()
    )


def quantity_text(nanos: int) -> str:
    """The shortest common text of an amount: whole, with a binary suffix, or in 10^-9."""
    if nanos % NANO:
        for suffix, unit in (("m", 10**6), ("u", 10**3)):
            if nanos % unit == 0:
                return f"{nanos // unit}{suffix}"
        return f"{nanos}n"
    whole, power = nanos // NANO, 0
    while whole and whole % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY_SUFFIXES[power]}"
