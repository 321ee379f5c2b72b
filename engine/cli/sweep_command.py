"""`starsched sweep`: simulations over a grid of arguments and seeds, on many processes."""

import csv
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from engine.cli.policy_option import policy_options, read_bundle
from engine.offline.cluster_file import ClusterFileError
from engine.offline.sweep import Axis, Measured, Point, SweepError, make_points, measure
from engine.offline.workload import WorkloadError
from engine.offline.world import ManifestError
from engine.policy.errors import PolicyErrors
from engine.telemetry.logs import configure_logging

_DASK: Final = "dask://"
_RESULTS: Final = "results.jsonl"


@click.command("sweep", short_help="Simulate a grid of arguments and seeds.")
@click.argument(
    "workload",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="WORKLOAD...",
)
@policy_options
@click.option(
    "--set",
    "axes",
    multiple=True,
    required=True,
    metavar="PLUGIN.ARG=V,V",
    help="An argument of a policy and the values to try; several make a grid.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="So many runs of each combination; the first as written, the others shuffled.",
)
@click.option("--profile", default="", metavar="NAME", help="Decide every pod as this profile.")
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Where results go. What is there already is not computed again.",
)
@click.option(
    "--executor",
    default="processes",
    show_default=True,
    metavar="WHERE",
    help="`processes` of this machine, or a Dask cluster: `dask://HOST:PORT`.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="How many processes. Default: one per core."
)
def sweep_command(workload: tuple[Path, ...], **options: Any) -> None:
    """Simulate WORKLOAD with every combination of the values of `--set`, and every seed.

    DIR gets results.jsonl (each result as it comes: an interrupted sweep goes on where it was),
    results.csv and chart.svg. A result is known by the hash of its policies, arguments, workload
    and seed, so whatever changed is computed anew. Workers of Dask read the workload from the same
    paths.

    \b
    Exit codes: 0 all was computed, 1 it cannot run, 2 wrong usage.

    \b
    Examples:
      starsched sweep nodes.csv pods.csv --to out --seeds 5 \\
        --set NodeResourcesFit.scoringStrategy.type=LeastAllocated,MostAllocated
    """
    configure_logging(verbosity=-1, log_format="text")
    _, files = read_bundle(options["policies"], options["config"])
    config: Path | None = options["config"]
    # One that stands for the policies' own is among their files already.
    is_apart = config is not None and config.name not in files.texts
    text = config.read_text(encoding="utf-8") if config is not None and is_apart else None
    directory: Path = options["directory"]
    try:
        points = make_points(
            files.texts,
            text,
            [Axis.parse(axis) for axis in options["axes"]],
            range(options["seeds"]),
            [path.absolute() for path in workload],
            options["profile"],
        )
    except (SweepError, PolicyErrors) as error:
        raise click.UsageError(str(error)) from error
    try:
        directory.mkdir(parents=True, exist_ok=True)
        known = read_results(directory / _RESULTS)
        missing = [point for point in points if point.key not in known]
        if len(missing) < len(points):
            click.echo(f"{len(points) - len(missing)} of {len(points)} are there", err=True)
        with executor(options["executor"], options["jobs"]) as pool:
            for one in _computed(pool, missing, directory / _RESULTS):
                known[one.key] = one
        results = [known[point.key] for point in points]
        write_table(directory / "results.csv", results)
        chart = bar_chart(results)
        (directory / "chart.svg").write_text(chart, encoding="utf-8")
    except (WorkloadError, ClusterFileError, ManifestError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{directory}: {len(results)} results, {len(missing)} of them new")


@contextmanager
def executor(where: str, jobs: int | None) -> Iterator[Executor]:
    """Who computes. Raises `click.UsageError` for what cannot be."""
    if where == "processes":
        count = jobs or len(os.sched_getaffinity(0))
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, mp_context=spawn) as pool:
            yield pool
        return
    if not where.startswith(_DASK):
        raise click.UsageError(f"--executor: want `processes` or `dask://HOST:PORT`, got `{where}`")
    try:
        from distributed import Client
    except ImportError as error:
        raise click.UsageError(
            "--executor dask://: Dask is not installed\nhint: pip install starsched[dask]"
        ) from error
    with Client(f"tcp://{where.removeprefix(_DASK)}") as client:  # type: ignore[no-untyped-call]  # it has no types
        yield client.get_executor(pure=False)


def read_results(path: Path) -> dict[str, Measured]:
    """What was computed before, by key; a last line that was cut off is left out."""
    found = {}
    if path.exists():
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            path.write_bytes(whole)
        for line in whole.splitlines():
            one = msgspec.json.decode(line, type=Measured)
            found[one.key] = one
    return found


def _computed(pool: Executor, points: Sequence[Point], path: Path) -> Iterator[Measured]:
    progress = Progress(
        TextColumn("simulations"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with path.open("ab") as log, progress:
        bar = progress.add_task("simulations", total=len(points))
        waiting = [pool.submit(measure, point) for point in points]
        try:
            for done in as_completed(waiting):
                one = done.result()
                log.write(msgspec.json.encode(one) + b"\n")
                log.flush()
                progress.advance(bar)
                yield one
        finally:
            for future in waiting:
                future.cancel()


def write_table(path: Path, results: Sequence[Measured]) -> None:
    """Write *results* as CSV: one line a simulation."""
    arguments = list(dict.fromkeys(name for one in results for name in one.arguments))
    metrics = list(dict.fromkeys(name for one in results for name in one.metrics))
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*arguments, "seed", "revision", *metrics])
        for one in results:
            values = [one.arguments[name] for name in arguments]
            measured = [one.metrics.get(name, 0.0) for name in metrics]
            table.writerow([*values, one.seed, one.revision, *measured])


def bar_chart(results: Sequence[Measured]) -> str:
    """The measures that differ, each as bars by combination: means, with the span over seeds."""
    groups: dict[str, list[Measured]] = {}
    for one in results:
        label = ", ".join(f"{k.rsplit('.', 1)[-1]}={v}" for k, v in one.arguments.items())
        groups.setdefault(label, []).append(one)
    names = [
        name
        for name in dict.fromkeys(name for one in results for name in one.metrics)
        if len({one.metrics.get(name, 0.0) for one in results}) > 1
    ]
    row, top, left, width = 18, 26, 330, 420
    panel = top + row * len(groups) + 10
    height = max(40, panel * len(names))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" width="900" '
        f'height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="900" height="{height}" fill="white"/>',
    ]
    if not names:
        parts.append('<text x="10" y="20">no measure differs</text>')
    for number, name in enumerate(names):
        y = number * panel
        most = max(one.metrics.get(name, 0.0) for one in results) or 1.0
        parts.append(f'<text x="10" y="{y + 18}" font-weight="bold">{escape(name)}</text>')
        for place, (label, group) in enumerate(groups.items()):
            values = [one.metrics.get(name, 0.0) for one in group]
            mean = sum(values) / len(values)
            at, middle = y + top + place * row, y + top + place * row + 7
            low, high = (left + width * value / most for value in (min(values), max(values)))
            parts += [
                f'<text x="{left - 8}" y="{at + 11}" text-anchor="end">{escape(label)}</text>',
                f'<rect x="{left}" y="{at}" width="{width * mean / most:.1f}" height="14" '
                'fill="#1f77b4"/>',
                f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="black"/>',
                f'<text x="{left + width + 10}" y="{at + 11}">{mean:.4g}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])
