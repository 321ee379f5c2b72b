"""`make bench-large`: a scheduler's life at 5,000 nodes and 30,000 placed pods.

Four groups, each with the real process, `starsched run`, and its policies in a ConfigMap: its
start, to the first binding; the hand-over of many pods that fit nowhere, while new ones arrive;
edits of its policies while pods arrive; its memory, while pods are scheduled and deleted. With
--holds every pod also has a claim for one of 8 devices of each node, or a volume. Against etcd and
kube-apiserver, the embedded API server, or both in turn.

\b
Examples:
  make bench-large
  make bench-large ARGS="--groups start --servers real,embedded --repeat 3"
  make bench-large ARGS="--groups memory --churn 100000 --chart build/memory.svg"
  make bench-large ARGS="--groups memory --holds claims"
  make bench-large ARGS="--groups start --servers embedded --profile build/start.pstats"
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import full_cluster, large, report
from devkit.benchmarks.holdings import HOLDINGS
from devkit.benchmarks.load import percentile
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.planes import SERVERS, filled_plane
from devkit.benchmarks.running import json_path, named, output_options, run_to_end
from devkit.benchmarks.wire import Wire

GROUPS: Final = ("start", "handover", "reload", "memory")
#: Targets that the tables are held against.
START_SECONDS: Final = 6.0
HAND_OVER_SECONDS: Final = 2.0
RELOAD_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05
MEMORY_MIB: Final = {"nothing": 500.0, "claims": 900.0, "volumes": 900.0}
#: Growth over the second half of the churn that counts as noise of the allocator.
FLAT_MIB: Final = 10.0


async def run(
    *,
    servers: Sequence[str],
    groups: Sequence[str],
    nodes: int,
    pods: int,
    repeat: int,
    waiting: int,
    edits: int,
    rate: float,
    dwell: float,
    churn: int,
    holds: str,
    profile: Path | None,
    reporter: report.Reporter,
) -> list[dict[str, Any]]:
    """One row per server and group."""
    rows: list[dict[str, Any]] = []
    for server in servers:
        with (
            tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
            reporter.part(f"{server} API server"),
        ):
            directory = Path(scratch)
            async with (
                filled_plane(server, nodes, pods, reporter.step, holds) as plane,
                Wire(plane.endpoint(), in_flight=8) as wire,
            ):
                await large.write_policy(wire, 0, is_new=True)
                if "start" in groups:
                    starts = []
                    for number in range(repeat):
                        reporter.step("starting", number, repeat)
                        subject, pod = large.Quiet(profile=profile), large.first_pod(number)
                        starts.append(
                            await large.measure_start(wire, plane, directory, subject, pod)
                        )
                    rows.append({"group": "start", "server": server, **_of_starts(starts)})
                if "handover" in groups:
                    found = await large.measure_hand_over(
                        wire, plane, directory, waiting=waiting, progress=reporter.step
                    )
                    row = _of_hand_over(found, waiting)
                    rows.append({"group": "handover", "server": server, **row})
                if "reload" in groups:
                    reloads = await large.measure_reloads(
                        wire, plane, directory,
                        edits=edits, rate=rate, dwell=dwell, progress=reporter.step,
                    )  # fmt: skip
                    rows.append({"group": "reload", "server": server, **_of_reloads(reloads)})
                if "memory" in groups:
                    points = await large.measure_memory(
                        wire, plane, directory, churn=churn, holds=holds, progress=reporter.step
                    )
                    rows.append({"group": "memory", "server": server, **_of_memory(points, holds)})
    return rows


def _of_starts(starts: Sequence[large.Start]) -> dict[str, Any]:
    """The medians, and every run."""
    runs = [start.as_dict() for start in starts]
    medians = report.medians(runs)
    own = medians["first_bound_seconds"] - medians["list_alone_seconds"]
    return {
        **medians,
        "without_list_seconds": round(own, 2),
        "is_met": medians["first_bound_seconds"] <= START_SECONDS,
        "runs": runs,
    }


def _of_hand_over(found: large.HandOver, waiting: int) -> dict[str, Any]:
    worst = found.latencies[-1]
    return {
        "waiting": waiting,
        "new": len(found.latencies),
        "new_p50_s": round(percentile(found.latencies, 0.5), 3),
        "new_worst_s": round(worst, 3),
        "tried_s": round(found.tried, 1),
        "log_kb": round(found.logged / 1000, 1),
        "tried_again": found.tried_again,
        "log_of_node_kb": round(found.logged_for_node / 1000, 1),
        "is_met": worst <= HAND_OVER_SECONDS,
    }


def _of_reloads(found: large.Reloads) -> dict[str, Any]:
    decides = sorted(found.first_pod)
    return {
        "edits": len(decides),
        **{
            f"{stage}_p50_ms": round(statistics.median(times[stage] for times in found.stages))
            for stage in large.STAGES
        },
        "in_force_p50_s": round(statistics.median(found.in_force), 3),
        "decides_p50_s": round(statistics.median(decides), 3),
        "decides_worst_s": round(decides[-1], 3),
        "pauses_above_50_ms": found.pauses_above(PAUSE_SECONDS),
        "longest_pause_below_ms": round(found.longest_pause * 1000),
        "latency_p50_ms": round(percentile(found.latencies, 0.5) * 1000, 1),
        "latency_p99_ms": round(percentile(found.latencies, 0.99) * 1000, 1),
        "quiet_latency_p50_ms": round(percentile(found.quiet_latencies, 0.5) * 1000, 1),
        "quiet_latency_p99_ms": round(percentile(found.quiet_latencies, 0.99) * 1000, 1),
        "is_met": statistics.median(decides) <= RELOAD_SECONDS
        and not found.pauses_above(PAUSE_SECONDS),
        "runs": [
            {"in_force_s": round(a, 3), "decides_s": round(b, 3)}
            for a, b in zip(found.in_force, found.first_pod, strict=True)
        ],
    }


def _of_memory(points: Sequence[Mapping[str, Any]], holds: str) -> dict[str, Any]:
    first, middle, last = points[0], points[len(points) // 2], points[-1]
    most = max(point["both_rss_mib"] for point in points)
    # Of RSS: PSS also moves when other programs of the machine share the interpreter's pages.
    growth = round(last["both_rss_mib"] - middle["both_rss_mib"], 1)
    return {
        "holds": holds,
        "pods": last["pods"],
        "parent_rss_mib": first["parent_rss_mib"],
        "sandbox_rss_mib": first["sandbox_rss_mib"],
        "start_rss_mib": first["both_rss_mib"],
        "start_pss_mib": first["both_pss_mib"],
        "end_rss_mib": last["both_rss_mib"],
        "end_pss_mib": last["both_pss_mib"],
        "most_rss_mib": most,
        "second_half_growth_mib": growth,
        "is_met": most <= MEMORY_MIB[holds] and growth <= FLAT_MIB,
        "points": list(points),
    }


_TABLES: Final[Mapping[str, tuple[str, tuple[tuple[str, str], ...]]]] = {
    "start": (
        f"Start, seconds (target: first binding after {START_SECONDS:g} s)",
        (
            ("serving", "serving_seconds"),
            ("in sync", "synced_seconds"),
            ("first binding", "first_bound_seconds"),
            ("our CPU", "scheduler_cpu_seconds"),
            ("API server's CPU", "apiserver_cpu_seconds"),
            ("list alone", "list_alone_seconds"),
            ("without list", "without_list_seconds"),
            ("list MB", "list_mb"),
        ),
    ),
    "handover": (
        f"Hand-over (target: a new pod is bound within {HAND_OVER_SECONDS:g} s)",
        (
            ("were tried before", "waiting"),
            ("new pods", "new"),
            ("bound after p50 s", "new_p50_s"),
            ("worst s", "new_worst_s"),
            ("all tried after s", "tried_s"),
            ("log kB", "log_kb"),
            ("tried for a new node", "tried_again"),
            ("log kB", "log_of_node_kb"),
        ),
    ),
    "reload": (
        f"Reload under load (targets: decides within {RELOAD_SECONDS:g} s, no pause above "
        f"{PAUSE_SECONDS * 1000:g} ms)",
        (
            ("edits", "edits"),
            ("load p50 ms", "load_p50_ms"),
            ("trial p50 ms", "trial_p50_ms"),
            ("in force p50 s", "in_force_p50_s"),
            ("decides p50 s", "decides_p50_s"),
            ("worst s", "decides_worst_s"),
            ("pauses > 50 ms", "pauses_above_50_ms"),
            ("longest below ms", "longest_pause_below_ms"),
            ("latency p50 ms", "latency_p50_ms"),
            ("p99 ms", "latency_p99_ms"),
            ("between edits p99 ms", "quiet_latency_p99_ms"),
        ),
    ),
    "memory": (
        f"Memory, MiB (targets: at most {MEMORY_MIB['nothing']:g}, "
        f"{MEMORY_MIB['claims']:g} with what pods hold, and flat)",
        (
            ("each pod holds", "holds"),
            ("parent RSS", "parent_rss_mib"),
            ("sandbox RSS", "sandbox_rss_mib"),
            ("both RSS", "start_rss_mib"),
            ("both PSS", "start_pss_mib"),
            ("pods since", "pods"),
            ("RSS then", "end_rss_mib"),
            ("PSS then", "end_pss_mib"),
            ("most RSS", "most_rss_mib"),
            ("growth, 2nd half", "second_half_growth_mib"),
        ),
    ),
}


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """A table per group."""
    for group, (title, columns) in _TABLES.items():
        cells = [
            [
                row["server"],
                *(f"{row[key]}" for _, key in columns),
                "yes" if row["is_met"] else "no",
            ]
            for row in rows
            if row["group"] == group
        ]
        if cells:
            report.print_table(title, ("server", *(name for name, _ in columns), "met"), cells)


def draw(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Memory over pods scheduled and deleted."""
    panels = []
    for row in rows:
        if row["group"] == "memory":
            series = {
                f"{part} {kind.upper()}": [
                    (point["pods"], point[f"{part}_{kind}_mib"]) for point in row["points"]
                ]
                for part, kind in (("both", "rss"), ("both", "pss"), ("sandbox", "rss"))
            }
            panels.append((f"Memory, {row['server']}", "pods scheduled and deleted", "MiB", series))
    if panels:
        report.draw_lines(path, panels, logarithmic=False)


