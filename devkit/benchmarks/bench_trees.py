"""`make bench-trees`: trees of queues on a real etcd and kube-apiserver: what they cost.

Three groups, each with the real process, `starsched run`. `load`: pods of many queues in three
levels all wait before the scheduler goes on; the same load without a tree and with it, by rules
whose key reads what is next in a queue and by such that do not, by rules that compute shares, and
by quotas under which pods wait for the end of others. `start`: the start of the scheduler with a
large tree and placed pods in its queues, to the first binding, and the same without the tree.
`kueue`: Kueue's own scalability test, with a pod for each of its workloads, by the rules of the
pack `kueue_fair`, next to what Kueue published about it.
Exits with 1 if a pod was not bound, or a workload of Kueue's did not end.

\b
Examples:
  make bench-trees
  make bench-trees ARGS="--groups load --queues 10000 --pods 10000"
  make bench-trees ARGS="--groups load --rules none,drf --repeat 5"
  make bench-trees ARGS="--groups start --repeat 3"
  make bench-trees ARGS="--groups kueue --scale 0.1"
  make bench-trees ARGS="--groups kueue --kueue large-scale"
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import large, report, trees
from devkit.benchmarks.kueue_workload import CONFIGS, Config, measure_workload
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.planes import filled_plane
from devkit.benchmarks.running import json_path, named, output_options, run_to_end
from devkit.benchmarks.trees import RULES
from devkit.benchmarks.turns import Load, measure_turns
from devkit.benchmarks.wire import Wire

GROUPS: Final = ("load", "start", "kueue")
_LOAD_COLUMNS: Final = (
    "who goes next", "pods/s", "least..most", "ratio", "main CPU/pod ms", "sandbox",
    "CPU ratio", "asked/pod", "shares ms/pod", "wakes/pod", "in vain", "peak MB", "others %",
)  # fmt: skip
_START_COLUMNS: Final = (
    ("serving", "serving_seconds"),
    ("in sync", "synced_seconds"),
    ("first binding", "first_bound_seconds"),
    ("our CPU", "scheduler_cpu_seconds"),
    ("API server's CPU", "apiserver_cpu_seconds"),
    ("list alone", "list_alone_seconds"),
    ("list MB", "list_mb"),
)
# With a tree and without; the pods name their queues either way.
_STARTS: Final = ("none", "drf")


# --- load --------------------------------------------------------------------------------------


async def run_load(
    names: Sequence[str], load: Load, repeat: int, reporter: report.Reporter
) -> list[dict[str, Any]]:
    """One row for each of the rules named *names*: all runs, and their medians."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    # Round by round, so that other load of the machine affects all of them alike.
    for number in range(repeat):
        for name in names:
            with reporter.part(report.titled(f"load, {name}", number, repeat)):
                found = await measure_turns(RULES[name], load, reporter.step)
            runs[name].append(found.as_dict())
    return [
        {
            "rules": name,
            "median": {k: round(v, 4) for k, v in report.medians(runs[name]).items()},
            **_ratios(name, runs),
            "runs": runs[name],
        }
        for name in names
    ]


