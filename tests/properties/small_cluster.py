"""A cluster of a few nodes that changes in every way that decisions can see.

Owns what the cluster holds as plain data, the cache that follows each change, and filling another
cache with the same. Volumes are `test_reuse_with_volumes`'s.
"""

import random
from typing import Any, Final

from engine.core.caching.cache import Cache
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.fact import NO_FACTS, Fact, NodeFacts
from engine.core.model.node import Node
from engine.core.model.objects import (
    LabelSelector,
    Namespace,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    Service,
    ServiceSpec,
)
from engine.core.model.pod import Pod
from engine.core.model.pod_group import PodGroupState
from engine.core.queueing.nominator import Nominator
from tests.builders import HOSTNAME, ZONE, container, make_node, make_pod, taint, toleration

NODES: Final = [f"n{i}" for i in range(7)]
IMAGE: Final = "registry.example/web:1"
WEB: Final = {"matchLabels": {"app": "web"}}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _apart(key: str, *, required: bool = True, **more: Any) -> dict[str, Any]:
    term = {"labelSelector": WEB, "topologyKey": key, **more}
    if required:
        return {"podAntiAffinity": {_REQUIRED: [term]}}
    return {"podAntiAffinity": {_PREFERRED: [{"weight": 9, "podAffinityTerm": term}]}}


def _near(key: str, *, required: bool = True, **more: Any) -> dict[str, Any]:
    term = {"labelSelector": WEB, "topologyKey": key, "namespaceSelector": {}, **more}
    if required:
        return {"podAffinity": {_REQUIRED: [term]}}
    return {"podAffinity": {_PREFERRED: [{"weight": 7, "podAffinityTerm": term}]}}


def _on(key: str, operator: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term]}}}


def _named(name: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}


def _rather(key: str, value: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {"nodeAffinity": {_PREFERRED: [{"weight": 5, "preference": term}]}}


def _spread(key: str, action: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": WEB,
        **more,
    }


_LABELS: Final = {"app": "web"}

PODS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"cpu": "500m", "memory": "1Gi"},
    "best effort": {},
    "large": {"cpu": "3", "memory": "5Gi"},
    "web": {"labels": _LABELS, "cpu": "100m"},
    "database": {"labels": {"app": "db"}, "cpu": "700m", "image": "registry.example/db:1"},
    "tolerant": {"tolerations": [toleration("dedicated")], "cpu": "100m"},
    "softly tolerant": {
        "tolerations": [toleration("dedicated", effect="PreferNoSchedule")],
        "cpu": "100m",
    },
    "in zone a": {"affinity": _on(ZONE, "In", "a"), "cpu": "100m"},
    "not in zone a": {"affinity": _on(ZONE, "NotIn", "a"), "cpu": "100m"},
    "colourless": {"affinity": _on("color", "DoesNotExist"), "cpu": "100m"},
    "by name": {"affinity": _named("n2"), "cpu": "100m"},
    "rather blue": {"affinity": _rather("color", "blue"), "cpu": "100m"},
    "on one node": {"node_selector": {HOSTNAME: "n1"}},
    "with a port": {"ports": [8080]},
    "with the port of one address": {
        "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}]
    },
    "with an image": {"image": IMAGE, "cpu": "100m"},
    "with a device": {"requests": {"example.com/gpu": 1, "cpu": "100m"}},
    "with a sidecar": {
        "containers": [container(requests={"cpu": "100m"})],
        "init_containers": [container("side", requests={"cpu": "300m"}, sidecar=True)],
        "overhead": {"cpu": "50m"},
    },
    "alone on its host": {"labels": _LABELS, "affinity": _apart(HOSTNAME)},
    "alone in its zone": {"labels": _LABELS, "affinity": _apart(ZONE)},
    "alone among teams": {
        "labels": _LABELS,
        "affinity": _apart(ZONE, namespaceSelector={"matchLabels": {"team": "a"}}),
    },
    "rather alone": {"labels": _LABELS, "affinity": _apart(HOSTNAME, required=False)},
    "near web": {"affinity": _near(ZONE)},
    "near its like": {"labels": _LABELS, "affinity": _near(ZONE)},
    "near web's host": {"affinity": _near(HOSTNAME), "cpu": "100m"},
    "rather near web": {"affinity": _near(ZONE, required=False), "cpu": "100m"},
    "rather near a team": {
        "affinity": _near(ZONE, required=False, namespaceSelector={"matchLabels": {"team": "b"}})
    },
    "spread": {"labels": _LABELS, "topology_spread": [_spread(ZONE)]},
    "spread over hosts": {"labels": _LABELS, "topology_spread": [_spread(HOSTNAME)]},
    "spread over three zones": {
        "labels": _LABELS,
        "topology_spread": [_spread(ZONE, minDomains=3)],
    },
    "spread by revision": {
        "labels": {**_LABELS, "revision": "2"},
        "topology_spread": [_spread(ZONE, matchLabelKeys=["revision"])],
    },
    "spread where it may run": {
        "labels": _LABELS,
        "affinity": _on(ZONE, "In", "a", "b"),
        "topology_spread": [
            _spread(ZONE, nodeTaintsPolicy="Honor"),
            _spread(HOSTNAME, "ScheduleAnyway"),
        ],
    },
    "rather spread": {"labels": _LABELS, "topology_spread": [_spread(ZONE, "ScheduleAnyway")]},
    "rather spread over two": {
        "labels": _LABELS,
        "topology_spread": [
            _spread(ZONE, "ScheduleAnyway", nodeAffinityPolicy="Ignore"),
            _spread("color", "ScheduleAnyway"),
        ],
    },
    "judged alone": {"annotations": {"fussy": "yes"}, "cpu": "100m"},
    "of a group": {"spec": {"schedulingGroup": {"podGroupName": "g"}}, "cpu": "100m"},
}

