"""`make chaos`: two replicas on a real control plane whose network and processes fail.

A TCP proxy stands between each replica and kube-apiserver, and between that and etcd. By a seed,
connections are delayed, stalled, cut, refused, swallowed and slowed down, and replicas,
kube-apiserver and etcd are killed and frozen, while pods of every kind come and go and policies are
edited, well and badly. Afterwards everything that must hold is checked, from the objects, from
their whole history in etcd and from the audit log. Exits with 1 if something did not hold.

\b
Examples:
  make chaos
  make chaos ARGS="--minutes 2 --seed 7"
  make chaos ARGS="--minutes 5 --faults pause,kill --output json build/chaos.json"
"""

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from devkit.benchmarks import report
from devkit.benchmarks.chaos.plan import FAULTS
from devkit.benchmarks.chaos.run import Outcome, Run, Settings
from devkit.benchmarks.machine import describe_machine, source_revision
from devkit.benchmarks.running import json_path, named, output_options, run_to_end

_MOST_VIOLATIONS: Final = 40


def as_result(outcome: Outcome, settings: Settings) -> dict[str, Any]:
    """The outcome as plain data."""
    verdict = outcome.verdict
    return {
        "settings": asdict(settings),
        "seconds": round(outcome.seconds, 1),
        "faults": dict(sorted(outcome.steps.items())),
        "connections": outcome.connections,
        "processes": outcome.lives,
        "exits": dict(outcome.exits),
        "leaders": len(verdict.leaders),
        "edits": dict(outcome.edits),
        "pods": dict(sorted(outcome.pods.items())),
        "bound": verdict.bound,
        "unaudited": verdict.unaudited,
        "preempted": verdict.preempted,
        "binding_answers": dict(sorted(outcome.answers.items())),
        "settled_seconds": outcome.settled_seconds,
        "most_memory_mib": round(outcome.memory, 1),
        "violations": [violation._asdict() for violation in outcome.violations],
    }


def print_result(result: dict[str, Any]) -> None:
    """The tables, and what did not hold."""
    faults = [[name, str(count)] for name, count in result["faults"].items()]
    report.print_table("faults", ("fault", "count"), faults)
    settled = result["settled_seconds"]
    rows = {
        "seconds with faults": result["seconds"],
        "connections": result["connections"],
        "processes of replicas": result["processes"],
        "of them ended by themselves": sum(result["exits"].values()),
        "leaders, one after the other": result["leaders"],
        "edits, good and bad": " and ".join(str(n) for n in result["edits"].values()),
        "pods created": sum(result["pods"].values()),
        "pods bound": result["bound"],
        "pods preempted": result["preempted"],
        "answers to bindings": ", ".join(
            f"{n} x {code}" for code, n in result["binding_answers"].items()
        ),
        "seconds to rest": "never" if settled is None else f"{settled:.1f}",
        "most memory of a replica, MiB": result["most_memory_mib"],
    }
    report.print_table("what happened", ("", "count"), [[k, str(v)] for k, v in rows.items()])
    for one in result["violations"][:_MOST_VIOLATIONS]:
        _say(f"[red]check failed[/red]: {one['rule']}: {one['about']}: {one['text']}")
    if not result["violations"]:
        _say("checked: everything that must hold, held")


def _say(text: str) -> None:
    report.OUT.print(text, highlight=False, soft_wrap=True)


@click.command(help=__doc__)
@click.option("--minutes", default=Settings.minutes, show_default=True, help="With faults.")
@click.option("--seed", default=Settings.seed, show_default=True, help="Of faults and pods.")
@click.option("--faults", default=",".join(FAULTS), show_default=True, help="Comma-separated.")
@click.option("--every", default=Settings.every, show_default=True, help="Seconds between faults.")
@click.option("--rate", default=Settings.rate, show_default=True, help="Owners of pods a second.")
@click.option("--settle", default=Settings.settle, show_default=True, help="Seconds until rest.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory that is to have all logs and data afterwards.",
)
@output_options
def main(
    minutes: float,
    seed: int,
    faults: str,
    every: float,
    rate: float,
    settle: float,
    keep: Path | None,
    output: str,
    file: str | None,
) -> None:
    settings = Settings(minutes, seed, tuple(named(faults, FAULTS)), every, rate, settle)
    output_path = json_path(output, file)
    facts = {"machine": describe_machine(), "versions": {"starsched": source_revision()}}
    reporter = report.Reporter()
    with tempfile.TemporaryDirectory(prefix="starsched-chaos-") as scratch:
        directory = Path(scratch) if keep is None else keep
        with reporter.part(f"chaos, seed {seed}"):
            outcome = run_to_end(Run(settings, directory, reporter.note).run())
    result = as_result(outcome, settings)
    if output_path is not None:
        report.write_json({"benchmark": "chaos", **facts, "results": result}, output_path)
    if output_path != "-":
        report.print_facts(facts)
        print_result(result)
    sys.exit(1 if result["violations"] else 0)


if __name__ == "__main__":
    main()
