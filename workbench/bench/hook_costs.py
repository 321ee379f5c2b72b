"""Measures the cost of each hook of a set of policies, and its change from another set.

Owns the measuring. Operations are counted (`operations`) and exact. Times are those of
round trips to the sandboxed child that the scheduler uses. They are measured in rounds over every
hook of every set, so that a temporary slowdown of the machine affects all alike; reported are
medians with their 95 % confidence intervals.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call
from engine.policy.sandbox.process import SandboxEvaluator
from workbench.bench.operations import Line, OperationCounter, source_line
from workbench.bench.sampled_calls import HookCalls, entries_of, sample_calls
from workbench.simulation.workload import Workload

# The most calls kept per hook, and the most evaluations in one sample of its time.
_MOST_CALLS: Final = 48
_MOST_ENTRIES: Final = 1_500
# Shorter calls are repeated in a sample, so that the resolution of the clock does not matter.
_LEAST_ENTRIES: Final = 64
# The chance that a true median is outside of its interval.
_DOUBT: Final = 0.05

Key = tuple[str, str]


class Estimate(msgspec.Struct, frozen=True):
    """A median with its 95 % confidence interval.

    `is_sure` is False if there are too few values for that: then the interval is all of them.
    """

    median: float
    low: float
    high: float
    is_sure: bool = True


class HotLine(msgspec.Struct, frozen=True):
    """A line of a hook with a large share of its operations.

    `share` is its part of them, 0..1; `runs` how often it runs in one evaluation.
    """

    file: str
    line: int
    share: float
    runs: float
    text: str


class HookCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one hook.

    An evaluation is one run of the hook's function: for one node, or for hooks without a node for
    the pod. A call evaluates all nodes without a known verdict.

    Attributes:
        policy, hook: Which.
        calls, evaluations, failures: How many there were while the workload was decided.
        per_pod: Evaluations for each arriving pod that reuse did not save.
        nodes_per_call: Evaluations in a call.
        operations: Of one evaluation, on average.
        operations_per_call, operations_per_pod: The same for a call, and for each arriving pod.
        microseconds: Of one evaluation.
        microseconds_per_call, microseconds_per_pod: As above.
        lines: Where its operations are, the hottest line first.
    """

    policy: str
    hook: str
    calls: int
    evaluations: int
    failures: int
    per_pod: float
    nodes_per_call: float
    operations: float
    operations_per_call: float
    operations_per_pod: float
    microseconds: Estimate
    microseconds_per_call: float
    microseconds_per_pod: float
    lines: tuple[HotLine, ...]


class Change(msgspec.Struct, frozen=True):
    """The change of one hook: ratios minus one, so 0.2 is a fifth more.

    Attributes:
        policy, hook: Which.
        operations: Of one evaluation; exact. None if there were none before.
        operations_per_pod: The same for the evaluations that reuse did not save: exact too.
        time: For each arriving pod; the median over rounds of the ratio within a round. The 95 %
            are for all hooks together: of many hooks that did not change, one would seem to
            otherwise. Not of one evaluation: a hook that is asked less has fewer of them to share
            the way to the sandbox.
        verdict: `slower` or `faster` if the whole interval of `time` is above or below zero; else
            what operations say, or `same`.
    """

    policy: str
    hook: str
    operations: float | None
    operations_per_pod: float | None
    time: Estimate
    verdict: str

    def exceeds(self, limit: float) -> list[str]:
        """What grew by more than *limit*: times only if the whole interval did."""
        found = []
        for text, ratio in (
            ("operations per evaluation", self.operations),
            ("operations per pod", self.operations_per_pod),
        ):
            if ratio is not None and ratio > limit:
                found.append(f"{text} {ratio:+.1%}")
        if self.time.is_sure and self.time.low > limit:
            found.append(f"time per pod {self.time.median:+.1%} ({self.time.low:+.1%} at least)")
        return found


@dataclass(slots=True)
class _Hook:
    """A hook that is measured: its questions, and what was seen so far."""

    questions: HookCalls
    sample: list[Call]
    evaluations: int
    operations: float
    lines: tuple[HotLine, ...]
    seconds: list[float] = field(default_factory=list)


