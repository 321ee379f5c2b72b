"""Containers and what they ask for: init containers, sidecars, overhead, resizes, ports, images."""

from tests.parity.generator.draw import Draw, Plain
from tests.parity.generator.nodes import IMAGES
from tests.parity.generator.traits import Traits

# Amounts as people write them, odd ones among them.
_CPU = ("100m", "250m", "500m", "1", "2", "0", "0.1", "1500m", "6", "1e-1", "33m", "1u", "3")
CPU = (*_CPU, "999999n", ".5", "5.", "+1", "1E0", "0.0005k", "1.0000001")
_MEMORY = ("64Mi", "128Mi", "100M", "1Gi", "4Gi", "0", "100k", "1500M", "1e8", "0.5Gi", "123456789")
MEMORY = (*_MEMORY, "1.5", "1500m", "+64Mi", "6.4E7", ".1Gi", "1.M", "0.3333333Gi", "1000000000m")
# Each is rounded up to a thousandth, but only when the API server has summed them up for the pod.
_ROUNDED = {
    "1u": "1m",
    "999999n": "1m",
    "1.0000001": "1001m",
    "0.3333333Gi": "357913905542m",
}
STORAGE = ("1Gi", "20Gi", "0", "500M")
ODD_IMAGES = (
    "busybox",
    "none:0",
    "registry.example/app",
    "registry.example/db",
    "localhost:5000/tools",
    "registry.example/missing:v9",
    "huge:1",
    "registry.example/app@sha256:" + "ab" * 32,
)
PORTS = (80, 443, 8080, 53)
HOST_IPS = ("", "0.0.0.0", "127.0.0.1", "10.0.0.2", "::1", "::")
PROTOCOLS = ("TCP", "UDP", "SCTP")


def fill_containers(draw: Draw, pod: Plain, traits: Traits) -> None:
    """Give *pod* its containers and all that is asked for by them or for it as a whole."""
    spec = pod["spec"]
    spec["containers"] = [_container(draw, f"c{i}", traits) for i in draw.several(3, 1)]
    if draw.chance(traits["init"]):
        spec["initContainers"] = [_init_container(draw, i, traits) for i in draw.several(3, 1)]
    if draw.chance(traits["overhead"]):
        spec["runtimeClassName"] = "kata"
        spec["overhead"] = {"cpu": draw.pick("50m", "1", "0"), "memory": draw.pick("20Mi", "1G")}
        if draw.chance(0.2):
            del spec["overhead"][draw.pick("cpu", "memory")]
    if draw.chance(traits["pod_resources"]):
        _pod_level(draw, pod, traits)
    if draw.chance(traits["ports"]):
        _ports(draw, pod)
    if draw.chance(traits["features"]):
        _need_features(draw, pod)


def _container(draw: Draw, name: str, traits: Traits) -> Plain:
    image = draw.pick(*ODD_IMAGES) if draw.chance(0.5) else draw.pick(*IMAGES)[0]
    return {"name": name, "image": image, "resources": _resources(draw, traits)}


def _init_container(draw: Draw, i: int, traits: Traits) -> Plain:
    container = _container(draw, f"i{i}", traits)
    if draw.chance(0.5):
        container["restartPolicy"] = "Always"
    return container


def _resources(draw: Draw, traits: Traits) -> Plain:
    if draw.chance(0.12):
        return {}
    requests: Plain = {}
    plain_cpu, plain_memory = CPU[:4], MEMORY[:4]
    is_odd = draw.chance(traits["resources"])
    if draw.chance(0.8):
        requests["cpu"] = draw.pick(*(CPU if is_odd else plain_cpu))
    if draw.chance(0.7):
        requests["memory"] = draw.pick(*(MEMORY if is_odd else plain_memory))
    if draw.chance(0.15):
        requests["ephemeral-storage"] = draw.pick(*STORAGE)
    limits: Plain = {}
    if is_odd:
        _odd_resources(draw, requests, limits)
    if draw.chance(0.15):
        # Of equal amounts: a pod all of whose containers are so is guaranteed.
        limits |= {name: requests[name] for name in ("cpu", "memory") if name in requests}
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _odd_resources(draw: Draw, requests: Plain, limits: Plain) -> None:
    whole = {
        "nvidia.com/gpu": ("1", "2", "0"),
        "example.com/foo": ("1", "3", "10", "500"),
        "kubernetes.io/batch-cpu": ("100",),
        "example.com/absent": ("1", "0"),
    }
    for name, amounts in whole.items():
        if draw.chance(0.2):
            requests[name] = limits[name] = draw.pick(*amounts)
    if draw.chance(0.12) and ("cpu" in requests or "memory" in requests):
        name = draw.pick("hugepages-2Mi", "hugepages-2Mi", "hugepages-1Gi")
        amounts = ("4Mi", "32Mi", "100Mi") if name == "hugepages-2Mi" else ("1Gi", "2Gi")
        requests[name] = limits[name] = draw.pick(*amounts)


