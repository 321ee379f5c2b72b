"""Kueue's own scalability test, as pods: its queues, classes of workloads, arrivals and run times.

Owns what is defined there, what was published about it, and one run of it. A workload of Kueue is a
pod here, and being admitted is being bound. Facts are from kubernetes-sigs/kueue,
`test/performance/scheduler/configs/<name>/generator.yaml` and `rangespec.yaml`.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from devkit.benchmarks import objects
from devkit.benchmarks.load import collection_path, create_all, key_of, percentile
from devkit.benchmarks.measure import Machine, until_idle
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.processes import usage_of
from devkit.benchmarks.running_pods import Job, RunningPods
from devkit.benchmarks.subjects import Starsched
from devkit.benchmarks.turns import Cpu, scrape
from devkit.benchmarks.upstream.pods import BoundPods
from devkit.benchmarks.wire import Wire, WireError
from tests.controlplane import ControlPlane

_GROUP: Final = "kueue.x-k8s.io"
_VERSION: Final = "v1beta2"
_KINDS: Final = {"ClusterQueue": "Cluster", "Cohort": "Cluster", "LocalQueue": "Namespaced"}
_CLASS: Final = "class"
# Quotas are what is short, never nodes: Kueue's test has none.
_NODES: Final = 100
_CONNECTIONS: Final = 30
_SERVED_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one kind, so many for each queue, one every so often."""

    name: str
    count: int
    every_seconds: float
    runs_seconds: float
    priority: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Published:
    """Means that Kueue's maintainers published of runs of their CI, which its thresholds follow.

    Attributes:
        source: Which file, of when.
        wall_seconds: In all.
        cores: CPU that its process used on average; None: not published.
        usage: Of all nominal quotas, how much was used on average, 0 to 1.
        admission_seconds: By class, the mean from creation to admission.
    """

    source: str
    wall_seconds: float
    cores: float | None
    usage: float
    admission_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Config:
    """One configuration of the test: cohorts of queues, and what comes to each queue."""

    name: str
    cohorts: int
    queues: int
    nominal: int
    borrowing_limit: int
    classes: tuple[Class, ...]
    published: Published

    def scaled(self, scale: float) -> "Config":
        """With *scale* times as many workloads in each queue, at the same pace."""
        classes = tuple(
            Class(**asdict(one) | {"count": max(1, round(one.count * scale))})
            for one in self.classes
        )
        return Config(
            self.name, self.cohorts, self.queues, self.nominal, self.borrowing_limit, classes,
            self.published,
        )  # fmt: skip

    @property
    def workloads(self) -> int:
        """How many there are."""
        return self.cohorts * self.queues * sum(one.count for one in self.classes)

    @property
    def least_seconds(self) -> float:
        """What it takes at least with all nominal quotas in use all the time."""
        work = sum(one.count * one.cpu * one.runs_seconds for one in self.classes)
        return work / self.nominal


#: By name.
CONFIGS: Final[Mapping[str, Config]] = {
    "baseline": Config(
        "baseline", 5, 6, 20, 100,
        (
            Class("small", 350, 0.1, 0.2, 50, 1),
            Class("medium", 100, 0.5, 0.5, 100, 5),
            Class("large", 50, 1.2, 1.0, 200, 20),
        ),
        Published(
            "configs/baseline/rangespec.yaml, five runs of April 2024; CPU from "
            "default_rangespec.yaml, as it was up to April 2025",
            351.1, 0.396, 0.587, {"small": 215.5, "medium": 76.8, "large": 6.7},
        ),
    ),
    "large-scale": Config(
        "large-scale", 10, 100, 20, 100,
        (
            Class("small", 35, 0.06, 0.15, 50, 1),
            Class("medium", 11, 0.3, 0.35, 100, 5),
            Class("large", 4, 0.7, 0.7, 200, 20),
        ),
        Published(
            "configs/large-scale/rangespec.yaml, calibrated in May 2026 from 19 runs",
            1179.4, None, 0.386, {"small": 700.4, "medium": 256.4, "large": 98.8},
        ),
    ),
}  # fmt: skip


# --- objects -----------------------------------------------------------------------------------


def _queues(config: Config) -> Iterator[tuple[str, str]]:
    """The name of each ClusterQueue, which is its namespace's and its LocalQueue's, and cohort."""
    for cohort in range(config.cohorts):
        for number in range(config.queues):
            yield f"cq-{number}-cohort-{cohort}", f"cohort-{cohort}"


