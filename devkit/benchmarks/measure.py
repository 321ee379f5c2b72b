"""One measurement: one scheduler, one workload, a fresh control plane.

Owns the order of the steps, so that every scheduler gets the same: nodes first, the API server's
caches warmed, the scheduler started and idle, warm-up pods, then the clock.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from devkit.benchmarks.load import (
    BindingWatch,
    LoadResult,
    create_all,
    key_of,
    percentile,
    run_load,
    warm_list_cache,
)
from devkit.benchmarks.objects import NAMESPACE, Manifest
from devkit.benchmarks.processes import machine_busy_seconds, usage_of
from devkit.benchmarks.subjects import Subject
from devkit.benchmarks.wire import Wire
from devkit.benchmarks.workloads import Workload
from tests.controlplane import ControlPlane, serving_groups

#: Numbers of warm-up pods start here, far from the measured ones.
_WARM_UP_FROM: Final = 900_000
_IDLE_SHARE: Final = 0.15
_IDLE_WINDOW: Final = 0.4
_IDLE_PATIENCE: Final = 30.0
_EVENTS_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How much load, and how.

    Attributes:
        nodes: In the cluster.
        pods: Measured; of groups, as many more as make them whole.
        warm_up: Pods bound before the clock starts.
        in_flight: Creations under way at once.
        rate: Pods created per second; 0 for as fast as the API server takes them.
        patience: Seconds without any binding after which a run is given up.
    """

    nodes: int = 5000
    pods: int = 2000
    warm_up: int = 20
    in_flight: int = 16
    rate: float = 0.0
    patience: float = 60.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of one run. Times in milliseconds unless named otherwise; CPU is per bound pod.

    `pods_per_second` is over the time from the first creation to the last binding,
    `pods_per_second_written` to the last event: a scheduler may write events during its bindings
    or after them. `scheduler_cpu_ms` covers the parent and its children until all is written and
    they are idle again. `peak_mib` is the sum of their VmHWM.
    `first_pod_ms` is the first pod that the scheduler ever saw, not part of the other figures.
    `others_share` is the share of the machine (0..1) that processes outside of the benchmark took
    during the run: with more than a few hundredths, the figures are noisy.
    """

    bound: int
    pods: int
    pods_per_second: float
    p50_ms: float
    p99_ms: float
    scheduler_cpu_ms: float
    apiserver_cpu_ms: float
    etcd_cpu_ms: float
    generator_cpu_ms: float
    peak_mib: float
    processes: int
    ready_seconds: float
    first_pod_ms: float
    created_seconds: float
    events: int
    pods_per_second_written: float
    others_share: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}


async def measure(
    subject: Subject,
    workload: Workload,
    settings: Settings,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Measurement:
    """Run *workload* against *subject* on a control plane of its own.

    Args:
        subject: Not running.
        workload: One that the subject supports.
        settings: See there.
        progress: Called with a step's name, what is done of it and how much there is.
    """
    with (
        ControlPlane(apiserver_args=serving_groups() if workload.has_groups else ()) as plane,
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as directory,
    ):
        async with Wire(plane.endpoint(), in_flight=settings.in_flight) as wire:
            # 1. The cluster as it is before anything is scheduled.
            await _fill_cluster(wire, workload, settings, progress)
            await warm_list_cache(wire)
            try:
                # 2. The scheduler, ready and idle.
                ready_seconds = await subject.start(plane, Path(directory))
                await until_idle(subject)
                async with BindingWatch(wire) as watch:
                    # 3. Warm-up, the very first pod (or its group) alone.
                    first_pod_ms = await _warm_up(wire, watch, subject, workload, settings)
                    # 4. What is measured.
                    return await _measured_run(
                        wire, watch, plane, subject, workload, settings, progress,
                        ready_seconds, first_pod_ms,
                    )  # fmt: skip
            finally:
                subject.stop()


async def until_idle(subject: Subject) -> None:
    """Return when the scheduler uses almost no CPU, or after half a minute."""
    deadline = time.monotonic() + _IDLE_PATIENCE
    before = subject.usage().cpu_seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(_IDLE_WINDOW)
        now = subject.usage().cpu_seconds
        if now - before < _IDLE_SHARE * _IDLE_WINDOW:
            return
        before = now


async def _fill_cluster(
    wire: Wire,
    workload: Workload,
    settings: Settings,
    progress: Callable[[str, int, int], None],
) -> None:
    await create_all(
        wire, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    )
    total = settings.nodes
    await create_all(
        wire,
        (workload.make_node(number) for number in range(settings.nodes)),
        on_done=lambda place: progress("creating nodes", place + 1, total),
    )
    # What a pod needs must exist before it: namespaces, classes and groups first.
    objects = list(workload.objects(settings.nodes))
    for numbers in (_warm_up_numbers(workload, settings), _numbers(workload, settings)):
        objects += workload.groups(numbers)
    pods = [manifest for manifest in objects if manifest["kind"] == "Pod"]
    await create_all(wire, [manifest for manifest in objects if manifest["kind"] != "Pod"])
    await create_all(
        wire, pods, on_done=lambda place: progress("placing pods", place + 1, len(pods))
    )


def _numbers(workload: Workload, settings: Settings) -> range:
    """The numbers of the measured pods."""
    return workload.numbers(0, settings.pods)


def _warm_up_numbers(workload: Workload, settings: Settings) -> range:
    return workload.numbers(_WARM_UP_FROM, max(1, settings.warm_up))


async def _warm_up(
    wire: Wire, watch: BindingWatch, subject: Subject, workload: Workload, settings: Settings
) -> float:
    def tick(_: int) -> None:
        subject.check_alive()

    pods = [workload.make_pod(number) for number in _warm_up_numbers(workload, settings)]
    alone, others = pods[: workload.group_size], pods[workload.group_size :]
    first = await run_load(wire, watch, alone, patience=settings.patience, tick=tick)
    await run_load(wire, watch, others, patience=settings.patience, tick=tick)
    await create_all(wire, workload.unmeasured(settings.nodes))
    await until_idle(subject)
    return (first.latencies() or [0.0])[0] * 1000


async def _measured_run(
    wire: Wire,
    watch: BindingWatch,
    plane: ControlPlane,
    subject: Subject,
    workload: Workload,
    settings: Settings,
    progress: Callable[[str, int, int], None],
    ready_seconds: float,
    first_pod_ms: float,
) -> Measurement:
    pods = [workload.make_pod(number) for number in _numbers(workload, settings)]

    def tick(bound: int) -> None:
        subject.check_alive()
        progress("binding pods", bound, len(pods))

    servers = (plane.apiserver_pid, plane.etcd_pid)
    events_before = await count_events(wire)
    before = [usage_of(pid).cpu_seconds for pid in (subject.pid, *servers)]
    machine = Machine()
    load = await run_load(
        wire, watch, pods, rate=settings.rate, patience=settings.patience, tick=tick
    )
    written_at = await _until_written(wire, events_before + len(load.bound_at))
    ours = sum(usage_of(pid).cpu_seconds for pid in (subject.pid, *servers)) - sum(before)
    others = machine.others_share(ours + load.generator_cpu_seconds)
    await until_idle(subject)
    subject.check_alive()
    after = [usage_of(pid).cpu_seconds for pid in (subject.pid, *servers)]
    scheduler, apiserver, etcd = (b - a for a, b in zip(before, after, strict=True))
    usage = subject.usage()
    return _figures(
        load,
        pods,
        cpu=(scheduler, apiserver, etcd),
        peak_mib=usage.peak_mib,
        processes=usage.processes,
        ready_seconds=ready_seconds,
        first_pod_ms=first_pod_ms,
        events=await count_events(wire) - events_before,
        written_seconds=max(0.0, written_at - min(load.created_at.values())),
        others_share=others,
    )


class Machine:
    """The whole machine's CPU since it was made."""

    def __init__(self) -> None:
        self._busy = machine_busy_seconds()
        self._at = time.monotonic()

    def others_share(self, ours: float) -> float:
        """Share of all cores that went to anything but *ours*, CPU seconds."""
        busy = machine_busy_seconds() - self._busy
        available = (time.monotonic() - self._at) * len(os.sched_getaffinity(0))
        return max(0.0, busy - ours) / available


