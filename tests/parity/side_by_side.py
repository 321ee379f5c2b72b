"""kube-scheduler and ours beside each other: the same objects, each on a real control plane.

Owns the two clusters, putting a workload into both, standing in for the kubelets, finding out
when a scheduler has come to rest, and what is compared. The workloads are in
`side_by_side_workloads.py`.
"""

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.subjects import KubeScheduler, Starsched, Subject
from engine.kube.client import ApiClient
from engine.kube.errors import Conflict, NotFound
from tests.controlplane import ControlPlane, binaries

Json = dict[str, Any]

NAMESPACE: Final = "default"
CLASSES: Final[Mapping[str, int]] = {"low": 10, "middle": 100, "high": 1000, "highest": 10_000}
_NEVER: Final = "high-but-polite"

#: How long nothing has to happen: longer than the first backoff of a rejected pod.
QUIET_SECONDS: Final = 2.5
MOST_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1

# What a workload may hold, in the order of creation, and the paths of it. Pods come last.
_PATHS: Final[Mapping[str, str]] = {
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "Node": "/api/v1/nodes",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
}
_STAYS: Final = frozenset({"Namespace", "PriorityClass"})
_PODS: Final = "/api/v1/pods"
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"


@dataclass(frozen=True)
class Workload:
    """Objects to put into an empty cluster, and what of the outcome is certain.

    Attributes:
        name: Names the test.
        objects: Nodes and whatever else is there before any pod.
        placed: Pods that are on their nodes already, with their status.
        pending: Pods that come then, one after the other: each when the one before is decided.
        later: Objects that come when all is at rest, before it is looked at again.
        profile: A profile of a KubeSchedulerConfiguration; None for the default one.
        nodes_are_certain: Where a pod goes is determined by the rules, and so compared.
        is_undecided: Names of pods that no scheduler looks at.
    """

    name: str
    objects: Sequence[Json] = ()
    placed: Sequence[Json] = ()
    pending: Sequence[Json] = ()
    later: Sequence[Json] = ()
    profile: Json | None = None
    nodes_are_certain: bool = False
    is_undecided: frozenset[str] = frozenset()


@dataclass
class Outcome:
    """What a scheduler made of a workload, with names in place of uids.

    Attributes:
        pending: The pods without a node: reason and message of their condition, the note of their
            last event and the node that they are nominated to.
        placed: The pods with a node that came without: the node, or "" if it is not certain.
        victims: The pods that were evicted: their condition, and the notes of their events.
    """

    pending: dict[str, Json] = field(default_factory=dict)
    placed: dict[str, str] = field(default_factory=dict)
    victims: dict[str, Json] = field(default_factory=dict)


def differences(theirs: Outcome, ours: Outcome) -> list[str]:
    """What is not the same, one line each; empty if all is."""
    return [
        f"{kind} `{name}`: {label}: kube-scheduler has {first!r}, ours {second!r}"
        for kind in ("pending", "placed", "victims")
        for name in sorted(getattr(theirs, kind).keys() | getattr(ours, kind).keys())
        for label, first, second in _compare(
            getattr(theirs, kind).get(name), getattr(ours, kind).get(name)
        )
    ]