def definitions() -> Iterator[Manifest]:
    """The kinds of Kueue that the pack reads, without schemas."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for kind, scope in (
        ("ClusterQueue", "Cluster"),
        ("Cohort", "Cluster"),
        ("LocalQueue", "Namespaced"),
    ):
        plural = f"{kind.lower()}s"
        names = {
            "plural": plural,
            "singular": kind.lower(),
            "kind": kind,
            "listKind": f"{kind}List",
        }
        version = {
            "name": _VERSION,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
        }
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{_GROUP}"},
            "spec": {"group": _GROUP, "names": names, "scope": scope, "versions": [version]},
        }


def queue_objects(config: Config) -> Iterator[Manifest]:
    """A ClusterQueue and a LocalQueue for each queue. Cohorts are implied, as there."""
    api = {"apiVersion": f"{_GROUP}/{_VERSION}"}
    quota = {
        "name": "cpu",
        "nominalQuota": str(config.nominal),
        "borrowingLimit": str(config.borrowing_limit),
    }
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}]}
    for name, cohort in _queues(config):
        spec = {
            "cohortName": cohort,
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        }
        yield {**api, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
        local = {"name": name, "namespace": name}
        yield {**api, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}}


def arrivals(config: Config) -> list[tuple[float, Job]]:
    """Every pod with the second in which it comes, in this order."""
    found = []
    for queue, _ in _queues(config):
        for one in config.classes:
            for number in range(one.count):
                pod = objects.pod(
                    f"{one.name}-{number}",
                    namespace=queue,
                    labels={_CLASS: one.name, f"{_GROUP}/queue-name": queue},
                    requests={"cpu": str(one.cpu)},
                    # No kubelet confirms a deletion.
                    spec={"priorityClassName": one.name, "terminationGracePeriodSeconds": 0},
                )
                found.append(((number + 1) * one.every_seconds, Job(pod, one.runs_seconds)))
    return sorted(found, key=lambda at_job: (at_job[0], key_of(at_job[1].pod)))


def tree() -> str:
    """The QueueTree: the rules of Kueue over its objects, and its limits, of which it has none."""
    return yaml.safe_dump(
        {
            "apiVersion": "starsched.dev/v1",
            "kind": "QueueTree",
            "policy": "kueue_fair",
            "objects": [{"apiVersion": f"{_GROUP}/{_VERSION}", "kind": kind} for kind in _KINDS],
            "limits": {"minRuntime": "0s", "victimsPerMinute": 1_000_000},
        }
    )


# --- a run -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admission:
    """Of one class: how many were admitted, seconds from creation to that, and evictions."""

    admitted: int
    mean: float
    p99: float
    evictions: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one run.

    Attributes:
        workloads: In all.
        ended: Of these.
        wall_seconds: From the first creation to the last end.
        created_seconds: Of these, up to the last creation: at the pace that is defined, or that of
            the API server, if that is slower.
        main_cpu_seconds: Of the scheduler's main process, until it is idle again.
        sandbox_cpu_seconds: Of its children.
        servers_cpu_seconds: Of the API server and etcd.
        usage: Of all nominal quotas, how much was used on average, 0 to 1.
        wakes: Requests asked about again because something became free.
        in_vain: Of these, those that could not start then.
        reclaimed: Pods that had to go for another queue.
        peak_mib: VmHWM of all processes of the scheduler.
        others_share: The part of the machine that other programs took.
        classes: By name.
    """

    workloads: int
    ended: int
    wall_seconds: float
    created_seconds: float
    main_cpu_seconds: float
    sandbox_cpu_seconds: float
    servers_cpu_seconds: float
    usage: float
    wakes: float
    in_vain: float
    reclaimed: float
    peak_mib: float
    others_share: float
    classes: Mapping[str, Admission]

    @property
    def cpu_seconds(self) -> float:
        """Of all processes of the scheduler."""
        return self.main_cpu_seconds + self.sandbox_cpu_seconds

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        found = {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}
        return found | {
            "admitted_per_second": round(self.ended / max(self.wall_seconds, 1e-9), 1),
            "admitted_per_cpu_second": round(self.ended / max(self.cpu_seconds, 1e-9), 1),
        }


async def measure_workload(
    config: Config, patience: float, progress: Callable[[str, int, int], None]
) -> Outcome:
    """Run *config* on a control plane of its own.

    It ends when all have, or after *patience* seconds in which nothing was bound or ended.
    """
    with (
        ControlPlane() as plane,
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
    ):
        directory, endpoint = Path(scratch), plane.endpoint()
        policies = directory / "policies"
        policies.mkdir()
        (policies / "tree.yaml").write_text(tree(), encoding="utf-8")
        async with (
            Wire(endpoint, in_flight=_CONNECTIONS) as wire,
            Wire(endpoint, in_flight=_CONNECTIONS) as side,
        ):
            await _prepare(wire, config)
            subject = Starsched(str(policies))
            coming = arrivals(config)
            jobs = [job for _, job in coming]
            try:
                await subject.start(plane, directory)
                await until_idle(subject)
                async with BoundPods(side) as bound, RunningPods(side, bound, jobs) as running:
                    return await _run(
                        config, subject, plane, wire, running, coming, patience, progress
                    )
            finally:
                await asyncio.to_thread(subject.stop)


