"""A scheduler on a large cluster: its start, what it takes over, edits of its policies, its memory.

Owns the four measurements. The scheduler is the real process, `starsched run`, against a real or
the embedded API server that holds `full_cluster`'s cluster.
"""

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from devkit.benchmarks import holdings, objects
from devkit.benchmarks.bench_reload import POOLS, Sightings
from devkit.benchmarks.full_cluster import Progress
from devkit.benchmarks.holdings import HOLDINGS
from devkit.benchmarks.load import BindingWatch, collection_path, create_all, key_of, version_now
from devkit.benchmarks.memory import memory_by_part
from devkit.benchmarks.objects import NAMESPACE, ZONE, Manifest
from devkit.benchmarks.planes import Plane
from devkit.benchmarks.processes import usage_of
from devkit.benchmarks.subjects import Starsched
from devkit.benchmarks.wire import Wire, WireError

POLICIES: Final = "starsched-policies"
SOURCE: Final = f"configmap:{NAMESPACE}/{POLICIES}"
_POLICY_FILE: Final = "pool_of_the_day.star"
_POLICY: Final = '''"""Edit {number}: pods go to one pool."""

_POOL = "pool-{pool}"

def filter(pod, node):
    if node.labels.get("pool") != _POOL:
        return "node(s) were not in the pool of the day"
'''
_PATIENCE: Final = 120.0
_SETTLE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_STILL_SECONDS: Final = 5.0
_PAUSES: Final = re.compile(r'^starsched_decision_pause_seconds_bucket\{le="([^"]+)"\} ([\d.e+]+)$')


class Quiet(Starsched):
    """Ours, with policies from the ConfigMap if not from elsewhere, started without waiting."""

    def __init__(self, policies: str | None = SOURCE, *, profile: Path | None = None) -> None:
        super().__init__(policies, profile=profile)

    @property
    def log_bytes(self) -> int:
        """How much it has logged."""
        return self._log_path.stat().st_size

    def log_lines(self) -> Iterator[dict[str, Any]]:
        """What it has logged."""
        for line in self._log_path.read_text("utf-8", "replace").splitlines():
            if line.startswith("{"):
                yield json.loads(line)


