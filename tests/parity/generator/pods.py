"""Pods: identity, constraints on nodes and on each other."""

from tests.parity.generator.containers import add_resize, fill_containers
from tests.parity.generator.draw import Draw, Plain, pruned
from tests.parity.generator.nodes import EFFECTS, TAINT_KEYS, TAINT_VALUES, WELL_KNOWN_TAINTS
from tests.parity.generator.selectors import (
    HOSTNAME,
    NAMESPACES,
    NODE_LABELS,
    TOPOLOGY_KEYS,
    ZONE,
    ZONES,
    label_selector,
    namespace_selector,
    node_selector,
    node_term,
    pod_labels,
)
from tests.parity.generator.traits import Traits

PRIORITIES = (0, 0, 10, 10, 100, -10, 1000, 2_000_000_000)


def pod(draw: Draw, name: str, node_names: list[str], traits: Traits) -> Plain:
    """A pod that is not placed."""
    namespace = draw.pick("default", "default", "default", *NAMESPACES)
    made: Plain = {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {},
        "status": {},
    }
    if labels := pod_labels(draw):
        made["metadata"]["labels"] = labels
    spec = made["spec"]
    fill_containers(draw, made, traits)
    affinity: Plain = {}
    if draw.chance(traits["node_affinity"]):
        _node_rules(draw, spec, affinity, node_names)
    if draw.chance(traits["interpod"]):
        _pod_rules(draw, made, affinity, traits)
    if affinity or draw.chance(0.03):
        spec["affinity"] = affinity
    if draw.chance(traits["taints"] * 0.9):
        spec["tolerations"] = [_toleration(draw) for _ in draw.several(3)]
    if draw.chance(traits["spread"]):
        spec["topologySpreadConstraints"] = _spread(draw, made)
    if draw.chance(traits["priority"]):
        spec["priority"] = draw.pick(*PRIORITIES)
        if draw.chance(0.1):
            spec["preemptionPolicy"] = draw.pick("Never", "PreemptLowerPriority")
    elif draw.chance(0.5):
        spec["priority"] = 0
    if draw.chance(traits["image_volumes"]):
        images = draw.some(("registry.example/ml:v3", "huge:1", "busybox", "none:0"), 3, 1)
        spec["volumes"] = [
            {"name": f"model{i}", "image": {"reference": name}} for i, name in enumerate(images)
        ]
    if draw.chance(traits["node_name"]):
        spec["nodeName"] = draw.pick(*node_names, "n99")
    return made


def placed(draw: Draw, made: Plain, node_name: str, traits: Traits) -> Plain:
    """*made* as it runs on a node."""
    made["spec"]["nodeName"] = node_name
    made["status"] = {
        "phase": draw.pick("Running", "Running", "Running", "Pending"),
        "startTime": f"2026-01-01T{draw.randrange(3):02}:{draw.randrange(60):02}:00Z",
    }
    if draw.chance(0.03):
        made["status"]["phase"] = draw.pick("Succeeded", "Failed")
    if draw.chance(traits["terminating"]):
        made["metadata"]["deletionTimestamp"] = "2026-01-01T05:00:00Z"
        made["metadata"]["deletionGracePeriodSeconds"] = 30
    if draw.chance(traits["resize"]):
        add_resize(draw, made)
    return made


def nominated(draw: Draw, made: Plain, node_name: str) -> Plain:
    """*made* as it waits for the room that was made for it on a node."""
    made["spec"].pop("nodeName", None)
    made["spec"]["priority"] = draw.pick(*PRIORITIES)
    made["status"] = {"nominatedNodeName": node_name}
    if draw.chance(0.1):
        made["metadata"]["deletionTimestamp"] = "2026-01-01T05:00:00Z"
        made["metadata"]["deletionGracePeriodSeconds"] = 30
    return made


def start_preemption(draw: Draw, waiting: Plain, pods: list[Plain]) -> None:
    """Let *waiting* be one that *pods* of a node have to make room for, or had to."""
    chosen = draw.pick(*pods)
    waiting["status"]["nominatedNodeName"] = chosen["spec"]["nodeName"]
    if draw.chance(0.6):
        chosen["metadata"]["deletionTimestamp"] = "2026-01-01T05:00:00Z"
        chosen["metadata"]["deletionGracePeriodSeconds"] = 30
        reason = draw.pick(
            "PreemptionByScheduler", "PreemptionByScheduler", "EvictionByEvictionAPI"
        )
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        chosen["status"].setdefault("conditions", []).append(condition)


