"""`make bench-fgd`: the published comparison of GPU policies on openb, decided by the engine.

The protocol of FGD (USENIX ATC 2023): pods sorted by name and shuffled with the seed; then pods
drawn with replacement until GPU requests reach 1.3 times what there is; they come one by one, never
end, and are not tried again. Measured: allocated GPUs in the end, as a mean over seeds. With a
trace of yours (`--nodes`, `--pods`) it is compared with no published figure.
"""

import csv
import functools
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import yaml

from devkit.benchmarks import report
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.openb import DATA
from devkit.benchmarks.running import json_path, named, output_options
from engine.core.model.pod import Pod
from engine.files.cluster_file import Cluster
from engine.files.world import pod_of
from engine.lib import garbage
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from workbench.simulation.simulation import Simulation
from workbench.simulation.simulation_report import Recorder
from workbench.simulation.workload import GPU_MILLI, Arrival, Workload, table_node, table_pod

#: The published means over ten seeds, in percent.
PUBLISHED: Final = {"Random": 87.47, "BestFit": 93.08, "FGD": 95.39}
TOLERANCE: Final = 0.6
LOAD: Final = 1.3
FIRST_SEED: Final = 42
_TYPICAL: Final = 0.95

_NODES: Final = DATA / "openb_node_list_gpu_node.csv"
_PODS: Final = DATA / "openb_pod_list_default.csv"
_PROFILE: Final = Path(__file__).parents[2] / "deploy" / "examples" / "gpu" / "profile.yaml"
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_SCORES: Final[dict[str, list[dict[str, Any]]]] = {
    "Random": [],
    "BestFit": [{"name": "GpuBestFit", "weight": 100}],
    "FGD": [{"name": "FGDScore", "weight": 100}],
}


@dataclass(frozen=True)
class Trace:
    """Two tables in the form of openb's, as `workbench.simulation.workload` reads them."""

    nodes: Path = _NODES
    pods: Path = _PODS

    @property
    def is_published(self) -> bool:
        """True if it is the one that the published figures are of."""
        return self.nodes.samefile(_NODES) and self.pods.samefile(_PODS)


@functools.cache
def _read(trace: Trace) -> tuple[list[dict[str, Any]], list[dict[str, str]], dict[str, Pod]]:
    """The nodes, the lines of the table of pods by name, and their pods; read once."""
    with trace.nodes.open(newline="") as file:
        nodes = [table_node(row) for row in csv.DictReader(file)]
    with trace.pods.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["name"])
    once = [Arrival(0.0, pod_of(table_pod(row))) for row in rows]
    pods = Workload(arrivals=once).decided_as("gpu").arrivals
    found = nodes, rows, {one.pod.name: one.pod for one in pods}
    if not any(map(_gpu_of, rows)):
        raise ValueError("no pod asks for a GPU")
    if not _gpus(nodes):
        raise ValueError("no node has a GPU")
    return found


def configuration(policy: str, trace: Trace = Trace()) -> str:
    """The profile `gpu` of the comparison, with only the plugins that are compared.

    A node has to have the cpu, the memory and the GPUs; *policy* alone scores, and without a score
    the tie is random. Nothing is evicted. The typical pods of FGD are those of *trace*.
    """
    document = yaml.safe_load(_PROFILE.read_text(encoding="utf-8"))
    scores = _SCORES[policy]
    profile: dict[str, Any] = {
        "schedulerName": "gpu",
        "plugins": {
            "multiPoint": {
                "disabled": [{"name": "*"}],
                "enabled": [
                    {"name": "PrioritySort"},
                    *scores,
                    {"name": "GpuShare"},
                    {"name": "DefaultBinder"},
                ],
            },
            "filter": {"enabled": [{"name": "NodeResourcesFit"}]},
        },
    }
    if policy == "FGD":
        typical = typical_pods(_read(trace)[1])
        profile["pluginConfig"] = [{"name": "FGDScore", "args": {"typicalPods": typical}}]
    if policy == "Random":
        profile["pluginConfig"] = [{"name": "GpuShare", "args": {"choose": "random"}}]
    return yaml.safe_dump({**document, "profiles": [profile]})


