"""`python -m devkit.faults`: simulates clusters full of faults until something must not be.

Each seed is a world of its own: an API server, one to three schedulers with leader election, users
that change things, and faults of the kinds that the seed has chosen, all in virtual time. The same
seed does the same again, byte for byte. What must hold is checked at every step and at rest; the
first world where it does not is printed with its plan, made as small as it still fails, and the
exit code is 1.

\b
Examples:
  python -m devkit.faults --seed 7
  python -m devkit.faults --runs 200 --jobs 2
  python -m devkit.faults --hours 8 --from 1000
  python -m devkit.faults --plan failed.json
  python -m devkit.faults --list-faults
"""

import itertools
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from devkit.faults.faults import all_kinds
from devkit.faults.plans import decode, encode, plan_of, smaller
from devkit.faults.reached import possible
from devkit.faults.steering import Steering
from devkit.faults.story import simulated
from devkit.faults.world import Outcome, Plan
from workbench.cli.table import numbers, print_table

_OUT: Final = Console()
_ERR: Final = Console(stderr=True)
_YEAR_SECONDS: Final = 365 * 86_400.0
_MOST_SHOWN: Final = 5
_MOST_LINES: Final = 30
_RUNS: Final = 20


@dataclass(slots=True)
class Totals:
    """The sum of many worlds.

    Attributes:
        digests: By seed, of all that went over its network.
    """

    worlds: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    digests: dict[int, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome, cpu_seconds: float) -> None:
        """Count *outcome* in."""
        self.worlds += 1
        self.seconds += outcome.seconds
        self.cpu_seconds += cpu_seconds
        self.digests[outcome.plan.seed] = outcome.digest
        self.faults += outcome.faults
        self.counts += outcome.counts
        self.reached += outcome.reached


def simulate(plan: Plan) -> tuple[Outcome, float]:
    """What became of the world of *plan*, and the seconds of CPU that it took."""
    started = time.process_time()
    outcome = simulated(plan)
    return outcome, time.process_time() - started


@click.command(help=__doc__)
@click.option("--seed", type=int, help="One world: that of this seed.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False),
    help="One world, as written.",
)
@click.option("--runs", type=click.IntRange(1), help=f"So many seeds; default: {_RUNS}.")
@click.option("--hours", type=click.FloatRange(0, min_open=True), help="As many as fit.")
@click.option("--from", "first", default=1, show_default=True, help="The first seed.")
@click.option(
    "--seconds", type=float, help="Virtual seconds of faults; default: the seed's choice."
)
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count(), help="Worlds at a time.")
@click.option("--shrink/--no-shrink", default=True, help="Make a plan that fails smaller.")
@click.option("--list-faults", is_flag=True, help="Show the kinds of faults.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def main(
    seed: int | None,
    plan_file: str | None,
    runs: int | None,
    hours: float | None,
    first: int,
    seconds: float | None,
    jobs: int,
    shrink: bool,
    list_faults: bool,
    output: str,
) -> None:
    """Simulate, show what came of it, and exit."""
    if list_faults:
        for name in all_kinds():
            click.echo(name)
        return
    # The API server would print each request that a fault has garbled.
    logging.getLogger("aiohttp").addHandler(logging.NullHandler())
    plans: Iterator[Plan]
    steering = Steering(seconds)
    if plan_file is not None:
        try:
            plans = iter([decode(Path(plan_file).read_bytes())])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise click.UsageError(f"{plan_file}: want a plan as JSON: {error}") from error
    elif seed is not None:
        plans = iter([plan_of(seed, seconds)])
    elif hours is not None:
        plans = map(steering.plan, itertools.count(first))
    else:
        plans = (plan_of(number, seconds) for number in range(first, first + (runs or _RUNS)))
    totals = Totals()
    limit = None if hours is None else hours * 3600
    failed = _run(plans, jobs, limit, totals, steering.learn)
    if failed is not None and shrink:
        failed = _shrunk(failed)
    if output == "json":
        click.echo(as_json(totals, failed))
    else:
        _show(totals, failed)
    sys.exit(0 if failed is None else 1)


