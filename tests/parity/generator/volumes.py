"""Storage: classes, volumes, claims in every state, drivers with limits, and disks of old kinds."""

from tests.parity.generator.draw import Draw, Plain, pruned
from tests.parity.generator.selectors import HOSTNAME, NAMESPACES, ZONE, ZONES
from tests.parity.generator.traits import Traits

CSI, TRACKED = "csi.example", "csi.tracked"
EBS = "kubernetes.io/aws-ebs"
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
# Of disks of other old kinds: what stands for them, by the plugin that did before.
OTHER_DRIVERS = ("disk.csi.azure.com", "file.csi.azure.com", "csi.vsphere.vmware.com")
OTHER_PLUGINS = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume", "kubernetes.io/cinder")
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
# The classes whose capacity is counted.
_COUNTED_CLASSES = ("tracked", "late")
MODES = ("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
_BLOBS = "https://account.blob.core.windows.net/container"
LATE_CLASSES = ("late", "zonal", "tracked", "local", "ebs")


class Storage:
    """The storage objects of one scenario, added to as pods ask for them."""

    def __init__(self, draw: Draw, node_names: list[str], traits: Traits) -> None:
        self._draw = draw
        self._nodes = node_names
        self._claims: dict[str, list[str]] = {name: [] for name in NAMESPACES}
        self._count = 0
        self._exclusive: set[str] = set()
        self.objects: list[Plain] = [
            *_classes(),
            *_drivers(draw, traits),
            *_csi_nodes(draw, node_names),
            *_capacities(draw, traits),
        ]
        for i in draw.several(5):
            self._volume(f"free{i}", draw.pick("local", "local", "late", "now", ""))

    def use(self, pod: Plain, traits: Traits, *, is_placed: bool) -> None:
        """Give *pod* volumes."""
        draw, spec = self._draw, pod["spec"]
        volumes: list[Plain] = spec.setdefault("volumes", [])
        if draw.chance(traits["volumes"] * 0.75):
            names = [f"v{i}" for i in draw.several(3, 1)]
            volumes += [{"name": n, **self._claim_source(pod, n, is_placed)} for n in names]
        if draw.chance(traits["disks"] * 0.8):
            volumes += [{"name": f"d{i}", **_disk(draw, is_placed)} for i in draw.several(3, 1)]
        if draw.chance(0.2):
            volumes.append({"name": "plain", "emptyDir": {}})
        if not volumes:
            del spec["volumes"]

    def attachments(self) -> list[Plain]:
        """VolumeAttachments of volumes that no pod may use any more."""
        found = []
        for i in self._draw.several(3):
            driver = self._draw.pick(CSI, TRACKED, "ebs.csi.aws.com")
            found.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "VolumeAttachment",
                    "metadata": {"name": f"attached{i}"},
                    "spec": {
                        "attacher": driver,
                        "nodeName": self._draw.pick(*self._nodes),
                        "source": {"persistentVolumeName": self._draw.pick("pv0", "pv1", "gone")},
                    },
                    "status": {"attached": True},
                }
            )
        return found

    # --- claims ------------------------------------------------------------------------------

    def _claim_source(self, pod: Plain, volume: str, is_placed: bool) -> Plain:
        draw, namespace = self._draw, pod["metadata"]["namespace"]
        if draw.chance(0.12):
            name = f"{pod['metadata']['name']}-{volume}"
            if draw.chance(0.9):
                # What is wrong with a placed pod is an error for others, not a verdict.
                owner = pod["metadata"]
                if not is_placed and draw.chance(0.1):
                    owner = {"name": "other", "uid": "other"}
                self._claim(namespace, name, is_placed, owner)
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            return {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
        known = self._claims[namespace]
        if is_placed:  # only one pod ever gets a claim that is for one pod
            known = [name for name in known if name not in self._exclusive]
        if known and draw.chance(0.35):
            name = draw.pick(*known)
        elif draw.chance(0.03):
            name = "missing"
        else:
            name = f"claim{self._count}"
            self._claim(namespace, name, is_placed, None)
        source: Plain = {"claimName": name}
        if draw.chance(0.15):
            source["readOnly"] = True
        return {"persistentVolumeClaim": source}

    def _claim(self, namespace: str, name: str, is_placed: bool, owner: Plain | None) -> None:
        draw = self._draw
        number, self._count = self._count, self._count + 1
        meta: Plain = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
        mode = draw.pick(*MODES)
        if mode == "ReadWriteOncePod":
            self._exclusive.add(name)
        size = draw.pick("1Gi", "5Gi", "20Gi", "5G", "1.5Gi", "5368709121")
        spec: Plain = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
        if draw.chance(0.1):
            spec["volumeMode"] = "Block"
        phase = "Pending"
        is_bound = draw.chance(0.93 if is_placed else 0.4)
        class_name = draw.pick(*LATE_CLASSES, "now", "")
        if is_bound:
            volume = f"pv{number}"
            spec["volumeName"] = volume
            meta["annotations"] = {BIND_COMPLETED: "yes"}
            phase = "Bound"
            if draw.chance(0.95):
                self._volume(volume, class_name, claim=(namespace, name), spec=spec)
            if draw.chance(0.03):
                del meta["annotations"]
            if draw.chance(0.02):
                phase = "Lost"
        else:
            class_name = draw.pick(*LATE_CLASSES, *LATE_CLASSES, *LATE_CLASSES, "now", "", "gone")
            if draw.chance(0.1):
                meta["annotations"] = {SELECTED_NODE: draw.pick(*self._nodes)}
            if draw.chance(0.12):
                spec["selector"] = {"matchLabels": {"kind": draw.pick("fast", "slow")}}
        # As it was written before there was a field, on which kube-scheduler 1.37 crashes where
        # capacity counts.
        if draw.chance(0.04) and class_name not in _COUNTED_CLASSES:
            meta.setdefault("annotations", {})[BETA_CLASS] = class_name
        elif draw.chance(0.96):
            spec["storageClassName"] = class_name
        if draw.chance(0.05):
            spec["volumeAttributesClassName"] = "gold"
        if draw.chance(0.03):
            meta["deletionTimestamp"] = "2026-01-01T05:00:00Z"
            meta["finalizers"] = ["kubernetes.io/pvc-protection"]
        if owner is not None:
            meta["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": owner["name"],
                    "uid": owner["uid"],
                    "controller": True,
                }
            ]
        else:
            self._claims[namespace].append(name)
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": meta,
                "spec": spec,
                "status": {"phase": phase},
            }
        )

    # --- volumes -----------------------------------------------------------------------------

    def _volume(
        self,
        name: str,
        class_name: str,
        claim: tuple[str, str] | None = None,
        spec: Plain | None = None,
    ) -> None:
        draw = self._draw
        meta: Plain = {"name": name}
        made: Plain = {
            "capacity": {"storage": draw.pick("1Gi", "5Gi", "20Gi", "100Gi")},
            "accessModes": draw.some(sorted(set(MODES[:-1])), 3, 1),
            "persistentVolumeReclaimPolicy": "Retain",
            **_volume_source(draw, class_name, name),
        }
        if spec is not None:
            made["accessModes"] = spec["accessModes"]
            made |= pruned({"volumeMode": spec.get("volumeMode")})
        elif draw.chance(0.1):
            made["volumeMode"] = "Block"
        if class_name:
            made["storageClassName"] = class_name
        if claim is not None:
            namespace, claim_name = claim
            made["claimRef"] = {
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim_name,
                "uid": f"uid-{namespace}-{claim_name}",
            }
        elif draw.chance(0.1):
            made["claimRef"] = {"namespace": "default", "name": f"claim{draw.randrange(4)}"}
        if "csi" in made and draw.chance(0.05):
            made["volumeAttributesClassName"] = "gold"
        if "local" in made or draw.chance(0.4):
            made["nodeAffinity"] = {"required": self._volume_affinity()}
        if draw.chance(0.35):
            value = draw.pick(*ZONES, "z1__z2", "z2__z3")
            meta["labels"] = {draw.pick(ZONE, ZONE, BETA_ZONE): value}
        if draw.chance(0.3):
            meta["labels"] = {**meta.get("labels", {}), "kind": draw.pick("fast", "slow")}
        if draw.chance(0.03):
            meta["deletionTimestamp"] = "2026-01-01T05:00:00Z"
            meta["finalizers"] = ["kubernetes.io/pv-protection"]
        phase = "Bound" if claim is not None else draw.pick("Available", "Available", "Released")
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": meta,
                "spec": made,
                "status": {"phase": phase},
            }
        )

    def _volume_affinity(self) -> Plain:
        draw = self._draw
        terms = []
        for _ in draw.several(2, 1):
            key = draw.pick(HOSTNAME, ZONE, ZONE, "disk")
            values = {HOSTNAME: self._nodes, ZONE: list(ZONES)}.get(key, ["ssd", "hdd"])
            requirement = {"key": key, "operator": "In", "values": draw.some(values, 4, 1)}
            if draw.chance(0.1):
                requirement["operator"] = "NotIn"
            terms.append({"matchExpressions": [requirement]})
            if draw.chance(0.05):
                name = {
                    "key": "metadata.name",
                    "operator": "In",
                    "values": [draw.pick("n0", "n99")],
                }
                terms[-1]["matchFields"] = [name]
        return {"nodeSelectorTerms": terms}