def _pod_level(draw: Draw, pod: Plain, traits: Traits) -> None:
    """Requests of the pod as a whole: never below what its containers ask for together."""
    requests: Plain = {}
    if draw.chance(0.8):
        requests["cpu"] = draw.pick("20", "30", "40500m")
    if draw.chance(0.7):
        requests["memory"] = draw.pick("40Gi", "50G")
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        asked = container["resources"].get("requests", {})
        for name in [name for name in asked if name.startswith("hugepages-")]:
            del asked[name], container["resources"]["limits"][name]
        if draw.chance(0.5):
            container["resources"] = {}
        for amounts in container["resources"].values():
            for name in ("cpu", "memory"):
                if name in amounts and name not in requests:
                    amounts[name] = _ROUNDED.get(amounts[name], amounts[name])
    if requests and draw.chance(0.15):
        requests["hugepages-2Mi"] = draw.pick("64Mi", "128Mi")
    pod["spec"]["resources"] = {"requests": requests}
    if requests and (draw.chance(0.3) or "hugepages-2Mi" in requests):
        pod["spec"]["resources"]["limits"] = dict(requests)


def _ports(draw: Draw, pod: Plain) -> None:
    spec = pod["spec"]
    if draw.chance(0.1):
        spec["hostNetwork"] = True
    taken = set()
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        ports = []
        for _ in draw.several(2):
            number, protocol, ip = draw.pick(*PORTS), draw.pick(*PROTOCOLS), draw.pick(*HOST_IPS)
            if (number, protocol) in taken:
                continue
            taken.add((number, protocol))
            port: Plain = {"containerPort": number, "protocol": protocol}
            if spec.get("hostNetwork") or draw.chance(0.85):
                port["hostPort"] = number
            if ip:
                port["hostIP"] = ip
            ports.append(port)
        if ports:
            container["ports"] = ports


def _need_features(draw: Draw, pod: Plain) -> None:
    if draw.chance(0.5):
        pod["spec"]["hostNetwork"] = True
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            for port in container.get("ports", ()):
                port["hostPort"] = port["containerPort"]
        if draw.chance(0.3):
            pod["spec"]["hostUsers"] = True
    if draw.chance(0.5):
        container = draw.pick(*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
        if container.get("restartPolicy") is None:
            container["restartPolicy"] = "Never"
        container["restartPolicyRules"] = [
            {
                "action": draw.pick("Restart", "RestartAllContainers"),
                "exitCodes": {"operator": "In", "values": [42]},
            }
        ]


def add_resize(draw: Draw, pod: Plain) -> None:
    """Let *pod*, which is placed, be somewhere in the middle of a resize."""
    status, spec = pod["status"], pod["spec"]

    def actual(container: Plain) -> Plain:
        asked = container["resources"].get("requests", {})
        found: Plain = {"name": container["name"]}
        if draw.chance(0.85):
            found["resources"] = {"requests": _near(draw, asked)} if draw.chance(0.9) else {}
        if draw.chance(0.75):
            found["allocatedResources"] = _near(draw, asked)
        return found

    for field in ("containers", "initContainers"):
        kept = [c for c in spec.get(field, ()) if draw.chance(0.8)]
        if kept:
            name = "containerStatuses" if field == "containers" else "initContainerStatuses"
            status[name] = [
                {**actual(c), "image": "x", "imageID": "", "ready": True, "restartCount": 0}
                for c in kept
            ]
    if "resources" in spec:
        asked = spec["resources"].get("requests", {})
        if draw.chance(0.8):
            status["resources"] = {"requests": _near(draw, asked)}
        if draw.chance(0.7):
            status["allocatedResources"] = _near(draw, asked)
    if draw.chance(0.6):
        condition = {"type": "PodResizePending", "status": "True"}
        condition["reason"] = draw.pick("Infeasible", "Deferred")
        other = {"type": "PodResizeInProgress", "status": "True"}
        status["conditions"] = [condition] if draw.chance(0.7) else [other, condition]


def _near(draw: Draw, asked: Plain) -> Plain:
    """Amounts of the same resources, mostly others."""
    found = {}
    for name, amount in asked.items():
        if draw.chance(0.1):
            continue
        if name == "cpu" and draw.chance(0.7):
            amount = draw.pick(*CPU)
        elif name == "memory" and draw.chance(0.7):
            amount = draw.pick(*MEMORY)
        found[name] = amount
    if draw.chance(0.1):
        found[draw.pick("cpu", "memory")] = draw.pick("1", "300M")
    return found