def _compare(theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            for label, first, second in _compare(theirs.get(key), ours.get(key)):
                yield f"{key} {label}".strip(), first, second
    elif theirs != ours:
        yield "", theirs, ours


class Cluster:
    """One control plane with one scheduler, filled and emptied again and again."""

    def __init__(self, plane: ControlPlane, client: ApiClient) -> None:
        self._plane = plane
        self._client = client
        self._victims: dict[str, Json] = {}

    async def request(self, method: str, path: str, body: Json | None = None) -> Json:
        kind = "application/json"
        if method == "PATCH":
            kind = "application/merge-patch+json"
        raw = await self._client.request(
            method,
            path,
            body=None if body is None else json.dumps(body).encode(),
            content_type=kind,
        )
        answer: Json = json.loads(raw)
        return answer

    async def items(self, path: str) -> list[Json]:
        found: list[Json] = (await self.request("GET", path))["items"]
        return found

    # --- filling ----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """What every workload may use: priority classes."""
        for name, value in CLASSES.items():
            await self.create(_priority_class(name, value))
        await self.create(_priority_class(_NEVER, CLASSES["high"], preemptionPolicy="Never"))

    async def create(self, manifest: Json) -> None:
        """Create an object, with its status if it has one."""
        path = _path_of(manifest)
        status = manifest.get("status")
        with contextlib.suppress(Conflict):
            await self.request("POST", path, manifest)
        if status and manifest["kind"] not in ("Node", "ResourceSlice"):
            where = f"{path}/{manifest['metadata']['name']}/status"
            await self.request("PATCH", where, {"status": status})

    async def run(self, workload: Workload) -> Outcome:
        """Put *workload* into the empty cluster, wait for the scheduler and look."""
        self._victims = {}
        for manifest in (*workload.objects, *workload.placed):
            await self.create(manifest)
        for manifest in workload.pending:
            await self.create(manifest)
            if manifest["metadata"]["name"] not in workload.is_undecided:
                await self._wait_decided(manifest)
        await self._wait_quiet()
        for manifest in workload.later:
            await self.create(manifest)
        if workload.later:
            await self._wait_quiet()
        return await self._look(workload)

    async def clear(self) -> None:
        """Take everything away again."""
        for kind in reversed(list(_PATHS)):
            if kind not in _STAYS:
                await self._clear(_PATHS[kind].format(namespace=NAMESPACE))
        await self.request("DELETE", _EVENTS.format(namespace=NAMESPACE))

    async def _clear(self, path: str) -> None:
        deadline = time.monotonic() + MOST_SECONDS
        while items := await self.items(path):
            assert time.monotonic() < deadline, f"{path} does not get empty"
            for item in items:
                where = f"{path}/{item['metadata']['name']}"
                with contextlib.suppress(NotFound):
                    if item["metadata"].get("finalizers"):
                        await self.request("PATCH", where, {"metadata": {"finalizers": None}})
                    await self.request("DELETE", where, {"gracePeriodSeconds": 0})

    # --- waiting ----------------------------------------------------------------------------

    async def _wait_decided(self, manifest: Json) -> None:
        """Return when the pod has a node, or a condition that says why not."""
        where = f"{_path_of(manifest)}/{manifest['metadata']['name']}"
        deadline = time.monotonic() + MOST_SECONDS
        while True:
            pod = await self.request("GET", where)
            if pod["spec"].get("nodeName") or _condition(pod, "PodScheduled"):
                return
            assert time.monotonic() < deadline, f"nobody decides `{pod['metadata']['name']}`"
            await asyncio.sleep(_POLL_SECONDS / 4)

    async def _wait_quiet(self) -> None:
        """Return when no pod has changed for a while; terminating pods are ended meanwhile."""
        deadline = time.monotonic() + MOST_SECONDS
        last: list[tuple[str, str]] = []
        since = time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            assert time.monotonic() < deadline, "the scheduler does not come to rest"
            await asyncio.sleep(_POLL_SECONDS)
            pods = await self.items(_PODS)
            for pod in pods:
                await self._end(pod)
            now = [(p["metadata"]["name"], p["metadata"]["resourceVersion"]) for p in pods]
            if now != last:
                last, since = now, time.monotonic()

    async def _end(self, pod: Json) -> None:
        """Do what the kubelet does about a pod that is terminating."""
        metadata = pod["metadata"]
        if not metadata.get("deletionTimestamp") or metadata["name"].startswith("stuck-"):
            return
        self._victims[metadata["name"]] = pod
        where = f"{_PATHS['Pod'].format(namespace=metadata['namespace'])}/{metadata['name']}"
        with contextlib.suppress(NotFound):
            await self.request("DELETE", where, {"gracePeriodSeconds": 0})

    # --- looking ----------------------------------------------------------------------------

    async def _look(self, workload: Workload) -> Outcome:
        outcome = Outcome()
        events = sorted(
            await self.items(_EVENTS.format(namespace=NAMESPACE)), key=lambda e: str(_last_seen(e))
        )
        pods = {p["metadata"]["name"]: p for p in await self.items(_PODS)}
        names = {p["metadata"]["uid"]: name for name, p in pods.items()}
        for name, pod in pods.items():
            node = pod["spec"].get("nodeName")
            if not node:
                outcome.pending[name] = _pending(pod, events)
            elif name not in {p["metadata"]["name"] for p in workload.placed}:
                outcome.placed[name] = node if workload.nodes_are_certain else ""
        victims = {e["regarding"]["name"] for e in events if e["reason"] == "Preempted"}
        for name in victims | self._victims.keys():
            outcome.victims[name] = _victim(self._victims.get(name), name, events, names)
        return outcome


def _path_of(manifest: Json) -> str:
    namespace = manifest["metadata"].get("namespace", NAMESPACE)
    return _PATHS[manifest["kind"]].format(namespace=namespace)


def _condition(pod: Json, kind: str) -> Json | None:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), None)


def _last_seen(event: Json) -> str:
    return str((event.get("series") or {}).get("lastObservedTime") or event["eventTime"])


