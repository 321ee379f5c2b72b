"""Compatibility groups: which devices may draw on a counter set at the same time.

Owns what the devices in use leave to others. All devices that draw on a counter set must have a
group in common; those without groups go with those without groups alone. Only with the feature
gate for it (`Behaviors.compares_groups`); without it, such slices are ignored.
"""

from collections.abc import Mapping

from engine.core.scheduling.devices.allocated import AllocatedDevices
from engine.core.scheduling.devices.pools import Pool, PoolDevice, PoolId

Groups = frozenset[str] | None
"""The groups that all devices of a counter set have; None if they are devices without groups."""


class CompatibilityGroups:
    """The groups of every counter set that is in use; devices come and go while searching.

    Args:
        pools: What a node reaches.
        allocated: What is taken already.
    """

    def __init__(self, pools: Mapping[PoolId, Pool], allocated: AllocatedDevices) -> None:
        self._pools = pools
        self._allocated = allocated
        #: By pool and counter set. One that no device draws on has no entry.
        self._known: dict[PoolId, dict[str, Groups]] = {}
        #: What there was before each device joined.
        self._before: list[dict[str, Groups]] = []

    def admits(self, device: PoolDevice) -> bool:
        """Whether *device* goes with all that draw on its counter sets."""
        known = self._of_pool(device)
        return all(
            name not in known or _goes_with(known[name], groups)
            for (name, _), groups in zip(device.consumes, device.groups, strict=True)
        )

    def join(self, device: PoolDevice) -> None:
        """Count *device*, which is admitted."""
        known = self._of_pool(device)
        self._before.append(known.copy())
        _add(known, device)

    def leave(self, device: PoolDevice) -> None:
        """Stop counting *device*, which joined last."""
        self._known[device.id[:2]] = self._before.pop()

    def _of_pool(self, device: PoolDevice) -> dict[str, Groups]:
        pool_id = device.id[:2]
        known = self._known.get(pool_id)
        if known is None:
            known = self._known[pool_id] = {}
            pool = self._pools[pool_id]
            for part in (*pool.slices, *pool.others):
                for other in part.devices:
                    if self._allocated.is_in_use(other.id):
                        _add(known, other)
        return known


def _add(known: dict[str, Groups], device: PoolDevice) -> None:
    for (name, _), groups in zip(device.consumes, device.groups, strict=True):
        if name not in known:
            known[name] = groups or None
        elif (common := known[name]) is not None and groups:
            known[name] = common & groups


def _goes_with(known: Groups, groups: frozenset[str]) -> bool:
    return not groups if known is None else not known.isdisjoint(groups)