async def write_policy(wire: Wire, number: int, *, is_new: bool = False) -> None:
    """Put edit *number* into the ConfigMap."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": POLICIES, "namespace": NAMESPACE},
        "data": {_POLICY_FILE: _POLICY.format(number=number, pool=number % POOLS)},
    }
    path = collection_path(body)
    method, path = ("POST", path) if is_new else ("PUT", f"{path}/{POLICIES}")
    answer = await wire.send(wire.encode(method, path, body))
    if answer.status >= 300:
        raise WireError(f"{method} {path}: {answer.status} {answer.body.decode()}")


# --- start -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """One start. Seconds from the process's start, unless they say of what.

    `list_alone_seconds` is what the API server takes for the same lists when they are not decoded:
    the part of `synced_seconds` that no scheduler can save. `scheduler_cpu_seconds` is up to the
    first binding, children included.
    """

    serving_seconds: float
    synced_seconds: float
    first_bound_seconds: float
    scheduler_cpu_seconds: float
    apiserver_cpu_seconds: float
    list_alone_seconds: float
    list_alone_cpu_seconds: float
    list_mb: float

    def as_dict(self) -> dict[str, float]:
        """Plain data."""
        return {name: round(getattr(self, name), 2) for name in self.__slots__}


def first_pod(number: int) -> Manifest:
    """A pod that waits for the start with *number*."""
    return objects.pod(f"first-{number:03d}-{time.time_ns()}")


async def measure_start(
    wire: Wire, plane: Plane, directory: Path, subject: Quiet, pod: Manifest
) -> Start:
    """Start *subject* with *pod* waiting, and stop it again."""
    alone = await _list_alone(wire, plane)
    await create_all(wire, [pod])
    async with BindingWatch(wire) as watch:
        servers = _cpu_of(plane)
        started, wall = time.monotonic(), time.time()
        starting = asyncio.create_task(subject.start(plane, directory))  # type: ignore[arg-type]  # any server with a kubeconfig will do
        try:
            if not await watch.wait_for([key_of(pod)], _PATIENCE, every=0.01):
                raise WireError(f"nothing was bound after {_PATIENCE:.0f} s\n{subject.log_tail()}")
            cpu = subject.usage().cpu_seconds
            servers = _cpu_of(plane) - servers
            await starting
            said = {line["message"]: _epoch(line["time"]) - wall for line in subject.log_lines()}
        finally:
            starting.cancel()
            await asyncio.to_thread(subject.stop)
    return Start(
        serving_seconds=said["Serving locally"],
        synced_seconds=said["In sync"],
        first_bound_seconds=watch.bound_at[key_of(pod)] - started,
        scheduler_cpu_seconds=cpu,
        apiserver_cpu_seconds=servers,
        **alone,
    )


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _cpu_of(plane: Plane) -> float:
    return sum(usage_of(pid).cpu_seconds for pid in plane.pids)


async def _list_alone(wire: Wire, plane: Plane) -> dict[str, float]:
    """List nodes and pods as a scheduler does, page by page, reading nothing but the token."""
    started, cpu, size = time.monotonic(), _cpu_of(plane), 0
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        token = ""
        while True:
            body = await wire.get(f"{path}?limit=500" + (f"&continue={token}" if token else ""))
            size += len(body)
            found = re.search(rb'"continue":"([^"]+)"', body[:500])
            if found is None:
                break
            token = found[1].decode("ascii")
    return {
        "list_alone_seconds": time.monotonic() - started,
        "list_alone_cpu_seconds": _cpu_of(plane) - cpu,
        "list_mb": size / 1e6,
    }


# --- hand-over ---------------------------------------------------------------------------------

#: Kinds of pods that wait, by what they ask for; each kind is decided for itself.
_KINDS: Final = 200
#: New pods while the backlog is tried: so many, with so many seconds between two.
_NEW_PODS: Final = 40
_NEW_EVERY_SECONDS: Final = 0.25
_MERGE_PATCH: Final = "application/merge-patch+json"
_TRIED: Final = re.compile(
    r'^scheduler_schedule_attempts_total\{[^}]*result="unschedulable"[^}]*\} ([\d.e+]+)$', re.M
)
_TRIED_BEFORE: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/5000 nodes are available: 5000 Insufficient example.com/gpu.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@dataclass(frozen=True, slots=True)
class HandOver:
    """A backlog that is taken over, and new pods meanwhile. Seconds.

    `latencies`: from creation to binding of each new pod, ascending. `tried`: from the first one's
    creation until each pod of the backlog was tried. `logged`: bytes of log by then, at the default
    verbosity; `logged_for_node`: and for a node that is added then, for which `tried_again` pods
    are tried once more.
    """

    latencies: list[float]
    tried: float
    logged: int
    logged_for_node: int
    tried_again: int


def waiting_pod(number: int) -> Manifest:
    """A pod that fits nowhere, for want of a device that no node has."""
    device = {"example.com/gpu": "1"}
    return objects.pod(
        f"waits-{number:05d}",
        labels={"app": f"waits-{number % _KINDS}"},
        requests={"cpu": f"{100 + number % _KINDS}m", "memory": "64Mi", **device},
        limits=device,
        spec={"terminationGracePeriodSeconds": 0},
    )


async def measure_hand_over(
    wire: Wire, plane: Plane, directory: Path, *, waiting: int, progress: Progress
) -> HandOver:
    """Start a scheduler where *waiting* pods were tried before, and create new ones."""
    backlog = [waiting_pod(number) for number in range(waiting)]
    await create_all(
        wire, backlog, on_done=lambda done: progress("creating a backlog", done + 1, waiting)
    )
    body = {"status": {"conditions": [_TRIED_BEFORE]}}
    paths = [f"{collection_path(pod)}/{pod['metadata']['name']}" for pod in backlog]
    await wire.send_all(
        wire.encode("PATCH", f"{path}/status", body, content_type=_MERGE_PATCH) for path in paths
    )
    subject = Quiet()
    created: dict[str, float] = {}
    try:
        async with BindingWatch(wire) as watch:
            await subject.start(plane, directory)  # type: ignore[arg-type]  # any server with a kubeconfig will do
            began = time.monotonic()
            trying = asyncio.ensure_future(_until_tried(subject, waiting))
            for number in range(_NEW_PODS):
                wait = began + number * _NEW_EVERY_SECONDS - time.monotonic()
                await asyncio.sleep(max(0.0, wait))
                pod = objects.pod(f"new-{number:03d}")
                created[key_of(pod)] = time.monotonic()
                await create_all(wire, [pod])
                progress("creating new pods", number + 1, _NEW_PODS)
            if await watch.wait_for([*created], _PATIENCE, every=0.05) < len(created):
                raise WireError(f"new pods were not bound\n{subject.log_tail()}")
            tried = await trying - began
            logged = subject.log_bytes
            device = {"example.com/gpu": "1"}
            await create_all(wire, [objects.node(0, name="added-later", extended=device)])
            again = await _until_none_is_tried(subject) - waiting
            for_node = subject.log_bytes - logged
            latencies = sorted(watch.bound_at[key] - at for key, at in created.items())
    finally:
        await asyncio.to_thread(subject.stop)
        gone = [*paths, "/api/v1/nodes/added-later"]
        await wire.send_all(wire.encode("DELETE", path, {}) for path in gone)
    return HandOver(latencies, tried, logged, for_node, again)


async def _until_tried(subject: Quiet, count: int) -> float:
    """When so many attempts had ended without a node."""
    deadline = time.monotonic() + 10 * _PATIENCE
    while time.monotonic() < deadline:
        if await _tried(subject) >= count:
            return time.monotonic()
        await asyncio.sleep(0.5)
    raise WireError(f"the backlog was not tried\n{subject.log_tail()}")


async def _until_none_is_tried(subject: Quiet) -> int:
    """How many attempts had ended without a node when none did any more for some seconds."""
    found, before = await _tried(subject), -1
    while found != before:
        await asyncio.sleep(_STILL_SECONDS)
        found, before = await _tried(subject), found
    return found


async def _tried(subject: Quiet) -> int:
    subject.check_alive()
    text = (await asyncio.to_thread(subject.read, "metrics")).decode("utf-8")
    return round(sum(float(found) for found in _TRIED.findall(text)))


# --- reload ------------------------------------------------------------------------------------

#: What the scheduler logs when it has taken in an edit, and the stages whose time it logs with it.
SWITCHED: Final = "Policies in force"
STAGES: Final = ("check", "test", "load", "trial")


@dataclass(slots=True)
class Reloads:
    """Edits under load. Seconds.

    `in_force`: from the ConfigMap's update to the switch, by edit. `first_pod`: to the first pod
    seen bound where only the new revision puts pods. `pauses`: how many pauses between decisions
    were at most this long, by bound, as the scheduler counted them. `latencies`: from creation to
    binding of each pod that came in those times, ascending. `stages`: what the switches took in
    milliseconds, as the scheduler logged it: check, test, load, trial.
    """

    in_force: list[float] = field(default_factory=list)
    first_pod: list[float] = field(default_factory=list)
    pauses: dict[float, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    quiet_latencies: list[float] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)

    def pauses_above(self, seconds: float) -> int:
        """How many pauses were longer than a bound of the histogram."""
        return round(self.pauses[float("inf")] - self.pauses[seconds])

    @property
    def longest_pause(self) -> float:
        """The bound that no pause exceeded."""
        total = self.pauses[float("inf")]
        return min(bound for bound, count in self.pauses.items() if count == total)


def mixed_pod(number: int) -> Manifest:
    """A pod of one of eight classes: sizes, affinities and spreading as applications mix them."""
    kind = number % 8
    labels = {"app": f"mixed-{kind}"}
    spec: Manifest = {"terminationGracePeriodSeconds": 0}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": ZONE}
    if kind in (2, 3):
        preferred = {"weight": 10, "podAffinityTerm": term}
        spec["affinity"] = {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
        }
    if kind in (4, 5):
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 5,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels},
            }
        ]
    requests = {"cpu": f"{10 * (1 + kind)}m", "memory": f"{16 * (1 + kind)}Mi"}
    return objects.pod(f"mixed-{number:06d}", labels=labels, requests=requests, spec=spec)


async def measure_reloads(
    wire: Wire,
    plane: Plane,
    directory: Path,
    *,
    edits: int,
    rate: float,
    dwell: float,
    progress: Progress,
) -> Reloads:
    """Edit the policies *edits* times while pods are created at *rate* per second."""
    subject = Quiet()
    found = Reloads()
    created: dict[str, float] = {}
    seen = Sightings()
    stop = asyncio.Event()
    watching = asyncio.create_task(seen.watch(wire, await version_now(wire)))
    feeding = asyncio.create_task(_feed(wire, created, rate, stop))
    try:
        await subject.start(plane, directory)  # type: ignore[arg-type]  # any server with a kubeconfig will do
        await asyncio.sleep(_SETTLE_SECONDS)  # the trial of the first policies, the backlog
        windows: list[tuple[float, float]] = []
        for number in range(1, edits + 1):
            before = await asyncio.to_thread(_pauses, subject)
            now, wall = time.monotonic(), time.time()
            await write_policy(wire, number)
            found.in_force.append(await _until_in_force(subject, wall) - wall)
            switched = now + found.in_force[-1]
            found.first_pod.append(await _first_pod(wire, seen, number, now) - now)
            after = await asyncio.to_thread(_pauses, subject)
            for bound, count in after.items():
                found.pauses[bound] = found.pauses.get(bound, 0) + count - before[bound]
            windows.append((now, max(switched, now + found.first_pod[-1])))
            await asyncio.sleep(dwell)
            progress("reloading", number, edits)
        stop.set()
        await feeding
        await asyncio.sleep(1.0)
        switches = [line for line in subject.log_lines() if line["message"] == SWITCHED]
        found.stages = [{name: line[f"{name}_ms"] for name in STAGES} for line in switches[-edits:]]
        for name, at in seen.bound_at.items():
            since = created.get(name, windows[0][0] - 1)
            if since > windows[0][0]:
                during = any(start <= at and since <= end for start, end in windows)
                (found.latencies if during else found.quiet_latencies).append(at - since)
    finally:
        for task in (watching, feeding):
            task.cancel()
        await asyncio.gather(watching, feeding, return_exceptions=True)
        await asyncio.to_thread(subject.stop)
    found.latencies.sort()
    found.quiet_latencies.sort()
    return found


async def _feed(wire: Wire, created: dict[str, float], rate: float, stop: asyncio.Event) -> None:
    started = time.monotonic()
    for number in itertools.count():
        if stop.is_set():
            return
        await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
        manifest = mixed_pod(number)
        created[manifest["metadata"]["name"]] = time.monotonic()
        answer = await wire.send(wire.encode("POST", collection_path(manifest), manifest))
        if answer.status >= 300:
            raise WireError(f"cannot create a pod: {answer.status} {answer.body.decode()}")


def _pauses(subject: Quiet) -> dict[float, float]:
    lines = subject.read("metrics").decode("utf-8").splitlines()
    return {float(m[1]): float(m[2]) for line in lines if (m := _PAUSES.match(line))}


async def _until_in_force(subject: Quiet, since: float) -> float:
    """When policies came into force that were written at *since*; both in epoch seconds."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        state = json.loads(await asyncio.to_thread(subject.read, "policies"))
        at = float(state["active"]["since"])
        if at > since:
            return at
        if (refused := state["last_rejected"]) and refused["at"] > since:
            raise WireError(f"an edit was rejected: {refused['note']}")
        await asyncio.sleep(_POLL_SECONDS)
    raise WireError(f"an edit had no effect after {_PATIENCE:.0f} s\n{subject.log_tail()}")


