"""Random small worlds of devices: nodes, slices, classes, allocated claims, claims to allocate.

The worlds are crowded on purpose: few devices, few values, all features, so that most choices
matter. The same seed gives the same world.
"""

import random
from typing import Any

Json = dict[str, Any]

DRIVER = "gpu.example.com"
OTHER_DRIVER = "net.example.com"
_SELECTORS = (
    'device.attributes["gpu.example.com"].model == "a"',
    'device.attributes["gpu.example.com"].numa == 1',
    f'device.driver == "{DRIVER}"',
    'has(device.attributes["gpu.example.com"].numa) && '
    'device.attributes["gpu.example.com"].numa < 1',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("8Gi")) >= 0',
    'device.attributes["gpu.example.com"].fast',
    "device.allowMultipleAllocations",
    'device.attributes["gpu.example.com"].version.isGreaterThan(semver("1.0.0"))',
    'device.attributes["gpu.example.com"].model.includes("a")',
    '!has(device.attributes["gpu.example.com"].tags) || '
    'device.attributes["gpu.example.com"].tags.exists(tag, tag == "fast")',
)
_TAINTS = (
    {"key": "broken", "effect": "NoSchedule"},
    {"key": "busy", "value": "yes", "effect": "NoExecute"},
    {"key": "odd", "effect": "None"},
    {"key": "new", "effect": "OfANewerVersion"},
)
_TOLERATIONS = (
    {"key": "broken", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"key": "busy", "operator": "Equal", "value": "yes"},
    {"key": "busy", "operator": "OfANewerVersion"},
)
_POLICIES = (
    {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
    {"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi"}},
    {"default": "2Gi", "validRange": {"min": "1Gi", "max": "4Gi"}},
    {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
    {"default": "1e9", "validRange": {"min": "1G", "step": "1e9"}},
)


class Worlds:
    """Makes worlds out of one source of chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def some(self, options: Any, most: int) -> list[Any]:
        return self.rng.sample(list(options), self.rng.randint(0, min(most, len(options))))

    def world(self) -> Json:
        rng = self.rng
        self.has_counters = self.chance(0.35)
        self.has_taints = self.chance(0.35)
        self.has_constraints = self.chance(0.45)
        self.shares = self.chance(0.5)
        self.is_odd = self.chance(0.15)  # has what is rare, wrong, or of a newer version
        nodes = [
            {
                "metadata": {
                    "name": f"n{i}",
                    "labels": {"zone": rng.choice("ab"), "rack": str(rng.randint(1, 2))},
                }
            }
            for i in range(rng.randint(1, 3))
        ]
        names = [f"n{i}" for i in range(len(nodes))]
        slices: list[Json] = []
        for driver in (DRIVER, OTHER_DRIVER)[: rng.choice((1, 1, 2))]:
            prefix = "both" if self.chance(0.2) else driver[:3]
            for i in range(rng.randint(1, 3)):
                slices += self.pool(driver, f"{prefix}-{i}", rng.choice(names))
        classes = [self.device_class(name) for name in ("one", "two", "any")]
        claims = [self.claim(f"c{i}") for i in range(rng.choice((1, 1, 1, 2)))]
        return {
            "nodes": nodes,
            "slices": slices,
            "classes": classes,
            "claims": claims,
            "allocated": self.allocated(slices),
        }

    def pool(self, driver: str, name: str, node: str) -> list[Json]:
        rng = self.rng
        parts = rng.choice((1, 1, 1, 2))
        generation = rng.randint(1, 2)
        slices = []
        where = rng.choice(
            (
                {"nodeName": node},
                {"nodeName": node},
                {"allNodes": True},
                {"nodeSelector": self.zone_selector()},
                {"perDeviceNodeSelection": True},
            )
        )
        count = 0
        shared: list[Json] = []
        if self.has_counters:
            shared = [
                {
                    "name": "set",
                    "counters": {"mem": {"value": str(rng.randint(2, 6))}, "c": {"value": "3"}},
                }
            ]
            slices.append(self.slice(driver, name, generation, f"{name}-{driver}-0counters"))
            elsewhere = {"nodeName": "n0"} if self.chance(0.2) else {"allNodes": True}
            slices[-1]["spec"] |= {"sharedCounters": shared, **elsewhere}
        for part in range(parts):
            made = self.slice(driver, name, generation, f"{name}-{driver}-{part}")
            devices = [
                self.device(f"d{count + i}", where, bool(shared)) for i in range(rng.randint(1, 4))
            ]
            count += len(devices)
            if self.chance(0.03):
                devices.append(dict(devices[0]))
            made["spec"] |= {"devices": devices, **where}
            slices.append(made)
        total = len(slices) + (1 if self.chance(0.06) else 0)
        for made in slices:
            made["spec"]["pool"]["resourceSliceCount"] = total
        if self.chance(0.08):  # a leftover of the generation before
            old = self.slice(driver, name, generation - 1, f"{name}-{driver}-old")
            old["spec"]["pool"]["resourceSliceCount"] = 1
            old["spec"] |= {"devices": [self.device("old", where, False)], **where}
            slices.append(old)
        rng.shuffle(slices)
        return slices

    def slice(self, driver: str, pool: str, generation: int, name: str) -> Json:
        return {
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            },
        }

    def zone_selector(self) -> Json:
        key, values = self.rng.choice((("zone", ["a"]), ("zone", ["a", "b"]), ("rack", ["1"])))
        requirement = {"key": key, "operator": "In", "values": values}
        return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}

    def device(self, name: str, where: Json, counts: bool) -> Json:
        rng = self.rng
        device: Json = {"name": name}
        attributes: Json = {"model": {"string": rng.choice("ab")}}
        if self.chance(0.8):
            attributes["numa"] = {"int": rng.randint(0, 2)}
        if self.chance(0.9):
            attributes["fast"] = {"bool": self.chance(0.7)}
        if self.chance(0.9):
            attributes["version"] = {"version": rng.choice(("1.0.0", "1.2.0", "2.0.0-rc.1"))}
        if self.chance(0.3):
            attributes["rack.example.com/switch"] = {"string": rng.choice("xy")}
        if self.is_odd and self.chance(0.4):
            attributes["tags"] = {"strings": self.some(("fast", "new"), 2)}
        if self.is_odd and self.chance(0.2):
            attributes["model"] = {"strings": ["a", "b"]}
        device["attributes"] = attributes
        if self.chance(0.7):
            capacity: Json = {"value": rng.choice(("4Gi", "8Gi", "16Gi"))}
            if self.shares and self.chance(0.7):
                capacity["requestPolicy"] = rng.choice(_POLICIES)
            if self.is_odd and self.chance(0.1):
                capacity["value"] = "-1Gi"
            device["capacity"] = {"memory": capacity}
        if self.shares and self.chance(0.5):
            device["allowMultipleAllocations"] = True
        if self.has_taints and self.chance(0.5):
            device["taints"] = self.some(_TAINTS, 2)
        if counts and self.chance(0.8):
            device["consumesCounters"] = [
                {
                    "counterSet": "set",
                    "counters": {
                        "mem": {"value": str(rng.randint(1, 3))},
                        **({"c": {"value": "1"}} if self.chance(0.5) else {}),
                    },
                }
            ]
            if self.is_odd and self.chance(0.15):
                device["consumesCounters"][0]["compatibilityGroups"] = ["group"]
        if "perDeviceNodeSelection" in where:
            device |= rng.choice(
                ({"nodeName": "n0"}, {"allNodes": True}, {"nodeSelector": self.zone_selector()})
            )
        if self.chance(0.08):
            device["bindingConditions"] = ["Attached"]
            device["bindingFailureConditions"] = ["Broken"]
            device["bindsToNode"] = self.chance(0.5)
        return device

    def device_class(self, name: str) -> Json:
        made: Json = {"metadata": {"name": name}, "spec": {}}
        if name != "any":
            made["spec"]["selectors"] = [
                {"cel": {"expression": e}} for e in self.some(_SELECTORS[:4], 1)
            ]
        if self.chance(0.3):
            made["spec"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": {"class": name}}}]
        return made

    def wanted(self) -> Json:
        rng = self.rng
        wanted: Json = {
            "deviceClassName": rng.choice(("one", "two", "any", "any")),
            "allocationMode": "ExactCount",
            "count": rng.choice((1, 1, 1, 2, 2, 3)),
        }
        if self.chance(0.15):
            wanted = {"deviceClassName": wanted["deviceClassName"], "allocationMode": "All"}
        if self.chance(0.4):
            wanted["selectors"] = [{"cel": {"expression": e}} for e in self.some(_SELECTORS, 2)]
        if self.has_taints and self.chance(0.5):
            wanted["tolerations"] = self.some(_TOLERATIONS, 2)
        if self.shares and self.chance(0.5):
            amount = rng.choice(("1Gi", "1500Mi", "3Gi", "5Gi", "2500M", "1500000k"))
            if self.is_odd and self.chance(0.3):
                amount = rng.choice(("8E", "9223372036854775807", "1e19", "-1"))
            wanted["capacity"] = {"requests": {"memory": amount}}
            if self.is_odd and self.chance(0.2):
                wanted["capacity"]["requests"]["cores"] = "1"
        if self.is_odd and self.chance(0.1):
            wanted["count"] = rng.choice((20, 33, 2**63 - 1))
        if self.is_odd and self.chance(0.03):
            wanted["allocationMode"] = "OfANewerVersion"
        if self.is_odd and self.chance(0.03):
            wanted["derivedAttributes"] = [{"name": "x.example.com/y", "expression": "true"}]
        return wanted

    def claim(self, name: str) -> Json:
        rng = self.rng
        requests: list[Json] = []
        for i in range(rng.randint(1, 3)):
            request: Json = {"name": f"r{i}"}
            if self.chance(0.3):
                request["firstAvailable"] = [
                    {"name": f"s{k}", **self.wanted()} for k in range(rng.randint(1, 3))
                ]
            else:
                request["exactly"] = self.wanted()
                if self.chance(0.08):
                    request["exactly"]["adminAccess"] = True
            requests.append(request)
        constraints: list[Json] = []
        if self.has_constraints:
            kind = rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            names = [r["name"] for r in requests]
            attribute = rng.choice(
                (f"{DRIVER}/model", f"{DRIVER}/numa", "rack.example.com/switch", f"{DRIVER}/fast")
            )
            constraints.append({kind: attribute, "requests": self.some(names, len(names))})
        config: list[Json] = []
        if self.chance(0.3):
            names = [r["name"] for r in requests]
            names += [f"{r['name']}/s0" for r in requests if "firstAvailable" in r]
            config.append(
                {
                    "requests": self.some(names, len(names)),
                    "opaque": {"driver": DRIVER, "parameters": {"claim": name}},
                }
            )
        return {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "devices": {"requests": requests, "constraints": constraints, "config": config}
            },
        }

    def allocated(self, slices: list[Json]) -> list[Json]:
        """Claims that have some of the devices, or shares of them."""
        claims: list[Json] = []
        for made in slices:
            spec = made["spec"]
            for device in spec.get("devices", ()):
                if not self.chance(0.25):
                    continue
                result: Json = {
                    "request": "r",
                    "driver": spec["driver"],
                    "pool": spec["pool"]["name"],
                    "device": device["name"],
                }
                if device.get("allowMultipleAllocations"):
                    result["shareID"] = f"share-{len(claims)}"
                    if "capacity" in device and self.chance(0.8):
                        result["consumedCapacity"] = {"memory": self.rng.choice(("1Gi", "3Gi"))}
                elif self.chance(0.1):
                    result["adminAccess"] = True
                name = f"taken-{len(claims)}"
                claims.append(
                    {
                        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
                        "spec": {"devices": {"requests": []}},
                        "status": {"allocation": {"devices": {"results": [result]}}},
                    }
                )
        return claims


def world(seed: int) -> Json:
    """The world of a seed."""
    return Worlds(seed).world()
