"""`make bench-live`: what live answers take, and what they cost the decisions.

Two groups, each with the real process, `starsched run`. `answers`: how long `/explain` and
`/queue` take on a large cluster in use, for pods that fit nowhere for different reasons and pods
that are placed, and screens of the page. `load`: the workload `plain` of `make bench`, in turn with
and without explanations asked at a rate.

\b
Examples:
  make bench-live
  make bench-live ARGS="--groups answers --servers embedded"
  make bench-live ARGS="--groups load --repeat 5 --rate 5"
"""

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import click

from devkit.benchmarks import full_cluster, objects, report
from devkit.benchmarks.load import create_all, percentile
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.measure import Measurement, Settings, measure, until_idle
from devkit.benchmarks.objects import NAMESPACE, Manifest
from devkit.benchmarks.planes import SERVERS, filled_plane
from devkit.benchmarks.running import json_path, named, output_options, run_to_end
from devkit.benchmarks.subjects import Starsched
from devkit.benchmarks.wire import Wire, WireError
from devkit.benchmarks.workloads import WORKLOADS

GROUPS: Final = ("answers", "load")
_SCREENS: Final = ("/queue", "/queue?by=reason", "/pods?q=node-00001")
#: Target that the table is held against.
EXPLAIN_SECONDS: Final = 0.2
_PATIENCE: Final = 120.0
_KINDS: Final[Mapping[str, Manifest]] = {
    "too large": {"requests": {"cpu": "64", "memory": "1Gi"}},
    "no such node": {"spec": {"nodeSelector": {"pool": "none"}}},
    "full pool": {
        "requests": {"cpu": "3950m", "memory": "1Gi"},
        "spec": {"nodeSelector": {"pool": "pool-1"}},
    },
}


# --- answers -----------------------------------------------------------------------------------


def waiting_pods(count: int) -> Iterator[tuple[str, Manifest]]:
    """So many pods of each kind that fits nowhere, with the kind."""
    for at, (kind, words) in enumerate(_KINDS.items()):
        for number in range(count):
            yield kind, objects.pod(f"waits-{at}-{number:05d}", labels={"app": f"a{at}"}, **words)


async def measure_answers(
    wire: Wire, plane: Any, directory: Path, *, waiting: int, asked: int, nodes: int
) -> dict[str, Any]:
    """Seconds that answers take, by what is asked."""
    pods = list(waiting_pods(waiting))
    await create_all(wire, [manifest for _, manifest in pods])
    subject = Starsched()
    try:
        await subject.start(plane, directory)
        async with aiohttp.ClientSession(subject.url) as http:
            await _until_all_wait(http, len(pods))
            await until_idle(subject)
            paths: dict[str, list[str]] = {
                kind: [
                    f"/explain/{NAMESPACE}/{manifest['metadata']['name']}"
                    for one, manifest in pods
                    if one == kind
                ][:asked]
                for kind in _KINDS
            }
            placed = [full_cluster.placed_pod(number * 7, nodes) for number in range(asked)]
            keys = [f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in placed]
            paths["placed"] = [f"/explain/{key}" for key in keys]
            paths["/queue"], paths["/nodes"] = ["/queue"] * asked, ["/nodes?limit=5000"] * 5
            found = {kind: await _asked(http, subject, each) for kind, each in paths.items()}
        async with aiohttp.ClientSession(subject.url, headers={"Accept": "text/html"}) as browser:
            for screen in _SCREENS:
                found[f"page {screen}"] = await _asked(browser, subject, [screen] * asked)
        return found
    finally:
        await asyncio.to_thread(subject.stop)


async def _asked(
    http: aiohttp.ClientSession, subject: Starsched, paths: Sequence[str]
) -> dict[str, Any]:
    """The figures of these answers; `cpu_ms` is of all processes, for one after the first."""
    first = await _ask(http, paths[0])
    before = subject.usage().cpu_seconds
    later = [await _ask(http, path) for path in paths[1:]]
    cpu = subject.usage().cpu_seconds - before
    times = sorted((first, *later))
    return {
        "first_ms": round(first * 1000, 1),
        "p50_ms": round(percentile(times, 0.5) * 1000, 1),
        "p99_ms": round(percentile(times, 0.99) * 1000, 1),
        "cpu_ms": round(cpu * 1000 / max(1, len(later)), 1),
        "is_met": percentile(times, 0.99) <= EXPLAIN_SECONDS,
    }


async def _until_all_wait(http: aiohttp.ClientSession, count: int) -> None:
    ends_at = time.monotonic() + _PATIENCE
    while time.monotonic() < ends_at:
        async with http.get("/queue?place=unschedulable&limit=1") as answer:
            if answer.status == 200 and (await answer.json())["total_pods"] >= count:
                return
        await asyncio.sleep(0.2)
    raise WireError(f"not all {count} pods were tried after {_PATIENCE:.0f} s")


async def _ask(http: aiohttp.ClientSession, path: str) -> float:
    started = time.perf_counter()
    async with http.get(path) as answer:
        body = await answer.read()
        if answer.status != 200:
            raise WireError(f"GET {path}: {answer.status} {body[:200].decode()}")
    return time.perf_counter() - started


# --- load --------------------------------------------------------------------------------------