async def _first_pod(wire: Wire, seen: Sightings, number: int, since: float) -> float:
    """When the first pod was bound in the pool of edit *number*, after *since*."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        times = [
            at
            for name, at in seen.bound_at.items()
            if at > since and any(_pool_of(node) == number % POOLS for node in seen.nodes[name])
        ]
        if times:
            return min(times)
        await asyncio.sleep(_POLL_SECONDS)
    raise WireError(f"no pod went where edit {number} puts pods")


def _pool_of(node: str) -> int:
    """The pool of `objects.node`, from the node's number."""
    return int(node.removeprefix("node-")) // objects.ZONES % POOLS


# --- memory ------------------------------------------------------------------------------------


async def measure_memory(
    wire: Wire, plane: Plane, directory: Path, *, churn: int, holds: str, progress: Progress
) -> list[dict[str, Any]]:
    """Memory after the start and while *churn* pods are scheduled and deleted.

    *holds* names one of `HOLDINGS`: what each of these pods has besides its capacity.
    One point per interval: pods so far, RSS and PSS of parent and sandbox, in MiB.
    """
    subject = Quiet()
    points: list[dict[str, Any]] = []

    def note(pods: int) -> None:
        parts = memory_by_part(subject.pid)
        points.append(
            {
                "pods": pods,
                "seconds": round(time.monotonic() - started, 1),
                **{f"{part}_{k}": v for part, m in parts.items() for k, v in m.as_dict().items()},
            }
        )

    started = time.monotonic()
    try:
        await subject.start(plane, directory)  # type: ignore[arg-type]  # any server with a kubeconfig will do
        await asyncio.sleep(2 * _SETTLE_SECONDS)
        note(0)
        batch = max(1, min(1000, churn // 20 or 1))
        async with BindingWatch(wire) as watch:
            for done in range(0, churn, batch):
                pods = [mixed_pod(1_000_000 + n) for n in range(done, min(churn, done + batch))]
                held = [one for pod in pods for one in HOLDINGS[holds].made(pod)]
                await holdings.create(wire, held)
                await create_all(wire, pods)
                keys = [key_of(pod) for pod in pods]
                if await watch.wait_for(keys, _PATIENCE, every=0.05) < len(keys):
                    raise WireError(f"pods were not bound\n{subject.log_tail()}")
                await wire.send_all(
                    wire.encode("DELETE", f"{collection_path(p)}/{p['metadata']['name']}", {})
                    for p in pods
                )
                await holdings.remove(wire, held)
                for key in keys:
                    del watch.bound_at[key]
                note(done + len(pods))
                progress("scheduling and deleting", done + len(pods), churn)
    finally:
        await asyncio.to_thread(subject.stop)
    return points
