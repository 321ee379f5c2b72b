"""Rules about what only one may have: devices, volumes of one pod, volumes of one claim.

Owns counting them from the claims' side. Whether a device suits its request is not checked.
"""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from devkit.faults.invariants.amounts import quantity
from devkit.faults.invariants.facts import Manifest, Objects, Violation, is_over, key_of, node_of

#: The API allows so many users of one claim.
MOST_USERS: Final = 256

_Device = tuple[str, str, str]


def shared_devices(objects: Objects) -> Iterator[Violation]:
    """Devices that two claims were given, other than those that allow it, and crowded claims."""
    owners: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for claim, result in _results(objects):
        owners[(*_device(result), result.get("shareID") or "")].append(key_of(claim))
    whole = {device[:3] for device in owners if not device[3]}
    for device, claims in sorted(owners.items()):
        is_also_whole = device[3] and device[:3] in whole
        if len(claims) > 1 or is_also_whole:
            what = f"allocated to {', '.join(f'`{claim}`' for claim in sorted(claims))}"
            text = f"{what}, and as a whole to another" if is_also_whole else what
            yield Violation("shared_devices", "/".join(device[:3]), text)
    for claim in objects.claims:
        users = len((claim.get("status") or {}).get("reservedFor") or ())
        if users > MOST_USERS:
            text = f"reserved for {users}, more than {MOST_USERS}"
            yield Violation("shared_devices", key_of(claim), text)


def overdrawn_devices(objects: Objects) -> Iterator[Violation]:
    """Devices and counters of which more is given than there is.

    Counts consumed capacities of devices that several claims share, and the counters that the
    parts of one device consume together.
    """
    devices = dict(_devices(objects))
    consumed: dict[tuple[_Device, str], Fraction] = defaultdict(Fraction)
    counted: dict[tuple[str, str, str, str], Fraction] = defaultdict(Fraction)
    given = {}
    for _, result in _results(objects):
        device = _device(result)
        given[device] = True
        for name, value in (result.get("consumedCapacity") or {}).items():
            consumed[device, name] += quantity(value)
    for device in given:
        for use in devices.get(device, {}).get("consumesCounters") or ():
            for name, counter in (use.get("counters") or {}).items():
                counted[*device[:2], use["counterSet"], name] += quantity(counter["value"])
    for (device, name), value in sorted(consumed.items()):
        offered = (devices.get(device, {}).get("capacity") or {}).get(name)
        if offered is not None and value > quantity(offered["value"]):
            text = f"{name}: {float(value):g} consumed of {offered['value']}"
            yield Violation("overdrawn_devices", "/".join(device), text)
    counters = dict(_counters(objects))
    for counter_key, value in sorted(counted.items()):
        if (most := counters.get(counter_key)) is not None and value > most:
            text = f"{float(value):g} consumed of {float(most):g}"
            yield Violation("overdrawn_devices", "/".join(counter_key), text)


def shared_volumes(objects: Objects) -> Iterator[Violation]:
    """Volumes of one pod that two use, and volumes and claims that are bound to several."""
    alone = {
        key_of(claim)
        for claim in objects.volume_claims
        if claim["spec"].get("accessModes") == ["ReadWriteOncePod"]
    }
    users: dict[str, list[str]] = defaultdict(list)
    for pod in objects.pods:
        if node_of(pod) and not is_over(pod):
            for claim_key in {*_volume_claims_of(pod)} & alone:
                users[claim_key].append(key_of(pod))
    yield from _several(users, "is for one pod, and used by")
    by_volume: dict[str, list[str]] = defaultdict(list)
    for claim in objects.volume_claims:
        if volume := claim["spec"].get("volumeName"):
            by_volume[volume].append(key_of(claim))
    yield from _several(by_volume, "is bound to the claims")
    by_claim: dict[str, list[str]] = defaultdict(list)
    for volume in objects.volumes:
        if claim := volume["spec"].get("claimRef"):
            by_claim[f"{claim.get('namespace')}/{claim.get('name')}"].append(key_of(volume))
    yield from _several(by_claim, "has the volumes")


def unreserved_claims(objects: Objects) -> Iterator[Violation]:
    """Pods that are bound although a claim of theirs is not allocated, or not for them."""
    claims = {key_of(claim): claim for claim in objects.claims}
    for pod in objects.pods:
        if not node_of(pod) or is_over(pod):
            continue
        for key in _claims_of(pod):
            status = claims.get(key, {}).get("status") or {}
            users = {user.get("uid") for user in status.get("reservedFor") or ()}
            if key not in claims:
                text = f"bound, and its claim `{key}` is gone"
            elif "allocation" not in status:
                text = f"bound, and its claim `{key}` is not allocated"
            elif pod["metadata"]["uid"] not in users:
                text = f"bound, and its claim `{key}` is not reserved for it"
            else:
                continue
            yield Violation("unreserved_claims", key_of(pod), text)


def _several(users: dict[str, list[str]], what: str) -> Iterator[Violation]:
    for about, names in sorted(users.items()):
        if len(names) > 1:
            text = f"{what} {', '.join(f'`{name}`' for name in sorted(names))}"
            yield Violation("shared_volumes", about, text)


def _results(objects: Objects) -> Iterator[tuple[Manifest, dict[str, Any]]]:
    """Each allocated device with its claim; looking at one as an administrator takes nothing."""
    for claim in objects.claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if not result.get("adminAccess"):
                yield claim, result


def _device(result: dict[str, Any]) -> _Device:
    return result["driver"], result["pool"], result["device"]


def _devices(objects: Objects) -> Iterator[tuple[_Device, dict[str, Any]]]:
    for one in objects.slices:
        spec = one["spec"]
        for device in spec.get("devices") or ():
            # Up to version v1beta1, what describes a device was one level deeper.
            yield (
                (spec["driver"], spec["pool"]["name"], device["name"]),
                device.get("basic", device),
            )


def _counters(objects: Objects) -> Iterator[tuple[tuple[str, str, str, str], Fraction]]:
    for one in objects.slices:
        spec = one["spec"]
        for group in spec.get("sharedCounters") or ():
            for name, counter in group["counters"].items():
                key = (spec["driver"], spec["pool"]["name"], group["name"], name)
                yield key, quantity(counter["value"])


def _volume_claims_of(pod: Manifest) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            name = f"{pod['metadata']['name']}-{volume['name']}"
        else:
            continue
        yield f"{pod['metadata']['namespace']}/{name}"


def _claims_of(pod: Manifest) -> Iterator[str]:
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in pod.get("status", {}).get("resourceClaimStatuses") or ()
    }
    for use in pod["spec"].get("resourceClaims") or ():
        # None: the template needed no claim.
        name = use.get("resourceClaimName") or made.get(use["name"])
        if name:
            yield f"{pod['metadata']['namespace']}/{name}"
