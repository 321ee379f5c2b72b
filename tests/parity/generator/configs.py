"""KubeSchedulerConfigurations: plugin arguments, weights, sets switched on and off, profiles."""

from engine.policy.profiles import DEFAULT_PLUGINS
from tests.parity.generator.draw import Draw, Plain
from tests.parity.generator.selectors import HOSTNAME, TOPOLOGY_KEYS, node_selector, node_term

RESOURCES = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "example.com/foo")
# What is scored as well as any other, and seldom asked for.
ODD_RESOURCES = ("pods", "hugepages-2Mi", "kubernetes.io/batch-cpu", "widgets")
IGNORED = (*RESOURCES[3:], "cpu", "kubernetes.io/batch-cpu")
ALL = tuple(DEFAULT_PLUGINS)
SCORERS = tuple(name for name, (_, points) in DEFAULT_PLUGINS.items() if "score" in points)
FILTERS = tuple(name for name, (_, points) in DEFAULT_PLUGINS.items() if "filter" in points)
PROFILE_NAMES = ("default-scheduler", "second", "third")


def configuration(draw: Draw) -> Plain:
    """A configuration of one to three profiles."""
    count = draw.pick(1, 1, 1, 2, 3)
    profiles = [_profile(draw, name) for name in PROFILE_NAMES[:count]]
    if count == 1 and draw.chance(0.3):
        del profiles[0]["schedulerName"]
    found: Plain = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    }
    if draw.chance(0.2):
        found["percentageOfNodesToScore"] = draw.pick(0, 50, 100)
    return found


def _profile(draw: Draw, name: str) -> Plain:
    profile: Plain = {"schedulerName": name}
    plugins: Plain = {}
    if draw.chance(0.3):
        plugins["multiPoint"] = _multi_point(draw)
    if draw.chance(0.35):
        plugins["score"] = _scores(draw, _scorers_left(plugins.get("multiPoint", {})))
    if draw.chance(0.2):
        plugins["filter"] = {"disabled": [{"name": n} for n in draw.some(FILTERS, 3, 1)]}
    if plugins:
        profile["plugins"] = plugins
    config = [
        {"name": name, "args": make(draw)} for name, make in ARGUMENTS.items() if draw.chance(0.4)
    ]
    if config:
        profile["pluginConfig"] = config
    return profile


def _weighted(draw: Draw, names: list[str]) -> list[Plain]:
    found = []
    for name in names:
        entry: Plain = {"name": name}
        if draw.chance(0.7):
            entry["weight"] = draw.pick(1, 2, 5, 100)
        found.append(entry)
    return found


def _scorers_left(multi_point: Plain) -> list[str]:
    """The scorers that a profile leaves on at preScore: without it, their score is an error."""
    off = {entry["name"] for entry in multi_point.get("disabled", ())}
    on = {entry["name"] for entry in multi_point.get("enabled", ())}
    return [n for n in SCORERS if n in on or not off & {n, "*"}]


def _scores(draw: Draw, names: list[str]) -> Plain:
    if draw.chance(0.4):
        return {
            "disabled": [{"name": "*"}],
            "enabled": _weighted(draw, draw.some(names, 5, 1)),
        }
    # A plugin that is on by default can be enabled anew, with another weight.
    again = draw.some(names, 3)
    off = [name for name in draw.some(SCORERS, 3) if name not in again or draw.chance(0.5)]
    found = {"disabled": [{"name": n} for n in off], "enabled": _weighted(draw, again)}
    return {key: value for key, value in found.items() if value}


def _multi_point(draw: Draw) -> Plain:
    if draw.chance(0.3):
        kept = [n for n in ALL if n in ("PrioritySort", "DefaultBinder") or draw.chance(0.7)]
        draw.shuffle(kept)
        return {"disabled": [{"name": "*"}], "enabled": _weighted(draw, kept)}
    again = draw.some(SCORERS, 3)
    off = draw.some([n for n in ALL if n not in ("PrioritySort", "DefaultBinder")], 3)
    found = {
        "disabled": [{"name": n} for n in off if n not in again or draw.chance(0.3)],
        "enabled": _weighted(draw, again),
    }
    return {key: value for key, value in found.items() if value}


