"""`starsched sweep`: simulations over a grid of arguments and seeds, on many processes."""

import logging
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from engine.files.cluster_file import ClusterFileError
from engine.files.world import ManifestError
from engine.lib.cores import usable_cores
from engine.lib.deep_json import UNREADABLE
from engine.policy.errors import PolicyErrors
from engine.surfaces.cli.console import make_console
from engine.surfaces.cli.input_error import InputError, input_errors, reason_of
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import naming, write_file
from engine.surfaces.cli.policy_paths import is_among, read_config
from engine.surfaces.cli.progress_bar import progress_bar
from engine.surfaces.cli.terminal import wide_option
from engine.telemetry.logs import configure_logging
from workbench.cli.file_notes import report_workload
from workbench.cli.input_path import kept_copy, workload_argument
from workbench.cli.policy_option import known_profile, policy_options, read_bundle
from workbench.cli.supervised_worker import PolicyEndedError
from workbench.cli.supervisor import INTERRUPTED
from workbench.cli.sweep_reports import (
    FormatError,
    bar_chart,
    print_means,
    renew_other_table,
    require_parquet,
    write_table,
)
from workbench.cli.sweep_workers import measure_supervised, portable_measure
from workbench.simulation.sweep import Axis, Measured, Point, SweepError, make_points
from workbench.simulation.workload import WorkloadError, read_workload

_DASK: Final = "dask://"
_RESULTS: Final = "results.jsonl"
# What a line of it begins with.
_BEGIN: Final = b'{"key":"'


@click.command("sweep", short_help="Simulate a grid of arguments and seeds.")
@workload_argument
@policy_options
@click.option(
    "--set",
    "axes",
    multiple=True,
    required=True,
    metavar="PLUGIN.ARG=V,V",
    help="An argument of a policy and the values to try; several options make a grid.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs of each combination; the first as written, the others shuffled.",
)
@click.option("--profile", default="", metavar="NAME", help="Decide every pod by this profile.")
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Directory of the results. Existing results are not computed again.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Format of the table of results. Parquet needs the package pyarrow.",
)
@click.option(
    "--executor",
    default="processes",
    show_default=True,
    metavar="WHERE",
    help="`processes` of this machine, or a Dask cluster: `dask://HOST:PORT`.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Number of processes. Default: one per core."
)
@wide_option
@output_option("How to print the results: means by combination, or every result.")
def sweep_command(workload: tuple[Path, ...], **options: Any) -> None:
    """Simulate WORKLOAD with every combination of the values of `--set`, and every seed.

    WORKLOAD is what `simulate` takes. DIR gets results.jsonl (each result as it is computed, so
    that an interrupted sweep can continue), the table results.csv or results.parquet, and
    chart.svg. A result is identified by a hash of its policies, arguments, workload and seed, so
    whatever changed is computed again. Workers of Dask read the workload from the same paths; one
    from a pipe or `-` is copied to DIR.

    Exit codes: 0 all was computed, 1 a simulation failed, 2 wrong usage, or policies, workload
    or earlier results cannot be used, 130 interrupted.

    \b
    Examples:
      starsched sweep cluster.json.gz --to out \\
        --set NodeResourcesFit.scoringStrategy.type=LeastAllocated,MostAllocated
      starsched sweep nodes.csv pods.csv --to out --seeds 5 --format parquet \\
        --set NodeResourcesBalancedAllocation.resources='[{name: cpu}],[{name: memory}]'
      starsched sweep cluster.json.gz --to out --output json \\
        --set InterPodAffinity.hardPodAffinityWeight=1,10 | jq '.results[].metrics.placed'
    """
    configure_logging(verbosity=-1, log_format="text")
    directory: Path = options["directory"]
    if options["form"] == "parquet":
        try:
            require_parquet()
        except FormatError as error:
            raise click.UsageError(str(error)) from error
    with input_errors():
        # Every process reads the workload, so it has to be a file.
        workload = tuple(
            kept_copy(path, directory / f"workload-{number}-{path.name}")
            for number, path in enumerate(workload, 1)
        )
    points = _points(workload, options)
    log = directory / _RESULTS
    with input_errors():
        directory.mkdir(parents=True, exist_ok=True)
    known = _known(log)
    missing = [point for point in points if point.key not in known]
    if len(missing) < len(points):
        click.echo(f"{len(points) - len(missing)} of {len(points)} results exist", err=True)
    try:
        with _ended_by_signals(), executor(options["executor"], options["jobs"]) as pool:
            for one in _computed(pool, missing, log):
                known[one.key] = one
        results = [known[point.key] for point in points]
        table, chart = directory / f"results.{options['form']}", directory / "chart.svg"
        with input_errors():
            write_table(table, results)
            renew_other_table(table, results)
            write_file(chart, bar_chart(results))
    except KeyboardInterrupt:
        # Asked again: a result may have been written that `known` does not have yet.
        known = _known(log)
        there = sum(point.key in known for point in points)
        click.echo(
            f"interrupted: {there} of {len(points)} results are in {log}; "
            "the same command continues from there",
            err=True,
        )
        raise SystemExit(INTERRUPTED) from None
    except PolicyEndedError as error:
        raise click.ClickException(str(error)) from error
    except BrokenProcessPool as error:
        raise click.ClickException(
            "a process that simulated died: out of memory?\nhint: run fewer at once with --jobs"
        ) from error
    except OSError as error:
        raise click.ClickException(reason_of(error)) from error
    except (ManifestError, ClusterFileError, WorkloadError) as error:
        raise click.ClickException(str(error)) from error
    if options["output"] == "json":
        said = {
            "table": str(table),
            "chart": str(chart),
            "new": len(missing),
            "results": results,
        }
        print_json(said)
        return
    console = make_console()
    print_means(results, console)
    click.echo(f"{directory}: {len(results)} results, {len(missing)} of them new")


