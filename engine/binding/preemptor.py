"""Carries preemptions out: evicts the victims, beside the next decisions.

Owns the order of the steps and that a pod is not tried again while victims are evicted for it. Who
the victims are has been decided; how one is evicted is `eviction`'s. Nobody waits here until they
are gone: their deletion is an event, which wakes the preemptor.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from engine.binding.binder import yes
from engine.binding.event_recorder import EventRecorder
from engine.binding.eviction import Cause, Evictor, Sleep, may_pass
from engine.binding.placement import Preemption
from engine.binding.pod_status import PodStatusUpdater
from engine.kube.client import ApiClient
from engine.kube.errors import ApiError
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.model.pod import Pod
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.queueing.transitions import Trigger
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="preemptor")

#: kube-scheduler's name of the plugin, and what its gate says.
DEFAULT_PREEMPTION: Final = "DefaultPreemption"
WAITING: Final = "waiting for the preemption for this pod to be finished"
WAITING_FOR_OTHERS: Final = "waiting for another preemption on the promised node to be finished"

#: Victims that are evicted at the same time, over all preemptions.
PARALLELISM: Final = 16
#: How long to wait for the watch to show what the API server has answered.
SEEN_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01


class _NotWanted(Exception):
    """The preemptor needs no room any more: the other victims are spared."""


class _NotLeading(Exception):
    """Somebody else may be leading by now, and evicting is not ours any more."""


def _no(_: str) -> bool:
    """The default of the hooks that send a pod back: there is no such pod."""
    return False


class Preemptor:
    """Carries preemptions out, each in a task of its own.

    A preemptor, by uid: `free --start--> preempting --every eviction answered and seen--> free`.
    While it is preempting the queue's gate keeps it out (`is_preempting`): otherwise the deletion
    of the first of several victims would have it tried, and maybe more victims chosen, too early.
    When it is free again the queue looks at the gate once more, so that an event that came too
    early is not lost.

    The gate also keeps out a pod that was promised a node on which another one preempts: the node
    has to hold both, so it does not fit before those victims have gone, too. As long as the watch
    does not show them going, an attempt would evict pods elsewhere for nothing.

    Args:
        client: The API server.
        queue: Holds the preemptor and the promises of nodes; told when a preemption has ended.
        recorder, status: Tell the users of the victims, of the preemptor, and of pods that lose
            their promised node.
        metrics, clock: Measure.
        is_going: If the watch has shown that the pod of a uid is terminating or gone.
        reject_waiting: Sends the pod of a uid back that waits for leave to be bound; False if
            there is none.
        cancel_pre_bind: Sends the pod of a uid back that is being prepared for its binding; False
            if there is none, or it is too late.
        may_act: False when somebody else may be leading: nothing is evicted then.
        sleep, rng: Wait between tries, and for how long.
        parallelism: See `PARALLELISM`.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        queue: SchedulingQueue,
        recorder: EventRecorder,
        status: PodStatusUpdater,
        metrics: Metrics,
        clock: Clock,
        is_going: Callable[[str], bool],
        reject_waiting: Callable[[str], bool] = _no,
        cancel_pre_bind: Callable[[str], bool] = _no,
        may_act: Callable[[], bool] = yes,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
        parallelism: int = PARALLELISM,
    ) -> None:
        self._queue = queue
        self._status = status
        self._metrics = metrics
        self._clock = clock
        self._is_going = is_going
        self._may_act = may_act
        self._sleep = sleep
        self._evictor = Evictor(
            client,
            recorder=recorder,
            clock=clock,
            is_going=is_going,
            send_back=lambda uid: reject_waiting(uid) or cancel_pre_bind(uid),
            sleep=sleep,
            rng=rng or random.Random(),
        )
        self._room = asyncio.Semaphore(parallelism)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._nodes: Counter[str] = Counter()  # preemptions under way, by node
        self._held: dict[str, str] = {}  # by uid, the promised node for which the gate was closed
        self._errors = metrics.loop_errors.labels("preemption")

    @property
    def in_flight(self) -> int:
        """Preemptions that have started and not ended."""
        return len(self._running)

    def is_preempting(self, uid: str) -> bool:
        """True while victims are evicted for the pod of *uid*: it must not be tried."""
        return uid in self._running

    def gate(self, pod: Pod) -> tuple[str, str] | None:
        """Who keeps *pod* out of the active queue and why, or None.

        The queue is told to ask again when the reason has ended.
        """
        if pod.uid in self._running:
            return DEFAULT_PREEMPTION, WAITING
        promised = self._queue.nominator.node_of(pod.uid) if self._nodes else None
        if promised is None or not self._nodes[promised]:
            return None
        self._held[pod.uid] = promised
        return DEFAULT_PREEMPTION, WAITING_FOR_OTHERS

    def start(self, preemptor: Pod, preemption: Preemption, *, profile: str, revision: str) -> None:
        """Start to evict; returns at once, and the preemptor is gated from then on.

        If every victim is terminating already there is nothing to do but to wait for them, which
        is the queue's business.
        """
        victims = [victim for victim in preemption.victims if not victim.is_terminating]
        if not victims or preemptor.uid in self._running:
            return
        self._metrics.preemption_victims.observe(len(preemption.victims))
        cause = Cause(
            preemptor, preemption.node, profile, revision, lambda: self._check_may_go_on(preemptor)
        )
        work = self._run(victims, cause)
        self._running[preemptor.uid] = asyncio.ensure_future(work)
        self._nodes[preemption.node] += 1
        for pod in self._queue.nominator.pods_on(preemption.node):
            self._queue.recheck(pod.uid, Trigger.PREEMPTION_STARTED)

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109  # returns what is left
        """Wait for the preemptions under way; those left after *timeout* seconds are given up.

        What was evicted stays so, and what was not is decided anew by whoever schedules next.
        Returns how many were given up.
        """
        if self._running:
            await asyncio.wait(self._running.values(), timeout=timeout)
        left = list(self._running.values())
        await cancelled(left)
        self._running.clear()  # a task that never began could not take itself out
        self._nodes.clear()
        return len(left)

    # --- one preemption --------------------------------------------------------------------

    async def _run(self, victims: Sequence[Pod], cause: Cause) -> None:
        preemptor, node = cause.preemptor, cause.node
        started_at = self._clock.monotonic()
        failure: Exception | None = None
        evicted: list[Pod] = []
        try:
            await self._carry_out(victims, cause, evicted)
        except _NotWanted:
            log.info("Spared victims: the preemptor is gone", pod=preemptor.key, node=node)
        except (ApiError, _NotLeading) as error:
            failure = error
            log.warning(
                "Cannot evict all victims; trying the preemptor again",
                pod=preemptor.key,
                node=node,
                reason=str(error),
            )
        except Exception as error:
            # Nothing known raises here: a fault of ours. The preemptor must not be lost with it.
            failure = error
            log.exception("Unexpected exception in a preemption", pod=preemptor.key, node=node)
            self._errors.inc()
        finally:
            # Also when cancelled. The gate has to be open before the queue asks it again.
            del self._running[preemptor.uid]
            self._leave(node)
            for victim in evicted:
                self._evictor.forget(victim.uid)
        result = "success" if failure is None else "error"
        self._metrics.preemption_executions.labels(result).inc()
        seconds = self._clock.monotonic() - started_at
        self._metrics.preemption_seconds.labels(result).observe(seconds)
        if failure is None:
            # A victim that went before the last answer came has woken the preemptor against its
            # closed gate; if none has, it waits for their deletion like for any other event.
            self._queue.recheck(preemptor.uid, Trigger.PREEMPTION_DONE)
        elif isinstance(failure, _NotLeading) or (
            isinstance(failure, ApiError) and may_pass(failure)
        ):
            self._queue.activate([preemptor.uid])
        else:
            # The same refusal may come again at once: without the wait this would never rest.
            self._queue.recheck(preemptor.uid, Trigger.PREEMPTION_FAILED)
        self._let_go(node)

    def _leave(self, node: str) -> None:
        """One preemption less on *node*."""
        self._nodes[node] -= 1
        if not self._nodes[node]:
            del self._nodes[node]

    def _let_go(self, node: str) -> None:
        """Ask the gate again of those that were kept out while somebody preempted on *node*."""
        if node in self._nodes:
            return
        for uid in [uid for uid, promised in self._held.items() if promised == node]:
            del self._held[uid]
            self._queue.recheck(uid, Trigger.PREEMPTION_DONE)

    async def _carry_out(self, victims: Sequence[Pod], cause: Cause, evicted: list[Pod]) -> None:
        """Evict *victims*, the last one last; *evicted* takes those that go by this.

        Raises `ApiError`, `_NotLeading` or `_NotWanted` if not all of them were.
        """
        # 1. On record first: a scheduler that starts after a sudden death of this one finds the
        #    nomination, waits for the terminating victims, and does not choose others.
        await self._status.flush(cause.preemptor.uid)
        # 2. Pods of lower priority that were promised this node will not fit any more: the
        #    sooner they know, the sooner they find another.
        self._clear_nominations(cause.preemptor, cause.node)
        # 3. All but the last at the same time. The first failure keeps those from starting that
        #    have not; what has begun is finished.
        *others, last = victims
        failures: list[Exception] = []

        async def evict(victim: Pod) -> None:
            async with self._room:
                if not failures and await self._evictor.evict(victim, cause):
                    evicted.append(victim)

        async def evict_or_note(victim: Pod) -> None:
            try:
                await evict(victim)
            except Exception as error:
                failures.append(error)

        await asyncio.gather(*map(evict_or_note, others))
        if failures:
            raise failures[0]
        # 4. The last by itself: if the room cannot be had, one victim less has gone for nothing.
        await evict(last)
        # 5. Whoever is tried before the watch has caught up sees the victims as they were, and
        #    evicts them again.
        await self._wait_until_seen(victims)

    async def _wait_until_seen(self, victims: Sequence[Pod]) -> None:
        give_up_at = self._clock.monotonic() + SEEN_SECONDS
        while self._clock.monotonic() < give_up_at:
            if all(self._is_going(victim.uid) for victim in victims):
                return
            await self._sleep(_POLL_SECONDS)

    def _clear_nominations(self, preemptor: Pod, node: str) -> None:
        nominator = self._queue.nominator
        for pod in nominator.pods_on(node):
            if pod.priority < preemptor.priority:
                nominator.nominate(pod, "")
                self._status.nominate(pod, "")
                self._queue.recheck(pod.uid, Trigger.NOMINATION_CLEARED)

    def _check_may_go_on(self, preemptor: Pod) -> None:
        if preemptor.uid not in self._queue:
            raise _NotWanted
        if not self._may_act():
            raise _NotLeading("the lease may have run out")
