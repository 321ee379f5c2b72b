"""Label selectors and node selector terms, ordinary and odd."""

from tests.parity.generator.draw import Draw, Plain

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
ZONES = ("z1", "z2", "z3")

POD_LABELS = {
    "app": ("web", "db", "cache", "batch"),
    "tier": ("a", "b"),
    "example.com/track": ("stable", "canary", ""),
}
NODE_LABELS = {
    "disk": ("ssd", "hdd"),
    "team": ("red", "green", "blue"),
    "rank": ("1", "2", "3", "4", "007", "0", "x", "", "9223372036854775807", "9" * 20),
    "zone": ZONES,
    "example.com/pool": ("a", "b"),
}
TOPOLOGY_KEYS = (HOSTNAME, ZONE, ZONE, "zone", "disk", "team", REGION, "nowhere")
NAMESPACES = ("default", "prod", "dev")


def pod_labels(draw: Draw) -> dict[str, str]:
    """Labels of a pod; sometimes none."""
    labels = {}
    if draw.chance(0.9):
        labels["app"] = draw.pick(*POD_LABELS["app"])
    if draw.chance(0.6):
        labels["tier"] = draw.pick(*POD_LABELS["tier"])
    if draw.chance(0.2):
        labels["example.com/track"] = draw.pick(*POD_LABELS["example.com/track"])
    return labels


def label_selector(draw: Draw) -> Plain | None:
    """A label selector over pod labels: None and the empty one among them."""
    if draw.chance(0.04):
        return None
    return {} if draw.chance(0.06) else some_selector(draw)


def some_selector(draw: Draw) -> Plain:
    """A label selector that asks for something."""
    selector: Plain = {}
    if draw.chance(0.75):
        keys = draw.some(list(POD_LABELS), 2, 1)
        selector["matchLabels"] = {key: draw.pick(*POD_LABELS[key]) for key in keys}
    if not selector or draw.chance(0.25):
        selector["matchExpressions"] = [_label_requirement(draw) for _ in draw.several(2, 1)]
    return selector


def _label_requirement(draw: Draw) -> Plain:
    key = draw.pick(*POD_LABELS, "missing")
    operator = draw.pick("In", "NotIn", "Exists", "DoesNotExist")
    requirement: Plain = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        requirement["values"] = draw.some(POD_LABELS.get(key, ("x",)), 3, 1)
    return requirement


def namespace_selector(draw: Draw) -> Plain:
    """A label selector over namespaces."""
    if draw.chance(0.25):
        return {}
    if draw.chance(0.5):
        return {"matchLabels": {"env": draw.pick("live", "test")}}
    if draw.chance(0.3):
        name = draw.pick(*NAMESPACES)
        return {"matchLabels": {"kubernetes.io/metadata.name": name}}
    operator = draw.pick("In", "NotIn", "Exists", "DoesNotExist")
    requirement: Plain = {"key": draw.pick("env", "owner"), "operator": operator}
    if operator in ("In", "NotIn"):
        requirement["values"] = draw.some(("live", "test", "a"), 2, 1)
    return {"matchExpressions": [requirement]}


def node_selector(draw: Draw, node_names: list[str]) -> Plain:
    """A node selector: one to three terms."""
    return {"nodeSelectorTerms": [node_term(draw, node_names) for _ in draw.several(3, 1)]}


def node_term(draw: Draw, node_names: list[str]) -> Plain:
    """One node selector term: labels, names, both, or nothing at all."""
    if draw.chance(0.04):
        return {}
    term: Plain = {}
    if draw.chance(0.85):
        term["matchExpressions"] = [_node_requirement(draw, node_names) for _ in draw.several(3, 1)]
    if not term or draw.chance(0.12):
        term["matchFields"] = [_field_requirement(draw, node_names) for _ in draw.several(2, 1)]
    return term


def _node_requirement(draw: Draw, node_names: list[str]) -> Plain:
    operator = draw.pick("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    if operator in ("Gt", "Lt"):
        value = draw.pick("0", "1", "2", "3", "007", "9223372036854775806")
        return {"key": draw.pick("rank", "rank", "disk"), "operator": operator, "values": [value]}
    key = draw.pick(*NODE_LABELS, ZONE, HOSTNAME, "missing")
    requirement: Plain = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        values = {ZONE: ZONES, HOSTNAME: tuple(node_names), "missing": ("x", "")}
        requirement["values"] = draw.some(values.get(key) or NODE_LABELS[key], 3, 1)
    return requirement


def _field_requirement(draw: Draw, node_names: list[str]) -> Plain:
    operator = draw.pick("In", "In", "NotIn")
    return {
        "key": "metadata.name",
        "operator": operator,
        "values": [draw.pick(*node_names, "n99")],
    }
