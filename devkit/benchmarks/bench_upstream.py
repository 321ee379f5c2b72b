"""`make bench-upstream`: Kubernetes' own scheduler_perf, ours beside kube-scheduler.

Reads the definitions of test/integration/scheduler_perf of the Kubernetes that the control plane is
built from, and runs them against a real etcd and kube-apiserver, one scheduler after the other: by
default the largest workload of each test case. Gates are set on servers and kube-scheduler as
defined, and are at their defaults otherwise. Where starsched is not twice as fast, `ceiling` runs
too, which binds as it comes, decides nothing and evicts nothing: more than it does the API server
does not allow. `servers %` is the share of the machine's time that went to everything but the
scheduler: where that is almost all, no scheduler that writes as much is faster. `load %` is the
share of the time in which pods were created, updated and deleted, at the pace that is defined, and
not waited for: where that is almost all, none is faster either.
Afterwards no node holds more than it offers, and no device has two claims. Exits with 1 if a run
was given up or a check failed.

\b
Examples:
  make bench-upstream
  make bench-upstream ARGS="--filter SchedulingCSIPVs --repeat 3"
  make bench-upstream ARGS="--filter '^SchedulingBasic/500Nodes$'"
  make bench-upstream ARGS="--filter ClaimTemplate --schedulers starsched,ceiling"
  make bench-upstream ARGS="--scale 0.1 --output json build/upstream.json"
  make bench-upstream ARGS="--list"
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import report
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.running import json_path, named, output_options, run_to_end
from devkit.benchmarks.subjects import Ceiling, KubeScheduler, Starsched
from devkit.benchmarks.upstream.definitions import Workload, largest, matching, read
from devkit.benchmarks.upstream.operations import Patience
from devkit.benchmarks.upstream.run import Outcome, measure, reason_not_to_run, subject_of
from devkit.benchmarks.upstream.templates import Templates
from tests.controlplane import kubernetes_minor
from tests.scripts import script

_SCHEDULERS: Final = (KubeScheduler.name, Starsched.name, Ceiling.name)
#: What is aimed at, in pods/s over kube-scheduler's, or the ceiling, whichever is lower.
_AIM: Final = 2.0
_COLUMNS: Final = (
    "workload", "scheduler", "pods", "pods/s", "sampled", "wanted", "p50 ms", "p99 ms",
    "CPU/pod ms", "peak MB", "events", "load %", "servers %", "ratio", "CPU ratio", "of ceiling",
)  # fmt: skip


async def run(
    workloads: Sequence[Workload],
    schedulers: Sequence[str],
    repeat: int,
    patience: Patience,
    templates: Templates,
    reporter: report.Reporter,
) -> list[dict[str, Any]]:
    """One row per workload and scheduler, with all its runs."""
    rows: list[dict[str, Any]] = []
    for workload in workloads:
        runs: dict[str, list[Outcome]] = {name: [] for name in schedulers}
        # Round by round, so that other load of the machine affects every scheduler alike.
        for number in range(repeat):
            for name in schedulers:
                if name == Ceiling.name and _is_fast(runs, number):
                    continue
                with reporter.part(report.titled(f"{workload.title}, {name}", number, repeat)):
                    subject = subject_of(name, workload)
                    outcome = await measure(subject, workload, templates, patience, reporter.step)
                    runs[name].append(outcome)
                for problem in outcome.problems:
                    reporter.note(f"{workload.title}, {name}: {problem.splitlines()[0]}")
        rows += [
            {
                "workload": workload.title,
                "scheduler": name,
                "threshold": workload.threshold,
                "gates": dict(workload.gates),
                "runs": [one.as_dict() for one in runs[name]],
                "median": _medians(runs[name]),
            }
            for name in schedulers
            if runs[name]
        ]
    _add_ratios(rows)
    return rows


def _medians(runs: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """By collection, the medians of the runs that came to its end."""
    found: dict[str, list[dict[str, float]]] = {}
    for one in runs:
        for collected in one.collected:
            figures = {k: v for k, v in collected.as_dict().items() if k not in ("name", "is_idle")}
            found.setdefault(collected.name, []).append(figures)
    return {
        name: {key: round(value, 3) for key, value in report.medians(figures).items()}
        for name, figures in found.items()
    }


def _is_fast(runs: Mapping[str, Sequence[Outcome]], number: int) -> bool:
    """True if starsched reached in round *number* what is aimed at, in every collection."""
    ours, peers = (_medians(runs.get(s, ())[number:]) for s in (Starsched.name, KubeScheduler.name))
    return bool(ours) and all(
        name in peers and figures["pods_per_second"] >= _AIM * peers[name]["pods_per_second"]
        for name, figures in ours.items()
    )


def _add_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """Give each row its throughput and its CPU time over kube-scheduler's, by collection.

    And starsched's its throughput over the ceiling's.
    """
    medians = {(row["workload"], row["scheduler"]): row["median"] for row in rows}

    def over(row: Mapping[str, Any], peer: str, *keys: str) -> dict[str, dict[str, float]]:
        peers = medians.get((row["workload"], peer), {})
        return {
            name: {key: round(figures[key] / peers[name][key], 2) for key in keys}
            for name, figures in row["median"].items()
            if name in peers and all(peers[name][key] for key in keys)
        }

    for row in rows:
        row["ratio"] = over(row, KubeScheduler.name, "pods_per_second", "cpu_ms")
        if row["scheduler"] == Starsched.name:
            row["of_ceiling"] = over(row, Ceiling.name, "pods_per_second")


def is_good(rows: Sequence[Mapping[str, Any]]) -> bool:
    """True if no run had a problem."""
    return not any(one["problems"] for row in rows for one in row["runs"])


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table, and what was wrong."""
    cells = []
    for row in rows:
        wanted = "" if row["threshold"] is None else f"{row['threshold']:g}"
        peak = report.median([one["peak_mib"] for one in row["runs"]])
        events = report.median([one["events"] for one in row["runs"]])
        if not row["median"]:
            cells.append([row["workload"], f"{row['scheduler']} (given up)", *[""] * 14])
        for name, figures in row["median"].items():
            ratio, ceiling = (row.get(key, {}).get(name, {}) for key in ("ratio", "of_ceiling"))
            cells.append(
                [
                    row["workload"] + (f" {name}" if name else ""),
                    row["scheduler"],
                    f"{figures['pods']:.0f}",
                    f"{figures['pods_per_second']:.0f}",
                    f"{figures['sampled']:.0f}",
                    wanted,
                    f"{figures['p50_ms']:.0f}",
                    f"{figures['p99_ms']:.0f}",
                    f"{figures['cpu_ms']:.2f}",
                    f"{peak:.0f}",
                    f"{events:.0f}",
                    f"{100 * figures['load']:.0f}",
                    f"{100 * figures['servers']:.0f}",
                    _ratio(ratio, "pods_per_second"),
                    _ratio(ratio, "cpu_ms"),
                    _ratio(ceiling, "pods_per_second"),
                ]
            )
    report.print_table("scheduler_perf on a real control plane", _COLUMNS, cells, texts=2)
    for row in rows:
        for one in row["runs"]:
            for problem in one["problems"]:
                _say(f"[red]{row['workload']}, {row['scheduler']}[/red]: {problem}")


