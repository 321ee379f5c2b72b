"""`make bench`: ours and kube-scheduler under the same load on a real control plane.

For every workload, each scheduler runs alone, one after the other, on a fresh etcd and
kube-apiserver. Prints a table; `--output json` and `--chart` write the same for programs and for
documents. Exits with 1 if a run did not bind all its pods.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import report
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.measure import Measurement, Settings, measure
from devkit.benchmarks.profiling import seconds_by_module, seconds_by_stage, slowest_functions
from devkit.benchmarks.running import json_path, named, output_options, run_to_end
from devkit.benchmarks.subjects import SUBJECTS, KubeScheduler, Starsched, Subject
from devkit.benchmarks.workloads import WORKLOADS, Workload
from tests.controlplane import GROUPS_GATE

#: Share of the machine that may go to other processes before figures are called noisy.
_QUIET_SHARE: Final = 0.05
_COLUMNS: Final = (
    "workload",
    "scheduler",
    "pods/s",
    "incl. events",
    "p50 ms",
    "p99 ms",
    "CPU/pod ms",
    "peak MB",
    "first pod ms",
    "ratio",
)


async def run(
    workloads: Sequence[Workload],
    schedulers: Sequence[str],
    settings: Settings,
    repeat: int,
    reporter: report.Reporter,
    profile: Path | None = None,
) -> list[dict[str, Any]]:
    """One row per workload and scheduler, with all its runs and their medians.

    With *profile*, a directory, ours runs under cProfile and leaves its statistics there.
    """
    rows: list[dict[str, Any]] = []
    for workload in workloads:
        missing = {name: sorted(SUBJECTS[name]().missing_plugins(workload)) for name in schedulers}
        runs: dict[str, list[Measurement]] = {name: [] for name in schedulers}
        # Round by round, so that other load of the machine affects every scheduler alike.
        for number in range(repeat):
            for name in schedulers:
                if missing[name]:
                    continue
                subject = _subject(name, workload, profile)
                title = report.titled(f"{workload.name}, {name}", number, repeat)
                with reporter.part(title):
                    runs[name].append(await measure(subject, workload, settings, reporter.step))
        rows += [
            {
                "workload": workload.name,
                "scheduler": name,
                "supported": not missing[name],
                "missing_plugins": missing[name],
                "runs": [measured.as_dict() for measured in runs[name]],
                "median": _medians(runs[name]),
            }
            for name in schedulers
        ]
    _add_ratios(rows)
    return rows


def _subject(name: str, workload: Workload, profile: Path | None) -> Subject:
    if profile is not None and name == Starsched.name:
        return Starsched(profile=profile / f"{workload.name}.pstats")
    if workload.has_groups and name == KubeScheduler.name:
        return KubeScheduler([GROUPS_GATE])
    return SUBJECTS[name]()


def _medians(runs: Sequence[Measurement]) -> dict[str, float]:
    found = report.medians([measured.as_dict() for measured in runs])
    return {key: round(value, 3) for key, value in found.items()}


def _add_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """Give each row its throughput over kube-scheduler's: the median over the rounds."""
    peers = {row["workload"]: row["runs"] for row in rows if row["scheduler"] == KubeScheduler.name}
    for row in rows:
        ratios = [
            measured["pods_per_second"] / peer["pods_per_second"]
            for measured, peer in zip(row["runs"], peers.get(row["workload"], ()), strict=False)
            if peer["pods_per_second"] > 0
        ]
        row["ratio"] = round(report.median(ratios), 2) if ratios else None


def is_complete(rows: Sequence[Mapping[str, Any]]) -> bool:
    """True if every run bound all its pods."""
    return all(measured["bound"] == measured["pods"] for row in rows for measured in row["runs"])


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table."""
    cells = []
    for row in rows:
        title, name = WORKLOADS[row["workload"]].title, row["scheduler"]
        figures = row["median"]
        if not row["supported"]:
            continue
        lost = int(figures["pods"] - figures["bound"])
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        cells.append(
            [
                title,
                name + (f" ({lost} pods not bound!)" if lost else ""),
                f"{figures['pods_per_second']:.0f}{_spread(row['runs'])}",
                f"{figures['pods_per_second_written']:.0f}",
                f"{figures['p50_ms']:.0f}",
                f"{figures['p99_ms']:.0f}",
                f"{figures['scheduler_cpu_ms']:.2f}",
                f"{figures['peak_mib']:.0f}",
                f"{figures['first_pod_ms']:.0f}",
                ratio,
            ]
        )
    report.print_table("Real control plane", _COLUMNS, cells, texts=2)
    for row in rows:
        if not row["supported"]:
            text = f"{WORKLOADS[row['workload']].title}, {row['scheduler']}: not supported yet"
            report.OUT.print(
                f"{text}: {', '.join(row['missing_plugins'])}", highlight=False, soft_wrap=True
            )
    if rows and rows[0]["median"]:
        figures = rows[0]["median"]
        report.OUT.print(
            f"others, per pod ({rows[0]['workload']}, {rows[0]['scheduler']}): kube-apiserver "
            f"{figures['apiserver_cpu_ms']:.2f} ms CPU, etcd {figures['etcd_cpu_ms']:.2f} ms, "
            f"load generator {figures['generator_cpu_ms']:.2f} ms",
            highlight=False,
            soft_wrap=True,
        )

    shares = [run["others_share"] for row in rows for run in row["runs"]]
    if shares:
        noisy = " - noisy" if max(shares) > _QUIET_SHARE else ""
        report.OUT.print(
            f"other processes took {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the "
            f"machine during the runs{noisy}",
            highlight=False,
            soft_wrap=True,
        )


def _spread(runs: Sequence[Mapping[str, Any]]) -> str:
    if len(runs) < 2:
        return ""
    values = [run["pods_per_second"] for run in runs]
    return f" ({min(values):.0f}..{max(values):.0f})"


def draw(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Bars of throughput and CPU per pod."""
    names = list(dict.fromkeys(row["workload"] for row in rows))
    schedulers = list(dict.fromkeys(row["scheduler"] for row in rows))
    by_place = {(row["workload"], row["scheduler"]): row["median"] for row in rows}

    def series(key: str) -> dict[str, list[float]]:
        return {s: [by_place[n, s].get(key, 0.0) for n in names] for s in schedulers}

    report.draw_bars(
        path,
        [name.replace("-", "\n", 1) for name in names],
        [
            ("pods bound per second (more is better)", series("pods_per_second")),
            ("scheduler CPU per pod, ms (less is better)", series("scheduler_cpu_ms")),
        ],
    )


