"""What taking turns costs a scheduler that has everything to decide at once.

Owns one measurement: a scheduler that is ready and idle is stopped while all pods are created on a
real API server, and goes on then, so that whose turn it is decides among all queues.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from devkit.benchmarks import objects, trees
from devkit.benchmarks.load import create_all, warm_list_cache
from devkit.benchmarks.measure import Machine, until_idle
from devkit.benchmarks.processes import own_cpu_seconds, usage_of
from devkit.benchmarks.running_pods import Job, RunningPods
from devkit.benchmarks.scraped import OfTree, Scraped
from devkit.benchmarks.subjects import Starsched
from devkit.benchmarks.trees import Rules
from devkit.benchmarks.upstream.pods import BoundPods
from devkit.benchmarks.wire import Wire
from tests.controlplane import ControlPlane, pause

Progress = Callable[[str, int, int], None]

#: Pods bound before.
_WARM_UP: Final = 20


@dataclass(frozen=True, slots=True)
class Load:
    """How much there is to decide, and how long to wait for a binding, in seconds."""

    nodes: int
    pods: int
    queues: int
    patience: float


@dataclass(frozen=True, slots=True)
class Turns:
    """Figures of one run; CPU, and what the tree took, are per bound pod.

    Attributes:
        pods: In all.
        bound: Of these.
        pods_per_second: From when the scheduler goes on to the last binding.
        main_cpu_ms: Of the main process, until all is written and it is idle.
        sandbox_cpu_ms: The same of its children.
        asked: Questions to the policy of the tree, but for what was answered from memory.
        shares_ms: Time in which shares were computed.
        wakes: Requests asked about again because something became free.
        in_vain: Of these, those that could not start then.
        peak_mib: VmHWM of all of its processes.
        others_share: The part of the machine that other programs took, the servers and the load
            aside.
    """

    pods: int
    bound: int
    pods_per_second: float
    main_cpu_ms: float
    sandbox_cpu_ms: float
    asked: float
    shares_ms: float
    wakes: float
    in_vain: float
    peak_mib: float
    others_share: float

    @property
    def cpu_ms(self) -> float:
        """CPU per pod, of all processes."""
        return self.main_cpu_ms + self.sandbox_cpu_ms

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        found = asdict(self) | {"cpu_ms": self.cpu_ms}
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of a scheduler so far: its main process, and its children."""

    main: float
    sandbox: float

    @classmethod
    def of(cls, pid: int) -> "Cpu":
        """Those of the process of *pid*."""
        main = own_cpu_seconds(pid)
        return cls(main, usage_of(pid).cpu_seconds - main)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.main - other.main, self.sandbox - other.sandbox)


async def scrape(subject: Starsched) -> OfTree:
    """What the tree of *subject* took so far."""
    return OfTree.of(Scraped.of((await asyncio.to_thread(subject.read, "metrics")).decode()))


async def measure_turns(rules: Rules, load: Load, progress: Progress) -> Turns:
    """One run by *rules*, on a control plane of its own."""
    with (
        ControlPlane() as plane,
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
    ):
        endpoint, directory = plane.endpoint(), Path(scratch)
        runs = 0.0 if rules.pods_end else None
        jobs, first = (
            [Job(trees.pod(number, load.queues), runs) for number in numbers]
            for numbers in (range(load.pods), range(load.pods, load.pods + _WARM_UP))
        )
        async with Wire(endpoint) as wire, Wire(endpoint) as side:
            await create_all(wire, [objects.namespace()])
            await create_all(wire, map(objects.node, range(load.nodes)))
            await warm_list_cache(wire)
            subject = Starsched(trees.write(rules, load.queues, directory / "policies"))
            try:
                await subject.start(plane, directory)
                async with BoundPods(side) as bound:
                    # 1. A few pods, so that everything was evaluated once.
                    async with RunningPods(side, bound, first) as running:
                        await create_all(wire, (job.pod for job in first))
                        await _until_over(subject, running, load, lambda *_: None)
                    await until_idle(subject)
                    # 2. Those that are measured.
                    async with RunningPods(side, bound, jobs) as running:
                        return await _measured(subject, plane, wire, running, load, progress)
            finally:
                await asyncio.to_thread(subject.stop)


async def _until_over(
    subject: Starsched, running: RunningPods, load: Load, progress: Progress
) -> None:
    def tick() -> None:
        subject.check_alive()
        progress("binding pods", running.bound, len(running.jobs))

    await running.wait(load.patience, tick)


async def _measured(
    subject: Starsched,
    plane: ControlPlane,
    wire: Wire,
    running: RunningPods,
    load: Load,
    progress: Progress,
) -> Turns:
    jobs = [*running.jobs.values()]
    before = await scrape(subject)
    pause(subject.pid)
    try:
        await create_all(
            wire,
            (job.pod for job in jobs),
            on_done=lambda place: progress("creating pods", place + 1, load.pods),
        )
        cpu, machine = Cpu.of(subject.pid), Machine()
        servers = (plane.apiserver_pid, plane.etcd_pid)
        of_servers = sum(usage_of(pid).cpu_seconds for pid in servers)
        own, began = time.process_time(), time.monotonic()
    finally:
        os.kill(subject.pid, signal.SIGCONT)
    await _until_over(subject, running, load, progress)
    await until_idle(subject)
    of_servers = sum(usage_of(pid).cpu_seconds for pid in servers) - of_servers
    cpu, took = Cpu.of(subject.pid) - cpu, await scrape(subject)
    ours = cpu.main + cpu.sandbox + of_servers + time.process_time() - own
    per_pod = 1 / max(1, running.bound)
    return Turns(
        pods=load.pods,
        bound=running.bound,
        pods_per_second=running.bound / (max(job.bound_at for job in jobs) - began),
        main_cpu_ms=1000 * cpu.main * per_pod,
        sandbox_cpu_ms=1000 * cpu.sandbox * per_pod,
        asked=(took.asked - before.asked) * per_pod,
        shares_ms=1000 * (took.shares_seconds - before.shares_seconds) * per_pod,
        wakes=(took.wakes - before.wakes) * per_pod,
        in_vain=(took.in_vain - before.in_vain) * per_pod,
        peak_mib=subject.usage().peak_mib,
        others_share=machine.others_share(ours),
    )