def typical_pods(rows: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """The kinds of pods that make 95 % of *rows*, as FGDScore takes them; most frequent first."""
    counts = Counter(
        tuple(int(row[column] or 0) for column in ("cpu_milli", "num_gpu", "gpu_milli"))
        for row in rows
    )
    chosen: list[tuple[tuple[int, ...], int]] = []
    covered, enough = 0, _TYPICAL * counts.total()
    for kind, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        if covered >= enough:
            break
        chosen.append((kind, count))
        covered += count
    return [
        {"cpu": cpu, "count": gpus, "milli": milli, "models": "", "share": round(n / covered, 6)}
        for (cpu, gpus, milli), n in chosen
    ]


def workload(seed: int, pods: int | None = None, trace: Trace = Trace()) -> Workload:
    """The pods of the protocol in their order, one a second; the first *pods* of them.

    Raises OSError, KeyError or ValueError for a *trace* that cannot be read or has no GPUs.
    """
    nodes, rows, pod_named = _read(trace)
    chance = random.Random(seed)
    shuffled = list(rows)
    chance.shuffle(shuffled)
    order = [(row, row["name"]) for row in shuffled]
    wanted, total = sum(map(_gpu_of, shuffled)), _gpus(nodes)
    while wanted < LOAD * total:
        row = chance.choice(shuffled)
        order.append((row, f"{row['name']}-again-{len(order)}"))
        wanted += _gpu_of(row)
    arrivals = [
        Arrival(float(at), pod_named[row["name"]].renamed(f"{seed}/{name}", name))
        for at, (row, name) in enumerate(order[:pods])
    ]
    return Workload(Cluster(nodes=nodes), arrivals)


def _gpus(nodes: list[dict[str, Any]]) -> int:
    """The GPUs of *nodes*, in thousandths."""
    return sum(int(node["status"]["allocatable"].get(GPU_MILLI, 0)) for node in nodes)


def _gpu_of(row: dict[str, str]) -> int:
    """The GPUs that a line of the table of pods asks for, in thousandths."""
    return int(row["num_gpu"] or 0) * int(row["gpu_milli"] or 0)


@functools.cache
def _policies(policy: str, trace: Trace) -> tuple[Bundle, InProcessEvaluator]:
    """The bundle of *policy* and its evaluator: made once in each process."""
    bundle = build_bundle({"config.yaml": configuration(policy, trace)})
    return bundle, InProcessEvaluator(bundle.program)


def run(policy: str, seed: int, pods: int | None = None, trace: Trace = Trace()) -> dict[str, Any]:
    """One run: the allocated share of GPUs in percent, and the curve that led there."""
    started, used_before = time.perf_counter(), time.process_time()
    recorder = Recorder()
    bundle, evaluator = _policies(policy, trace)
    with garbage.thresholds(*garbage.UNTIL_THE_END):
        simulation = Simulation(
            bundle,
            evaluator,
            workload(seed, pods, trace),
            on_moment=recorder,
            retries=False,
        )
        simulation.run()
    last = recorder.steps[-1]
    total = last.allocatable[GPU_MILLI]
    wanted, curve, stride = 0, [], max(1, len(recorder.steps) // 200)
    arrived = [life.wants.requests.get(GPU_MILLI, 0) for life in simulation.lives.values()]
    for number, step in enumerate(recorder.steps):
        wanted += arrived[number] if number < len(arrived) else 0
        if number % stride == 0:
            curve.append((100 * wanted / total, 100 * step.share(GPU_MILLI)))
    return {
        "policy": policy,
        "seed": seed,
        "allocated": 100 * last.share(GPU_MILLI),
        "pods": last.arrived,
        "placed": last.placed,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - used_before,
        "curve": curve,
    }


def summary(rows: list[dict[str, Any]], trace: Trace = Trace()) -> list[dict[str, Any]]:
    """By policy the mean over its seeds, next to the published one if *trace* has one."""
    found = []
    for policy, published in PUBLISHED.items():
        chosen = [row for row in rows if row["policy"] == policy]
        if not chosen:
            continue
        values = [row["allocated"] for row in chosen]
        mean = statistics.fmean(values)
        result = {
            "policy": policy,
            "seeds": len(values),
            "mean": mean,
            "least": min(values),
            "most": max(values),
            "cpu_seconds": statistics.fmean(row["cpu_seconds"] for row in chosen),
        }
        if trace.is_published:
            result["published"] = published
            result["is_reproduced"] = abs(mean - published) <= TOLERANCE
        found.append(result)
    return found


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Allocated over requested GPUs, a line a policy, for the first seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.5))
    first = min(row["seed"] for row in rows)
    for row in sorted((r for r in rows if r["seed"] == first), key=lambda r: r["policy"]):
        axis.plot(*zip(*row["curve"], strict=True), label=row["policy"])
    axis.set_xlabel("requested GPUs, % of what there is")
    axis.set_ylabel("allocated GPUs, %")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


