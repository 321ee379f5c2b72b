"""What minor versions answer differently, made to occur often: `behaviors.CHANGES` has the list.

Owns changing a scenario that is made already. It draws from a source of its own.
"""

from collections.abc import Iterator

from tests.parity.generator.draw import Draw, Plain
from tests.parity.generator.traits import Traits

_ATTRIBUTES = ("model", "numa", "fast", "driverVersion")
#: Capacity that is given out in fractions: what a device has of it, and its policy.
_FRACTIONS = (
    {"default": "500m", "validRange": {"min": "500m", "step": "250m"}},
    {"default": "1", "validRange": {"min": "250m", "max": "1500m"}},
    {"default": "1500m", "validRange": {"min": "1", "step": "500m", "max": "2"}},
    {"default": "1", "validRange": {"min": "1", "step": "1"}},
)
_ASKED = ("100m", "0.6", "1", "1100m", "1.25", "2", "3", "1n")
_STARTED = "2026-01-01T01:00:00Z"


def add_newer(
    draw: Draw, traits: Traits, pods: list[Plain], incoming: list[Plain], objects: list[Plain]
) -> None:
    """Change the objects of a scenario in place, as often as the traits say."""
    if often := traits.get("newer_pods", 0.0):
        _change_pods(draw, often, pods, incoming, objects)
    if often := traits.get("newer_devices", 0.0):
        for one in objects:
            if one["kind"] == "ResourceSlice":
                for device in one["spec"].get("devices", ()):
                    _change_device(draw, often, one["spec"]["driver"], device)
            elif one["kind"] == "ResourceClaim":
                _change_claim(draw, often, one)


def _change_pods(
    draw: Draw, often: float, pods: list[Plain], incoming: list[Plain], objects: list[Plain]
) -> None:
    """Let selectors be empty, pods have no labels, and victims be alike."""
    for pod in pods + incoming:
        for each in pod["spec"].get("topologySpreadConstraints", ()):
            if "matchLabelKeys" not in each and draw.chance(often):
                each["labelSelector"] = {}
    for one in objects:
        if one["kind"] == "PodDisruptionBudget" and draw.chance(often):
            one["spec"]["selector"] = {}
    for pod in pods:
        if draw.chance(often / 2):
            pod["metadata"].pop("labels", None)
        # Which of two equally important ones goes is decided by their uids.
        pod["metadata"]["uid"] = f"{draw.randrange(10**6):06}-{pod['metadata']['name']}"
        if draw.chance(often) and "startTime" in pod["status"]:
            pod["status"]["startTime"] = _STARTED
        elif draw.chance(often / 2):
            pod["status"].pop("startTime", None)


def _change_device(draw: Draw, often: float, driver: str, device: Plain) -> None:
    """Name what a device has in full, and let it have what is compared differently."""
    attributes = device.get("attributes", {})
    version = attributes.get("driverVersion")
    if version and draw.chance(often):
        version["version"] = draw.pick("1.2.3+a", "1.2.3+b", "1.2.3-rc.1+a", "1.0.0")
    if "numa" in attributes and draw.chance(often / 10):
        attributes["numa"] = {"ints": [0, 1]}
    for name in _ATTRIBUTES:
        if name in attributes and draw.chance(often / 2):
            value = attributes[name]
            attributes[f"{driver}/{name}"] = value
            if draw.chance(0.6):
                del attributes[name]
    capacity = device.get("capacity")
    if not capacity:
        return
    if draw.chance(often):
        device["allowMultipleAllocations"] = True
    if device.get("allowMultipleAllocations"):
        capacity["cores"] = {"value": draw.pick("2", "4"), "requestPolicy": draw.pick(*_FRACTIONS)}
    for name in tuple(capacity):
        if draw.chance(often / 2):
            value = capacity[name]
            capacity[f"{driver}/{name}"] = value
            if draw.chance(0.6):
                del capacity[name]


def _change_claim(draw: Draw, often: float, claim: Plain) -> None:
    """Ask for fractions, by either name; let devices be held that may not be shared any more."""
    devices = claim["spec"]["devices"]
    for wish in _wishes(devices["requests"]):
        if draw.chance(often):  # a wish that often comes true
            wish |= {"deviceClassName": draw.pick("any", "shared"), "allocationMode": "ExactCount"}
            wish["count"] = draw.pick(1, 1, 2)
            wish.pop("selectors", None)
            wish.pop("capacity", None)
        if draw.chance(often):
            asked = wish.setdefault("capacity", {}).setdefault("requests", {})
            if draw.chance(0.7):
                asked["cores"] = draw.pick(*_ASKED)
            if draw.chance(0.03):
                asked["cores"] = "-500m"
            for name in tuple(asked):
                if draw.chance(0.4):
                    asked[f"gpu.example.com/{name}"] = asked.pop(name)
            if not asked:
                del wish["capacity"]
    for each in devices.get("constraints", ()):
        if draw.chance(often):
            kind = "matchAttribute" if "matchAttribute" in each else "distinctAttribute"
            each[kind] = f"gpu.example.com/{draw.pick('driverVersion', 'numa', 'model')}"
    for result in claim["status"].get("allocation", {}).get("devices", {}).get("results", ()):
        if "shareID" not in result:
            if draw.chance(often / 5):  # it was shared when the claim was allocated
                result["shareID"] = f"00000000-0000-4000-9000-{draw.randrange(10**9):012}"
                result["consumedCapacity"] = {"memory": "1Gi"}
            continue
        consumed = result["consumedCapacity"]
        if draw.chance(often / 2):
            consumed["cores"] = draw.pick("500m", "750m", "1")
        for name in tuple(consumed):
            if draw.chance(often / 2):
                consumed[f"{result['driver']}/{name}"] = consumed.pop(name)
        if draw.chance(often / 100):
            consumed["memory"] = "-1Gi"


def _wishes(requests: list[Plain]) -> Iterator[Plain]:
    for request in requests:
        yield from request.get("firstAvailable", ())
        if "exactly" in request:
            yield request["exactly"]
