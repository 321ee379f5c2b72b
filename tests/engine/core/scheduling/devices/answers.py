"""Our answers to a world of devices, and answers of any origin in one comparable form."""

from typing import Any

import msgspec

from engine.core.framework.behaviors import behaviors_of
from engine.core.model.devices import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from engine.core.model.node import Node
from engine.core.model.objects import from_plain
from engine.core.scheduling.devices.allocated import AllocatedDevices
from engine.core.scheduling.devices.planning import OutOfSteps, Steps
from engine.core.scheduling.devices.pools import SliceIndex
from engine.core.scheduling.devices.requests import AllocationError, NodeUnsuitable
from engine.core.scheduling.devices.results import allocation_of
from engine.core.scheduling.devices.search import Search

Json = dict[str, Any]


def answers(world: Json, minor: int = 37) -> list[Json]:
    """For each node, what the claims of *world* get there: `found`, `error` or neither.

    *minor* is that of the Kubernetes that is answered like.
    """
    behaves = behaviors_of(minor)
    slices = [from_plain(ResourceSlice, s) for s in world["slices"]]
    index = SliceIndex(slices, behaves=behaves)
    classes = {c["metadata"]["name"]: from_plain(DeviceClass, c) for c in world["classes"]}
    claims = [from_plain(ResourceClaim, c) for c in world["claims"]]
    allocated = AllocatedDevices(behaves)
    for claim in world["allocated"]:
        allocation = from_plain(ResourceClaim, claim).allocation
        assert allocation is not None
        allocated.add(allocation)
    made: list[Json] = []
    for manifest in world["nodes"]:
        node = Node.from_plain(manifest)
        try:
            choices = Search(
                node,
                index.pools(node),
                claims,
                class_of=classes.get,
                allocated=allocated,
                steps=Steps(1_000_000),
            ).run()
            if choices is None:
                made.append({"found": False})
                continue
            results = [
                allocation_of(claim, choice, node.name)
                for claim, choice in zip(claims, choices, strict=True)
            ]
            made.append({"found": True, "result": [_plain(r) for r in results]})
        except AllocationError as error:
            made.append({"found": False, "error": str(error)})
        except OutOfSteps:
            made.append({"found": False, "error": "out of steps"})
        except NodeUnsuitable as error:
            made.append({"found": False, "error": str(error), "onNode": True})
    return made


def _plain(result: AllocationResult) -> Json:
    plain: Json = msgspec.json.decode(msgspec.json.encode(result))
    return plain


def comparable(answer: Json) -> Json:
    """*answer* without what need not be equal: names of shares."""
    results = []
    for result in answer.get("result", ()):
        devices = result.get("devices", {})
        results.append(
            {
                "selector": result.get("nodeSelector"),
                "config": devices.get("config", []),
                "devices": [
                    {
                        **device,
                        "shareID": "shareID" in device,
                        "consumedCapacity": device.get("consumedCapacity", {}),
                    }
                    for device in devices.get("results", [])
                ],
            }
        )
    return {
        "found": answer["found"],
        "result": results if answer["found"] else [],
        "error": answer.get("error", ""),
        "onNode": answer.get("onNode", False),
    }
