"""`make bench-reload`: policies replaced a thousand times while pods are being scheduled.

On a real control plane, pods are created at a steady rate while a policy is edited again and
again, each edit waited for until it is in force; every tenth edit is broken and must change
nothing. Afterwards: every pod is bound, the API server accepted exactly one binding per pod, no
pod was ever seen on two nodes, and pods decided under an edit are where that edit says. Exits with
1 otherwise. Prints how long an edit takes to be in force.
"""

import asyncio
import contextlib
import re
import sys
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from devkit.benchmarks import objects, report
from devkit.benchmarks.load import collection_path, create_all, follow, percentile, version_now
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.measure import until_idle
from devkit.benchmarks.objects import NAMESPACE, Manifest
from devkit.benchmarks.running import json_path, output_options, run_to_end
from devkit.benchmarks.subjects import Starsched
from devkit.benchmarks.wire import Wire, WireError
from tests.controlplane import ControlPlane

POOLS: Final = 4
_POLICY_FILE: Final = "pool_of_the_day.star"
_POLICIES: Final = "starsched-policies"
_POLL_SECONDS: Final = 0.02
_EDIT_PATIENCE: Final = 60.0
_BIND_PATIENCE: Final = 60.0
_PODS_PATH: Final = "/api/v1/pods?watch=1&allowWatchBookmarks=true"
_BINDINGS: Final = re.compile(
    r'^apiserver_request_total\{[^}]*code="(\d+)"[^}]*resource="pods"[^}]*'
    r'subresource="binding"[^}]*\} ([\d.e+]+)$',
    re.MULTILINE,
)

_POLICY: Final = '''"""Edit {number}: pods go to one pool."""

_POOL = "pool-{pool}"

def filter(pod, node):
    if node.labels.get("pool") != _POOL:
        return "node(s) were not in the pool of the day"
'''
_BROKEN: Final = '''"""Edit {number}: does not parse."""

def filter(pod, node:
    return None
'''


def policy_text(number: int, bad_every: int) -> tuple[str, int | None]:
    """The text of an edit, and its pool, or None if it is broken."""
    if is_bad(number, bad_every):
        return _BROKEN.format(number=number), None
    return _POLICY.format(number=number, pool=number % POOLS), number % POOLS


def is_bad(number: int, bad_every: int) -> bool:
    """True if the edit is one that must be rejected."""
    return bad_every > 0 and number > 0 and number % bad_every == 0


class Editor(ABC):
    """Where policies are edited."""

    @property
    @abstractmethod
    def source(self) -> str:
        """For `--policies`."""

    @abstractmethod
    async def write(self, text: str) -> None:
        """Replace the policy."""


class DirectoryEditor(Editor):
    """Edits a file of a watched directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def source(self) -> str:
        return str(self._directory)

    async def write(self, text: str) -> None:
        # Written to a temporary file and renamed, as editors do: no reader sees half a file.
        draft = self._directory / f".{_POLICY_FILE}.draft"
        draft.write_text(text, encoding="utf-8")
        draft.rename(self._directory / _POLICY_FILE)


class ConfigMapEditor(Editor):
    """Edits a ConfigMap through the API server."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._exists = False

    @property
    def source(self) -> str:
        return f"configmap:{NAMESPACE}/{_POLICIES}"

    async def write(self, text: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _POLICIES, "namespace": NAMESPACE},
            "data": {_POLICY_FILE: text},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        method, path = ("PUT", f"{path}/{_POLICIES}") if self._exists else ("POST", path)
        await asyncio.to_thread(self._plane.request, method, path, body)
        self._exists = True


class _Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _PodEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: _Pod = _Pod()


_decode_event = msgspec.json.Decoder(_PodEvent).decode


@dataclass(slots=True)
class Sightings:
    """What a watch of all pods showed: by pod name the nodes it was seen on, and when first."""

    nodes: dict[str, set[str]] = field(default_factory=dict)
    bound_at: dict[str, float] = field(default_factory=dict)

    async def watch(self, wire: Wire, version: str) -> None:
        """Watch until cancelled."""
        async for line in follow(wire, _PODS_PATH, version):
            event = _decode_event(line)
            name, node = event.object.metadata.name, event.object.spec.node_name
            if node and event.type in ("ADDED", "MODIFIED"):
                self.nodes.setdefault(name, set()).add(node)
                self.bound_at.setdefault(name, time.monotonic())


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: when it was written and when its effect was seen; `pool` is None if broken."""

    number: int
    pool: int | None
    written_at: float
    seen_at: float

    @property
    def seconds(self) -> float:
        """From writing to effect."""
        return self.seen_at - self.written_at


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run; `problems` is empty if nothing went wrong."""

    edits: list[Edit]
    created: int
    bound: int
    binding_answers: dict[str, int]
    judged: int
    problems: list[str]
    seconds: float
    peak_mib: float
    growth_mib: float
    processes: int


