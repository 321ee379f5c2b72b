"""`make bench-openb`: a production GPU cluster placed on a real control plane, then checked.

Creates the nodes and pods of the openb trace, lets the scheduler place them all, and prints how
many were placed, why the others wait, and how fast it went. Afterwards it reads everything back
from the API and checks that no node holds more than it offers and that every pod is accounted for
exactly once. Exits with 1 otherwise.
"""

import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import report
from devkit.benchmarks.load import (
    BindingWatch,
    collection_path,
    create_all,
    key_of,
    percentile,
    warm_list_cache,
)
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.measure import until_idle
from devkit.benchmarks.openb import NAMESPACE, Trace, read_trace
from devkit.benchmarks.placement_check import Placement, check_placement, pending_reason
from devkit.benchmarks.running import json_path, output_options, run_to_end
from devkit.benchmarks.subjects import SUBJECTS, Starsched, Subject
from devkit.benchmarks.wire import Wire
from tests.controlplane import ControlPlane

_QUIET_SECONDS: Final = 3.0
_REASON: Final = re.compile(r"\d+ ([^,]+?)(?=, \d|\.(?: |$)|$)")
_VIOLATIONS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run.

    `seconds` is from the first creation to the last binding; the latencies are milliseconds from
    a pod's creation to its binding.
    """

    placement: Placement
    seconds: float
    pods_per_second: float
    p50_ms: float
    p99_ms: float
    scheduler_cpu_ms: float
    peak_mib: float
    gave_up: bool


async def place_all(
    trace: Trace,
    subject: Subject,
    *,
    patience: float = 120.0,
    in_flight: int = 16,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Outcome:
    """Let *subject* place the trace on a control plane of its own, and check the result."""
    with (
        ControlPlane() as plane,
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as directory,
    ):
        async with Wire(plane.endpoint(), in_flight=in_flight) as wire:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await create_all(wire, [namespace])
            await create_all(
                wire, trace.nodes, lambda n: progress("creating nodes", n + 1, len(trace.nodes))
            )
            await warm_list_cache(wire)
            try:
                await subject.start(plane, Path(directory))
                await until_idle(subject)
                return await _run(wire, trace, subject, patience, progress)
            finally:
                subject.stop()


async def _run(
    wire: Wire,
    trace: Trace,
    subject: Subject,
    patience: float,
    progress: Callable[[str, int, int], None],
) -> Outcome:
    keys = [key_of(pod) for pod in trace.pods]
    created_at: dict[str, float] = {}
    requests = [wire.encode("POST", collection_path(pod), pod) for pod in trace.pods]
    cpu = subject.usage().cpu_seconds
    gave_up = False
    async with BindingWatch(wire) as watch:

        def tick(bound: int) -> None:
            subject.check_alive()
            progress("binding pods", bound, len(keys))

        def note(place: int) -> None:
            created_at[keys[place]] = time.monotonic()

        await wire.send_all(requests, on_sent=note)
        deadline = time.monotonic() + patience
        while True:
            before = len(watch.bound_at)
            bound = await watch.wait_for(keys, _QUIET_SECONDS, tick=tick)
            if bound == len(keys) or not await _undecided(wire):
                break
            if len(watch.bound_at) > before:
                deadline = time.monotonic() + patience
            if time.monotonic() > deadline:
                gave_up = True
                break
        bound_at = dict(watch.bound_at)
    await until_idle(subject)
    usage = subject.usage()
    await asyncio.to_thread(subject.stop)  # nothing moves while we count
    placement = check_placement(
        await wire.list_all("/api/v1/nodes"), await wire.list_all("/api/v1/pods"), keys
    )
    latencies = sorted(at - created_at[key] for key, at in bound_at.items() if key in created_at)
    seconds = max(bound_at.values(), default=0.0) - min(created_at.values()) if bound_at else 0.0
    return Outcome(
        placement,
        seconds,
        len(bound_at) / seconds if seconds else 0.0,
        percentile(latencies, 0.50) * 1000,
        percentile(latencies, 0.99) * 1000,
        (usage.cpu_seconds - cpu) * 1000 / max(1, len(keys)),
        usage.peak_mib,
        gave_up,
    )


async def _undecided(wire: Wire) -> int:
    """Pods that have neither a node nor a reason yet."""
    waiting = await wire.list_all("/api/v1/pods?fieldSelector=spec.nodeName%3D")
    return sum(not pending_reason(pod) for pod in waiting)


def count_reasons(messages: Sequence[str]) -> dict[str, int]:
    """How many pending pods name which reasons, most frequent first; node counts are left out."""
    counts: Counter[str] = Counter()
    for message in messages:
        text = message.split(" preemption:", 1)[0]
        _, _, reasons = text.partition(": ")
        found = sorted(set(_REASON.findall(reasons)))
        counts["; ".join(found) or message] += 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def as_document(outcome: Outcome, facts: Mapping[str, Any], pods: int) -> dict[str, Any]:
    """The result as plain data."""
    placement = outcome.placement
    return {
        "benchmark": "bench-openb",
        **facts,
        "pods": pods,
        "placed": placement.bound,
        "pending": len(placement.pending),
        "pending_reasons": count_reasons(list(placement.pending.values())),
        "used": dict(placement.used),
        "violations": list(placement.violations),
        "gave_up": outcome.gave_up,
        "seconds": round(outcome.seconds, 3),
        "pods_per_second": round(outcome.pods_per_second, 1),
        "p50_ms": round(outcome.p50_ms, 1),
        "p99_ms": round(outcome.p99_ms, 1),
        "scheduler_cpu_ms": round(outcome.scheduler_cpu_ms, 3),
        "peak_mib": round(outcome.peak_mib, 1),
    }


def print_outcome(document: Mapping[str, Any]) -> None:
    """The result for people."""
    report.print_table(
        "openb on a real control plane",
        ("scheduler", "pods", "placed", "pending", "pods/s", "p50 ms", "p99 ms", "CPU/pod ms",
         "peak MB"),
        [[
            document["settings"]["scheduler"],
            f"{document['pods']}",
            f"{document['placed']}",
            f"{document['pending']}",
            f"{document['pods_per_second']:.0f}",
            f"{document['p50_ms']:.0f}",
            f"{document['p99_ms']:.0f}",
            f"{document['scheduler_cpu_ms']:.2f}",
            f"{document['peak_mib']:.0f}",
        ]],
    )  # fmt: skip
    say = report.OUT.print
    used = ", ".join(f"{name} {100 * share:.1f} %" for name, share in document["used"].items())
    say(f"in use: {used}", highlight=False, soft_wrap=True)
    for reason, count in document["pending_reasons"].items():
        say(f"pending, {count} pods: {reason}", highlight=False, soft_wrap=True)
    violations = document["violations"]
    for violation in violations[:_VIOLATIONS_SHOWN]:
        say(f"[red]check failed[/red]: {violation}", highlight=False, soft_wrap=True)
    if len(violations) > _VIOLATIONS_SHOWN:
        say(f"[red]check failed[/red]: and {len(violations) - _VIOLATIONS_SHOWN} more")
    if not violations:
        say(
            "checked from the API: no node holds more than it offers, "
            "every pod is accounted for exactly once",
            highlight=False,
            soft_wrap=True,
        )


@click.command(help=__doc__)
@click.option(
    "--scheduler",
    type=click.Choice(list(SUBJECTS)),
    default=Starsched.name,
    show_default=True,
)
@click.option("--pods", default=0, help="Only the first so many pods; 0: all.")
@click.option("--nodes", default=0, help="Only the first so many nodes; 0: all.")
@click.option(
    "--patience", default=120.0, show_default=True, help="Give up after so many idle seconds."
)
@output_options
def main(
    scheduler: str, pods: int, nodes: int, patience: float, output: str, file: str | None
) -> None:
    output_path = json_path(output, file)
    whole = read_trace()
    trace = Trace(whole.nodes[: nodes or None], whole.pods[: pods or None])
    subject = SUBJECTS[scheduler]()
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision(), scheduler: subject.version()},
        "settings": {"scheduler": scheduler, "nodes": len(trace.nodes), "pods": len(trace.pods)},
    }
    reporter = report.Reporter()
    with reporter.part(f"openb, {scheduler}"):
        outcome = run_to_end(place_all(trace, subject, patience=patience, progress=reporter.step))
    document = as_document(outcome, facts, len(trace.pods))
    if output_path is not None:
        report.write_json(document, output_path)
    if output_path != "-":
        report.print_facts(facts)
        print_outcome(document)
    sys.exit(1 if document["violations"] or document["gave_up"] else 0)


if __name__ == "__main__":
    main()