def _volume_source(draw: Draw, class_name: str, name: str) -> Plain:
    if class_name == "local" or (not class_name and draw.chance(0.4)):
        return {"local": {"path": "/mnt/disk"}}
    if class_name == "ebs":
        return {"awsElasticBlockStore": {"volumeID": f"aws://z1/vol-{name}"}}
    if not class_name and draw.chance(0.3):
        return draw.pick(
            {"gcePersistentDisk": {"pdName": f"gce-{name}"}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}},
            {"nfs": {"server": "s", "path": "/x"}},
            {"azureDisk": {"diskName": name, "diskURI": f"{_BLOBS}/{name}.vhd"}},
        )
    driver = TRACKED if class_name == "tracked" else CSI
    handle = "shared" if draw.chance(0.1) else f"handle-{name}"
    return {"csi": {"driver": driver, "volumeHandle": handle}}


def _disk(draw: Draw, is_placed: bool) -> Plain:
    """A volume of a kind that the tree brings itself, or of a driver, written into the pod."""
    read_only = draw.pick(None, None, True, False)
    number = draw.randrange(3)
    kind = draw.pick("gce", "gce", "ebs", "ebs", "rbd", "iscsi", "azure", "cinder", "csi", "other")
    if kind == "gce":
        return {"gcePersistentDisk": pruned({"pdName": f"g{number}", "readOnly": read_only})}
    if kind == "ebs":
        # An id that makes no sense is an error on every node; a rare one here.
        is_odd = not is_placed and draw.chance(0.02)
        name = f"odd{number}" if is_odd else f"vol-{number}"
        prefix = draw.pick("", "aws://z1/", "aws:///")
        volume = pruned({"volumeID": prefix + name, "readOnly": read_only})
        return {"awsElasticBlockStore": volume}
    if kind == "rbd":
        monitors = draw.some(("m0", "m1", "m2"), 2, 1)
        found: Plain = {"monitors": monitors, "image": f"i{number}", "pool": draw.pick("p", "q")}
        return {"rbd": pruned({**found, "readOnly": read_only})}
    if kind == "iscsi":
        found = {"targetPortal": "10.0.0.1:3260", "iqn": f"iqn.2026-01.example:{number}", "lun": 0}
        return {"iscsi": pruned({**found, "readOnly": read_only})}
    if kind == "azure":
        return {"azureDisk": {"diskName": f"a{number}", "diskURI": f"{_BLOBS}/a{number}.vhd"}}
    if kind == "cinder":
        return {"cinder": {"volumeID": f"c{number}"}}
    if kind == "other":
        return draw.pick(
            {"vsphereVolume": {"volumePath": f"[store] v{number}"}},
            {"portworxVolume": {"volumeID": f"p{number}"}},
            {"azureFile": {"secretName": f"s{number}", "shareName": f"f{number}"}},
        )
    return {"csi": {"driver": draw.pick(CSI, TRACKED)}}


