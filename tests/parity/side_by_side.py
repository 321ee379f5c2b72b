"""kube-scheduler and ours beside each other: the same objects, each on a real control plane.

Owns the two clusters, putting a workload into both, finding out when a scheduler has come to
rest, and what is compared. The workloads are in
`side_by_side_workloads.py`.
"""

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from devkit.benchmarks.subjects import KubeScheduler, Starsched, Subject
from engine.core.framework.reasons import SCHEDULING_GATED
from engine.io.binding.event_recorder import truncate_note
from tests.controlplane import (
    GROUPS_GATE,
    ControlPlane,
    as_numbers,
    binaries,
    kubernetes_minor,
    serving_groups,
)
from tests.live import MOST_SECONDS, Json, LiveCluster, condition
from tests.live import pod as new_pod
from tests.waiting import eventually

#: How long nothing has to happen: longer than the first backoff of a rejected pod.
QUIET_SECONDS: Final = 2.5
_POLL_SECONDS: Final = 0.1
#: What DynamicResources says of groups without claims; ours says nothing (docs/parity.md).
_NOTHING_DONE: Final = "deallocation and deletion of ResourceClaims completed, "
#: How often kube-scheduler runs again where the two differ.
_FURTHER_RUNS: Final = 2
#: What the API server says of a pod with gates of its own.
_BY_THE_API: Final = "Scheduling is blocked due to non-empty scheduling gates"
#: Pods whose name begins so terminate for ever.
_STUCK: Final = "stuck-"
#: The pod, and the label that no node has, by which the scheduler is asked how many it has seen.
_SCOUT: Final = "scout"


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
        texts_depend_on_time: How often a pod is tried, and so what it says last, is not determined.
    """

    name: str
    objects: Sequence[Json] = ()
    placed: Sequence[Json] = ()
    pending: Sequence[Json] = ()
    later: Sequence[Json] = ()
    profile: Json | None = None
    nodes_are_certain: bool = False
    is_undecided: frozenset[str] = frozenset()
    texts_depend_on_time: bool = False


@dataclass
class Outcome:
    """What a scheduler made of a workload, with names in place of uids.

    Attributes:
        pending: The pods without a node: reason and message of their condition, their first event
            and the node that they are nominated to.
        last_notes: What their last events say.
        placed: The pods with a node that came without: the node, or "" if it is not certain.
        victims: The pods that were evicted: their condition, and the notes of their events.
        groups: What the condition of each PodGroup says: its status, reason and message.
    """

    pending: dict[str, Json] = field(default_factory=dict)
    last_notes: dict[str, str] = field(default_factory=dict)
    placed: dict[str, str] = field(default_factory=dict)
    victims: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)


def differences(theirs: Outcome, ours: Outcome, *, with_texts: bool = True) -> list[str]:
    """What is not the same, one line each; empty if all is.

    Without texts: which pods wait, and whether their group was placed.
    """
    if not with_texts:
        theirs, ours = _without_texts(theirs), _without_texts(ours)
    return [
        f"{kind} `{name}`: {label}: kube-scheduler has {first!r}, ours {second!r}"
        for kind in ("pending", "placed", "victims", "groups")
        for name in sorted(getattr(theirs, kind).keys() | getattr(ours, kind).keys())
        for label, first, second in _compare(
            getattr(theirs, kind).get(name), getattr(ours, kind).get(name)
        )
    ]


def _without_texts(outcome: Outcome) -> Outcome:
    return replace(
        outcome,
        pending={name: {} for name in outcome.pending},
        groups={
            name: {key: said for key, said in group.items() if key != "message"}
            for name, group in outcome.groups.items()
        },
    )


def _compare(theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            for label, first, second in _compare(theirs.get(key), ours.get(key)):
                yield f"{key} {label}".strip(), first, second
    elif isinstance(theirs, tuple) and isinstance(ours, tuple) and len(theirs) == len(ours):
        for number, pair_of_values in enumerate(zip(theirs, ours, strict=True)):
            for label, first, second in _compare(*pair_of_values):
                yield f"{number} {label}".strip(), first, second
    elif theirs != ours and not any(
        excuses(theirs, ours) for excuses in (_is_unreadable, _is_older, _is_empty_talk)
    ):
        yield "", theirs, ours


def _is_unreadable(theirs: Any, ours: Any) -> bool:
    """If *theirs* says `not found` where *ours* says what preemption has to say.

    In kube-scheduler DynamicResources fails with that text, and nobody else is asked, whenever
    an earlier plugin has rejected the pod for all nodes at once.
    """
    if not isinstance(theirs, str) or not isinstance(ours, str):
        return False
    head, wart, rest = theirs.partition(". not found")
    return bool(wart) and not rest and ours.startswith(f"{head}. preemption: ")


def _is_empty_talk(theirs: Any, ours: Any) -> bool:
    """If *theirs* tells of the claims of a group that has none, and is the same else."""
    return isinstance(theirs, str) and theirs.replace(_NOTHING_DONE, "") == ours


def _is_older(theirs: Any, ours: Any) -> bool:
    """If *theirs* says in the words of kube-scheduler 1.35 or 1.36 what *ours* says in 1.37's.

    They tell of claims where there are none, and nothing of a preemption that found victims.
    """
    if as_numbers(kubernetes_minor()) >= (1, 37):
        return False
    if not isinstance(theirs, str) or not isinstance(ours, str):
        return False
    old = re.sub(r" (no new claims to deallocate|still not schedulable)(,|$)", "", theirs)
    return old == re.sub(r" preemption: found a potential placement .*", "", ours)


class Runner:
    """Runs workloads in one cluster, which is empty before and after."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self._victims: dict[str, Json] = {}

    async def run(self, workload: Workload) -> Outcome:
        """Put *workload* into the cluster, wait for the scheduler and look."""
        self._victims = {}
        await self._cluster.create(*workload.objects, *workload.placed)
        await self._wait_seen(sum(thing["kind"] == "Node" for thing in workload.objects))
        for manifest in workload.pending:
            await self._cluster.create(manifest)
            if manifest["metadata"]["name"] not in workload.is_undecided:
                await self._wait_decided(manifest["metadata"]["name"])
        await self._wait_settled()
        if workload.later:
            await self._cluster.create(*workload.later)
            await self._wait_settled()
        return await self._look(workload)

    async def _wait_seen(self, nodes: int) -> None:
        """Return when the scheduler has seen that many nodes: it tells a pod that fits none.

        A pod that comes before them is rejected at once, and the pods behind it come first.
        """
        deadline = time.monotonic() + MOST_SECONDS
        seen = not nodes
        while not seen:
            assert time.monotonic() < deadline, f"the scheduler does not see {nodes} nodes"
            await self._cluster.create(new_pod(_SCOUT, nodeSelector={_SCOUT: "nowhere"}))
            await self._wait_decided(_SCOUT)
            reported = condition(await self._cluster.pod(_SCOUT), "PodScheduled")
            assert reported is not None, f"a node is labelled `{_SCOUT}`"
            seen = reported["message"].startswith(f"0/{nodes} nodes ")
            await self._cluster.end_pod(_SCOUT)

    async def _wait_decided(self, name: str) -> None:
        """Return when the pod has a node, or a condition that says why not."""

        async def is_decided() -> Any:
            pod = await self._cluster.pod(name)
            return pod["spec"].get("nodeName") or condition(pod, "PodScheduled")

        await eventually(is_decided, seconds=MOST_SECONDS, what=f"a decision about `{name}`")

    async def _wait_settled(self) -> None:
        """Return when no pod changes any more and each has an outcome.

        Pods that terminate are ended when nothing else happens: kube-scheduler leaves its pod
        waiting if a victim is gone before the preemption has ended (`Pair.compare`). Whatever is
        not settled after `MOST_SECONDS` is looked at as it is.
        """
        deadline = time.monotonic() + MOST_SECONDS
        while time.monotonic() < deadline:
            pods = await self._wait_quiet()
            terminating = [
                pod
                for pod in pods
                if pod["metadata"].get("deletionTimestamp")
                and not pod["metadata"]["name"].startswith(_STUCK)
            ]
            for pod in terminating:
                name = pod["metadata"]["name"]
                self._victims[name] = pod
                await self._cluster.end_pod(name)
            if not terminating and not _is_one_to_be_tried(pods):
                return

    async def _wait_quiet(self) -> list[Json]:
        """The pods, when none of them has changed for a while."""
        last: list[Json] = []
        since = time.monotonic()

        async def is_quiet() -> bool:
            nonlocal last, since
            pods = await self._cluster.items("Pod")
            if _versions(pods) != _versions(last):
                last, since = pods, time.monotonic()
            return time.monotonic() - since > QUIET_SECONDS

        await eventually(
            is_quiet,
            seconds=MOST_SECONDS,
            what="the scheduler to come to rest",
            longest_pause=_POLL_SECONDS,
        )
        return last

    async def _look(self, workload: Workload) -> Outcome:
        outcome = Outcome()
        events = await self._cluster.events()
        pods = {p["metadata"]["name"]: p for p in await self._cluster.items("Pod")}
        groups = await self._cluster.items("PodGroup")
        names = {p["metadata"]["uid"]: p["metadata"]["name"] for p in (*pods.values(), *groups)}
        for name, pod in pods.items():
            node = pod["spec"].get("nodeName")
            if not node:
                reported = [
                    e for e in events if e["regarding"].get("uid") == pod["metadata"]["uid"]
                ]
                outcome.pending[name] = _pending(pod, reported)
                outcome.last_notes[name] = reported[-1]["note"] if reported else ""
            elif name not in {p["metadata"]["name"] for p in workload.placed}:
                outcome.placed[name] = node if workload.nodes_are_certain else ""
        victims = {e["regarding"]["name"] for e in events if e["reason"] == "Preempted"}
        for name in victims | self._victims.keys():
            seen = self._victims.get(name, pods.get(name))
            outcome.victims[name] = _victim(seen, name, events, names)
        for group in groups:
            said = condition(group, "PodGroupInitiallyScheduled") or {}
            outcome.groups[group["metadata"]["name"]] = {
                key: said.get(key) for key in ("status", "reason", "message")
            }
        return outcome