@click.command(help=__doc__)
@click.option("--nodes", default=5000, show_default=True, help="Nodes in the cluster.")
@click.option("--pods", default=2000, show_default=True, help="Pods that are measured.")
@click.option(
    "--workloads",
    default="all",
    show_default=True,
    help=f"Comma-separated, or `all`. Known: {', '.join(WORKLOADS)}.",
)
@click.option(
    "--schedulers",
    default=f"{KubeScheduler.name},{Starsched.name}",
    show_default=True,
    help="Comma-separated.",
)
@click.option("--repeat", default=1, show_default=True, help="Runs of each; medians are shown.")
@click.option("--rate", default=0.0, help="Pods created per second; 0: as fast as possible.")
@click.option("--in-flight", default=16, show_default=True, help="Creations at once.")
@click.option("--warm-up", default=20, show_default=True, help="Pods bound before the clock runs.")
@click.option(
    "--patience",
    default=300.0,  # kube-scheduler tries 10,000 pods that fit nowhere first: two minutes
    show_default=True,
    help="Give up when no pod was bound for so many seconds.",
)
@output_options
@click.option("--chart", metavar="FILE", help="Draw a chart; FILE ends in .png or .svg.")
@click.option(
    "--profile",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False),
    help="Run ours under cProfile (slower), print its time by stage, keep the statistics there.",
)
def main(
    nodes: int,
    pods: int,
    workloads: str,
    schedulers: str,
    repeat: int,
    rate: float,
    in_flight: int,
    warm_up: int,
    patience: float,
    output: str,
    file: str | None,
    chart: str | None,
    profile: Path | None,
) -> None:
    settings = Settings(nodes, pods, warm_up, in_flight, rate, patience)
    chosen_workloads = choose_workloads(workloads)
    chosen_schedulers = named(schedulers, SUBJECTS)
    output_path = json_path(output, file)
    reporter = report.Reporter()
    facts = {
        "machine": describe_machine(),
        "versions": {
            "starsched": source_revision(),
            **{n: SUBJECTS[n]().version() for n in chosen_schedulers if n != Starsched.name},
        },
        "settings": {**asdict(settings), "repeat": repeat, "profiled": profile is not None},
    }
    if profile is not None:
        profile.mkdir(parents=True, exist_ok=True)
    rows = run_to_end(run(chosen_workloads, chosen_schedulers, settings, repeat, reporter, profile))
    if output_path is not None:
        report.write_json({"benchmark": "bench", **facts, "rows": rows}, output_path)
    if output_path != "-":
        report.print_facts(facts)
        print_rows(rows)
        if profile is not None:
            print_profiles(rows, profile)
    if chart:
        draw(rows, chart)
    sys.exit(0 if is_complete(rows) else 1)


def print_profiles(rows: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Where the parent process spent its time, by stage, for each workload that ours ran."""
    for row in rows:
        path = directory / f"{row['workload']}.pstats"
        if row["scheduler"] != Starsched.name or not path.exists():
            continue
        stages = seconds_by_stage(seconds_by_module(path))
        total = sum(stages.values())
        report.print_table(
            f"Stages of {row['workload']}, start included (cProfile inflates Python calls)",
            ("stage", "seconds", "share %"),
            [
                [stage, f"{seconds:.2f}", f"{100 * seconds / total:.1f}"]
                for stage, seconds in stages.items()
                if seconds / total >= 0.005
            ],
        )
        path.with_suffix(".txt").write_text("\n".join(slowest_functions(path, 60)) + "\n", "utf-8")


def choose_workloads(text: str) -> list[Workload]:
    """The workloads named in *text*. Raises `click.BadParameter` for one that is not known."""
    if text == "all":
        return list(WORKLOADS.values())
    return [WORKLOADS[name] for name in named(text, WORKLOADS)]


if __name__ == "__main__":
    main()
