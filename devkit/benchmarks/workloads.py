"""The workloads, one function each: the requests of the pods, and the initial cluster.

A workload says which kube-scheduler plugins it is about; a scheduler that lacks one of them is
reported as not supporting it rather than measured doing less work. To add a workload, write a
function that returns a `Workload` and put `@_register` over it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from devkit.benchmarks.objects import HOSTNAME, NAMESPACE, ZONE, Manifest, node, pod, pod_group


def _nothing(nodes: int) -> Iterable[Manifest]:
    return ()


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of load.

    Attributes:
        name: On the command line.
        title: In the table.
        plugins: kube-scheduler's names of the plugins that it is about.
        make_pod: The measured pod with a number.
        make_node: The node with a number.
        objects: Objects that exist before the scheduler starts (given the number of nodes):
            namespaces, Services, priority classes, and pods that are placed already.
        unmeasured: Pods that are created just before the measured ones and are not counted.
        make_group: The PodGroup with a number, of `group_size` pods with consecutive numbers; with
            it the API server and kube-scheduler run with their gates for groups.
        group_size: So many pods come together.
    """

    name: str
    title: str
    plugins: frozenset[str]
    make_pod: Callable[[int], Manifest]
    make_node: Callable[[int], Manifest] = node
    objects: Callable[[int], Iterable[Manifest]] = _nothing
    unmeasured: Callable[[int], Iterable[Manifest]] = _nothing
    make_group: Callable[[int], Manifest] | None = None
    group_size: int = 1

    @property
    def has_groups(self) -> bool:
        """True if its pods are in PodGroups."""
        return self.make_group is not None

    def numbers(self, first: int, count: int) -> range:
        """The numbers of *count* pods from *first* on, and of what else their groups need."""
        return range(first, first + -(-count // self.group_size) * self.group_size)

    def groups(self, numbers: range) -> Iterable[Manifest]:
        """The PodGroups of the pods with these numbers."""
        if self.make_group is None:
            return ()
        return map(self.make_group, sorted({number // self.group_size for number in numbers}))


WORKLOADS: Final[dict[str, Workload]] = {}

# Every default profile has these; no scheduler works without them.
_BASE: Final = frozenset({"NodeResourcesFit", "TaintToleration", "NodeUnschedulable"})


def _register(build: Callable[[], Workload]) -> Callable[[], Workload]:
    workload = build()
    WORKLOADS[workload.name] = workload
    return build


def _named(number: int) -> str:
    return f"pod-{number:06d}"


@_register
def _plain() -> Workload:
    return Workload(
        "plain",
        "plain requests",
        _BASE,
        lambda number: pod(_named(number)),
    )


@_register
def _node_affinity() -> Workload:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": ZONE, "operator": "In", "values": ["zone-1", "zone-2"]}
                        ]
                    }
                ]
            }
        }
    }
    return Workload(
        "node-affinity",
        "required node affinity",
        _BASE | {"NodeAffinity"},
        lambda number: pod(_named(number), spec={"affinity": affinity}),
    )


@_register
def _zone_spread() -> Workload:
    labels = {"app": "spread"}
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    return Workload(
        "zone-spread",
        "zone spread, DoNotSchedule",
        _BASE | {"PodTopologySpread"},
        lambda number: pod(
            _named(number), labels=labels, spec={"topologySpreadConstraints": [constraint]}
        ),
    )


def _term(labels: dict[str, str], topology: str, **more: object) -> Manifest:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": topology, **more}


@_register
def _host_anti_affinity() -> Workload:
    labels = {"app": "alone"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(labels, HOSTNAME)]}
    return Workload(
        "host-anti-affinity",
        "required host anti-affinity",
        _BASE | {"InterPodAffinity"},
        lambda number: pod(
            _named(number), labels=labels, spec={"affinity": {"podAntiAffinity": required}}
        ),
    )