def _versions(pods: Iterable[Json]) -> list[tuple[str, str]]:
    return [(p["metadata"]["name"], p["metadata"]["resourceVersion"]) for p in pods]


def _is_one_to_be_tried(pods: Sequence[Json]) -> bool:
    """True if a pod is nominated to a node that no pod is leaving any more.

    Its backoff can be longer than `QUIET_SECONDS`.
    """
    left = {p["spec"].get("nodeName") for p in pods if p["metadata"].get("deletionTimestamp")}
    return any(
        p["status"].get("nominatedNodeName") not in {None, "", *left}
        for p in pods
        if not p["spec"].get("nodeName")
    )


def _pending(pod: Json, events: Sequence[Json]) -> Json:
    # Ours tells of pods that a plugin gates, kube-scheduler leaves them without a word.
    notes = [
        (e["type"], e["reason"], e["action"], e["note"], e["reportingController"])
        for e in events
        if not e["note"].startswith("gated by policy ")
    ]
    answer = condition(pod, "PodScheduled")
    if answer and answer["reason"] == SCHEDULING_GATED and answer["message"] != _BY_THE_API:
        return {"condition": None, "event": None, "nominated": None}
    return {
        "condition": answer,
        # The first: kube-scheduler counts later ones up under the words of the first, whatever
        # they say.
        "event": notes[0] if notes else None,
        "nominated": pod["status"].get("nominatedNodeName"),
    }


