"""The division of a total among those that want some of it.

Owns one algorithm with three ways to round, because the schemes that exist differ there and nowhere
else. Everybody begins with `start`, whatever the total is. What is left goes by weight to those
that want more, rank by rank, in rounds: who has all that it wants gives the rest back, for the next
round. It ends when nothing is left or when all have what they want.

Where the three differ, in a round that has 10 for three equal ones:

    largest_remainder   4, 3, 3: what rounding down left goes, one each, to the largest remainders
    nearest             3, 3, 3: each is rounded for itself, so that too little or too much is given
    whole               4, 3, 3: as the first, but what rounding down left waits for the last round,
                        after which no other follows

Source of the roundings: Koordinator after May 2026 (largest_remainder) and up to 1.8.0 (nearest),
KAI of August 2026 (whole).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

Rounding: TypeAlias = Literal["largest_remainder", "nearest", "whole"]
"""How parts that are no whole numbers are rounded."""

ROUNDINGS: Final = ("largest_remainder", "nearest", "whole")

#: A part of a cluster's capacity, as in `Entry.used`, is counted in these.
PARTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One that wants some of the total.

    Attributes:
        name: Its name; of equal claims the one with the smaller name gets what cannot be divided.
        start: What it has in any case.
        most: What it wants at most; None: all there is.
        weight: How much it gets of what is left, beside the others.
        rank: Those of the highest rank get all that they want before the next.
        used: The part of the cluster that it used in the past, in thousandths; only with `past`.
    """

    name: str
    start: int = 0
    most: int | None = None
    weight: int = 1
    rank: int = 0
    used: int = 0


def divide(
    total: int,
    entries: Sequence[Entry],
    rounding: Rounding = "largest_remainder",
    past: int = 0,
) -> dict[str, int]:
    """What each of *entries* gets of *total*, by name.

    *past*, in thousandths, is how much the weight of one counts less for each part of the cluster
    that it used, and more where that was less than its weight's part.
    """
    given = {one.name: one.start for one in entries}
    wants = {one.name: max(total, one.start) if one.most is None else one.most for one in entries}
    left = total - sum(given.values())
    ranks = sorted({one.rank for one in entries}, reverse=True)
    for rank in ranks:
        of_rank = sorted((one for one in entries if one.rank == rank), key=lambda one: one.name)
        if left > 0 and rounding == "whole":
            left = _whole(left, of_rank, given, wants, past)
        elif left > 0:
            left = _among(left, of_rank, given, wants, rounding, past)
    return given


def _among(
    left: int,
    entries: Sequence[Entry],
    given: dict[str, int],
    wants: dict[str, int],
    rounding: Rounding,
    past: int,
) -> int:
    """Give what is *left* to *entries* of one rank, in order of their names; the rest."""
    while left > 0:
        open_ = [one for one in entries if given[one.name] < wants[one.name]]
        weights = _weights(open_, past)
        if sum(weights) <= 0:
            return left
        parts = _parts(left, weights, rounding)
        if not any(parts):
            break
        back = left - sum(parts) if rounding != "nearest" else 0
        for one, part in zip(open_, parts, strict=True):
            taken = min(part, wants[one.name] - given[one.name])
            given[one.name] += taken
            back += part - taken
        left = back
    return left


def _whole(
    left: int, entries: Sequence[Entry], given: dict[str, int], wants: dict[str, int], past: int
) -> int:
    """As `_among`, but rounds follow only while one has all that it wants, and remainders last."""
    rests: dict[str, Fraction] = {}  # of those whose part was cut, in the last round that cut it
    while left > 0:
        open_ = [one for one in entries if given[one.name] < wants[one.name]]
        weights = _weights(open_, past)
        total, to_give, gives_back = sum(weights), left, False
        if total <= 0:
            break
        for one, weight in zip(open_, weights, strict=True):
            part, rest = divmod(to_give * weight, total)
            wanted = wants[one.name] - given[one.name]
            if wanted <= part:
                rests.pop(one.name, None)
                gives_back = gives_back or wanted < part or rest > 0
                part = wanted
            elif rest:
                rests[one.name] = Fraction(rest, total)
            given[one.name] += part
            left -= part
        if not gives_back:
            break
    for name in sorted(rests, key=lambda name: (-rests[name], name))[:left]:
        given[name] += 1
        left -= 1
    return left


def _weights(open_: Sequence[Entry], past: int) -> list[int]:
    """The weight of each; a common factor does not matter."""
    if not past:
        return [max(one.weight, 0) for one in open_]
    # Of W = weight / total: max(0, W + k (W - U)), without the denominators.
    total = sum(one.weight for one in open_)
    return [max(0, (PARTS + past) * PARTS * one.weight - past * total * one.used) for one in open_]


def _parts(left: int, weights: Sequence[int], rounding: Rounding) -> list[int]:
    """What a round gives to each."""
    total = sum(weights)
    if rounding == "nearest":
        # In doubles, as the original: of bytes the last digits differ otherwise.
        return [int(float(weight) * float(left) / float(total) + 0.5) for weight in weights]
    parts = [left * weight // total for weight in weights]
    if rounding == "largest_remainder":
        rests = [left * weight % total for weight in weights]
        first = sorted(range(len(parts)), key=lambda place: -rests[place])
        for place in first[: left - sum(parts)]:
            parts[place] += 1
    return parts
