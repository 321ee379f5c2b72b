"""Makes small random clusters, and pods to be judged in them.

Owns what occurs and how often; the same seed and index give the same scenario, whatever else is
generated. Objects are such as an API server accepts and stores (`oracle -validate` has the word).
"""

from tests.parity.generator.configs import PROFILE_NAMES, configuration
from tests.parity.generator.devices import Devices
from tests.parity.generator.draw import Draw, Plain
from tests.parity.generator.groups import add_groups, budgets, namespaces
from tests.parity.generator.newer import add_newer
from tests.parity.generator.nodes import node
from tests.parity.generator.pods import nominated, placed, pod, start_preemption
from tests.parity.generator.traits import (
    GATED,
    NEWER,
    PARTS,
    THEMES,
    Traits,
    gates_of,
    themes,
    traits_of,
)
from tests.parity.generator.volumes import Storage

__all__ = ["GATED", "NEWER", "PARTS", "THEMES", "Plain", "gates_of", "scenario", "themes"]

INCOMING = 6
#: Scenarios in a row that share a configuration: ours builds it once.
_SHARING = 24
_RUNS = 8
_REPEATS = 8


def scenario(seed: int, index: int, theme: str, without: frozenset[str] = frozenset()) -> Plain:
    """The scenario of this theme at *index* of *seed*, `answers` left out."""
    traits = traits_of(theme, without)
    draw = Draw(f"{seed}/{index}/{theme}")
    names = [f"n{i:02}" for i in draw.several(draw.pick(2, 5, 9, 14), 1)]
    nodes = [node(draw, name, traits) for name in names]
    pods = [
        placed(draw, pod(draw, f"e{i:02}", names, traits), draw.pick(*names), traits)
        for i in draw.several(draw.pick(0, 6, 15, 30))
    ]
    _part_ports(pods)
    _part_times(pods)
    incoming = [pod(draw, f"p{i:02}", names, traits) for i in range(INCOMING)]
    objects = namespaces() + add_groups(draw, pods + incoming, traits)
    objects += _storage(draw, names, pods, incoming, traits)
    objects += _devices(draw, nodes, pods, incoming, traits)
    made: Plain = {"id": f"{theme}-{seed}-{index}"}
    if draw.chance(traits["config"]):
        made["config"] = _shared_configuration(seed, index, theme)
        profiles = [p.get("schedulerName") for p in made["config"]["profiles"]]
        for each in incoming:
            name = draw.pick(*profiles)
            if name is not None and name != PROFILE_NAMES[0]:
                each["spec"]["schedulerName"] = name
    if draw.chance(traits["preemption"]):
        made["runs"] = _RUNS
        objects += budgets(draw, pods, traits)
    elif "preemption" not in without and not traits.get("group_claims"):
        # To hear what is said of pods that fit nowhere; for one of a group alone nothing is done.
        made["runs"] = 1
    if _leaves_to_chance(objects):
        made["repeats"] = _REPEATS
    if draw.chance(traits["nominations"]):
        _nominate(draw, names, pods, incoming, traits)
    add_newer(Draw(f"{seed}/{index}/{theme}/newer"), traits, pods, incoming, objects)
    return {**made, "nodes": nodes, "pods": pods, "objects": objects, "incoming": incoming}


def _leaves_to_chance(objects: list[Plain]) -> bool:
    """True if kube-scheduler may take the first of several objects in the order of a hash map."""
    capacities = [each for each in objects if each["kind"] == "CSIStorageCapacity"]
    return len(capacities) > 1 or any(
        each["spec"].get("preventPodSchedulingIfMissing")
        for each in objects
        if each["kind"] == "CSIDriver"
    )


def _part_ports(pods: list[Plain]) -> None:
    """Take from placed pods the ports that another pod of their node has.

    kube-scheduler lets two pods hold a port of one node, and takes it for free when one goes. That
    cannot come about by scheduling, and shows where pods are taken away to see what fits.
    """
    taken: set[tuple[str, str, int]] = set()
    for each in pods:
        spec = each["spec"]
        containers = [*spec["containers"], *spec.get("initContainers", ())]
        ports = [port for container in containers for port in container.get("ports", ())]
        keys = {(spec["nodeName"], p["protocol"], p["containerPort"]) for p in ports}
        if keys & taken:
            for container in containers:
                container.pop("ports", None)
        taken |= keys


def _part_times(pods: list[Plain]) -> None:
    """Give many pods start times of their own.

    Go sorts a dozen by insertion, and more of them in a way that does not keep the order of equals:
    which of many equally important victims stay is nobody's rule.
    """
    if len(pods) > 12:
        for i, each in enumerate(pods):
            time = each["status"]["startTime"]
            each["status"]["startTime"] = f"{time[:-3]}{i:02}Z"


def _nominate(
    draw: Draw, names: list[str], pods: list[Plain], incoming: list[Plain], traits: Traits
) -> None:
    """Let some pods wait for a node that they were promised, of the incoming ones too."""
    placed_pods = list(pods)
    pods += [
        nominated(draw, pod(draw, f"w{i:02}", names, traits), draw.pick(*names))
        for i in draw.several(3, 1)
    ]
    for each in incoming:
        if placed_pods and draw.chance(0.25):
            start_preemption(draw, each, placed_pods)


def _storage(
    draw: Draw, names: list[str], pods: list[Plain], incoming: list[Plain], traits: Traits
) -> list[Plain]:
    if not draw.chance(max(traits["volumes"], traits["disks"])):
        return []
    storage = Storage(draw, names, traits)
    for each in pods:
        storage.use(each, traits, is_placed=True)
    for each in incoming:
        storage.use(each, traits, is_placed=False)
    return storage.objects + storage.attachments()


def _devices(
    draw: Draw, nodes: list[Plain], pods: list[Plain], incoming: list[Plain], traits: Traits
) -> list[Plain]:
    if not draw.chance(traits["devices"]):
        return []
    devices = Devices(draw, nodes, traits)
    for each in pods:
        devices.use(each, traits, is_placed=True)
    for each in incoming:
        devices.use(each, traits, is_placed=False)
    return devices.objects


def _shared_configuration(seed: int, index: int, theme: str) -> Plain:
    return configuration(Draw(f"{seed}/{index // _SHARING}/{theme}/configuration"))
