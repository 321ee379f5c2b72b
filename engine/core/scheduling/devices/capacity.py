"""Amounts of devices: what a device has, what a request takes of it, and if it still fits.

Owns request policies (defaults, ranges, steps, valid values). All amounts are in exact units of
10^-9, as quantities are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.core.model.devices import CapacityRequirements, Counter, DeviceCapacity, QuantityText
from engine.core.model.quantity import (
    INT64_MAX,
    NANO,
    Format,
    canonical_text,
    format_of,
    nano_value,
    whole_from_nano,
)

Nanos = dict[str, int]


class CapacityError(Exception):
    """An amount that no device can provide: the request or a device is at fault."""


class Amount(NamedTuple):
    """An amount and how it is written."""

    nanos: int
    format: Format

    @classmethod
    def of(cls, quantity: QuantityText) -> "Amount":
        """The amount of a quantity. Raises `QuantityError` if it is malformed."""
        nanos, written = nano_value(quantity), format_of(quantity)
        if written == "BinarySI":  # these, and only these, saturate
            nanos = max(-INT64_MAX * NANO, min(nanos, INT64_MAX * NANO))
        return cls(nanos, written)

    def __str__(self) -> str:
        """In the canonical form of quantities."""
        return canonical_text(self.nanos, self.format)


Amounts = dict[str, Amount]


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device, with its policy for requests."""

    value: Amount
    has_policy: bool = False
    default: Amount | None = None
    valid_values: tuple[Amount, ...] = ()
    has_range: bool = False
    minimum: Amount | None = None
    maximum: Amount | None = None
    step: Amount | None = None

    @classmethod
    def of(cls, record: DeviceCapacity) -> "Capacity":
        """The capacity of a record. Raises `QuantityError` for a malformed quantity."""
        policy = record.request_policy
        if policy is None:
            return cls(Amount.of(record.value))
        valid = policy.valid_range
        return cls(
            value=Amount.of(record.value),
            has_policy=True,
            default=_optional(policy.default),
            valid_values=tuple(Amount.of(v) for v in policy.valid_values),
            has_range=valid is not None,
            minimum=_optional(valid.min) if valid else None,
            maximum=_optional(valid.max) if valid else None,
            step=_optional(valid.step) if valid else None,
        )

    def taken_by(self, requested: Amount | None) -> Amount:
        """What a request for *requested* (None: it names no amount) takes.

        Raises `CapacityError` if that is negative, or too large to be rounded.
        """
        taken = self._rounded(requested)
        if taken.nanos < 0:
            raise CapacityError("capacity value is negative")
        return taken

    def _rounded(self, requested: Amount | None) -> Amount:
        if requested is None:
            return self.value if self.default is None else self.default
        if self.minimum is not None:
            if requested.nanos < self.minimum.nanos:
                return self.minimum
            if self.step is None:
                return requested
            return _rounded_up(requested, self.minimum, self.step)
        return next((v for v in self.valid_values if requested.nanos <= v.nanos), requested)

    def allows(self, taken: Amount) -> bool:
        """Whether the policy allows to take that much."""
        if not self.has_policy or (self.default is not None and taken.nanos == self.default.nanos):
            return True
        if self.has_range:
            if self.maximum is not None and taken.nanos > self.maximum.nanos:
                return False
            if self.step is None:
                return True
            low = whole_from_nano(self.minimum.nanos) if self.minimum is not None else 0
            step = whole_from_nano(self.step.nanos)
            return step <= 0 or (whole_from_nano(taken.nanos) - low) % step == 0
        return not self.valid_values or any(taken.nanos == v.nanos for v in self.valid_values)


_NOT_REPRESENTABLE: Final = (
    "capacity request cannot be represented in the device's range arithmetic"
)


def _rounded_up(requested: Amount, minimum: Amount, step_size: Amount) -> Amount:
    """The next step at or above *requested*, counted from *minimum* in whole numbers."""
    if requested.nanos > INT64_MAX * NANO:
        raise CapacityError(f"{_NOT_REPRESENTABLE}: request {requested} exceeds MaxInt64")
    low, step = whole_from_nano(minimum.nanos), whole_from_nano(step_size.nanos)
    if step <= 0:
        return requested
    rounded = low + step * -(-(whole_from_nano(requested.nanos) - low) // step)
    if rounded > INT64_MAX:
        raise CapacityError(
            f"{_NOT_REPRESENTABLE}: rounding request {requested} up to the next step "
            "passes MaxInt64"
        )
    return Amount(rounded * NANO, step_size.format)


def _optional(quantity: QuantityText | None) -> Amount | None:
    return None if quantity is None else Amount.of(quantity)


def capacities(records: Mapping[str, DeviceCapacity]) -> dict[str, Capacity]:
    """Capacities by name. Raises `QuantityError` for a malformed quantity."""
    return {name: Capacity.of(record) for name, record in records.items()}


def counters(records: Mapping[str, Counter]) -> Nanos:
    """Counters by name. Raises `QuantityError` for a malformed quantity."""
    return {name: nano_value(counter.value) for name, counter in records.items()}


def requested_amounts(requirements: CapacityRequirements | None) -> Amounts:
    """What a request asks of capacities. Raises `QuantityError` for a malformed quantity."""
    if requirements is None:
        return {}
    return {name: Amount.of(amount) for name, amount in requirements.requests.items()}


def consumption(requested: Mapping[str, Amount], offered: Mapping[str, Capacity]) -> Amounts | None:
    """What *requested* takes of a device that offers *offered*, for each of its capacities.

    None if the device lacks a capacity that is asked for, or its policy forbids the amount. Raises
    `CapacityError` for an amount that makes the request impossible on any device.
    """
    if not requested.keys() <= offered.keys():
        return None
    taken: Amounts = {}
    for name, capacity in offered.items():
        try:
            taken[name] = capacity.taken_by(requested.get(name))
        except CapacityError as error:
            raise CapacityError(f'capacity "{name}": {error}') from error
    if not all(offered[name].allows(amount) for name, amount in taken.items()):
        return None
    return taken


def fits(
    taken: Mapping[str, Amount],
    offered: Mapping[str, Capacity],
    allocated: Mapping[str, int],
    allocating: Mapping[str, int],
) -> bool:
    """Whether *taken* is left of *offered* next to what is allocated or about to be."""
    return all(
        amount.nanos + allocated.get(name, 0) + allocating.get(name, 0) <= offered[name].value.nanos
        for name, amount in taken.items()
    )
