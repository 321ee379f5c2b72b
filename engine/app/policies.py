"""The policies in force, and what a candidate is tried and compared on.

Owns what a switch of policies changes in the rest of the process. How an edit comes into force is
`engine.rollout`'s.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.app.carrying import Carrying
from engine.app.environment import Environment
from engine.app.leadership import Leadership
from engine.app.reporting import Reporting
from engine.app.settings import Settings
from engine.app.watching import Watching
from engine.core.caching.snapshot import Snapshot
from engine.core.kernel.events import Event, RevisionSwitched
from engine.core.kernel.kernel import Kernel
from engine.core.model.pod import Pod
from engine.policy.analysis import TimeReads, time_reads
from engine.policy.bundle import Bundle
from engine.rollout.comparing import LiveComparing
from engine.rollout.control import NoControl, RolloutControl
from engine.rollout.last_good import NoStore, Store
from engine.rollout.last_resort import LastResort
from engine.rollout.rollout import Inputs, Rollout, Saving, Surroundings
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.sources import PolicySource
from engine.rollout.trial import CandidateStages, LoadedRevision

# The longest that the trial of the first policies waits for an idle moment, and how often it looks.
_IDLE_SECONDS: Final = 5.0
_IDLE_TICK: Final = 0.05
_SAMPLE_CLASSES: Final = 64
_SAMPLE_PENDING: Final = 24
_SAMPLE_PLACED: Final = 8


class TrialWorld:
    """The running cluster as the trial of new policies sees it: `engine.rollout.trial.World`.

    Args:
        kernel, carrying, watching, leadership: See there.
        recent: Pods that stand for the classes that were decided lately, at most so many.
    """

    def __init__(
        self,
        kernel: Kernel,
        carrying: Carrying,
        watching: Watching,
        leadership: Leadership,
        recent: Callable[[int], list[Pod]],
    ) -> None:
        self._kernel = kernel
        self._carrying = carrying
        self._watching = watching
        self._leadership = leadership
        self._recent = recent
        self._has_decided = asyncio.Event()
        self._has_decided.set()

    def snapshot(self) -> Snapshot:
        """The live snapshot, with what the clock shows."""
        return self._watching.facts.with_clock(self._kernel.cache.snapshot())

    def sample_pods(self) -> list[Pod]:
        """Pods for the trial: pending ones, and some that run, as if they were pending.

        One of each class that was decided lately comes first: what the trial has evaluated need not
        be evaluated between two real decisions.
        """
        pending = _spread([*self._kernel.cluster.pending_pods()], _SAMPLE_PENDING)
        placed: list[Pod] = []
        for info in _spread([i for i in self._kernel.cache.snapshot().infos if i], _SAMPLE_PLACED):
            placed += [pod.unplaced() for pod in list(info.pods.values())[:1]]
        pods = (*self._recent(_SAMPLE_CLASSES), *pending, *placed)
        return list({pod.uid: pod for pod in pods}.values())

    def rejected_pods(self) -> list[Pod]:
        """Pods that were tried, or kept at a gate, and wait; those that wait in no group."""
        group_of = self._kernel.schedulers.group_of
        waiting = self._kernel.queue.waiting_pods()
        tried = (one.pod for one in waiting if one.attempts or one.gated_by is not None)
        return [pod for pod in tried if not group_of(pod)]

    def waiting_pods(self) -> list[Pod]:
        """All pods without a node, of whatever scheduler."""
        return [*self._kernel.cluster.pending_pods()]

    def pods_by_queue(self) -> Counter[str]:
        """How many pods are in each queue of the tree, by its path."""
        return self._kernel.shares.pods_by_queue()

    async def watch(self, bundle: Bundle) -> list[str]:
        """Watch what *bundle* reads; returns why that cannot be read which is not known soon."""
        return await self._watching.policy_informers.known(bundle)

    async def prepare(self, bundle: Bundle) -> None:
        """Wait until the fact sources that *bundle* adds have reported for the first time."""
        await self._watching.facts.prepare(bundle.runtime.facts)

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """While entered, a decision waits for an extender."""
        self._has_decided.clear()
        try:
            yield
        finally:
            self._has_decided.set()

    async def until_decided(self) -> None:
        """Return when no decision waits for an extender: other tasks see no others begun."""
        await self._has_decided.wait()

    async def until_idle(self) -> None:
        """Return when no pod is to be decided, bound or made room for, or after some seconds."""
        is_leading = self._leadership.leading.is_set
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_SECONDS):
                while not is_leading() or self._carrying.is_busy():  # noqa: ASYNC110
                    await asyncio.sleep(_IDLE_TICK)


@dataclass(frozen=True)
class PolicyParts:
    """Where policies come from, and what takes them into force.

    Attributes:
        source: Where they come from.
        stages: Builds, tests and loads them.
        store: Where the last good ones are kept.
        control: How edits are rolled out.
        shadow: Compares candidates; None: one with a thread of its own.
    """

    source: PolicySource
    stages: CandidateStages
    store: Store = field(default_factory=NoStore)
    control: RolloutControl = field(default_factory=NoControl)
    shadow: Shadow | None = None


class Policies:
    """The policies in force, and the candidate that is compared with them.

    Args:
        env, kernel, reporting, carrying, watching, leadership: See there.
        parts: Where policies come from, and what takes them into force.
        report: Takes a switch, as an event.
    """

    def __init__(
        self,
        env: Environment,
        kernel: Kernel,
        reporting: Reporting,
        carrying: Carrying,
        watching: Watching,
        leadership: Leadership,
        *,
        parts: PolicyParts,
        report: Callable[[Event], None],
    ) -> None:
        self._env = env
        self._kernel = kernel
        self._carrying = carrying
        self._watching = watching
        self._report = report
        self._compared: Bundle | None = None
        self._counted_before = Counter[str]()  # by policies that were in force
        #: How often each policy was evaluated, by policy, extension point and profile.
        self.evaluations = parts.stages.evaluations.counts
        parts.stages.evaluations.measure(
            env.clock.monotonic,
            env.metrics.evaluation_seconds,
            env.metrics.plugin,
            None if env.tracing is None else env.tracing.round_trip,
        )
        self.stages = parts.stages
        self.control = parts.control
        self.shadow = parts.shadow or Shadow(parts.stages.make_evaluator)
        self.world = TrialWorld(kernel, carrying, watching, leadership, self._recent_pods)
        self.comparing = LiveComparing(
            kernel,
            report,
            self.shadow,
            self._compared_with,
            env.clock,
            lambda uid: uid in self.rollout.counts.failing,
        )
        self.rollout = Rollout(
            Inputs(parts.source, parts.store, parts.control, _last_resort(env.settings)),
            parts.stages,
            self.world,
            self._switch,
            Surroundings(reporting.events.policies, env.metrics, env.clock),
            self.comparing,
            Saving(env.saved, leadership.may_act),
        )

    def bundles(self) -> list[Bundle]:
        """The policies in force, those on their way, and those that are compared."""
        compared = [] if self._compared is None else [self._compared]
        return [*self.rollout.bundles, *compared]

    def report_control(self) -> None:
        """Write an event about what is wrong with the control of roll-outs, if anything is."""
        control, about = self.control.current, self.control.reference
        if control.problems and about is not None:
            self.rollout.report_control(about, control)

    def counts(self) -> Counter[str]:
        """What policies have cost since the start: restarts of sandboxes, verdicts, and so on."""
        counts = self._counted_before.copy()
        with contextlib.suppress(LookupError):
            counts.update(_counts_of(self.rollout.active))
        return counts

    def _recent_pods(self, most: int) -> list[Pod]:
        return self.rollout.active.scheduler.recent_pods(most)

    def _switch(self, new: LoadedRevision, old: LoadedRevision | None) -> None:
        """Decide with *new* from the next pod on."""
        if self._env.decision_log is not None:
            self._env.decision_log.policies(new.bundle.revision, new.files)
        self._carrying.extenders.use(new.bundle.extenders)
        # What *new* has counted before is in the sum already: it goes on from the counts of *old*,
        # or comes back from a roll-back.
        self._counted_before.subtract(_counts_of(new))
        if old is not None:
            self._counted_before.update(_counts_of(old))
        self._watching.facts.configure(new.bundle.runtime.facts, _time_reads(new))
        new.scheduler.keeps_choices = True  # `/explain` shows them
        # Before *new* decides: what it reads may not be listed yet.
        self._watching.follow()
        self._report(RevisionSwitched(new.scheduler))

    def _compared_with(self, candidate: LoadedRevision | None) -> None:
        """Record *candidate*, have its extenders called, and show the facts that it reads, too.

        Where both configure a fact, it is that of the policies in force.
        """
        self._compared = None if candidate is None else candidate.bundle
        if self._env.decision_log is not None:
            self._env.decision_log.candidate(candidate)
        active = self.rollout.active
        extenders = () if candidate is None else candidate.bundle.extenders
        is_canary = self._kernel.schedulers.is_canary
        self._carrying.extenders.use(active.bundle.extenders, extenders, is_canary)
        own, reads = active.bundle.runtime.facts, _time_reads(active)
        if candidate is not None:
            # Compared, not hashed: some sources hold mappings.
            wanted = candidate.bundle.runtime.facts.sources
            new = [source for source in wanted if source not in own.sources]
            own = replace(own, sources=(*new, *own.sources))
            reads |= _time_reads(candidate)
        self._watching.facts.configure(own, reads)


def _last_resort(settings: Settings) -> LastResort:
    when_none = settings.when_no_policies
    if settings.last_resort is None:
        return LastResort(settings.profile_names, is_fixed=True, when_none=when_none)
    return LastResort((settings.last_resort,), when_none=when_none)


def _counts_of(loaded: LoadedRevision) -> dict[str, int]:
    """What a revision counts, for metrics: restarts of its sandbox (if it has one), verdicts."""
    memo = loaded.scheduler.memo
    return {
        "restarts": getattr(loaded.evaluator, "restarts", 0),
        "asked": memo.asked,
        "answered": memo.answered,
    }


def _time_reads(loaded: LoadedRevision) -> TimeReads:
    """What the policies of all profiles read that changes as time passes."""
    return time_reads(loaded.bundle.enabled)


def _spread(items: list[Any], most: int) -> list[Any]:
    """At most *most* of *items*, evenly spread over them."""
    step = max(1, len(items) // most)
    return items[::step][:most]