class Subject:
    """One set of policies with the sandbox that it is measured in. Use it in a `with` statement.

    *wanted* says which hooks are measured. Raises `PolicyErrors` if the policies do not load.
    """

    def __init__(
        self, bundle: Bundle, workload: Workload, wanted: Callable[[str, str], bool], *, seed: int
    ) -> None:
        self.bundle = bundle
        self._pods = len(workload.arrivals)
        self._evaluator = SandboxEvaluator(bundle.program)
        try:
            asked = sample_calls(bundle, self._evaluator, workload, most=_MOST_CALLS, seed=seed)
            counter = OperationCounter(bundle.program)
            self.hooks: dict[Key, _Hook] = {}
            for one in asked:
                # A policy with different arguments in two profiles is measured with those of the
                # first.
                if wanted(one.policy, one.hook) and (one.policy, one.hook) not in self.hooks:
                    self.hooks[one.policy, one.hook] = _prepared(bundle, counter, one)
        except BaseException:
            self._evaluator.close()
            raise

    def __enter__(self) -> "Subject":
        return self

    def __exit__(self, *_: object) -> None:
        self._evaluator.close()

    def time_once(self, key: Key) -> float:
        """Seconds of one evaluation of a hook: one sample more."""
        hook = self.hooks[key]
        started = time.perf_counter()
        self._evaluator.evaluate(hook.sample)
        seconds = (time.perf_counter() - started) / hook.evaluations
        hook.seconds.append(seconds)
        return seconds

    def costs(self) -> list[HookCost]:
        """What the hooks cost, in the order of their policies."""
        place = {name: number for number, name in enumerate(self.bundle.policies)}
        return [
            self._cost(hook)
            for key, hook in sorted(self.hooks.items(), key=lambda pair: place[pair[0][0]])
        ]

    def _cost(self, hook: _Hook) -> HookCost:
        asked = hook.questions
        per_call = asked.entries / asked.calls
        per_pod = asked.entries / max(1, self._pods)
        time_of_one = estimate([1e6 * seconds for seconds in hook.seconds])
        return HookCost(
            policy=asked.policy,
            hook=asked.hook,
            calls=asked.calls,
            evaluations=asked.entries,
            failures=asked.failures,
            per_pod=per_pod,
            nodes_per_call=per_call,
            operations=hook.operations,
            operations_per_call=hook.operations * per_call,
            operations_per_pod=hook.operations * per_pod,
            microseconds=time_of_one,
            microseconds_per_call=time_of_one.median * per_call,
            microseconds_per_pod=time_of_one.median * per_pod,
            lines=hook.lines,
        )


def measure(subjects: Sequence[Subject], rounds: int) -> Iterator[int]:
    """Take times in *rounds* rounds, giving the number of each when it is done.

    In a round the subjects alternate at each hook, the first of one round being the last of the
    next. The very first round warms up and does not count.
    """
    keys = list(dict.fromkeys(key for subject in subjects for key in subject.hooks))
    for number in range(rounds + 1):
        order = subjects if number % 2 else list(reversed(subjects))
        for key in keys:
            for subject in order:
                if key in subject.hooks:
                    subject.time_once(key)
        if number == 0:
            for subject in subjects:
                for hook in subject.hooks.values():
                    hook.seconds.clear()
        else:
            yield number


def changes(before: Subject, after: Subject) -> list[Change]:
    """The changes of the hooks that both have, in the order of *after*."""
    found = []
    was = {(cost.policy, cost.hook): cost for cost in before.costs()}
    both = before.hooks.keys() & after.hooks.keys()
    for cost in after.costs():
        key = cost.policy, cost.hook
        old = was.get(key)
        if old is None:
            continue
        pairs = zip(before.hooks[key].seconds, after.hooks[key].seconds, strict=True)
        asked = cost.per_pod / old.per_pod
        ratio = estimate([asked * new / early - 1 for early, new in pairs], _DOUBT / len(both))
        operations = _ratio(old.operations, cost.operations)
        per_pod = _ratio(old.operations_per_pod, cost.operations_per_pod)
        found.append(Change(*key, operations, per_pod, ratio, _verdict(operations, per_pod, ratio)))
    return found


def _verdict(operations: float | None, per_pod: float | None, ratio: Estimate) -> str:
    if ratio.is_sure and ratio.low > 0:
        return "slower"
    if ratio.is_sure and ratio.high < 0:
        return "faster"
    counted = (operations or 0.0) or (per_pod or 0.0)
    if counted:
        return "more operations" if counted > 0 else "fewer operations"
    return "same"


def _ratio(before: float, after: float) -> float | None:
    return after / before - 1 if before else None


def estimate(values: Sequence[float], doubt: float = _DOUBT) -> Estimate:
    """The median of *values* and an interval for the true one; no distribution is presumed.

    The interval is between two of the values, found by the binomial distribution: the chance that
    the true median is outside is at most *doubt*.
    """
    ordered = sorted(values)
    count = len(ordered)
    # How many values can go at each end, so that half of the doubt is beyond each.
    gone, tail = -1, 1 / 2**count
    while tail <= doubt / 2:
        gone += 1
        tail += math.comb(count, gone + 1) / 2**count
    kept = max(0, gone)
    return Estimate(statistics.median(ordered), ordered[kept], ordered[count - 1 - kept], gone >= 0)


# --- measuring -------------------------------------------------------------------------------


def _prepared(bundle: Bundle, counter: OperationCounter, asked: HookCalls) -> _Hook:
    sample = list(_bounded(asked.sample))
    evaluations = sum(map(entries_of, sample))
    lines = counter.count(sample)
    operations = sum(line.operations for line in lines)
    hot = tuple(_hot(bundle.files, line, operations, evaluations) for line in lines)
    repeats = max(1, -(-_LEAST_ENTRIES // max(1, evaluations)))
    return _Hook(
        asked,
        sample * repeats,
        evaluations * repeats,
        operations / max(1, evaluations),
        hot,
    )


def _bounded(calls: Iterable[Call]) -> Iterator[Call]:
    """As many of *calls* as have a bounded number of evaluations, and always the first."""
    left = _MOST_ENTRIES
    for call in calls:
        if left <= 0:
            return
        yield call
        left -= entries_of(call)


def _hot(files: Mapping[str, str], line: Line, operations: int, evaluations: int) -> HotLine:
    return HotLine(
        line.file,
        line.line,
        line.operations / max(1, operations),
        line.runs / max(1, evaluations),
        source_line(files, line),
    )