class Asked(Starsched):
    """Ours, while pods of the workload are explained at a rate."""

    def __init__(self, names: Sequence[str], rate: float) -> None:
        super().__init__()
        self._names, self._rate = names, rate
        self.answers = 0

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Ask from the start of the process to the end of the block."""
        task = asyncio.create_task(self._ask()) if self._rate else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()

    async def _ask(self) -> None:
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            for name in itertools.cycle(self._names):
                await asyncio.sleep(1 / self._rate)
                if self._process is None:
                    continue
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with http.get(f"{self.url}/explain/{NAMESPACE}/{name}") as answer:
                        await answer.read()
                        self.answers += answer.status == 200


async def measure_load(
    settings: Settings, rate: float, repeat: int, reporter: report.Reporter
) -> dict[str, Any]:
    """Throughput of `plain` with and without explanations, in turn."""
    workload = WORKLOADS["plain"]
    # One in seventeen, so that neighbours in time are not neighbours in name.
    count = settings.pods
    names = [workload.make_pod(n * 17 % count)["metadata"]["name"] for n in range(count)]
    runs: dict[str, list[Measurement]] = {"quiet": [], "asked": []}
    answers = 0
    for number in range(repeat):
        for kind in runs:
            subject = Asked(names, rate if kind == "asked" else 0.0)
            with reporter.part(report.titled(f"plain, {kind}", number, repeat)):
                async with subject.asking():
                    runs[kind].append(await measure(subject, workload, settings, reporter.step))
            answers += subject.answers
    figures = {
        kind: report.medians([one.as_dict() for one in found]) for kind, found in runs.items()
    }
    ratios = [
        asked.pods_per_second / quiet.pods_per_second
        for asked, quiet in zip(runs["asked"], runs["quiet"], strict=True)
    ]
    return {
        "answers": answers,
        "ratio": round(report.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        **{
            f"{kind}_{key}": round(of[key], 2)
            for kind, of in figures.items()
            for key in ("pods_per_second", "p50_ms", "p99_ms", "scheduler_cpu_ms")
        },
    }


# --- the command -------------------------------------------------------------------------------


async def run(
    *,
    groups: Sequence[str],
    servers: Sequence[str],
    settings: Settings,
    placed: int,
    waiting: int,
    asked: int,
    rate: float,
    repeat: int,
    reporter: report.Reporter,
) -> dict[str, Any]:
    """The figures of each group."""
    results: dict[str, Any] = {}
    if "answers" in groups:
        for server in servers:
            with (
                tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
                reporter.part(f"{server} API server"),
            ):
                async with (
                    filled_plane(server, settings.nodes, placed, reporter.step) as plane,
                    Wire(plane.endpoint(), in_flight=8) as wire,
                ):
                    results.setdefault("answers", {})[server] = await measure_answers(
                        wire, plane, Path(scratch), waiting=waiting, asked=asked,
                        nodes=settings.nodes,
                    )  # fmt: skip
    if "load" in groups:
        results["load"] = await measure_load(settings, rate, repeat, reporter)
    return results


def print_results(results: Mapping[str, Any], rate: float) -> None:
    """A table per group."""
    cells = [
        [
            server,
            kind,
            *(f"{row[key]}" for key in ("first_ms", "p50_ms", "p99_ms", "cpu_ms")),
            "yes" if row["is_met"] else "no",
        ]
        for server, of_server in results.get("answers", {}).items()
        for kind, row in of_server.items()
    ]
    if cells:
        title = f"Answers, milliseconds (target: {EXPLAIN_SECONDS * 1000:g})"
        names = ("server", "asked about", "first", "p50", "p99", "CPU", "met")
        report.print_table(title, names, cells, texts=2)
    if load := results.get("load"):
        report.print_table(
            f"plain with {rate:g} explanations a second ({load['answers']} answers)",
            ("", "pods/s", "p50 ms", "p99 ms", "CPU/pod ms"),
            [
                [kind, *(f"{load[f'{kind}_{key}']}" for key in _FIGURES)]
                for kind in ("quiet", "asked")
            ],
        )
        report.OUT.print(f"ratio {load['ratio']} (rounds: {load['ratios']})", highlight=False)


_FIGURES: Final = ("pods_per_second", "p50_ms", "p99_ms", "scheduler_cpu_ms")


@click.command(help=__doc__)
@click.option("--groups", default=",".join(GROUPS), show_default=True, help="Comma-separated.")
@click.option("--servers", default="real", show_default=True, help="real, embedded, or both.")
@click.option("--nodes", default=full_cluster.NODES, show_default=True)
@click.option("--placed", default=full_cluster.PODS, show_default=True, help="Pods on nodes.")
@click.option("--waiting", default=200, show_default=True, help="Pods of each kind that wait.")
@click.option("--asked", default=50, show_default=True, help="Explanations of each kind.")
@click.option("--pods", default=2000, show_default=True, help="Measured pods of the load.")
@click.option("--rate", default=5.0, show_default=True, help="Explanations a second.")
@click.option("--repeat", default=3, show_default=True, help="Rounds of the load.")
@output_options
def main(
    groups: str,
    servers: str,
    nodes: int,
    placed: int,
    waiting: int,
    asked: int,
    pods: int,
    rate: float,
    repeat: int,
    output: str,
    file: str | None,
) -> None:
    chosen, where = named(groups, GROUPS), named(servers, SERVERS)
    output_path = json_path(output, file)
    sizes = {
        "nodes": nodes, "placed": placed, "waiting": waiting, "asked": asked, "pods": pods,
        "rate": rate, "repeat": repeat,
    }  # fmt: skip
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision()},
        "settings": sizes,
    }
    results = run_to_end(
        run(
            groups=chosen, servers=where, settings=Settings(nodes=nodes, pods=pods),
            placed=placed, waiting=waiting, asked=asked, rate=rate, repeat=repeat,
            reporter=report.Reporter(),
        )
    )  # fmt: skip
    if output_path is not None:
        report.write_json({"benchmark": "bench-live", **facts, "results": results}, output_path)
    if output_path != "-":
        report.print_facts(facts)
        print_results(results, rate)


if __name__ == "__main__":
    main()
