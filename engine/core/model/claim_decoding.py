"""Decodes claims whose driver parameters nest too deep to be built.

Owns what of such a claim counts: the devices that it holds, or they would be allocated twice. One
without an allocation gets none, because an allocation is written with its parameters: it is marked.
"""

import msgspec

from engine.core.model.devices import (
    AllocatedDeviceStatus,
    ClaimMeta,
    ConsumerReference,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    ResourceClaim,
)
from engine.core.model.objects import NodeSelector, decode
from engine.lib.deep_json import decoded_deeply


class _Record(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Like the records of claims; fields that are missing here are skipped."""


class _Devices(_Record, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()


class _Spec(_Record, frozen=True):
    devices: _Devices = _Devices()


class _Results(_Record, frozen=True):
    results: tuple[DeviceResult, ...] = ()


class _Allocation(_Record, frozen=True):
    devices: _Results = _Results()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class _Status(_Record, frozen=True):
    allocation: _Allocation | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class _Claim(_Record, frozen=True):
    metadata: ClaimMeta = ClaimMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


def decode_claim(raw: bytes | str) -> ResourceClaim:
    """Decode a claim; without its parameters if they nest too deep.

    One that is not allocated is then marked as `is_too_deep`. Raises what `decode` raises.
    """
    try:
        return decode(ResourceClaim, raw)
    except RecursionError:
        found = without_parameters(raw)
        return msgspec.structs.replace(found, is_too_deep=found.allocation is None)


def without_parameters(raw: bytes | str) -> ResourceClaim:
    """Decode a claim and skip its parameters, however deep they nest."""
    text = raw.encode() if isinstance(raw, str) else raw
    found = decoded_deeply(lambda given: decode(_Claim, given), text)
    return msgspec.json.decode(msgspec.json.encode(found), type=ResourceClaim)