def judge(
    created_at: Mapping[str, float],
    sightings: Sightings,
    listed: Mapping[str, str],
    binding_answers: Mapping[str, int],
    edits: list[Edit],
    pool_of: Callable[[str], int],
) -> tuple[list[str], int]:
    """What went wrong, and how many pods could be checked against the edit that decided them.

    Args:
        created_at: By pod name, when its creation was sent.
        sightings: What the watch saw.
        listed: By pod name, its node at the end; empty if it has none.
        binding_answers: The API server's count of binding requests by status code.
        edits: In order.
        pool_of: The pool of a node.
    """
    problems = [f"pod `{name}` is gone" for name in sorted(created_at.keys() - listed.keys())]
    problems += [f"pod `{name}` is not bound" for name, node in sorted(listed.items()) if not node]
    problems += [
        f"pod `{name}` was seen on {' and '.join(f'`{n}`' for n in sorted(nodes))}"
        for name, nodes in sorted(sightings.nodes.items())
        if len(nodes) > 1
    ]
    bound = sum(bool(node) for node in listed.values())
    accepted = binding_answers.get("201", 0)
    if accepted != bound:
        problems.append(f"the API server accepted {accepted} bindings, want {bound}, one per pod")
    if conflicts := binding_answers.get("409", 0):
        problems.append(f"{conflicts} bindings were for pods that were bound already")
    judged, misplaced = _check_pools(created_at, sightings.bound_at, listed, edits, pool_of)
    return problems + misplaced, judged


def _check_pools(
    created_at: Mapping[str, float],
    bound_at: Mapping[str, float],
    listed: Mapping[str, str],
    edits: list[Edit],
    pool_of: Callable[[str], int],
) -> tuple[int, list[str]]:
    """Pods created and bound while one edit was surely in force must be in its pool."""
    good = [edit for edit in edits if edit.pool is not None]
    ends = [edit.written_at for edit in good[1:]] + [float("inf")]
    judged = 0
    problems: list[str] = []
    names = sorted(bound_at, key=lambda name: created_at.get(name, 0.0))
    place = 0
    for name in names:
        created = created_at.get(name)
        node = listed.get(name)
        if created is None or not node:
            continue
        while place < len(good) and ends[place] <= created:
            place += 1
        if place == len(good):
            break
        edit = good[place]
        if edit.seen_at <= created and bound_at[name] < ends[place]:
            judged += 1
            if pool_of(node) != edit.pool:
                problems.append(
                    f"pod `{name}` is in pool {pool_of(node)}, want {edit.pool} of edit "
                    f"{edit.number}"
                )
    return judged, problems


