"""`make bench-rollout`: edits of policies, good and bad, rolled out under load.

Three groups. `edits`: on a real control plane, pods come and go at a steady rate while one edit
after the other is made of the policies in force; three of ten are bad in ways that checks and tests
do not find. The stages are the shipped default, but for what the output says. Afterwards: no bad
edit decided for more than 5 % of the pods, every good one came into force, every pod is bound, once
and on one node. `cost`: the workload `plain` of `make bench`, in turn with and without a shadow.
`equivalence`: two equivalent texts over decisions of the openb trace, and a text that differs for
one pod in ten thousand. Exits with 1 if a check fails.

\b
Examples:
  make bench-rollout
  make bench-rollout ARGS="--groups edits --quick"
  make bench-rollout ARGS="--groups edits --edits 40 --shipped"
  make bench-rollout ARGS="--groups edits --seed 7 --minutes 60"
  make bench-rollout ARGS="--groups cost,equivalence --output json build/rollout.json"
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from devkit.benchmarks import measure, report
from devkit.benchmarks.edits import BAD, GOOD
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.rolling import IN_FORCE, MOST_SHARE, REFUSED, Fate, Run, Settings, run
from devkit.benchmarks.running import json_path, named, output_options, run_to_end
from devkit.benchmarks.shadowed import FIGURES, KINDS, measure_cost
from engine.comparing.difference import MOVED
from engine.rollout.measures import ShadowMeasures
from tests.engine.rollout.shadow.openb import BASE, ODD_TASTE, decided, rephrased

GROUPS: Final = ("edits", "cost", "equivalence")
#: Of the equivalent texts, and of the one that differs for one pod.
EQUIVALENT_DECISIONS: Final = 20_000
ODD_DECISIONS: Final = 10_000
_QUICK_EDITS: Final = 14
_MOST_PROBLEMS: Final = 20


# --- edits -----------------------------------------------------------------------------------


def as_result(found: Run, settings: Settings) -> dict[str, Any]:
    """The result of the group `edits` as plain data."""
    makers = [row for maker in (*GOOD, *BAD) if (row := _row(maker, found.fates)) is not None]
    return {
        "settings": asdict(settings),
        "departures": settings.departures(),
        "makers": makers,
        "edits": len(found.fates),
        "bad": sum(fate.is_bad for fate in found.fates),
        "seconds_per_edit": round(found.seconds / max(1, len(found.fates)), 2),
        "seconds": round(found.seconds, 1),
        "pods": found.pods,
        "bound": found.bound,
        "binding_answers": found.binding_answers,
        "peak_mib": round(found.peak_mib, 1),
        "problems": found.problems,
        "fates": [asdict(fate) | {"share": round(fate.share, 5)} for fate in found.fates],
    }


def _row(maker: str, fates: Sequence[Fate]) -> dict[str, Any] | None:
    """What became of the edits of *maker*; None if it made none."""
    mine = [fate for fate in fates if fate.maker == maker]
    if not mine:
        return None
    refused = [fate for fate in mine if fate.outcome == REFUSED]
    by_stage = {
        "shadow": sum(fate.stage == "shadow" for fate in refused),
        "canary": sum(fate.stage.startswith("canary") for fate in refused),
    }
    gates = sorted({gate for fate in refused for gate in fate.gates})
    return {
        "maker": maker,
        "is_bad": mine[0].is_bad,
        "edits": len(mine),
        **by_stage,
        "elsewhere": len(refused) - sum(by_stage.values()),
        "in_force": sum(fate.outcome == IN_FORCE for fate in mine),
        "refused_before": sum(bool(fate.refused_before) for fate in mine),
        "gates": gates,
        "worst_share": round(max(fate.share for fate in mine), 5),
        "median_seconds": round(report.median([fate.seconds for fate in mine]), 1),
    }


def print_edits(result: Mapping[str, Any]) -> None:
    """The table by maker, and what was checked."""
    departures = "; ".join(result["departures"]) or "nothing"
    _say(f"stages: the shipped default; what differs: {departures}")
    report.print_table(
        f"{result['edits']} edits, {result['bad']} of them bad",
        ("edit", "", "edits", "shadow", "canary", "elsewhere", "in force", "worst share",
         "median s", "gates"),
        [
            [
                row["maker"],
                "bad" if row["is_bad"] else "good",
                *(f"{row[key]}" for key in ("edits", "shadow", "canary", "elsewhere", "in_force")),
                f"{100 * row['worst_share']:.2f} %",
                f"{row['median_seconds']}",
                ", ".join(row["gates"]),
            ]
            for row in result["makers"]
        ],
        texts=2,
    )  # fmt: skip
    again = sum(row["refused_before"] for row in result["makers"])
    _say(f"{again} good edits were refused at first, and rolled out again")
    answers = ", ".join(f"{n} x {code}" for code, n in result["binding_answers"].items())
    _say(
        f"{result['seconds_per_edit']} s an edit; {result['pods']} pods, {result['bound']} bound; "
        f"the API server answered bindings with {answers or 'nothing'}"
    )
    for problem in result["problems"][:_MOST_PROBLEMS]:
        _say(f"[red]check failed[/red]: {problem}")
    if not result["problems"]:
        _say(
            f"checked: no bad edit decided for more than {MOST_SHARE:.0%} of the pods, every good "
            "one is in force, no pod lost, none bound twice"
        )


# --- the shadow ------------------------------------------------------------------------------


def print_cost(cost: Mapping[str, Any]) -> None:
    """What the shadow costs."""
    report.print_table(
        "plain, with and without a shadow",
        ("", "pods/s", "p99 ms", "decision p99 ms", "CPU/pod ms"),
        [[kind, *(f"{cost['runs'][kind][key]:.2f}" for key in FIGURES)] for kind in KINDS],
    )
    _say(f"pods/s with a shadow over without, by round: {cost['ratios']}")
    _say(
        f"the shadow compared {cost['compared']} of {cost['decided']} decisions, "
        f"{cost['compared_per_second']} a second"
    )


def measure_equivalence(equivalent: int, odd: int, reporter: report.Reporter) -> dict[str, Any]:
    """Two proofs over the openb trace, without a control plane."""
    found: dict[str, Any] = {"problems": []}
    with reporter.part("equivalent texts"):
        same = decided(
            BASE | rephrased(),
            equivalent,
            progress=lambda done: reporter.step("deciding", done, equivalent),
        )
    with reporter.part("one pod in ten thousand"):
        one = decided(
            BASE | {"taste.star": ODD_TASTE},
            odd,
            odd * 97 // 100,
            progress=lambda done: reporter.step("deciding", done, odd),
        )
    for name, got, want in (("equivalent", same, {}), ("odd", one, {MOVED: 1})):
        found[name] = {"decided": got.decided, "compared": got.compared, "counts": got.counts}
        found["problems"] += _not_as(name, got, want)
    found["odd"]["examples"] = [asdict_of(example) for example in one.examples]
    return found


def asdict_of(example: Any) -> dict[str, Any]:
    """An example's pod, and what makes the difference."""
    return {"pod": example.pod, "policy": example.policy, "place": example.place}