def _ratio(ratios: Mapping[str, float], key: str) -> str:
    return f"{ratios[key]:.2f}" if key in ratios else ""


def draw(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Bars of throughput and CPU per pod."""
    by_place = {
        (f"{row['workload']} {name}".strip(), row["scheduler"]): figures
        for row in rows
        for name, figures in row["median"].items()
    }
    names = list(dict.fromkeys(name for name, _ in by_place))

    def series(key: str) -> dict[str, list[float]]:
        return {
            s: [by_place.get((n, s), {}).get(key, 0.0) for n in names]
            for s in dict.fromkeys(row["scheduler"] for row in rows)
        }

    report.draw_bars(
        path,
        [name.replace("/", "\n", 1) for name in names],
        [
            ("pods bound per second (more is better)", series("pods_per_second")),
            ("scheduler CPU per pod, ms (less is better)", series("cpu_ms")),
        ],
    )


def _say(text: str) -> None:
    report.OUT.print(text, highlight=False, soft_wrap=True)


def print_list(workloads: Sequence[Workload], chosen: Sequence[Workload]) -> None:
    """Every workload, those that would run marked, with why the others cannot."""
    titles = {one.title for one in chosen}
    for one in workloads:
        mark = "*" if one.title in titles else " "
        why = reason_not_to_run(one)
        _say(f"{mark} {one.title} ({one.size} objects)" + (f": not run, {why}" if why else ""))


@click.command(help=__doc__)
@click.option(
    "--filter", "pattern", help="A regular expression; of all workloads, not the largest."
)
@click.option("--scale", default=1.0, show_default=True, help="Of the numbers of all objects.")
@click.option(
    "--schedulers", default=",".join(_SCHEDULERS), show_default=True, help="Comma-separated."
)
@click.option("--repeat", default=1, show_default=True, help="Runs of each; medians are shown.")
@click.option("--timeout", default=Patience().most, show_default=True, help="Seconds for one wait.")
@click.option(
    "--patience", default=Patience().idle, show_default=True, help="Seconds without any binding."
)
@click.option("--list", "lists", is_flag=True, help="Only print what there is.")
@output_options
@click.option("--chart", metavar="FILE", help="Draw a chart; FILE ends in .png or .svg.")
def main(
    pattern: str | None,
    scale: float,
    schedulers: str,
    repeat: int,
    timeout: float,
    patience: float,
    lists: bool,
    output: str,
    file: str | None,
    chart: str | None,
) -> None:
    output_path = json_path(output, file)
    chosen_schedulers = named(schedulers, (*_SCHEDULERS, Ceiling.name))
    sources: Path = script("devkit/controlplane/build.py").sources(kubernetes_minor())
    everything = read(sources, scale)
    chosen = largest(everything) if pattern is None else matching(everything, pattern)
    if not chosen:
        raise click.BadParameter(f"no workload matches `{pattern}`; see --list")
    if lists:
        print_list(everything, chosen)
        return
    left_out = {one.title: why for one in chosen if (why := reason_not_to_run(one))}
    reporter = report.Reporter()
    with Templates() as templates:
        rows = run_to_end(
            run(
                [one for one in chosen if one.title not in left_out],
                chosen_schedulers, repeat, Patience(patience, timeout), templates, reporter,
            )
        )  # fmt: skip
    facts = {
        "machine": describe_machine(),
        "versions": {
            "starsched": source_revision(),
            KubeScheduler.name: KubeScheduler().version(),
        },
        "settings": {"scale": scale, "repeat": repeat, "timeout": timeout, "patience": patience},
    }
    if output_path is not None:
        report.write_json(
            {"benchmark": "bench-upstream", **facts, "rows": rows, "not_run": left_out}, output_path
        )
    if output_path != "-":
        report.print_facts(facts)
        print_rows(rows)
        for title, why in left_out.items():
            _say(f"{title}: not run, {why}")
    if chart:
        draw(rows, chart)
    sys.exit(0 if is_good(rows) else 1)


if __name__ == "__main__":
    main()