@click.command(help=__doc__)
@click.option("--groups", default=",".join(GROUPS), show_default=True, help="Comma-separated.")
@click.option("--servers", default="real", show_default=True, help="real, embedded, or both.")
@click.option("--nodes", default=full_cluster.NODES, show_default=True)
@click.option(
    "--pods", default=full_cluster.PODS, show_default=True, help="Placed before the start."
)
@click.option("--repeat", default=3, show_default=True, help="Starts; the median counts.")
@click.option("--waiting", default=20_000, show_default=True, help="Pods that are handed over.")
@click.option("--edits", default=10, show_default=True, help="Of the policies.")
@click.option("--rate", default=50.0, show_default=True, help="Pods per second during edits.")
@click.option("--dwell", default=2.0, show_default=True, help="Seconds between two edits.")
@click.option("--churn", default=20_000, show_default=True, help="Pods scheduled and deleted.")
@click.option(
    "--holds",
    type=click.Choice([*HOLDINGS]),
    default="nothing",
    show_default=True,
    help="What each pod has besides its capacity.",
)
@output_options
@click.option("--chart", metavar="FILE", help="Draw the memory; FILE ends in .png or .svg.")
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Start under cProfile and write its statistics there; slows the start down.",
)
def main(
    groups: str,
    servers: str,
    nodes: int,
    pods: int,
    repeat: int,
    waiting: int,
    edits: int,
    rate: float,
    dwell: float,
    churn: int,
    holds: str,
    output: str,
    file: str | None,
    chart: str | None,
    profile: Path | None,
) -> None:
    chosen = named(groups, GROUPS)
    where = named(servers, SERVERS)
    output_path = json_path(output, file)
    facts = {
        "machine": describe_machine(),
        "versions": {"starsched": source_revision()},
        "settings": {
            "nodes": nodes,
            "pods": pods,
            "repeat": repeat,
            "waiting": waiting,
            "edits": edits,
            "rate": rate,
            "dwell": dwell,
            "churn": churn,
            "holds": holds,
            "profiled": profile is not None,
        },
    }
    rows = run_to_end(
        run(
            servers=where, groups=chosen, nodes=nodes, pods=pods, repeat=repeat, waiting=waiting,
            edits=edits, rate=rate, dwell=dwell, churn=churn, holds=holds, profile=profile,
            reporter=report.Reporter(),
        )
    )  # fmt: skip
    if output_path is not None:
        report.write_json({"benchmark": "bench-large", **facts, "rows": rows}, output_path)
    if output_path != "-":
        report.print_facts(facts)
        print_rows(rows)
    if chart:
        draw(rows, chart)


if __name__ == "__main__":
    main()