def _figures(
    load: LoadResult,
    pods: list[Manifest],
    *,
    cpu: tuple[float, float, float],
    peak_mib: float,
    processes: int,
    ready_seconds: float,
    first_pod_ms: float,
    events: int,
    written_seconds: float,
    others_share: float,
) -> Measurement:
    assert set(load.created_at) == {key_of(pod) for pod in pods}
    latencies = load.latencies()
    per_pod = 1000 / max(1, len(latencies))
    scheduler, apiserver, etcd = cpu
    return Measurement(
        bound=len(latencies),
        pods=len(pods),
        pods_per_second=load.pods_per_second,
        p50_ms=percentile(latencies, 0.50) * 1000,
        p99_ms=percentile(latencies, 0.99) * 1000,
        scheduler_cpu_ms=scheduler * per_pod,
        apiserver_cpu_ms=apiserver * per_pod,
        etcd_cpu_ms=etcd * per_pod,
        generator_cpu_ms=load.generator_cpu_seconds * per_pod,
        peak_mib=peak_mib,
        processes=processes,
        ready_seconds=ready_seconds,
        first_pod_ms=first_pod_ms,
        created_seconds=load.created_seconds,
        events=events,
        pods_per_second_written=len(latencies) / max(load.seconds, written_seconds, 1e-9),
        others_share=others_share,
    )


async def _until_written(wire: Wire, want: int) -> float:
    """When the number of events reached *want*, or last grew; seen to a fifth of a second."""
    most, grew_at = -1, time.monotonic()
    while True:
        count = await count_events(wire)
        now = time.monotonic()
        if count > most:
            most, grew_at = count, now
        if count >= want or now - grew_at > _EVENTS_PATIENCE:
            return grew_at
        await asyncio.sleep(0.2)


async def count_events(wire: Wire) -> int:
    """Events in all namespaces, without reading them."""
    page = msgspec.json.decode(await wire.get("/apis/events.k8s.io/v1/events?limit=1"))
    return len(page["items"] or ()) + int(page["metadata"].get("remainingItemCount", 0))
