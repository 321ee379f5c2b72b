"""Carries preemptions out: evicts the victims, beside the next decisions.

Owns the order of the steps and that a pod is not tried again while victims are evicted for it. Who
the victims are has been decided. Victims that are not bound yet are sent back in memory; the others
get a condition that says why, and are deleted with their own grace period. Nobody waits here until
they are gone: their deletion is an event, which wakes the preemptor.
"""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from engine.binding.binder import Backoff
from engine.binding.event_recorder import NORMAL, EventRecorder, pod_reference
from engine.binding.placement import Preemption
from engine.binding.pod_status import PodStatusUpdater
from engine.kube.client import ApiClient
from engine.kube.errors import ApiError, Conflict, Invalid, NotFound, TooManyRequests
from engine.kube.resources import PODS
from engine.lib.clock import Clock
from engine.model.pod import Pod
from engine.queueing.events import NOMINATION_CLEARED, PREEMPTION_DONE
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="preemptor")

#: kube-scheduler's name of the plugin, and what its gate says.
DEFAULT_PREEMPTION: Final = "DefaultPreemption"
WAITING: Final = "waiting for the preemption for this pod to be finished"

PREEMPTED_REASON: Final = "Preempted"
DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"

REQUEST_TIMEOUT: Final = 10.0
#: Victims that are evicted at the same time, over all preemptions.
PARALLELISM: Final = 16
#: A request that may succeed a little later is sent this often.
MOST_TRIES: Final = 5
#: How long to wait for the watch to show what the API server has answered.
SEEN_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01

Sleep = Callable[[float], Awaitable[None]]


class _NotWanted(Exception):
    """The preemptor needs no room any more: the other victims are spared."""


class _NotLeading(Exception):
    """Somebody else may be leading by now, and evicting is not ours any more."""


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    uid: str = ""
    deletion_timestamp: str | None = None


