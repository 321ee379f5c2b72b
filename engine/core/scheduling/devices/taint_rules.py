"""The taints that DeviceTaintRules add to devices, in addition to those of their drivers.

Owns which devices a rule means, and the view of a slice with the taints of all rules. What a taint
does is decided where devices are chosen.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from engine.core.model.devices import Device, DeviceTaint, DeviceTaintRule, ResourceSlice

TAINT_RULES: Final = "devicetaintrules"


def rules_for(
    record: ResourceSlice, rules: Iterable[DeviceTaintRule]
) -> tuple[DeviceTaintRule, ...]:
    """Those of *rules* that may mean devices of the slice, in the same order."""
    return tuple(rule for rule in rules if _means_slice(rule, record))


def tainted(record: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    """The slice with the taints of *rules*, which are those for it, after its own."""
    if not rules:
        return record
    devices = tuple(
        msgspec.structs.replace(
            device,
            taints=(*device.taints, *(r.spec.taint for r in rules if _means_device(r, device))),
        )
        for device in record.spec.devices
    )
    return msgspec.structs.replace(
        record, spec=msgspec.structs.replace(record.spec, devices=devices)
    )


def is_changed(
    record: ResourceSlice, old: DeviceTaintRule | None, new: DeviceTaintRule | None
) -> bool:
    """Whether the taints of a device of the slice change if rule *old* becomes *new*.

    None is a rule that is not there.
    """
    return any(
        _taint(record, device, old) != _taint(record, device, new) for device in record.spec.devices
    )


def _taint(
    record: ResourceSlice, device: Device, rule: DeviceTaintRule | None
) -> DeviceTaint | None:
    if rule is None or not _means_slice(rule, record) or not _means_device(rule, device):
        return None
    return rule.spec.taint


def _means_slice(rule: DeviceTaintRule, record: ResourceSlice) -> bool:
    selector = rule.spec.device_selector
    if selector is None:
        # Of a selector that cannot be read, any device may be meant.
        return any("spec.deviceSelector:" in field for field in rule.metadata.unread)
    spec = record.spec
    return (selector.driver is None or selector.driver == spec.driver) and (
        selector.pool is None or selector.pool == spec.pool.name
    )


def _means_device(rule: DeviceTaintRule, device: Device) -> bool:
    selector = rule.spec.device_selector
    return selector is not None and selector.device in (None, device.name)
