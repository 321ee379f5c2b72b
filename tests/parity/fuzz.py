"""`make fuzz-parity`: random clusters, our answers beside kube-scheduler's, the first difference.

Owns the command line and what is printed. The scenarios are `generator`'s, asking `comparison`'s,
making a case small `comparing.shrinking`'s.
"""

import functools
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from engine.core.framework.behaviors import RELEASED, minor_of
from tests.parity import generator
from tests.parity.comparison import Comparison, Finding, Tally
from tests.parity.oracle import Oracle
from tests.scripts import script
from workbench.comparing.shrinking import Path as Place
from workbench.comparing.shrinking import shrink
from workbench.conformance.conformance import CaseRunner

Plain = dict[str, Any]

_BATCH = 64
_THEMES = [*generator.THEMES, *generator.GATED, *generator.NEWER]
# What makes it a case is never taken away, nor is what was answered.
_UNTOUCHED = frozenset({"id", "answers"})
_NEEDED = frozenset({"nodes", "incoming"})
#: The minor versions of Kubernetes whose plugins can be asked, oldest first.
MINORS: list[str] = script("devkit/controlplane/build.py").ORACLES


@click.command()
@click.option("--seed", default=1, show_default=True, help="Another seed, other clusters.")
@click.option("--count", default=2_000, show_default=True, help="How many answers to compare.")
@click.option("--minor", type=click.Choice(MINORS), help="Of Kubernetes; the newest released.")
@click.option("--theme", "themes", multiple=True, type=click.Choice(_THEMES))
@click.option("--without", default="", help=f"Parts to leave out: {', '.join(generator.PARTS)}.")
@click.option("--index", type=int, help="Only the scenarios of this index.")
@click.option("--every", is_flag=True, help="Go on after a difference; show one of each kind.")
@click.option("--whole", is_flag=True, help="Show differences as they are, do not shrink them.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the cases to this file too.")
def main(
    seed: int,
    count: int,
    minor: str | None,
    themes: tuple[str, ...],
    without: str,
    index: int | None,
    every: bool,
    whole: bool,
    out: Path | None,
) -> None:
    """Compare our answers with those of kube-scheduler's own plugins on random clusters.

    Themes of feature gates (lists and so on) are answered with these on, and only where they are
    named. Stops at the first difference, makes its case small and prints it as one scenario line.

    \b
    Exit codes: 0 no answer differs, 1 some do, 2 the command cannot run.
    """
    parts = frozenset(part for part in without.split(",") if part)
    if unknown := parts - set(generator.PARTS):
        raise click.UsageError(
            f"--without: want some of {', '.join(generator.PARTS)}, got {unknown}"
        )
    chosen = list(themes) or generator.themes(parts, number_of(minor))
    gates = frozenset[str]().union(*map(generator.gates_of, chosen))
    with Oracle(gates, minor) as oracle:
        comparison = comparison_of(oracle, gates, minor)
        started = time.monotonic()
        cases = scenarios(seed, chosen, parts, index)
        tally, differing = search(comparison, cases, count, every=every)
        elapsed = time.monotonic() - started
        kept = []
        for finding in differing:
            small = finding if whole else small_case(comparison, finding)
            kept.append(small)
            _print(small, finding, seed, parts, minor)
        if out is not None:
            out.write_text("".join(json.dumps(f.scenario) + "\n" for f in kept), encoding="utf-8")
    for text in sorted(set(tally.invalid))[:20]:
        click.echo(f"the generator made an invalid object: {text}")
    click.echo(_summary(tally, elapsed))
    raise SystemExit(1 if tally.findings or tally.invalid else 0)


def comparison_of(
    oracle: Oracle, gates: frozenset[str] = frozenset(), minor: str | None = None
) -> Comparison:
    """Compares with ours, with *gates* on, as in *minor*, such as `1.38`; None: the released."""
    return Comparison(oracle, functools.partial(CaseRunner, number_of(minor), gates))


