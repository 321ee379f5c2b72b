"""Bounds on what chance does to shares and means.

Owns the formulas; what follows from them is `readings`'.
"""

import math
import sys
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

_NORMAL: Final = NormalDist()

#: Standard errors beyond which it is not chance: 1 in 2,000, because the question is asked again
#: and again while a stage runs. With 1.96 a candidate that moves 24 % fails a bound of 25 % in
#: 218 of 1,000 stages of 500 decisions, with this in 5.
SURE: Final = 3.29
#: Standard errors beyond which it hardly is: 1 in 100, for a question that is asked once.
UNLIKELY: Final = 2.33
#: Standard errors up to which it well may be: 1 in 7. One owner more than none is below it.
LIKELY: Final = 1.04


def sure_of_one_of(count: int) -> float:
    """What is too improbable for one of *count* shares: all together as improbable as `SURE`.

    Of a hundred classes of pods, one in twenty stages would have one beyond `SURE` by chance.
    """
    return (1 - _NORMAL.cdf(SURE)) / max(count, 1)


def chance_of_excess(count: int, total: int, bound: float) -> float:
    """How probable *count* or more of *total* are at most, if the share is *bound* or less.

    1.0 if *count* is no more than that share. Exact: the sum of the binomial distribution, so that
    comparing it with a probability is asking for the lower bound of Clopper and Pearson. Wilson's
    is made for many: 4 of 4 are beyond 25% by it, and happen once in 256 samples.
    """
    if count <= bound * total:
        return 1.0
    if bound <= 0:
        return 0.0
    ways = math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
    term = math.exp(ways + count * math.log(bound) + (total - count) * math.log1p(-bound))
    odds, chance = bound / (1 - bound), 0.0
    for more in range(count, total + 1):
        chance += term
        term *= (total - more) / (more + 1) * odds
        if term <= chance * sys.float_info.epsilon:
            break
    return min(chance, 1.0)


def standard_errors(count: int, total: int, control: int, control_total: int) -> float:
    """How many standard errors a share is above that of a control sample; totals are above 0."""
    pooled = (count + control) / (total + control_total)
    error = math.sqrt(pooled * (1 - pooled) * (1 / total + 1 / control_total))
    return (count / total - control / control_total) / error if error else 0.0


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of one kind.

    Attributes:
        count: How many.
        seconds, squares: Their sum, and that of their squares; 0 squares: not known.
        independent: How many of them do not depend on one another.
    """

    count: int
    seconds: float
    squares: float
    independent: int

    @property
    def mean(self) -> float:
        """Seconds; 0 if there are none."""
        return self.seconds / self.count if self.count else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 if it is not known."""
        if self.count < 2 or self.independent < 1:
            return 0.0
        spread = self.squares / self.count - self.mean * self.mean
        variance = max(spread, 0.0) * self.count / (self.count - 1)
        return math.sqrt(variance / self.independent)
