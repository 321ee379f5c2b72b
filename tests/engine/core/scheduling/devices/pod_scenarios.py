"""Random scenarios of one pod with device claims, as the oracle of `tests/oracle` takes them.

They add to the worlds of `scenarios.py` what the plugin looks at beside devices: claims that are
allocated, in use, being deleted, waiting for a device, without node operations; templates; extended
resources; rules that taint devices.
"""

import random
from typing import Any

from tests.engine.core.scheduling.devices.scenarios import DRIVER, Worlds

Json = dict[str, Any]

API_VERSION = "resource.k8s.io/v1"
RESOURCE = "example.com/gpu"
CONFIG: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {
                "multiPoint": {
                    "disabled": [{"name": "*"}],
                    "enabled": [
                        {"name": "DynamicResources"},
                        {"name": "PrioritySort"},
                        {"name": "DefaultBinder"},
                    ],
                }
            },
        }
    ],
}


def pod_scenario(seed: int) -> Json:
    """The scenario of a seed: one pod, alone with the plugin."""
    worlds = Worlds(seed)
    world, rng = worlds.world(), worlds.rng
    for node in world["nodes"]:
        node["status"] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
        if rng.random() < 0.3:
            node["status"]["allocatable"][RESOURCE] = str(rng.choice((0, 2)))
        if rng.random() < 0.3:
            node["status"]["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    for device_class in world["classes"]:
        if device_class["metadata"]["name"] == "any" and rng.random() < 0.5:
            device_class["spec"]["extendedResourceName"] = RESOURCE
        if rng.random() < 0.03:
            device_class["metadata"]["name"] += "-gone"
    for claim in world["claims"]:
        _change(rng, claim)
    kinds = {"ResourceSlice": "slices", "DeviceClass": "classes", "ResourceClaim": "claims"}
    objects = [
        {"apiVersion": API_VERSION, "kind": kind, **manifest}
        for kind, of in kinds.items()
        for manifest in (*world[of], *(world["allocated"] if of == "claims" else ()))
    ]
    objects += _rules(rng, world["slices"])
    return {
        "nodes": world["nodes"],
        "pods": [],
        "incoming": [_pod(rng, [claim["metadata"]["name"] for claim in world["claims"]])],
        "objects": objects,
        "runs": 1,
        "config": CONFIG,
    }


def _rules(rng: random.Random, slices: list[Json]) -> list[Json]:
    """Rules for all devices, for those of a driver or a pool, for one, or for none."""
    rules = []
    for i in range(rng.choice((0, 0, 0, 1, 2))):
        spec: Json = {
            "taint": {
                "key": rng.choice(("broken", "busy")),
                "effect": rng.choice(("NoSchedule", "NoExecute", "None", "OfANewerVersion")),
            }
        }
        if rng.random() < 0.9:
            one = rng.choice(slices)["spec"]
            device = rng.choice([*one.get("devices", ()), {"name": "nothing"}])
            means = {
                "driver": one["driver"],
                "pool": one["pool"]["name"],
                "device": device["name"],
            }
            some = rng.sample(sorted(means), rng.randint(0, 3))
            spec["deviceSelector"] = {name: means[name] for name in some}
        rules.append(
            {
                "apiVersion": API_VERSION,
                "kind": "DeviceTaintRule",
                "metadata": {"name": f"rule-{i}"},
                "spec": spec,
            }
        )
    return rules


def _change(rng: random.Random, claim: Json) -> None:
    chance = rng.random()
    if chance < 0.05:
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif chance < 0.3:
        claim["status"] = _status(rng, claim["spec"]["devices"]["requests"][0]["name"])


def _status(rng: random.Random, request: str) -> Json:
    device: Json = {"driver": DRIVER, "pool": "zz", "device": "zz"}
    result: Json = {"request": request, **device}
    allocation: Json = {"devices": {"results": [result]}}
    status: Json = {"allocation": allocation}
    if rng.random() < 0.7:
        requirement = {
            "key": "metadata.name",
            "operator": "In",
            "values": [f"n{rng.randint(0, 2)}"],
        }
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    if rng.random() < 0.15:
        result["skipNodeOperations"] = ["Prepare"]
    if rng.random() < 0.1:
        status["reservedFor"] = [
            {"resource": "pods", "name": f"q{i}", "uid": f"uid-q{i}"} for i in range(256)
        ]
    elif rng.random() < 0.5:
        user = {"resource": "pods", "name": "q", "uid": rng.choice(("uid-p", "other"))}
        status["reservedFor"] = [user]
    if rng.random() < 0.3:
        result["bindingConditions"] = ["Attached"]
        result["bindingFailureConditions"] = ["Broken"]
        allocation["allocationTimestamp"] = rng.choice(
            ("2020-01-01T00:00:00Z", "2126-01-01T00:00:00Z")
        )
        condition = {
            "type": rng.choice(("Attached", "Broken", "Other")),
            "status": rng.choice(("True", "False")),
            "reason": "r",
            "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status["devices"] = [{**device, "conditions": [condition]}]
    return status


def _pod(rng: random.Random, names: list[str]) -> Json:
    claims: list[Json] = [{"name": name, "resourceClaimName": name} for name in names]
    status: Json = {}
    if rng.random() < 0.1:
        claims.append({"name": "t", "resourceClaimTemplateName": "template"})
        if rng.random() < 0.7:
            made = rng.choice((None, "taken-0"))
            status["resourceClaimStatuses"] = [{"name": "t", "resourceClaimName": made}]
    if rng.random() < 0.05:
        claims.append({"name": "m", "resourceClaimName": "missing"})
    container: Json = {"name": "c", "image": "x"}
    if rng.random() < 0.3:
        name = rng.choice((RESOURCE, "deviceclass.resource.kubernetes.io/one"))
        container["resources"] = {"requests": {name: "1"}, "limits": {name: "1"}}
        if rng.random() < 0.5:
            claims = []
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "spec": {"resourceClaims": claims, "containers": [container]},
        "status": status,
    }
