"""What a gate reads of measures, and what chance makes of it.

Owns one class for each way to read, and the arithmetic: how likely an excess is by chance. Which
gate reads what is `judge`'s.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Protocol

from engine.lib.durations import go_duration
from engine.rollout.status import GateResult, Outcome

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


#: Owners in each arm below which a difference between arms says nothing.
FEW_OWNERS: Final = 10
#: Decisions below which a class of pods says nothing.
FEW_OF_CLASS: Final = 5
#: Decisions with a node on both sides below which nothing is said of pods that are moved, unless
#: the stage wants fewer.
FEW_PLACED: Final = 30
#: A stage waits for what may be chance until it has so many times the decisions that it wants.
PATIENCE: Final = 8
#: Durations below which a mean says nothing, unless it is `FAR_MULTIPLE` times the other.
FAR_COUNT: Final = 5
FAR_MULTIPLE: Final = 10.0

_CHANCE: Final = " (may be chance)"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is.

    Attributes:
        wanted: Decisions that it wants.
        is_over: It has them, and its duration is over.
        is_long: It is over and has `PATIENCE` times as many.
    """

    wanted: int
    is_over: bool
    is_long: bool


class Reading(Protocol):
    """What a gate reads."""

    def judge(self, name: str, bound: float, progress: Progress) -> GateResult:
        """The gate's result."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """A number that only the candidate can cause: fails as soon as it exceeds its bound."""

    count: int
    decisions: int
    text: str = "{count} of {decisions} compared decisions, want at most {bound}"

    def judge(self, name: str, bound: float, progress: Progress) -> GateResult:
        """See the class."""
        shown = self.text.format(count=self.count, decisions=self.decisions, bound=f"{bound:g}")
        verdict: Outcome = "pass" if self.decisions else "inconclusive"
        if self.count > bound:
            verdict = "fail"
        return GateResult(name, float(self.count), bound, verdict, f"{name}: {shown}")


@dataclass(frozen=True, slots=True)
class Share:
    """A share of decisions: fails early only if it is not chance, at the end as it is.

    It passes, or fails early, with `needed` decisions, or as many as the stage wants if these are
    fewer: the first ones often are of one owner, and alike. It passes if `unsure` ones more, which
    may be of the share or not, would not put it beyond the bound.
    """

    count: int
    decisions: int
    of: str = "compared decisions"
    needed: int = 1
    unsure: int = 0

    def judge(self, name: str, bound: float, progress: Progress) -> GateResult:
        """See the class."""
        want = f"want at most {_percent(bound)}"
        needed = min(self.needed, max(progress.wanted, 1))
        if not self.decisions:
            return GateResult(name, None, bound, "inconclusive", f"{name}: no {self.of}, {want}")
        share = self.count / self.decisions
        verdict: Outcome = "pass"
        note = ""
        if share > bound:
            is_sure = chance_of_excess(self.count, self.decisions, bound) < sure_of_one_of(1)
            if progress.is_over or (self.decisions >= needed and is_sure):
                verdict = "fail"
            else:
                verdict, note = "inconclusive", _CHANCE
        elif self.decisions < needed:
            verdict, note = "inconclusive", f" ({self.decisions} of {needed} needed)"
        elif (self.count + self.unsure) / (self.decisions + self.unsure) > bound:
            verdict, note = "inconclusive", f" ({self.unsure} others differed, and drifted)"
        shown = f"{_percent(share)} ({self.count} of {self.decisions} {self.of})"
        return GateResult(name, share, bound, verdict, f"{name}: {shown}, {want}{note}")


@dataclass(frozen=True, slots=True)
class SomeClass:
    """The largest share of some class: fails only if it is not chance that one of them has it.

    The pods of a class may be few of all, and all of them decided wrong. With k classes it must be
    k times as improbable, so that a good edit fails as seldom as by one share of all
    (`test_many_small_classes_raise_no_false_alarm`).

    Attributes:
        counts, totals: By class: so many of so many decisions.
    """

    counts: Mapping[str, int]
    totals: Mapping[str, int]

    def judge(self, name: str, bound: float, progress: Progress) -> GateResult:
        """See the class."""
        want = f"want at most {_percent(bound)}"
        needed = min(FEW_OF_CLASS, max(progress.wanted, 1))
        known = {key: n for key, n in self.totals.items() if n >= needed}
        if not known:
            text = f"{name}: no class of {needed} placed decisions, {want}"
            return GateResult(name, None, bound, "inconclusive", text)
        chances = {
            key: chance_of_excess(self.counts.get(key, 0), n, bound) for key, n in known.items()
        }
        worst = min(known, key=lambda key: (chances[key], -self.counts.get(key, 0) / known[key]))
        share = self.counts.get(worst, 0) / known[worst]
        verdict: Outcome = "pass"
        note = ""
        if chances[worst] < sure_of_one_of(len(known)):
            verdict = "fail"
        elif share > bound:
            note = " (within chance)"
        shown = f"{_percent(share)} ({self.counts.get(worst, 0)} of {known[worst]}) of `{worst}`"
        text = f"{name}: {shown} in {len(known)} of {len(self.totals)} classes, {want}{note}"
        return GateResult(name, share, bound, verdict, text)


@dataclass(frozen=True, slots=True)
class Lost:
    """What an edit takes away, which is known before its stages: fails at once.

    Attributes:
        value: A count, or a share of `of`.
        count, of: So many of so many.
        what: They are of.
        is_share: Value and bound are shares.
        failed: Why nothing is known; "" if something is.
    """

    value: float
    count: int
    of: int
    what: str
    is_share: bool
    failed: str

    def judge(self, name: str, bound: float, progress: Progress) -> GateResult:
        """See the class."""
        want = f"want at most {_percent(bound) if self.is_share else f'{bound:g}'}"
        if self.failed:
            text = f"{name}: not known ({self.failed})"
            return GateResult(name, None, bound, "inconclusive", text)
        verdict: Outcome = "fail" if self.value > bound else "pass"
        of = f" ({self.count} of {self.of})" if self.is_share and self.of else ""
        shown = f"{_percent(self.value)}{of}" if self.is_share else f"{self.count}"
        text = f"{name}: {shown} {self.what}, {want}"
        return GateResult(name, self.value, bound, verdict, text)


@dataclass(frozen=True, slots=True)
class Harm:
    """What happened to the pods of an arm.

    Attributes:
        count: How often, or to how many.
        decisions: About the arm's pods.
        affected: Owners with such a decision, of `owners`.
        owners: See `ArmMeasures`.
    """

    count: int
    decisions: int
    affected: int
    owners: int


@dataclass(frozen=True, slots=True)
class Excess:
    """How much more often something happens in the canary than in the control sample.

    By how much is counted in decisions; whether it is chance, in owners: the pods of one fare alike
    and may be tried again and again. Half of all equal candidates exceed a control sample by
    something, so what is beyond the bound passes if it well may be chance, and if it is in between,
    the stage waits for more decisions. Where a tenth of the owners have pods that fit nowhere, 4
    of 1,000 equal candidates fail in a step with the defaults, and 883 of those that reject another
    third of the owners (`test_judge`).

    Attributes:
        canary, control: The arms.
        is_rate: Value and bound are shares of the decisions.
    """

    canary: Harm
    control: Harm
    is_rate: bool = False

    def judge(self, name: str, bound: float, progress: Progress) -> GateResult:
        """See the class."""
        canary, control = self.canary, self.control
        want = f"want at most {_percent(bound) if self.is_rate else f'{bound:g}'} more"
        shown = (
            f"{canary.count} in {canary.decisions} decisions, in the control sample "
            f"{control.count} in {control.decisions}, {want}"
        )
        if not canary.decisions or not control.decisions:
            return GateResult(name, None, bound, "inconclusive", f"{name}: {shown}")
        value = canary.count - control.count * canary.decisions / control.decisions
        if self.is_rate:
            value /= canary.decisions
        verdict: Outcome = "pass"
        note = ""
        if value > bound:
            verdict, note = self._beyond(progress)
        return GateResult(name, value, bound, verdict, f"{name}: {shown}{note}")

    def _beyond(self, progress: Progress) -> tuple[Outcome, str]:
        canary, control = self.canary, self.control
        if (owners := min(canary.owners, control.owners)) < FEW_OWNERS:
            return "inconclusive", _few(owners)
        errors = standard_errors(canary.affected, canary.owners, control.affected, control.owners)
        if errors > (UNLIKELY if progress.is_long else SURE):
            return "fail", ""
        is_chance = progress.is_long or (progress.is_over and errors <= LIKELY)
        return ("pass", " (within chance)") if is_chance else ("inconclusive", _CHANCE)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How many times as long something takes.

    Fails if it is not chance, or still is beyond the bound when a stage has waited long: one
    hiccup among fifty decisions is no slow candidate.

    Attributes:
        candidate, before: The durations; those before are of the same decisions, or of the control
            sample.
        margin: Seconds by which the mean must be longer, too.
        needed: How many durations say something, unless the stage wants fewer decisions.
        what: They are of.
        other: Whose durations the second ones are.
        one_in: About one of so many decisions has a duration.
        fails_far: Fails with `FAR_COUNT` durations if it is `FAR_MULTIPLE` times as long.
    """

    candidate: Times
    before: Times
    margin: float
    needed: int
    what: str
    other: str
    one_in: int = 1
    fails_far: bool = False

    def judge(self, name: str, bound: float, progress: Progress) -> GateResult:
        """See the class."""
        mean, before = self.candidate.mean, self.before.mean
        count = min(self.candidate.count, self.before.count)
        needed = min(self.needed, -(-progress.wanted // self.one_in))
        want = f"want at most {bound:g} times"
        if not count:
            text = f"{name}: 0 of {needed} {self.what}, {want}"
            return GateResult(name, None, bound, "inconclusive", text)
        ratio = mean / before if before else None
        verdict: Outcome = "pass"
        note = ""
        if mean > bound * before and mean - before > self.margin:
            verdict, note = self._beyond(bound, needed, progress)
        if verdict == "pass" and count < needed:
            verdict, note = "inconclusive", f" ({count} of {needed} {self.what})"
        times = "many" if ratio is None else f"{ratio:.3g}"
        shown = f"{times} times ({_time(mean)}, {self.other} {_time(before)}), {want}"
        return GateResult(name, ratio, bound, verdict, f"{name}: {shown}{note}")

    def _beyond(self, bound: float, needed: int, progress: Progress) -> tuple[Outcome, str]:
        candidate, before = self.candidate, self.before
        count = min(candidate.count, before.count)
        owners = min(candidate.independent, before.independent)
        beyond = candidate.mean - bound * before.mean
        is_sure = beyond > SURE * math.hypot(candidate.error, bound * before.error)
        is_far = candidate.mean > max(FAR_MULTIPLE, bound) * before.mean
        if is_sure and is_far and self.fails_far and count >= FAR_COUNT:
            return "fail", ""
        if count < needed:
            return "inconclusive", f" ({count} of {needed} {self.what})"
        if owners < FEW_OWNERS:
            return "inconclusive", _few(owners)
        return ("fail", "") if is_sure or progress.is_long else ("inconclusive", _CHANCE)


def enough(name: str, count: int, wanted: int, note: str = "") -> GateResult:
    """Whether there are as many as *wanted*."""
    verdict: Outcome = "pass" if count >= wanted else "inconclusive"
    text = f"{name}: {count} of {wanted}{note}"
    return GateResult(name, float(count), float(wanted), verdict, text)


def long_enough(elapsed: float, wanted: float) -> GateResult:
    """Whether *wanted* seconds are over."""
    verdict: Outcome = "pass" if elapsed >= wanted else "inconclusive"
    # Rounded down, so that what is not over does not look as if it was.
    shown = go_duration(math.floor(min(elapsed, 1e9) * 10) / 10)
    text = f"duration: {shown} of {go_duration(wanted)}"
    return GateResult("duration", elapsed, wanted, verdict, text)


def _few(owners: int) -> str:
    return f" (too few owners to say: {owners} of {FEW_OWNERS})"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _time(seconds: float) -> str:
    """With three digits."""
    return go_duration(float(f"{seconds:.3g}"))