@_register
def _zone_affinity() -> Workload:
    labels = {"app": "together"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(labels, ZONE)]}
    return Workload(
        "zone-affinity",
        "required zone affinity",
        _BASE | {"InterPodAffinity"},
        lambda number: pod(
            _named(number), labels=labels, spec={"affinity": {"podAffinity": required}}
        ),
    )


@_register
def _preferred_affinity() -> Workload:
    labels = {"app": "near"}
    preferred = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "podAffinityTerm": _term(labels, ZONE)}
            ]
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "podAffinityTerm": _term(labels, HOSTNAME)}
            ]
        },
    }
    return Workload(
        "preferred-affinity",
        "preferred affinity and anti-affinity",
        _BASE | {"InterPodAffinity"},
        lambda number: pod(_named(number), labels=labels, spec={"affinity": preferred}),
    )


@_register
def _namespace_selector() -> Workload:
    labels = {"app": "tenant"}
    term = _term(labels, HOSTNAME, namespaceSelector={"matchLabels": {"team": "tenants"}})
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    def namespaces(nodes: int) -> Iterable[Manifest]:
        for number in range(10):
            yield {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": f"tenant-{number}", "labels": {"team": "tenants"}},
            }

    return Workload(
        "namespace-selector",
        "anti-affinity over 10 namespaces (namespaceSelector)",
        _BASE | {"InterPodAffinity"},
        lambda number: pod(
            _named(number),
            namespace=f"tenant-{number % 10}",
            labels=labels,
            spec={"affinity": {"podAntiAffinity": required}},
        ),
        objects=namespaces,
    )


@_register
def _service_spread() -> Workload:
    labels = {"app": "served"}

    def service(nodes: int) -> Iterable[Manifest]:
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "served", "namespace": NAMESPACE},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        }

    return Workload(
        "service-spread",
        "default spreading behind a Service",
        _BASE | {"PodTopologySpread"},
        lambda number: pod(_named(number), labels=labels),
        objects=service,
    )


@_register
def _preemption() -> Workload:
    # No kubelet confirms a deletion, so victims must be allowed to go at once.
    at_once = {"terminationGracePeriodSeconds": 0}

    def full_nodes(nodes: int) -> Iterable[Manifest]:
        for name, value in (("low", 0), ("high", 1000)):
            yield {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        for number in range(nodes * 4):
            yield pod(
                f"low-{number:06d}",
                labels={"app": "low"},
                requests={"cpu": "900m", "memory": "500Mi"},
                spec={
                    **at_once,
                    "nodeName": f"node-{number // 4:05d}",
                    "priorityClassName": "low",
                    "priority": 0,
                },
            )

    return Workload(
        "preemption",
        "preemption, every node full of low priority",
        _BASE | {"DefaultPreemption"},
        lambda number: pod(
            _named(number),
            requests={"cpu": "3", "memory": "500Mi"},
            spec={**at_once, "priorityClassName": "high", "priority": 1000},
        ),
        objects=full_nodes,
    )


@_register
def _unschedulable() -> Workload:
    def impossible(nodes: int) -> Iterable[Manifest]:
        for number in range(2 * nodes):
            yield pod(
                f"impossible-{number:06d}",
                labels={"app": "impossible"},
                requests={"cpu": "64", "memory": "128Mi"},
            )

    return Workload(
        "unschedulable",
        "with unschedulable pods (two per node)",
        _BASE,
        lambda number: pod(_named(number)),
        unmeasured=impossible,
    )


@_register
def _gangs() -> Workload:
    # As kube-scheduler's own benchmark has it: scheduler_perf, GangScheduling.
    size = 3

    def member(number: int) -> Manifest:
        name = f"gang-{number // size:06d}"
        return pod(_named(number), spec={"schedulingGroup": {"podGroupName": name}})

    return Workload(
        "gangs",
        f"groups of {size} pods, all or nothing",
        _BASE | {"GangScheduling"},
        member,
        make_group=lambda number: pod_group(f"gang-{number:06d}", size),
        group_size=size,
    )