async def _prepare(wire: Wire, config: Config) -> None:
    """All but the pods."""
    await create_all(wire, definitions())
    for kind in ("clusterqueues", "localqueues"):
        await _until_served(wire, f"/apis/{_GROUP}/{_VERSION}/{kind}")
    await create_all(wire, (objects.namespace(name) for name, _ in _queues(config)))
    await create_all(wire, queue_objects(config))
    await create_all(
        wire,
        (
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": one.name},
                "value": one.priority,
            }
            for one in config.classes
        ),
    )
    await create_all(
        wire, (objects.node(number, cpu="256", pods="500") for number in range(_NODES))
    )


async def _until_served(wire: Wire, path: str) -> None:
    ends_at = time.monotonic() + _SERVED_SECONDS
    while True:
        try:
            await wire.get(path)
            return
        except WireError:
            if time.monotonic() > ends_at:
                raise
            await asyncio.sleep(0.1)


async def _run(
    config: Config,
    subject: Starsched,
    plane: ControlPlane,
    wire: Wire,
    running: RunningPods,
    coming: list[tuple[float, Job]],
    patience: float,
    progress: Callable[[str, int, int], None],
) -> Outcome:
    jobs = [job for _, job in coming]
    servers = (plane.apiserver_pid, plane.etcd_pid)
    cpu, machine = Cpu.of(subject.pid), Machine()
    of_servers = sum(usage_of(pid).cpu_seconds for pid in servers)
    own, started = time.process_time(), time.monotonic()
    requests = [wire.encode("POST", collection_path(job.pod), job.pod) for job in jobs]

    def note(place: int) -> None:
        jobs[place].created_at = running.changed_at = time.monotonic()

    def pause(place: int) -> float:
        return started + coming[place][0] - time.monotonic()

    def tick() -> None:
        subject.check_alive()
        if creating.done():
            creating.result()
        progress("workloads ended", running.ended, len(jobs))

    creating = asyncio.create_task(wire.send_all(requests, on_sent=note, pause=pause))
    try:
        await running.wait(patience, tick)
    finally:
        creating.cancel()
    await until_idle(subject)
    cpu = Cpu.of(subject.pid) - cpu
    of_servers = sum(usage_of(pid).cpu_seconds for pid in servers) - of_servers
    ours = cpu.main + cpu.sandbox + of_servers + time.process_time() - own
    others, took = machine.others_share(ours), await scrape(subject)
    ended = [job for job in jobs if job.ended_at]
    first = min(job.created_at for job in jobs if job.created_at)
    wall = max((job.ended_at for job in ended), default=first) - first
    return Outcome(
        workloads=len(jobs),
        ended=len(ended),
        wall_seconds=wall,
        created_seconds=max(job.created_at for job in jobs) - first,
        main_cpu_seconds=cpu.main,
        sandbox_cpu_seconds=cpu.sandbox,
        servers_cpu_seconds=of_servers,
        usage=_usage(config, jobs, wall),
        wakes=took.wakes,
        in_vain=took.in_vain,
        reclaimed=took.reclaimed,
        peak_mib=subject.usage().peak_mib,
        others_share=others,
        classes={one.name: _admission(jobs, one.name) for one in config.classes},
    )


def _usage(config: Config, jobs: list[Job], seconds: float) -> float:
    """Of all nominal quotas, the mean part in use over so many *seconds*."""
    cpu = {one.name: one.cpu for one in config.classes}
    used = sum(cpu[_class_of(job)] * (job.ended_at - job.bound_at) for job in jobs if job.ended_at)
    return used / max(seconds * config.cohorts * config.queues * config.nominal, 1e-9)


def _admission(jobs: list[Job], name: str) -> Admission:
    """Of the class *name*. Of a pod that was evicted, its last admission counts, as in Kueue."""
    mine = [job for job in jobs if _class_of(job) == name]
    waited = sorted(job.bound_at - job.created_at for job in mine if job.bound_at)
    return Admission(
        admitted=len(waited),
        mean=statistics.fmean(waited) if waited else 0.0,
        p99=percentile(waited, 0.99),
        evictions=sum(job.evictions for job in mine),
    )


def _class_of(job: Job) -> str:
    return str(job.pod["metadata"]["labels"][_CLASS])
