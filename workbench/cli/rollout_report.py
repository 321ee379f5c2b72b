"""`starsched rollout report`: all that is known of an edit, and a simulated hour under it.

Owns where both texts come from, and what the simulation is said to assume.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from engine.files.policy_files import PolicyFiles
from engine.lib.durations import go_duration
from engine.policy.bundle import Bundle
from engine.surfaces.cli import terminal
from engine.surfaces.cli.cluster_option import cluster_options
from engine.surfaces.cli.durations import DURATION
from engine.surfaces.cli.input_error import InputError, input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import config_option
from engine.surfaces.cli.terminal import wide_option
from engine.surfaces.cli.working import working
from engine.surfaces.live.answers import PoliciesPage, RolloutPage
from engine.surfaces.live.moments import at_text
from workbench.cli.comparison_text import print_comparison, seeds_option, simulated
from workbench.cli.file_notes import report_workload
from workbench.cli.leader_access import answer_of, leader_options
from workbench.cli.policy_option import decidable, read_bundle
from workbench.cli.rollout_text import print_rollout
from workbench.replay.comparison import Comparison
from workbench.replay.decision_log import is_log
from workbench.simulation.workload import RecordedPart, read_last

_WITHOUT: Final = "--policies A B says which texts are simulated without asking"
#: What the recorded hour cannot say of itself.
ASSUMPTIONS: Final = (
    "pods come and end, and nodes change, as recorded: what controllers, autoscalers and users "
    "would have done otherwise is not known",
    "each placement affects the next, so a small change can move many pods",
    "facts are those of the beginning, extenders are not called, and the API server answers at "
    "once",
)


@click.command("report", short_help="Report on an edit, with a simulation of the recorded hour.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    metavar="LOG",
    help="A decision log of `run --record`: a file, or the directory.",
)
@click.option(
    "--last",
    type=DURATION,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="The part of the log that is simulated: its last one that is so long.",
)
@click.option(
    "--policies",
    nargs=2,
    metavar="A B",
    help="Simulate under A and under B, each a directory, a file with a ConfigMap, or `builtin`. "
    "Default: the texts that the scheduler that leads has of both; with this it is not asked.",
)
@config_option("The scheduler's --config, if it has one.")
@seeds_option
@cluster_options
@leader_options
@wide_option
@output_option("How to print it.")
def report_command(log: Path, **options: Any) -> None:
    """Report on the edit that is rolled out, or was last.

    First comes what `status` prints: stages, gates, what was compared, and what differs. Then what
    one decision cannot show: the recorded pods of the last hour, scheduled in virtual time under
    the policies in force and under the candidate, each placement affecting the next. It is a
    simulation; the output says on what assumptions.

    Exit codes: 0 done, 1 the scheduler could not be asked, or has no such texts, 2 wrong usage, or
    policies or log cannot be used.

    \b
    Examples:
      starsched rollout report --log /var/log/starsched
      starsched rollout report --log /var/log/starsched --last 20m --seeds 5
      starsched rollout report --log ./log --output json | jq .simulation.metrics
      starsched rollout report --log ./log --policies ./policies ./policies-new
    """
    if options["last"] <= 0:
        raise click.BadParameter("want a duration above 0, such as `1h`", param_hint="--last")
    if not is_log(log):
        raise InputError(f"{log}: want a decision log of `run --record`, found none")
    page = None
    if not options["policies"]:
        page = answer_of(options, "/rollout", {}, RolloutPage, hint=_WITHOUT)
        if options["output"] == "text":
            print_rollout(page)
    before, after = _bundles(page, options)
    part = _read(log, options["last"])
    report_workload(part.workload, before, after)
    found = simulated(before, after, part.workload, options["seeds"])
    if options["output"] == "json":
        simulation = {
            "log": str(log),
            "from": at_text(part.began),
            "to": at_text(part.ended),
            "assumptions": ASSUMPTIONS,
            "before": before.revision,
            "after": after.revision,
            **msgspec.to_builtins(found),
        }
        print_json({"rollout": msgspec.to_builtins(page), "simulation": simulation})
    else:
        _print(found, part, (before.revision, after.revision), is_first=page is None)


def _bundles(page: RolloutPage | None, options: Mapping[str, Any]) -> tuple[Bundle, Bundle]:
    """The policies in force, or that were when the candidate came, and the candidate's."""
    config: Path | None = options["config"]
    if page is None:
        first, second = options["policies"]
        return read_bundle(first, config)[0], read_bundle(second, config)[0]
    if not page.candidate:
        raise click.ClickException(f"there is no edit to simulate\nhint: {_WITHOUT}")
    revisions = page.base, page.candidate
    known = answer_of(options, "/policies", {"texts": ",".join(revisions)}, PoliciesPage).texts
    if missing := [one for one in revisions if one not in known]:
        named = " and ".join(f"`{one}`" for one in missing)
        raise click.ClickException(
            f"the scheduler does not have the text of {named} any more\nhint: {_WITHOUT}"
        )
    first, second = (_bundle(one, known[one], config) for one in revisions)
    return first, second


def _bundle(revision: str, texts: Mapping[str, str], config: Path | None) -> Bundle:
    bundle = decidable(PolicyFiles(Path(revision), texts, frozenset()), config)
    if bundle.revision != revision:
        click.echo(
            f"note: `{revision}` is `{bundle.revision}` here: the scheduler is of another version "
            "or has another --config",
            err=True,
        )
    return bundle


def _read(log: Path, seconds: float) -> RecordedPart:
    with working("reading the log"), input_errors([log]):
        return read_last(log, seconds)


def _print(
    found: Comparison, part: RecordedPart, revisions: tuple[str, str], *, is_first: bool
) -> None:
    if not is_first:
        click.echo()
    took = go_duration(round(part.ended - part.began))
    terminal.echo_styled(f"A simulation of the recorded {took}", bold=True)
    began, ended = (at_text(one) for one in (part.began, part.ended))
    terminal.echo(f"  from {began} to {ended}, in virtual time, by {' and by '.join(revisions)}")
    for one in ASSUMPTIONS:
        terminal.echo(f"  {one}")
    names = ("A", "B") if is_first else ("in force", "candidate")
    print_comparison(found, "pods", names)
