"""`starsched replay`: decide a recorded log again."""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.policy.errors import PolicyErrors
from engine.recording.entries import Entry
from engine.surfaces.cli.console import escape, escape_lines, make_console, say
from engine.surfaces.cli.input_error import InputError, input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import config_option
from engine.surfaces.cli.progress_bar import progress_bar
from engine.surfaces.cli.terminal import is_wide, wide_option
from workbench.cli.file_notes import report_damage
from workbench.cli.policy_option import read_bundle
from workbench.cli.table import grouped, pods_text, print_table, several, stem_of
from workbench.replay.decision_log import Damage, read_log
from workbench.replay.replay import Outcome, Replayer

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
@wide_option
@output_option("How to print it.")
def replay_command(log: Path, policies: str | None, config: Path | None, output: str) -> None:
    """Decide again what the decision log LOG records: a file, or a directory of `run --record`.

    Each decision is made on the state in which it was recorded, by the recorded policies, and
    compared byte for byte. The first difference is reported in full: the entry, the pod, what
    was decided and what is decided now, and whether the inputs are as recorded. With other
    policies, a pod for which only the number of feasible nodes is another is counted apart, and
    is no difference. A log that ends in the middle of an entry, as after a crash, is replayed up to
    there, and reported.

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
    same, revisions, damage = 0, dict[str, None](), Damage()
    differences, alike = list[Outcome](), list[Outcome]()
    try:
        with input_errors():
            for outcome in watched(replayer, log, damage):
                revisions[outcome.revision] = None
                if outcome.is_same:
                    same += 1
                elif bundle is not None and not outcome.different_fate:
                    alike.append(outcome)
                else:
                    differences.append(outcome)
    except PolicyErrors as error:
        raise InputError(f"{log}: {error}") from error
    finally:
        replayer.close()
        report_damage(damage, *replayer.bundles)  # also if it is why the rest makes no sense
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
            "alike": alike,
        }
        print_json(result)
    else:
        by = f"recorded by {', '.join(revisions) or 'no policies'}"
        by += f", replayed by {bundle.revision}" if bundle is not None else ""
        _print(replayer, by, same, len(alike), differences)
    raise SystemExit(DIFFERENT if differences else SAME)


def watched(replayer: Replayer, log: Path, damage: Damage) -> Iterator[Outcome]:
    """The outcomes of *log*, with a progress bar on a terminal."""
    progress = progress_bar("decisions")
    with progress:
        bar = progress.add_task("replaying", total=None)
        for outcome in replayer.outcomes(read_log(log, damage)):
            progress.advance(bar)
            yield outcome


def _print(replayer: Replayer, by: str, same: int, alike: int, differences: list[Outcome]) -> None:
    console = make_console()
    counts = f"{same} the same, {len(differences)} different"
    if alike:
        counts += f", {alike} with the same outcome and other feasible nodes"
    say(console, escape(f"{replayer.decisions} decisions {by}: {counts}"))
    if replayer.gaps:
        lost = "gaps where entries were lost; replay resumes after each"
        say(console, f"the log has {replayer.gaps} {lost}")
    if not differences:
        return
    first = differences[0]
    at = datetime.datetime.fromtimestamp(first.at, datetime.UTC).isoformat(timespec="milliseconds")
    where = f"entry {first.number} at {at}, pod {first.pod} ({first.uid})"
    console.print()
    say(console, escape(f"first difference: {where}"))
    for member in first.changed:
        say(console, f"  {escape(member)}:")
        say(console, escape_lines(f"    recorded  {_text(first.recorded, member)}"))
        say(console, escape_lines(f"    replayed  {_text(first.replayed, member)}"))
    for note in first.notes or ("the inputs are as recorded",):
        say(console, f"  {escape_lines(note)}")
    groups = grouped(differences[1:], _what_differs)
    shown = groups if is_wide() else groups[:_SHOWN]
    if shown:
        console.print()
        say(console, "next differences:")
    print_table(console, ("pods", "entries", "recorded", "replayed"), map(_row, shown))
    if len(groups) > len(shown):
        say(console, f"and {len(groups) - len(shown):,} more: --wide and --output json have all")


def _what_differs(one: Outcome) -> tuple[object, ...]:
    """What is the same for the pods of one row: not the nodes, of which each can have its own."""
    entries = (one.recorded, one.replayed)
    return stem_of(one.pod), tuple("a node" if e.get("node") else _fate(one, e) for e in entries)


def _row(group: Sequence[Outcome]) -> tuple[str, ...]:
    was, now = (
        several(_fate(one, entry) for one, entry in entries)
        for entries in ([(o, o.recorded) for o in group], [(o, o.replayed) for o in group])
    )
    numbers = several(str(one.number) for one in group)
    return escape(pods_text([one.pod for one in group])), numbers, escape(was), escape(now)


def _fate(one: Outcome, said: Entry) -> str:
    """What *said* of a pod in which its node is the same, or else its node, or why it has none."""
    if "node" in one.changed:
        return str(said.get("node") or said.get("message") or "-").partition("\n")[0]
    member = (*one.different_fate, *one.changed)[0]
    return f"{member} {_text(said, member)}".partition("\n")[0]


def _text(said: Entry, member: str) -> str:
    value: Any = said.get(member)
    if value is None:
        return "-"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
