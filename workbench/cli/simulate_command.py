"""`starsched simulate`: a workload in virtual time, decided by the engine itself."""

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from engine.core.model.quantity import amount_text
from engine.explaining.event_words import in_words
from engine.lib.printable import counted, printable
from engine.policy.bundle import Bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.surfaces.cli.console import escape, make_console, say
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.input_error import input_errors, require_places
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.output_file import write_file
from engine.surfaces.cli.progress_bar import progress_bar
from engine.surfaces.cli.terminal import is_wide, wide_option
from engine.telemetry.logs import configure_logging
from workbench.cli.band_chart import Bands, band_chart
from workbench.cli.file_notes import report_replaced, report_workload
from workbench.cli.input_path import workload_argument
from workbench.cli.line_chart import line_chart
from workbench.cli.policy_option import known_profile, policy_options, read_bundle
from workbench.cli.queue_report_text import print_queues
from workbench.cli.table import Column, grouped, numbers, pods_text, print_table, stem_of
from workbench.simulation.shares_over_time import DEEPEST, Curves
from workbench.simulation.simulation import Simulation
from workbench.simulation.simulation_report import (
    Placement,
    Recorder,
    Report,
    Step,
    most_allocatable,
    placements,
    queue_curves,
    report,
)
from workbench.simulation.workload import Workload, read_workload

# Twenty times the largest cluster that Kubernetes supports.
_MOST_NODES: Final = 100_000


@click.command("simulate", short_help="Schedule a workload in virtual time.")
@workload_argument
@policy_options
@click.option(
    "--profile",
    metavar="NAME",
    help="Decide every arriving pod by this profile (a `schedulerName`). Default: its own.",
)
@click.option(
    "--nodes",
    metavar="+N",
    default="+0",
    show_default=True,
    help="Add N nodes, copies of the most common ones.",
)
@click.option(
    "--seed",
    type=int,
    help="Shuffle pods that arrive at the same moment, and vary tie-breaking. Default: as written.",
)
@click.option(
    "--retry/--no-retry",
    default=True,
    show_default=True,
    help="Try pods that fit nowhere again when an event may help.",
)
@click.option(
    "--group-by",
    default="",
    metavar="LABEL",
    help="Measure fairness over the values of this label. Default: over namespaces.",
)
@click.option(
    "--steps",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the state at every moment to a CSV file.",
)
@click.option(
    "--chart",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw usage and waiting pods over time; FILE ends in .svg.",
)
@click.option(
    "--chart-shares",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw what queues of the tree had over time, as bands, and what they deserved, as lines; "
    "FILE ends in .svg.",
)
@click.option(
    "--shares-of",
    default="",
    metavar="RESOURCE",
    help="What of queues is reported and drawn. Default: the resource that most is in use of.",
)
@click.option(
    "--queue-level",
    type=click.IntRange(1, DEEPEST),
    default=1,
    show_default=True,
    help="Report the queues that are so far below the root.",
)
@click.option(
    "--placements",
    "shows_placements",
    is_flag=True,
    help="Also print where each pod went, and when, in seconds of virtual time.",
)
@emulated_version_option("that of the snapshot or log")
@wide_option
@output_option("How to print the result; csv: the placements alone.", "csv")
def simulate_command(workload: tuple[Path, ...], **options: Any) -> None:
    """Schedule the pods of WORKLOAD in virtual time, and report the result.

    WORKLOAD is one of these; several are one workload:

    \b
    - a snapshot, manifests or a directory of them: every pending pod arrives
      at the start, and so do the pods of workloads (Deployment, Job, ...) that
      have not created theirs
    - a decision log of `run --record`, a file or the directory: pods arrive as
      recorded
    - events, `.jsonl`: {"at": 5, "add": {manifest}, "for": 60},
      {"at": 5, "add": {manifest}, "runs": 60}, {"at": 9, "delete": "node/n1"}
    - nodes or pods in the columns of the openb trace, `.csv`
    - a document of facts, which policies read as `node.facts` and the like

    The engine is that of a running scheduler, queue and preemption included; the simulated API
    server answers at once. The same workload, policies and seed give the same result.

    Exit codes: 0 no pod waits in the end, 3 some still wait, 1 a policy or the simulation failed,
    2 wrong usage, or policies or workload cannot be used.

    \b
    Examples:
      starsched simulate cluster.json.gz --policies ./policies
      starsched simulate cluster.json.gz deployment.yaml facts.yaml --nodes +10
      starsched simulate /var/log/starsched --policies ./policies-new --steps use.csv
      starsched simulate nodes.csv pods.csv --config gpu.yaml --profile gpu --chart use.svg
      starsched simulate day.jsonl --policies ./policies --chart-shares shares.svg
      starsched simulate cluster.json.gz --placements
      starsched simulate cluster.json.gz --output csv > placements.csv
      starsched simulate cluster.json.gz --output json | jq .reasons
      kubectl get nodes,pods -A -o yaml | starsched simulate -
    """
    chart: Path | None = options["chart"]
    chart_of_shares: Path | None = options["chart_shares"]
    for name, path in (("--chart", chart), ("--chart-shares", chart_of_shares)):
        if path is not None and path.suffix != ".svg":
            raise click.BadParameter(
                f"want a file name that ends in .svg, got `{path}`", param_hint=name
            )
    require_places(options["steps"], chart, chart_of_shares)
    configure_logging(verbosity=-1, log_format="text")
    bundle, _ = read_bundle(options["policies"], options["config"])
    if chart_of_shares is not None and bundle.queue_tree is None:
        raise click.UsageError(
            "--chart-shares: the policies have no QueueTree, so that there are no shares"
        )
    with input_errors(workload):
        planned = _planned(bundle, workload, options)
        recorder = Recorder()
        simulation = _run(bundle, planned, recorder, retries=options["retry"])
    report_workload(planned, bundle)
    of_queues = {"resource": options["shares_of"], "level": options["queue_level"]}
    result = report(simulation, recorder.steps, group_by=options["group_by"], **of_queues)
    report_replaced(result.replaced)
    with input_errors():
        if options["steps"] is not None:
            write_steps(options["steps"], recorder.steps)
        if chart is not None:
            write_file(chart, _chart(recorder.steps))
        if chart_of_shares is not None:
            resource, found = queue_curves(simulation, recorder.steps, **of_queues)
            title = f"What queues have of {resource} (bands), and deserve (lines)"
            write_file(chart_of_shares, band_chart([bands_of(title, resource, found)]))
    placed = placements(simulation)
    if options["output"] == "json":
        not_applied = planned.cluster.not_applied
        print_json({**result.to_plain(), "placements": placed, "not_applied": not_applied})
    elif options["output"] == "csv":
        click.echo(_placements_csv(placed), nl=False)
    else:
        print_report(result)
        if options["shows_placements"]:
            print_placements(placed)
    raise SystemExit(1 if result.failed else 3 if result.pending else 0)


