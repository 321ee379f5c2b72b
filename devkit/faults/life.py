"""What goes on in a cluster: workloads grow and shrink, nodes come and go, controllers follow.

Owns the users and the controllers of the simulated cluster, as far as a scheduler sees their work.
They write to the API server's objects directly, at random moments: their own faults are no subject.
What they create is in `manifests`.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from devkit.cluster import DevCluster, make_node
from devkit.faults import manifests
from devkit.faults.hosts import Host
from devkit.faults.invariants.facts import is_over
from devkit.faults.manifests import NAMESPACE
from engine.core.manifests.errors import ApiStatus

Json = dict[str, Any]

ZONES: Final = ("zone-a", "zone-b", "zone-c")
#: Policies have pods of one rank wait for each other; some fail for another, which comes often.
RANKS: Final = ("1", "2", "3", "odd", "odd")
PAIR_RANK: Final = "3"
PRIORITIES: Final[Mapping[str, int]] = {"low": 0, "normal": 1000, "high": 100_000}
GROUP_LABEL: Final = "job"
SIZE_LABEL: Final = "job-size"
#: A policy holds pods back that have it, and orders pods by the other.
HOLD_LABEL: Final = "hold"
RANK_LABEL: Final = "rank"
#: Of pods that are made when everything has been tried without them.
LATE_LABEL: Final = "late-comer"
LOOSE_LABEL: Final = "job-loose"
#: What a cluster may have; a plan chooses some.
FEATURES: Final = (
    "deployments",
    "jobs",
    "gangs",
    "volumes",
    "devices",
    "budgets",
    "nodes",
    "spread",
    "pod groups",
    "gates",
    "labels",
    "extender",
    "binding extender",
    "facts",
    "decision log",
)
_FACT: Final = "facts.example.com/heat"
_HOLD: Final = "example.com/hold"

_RECONCILE_SECONDS: Final = 1.0
_SMALL_PODS: Final = 8
_CLAIMERS: Final = 2
#: Of so many pods of deployments another program chooses the node.
_BY_HAND: Final = 0.05


@dataclass(slots=True)
class Owner:
    """A workload: so many pods that are alike.

    Attributes:
        wanted: How many pods there should be.
        made: How many there have been, for their names.
        seconds: How long its pods run; infinite for those that run until they are deleted.
    """

    name: str
    kind: str
    wanted: int
    make: Callable[[str], list[Json]]
    made: int = 0
    seconds: float = math.inf
    pods: set[str] = field(default_factory=set)


class Life:
    """Makes things happen in *cluster*.

    Args:
        host: Where the API server runs.
        pace: Mean seconds between two changes that users make.
        features: Of `FEATURES`.
        most_nodes, most_pods: It grows no further, but for gangs and what a script adds.
    """

    def __init__(
        self,
        host: Host,
        cluster: DevCluster,
        rng: random.Random,
        *,
        pace: float,
        features: frozenset[str],
        most_nodes: int = 12,
        most_pods: int = 80,
    ) -> None:
        self.owners: dict[str, Owner] = {}
        #: Whole groups by name: (least, uids of their pods).
        self.groups: dict[str, tuple[int, list[str]]] = {}
        #: Names of those whose pods take nodes one by one, and wait there.
        self.loose: set[str] = set()
        #: When pods were bound, but not by the scheduler, by uid.
        self.bound_by_hand: dict[str, float] = {}
        #: When pods were deleted that had no node yet, by uid.
        self.withdrawn: dict[str, float] = {}
        self.goes_on = True
        self._host = host
        self._cluster = cluster
        self._rng = rng
        self._pace = pace
        self._features = features
        self._most_nodes = most_nodes
        self._most_pods = most_pods
        self._next = 0
        self._draining: set[str] = set()
        self._added: list[str] = []  # workloads that a script has added
        self._ballast = ""  # the workload that makes place for others in the end

    def begin(self, nodes: int) -> None:
        """Make the cluster, and let time do the rest."""
        for name, value in PRIORITIES.items():
            self._create(manifests.priority_class(name, value))
        if "volumes" in self._features:
            self._create(manifests.storage_class())
        if "devices" in self._features:
            self._create(manifests.device_class())
        for _ in range(nodes):
            self._add_node()
        for _ in range(3):
            self._add_owner()
        self._later(self._pace, self._change)
        self._later(_RECONCILE_SECONDS, self._reconcile)

    def rest(self) -> None:
        """Change nothing more; controllers go on."""
        self.goes_on = False

    def wake(self, pace: float) -> None:
        """Let users go on, with *pace* mean seconds between two changes."""
        self.goes_on, self._pace = True, pace
        self._later(pace, self._change)

    # --- single changes -----------------------------------------------------------------------

    def fill(self) -> None:
        """Make more pods than fit, beside some that will go; one node is empty and takes none."""
        nodes = self._cluster.list("nodes")
        self._clear(nodes[0])
        cpus = sum(int(node["status"]["allocatable"]["cpu"]) for node in nodes)
        self._ballast = self._run("deployment", 2, "2", "high", {})
        self._run("deployment", cpus // 2 + 4, "2", "low", {})
        if "gangs" in self._features:
            name = self._run("gang", 6, "500m", "low", {SIZE_LABEL: "6", LOOSE_LABEL: "yes"})
            self.loose.add(name)

    def add_small_pods(self, labels: dict[str, str] | None = None) -> None:
        """Make a few pods that need little."""
        self._added.append(self._run("deployment", _SMALL_PODS, "100m", "low", labels or {}))

    def add_large_pods(self) -> None:
        """Make some that no node has room for."""
        self._added.append(self._run("deployment", 2, "1000", "low", {}))

    def add_pods_for(self, node: str, count: int, cpu: str, priority: str = "low") -> None:
        """Make pods that no node but *node* may take."""
        selector = {"nodeSelector": {"kubernetes.io/hostname": node}}
        self._added.append(self._run("deployment", count, cpu, priority, {}, selector))

    def add_claimers(self) -> None:
        """Make pods with claims, and devices for them, in a cluster that has devices."""
        if "devices" in self._features:
            node = self.next_node()
            self.add_node_named(node)
            self._create(manifests.devices_of(node, _CLAIMERS))
            self._added.append(self._run("claimer", _CLAIMERS, "100m", "low", {}))

    def hold_on(self) -> None:
        """Let none of the added pods that run now be gone, once it is deleted, before `let_go`."""
        self._set_finalizers([_HOLD])

    def let_go(self) -> None:
        """Let pods be gone that are deleted."""
        self._set_finalizers([])

    def _set_finalizers(self, finalizers: list[str]) -> None:
        for pod in self._pods():
            metadata = pod["metadata"]
            is_added = metadata["labels"]["app"] in self._added
            if is_added and (metadata.get("finalizers") or []) != finalizers:
                found = {**pod, "metadata": {**metadata, "finalizers": finalizers}}
                self._cluster.update("pods", found)

    def bind_added(self) -> None:
        """Bind the added pods as another program does."""
        for workload in self._added:
            for name in sorted(self.owners[workload].pods):
                self._bind_by_hand(name)

    def remove_added(self) -> None:
        """Delete what was added."""
        while self._added:
            self._drop(self._added.pop())

    def remove_last_node(self) -> None:
        """Delete the last of the nodes, whatever runs there."""
        self._delete_node(self._cluster.list("nodes")[-1])

    def single_changes(self) -> list[Callable[[], None]]:
        """Changes of a full cluster, each of which helps some pods, or ends the wait of some."""
        return [
            self._uncordon_all, self._grow_node, self.add_large_node, self._drop_ballast,
            self._add_urgent, self._add_urgent_groups, self._remove_awaited,
        ]  # fmt: skip

    def _run(
        self,
        kind: str,
        count: int,
        cpu: str,
        priority: str,
        more_labels: dict[str, str],
        more: Json | None = None,
    ) -> str:
        self._next += 1
        name = f"{kind}-{self._next}"
        labels = {"app": name, **more_labels}
        spec = {"priorityClassName": priority, **(more or {})}
        if kind == "gang" and "schedulingGroup" not in spec:
            labels[GROUP_LABEL] = name

        def make(pod_name: str) -> list[Json]:
            return manifests.pod_with_claims(kind, name, pod_name, cpu, labels, spec)

        self.owners[name] = Owner(name, kind, count, make)
        return name

    def _uncordon_all(self) -> None:
        for node in self._cluster.list("nodes"):
            self._uncordon(node["metadata"]["name"])

    def _grow_node(self) -> None:
        """Give the smallest node more."""
        nodes = self._cluster.list("nodes")
        self._set_cpus(min(nodes, key=lambda node: int(node["status"]["allocatable"]["cpu"])), "16")

    def add_large_node(self) -> None:
        """Add an empty node."""
        self.add_node_named(self.next_node())

    def next_node(self) -> str:
        """The name of a node that is still to come."""
        self._next += 1
        return f"node-{self._next}"

    def add_node_named(self, name: str) -> None:
        """Add an empty node."""
        self._create(make_node(name, cpu="4", memory="16Gi", zone=ZONES[0]))

    def _add_urgent(self) -> None:
        """Add pods for which others have to go."""
        self._run("deployment", 3, "500m", "high", {})

    def _add_urgent_groups(self) -> None:
        """Add a group for which pods have to go, and one for which all of them are too few."""
        if "pod groups" in self._features:
            for cpu in ("1", "1000"):
                group = {"schedulingGroup": {"podGroupName": f"gang-{self._next + 1}"}}
                name = self._run("gang", 2, cpu, "high", {}, group)
                self._create(manifests.pod_group(name, 2, "high"))

    def _remove_awaited(self) -> None:
        """Delete a node on which a pod waits for others."""
        for pod in self._pods():
            name = (pod.get("status") or {}).get("nominatedNodeName")
            is_loose = LOOSE_LABEL in (pod["metadata"].get("labels") or {})
            if name and is_loose and not pod["spec"].get("nodeName"):
                self._delete("nodes", name)
                self._delete("resourceslices.resource.k8s.io", f"{name}-gpus")
                return

    # --- users --------------------------------------------------------------------------------

    def _change(self) -> None:
        if not self.goes_on:
            return
        acts: list[Callable[[], None]] = [self._scale, self._scale, self._delete_pod]
        if len(self.owners) < 12:
            acts += [self._add_owner] * 2
        if len(self.owners) > 2:
            acts.append(self._drop_owner)
        if "gates" in self._features:
            acts += [self._lift_gate] * 2
        if "labels" in self._features:
            acts += [self._relabel] * 2
        if "nodes" in self._features:
            acts += [self._add_node, self._drain, self._remove_node, self._alter_node]
        self._rng.choice(acts)()
        self._later(self._rng.expovariate(1.0 / self._pace), self._change)

    def _add_owner(self) -> None:
        kinds = ["deployment"] if "deployments" in self._features else []
        kinds += [
            kind
            for kind, feature in (
                ("job", "jobs"), ("gang", "gangs"), ("stateful", "volumes"), ("claimer", "devices"),
            )
            if feature in self._features
        ]  # fmt: skip
        kind = self._rng.choice(kinds or ["deployment"])
        self._next += 1
        name = f"{kind}-{self._next}"
        rng, priority = self._rng, self._rng.choice([*PRIORITIES, ""])
        cpu = f"{rng.choice([100, 250, 500, 1000, 2000])}m"
        spec: Json = {"priorityClassName": priority} if priority else {}
        labels = {"app": name}
        count = rng.randint(1, 6)
        if kind == "gang" and "pod groups" in self._features and rng.random() < 0.5:
            spec["schedulingGroup"] = {"podGroupName": name}
        elif kind == "gang":
            labels |= {GROUP_LABEL: name, SIZE_LABEL: str(count)}
            if rng.random() < 0.4:
                labels[LOOSE_LABEL] = "yes"
                # One that preempts would do so again and again: it may never be whole.
                spec = {"priorityClassName": "low"}
                self.loose.add(name)
        elif "gates" in self._features and rng.random() < 0.3:
            spec["schedulingGates"] = [{"name": "example.com/quota"}]
        elif "labels" in self._features:
            labels |= rng.choice([{}, {HOLD_LABEL: "yes"}, {RANK_LABEL: rng.choice(RANKS)}])
        if "spread" in self._features and kind == "deployment" and rng.random() < 0.5:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": rng.randint(1, 3),
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"]),
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ]

        def make(pod_name: str) -> list[Json]:
            return manifests.pod_with_claims(kind, name, pod_name, cpu, labels, spec)

        owner = Owner(name, kind, count, make)
        if kind in ("job", "gang"):
            owner.seconds = rng.uniform(0.5, 20.0) * self._pace
        self.owners[name] = owner
        if "schedulingGroup" in spec:
            self._create(manifests.pod_group(name, count, priority))
        if kind == "deployment":
            self._create(manifests.replica_set(name, count, labels))
            if "budgets" in self._features and rng.random() < 0.6:
                self._create(manifests.budget(name))

    def _drop_ballast(self) -> None:
        self._drop(self._ballast)

    def _drop_owner(self) -> None:
        self._drop(self._rng.choice(sorted(self.owners)))

    def _drop(self, name: str) -> None:
        owner = self.owners.pop(name)
        for pod in sorted(owner.pods):
            self._delete_pod_named(owner, pod)
        if owner.kind == "gang":
            self._delete("podgroups.scheduling.k8s.io", name)
        if owner.kind == "deployment":
            self._delete("replicasets.apps", name)
            self._delete("poddisruptionbudgets.policy", name)

    def _scale(self) -> None:
        owners = [o for _, o in sorted(self.owners.items()) if o.kind not in ("gang", "job")]
        if owners:
            self._rng.choice(owners).wanted = self._rng.randint(0, 10)

    def _delete_pod(self) -> None:
        owners = [o for _, o in sorted(self.owners.items()) if o.pods and o.kind != "gang"]
        if owners:
            owner = self._rng.choice(owners)
            self._delete_pod_named(owner, self._rng.choice(sorted(owner.pods)))

    def _lift_gate(self) -> None:
        """Take a pod's gates away."""
        gated = [pod for pod in self._pods() if pod["spec"].get("schedulingGates")]
        if gated:
            pod = self._rng.choice(gated)
            self._cluster.update("pods", {**pod, "spec": {**pod["spec"], "schedulingGates": []}})

    def _relabel(self) -> None:
        """Change what policies read of a pod."""
        if pods := self._pods():
            pod, name = self._rng.choice(pods), self._rng.choice((HOLD_LABEL, RANK_LABEL))
            value = self._rng.choice({HOLD_LABEL: ("yes", "no"), RANK_LABEL: RANKS}[name])
            self._set_label(pod, name, value)

    def _set_label(self, pod: Json, name: str, value: str) -> None:
        metadata = pod["metadata"]
        labels = {**(metadata.get("labels") or {}), name: value}
        self._cluster.update("pods", {**pod, "metadata": {**metadata, "labels": labels}})

    def _pods(self) -> list[Json]:
        return self._cluster.list("pods", NAMESPACE)

    def _release_held(self) -> None:
        """Nothing that users would have to do keeps a pod back any more."""
        for pod in self._pods():
            if pod["spec"].get("schedulingGates"):
                self._cluster.update(
                    "pods", {**pod, "spec": {**pod["spec"], "schedulingGates": []}}
                )
                continue
            labels = pod["metadata"].get("labels") or {}
            if labels.get(HOLD_LABEL) == "yes":
                self._set_label(pod, HOLD_LABEL, "no")
            elif labels.get(RANK_LABEL) == PAIR_RANK and not pod["spec"].get("nodeName"):
                self._set_label(pod, RANK_LABEL, "2")

    # --- nodes --------------------------------------------------------------------------------

    def _add_node(self) -> None:
        if len(self._cluster.list("nodes")) >= self._most_nodes:
            return
        name, rng = self.next_node(), self._rng
        node = make_node(
            name,
            cpu=str(rng.choice([2, 4, 8])),
            memory="16Gi",
            pods=rng.choice([5, 20, 110]),
            zone=rng.choice(ZONES),
        )
        self._create(node)
        if "devices" in self._features and rng.random() < 0.7:
            self._create(manifests.devices_of(name, rng.randint(1, 4)))

    def _node(self) -> Json | None:
        nodes = self._cluster.list("nodes")
        return self._rng.choice(nodes) if nodes else None

    def _drain(self) -> None:
        node = self._node()
        if node is None or len(self._cluster.list("nodes")) < 3:
            return
        name = node["metadata"]["name"]
        self._clear(node)
        self._later(self._pace, lambda: self._uncordon(name))

    def _clear(self, node: Json) -> None:
        """Cordon a node, and delete its pods."""
        self._put(node, spec={**(node.get("spec") or {}), "unschedulable": True})
        for pod in self._cluster.list("pods"):
            if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                self._delete("pods", pod["metadata"]["name"], grace=1)

    def _uncordon(self, name: str) -> None:
        node = self._cluster.get("nodes", name)
        if node is not None:
            spec = {k: v for k, v in (node.get("spec") or {}).items() if k != "unschedulable"}
            self._put(node, spec=spec)

    def _remove_node(self) -> None:
        node = self._node()
        if node is None or len(self._cluster.list("nodes")) < 3:
            return
        self._delete_node(node)

    def _delete_node(self, node: Json) -> None:
        name = node["metadata"]["name"]
        self._delete("nodes", name)
        self._delete("resourceslices.resource.k8s.io", f"{name}-gpus")

    def _alter_node(self) -> None:
        node = self._node()
        if node is None:
            return
        rng = self._rng
        if rng.random() < 0.5:
            labels = {**node["metadata"]["labels"], "tier": rng.choice(["a", "b"])}
            self._put(node, metadata={**node["metadata"], "labels": labels})
            return
        self._set_cpus(node, str(rng.choice([2, 4, 8])))

    def _set_cpus(self, node: Json, cpus: str) -> None:
        status = node["status"]
        allocatable = {**status["allocatable"], "cpu": cpus}
        capacity = {**status["capacity"], "cpu": "16"}
        found = {**node, "status": {**status, "allocatable": allocatable, "capacity": capacity}}
        self._cluster.update("nodes", found, subresource="status")

    def annotate_node(self, fact: str) -> None:
        """Write *fact* on a node."""
        node = self._node()
        if node is not None:
            metadata = node["metadata"]
            annotations = {**(metadata.get("annotations") or {}), _FACT: fact}
            self._put(node, metadata={**metadata, "annotations": annotations})

    def _put(self, node: Json, **changed: Any) -> None:
        self._cluster.update("nodes", {**node, **changed})

    # --- controllers --------------------------------------------------------------------------

    def _reconcile(self) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self._cluster.list("pods", NAMESPACE)}
        self._adopt(pods)
        for _, owner in sorted(self.owners.items()):
            self._reconcile_owner(owner, pods)
        pods = {pod["metadata"]["name"]: pod for pod in self._cluster.list("pods", NAMESPACE)}
        self._collect(pods)
        if not self.goes_on:
            self._release_held()
        if "volumes" in self._features:
            self._provision()
        if "budgets" in self._features:
            self._count_budgets(pods)
        self._later(_RECONCILE_SECONDS, self._reconcile)

    def _adopt(self, pods: Mapping[str, Json]) -> None:
        """Take pods over that came back with a restore; delete those whose owner is gone."""
        for name, pod in sorted(pods.items()):
            owner = self.owners.get((pod["metadata"].get("labels") or {}).get("app", ""))
            if owner is None:
                self._delete_pod_named(None, name)
            else:
                owner.pods.add(name)

    def _reconcile_owner(self, owner: Owner, pods: Mapping[str, Json]) -> None:
        gone = {name for name in owner.pods if name not in pods}
        owner.pods -= gone
        done = {name for name in owner.pods if is_over(pods[name])}
        if owner.kind in ("gang", "job"):
            if owner.made >= owner.wanted and owner.pods <= done:
                for name in sorted(owner.pods):
                    self._delete_pod_named(owner, name)
                if not owner.pods and self.goes_on:
                    del self.owners[owner.name]
                    self._delete("podgroups.scheduling.k8s.io", owner.name)
                return
            if owner.made:
                if owner.kind == "gang" and gone and not done:
                    self._repeat_gang(owner)
                return
        may_grow = owner.kind == "gang" or owner.name in self._added
        if len(pods) >= self._most_pods and not may_grow:
            return
        for name in sorted(done):
            self._delete_pod_named(owner, name)
        here = [
            name
            for name in sorted(owner.pods - done)
            if not pods[name]["metadata"].get("deletionTimestamp")
        ]
        for name in here[owner.wanted :]:
            self._delete_pod_named(owner, name)
        missing = owner.wanted - len(here)
        for _ in range(missing):
            owner.made += 1
            name = f"{owner.name}-{owner.made}"
            for manifest in owner.make(name):
                self._create(manifest)
            owner.pods.add(name)
            if owner.kind == "deployment" and self._rng.random() < _BY_HAND:
                self._later(self._rng.uniform(0.0, 0.02), partial(self._bind_by_hand, name))
        if owner.kind == "gang":
            uids = [self._uid(name) for name in sorted(owner.pods)]
            self.groups[owner.name] = (owner.wanted, uids)

    def _bind_by_hand(self, name: str) -> None:
        """Bind a pod as another program does, perhaps while the scheduler does the same."""
        pod = self._cluster.get("pods", name, NAMESPACE)
        nodes = [
            node for node in self._cluster.list("nodes") if not node["spec"].get("unschedulable")
        ]
        if pod is None or not nodes or pod["spec"].get("schedulingGates"):
            return
        self.bound_by_hand[pod["metadata"]["uid"]] = self._host.simulator.now
        try:
            self._cluster.bind(name, self._rng.choice(nodes)["metadata"]["name"], NAMESPACE)
        except ApiStatus:
            del self.bound_by_hand[pod["metadata"]["uid"]]  # the scheduler was faster

    def _repeat_gang(self, owner: Owner) -> None:
        """A pod of it is lost: end the others, and let the next round have a name of its own."""
        for name in sorted(owner.pods):
            self._delete_pod_named(owner, name)
        if not owner.pods and self.goes_on:
            self.owners.pop(owner.name, None)
            self._delete("podgroups.scheduling.k8s.io", owner.name)

    def _uid(self, name: str) -> str:
        pod = self._cluster.get("pods", name)
        assert pod is not None
        return str(pod["metadata"]["uid"])

    def _collect(self, pods: Mapping[str, Json]) -> None:
        """Collect the claims of pods that are gone, and end the pods of nodes that are."""
        for claim in self._cluster.list("persistentvolumeclaims", NAMESPACE):
            name = claim["metadata"]["name"]
            if name not in pods:
                volume = claim["spec"].get("volumeName")
                self._delete("persistentvolumeclaims", name)
                if volume:
                    self._delete("persistentvolumes", volume)
        for claim in self._cluster.list("resourceclaims.resource.k8s.io", NAMESPACE):
            name = claim["metadata"]["name"]
            if name not in pods:
                self._release(claim)
            elif is_over(pods[name]):
                self._delete_pod_named(None, name)
        nodes = {node["metadata"]["name"] for node in self._cluster.list("nodes")}
        for name, pod in sorted(pods.items()):
            node = pod["spec"].get("nodeName")
            if node and node not in nodes:
                self._delete("pods", name, grace=0)

    def _release(self, claim: Json) -> None:
        """Take the reservations of a pod that is gone back, as the claim controller, and delete."""
        status = {
            key: value
            for key, value in (claim.get("status") or {}).items()
            if key not in ("reservedFor", "allocation")
        }
        try:
            if claim.get("status"):
                found = {**claim, "status": status}
                self._cluster.update("resourceclaims.resource.k8s.io", found, subresource="status")
            self._delete("resourceclaims.resource.k8s.io", claim["metadata"]["name"])
        except ApiStatus:
            return  # next time

    def _provision(self) -> None:
        """Bind claims for which a node was chosen to new volumes there."""
        for claim in self._cluster.list("persistentvolumeclaims", NAMESPACE):
            metadata = claim["metadata"]
            node = (metadata.get("annotations") or {}).get(_SELECTED_NODE)
            if not node or claim["spec"].get("volumeName"):
                continue
            fails = self._rng.random() < 0.1 and self.goes_on
            if self._cluster.get("nodes", node) is None or fails:
                # The provisioner could not: the scheduler has to choose again.
                kept = {k: v for k, v in metadata["annotations"].items() if k != _SELECTED_NODE}
                changed = {**claim, "metadata": {**metadata, "annotations": kept}}
                self._cluster.update("persistentvolumeclaims", changed)
                continue
            self._next += 1
            volume = f"volume-{self._next}"
            self._create(manifests.volume(volume, claim, node))
            bound = {**claim, "spec": {**claim["spec"], "volumeName": volume}}
            bound["metadata"] = {
                **metadata,
                "annotations": {
                    **metadata["annotations"],
                    "pv.kubernetes.io/bind-completed": "yes",
                },
            }
            written = self._cluster.update("persistentvolumeclaims", bound)
            status = {**(written.get("status") or {}), "phase": "Bound"}
            self._cluster.update(
                "persistentvolumeclaims", {**written, "status": status}, subresource="status"
            )

    def _count_budgets(self, pods: Mapping[str, Json]) -> None:
        """What the disruption controller writes into the status of budgets."""
        for budget in self._cluster.list("poddisruptionbudgets.policy", NAMESPACE):
            wanted = budget["spec"]["selector"]["matchLabels"]
            mine = [
                pod
                for pod in pods.values()
                if wanted.items() <= (pod["metadata"].get("labels") or {}).items()
            ]
            healthy = sum(
                (pod.get("status") or {}).get("phase") == "Running"
                and not pod["metadata"].get("deletionTimestamp")
                for pod in mine
            )
            desired = max(0, len(mine) - 1)
            status = {
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "disruptionsAllowed": max(0, healthy - desired),
                "expectedPods": len(mine),
                "observedGeneration": budget["metadata"].get("generation", 1),
            }
            old = budget.get("status") or {}
            if {**old, **status} != old:
                found = {**budget, "status": {**old, **status}}
                self._cluster.update("poddisruptionbudgets.policy", found, subresource="status")

    # --- writing ------------------------------------------------------------------------------

    def _create(self, manifest: Json) -> None:
        self._cluster.create(manifest)

    def _delete(self, resource: str, name: str, *, grace: int | None = None) -> None:
        if self._cluster.get(resource, name) is None:
            return
        self._cluster.delete(resource, name, grace=grace)
        # What a finalizer would wait for is the concern of others.
        left = self._cluster.get(resource, name)
        if left is not None and left["metadata"].get("finalizers"):
            self._cluster.update(
                resource, {**left, "metadata": {**left["metadata"], "finalizers": []}}
            )

    def _delete_pod_named(self, owner: Owner | None, name: str) -> None:
        pod = self._cluster.get("pods", name)
        if pod is None:
            if owner is not None:
                owner.pods.discard(name)
        elif not pod["metadata"].get("deletionTimestamp"):
            if not pod["spec"].get("nodeName"):
                self.withdrawn[pod["metadata"]["uid"]] = self._host.simulator.now
            self._delete("pods", name, grace=self._rng.choice([0, 1, 5]))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._host.later(seconds, act)


_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"


def run_seconds(pod: Json, owners: Mapping[str, Owner]) -> float | None:
    """How long the kubelet of *pod* runs it; None for one that runs until it is deleted."""
    name = (pod["metadata"].get("labels") or {}).get("app", "")
    owner = owners.get(name)
    return None if owner is None or owner.seconds == math.inf else owner.seconds