def _ratios(name: str, runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Over the same load without a tree, round by round: the medians."""
    alone = "none_ending" if RULES[name].pods_end else "none"
    pairs = list(zip(runs[name], runs.get(alone, ()), strict=False))
    if not pairs or name == alone:
        return {}
    return {
        title: round(report.median([one[key] / other[key] for one, other in pairs]), 3)
        for title, key in (("ratio", "pods_per_second"), ("cpu_ratio", "cpu_ms"))
        if all(other[key] for _, other in pairs)
    }


def print_load(rows: Sequence[Mapping[str, Any]], load: Load) -> None:
    """The table."""
    cells = []
    for row in rows:
        found, speeds = row["median"], [run["pods_per_second"] for run in row["runs"]]
        lost = max(run["pods"] - run["bound"] for run in row["runs"])
        cells.append(
            [
                RULES[row["rules"]].title + (f" ({lost} not bound!)" if lost else ""),
                f"{found['pods_per_second']:.0f}",
                f"{min(speeds):.0f}..{max(speeds):.0f}",
                f"{row['ratio']:.2f}" if "ratio" in row else "",
                f"{found['main_cpu_ms']:.2f}",
                f"{found['sandbox_cpu_ms']:.2f}",
                f"{row['cpu_ratio']:.2f}" if "cpu_ratio" in row else "",
                f"{found['asked']:.1f}",
                f"{found['shares_ms']:.2f}",
                f"{found['wakes']:.2f}",
                f"{found['in_vain']:.2f}",
                f"{found['peak_mib']:.0f}",
                f"{100 * found['others_share']:.0f}",
            ]
        )
    title = f"{load.pods:,} pods of {load.queues:,} queues that all wait, {load.nodes:,} nodes"
    report.print_table(title, _LOAD_COLUMNS, cells)


# --- start -------------------------------------------------------------------------------------


async def run_start(
    queues: int, nodes: int, placed: int, repeat: int, reporter: report.Reporter
) -> list[dict[str, Any]]:
    """One row without a tree and one with it: all starts, and their medians."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in _STARTS}
    with (
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
        reporter.part(f"start, {queues} queues"),
    ):
        policies = {
            name: trees.write(RULES[name], queues, Path(scratch) / name) for name in _STARTS
        }
        async with (
            filled_plane("real", nodes, placed, reporter.step, queues=queues) as plane,
            Wire(plane.endpoint(), in_flight=8) as wire,
        ):
            for number in range(repeat):
                for name in _STARTS:
                    reporter.step(f"starting, {name}", number, repeat)
                    pod = trees.put_in_queue(large.first_pod(number), number, queues)
                    subject = large.Quiet(policies[name])
                    found = await large.measure_start(wire, plane, Path(scratch), subject, pod)
                    runs[name].append(found.as_dict())
    return [
        {"rules": name, "median": report.medians(runs[name]), "runs": runs[name]}
        for name in _STARTS
    ]


def print_start(rows: Sequence[Mapping[str, Any]], queues: int, nodes: int, placed: int) -> None:
    """The table."""
    cells = [
        [
            f"{queues:,} queues" if RULES[row["rules"]].policy else "no tree",
            *(f"{row['median'][key]:.2f}" for _, key in _START_COLUMNS),
        ]
        for row in rows
    ]
    title = f"Start with {nodes:,} nodes and {placed:,} placed pods, seconds"
    report.print_table(title, ("", *(name for name, _ in _START_COLUMNS)), cells)


# --- Kueue's own -------------------------------------------------------------------------------


async def run_kueue(config: Config, patience: float, reporter: report.Reporter) -> dict[str, Any]:
    """The figures of one run."""
    with reporter.part(f"kueue, {config.name}"):
        found = await measure_workload(config, patience, reporter.step)
    return {"config": config.name, **found.as_dict()}


def print_kueue(row: Mapping[str, Any], config: Config) -> None:
    """The table: ours, and what was published of Kueue at full scale."""
    kueue, whole = config.published, CONFIGS[config.name].workloads
    lost = row["workloads"] - row["ended"]
    cpu = None if kueue.cores is None else kueue.cores * kueue.wall_seconds
    theirs = {
        "workloads": f"{whole:,}",
        "seconds": f"{kueue.wall_seconds:.0f}",
        "per second": f"{whole / kueue.wall_seconds:.1f}",
        "CPU s": "" if cpu is None else f"{cpu:.0f}",
        "per CPU s": "" if cpu is None else f"{whole / cpu:.0f}",
        "usage %": f"{100 * kueue.usage:.0f}",
    }
    cpu = row["main_cpu_seconds"] + row["sandbox_cpu_seconds"]
    ours = {
        "workloads": f"{row['workloads']:,}",
        "seconds": f"{row['wall_seconds']:.0f}",
        "per second": f"{row['admitted_per_second']:.1f}",
        "CPU s": f"{cpu:.0f}",
        "per CPU s": f"{row['admitted_per_cpu_second']:.0f}",
        "usage %": f"{100 * row['usage']:.0f}",
    }
    means = [f"{one.name}: mean s" for one in config.classes]
    report.print_table(
        f"Kueue's scalability test, {config.name}: {config.cohorts * config.queues:,} queues",
        ("", *ours, *means),
        [
            [
                "starsched" + (f" ({lost} did not end!)" if lost else ""),
                *ours.values(),
                *(f"{row['classes'][one.name]['mean']:.1f}" for one in config.classes),
            ],
            [
                "Kueue, published",
                *theirs.values(),
                *(f"{kueue.admission_seconds[one.name]:.1f}" for one in config.classes),
            ],
        ],
    )
    classes = row["classes"].items()
    lines = [
        f"starsched: the last pod came after {row['created_seconds']:.0f} s; main process "
        f"{row['main_cpu_seconds']:.1f} s of CPU, sandbox {row['sandbox_cpu_seconds']:.1f} s, "
        f"API server and etcd {row['servers_cpu_seconds']:.1f} s; peak {row['peak_mib']:.0f} MB",
        f"wakes {row['wakes']:.0f}, in vain {row['in_vain']:.0f}; evictions "
        + ", ".join(f"{name} {one['evictions']}" for name, one in classes)
        + f", for another queue {row['reclaimed']:.0f}"
        + "; p99 s "
        + ", ".join(f"{name} {one['p99']:.1f}" for name, one in classes),
        f"with all nominal quotas in use it takes {config.least_seconds:.0f} s; other processes "
        f"took {100 * row['others_share']:.0f} % of the machine",
        f"published: {kueue.source}",
    ]
    for line in lines:
        report.OUT.print(line, highlight=False, soft_wrap=True)


# --- the command -------------------------------------------------------------------------------


@click.command(help=__doc__)
@click.option("--groups", default=",".join(GROUPS), show_default=True, help="Comma-separated.")
@click.option("--nodes", default=5000, show_default=True, help="Of load and start.")
@click.option("--queues", default=1000, show_default=True, help="Of the load, the leaves.")
@click.option("--pods", default=5000, show_default=True, help="Of the load.")
@click.option(
    "--rules",
    default=",".join(RULES),
    show_default=True,
    help="Of the load, comma-separated; `none` and `none_ending` are what others compare with.",
)
@click.option("--start-queues", default=10_000, show_default=True, help="Of the start, the leaves.")
@click.option("--placed", default=20_000, show_default=True, help="Pods placed before a start.")
@click.option("--repeat", default=1, show_default=True, help="Rounds of load and start; medians.")
@click.option(
    "--kueue",
    type=click.Choice([*CONFIGS]),
    default="baseline",
    show_default=True,
    help="Which configuration of Kueue's test.",
)
@click.option("--scale", default=1.0, show_default=True, help="Of Kueue's workloads a queue.")
@click.option(
    "--patience", default=120.0, show_default=True, help="Seconds without anything bound or ended."
)
@output_options
def main(
    groups: str,
    nodes: int,
    queues: int,
    pods: int,
    rules: str,
    start_queues: int,
    placed: int,
    repeat: int,
    kueue: str,
    scale: float,
    patience: float,
    output: str,
    file: str | None,
) -> None:
    chosen, names = named(groups, GROUPS), named(rules, RULES)
    output_path = json_path(output, file)
    load, config = Load(nodes, pods, queues, patience), CONFIGS[kueue].scaled(scale)
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision()},
        "settings": {
            **asdict(load), "start_queues": start_queues, "placed": placed, "repeat": repeat,
            "kueue": kueue, "scale": scale,
        },
    }  # fmt: skip
    results = run_to_end(
        run(
            groups=chosen, rules=names, load=load, start_queues=start_queues, placed=placed,
            repeat=repeat, config=config, reporter=report.Reporter(),
        )
    )  # fmt: skip
    if output_path is not None:
        report.write_json({"benchmark": "bench-trees", **facts, "results": results}, output_path)
    if output_path != "-":
        report.print_facts(facts)
        if "load" in results:
            print_load(results["load"], load)
        if "start" in results:
            print_start(results["start"], start_queues, nodes, placed)
        if "kueue" in results:
            print_kueue(results["kueue"], config)
    sys.exit(0 if is_complete(results) else 1)


async def run(
    *,
    groups: Sequence[str],
    rules: Sequence[str],
    load: Load,
    start_queues: int,
    placed: int,
    repeat: int,
    config: Config,
    reporter: report.Reporter,
) -> dict[str, Any]:
    """The figures of each group."""
    results: dict[str, Any] = {}
    if "load" in groups:
        results["load"] = await run_load(rules, load, repeat, reporter)
    if "start" in groups:
        results["start"] = await run_start(start_queues, load.nodes, placed, repeat, reporter)
    if "kueue" in groups:
        results["kueue"] = await run_kueue(config, load.patience, reporter)
    return results


def is_complete(results: Mapping[str, Any]) -> bool:
    """True if every pod was bound, and every workload ended."""
    runs = [run for row in results.get("load", ()) for run in row["runs"]]
    row = results.get("kueue")
    return all(run["bound"] == run["pods"] for run in runs) and (
        row is None or row["ended"] == row["workloads"]
    )


if __name__ == "__main__":
    main()