def _toleration(draw: Draw) -> Plain:
    if draw.chance(0.08):
        return (
            {"operator": "Exists"}
            if draw.chance(0.6)
            else {
                "operator": "Exists",
                "effect": draw.pick(*EFFECTS),
            }
        )
    key = draw.pick(*TAINT_KEYS) if draw.chance(0.8) else draw.pick(*WELL_KNOWN_TAINTS)
    operator = draw.pick("Exists", "Equal", "Equal", None)
    value = None if operator == "Exists" else draw.pick(*TAINT_VALUES, None)
    effect = draw.pick(*EFFECTS, None)
    seconds = draw.pick(0, 300) if effect == "NoExecute" and draw.chance(0.4) else None
    return pruned(
        {
            "key": key,
            "operator": operator,
            "value": value,
            "effect": effect,
            "tolerationSeconds": seconds,
        }
    )


def _node_rules(draw: Draw, spec: Plain, affinity: Plain, node_names: list[str]) -> None:
    if draw.chance(0.4):
        key = draw.pick(*NODE_LABELS, ZONE, HOSTNAME)
        values = {ZONE: ZONES, HOSTNAME: tuple(node_names)}.get(key) or NODE_LABELS[key]
        spec["nodeSelector"] = {key: draw.pick(*values)}
    if draw.chance(0.15):
        return
    rules: Plain = {}
    if draw.chance(0.55):
        rules["requiredDuringSchedulingIgnoredDuringExecution"] = node_selector(draw, node_names)
    if draw.chance(0.65):
        rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.pick(1, 10, 37, 100), "preference": node_term(draw, node_names)}
            for _ in draw.several(3, 1)
        ]
    affinity["nodeAffinity"] = rules


def _pod_rules(draw: Draw, made: Plain, affinity: Plain, traits: Traits) -> None:
    for field, share in (("podAffinity", 0.6), ("podAntiAffinity", 0.6)):
        if not draw.chance(share):
            continue
        rules: Plain = {}
        if draw.chance(0.5):
            rules["requiredDuringSchedulingIgnoredDuringExecution"] = [
                _pod_term(draw, made, traits) for _ in draw.several(2, 1)
            ]
        if draw.chance(0.6):
            rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {
                    "weight": draw.pick(1, 5, 50, 100),
                    "podAffinityTerm": _pod_term(draw, made, traits),
                }
                for _ in draw.several(2, 1)
            ]
        affinity[field] = rules


def _pod_term(draw: Draw, made: Plain, traits: Traits) -> Plain:
    selector = label_selector(draw)
    term: Plain = {"topologyKey": draw.pick(*TOPOLOGY_KEYS)}
    if selector is not None:
        term["labelSelector"] = selector
    if draw.chance(0.2):
        term["namespaces"] = draw.some(NAMESPACES, 2, 1)
    if draw.chance(traits["namespaces"]):
        term["namespaceSelector"] = namespace_selector(draw)
    if selector is not None and draw.chance(0.12):
        _merge_label_keys(draw, made, term)
    return term


def _merge_label_keys(draw: Draw, made: Plain, term: Plain) -> None:
    """Add (mis)matchLabelKeys as the API server stores them: merged into the selector."""
    labels = made["metadata"].get("labels", {})
    keys = draw.some(["tier", "example.com/track", "missing"], 2, 1)
    in_use = {
        *term["labelSelector"].get("matchLabels", {}),
        *(r["key"] for r in term["labelSelector"].get("matchExpressions", ())),
    }
    field, operator = draw.pick(("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
    keys = [key for key in keys if key not in in_use]
    if not keys:
        return
    term[field] = keys
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]} for key in keys if key in labels
    ]
    if added:
        selector = dict(term["labelSelector"])
        selector["matchExpressions"] = [*selector.get("matchExpressions", ()), *added]
        term["labelSelector"] = selector


def _spread(draw: Draw, made: Plain) -> list[Plain]:
    constraints: dict[tuple[str, str], Plain] = {}
    labels = made["metadata"].get("labels", {})
    for _ in draw.several(3, 1):
        key = draw.pick(*TOPOLOGY_KEYS)
        action = draw.pick("DoNotSchedule", "ScheduleAnyway")
        selector = label_selector(draw)
        if selector is not None and labels and draw.chance(0.5):
            selector = {"matchLabels": dict(draw.some(list(labels.items()), 1, 1))}
        found = {
            "maxSkew": draw.pick(1, 1, 2, 3, 5),
            "topologyKey": key,
            "whenUnsatisfiable": action,
            "labelSelector": selector,
        }
        if action == "DoNotSchedule" and draw.chance(0.3):
            found["minDomains"] = draw.pick(1, 2, 3, 5)
        if draw.chance(0.25):
            found["nodeAffinityPolicy"] = draw.pick("Honor", "Ignore")
        if draw.chance(0.3):
            found["nodeTaintsPolicy"] = draw.pick("Honor", "Ignore")
        if selector is not None and draw.chance(0.2):
            in_use = {
                *selector.get("matchLabels", {}),
                *(r["key"] for r in selector.get("matchExpressions", ())),
            }
            keys = [k for k in ("tier", "example.com/track", "missing") if k not in in_use]
            if keys := draw.some(keys, 2):
                found["matchLabelKeys"] = keys
        constraints[key, action] = pruned(found)
    return list(constraints.values())