PRIORITIES: Final = [0, 0, 10, 100]


class SmallCluster:
    """Plain data, and a cache that was told of every change as it came."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.nominator = Nominator()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.node_words: dict[str, dict[str, Any]] = {}
        self.pod_words: dict[str, dict[str, Any]] = {}
        self.facts: dict[str, NodeFacts] = {}
        self.price: Fact | None = None
        self.rewards: dict[str, dict[str, Fact]] = {}
        self.group: PodGroupState | None = None
        self._objects: dict[tuple[str, str], Any] = {}
        self._promised: list[tuple[Pod, str]] = []
        self._next = 0
        self._shuffle = random.Random(7)
        for namespace, team in (("default", "a"), ("other", "b")):
            self.label_namespace(namespace, team)

    # --- nodes -------------------------------------------------------------------------------

    def put_node(self, name: str, **words: Any) -> None:
        """A node comes, or changes in the *words* that are given."""
        merged = {**self.node_words.get(name, {}), **words}
        self.node_words[name] = merged
        node = make_node(name, **merged)
        self.nodes[name] = node
        self.cache.add_node(node)

    def remove_node(self, name: str) -> None:
        """A node goes; its pods stay for now."""
        if self.nodes.pop(name, None) is not None:
            del self.node_words[name]
            self.cache.remove_node(name)

    def set_facts(self, name: str, heat: int | None, reward: int | None, age: int | None) -> None:
        """What is known of a node, measured *age* seconds ago."""
        facts = NO_FACTS
        if heat is not None or reward is not None:
            own = {} if heat is None else {"heat": Fact(heat, str(heat), age)}
            pairs = {} if reward is None else {"web": Fact(reward, str(reward), age)}
            facts = NodeFacts(own, {"reward": pairs} if pairs else {})
        self.facts[name] = facts
        self.cache.set_node_facts(name, facts)

    def set_price(self, price: int | None, reward: int | None, age: int | None) -> None:
        """A fact of the cluster, measured *age* seconds ago, and one of a type of pods."""
        self.price = None if price is None else Fact(price, str(price), age)
        self.rewards = {} if reward is None else {"web": {"fussy": Fact(reward, str(reward))}}
        self._tell_facts(self.cache)

    def _tell_facts(self, cache: Cache) -> None:
        cluster = {} if self.price is None else {"price": self.price}
        cache.set_other_facts(cluster=cluster, types=self.rewards, pods={})

    # --- pods --------------------------------------------------------------------------------

    def new_pod(self, kind: str, namespace: str = "default", **words: Any) -> Pod:
        """A pod that nobody has seen."""
        self._next += 1
        uid = f"u{self._next}"
        merged = {**PODS[kind], **words}
        self.pod_words[uid] = {"namespace": namespace, **merged}
        return make_pod(uid, namespace, uid=uid, **merged)

    def place(self, pod: Pod, node: str, *, confirmed: bool) -> None:
        """The pod is on *node*, assumed or seen there."""
        placed = self.cache.assume(pod, node)
        self.pods[pod.uid] = placed
        if confirmed:
            self.cache.add_pod(placed)

    def change_pod(self, uid: str, **words: Any) -> None:
        """A resize in place, a relabelling, or the beginning of its end."""
        old = self.pods[uid]
        self.pod_words[uid] |= words
        reported = dict(self.pod_words[uid])
        namespace = reported.pop("namespace")
        pod = make_pod(old.name, namespace, uid=uid, **{**reported, "node": old.node_name})
        self.pods[uid] = pod
        self.cache.add_pod(pod)

    def remove_pod(self, uid: str) -> None:
        """A placed pod is gone."""
        self.cache.remove_pod(self.pods.pop(uid))

    def nomination(self, pod: Pod, node: str) -> None:
        """*pod* was promised *node*; the oldest of three promises is taken back."""
        if len(self._promised) > 2:
            self.nominator.remove(self._promised.pop(0)[0].uid)
        self.nominator.nominate(pod, node)
        self._promised.append((pod, node))

    @property
    def nominated(self) -> list[Pod]:
        """The pods that were promised a node."""
        return [pod for pod, _ in self._promised]

    # --- other objects -----------------------------------------------------------------------

    def label_namespace(self, name: str, team: str | None) -> None:
        """A namespace comes, changes its labels, or (None) goes."""
        labels = None if team is None else {"team": team}
        made = None if labels is None else Namespace(ObjectMeta(name=name, labels=labels))
        self._put("namespaces", name, made)

    def set_service(self, app: str | None) -> None:
        """The service of `default` selects *app*, or is gone."""
        made = None
        if app is not None:
            meta = ObjectMeta(name="front", namespace="default")
            made = Service(meta, ServiceSpec({"app": app}))
        self._put("services", "default/front", made)

    def set_budget(self, allowed: int | None) -> None:
        """So many of the web pods may be disrupted; None: nobody minds."""
        made = None
        if allowed is not None:
            made = PodDisruptionBudget(
                ObjectMeta(name="web", namespace="default"),
                PodDisruptionBudgetSpec(LabelSelector({"app": "web"})),
                PodDisruptionBudgetStatus(allowed),
            )
        self._put("poddisruptionbudgets", "default/web", made)

    def _put(self, plural: str, key: str, made: Any) -> None:
        if made is None:
            if self._objects.pop((plural, key), None) is not None:
                self.cache.objects.delete(plural, key)
            return
        self._objects[plural, key] = made
        self.cache.objects.put(plural, made)

    def groups(self, enabled: EnabledPolicy, pod: Pod) -> PodGroupState | None:
        """The group of *pod* as policies see it."""
        spec = pod.manifest.spec.scheduling_group
        return self.group if spec is not None and spec.pod_group_name else None

    # --- anew ----------------------------------------------------------------------------------

    def rebuilt(self) -> tuple[Cache, Nominator]:
        """The same cluster, filled in another order: no slot in common with `cache`."""
        cache = Cache()
        self._tell_facts(cache)
        steps: list[tuple[str, Any]] = [
            *(("object", item) for item in self._objects.items()),
            *(("facts", item) for item in self.facts.items()),
            *(("node", node) for node in self.nodes.values()),
            *(("pod", pod) for pod in self.pods.values()),
        ]
        self._shuffle.shuffle(steps)
        # Of equal victims the one that came last to its node goes: that order is kept.
        infos = [info for info in self.cache.snapshot().infos if info is not None]
        came = {uid: at for at, uid in enumerate(uid for info in infos for uid in info.pods)}
        pods = iter(sorted(self.pods.values(), key=lambda pod: came.get(pod.uid, -1)))
        for kind, what in steps:
            if kind == "pod":
                cache.add_pod(next(pods))
            elif kind == "object":
                cache.objects.put(what[0][0], what[1])
            elif kind == "facts":
                cache.set_node_facts(*what)
            else:
                cache.add_node(what)
        nominator = Nominator()
        for pod, node in self._promised:
            nominator.nominate(pod, node)
        return cache, nominator


def random_node(choose: random.Random) -> dict[str, Any]:
    """The words of some node."""
    color = choose.choice(["red", "blue", None])
    tainted = choose.choice([None, None, "NoSchedule", "PreferNoSchedule"])
    return {
        "zone": choose.choice(["a", "b", "c", None]),
        "labels": {"color": color} if color else {},
        "cpu": choose.choice(["1", "4", "8"]),
        "pods": choose.choice([110, 3]),
        "allocatable": choose.choice([{}, {"example.com/gpu": 2}]),
        "taints": [taint("dedicated", effect=tainted)] if tainted else [],
        "unschedulable": choose.random() < 0.15,
        "images": choose.choice([None, {IMAGE: 300 << 20}, {IMAGE: 700 << 20}]),
    }


__all__ = ["IMAGE", "NODES", "PODS", "PRIORITIES", "SmallCluster", "random_node", "taint"]
