"""One of the two sets of policies that a shadow compares: its scheduler and its sandbox.

Owns the time that a decision takes: that of the thread, and that of waiting for the sandbox. So
another thread that runs meanwhile does not count.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Call, PolicyFailure, Verdict
from engine.rollout.lazy_sandbox import LazySandbox
from engine.rollout.shadow.worker import Yield
from engine.rollout.trial import MakeEvaluator


@dataclass(frozen=True, slots=True)
class Clocks:
    """What measures: the seconds that this thread has worked, and those that have passed."""

    worked: Callable[[], float] = time.thread_time
    passed: Callable[[], float] = time.perf_counter


CLOCKS: Final = Clocks()


def _go_on() -> None:
    """Give no way."""


class _Waits:
    """Asks *sandbox*, and sums up for how many seconds its thread `waited` for answers."""

    def __init__(self, sandbox: LazySandbox, clocks: Clocks) -> None:
        self._sandbox = sandbox
        self._clocks = clocks
        self.waited = 0.0
        self.yield_cpu: Yield = _go_on

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        """One list of verdicts per call, in the order of *calls*."""
        evaluator, clocks = self._sandbox.open(), self._clocks
        passed, worked = clocks.passed(), clocks.worked()
        answers = evaluator.evaluate(calls)
        self.waited += max(0.0, clocks.passed() - passed - (clocks.worked() - worked))
        self.yield_cpu()
        return answers

    def close(self) -> None:
        """End the sandbox, if it was started."""
        self._sandbox.close()


class Side:
    """Decides with the policies of *bundle*, in the thread.

    It begins with what *known* knows, and is to be made where that one decides.

    Args:
        bundle: The policies.
        make: Starts a sandbox.
        known: Another scheduler of the same snapshot.
        unchanged: The index of a policy in *known* -> that of the same policy here.
        clocks: Measure.

    Attributes:
        yield_cpu: Called before each decision, and where it was waited for the sandbox anyway.
    """

    def __init__(
        self,
        bundle: Bundle,
        make: MakeEvaluator,
        known: Scheduler,
        unchanged: Mapping[int, int],
        clocks: Clocks = CLOCKS,
    ) -> None:
        self.bundle = bundle
        self.yield_cpu: Yield = _go_on
        self._clocks = clocks
        self._sandbox = LazySandbox(functools.partial(make, bundle))
        self._waits = _Waits(self._sandbox, clocks)
        self.scheduler = Scheduler(bundle, self._waits, has_extenders=False)
        self.scheduler.keeps_choices = True
        self.scheduler.reuse_from(known, unchanged)

    def has_profile_of(self, pod: Pod) -> bool:
        """False if *pod* is none of these policies'."""
        return self.scheduler.profile_of(pod) is not None

    def open(self) -> None:
        """Start its sandbox, if it is not there; raises `PolicyErrors`."""
        self._sandbox.open()

    def decide(
        self, pod: Pod, snapshot: Snapshot, nominator: Nominator, *, is_member: bool = False
    ) -> tuple[Decision, float]:
        """The decision, and the seconds that it took.

        Where a limit was hit it is made once more: that can be the crowded machine's fault.
        """
        self._waits.yield_cpu = self.yield_cpu
        self.yield_cpu()
        worked, waited = self._clocks.worked(), self._waits.waited
        decision = self._decide(pod, snapshot, nominator, is_member)
        if any(failure.is_transient for failure in (*decision.failures, *decision.ignored)):
            decision = self._decide(pod, snapshot, nominator, is_member)
        return decision, self._clocks.worked() - worked + (self._waits.waited - waited)

    def _decide(
        self, pod: Pod, snapshot: Snapshot, nominator: Nominator, is_member: bool
    ) -> Decision:
        return self.scheduler.schedule(pod, snapshot, nominator, has_post_filters=not is_member)

    def scores_of(
        self, pod: Pod, node: str, snapshot: Snapshot, nominator: Nominator
    ) -> dict[str, int]:
        """By policy, the weighted score of *node* for *pod*; empty if it does not fit."""
        self.yield_cpu()
        found = self.scheduler.explain(pod, snapshot, nominator)
        if node not in found.feasible:
            return {}
        at = found.feasible.index(node)
        return {one.policy: int(one.weighted[at]) for one in found.scores}

    @property
    def waited(self) -> float:
        """Seconds for which it waited for its sandbox, in all."""
        return self._waits.waited

    def close(self) -> None:
        """End its sandbox."""
        self._sandbox.close()
