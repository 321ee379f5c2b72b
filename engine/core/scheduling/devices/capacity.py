"""Amounts of devices: what a device has, what a request takes of it, and if it still fits.

Owns request policies (defaults, ranges, steps, valid values). All amounts are in exact units of
10^-9, as quantities are; the steps of ranges are counted in whole numbers, or in thousandths.
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
from engine.core.scheduling.devices.names import full_name

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
    in_thousandths: bool = False

    @classmethod
    def of(cls, record: DeviceCapacity, *, is_fractional: bool = False) -> "Capacity":
        """The capacity of a record. Raises `QuantityError` for a malformed quantity.

        *is_fractional*: a range is counted in thousandths, if all that it says can be.
        """
        policy = record.request_policy
        if policy is None:
            return cls(Amount.of(record.value))
        valid = policy.valid_range
        bounds = [_optional(q) for q in (valid.min, valid.max, valid.step)] if valid else [None] * 3
        minimum, maximum, step = bounds
        return cls(
            value=Amount.of(record.value),
            has_policy=True,
            default=_optional(policy.default),
            valid_values=tuple(Amount.of(v) for v in policy.valid_values),
            has_range=valid is not None,
            minimum=minimum,
            maximum=maximum,
            step=step,
            in_thousandths=is_fractional
            and all(bound is None or _thousandths(bound) is not None for bound in bounds)
            and (step is None or step.nanos > 0),
        )

    def taken_by(self, requested: Amount | None) -> Amount:
        """What a request for *requested* (None: it names no amount) takes.

        Raises `CapacityError` if that is negative, or too large to be rounded.
        """
        taken = self._rounded(requested)
        if taken.nanos < 0:
            raise CapacityError(_NEGATIVE)
        return taken

    def _rounded(self, requested: Amount | None) -> Amount:
        if requested is None:
            return self.value if self.default is None else self.default
        if self.minimum is not None:
            if requested.nanos < self.minimum.nanos:
                return self.minimum
            if self.step is None:
                return requested
            if self.in_thousandths:
                return _rounded_up_in_thousandths(requested, self.minimum, self.step)
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
            if self.in_thousandths:
                return self._is_step_in_thousandths(taken)
            low = whole_from_nano(self.minimum.nanos) if self.minimum is not None else 0
            step = whole_from_nano(self.step.nanos)
            return step <= 0 or (whole_from_nano(taken.nanos) - low) % step == 0
        return not self.valid_values or any(taken.nanos == v.nanos for v in self.valid_values)

    def _is_step_in_thousandths(self, taken: Amount) -> bool:
        amount = _thousandths(taken)
        low = self.minimum.nanos if self.minimum is not None else 0
        step = self.step.nanos if self.step is not None else 0
        return amount is not None and (taken.nanos - low) % step == 0


_NEGATIVE: Final = "capacity value is negative"
_THOUSANDTH: Final = NANO // 1000
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


def _thousandths(amount: Amount) -> int | None:
    """*amount* in thousandths; None if it is no whole number of them, or beyond an int64."""
    thousandths, rest = divmod(amount.nanos, _THOUSANDTH)
    return None if rest or abs(thousandths) > INT64_MAX else thousandths


def _rounded_up_in_thousandths(requested: Amount, minimum: Amount, step_size: Amount) -> Amount:
    """The next step at or above *requested*, counted from *minimum*, which is no more than that."""
    if _thousandths(requested) is None:
        raise CapacityError(
            f"{_NOT_REPRESENTABLE}: request {requested} is not a representable milli value"
        )
    steps = -(-(requested.nanos - minimum.nanos) // step_size.nanos)
    rounded = Amount(minimum.nanos + step_size.nanos * steps, step_size.format)
    if _thousandths(rounded) is None:
        raise CapacityError(
            f"{_NOT_REPRESENTABLE}: rounding request {requested} up to the next step "
            "passes the milli-value range"
        )
    return rounded


def _optional(quantity: QuantityText | None) -> Amount | None:
    return None if quantity is None else Amount.of(quantity)


def capacities(
    records: Mapping[str, DeviceCapacity], *, are_fractional: bool = False
) -> dict[str, Capacity]:
    """Capacities by name. Raises `QuantityError` for a malformed quantity.

    *are_fractional*: ranges are counted in thousandths, where all that they say can be.
    """
    return {
        name: Capacity.of(record, is_fractional=are_fractional) for name, record in records.items()
    }


def counters(records: Mapping[str, Counter]) -> Nanos:
    """Counters by name. Raises `QuantityError` for a malformed quantity."""
    return {name: nano_value(counter.value) for name, counter in records.items()}


def requested_amounts(requirements: CapacityRequirements | None) -> Amounts:
    """What a request asks of capacities. Raises `QuantityError` for a malformed quantity."""
    if requirements is None:
        return {}
    return {name: Amount.of(amount) for name, amount in requirements.requests.items()}


def requested_in_full(requested: Amounts, driver: str, offered: Mapping[str, Capacity]) -> Amounts:
    """*requested* by full name, for a device of *driver* that offers *offered*.

    Raises `CapacityError` for a capacity of the device that is requested by both its names.
    """
    found = {full_name(name, driver): amount for name, amount in requested.items()}
    if len(found) < len(requested) and found.keys() <= offered.keys():
        name = next(n for n in requested if "/" not in n and full_name(n, driver) in requested)
        raise CapacityError(
            f'capacity "{name}" requested both as "{full_name(name, driver)}" and as "{name}"'
        )
    return found


def consumption(
    requested: Mapping[str, Amount],
    offered: Mapping[str, Capacity],
    *,
    refuses_negative: bool = False,
) -> Amounts | None:
    """What *requested* takes of a device that offers *offered*, for each of its capacities.

    None if the device lacks a capacity that is asked for, or its policy forbids the amount. Raises
    `CapacityError` for an amount that makes the request impossible on any device: with
    *refuses_negative* a negative one, even if it is rounded up.
    """
    if not requested.keys() <= offered.keys():
        return None
    taken: Amounts = {}
    for name, capacity in offered.items():
        amount = requested.get(name)
        try:
            if refuses_negative and amount is not None and amount.nanos < 0:
                raise CapacityError(f"{_NEGATIVE}: request {amount}")
            taken[name] = capacity.taken_by(amount)
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
