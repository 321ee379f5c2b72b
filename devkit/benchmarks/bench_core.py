"""`make bench-core`: the decision alone, sandbox included, without an API server.

Ten groups: the workloads of `make bench` on 5,000 nodes; plain requests on 1,000 to 50,000 nodes;
the openb trace; a filter by each kind of counter, where six pods are on each node; an adversary in
which no two nodes or pods are alike; pods that name resources which few nodes have; groups of pods,
which are placed all or not at all; pods with claims for devices; pods of a tree of queues; and
clusters that are hard on a scheduler, with ordinary pods in between. Every node is scored.
All of it runs several times, round by round; the figures are medians over the rounds.
"""

import cProfile
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import costly, hostile, large_answers, report
from devkit.benchmarks.bench import choose_workloads
from devkit.benchmarks.core import (
    COUNTERS,
    Scenario,
    missing_plugins,
    of_adversary,
    of_counters,
    of_openb,
    of_rare_resources,
    of_workload,
    run_scenario,
)
from devkit.benchmarks.costly_pods import COSTLY
from devkit.benchmarks.kernel_decisions import (
    Decisions,
    of_claims,
    of_groups,
    of_queues,
    run_decisions,
)
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.profiling import seconds_by_module, seconds_by_stage, slowest_functions
from devkit.benchmarks.running import json_path, named, output_options
from devkit.benchmarks.workloads import WORKLOADS
from engine.policy.bundle import Bundle, build_bundle

GROUPS: Final = (
    *(
        "workloads",
        "sizes",
        "openb",
        "counters",
        "adversarial",
        "rare",
        "gangs",
        "claims",
        "queues",
        "hostile",
    ),
)
_COLUMNS: Final = (
    "scenario",
    "nodes",
    "pods",
    "pods/s",
    "least..most",
    "with 1st",
    "first ms",
    "p50 ms",
    "p99 ms",
    "worst ms",
    "evals/pod",
    "trips/pod",
    "reuse %",
    "us/node·hook",
    "CPU/pod ms",
    "peak MB",
    "others %",
)
_KERNEL_COLUMNS: Final = (
    "decisions",
    "nodes",
    "number",
    "pods",
    "pods/s",
    "first ms",
    "p50 ms",
    "p99 ms",
    "CPU/pod ms",
    "others %",
)
_QUEUE_COLUMNS: Final = (
    "who goes next",
    "pods",
    "pods/s",
    "CPU/pod ms",
    "keys/pod",
    "shares/pod",
    "quotas/pod",
    "wakes/pod",
    "in vain/pod",
)
_HOSTILE_COLUMNS: Final = (
    "cluster",
    "nodes",
    "events",
    "event p50 ms",
    "p99 ms",
    "worst ms",
    "ordinary pods",
    "p50 ms",
    "p99 ms",
    "worst ms",
    "own placed",
    "waiting",
)
_COSTLY_COLUMNS: Final = (
    "each pod",
    "pods",
    "kB",
    "bound",
    "CPU/pod ms",
    "CPU/plain",
    "before MiB",
    "peak MiB",
    "gone MiB",
    "gone/plain",
)
_ANSWER_COLUMNS: Final = ("answer of an extender", "kB", "outcome", "CPU ms")


def scenarios(
    groups: Sequence[str],
    *,
    nodes: int,
    pods: int,
    sizes: Sequence[int],
    placed: int,
    workloads: str,
    adversarial_pods: int,
) -> list[Callable[[], Scenario]]:
    """The scenarios to run, each built only when it is run."""
    found: list[Callable[[], Scenario]] = []
    if "workloads" in groups:
        found += [
            partial(of_workload, w, nodes, pods)
            for w in choose_workloads(workloads)
            if not w.has_groups  # those are the kernel's, see "gangs"
        ]
    if "sizes" in groups:
        found += [partial(of_workload, WORKLOADS["plain"], size, pods, placed) for size in sizes]
    if "openb" in groups:
        found.append(of_openb)
    if "counters" in groups:
        plain = WORKLOADS["plain"]
        found += [partial(of_counters, name, plain, nodes, pods, 6 * nodes) for name in COUNTERS]
    if "adversarial" in groups:
        found.append(partial(of_adversary, nodes, adversarial_pods))
    if "rare" in groups:
        found += [partial(of_rare_resources, nodes, pods, few) for few in (1, 100)]
    return found


