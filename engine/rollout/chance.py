"""Bounds on what chance does to shares and means.

Owns the formulas; what follows from them is `readings`'.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

_NORMAL: Final = NormalDist()

#: Standard errors beyond which it is not chance: 1 in 2,000, because the question is asked again
#: and again while a stage runs. With 1.96 a candidate that moves 24 % fails a bound of 25 % in
#: 218 of 1,000 stages of 500 decisions, with this in 17.
SURE: Final = 3.29
#: Standard errors beyond which it hardly is: 1 in 100, for a question that is asked once.
UNLIKELY: Final = 2.33
#: Standard errors up to which it well may be: 1 in 7. One owner more than none is below it.
LIKELY: Final = 1.04


def sure_of_one_of(count: int) -> float:
    """Standard errors beyond which one of *count* shares is no chance: as rare as `SURE` for one.

    Of a hundred classes of pods, one in twenty stages would have one beyond `SURE` by chance.
    """
    chance = 1 - _NORMAL.cdf(SURE)
    return -_NORMAL.inv_cdf(chance / max(count, 1))


def lowest_share(count: int, total: int, errors: float = SURE) -> float:
    """The lower end of Wilson's interval for the share that *count* of *total* is a sample of.

    *errors* is how many standard errors it is wide on each side.
    """
    if not count:
        return 0.0
    share, z2 = count / total, errors * errors / total
    half = errors * math.sqrt(share * (1 - share) / total + z2 / (4 * total))
    return (share + z2 / 2 - half) / (1 + z2)


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
