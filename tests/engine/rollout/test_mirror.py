"""A mirror shows what the live snapshot showed when its changes were collected, however late."""

import random

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.model.fact import Fact
from engine.core.model.objects import ObjectMeta, Service
from engine.core.queueing.nominator import Nominator
from engine.rollout.mirror import Changes, Mirror
from tests.builders import make_node, make_pod


def shown(snapshot: Snapshot, nominator: Nominator) -> tuple[object, ...]:
    infos = {info.name: info for info in snapshot.infos if info is not None}
    services = {one.metadata.name: one for one in snapshot.objects.list("services")}
    facts = dict(snapshot.cluster_facts), dict(snapshot.pod_facts), snapshot.pod_type_labels
    nominated = {pod.uid: nominator.node_of(pod.uid) for pod in nominator}
    return {name: id(info) for name, info in infos.items()}, services, facts, nominated


class Cluster:
    """A cluster to which things happen."""

    def __init__(self, seed: int) -> None:
        self.cache, self.nominator = Cache(), Nominator()
        self._random = random.Random(seed)
        self._count = 0
        for _ in range(8):
            self.happen()

    def happen(self) -> None:
        self._count += 1
        kind, name = self._random.randrange(7), f"n{self._random.randrange(5)}"
        match kind:
            case 0 | 1:
                self.cache.add_node(make_node(name, labels={"at": str(self._count)}))
            case 2:
                self.cache.remove_node(name)
            case 3:
                self.cache.add_pod(make_pod(f"p{self._count}", node=name))
            case 4:
                service = Service(metadata=ObjectMeta(name=name, namespace="default"))
                if self._random.random() < 0.5:
                    self.cache.objects.put("services", service)
                else:
                    self.cache.objects.delete("services", f"default/{name}")
            case 5:
                self.cache.set_pod_facts(name, {"load": Fact(self._count, str(self._count))})
            case 6:
                self.nominator.nominate(make_pod(f"w{self._random.randrange(3)}"), name)


def test_changes_that_are_applied_late_show_what_was_there_when_they_were_collected() -> None:
    for seed in range(40):
        cluster = Cluster(seed)
        mirror = Mirror(cluster.cache.snapshot(), cluster.nominator)
        waiting: list[tuple[Changes, tuple[object, ...]]] = []
        for step in range(60):
            cluster.happen()
            if step % 3 == 0:
                live = cluster.cache.snapshot()
                changes = mirror.collect(live, cluster.nominator)
                waiting.append((changes, shown(live, cluster.nominator)))
            if len(waiting) == 4:
                for changes, want in waiting:
                    mirror.apply(changes)
                    assert shown(mirror.snapshot, mirror.nominator) == want, (seed, step)
                    mirror.snapshot.check_invariants()
                waiting.clear()


def test_what_has_not_changed_is_not_copied() -> None:
    cluster = Cluster(3)
    cluster.cache.objects.put("services", Service(metadata=ObjectMeta(name="a")))
    mirror = Mirror(cluster.cache.snapshot(), cluster.nominator)
    cluster.cache.add_node(make_node("n9"))
    got = mirror.collect(cluster.cache.snapshot(), cluster.nominator)
    assert [name for name, _ in got.infos] == ["n9"]
    assert got.objects is mirror.snapshot.objects
    assert (got.facts, got.nominator) == (None, None)
