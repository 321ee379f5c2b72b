"""The objects of other schedulers as the API server has them, read by the kernel."""

from typing import Any, Final

import yaml

from engine.core.kernel.events import QueueObjectChanged
from engine.core.kernel.instructions import Evict, ReportHeld
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import QueueWorld
from tests.engine.core.kernel.small_world import World
from tests.profiles import only

_VOLCANO: Final = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: root, generation: 1}
spec: {reclaimable: false, weight: 1}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: a}
spec: {parent: root, weight: 3, reclaimable: true}
status: {state: Open}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: b}
spec: {parent: root, weight: 1, deserved: {cpu: "2"}}
"""
_KUEUE: Final = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  cohortName: all
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: "3", lendingLimit: "1"}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: b}
spec:
  cohort: all
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 5}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: mine, namespace: team}
spec: {clusterQueue: a}
"""
_SECOND_LOCAL_QUEUE: Final = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: theirs, namespace: team}
spec: {clusterQueue: b}
"""
_KAI: Final = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: org}
spec:
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: a}
spec:
  parentQueue: org
  resources:
    cpu: {quota: 1000, limit: -1, overQuotaWeight: 3}
    memory: {quota: 0, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 0, limit: 0, overQuotaWeight: 0}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: b}
spec:
  parentQueue: org
  resources:
    cpu: {quota: 1000, limit: -1, overQuotaWeight: 1}
    memory: {quota: 0, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 0, limit: 0, overQuotaWeight: 0}
"""
_KOORDINATOR: Final = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: koordinator-default-quota, namespace: koordinator-system}
spec: {max: {cpu: "9223372036854775"}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: a
  namespace: kube-system
  labels:
    quota.scheduling.koordinator.sh/parent: koordinator-root-quota
    quota.scheduling.koordinator.sh/is-parent: "false"
  annotations:
    quota.scheduling.koordinator.sh/shared-weight: '{"cpu": "3"}'
    quota.scheduling.koordinator.sh/namespaces: '["team"]'
spec: {min: {cpu: "1"}, max: {cpu: "8"}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: b, namespace: kube-system}
spec: {min: {cpu: 1}, max: {cpu: 1}}
"""
_CAPACITY_SCHEDULING: Final = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: quota, namespace: team}
spec: {min: {cpu: 500m}, max: {cpu: 2}}
"""


class _ObjectWorld(QueueWorld):
    """A world with the queues that manifests stand for, governed by a shipped policy."""

    def __init__(self, policy: str, manifests: str, **more: Any) -> None:
        self._objects = list(yaml.safe_load_all(manifests))
        self._made = 0
        kinds = sorted({(one["apiVersion"], one["kind"]) for one in self._objects})
        document = {
            "apiVersion": "starsched.dev/v1",
            "kind": "QueueTree",
            "policy": policy,
            "objects": [{"apiVersion": version, "kind": kind} for version, kind in kinds],
            "unknown": "count",
            "shares": {"refresh": "0s"},
            **more,
        }
        files = {"config.yaml": only("NodeResourcesFit"), "tree.yaml": yaml.safe_dump(document)}
        World.__init__(self, files)
        self.add_node(make_node("n", cpu=8, memory="64Gi"))
        for one in self._objects:
            metadata = one["metadata"]
            key = f"{metadata.get('namespace', '')}/{metadata['name']}".lstrip("/")
            self.report(QueueObjectChanged(one["kind"], key, one))
        self.settle()
        assert self.kernel.shares.problems() == []

    def add_many(self, count: int, *, is_gated: bool = True, **how: Any) -> None:
        """Add pods of one core, which wait for a gate unless they are not to."""
        gates = ["example.com/wait"] if is_gated else []
        for _ in range(count):
            self._made += 1
            self.add(make_pod(f"p{self._made}", cpu=1, gates=gates, **how))

    def started(self, path: str) -> int:
        """How many pods of this queue have a node, once nothing moves any more."""
        self.turns(200)
        return self.sums(path).get("cpu", 0) // 1000

    def held(self) -> set[str]:
        """Why pods were held for a quota."""
        found = [one for one in self.done if isinstance(one, ReportHeld)]
        assert {one.token for one in found} == {"QuotaReached"}
        return {one.reason for one in found}

    def cpu(self) -> dict[str, int]:
        """The cpu that each queue but the root may have."""
        return {path: (share or {}).get("cpu", 0) for path, share in self.shares().items() if path}


def test_queues_of_volcano() -> None:
    name = "scheduling.volcano.sh/queue-name"
    for policy in ("proportion", "capacity"):
        world = _ObjectWorld(policy, _VOLCANO)
        assert list(world.kernel.shares.tree.queues) == ["", "a", "b"]
        for queue in "ab":
            world.add_many(9, annotations={name: queue})
        if policy == "proportion":
            assert world.cpu() == {"a": 6000, "b": 2000}
        else:
            attributes = world.kernel.shares.tree.queues["b"].attributes
            assert attributes["deserved"] == {"cpu": 2000}


def test_cohorts_of_kueue() -> None:
    world = _ObjectWorld("kueue_fair", _KUEUE)
    assert list(world.kernel.shares.tree.queues) == ["", "all", "all/a", "all/b"]
    world.add_many(1, namespace="team", labels={"kueue.x-k8s.io/queue-name": "mine"})
    assert world.sums("all/a", "waiting") == {"cpu": 1000}
    world.settle()
    (cohort,) = [one for one in world.kernel.shares.states() if one.queue.path == "all"]
    assert cohort.standing.up["quota"] == {"cpu": 6000}


def test_queues_of_kai() -> None:
    world = _ObjectWorld("kai_fair", _KAI)
    for queue in "ab":
        world.add_many(9, labels={"kai.scheduler/queue": queue})
    assert world.cpu() == {"org": 8000, "org/a": 5500, "org/b": 2500}


def test_quotas_of_koordinator() -> None:
    world = _ObjectWorld("elastic_quota", _KOORDINATOR)
    world.add_many(9, namespace="team")
    world.add_many(9, labels={"quota.scheduling.koordinator.sh/name": "b"})
    world.add_many(1, namespace="elsewhere")
    assert world.cpu() == {"a": 7000, "b": 1000}
    assert world.sums("", "waiting") == {"cpu": 19000}


def test_quotas_of_capacity_scheduling() -> None:
    world = _ObjectWorld("capacity_scheduling", _CAPACITY_SCHEDULING)
    world.add_many(1, namespace="team")
    world.settle()
    assert world.sums("team", "waiting") == {"cpu": 1000}
    (root,) = [one for one in world.kernel.shares.states() if one.queue.path == ""]
    assert root.standing.up["min"] == {"cpu": 500}


def test_volcano_starts_what_a_queue_deserves() -> None:
    world = _ObjectWorld("proportion", _VOLCANO)
    for queue in "ab":
        annotations = {"scheduling.volcano.sh/queue-name": queue}
        world.add_many(9, is_gated=False, annotations=annotations)
    assert (world.started("a"), world.started("b")) == (6, 2)
    assert world.held() == {
        f"queue `{queue}`: has its share (short of 1 cpu at `{queue}`)" for queue in "ab"
    }


def test_kueue_starts_what_the_cohort_has() -> None:
    """The queue `a` keeps two of its three cores to itself, and lends one."""
    world = _ObjectWorld("kueue_fair", _KUEUE + _SECOND_LOCAL_QUEUE)
    label = {"kueue.x-k8s.io/queue-name": "theirs"}
    world.add_many(9, is_gated=False, namespace="team", labels=label)
    assert world.started("all/b") == 6
    reason = "no quota is left, and none to borrow (short of 1 cpu at `all`)"
    assert world.held() == {f"queue `all/b`: {reason}"}
    label = {"kueue.x-k8s.io/queue-name": "mine"}
    world.add_many(9, is_gated=False, namespace="team", labels=label)
    assert (world.started("all/a"), world.started("all/b")) == (2, 6)


_THIRD_LOCAL_QUEUE: Final = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: half, namespace: team}
spec: {clusterQueue: b, fairSharing: {weight: 500m}}
"""
_BY_USAGE: Final[dict[str, Any]] = {
    "args": {"usage_weights": {"cpu": 1}},
    "usage": {"halfLife": "1h"},
}


def test_local_queues_of_kueue_go_by_what_they_used() -> None:
    """The quotas are those of their ClusterQueue, as they are without."""
    objects = _KUEUE + _SECOND_LOCAL_QUEUE + _THIRD_LOCAL_QUEUE
    world = _ObjectWorld("kueue_fair", objects, **_BY_USAGE)
    label = "kueue.x-k8s.io/queue-name"
    ran = make_pod("ran", cpu=4, namespace="team", labels={label: "theirs"}).with_node("n")
    world.add(ran)
    world.wait(3600.0)
    world.delete("ran")
    for name in ("theirs", "half"):
        world.add_many(9, is_gated=False, namespace="team", labels={label: name})
    assert (world.started("all/b/team.theirs"), world.started("all/b/team.half")) == (0, 6)
    assert world.sums("all/b") == {"cpu": 6000}
    reason = "no quota is left, and none to borrow (short of 1 cpu at `all`)"
    assert world.held() == {f"queue `all/b/team.{name}`: {reason}" for name in ("theirs", "half")}
    world.add_many(9, is_gated=False, namespace="team", labels={label: "mine"})
    assert (world.started("all/a"), world.started("all/b")) == (2, 6)
    world.kernel.check_invariants()


def test_what_one_local_queue_borrows_goes_to_the_owner_of_the_quota() -> None:
    """LocalQueues have none of their own, neither to take by nor to be taken from."""
    for more in ({}, _BY_USAGE):
        objects = (_KUEUE + _SECOND_LOCAL_QUEUE).replace(
            "spec:\n  cohort", "spec:\n  preemption: {reclaimWithinCohort: Any}\n  cohort"
        )
        world = _ObjectWorld("kueue_fair", objects, limits={"minRuntime": "0s"}, **more)
        labels = {"kueue.x-k8s.io/queue-name": "theirs"}
        world.add_many(6, is_gated=False, namespace="team", labels=labels)
        assert world.started("all/b") == 6
        labels = {"kueue.x-k8s.io/queue-name": "mine"}
        taker = make_pod("taker", cpu=3, namespace="team", labels=labels)
        world.add(taker)
        world.turns(50)
        evicted = [one for one in world.done if isinstance(one, Evict)]  # and never gone: again
        assert {len(one.victims) for one in evicted} == {1}, more


def test_koordinator_starts_what_the_runtime_allows() -> None:
    world = _ObjectWorld("elastic_quota", _KOORDINATOR)
    world.add_many(9, is_gated=False, namespace="team")
    world.add_many(9, is_gated=False, labels={"quota.scheduling.koordinator.sh/name": "b"})
    assert (world.started("a"), world.started("b")) == (7, 1)
    reason = "the runtime is used (short of 1 cpu at `"
    assert world.held() == {f"queue `{quota}`: {reason}{quota}`)" for quota in "ab"}


def test_capacity_scheduling_starts_no_more_than_the_sum_of_mins() -> None:
    world = _ObjectWorld("capacity_scheduling", _CAPACITY_SCHEDULING)
    world.add_many(2, is_gated=False, namespace="team")
    assert world.started("team") == 0
    reason = "the sum of all mins is used (short of 500m cpu at the root)"
    assert world.held() == {f"queue `team`: {reason}"}


def test_kai_starts_who_has_the_smaller_part_of_its_share_first() -> None:
    """Shares of 5.5 and 2.5 cores: a sixth is 1.09 of the one, a third 1.2 of the other."""
    world = _ObjectWorld("kai_fair", _KAI)
    for queue in "ab":
        world.add_many(9, is_gated=False, labels={"kai.scheduler/queue": queue})
    assert (world.started("org/a"), world.started("org/b")) == (6, 2)