def _classes() -> list[Plain]:
    zones = {"key": ZONE, "values": ["z2", "z3"]}
    fast = [{"key": ZONE, "values": ["z1"]}, {"key": "disk", "values": ["ssd"]}]
    late = "WaitForFirstConsumer"
    classes: list[tuple[str, str, str, list[Plain] | None]] = [
        ("late", CSI, late, None),
        (
            "zonal",
            CSI,
            late,
            [{"matchLabelExpressions": [zones]}, {"matchLabelExpressions": fast}],
        ),
        ("tracked", TRACKED, late, None),
        ("local", "kubernetes.io/no-provisioner", late, None),
        ("ebs", EBS, late, None),
        ("now", CSI, "Immediate", None),
    ]
    return [
        pruned(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": mode,
                "allowedTopologies": topologies,
            }
        )
        for name, provisioner, mode, topologies in classes
    ]


def _drivers(draw: Draw, traits: Traits) -> list[Plain]:
    found = []
    for name in (CSI, TRACKED, "ebs.csi.aws.com", "pd.csi.storage.gke.io"):
        if draw.chance(0.85):
            spec = {"storageCapacity": name == TRACKED}
            if draw.chance(traits["missing_drivers"]):
                spec["preventPodSchedulingIfMissing"] = draw.chance(0.8)
            found.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSIDriver",
                    "metadata": {"name": name},
                    "spec": spec,
                }
            )
    return found


