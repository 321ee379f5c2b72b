"""One run: load and faults for a time, then rest, then the judgement.

Owns the order of things and what is asked at rest. Times of the run are `time.time()`, which is the
clock of the audit log and of the lease, too: all processes are on one machine.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from devkit.benchmarks.chaos.history import (
    AUDIT_POLICY,
    Verdict,
    audit_lines,
    judge,
    read_audit,
    read_etcd,
)
from devkit.benchmarks.chaos.load import Load, until
from devkit.benchmarks.chaos.plan import ETCD, FAULTS, KILL, REPLICAS, Step, plan_of, replica_lane
from devkit.benchmarks.chaos.proxy import FaultProxy
from devkit.benchmarks.chaos.replicas import POLICIES, ReplicaProcess, users
from devkit.benchmarks.objects import NAMESPACE
from devkit.benchmarks.subjects import SubjectError
from devkit.faults.invariants import AT_REST, Objects, Violation, grown, unexpected
from engine.policy.bundle import build_bundle
from tests.controlplane import ControlPlane, pause

_START_SECONDS: Final = 90.0
_SUPERVISED_SECONDS: Final = 0.5
_EDIT_SECONDS: Final = 12.0
_SAMPLE_SECONDS: Final = 3.0
_NOTED_SECONDS: Final = 30.0
_MEMORY_SLACK_MIB: Final = 40.0

_GROUPS: Final = '''"""Binds the pods of a job once all of them have a node.

Hooks: group_of, pre_enqueue, permit. Reads: pod.labels, of the group how many pods are there, wait
and are placed.
"""

def group_of(pod):
    job = pod.labels.get("job")
    if not job:
        return None
    return gang(job, min_count = parse_int(pod.labels.get("job-size"), 1))

def pre_enqueue(pod, group):
    if group != None and group.pod_count < group.min_count:
        return "the job has fewer pods than belong together"
    return None

def permit(pod, group):
    if group != None and group.waiting + group.placed < group.min_count:
        return wait(20, "waiting for the other pods of the job")
    return None
'''
_TASTE: Final = '''"""Edit {number}: prefers nodes of one zone.

Hooks: score. Reads: node.labels["topology.kubernetes.io/zone"].
"""

def score(pod, node{end}
    return 100 if node.labels.get("topology.kubernetes.io/zone") == "zone-{zone}" else 0
'''
_CONFIG: Final = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled:
          - name: groups
          - name: taste
"""


def policies(number: int, *, is_good: bool = True) -> dict[str, str]:
    """The texts of an edit; a bad one does not parse."""
    return {
        "groups.star": _GROUPS,
        "taste.star": _TASTE.format(number=number, zone=number % 3, end="):" if is_good else ":"),
        "config.yaml": _CONFIG,
    }


@dataclass(frozen=True)
class Settings:
    """What a run is made of.

    Attributes:
        minutes: With faults; the start and the end come on top.
        seed: Of the faults and the load.
        faults: Their kinds.
        every: Seconds between two faults on average.
        rate: Owners of pods created per second.
        settle: Seconds after the faults in which every pod that fits must be bound.
    """

    minutes: float = 20.0
    seed: int = 1
    faults: tuple[str, ...] = FAULTS
    every: float = 4.0
    rate: float = 3.0
    settle: float = 60.0


@dataclass(slots=True)
class Outcome:
    """A finished run.

    Attributes:
        steps: Faults that were carried out, by name; those whose target was busy with another one
            are left out.
        violations: Of everything that must hold.
        settled_seconds: From the end of the faults until every rule held; None if it never did.
        lives: Processes of all replicas.
        exits: Of them, those that ended by themselves, by exit code.
        edits: Good and bad ones of the policies.
        memory: The most MiB that a replica held.
    """

    steps: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    settled_seconds: float | None = None
    seconds: float = 0.0
    pods: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    answers: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    exits: Counter[str] = field(default_factory=Counter)
    edits: Counter[str] = field(default_factory=Counter)
    memory: float = 0.0
    connections: int = 0


