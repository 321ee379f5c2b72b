"""Rules about claims: where their volumes and devices are, and that bound pods have them.

Owns reading claims of volumes and of devices. Only simple ones are understood: a volume that one
host name selects, and requests for one device of a class that one driver selects.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from devkit.faults.invariants.facts import Binding, Manifest, Objects, Violation, key_of

_HOSTNAME: Final = "kubernetes.io/hostname"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BY_DRIVER: Final = re.compile(r"device\.driver == '(?P<driver>[^']+)'")


def unprovisioned(binding: Binding, before: Objects) -> Iterator[Violation]:
    """A binding of a pod whose volumes are not bound, or are out of reach of the node."""
    pod = next((p for p in before.pods if p["metadata"]["uid"] == binding.pod_uid), None)
    for claim in () if pod is None else _volume_claims(pod, before):
        if claim is None:
            continue  # it may have been deleted a moment ago
        volume = _volume_of(claim, before)
        if not claim["spec"].get("volumeName"):
            text = f"bound, and its claim `{key_of(claim)}` has no volume"
        elif volume is not None and _host_of(volume) not in (None, binding.node):
            text = f"bound to `{binding.node}`, and its volume is on `{_host_of(volume)}`"
        else:
            continue
        yield Violation("unprovisioned", binding.pod, text)


def misplaced_devices(objects: Objects) -> Iterator[Violation]:
    """Pods that are bound to another node than that of the devices of their claims."""
    node_of = {
        (one["spec"]["driver"], one["spec"]["pool"]["name"]): one["spec"].get("nodeName")
        for one in objects.slices
    }
    claims = {key_of(claim): claim for claim in objects.claims}
    for pod in objects.pods:
        where = pod["spec"].get("nodeName")
        for claim in (claims.get(key) for key in _device_claims(pod)):
            for result in _results(claim) if where and claim is not None else ():
                node = node_of.get((result["driver"], result["pool"]))
                if node not in (None, where):
                    text = f"bound to `{where}`, and its device is on `{node}`"
                    yield Violation("misplaced_devices", key_of(pod), text)


def is_reachable(pod: Manifest, node: Manifest, objects: Objects) -> bool:
    """True if the pod's claims can be had on *node*; False also if that is not plain."""
    volumes = all(
        claim is not None and _is_volume_reachable(claim, node, objects)
        for claim in _volume_claims(pod, objects)
    )
    return volumes and _are_devices_reachable(pod, node, objects)


def _is_volume_reachable(claim: Manifest, node: Manifest, objects: Objects) -> bool:
    if claim["metadata"].get("deletionTimestamp"):
        return False
    if claim["spec"].get("volumeName"):
        volume = _volume_of(claim, objects)
        return volume is not None and _host_of(volume) == key_of(node)
    name = claim["spec"].get("storageClassName")
    of_class = [one for one in objects.storage_classes if key_of(one) == name]
    selected = (claim["metadata"].get("annotations") or {}).get(_SELECTED_NODE)
    return (
        bool(of_class)
        and of_class[0].get("volumeBindingMode") == "WaitForFirstConsumer"
        and selected in (None, key_of(node))
    )


def _are_devices_reachable(pod: Manifest, node: Manifest, objects: Objects) -> bool:
    claims = {key_of(claim): claim for claim in objects.claims}
    wanted = 0
    drivers: set[str] = set()
    for use in pod["spec"].get("resourceClaims") or ():
        claim = claims.get(f"{pod['metadata']['namespace']}/{use.get('resourceClaimName')}")
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            return False
        if (claim.get("status") or {}).get("allocation"):
            pools = {result["pool"] for result in _results(claim)}
            if pools != _pools_of(node, objects):
                return False
            continue
        for request in claim["spec"]["devices"].get("requests") or ():
            driver = _driver_of(request, objects)
            if driver is None:
                return False
            drivers.add(driver)
            wanted += 1
    if len(drivers) > 1:
        return False
    return all(wanted <= len(_free(node, driver, objects)) for driver in drivers)


def _driver_of(request: Manifest, objects: Objects) -> str | None:
    """The driver of a request for one device of a class that asks for nothing else, or None."""
    exactly = request.get("exactly") or {}
    plain = {"deviceClassName", "allocationMode", "count"}
    if not exactly or exactly.keys() - plain or exactly.get("count", 1) != 1:
        return None
    for one in objects.device_classes:
        selectors = one["spec"].get("selectors") or []
        if key_of(one) == exactly["deviceClassName"] and len(selectors) == 1:
            found = _BY_DRIVER.fullmatch((selectors[0].get("cel") or {}).get("expression", ""))
            return None if found is None else found.group("driver")
    return None


def _free(node: Manifest, driver: str, objects: Objects) -> set[tuple[str, str]]:
    """The devices of *driver* on *node* that no claim has: pool and name."""
    there = {
        (one["spec"]["pool"]["name"], device["name"])
        for one in objects.slices
        if one["spec"].get("nodeName") == key_of(node) and one["spec"]["driver"] == driver
        for device in one["spec"].get("devices") or ()
    }
    return there - {
        (result["pool"], result["device"])
        for claim in objects.claims
        for result in _results(claim)
        if result["driver"] == driver
    }


def _pools_of(node: Manifest, objects: Objects) -> set[str]:
    return {
        one["spec"]["pool"]["name"]
        for one in objects.slices
        if one["spec"].get("nodeName") == key_of(node)
    }


def _results(claim: Manifest) -> list[dict[str, Any]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _device_claims(pod: Manifest) -> Iterator[str]:
    for use in pod["spec"].get("resourceClaims") or ():
        if name := use.get("resourceClaimName"):
            yield f"{pod['metadata']['namespace']}/{name}"


def _volume_claims(pod: Manifest, objects: Objects) -> Iterator[Manifest | None]:
    """The claims of a pod's volumes; None for one that there is not, or that is not understood."""
    claims = {key_of(claim): claim for claim in objects.volume_claims}
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            yield claims.get(f"{pod['metadata']['namespace']}/{name}")
        elif "ephemeral" in volume or "csi" in volume:
            yield None


def _volume_of(claim: Manifest, objects: Objects) -> Manifest | None:
    name = claim["spec"].get("volumeName")
    return next((volume for volume in objects.volumes if key_of(volume) == name), None)


def _host_of(volume: Manifest) -> str | None:
    """The one node that a volume can be reached from; None if that is not plain."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    found = [
        value
        for term in required.get("nodeSelectorTerms") or ()
        for one in term.get("matchExpressions") or ()
        if one["key"] == _HOSTNAME and one["operator"] == "In"
        for value in one["values"]
    ]
    return found[0] if len(found) == 1 else None