def _run(
    plans: Iterator[Plan],
    jobs: int,
    limit: float | None,
    totals: Totals,
    learn: Callable[[Outcome], None],
) -> Outcome | None:
    """Simulate *plans*, for *limit* seconds at most; the first outcome that fails."""
    ends_at = None if limit is None else time.monotonic() + limit
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=_ERR, transient=True) as progress:
        task = progress.add_task("worlds", total=None)

        def note(outcome: Outcome, cpu_seconds: float) -> None:
            totals.add(outcome, cpu_seconds)
            learn(outcome)
            progress.update(task, description=_sum_of(totals))

        if jobs == 1:
            for plan in plans:
                outcome, cpu_seconds = simulate(plan)
                note(outcome, cpu_seconds)
                if outcome.violations:
                    return outcome
                if ends_at is not None and time.monotonic() > ends_at:
                    return None
            return None
        with ProcessPoolExecutor(jobs) as pool:
            running: set[Future[tuple[Outcome, float]]] = set()
            try:
                while True:
                    is_over = ends_at is not None and time.monotonic() > ends_at
                    while not is_over and len(running) < jobs:
                        following = next(plans, None)
                        if following is None:
                            break
                        running.add(pool.submit(simulate, following))
                    if not running:
                        return None
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for one in done:
                        outcome, cpu_seconds = one.result()
                        note(outcome, cpu_seconds)
                        if outcome.violations:
                            return outcome
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _shrunk(failed: Outcome) -> Outcome:
    rule = failed.violations[0].rule
    _ERR.print(f"seed {failed.plan.seed} fails: {rule}. Making it smaller.", highlight=False)
    found = failed

    def fails(plan: Plan) -> bool:
        nonlocal found
        outcome, _ = simulate(plan)
        if any(one.rule == rule for one in outcome.violations):
            found = outcome
            return True
        return False

    smaller(failed.plan, fails)
    return found


def _sum_of(totals: Totals) -> str:
    return (
        f"{totals.worlds} worlds, {totals.seconds / _YEAR_SECONDS:.4f} virtual years, "
        f"{totals.faults.total()} faults, {totals.counts['bound']} pods bound"
    )


def _show(totals: Totals, failed: Outcome | None) -> None:
    rows = ((name, str(count)) for name, count in sorted(totals.faults.items()))
    print_table(_OUT, ["fault", *numbers("times")], rows)
    others = ", ".join(f"{count} {name}" for name, count in sorted(totals.counts.items()))
    _OUT.print(f"{_sum_of(totals)}; {totals.cpu_seconds:.0f} s of CPU", highlight=False)
    _OUT.print(others, highlight=False, soft_wrap=True)
    known = possible(all_kinds())
    missed = sorted(known - totals.reached.keys())
    reached = len(known) - len(missed)
    _OUT.print(f"{reached} of {len(known)} transitions reached")
    if totals.worlds > 1 and missed:
        _OUT.print("Never reached:", *missed, sep="\n  ", highlight=False)
    if failed is None:
        return
    for found in failed.violations[:_MOST_SHOWN]:
        _OUT.print(f"[red]failed[/red]: {found.rule}: {found.about}", highlight=False)
        _OUT.print(found.text, highlight=False, markup=False, soft_wrap=True)
    _OUT.print("The last that was logged:", highlight=False)
    for line in list(failed.log)[-_MOST_LINES:]:
        _OUT.print(line, highlight=False, markup=False, soft_wrap=True)
    _OUT.print("To see it again, write this to a file, and pass it as --plan:", highlight=False)
    _OUT.print(encode(failed.plan).decode(), highlight=False, markup=False, soft_wrap=True)


def as_json(totals: Totals, failed: Outcome | None) -> str:
    """What `--output json` prints; *failed* is the world that did not hold, if there is one."""
    shown: dict[str, Any] = {
        "totals": msgspec.to_builtins(totals, order="sorted"),
        "never_reached": sorted(possible(all_kinds()) - totals.reached.keys()),
        "failed": None
        if failed is None
        else msgspec.to_builtins(failed, order="sorted", enc_hook=list),  # of the log, a deque
    }
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