class Run:
    """A control plane with its proxies, replicas and load.

    Args:
        settings: See there.
        directory: For data and logs.
        note: Takes a line of progress.
    """

    def __init__(
        self, settings: Settings, directory: Path, note: Callable[[str], None] = lambda text: None
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._note = note
        self._outcome = Outcome()
        self._freezes: list[tuple[float, float]] = []
        self._busy: set[str] = set()
        self._edits = 0
        self._started_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> Outcome:
        """Carry it out. Raises `SubjectError` if a replica does not even start."""
        async with contextlib.AsyncExitStack() as stack:
            self._proxies = {
                name: await stack.enter_async_context(FaultProxy()) for name in (*REPLICAS, ETCD)
            }
            tokens = users()
            plane = self._plane = self._control_plane(tokens)
            stack.callback(plane.stop)
            await asyncio.to_thread(plane.start)
            for name in REPLICAS:
                self._proxies[name].target = plane.port
            client = await stack.enter_async_context(plane.client())
            self._load = Load(client, self._settings.seed, self._settings.rate)
            self._replicas = {
                name: ReplicaProcess(name, plane, self._proxies[name], self._directory, tokens)
                for name in REPLICAS
            }
            for replica in self._replicas.values():
                stack.callback(replica.kill)
            stack.push_async_callback(self._cancel)
            await self._prepare()
            await self._break_for_a_while()
            await self._come_to_rest()
            await self._stop()
        return self._outcome

    async def _cancel(self) -> None:
        """End all tasks: one of them starts replicas again that have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _control_plane(self, tokens: dict[str, str]) -> ControlPlane:
        directory = self._directory / "plane"
        directory.mkdir(parents=True)
        policy, self._audit_log = directory / "audit-policy.json", directory / "audit.log"
        policy.write_text(json.dumps(AUDIT_POLICY), encoding="utf-8")
        etcd_proxy = self._proxies[ETCD]
        plane = ControlPlane(
            directory=directory,
            users=tokens,
            etcd_args=["--quota-backend-bytes=8589934592"],
            apiserver_args=[
                f"--etcd-servers=http://127.0.0.1:{etcd_proxy.port}",
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self._audit_log}",
                "--audit-log-maxsize=10000",
                # The history of the run is read out of etcd.
                "--etcd-compaction-interval=0",
                "--storage-media-type=application/json",
            ],
        )
        etcd_proxy.target = plane.etcd_port
        return plane

    # --- start --------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        rights = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "replicas"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Group",
                    "name": "system:authenticated",
                }
            ],
        }
        path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        await self._load.insist("POST", path, rights)
        await self._load.set_up()
        await self._load.write_map(POLICIES, policies(0))
        for replica in self._replicas.values():
            replica.start()

        async def have_started() -> bool:
            for replica in self._replicas.values():
                if not replica.is_running:
                    log = replica.lives[-1].log.read_text("utf-8", "replace")
                    raise SubjectError(f"replica {replica.name} ended at its start\n{log[-3000:]}")
            return all([await one.read("/policies") for one in self._replicas.values()])

        if await until(have_started, _START_SECONDS) is None:
            raise SubjectError(f"replicas do not answer after {_START_SECONDS:.0f} s")

    # --- faults -------------------------------------------------------------------------------

    async def _break_for_a_while(self) -> None:
        self._started_at = time.monotonic()
        self._feeding = asyncio.create_task(self._load.feed())
        self._editing = asyncio.create_task(self._edit())
        others = (self._load.keep_house(), self._supervise(), self._sample(), self._report())
        self._tasks = [self._feeding, self._editing, *map(asyncio.create_task, others)]
        seconds = 60 * self._settings.minutes
        plan = plan_of(
            self._settings.seed,
            seconds,
            every=self._settings.every,
            faults=self._settings.faults,
        )
        async with asyncio.TaskGroup() as group:
            for step in plan:
                await self._sleep_until(step.at)
                if step.lane in self._busy:
                    continue
                self._busy.add(step.lane)
                self._outcome.steps[step.name] += 1
                group.create_task(self._carry_out(step))
            await self._sleep_until(seconds)
        self._outcome.seconds = time.monotonic() - self._started_at

    async def _sleep_until(self, at: float) -> None:
        while (left := self._started_at + at - time.monotonic()) > 0:
            for task in self._tasks:
                if task.done():
                    task.result()  # raises what ended it
            await asyncio.sleep(min(left, 1.0))

    async def _carry_out(self, step: Step) -> None:
        try:
            if not step.is_of_process:
                proxy = self._proxies[step.target]
                await proxy.inject(step.kind, step.directions, step.seconds)
            elif step.target in REPLICAS:
                await self._break_replica(step)
            else:
                await self._break_server(step)
        finally:
            self._busy.discard(step.lane)

    async def _break_replica(self, step: Step) -> None:
        replica = self._replicas[step.target]
        if step.kind == KILL:
            await asyncio.to_thread(replica.kill)
            await asyncio.sleep(step.seconds)  # the supervisor starts it again
        else:
            await asyncio.to_thread(replica.pause)
            await asyncio.sleep(step.seconds)
            replica.resume()

    async def _break_server(self, step: Step) -> None:
        plane = self._plane
        if step.kind == KILL:
            kill, start = (
                (plane.kill_etcd, plane.restart_etcd)
                if step.target == ETCD
                else (plane.kill_apiserver, plane.restart_apiserver)
            )
            await asyncio.to_thread(kill)
            await asyncio.sleep(step.seconds)
            await asyncio.to_thread(start)
            return
        pid = plane.etcd_pid if step.target == ETCD else plane.apiserver_pid
        since = time.time()
        await asyncio.to_thread(pause, pid)
        try:
            await asyncio.sleep(step.seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
        self._freezes.append((since, time.time()))

    async def _supervise(self) -> None:
        """Start again what has ended, as kubelets do."""
        while True:
            await asyncio.sleep(_SUPERVISED_SECONDS)
            for name, replica in self._replicas.items():
                if replica_lane(name) not in self._busy and not replica.is_running:
                    replica.start()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            for replica in self._replicas.values():
                await asyncio.to_thread(replica.sample)

    async def _edit(self) -> None:
        """Edit the policies, every third time badly."""
        while True:
            await asyncio.sleep(_EDIT_SECONDS)
            self._edits += 1
            is_good = self._edits % 3 != 0
            self._outcome.edits["good" if is_good else "bad"] += 1
            await self._load.write_map(POLICIES, policies(self._edits, is_good=is_good))

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_NOTED_SECONDS)
            spent = time.monotonic() - self._started_at
            lives = sum(len(replica.lives) for replica in self._replicas.values())
            self._note(
                f"{spent:.0f} s: {sum(self._outcome.steps.values())} faults, "
                f"{sum(self._load.counts.values())} pods created, {lives} processes"
            )

    # --- rest ---------------------------------------------------------------------------------

    async def _come_to_rest(self) -> None:
        self._editing.cancel()
        self._load.is_churning = False
        await self._feeding
        await self._load.remove_fillers()
        found: list[Violation] = []

        async def holds() -> bool:
            found[:] = await self._at_rest()
            return not found

        self._outcome.settled_seconds = await until(holds, self._settings.settle)
        self._outcome.violations += found
        self._note(f"at rest after {self._outcome.settled_seconds} s")
        await self._check_last_good()

    async def _at_rest(self) -> list[Violation]:
        load = self._load
        lists = {}
        for name, path in {
            "nodes": "/api/v1/nodes",
            "pods": f"/api/v1/namespaces/{NAMESPACE}/pods",
            "claims": f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims",
            "slices": "/apis/resource.k8s.io/v1/resourceslices",
            "volumes": "/api/v1/persistentvolumes",
            "volume_claims": f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims",
            "events": f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events",
        }.items():
            answer = await load.insist("GET", path)
            lists[name] = answer["items"]
        objects = Objects(**lists)
        return [violation for rule in AT_REST.values() for violation in rule(objects)]

    async def _check_last_good(self) -> None:
        """The last good policies survive a bad edit and the end of both replicas."""
        good = policies(self._edits + 1)
        revision = (await asyncio.to_thread(build_bundle, good)).revision

        async def in_force() -> list[str]:
            pages = [await replica.read("/policies") for replica in self._replicas.values()]
            actives = [page["active"] if page else None for page in pages]
            return [active["revision"] if active else "" for active in actives]

        async def is_in_force() -> bool:
            return set(await in_force()) == {revision}

        await self._load.write_map(POLICIES, good)
        if await until(is_in_force, self._settings.settle) is None:
            self._violate("last good policies", "a good edit is not in force in both replicas")
        await self._load.write_map(POLICIES, policies(self._edits + 2, is_good=False))
        for replica in self._replicas.values():
            await asyncio.to_thread(replica.kill)
        if await until(is_in_force, self._settings.settle) is None:
            text = f"want `{revision}` after a bad edit and a start, got {await in_force()}"
            self._violate("last good policies", text)

    def _violate(self, rule: str, text: str) -> None:
        self._outcome.violations.append(Violation(rule, POLICIES, text))

    async def _stop(self) -> None:
        await self._cancel()
        outcome = self._outcome
        for replica in self._replicas.values():
            life = replica.lives[-1]
            life.process.terminate()
            code = await asyncio.to_thread(life.process.wait, 30)
            if code != 0:
                text = f"SIGTERM ended it with {code}, want 0"
                outcome.violations.append(Violation("exit code", life.user, text))
        await asyncio.to_thread(self._plane.kill_apiserver)
        audit = read_audit(audit_lines(self._audit_log))
        groups = list(self._load.groups.values())
        causes = preemptions(line for one in self._replicas.values() for _, line in one.log_lines())
        verdict = await asyncio.to_thread(
            lambda: judge(audit, read_etcd(self._plane), causes, groups, self._freezes)
        )
        outcome.verdict, outcome.answers = verdict, audit.answers
        outcome.violations += verdict.violations
        for replica in self._replicas.values():
            for user, line in replica.log_lines():
                outcome.violations += unexpected(user, [line])
            about = f"memory of replica {replica.name}"
            outcome.violations += grown(about, replica.memory, slack=_MEMORY_SLACK_MIB)
            outcome.lives += len(replica.lives)
            outcome.exits.update(
                str(life.exit_code) for life in replica.lives if life.exit_code is not None
            )
            outcome.memory = max([outcome.memory, *replica.memory])
        outcome.pods = self._load.counts
        outcome.connections = sum(proxy.connections for proxy in self._proxies.values())


def preemptions(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """By the key of a victim, its preemptor and the node, out of replicas' logs."""
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        if "Preempted pod" in line:
            with contextlib.suppress(ValueError, KeyError):
                entry: dict[str, Any] = json.loads(line)
                found[entry["pod"]] = (entry["preemptor"], entry["node"])
    return found
