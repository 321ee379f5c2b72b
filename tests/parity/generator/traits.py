"""How often what occurs in a generated cluster: one set of probabilities per theme."""

from collections.abc import Mapping
from typing import Final

Traits = Mapping[str, float]

#: What a theme may vary. Everything occurs a little everywhere, so that plugins meet.
BASE: Final[Traits] = {
    "resources": 0.15,  # odd resources and amounts
    "full": 0.1,  # nodes that are nearly full
    "init": 0.08,  # init containers and sidecars
    "overhead": 0.04,
    "pod_resources": 0.03,  # requests of the pod as a whole
    "resize": 0.05,  # placed pods being resized in place
    "taints": 0.08,
    "node_affinity": 0.08,
    "node_name": 0.003,  # a node name written into the pod
    "ports": 0.06,
    "images": 0.1,
    "image_volumes": 0.015,
    "spread": 0.06,
    "groups": 0.1,  # services and workloads that spread by default
    "interpod": 0.06,
    "namespaces": 0.2,  # terms that select namespaces
    "terminating": 0.05,
    "priority": 0.1,
    "preemption": 0.0,  # ask for victims
    "budgets": 0.1,  # several disruption budgets over the same pods
    "nominations": 0.0,  # pods that were promised a node
    "volumes": 0.0,
    "disks": 0.0,  # volumes of the trees' own kinds
    "capacities": 0.3,  # several storage capacities that suit a claim
    "missing_drivers": 0.15,  # CSI drivers without which pods are not to be placed
    "devices": 0.0,
    "device_rules": 0.3,
    "counters": 0.3,  # devices that draw on counters
    "shares": 0.3,  # devices that are given out in parts
    "features": 0.0,
    "config": 0.25,  # another configuration than the default one
}

THEMES: Final[Mapping[str, Traits]] = {
    "resources": {"resources": 0.9, "full": 0.5, "init": 0.4, "overhead": 0.2, "resize": 0.1},
    "resize": {
        "resize": 0.8,
        "init": 0.4,
        "full": 0.4,
        "pod_resources": 0.3,
        "overhead": 0.2,
        "resources": 0.3,
    },
    "podlevel": {"pod_resources": 0.7, "init": 0.3, "full": 0.5, "overhead": 0.2, "resize": 0.4},
    "scoring": {"resources": 0.7, "init": 0.15, "config": 0.9},
    "taints": {"taints": 0.7},
    "nodeaffinity": {"node_affinity": 0.85, "node_name": 0.02},
    "ports": {"ports": 0.85, "init": 0.2},
    "images": {"images": 0.95, "image_volumes": 0.15, "init": 0.3},
    "imagevolumes": {"images": 0.95, "image_volumes": 0.8, "init": 0.3},
    "spread": {"spread": 0.8, "node_affinity": 0.3, "taints": 0.3, "terminating": 0.15},
    "defaults": {"groups": 0.95, "config": 0.5, "taints": 0.2, "node_affinity": 0.2},
    "interpod": {"interpod": 0.8, "terminating": 0.15, "config": 0.4},
    "namespaces": {"interpod": 0.9, "namespaces": 0.8, "config": 0.3},
    "profiles": {
        "config": 1.0,
        "taints": 0.4,
        "node_affinity": 0.4,
        "spread": 0.3,
        "interpod": 0.3,
        "ports": 0.2,
        "images": 0.3,
        "groups": 0.3,
    },
    "features": {"features": 0.8, "pod_resources": 0.3, "init": 0.2},
    "volumes": {"volumes": 0.95, "disks": 0.1, "resources": 0.02, "taints": 0.03},
    "capacities": {"volumes": 0.95, "capacities": 0.95, "config": 0.6, "resources": 0.02},
    "drivers": {
        "volumes": 0.9,
        "disks": 0.4,
        "missing_drivers": 0.95,
        "preemption": 0.3,
        "full": 0.3,
        "resources": 0.02,
    },
    "disks": {"disks": 0.9, "volumes": 0.3, "resources": 0.02, "taints": 0.03},
    "preemption": {
        "preemption": 1.0,
        "nominations": 0.4,
        "priority": 0.95,
        "full": 0.9,
        "taints": 0.15,
        "ports": 0.15,
        "interpod": 0.2,
        "spread": 0.15,
        "config": 0.1,
    },
    "budgets": {
        "preemption": 1.0,
        "budgets": 0.95,
        "priority": 0.95,
        "full": 0.9,
        "config": 0.05,
    },
    "rules": {"devices": 0.95, "device_rules": 0.95, "resources": 0.02, "taints": 0.03},
    "counters": {"devices": 0.95, "counters": 0.95, "shares": 0.5, "resources": 0.02},
    "shares": {"devices": 0.95, "counters": 0.1, "shares": 0.9, "resources": 0.02},
    "devices": {"devices": 0.95, "resources": 0.02, "taints": 0.03, "preemption": 0.15},
    "mixed": {
        name: 0.25
        for name in BASE
        if name
        not in (
            "node_name",
            "preemption",
            "nominations",
            "volumes",
            "disks",
            "devices",
            "features",
        )
    },
    "everything": {
        name: 0.2 if name != "preemption" else 1.0 for name in BASE if name != "node_name"
    },
}

