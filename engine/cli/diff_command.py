"""`starsched diff`: what one set of policies decides differently from another."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.cli.comparison_text import print_comparison, seeds_option, simulated
from engine.cli.file_notes import report_damage, report_workload
from engine.cli.input_error import input_errors
from engine.cli.input_path import InputPath
from engine.cli.json_output import output_option, print_json
from engine.cli.policy_option import known_profile, read_bundle
from engine.cli.policy_paths import config_option
from engine.offline.decision_log import Damage, is_log, read_log
from engine.offline.workload import read_workload
from engine.policy.bundle import Bundle
from engine.recording.comparison import Comparison, compare_logs
from engine.telemetry.logs import configure_logging

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
@output_option("How to print it.")
def diff_command(before: str, after: str, **options: Any) -> None:
    """Decide the same input with the policies A and with the policies B, and compare.

    A and B are directories, files with a ConfigMap, or `builtin`. Reported are the pods that move,
    become pending or placed, never get a node, are evicted and not replaced, or are pending for
    another reason; and the changes of usage, fragmentation and waiting, over several seeds with
    95 % confidence intervals.

    \b
    Exit codes: 0 within the budgets, or none given; 1 a budget is exceeded; 2 wrong usage,
    or policies or input cannot be used.

    \b
    Examples:
      starsched diff ./policies ./policies-new --on cluster.json.gz
      starsched diff builtin ./policies --on nodes.csv --on pods.csv --seeds 10
      starsched diff live.yaml ./policies --on /var/log/starsched --max-moved 2%
    """
    configure_logging(verbosity=-1, log_format="text")
    bundles = (read_bundle(before, options["config"])[0], read_bundle(after, options["config"])[0])
    for bundle in bundles:
        known_profile(bundle, options["profile"])
    with input_errors(options["inputs"]):
        found = _compare(*bundles, options)
    exceeded = _exceeded(found, options)
    if options["output"] == "json":
        result = {
            "before": bundles[0].revision,
            "after": bundles[1].revision,
            **msgspec.to_builtins(found),
            "exceeded": exceeded,
        }
        print_json(result)
    else:
        print_comparison(found, "decisions" if _is_of_log(options) else "pods", ("A", "B"))
        for line in exceeded:
            click.echo(f"exceeded: {line}")
    raise SystemExit(EXCEEDED if exceeded else WITHIN)


def _is_of_log(options: dict[str, Any]) -> bool:
    """True if recorded decisions are compared, of which a pod can have several."""
    return not options["simulate"] and any(is_log(path) for path in options["inputs"])


def _compare(before: Bundle, after: Bundle, options: dict[str, Any]) -> Comparison:
    inputs: tuple[Path, ...] = options["inputs"]
    if _is_of_log(options):
        if len(inputs) > 1 or options["seeds"] > 1 or options["profile"]:
            raise click.UsageError(
                "want a recorded log alone, without --seeds and --profile\n"
                "hint: --simulate takes the log as a workload"
            )
        damage = Damage()
        found = compare_logs(before, after, read_log(inputs[0], damage))
        report_damage(damage)
        return found
    workload = read_workload(*inputs)
    report_workload(workload, before, after)
    if options["profile"]:
        workload = workload.decided_as(options["profile"])
    return simulated(before, after, workload, options["seeds"])


def _exceeded(found: Comparison, options: dict[str, Any]) -> list[str]:
    lines = []
    if options["max_moved"] is not None:
        number, is_part = options["max_moved"]
        most = number * found.pods / 100 if is_part else number
        if found.moved > most:
            wanted = f"{number:g}%" if is_part else f"{number:g}"
            part = 100 * found.moved / found.pods
            lines.append(f"{found.moved} of {found.pods} move ({part:.1f}%), want at most {wanted}")
    more = options["max_pending_more"]
    if more is not None and found.pending_more > more:
        what = "are pending" if _is_of_log(options) else "are pending or never got a node"
        lines.append(f"{found.pending_more} more {what}, want at most {more}")
    return lines
