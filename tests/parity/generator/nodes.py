"""Nodes: sizes, labels, taints, images, features."""

from tests.parity.generator.draw import Draw, Plain
from tests.parity.generator.selectors import HOSTNAME, NODE_LABELS, REGION, ZONE, ZONES
from tests.parity.generator.traits import Traits

TAINT_KEYS = ("dedicated", "flaky", "gpu", "example.com/odd")
TAINT_VALUES = ("", "red", "blue", "green")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
WELL_KNOWN_TAINTS = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/unschedulable",
)

# Image: its size on a typical node. The first name is what pods ask for.
IMAGES = {
    ("registry.example/app:v1", "mirror.example/app:v1"): 120 << 20,
    ("registry.example/db:v2", "mirror.example/db:v2", "registry.example/db"): 700 << 20,
    ("registry.example/ml:v3",): 2400 << 20,
    ("busybox:latest",): 4 << 20,
    ("localhost:5000/tools:latest", "localhost:5000/tools"): 60 << 20,
    ("registry.example/app@sha256:" + "ab" * 32, "registry.example/app:v2"): 130 << 20,
    ("none:0",): 0,
    ("huge:1",): 5_000 << 20,
}

FEATURES = (
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "GuaranteedQoSPodCPUResize",
)


def node(draw: Draw, name: str, traits: Traits) -> Plain:
    """One node."""
    made: Plain = {"metadata": {"name": name, "labels": _labels(draw, name)}, "spec": {}}
    made["status"] = {"allocatable": _allocatable(draw, traits)}
    if draw.chance(0.5):
        made["status"]["capacity"] = dict(made["status"]["allocatable"])
    if draw.chance(traits["taints"]):
        made["spec"]["taints"] = _taints(draw)
    if draw.chance(traits["taints"] * 0.3):
        made["spec"]["unschedulable"] = True
    if draw.chance(traits["images"]):
        made["status"]["images"] = _images(draw)
    if draw.chance(0.2):
        made["status"]["conditions"] = [
            {"type": "Ready", "status": draw.pick("True", "False", "Unknown")},
            {"type": "MemoryPressure", "status": draw.pick("True", "False")},
        ]
    if draw.chance(traits["features"]):
        made["status"]["declaredFeatures"] = sorted(draw.some(FEATURES, 3))
    if draw.chance(0.1):
        made["metadata"]["annotations"] = {"example.com/note": "x"}
    return made


def _labels(draw: Draw, name: str) -> dict[str, str]:
    labels = {}
    if draw.chance(0.96):
        labels[HOSTNAME] = name
    labels["kubernetes.io/os"] = "linux"
    if draw.chance(0.88):
        labels[ZONE] = draw.pick(*ZONES)
    if draw.chance(0.3):
        labels[REGION] = draw.pick("r1", "r2")
    for key, values in NODE_LABELS.items():
        if draw.chance(0.45):
            labels[key] = draw.pick(*values)
    return labels


def _allocatable(draw: Draw, traits: Traits) -> Plain:
    if draw.chance(traits["full"]):
        cpu, memory = draw.pick("1", "2", "500m", "1500m"), draw.pick("1Gi", "2Gi", "512Mi")
        pods = draw.pick("1", "3", "5", "10")
    else:
        cpu = draw.pick("4", "8", "16", "31500m", "64", "7910m", "1e1", "3.5")
        memory = draw.pick("8Gi", "32Gi", "64Gi", "47999M", "16331752Ki", "1.5Ti", "3e10")
        pods = draw.pick("110", "110", "250", "20")
    found: Plain = {"cpu": cpu, "memory": memory, "pods": pods}
    if draw.chance(0.85):
        found["ephemeral-storage"] = draw.pick("100Gi", "50Gi", "95551679124", "1Ti")
    if not draw.chance(traits["resources"]):
        return found
    if draw.chance(0.5):
        found["nvidia.com/gpu"] = draw.pick("0", "1", "4", "8")
    if draw.chance(0.4):
        found["example.com/foo"] = draw.pick("1", "10", "1k", "3")
    if draw.chance(0.3):
        found["hugepages-2Mi"] = draw.pick("0", "64Mi", "1Gi")
    if draw.chance(0.2):
        found["hugepages-1Gi"] = draw.pick("1Gi", "4Gi")
    if draw.chance(0.1):
        found["kubernetes.io/batch-cpu"] = draw.pick("1000", "2k")
    if draw.chance(0.1):
        found["attachable-volumes-csi-csi.example"] = "2"
    if draw.chance(0.1):
        found["widgets"] = "5"
    if draw.chance(0.06):
        del found[draw.pick("cpu", "memory", "pods")]
    if draw.chance(0.05):
        found[draw.pick("cpu", "memory")] = "0"
    return found


def _taints(draw: Draw) -> list[Plain]:
    taints: dict[tuple[str, str], Plain] = {}
    for _ in draw.several(3, 1):
        key = draw.pick(*TAINT_KEYS) if draw.chance(0.8) else draw.pick(*WELL_KNOWN_TAINTS)
        effect = draw.pick(*EFFECTS)
        taint = {"key": key, "effect": effect}
        if value := draw.pick(*TAINT_VALUES):
            taint["value"] = value
        taints[key, effect] = taint
    return list(taints.values())


def _images(draw: Draw) -> list[Plain]:
    images = []
    for names in draw.some(list(IMAGES), 6):
        size = IMAGES[names] + draw.randrange(1000)
        kept = [name for name in names if draw.chance(0.85)]
        images.append({"names": kept, "sizeBytes": size})
    return images