#: Themes of what is off by default, each with the feature gates that have it on. They have traits
#: that others have not, so that these stay as they are.
GATED: Final[Mapping[str, tuple[frozenset[str], Traits]]] = {
    "lists": (
        frozenset({"DRAListTypeAttributes"}),
        # How many of the attributes are lists.
        {"devices": 0.95, "lists": 0.6, "device_rules": 0.0, "resources": 0.02, "taints": 0.03},
    ),
    "groups": (
        frozenset({"DRADeviceCompatibilityGroups"}),
        # How many devices that draw on counters have compatibility groups.
        {"devices": 0.95, "counters": 0.95, "compatibility": 0.8, "resources": 0.02},
    ),
    "groupclaims": (
        frozenset({"DRAWorkloadResourceClaims", "GenericWorkload"}),
        # How many of the pods with claims are in a PodGroup, whose claims they name.
        {"devices": 0.95, "group_claims": 0.7, "priority": 0.0, "resources": 0.02},
    ),
}

#: Themes of what a minor version of Kubernetes answers differently, each with that version: what
#: is before it is not defined, or fails. They have traits that others have not, likewise.
NEWER: Final[Mapping[str, tuple[int, Traits]]] = {
    "newpods": (
        38,
        {
            "newer_pods": 0.5,
            "preemption": 0.7,
            "budgets": 0.5,
            "priority": 0.9,
            "full": 0.8,
            "spread": 0.5,
            "pod_resources": 0.3,
            "config": 0.1,
        },
    ),
    "newdevices": (
        38,
        {"newer_devices": 0.6, "devices": 0.95, "shares": 0.7, "counters": 0.1, "resources": 0.02},
    ),
}

#: What `--without` takes: a word for the themes and traits that need one part of ours.
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "volumes": ("volumes", "disks"),
    "preemption": ("preemption", "nominations"),
    "dra": ("devices",),
    "features": ("features",),
    "config": ("config",),
}


def traits_of(theme: str, without: frozenset[str] = frozenset()) -> Traits:
    """The probabilities of *theme*, those of the parts in *without* set to zero."""
    off = {name: 0.0 for part in without for name in PARTS[part]}
    own = THEMES[theme] if theme in THEMES else {**GATED, **NEWER}[theme][1]
    return {**BASE, **own, **off}


def gates_of(theme: str) -> frozenset[str]:
    """The feature gates that are on where *theme* is answered."""
    return GATED[theme][0] if theme in GATED else frozenset()


def themes(without: frozenset[str] = frozenset(), minor: int = 0) -> list[str]:
    """The themes that say something without these parts, and with no feature gate on.

    Of what 1.`minor` and those before it answer differently, too.
    """
    left_out = {name for part in without for name in PARTS[part]}
    newer = [theme for theme, (since, _) in NEWER.items() if since <= minor]
    return [theme for theme in [*THEMES, *newer] if not left_out & {theme, *_without(theme)}]


def _without(theme: str) -> set[str]:
    """The parts' traits that a newer theme is about."""
    return {name for name in NEWER.get(theme, (0, {}))[1] if name in ("devices", "preemption")}
