"""Devices: what drivers publish, classes, claims in every state, and the pods that hold them."""

from tests.parity.generator.draw import Draw, Plain, pruned
from tests.parity.generator.selectors import NAMESPACES, ZONE, ZONES
from tests.parity.generator.traits import Traits

GPU, NIC = "gpu.example.com", "nic.example.com"
API = "resource.k8s.io/v1"
MODELS = ("a", "b")
CLASSES = ("gpu", "gpu", "any", "fast", "nic", "shared")
EXTENDED = "example.com/gpu"


class Devices:
    """The device objects of one scenario, added to as pods ask for them."""

    def __init__(self, draw: Draw, nodes: list[Plain], traits: Traits) -> None:
        self._draw = draw
        self._count = 0
        self._claims: dict[str, list[str]] = {name: [] for name in NAMESPACES}
        self._published: list[tuple[str, str, str]] = []  # driver, pool, device
        self._taken: set[tuple[str, str, str]] = set()
        self._has_counters = draw.chance(traits["counters"])
        self._lists = traits.get("lists", 0.0)
        self._compatibility = traits.get("compatibility", 0.0)
        self._has_constraints = draw.chance(0.35) or bool(self._lists)
        self._sharing = traits["shares"]
        self._shared: set[tuple[str, str, str]] = set()
        self._in_groups = traits.get("group_claims", 0.0)
        self._groups: dict[str, list[Plain]] = {name: [] for name in NAMESPACES}
        self.objects: list[Plain] = _classes(draw)
        for node in nodes:
            self._publish_for(node["metadata"]["name"])
            if draw.chance(0.15):
                _offer_without_claims(draw, node)
        if draw.chance(0.5):
            self._publish_shared()
        if draw.chance(traits["device_rules"]):
            self.objects += [self._rule(i) for i in draw.several(3, 1)]
        if self._in_groups:
            for namespace, groups in self._groups.items():
                groups += [self._group_of(f"g{i}", namespace) for i in draw.several(2, 1)]

    def use(self, pod: Plain, traits: Traits, *, is_placed: bool) -> None:
        """Give *pod* claims, or let it ask for a device as for an extended resource."""
        draw, spec = self._draw, pod["spec"]
        if not draw.chance(traits["devices"] * 0.75):
            return
        if not is_placed and draw.chance(0.15):
            for container in draw.some(
                [*spec["containers"], *spec.get("initContainers", ())], draw.pick(1, 1, 3), 1
            ):
                name = draw.pick(EXTENDED, EXTENDED, "deviceclass.resource.kubernetes.io/gpu")
                amount = draw.pick("1", "1", "2")
                for kind in ("requests", "limits"):
                    container["resources"].setdefault(kind, {})[name] = amount
            return
        if self._in_groups and draw.chance(self._in_groups):
            spec["resourceClaims"] = self._join(pod, is_placed)
            return
        spec["resourceClaims"] = [
            self._reference(pod, f"c{i}", is_placed) for i in draw.several(2, 1)
        ]

    # --- groups --------------------------------------------------------------------------------

    def _group_of(self, name: str, namespace: str) -> Plain:
        """A PodGroup with its claims, which it names or has been made from templates."""
        draw = self._draw
        group: Plain = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
            "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": []},
        }
        for i in draw.several(2, 1):
            claim, is_made = f"{name}-c{i}", draw.chance(0.5)
            owner = None
            if is_made:
                owner = group["metadata"]["uid"] if draw.chance(0.9) else "another"
            self._claim(namespace, claim, group, draw.chance(0.4), owner)
            of: Plain = {"resourceClaimName": claim}
            if is_made:
                of = {"resourceClaimTemplateName": "template"}
            group["spec"]["resourceClaims"].append({"name": f"c{i}", **of})
        self.objects.append(group)
        return group

    def _join(self, pod: Plain, is_placed: bool) -> list[Plain]:
        """Put *pod* into a group: the claims that it shares, and in some cases one of its own."""
        draw, meta = self._draw, pod["metadata"]
        group = draw.pick(*self._groups[meta["namespace"]])
        name = group["metadata"]["name"]
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        claims = []
        for i, entry in enumerate(group["spec"]["resourceClaims"]):
            if draw.chance(0.15):
                continue
            named = entry["name"] if draw.chance(0.85) else f"own{i}"
            if "resourceClaimTemplateName" in entry:
                statuses = pod["status"].setdefault("resourceClaimStatuses", [])
                statuses.append({"name": named, "resourceClaimName": f"{name}-c{i}"})
            claims.append({**entry, "name": named})
        if not claims or draw.chance(0.3):
            claims.append(self._reference(pod, "c9", is_placed))
        return claims

    # --- claims --------------------------------------------------------------------------------

    def _reference(self, pod: Plain, name: str, is_placed: bool) -> Plain:
        draw, meta = self._draw, pod["metadata"]
        known = self._claims[meta["namespace"]]
        if draw.chance(0.25):
            # From a template: its controller has made the claim, or not yet.
            claim = f"{meta['name']}-{name}"
            if draw.chance(0.93):
                owner = meta["uid"] if draw.chance(0.95) else "another"
                self._claim(meta["namespace"], claim, pod, is_placed, owner)
                statuses = pod["status"].setdefault("resourceClaimStatuses", [])
                statuses.append({"name": name, "resourceClaimName": claim})
            return {"name": name, "resourceClaimTemplateName": "template"}
        if known and draw.chance(0.3):
            claim = draw.pick(*known)
        elif draw.chance(0.03):
            claim = "missing"
        else:
            claim = f"claim{self._count}"
            self._count += 1
            self._claim(meta["namespace"], claim, pod, is_placed, None)
            known.append(claim)
        return {"name": name, "resourceClaimName": claim}

    def _claim(
        self, namespace: str, name: str, user: Plain, is_placed: bool, owner: str | None
    ) -> None:
        """A claim of *user*, a pod or a PodGroup; *owner*: the uid that it was made for."""
        draw = self._draw
        meta: Plain = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
        if owner is not None:
            # A pod does not know the uid of its group: what is another's has another name.
            is_others = owner == "another" and "kind" in user
            meta["ownerReferences"] = [
                {
                    "apiVersion": user.get("apiVersion", "v1"),
                    "kind": user.get("kind", "Pod"),
                    "name": user["metadata"]["name"] if not is_others else owner,
                    "uid": owner,
                    "controller": True,
                }
            ]
        if draw.chance(0.02):
            meta["deletionTimestamp"] = "2026-01-01T05:00:00Z"
            meta["finalizers"] = ["resource.kubernetes.io/delete-protection"]
        requests = [self._request(f"r{i}") for i in draw.several(2, 1)]
        devices: Plain = {"requests": requests}
        if self._has_constraints and draw.chance(0.9 if self._lists else 0.4):
            attribute = draw.pick(f"{GPU}/model", f"{GPU}/numa", "example.com/switch")
            if self._lists and draw.chance(0.4):
                attribute = draw.pick(f"{GPU}/modes", f"{GPU}/driverVersion")
            kind = draw.pick("matchAttribute", "distinctAttribute")
            constraint: Plain = {kind: attribute}
            if draw.chance(0.3):
                constraint["requests"] = [requests[0]["name"]]
            devices["constraints"] = [constraint]
        status: Plain = {}
        if draw.chance(0.9 if is_placed else 0.15):
            status = self._allocated(requests[0]["name"], user, is_placed)
        self.objects.append(
            {
                "apiVersion": API,
                "kind": "ResourceClaim",
                "metadata": meta,
                "spec": {"devices": devices},
                "status": status,
            }
        )

    def _request(self, name: str) -> Plain:
        draw = self._draw
        if draw.chance(0.2):
            alternatives = [self._wish(f"s{i}") for i in draw.several(3, 1)]
            return {"name": name, "firstAvailable": alternatives}
        wish = self._wish()
        if draw.chance(0.08):
            wish["adminAccess"] = True
        return {"name": name, "exactly": wish}

    def _wish(self, name: str | None = None) -> Plain:
        draw = self._draw
        wish: Plain = pruned({"name": name, "deviceClassName": draw.pick(*CLASSES)})
        if draw.chance(0.03):
            wish["deviceClassName"] = "gone"
        if draw.chance(0.2 if self._lists else 0.35):
            has_lists = self._lists and draw.chance(0.5)
            of = _list_selector if has_lists else _selector
            wish["selectors"] = [of(draw) for _ in draw.several(2, 1)]
        if draw.chance(0.12):
            wish["allocationMode"] = "All"
        elif draw.chance(0.8 if self._lists or self._compatibility else 0.3):
            wish |= {"allocationMode": "ExactCount", "count": draw.pick(1, 2, 2, 3)}
        else:
            wish |= {"allocationMode": "ExactCount", "count": 1}
        if draw.chance(0.2):
            toleration = {"operator": "Exists"}
            if draw.chance(0.6):
                toleration = {"key": "example.com/broken", "operator": "Exists"}
            if draw.chance(0.4):
                toleration["effect"] = draw.pick("NoSchedule", "NoExecute")
            wish["tolerations"] = [toleration]
        if draw.chance(0.15):
            wish["capacity"] = {"requests": {"memory": draw.pick("1Gi", "3Gi", "10Gi")}}
        return wish

    def _allocated(self, request: str, user: Plain, is_placed: bool) -> Plain:
        draw = self._draw
        free = [device for device in self._published if device not in self._taken]
        if not free:
            return {}
        mine = [d for d in free if d[1].endswith(str(user["spec"].get("nodeName")))]
        device = draw.pick(*(mine or free))
        self._taken.add(device)
        driver, pool, name = device
        result: Plain = {"request": request, "driver": driver, "pool": pool, "device": name}
        if device in self._shared:
            result["shareID"] = f"00000000-0000-4000-8000-{len(self._taken):012}"
            result["consumedCapacity"] = {"memory": draw.pick("1Gi", "2Gi", "4Gi")}
        allocation: Plain = {"devices": {"results": [result]}}
        node = pool.removeprefix("pool-")
        if pool != "everywhere":
            allocation["nodeSelector"] = {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                ]
            }
        status: Plain = {"allocation": allocation}
        if is_placed or draw.chance(0.3):
            found = user["metadata"] if draw.chance(0.9) else {"name": "other", "uid": "other"}
            reference: Plain = {"resource": "pods", "name": found["name"], "uid": found["uid"]}
            if user.get("kind") == "PodGroup":
                reference |= {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
            status["reservedFor"] = [reference]
        return status

    # --- rules --------------------------------------------------------------------------------

    def _rule(self, i: int) -> Plain:
        """A DeviceTaintRule: for all devices, for some, or for none."""
        draw = self._draw
        driver, pool, device = draw.pick(*self._published, (GPU, "pool-n99", "d0"))
        whole = {"driver": driver, "pool": pool, "device": device}
        selector = {name: whole[name] for name in draw.some(tuple(whole), 3)}
        taint = {"key": draw.pick("example.com/broken", "example.com/old")}
        taint["effect"] = draw.pick("NoSchedule", "NoSchedule", "NoExecute", "None")
        spec: Plain = {"taint": taint}
        if draw.chance(0.85):  # without a selector it is for no device
            spec["deviceSelector"] = selector
        return {
            "apiVersion": API,
            "kind": "DeviceTaintRule",
            "metadata": {"name": f"rule{i}"},
            "spec": spec,
        }

    # --- what is published ---------------------------------------------------------------------

    def _publish_for(self, node: str) -> None:
        draw = self._draw
        if draw.chance(0.8):
            most = 6 if self._lists or self._compatibility else 4
            self._publish(GPU, f"pool-{node}", {"nodeName": node}, draw.randint(1, most))
        if draw.chance(0.3):
            self._publish(NIC, f"pool-{node}", {"nodeName": node}, draw.randint(1, 2))

    def _publish_shared(self) -> None:
        draw = self._draw
        where: Plain = {"allNodes": True}
        if draw.chance(0.5):
            where = _in_zones(draw)
        self._publish(NIC, "everywhere", where, draw.randint(1, 3))

    def _publish(self, driver: str, pool: str, where: Plain, count: int) -> None:
        draw = self._draw
        generation = draw.pick(1, 1, 2)
        slices = draw.pick(1, 1, 1, 2)
        has_counters = self._has_counters and driver == GPU and draw.chance(0.8)
        devices = [self._device(driver, f"d{i}", has_counters) for i in range(count)]
        self._published += [(driver, pool, device["name"]) for device in devices]
        self._shared |= {
            (driver, pool, device["name"])
            for device in devices
            if device.get("allowMultipleAllocations")
        }
        at = where
        if "nodeName" in where and not has_counters and draw.chance(0.15):
            for device in devices:
                device |= draw.pick(where, where, {"allNodes": True}, _in_zones(draw))
            at = {"perDeviceNodeSelection": True}
        parts = [devices[i::slices] for i in range(slices)]
        counters = {"name": "card", "counters": {"memory": {"value": draw.pick("10Gi", "40Gi")}}}
        if has_counters:
            parts.append([])
        published = [part for part in parts if part or part is parts[-1]]
        total = len(published) + (1 if draw.chance(0.04) else 0)  # more than there are: incomplete
        for i, part in enumerate(published):
            spec: Plain = {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": total},
                **at,
            }
            if has_counters and not part:
                spec["sharedCounters"] = [counters]
                if self._compatibility:
                    ports = {"ports": {"value": "4"}}
                    spec["sharedCounters"].append({"name": "switch", "counters": ports})
            else:
                spec["devices"] = part
            self._slice(f"{driver}-{pool}-{i}", spec)
        if draw.chance(0.1):
            old = {"name": pool, "generation": 0, "resourceSliceCount": 1}
            spec = {"driver": driver, "pool": old, **where, "devices": [{"name": "gone"}]}
            self._slice(f"{driver}-{pool}-old", spec)

    def _slice(self, name: str, spec: Plain) -> None:
        meta = {"name": name.replace("_", "-")}
        self.objects.append(
            {"apiVersion": API, "kind": "ResourceSlice", "metadata": meta, "spec": spec}
        )

    def _device(self, driver: str, name: str, has_counters: bool) -> Plain:
        draw = self._draw
        attributes: Plain = {
            "model": {"string": draw.pick(*MODELS)},
            "numa": {"int": draw.randrange(2)},
            "fast": {"bool": draw.chance(0.5)},
            "driverVersion": {"version": draw.pick("1.0.0", "1.2.3", "2.0.0-rc.1")},
            "example.com/switch": {"string": draw.pick("x", "y")},
        }
        kept = {key: value for key, value in attributes.items() if draw.chance(0.85)}
        if self._lists:
            kept["modes"] = {"bool": draw.chance(0.5)}
            for key in kept:
                # A class expects `fast` to be a value.
                if key != "fast" and draw.chance(self._lists):
                    kept[key] = _list(draw, key)
        device: Plain = {"name": name, "attributes": kept}
        if draw.chance(0.8):
            device["capacity"] = {"memory": {"value": draw.pick("4Gi", "16Gi")}}
            if draw.chance(self._sharing):
                device["allowMultipleAllocations"] = True
                if draw.chance(0.5):
                    policy = draw.pick(
                        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
                        {"default": "2Gi", "validRange": {"min": "1Gi", "max": "4Gi"}},
                        {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
                        {"default": "1Gi"},
                    )
                    device["capacity"]["memory"]["requestPolicy"] = policy
        if draw.chance(0.12):
            taint = {"key": draw.pick("example.com/broken", "example.com/old")}
            taint["effect"] = draw.pick("NoSchedule", "NoExecute", "None")
            device["taints"] = [taint]
        if draw.chance(0.08):
            device["bindingConditions"] = ["example.com/ready"]
            device["bindingFailureConditions"] = ["example.com/failed"]
            if draw.chance(0.4):
                device["bindsToNode"] = True
        if has_counters:
            used = {"memory": {"value": draw.pick("5Gi", "10Gi", "20Gi")}}
            device["consumesCounters"] = [{"counterSet": "card", "counters": used}]
            if self._compatibility:
                self._group(device["consumesCounters"])
        return device

    def _group(self, consumes: list[Plain]) -> None:
        """Let a device have compatibility groups, and consume of a second counter set too."""
        draw = self._draw
        if draw.chance(0.3):
            used = {"ports": {"value": draw.pick("1", "2")}}
            consumes.append({"counterSet": "switch", "counters": used})
        for each in consumes:
            each["counters"].get("memory", {}).update({"value": draw.pick("1Gi", "5Gi")})
            if draw.chance(self._compatibility):
                each["compatibilityGroups"] = draw.some(("a", "b", "c"), 2, 1)


def _offer_without_claims(draw: Draw, node: Plain) -> None:
    """Let *node* have some of the resource that devices stand for elsewhere, or say it has none."""
    amount = draw.pick("0", "1", "2")
    for kind in ("allocatable", "capacity"):
        if kind in node["status"]:
            node["status"][kind][EXTENDED] = amount


def _in_zones(draw: Draw) -> Plain:
    requirement = {"key": ZONE, "operator": "In", "values": draw.some(ZONES, 2, 1)}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}


def _selector(draw: Draw) -> Plain:
    own = f'device.attributes["{GPU}"]'
    expression = draw.pick(
        f'device.driver == "{GPU}"',
        f'{own}.model == "a"',
        f'{own}.model in ["a", "c"]',
        f"{own}.numa == {draw.randrange(2)}",
        f"has({own}.numa) && {own}.numa > 0",
        f"{own}.?fast.orValue(false)",
        f'{own}.driverVersion.isGreaterThan(semver("1.1.0"))',
        '"example.com" in device.attributes && device.attributes["example.com"].switch == "x"',
        f'device.capacity["{GPU}"].memory.compareTo(quantity("10Gi")) >= 0',
        "device.allowMultipleAllocations == true",
        "true",
        f'{own}.model.lowerAscii().startsWith("a")',
        f'{own}.exists(key, key == "numa")',
        f"size({own}) >= 3 ? {own}.fast : {own}.numa / {draw.randrange(2)} == 1",
        f"!{own}.fast || dyn({own}.numa) < 1.5",
        f'sets.contains(["a", "c"], [{own}.model])',
        f'{own}.driverVersion.major() == 1 && {own}.driverVersion.isLessThan(semver("1.2.4"))',
        f'cel.bind(model, {own}.?model.orValue(""), model != "a")',
        f'device.capacity["{GPU}"].?slots.orValue(quantity("1")).asInteger() == 1',
        'device.driver.matches("^gpu")',
    )
    return {"cel": {"expression": expression}}


def _list(draw: Draw, key: str) -> Plain:
    """The attribute *key* as a list, as one of another type in rare cases."""
    if draw.chance(0.05):
        key = draw.pick("model", "numa")
    match key:
        case "model":
            return {"strings": draw.some((*MODELS, "c"), 3, 1)}
        case "numa":
            return {"ints": draw.some((0, 1, 2), 3, 1)}
        case "modes":
            return {"bools": draw.some((True, False), 2, 1)}
        case "driverVersion":
            return {"versions": draw.some(("1.0.0", "1.2.3", "2.0.0-rc.1", "1.0.0+b1"), 3, 1)}
    return {"strings": draw.some(("x", "y", "z"), 2, 1)}


def _list_selector(draw: Draw) -> Plain:
    """One that says something of values and lists alike, most often."""
    own = f'device.attributes["{GPU}"]'
    expression = draw.pick(
        f'has({own}.model) && {own}.model.includes("a")',
        f"{own}.numa.includes({draw.randrange(3)})",
        f"{own}.modes.includes({draw.pick('true', 'false')})",
        f'has({own}.driverVersion) && {own}.driverVersion.includes(semver("1.2.3"))',
        f'{own}.model == "a" || {own}.model.includes("c")',
        f"!has({own}.numa) || size({own}.numa) == 2",
    )
    return {"cel": {"expression": expression}}


def _classes(draw: Draw) -> list[Plain]:
    def cel(expression: str) -> Plain:
        return {"selectors": [{"cel": {"expression": expression}}]}

    specs: dict[str, Plain] = {
        "gpu": cel(f'device.driver == "{GPU}"'),
        "any": {},
        "fast": cel(f'device.driver == "{GPU}" && device.attributes["{GPU}"].?fast.orValue(false)'),
        "nic": cel(f'device.driver == "{NIC}"'),
        "shared": cel("device.allowMultipleAllocations"),
    }
    if draw.chance(0.6):
        specs[draw.pick("gpu", "fast")]["extendedResourceName"] = EXTENDED
    return [
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        for name, spec in specs.items()
    ]