def _known(log: Path) -> dict[str, Measured]:
    """The results in *log* by key. Raises `InputError` if it has other lines or cannot be read."""
    try:
        with input_errors():
            return read_results(log)
    except SweepError as error:
        raise InputError(str(error)) from error


def _points(workload: tuple[Path, ...], options: dict[str, Any]) -> list[Point]:
    """The grid of the options, over a readable workload.

    Raises `click.UsageError` or `InputError` with what is wrong, before anything runs.
    """
    bundle, files = read_bundle(options["policies"], options["config"])
    known_profile(bundle, options["profile"])
    config: Path | None = options["config"]
    # A configuration of the policies' own is among their files already.
    is_apart = config is not None and not is_among(config, files)
    text = read_config(config) if config is not None and is_apart else None
    try:
        with input_errors(workload):
            read = read_workload(*workload)
            report_workload(read, bundle)
            return make_points(
                files.texts,
                text,
                [Axis.parse(axis) for axis in options["axes"]],
                range(options["seeds"]),
                [path.absolute() for path in workload],
                options["profile"],
            )
    except (SweepError, PolicyErrors) as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def executor(where: str, jobs: int | None) -> Iterator[Executor]:
    """The executor of simulations. Raises `click.UsageError` for one that cannot be used."""
    if where == "processes":
        count = jobs or max(1, int(usable_cores()))
        spawn = multiprocessing.get_context("spawn")
        # Ctrl-C reaches every process of the terminal: only this one is to answer.
        with ProcessPoolExecutor(count, mp_context=spawn, initializer=_ignore_signals) as pool:
            try:
                yield pool
            except (KeyboardInterrupt, PolicyEndedError):
                # Otherwise the pool would wait for simulations that are not needed any more.
                for worker in multiprocessing.active_children():
                    worker.kill()
                raise
        return
    if not where.startswith(_DASK):
        raise click.UsageError(f"--executor: want `processes` or `dask://HOST:PORT`, got `{where}`")
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise click.UsageError(
            "--executor dask://: want Dask, which is not installed\n"
            "hint: pip install distributed, or starsched[dask]"
        ) from error
    address = where.removeprefix(_DASK)
    # Its errors are reported below, without tracebacks.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(f"tcp://{address}")  # type: ignore[no-untyped-call]  # it has no types
    except (OSError, ValueError) as error:
        raise click.ClickException(f"--executor {where}: {error}") from error
    with client:
        if not client.nthreads():  # type: ignore[no-untyped-call]  # the same
            click.echo(f"{where} has no workers yet: waiting for them", err=True)
        try:
            yield client.get_executor(pure=False)  # type: ignore[no-untyped-call]  # the same
        except ImportError as error:
            raise click.ClickException(
                f"--executor {where}: a worker lacks starsched, or has another version: {error}"
            ) from error
        except (CancelledError, KilledWorker) as error:
            what = "its workers died" if isinstance(error, KilledWorker) else "it went away"
            raise click.ClickException(
                f"--executor {where}: {what}\n"
                "hint: the results so far are kept; the same command continues from there"
            ) from error


def _ignore_signals() -> None:
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM, of a CI job that took too long, ends a sweep as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def read_results(path: Path) -> dict[str, Measured]:
    """The results of earlier runs, by key; a truncated last one is removed.

    Raises `SweepError` for any other invalid line, and then removes nothing.
    """
    found = {}
    if path.exists():
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        rest = text[len(whole) :]
        if not rest.startswith(_BEGIN[: len(rest)]):
            whole = text  # cut off, or something that is no result: refused below
        elif rest:
            write_file(path, whole)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                one = msgspec.json.decode(line, type=Measured)
            except UNREADABLE as error:
                raise SweepError(
                    f"{path}:{number}: want a result of a sweep: {error}\n"
                    "hint: delete the line, or take another directory with --to"
                ) from error
            found[one.key] = one
    return found


def _submit(pool: Executor, point: Point) -> Future[Measured]:
    if isinstance(pool, ProcessPoolExecutor):
        return pool.submit(measure_supervised, point)
    return pool.submit(portable_measure(), msgspec.json.encode(point))


def _computed(pool: Executor, points: Sequence[Point], path: Path) -> Iterator[Measured]:
    progress = progress_bar()
    with naming(path), path.open("ab") as log, progress:
        bar = progress.add_task("simulations", total=len(points))
        waiting = [_submit(pool, point) for point in points]
        try:
            for done in as_completed(waiting):
                one = done.result()
                log.write(msgspec.json.encode(one) + b"\n")
                log.flush()
                progress.advance(bar)
                yield one
        except PolicyEndedError:
            raise  # nothing is cancelled, as if interrupted
        except Exception:
            # Not if interrupted: cancelling futures fails in a pool with killed workers.
            for future in waiting:
                future.cancel()
            raise
