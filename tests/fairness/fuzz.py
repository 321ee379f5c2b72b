"""`make fuzz-shares`: random trees of queues, our policies beside the originals' own code.

Owns the command line, what is printed, and the search. The cases are `generator`'s, what is
compared of them is `schemes`'.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass, field

import click

from tests.fairness import generator
from tests.fairness.originals import Original
from tests.fairness.schemes import KNOWN, Difference, compare
from tests.json_lines import Plain
from workbench.comparing.shrinking import Path as Place
from workbench.comparing.shrinking import shrink

_BATCH = 100


@dataclass(slots=True)
class Tally:
    """What came of a search.

    Attributes:
        cases, facts: How many were compared.
        known: How many facts differed for each reason of `KNOWN`.
        differing: The index of each case that differs for none, its case and its differences.
    """

    cases: int = 0
    facts: int = 0
    known: Counter[str] = field(default_factory=Counter)
    differing: list[tuple[int, Plain, list[Difference]]] = field(default_factory=list)


@click.command()
@click.option("--scheme", type=click.Choice(generator.SCHEMES), help="Only this one.")
@click.option("--seed", default=1, show_default=True, help="Another seed, other cases.")
@click.option("--count", default=2_000, show_default=True, help="How many cases of each scheme.")
@click.option("--start", default=0, help="The index of the first case.")
@click.option("--every", is_flag=True, help="Go on after a difference.")
def main(scheme: str | None, seed: int, count: int, start: int, every: bool) -> None:
    """Compare our policies of queues with their originals on random trees.

    Stops at the first case that differs, makes it small and prints it as a line.

    \b
    Exit codes: 0 no case differs, 1 some do, 2 the command cannot run.
    """
    found = False
    for name in [scheme] if scheme else generator.SCHEMES:
        with Original(name) as original:
            started = time.monotonic()
            tally = search(original, name, seed, range(start, start + count), every=every)
            elapsed = time.monotonic() - started
            for index, case, _ in tally.differing:
                small = small_case(original, name, case)
                click.echo(json.dumps(small, separators=(",", ":")))
                for difference in differences(original, name, small):
                    click.echo(f"  {difference}")
                again = f"--scheme {name} --seed {seed} --start {index} --count 1"
                click.echo(f"again: python -m tests.fairness.fuzz {again}\n")
        click.echo(_summary(name, tally, elapsed))
        found = found or bool(tally.differing)
    raise SystemExit(1 if found else 0)


def search(
    original: Original, scheme: str, seed: int, indexes: range, *, every: bool = True
) -> Tally:
    """Compare the cases of *indexes*; unless *every*, until one differs."""
    tally = Tally()
    for batch in batches(indexes, _BATCH):
        cases = [generator.case(scheme, seed, index) for index in batch]
        for index, case, answer in zip(batch, cases, original.answers(cases), strict=True):
            compared = compare(scheme, case, answer)
            tally.cases += 1
            tally.facts += compared.facts
            tally.known.update(one.known for one in compared.differences if one.known)
            if unknown := [one for one in compared.differences if not one.known]:
                tally.differing.append((index, case, unknown))
                if not every:
                    return tally
    return tally


def differences(original: Original, scheme: str, case: Plain) -> list[Difference]:
    """What differs in *case* for no reason that is known."""
    (answer,) = original.answers([case])
    return [one for one in compare(scheme, case, answer).differences if not one.known]


def small_case(original: Original, scheme: str, case: Plain) -> Plain:
    """*case* cut down to what its first kind of difference needs."""
    kinds = {_kind(one) for one in differences(original, scheme, case)[:1]}

    def differ(candidates: list[Plain]) -> list[bool]:
        return [
            _is_whole(one) and bool(kinds & {_kind(d) for d in differences(original, scheme, one)})
            for one in candidates
        ]

    return shrink(case, differ, untouched=frozenset({"args", "total"}), is_needed=_is_needed)


def _kind(difference: Difference) -> str:
    """What a fact is about, whichever queue it is of: its words but for paths."""
    words = difference.fact.split()
    return " ".join(word for word in words if "/" not in word and len(word) > 1)


def _is_whole(case: Plain) -> bool:
    """True if every queue is under one that is there."""
    return all(path.rpartition("/")[0] in case["queues"] for path in case["queues"] if "/" in path)


def _is_needed(place: Place) -> bool:
    """True for what every case and queue has."""
    return len(place) == 1 or place[-1] in ("attributes", "nominal", "max", "resources", "name")


def _summary(scheme: str, tally: Tally, elapsed: float) -> str:
    same = tally.cases - len(tally.differing)
    lines = [
        f"{scheme}: {same} of {tally.cases} cases match, {tally.facts} facts; "
        f"{tally.cases / max(elapsed, 1e-9):.0f} cases a second"
    ]
    lines += [f"  {count} on purpose: {KNOWN[name]}" for name, count in tally.known.items()]
    return "\n".join(lines)


def batches(indexes: range, size: int) -> list[range]:
    """*indexes* in ranges of *size*, the last of which may be smaller."""
    return [indexes[start : start + size] for start in range(0, len(indexes), size)]


if __name__ == "__main__":
    main()
