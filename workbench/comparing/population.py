"""The pods and nodes of a workload that policies are asked about.

Owns the set, and the states in which its nodes are looked at: with the pods that are on them, and
empty. On a full cluster nearly every node rejects nearly every pod, and that alone would hide most
of what policies say. All nodes are asked about: verdicts of nodes with one shape are evaluated
once, by the engine's own reuse.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from engine.comparing.population import AlikePods, PolicySet, alike_of
from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.files.cluster_file import Cluster
from engine.policy.fact_config import FactsConfig
from engine.policy.projections import Projector


@dataclass(frozen=True, slots=True)
class Population:
    """What policies are asked about.

    Attributes:
        cluster: Its nodes, pods on them, and other objects; without pods that have no node.
        pods: All pods, by name, as if each of them came now.
    """

    cluster: Cluster
    pods: tuple[Pod, ...]

    def states(self) -> list[Cluster]:
        """The cluster in each state: empty, and then as it is if that is another one."""
        empty = replace(self.cluster, pods=[])
        return [empty, self.cluster] if self.cluster.pods else [empty]


def snapshots_of(
    cluster: Cluster, sets: Sequence[PolicySet], pods: Sequence[Pod]
) -> list[Snapshot]:
    """*cluster* as each of *sets* sees it; they differ in facts. Raises `ManifestError`."""
    made: list[tuple[FactsConfig, Snapshot]] = []
    for one in sets:
        known = next((snapshot for config, snapshot in made if config == one.facts), None)
        if known is None:
            known = cache_of(cluster, one, pods).snapshot()
        made.append((one.facts, known))
    return [snapshot for _, snapshot in made]


def cache_of(cluster: Cluster, asked: PolicySet, pods: Sequence[Pod]) -> Cache:
    """A cache with *cluster* as *asked* sees it. Raises `ManifestError`."""
    cache = cluster.world().cache
    cache.set_pod_type_labels(asked.facts.pod_type_labels)
    cluster.show_facts(cache, asked.facts, pods)
    return cache


def queue_classes_of(
    pods: Sequence[Pod], sets: Sequence[PolicySet], snapshots: Sequence[Snapshot]
) -> list[AlikePods]:
    """As `classes_of`, of pods for which `queue_key` is given the same."""
    found: dict[tuple[object, ...], list[Pod]] = {}
    pairs = [*zip(sets, snapshots, strict=True)]
    for pod in pods:
        keys = tuple(one.queue_class_key(pod, snapshot) for one, snapshot in pairs)
        if all(keys):
            found.setdefault(keys, []).append(pod)
    return [alike_of(them) for them in found.values()]


def shape_count(sets: Sequence[PolicySet], snapshots: Sequence[Snapshot]) -> int:
    """How many shapes nodes have: those of one differ in nothing that is read but their name."""
    columns = []
    for one, snapshot in zip(sets, snapshots, strict=True):
        projector = Projector("node", one.node_paths())
        infos = [info for info in snapshot.infos if info is not None and info.node is not None]
        texts = projector.project_all(infos, snapshot)[1] if infos else []
        # Labels have the name too.
        quoted = (msgspec.json.encode(info.name) for info in infos)
        columns.append([t.replace(name, b'""') for t, name in zip(texts, quoted, strict=True)])
    return len(set(zip(*columns, strict=True)))


def manifest_of(pod: Pod) -> dict[str, Any]:
    """The manifest of *pod*, as it was read if that is known."""
    text = pod.raw if pod.raw is not None else msgspec.json.encode(pod.manifest)
    plain: dict[str, Any] = msgspec.json.decode(text)
    return plain