@click.command(help=__doc__)
@click.option("--seeds", default=10, show_default=True, help="How many seeds, from 42 on.")
@click.option("--policies", default=",".join(PUBLISHED), show_default=True, help="Which ones.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="one per core",
    help="Runs at a time.",
)
@click.option("--nodes", type=_FILE, default=_NODES, help="A table of nodes in openb's form.")
@click.option("--pods", type=_FILE, default=_PODS, help="A table of pods in openb's form.")
@output_options
@click.option("--chart", metavar="FILE", help="Draw it; FILE ends in .png or .svg.")
def main(
    seeds: int,
    policies: str,
    workers: int,
    nodes: Path,
    pods: Path,
    output: str,
    file: str | None,
    chart: str | None,
) -> None:
    chosen = named(policies, PUBLISHED)
    path = json_path(output, file)
    trace = Trace(nodes, pods)
    try:
        workload(FIRST_SEED, trace=trace)
    except (OSError, KeyError, ValueError) as error:
        raise click.UsageError(f"cannot use the trace {nodes}, {pods}: {error}") from error
    plan = [(policy, FIRST_SEED + i) for i in range(seeds) for policy in chosen]
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    reporter = report.Reporter()
    with reporter.part("trace") as part, ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(run, *one, trace=trace) for one in plan]):
            rows.append(done.result())
            part.step("runs", len(rows), len(plan))
    rows.sort(key=lambda row: (row["policy"], row["seed"]))
    result = summary(rows, trace)
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision()},
        "settings": {
            "seeds": seeds,
            "workers": workers,
            "nodes": nodes.name,
            "pods": pods.name,
            "seconds": time.monotonic() - started,
        },
    }
    if path != "-":
        report.print_facts(facts)
        columns = ["policy", "seeds", "mean %", "least", "most", "CPU s"]
        cells = [
            [r["policy"], str(r["seeds"]), *(f"{r[k]:.2f}" for k in ("mean", "least", "most")),
             f"{r['cpu_seconds']:.0f}"]
            for r in result
        ]  # fmt: skip
        if trace.is_published:
            columns += ["published %", "reproduced"]
            for row, found in zip(cells, result, strict=True):
                row += [f"{found['published']:.2f}", "yes" if found["is_reproduced"] else "NO"]
        title = f"Allocated GPUs on {pods.stem} at {LOAD:.0%} requested"
        report.print_table(title, columns, cells)
    if path is not None:
        report.write_json({**facts, "results": result, "runs": rows}, path)
    if chart:
        draw(rows, chart)
    if not all(r.get("is_reproduced", True) for r in result):
        sys.exit(1)


if __name__ == "__main__":
    main()