def number_of(minor: str | None) -> int:
    """The 38 of `1.38`; None: that of the newest release."""
    return RELEASED if minor is None else minor_of(minor) or RELEASED


def scenarios(
    seed: int,
    themes: list[str],
    without: frozenset[str] = frozenset(),
    index: int | None = None,
) -> Iterator[Plain]:
    """Every theme once per index; without an index, for ever."""
    for i in itertools.count() if index is None else [index]:
        for theme in themes:
            yield generator.scenario(seed, i, theme, without)


def search(
    comparison: Comparison,
    cases: Iterator[Plain],
    count: int,
    *,
    every: bool = False,
) -> tuple[Tally, list[Finding]]:
    """Compare *count* answers; the sums, and one finding of each kind, or the first only."""
    total, kinds, differing = Tally(), set[str](), list[Finding]()
    # On stderr, so that what is printed can be kept; silent where nobody watches.
    progress = Progress(
        TextColumn("answers"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        bar = progress.add_task("answers", total=count)
        while total.answers < count:
            batch = list(itertools.islice(cases, _BATCH))
            if not batch:
                break
            for tally in comparison.compare(batch):
                total.add(tally)
                for finding in tally.findings:
                    if not finding.kinds <= kinds:
                        kinds |= finding.kinds
                        differing.append(finding)
            progress.update(bar, completed=total.answers)
            if differing and not every:
                return total, differing[:1]
    return total, differing


def small_case(comparison: Comparison, finding: Finding) -> Finding:
    """*finding* cut down to what its difference needs."""
    best: dict[str, Finding] = {}

    def still_differs(candidates: list[Plain]) -> list[bool]:
        results = []
        for candidate, tally in zip(candidates, comparison.compare(candidates), strict=True):
            found = next(iter(tally.findings), None)
            same = found is not None and bool(found.subjects & finding.subjects)
            results.append(same and not tally.invalid)
            if found is not None and results[-1]:
                best[_key(candidate)] = found
        return results

    # Fewer runs do for a start: what may be chance is asked more often.
    case = {**finding.scenario, "runs": min(finding.scenario.get("runs", 0), 8)}
    shrunk = shrink(case, still_differs, untouched=_UNTOUCHED, is_needed=is_needed)
    return best.get(_key(shrunk), finding)


def is_needed(place: Place) -> bool:
    """True for the members that every case has."""
    return len(place) == 1 and place[0] in _NEEDED


def _key(case: Plain) -> str:
    return json.dumps({name: value for name, value in case.items() if name != "answers"})


def _print(
    small: Finding, finding: Finding, seed: int, without: frozenset[str], minor: str | None
) -> None:
    identity = small.scenario["id"]
    theme, _, index = identity.split("-")
    click.echo(json.dumps(small.scenario, separators=(",", ":")))
    click.echo(f"{identity} {small.scenario['incoming'][0]['metadata'].get('name', '')}")
    for difference in small.differences:
        click.echo(f"  {difference}")
    if set(small.differences) != set(finding.differences):
        click.echo(f"  before shrinking: {'; '.join(finding.differences)}")
    parts = f" --without {','.join(sorted(without))}" if without else ""
    parts += f" --minor {minor}" if minor else ""
    click.echo(
        f"again: python -m tests.parity.fuzz --seed {seed} --theme {theme} --index {index}{parts}\n"
    )


def _summary(tally: Tally, elapsed: float) -> str:
    missing = f" (not shipped: {', '.join(sorted(tally.missing))})" if tally.missing else ""
    speed = tally.answers / max(elapsed, 1e-9)
    return (
        f"answers: {tally.matched} matched, {len(tally.findings)} differ, "
        f"{tally.on_purpose} on purpose, {tally.unsupported} unsupported{missing}; "
        f"{speed:.0f} a second"
    )


if __name__ == "__main__":
    main()