def _resources(draw: Draw, *, weight: int | None = None) -> list[Plain]:
    found = []
    for name in draw.some((*RESOURCES, *ODD_RESOURCES), 4, 1):
        entry: Plain = {"name": name}
        if draw.chance(0.8):
            entry["weight"] = weight or draw.pick(1, 2, 3, 10, 100)
        found.append(entry)
    return found


def _fit(draw: Draw) -> Plain:
    args: Plain = {}
    if draw.chance(0.3):
        args["ignoredResources"] = draw.some(IGNORED, 2, 1)
    if draw.chance(0.2):
        args["ignoredResourceGroups"] = draw.some(
            ("nvidia.com", "example.com", "kubernetes.io"), 2, 1
        )
    if draw.chance(0.2):
        return args
    kind = draw.pick("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
    strategy: Plain = {"type": kind}
    if draw.chance(0.8):
        strategy["resources"] = _resources(draw)
    if kind == "RequestedToCapacityRatio":
        points = sorted(draw.some(range(101), 5, 1))
        shape = [{"utilization": at, "score": draw.randrange(11)} for at in points]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    args["scoringStrategy"] = strategy
    return args


def _balanced(draw: Draw) -> Plain:
    return {"resources": _resources(draw, weight=1)} if draw.chance(0.9) else {}


def _interpod(draw: Draw) -> Plain:
    args: Plain = {"ignorePreferredTermsOfExistingPods": draw.chance(0.5)}
    if draw.chance(0.7):
        args["hardPodAffinityWeight"] = draw.pick(0, 1, 10, 100)
    return args


def _spread(draw: Draw) -> Plain:
    if draw.chance(0.2):
        return {"defaultingType": "System"} if draw.chance(0.5) else {"defaultingType": "List"}
    constraints: dict[tuple[str, str], Plain] = {}
    for _ in draw.several(3):
        key = draw.pick(*TOPOLOGY_KEYS, HOSTNAME)
        action = draw.pick("DoNotSchedule", "ScheduleAnyway")
        found: Plain = {"maxSkew": draw.pick(1, 2, 4), "topologyKey": key}
        found["whenUnsatisfiable"] = action
        if action == "DoNotSchedule" and draw.chance(0.2):
            found["minDomains"] = draw.pick(1, 3)
        if draw.chance(0.2):
            found["nodeAffinityPolicy"] = draw.pick("Honor", "Ignore")
        if draw.chance(0.2):
            found["nodeTaintsPolicy"] = draw.pick("Honor", "Ignore")
        constraints[key, action] = found
    return {"defaultingType": "List", "defaultConstraints": list(constraints.values())}


def _volume_binding(draw: Draw) -> Plain:
    args: Plain = {}
    if draw.chance(0.8):
        points = sorted(draw.some(range(101), 5, 1))
        args["shape"] = [{"utilization": at, "score": draw.randrange(11)} for at in points]
    if draw.chance(0.2):
        args["bindTimeoutSeconds"] = draw.pick(0, 60, 600)
    return args


def _preemption(draw: Draw) -> Plain:
    return {
        "minCandidateNodesPercentage": draw.pick(0, 10, 100),
        "minCandidateNodesAbsolute": draw.pick(100, 1000),
    }


def _node_affinity(draw: Draw) -> Plain:
    names = [f"n{i:02}" for i in range(4)]
    added: Plain = {}
    if draw.chance(0.5):
        added["requiredDuringSchedulingIgnoredDuringExecution"] = node_selector(draw, names)
    if draw.chance(0.5):
        added["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.pick(1, 20, 100), "preference": node_term(draw, names)}
            for _ in draw.several(2, 1)
        ]
    return {"addedAffinity": added}


ARGUMENTS = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "InterPodAffinity": _interpod,
    "PodTopologySpread": _spread,
    "NodeAffinity": _node_affinity,
    "VolumeBinding": _volume_binding,
    "DefaultPreemption": _preemption,
}