def median_row(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last of *runs* of one scenario with the medians of its figures over all of them.

    `runs` are their pods per second. The most pods that failed in one of them count.
    """
    figures = [{k: v for k, v in run.items() if isinstance(v, float)} for run in runs]
    row = {**runs[-1], **report.medians(figures)}
    if "failed" in row:
        row["failed"] = max(run["failed"] for run in runs)
    row["runs"] = [run["pods_per_second"] for run in figures if run]
    return row


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table."""
    cells = []
    for row in rows:
        if row["missing_plugins"]:
            continue
        lost = f" ({row['failed']} failed!)" if row["failed"] else ""
        cells.append(
            [
                row["title"] + lost,
                f"{row['nodes']}",
                f"{row['pods']}",
                f"{row['pods_per_second']:.0f}",
                f"{min(row['runs']):.0f}..{max(row['runs']):.0f}",
                f"{row['pods_per_second_with_first']:.0f}",
                f"{row['first_ms']:.0f}",
                f"{row['p50_ms']:.3f}",
                f"{row['p99_ms']:.3f}",
                f"{row['worst_ms']:.1f}",
                f"{row['evaluations']:.1f}",
                f"{row['round_trips']:.2f}",
                f"{100 * row['reuse']:.2f}",
                f"{row['us_per_triple']:.4f}",
                f"{row['cpu_ms']:.2f}",
                f"{row['peak_mib']:.0f}",
                f"{100 * row['others_share']:.0f}",
            ]
        )
    report.print_table("Core alone", _COLUMNS, cells)
    for row in rows:
        if row["missing_plugins"]:
            plugins = ", ".join(row["missing_plugins"])
            report.OUT.print(f"{row['title']}: not supported yet: {plugins}", highlight=False)


def print_kernel(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of the kernel's decisions; one is about a whole group."""
    cells = [
        [
            row["title"] + (f" ({row['failed']} failed!)" if row["failed"] else ""),
            f"{row['nodes']}",
            f"{row['groups']}",
            f"{row['pods']}",
            f"{row['pods_per_second']:.0f}",
            f"{row['first_ms']:.0f}",
            f"{row['p50_ms']:.3f}",
            f"{row['p99_ms']:.3f}",
            f"{row['cpu_ms']:.2f}",
            f"{100 * row['others_share']:.0f}",
        ]
        for row in rows
    ]
    report.print_table("Kernel: groups, all or nothing, and claims", _KERNEL_COLUMNS, cells)


def print_queues(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of what the policy of a tree of queues is asked, for each pod that is placed."""
    cells = [
        [
            row["title"],
            f"{row['pods']}",
            f"{row['pods_per_second']:.0f}",
            f"{row['cpu_ms']:.2f}",
            *(f"{row[key]:.2f}" for key in ("keys", "shares", "admits", "wakes", "in_vain")),
        ]
        for row in rows
    ]
    report.print_table("Queues: what is asked for each pod", _QUEUE_COLUMNS, cells)


def print_hostile(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of clusters that are hard on a scheduler."""
    cells = [
        [
            row["title"] + (f" ({row['starved']} starved!)" if row["starved"] else ""),
            f"{row['nodes']}",
            f"{row['events']}",
            f"{row['event_p50_ms']:.3f}",
            f"{row['event_p99_ms']:.3f}",
            f"{row['event_worst_ms']:.1f}",
            f"{row['ordinary']}",
            f"{row['ordinary_p50_ms']:.2f}",
            f"{row['ordinary_p99_ms']:.2f}",
            f"{row['ordinary_worst_ms']:.1f}",
            f"{row['placed']}",
            f"{row['waiting']}",
        ]
        for row in rows
    ]
    report.print_table("Hostile clusters, and ordinary pods", _HOSTILE_COLUMNS, cells)


def print_costly(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of large pods, the plain ones first."""
    plain = rows[0]
    cells = [
        [
            row["title"],
            f"{row['pods']}",
            f"{row['bytes'] / 1000:.0f}",
            f"{row['bound']}",
            f"{row['cpu_ms']:.1f}",
            f"{row['cpu_ms'] / plain['cpu_ms']:.0f}" if plain["cpu_ms"] else "-",
            f"{row['before_mib']:.0f}",
            f"{row['peak_mib']:.0f}",
            f"{row['gone_mib']:.0f}",
            f"{row['gone_mib'] / plain['gone_mib']:.2f}",
        ]
        for row in rows
    ]
    report.print_table("Large pods", _COSTLY_COLUMNS, cells)


def print_answers(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of large answers of an extender."""
    cells = [
        [row["title"], f"{row['bytes'] / 1000:.0f}", row["outcome"], f"{row['cpu_ms']:.1f}"]
        for row in rows
    ]
    report.print_table("Large answers of an extender", _ANSWER_COLUMNS, cells)


def draw(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Cost per pod over cluster size, for plain requests."""
    measured = [r for r in rows if r["scenario"] == "plain" and not r["missing_plugins"]]
    by_nodes = {r["nodes"]: r for r in measured}
    ascending = [by_nodes[n] for n in sorted(by_nodes)]

    def line(key: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(row["nodes"], scale * row[key]) for row in ascending]

    report.draw_lines(
        path,
        [
            (
                "Plain requests: cost of a decision",
                "nodes",
                "ms",
                {
                    "p50": line("p50_ms"),
                    "p99": line("p99_ms"),
                    "first pod of a class": line("first_ms"),
                },
            ),
            ("Plain requests: throughput", "nodes", "pods/s", {"": line("pods_per_second")}),
        ],
    )


@click.command(help=__doc__)
@click.option(
    "--groups",
    default=",".join(GROUPS[:-1]),
    show_default=True,
    help="Which groups, comma-separated; `hostile` takes minutes at 5,000 nodes.",
)
@click.option("--nodes", default=5000, show_default=True, help="Nodes of workloads and adversary.")
@click.option("--pods", default=2000, show_default=True, help="Pods per scenario.")
@click.option("--sizes", default="1000,5000,20000,50000", show_default=True, help="Cluster sizes.")
@click.option(
    "--placed", default=0, show_default=True, help="Pods on the nodes of `sizes`, all together."
)
@click.option("--workloads", default="all", show_default=True, help="Comma-separated, or `all`.")
@click.option("--adversarial-pods", default=50, show_default=True, help="Pods of the adversary.")
@click.option("--gangs", default=1000, show_default=True, help="Groups of 3 pods.")
@click.option("--members", default=500, show_default=True, help="Pods of the large group.")
@click.option("--queues", default=1000, show_default=True, help="Queues that have pods.")
@click.option("--rounds", default=200, show_default=True, help="Rounds of hostile clusters.")
@click.option("--large-pods", default=10, show_default=True, help="Pods of each large shape.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs of each; medians are shown.",
)
@click.option("--in-process", is_flag=True, help="Evaluate without the sandbox.")
@output_options
@click.option("--chart", metavar="FILE", help="Draw cost over size; FILE ends in .png or .svg.")
@click.option(
    "--profile",
    metavar="DIRECTORY",
    help="Run under cProfile: print the time by stage, write <scenario>.pstats there.",
)
def main(
    groups: str,
    nodes: int,
    pods: int,
    sizes: str,
    placed: int,
    workloads: str,
    adversarial_pods: int,
    gangs: int,
    members: int,
    queues: int,
    rounds: int,
    large_pods: int,
    repeat: int,
    in_process: bool,
    output: str,
    file: str | None,
    chart: str | None,
    profile: str | None,
) -> None:
    chosen = named(groups, GROUPS)
    output_path = json_path(output, file)
    bundle = build_bundle({}, None)
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision(), "policies": bundle.revision},
        "settings": {"nodes": nodes, "pods": pods, "placed": placed, "repeat": repeat,
                     "in_process": in_process, "profiled": profile is not None},
    }  # fmt: skip
    reporter = report.Reporter()
    to_run = scenarios(
        chosen,
        nodes=nodes,
        pods=pods,
        sizes=[int(size) for size in sizes.split(",") if size],
        placed=placed,
        workloads=workloads,
        adversarial_pods=adversarial_pods,
    )
    runs_of: list[list[dict[str, Any]]] = [[] for _ in to_run]
    # Round by round, so that other load of the machine affects every scenario alike.
    for number in range(repeat):
        for build, runs in zip(to_run, runs_of, strict=True):
            scenario = build()
            title = f"{scenario.name}, {scenario.node_count} nodes"
            with reporter.part(report.titled(title, number, repeat)):
                runs.append(_run(scenario, bundle, reporter, profile, in_process=in_process))
    rows = [median_row(runs) for runs in runs_of]
    by_kernel = of_groups(nodes, gangs, members) if "gangs" in chosen else []
    by_kernel += of_claims(nodes, pods) if "claims" in chosen else []
    by_kernel += of_queues(nodes, pods, queues) if "queues" in chosen else []
    kernel_rows = [_run_decisions(one, repeat, reporter, profile) for one in by_kernel]
    hostile_rows = []
    for hard in hostile.SCENARIOS if "hostile" in chosen else ():
        with reporter.part(f"{hard.name}, {nodes} nodes"):
            found = hostile.run_scenario(hard, nodes, rounds, reporter.step)
        hostile_rows.append(found.as_dict())
    costly_rows = []
    for name in ("plain", *COSTLY) if "hostile" in chosen else ():
        with reporter.part(f"large pods: {name}"):
            costly_rows.append(costly.measure(name, large_pods).as_dict())
    answer_rows = []
    for title, size in large_answers.SIZES.items() if "hostile" in chosen else ():
        with reporter.part(f"answer of an extender: {title}"):
            answer_rows.append(large_answers.measure(title, size).as_dict())
    if output_path is not None:
        results = {
            "rows": rows,
            "kernel": kernel_rows,
            "hostile": hostile_rows,
            "costly": costly_rows,
            "answers": answer_rows,
        }
        report.write_json({"benchmark": "bench-core", **facts, **results}, output_path)
    if output_path != "-":
        report.print_facts(facts)
        if rows:
            print_rows(rows)
        if kernel_rows:
            print_kernel(kernel_rows)
        if of_trees := [row for row in kernel_rows if row["scenario"].startswith("queues-")]:
            print_queues(of_trees)
        if hostile_rows:
            print_hostile(hostile_rows)
        if costly_rows:
            print_costly(costly_rows)
            print_answers(answer_rows)
        print_stages(rows)
    if chart:
        draw(rows, chart)
    lost = [row.get("failed") or row.get("starved") for row in (*rows, *kernel_rows, *hostile_rows)]
    sys.exit(1 if any(lost) else 0)


def _run(
    scenario: Scenario,
    bundle: Bundle,
    reporter: report.Reporter,
    profile: str | None,
    *,
    in_process: bool,
) -> dict[str, Any]:
    """One run of *scenario*: what it is, and its figures if all that it needs is there."""
    row: dict[str, Any] = {
        "scenario": scenario.name,
        "title": scenario.title,
        "nodes": scenario.node_count,
        "missing_plugins": missing_plugins(scenario, bundle),
    }
    if row["missing_plugins"]:
        return row
    profiler = cProfile.Profile() if profile is not None else None
    result = run_scenario(
        scenario,
        bundle=None if scenario.policies else bundle,
        in_process=in_process,
        around=_profiled(profiler),
        progress=reporter.step,
    )
    row |= result.as_dict()
    if profiler is not None and profile is not None:
        name = f"{result.scenario}-{result.nodes}"
        row["stages"] = _save_profile(profiler, Path(profile), name)
    return row


def _run_decisions(
    scenario: Decisions, repeat: int, reporter: report.Reporter, profile: str | None
) -> dict[str, Any]:
    """*repeat* runs of *scenario*: the medians of their figures."""
    runs = []
    for number in range(repeat):
        profiler = cProfile.Profile() if profile is not None else None
        with reporter.part(
            report.titled(f"{scenario.name}, {scenario.nodes} nodes", number, repeat)
        ):
            result = run_decisions(scenario, around=_profiled(profiler))
        runs.append(result.as_dict())
        if profiler is not None and profile is not None:
            _save_profile(profiler, Path(profile), f"{scenario.name}-{scenario.nodes}")
    return median_row(runs)


def print_stages(rows: Sequence[Mapping[str, Any]]) -> None:
    """Where the time went, for scenarios that were profiled."""
    for row in rows:
        if "stages" not in row:
            continue
        total = sum(row["stages"].values()) or 1.0
        report.print_table(
            f"Stages of {row['scenario']}, {row['nodes']} nodes (cProfile inflates Python calls)",
            ("stage", "us/pod", "share %"),
            [
                [stage, f"{1e6 * seconds / row['pods']:.1f}", f"{100 * seconds / total:.1f}"]
                for stage, seconds in row["stages"].items()
                if seconds / total >= 0.005
            ],
        )


def _profiled(
    profiler: cProfile.Profile | None,
) -> Callable[[], AbstractContextManager[Any]]:
    return nullcontext if profiler is None else lambda: profiler


def _save_profile(profiler: cProfile.Profile, directory: Path, name: str) -> dict[str, float]:
    directory.mkdir(parents=True, exist_ok=True)
    profiler.dump_stats(directory / f"{name}.pstats")
    text = "\n".join(slowest_functions(profiler, 60))
    (directory / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
    return seconds_by_stage(seconds_by_module(profiler))


if __name__ == "__main__":
    main()
