"""The devices, shares of devices and capacities that are allocated.

Owns the sums over all allocated claims, kept as claims come and go.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

from engine.core.framework.behaviors import Behaviors
from engine.core.model.devices import AllocationResult
from engine.core.model.quantity import QuantityError, nano_value
from engine.core.scheduling.devices.capacity import Amount, Nanos
from engine.core.scheduling.devices.names import by_full_name
from engine.core.scheduling.devices.pools import DeviceId, PoolId
from engine.lib.change_log import ChangeLog

K = TypeVar("K")

# Changes that are remembered: claims come and go between two decisions about pods alike.
_LOG_SIZE: Final = 4096


class AllocatedDevices:
    """Devices in use. `changes` are the pools of devices that were taken or given back.

    Args:
        behaves: By which names capacities are counted.
    """

    def __init__(self, behaves: Behaviors) -> None:
        self.changes: ChangeLog[PoolId] = ChangeLog(_LOG_SIZE)
        self._in_full = behaves.names_in_full
        self._owned: dict[DeviceId, int] = {}
        self._shares: dict[DeviceId, int] = {}
        self._consumed: dict[DeviceId, Nanos] = {}

    def add(self, allocation: AllocationResult, *, with_capacity: bool = True) -> None:
        """Count the devices of *allocation*, and what it consumes of them."""
        self._count(allocation, 1, with_capacity)

    def remove(self, allocation: AllocationResult, *, with_capacity: bool = True) -> None:
        """Stop counting the devices of *allocation*, which was added so before."""
        self._count(allocation, -1, with_capacity)

    def is_owned(self, device: DeviceId) -> bool:
        """Whether a claim has *device* for itself."""
        return device in self._owned

    def is_in_use(self, device: DeviceId) -> bool:
        """Whether any claim has *device*, or a share of it."""
        return device in self._owned or device in self._shares

    def is_shared(self, device: DeviceId) -> bool:
        """Whether a claim has a share of *device*."""
        return device in self._shares

    def consumed(self, device: DeviceId) -> Mapping[str, int]:
        """What is consumed of each capacity of *device*."""
        return self._consumed.get(device, {})

    def taken_of(self, devices: Sequence[DeviceId]) -> Hashable:
        """What is taken of *devices*; equal where the same is taken of those in the same places."""
        owned, shares = self._owned, self._shares
        if not shares:
            return bytes([device in owned for device in devices])
        return tuple(
            [
                (device in owned, device in shares, tuple(sorted(self.consumed(device).items())))
                for device in devices
            ]
        )

    def _count(self, allocation: AllocationResult, sign: int, with_capacity: bool) -> None:
        for result in allocation.devices.results:
            if result.admin_access:
                continue  # admin access leaves the device to its user
            device = (result.driver, result.pool, result.device)
            self.changes.note((result.driver, result.pool))
            if result.share_id is None:
                _add(self._owned, device, sign)
                continue
            _add(self._shares, device, sign)
            if result.consumed_capacity and with_capacity:
                amounts = result.consumed_capacity
                if self._in_full:
                    amounts = by_full_name(amounts, result.driver)
                self._consume(device, amounts, sign)

    def _consume(
        self, device: DeviceId, amounts: Mapping[str, str | int | float], sign: int
    ) -> None:
        sums = self._consumed.setdefault(device, {})
        for name, amount in amounts.items():
            try:
                _add(sums, name, sign * nano_value(amount))
            except QuantityError:
                continue  # it cannot have been consumed
        if not sums:
            del self._consumed[device]


def consumption_problem(key: str, allocation: AllocationResult) -> str | None:
    """Why what the claim of *key* consumes of its devices makes no sense, or None."""
    for result in allocation.devices.results:
        for name, quantity in sorted(result.consumed_capacity.items()):
            try:
                amount = Amount.of(quantity)
            except QuantityError:
                continue
            if amount.nanos < 0:
                return (
                    f"claim {key}, device {result.driver}/{result.pool}/{result.device}: "
                    f'consumed capacity "{name}" must not be negative, got {amount}'
                )
    return None


def _add(sums: dict[K, int], key: K, amount: int) -> None:
    total = sums.get(key, 0) + amount
    if total:
        sums[key] = total
    else:
        sums.pop(key, None)
