"""Evaluators around a sandbox: one that measures it, and one that starts it when it is asked.

Owns what is counted for each call, and the start.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

from engine.core.framework.profile import Profile
from engine.language.hooks import hook_of
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call, Evaluator, PolicyFailure, Timing, Verdict


class LazySandbox:
    """The sandbox that *start* starts, or raises `PolicyErrors`, once it is asked something."""

    def __init__(self, start: Callable[[], Evaluator]) -> None:
        self._start = start
        self._started: Evaluator | None = None

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call. Raises `PolicyErrors` if the sandbox does not start."""
        return self.open().evaluate(calls)

    def open(self) -> Evaluator:
        """The sandbox, which was started by now. Raises `PolicyErrors`."""
        if self._started is None:
            self._started = self._start()
        return self._started

    def close(self) -> None:
        """End the sandbox, if it was started."""
        if self._started is not None:
            self._started.close()


# The part of round trips whose calls are timed, as kube-scheduler times one attempt in ten; and the
# golden ratio: steps of it hit that part evenly, also of every second trip or every third.
_TIMED: Final = 0.1
_STEP: Final = 0.618033988749895


class Stopwatch(Protocol):
    """What takes the duration of each round trip: a histogram."""

    def observe(self, amount: float, /) -> None:
        """Take *amount* seconds."""
        ...


@runtime_checkable
class TimingEvaluator(Protocol):
    """An evaluator that times calls while it `is_timed`: `timings` are those of the last ones."""

    is_timed: bool
    timings: Sequence[Timing]


class Evaluations:
    """Evaluations by (plugin, extension point, profile), and their durations.

    Attributes:
        monotonic: Measures; seconds since any moment.
        stopwatch: Takes the duration of each round trip.
        plugin_stopwatch: Gives what takes the duration of a call that was timed, by plugin,
            extension point and status.
        on_round_trip: Is called after each, in its thread, with the seconds and the calls.
    """

    def __init__(self, monotonic: Callable[[], float] = time.perf_counter) -> None:
        self.monotonic = monotonic
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.stopwatch: Stopwatch | None = None
        self.plugin_stopwatch: Callable[[str, str, str], Stopwatch] | None = None
        self.on_round_trip: Callable[[float, Sequence[Call]], None] | None = None

    def measure(
        self,
        monotonic: Callable[[], float],
        stopwatch: Stopwatch,
        plugin_stopwatch: Callable[[str, str, str], Stopwatch],
        on_round_trip: Callable[[float, Sequence[Call]], None] | None = None,
    ) -> None:
        """Measure round trips from now on: with the clock and the metrics of a process."""
        self.monotonic = monotonic
        self.stopwatch = stopwatch
        self.plugin_stopwatch = plugin_stopwatch
        self.on_round_trip = on_round_trip


class MeteredEvaluator:
    """Passes calls on to *evaluator* and counts their entries in *evaluations*.

    A policy that several profiles share is counted for the first of them: one evaluation serves
    them all.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        bundle: Bundle,
        evaluations: Evaluations,
    ) -> None:
        self._evaluator = evaluator
        self._evaluations = evaluations
        self._instances = bundle.program.instances
        self._profile_of = _profile_by_instance(bundle.profiles)
        self._default = bundle.profiles[0].scheduler_name if bundle.profiles else ""
        self._keys: dict[tuple[int, str], tuple[str, str, str]] = {}
        self._timing = evaluator if isinstance(evaluator, TimingEvaluator) else None
        self._phase = 0.0

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call, in the order of *calls*."""
        evaluations = self._evaluations
        timing, stopwatch = self._timing, evaluations.plugin_stopwatch
        if timing is not None and stopwatch is not None:
            self._phase = (self._phase + _STEP) % 1.0
            timing.is_timed = self._phase < _TIMED
        started = evaluations.monotonic()
        answers = self._evaluator.evaluate(calls)
        seconds = evaluations.monotonic() - started
        if evaluations.stopwatch is not None:
            evaluations.stopwatch.observe(seconds)
        if evaluations.on_round_trip is not None:
            evaluations.on_round_trip(seconds, calls)
        self._count(calls)
        if timing is not None and stopwatch is not None and timing.is_timed:
            for call, (took, has_failed) in zip(calls, timing.timings, strict=True):
                plugin, point, _ = self._keys[call.instance, call.hook]
                # A sandbox is not trusted: no call takes longer than the round trip.
                if took:
                    status = "Error" if has_failed else "Success"
                    stopwatch(plugin, point, status).observe(min(took, seconds))
        return answers

    def close(self) -> None:
        """Close the evaluator behind it."""
        self._evaluator.close()

    def _count(self, calls: Sequence[Call]) -> None:
        counts, keys = self._evaluations.counts, self._keys
        for call in calls:
            asked = call.instance, call.hook
            key = keys.get(asked)
            if key is None:
                key = keys[asked] = self._key(*asked)
            counts[key] += 1 if call.nodes is None else len(call.nodes)

    def _key(self, index: int, hook: str) -> tuple[str, str, str]:
        point = hook_of(hook).extension_point
        profile = self._profile_of.get(index, self._default)
        return self._instances[index].policy, point, profile


def _profile_by_instance(profiles: Sequence[Profile]) -> dict[int, str]:
    found: dict[int, str] = {}
    for profile in profiles:
        for enabled in profile.points.values():
            for policy in enabled:
                found.setdefault(policy.instance, profile.scheduler_name)
    return found