def _csi_nodes(draw: Draw, node_names: list[str]) -> list[Plain]:
    found = []
    for node in node_names:
        if draw.chance(0.15):
            continue
        drivers = []
        for name in (CSI, TRACKED, "ebs.csi.aws.com", "pd.csi.storage.gke.io", *OTHER_DRIVERS):
            if draw.chance(0.3 if name in OTHER_DRIVERS else 0.6):
                driver: Plain = {"name": name, "nodeID": node, "topologyKeys": []}
                if draw.chance(0.6):
                    driver["allocatable"] = {"count": draw.pick(0, 1, 1, 2, 3)}
                drivers.append(driver)
        meta: Plain = {"name": node}
        if draw.chance(0.4):
            plugins = (EBS, "kubernetes.io/gce-pd", "kubernetes.io/azure-disk", *OTHER_PLUGINS)
            meta["annotations"] = {MIGRATED: ",".join(draw.some(plugins, 6))}
        found.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": meta,
                "spec": {"drivers": drivers},
            }
        )
    return found


def _capacities(draw: Draw, traits: Traits) -> list[Plain]:
    found = []
    for i in draw.several(8, 3) if draw.chance(traits["capacities"]) else draw.several(1):
        entry: Plain = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": f"capacity{i}", "namespace": "default"},
            "storageClassName": draw.pick("tracked", *_COUNTED_CLASSES),
        }
        if draw.chance(0.9):
            entry["nodeTopology"] = {"matchLabels": {ZONE: draw.pick(*ZONES)}}
            if draw.chance(0.15):
                entry["nodeTopology"] = {}
        # kube-scheduler 1.37 reads the amount without a look whether there is one.
        entry["capacity"] = draw.pick("1Gi", "7Gi", "10Gi", "21Gi", "100Gi", "0")
        if draw.chance(0.4):
            entry["maximumVolumeSize"] = draw.pick("1Gi", "5Gi", "50Gi")
        found.append(entry)
    return found
