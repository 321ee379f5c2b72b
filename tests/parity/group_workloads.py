"""Workloads of pod groups that kube-scheduler, with the gate for them, and ours answer alike."""

from collections.abc import Iterable
from typing import Any, Final

from tests.live import HOSTNAME, ZONE, Json, budget, node, pod, pod_group
from tests.parity.side_by_side import Workload

_SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
_APART: Final = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def members(group: str, count: int, *, first: int = 0, **words: Any) -> list[Json]:
    """Pods `<group>-<number>` that name the group."""
    named: Json = {"schedulingGroup": {"podGroupName": group}}
    return [pod(f"{group}-{i}", **named, **words) for i in range(first, first + count)]


def _workload(
    name: str, objects: Iterable[Json], pending: Iterable[Json], **words: Any
) -> Workload:
    """Pods of groups are not waited for one by one: a gang is silent before it is whole."""
    pods = list(pending)
    grouped = {p["metadata"]["name"] for p in pods if "schedulingGroup" in p["spec"]}
    return Workload(name, list(objects), pending=pods, is_undecided=frozenset(grouped), **words)


PLACING: Final = (
    _workload("a gang that fits", [node("n1"), pod_group("g", 3)], members("g", 3, cpu="1")),
    _workload(
        "a gang that needs one node more",
        [node("n1", cpu="2"), pod_group("g", 3)],
        members("g", 3, cpu="1"),
    ),
    _workload(
        "a gang larger than the cluster",
        [node("n1", cpu="2"), node("n2", cpu="2"), pod_group("g", 10)],
        members("g", 10, cpu="1"),
    ),
    _workload(
        "a gang that misses a pod", [node("n1"), pod_group("g", 3)], members("g", 2, cpu="1")
    ),
    _workload(
        "as many of a gang as fit, if they are enough",
        [node("n1", cpu="3"), pod_group("g", 2)],
        members("g", 5, cpu="1"),
    ),
    _workload("a gang of one", [node("n1", cpu="2"), pod_group("g", 1)], members("g", 1, cpu="1")),
    _workload(
        "a gang of ten", [node("n1", cpu="10"), pod_group("g", 10)], members("g", 10, cpu="1")
    ),
    _workload(
        "a group that is no gang",
        [node("n1", cpu="2"), pod_group("g")],
        members("g", 3, cpu="1"),
    ),
    _workload(
        "a group that is no gang and fits nowhere",
        [node("n1", cpu="1"), pod_group("g")],
        members("g", 2, cpu="4"),
    ),
    _workload("a group that is not there", [node("n1")], members("g", 2, cpu="1")),
    _workload(
        "a group that comes after its pods",
        [node("n1")],
        members("g", 2, cpu="1"),
        later=[pod_group("g", 2)],
    ),
    _workload(
        "a pod that completes its gang",
        [node("n1"), pod_group("g", 3)],
        members("g", 2, cpu="1"),
        later=members("g", 1, first=2, cpu="1"),
    ),
    _workload(
        "a node that a gang waits for",
        [node("n1", cpu="2"), pod_group("g", 3)],
        members("g", 3, cpu="1"),
        later=[node("n2", cpu="1")],
    ),
    _workload(
        "two gangs and capacity for one",
        [node("n1", cpu="3"), pod_group("a", 2), pod_group("b", 2)],
        [*members("a", 2, cpu="1"), *members("b", 2, cpu="1")],
    ),
    _workload(
        "plain pods between the pods of a gang",
        [node("n1", cpu="4"), pod_group("g", 2)],
        [
            *members("g", 1, cpu="1"),
            pod("first", cpu="1"),
            *members("g", 1, first=1, cpu="1"),
            pod("second", cpu="1"),
            pod("third", cpu="1"),
        ],
    ),
    _workload(
        "a small plain pod behind a gang that does not fit",
        [node("n1", cpu="2"), pod_group("g", 3)],
        [*members("g", 3, cpu="1"), pod("plain", cpu="2")],
        texts_depend_on_time=True,
    ),
    _workload(
        "two gangs over two nodes",
        [node("n1", cpu="2"), node("n2", cpu="2"), pod_group("a", 2), pod_group("b", 2)],
        [*members("a", 2, cpu="1"), *members("b", 2, cpu="1")],
    ),
    _workload(
        "a gang that has to be on one node",
        [node("n1", cpu="2", labels={"disk": "ssd"}), node("n2"), pod_group("g", 3)],
        members("g", 3, cpu="1", nodeSelector={"disk": "ssd"}),
    ),
    _workload(
        "a gang whose pods keep apart",
        [node("n1"), node("n2"), pod_group("g", 3)],
        members("g", 3, cpu="1", labels={"app": "web"}, affinity=_APART),
    ),
    _workload(
        "a gang whose pods find room apart",
        [node("n1"), node("n2"), node("n3"), pod_group("g", 3)],
        members("g", 3, cpu="1", labels={"app": "web"}, affinity=_APART),
    ),
    _workload(
        "a gang spread over zones",
        [node("n1", zone="a"), node("n2", zone="b"), pod_group("g", 4)],
        members("g", 4, cpu="1", labels={"app": "web"}, topologySpreadConstraints=[_SPREAD]),
    ),
    _workload(
        "a gang that wants host ports",
        [node("n1"), node("n2"), pod_group("g", 3)],
        members("g", 3, cpu="100m", port=80),
    ),
    _workload(
        "a gang and a taint",
        [node("n1", cpu="2"), node("n2", taints=["a=1:NoSchedule"]), pod_group("g", 3)],
        members("g", 3, cpu="1"),
    ),
    _workload(
        "a gang of another scheduler",
        [node("n1"), pod_group("g", 2)],
        members("g", 2, cpu="1", schedulerName="another"),
    ),
    _workload(
        "pods of one gang with different schedulers",
        [node("n1"), pod_group("g", 2)],
        [
            *members("g", 2, cpu="1"),
            *members("g", 1, first=2, cpu="1", schedulerName="another"),
        ],
    ),
    _workload(
        "pods with another priority than their gang",
        [node("n1"), pod_group("g", 2, priority="low")],
        members("g", 2, cpu="1", priority="high"),
    ),
)

