"""Namespaces, and what makes pods a group: services, workloads, disruption budgets."""

from tests.parity.generator.draw import Draw, Plain
from tests.parity.generator.selectors import POD_LABELS, label_selector, some_selector
from tests.parity.generator.traits import Traits

_TEMPLATE = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


def namespaces() -> list[Plain]:
    """The namespaces of all pods."""
    labels: dict[str, dict[str, str]] = {
        "default": {"env": "live"},
        "prod": {"env": "live", "owner": "a"},
        "dev": {"env": "test"},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **own}},
        }
        for name, own in labels.items()
    ]


def add_groups(draw: Draw, pods: list[Plain], traits: Traits) -> list[Plain]:
    """Services and workloads over *pods*, which get owners; some owners are gone."""
    if not draw.chance(traits["groups"]):
        return []
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"s{i}", "namespace": draw.pick("default", "prod", "dev")},
            "spec": {"selector": _labels(draw), "ports": [{"port": 80}]},
        }
        for i in draw.several(3)
    ]
    objects += [_workload(draw, i) for i in draw.several(4)]
    workloads = [w for w in objects if w["kind"] != "Service"]
    for pod in pods:
        if workloads and draw.chance(0.5):
            pod["metadata"]["ownerReferences"] = [_owner(draw.pick(*workloads))]
            if draw.chance(0.1):
                pod["metadata"]["ownerReferences"][0]["controller"] = False
        elif draw.chance(0.1):
            gone = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
            if draw.chance(0.5):
                gone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "gone"}}
            pod["metadata"]["ownerReferences"] = [_owner(gone)]
    return objects


def _labels(draw: Draw) -> dict[str, str]:
    return {key: draw.pick(*POD_LABELS[key]) for key in draw.some(list(POD_LABELS), 2)}


def _workload(draw: Draw, i: int) -> Plain:
    kind = draw.pick("ReplicaSet", "StatefulSet", "ReplicationController")
    meta = {"name": f"w{i}", "namespace": draw.pick("default", "default", "prod", "dev")}
    if kind == "ReplicationController":
        selector = _labels(draw) or {"app": "web"}
        spec: Plain = {"selector": selector}
        return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec}
    spec = {"selector": some_selector(draw), "template": _TEMPLATE}
    if kind == "StatefulSet":
        spec["serviceName"] = "s0"
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


def _owner(workload: Plain) -> Plain:
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "name": workload["metadata"]["name"],
        "uid": f"uid-{workload['metadata']['name']}",
        "controller": True,
    }


def budgets(draw: Draw, pods: list[Plain], traits: Traits) -> list[Plain]:
    """Disruption budgets over *pods*, as their controller would have counted them or not yet."""
    found = []
    overlap = draw.chance(traits["budgets"])
    for i in draw.several(4, 2) if overlap else draw.several(3):
        selector = {} if overlap and draw.chance(0.5) else label_selector(draw)
        namespace = "default" if overlap else draw.pick("default", "prod", "dev")
        names = [pod["metadata"]["name"] for pod in pods]
        status: Plain = {"disruptionsAllowed": draw.pick(0, 0, 1, 2)}
        status |= {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        if names and draw.chance(0.2):
            gone = draw.some(names, 2, 1)
            status["disruptedPods"] = dict.fromkeys(gone, "2026-01-01T05:00:00Z")
        spec: Plain = {"minAvailable": draw.pick(0, 1, "50%")}
        if selector is not None:
            spec["selector"] = selector
        found.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": f"b{i}", "namespace": namespace},
                "spec": spec,
                "status": status,
            }
        )
    return found