def _plain_condition(condition: Json | None) -> Json | None:
    """A condition without its times."""
    if condition is None:
        return None
    return {k: v for k, v in condition.items() if k not in ("lastProbeTime", "lastTransitionTime")}


def _pending(pod: Json, events: Sequence[Json]) -> Json:
    notes = [
        (e["type"], e["reason"], e["action"], e["note"], e["reportingController"])
        for e in events
        if e["regarding"].get("uid") == pod["metadata"]["uid"]
    ]
    return {
        "condition": _plain_condition(_condition(pod, "PodScheduled")),
        "event": notes[-1] if notes else None,
        "nominated": pod["status"].get("nominatedNodeName"),
    }


def _victim(seen: Json | None, name: str, events: Iterable[Json], names: Mapping[str, str]) -> Json:
    told = []
    for event in events:
        if event["reason"] == "Preempted" and event["regarding"]["name"] == name:
            note = event["note"]
            for uid, other in names.items():
                note = note.replace(uid, f"<{other}>")
            # Who needs the room is in ours as `related` too; kube-scheduler 1.36 means to write
            # it, but hands over what has no reference.
            told.append((event["type"], event["action"], note))
    condition = _plain_condition(_condition(seen, "DisruptionTarget")) if seen else None
    return {"condition": condition, "events": told, "terminated": seen is not None}


def _priority_class(name: str, value: int, **words: Any) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **words,
    }


# --- both --------------------------------------------------------------------------------------


class Pair:
    """Both schedulers with the same profile, each on a control plane of its own.

    `start()` blocks and takes seconds; so does the first `run` with another profile.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="starsched-side-by-side-")
        self._planes = (ControlPlane(), ControlPlane())
        self._subjects: list[Subject] = []
        self._profile: Json | None = None

    def start(self) -> None:
        for plane in self._planes:
            plane.start()
        asyncio.run(self._prepare())

    def stop(self) -> None:
        self._stop_schedulers()
        for plane in self._planes:
            plane.stop()
        self._directory.cleanup()

    async def _prepare(self) -> None:
        async with self._clusters() as clusters:
            for cluster in clusters:
                await cluster.prepare()

    async def run(self, workload: Workload) -> tuple[Outcome, Outcome]:
        """What kube-scheduler makes of *workload*, and what ours does."""
        if not self._subjects or workload.profile != self._profile:
            await self._start_schedulers(workload.profile)
        async with self._clusters() as (theirs, ours):
            try:
                first, second = await asyncio.gather(theirs.run(workload), ours.run(workload))
            finally:
                for subject in self._subjects:
                    subject.check_alive()
                await asyncio.gather(theirs.clear(), ours.clear())
        return first, second

    def log_tails(self) -> str:
        """The ends of both logs."""
        return "\n\n".join(subject.log_tail() for subject in self._subjects)

    @contextlib.asynccontextmanager
    async def _clusters(self) -> AsyncIterator[tuple[Cluster, Cluster]]:
        first, second = self._planes
        async with first.client() as theirs, second.client() as ours:
            yield Cluster(first, theirs), Cluster(second, ours)

    async def _start_schedulers(self, profile: Json | None) -> None:
        self._stop_schedulers()
        directory = Path(self._directory.name)
        subjects = (_KubeScheduler(profile), _starsched(profile, directory))
        await asyncio.gather(
            *(
                subject.start(plane, directory)
                for subject, plane in zip(subjects, self._planes, strict=True)
            )
        )
        self._subjects = list(subjects)
        self._profile = profile

    def _stop_schedulers(self) -> None:
        for subject in self._subjects:
            subject.stop()
        self._subjects = []


class _KubeScheduler(KubeScheduler):
    """kube-scheduler with one profile of a test's own."""

    def __init__(self, profile: Json | None) -> None:
        super().__init__()
        self._profile = profile

    def _command(self, plane: ControlPlane, directory: Path, port: int) -> list[str]:
        folder = directory / "theirs"
        folder.mkdir(exist_ok=True)
        command = super()._command(plane, folder, port)
        if self._profile is not None:
            path = folder / "kube-scheduler.yaml"
            config = yaml.safe_load(path.read_text()) | {"profiles": [self._profile]}
            path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return command


def _starsched(profile: Json | None, directory: Path) -> Starsched:
    if profile is None:
        return Starsched()
    path = directory / "profile.yaml"
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return Starsched(arguments=("--config", str(path)))


@contextlib.contextmanager
def pair() -> Iterator[Pair]:
    """Both schedulers, until the block ends."""
    binaries()
    both = Pair()
    try:
        both.start()
        yield both
    finally:
        both.stop()


__all__ = ["CLASSES", "NAMESPACE", "Outcome", "Pair", "Workload", "differences", "pair"]