PREEMPTING: Final = (
    _workload(
        "a gang preempts plain pods",
        [node("n1", cpu="2"), pod_group("g", 2, priority="high")],
        members("g", 2, cpu="1", priority="high"),
        placed=[pod(f"old-{i}", cpu="1", on="n1", priority="low") for i in range(2)],
    ),
    _workload(
        "a gang preempts no more than it needs",
        [node("n1", cpu="4"), pod_group("g", 2, priority="high")],
        members("g", 2, cpu="1", priority="high"),
        placed=[pod(f"old-{i}", cpu="1", on="n1", priority="low") for i in range(4)],
    ),
    _workload(
        "a gang that preemption cannot help",
        [node("n1", cpu="2"), pod_group("g", 3, priority="high")],
        members("g", 3, cpu="1", priority="high"),
        placed=[pod(f"old-{i}", cpu="1", on="n1", priority="low") for i in range(2)],
    ),
    _workload(
        "a gang that does not preempt",
        [node("n1", cpu="2"), pod_group("g", 2, priority="high-but-polite")],
        members("g", 2, cpu="1", priority="high-but-polite"),
        placed=[pod(f"old-{i}", cpu="1", on="n1", priority="low") for i in range(2)],
    ),
    _workload(
        "a plain pod preempts a pod of a group",
        [node("n1", cpu="2"), pod_group("old", 2, priority="low", mode="single")],
        [pod("urgent", cpu="1", priority="high")],
        placed=members("old", 2, cpu="1", on="n1", priority="low"),
    ),
    _workload(
        "a plain pod preempts a whole group",
        [
            node("n1", cpu="1"),
            node("n2", cpu="1"),
            pod_group("old", 2, priority="low", mode="all"),
        ],
        [pod("urgent", cpu="1", priority="high", nodeSelector={HOSTNAME: "n1"})],
        placed=[
            *members("old", 1, cpu="1", on="n1", priority="low"),
            *members("old", 1, first=1, cpu="1", on="n2", priority="low"),
        ],
    ),
    _workload(
        "a gang preempts a gang",
        [
            node("n1", cpu="2"),
            pod_group("old", 2, priority="low", mode="all"),
            pod_group("g", 2, priority="high"),
        ],
        members("g", 2, cpu="1", priority="high"),
        placed=members("old", 2, cpu="1", on="n1", priority="low"),
    ),
    _workload(
        "a gang spares what a budget protects",
        [
            node("n1", cpu="4"),
            pod_group("g", 2, priority="high"),
            budget("careful", {"app": "web"}, 0),
        ],
        members("g", 2, cpu="1", priority="high"),
        placed=[
            *(
                pod(f"web-{i}", cpu="1", on="n1", priority="low", labels={"app": "web"})
                for i in range(2)
            ),
            *(pod(f"old-{i}", cpu="1", on="n1", priority="low") for i in range(2)),
        ],
    ),
)