async def run(
    *,
    source: str,
    reloads: int,
    nodes: int,
    rate: float,
    bad_every: int,
    dwell: float = 0.1,
    in_flight: int = 8,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Outcome:
    """Edit policies *reloads* times under load, leaving each edit in force for *dwell* seconds.

    *source* is `configmap` or `directory`.
    """
    with (
        ControlPlane() as plane,
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
    ):
        policies = Path(scratch) / "policies"
        policies.mkdir()
        editor: Editor = (
            ConfigMapEditor(plane) if source == "configmap" else DirectoryEditor(policies)
        )
        async with Wire(plane.endpoint(), in_flight=in_flight) as wire:
            await create_all(
                wire, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
            )
            await create_all(wire, (objects.node(n, pods="5000") for n in range(nodes)))
            await editor.write(policy_text(0, 0)[0])
            subject = Starsched(editor.source)
            try:
                await subject.start(plane, Path(scratch))
                await until_idle(subject)
                return await _edit_under_load(
                    wire, plane, subject, editor, reloads, rate, bad_every, dwell, progress
                )
            finally:
                subject.stop()


async def _edit_under_load(
    wire: Wire,
    plane: ControlPlane,
    subject: Starsched,
    editor: Editor,
    reloads: int,
    rate: float,
    bad_every: int,
    dwell: float,
    progress: Callable[[str, int, int], None],
) -> Outcome:
    started = time.monotonic()
    created_at: dict[str, float] = {}
    sightings = Sightings()
    watching = asyncio.create_task(sightings.watch(wire, await version_now(wire)))
    stop = asyncio.Event()
    feeding = asyncio.create_task(_feed(wire, created_at, rate, stop))
    edits: list[Edit] = []
    early_mib = 0.0
    try:
        for number in range(1, reloads + 1):
            edits.append(await _edit(subject, editor, number, bad_every))
            await asyncio.sleep(dwell)
            subject.check_alive()
            for task in (watching, feeding):
                if task.done():
                    task.result()
            if number == max(1, reloads // 10):
                early_mib = subject.resident_mib()
            progress("reloading", number, reloads)
        stop.set()
        await feeding
        await _until_bound(created_at, sightings)
    finally:
        for task in (watching, feeding):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    usage = subject.usage()
    growth_mib = subject.resident_mib() - early_mib
    await asyncio.to_thread(subject.stop)  # nothing moves while we count
    listed = {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in await wire.list_all("/api/v1/pods")
    }
    pools = {
        node["metadata"]["name"]: int(node["metadata"]["labels"]["pool"].removeprefix("pool-"))
        for node in await wire.list_all("/api/v1/nodes")
    }
    answers = binding_answers((await wire.get("/metrics")).decode())
    problems, judged = judge(created_at, sightings, listed, answers, edits, pools.__getitem__)
    return Outcome(
        edits,
        len(created_at),
        sum(bool(node) for node in listed.values()),
        answers,
        judged,
        problems,
        time.monotonic() - started,
        usage.peak_mib,
        growth_mib,
        usage.processes,
    )


async def _feed(wire: Wire, created_at: dict[str, float], rate: float, stop: asyncio.Event) -> None:
    """Create pods at *rate* per second until *stop*."""
    names: list[str] = []
    started = time.monotonic()

    def requests() -> Iterator[bytes]:
        while not stop.is_set():
            manifest: Manifest = objects.pod(
                f"pod-{len(names):06d}", requests={"cpu": "1m", "memory": "1Mi"}
            )
            names.append(manifest["metadata"]["name"])
            yield wire.encode("POST", collection_path(manifest), manifest)

    def note(place: int) -> None:
        created_at[names[place]] = time.monotonic()

    await wire.send_all(
        requests(), on_sent=note, pause=lambda place: started + place / rate - time.monotonic()
    )


async def _edit(subject: Starsched, editor: Editor, number: int, bad_every: int) -> Edit:
    """Write one edit and wait for its effect: in force, or rejected."""
    before = await _policies(subject)
    text, pool = policy_text(number, bad_every)
    written_at = time.monotonic()
    await editor.write(text)
    while True:
        now = await _policies(subject)
        seen_at = time.monotonic()
        revision, rejected = now["active"]["revision"], now["last_rejected"]
        is_switched = revision != before["active"]["revision"]
        is_rejected = rejected is not None and rejected != before["last_rejected"]
        if is_switched and pool is None:
            raise WireError(f"edit {number} is broken and in force as revision {revision}")
        if is_rejected and pool is not None:
            raise WireError(f"edit {number} was rejected: {rejected['note']}")
        if is_switched or is_rejected:
            return Edit(number, pool, written_at, seen_at)
        if seen_at - written_at > _EDIT_PATIENCE:
            raise WireError(f"edit {number} had no effect after {_EDIT_PATIENCE:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)


async def _policies(subject: Starsched) -> Any:
    def read() -> Any:
        with urllib.request.urlopen(f"{subject.url}/policies", timeout=10) as answer:
            return msgspec.json.decode(answer.read())

    return await asyncio.to_thread(read)


async def _until_bound(created_at: Mapping[str, float], sightings: Sightings) -> None:
    moved_at, before = time.monotonic(), -1
    while len(sightings.bound_at) < len(created_at):
        if len(sightings.bound_at) > before:
            before, moved_at = len(sightings.bound_at), time.monotonic()
        if time.monotonic() - moved_at > _BIND_PATIENCE:
            return  # the judge will name those that are missing
        await asyncio.sleep(0.1)


def binding_answers(metrics: str) -> dict[str, int]:
    """How the API server answered binding requests, by status code, from its metrics."""
    counts: Counter[str] = Counter()
    for code, value in _BINDINGS.findall(metrics):
        counts[code] += int(float(value))
    return dict(sorted(counts.items()))


def as_document(outcome: Outcome, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The result as plain data; times in milliseconds."""
    good = sorted(edit.seconds * 1000 for edit in outcome.edits if edit.pool is not None)
    bad = sorted(edit.seconds * 1000 for edit in outcome.edits if edit.pool is None)
    return {
        "benchmark": "bench-reload",
        **facts,
        "reloads": len(good),
        "rejected": len(bad),
        "reload_p50_ms": round(percentile(good, 0.50), 1),
        "reload_p99_ms": round(percentile(good, 0.99), 1),
        "reload_worst_ms": round(good[-1], 1) if good else 0.0,
        "rejection_p50_ms": round(percentile(bad, 0.50), 1),
        "pods": outcome.created,
        "bound": outcome.bound,
        "binding_answers": outcome.binding_answers,
        "held_against_an_edit": outcome.judged,
        "problems": outcome.problems,
        "seconds": round(outcome.seconds, 1),
        "peak_mib": round(outcome.peak_mib, 1),
        "growth_mib": round(outcome.growth_mib, 1),
        "processes": outcome.processes,
    }


def print_outcome(document: Mapping[str, Any]) -> None:
    """The result for people."""
    report.print_table(
        "Reloads under load",
        ("source", "in force", "rejected", "p50 ms", "p99 ms", "worst ms", "pods", "bound",
         "peak MB", "growth MB"),
        [[
            document["settings"]["source"],
            f"{document['reloads']}",
            f"{document['rejected']}",
            f"{document['reload_p50_ms']:.0f}",
            f"{document['reload_p99_ms']:.0f}",
            f"{document['reload_worst_ms']:.0f}",
            f"{document['pods']}",
            f"{document['bound']}",
            f"{document['peak_mib']:.0f}",
            f"{document['growth_mib']:.0f}",
        ]],
    )  # fmt: skip
    answers = ", ".join(f"{n} x {code}" for code, n in document["binding_answers"].items())

    def say(text: str) -> None:
        report.OUT.print(text, highlight=False, soft_wrap=True)

    say(f"the API server answered bindings with {answers or 'nothing'}")
    say(f"{document['held_against_an_edit']} pods were held against the edit that decided them")
    for problem in document["problems"][:20]:
        say(f"[red]check failed[/red]: {problem}")
    if not document["problems"]:
        say("checked: no pod lost, none bound twice, each where the policy in force says")


@click.command(help=__doc__)
@click.option("--reloads", default=1000, show_default=True, help="Edits.")
@click.option("--nodes", default=400, show_default=True)
@click.option("--rate", default=50.0, show_default=True, help="Pods created per second.")
@click.option("--dwell", default=0.1, show_default=True, help="Seconds between two edits.")
@click.option("--bad-every", default=10, show_default=True, help="Each so many-th is broken.")
@click.option(
    "--source",
    type=click.Choice(["configmap", "directory"]),
    default="configmap",
    show_default=True,
    help="Where the policies are edited.",
)
@output_options
def main(
    reloads: int,
    nodes: int,
    rate: float,
    dwell: float,
    bad_every: int,
    source: str,
    output: str,
    file: str | None,
) -> None:
    output_path = json_path(output, file)
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision()},
        "settings": {
            "source": source,
            "nodes": nodes,
            "rate": rate,
            "dwell": dwell,
            "bad_every": bad_every,
        },
    }
    reporter = report.Reporter()
    with reporter.part(f"{reloads} reloads, {source}"):
        outcome = run_to_end(
            run(
                source=source,
                reloads=reloads,
                nodes=nodes,
                rate=rate,
                bad_every=bad_every,
                dwell=dwell,
                progress=reporter.step,
            )
        )
    document = as_document(outcome, facts)
    if output_path is not None:
        report.write_json(document, output_path)
    if output_path != "-":
        report.print_facts(facts)
        print_outcome(document)
    sys.exit(1 if document["problems"] else 0)


if __name__ == "__main__":
    main()
