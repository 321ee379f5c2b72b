"""`starsched diff`: what one set of policies decides differently from another."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING, NEWLY_PLACED
from engine.surfaces.cli import terminal
from engine.surfaces.cli.console import make_console
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.input_error import input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import config_option
from engine.surfaces.cli.terminal import wide_option
from engine.telemetry.logs import configure_logging
from workbench.cli.compared_texts import Side, compare_texts
from workbench.cli.comparison_text import print_comparison, seeds_option, simulated
from workbench.cli.file_notes import report_damage, report_workload
from workbench.cli.input_path import InputPath
from workbench.cli.plan_answer import print_differences, print_measures
from workbench.cli.policy_option import known_profile, read_bundle
from workbench.cli.queue_plan_text import print_queue_changes
from workbench.comparing.kinds import NEWLY_GATED, NEWLY_UNGATED
from workbench.plan.plan import Comparison as PlacedComparison
from workbench.replay.comparison import Comparison, compare_logs
from workbench.replay.decision_log import Damage, is_log, read_log
from workbench.simulation.workload import read_workload

WITHIN, EXCEEDED = 0, 1


class _Budget(click.ParamType[tuple[float, bool]]):
    """A number of pods, or a part of them: `2%`."""

    name = "budget"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, bool]:
        text = str(value)
        is_part = text.endswith("%")
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 0 <= number <= (100 if is_part else sys.float_info.max):
            wanted = "want a number of pods or a part of them such as `2%`"
            self.fail(f"{wanted}, got `{text}`", param, ctx)
        return number, is_part


@click.command("diff", short_help="Compare the decisions of two sets of policies.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--on",
    "inputs",
    type=InputPath(),
    multiple=True,
    required=True,
    metavar="INPUT",
    help="Input to decide: a snapshot or a workload as for `simulate` (repeatable), "
    "or a recorded log.",
)
@click.option(
    "--simulate",
    is_flag=True,
    help="Simulate a recorded log as a workload, instead of deciding each of its decisions again.",
)
@click.option(
    "--placed",
    "decides_placed",
    is_flag=True,
    help="Also decide the pods that have a node at the start, each as if it waited, as `plan` "
    "does.",
)
@config_option()
@click.option(
    "--profile",
    metavar="NAME",
    help="Decide every arriving pod by this profile (a `schedulerName`).",
)
@seeds_option
@click.option(
    "--max-moved",
    type=_Budget(),
    metavar="N|N%",
    help="Fail if more pods than this move, in any run.",
)
@click.option(
    "--max-pending-more",
    type=click.IntRange(min=0),
    metavar="N",
    help="Fail if, in any run, more than N additional pods are pending or never got a node.",
)
@emulated_version_option("that of the snapshot or log")
@wide_option
@output_option("How to print it.")
def diff_command(before: str, after: str, **options: Any) -> None:
    """Decide the same input with the policies A and with the policies B, and compare.

    A and B are directories, files with a ConfigMap, or `builtin`. Reported are the pods that move,
    become pending or placed, never get a node, are evicted and not replaced, or are pending for
    another reason; and the changes of usage, fragmentation and waiting, over several seeds with
    95 % confidence intervals. Pods that have a node at the start are decided with --placed only;
    otherwise the output says how many were not looked at.

    Exit codes: 0 within the budgets, or none given; 1 a budget is exceeded; 2 wrong usage,
    or policies or input cannot be used.

    \b
    Examples:
      starsched diff ./policies ./policies-new --on cluster.json.gz
      starsched diff ./policies ./policies-new --on cluster.json.gz --placed --max-moved 2%
      starsched diff builtin ./policies --on nodes.csv --on pods.csv --seeds 10
      starsched diff live.yaml ./policies --on /var/log/starsched --max-moved 2%
    """
    configure_logging(verbosity=-1, log_format="text")
    sides = [Side(*read_bundle(one, options["config"])) for one in (before, after)]
    for side in sides:
        known_profile(side.bundle, options["profile"])
    with input_errors(options["inputs"]):
        found = _compare(sides[0], sides[1], options)
    exceeded = _exceeded(found, options)
    if options["output"] == "json":
        result = {
            "before": sides[0].bundle.revision,
            "after": sides[1].bundle.revision,
            **msgspec.to_builtins(found.waiting),
            "placed": msgspec.to_builtins(found.placed),
            "not_looked_at": found.not_looked_at,
            "not_decided": found.not_decided,
            "not_applied": found.not_applied,
            "exceeded": exceeded,
        }
        print_json(result)
    else:
        _print(found, options)
        for line in exceeded:
            terminal.echo(f"exceeded: {line}")
    raise SystemExit(EXCEEDED if exceeded else WITHIN)


def _is_of_log(options: dict[str, Any]) -> bool:
    """True if recorded decisions are compared, of which a pod can have several."""
    return not options["simulate"] and any(is_log(path) for path in options["inputs"])


class _Found(NamedTuple):
    """What differs of pods that wait, of those that have a node, and how many of these are open.

    And how many pods neither side has a profile for, and the admission plugins that the pods did
    not pass.
    """

    waiting: Comparison
    placed: PlacedComparison | None = None
    not_looked_at: int = 0
    not_decided: int = 0
    not_applied: tuple[str, ...] = ()

    @property
    def pods(self) -> int:
        return self.waiting.pods + (self.placed.measures.compared_running if self.placed else 0)

    def counted(self, of_waiting: int, *kinds: str) -> int:
        counts = self.placed.measures.counts if self.placed else {}
        return of_waiting + sum(counts.get(kind, 0) for kind in kinds)


def _compare(before: Side, after: Side, options: dict[str, Any]) -> _Found:
    inputs: tuple[Path, ...] = options["inputs"]
    if _is_of_log(options):
        if len(inputs) > 1 or options["seeds"] > 1 or options["profile"]:
            raise click.UsageError(
                "want a recorded log alone, without --seeds and --profile\n"
                "hint: --simulate takes the log as a workload"
            )
        if options["emulated_version"] is not None:
            raise click.UsageError(
                "want a recorded log without --emulated-version: its decisions are made again for "
                "the version that they were made for\n"
                "hint: --simulate takes the log as a workload"
            )
        if options["decides_placed"]:
            raise click.UsageError(
                "want --placed without a recorded log, whose decisions are all decided again"
            )
        damage = Damage()
        found = compare_logs(before.bundle, after.bundle, read_log(inputs[0], damage))
        report_damage(damage, before.bundle, after.bundle)
        return _Found(found)
    workload = read_workload(*inputs, minor=options["emulated_version"])
    report_workload(workload, before.bundle, after.bundle)
    if options["profile"]:
        workload = workload.decided_as(options["profile"])
    found = simulated(before.bundle, after.bundle, workload, options["seeds"])
    cluster = workload.cluster
    names = {one.scheduler_name for side in (before, after) for one in side.bundle.profiles}
    found_of_all = _Found(
        found,
        not_decided=sum(one.pod.scheduler_name not in names for one in workload.arrivals),
        not_applied=cluster.not_applied,
    )
    if options["decides_placed"]:
        placed = compare_texts(cluster, before, after, options["config"])
        return found_of_all._replace(placed=placed)
    return found_of_all._replace(not_looked_at=sum(1 for _ in cluster.placed_pods()))


def _print(found: _Found, options: dict[str, Any]) -> None:
    names = ("A", "B")
    counted = "decisions" if _is_of_log(options) else "pods that arrive"
    said = []
    if found.not_decided:
        said.append(
            f"{found.not_decided:,} of them were not decided: no profile has their scheduler"
        )
    if found.not_looked_at:
        open_pods = f"{found.not_looked_at:,} placed pods were not looked at"
        said.append(f"{open_pods}; --placed decides them, too")
    print_comparison(found.waiting, counted, names, said)
    if found.placed is not None:
        console = make_console()
        print_measures(console, found.placed.measures)
        print_differences(console, found.placed.differences, names)
        if found.placed.queues is not None:
            print_queue_changes(console, found.placed.queues, names)


def _exceeded(found: _Found, options: dict[str, Any]) -> list[str]:
    lines = []
    if options["max_moved"] is not None:
        number, is_part = options["max_moved"]
        moved = found.counted(found.waiting.moved, MOVED)
        most = number * found.pods / 100 if is_part else number
        if moved > most:
            wanted = f"{number:g}%" if is_part else f"{number:g}"
            part = 100 * moved / found.pods
            lines.append(f"{moved} of {found.pods} move ({part:.1f}%), want at most {wanted}")
    more = options["max_pending_more"]
    pending = found.counted(found.waiting.pending_more, NEWLY_PENDING, FAILED, NEWLY_GATED)
    pending -= found.counted(0, NEWLY_PLACED, NEWLY_UNGATED)
    if more is not None and pending > more:
        what = "are pending" if _is_of_log(options) else "are pending or never got a node"
        lines.append(f"{pending} more {what}, want at most {more}")
    return lines
