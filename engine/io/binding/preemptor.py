"""Evicts the victims of preemptions, in parallel with the next decisions.

Owns the order of the steps. The kernel has chosen the victims, and keeps the preemptor from being
tried meanwhile; how one victim is evicted is `eviction`'s. Nothing here waits until they are gone:
their deletion is an event, which wakes the preemptor.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from engine.core.kernel.events import Event, PreemptionEnd, PreemptionEnded
from engine.core.kernel.instructions import Evict
from engine.core.model.pod import Pod
from engine.io.binding.binder import always_allowed
from engine.io.binding.eviction import Cause, Evicted, Evictor, may_pass
from engine.io.binding.pod_status import PodStatusUpdater
from engine.io.kube.errors import ApiError
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics
from engine.telemetry.spans import step

log = structlog.get_logger(component="preemptor")

#: Victims that are evicted at the same time, over all preemptions: of those that are evicted first,
#: and of those that are evicted last.
PARALLELISM: Final = 16


class _NotWanted(Exception):
    """The preemptor does not need the node any more: the other victims are spared."""


class _NotLeading(Exception):
    """Another process may be leading by now, and evicting is its business."""


class Preemptor:
    """Carries out `Evict`, each in a task of its own that ends with `PreemptionEnded`.

    Args:
        evictor: Evicts each victim.
        status: What users see of the preemptor.
        report: Takes the event that a preemption ends with.
        metrics, clock: Measure.
        is_wanted: True if the pod with a uid still wants a node.
        given_back: Of the victims that queues give back, by uid: which queue to which, for people.
        may_act: False when another process may be leading: nothing is evicted then.
        parallelism: See `PARALLELISM`.
    """

    def __init__(
        self,
        evictor: Evictor,
        *,
        status: PodStatusUpdater,
        report: Callable[[Event], object],
        metrics: Metrics,
        clock: Clock,
        is_wanted: Callable[[str], bool],
        given_back: Callable[[Evict], Mapping[str, str]] = lambda _evict: {},
        may_act: Callable[[], bool] = always_allowed,
        parallelism: int = PARALLELISM,
    ) -> None:
        self._status = status
        self._report = report
        self._metrics = metrics
        self._clock = clock
        self._is_wanted = is_wanted
        self._given_back = given_back
        self._may_act = may_act
        self._evictor = evictor
        self._first_victims = asyncio.Semaphore(parallelism)
        # Those that are evicted last do not wait for the first ones of later preemptions: otherwise
        # a preemption would end no sooner than all that start while it goes on.
        self._last_victims = asyncio.Semaphore(parallelism)
        self._running: set[asyncio.Task[None]] = set()
        self._errors = metrics.loop_errors.labels("preemption")

    @property
    def in_flight(self) -> int:
        """Preemptions that have started and not ended."""
        return len(self._running)

    def start(self, evict: Evict) -> None:
        """Start to evict; returns at once."""
        task = asyncio.ensure_future(self._run(evict))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109  # returns what is left
        """Wait for the preemptions under way; those left after *timeout* seconds are given up.

        What was evicted stays so, and the next scheduler decides again about what was not.
        Returns how many were given up.
        """
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)
        left = list(self._running)
        await cancelled(left)
        return len(left)

    # --- one preemption --------------------------------------------------------------------

    async def _run(self, evict: Evict) -> None:
        preemptor, node = evict.preemptor, evict.preemption.node
        cause = Cause(
            preemptor,
            node,
            evict.profile,
            evict.revision,
            lambda: self._check_may_go_on(preemptor),
            evict.group,
            self._given_back(evict),
        )
        started_at = self._clock.monotonic()
        end, evicted = PreemptionEnd.DONE, list[Pod]()
        has_failed = False
        try:
            with step("preemption"):
                end = await self._carry_out(evict.victims, cause, evicted)
        except _NotWanted:
            log.info("Spared victims: the preemptor is gone", pod=preemptor.key, node=node)
        except (ApiError, _NotLeading) as error:
            has_failed = True
            passes = isinstance(error, _NotLeading) or may_pass(error)
            end = PreemptionEnd.INTERRUPTED if passes else PreemptionEnd.REFUSED
            log.warning(
                "Cannot evict all victims; trying the preemptor again",
                pod=preemptor.key,
                node=node,
                reason=str(error),
            )
        except Exception:
            # No known error gets here: this is a bug. The preemptor must not be lost because of it.
            has_failed, end = True, PreemptionEnd.REFUSED
            log.exception("Unexpected exception in a preemption", pod=preemptor.key, node=node)
            self._errors.inc()
        finally:
            for victim in evicted:
                self._evictor.forget(victim.uid)
        result = "error" if has_failed else "success"
        self._metrics.preemption_executions.labels(result).inc()
        seconds = self._clock.monotonic() - started_at
        self._metrics.preemption_seconds.labels(result).observe(seconds)
        kind = "podgroup" if evict.group else "pod"
        self._metrics.preemption_execution_seconds.labels(kind, result).observe(seconds)
        self._report(PreemptionEnded(preemptor, node, end))

    async def _carry_out(
        self, victims: Sequence[Pod], cause: Cause, evicted: list[Pod]
    ) -> PreemptionEnd:
        """Evict *victims*, the last one last; those that this evicts are added to *evicted*.

        Returns how that ended. Raises `ApiError`, `_NotLeading` or `_NotWanted` if not all of them
        were.
        """
        # 1. The nomination first: if this process crashes, the next one finds it, waits for the
        #    terminating victims, and does not choose others.
        await self._status.flush(cause.preemptor.uid)
        # 2. All but the last at the same time. The first failure keeps those from starting that
        #    have not; what has begun is finished.
        *others, last = victims
        failures: list[Exception] = []

        async def evict(victim: Pod, capacity: asyncio.Semaphore) -> Evicted:
            async with capacity:
                if failures:
                    return Evicted.BY_OTHERS
                how = await self._evictor.evict(victim, cause)
                if how is not Evicted.BY_OTHERS:
                    evicted.append(victim)
                return how

        async def evict_or_note(victim: Pod) -> None:
            try:
                await evict(victim, self._first_victims)
            except Exception as error:
                failures.append(error)

        await asyncio.gather(*map(evict_or_note, others))
        if failures:
            raise failures[0]
        # 3. The last by itself: if the others cannot be evicted, one victim less is lost in vain.
        how = await evict(last, self._last_victims)
        # 4. A pod that is tried before the watch has caught up sees the victims as they were, and
        #    evicts them again.
        await self._evictor.wait_until_seen(victims)
        return PreemptionEnd.IN_MEMORY if how is Evicted.IN_MEMORY else PreemptionEnd.DONE

    def _check_may_go_on(self, preemptor: Pod) -> None:
        if not self._is_wanted(preemptor.uid):
            raise _NotWanted
        if not self._may_act():
            raise _NotLeading("the lease may have run out")
