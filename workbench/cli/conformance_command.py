"""`starsched conformance`: compare our answers with recorded ones of kube-scheduler."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from engine.core.framework.behaviors import RELEASED
from engine.files.cluster_file import ClusterFileError
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.input_error import InputError
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.progress_bar import progress_bar
from workbench.cli.input_path import InputPath
from workbench.conformance.conformance import (
    Agreement,
    CaseRunner,
    Outcome,
    Scenario,
    ScenarioError,
    read_scenarios,
)


@click.command("conformance", short_help="Compare our answers with kube-scheduler's.")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=InputPath(dir_okay=False),
    metavar="FILE...",
)
@emulated_version_option(f"1.{RELEASED}")
@output_option("How to print the outcome.")
def conformance_command(files: tuple[Path, ...], emulated_version: int | None, output: str) -> None:
    """Decide every incoming pod of recorded scenarios with the shipped policies.

    Each FILE holds one scenario a line: nodes, placed pods, other objects, an optional
    KubeSchedulerConfiguration, incoming pods and what kube-scheduler answered for each. It may be
    compressed; `-` is the standard input. Every difference is printed. An answer that needs a
    plugin that is not shipped is unsupported. Differences that are meant are counted and not
    printed; docs/parity.md lists them. The last line counts the answers.

    Exit codes: 0 no answer differs, 1 some do, 2 the command cannot run.

    \b
    Examples:
      starsched conformance recorded/resources.jsonl
      starsched conformance recorded/*.jsonl --output json
      starsched conformance recorded-1.38/*.jsonl.gz --emulated-version 1.38
    """
    try:
        scenarios = {path: list(read_scenarios(path)) for path in files}
    except (ScenarioError, ClusterFileError) as error:
        raise InputError(str(error)) from error
    outcomes = _run(scenarios, RELEASED if emulated_version is None else emulated_version)
    every = [outcome for found in outcomes.values() for outcome in found]
    counts = Counter(outcome.agreement for outcome in every)
    if output == "json":
        print_json(_plain(outcomes))
    else:
        for path, found in outcomes.items():
            _print(path, found)
        click.echo(_summary(counts))
    raise SystemExit(1 if counts[Agreement.DIFFERS] else 0)


def _run(scenarios: dict[Path, list[Scenario]], minor: int) -> dict[Path, list[Outcome]]:
    runner = CaseRunner(minor)
    # On stderr, so that stdout can be redirected; silent unless it is a terminal.
    progress = progress_bar()
    outcomes: dict[Path, list[Outcome]] = {}
    with progress:
        for path, found in scenarios.items():
            bar = progress.add_task(path.name, total=sum(len(s.incoming) for s in found))
            outcomes[path] = []
            for scenario in found:
                outcomes[path] += runner.run(scenario)
                progress.advance(bar, len(scenario.incoming))
    return outcomes


def _print(path: Path, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.agreement is Agreement.DIFFERS:
            click.echo(f"{path.name} {outcome.scenario} {outcome.pod}")
            for difference in outcome.differences:
                click.echo(f"  {difference}")
    counts = Counter(outcome.agreement for outcome in outcomes)
    text = f"{path.name}: {_counted(counts)}"
    missing = Counter(plugin for outcome in outcomes for plugin in outcome.missing)
    if missing:
        named = ", ".join(f"{plugin} ({n})" for plugin, n in sorted(missing.items()))
        text += f"; not shipped: {named}"
    click.echo(text)


def _counted(counts: Counter[Agreement]) -> str:
    text = (
        f"{counts[Agreement.MATCHED]} matched, {counts[Agreement.DIFFERS]} differ, "
        f"{counts[Agreement.UNSUPPORTED]} unsupported"
    )
    on_purpose = counts[Agreement.ON_PURPOSE]
    return f"{text}, {on_purpose} differ on purpose" if on_purpose else text


def _summary(counts: Counter[Agreement]) -> str:
    return f"answers: {_counted(counts)}"


def _plain(outcomes: dict[Path, list[Outcome]]) -> dict[str, Any]:
    files = []
    total: Counter[Agreement] = Counter()
    for path, found in outcomes.items():
        counts = Counter(outcome.agreement for outcome in found)
        total += counts
        files.append(
            {
                "file": str(path),
                **_plain_counts(counts),
                "missing": dict(sorted(Counter(p for o in found for p in o.missing).items())),
                "differences": [
                    {"scenario": o.scenario, "pod": o.pod, "differences": list(o.differences)}
                    for o in found
                    if o.agreement is Agreement.DIFFERS
                ],
            }
        )
    return {"files": files, **_plain_counts(total)}


def _plain_counts(counts: Counter[Agreement]) -> dict[str, int]:
    return {
        "matched": counts[Agreement.MATCHED],
        "differ": counts[Agreement.DIFFERS],
        "unsupported": counts[Agreement.UNSUPPORTED],
        "onPurpose": counts[Agreement.ON_PURPOSE],
    }