def _planned(bundle: Bundle, paths: tuple[Path, ...], options: dict[str, Any]) -> Workload:
    """The workload with everything that the options change in it."""
    planned = read_workload(*paths, minor=options["emulated_version"])
    more: str = options["nodes"]
    count = more.removeprefix("+")
    if not count.isdecimal() or int(count) > _MOST_NODES:
        wanted = f"want `+N`, at most +{_MOST_NODES}, got `{more}`"
        raise click.BadParameter(wanted, param_hint="--nodes")
    if options["profile"]:
        known_profile(bundle, options["profile"])
        planned = planned.decided_as(options["profile"])
    planned = planned.with_nodes(int(count))
    return planned if options["seed"] is None else planned.shuffled(options["seed"])


def _run(bundle: Bundle, workload: Workload, recorder: Recorder, *, retries: bool) -> Simulation:
    progress = progress_bar()
    evaluator = InProcessEvaluator(bundle.program)
    with progress:
        bar = progress.add_task("pods", total=len(workload.arrivals))

        def on_moment(simulation: Simulation) -> None:
            recorder(simulation)
            progress.update(bar, completed=len(simulation.lives))

        simulation = Simulation(bundle, evaluator, workload, on_moment=on_moment, retries=retries)
        try:
            simulation.run()
        finally:
            evaluator.close()
    return simulation


def write_steps(path: Path, steps: list[Step]) -> None:
    """Write *steps* as CSV: one line a moment, requested and allocatable by resource."""
    names = sorted({name for step in steps for name in step.allocatable})
    shown = [printable(name) for name in names]
    text = StringIO(newline="")
    table = csv.writer(text)
    head = ["at", "arrived", "placed", "pending", "evictions"]
    queues = sorted({path for step in steps for path in step.queues if path})
    of_queues = [(path, part) for path in queues for part in ("allocated", "requested", "share")]
    table.writerow(
        [
            *head,
            *(f"{part}:{name}" for name in shown for part in ("requested", "allocatable")),
            *(f"{part}:{printable(path)}:{name}" for path, part in of_queues for name in shown),
        ]
    )
    for step in steps:
        amounts = (
            part.get(name, 0) for name in names for part in (step.requested, step.allocatable)
        )
        row = [step.at, step.arrived, step.placed, step.pending, step.evictions]
        table.writerow([*row, *amounts, *_of_queues(step, of_queues, names)])
    write_file(path, text.getvalue())


