"""Whether devices that must be prepared before a pod is bound are ready, failed or overdue."""

from engine.core.model.devices import AllocatedDeviceStatus, DeviceResult, ResourceClaim
from engine.core.model.times import epoch_seconds


class PreparationFailed(Exception):
    """A device cannot be prepared; the text says which condition says so."""


def waits_for_devices(claim: ResourceClaim) -> bool:
    """Whether the claim has a device that must be prepared first."""
    allocation = claim.allocation
    return allocation is not None and any(r.binding_conditions for r in allocation.devices.results)


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all devices of an allocated claim are prepared. Raises `PreparationFailed`."""
    if claim.allocation is None:
        return False
    for result in claim.allocation.devices.results:
        if not result.binding_conditions:
            continue
        status = _status_of(claim, result)
        if status is None:
            return False
        conditions = {condition.type: condition for condition in status.conditions}
        for name in result.binding_failure_conditions:
            failed = conditions.get(name)
            if failed is not None and failed.status == "True":
                raise PreparationFailed(
                    f"device binding failed: claim={claim.metadata.name}, "
                    f'reason={failed.reason}, message="{failed.message}"'
                )
        for name in result.binding_conditions:
            condition = conditions.get(name)
            if condition is None or condition.status != "True":
                return False
    return True


def is_overdue(claim: ResourceClaim, now: float, seconds: float) -> bool:
    """Whether preparing the devices of *claim* has taken more than *seconds* at Unix time *now*."""
    if not waits_for_devices(claim) or claim.allocation is None:
        return False
    started_at = epoch_seconds(claim.allocation.allocation_timestamp)
    return started_at is not None and started_at + seconds < now


def _status_of(claim: ResourceClaim, result: DeviceResult) -> AllocatedDeviceStatus | None:
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == (
            result.driver,
            result.pool,
            result.device,
        ):
            return status
    return None
