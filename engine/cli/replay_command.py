"""`starsched replay`: decide a recorded log again."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.cli.file_notes import report_damage
from engine.cli.input_error import InputError, input_errors
from engine.cli.json_output import output_option, print_json
from engine.cli.policy_option import read_bundle
from engine.cli.policy_paths import config_option
from engine.cli.progress_bar import progress_bar
from engine.offline.decision_log import Damage, read_log
from engine.policy.errors import PolicyErrors
from engine.recording.entries import Entry
from engine.recording.replay import Outcome, Replayer

SAME, DIFFERENT = 0, 1
_SHOWN = 10


@click.command("replay", short_help="Decide a recorded log again.")
@click.argument("log", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--policies",
    metavar="DIR|FILE",
    help="Decide with the policies of this directory or file with a ConfigMap, or `builtin`, "
    "instead of the recorded ones: then the differences are the result.",
)
@config_option("A KubeSchedulerConfiguration for `--policies` without one.")
@output_option("How to print it.")
def replay_command(log: Path, policies: str | None, config: Path | None, output: str) -> None:
    """Decide again what the decision log LOG records: a file, or a directory of `run --record`.

    Each decision is made on the state in which it was recorded, by the recorded policies, and
    compared byte for byte. The first difference is reported in full: the entry, the pod, what
    was decided and what is decided now, and whether the inputs are as recorded. A log that
    ends in the middle of an entry, as after a crash, is replayed up to there, and reported.

    \b
    Exit codes: 0 all the same, 1 a difference, 2 wrong usage, or the log cannot be read.

    \b
    Examples:
      starsched replay /var/log/starsched
      starsched replay decisions-000007.jsonl.gz --policies ./policies
      starsched replay /var/log/starsched --output json | jq '.differences[].pod'
    """
    if config is not None and policies is None:
        raise click.UsageError("want --policies with --config")
    bundle = read_bundle(policies, config)[0] if policies is not None else None
    replayer = Replayer(bundle)
    same, differences, revisions, damage = 0, list[Outcome](), dict[str, None](), Damage()
    try:
        with input_errors():
            for outcome in watched(replayer, log, damage):
                revisions[outcome.revision] = None
                if outcome.is_same:
                    same += 1
                else:
                    differences.append(outcome)
    except PolicyErrors as error:
        raise InputError(f"{log}: {error}") from error
    finally:
        replayer.close()
        report_damage(damage)  # also if it is why the rest makes no sense
    if output == "json":
        result = {
            "cutOff": damage.cuts,
            "missing": damage.missing,
            "decisions": replayer.decisions,
            "same": same,
            "gaps": replayer.gaps,
            "revisions": list(revisions),
            "replayedBy": bundle.revision if bundle is not None else None,
            "differences": differences,
        }
        print_json(result)
    else:
        _print(replayer, same, differences, list(revisions), bundle.revision if bundle else None)
    raise SystemExit(DIFFERENT if differences else SAME)


def watched(replayer: Replayer, log: Path, damage: Damage) -> Iterator[Outcome]:
    """The outcomes of *log*, with a progress bar on a terminal."""
    progress = progress_bar("decisions")
    with progress:
        bar = progress.add_task("replaying", total=None)
        for outcome in replayer.outcomes(read_log(log, damage)):
            progress.advance(bar)
            yield outcome


def _print(
    replayer: Replayer,
    same: int,
    differences: list[Outcome],
    revisions: list[str],
    other: str | None,
) -> None:
    recorded = ", ".join(revisions) or "no policies"
    by = f"recorded by {recorded}" + (f", replayed by {other}" if other else "")
    click.echo(
        f"{replayer.decisions} decisions {by}: {same} the same, {len(differences)} different"
    )
    if replayer.gaps:
        click.echo(
            f"the log has {replayer.gaps} gaps where entries were lost; replay resumes after each"
        )
    if not differences:
        return
    first = differences[0]
    at = datetime.datetime.fromtimestamp(first.at, datetime.UTC).isoformat(timespec="milliseconds")
    click.echo(f"\nfirst difference: entry {first.number} at {at}, pod {first.pod} ({first.uid})")
    for member in first.changed:
        click.echo(f"  {member}:")
        click.echo(f"    recorded  {_text(first.recorded, member)}")
        click.echo(f"    replayed  {_text(first.replayed, member)}")
    for note in first.notes or ("the inputs are as recorded",):
        click.echo(f"  {note}")
    if len(differences) > 1:
        click.echo("\nnext differences:")
    for outcome in differences[1 : 1 + _SHOWN]:
        was, now = (_text(said, "node") for said in (outcome.recorded, outcome.replayed))
        click.echo(f"  entry {outcome.number}  {outcome.pod}  {was} -> {now}")
    if len(differences) > 1 + _SHOWN:
        click.echo(f"  and {len(differences) - 1 - _SHOWN} more: --output json has all")


def _text(said: Entry, member: str) -> str:
    value: Any = said.get(member)
    if value is None:
        return "-"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