def _of_queues(
    step: Step, columns: Sequence[tuple[str, str]], names: Sequence[str]
) -> Iterator[int | str]:
    """What queues had at a moment; empty where there is no queue, or no share."""
    for path, part in columns:
        queue = step.queues.get(path)
        amounts = None if queue is None else getattr(queue, part)
        yield from ("" if amounts is None else amounts.get(name, 0) for name in names)


def bands_of(title: str, resource: str, found: Curves) -> Bands:
    """The panel of *found*, in the units that people write."""
    unit = 1000 if resource == "cpu" else 1
    used, due = (
        {path: [value / unit for value in values] for path, values in curve.items()}
        for curve in (found.used, found.deserved)
    )
    return Bands(title, found.times, used, due, found.capacity / unit)


def _placements_csv(placed: Sequence[Placement]) -> str:
    text = StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(Placement.__struct_fields__)
    for one in placed:
        cells = msgspec.structs.astuple(one)
        table.writerow([printable(cell) if isinstance(cell, str) else cell for cell in cells])
    return text.getvalue()


def print_placements(placed: Sequence[Placement]) -> None:
    """Print where each pod went, equal pods of one time and node in one row."""
    groups = grouped(placed, lambda one: (stem_of(one.pod), *msgspec.structs.astuple(one)[1:]))
    rows = (
        (
            escape(pods_text([one.pod for one in group])),
            escape(group[0].node or "-"),
            *(
                "-" if at is None else f"{at:g} s"
                for at in (group[0].arrived_at, group[0].placed_at, group[0].gone_at)
            ),
            escape(group[0].reason),
        )
        for group in groups
    )
    times = numbers("arrived at", "placed at", "gone at")
    columns: list[str | Column] = ["pods", "node", *times, "reason"]
    print_table(make_console(), columns, rows)


def _chart(steps: list[Step]) -> str:
    names = [name for name in most_allocatable(steps) if name != "pods"]
    used = {name: [100 * step.share(name) for step in steps] for name in names}
    return line_chart(
        [step.at for step in steps],
        [
            ("Requested of what there is, %", 100.0, used),
            ("Pods that wait", None, {"pending": [float(step.pending) for step in steps]}),
        ],
    )


def print_report(result: Report) -> None:
    """Print *result* for people."""
    console = make_console()
    gone = f", {result.completed} completed" if result.completed else ""
    gone += f", {result.given_up} never got a node" if result.given_up else ""
    gone += f", {result.evicted} evicted and not replaced" if result.evicted else ""
    failed = f" ({result.failed} of failing policies)" if result.failed else ""
    colour = "red" if result.pending else "green"
    say(
        console,
        f"[bold]{counted(result.arrived, 'pod')}[/bold]: {result.placed} placed{gone}, "
        f"[{colour}]{result.pending} pending[/{colour}]{failed}; {result.evictions} evictions, "
        f"{result.decisions} decisions in {result.seconds:g} s of virtual time",
    )
    say(
        console,
        f"{result.nodes} nodes, {result.empty_nodes} of them empty; until a node: median "
        f"{result.waits[0]:g} s, 99 % within {result.waits[1]:g} s",
    )
    columns = ("requested", "of", "in the end", "on average", "at most", "fragmented")
    rows, unused = [], []
    for name, use in result.resources.items():
        if not use.peak and not is_wide():
            unused.append(name)
            continue
        amounts = (amount_text(name, a).split(" ")[0] for a in (use.requested, use.allocatable))
        parts = (use.final, use.mean, use.peak, use.fragmentation)
        rows.append((escape(name), *amounts, *(f"{100 * part:.2f} %" for part in parts)))
    print_table(console, ["resource", *numbers(*columns)], rows)
    if unused:
        say(console, f"not requested by any pod: {escape(', '.join(unused))}")
    if rows:
        said = "fragmented: the share of free resources that typical pods cannot use"
        say(console, f"[dim]{said}[/dim]")
    if len(result.groups) > 1:
        least = min(result.groups, key=lambda group: (result.groups[group], group))
        say(
            console,
            f"Fairness over {len(result.groups)} groups (Jain): {result.fairness:.3f}; "
            f"`{escape(least)}` got the least, {100 * result.groups[least]:.1f} % of its requests",
        )
    if result.queues is not None:
        print_queues(console, result.queues)
    for reason in result.reasons:
        examples = ", ".join(reason.examples)
        text = f"{reason.pods} pending, such as {examples}: {reason.reason}"
        say(console, escape(text))
    for line in in_words(*(reason.reason for reason in result.reasons)):
        say(console, f"  [dim]{escape(line)}[/dim]")