def stale(outcome: Outcome) -> list[str]:
    """The waiting pods of *outcome* whose last event does not say what their condition says."""
    return [
        name
        for name, pod in outcome.pending.items()
        if pod["event"] and outcome.last_notes[name] != truncate_note(pod["condition"]["message"])
    ]


def _victim(seen: Json | None, name: str, events: Iterable[Json], names: Mapping[str, str]) -> Json:
    reported = []
    for event in events:
        if event["reason"] == "Preempted" and event["regarding"]["name"] == name:
            note = event["note"]
            for uid, other in names.items():
                note = note.replace(uid, f"<{other}>")
            # Who needs the room is in ours as `related` too; kube-scheduler 1.36 means to write
            # it, but hands over what has no reference.
            reported.append((event["type"], event["action"], note))
    return {
        "condition": condition(seen, "DisruptionTarget") if seen else None,
        "events": reported,
        "is_terminating": bool(seen and seen["metadata"].get("deletionTimestamp")),
    }


# --- both --------------------------------------------------------------------------------------


class Pair:
    """Both schedulers with the same profile, each on a control plane of its own.

    `start()` blocks and takes seconds; so does the first `run` with another profile.

    Args:
        with_groups: The API servers have PodGroups, and kube-scheduler places them.
        gates: Feature gates that are on in all programs.
    """

    def __init__(self, *, with_groups: bool = False, gates: Sequence[str] = ()) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="starsched-side-by-side-")
        self._own_gates = tuple(f"--feature-gates={gate}=true" for gate in gates)
        arguments = [*(serving_groups() if with_groups else ()), *self._own_gates]
        self._gates = [*([GROUPS_GATE] if with_groups else ()), *self._own_gates]
        self._planes = (
            ControlPlane(apiserver_args=arguments),
            ControlPlane(apiserver_args=arguments),
        )
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
                first, second = await asyncio.gather(
                    Runner(theirs).run(workload), Runner(ours).run(workload)
                )
            finally:
                for subject in self._subjects:
                    subject.check_alive()
                await asyncio.gather(theirs.clear(), ours.clear())
        return first, second

    async def compare(self, workload: Workload) -> tuple[Outcome, list[str]]:
        """What ours makes of *workload*, and in what kube-scheduler differs.

        kube-scheduler may leave a pod waiting whose victims are gone: the API server can tell it of
        their end before its preemption has ended, on a busy machine. So it runs again where the two
        differ, and ours has to be one of its outcomes.
        """
        theirs, ours = await self.run(workload)
        assert theirs.pending or theirs.placed, "nothing was compared"
        found = differences(theirs, ours, with_texts=not workload.texts_depend_on_time)
        for _ in range(_FURTHER_RUNS):
            if not found:
                break
            async with self._clusters() as (cluster, _):
                try:
                    theirs = await Runner(cluster).run(workload)
                finally:
                    self._subjects[0].check_alive()
                    await cluster.clear()
            found = differences(theirs, ours, with_texts=not workload.texts_depend_on_time)
        return ours, found

    def log_tails(self) -> str:
        """The ends of both logs."""
        return "\n\n".join(subject.log_tail() for subject in self._subjects)

    @contextlib.asynccontextmanager
    async def _clusters(self) -> AsyncIterator[tuple[LiveCluster, LiveCluster]]:
        first, second = self._planes
        async with first.client() as theirs, second.client() as ours:
            yield LiveCluster(theirs), LiveCluster(ours)

    async def _start_schedulers(self, profile: Json | None) -> None:
        self._stop_schedulers()
        directory = Path(self._directory.name)
        subjects = (
            _KubeScheduler(profile, self._gates),
            _starsched(profile, directory, self._own_gates),
        )
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
    """kube-scheduler with one profile of a test's own, and more arguments."""

    def __init__(self, profile: Json | None, arguments: Sequence[str] = ()) -> None:
        super().__init__(arguments)
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


def _starsched(profile: Json | None, directory: Path, arguments: tuple[str, ...]) -> Starsched:
    if profile is None:
        return Starsched(arguments=arguments)
    path = directory / "profile.yaml"
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return Starsched(arguments=("--config", str(path), *arguments))


@contextlib.contextmanager
def pair(*, with_groups: bool = False, gates: Sequence[str] = ()) -> Iterator[Pair]:
    """Both schedulers, until the block ends."""
    binaries()
    both = Pair(with_groups=with_groups, gates=gates)
    try:
        both.start()
        yield both
    finally:
        both.stop()


__all__ = ["Outcome", "Pair", "Workload", "differences", "pair", "stale"]