def _not_as(name: str, got: ShadowMeasures, want: Mapping[str, int]) -> list[str]:
    problems = []
    if got.counts != want:
        problems.append(f"{name}: differences {got.counts}, want {dict(want)}")
    if got.compared != got.decided:
        problems.append(f"{name}: {got.compared} of {got.decided} decisions compared")
    return problems


def print_equivalence(result: Mapping[str, Any]) -> None:
    """Both proofs, one line each."""
    for name in ("equivalent", "odd"):
        of = result[name]
        _say(f"{name}: {of['compared']} of {of['decided']} decisions compared, {of['counts']}")
    for problem in result["problems"]:
        _say(f"[red]check failed[/red]: {problem}")


def _say(text: str) -> None:
    report.OUT.print(text, highlight=False, soft_wrap=True)


# --- the command -----------------------------------------------------------------------------


@click.command(help=__doc__)
@click.option("--groups", default=",".join(GROUPS), show_default=True, help="Comma-separated.")
@click.option("--edits", default=Settings.edits, show_default=True)
@click.option("--bad", default=Settings.bad, show_default=True, help="Share of bad edits.")
@click.option("--seed", default=Settings.seed, show_default=True)
@click.option("--nodes", default=Settings.nodes, show_default=True, help="Of the edits.")
@click.option("--rate", default=Settings.rate, show_default=True, help="Pods created per second.")
@click.option("--seconds", default=Settings.seconds, show_default=True, help="A stage at least.")
@click.option("--compared", default=Settings.compared, show_default=True, help="By the shadow.")
@click.option(
    "--decisions", default=Settings.decisions, show_default=True, help="In each step of the canary."
)
@click.option("--cores", default=Settings.cores, show_default=True, help="For the shadow.")
@click.option(
    "--minutes", type=float, help="After which no further edit is made, however many were wanted."
)
@click.option("--shipped", is_flag=True, help="Only the durations differ from the default stages.")
@click.option("--quick", is_flag=True, help=f"{_QUICK_EDITS} edits, one per maker.")
@click.option("--cost-nodes", default=5000, show_default=True, help="Of the group cost.")
@click.option("--cost-pods", default=2000, show_default=True, help="Measured, of the group cost.")
@click.option("--repeat", default=3, show_default=True, help="Rounds of the group cost.")
@click.option("--equivalent", default=EQUIVALENT_DECISIONS, show_default=True, help="Decisions.")
@click.option("--odd", default=ODD_DECISIONS, show_default=True, help="Decisions.")
@output_options
def main(
    groups: str,
    edits: int,
    bad: float,
    seed: int,
    nodes: int,
    rate: float,
    seconds: float,
    compared: int,
    decisions: int,
    cores: float,
    minutes: float | None,
    shipped: bool,
    quick: bool,
    cost_nodes: int,
    cost_pods: int,
    repeat: int,
    equivalent: int,
    odd: int,
    output: str,
    file: str | None,
) -> None:
    chosen = named(groups, GROUPS)
    output_path = json_path(output, file)
    settings = Settings(
        edits=_QUICK_EDITS if quick else edits, bad=6 / _QUICK_EDITS if quick else bad, seed=seed,
        nodes=nodes, rate=rate, seconds=seconds, compared=compared, cores=cores,
        decisions=decisions, minutes=minutes,
    )  # fmt: skip
    if shipped:
        settings = settings.as_shipped()
    facts = {"machine": describe_machine(), "versions": {"starsched": source_revision()}}
    reporter = report.Reporter()
    results: dict[str, Any] = {}
    if "edits" in chosen:
        with reporter.part(f"{settings.edits} edits"):
            found = run_to_end(run(settings, reporter.step, lambda fate: _note(reporter, fate)))
        results["edits"] = as_result(found, settings)
    if "cost" in chosen:
        load = measure.Settings(nodes=cost_nodes, pods=cost_pods)
        results["cost"] = run_to_end(measure_cost(load, repeat, reporter))
    if "equivalence" in chosen:
        results["equivalence"] = measure_equivalence(equivalent, odd, reporter)
    if output_path is not None:
        report.write_json({"benchmark": "bench-rollout", **facts, "results": results}, output_path)
    if output_path != "-":
        report.print_facts(facts)
        shown = {"edits": print_edits, "cost": print_cost, "equivalence": print_equivalence}
        for name, result in results.items():
            shown[name](result)
    sys.exit(1 if any(result.get("problems") for result in results.values()) else 0)


def _note(reporter: report.Reporter, fate: Fate) -> None:
    """Print at once what must not be: such a run is long."""
    if problem := fate.problem():
        reporter.note(problem)


if __name__ == "__main__":
    main()
