"""Defaults of pod specifications, and what follows from a specification alone: the QoS class.

Owns what the API server fills in before admission looks. Works on plain manifests, in place.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from engine.core.manifests import kinds
from engine.core.manifests.errors import undecodable
from engine.core.manifests.kinds import Kind
from engine.core.manifests.quantities import QuantityRefused, amount, canonical, plain

Json = dict[str, Any]

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}


def canonical_amounts(kind: Kind, amounts: Json) -> Json:
    """*amounts* with every quantity in canonical text. Refuses with 400."""
    try:
        return {name: plain(value) for name, value in amounts.items()}
    except QuantityRefused as error:
        raise undecodable(kind, str(error)) from error


@lru_cache(maxsize=1024)
def _pull_policy(image: str) -> str:
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if not at and tag in ("", "latest") else "IfNotPresent"


def _default_resources(resources: Json) -> None:
    for part in ("limits", "requests"):
        if resources.get(part):
            resources[part] = canonical_amounts(kinds.PODS, resources[part])
    if resources.get("limits"):
        requests = {**resources["limits"], **(resources.get("requests") or {})}
        resources["requests"] = dict(sorted(requests.items()))


def _default_container(container: Json, *, host_network: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    _default_resources(container.setdefault("resources", {}))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network:
            port["hostPort"] = port.get("hostPort") or port.get("containerPort")


def set_claim_defaults(spec: Json) -> None:
    """Fill in what the specification of a claim for a volume leaves out."""
    resources = spec.get("resources") or {}
    for part in ("limits", "requests"):
        if resources.get(part):
            resources[part] = canonical_amounts(kinds.PERSISTENT_VOLUME_CLAIMS, resources[part])
    spec.setdefault("volumeMode", "Filesystem")


def set_defaults(spec: Json) -> None:
    """Fill in what a pod specification leaves out. Refuses malformed quantities with 400."""
    for key, value in _DEFAULTS.items():
        if not spec.get(key) and spec.get(key) != 0:
            spec[key] = value
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("securityContext", {})
    spec.setdefault("enableServiceLinks", True)
    for key in ("nodeName", "priorityClassName", "runtimeClassName"):
        if spec.get(key) == "":
            del spec[key]
    for volume in spec.get("volumes") or ():
        if not volume.keys() - {"name"}:
            volume["emptyDir"] = {}
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            set_claim_defaults(template.setdefault("spec", {}))
    host_network = bool(spec.get("hostNetwork"))
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            _default_container(container, host_network=host_network)
    if spec.get("overhead"):
        spec["overhead"] = canonical_amounts(kinds.PODS, spec["overhead"])
    resources = spec.get("resources") or {}
    for part in ("limits", "requests"):
        if resources.get(part):
            resources[part] = canonical_amounts(kinds.PODS, resources[part])


def set_pod_resources(spec: Json) -> None:
    """Derive what the resources of a pod leave out from those of its containers.

    The containers have their defaults, and what admission adds to them.

    Source:
        DefaultPodLevelResources.
    """
    resources = spec.get("resources") or {}
    if not resources.get("limits") and not resources.get("requests"):
        return
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    # 1. Huge pages have the limit of the containers.
    huge = {name for name in _named(containers, "limits") if name.startswith("hugepages-")}
    limits |= summed_amounts(spec, huge - {*limits, *requests}, "limits")
    # 2. The requests are those of the containers, or else the limits.
    shared = {name for name in _named(containers, "requests") if name in ("cpu", "memory")}
    requests |= summed_amounts(spec, shared - {*requests}, "requests")
    for name in sorted(limits.keys() - requests.keys()):
        if _is_pod_level(name):
            requests[name] = limits[name]
    # 3. What every container limits is limited as a whole, by no less than is requested.
    limited = {
        name
        for name in requests.keys() - limits.keys()
        if _is_pod_level(name)
        and all(name in (one["resources"].get("limits") or {}) for one in containers)
    }
    for name, text in summed_amounts(spec, limited, "limits").items():
        limits[name] = max(text, requests[name], key=amount)
    parts = (("limits", limits), ("requests", requests))
    spec["resources"] = {**resources, **{part: amounts for part, amounts in parts if amounts}}


def _named(containers: Iterable[Json], part: str) -> set[str]:
    """The resources that any of *containers* has in *part*, `requests` or `limits`."""
    return {name for one in containers for name in one["resources"].get(part) or ()}


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def summed_amounts(spec: Json, names: Iterable[str], part: str) -> dict[str, str]:
    """What the containers have of *names* together in *part*, `requests` or `limits`."""
    sums = ((name, _summed(spec, name, part)) for name in sorted(names))
    return {name: _text(value) for name, value in sums if value is not None}


def _summed(spec: Json, name: str, part: str) -> Fraction | None:
    """What the containers have of *name* together in *part*, None if none of them says.

    Restartable init containers run next to the others; the rest run one by one before them.
    """
    found = False
    running = peak = Fraction(0)
    for container in spec.get("initContainers") or ():
        text = (container["resources"].get(part) or {}).get(name)
        found |= text is not None
        value = amount(text or "0")
        if container.get("restartPolicy") == "Always":
            running += value
            peak = max(peak, running)
        else:
            peak = max(peak, running + value)
    for container in spec.get("containers") or ():
        text = (container["resources"].get(part) or {}).get(name)
        found |= text is not None
        running += amount(text or "0")
    return max(peak, running) if found else None


def _text(value: Fraction) -> str:
    whole = value.numerator if value.denominator == 1 else None
    if whole is not None and whole % 1024 == 0 and whole >= 1024:
        return canonical(f"{whole // 1024}Ki")
    return canonical(f"{value.numerator * 1000 // value.denominator}m")


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort.

    Source:
        ComputePodQOS: only cpu and memory count, zero amounts do not.
    """
    groups = [spec["resources"]] if spec.get("resources") else []
    if not groups:
        groups = [
            container.get("resources") or {}
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        ]
    anything = False
    guaranteed = True
    for resources in groups:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            wanted, most = amount(requests.get(name) or "0"), amount(limits.get(name) or "0")
            anything |= wanted > 0 or most > 0
            guaranteed &= most > 0 and wanted == most
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def initial_status(spec: Json, now: str) -> Json:
    """The status of a new pod; a gated one says why it waits."""
    status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": GATED_MESSAGE,
            }
        ]
    return status