class _PodState(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_decode_state = msgspec.json.Decoder(_PodState).decode


def _no(_: str) -> bool:
    """The default of the hooks that send a pod back: there is no such pod."""
    return False


def _yes() -> bool:
    """The default of `may_act`."""
    return True


class _Eviction:
    """One victim on its way out: `under way --> ended`, and then it goes or it does not."""

    __slots__ = ("ended", "is_going")

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.is_going = False


class Preemptor:
    """Carries preemptions out, each in a task of its own.

    A preemptor, by uid: `free --start--> preempting --every eviction answered and seen--> free`.
    While it is preempting the queue's gate keeps it out (`is_preempting`): otherwise the deletion
    of the first of several victims would have it tried, and maybe more victims chosen, too early.
    When it is free again the queue looks at the gate once more, so that an event that came too
    early is not lost.

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
        may_act: Callable[[], bool] = _yes,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
        parallelism: int = PARALLELISM,
    ) -> None:
        self._client = client
        self._queue = queue
        self._recorder = recorder
        self._status = status
        self._metrics = metrics
        self._clock = clock
        self._reject_waiting = reject_waiting
        self._cancel_pre_bind = cancel_pre_bind
        self._is_going = is_going
        self._may_act = may_act
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._room = asyncio.Semaphore(parallelism)
        self._running: dict[str, asyncio.Task[None]] = {}
        # By the victim's uid, until the watch shows it going: two preemptors on one node may both
        # need the same pod to go, and one eviction is enough.
        self._evictions: dict[str, _Eviction] = {}
        self._errors = metrics.loop_errors.labels("preemption")

    @property
    def in_flight(self) -> int:
        """Preemptions that have started and not ended."""
        return len(self._running)

    def is_preempting(self, uid: str) -> bool:
        """True while victims are evicted for the pod of *uid*: it must not be tried."""
        return uid in self._running

    def gate(self, pod: Pod) -> tuple[str, str] | None:
        """Who keeps *pod* out of the active queue and why, or None."""
        return (DEFAULT_PREEMPTION, WAITING) if pod.uid in self._running else None

    def start(self, preemptor: Pod, preemption: Preemption, *, profile: str, revision: str) -> None:
        """Start to evict; returns at once, and the preemptor is gated from then on.

        If every victim is terminating already there is nothing to do but to wait for them, which
        is the queue's business.
        """
        victims = [victim for victim in preemption.victims if not victim.is_terminating]
        if not victims or preemptor.uid in self._running:
            return
        self._metrics.preemption_victims.observe(len(preemption.victims))
        work = self._run(preemptor, preemption.node, victims, profile, revision)
        self._running[preemptor.uid] = asyncio.ensure_future(work)

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109  # returns what is left
        """Wait for the preemptions under way; those left after *timeout* seconds are given up.

        What was evicted stays so, and what was not is decided anew by whoever schedules next.
        Returns how many were given up.
        """
        if self._running:
            await asyncio.wait(self._running.values(), timeout=timeout)
        left = list(self._running.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._running.clear()  # a task that never began could not take itself out
        return len(left)

    # --- one preemption --------------------------------------------------------------------

    async def _run(
        self, preemptor: Pod, node: str, victims: Sequence[Pod], profile: str, revision: str
    ) -> None:
        started_at = self._clock.monotonic()
        failure: Exception | None = None
        evicted: list[str] = []
        try:
            await self._carry_out(preemptor, node, victims, profile, revision, evicted)
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
            for uid in evicted:
                self._evictions.pop(uid, None)
        result = "success" if failure is None else "error"
        self._metrics.preemption_executions.labels(result).inc()
        seconds = self._clock.monotonic() - started_at
        self._metrics.preemption_seconds.labels(result).observe(seconds)
        if failure is None:
            # A victim that went before the last answer came has woken the preemptor against its
            # closed gate; if none has, it waits for their deletion like for any other event.
            self._queue.reconsider(preemptor.uid, PREEMPTION_DONE, only_gated=True)
        elif isinstance(failure, _NotLeading) or (
            isinstance(failure, ApiError) and _may_pass(failure)
        ):
            self._queue.activate([preemptor.key])
        else:
            # The same refusal may come again at once: without the wait this would never rest.
            self._queue.reconsider(preemptor.uid, PREEMPTION_DONE)

    async def _carry_out(
        self,
        preemptor: Pod,
        node: str,
        victims: Sequence[Pod],
        profile: str,
        revision: str,
        evicted: list[str],
    ) -> None:
        """Evict *victims*, the last one last; *evicted* takes the uids of those that go by this.

        Raises `ApiError`, `_NotLeading` or `_NotWanted` if not all of them were.
        """
        evict = functools.partial(self._evict_once, preemptor, node, profile, revision, evicted)
        # 1. On record first: a scheduler that starts after a sudden death of this one finds the
        #    nomination, waits for the terminating victims, and does not choose others.
        await self._status.flush(preemptor.uid)
        # 2. Pods of lower priority that were promised this node will not fit any more: the
        #    sooner they know, the sooner they find another.
        self._clear_nominations(preemptor, node)
        # 3. All but the last at the same time. The first failure keeps those from starting that
        #    have not; what has begun is finished.
        *others, last = victims
        failures: list[BaseException] = []

        async def evict_unless_failed(victim: Pod) -> None:
            async with self._room:
                if not failures:
                    try:
                        await evict(victim)
                    except Exception as error:
                        failures.append(error)

        await asyncio.gather(*map(evict_unless_failed, others))
        if failures:
            raise failures[0]
        # 4. The last by itself: if the room cannot be had, one victim less has gone for nothing.
        async with self._room:
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
                self._queue.reconsider(pod.uid, NOMINATION_CLEARED)

    # --- one victim ------------------------------------------------------------------------

    async def _evict_once(
        self,
        preemptor: Pod,
        node: str,
        profile: str,
        revision: str,
        evicted: list[str],
        victim: Pod,
    ) -> None:
        """Make *victim* go, unless it is going for the sake of another preemptor."""
        while (known := self._evictions.get(victim.uid)) is not None:
            await known.ended.wait()
            if known.is_going:
                return
        if self._is_going(victim.uid):
            return  # since it was chosen
        eviction = self._evictions[victim.uid] = _Eviction()
        try:
            await self._evict(preemptor, node, profile, revision, victim)
            eviction.is_going = True
            evicted.append(victim.uid)
        finally:
            eviction.ended.set()
            if not eviction.is_going:
                del self._evictions[victim.uid]

    async def _evict(
        self, preemptor: Pod, node: str, profile: str, revision: str, victim: Pod
    ) -> None:
        """Make *victim* go. Returns if it goes, or is gone anyway."""
        self._check_may_go_on(preemptor)
        note = f"Preempted by pod {preemptor.uid} on node {node}"
        is_in_memory = self._reject_waiting(victim.uid) or self._cancel_pre_bind(victim.uid)
        if is_in_memory:
            note += " (in kube-scheduler memory)."
        elif not await self._delete(preemptor, victim, profile):
            return
        log.info(
            "Preempted pod",
            pod=victim.key,
            node=node,
            preemptor=preemptor.key,
            in_memory=is_in_memory,
            profile=profile,
            revision=revision,
        )
        self._recorder.record(
            pod_reference(victim),
            kind=NORMAL,
            reason=PREEMPTED_REASON,
            action="Preempting",
            note=note,
            controller=profile,
            revision=revision,
            repeats=is_in_memory,
            related=pod_reference(preemptor),
        )

    def _check_may_go_on(self, preemptor: Pod) -> None:
        if preemptor.uid not in self._queue:
            raise _NotWanted
        if not self._may_act():
            raise _NotLeading("the lease may have run out")

    async def _delete(self, preemptor: Pod, victim: Pod, profile: str) -> bool:
        """Say on *victim* why, and delete it. False if it went without us."""
        condition = self._condition(victim, profile)
        if condition is not None:
            patch = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
            say = functools.partial(
                self._client.patch,
                PODS,
                victim.name,
                msgspec.json.encode(patch),
                victim.namespace,
                subresource="status",
                timeout=REQUEST_TIMEOUT,
            )
            if not await self._send(say, preemptor, victim):
                return False
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": victim.uid},
        }
        delete = functools.partial(
            self._client.delete,
            PODS,
            victim.name,
            victim.namespace,
            body=msgspec.json.encode(options),
            timeout=REQUEST_TIMEOUT,
        )
        return await self._send(delete, preemptor, victim)

    def _condition(self, victim: Pod, profile: str) -> dict[str, Any] | None:
        """The condition that tells users and controllers why the pod goes; None if it is there."""
        message = f"{profile}: preempting to accommodate a higher priority pod"
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": message,
        }
        known = next(
            (c for c in victim.manifest.status.conditions if c.type == DISRUPTION_TARGET), None
        )
        if known is not None and known.status == "True":
            if (known.reason, known.message) == (PREEMPTION_BY_SCHEDULER, message):
                return None
        else:
            now = datetime.fromtimestamp(self._clock.now(), UTC)
            condition["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            condition["lastProbeTime"] = None
        generation = victim.manifest.metadata.generation
        if generation:
            condition["observedGeneration"] = generation
        return condition

    async def _send(
        self, request: Callable[[], Awaitable[bytes]], preemptor: Pod, victim: Pod
    ) -> bool:
        """Send *request* about *victim*, again while that may help. False if the victim is gone.

        Both requests may be carried out twice: a lost answer is no reason to look first.
        """
        backoff: Backoff | None = None
        for tries in range(1, MOST_TRIES + 1):
            try:
                await request()
                return True
            except NotFound:
                return False
            except ApiError as error:
                failure = error
            # Another pod's uid is a conflict for a deletion, and invalid for a patch.
            if isinstance(failure, Conflict | Invalid) and await self._is_gone(victim):
                return False
            if tries == MOST_TRIES or not _may_pass(failure):
                raise failure
            backoff = backoff or Backoff(self._rng)
            await self._sleep(backoff.next(failure.retry_after))
            self._check_may_go_on(preemptor)
        raise AssertionError("unreachable")

    async def _is_gone(self, victim: Pod) -> bool:
        """True if *victim* is no more, or another pod has its name; False if that is not known."""
        try:
            raw = await self._client.get(
                PODS, victim.name, victim.namespace, timeout=REQUEST_TIMEOUT
            )
            return _decode_state(raw).metadata.uid != victim.uid
        except NotFound:
            return True
        except (ApiError, msgspec.DecodeError):
            return False


def _may_pass(error: ApiError) -> bool:
    """True if the same request may succeed a little later."""
    # Status 0: no answer arrived.
    return isinstance(error, TooManyRequests | Conflict) or error.status == 0 or error.status >= 500
